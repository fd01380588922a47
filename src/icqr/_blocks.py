"""Calibration by rows in blocks, wherever they are: each block is scored by itself, and offsets are exact all the same.

Up to `MOST_SCORES` scores are brought together. Above that, only the order statistics that the coverages need are
found, eight bits at a time. Each score has a *key*, a 64-bit integer with the same order. In each pass, every block
counts how many of its keys begin with the bits found so far, for each value of the next eight. The counts are added up
over the blocks, and the wanted rank falls into one of the 256 values: these are the next bits. After eight passes all
bits are known, so the result is the score itself, not an approximation. A pass brings together 256 counts for each
wanted score, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from icqr._predicting import IntervalRegressor
from icqr._tables import FloatArray, IntArray, align, as_table, draw_rows, take_rows
from icqr.calibration import (
    MOST_SCORES,
    Calibration,
    SelectedCalibration,
    needed_ranks,
    rows_needed,
    too_few_rows,
)
from icqr.novelty import Novelty

#: Of more than `MOST_SCORES` calibration rows, new rows are compared with this many (see `Novelty`).
MOST_COMPARED = 200_000

_BITS = 8
_SIGN = np.uint64(1 << 63)

Keys: TypeAlias = NDArray[np.uint64]
T = TypeVar("T")


class Reduce(Protocol):
    """Reaches the scored blocks, which may be on workers or in files."""

    def __call__(self, function: Callable[[Calibration], T], merge: Callable[[Sequence[T]], T]) -> T:
        """Apply the function to every block, and merge the results, a few at a time."""


def calibration_in_blocks(model: IntervalRegressor, reduce: Reduce, coverages: Sequence[float]) -> Calibration:
    """Return the calibration of a fitted model by rows in blocks, equal to that of one table to the bit.

    Parameters
    ----------
    model : fitted estimator
        Not changed.
    reduce : callable
        Reaches the blocks, each scored by `score_block`.
    coverages : sequence of float
        Of more than `MOST_SCORES` scores, only those are kept that these coverages and the model's own need.
    """

    # Group sizes, and the distances that new rows will be compared with.
    def merge(parts: Sequence[tuple[IntArray, Novelty | None]]) -> tuple[IntArray, Novelty | None]:
        sizes, novelties = zip(*parts, strict=True)
        compared = [novelty for novelty in novelties if novelty is not None]
        return _added(sizes), Novelty.merged(compared) if compared else None

    sizes, novelty = reduce(lambda block: (block.sizes, block.novelty), merge)
    total, conformity = int(sizes.sum()), model.conformity_
    if total < rows_needed(model.coverage, conformity.symmetric):
        raise ValueError(too_few_rows(total, model.coverage, conformity.symmetric))

    # All scores, or those of the ranks that the coverages need.
    calibration = Calibration(conformity, (), model.small_groups, model.calibration_.guarantee, novelty)
    n_sides = 1 if conformity.symmetric else 2
    if total * n_sides <= MOST_SCORES:
        calibration = replace(calibration, scores=reduce(lambda block: block.scores, _merged_scores))
    else:
        # Ranks in each group, in the rows of no known group, and in all rows together.
        promised = tuple(dict.fromkeys((*coverages, model.coverage, model.coverage_)))
        ranks = [needed_ranks(int(n), promised, conformity.symmetric) for n in (*sizes, total)]
        lengths = [len(needed) for needed in ranks]
        groups = np.repeat(np.arange(len(ranks)), lengths)
        scores = order_statistics(reduce, groups, np.concatenate(ranks), n_sides)
        by_group = np.split(scores, np.cumsum(lengths)[:-1])
        calibration = SelectedCalibration.of(calibration, sizes, ranks, by_group, promised)

    # Warn of groups that are too small, or refuse them, before the model is changed.
    calibration.offset_table(model.coverage, np.arange(model.n_groups_))
    return calibration


def refuse_random_ties(ties: str) -> None:
    """Raise an error for ``ties="random"``, whose draws go by a row's place in one table."""
    if ties == "random":
        raise ValueError(
            "ties='random' is not possible with Dask collections and Parquet files: it needs all calibration scores, "
            "and a row's place in its table. Use ties='covered', or give the local method a table"
        )


def score_block(X: Any, y: Any, number: int, model: IntervalRegressor, total: int) -> Calibration:
    """Return the calibration by the rows of one block alone, one of them at least.

    The block's number is the seed for drawing the rows that new rows will be compared with: a share of `total`.
    """
    groups, scores = model.conformity_scores(X, y)
    novelty = None
    if hasattr(model.partition_, "distance"):
        share = 1.0 if total <= MOST_SCORES else MOST_COMPARED / total
        rows = draw_rows(len(groups), max(1, round(share * len(groups))), np.random.default_rng(number))
        distances = model.partition_.distance(take_rows(align(as_table(X), model.columns_), rows))
        novelty = Novelty.of(distances, groups[rows], model.n_groups_)
    return Calibration.from_scores(
        model.conformity_, scores, groups, model.n_groups_, model.small_groups, novelty=novelty
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


def _merged_scores(parts: Sequence[tuple[FloatArray, ...]]) -> tuple[FloatArray, ...]:
    """Return each group's scores of several blocks, sorted."""
    return tuple(np.sort(np.concatenate(group), axis=0) for group in zip(*parts, strict=True))


def _added(parts: Sequence[IntArray]) -> IntArray:
    return np.asarray(np.sum(parts, axis=0), dtype=np.intp)
