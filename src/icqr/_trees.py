"""Predictions of boosted trees when one column's values are replaced.

Permutation importance predicts the same rows again and again with one column changed. For trees, most of that work is
always the same. Start with the set of all leaves. Each split that sends the row right removes the leaves on its left,
and the row ends in the first leaf that remains (QuickScorer, Lucchese et al., SIGIR 2015). What one column's splits
remove depends on that column's value alone. So for each tree and column we keep the leaves that all *other* columns
leave over. A new value takes one intersection of two sets: no tree is walked again, and trees without the column are
not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from icqr._libraries import class_names
from icqr._tables import FloatArray, IntArray

Sets: TypeAlias = NDArray[Any]  # sets of leaves: unsigned whole numbers with a bit for each leaf
#: Larger jobs are refused. They hold a set of leaves for each tree, each column that it splits on, and each row.
MOST_BYTES = 2**30
#: Larger trees are refused: a set of leaves is a number of at most 64 bits.
MOST_LEAVES = 64
#: On this many rows, the trees that are read here must predict the same as the model itself.
ROWS_CHECKED = 100
_ROWS_AT_ONCE = 1024  # their sets stay in the processor's cache


# -- Reading trees out of models -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trees:
    """The trees of one model, with all their nodes in one sequence.

    `roots` is each tree's first node, and `tree` is each node's tree. `left` and `right` are a node's children; a leaf
    points to itself. A row goes left if its value is at most the threshold, is among the categories, or is missing and
    `missing_left` is true.
    """

    roots: IntArray
    tree: IntArray
    left: IntArray
    right: IntArray
    column: IntArray
    threshold: FloatArray
    missing_left: NDArray[np.bool_]
    value: FloatArray
    categories: dict[int, NDArray[np.uint32]]

    @property
    def splits(self) -> IntArray:
        """The nodes that are not leaves."""
        return np.flatnonzero(self.left != np.arange(len(self.left)))


def _read_hist(model: Any) -> Trees | None:
    predictors = [iteration[0] for iteration in model._predictors]
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    sizes = [len(predictor.nodes) for predictor in predictors]
    roots = np.cumsum([0, *sizes[:-1]])
    tree = np.repeat(np.arange(len(sizes)), sizes)
    inner, itself = nodes["is_leaf"] == 0, np.arange(len(nodes))
    column = nodes["feature_idx"].astype(np.intp)
    if model.is_categorical_ is not None:  # categorical columns come first in its trees
        column = np.argsort(~model.is_categorical_, kind="stable")[column]
    return Trees(
        roots,
        tree,
        np.where(inner, roots[tree] + nodes["left"], itself),
        np.where(inner, roots[tree] + nodes["right"], itself),
        column,
        nodes["num_threshold"],
        nodes["missing_go_to_left"] == 1,
        nodes["value"],
        {
            node: predictors[tree[node]].raw_left_cat_bitsets[nodes["bitset_idx"][node]]
            for node in np.flatnonzero(inner & (nodes["is_categorical"] == 1)).tolist()
        },
    )


def _read_lightgbm(model: Any) -> Trees | None:
    text = model.booster_.model_to_string()
    lines: dict[str, list[str]] = defaultdict(list)
    for line in text[text.index("\nTree=") : text.index("\nend of trees")].splitlines():
        name, _, values = line.partition("=")
        lines[name].append(values)

    def numbers(name: str, dtype: Any = np.intp) -> Any:
        return np.fromstring(" ".join(lines[name]), dtype=dtype, sep=" ")

    kind, threshold = numbers("decision_type"), numbers("threshold", np.float64)
    missing, is_category = kind >> 2, (kind & 1) > 0
    if "\naverage_output" in text or numbers("is_linear").any() or (missing == 1).any():  # 1: zeros count as missing
        return None

    # `Trees` will hold all splits first, tree by tree, then all leaves. In the text, leaves are children -1, -2, ….
    n_leaves = numbers("num_leaves")
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves - 1)
    n_splits = len(tree)
    first_split, first_leaf = (np.cumsum([0, *sizes[:-1]]) for sizes in (n_leaves - 1, n_leaves))
    leaves = np.arange(n_splits, n_splits + int(n_leaves.sum()))
    padding = np.zeros(len(leaves), dtype=np.intp)

    def children(name: str) -> IntArray:
        child = numbers(name)
        nodes = np.where(child < 0, n_splits + first_leaf[tree] + ~child, first_split[tree] + child)
        return np.concatenate([nodes, leaves])

    # LightGBM takes a missing value for 0 if training had none. A missing category always goes right.
    missing_left = np.where(missing == 2, (kind & 2) > 0, threshold >= 0) & ~is_category
    return Trees(
        np.where(n_leaves > 1, first_split, n_splits + first_leaf),
        np.concatenate([tree, np.repeat(np.arange(len(n_leaves)), n_leaves)]),
        children("left_child"),
        children("right_child"),
        np.concatenate([numbers("split_feature"), padding]),
        np.concatenate([threshold, padding]),
        np.concatenate([missing_left, padding > 0]),
        np.concatenate([np.zeros(n_splits), numbers("leaf_value", np.float64)]),
        _lightgbm_categories(lines, np.flatnonzero(is_category), tree, threshold),
    )


def _lightgbm_categories(
    lines: dict[str, list[str]], splits: IntArray, tree: IntArray, threshold: FloatArray
) -> dict[int, NDArray[np.uint32]]:
    """Return the categories that go left at each of these splits. The threshold is the number of the tree's set."""
    ends, bits = (
        [np.fromstring(values, dtype=dtype, sep=" ") for values in lines[name]]
        for name, dtype in (("cat_boundaries", np.intp), ("cat_threshold", np.uint32))
    )
    line = np.unique(tree[splits], return_inverse=True)[1].tolist()  # only trees with such splits have these lines
    number = threshold[splits].astype(np.intp).tolist()
    return {
        node: bits[i][ends[i][k] : ends[i][k + 1]] for node, i, k in zip(splits.tolist(), line, number, strict=True)
    }


_READERS: dict[str, Callable[[Any], Trees | None]] = {
    "sklearn.HistGradientBoostingRegressor": _read_hist,
    "lightgbm.LGBMRegressor": _read_lightgbm,
}


def can_read(model: Any) -> bool:
    """Return whether the model is of a library whose trees are read here."""
    return any(name in _READERS for name in class_names(model))


def _join(forests: Sequence[Trees]) -> Trees:
    """Join the trees of several models, one after the other."""
    shifted, n_nodes, n_trees = [], 0, 0
    for trees in forests:
        nodes = {name: getattr(trees, name) + n_nodes for name in ("roots", "left", "right")}
        categories = {node + n_nodes: bits for node, bits in trees.categories.items()}
        shifted.append(replace(trees, **nodes, tree=trees.tree + n_trees, categories=categories))
        n_nodes, n_trees = n_nodes + len(trees.left), n_trees + len(trees.roots)
    names = ("roots", "tree", "left", "right", "column", "threshold", "missing_left", "value")
    arrays = {name: np.concatenate([getattr(trees, name) for trees in shifted]) for name in names}
    return Trees(**arrays, categories={node: bits for trees in shifted for node, bits in trees.categories.items()})


# -- Predicting with one column replaced -----------------------------------------------------------------------------


def tree_replacer(models: Sequence[Any], rows: Any) -> TreeReplacer | None:
    """Prepare predictions of one model per level with one column replaced, or return None if that can't be done here.

    It can't be done for models of other libraries, trees of more than 64 leaves, or too many rows. Nor are the trees
    used if they don't give the models' own predictions.

    Parameters
    ----------
    models : sequence
        A fitted model for each level.
    rows : DataFrame or array
        Rows as the models take them.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> X = np.random.default_rng(0).uniform(size=(300, 2))
    >>> model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=0).fit(X, X[:, 0])
    >>> swapped = tree_replacer([model], X).replace(0, np.arange(300)[None, ::-1])[0, :, 0]
    >>> bool(np.allclose(swapped, model.predict(np.column_stack([X[::-1, 0], X[:, 1]]))))
    True
    """
    forests = []
    for model in models:
        reader = next((_READERS[name] for name in class_names(model) if name in _READERS), None)
        trees = None if reader is None else reader(model)
        if trees is None:  # we don't know the library, or its use of these trees
            return None
        forests.append(trees)

    most_leaves = n_sets = 0
    for trees in forests:
        tree, column = trees.tree[trees.splits], trees.column[trees.splits]
        most_leaves = max(most_leaves, int(np.bincount(tree).max(initial=0)) + 1)
        n_sets += len(np.unique(tree * (int(column.max(initial=0)) + 1) + column))
    dtype = np.uint32 if most_leaves <= 32 else np.uint64
    if most_leaves > MOST_LEAVES or n_sets * len(rows) * np.dtype(dtype).itemsize > MOST_BYTES:
        return None

    replacer = TreeReplacer(forests, _as_matrix(rows), dtype)

    # Models add a constant to each level: learn it from the first row. Then all rows must agree, up to rounding.
    predicted = np.column_stack([model.predict(rows[:ROWS_CHECKED]) for model in models])
    replacer.predicted += predicted[0] - replacer.predicted[0]
    differences = np.abs(predicted - replacer.predicted[: len(predicted)]).max(axis=0)
    return replacer if np.all(differences <= 1e-9 * np.abs(predicted).max(axis=0)) else None


def _as_matrix(rows: Any) -> FloatArray:
    """Return rows as a matrix of numbers, with categories as their codes."""
    if not isinstance(rows, pd.DataFrame):
        return np.asarray(rows, dtype=np.float64)
    matrix = np.empty(rows.shape)
    for j in range(rows.shape[1]):
        column = rows.iloc[:, j]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes = column.cat.codes.to_numpy()
            matrix[:, j] = np.where(codes < 0, np.nan, codes)
        else:
            matrix[:, j] = column.to_numpy(dtype=np.float64)
    return matrix


class TreeReplacer:
    """Predictions of boosted trees on fixed rows when one column's values are replaced; see `tree_replacer`.

    A *pair* is a tree with one of the columns it splits on; pairs are sorted by column. A *place* is where a value lies
    among the thresholds of its column: values in the same place go the same way in every tree.
    """

    def __init__(self, forests: Sequence[Trees], matrix: FloatArray, dtype: Any) -> None:
        self.level = np.repeat(np.arange(len(forests)), [len(trees.roots) for trees in forests])
        self.dtype = dtype
        trees = _join(forests)
        start, width, self.leaf_values = _number_leaves(trees)
        splits = _sort_splits(trees, start, width, dtype)

        # For each column: its pairs, each row's place, and a table of the leaves that the column alone leaves over. The
        # table has a row for each pair and a column for each place.
        self.tables: dict[int, Sets] = {}
        self.places: dict[int, IntArray] = {}
        self.pairs: dict[int, slice] = {}
        self.tree, column = splits.tree[splits.starts], splits.column[splits.starts]
        for j in np.unique(column).tolist():
            values, self.places[j] = splits.cells(j, matrix[:, j])
            self.pairs[j] = slice(*np.searchsorted(column, [j, j + 1]).tolist())
            self.tables[j] = splits.left_over(j, values)

        # For each row: the leaves that all other columns leave over, and the value of the leaf where the row ends.
        all_trees = np.arange(len(trees.roots))
        self.others = np.empty((len(splits.starts), len(matrix)), dtype=dtype)
        self.values = np.empty((len(all_trees), len(matrix)))
        for first in range(0, len(matrix), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            alone = np.empty_like(self.others[:, rows])
            for j, pairs in self.pairs.items():
                np.take(self.tables[j], self.places[j][rows], axis=1, out=alone[pairs])
            all_columns = _intersect_others(alone, self.tree, self.others[:, rows], len(all_trees))
            self.values[:, rows] = self._values(all_columns, all_trees)
        self.predicted = self._sums(self.values, all_trees)

    def uses(self, column: int) -> bool:
        """Return whether any tree splits on the column."""
        return column in self.pairs

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Return (R, n, levels) predictions, not sorted, with the column's values in each of the (R, n) orders."""
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
        """Return the value of the first leaf in each set. `sets` has one row for each of these trees."""
        # The lowest bit of a set is a power of two. Written as a floating-point number, its exponent is the leaf.
        lowest = sets & (~sets + self.dtype(1))
        if self.dtype is np.uint32:
            leaf, bias = lowest.astype(np.float32).view(np.int32) >> 23, 127
        else:
            leaf, bias = lowest.astype(np.float64).view(np.int64) >> 52, 1023
        leaf += (trees * self.leaf_values.shape[1] - bias).astype(leaf.dtype)[:, None]
        return np.asarray(np.take(self.leaf_values, leaf))

    def _sums(self, values: FloatArray, trees: IntArray) -> FloatArray:
        """Return (n, levels) sums over the trees of each level."""
        ends = np.searchsorted(self.level[trees], np.arange(self.level[-1] + 2))
        return np.stack([values[a:b].sum(axis=0) for a, b in pairwise(ends)], axis=1)


def _number_leaves(trees: Trees) -> tuple[IntArray, IntArray, FloatArray]:
    """Count each tree's leaves from the left. Return each node's first leaf, its number of leaves, and all values."""
    inner, nodes = [], trees.roots  # depth by depth, the roots first
    while len(nodes):
        nodes = nodes[trees.left[nodes] != nodes]
        inner.append(nodes)
        nodes = np.concatenate([trees.left[nodes], trees.right[nodes]])
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


def _intersect_others(alone: Sets, tree: IntArray, others: Sets, n_trees: int) -> Sets:
    """Fill in `others`, what all other columns leave over in a tree, and return what all columns together leave over.

    `alone` is what each column leaves over in a tree; `tree` is each row's tree. Two passes: columns before, and after.
    """
    by_tree, count = np.argsort(tree, kind="stable"), np.bincount(tree, minlength=n_trees)
    first = np.cumsum(count) - count
    steps = [(i, np.flatnonzero(count > i)) for i in range(int(count.max(initial=0)))]
    before = np.full((n_trees, alone.shape[1]), ~alone.dtype.type(0))
    after = before.copy()
    for i, trees in steps:
        pairs = by_tree[first[trees] + i]
        others[pairs] = before[trees]
        before[trees] &= alone[pairs]
    for i, trees in steps:
        pairs = by_tree[first[trees] + count[trees] - 1 - i]
        others[pairs] &= after[trees]
        after[trees] &= alone[pairs]
    return before


@dataclass(frozen=True)
class _Splits:
    """All splits, sorted by column and tree; `starts` has the first split of each column and tree.

    `kept` is the set of leaves that remain when a row goes right: all but those on the left.
    """

    tree: IntArray
    column: IntArray
    starts: IntArray
    threshold: FloatArray
    missing_left: NDArray[np.bool_]
    kept: Sets
    categories: dict[int, NDArray[np.uint32]]  # by place in this order

    def cells(self, column: int, values: FloatArray) -> tuple[FloatArray, IntArray]:
        """Group the values that no split on the column tells apart; return one value per group, and each row's group.

        Groups are sorted by value; missing values, if there are any, are last.
        """
        first, end = np.searchsorted(self.column, [column, column + 1]).tolist()
        if any(first <= split < end for split in self.categories):
            return np.unique(values, return_inverse=True)
        thresholds = np.unique(self.threshold[first:end])
        place = np.searchsorted(thresholds, values)
        missing = np.isnan(values)
        place[missing] = len(thresholds) + 1
        return np.concatenate([thresholds, [np.inf], [np.nan] * int(missing.any())]), place

    def left_over(self, column: int, values: FloatArray) -> Sets:
        """Return (trees, values) sets: the leaves that the splits on a column leave over, for sorted values."""
        splits = np.arange(*np.searchsorted(self.column, [column, column + 1]))
        tree: IntArray = np.cumsum(np.diff(self.tree[splits], prepend=self.tree[splits[:1]]) > 0)
        everything = ~self.kept.dtype.type(0)
        sets = np.full((int(tree[-1]) + 1, len(values)), everything)
        n_known = len(values) - int(np.isnan(values[-1]))

        is_category = np.array([split in self.categories for split in splits.tolist()])
        for i in np.flatnonzero(is_category).tolist():
            codes, bits = values[:n_known].astype(np.intp), self.categories[int(splits[i])]
            word = np.minimum(codes // 32, len(bits) - 1)
            is_left = (codes < 32 * len(bits)) & (bits[word] >> (codes % 32).astype(np.uint32) & np.uint32(1) == 1)
            sets[tree[i], :n_known] &= np.where(is_left, everything, self.kept[splits[i]])

        # Values above a threshold go right. Mark the first of them, and let the mark spread to all that follow.
        first = np.searchsorted(values[:n_known], self.threshold[splits], side="right")
        marks = np.flatnonzero(~is_category & (first < n_known))
        np.bitwise_and.at(sets, (tree[marks], first[marks]), self.kept[splits[marks]])
        if not is_category.any():
            np.bitwise_and.accumulate(sets[:, :n_known], axis=1, out=sets[:, :n_known])

        if n_known < len(values):
            right = np.flatnonzero(~self.missing_left[splits])
            np.bitwise_and.at(sets[:, n_known], tree[right], self.kept[splits[right]])
        return sets


def _sort_splits(trees: Trees, start: IntArray, width: IntArray, dtype: Any) -> _Splits:
    node = trees.splits
    node = node[np.lexsort((trees.tree[node], trees.column[node]))]
    tree, column, left = trees.tree[node], trees.column[node], trees.left[node]
    starts = np.flatnonzero(np.diff(tree, prepend=-1) | np.diff(column, prepend=-1))
    bit = dtype(1)
    on_the_left = ((bit << width[left].astype(dtype)) - bit) << start[left].astype(dtype)
    categories = {i: trees.categories[n] for i, n in enumerate(node.tolist()) if n in trees.categories}
    return _Splits(tree, column, starts, trees.threshold[node], trees.missing_left[node], ~on_the_left, categories)
