"""What a group is, in words: a rule from a shallow tree, and the features that set the group apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from icqr._clustering import MOST_CATEGORIES
from icqr._tables import Features, FloatArray, IntArray, Table, readable_columns


def describe_groups(X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None = None) -> pd.DataFrame:
    """Say what each group is: a rule from a shallow tree, how well it fits, and the features that set the group apart.

    Columns of weight zero are not used, nor those that are neither numbers nor categories (dates, which the user's
    pipeline reads). Missing values count as the median.

    Returns
    -------
    DataFrame
        A row per group: `rule`; `fidelity`, the share of rows that satisfy both rule and group among those that satisfy
        one (1 is a perfect rule); `features`, the three features whose mean differs most from all rows'.

    Examples
    --------
    >>> X = pd.DataFrame({"hour": np.arange(24), "day": 1})
    >>> describe_groups(X, (X["hour"] > 6).to_numpy().astype(int), 2)["rule"].tolist()
    ['hour ≤ 6', 'hour > 6']
    """
    if n_groups == 1:
        return pd.DataFrame({"rule": ["all rows"], "fidelity": [1.0], "features": [""]})
    columns = _Columns.of(X, weights)
    described = []
    for group in range(n_groups):
        inside = labels == group
        rule, fidelity = _best_rule(columns, inside)
        described.append({"rule": rule, "fidelity": fidelity, "features": columns.differences(inside)})
    return pd.DataFrame(described)


@dataclass(frozen=True)
class _Columns:
    """The columns that rules may use: the ten of largest weight, missing values filled.

    `ranks` are each value's rank in its column: a tree splits them alike, and its 32-bit floats hold them exactly.
    """

    matrix: FloatArray
    ranks: IntArray
    names: list[tuple[Any, Any]]

    @classmethod
    def of(cls, X: Table, weights: FloatArray | None) -> _Columns:
        share = np.ones(X.shape[1]) if weights is None or not np.any(weights) else np.asarray(weights)
        readable = readable_columns(X)
        if len(readable) < X.shape[1]:
            X, share = pd.DataFrame(X).iloc[:, readable], share[readable]
        if not readable:
            return cls(np.empty((len(X), 0)), np.empty((len(X), 0), dtype=np.intp), [])
        matrix, origin, names = Features(X, max_categories=MOST_CATEGORIES).one_hot(X)
        allowed = [j for j in np.argsort(-share, kind="stable")[:10] if share[j] > 0]
        kept = np.flatnonzero(np.isin(origin, allowed) & ~np.isnan(matrix).all(axis=0))
        matrix = matrix[:, kept]
        matrix = np.where(np.isnan(matrix), np.nanmedian(matrix, axis=0), matrix)
        ranks = [np.unique(column, return_inverse=True)[1] for column in matrix.T]
        return cls(matrix, np.array(ranks, dtype=np.intp).T, [names[j] for j in kept])

    def differences(self, inside: NDArray[np.bool_]) -> str:
        """Name the three columns whose mean inside differs most from the mean of all, in standard deviations."""
        if not inside.any():
            return ""
        largest = np.abs(self.matrix).max(axis=0)  # as unit, so that squares don't overflow
        scaled = np.divide(self.matrix, largest, out=np.zeros_like(self.matrix), where=largest > 0)
        mean, ours, spread = scaled.mean(axis=0), scaled[inside].mean(axis=0), scaled.std(axis=0)
        effect = np.divide(ours - mean, spread, out=np.zeros_like(mean), where=spread > 1e-12)
        order = [j for j in np.argsort(-np.abs(effect), kind="stable")[:3] if abs(effect[j]) > 1e-12]
        return "; ".join(self._difference(j, ours[j] * largest[j], mean[j] * largest[j]) for j in order)

    def _difference(self, j: int, ours: float, mean: float) -> str:
        name, category = self.names[j]
        if category is not None:
            return f"{name} = {category} in {100 * ours:.0f} % (all: {100 * mean:.0f} %)"
        return f"{name} {'higher' if ours > mean else 'lower'} ({ours:.3g}; all: {mean:.3g})"

    def rule(self, limits: dict[int, tuple[float, float]]) -> str:
        """Say that each column lies within its limits; what a column is makes what it is not superfluous."""
        settled = {self.names[j][0] for j, (above, _) in limits.items() if self._is_category(j) and above > -math.inf}
        conditions = [
            self._condition(j, above, below)
            for j, (above, below) in limits.items()
            if above > -math.inf or not self._is_category(j) or self.names[j][0] not in settled
        ]
        return " and ".join(conditions) or "all rows"

    def _is_category(self, j: int) -> bool:
        return self.names[j][1] is not None

    def _condition(self, j: int, above: float, below: float) -> str:
        """Say that the rank in column j is > above and ≤ below."""
        name, category = self.names[j]
        if category is not None:
            return f"{name} = {category}" if above > -math.inf else f"{name} ≠ {category}"
        values = np.unique(self.matrix[:, j])
        if len(values) == 2:
            return f"{name} = {values[int(above > -math.inf)]:.15g}"
        if math.isinf(above):
            return f"{name} ≤ {self._limit(j, below)}"
        if math.isinf(below):
            return f"{name} > {self._limit(j, above)}"
        return f"{self._limit(j, above)} < {name} ≤ {self._limit(j, below)}"

    def _limit(self, j: int, rank: float) -> str:
        """Give a number between the values on both sides of a rank, with no more digits than that takes."""
        values = np.unique(self.matrix[:, j])
        low, high = values[math.floor(rank)], values[math.floor(rank) + 1]
        if np.all(values == np.round(values)) and abs(low) < 1e15:
            return f"{low:.0f}"
        candidates = (f"{low / 2 + high / 2:.{digits}g}" for digits in range(3, 18))
        short = next((text for text in candidates if low <= float(text) < high), repr(float(low)))
        return f"{float(short):.15g}" if len(short) < 15 else short


def _best_rule(columns: _Columns, inside: NDArray[np.bool_]) -> tuple[str, float]:
    """Give the rule of the leaf that overlaps most with the group, and the overlap (Jaccard's index)."""
    if not inside.any():
        return "no rows", 0.0
    if not columns.names:
        return "all rows", float(inside.mean())
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=3, random_state=0).fit(columns.ranks, inside)
    leaves = tree.apply(columns.ranks)
    sizes = np.bincount(leaves)
    hits = np.bincount(leaves, weights=inside)
    overlaps = hits / (sizes + inside.sum() - hits)
    best = int(overlaps.argmax())
    return columns.rule(_path_to(tree.tree_, best)), float(overlaps[best])


def _path_to(tree: Any, leaf: int) -> dict[int, tuple[float, float]]:
    """Give the limits (above, below] of each feature's rank on the way to a leaf."""
    sides = (tree.children_left, tree.children_right)
    parents = {int(child): (node, side) for side in (0, 1) for node, child in enumerate(sides[side])}
    limits: dict[int, tuple[float, float]] = {}
    node = leaf
    while node in parents:
        node, side = parents[node]
        j, threshold = int(tree.feature[node]), float(tree.threshold[node])
        above, below = limits.get(j, (-math.inf, math.inf))
        limits[j] = (above, min(below, threshold)) if side == 0 else (max(above, threshold), below)
    return dict(sorted(limits.items()))
