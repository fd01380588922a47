"""Predictive distributions: the whole distribution of y in each row, calibrated in the row's group.

A calibration row's signed score says how far y lay above or below the median, in that row's own scale on that
side, which comes from the row's bounds. The n sorted scores of a group, put back into the scale of a new row, are n
points that cut the line into n + 1 intervals. If the new row comes from where the calibration rows came from, y falls
into each of them with probability 1 / (n + 1): a conformal predictive system (Vovk et al. 2019), one for each group.

Nothing is known about where y lies in the two outermost intervals, so there nothing is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from icqr._notebook import shown
from icqr._rows import check_target
from icqr._sheet import Column, Sheet, cell
from icqr._tables import ROWS_AT_ONCE, FloatArray, IntArray
from icqr.calibration import conformal_rank, offset_level
from icqr.conformity import Conformity, SignedScores, signed_scores
from icqr.cross import MOST_PAIRS

__all__ = ["PredictiveDistribution"]

#: The quantiles that a table of distributions shows.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
#: A notebook shows this many rows.
MOST_SHOWN = 5
#: A level times n + 1 this near a whole number is that number: 0.7 * 10 is 7, whatever rounding says.
_NEAR = 1e-9
Side = Literal["left", "right"]


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveDistribution:
    """The distribution of y in each row, as `predict_distribution` returns it.

    A row in a group with n calibration rows has n points. The cdf is i / (n + 1) at the i-th of them and linear in
    between. The mass of 1 / (n + 1) beyond each outermost point is known, but not where it lies: there `cdf` below and
    `sf` above stay at 1 / (n + 1), which means "at most", until a limit of y that you gave the model. Quantiles out
    there are infinite, or that limit.

    If new rows come from where the calibration rows came from, `pit` is exactly uniform in each group that is large
    enough, and ``interval(c)`` contains y with probability c at least. After cross-calibration both hold about so.
    Groups that are too small for the model's coverage get what `small_groups` says: with "pooled" the points of all
    rows, without a promise; with "infinite" their own. A row of no known group then has none, and its values are NaN.

    Parameters
    ----------
    conformity : Conformity
        The scale of scores, and y's limits.
    scores : SignedScores
        The scores of each group.
    bounds : array of shape (folds, n, 3)
        Each row's lower bound, median and upper bound; one fold unless cross-calibrated.
    groups : array of int
        Each row's group.
    index : Index, optional
        The rows' names in tables.

    Examples
    --------
    >>> from icqr import ICQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(1000, random_state=0, return_X_y=True)
    >>> distribution = ICQR(random_state=0).fit(X, y).predict_distribution(X[:4])
    >>> distribution.sf(1.0).shape, distribution.ppf([0.1, 0.5, 0.9]).shape, distribution.interval(0.8).shape
    ((4,), (4, 3), (4, 2))
    """

    conformity: Conformity
    scores: SignedScores
    bounds: FloatArray
    groups: IntArray
    index: pd.Index[Any] | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        sizes = sorted(set(self.sizes.tolist())) or [0]
        points = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
        return f"<{type(self).__name__}: {len(self):,} rows, each with {points} points>"

    def _repr_html_(self) -> str:
        rows = self._take(np.arange(min(len(self), MOST_SHOWN))).to_frame()
        heads = [Column("row"), *(Column(str(name).replace("_", " ")) for name in rows)]
        sheet = Sheet(heads, [[cell(name), *map(cell, values)] for name, *values in rows.itertuples(name=None)])
        return shown(f"<p><code>{escape(repr(self))}</code></p>", sheet.to_html())

    @property
    def sizes(self) -> IntArray:
        """The number of points of each row: the calibration rows in its group."""
        return np.array([len(group) for group in self.scores.values], dtype=np.intp)[self.groups]

    # -- Probabilities -----------------------------------------------------------------------------------------------

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Return P(Y ≤ y) for each row.

        Parameters
        ----------
        y : float or array of shape (n,)
            One number for all rows, or one for each.

        Returns
        -------
        array of shape (n,)
            Below a row's first point it is 1 / (n + 1), which means "at most". Below `y_min` it is 0, from `y_max` 1.
        """
        values = self._column(y)
        inner = self._over_groups(_cdf, values)
        impossible = (values < self.conformity.y_min) | np.isneginf(values)
        return np.where(impossible, 0.0, np.where(values >= self.conformity.y_max, 1.0, inner))

    def sf(self, y: ArrayLike) -> FloatArray:
        """Return P(Y > y) for each row: 1 - cdf. Above a row's last point it is 1 / (n + 1), "at most"."""
        return 1.0 - self.cdf(y)

    def ppf(self, levels: ArrayLike) -> FloatArray:
        """Return quantiles, the inverse of `cdf`: (n,) for one level, (n, levels) for a list.

        They are infinite below the level 1 / (n + 1) and above n / (n + 1), or y's limits if you set them.
        """
        wanted = np.asarray(levels, dtype=np.float64)
        if wanted.ndim > 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise ValueError(f"levels must be a number or a list of numbers from 0 to 1, got {levels!r}; pass 0.5")
        quantiles = [self._over_groups(_ppf, np.full(len(self), level)) for level in np.atleast_1d(wanted)]
        table = np.column_stack(quantiles) if quantiles else np.empty((len(self), 0))
        table = np.clip(table, self.conformity.y_min, self.conformity.y_max)
        return table if wanted.ndim else table[:, 0]

    def median(self) -> FloatArray:
        """Return each row's median, ``ppf(0.5)``: the model's own, corrected by the group's scores."""
        return self.ppf(0.5)

    def interval(self, coverage: float | Sequence[float]) -> FloatArray:
        """Return central intervals: (n, 2) for one coverage, (n, 2, coverages) for a list.

        Each end misses with probability (1 - coverage) / 2 at most, so that intervals promise at least the coverage.
        They are nested, and infinite where a group has too few scores.
        """
        coverages = np.atleast_1d(np.asarray(coverage, dtype=object)).tolist()
        ends = [self._interval(offset_level(level, symmetric=False)) for level in coverages]
        return np.stack(ends, axis=2) if np.ndim(coverage) else ends[0]

    def _interval(self, level: Any) -> FloatArray:
        def at_rank(law: _Law, is_upper: bool) -> FloatArray:
            rank = conformal_rank(law.n, level)
            if rank > law.n:
                return np.full(len(law), np.inf if is_upper else -np.inf)
            return law.to_y(law.at(np.full(len(law), rank - 1 if is_upper else law.n - rank)))

        ends = np.column_stack([self._over_groups(lambda law, end=end: at_rank(law, end)) for end in (False, True)])
        # Outwards by what rounding needs, so that every y whose score has the rank lies inside.
        slack = 4 * np.finfo(np.float64).eps * (np.abs(ends) + np.abs(self.bounds[0, :, [1]].T))
        return np.clip(ends + slack * [-1.0, 1.0], self.conformity.y_min, self.conformity.y_max)

    def pit(self, y: ArrayLike, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Return the probability integral transform of what happened: uniform in each group if all is well.

        It is drawn between the cdf's values left and right of y, so that it is exactly uniform with n calibration rows,
        also where y is discrete. Without ties, ``cdf(y)`` differs from it by at most 1 / (n + 1).

        Parameters
        ----------
        y : array of shape (n,)
            What happened.
        random_state : int, RandomState or None
            Seed of the draws.
        """
        happened = self._happened(y)

        def rank(law: _Law, values: FloatArray, draws: FloatArray) -> FloatArray:
            scores = law.to_scores(values)
            below, up_to = law.count(scores, "left"), law.count(scores, "right")
            return np.asarray((below + draws * (1 + up_to - below)) / (law.n + 1))

        return self._over_groups(rank, happened, check_random_state(random_state).uniform(size=len(self)))

    # -- The known part: the points, equally likely ------------------------------------------------------------------

    def mean(self) -> FloatArray:
        """Return the mean of each row's points. What lies beyond them is unknown, and left out."""
        limits = self.conformity.y_min, self.conformity.y_max
        return self._over_groups(lambda law: law.mean(*limits))

    def sample(self, n: int, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw n values for each row from its points, with replacement: (rows, n). None lies beyond them."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ValueError(f"n must be a whole number, 0 or more, got {n!r}")
        draws = check_random_state(random_state).uniform(size=(len(self), n))

        def drawn(law: _Law, draws: FloatArray) -> FloatArray:
            if law.n == 0:
                return np.full_like(draws, np.nan)
            return law.to_y(law.at((draws * law.n).astype(np.intp)))

        return np.clip(self._over_groups(drawn, draws, shape=(n,)), self.conformity.y_min, self.conformity.y_max)

    def crps(self, y: ArrayLike) -> FloatArray:
        """Return each row's continuous ranked probability score: how far its points are from what happened.

        It is in y's unit, smaller is better, and for a single point it is the absolute error. It is that of the points,
        equally likely, because of the unknown part there is none.
        """
        limits = self.conformity.y_min, self.conformity.y_max
        return self._over_groups(lambda law, values: law.crps(values, *limits), self._happened(y))

    def to_frame(self, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Return a DataFrame of quantiles, with the index of the rows' table.

        Examples
        --------
        >>> from icqr import Naive
        >>> X = np.arange(300.0)[:, None]
        >>> Naive(random_state=0).fit(X, X.ravel()).predict_distribution(X[:2]).to_frame([0.1, 0.9]).columns.tolist()
        ['quantile_0.1', 'quantile_0.9']
        """
        names = [f"quantile_{float(level):g}" for level in levels]
        return pd.DataFrame(self.ppf(list(levels)), columns=names, index=self.index)

    # -- Over groups, in blocks of rows ------------------------------------------------------------------------------

    @cached_property
    def _rows_of(self) -> list[tuple[int, IntArray]]:
        """The rows of each group."""
        order = np.argsort(self.groups, kind="stable")
        labels, starts = np.unique(self.groups[order], return_index=True)
        return list(zip(labels.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else []

    def _laws(self) -> Iterator[tuple[IntArray, _Law]]:
        """Yield rows of one group, not too many at a time, with their points."""
        for group, rows in self._rows_of:
            scores, folds = self.scores.values[group], self.scores.folds
            step = ROWS_AT_ONCE if folds is None else max(1, MOST_PAIRS // max(len(scores), 1))
            for start in range(0, len(rows), step):
                block = rows[start : start + step]
                if folds is None:
                    bounds = self.bounds[0, block]
                    yield block, _Scaled(scores, bounds[:, 1], self.conformity.distances(bounds))
                else:
                    # Each score in the scale that the model of its fold predicts for the row.
                    points = np.empty((len(block), len(scores)))
                    for fold, bounds in enumerate(self.bounds[:, block]):
                        own = folds[group] == fold
                        law = _Scaled(scores[own], bounds[:, 1], self.conformity.distances(bounds))
                        points[:, own] = law.to_y(law.scores[None])
                    yield block, _Points(np.sort(points, axis=1))

    def _over_groups(
        self, function: Callable[..., FloatArray], *columns: FloatArray, shape: tuple[int, ...] = ()
    ) -> FloatArray:
        """Return a function's values for all rows, from their laws and their parts of these columns."""
        values = np.empty((len(self), *shape))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for rows, law in self._laws():
                values[rows] = function(law, *(column[rows] for column in columns))
        return values

    def _take(self, rows: IntArray) -> PredictiveDistribution:
        index = None if self.index is None else self.index[rows]
        return PredictiveDistribution(self.conformity, self.scores, self.bounds[:, rows], self.groups[rows], index)

    def _column(self, y: ArrayLike) -> FloatArray:
        """Return one value per row; a number is for all."""
        values = np.asarray(y, dtype=np.float64)
        if values.shape not in ((), (len(self),)) or np.isnan(values).any():
            raise ValueError(
                f"y must be a number, or one for each of the {len(self)} rows, and not NaN; got "
                f"{'NaN' if np.isnan(values).any() else f'shape {values.shape}'}"
            )
        return np.broadcast_to(values, len(self))

    def _happened(self, y: ArrayLike) -> FloatArray:
        return check_target(y, len(self), (self.conformity.y_min, self.conformity.y_max))


# -- The law of some rows of one group -------------------------------------------------------------------------------


class _Law(Protocol):
    """n points for each of some rows, sorted: either shared scores with each row's scale, or the row's own points."""

    n: int

    def __len__(self) -> int: ...
    def to_scores(self, y: FloatArray) -> FloatArray: ...
    def to_y(self, scores: FloatArray) -> FloatArray: ...
    def count(self, scores: FloatArray, side: Side) -> IntArray: ...
    def at(self, places: IntArray) -> FloatArray: ...
    def mean(self, low: float, high: float) -> FloatArray: ...
    def crps(self, y: FloatArray, low: float, high: float) -> FloatArray: ...


class _Scaled:
    """Scores that all rows share, each row with its median and (n, 2) distances below and above it."""

    def __init__(self, scores: FloatArray, median: FloatArray, distances: FloatArray) -> None:
        self.scores, self.median, self.distances = scores, median, distances
        self.n = len(scores)

    def __len__(self) -> int:
        return len(self.median)

    def to_scores(self, y: FloatArray) -> FloatArray:
        return signed_scores(self.median, self.distances, y)

    def to_y(self, scores: FloatArray) -> FloatArray:
        shape = (-1, *(1,) * (scores.ndim - 1))  # one score per row, or several
        below, above = (side.reshape(shape) for side in self.distances.T)
        with np.errstate(over="ignore"):
            return np.asarray(self.median.reshape(shape) + scores * np.where(scores < 0, below, above))

    def count(self, scores: FloatArray, side: Side) -> IntArray:
        """Return how many scores are smaller than these ("left"), or not larger ("right")."""
        return np.searchsorted(self.scores, scores, side)

    def at(self, places: IntArray) -> FloatArray:
        return np.asarray(self.scores[places])

    def mean(self, low: float, high: float) -> FloatArray:
        return np.asarray(self.median + self._sum(np.ones(self.n), self.n, low, high) / self.n)

    def crps(self, y: FloatArray, low: float, high: float) -> FloatArray:
        """Return E|X - y| - E|X - X'| / 2 for X and X' drawn from the points, all by sums over the first so many."""
        ones, n = np.ones(self.n), self.n
        up_to = self.count(self.to_scores(y), "right")
        error = self._sum(ones, n, low, high) - 2 * self._sum(ones, up_to, low, high)
        error += (2 * up_to - n) * (y - self.median)
        return np.asarray(error / n - self._sum(_gaps(n), n, low, high) / n**2)

    def _sum(self, weights: FloatArray, first: int | IntArray, low: float, high: float) -> FloatArray:
        """Return the weighted sum of the first so many points, minus the median, the points held within limits."""
        below, above = np.minimum(self.scores, 0.0), np.maximum(self.scores, 0.0)
        sums = [np.append(0.0, np.cumsum(part)) for part in (weights, weights * below, weights * above)]
        start = np.minimum(self.count(self.to_scores(np.array(low)), "left"), first)  # those before are held at `low`
        end = np.clip(self.count(self.to_scores(np.array(high)), "right"), start, first)  # from here on at `high`
        inner = sum((part[end] - part[start]) * side for part, side in zip(sums[1:], self.distances.T, strict=True))
        at_low, at_high = sums[0][start], sums[0][first] - sums[0][end]
        held = np.where(at_low == 0, 0.0, at_low * (low - self.median))  # zero times infinity is zero
        return np.asarray(inner + held + np.where(at_high == 0, 0.0, at_high * (high - self.median)))


class _Points:
    """Points of each row's own, (rows, n): after cross-calibration each comes from the model of one fold."""

    def __init__(self, points: FloatArray) -> None:
        self.points = points
        self.n = points.shape[1]

    def __len__(self) -> int:
        return len(self.points)

    def to_scores(self, y: FloatArray) -> FloatArray:
        return y

    def to_y(self, scores: FloatArray) -> FloatArray:
        return scores

    def count(self, scores: FloatArray, side: Side) -> IntArray:
        compare = np.less if side == "left" else np.less_equal
        return np.asarray(compare(self.points, scores[:, None]).sum(axis=1))

    def at(self, places: IntArray) -> FloatArray:
        return np.take_along_axis(self.points, places.reshape(len(self), -1), axis=1).reshape(places.shape)

    def mean(self, low: float, high: float) -> FloatArray:
        return np.asarray(np.clip(self.points, low, high).sum(axis=1) / self.n)

    def crps(self, y: FloatArray, low: float, high: float) -> FloatArray:
        points = np.clip(self.points, low, high)
        return np.asarray(np.abs(points - y[:, None]).sum(axis=1) / self.n - points @ _gaps(self.n) / self.n**2)


def _cdf(law: _Law, y: FloatArray) -> FloatArray:
    """Return i / (n + 1) at the i-th point, and linear between points."""
    if law.n == 0:
        return np.full(len(law), np.nan)
    scores = law.to_scores(y)
    place = law.count(scores, "right")
    left, right = law.at(np.maximum(place - 1, 0)), law.at(np.minimum(place, law.n - 1))
    is_between = (place > 0) & (place < law.n)
    share = np.where(is_between, (scores - left) / np.where(is_between, right - left, 1.0), 0.0)
    return np.asarray((np.maximum(place, 1) + share) / (law.n + 1))


def _ppf(law: _Law, levels: FloatArray) -> FloatArray:
    """Return the inverse of `_cdf`."""
    if law.n == 0:
        return np.full(len(law), np.nan)
    rank = levels * (law.n + 1)
    rank = np.where(np.abs(rank - np.rint(rank)) < _NEAR, np.rint(rank), rank)
    place = np.clip(rank.astype(np.intp), 1, law.n)
    left, right = law.at(place - 1), law.at(np.minimum(place, law.n - 1))
    values = law.to_y(left + np.clip(rank - place, 0, 1) * (right - left))
    return np.where(rank < 1, -np.inf, np.where(rank > law.n, np.inf, values))


def _gaps(n: int) -> FloatArray:
    """Return the weights with which n sorted points add up to the sum of the distances of all pairs."""
    return np.arange(1.0 - n, n, 2.0, dtype=np.float64)
