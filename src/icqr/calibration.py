"""Offsets: how far each group's bounds must move, as an order statistic of the group's conformity scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from icqr._messages import warn
from icqr._notebook import promises, shown
from icqr._tables import FloatArray, IntArray
from icqr.conformity import Conformity, SignedScores
from icqr.novelty import Novelty

__all__ = ["Calibration", "Certificate", "conformal_quantile", "conformal_rank"]

NDBool: TypeAlias = NDArray[np.bool_]

SMALL_GROUPS = ("pooled", "infinite", "error")
POOLED = "none (pooled offset)"
INFINITE = "certain (infinite interval)"
REFUSED = "none (too few calibration rows)"
#: Keep every score up to this many; above it, keep only those that the requested coverages need.
MOST_SCORES = 5_000_000
#: If only some scores are kept, these are the coverages you can still ask for, besides the model's own.
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


# -- The rank --------------------------------------------------------------------------------------------


def check_coverage(coverage: Any) -> Fraction:
    """Check `coverage`, and return it as the fraction that its digits say: 0.9 is 9/10, not the nearest double.

    Examples
    --------
    >>> check_coverage(0.9)
    Fraction(9, 10)
    """
    if isinstance(coverage, bool) or not isinstance(coverage, int | float | Fraction | np.floating | np.integer):
        raise ValueError(
            f"coverage must be a number strictly between 0 and 1, got {coverage!r} ({type(coverage).__name__}); "
            "for nine times out of ten pass 0.9"
        )
    if not 0 < coverage < 1:
        percent = 1 < coverage < 100
        hint = f"; did you mean {float(coverage) / 100:g}?" if percent else "; for nine times out of ten pass 0.9"
        raise ValueError(f"coverage must be strictly between 0 and 1, got {coverage!s}{hint}")
    return coverage if isinstance(coverage, Fraction) else _from_digits(coverage)


@lru_cache(maxsize=1000, typed=True)
def _from_digits(coverage: float) -> Fraction:
    return Fraction(str(coverage))  # cached, because parsing takes longer than predicting a row


def conformal_rank(n: int, coverage: float | Fraction, confidence: float | None = None) -> int:
    """Return the rank of the calibration score that promises `coverage`: ``ceil((n + 1) * coverage)``, exactly.

    Parameters
    ----------
    n : int
        Number of calibration scores.
    coverage : float
        The wanted coverage, strictly between 0 and 1.
    confidence : float, optional
        The share of calibration sets for which the coverage must be at least `coverage`; you get the smallest such
        rank. (The coverage of rank k is distributed as Beta(k, n + 1 - k).) By default the promise holds on average
        over calibration sets.

    Returns
    -------
    int
        A rank from 1 to n + 1. Rank n + 1 means that no finite offset exists, because n scores are too few.

    Examples
    --------
    >>> conformal_rank(9, 0.9), conformal_rank(99, 0.9), conformal_rank(10, 0.95)
    (9, 90, 11)
    >>> conformal_rank(99, 0.9, confidence=0.95)
    95
    """
    level = check_coverage(coverage)
    if not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(f"n must be a whole number, 0 or more, got {n!r}")
    if confidence is None:
        # ceil((n + 1) * level), in whole numbers: -(-a // b) rounds a / b up.
        return -(-(int(n) + 1) * level.numerator // level.denominator)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be strictly between 0 and 1, got {confidence}")
    # P(Beta(k, n + 1 - k) >= c) = P(Binomial(n, c) <= k - 1)
    return int(stats.binom.ppf(confidence, n, float(level))) + 1


def conformal_quantile(scores: Sequence[float] | FloatArray, coverage: float | Fraction) -> float:
    """Return the conformal quantile of `scores`: the score of rank `conformal_rank`, or infinity if there is none.

    Examples
    --------
    >>> conformal_quantile([3.0, 1.0, 2.0], 0.5), conformal_quantile([3.0, 1.0, 2.0], 0.9)
    (2.0, inf)
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"scores must be one-dimensional, got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"scores must not be NaN; row {int(np.flatnonzero(np.isnan(values))[0])} is")
    rank = conformal_rank(len(values), coverage)
    return float(np.partition(values, rank - 1)[rank - 1]) if rank <= len(values) else math.inf


def closed_share(n_below: int, n_tied: int, rank: int) -> float:
    """Return the share of new rows whose interval contains scores equal to the offset, so that coverage is exact.

    The offset is the score of this rank. If all new rows contained what ties with it, coverage would be above
    ``rank / (n + 1)``; if none did, below. This share makes it equal: it is the chance that smoothed conformal
    prediction keeps a tied score (Vovk, Gammerman & Shafer, 2005).

    Parameters
    ----------
    n_below, n_tied : int
        Number of calibration scores below the offset, and equal to it.
    rank : int
        The conformal rank, from ``n_below + 1`` to ``n_below + n_tied``.

    Examples
    --------
    Ten scores, of which five are 0 and five are 1; a random one is the new row's. Rank 7 of the other nine promises
    0.7. The new score is 0, and inside, with probability 1/2. Otherwise it is 1, and must be inside 2 times out of 5.

    >>> closed_share(n_below=5, n_tied=4, rank=7)
    0.4
    """
    return (rank - n_below) / (n_tied + 1)


def just_below(offsets: FloatArray, where: NDBool) -> FloatArray:
    """Return the offsets, and where asked the next smaller number, which leaves out scores equal to the offset.

    Examples
    --------
    >>> just_below(np.array([[1.0, 2.0]]), np.array([[False, True]])) < [[1.0, 2.0]]
    array([[False,  True]])
    """
    with np.errstate(over="ignore"):
        return np.where(where, np.nextafter(offsets, -np.inf), offsets)


def offset_level(coverage: float | Fraction, symmetric: bool) -> Fraction:
    """Return the level of each offset: the coverage itself, or (1 + coverage) / 2 with one offset per side."""
    level = check_coverage(coverage)
    return level if symmetric else (1 + level) / 2


def rows_needed(coverage: float | Fraction, symmetric: bool = True) -> int:
    """Return the smallest number of calibration rows for which a finite offset exists.

    Examples
    --------
    >>> rows_needed(0.9), rows_needed(0.9, symmetric=False), rows_needed(0.99)
    (9, 19, 99)
    """
    level = offset_level(coverage, symmetric)
    return math.ceil(level / (1 - level))


@lru_cache(maxsize=1000, typed=True)
def _tails(coverage: float | Fraction, side: str) -> tuple[Fraction | None, Fraction | None]:
    level = check_coverage(coverage)
    if side == "both":
        return (1 - level) / 2, (1 + level) / 2
    return (1 - level, None) if side == "lower" else (None, level)


@lru_cache(maxsize=1000, typed=True)
def quantile_levels(coverage: float | Fraction, side: str) -> tuple[float, ...]:
    """Return the levels that a quantile model must predict, for the bounds and the median, in ascending order.

    Examples
    --------
    >>> quantile_levels(0.9, "both"), quantile_levels(0.9, "lower"), quantile_levels(0.9, "upper")
    ((0.05, 0.5, 0.95), (0.1, 0.5), (0.5, 0.9))
    """
    levels = {Fraction(1, 2), *(tail for tail in _tails(coverage, side) if tail is not None)}
    return tuple(float(level) for level in sorted(levels))


def bounds_from_quantiles(quantiles: FloatArray, coverage: float | Fraction, side: str) -> FloatArray:
    """Return (n, 3) lower, median and upper from quantiles at `quantile_levels`; a missing side is infinite."""
    if side == "both":
        return quantiles  # they are lower, median and upper already
    levels = quantile_levels(coverage, side)
    lower, upper = _tails(coverage, side)
    median = quantiles[:, levels.index(0.5)]
    return np.column_stack(
        [
            np.full_like(median, -np.inf) if lower is None else quantiles[:, levels.index(float(lower))],
            median,
            np.full_like(median, np.inf) if upper is None else quantiles[:, levels.index(float(upper))],
        ]
    )


# -- Offsets per group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """The sorted calibration scores of each group. They give offsets for any coverage.

    The scores of group g are `scores[g]`; label -1 is for rows of no known group. A group is too small if its rank is
    larger than its number of scores. Then `small_groups` says what it gets:

    - ``"pooled"``: the larger of all rows' offset and the group's largest score, with a warning; nothing is promised;
    - ``"infinite"``: an infinite interval, which keeps the promise;
    - ``"error"``: an error that says how many rows are needed.

    Parameters
    ----------
    conformity : Conformity
        The score.
    scores : tuple of arrays
        Each group's scores: (n_g, 1), or (n_g, 2) with one offset per side. Each column is sorted. The last entry is
        for rows of no known group.
    small_groups : {"pooled", "infinite", "error"}
        What to do with a group that is too small.
    guarantee : str
        What holds in the groups that are large enough.
    novelty : Novelty, optional
        The calibration rows' distances from their group's centre, to compare new rows with.
    signed : SignedScores, optional
        The scores that predictive distributions are made of.

    Examples
    --------
    >>> calibration = Calibration.from_scores(Conformity(), np.arange(20.0)[:, None], np.repeat([0, 1], 10), 2)
    >>> calibration.offsets(0.9, np.array([0, 1]))
    array([[ 9.,  9.],
           [19., 19.]])
    """

    conformity: Conformity
    scores: tuple[FloatArray, ...]
    small_groups: str = "error"
    guarantee: str = "marginal"
    novelty: Novelty | None = None
    signed: SignedScores | None = None

    @classmethod
    def from_scores(
        cls,
        conformity: Conformity,
        scores: FloatArray,
        labels: IntArray,
        n_groups: int,
        small_groups: str = "error",
        guarantee: str = "marginal",
        novelty: Novelty | None = None,
        signed: SignedScores | None = None,
    ) -> Calibration:
        """Sort (n, sides) scores by group. Rows with other labels than 0 to `n_groups` - 1 belong to no known group."""
        by_group = sort_by_group(scores, labels, n_groups)
        return Calibration(conformity, by_group, small_groups, guarantee, novelty, signed)

    def __repr__(self) -> str:
        sizes = self.sizes[:-1]
        return (
            f"<{type(self).__name__}: {sizes.sum():,} scores ({self.conformity.kind!r}) in {len(sizes):,} "
            f"group{'' if len(sizes) == 1 else 's'}, {self.guarantee}>"
        )

    @property
    def sizes(self) -> IntArray:
        """Number of calibration rows in each group; the last entry is the rows of no known group."""
        return np.array([len(group) for group in self.scores], dtype=np.intp)

    def ranks(self, coverage: float | Fraction) -> IntArray:
        """Return each group's rank, ``ceil((n + 1) coverage)``; it is above n where no finite offset exists."""
        return self._ranks(coverage, np.arange(len(self.scores)))[0]

    def too_small(self, coverage: float | Fraction) -> NDBool:
        """Return which groups have too few scores for a finite offset."""
        return self._ranks(coverage, np.arange(len(self.scores)))[1]

    def offsets(self, coverage: float | Fraction, labels: IntArray) -> FloatArray:
        """Return (n, 2) offsets of the lower and the upper bound for rows with these group labels."""
        return self.offset_table(coverage, labels)[labels]

    def offset_table(self, coverage: float | Fraction, labels: IntArray) -> FloatArray:
        """Return (groups + 1, 2) offsets, filled in only for the groups of these labels; the last row is for -1."""
        present = np.zeros(len(self.scores), dtype=np.bool_)
        present[labels] = True
        groups = np.flatnonzero(present)
        ranks, small = self._ranks(coverage, groups)
        if small.any():
            self._answer_small(coverage, groups[small])
        table = np.full((len(self.scores), 2), np.nan)
        table[groups] = self._offsets_at(coverage, groups, ranks, small)
        return table

    def check_small(self, coverage: float | Fraction, labels: IntArray) -> NDBool:
        """Return which groups are too small; raise or warn if rows with these labels are in one."""
        small, present = self.too_small(coverage), np.zeros(len(self.scores), dtype=np.bool_)
        present[labels] = True
        if (small & present).any():
            self._answer_small(coverage, np.flatnonzero(small & present))
        return small

    def closed_shares(self, coverage: float | Fraction) -> FloatArray:
        """Return (groups + 1, 2) shares of rows whose interval contains scores equal to the offset; see `closed_share`.

        Groups that are too small have no such score; their share is 1.
        """
        groups = np.arange(len(self.scores))
        ranks, small = self._ranks(coverage, groups)
        shares = np.ones((len(groups), 2))
        for group in groups[~small].tolist():
            rank, scores = int(ranks[group]), self.scores[group]
            first, last = (
                [int(np.searchsorted(side, side[rank - 1], where)) for side in scores.T] for where in ("left", "right")
            )
            shares[group] = [closed_share(low, high - low, rank) for low, high in zip(first, last, strict=True)]
        return shares

    def check_enough(self, coverage: float | Fraction) -> None:
        """Raise if no row can have a finite interval, unless `small_groups` allows infinite ones."""
        total, symmetric = int(self.sizes.sum()), self.conformity.symmetric
        if self.small_groups != "infinite" and total < rows_needed(coverage, symmetric):
            raise ValueError(too_few_rows(total, coverage, symmetric))

    def certificate(self, coverage: float | Fraction) -> Certificate:
        """Return what is promised at this coverage, for each group and for all rows together."""
        groups = np.arange(len(self.scores))
        ranks, small = self._ranks(coverage, groups)
        offsets = self._offsets_at(coverage, groups, ranks, small)
        sizes = np.append(self.sizes[:-1], 0)  # rows of no known group have no rank
        keeps_promise = self.small_groups == "infinite"
        symmetric, side = self.conformity.symmetric, self.conformity.side
        promised = ranks / (sizes + 1) if symmetric else 2 * ranks / (sizes + 1) - 1
        low, high = (stats.beta.ppf(tail, ranks, np.maximum(sizes + 1 - ranks, 1)) for tail in (0.05, 0.95))
        table = pd.DataFrame(
            {
                "group": [*range(len(sizes) - 1), -1],
                "n": sizes,
                "rank": ranks,
                "offset_lower": np.nan if side == "upper" else offsets[:, 0],
                "offset_upper": np.nan if side == "lower" else offsets[:, 1],
                "promised": np.where(small, float(keeps_promise), promised),
                "guarantee": np.where(small, self.guarantee_of_small(coverage), self.guarantee),
                "band_lower": np.where(symmetric & ~small, low, np.nan),
                "band_upper": np.where(symmetric & ~small, high, np.nan),
            }
        )
        without_promise = int(self.sizes[small].sum())
        if rows_needed(coverage, symmetric) == 1:
            # Only empty groups are too small here, and they have no rows to count. Count single rows instead: leave
            # such a row out, and it is a new row in an empty group. In expectation, new rows are there no more often.
            without_promise += int((self.sizes[:-1] == 1).sum())
        unpromised = 0.0 if keeps_promise else without_promise / max(int(self.sizes.sum()), 1)
        # The share is counted on calibration rows. A small group drew few of them, so its true share may be larger. The
        # promise holds all the same, because the group's largest score alone covers n / (n + 1) of its rows.
        marginal = max(float(coverage) - unpromised, 0.0)
        return Certificate(float(coverage), self.guarantee, table, unpromised, marginal)

    def _ranks(self, coverage: float | Fraction, groups: IntArray) -> tuple[IntArray, NDBool]:
        """Return the ranks of these groups' offsets, and which groups have fewer scores than that."""
        # The last entry is for rows of no known group. They are not one group, so their scores have no rank.
        sizes = np.where(groups == len(self.scores) - 1, 0, self.sizes[groups])
        level = offset_level(coverage, self.conformity.symmetric)
        rank_of = {n: conformal_rank(n, level) for n in set(sizes.tolist())}
        ranks = np.array([rank_of[n] for n in sizes.tolist()], dtype=np.intp)
        return ranks, ranks > sizes

    def _offsets_at(self, coverage: float | Fraction, groups: IntArray, ranks: IntArray, small: NDBool) -> FloatArray:
        """Return (groups, 2) offsets: each group's score at its rank, or what `small_groups` says; NaN for none."""
        offsets = np.full((len(groups), 2), np.inf if self.small_groups == "infinite" else np.nan)
        for i in np.flatnonzero(~small).tolist():
            offsets[i] = self._score(int(groups[i]), int(ranks[i]))
        if self.small_groups == "pooled" and small.any() and not self._refuses(coverage):
            pooled = self._pooled_offset(coverage)
            for i in np.flatnonzero(small).tolist():
                offsets[i] = np.maximum(pooled, self.scores[groups[i]].max(axis=0, initial=-np.inf))
        return offsets

    def _score(self, group: int, rank: int) -> FloatArray:
        """Return a group's score at this rank, on each side."""
        return np.asarray(self.scores[group][rank - 1])

    def _pooled_offset(self, coverage: float | Fraction) -> FloatArray:
        level = offset_level(coverage, self.conformity.symmetric)
        return np.array([conformal_quantile(side, level) for side in np.concatenate(self.scores).T])

    def guarantee_of_small(self, coverage: float | Fraction) -> str:
        """Return what holds in groups that are too small."""
        return INFINITE if self.small_groups == "infinite" else REFUSED if self._refuses(coverage) else POOLED

    def _refuses(self, coverage: float | Fraction) -> bool:
        """Return whether groups that are too small get an error, not an interval."""
        too_few = self.sizes.sum() < rows_needed(coverage, self.conformity.symmetric)
        return self.small_groups == "error" or bool(self.small_groups == "pooled" and too_few)

    def _answer_small(self, coverage: float | Fraction, small: IntArray) -> None:
        """Raise or warn about groups that are too small."""
        self.check_enough(coverage)
        groups, most_named = small[small < len(self.scores) - 1], 5
        named = [f"group {group} has {self.sizes[group]}" for group in groups[:most_named]]
        if len(groups) > most_named:
            named.append(f"{len(groups) - most_named} more groups have too few")
        if len(groups) < len(small):
            named.append("a group unknown to the calibration has none")
        needed = rows_needed(coverage, self.conformity.symmetric)
        shortage = f"coverage={float(coverage):g} needs {needed} calibration rows in each group; {', '.join(named)}"

        if self.small_groups == "error":
            raise ValueError(
                f"{shortage}. Give more calibration rows, use fewer groups, or pass small_groups='pooled' or "
                "'infinite'."
            )
        if self.small_groups == "pooled":
            warn(
                f"{shortage}. Their intervals use the pooled offset, which promises nothing for them; "
                "small_groups='infinite' keeps the promise."
            )


def sort_by_group(scores: FloatArray, labels: IntArray, n_groups: int) -> tuple[FloatArray, ...]:
    """Return each group's scores, with each column sorted; the last entry is for rows of no known group.

    Examples
    --------
    >>> sort_by_group(np.array([[3.0], [1.0], [2.0]]), np.array([0, 0, -1]), 1)
    (array([[1.],
           [3.]]), array([[2.]]))
    """
    if np.isnan(scores).any():
        raise ValueError(f"scores must not be NaN; row {int(np.argwhere(np.isnan(scores))[0, 0])} is")
    known = np.where((labels >= 0) & (labels < n_groups), labels, n_groups)
    by_group = np.column_stack([side[np.lexsort((side, known))] for side in scores.T])
    ends = np.cumsum(np.bincount(known, minlength=n_groups + 1))[:-1]
    return tuple(np.split(by_group, ends))


@dataclass(frozen=True, kw_only=True, repr=False)
class SelectedCalibration(Calibration):
    """A calibration that keeps only some of its scores: exact for the coverages it was made for, and for no others.

    Parameters
    ----------
    conformity, scores, small_groups, guarantee, novelty
        As in `Calibration`, but `scores` holds only some of each group's scores, always with the largest.
    kept : tuple of arrays
        The ranks of those scores, from 1.
    counts : array
        Number of calibration rows in each group; the last entry is the rows of no known group.
    pooled_scores, pooled_ranks : arrays
        The kept scores and their ranks for all rows together.
    coverages : tuple of str
        The coverages that it was made for, as the user wrote them.

    Examples
    --------
    >>> calibration = SelectedCalibration(
    ...     Conformity(), (np.array([[7.0], [9.0]]), np.empty((0, 1))),
    ...     kept=(np.array([90, 99]), np.array([], int)), counts=np.array([99, 0]),
    ...     pooled_scores=np.array([[7.0], [9.0]]), pooled_ranks=np.array([90, 99]), coverages=("0.9",),
    ... )
    >>> calibration.offsets(0.9, np.array([0]))
    array([[7., 7.]])
    """

    kept: tuple[IntArray, ...]
    counts: IntArray
    pooled_scores: FloatArray
    pooled_ranks: IntArray
    coverages: tuple[str, ...]

    @classmethod
    def of(
        cls,
        like: Calibration,
        counts: IntArray,
        ranks: Sequence[IntArray],
        scores: Sequence[FloatArray],
        coverages: Sequence[float | Fraction],
    ) -> SelectedCalibration:
        """Keep these scores, which have these ranks in each group and, last, in all rows together."""
        return cls(
            like.conformity,
            tuple(scores[:-1]),
            like.small_groups,
            like.guarantee,
            like.novelty,
            kept=tuple(ranks[:-1]),
            counts=counts,
            pooled_scores=scores[-1],
            pooled_ranks=ranks[-1],
            coverages=tuple(map(str, coverages)),
        )

    @property
    def sizes(self) -> IntArray:
        """Number of calibration rows in each group; the last entry is the rows of no known group."""
        return self.counts

    def closed_shares(self, coverage: float | Fraction) -> FloatArray:
        """Raise an error: how many scores tie with an offset is unknown."""
        raise ValueError(
            f"ties='random' needs all calibration scores, but of {self.counts.sum()} only some were kept; calibrate "
            "with a table, or fit with ties='covered'"
        )

    def _score(self, group: int, rank: int) -> FloatArray:
        return self._at_rank(self.scores[group], self.kept[group], rank)

    def _pooled_offset(self, coverage: float | Fraction) -> FloatArray:
        rank = conformal_rank(int(self.counts.sum()), offset_level(coverage, self.conformity.symmetric))
        return self._at_rank(self.pooled_scores, self.pooled_ranks, rank)

    def _at_rank(self, scores: FloatArray, ranks: IntArray, rank: int) -> FloatArray:
        place = int(np.searchsorted(ranks, rank))
        if place == len(ranks) or ranks[place] != rank:
            raise ValueError(
                f"of {self.counts.sum()} calibration scores only those for coverage={', '.join(self.coverages)} were "
                f"kept, and the coverage asked for needs another, of rank {rank}; calibrate again, with coverages=[…] "
                "that name it"
            )
        return np.asarray(scores[place])


@dataclass(frozen=True, kw_only=True, repr=False)
class NoCalibration(Calibration):
    """Raw bounds as they are: offsets of zero, no promise, and only the fitted coverage.

    Examples
    --------
    >>> NoCalibration.of(Conformity(), 0.9, "none").offset_table(0.9, np.array([0]))[0]
    array([0., 0.])
    """

    coverage: float

    @classmethod
    def of(cls, conformity: Conformity, coverage: float, guarantee: str) -> NoCalibration:
        """Return the calibration of a model that has none."""
        no_scores = np.empty((0, 1))
        return cls(conformity, (no_scores, no_scores), guarantee=guarantee, coverage=coverage)

    def offset_table(self, coverage: float | Fraction, labels: IntArray) -> FloatArray:
        """Return offsets of zero."""
        self._check_own(coverage)
        return np.zeros((len(self.scores), 2))

    def certificate(self, coverage: float | Fraction) -> Certificate:
        """Return a certificate without a promise: one group, no calibration rows, offsets of zero."""
        self._check_own(coverage)
        row: dict[str, Any] = {"group": 0, "n": 0, "rank": 0, "offset_lower": 0.0, "offset_upper": 0.0, "promised": 0.0}
        row |= {"guarantee": self.guarantee, "band_lower": math.nan, "band_upper": math.nan}
        table = pd.DataFrame([row, {**row, "group": -1}])
        return Certificate(float(self.coverage), self.guarantee, table, unpromised=1.0, marginal=0.0)

    def check_enough(self, coverage: float | Fraction) -> None:
        """Do nothing: no calibration rows are needed."""

    def _check_own(self, coverage: float | Fraction) -> None:
        if check_coverage(coverage) != check_coverage(self.coverage):
            raise ValueError(
                f"QR predicts the levels it was fitted for, coverage={self.coverage}; got coverage={coverage}. "
                f"Fit QR(coverage={coverage}), or use CQR or ICQR, which give any coverage from one fit."
            )


def needed_ranks(n: int, coverages: Iterable[float | Fraction], symmetric: bool) -> IntArray:
    """Return the ranks, among n scores, that the coverages need, and the largest rank.

    Examples
    --------
    >>> needed_ranks(99, [0.8, 0.9], symmetric=True)
    array([80, 90, 99])
    """
    ranks = {conformal_rank(n, offset_level(coverage, symmetric)) for coverage in coverages}
    return np.array(sorted(rank for rank in {*ranks, n} if 1 <= rank <= n), dtype=np.intp)


def reduced_to(calibration: Calibration, coverages: Sequence[float | Fraction]) -> Calibration:
    """Return a calibration with only the scores that these coverages need; its offsets for them are the same.

    Examples
    --------
    >>> calibration = Calibration(Conformity(), (np.arange(99.0)[:, None], np.empty((0, 1))))
    >>> small = reduced_to(calibration, [0.9])
    >>> small.offsets(0.9, np.array([0])), sum(map(len, small.scores))
    (array([[89., 89.]]), 2)
    """
    if type(calibration) is not Calibration:  # it keeps what it needs
        return calibration
    groups = (*calibration.scores, np.sort(np.concatenate(calibration.scores), axis=0))
    ranks = [needed_ranks(len(group), coverages, calibration.conformity.symmetric) for group in groups]
    scores = [group[group_ranks - 1] for group, group_ranks in zip(groups, ranks, strict=True)]
    return SelectedCalibration.of(calibration, calibration.sizes, ranks, scores, coverages)


@dataclass(frozen=True)
class Certificate:
    """What is promised at one coverage.

    Attributes
    ----------
    coverage : float
        The coverage that you asked for.
    guarantee : str
        What holds in the groups that are large enough: "group-wise", "marginal", or "approximate (...)".
    groups : DataFrame
        One row per group (-1: rows of no known group): n, rank, offsets, what is promised, and the central 90 % band of
        the coverage that a calibration set of this size gives.
    unpromised : float
        Share of calibration rows in groups for which nothing is promised.
    marginal : float
        What is promised for all rows together: the coverage minus the share of rows without a promise.
    """

    coverage: float
    guarantee: str
    groups: pd.DataFrame
    unpromised: float
    marginal: float

    def __str__(self) -> str:
        sentence = f"Coverage {self.coverage:g}, {self.guarantee}"
        if not self.groups["n"].any():
            return f"{sentence}."
        sentence += ", if new rows come from where the calibration rows came from."
        without_promise = int((self.groups["promised"].iloc[:-1] == 0).sum())
        if without_promise == 0 and self.unpromised == 0:
            return sentence
        over_all = f"at least {self.marginal:.1%} is promised, if such rows stay as frequent"
        return (
            f"{sentence} {without_promise} of {len(self.groups) - 1} groups, with {self.unpromised:.1%} of the "
            f"calibration rows, are too small for a promise; over all rows "
            f"{over_all if self.marginal > 0 else 'nothing is promised'}."
        )

    def __repr__(self) -> str:
        table = self.groups.iloc[:-1][["group", "n", "promised", "band_lower", "band_upper"]]
        return f"{self}\n{table.to_string(index=False, max_rows=10)}"

    def _repr_html_(self) -> str:
        return shown(promises(str(self), self.groups, self.coverage))


def too_few_rows(n_samples: int, coverage: float | Fraction, symmetric: bool) -> str:
    """Return an error message that says how many calibration rows a finite interval needs."""
    kind = "" if symmetric else " with one offset per side"
    return (
        f"coverage={float(coverage):g}{kind} needs at least {rows_needed(coverage, symmetric)} calibration rows for a "
        f"finite interval, got n_samples={n_samples}. Give more of them, or ask for less coverage."
    )
