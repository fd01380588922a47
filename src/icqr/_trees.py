"""The trees of boosted models, read out of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icqr._libraries import class_names
from icqr._tables import FloatArray, IntArray


@dataclass(frozen=True)
class Trees:
    """The trees of one model, their nodes one after the other.

    `roots` has a node for each tree, `tree` a tree for each node. `left` and `right` are nodes (a leaf has itself); a
    row goes left if its value is at most the threshold, or among the categories, or, where it has none, as
    `missing_left` says.
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

    @classmethod
    def joined(cls, parts: Sequence[Trees]) -> Trees:
        """Put the trees of several models, or single trees, one after the other."""
        starts = np.cumsum([0, *(len(part.left) for part in parts)])[:-1]
        first_trees = np.cumsum([0, *(len(part.roots) for part in parts)])[:-1]

        def joined(name: str, shifts: Any = None) -> Any:
            shifts = np.zeros(len(parts), dtype=np.intp) if shifts is None else shifts
            return np.concatenate([getattr(part, name) + shift for part, shift in zip(parts, shifts, strict=True)])

        sets = {
            int(node + start): bits
            for part, start in zip(parts, starts, strict=True)
            for node, bits in part.categories.items()
        }
        return cls(
            joined("roots", starts),
            joined("tree", first_trees),
            joined("left", starts),
            joined("right", starts),
            joined("column"),
            joined("threshold"),
            np.concatenate([part.missing_left for part in parts]),
            joined("value"),
            sets,
        )

    @property
    def splits(self) -> IntArray:
        """The nodes that are no leaves."""
        return np.flatnonzero(self.left != np.arange(len(self.left)))

    def levels(self) -> list[IntArray]:
        """Give the nodes level by level, the roots first."""
        found = [self.roots]
        while len(inner := found[-1][self.left[found[-1]] != found[-1]]):
            found.append(np.concatenate([self.left[inner], self.right[inner]]))
        return found


# -- Reading ---------------------------------------------------------------------------------------------------------


def _read_hist(model: Any) -> Trees | None:
    predictors = [iteration[0] for iteration in model._predictors]
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    sizes = [len(predictor.nodes) for predictor in predictors]
    roots = np.cumsum([0, *sizes[:-1]])
    tree = np.repeat(np.arange(len(sizes)), sizes)
    inner, own = nodes["is_leaf"] == 0, np.arange(len(nodes))
    column = nodes["feature_idx"].astype(np.intp)
    if model.is_categorical_ is not None:  # such columns come first in its trees
        column = np.argsort(~model.is_categorical_, kind="stable")[column]
    return Trees(
        roots,
        tree,
        np.where(inner, roots[tree] + nodes["left"], own),
        np.where(inner, roots[tree] + nodes["right"], own),
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
    n_leaves = numbers("num_leaves")
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves - 1)
    # Here splits come first, tree by tree, then leaves; there a child below 0 is a leaf, counted from -1 down.
    n_splits = len(tree)
    first_split, first_leaf = (np.cumsum([0, *sizes[:-1]]) for sizes in (n_leaves - 1, n_leaves))
    leaves = np.arange(n_splits, n_splits + int(n_leaves.sum()))

    def children(name: str) -> IntArray:
        child = numbers(name)
        return np.concatenate(
            [np.where(child < 0, n_splits + first_leaf[tree] + ~child, first_split[tree] + child), leaves]
        )

    padding = np.zeros(len(leaves), dtype=np.intp)
    # Without missing values in training a missing value is a 0; a missing category always goes right.
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
    """Give the sets of categories to the left of these splits; the threshold says which of the tree's sets it is."""
    ends, bits = (
        [np.fromstring(values, dtype=dtype, sep=" ") for values in lines[name]]
        for name, dtype in (("cat_boundaries", np.intp), ("cat_threshold", np.uint32))
    )
    place = np.unique(tree[splits], return_inverse=True)[1].tolist()  # only trees with such splits have these lines
    which = threshold[splits].astype(np.intp).tolist()
    return {
        node: bits[i][ends[i][k] : ends[i][k + 1]] for node, i, k in zip(splits.tolist(), place, which, strict=True)
    }


_READERS: dict[str, Callable[[Any], Trees | None]] = {
    "sklearn.HistGradientBoostingRegressor": _read_hist,
    "lightgbm.LGBMRegressor": _read_lightgbm,
}


def read_trees(model: Any) -> Trees | None:
    """Give a fitted model's trees; None if its library, or what it does with them, is not known here."""
    reader = next((_READERS[name] for name in class_names(model) if name in _READERS), None)
    return None if reader is None else reader(model)
