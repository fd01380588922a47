"""Calibration by rows in blocks, wherever they are: each block is scored by itself, and offsets are exact all the same.

Up to `max_scores` scores are brought together. Above that, only the order statistics that the coverages need are found,
eight bits at a time. Each score has a *key*, a 64-bit integer with the same order. In each pass, every block counts how
many of its keys begin with the bits found so far, for each value of the next eight. The counts are added up over the
blocks, and the wanted rank falls into one of the 256 values: these are the next bits. After eight passes all bits are
known, so the result is the score itself, not an approximation. A pass brings together 256 counts for each wanted score,
however many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from icqr._predicting import IntervalRegressor
from icqr._tables import FloatArray, IntArray, align, as_table, take_rows
from icqr.calibration import Calibration, SelectedCalibration, needed_ranks, rows_needed, too_few_rows
from icqr.novelty import Novelty

#: When not all scores are kept, new rows are compared with this many calibration rows (see `Novelty`).
MOST_COMPARED = 200_000

_BITS = 8
_SIGN = np.uint64(1 << 63)

Keys: TypeAlias = NDArray[np.uint64]
T = TypeVar("T")


class Reduce(Protocol):
    """Reaches the scored blocks, which may be on workers or in files."""

    def __call__(self, function: Callable[[Calibration], T], merge: Callable[[Sequence[T]], T]) -> T:
        """Apply the function to every block, and merge the results, a few at a time."""


def calibration_in_blocks(
    model: IntervalRegressor,
    score_blocks: Callable[[float], Reduce],
    total: int,
    coverages: Sequence[float],
    max_scores: int,
) -> Calibration:
    """Return the calibration of a fitted model by rows in blocks, equal to that of one table to the bit.

    Parameters
    ----------
    model : fitted estimator
        Not changed.
    score_blocks : callable
        Scores all blocks by `score_block` and returns what reaches them. Its argument is the share of the rows that new
        rows will be compared with.
    total : int
        Number of rows in all blocks.
    coverages : sequence of float
        With more than `max_scores` scores, only those are kept that these coverages and the model's own need.
    max_scores : int
        Keep every score up to this many.
    """
    symmetric = model.conformity_.symmetric
    if total < rows_needed(model.coverage, symmetric):
        raise ValueError(too_few_rows(total, model.coverage, symmetric))
    if total * _n_sides(model) <= max_scores:
        calibration = score_blocks(1.0)(lambda block: block, _merged)
    else:
        reduce = score_blocks(min(1.0, MOST_COMPARED / total))
        calibration = _selected(model, reduce, tuple(dict.fromkeys((*coverages, model.coverage, model.coverage_))))

    # Warn of groups that are too small, or refuse them, before the model is changed.
    calibration.offset_table(model.coverage, np.arange(model.n_groups_))
    return calibration


def score_block(X: Any, y: Any, number: int, model: IntervalRegressor, compared_share: float) -> Calibration:
    """Return the calibration by the rows of one block alone, of which there may be none.

    The block's number is the seed for drawing the rows that new rows will be compared with.
    """
    groups, scores = np.empty(0, dtype=np.intp), np.empty((0, _n_sides(model)))
    if len(X):
        groups, scores = model.conformity_scores(X, y)

    novelty = None
    if hasattr(model.partition_, "distance"):
        size = round(compared_share * len(groups))
        rows = np.sort(np.random.default_rng(number).choice(len(groups), size, replace=False))
        distances = np.empty(0)
        if size:
            distances = model.partition_.distance(take_rows(align(as_table(X), model.columns_), rows))
        novelty = Novelty.of(distances, groups[rows], model.n_groups_)

    guarantee = model.calibration_.guarantee
    return Calibration.from_scores(
        model.conformity_, scores, groups, model.n_groups_, model.small_groups, guarantee, novelty
    )


def _n_sides(model: IntervalRegressor) -> int:
    return 1 if model.conformity_.symmetric else 2


def _merged(parts: Sequence[Calibration]) -> Calibration:
    """Return the calibration by the rows of several blocks."""
    by_group = zip(*(part.scores for part in parts), strict=True)
    scores = tuple(np.sort(np.concatenate(group), axis=0) for group in by_group)
    return replace(parts[0], scores=scores, novelty=_merged_novelty([part.novelty for part in parts]))


def _merged_novelty(parts: Sequence[Novelty | None]) -> Novelty | None:
    known = [part for part in parts if part is not None]
    return Novelty.merged(known) if known else None


# -- Order statistics ------------------------------------------------------------------------------------------------


def _selected(model: IntervalRegressor, reduce: Reduce, coverages: Sequence[float]) -> SelectedCalibration:
    """Return the calibration by those scores of all blocks that the coverages need."""

    def merge(parts: Sequence[tuple[IntArray, Novelty | None]]) -> tuple[IntArray, Novelty | None]:
        sizes, novelties = zip(*parts, strict=True)
        return _added(sizes), _merged_novelty(novelties)

    sizes, novelty = reduce(lambda block: (block.sizes, block.novelty), merge)

    # Ranks in each group, in the rows of no known group, and in all rows together.
    ranks = [needed_ranks(int(n), coverages, model.conformity_.symmetric) for n in (*sizes, sizes.sum())]
    lengths = [len(needed) for needed in ranks]
    groups = np.repeat(np.arange(len(ranks)), lengths)
    scores = order_statistics(reduce, groups, np.concatenate(ranks), _n_sides(model))
    *by_group, pooled = np.split(scores, np.cumsum(lengths)[:-1])
    return SelectedCalibration(
        model.conformity_,
        tuple(by_group),
        model.small_groups,
        model.calibration_.guarantee,
        novelty,
        kept=tuple(ranks[:-1]),
        counts=sizes,
        pooled_scores=pooled,
        pooled_ranks=ranks[-1],
        coverages=tuple(map(str, coverages)),
    )


def order_statistics(reduce: Reduce, groups: IntArray, ranks: IntArray, n_sides: int = 1) -> FloatArray:
    """Return the scores of given ranks among those of all blocks together.

    Parameters
    ----------
    reduce : callable
        Reaches the scored blocks.
    groups, ranks : arrays of int
        The group of each wanted score (the number of groups stands for all together), and its rank, from 1.
    n_sides : int, default=1
        Number of columns; each has its own order.

    Returns
    -------
    array of shape (len(groups), n_sides)

    Examples
    --------
    >>> from icqr.conformity import Conformity
    >>> blocks = [Calibration(Conformity(), (np.array(scores)[:, None],)) for scores in ([1.0, 4.0], [2.0, 3.0])]
    >>> reduce = lambda function, merge: merge([function(block) for block in blocks])
    >>> order_statistics(reduce, groups=np.array([0, 0]), ranks=np.array([1, 3]))
    array([[1.],
           [3.]])
    """
    groups, sides = np.repeat(groups, n_sides), np.tile(np.arange(n_sides), len(groups))
    ranks, keys = np.repeat(ranks, n_sides), np.zeros(len(sides), dtype=np.uint64)
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = reduce(partial(_count, groups=groups, sides=sides, prefixes=keys, shift=shift), _added)

        # The next bits are those where the rank falls; from here on it counts among the keys that share them.
        ends = np.cumsum(counts, axis=1)
        bits = np.argmax(ends >= ranks[:, None], axis=1)
        before = ends - counts
        ranks = ranks - before[np.arange(len(ranks)), bits]
        keys = keys | (bits.astype(np.uint64) << np.uint64(shift))

    scores = np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
    return scores.reshape(-1, n_sides)


def _count(block: Calibration, groups: IntArray, sides: IntArray, prefixes: Keys, shift: int) -> IntArray:
    """Return how many of a block's keys begin with each prefix, by their next bits: (prefixes, 256) counts."""
    steps = np.arange(1 << _BITS, dtype=np.uint64) << np.uint64(shift)
    last = np.uint64((1 << (shift + _BITS)) - 1)
    counts = np.zeros((len(groups), len(steps)), dtype=np.intp)
    for group, scores in enumerate(block.scores):
        for side, column in enumerate(scores.T):
            # Keys in the order of the scores, ascending; adding 0.0 gives both zeros the same key.
            bits = (column + 0.0).view(np.uint64)
            keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)

            mine = (sides == side) & ((groups == group) | (groups == len(block.scores)))
            starts = np.searchsorted(keys, prefixes[mine][:, None] + steps)
            ends = np.searchsorted(keys, prefixes[mine] + last, side="right")
            counts[mine] += np.diff(starts, append=ends[:, None])
    return counts


def _added(parts: Sequence[IntArray]) -> IntArray:
    return np.asarray(np.sum(parts, axis=0), dtype=np.intp)
