"""Calibration by rows in blocks, wherever they are: each block is scored by itself, and offsets are exact all the same.

Up to `max_scores` scores are brought together. Of more, only the order statistics that the coverages need are looked
for. A score is then a *key*, a 64-bit integer with the same order, that is found eight bits at a time: in each pass
every block counts how many of its keys begin with the bits found so far, for each value of the next eight; the counts
are added up over the blocks; where the wanted rank falls, there the next bits are found. After eight passes all bits
are known, so the result is the score itself, not an approximation. A pass brings 256 counts together for each score
that is looked for, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
        Scores all blocks by `score_block` and returns what reaches them. It is given the share of rows that new rows
        will be compared with.
    total : int
        Number of rows in all blocks.
    coverages : sequence of float
        With more than `max_scores` scores only those are kept that these coverages and the model's own need.
    max_scores : int
        Up to this many scores are all kept.
    """
    symmetric = model.conformity_.symmetric
    if total < rows_needed(model.coverage, symmetric):
        raise ValueError(too_few_rows(total, model.coverage, symmetric))
    if total * _n_sides(model) <= max_scores:
        calibration = score_blocks(1.0)(_itself, _merged)
    else:
        reduce = score_blocks(min(1.0, MOST_COMPARED / total))
        calibration = _selected(model, reduce, tuple(dict.fromkeys((*coverages, model.coverage, model.coverage_))))

    # Warns of groups that are too small or refuses them, before the model is changed.
    calibration.offset_table(model.coverage, np.arange(model.n_groups_))
    return calibration


def score_block(X: Any, y: Any, number: int, model: IntervalRegressor, compared_share: float) -> Calibration:
    """Return the calibration by the rows of one block alone, of which there may be none.

    `number` is the block's, the seed for drawing the rows that new rows will be compared with.
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


# -- Blocks together -------------------------------------------------------------------------------------------------


def _itself(block: Calibration) -> Calibration:
    return block


def _merged(parts: Sequence[Calibration]) -> Calibration:
    """Return the calibration by the rows of several blocks."""
    by_group = zip(*(part.scores for part in parts), strict=True)
    scores = tuple(np.sort(np.concatenate(group), axis=0) for group in by_group)
    return replace(parts[0], scores=scores, novelty=_merged_novelty([part.novelty for part in parts]))


def _merged_novelty(parts: Sequence[Novelty | None]) -> Novelty | None:
    known = [part for part in parts if part is not None]
    return Novelty.merged(known) if known else None


def _selected(model: IntervalRegressor, reduce: Reduce, coverages: Sequence[float]) -> SelectedCalibration:
    """Return the calibration by those scores of all blocks that the coverages need."""
    sizes, novelty = reduce(_summary, _added_summaries)

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


def _summary(block: Calibration) -> tuple[IntArray, Novelty | None]:
    return block.sizes, block.novelty


def _added_summaries(parts: Sequence[tuple[IntArray, Novelty | None]]) -> tuple[IntArray, Novelty | None]:
    sizes, novelties = zip(*parts, strict=True)
    return np.sum(sizes, axis=0), _merged_novelty(novelties)


# -- Order statistics ------------------------------------------------------------------------------------------------


def order_statistics(reduce: Reduce, groups: IntArray, ranks: IntArray, n_sides: int = 1) -> FloatArray:
    """Return the scores of given ranks among those of all blocks together.

    Parameters
    ----------
    reduce : callable
        Reaches the scored blocks.
    groups, ranks : arrays of int
        The group of each score that is looked for (the number of groups stands for all together), and its rank, from 1.
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
    ranks, found = np.repeat(ranks, n_sides), np.zeros(len(sides), dtype=np.uint64)
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = reduce(_Counting(groups, sides, found, shift), _added)

        # The next bits are those where the rank falls; from here on it counts among the keys that share them.
        ends = np.cumsum(counts, axis=1)
        bits = np.argmax(ends >= ranks[:, None], axis=1)
        before = ends - counts
        ranks = ranks - before[np.arange(len(ranks)), bits]
        found = found | (bits.astype(np.uint64) << np.uint64(shift))
    return _from_keys(found).reshape(-1, n_sides)


@dataclass(frozen=True)
class _Counting:
    """Counts a block's keys by their next bits, for each score that is looked for; it can be sent to a worker."""

    groups: IntArray
    sides: IntArray
    found: Keys
    shift: int

    def __call__(self, block: Calibration) -> NDArray[np.int64]:
        steps = np.arange(1 << _BITS, dtype=np.uint64) << np.uint64(self.shift)
        last = np.uint64((1 << (self.shift + _BITS)) - 1)
        counts = np.zeros((len(self.groups), len(steps)), dtype=np.int64)
        for group, scores in enumerate(block.scores):
            for side, column in enumerate(scores.T):
                mine = (self.sides == side) & ((self.groups == group) | (self.groups == len(block.scores)))
                keys, first = _to_keys(column), self.found[mine]  # ascending
                starts = np.searchsorted(keys, first[:, None] + steps)
                ends = np.searchsorted(keys, first + last, side="right")
                counts[mine] += np.diff(starts, append=ends[:, None])
        return counts


def _added(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(parts, axis=0), dtype=np.int64)


def _to_keys(scores: FloatArray) -> Keys:
    """Return integers in the order of the scores; both zeros have the same."""
    bits = (scores + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_keys(keys: Keys) -> FloatArray:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
