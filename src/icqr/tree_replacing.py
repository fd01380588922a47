"""What boosted trees predict when one column's values are replaced.

Permutation importance asks a model again and again about the same rows with one column changed. For trees most of the
way to the answer is always the same. Each split clears, for the rows that it sends to the right, the leaves on its left
from a set of leaves; the first leaf left in the set is where the row ends (QuickScorer, Lucchese et al., SIGIR 2015).
What the splits on one column clear depends on that column's value alone. So for each tree and column the leaves that
all *other* columns leave over are kept, and with a new value all that is left to do is an intersection of two sets:
no tree is walked again, and trees without the column are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from icqr._tables import FloatArray, IntArray
from icqr._trees import Trees, read_trees

Sets: TypeAlias = NDArray[Any]  # of unsigned whole numbers
#: Larger jobs take too much memory: there is a set of leaves for each tree, column of it, and row.
MOST_BYTES = 2**30
#: On so many rows the trees as they are read here are compared with the model itself.
ROWS_CHECKED = 100
_ROWS_AT_ONCE = 1024  # their sets stay in the processor's cache
#: A set of leaves is a number of 64 bits at most.
MOST_LEAVES = 64


def tree_replacer(models: Sequence[Any], rows: Any, predict: Callable[[Any], FloatArray]) -> TreeReplacer | None:
    """Prepare predictions of one model per level with one column replaced.

    None where they can't be had this way: models whose trees are not known here, trees of more than 64 leaves, too many
    rows. The trees must give the models' own predictions, or they are not used.

    Parameters
    ----------
    models : sequence
        A fitted model for each level.
    rows : DataFrame or array
        Rows as the models take them.
    predict : callable
        Gives the models' (n, levels) predictions of such rows, not sorted.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> X = np.random.default_rng(0).uniform(size=(300, 2))
    >>> model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5).fit(X, X[:, 0])
    >>> replacer = tree_replacer([model], X, lambda rows: model.predict(rows)[:, None])
    >>> swapped = replacer.replace(0, np.arange(300)[None, ::-1])[0, :, 0]
    >>> bool(np.allclose(swapped, model.predict(np.column_stack([X[::-1, 0], X[:, 1]]))))
    True
    """
    read = [read_trees(model) for model in models]
    if any(trees is None for trees in read):
        return None
    forests = [trees for trees in read if trees is not None]
    if not _are_small(forests, len(rows)):
        return None
    replacer = TreeReplacer(forests, _as_matrix(rows))
    return replacer if replacer.agrees(predict(rows[:ROWS_CHECKED])) else None


def _are_small(forests: Sequence[Trees], n_rows: int) -> bool:
    most, pairs = 0, 0
    for trees in forests:
        tree, column = trees.tree[trees.splits], trees.column[trees.splits]
        most = max(most, int(np.bincount(tree).max(initial=0)) + 1)
        pairs += len(np.unique(tree * (int(column.max(initial=0)) + 1) + column))
    return most <= MOST_LEAVES and pairs * n_rows * np.dtype(_kind(most)).itemsize <= MOST_BYTES


def _kind(n_leaves: int) -> Any:
    """Give the type of number that holds a set of so many leaves."""
    return np.uint32 if n_leaves <= 32 else np.uint64


def _as_matrix(rows: Any) -> FloatArray:
    if not isinstance(rows, pd.DataFrame):
        return np.asarray(rows, dtype=np.float64)
    return np.column_stack([_numbers(rows.iloc[:, j]) for j in range(rows.shape[1])])


def _numbers(column: pd.Series[Any]) -> FloatArray:
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.to_numpy(dtype=np.float64)
    codes = column.cat.codes.to_numpy()
    return np.where(codes < 0, np.nan, codes)


class TreeReplacer:
    """Predictions of boosted trees on fixed rows when one column's values are replaced; see `tree_replacer`."""

    def __init__(self, forests: Sequence[Trees], matrix: FloatArray) -> None:
        self.level = np.repeat(np.arange(len(forests)), [len(trees.roots) for trees in forests])
        trees = Trees.joined(forests)
        start, width, self.leaf_values = _leaves(trees)
        self.dtype = _kind(self.leaf_values.shape[1])
        splits = _Splits.of(trees, start, width, self.dtype)
        self.tables: dict[int, Sets] = {}
        self.places: dict[int, IntArray] = {}
        self.pairs: dict[int, slice] = {}
        self.tree, column = splits.tree[splits.starts], splits.column[splits.starts]
        for j in np.unique(column).tolist():
            values, self.places[j] = splits.cells(j, matrix[:, j])
            self.pairs[j] = slice(*np.searchsorted(column, [j, j + 1]).tolist())
            self.tables[j] = splits.left_over(j, values)
        every = np.arange(len(trees.roots))
        self.others = np.empty((len(splits.starts), len(matrix)), dtype=self.dtype)
        self.values = np.empty((len(every), len(matrix)))
        for first in range(0, len(matrix), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            all_columns = _without_one(self._own(rows), self.tree, self.others[:, rows], len(every))
            self.values[:, rows] = self._values(all_columns, every)
        self.predicted = self._sums(self.values, every)

    def _own(self, rows: slice) -> Sets:
        """Give what each column alone leaves over of each tree, for some rows."""
        own = np.empty_like(self.others[:, rows])
        for j, pairs in self.pairs.items():
            np.take(self.tables[j], self.places[j][rows], axis=1, out=own[pairs])
        return own

    def agrees(self, predicted: FloatArray) -> bool:
        """Tell whether the trees give the models' predictions of the first rows, up to rounding.

        Models add a constant to each level, which is learned here.
        """
        constants = predicted[0] - self.predicted[0]
        self.predicted += constants
        differences = np.abs(predicted - self.predicted[: len(predicted)]).max(axis=0)
        return bool(np.all(differences <= 1e-9 * np.abs(predicted).max(axis=0)))

    def uses(self, column: int) -> bool:
        """Tell whether any tree splits on the column."""
        return column in self.pairs

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Give (R, n, levels) predictions, not sorted, the column's values in the orders (R, n)."""
        replaced = np.repeat(self.predicted[None], len(orders), axis=0)
        if not self.uses(column):
            return replaced
        pairs, table, place = self.pairs[column], self.tables[column], self.places[column]
        trees, others = self.tree[pairs], self.others[pairs]
        values = self.values[trees]
        for repeat, order in enumerate(orders):
            changed = np.flatnonzero(place[order] != place)
            sets = np.take(table, place[order[changed]], axis=1)
            sets &= np.take(others, changed, axis=1)
            change = self._values(sets, trees)
            change -= np.take(values, changed, axis=1)
            replaced[repeat, changed] += self._sums(change, trees)
        return replaced

    def _values(self, sets: Sets, trees: IntArray) -> FloatArray:
        """Give the value of the first leaf in each set; a row of sets for each tree."""
        # A set is a number with a bit for each leaf: its lowest bit alone is a power of two, whose exponent, as a
        # floating-point number, is the leaf.
        lowest = sets & (~sets + self.dtype(1))
        if self.dtype is np.uint32:
            leaf, bias = lowest.astype(np.float32).view(np.int32) >> 23, 127
        else:
            leaf, bias = lowest.astype(np.float64).view(np.int64) >> 52, 1023
        leaf += (trees * self.leaf_values.shape[1] - bias).astype(leaf.dtype)[:, None]
        return np.asarray(np.take(self.leaf_values, leaf))

    def _sums(self, values: FloatArray, trees: IntArray) -> FloatArray:
        """Give (n, levels) sums over the trees of each level."""
        ends = np.searchsorted(self.level[trees], np.arange(self.level[-1] + 2))
        return np.stack([values[a:b].sum(axis=0) for a, b in pairwise(ends)], axis=1)


def _leaves(trees: Trees) -> tuple[IntArray, IntArray, FloatArray]:
    """Give leaves numbers from left to right: each node's first leaf, their number, and (trees, leaves) values."""
    levels = trees.levels()
    inner = [nodes[trees.left[nodes] != nodes] for nodes in levels]
    width = np.ones(len(trees.left), dtype=np.intp)
    for nodes in reversed(inner):
        width[nodes] = width[trees.left[nodes]] + width[trees.right[nodes]]
    start = np.zeros_like(width)
    for nodes in inner:
        start[trees.left[nodes]] = start[nodes]
        start[trees.right[nodes]] = start[nodes] + width[trees.left[nodes]]
    leaves = np.flatnonzero(trees.left == np.arange(len(trees.left)))
    values = np.zeros((len(trees.roots), int(width[trees.roots].max())))
    values[trees.tree[leaves], start[leaves]] = trees.value[leaves]
    return start, width, values


@dataclass(frozen=True)
class _Splits:
    """All splits, sorted by column and tree; `starts` are the first ones of each column and tree."""

    tree: IntArray
    column: IntArray
    starts: IntArray
    node: IntArray
    threshold: FloatArray
    missing_left: NDArray[np.bool_]
    kept: Sets
    categories: dict[int, NDArray[np.uint32]]

    @classmethod
    def of(cls, trees: Trees, start: IntArray, width: IntArray, dtype: Any) -> _Splits:
        node = trees.splits
        node = node[np.lexsort((trees.tree[node], trees.column[node]))]
        tree, column, left = trees.tree[node], trees.column[node], trees.left[node]
        new = np.flatnonzero(np.diff(tree, prepend=-1) | np.diff(column, prepend=-1))
        # What stays in the set when a row goes right: all but the leaves on the left.
        one = dtype(1)
        on_the_left = ((one << width[left].astype(dtype)) - one) << start[left].astype(dtype)
        return cls(
            tree, column, new, node, trees.threshold[node], trees.missing_left[node], ~on_the_left, trees.categories
        )

    def cells(self, column: int, values: FloatArray) -> tuple[FloatArray, IntArray]:
        """Give a value for each set of values that no split on the column tells apart, sorted, and each value's place.

        Missing values, if there are any, are last.
        """
        mine = slice(*np.searchsorted(self.column, [column, column + 1]).tolist())
        if any(node in self.categories for node in self.node[mine].tolist()):
            return np.unique(values, return_inverse=True)
        thresholds = np.unique(self.threshold[mine])
        place = np.searchsorted(thresholds, values)
        missing = np.isnan(values)
        place[missing] = len(thresholds) + 1
        return np.concatenate([thresholds, [np.inf], [np.nan] * int(missing.any())]), place

    def left_over(self, column: int, values: FloatArray) -> Sets:
        """Give the leaves that the splits on a column leave over, (trees, values), for sorted values."""
        mine = np.arange(*np.searchsorted(self.column, [column, column + 1]))
        tree: IntArray = np.cumsum(np.diff(self.tree[mine], prepend=self.tree[mine[:1]]) > 0)
        sets = np.full((int(tree[-1]) + 1, len(values)), ~self.kept.dtype.type(0))
        n_known = len(values) - int(np.isnan(values[-1]))
        is_category = np.array([node in self.categories for node in self.node[mine].tolist()])
        for i in np.flatnonzero(is_category).tolist():
            bits = self.categories[int(self.node[mine[i]])]
            sets[tree[i], :n_known] &= np.where(
                _among(values[:n_known].astype(np.intp), bits), ~self.kept.dtype.type(0), self.kept[mine[i]]
            )
        # Values above a threshold go right: mark the first of them, and let the mark spread to all that follow.
        first = np.searchsorted(values[:n_known], self.threshold[mine], side="right")
        marks = np.flatnonzero(~is_category & (first < n_known))
        np.bitwise_and.at(sets, (tree[marks], first[marks]), self.kept[mine[marks]])
        if not is_category.any():
            np.bitwise_and.accumulate(sets[:, :n_known], axis=1, out=sets[:, :n_known])
        if n_known < len(values):
            right = np.flatnonzero(~self.missing_left[mine])
            np.bitwise_and.at(sets[:, n_known], tree[right], self.kept[mine[right]])
        return sets


def _among(codes: IntArray, bits: NDArray[np.uint32]) -> NDArray[np.bool_]:
    word = np.minimum(codes // 32, len(bits) - 1)
    return np.asarray((codes < 32 * len(bits)) & (bits[word] >> (codes % 32).astype(np.uint32) & np.uint32(1) == 1))


def _without_one(own: Sets, tree: IntArray, others: Sets, n_trees: int) -> Sets:
    """Fill in, for each tree and column, what all `others` leave over; give, for each tree, what all columns do.

    `own` has a row for each tree and column, what that column alone leaves over; `tree` says which tree it is.
    """
    by_tree, count = np.argsort(tree, kind="stable"), np.bincount(tree, minlength=n_trees)
    first = np.cumsum(count) - count
    steps = [(i, np.flatnonzero(count > i)) for i in range(int(count.max(initial=0)))]
    before = np.full((n_trees, own.shape[1]), ~own.dtype.type(0))
    after = before.copy()
    for i, trees in steps:
        pairs = by_tree[first[trees] + i]
        others[pairs] = before[trees]
        before[trees] &= own[pairs]
    for i, trees in steps:
        pairs = by_tree[first[trees] + count[trees] - 1 - i]
        others[pairs] &= after[trees]
        after[trees] &= own[pairs]
    return before
