"""Conformity scores: how far y lies outside its bounds, and the interval that an offset gives.

Scores and bounds take a few operations, and each operation rounds. We round scores up and bounds outwards, so that
every y whose score is at most the offset lies inside. Each operation looks at its exact error, and moves its result by
one double at most. Where arithmetic is exact, nothing moves.

With ``ties="random"``, offsets can lie just below a score, and y with that score must then be outside. There we round
bounds inwards. This loses no y: a score, rounded up, is at most the offset just where the exact score is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from icqr._tables import FloatArray, IntArray

T = TypeVar("T", bound=np.generic)
CONFORMITIES = ("cqr", "cqr-r", "cqr-m")
SIDES = ("both", "lower", "upper")
TIES = ("covered", "random")
LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
_OUTWARDS = np.array([-1.0, 1.0])  # the directions in which the lower and the upper bound move


@dataclass(frozen=True)
class Conformity:
    """How far y lies outside its bounds, and the interval that an offset gives.

    Parameters
    ----------
    kind : {"cqr", "cqr-r", "cqr-m"}
        The score: distance to the nearer bound; the same over the width; or over that bound's distance to the median.
    symmetric : bool
        True: one offset for both bounds. False: one for each.
    side : {"both", "lower", "upper"}
        Which bounds there are. With one bound there is no width, so both scaled scores divide by its distance to the
        median.
    floor : float
        Smallest divisor of the scaled scores and of the signed ones.
    y_min, y_max : float
        Known limits of y; intervals are clipped to them.
    ties : {"covered", "random"}
        "covered": bounds are rounded outwards, and may reach one double further than the last y whose score is at most
        the offset. "random": they are rounded inwards, and end exactly there, because scores are rounded up.

    Examples
    --------
    >>> bounds = np.array([[0.0, 1.0, 4.0]])
    >>> Conformity("cqr").scores(bounds, np.array([5.0]))
    array([[1.]])
    >>> Conformity("cqr").intervals(bounds, np.array([[2.0, 2.0]]))
    array([[-2.,  6.]])
    """

    kind: str = "cqr"
    symmetric: bool = True
    side: str = "both"
    floor: float = 1.0
    y_min: float = -math.inf
    y_max: float = math.inf
    ties: str = "covered"

    def scores(self, bounds: FloatArray, y: FloatArray) -> FloatArray:
        """Return (n, 1) scores, or with one offset per side (n, 2), for the lower and the upper bound."""
        lower, _, upper = bounds.T
        sides = np.column_stack([add_up(lower, -y), add_up(y, -upper)])
        if self.kind != "cqr":
            sides = divide_up(sides, np.clip(self.widths(bounds), self.floor, LARGEST))
        return sides.max(axis=1, keepdims=True) if self.symmetric else sides

    def intervals(self, bounds: FloatArray, offsets: FloatArray) -> FloatArray:
        """Return (n, 2) intervals: the bounds, widened by each row's offsets. They always contain the row's centre."""
        intervals = self._contain_centre(self._moved(bounds, offsets), bounds)
        if math.isfinite(self.y_min) or math.isfinite(self.y_max):
            intervals = np.clip(intervals, self.y_min, self.y_max)
        intervals += 0.0  # turns -0.0 into 0.0, which is nicer to read
        return intervals

    def collapsed(self, bounds: FloatArray, offsets: FloatArray) -> NDArray[np.bool_]:
        """Return which rows' bounds would move inwards past the centre, where they stop."""
        moved = self._moved(bounds, offsets)
        return np.asarray((moved != self._contain_centre(moved, bounds)).any(axis=1))

    def _moved(self, bounds: FloatArray, offsets: FloatArray) -> FloatArray:
        times, add = (times_down, add_down) if self.ties == "random" else (times_up, add_up)
        if self.kind != "cqr":
            offsets = times(offsets, np.clip(self.widths(bounds), self.floor, LARGEST))
        # [lower - q, upper + q], with the lower bound negated, so that rounding up moves both bounds outwards, and
        # rounding down both inwards.
        return np.asarray(add(bounds[:, ::2] * _OUTWARDS, offsets) * _OUTWARDS)

    def _contain_centre(self, intervals: FloatArray, bounds: FloatArray) -> FloatArray:
        if self.side != "both":
            return intervals.copy()  # the other end is infinite: nothing can collapse
        lower, centre, upper = bounds.T
        if self.kind != "cqr-m" and self.symmetric:
            # Halve first, because the sum of two large bounds could overflow. Clip, because halving rounds the smallest
            # doubles.
            centre = np.clip(lower / 2 + upper / 2, lower, upper)
        contained = np.empty_like(intervals)
        np.minimum(intervals[:, 0], centre, out=contained[:, 0])
        np.maximum(intervals[:, 1], centre, out=contained[:, 1])
        return contained

    def widths(self, bounds: FloatArray) -> FloatArray:
        """Return (n, 2) divisors of the scaled scores, before the floor."""
        lower, median, upper = bounds.T
        with np.errstate(over="ignore"):
            if self.kind == "cqr-r" and self.side == "both":
                below = above = upper - lower
            else:
                below = upper - median if self.side == "upper" else median - lower
                above = median - lower if self.side == "lower" else upper - median
        # For a coverage below 0.5, a single bound lies on the other side of the median: hence the absolute value.
        return np.asarray(np.abs(np.column_stack([below, above])))

    def distances(self, bounds: FloatArray) -> FloatArray:
        """Return (n, 2) divisors of the signed scores, below and above the median.

        Each is halfway between that side's distance from the median to the bound and the mean of both sides. A
        predicted median is often too near one bound, and the distance alone would then be a poor scale. With one side,
        its bound's distance serves both; `Naive` has no distances, and its floor is 1.
        """
        sides = np.clip(replace(self, kind="cqr-m").widths(bounds), 0, LARGEST)
        return np.clip(sides / 2 + sides[:, :1] / 4 + sides[:, 1:] / 4, self.floor, LARGEST)

    def signed_scores(self, bounds: FloatArray, y: FloatArray) -> FloatArray:
        """Return how far y lies above the median, over that side's scale; below the median it is negative.

        Examples
        --------
        >>> Conformity().signed_scores(np.array([[0.0, 2.0, 8.0]]), np.array([7.0]))
        array([1.])
        """
        return signed_scores(bounds[:, 1], self.distances(bounds), y)


@dataclass(frozen=True)
class SignedScores:
    """The signed scores of each group, sorted: what a predictive distribution is made of.

    Parameters
    ----------
    values : tuple of arrays
        Each group's scores. The last entry is for rows of no known group.
    folds : tuple of arrays, optional
        After cross-calibration, the fold of each score.

    Examples
    --------
    >>> SignedScores.of(np.array([0.5, -1.0, 2.0]), np.array([0, 0, -1]), 1).values
    (array([-1. ,  0.5]), array([2.]))
    """

    values: tuple[FloatArray, ...]
    folds: tuple[IntArray, ...] | None = None

    @classmethod
    def of(cls, scores: FloatArray, labels: IntArray, n_groups: int, fold_of: IntArray | None = None) -> Self:
        """Sort the scores by group. Rows with other labels than 0 to `n_groups` - 1 belong to no known group."""
        known = np.where((labels >= 0) & (labels < n_groups), labels, n_groups)
        order = np.lexsort((scores, known))
        ends = np.cumsum(np.bincount(known, minlength=n_groups + 1))[:-1]
        folds = None if fold_of is None else tuple(np.split(fold_of[order], ends))
        return cls(tuple(np.split(scores[order], ends)), folds)

    def for_small(self, small: NDArray[np.bool_], small_groups: str) -> SignedScores:
        """Return the scores that rows of each group get, where these groups are too small.

        "pooled": they get the scores of all rows. Otherwise they keep their own; rows of no known group have none.
        """
        if small_groups != "pooled":
            folds = None if self.folds is None else (*self.folds[:-1], self.folds[-1][:0])
            return SignedScores((*self.values[:-1], self.values[-1][:0]), folds)
        pooled = np.concatenate(self.values)
        order = np.argsort(pooled, kind="stable")

        def chosen(own: tuple[NDArray[T], ...]) -> tuple[NDArray[T], ...]:
            everything = np.concatenate(own)[order]
            return tuple(everything if is_small else mine for mine, is_small in zip(own, small, strict=True))

        return SignedScores(chosen(self.values), None if self.folds is None else chosen(self.folds))


def signed_scores(median: FloatArray, distances: FloatArray, y: FloatArray) -> FloatArray:
    """Return the signed scores of y around these medians; see `Conformity.signed_scores`."""
    with np.errstate(over="ignore"):
        scores = (y - median) / np.where(y < median, distances[:, 0], distances[:, 1])
    return np.asarray(np.clip(scores, -LARGEST, LARGEST))


def width_floor(widths: FloatArray) -> float:
    """Return the smallest divisor of scaled scores: 1e-3 of the median width (if 0, of the mean; if 0 too, 1)."""
    with np.errstate(over="ignore"):
        typical = np.median(widths) or np.mean(widths)
    return max(1e-3 * min(float(typical), LARGEST), SMALLEST) if typical > 0 else 1.0


# -- Arithmetic that rounds in one direction --------------------------------------------------------------------------


def _up(value: FloatArray, exact: NDArray[np.bool_]) -> FloatArray:
    """Return exact values, and the next double for others. An overflow to minus infinity becomes the lowest double."""
    return np.maximum(np.where(exact, value, np.nextafter(value, np.inf)), -LARGEST)


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a + b, rounded towards plus infinity (the error is Knuth's two-sum)."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        return _up(total, error <= 0)


def times_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a * b, rounded towards plus infinity, for b > 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * b
        # Compare with the product of the mantissas, which neither overflows nor underflows: a tiny product is rounded
        # further than its digits say.
        (x, i), (y, j) = np.frexp(a), np.frexp(b)
        return _up(product, np.ldexp(product, -i - j) - x * y >= _product_error(x, y))


def add_down(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a + b, rounded towards minus infinity; infinite sums stay infinite."""
    total = add_up(a, b)
    return np.where(np.isinf(total), total, -add_up(-a, -b))


def times_down(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a * b, rounded towards minus infinity, for b > 0; infinite products stay infinite."""
    product = times_up(a, b)
    return np.where(np.isinf(product), product, -times_up(-a, b))


def divide_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a / b, rounded towards plus infinity, for b > 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        quotient = a / b
        (x, i), (y, j) = np.frexp(quotient), np.frexp(b)
        is_enough = np.ldexp(a, -i - j) - x * y <= _product_error(x, y)
        return _up(quotient, np.where(quotient == 0, a <= 0, is_enough))


def _product_error(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a * b minus its rounded value, exactly (Dekker): a and b are split into halves with exact products."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return np.asarray(a_low * b_low - (((a * b - a_high * b_high) - a_low * b_high) - a_high * b_low))


def _halves(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    shifted = a * (2**27 + 1)
    high = shifted - (shifted - a)
    return high, a - high
