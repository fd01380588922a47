"""Exact order statistics of numbers that lie in many sorted blocks: found in four passes, in bounded memory.

A double and its *key*, a 64-bit integer with the same order, are searched sixteen bits at a time. In each pass every
block counts, among its numbers whose leading bits are those found so far, how many have each value of the next sixteen
bits; the counts are added up over the blocks; where the wanted rank falls, there the next sixteen bits are found. After
the fourth pass all 64 bits are known, so the result is the number itself, not an approximation. What a pass brings
together are at most 65,536 counts for each number that is looked for, however many blocks and numbers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from icqr._tables import FloatArray, IntArray

#: Sorted columns of numbers by group: (n_g, sides) for each.
Block: TypeAlias = tuple[FloatArray, ...]
Keys: TypeAlias = NDArray[np.uint64]

_BITS = 16
_VALUES = 1 << _BITS
_SIGN = np.uint64(1 << 63)


def to_keys(values: FloatArray) -> Keys:
    """Give integers in the order of the numbers; both zeros have the same.

    Examples
    --------
    >>> keys = to_keys(np.array([-np.inf, -1.0, -0.0, 0.0, 5e-324, np.inf]))
    >>> np.diff(keys.astype(object)) > 0
    array([ True,  True, False,  True,  True])
    """
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def from_keys(keys: Keys) -> FloatArray:
    """Give the numbers of which these are the keys.

    Examples
    --------
    >>> from_keys(to_keys(np.array([-1.5, 0.0, 2.0])))
    array([-1.5,  0. ,  2. ])
    """
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


class Counts(NamedTuple):
    """How many numbers have which next bits: `codes` are window * 65536 + bits, ascending."""

    codes: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def merged(cls, parts: Sequence[Counts]) -> Counts:
        """Add up the counts of several parts."""
        codes = np.concatenate([part.codes for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        return cls(codes[starts], np.add.reduceat(counts[order], starts) if len(starts) else counts)


@dataclass(frozen=True)
class Search:
    """Numbers that are looked for, and how much of each is found.

    Parameters
    ----------
    groups : array of int
        The group of each; the number of groups itself stands for all groups together.
    sides : array of int
        Its column.
    ranks : array of int
        Its rank, from 1, among the numbers that share the bits found so far.
    found : array of uint64
        These bits.
    passes : int
        Number of passes made.
    """

    groups: IntArray
    sides: IntArray
    ranks: IntArray
    found: Keys
    passes: int = 0

    @property
    def _shift(self) -> int:
        return 64 - _BITS * (self.passes + 1)

    def windows(self) -> tuple[Keys, IntArray]:
        """Give the different windows (group, side, first key), and the one in which each number lies."""
        first = self.found << np.uint64(self._shift + _BITS) if self.passes else self.found
        table = np.column_stack([self.groups.astype(np.uint64), self.sides.astype(np.uint64), first])
        windows, of = np.unique(table, axis=0, return_inverse=True)
        return windows, of.ravel()

    def count(self, block: Block) -> Counts:
        """Count the next bits of a block's numbers in each window."""
        windows, _ = self.windows()
        last = np.uint64((1 << (self._shift + _BITS)) - 1)
        parts = [Counts(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for group, columns in enumerate(block):
            for side in range(columns.shape[1]):
                mine = np.flatnonzero((windows[:, 1] == side) & np.isin(windows[:, 0], (group, len(block))))
                keys = to_keys(columns[:, side])
                starts = np.searchsorted(keys, windows[mine, 2], side="left")
                ends = np.searchsorted(keys, windows[mine, 2] | last, side="right")
                parts.extend(
                    self._next_bits(keys[starts[place] : ends[place]], int(mine[place]))
                    for place in np.flatnonzero(ends > starts)
                )
        return Counts.merged(parts)

    def _next_bits(self, keys: Keys, window: int) -> Counts:
        bits = ((keys >> np.uint64(self._shift)) & np.uint64(_VALUES - 1)).astype(np.int64)
        starts = np.flatnonzero(np.diff(bits, prepend=-1))  # keys ascend, and so do these bits of them
        return Counts(bits[starts] + window * _VALUES, np.diff(starts, append=len(bits)))

    def narrowed(self, counted: Counts) -> Search:
        """Give the search after a pass: with sixteen more bits found."""
        _, of = self.windows()
        starts = np.searchsorted(counted.codes, of * _VALUES)
        below = np.concatenate([[0], np.cumsum(counted.counts)])
        places = np.searchsorted(below, below[starts] + self.ranks, side="left") - 1
        bits = (counted.codes[places] % _VALUES).astype(np.uint64)
        return replace(
            self,
            ranks=self.ranks - (below[places] - below[starts]),
            found=(self.found << np.uint64(_BITS)) | bits,
            passes=self.passes + 1,
        )


def select(
    reduce: Callable[[Callable[[Any], Counts], Callable[[Sequence[Counts]], Counts]], Counts],
    groups: IntArray,
    ranks: IntArray,
    n_sides: int = 1,
    block_of: Callable[[Any], Block] = lambda block: block,
) -> FloatArray:
    """Give the numbers of given ranks among those of all blocks together.

    Parameters
    ----------
    reduce : callable
        ``reduce(function, merge)`` applies the function to every block and merges what it gives.
    groups, ranks : arrays of int
        The group of each number that is looked for (the number of groups stands for all together) and its rank, from 1.
    n_sides : int, default=1
        Number of columns; each has its own order.
    block_of : callable, optional
        Gives the sorted columns of what `reduce` hands to the function.

    Returns
    -------
    array of shape (len(groups), n_sides)

    Examples
    --------
    >>> blocks = [(np.array([[1.0], [4.0]]),), (np.array([[2.0], [3.0]]),)]
    >>> reduce = lambda function, merge: merge([function(block) for block in blocks])
    >>> select(reduce, groups=np.array([0, 0]), ranks=np.array([1, 3]))
    array([[1.],
           [3.]])
    """
    sides = np.tile(np.arange(n_sides), len(groups))
    search = Search(np.repeat(groups, n_sides), sides, np.repeat(ranks, n_sides), np.zeros(len(sides), dtype=np.uint64))
    while search.passes < 64 // _BITS:
        search = search.narrowed(reduce(_Counting(search, block_of), Counts.merged))
    return from_keys(search.found).reshape(len(groups), n_sides)


@dataclass(frozen=True)
class _Counting:
    """`Search.count` of what `reduce` hands over; an object of a module's class, which can be sent to a worker."""

    search: Search
    block_of: Callable[[Any], Block]

    def __call__(self, block: Any) -> Counts:
        return self.search.count(self.block_of(block))
