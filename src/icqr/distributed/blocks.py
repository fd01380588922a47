"""Rows of Dask collections, block by block: read, cut into training and calibration rows, sampled and scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from icqr._tables import FloatArray, IntArray, Table
from icqr.calibration import COVERAGES, MOST_SCORES
from icqr.distributed.cluster import gathered, one, persisted, reduced
from icqr.rows import RowBlocks, Rows, check_target, held_out_size, naming
from icqr.scored import MOST_COMPARED, Scored, ScoredBlocks, Selected, score_block

#: Importance, groups and models without a Dask estimator are learned from a sample of so many rows.
SAMPLE_ROWS = 200_000

T = TypeVar("T")


# -- Collections -----------------------------------------------------------------------------------------------------


def is_frame(X: Any) -> bool:
    """Tell whether X is a Dask DataFrame or Series."""
    return isinstance(X, dd.DataFrame | dd.Series)


def is_collection(X: Any) -> bool:
    """Tell whether X is a Dask DataFrame, Series or Array."""
    return is_frame(X) or isinstance(X, da.Array)


def check_table(X: Any) -> Any:
    """Give a Dask DataFrame or a two-dimensional Dask Array of whole rows, or say what is wrong with it."""
    if not is_collection(X) or X.ndim != 2:
        raise TypeError(
            f"X must be a Dask DataFrame or a two-dimensional Dask Array, got {type(X).__name__}"
            f"{f' of {X.ndim} dimensions' if hasattr(X, 'ndim') else ''}"
        )
    return X if is_frame(X) or X.numblocks[1] == 1 else X.rechunk({1: -1})


def example_of(X: Any) -> Table:
    """Give a table with the collection's columns, without reading a row of it."""
    if is_frame(X):
        return pd.DataFrame(X._meta_nonempty)
    return np.zeros((1, X.shape[1]))


def delayed_blocks(collection: Any) -> list[Any]:
    """Give the blocks of a collection, one below the other, as delayed objects.

    Of files only the columns are read that are used. Dask's full optimization would do more: join blocks of a DataFrame
    that uses few of its columns, so that X and y had different blocks.
    """
    if is_frame(collection):
        return list(collection.simplify().to_delayed(optimize_graph=False))
    return list(np.ravel(collection.to_delayed()))


def _known_lengths(collection: Any) -> IntArray | None:
    if is_frame(collection) or any(math.isnan(length) for length in collection.chunks[0]):
        return None
    return np.array(collection.chunks[0], dtype=np.intp)


# -- Blocks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Which rows of each block are set aside: a given number, drawn at random from a seed and the block's number.

    A block that a lost worker held is cut the same when it is read again.
    """

    seed: int
    sizes: IntArray
    held_out: bool

    def rows(self, number: int, n_rows: int) -> IntArray:
        """Give the positions of a block's rows that belong here, in order."""
        order = np.random.default_rng([self.seed, number]).permutation(n_rows)
        size = self.sizes[number]
        return np.sort(order[:size] if self.held_out else order[size:])


def shared_out(size: int, lengths: IntArray) -> IntArray:
    """Share a number of rows out among blocks, as their lengths say.

    Examples
    --------
    >>> shared_out(5, np.array([10, 0, 30, 20]))
    array([0, 0, 3, 2])
    """
    ends = [size * int(end) // max(int(lengths.sum()), 1) for end in np.cumsum(lengths)]
    return np.diff(ends, prepend=0).astype(np.intp)


@dataclass(frozen=True)
class Blocks:
    """Rows with their targets, as pairs of blocks.

    Attributes
    ----------
    X, y : tuples of delayed objects
        The blocks.
    lengths : array of int
        Their numbers of rows.
    cut : Cut, optional
        Which of the rows belong here; by default all.
    """

    X: tuple[Any, ...]
    y: tuple[Any, ...]
    lengths: IntArray
    cut: Cut | None = None

    @classmethod
    def of(cls, X: Any, y: Any) -> Blocks:
        """Pair the blocks of two collections; lengths that Dask does not know are counted, by reading y alone."""
        X = check_table(X)
        if not is_collection(y) or y.ndim != 1:
            raise TypeError(
                "with X on a cluster, y must be a Dask Series or a one-dimensional Dask Array, got "
                f"{type(y).__name__}; for a column of the same DataFrame pass y=frame['name']"
            )
        rows, targets = delayed_blocks(X), delayed_blocks(y)
        if len(rows) != len(targets):
            raise ValueError(
                f"X and y must be cut into the same blocks, got {len(rows)} and {len(targets)}; make both from one "
                "DataFrame, or bring them into line by repartition (DataFrames) or rechunk (Arrays)"
            )
        lengths = _known_lengths(y)
        if lengths is None:
            lengths = np.array(
                gathered([dask.delayed(len)(block) for block in targets], "counting rows"), dtype=np.intp
            )
        return cls(tuple(rows), tuple(targets), lengths)

    @property
    def sizes(self) -> IntArray:
        """Number of rows of each block that belong here."""
        if self.cut is None:
            return self.lengths
        return self.cut.sizes if self.cut.held_out else self.lengths - self.cut.sizes

    @property
    def total(self) -> int:
        """Number of rows in all blocks."""
        return int(self.sizes.sum())

    def map(self, function: Callable[..., T], *shared: Any) -> list[Any]:
        """Give ``function(X, y, number, *shared)`` of each block, delayed; empty blocks included."""
        work = dask.delayed(_on_block, pure=False)
        given = [one(thing) for thing in (function, self.cut, *shared)]
        return [
            work(number, int(length), X, y, *given)
            for number, (X, y, length) in enumerate(zip(self.X, self.y, self.lengths, strict=True))
        ]

    def sample(self, size: int) -> tuple[Table, FloatArray, IntArray]:
        """Bring a random sample of rows here: X, y, and the rows' positions among all."""
        wanted = shared_out(min(size, self.total), self.sizes)
        if not wanted.any():
            raise ValueError("X has 0 rows in all its blocks; at least one is needed")
        parts = [part for part, some in zip(self.map(_sample, wanted), wanted, strict=True) if some]
        tables, targets, places = zip(*gathered(parts, "sampling"), strict=True)
        starts = np.concatenate([[0], np.cumsum(self.lengths)])[:-1][wanted > 0]
        index = np.concatenate([start + place for start, place in zip(starts, places, strict=True)])
        joined = pd.concat(tables, ignore_index=True) if is_pandas(tables[0]) else np.concatenate(tables)
        return joined, np.concatenate(targets), index


def is_pandas(X: Any) -> bool:
    """Tell whether a block is a pandas object."""
    return isinstance(X, pd.DataFrame | pd.Series)


def take(X: Any, rows: IntArray) -> Any:
    """Give some rows of a block."""
    return X.iloc[rows] if is_pandas(X) else X[rows]


def _on_block(number: int, length: int, X: Any, y: Any, function: Any, cut: Cut | None, *shared: Any) -> Any:
    with naming(f"block {number}"):
        if not len(X) == len(y) == length:
            raise ValueError(
                f"X and y must have the same rows each time they are read; {length} were counted, and now X has "
                f"{len(X)} and y has {len(y)}"
            )
        if cut is not None:
            rows = cut.rows(number, length)
            X, y = take(X, rows), take(y, rows)
        return function(X, y, number, *shared)


def _sample(X: Any, y: Any, number: int, wanted: IntArray) -> tuple[Any, FloatArray, IntArray]:
    rows = np.sort(np.random.default_rng(number).choice(len(X), wanted[number], replace=False))
    return take(X, rows), check_target(take(y, rows), len(rows), (-math.inf, math.inf)), rows


def sample(X: Any, y: Any, rows: int = SAMPLE_ROWS) -> tuple[Table, FloatArray]:
    """Bring a random sample of a cluster's rows here, the same share of every block; the same rows each time.

    Parameters
    ----------
    X, y : Dask DataFrame and Series, or Dask Arrays
        The rows.
    rows : int, default=200_000
        At most so many.

    Returns
    -------
    X, y : table and array
    """
    return Blocks.of(X, y).sample(rows)[:2]


# -- Rows of an estimator ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DaskRows(RowBlocks):
    """Rows of Dask collections, as the estimators take them.

    Parameters
    ----------
    X, y, index
        A sample of the rows, or an example of their columns.
    blocks : Blocks
        All rows.
    coverages : sequence of float
        Coverages whose scores are kept if not all are.
    most_scores : int
        So many scores are kept all.
    """

    blocks: Blocks
    coverages: Sequence[float] = COVERAGES
    most_scores: int = MOST_SCORES

    @classmethod
    def to_fit(cls, X: Any, y: Any, sample_rows: int, **kept: Any) -> DaskRows:
        """Take rows to learn from: with a sample of them."""
        if not isinstance(sample_rows, int | np.integer) or sample_rows < 1:
            raise ValueError(f"sample_rows must be a whole number, 1 or more, got {sample_rows!r}")
        blocks = Blocks.of(X, y)
        return cls(*blocks.sample(int(sample_rows)), blocks, **kept)

    @classmethod
    def to_calibrate(cls, X: Any, y: Any, **kept: Any) -> DaskRows:
        """Take rows to calibrate with: none is read before they are scored."""
        return cls(example_of(check_table(X)), np.empty(0), np.empty(0, dtype=np.intp), Blocks.of(X, y), **kept)

    @property
    def total(self) -> int:
        """The number of rows in all blocks."""
        return self.blocks.total

    def split(self, calibration_size: Any, seed: int) -> tuple[Rows, Rows]:
        """Draw the rows to train on and to calibrate with, the same share of every block; the sample goes along."""
        lengths = self.blocks.lengths
        sizes = shared_out(held_out_size(calibration_size, self.total), lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        held_out = Cut(seed, sizes, held_out=True)
        aside = np.zeros(len(self), dtype=np.bool_)
        for number, (first, last) in enumerate(pairwise(np.searchsorted(self.index, starts))):  # the index ascends
            if first < last:
                places = self.index[first:last] - starts[number]
                aside[first:last] = np.isin(places, held_out.rows(number, int(lengths[number])))
        parts = ((replace(held_out, held_out=False), ~aside), (held_out, aside))
        train, calibration = (self._part(cut, np.flatnonzero(mine)) for cut, mine in parts)
        return train, calibration

    def _part(self, cut: Cut, rows: IntArray) -> DaskRows:
        if len(rows) == 0:
            what = "calibrate with" if cut.held_out else "train on"
            raise ValueError(f"the sample of {len(self)} rows has none to {what}; give a larger sample_rows")
        X = take(self.X, rows)
        return replace(self, X=X, y=self.y[rows], index=self.index[rows], blocks=replace(self.blocks, cut=cut))

    def scored(self, model: Any) -> Scored | Selected:
        """Score the rows where they are, and bring here what the calibration needs."""
        n_sides = 1 if model.conformity_.symmetric else 2
        keeps_all = self.total * n_sides <= self.most_scores
        share = 1.0 if keeps_all else min(1.0, MOST_COMPARED / self.total)
        parts = persisted(self.blocks.map(_score, model.for_workers(), share), "scoring")
        asked = (*self.coverages, model.coverage, model.coverage_)
        return _OnWorkers(parts).summed_up(self.total, model.conformity_.symmetric, asked, self.most_scores)


def _score(X: Any, y: Any, number: int, model: Any, compared_share: float) -> Scored:
    return score_block(model, X, y, number, compared_share)


class _OnWorkers(ScoredBlocks):
    """Scored blocks that workers hold."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def reduce(self, function: Callable[[Scored], T], merge: Callable[[Sequence[T]], T]) -> T:
        """Apply the function where the blocks are, and merge the results on the workers."""
        shared, work = one(function), dask.delayed(_apply, pure=False)
        return reduced([work(shared, part) for part in self.parts], merge, "merging")


def _apply(function: Callable[[Any], T], thing: Any) -> T:
    return function(thing)
