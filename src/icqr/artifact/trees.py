"""Trees of scikit-learn as plain arrays. Its code follows child and column numbers without checking them, so we check.

All trees of a model stand one after the other in the same arrays. A node's children are numbered within its tree and
come after it; child 0 means that the node is a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import NODE_DTYPE, Tree

from icqr._tables import IntArray
from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Parts, Record, refusing

# Fields of scikit-learn's nodes that are stored as they are, by our name for them.
_HISTOGRAM_FIELDS = {
    "value": ("value", "float64"),
    "count": ("count", "uint32"),
    "threshold": ("num_threshold", "float64"),
    "missing_left": ("missing_go_to_left", "uint8"),
    "is_categorical": ("is_categorical", "uint8"),
    "bitset": ("bitset_idx", "uint32"),
}
_TREE_FIELDS = {
    "threshold": ("threshold", "float64"),
    "impurity": ("impurity", "float64"),
    "count": ("n_node_samples", "uint32"),
    "weight": ("weighted_n_node_samples", "float64"),
    "missing_left": ("missing_go_to_left", "uint8"),
}
# Known and not stored: computed again, or of use in training alone.
_HISTOGRAM_OTHERS = {"feature_idx", "left", "right", "depth", "is_leaf", "gain", "bin_threshold"}
_TREE_OTHERS = {"left_child", "right_child", "feature"}
_LEAF, _NO_FEATURE = -1, -2  # as scikit-learn marks them in `Tree`


def _check_fields(dtype: np.dtype[Any], known: set[str]) -> None:
    if set(dtype.names or ()) != known:
        odd = ", ".join(sorted(set(dtype.names or ()) ^ known))
        raise ArtifactError(
            f"trees of this version of scikit-learn differ from those that this version of icqr can store ({odd}); "
            "update icqr"
        )


def _join(arrays: Sequence[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else empty


def _store_structure(
    left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], parts: Parts, place: str
) -> dict[str, Any]:
    leaf = left == 0
    return {
        "left": parts.array(f"{place}/left", left, "uint32"),
        "right": parts.array(f"{place}/right", np.where(leaf, 0, right), "uint32"),
        "feature": parts.array(f"{place}/feature", np.where(leaf, 0, feature), "uint32"),
    }


class _Structure:
    """Which node is whose child: checked to be trees, so that following the children ends at a leaf of the tree."""

    def __init__(self, record: Record) -> None:
        self.sizes = record.array("sizes", "int64", (None,))
        if (self.sizes < 1).any() or (self.sizes > 2**31).any():
            raise ArtifactError(f"{record.place}.sizes: a tree must have at least one node")
        self.n_nodes = int(self.sizes.sum())
        self.left, self.right, self.feature = (
            record.array(name, "uint32", (self.n_nodes,)).astype(np.int64) for name in ("left", "right", "feature")
        )
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.inner = self.left > 0
        self.depth = self._check(record.place)

    def _check(self, place: str) -> IntArray:
        """Give each node's depth, or refuse nodes that are no trees."""
        start = np.repeat(self.starts, self.sizes)
        size = np.repeat(self.sizes, self.sizes)
        own = np.arange(self.n_nodes) - start
        parents = np.flatnonzero(self.inner)
        if not (self.right[~self.inner] == 0).all():
            raise ArtifactError(f"{place}: a leaf has no children")
        children = []
        for side in (self.left, self.right):
            if not ((side[parents] > own[parents]) & (side[parents] < size[parents])).all():
                raise ArtifactError(f"{place}: children must come after their node, in the same tree")
            children.append(side[parents] + start[parents])
        if not (np.bincount(np.concatenate(children), minlength=self.n_nodes) == (own > 0)).all():
            raise ArtifactError(f"{place}: each node but the first of a tree must be the child of exactly one other")
        depth = np.zeros(self.n_nodes, dtype=np.intp)
        level = self.starts
        while len(level):
            level = level[self.inner[level]]
            below = np.concatenate([self.left[level] + start[level], self.right[level] + start[level]])
            depth[below] = np.tile(depth[level], 2) + 1
            level = below
        return depth

    def check_features(self, n_features: IntArray, place: str) -> None:
        """Raise unless each tree's columns are among its number of them."""
        if (self.feature >= np.repeat(n_features, self.sizes)).any():
            raise ArtifactError(f"{place}: a tree asks for a column that is not there")

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Give each tree's own part of values."""
        return np.split(values, self.starts[1:])


def _check_flags(record: Record, **flags: NDArray[Any]) -> None:
    for name, values in flags.items():
        if not (values <= 1).all():
            raise ArtifactError(f"{record.place}.{name} must be 0 or 1")


# -- HistGradientBoostingRegressor -----------------------------------------------------------------------------------


def store_boosting(model: HistGradientBoostingRegressor, parts: Parts, place: str) -> dict[str, Any]:
    """Give the trees of a fitted model."""
    known = {name for name, _ in _HISTOGRAM_FIELDS.values()} | _HISTOGRAM_OTHERS
    _check_fields(PREDICTOR_RECORD_DTYPE, known)
    trees = [tree for iteration in model._predictors for tree in iteration]
    nodes = _join([tree.nodes for tree in trees], np.empty(0, PREDICTOR_RECORD_DTYPE))
    inner = nodes["is_leaf"] == 0
    bitsets = _join([tree.raw_left_cat_bitsets for tree in trees], np.empty((0, 8), np.uint32))
    sizes = [len(tree.nodes) for tree in trees]
    return {
        "baseline": float(model._baseline_prediction.item()),
        "sizes": parts.array(f"{place}/sizes", sizes, "int64"),
        **_store_structure(nodes["left"] * inner, nodes["right"], nodes["feature_idx"], parts, place),
        **{
            ours: parts.array(f"{place}/{ours}", nodes[theirs], dtype)
            for ours, (theirs, dtype) in _HISTOGRAM_FIELDS.items()
        },
        "bitset_sizes": parts.array(
            f"{place}/bitset_sizes", [len(tree.raw_left_cat_bitsets) for tree in trees], "int64"
        ),
        "bitsets": parts.array(f"{place}/bitsets", bitsets, "uint32"),
    }


def restore_boosting(record: Record, model: HistGradientBoostingRegressor) -> None:
    """Give stored trees to a model that has been fitted to rows with the same columns."""
    structure = _Structure(record)
    categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=np.bool_)
    structure.check_features(np.full(len(structure.sizes), len(categorical)), record.place)
    nodes = np.zeros(structure.n_nodes, PREDICTOR_RECORD_DTYPE)
    nodes["left"], nodes["right"], nodes["feature_idx"] = structure.left, structure.right, structure.feature
    nodes["is_leaf"], nodes["depth"] = ~structure.inner, structure.depth
    for ours, (theirs, dtype) in _HISTOGRAM_FIELDS.items():
        nodes[theirs] = record.array(ours, dtype, (structure.n_nodes,), finite=ours != "threshold")
    _check_flags(record, missing_left=nodes["missing_go_to_left"], is_categorical=nodes["is_categorical"])
    bitset_sizes = record.array("bitset_sizes", "int64", (len(structure.sizes),))
    if (bitset_sizes < 0).any() or (bitset_sizes > 2**31).any():
        raise ArtifactError(f"{record.place}.bitset_sizes must be 0 or more")
    bitsets = record.array("bitsets", "uint32", (int(bitset_sizes.sum()), 8))
    # Within each tree's bitsets, and for columns that have categories.
    splits = nodes["is_categorical"] == 1
    if not (nodes["bitset_idx"] < np.repeat(bitset_sizes, structure.sizes))[splits].all():
        raise ArtifactError(f"{record.place}: a node names categories that are not there")
    if not categorical[structure.feature[splits]].all():
        raise ArtifactError(f"{record.place}: a node asks for categories of a column of numbers")
    per_tree = np.split(bitsets, np.cumsum(bitset_sizes)[:-1]) if len(bitset_sizes) else []
    model._predictors = [
        [TreePredictor(own, np.zeros_like(sets), sets)]
        for own, sets in zip(structure.split(nodes), per_tree, strict=False)
    ]
    model._baseline_prediction = np.array([[record.finite("baseline")]])
    record.check_all_read()


# -- Trees of forests, gradient boosting, and single ones ------------------------------------------------------------


def store_trees(trees: Sequence[Tree], parts: Parts, place: str) -> dict[str, Any]:
    """Give trees of one output."""
    _check_fields(NODE_DTYPE, {name for name, _ in _TREE_FIELDS.values()} | _TREE_OTHERS)
    if any(tree.n_outputs != 1 or tree.max_n_classes != 1 for tree in trees):
        raise ArtifactError("a tree predicts more than one number; only regressors of one target can be stored")
    states = [tree.__getstate__() for tree in trees]
    nodes = np.concatenate([state["nodes"] for state in states])
    values = np.concatenate([state["values"] for state in states]).ravel()
    inner = nodes["left_child"] != _LEAF
    return {
        "sizes": parts.array(f"{place}/sizes", [tree.node_count for tree in trees], "int64"),
        "n_features": parts.array(f"{place}/n_features", [tree.n_features for tree in trees], "int64"),
        **_store_structure(nodes["left_child"] * inner, nodes["right_child"], nodes["feature"], parts, place),
        **{
            ours: parts.array(f"{place}/{ours}", nodes[theirs], dtype) for ours, (theirs, dtype) in _TREE_FIELDS.items()
        },
        "value": parts.array(f"{place}/value", values, "float64"),
    }


def restore_trees(record: Record) -> list[Tree]:
    """Give back the trees."""
    structure = _Structure(record)
    n_features = record.array("n_features", "int64", (len(structure.sizes),))
    if (n_features < 1).any() or (n_features > 2**31).any():
        raise ArtifactError(f"{record.place}.n_features must be 1 or more")
    structure.check_features(n_features, record.place)
    nodes = np.zeros(structure.n_nodes, NODE_DTYPE)
    nodes["left_child"] = np.where(structure.inner, structure.left, _LEAF)
    nodes["right_child"] = np.where(structure.inner, structure.right, _LEAF)
    nodes["feature"] = np.where(structure.inner, structure.feature, _NO_FEATURE)
    for ours, (theirs, dtype) in _TREE_FIELDS.items():
        nodes[theirs] = record.array(ours, dtype, (structure.n_nodes,), finite=ours != "threshold")
    _check_flags(record, missing_left=nodes["missing_go_to_left"])
    values = record.array("value", "float64", (structure.n_nodes,))
    record.check_all_read()
    trees = []
    parts = zip(n_features, *(structure.split(one) for one in (nodes, values, structure.depth)), strict=True)
    with refusing(record.place):
        for n, own, value, depth in parts:
            tree = Tree(int(n), np.array([1], dtype=np.intp), 1)
            state = {"max_depth": int(depth.max()), "node_count": len(own), "nodes": np.ascontiguousarray(own)}
            tree.__setstate__({**state, "values": np.ascontiguousarray(value[:, None, None])})
            trees.append(tree)
    return trees


# -- Quantile forests ------------------------------------------------------------------------------------------------


def store_forest(forest: Any, parts: Parts, place: str) -> dict[str, Any]:
    """Give what a quantile forest keeps of its training rows: y, and which of its values are in each leaf."""
    return {
        "y": parts.array(f"{place}/y", np.asarray(forest.y_train), "float64"),
        "leaves": parts.array(f"{place}/leaves", np.asarray(forest.y_train_leaves), "uint32"),
        "limits": parts.array(f"{place}/limits", np.asarray(forest.y_bound_leaves), "float64"),
    }


def restore_forest(record: Record, trees: Sequence[Tree]) -> Any:
    """Give back what a quantile forest of these trees keeps of its training rows."""
    y = record.array("y", "float64", (1, None))
    leaves = record.array("leaves", "uint32", (len(trees), None, 1, None))
    limits = record.array("limits", "float64", (None, None, None), finite=False)
    if leaves.max(initial=0) > y.shape[1]:
        raise ArtifactError(f"{record.place}: a leaf holds a row that is not there")
    if leaves.shape[1] < max(tree.node_count for tree in trees) or leaves.shape[3] < 1:
        raise ArtifactError(f"{record.place}: there are fewer leaves than nodes in the trees")
    record.check_all_read()
    with refusing(record.place):
        fast = import_module("quantile_forest._quantile_forest_fast")
        return fast.QuantileForest(y, leaves.astype(np.int64), limits)
