"""Rules in words: what a group is, and which region an audit found.

A rule is a tuple of conditions that all hold: ``hour ≤ 6``, ``2 < temp ≤ 5``, ``city = Bern``, ``city ≠ Bern``,
``temp is missing``. Its words say exactly which rows it holds, because thresholds are short numbers from the start. A
row whose value is missing satisfies neither ``x ≤ 3`` nor ``x > 3``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from icqr._clustering import MOST_CATEGORIES
from icqr._tables import Features, FloatArray, IntArray, Table, readable_columns

BoolArray: TypeAlias = NDArray[np.bool_]

# -- Conditions ------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """How a column and its values are called; values are codes of `levels`, seconds (of dates) or numbers."""

    name: str
    levels: Sequence[str] | None = None
    is_date: bool = False

    def text(self, value: float) -> str:
        """Return a value as it is shown."""
        if self.levels is not None:
            return self.levels[int(value)]
        return str(np.datetime64(int(value), "s")).replace("T", " ") if self.is_date else number_text(value)


#: Columns by their place, which is how conditions refer to them: two columns may have the same name.
Columns: TypeAlias = Sequence[Column] | Mapping[int, Column]


class Within(NamedTuple):
    """The condition above < value ≤ up_to on the column at `place`."""

    place: int
    above: float
    up_to: float

    def mask(self, values: FloatArray) -> BoolArray:
        """Return which rows of a matrix satisfy it."""
        column = values[:, self.place]
        low = column > self.above if self.above > -math.inf else ~np.isnan(column)
        return np.asarray(low & (column <= self.up_to))

    def words(self, columns: Columns) -> str:
        """Return the condition in words."""
        column = columns[self.place]
        if self.above == -math.inf:
            return f"{column.name} ≤ {column.text(self.up_to)}"
        if self.up_to == math.inf:
            return f"{column.name} > {column.text(self.above)}"
        return f"{column.text(self.above)} < {column.name} ≤ {column.text(self.up_to)}"


class Equals(NamedTuple):
    """The condition that the column at `place` has a value or, negated, has not; NaN stands for a missing one."""

    place: int
    value: float
    negated: bool = False

    def mask(self, values: FloatArray) -> BoolArray:
        """Return which rows of a matrix satisfy it."""
        column = values[:, self.place]
        return np.asarray((np.isnan(column) if math.isnan(self.value) else column == self.value) != self.negated)

    def words(self, columns: Columns) -> str:
        """Return the condition in words."""
        column = columns[self.place]
        return value_rule(column.name, None if math.isnan(self.value) else column.text(self.value), self.negated)


Rule: TypeAlias = tuple[Within | Equals, ...]


def value_rule(name: Any, value: Any, negated: bool = False) -> str:
    """Return in words that a column has a value, or has not.

    Examples
    --------
    >>> value_rule("city", "Bern"), value_rule("city", "Bern", negated=True), value_rule("city", np.nan)
    ('city = Bern', 'city ≠ Bern', 'city is missing')
    """
    if pd.isna(value):
        return f"{name} is {'known' if negated else 'missing'}"
    return f"{name} {'≠' if negated else '='} {value}"


def words(rule: Rule, columns: Columns) -> str:
    """Return a rule in words.

    Examples
    --------
    >>> columns = [Column("hour"), Column("city", ["Bern", "Rom"])]
    >>> words((Within(0, 6, 9), Equals(1, 0), Equals(0, math.nan, negated=True)), columns)
    '6 < hour ≤ 9 and city = Bern and hour is known'
    """
    return " and ".join(condition.words(columns) for condition in rule) or "all rows"


def simplified(conditions: Iterable[Within | Equals]) -> Rule:
    """Return conditions with the limits of each column joined, and without what a known value says anyway.

    Examples
    --------
    >>> simplified([Within(0, 2, math.inf), Equals(1, 3, negated=True), Within(0, -math.inf, 5), Equals(1, 4)])
    (Within(place=0, above=2, up_to=5), Equals(place=1, value=4, negated=False))
    """
    joined: dict[int | Equals, Within | Equals] = {}
    for condition in conditions:
        key = condition.place if isinstance(condition, Within) else condition
        earlier = joined.get(key, condition)
        if isinstance(condition, Within) and isinstance(earlier, Within):
            above, up_to = max(condition.above, earlier.above), min(condition.up_to, earlier.up_to)
            condition = Within(condition.place, above, up_to)
        joined[key] = condition

    equals = [condition for condition in joined.values() if isinstance(condition, Equals)]
    settled = {condition.place for condition in equals if not condition.negated}
    superfluous = {condition for condition in equals if condition.negated and condition.place in settled}
    return tuple(condition for condition in joined.values() if condition not in superfluous)


# -- Thresholds ------------------------------------------------------------------------------------------


def cut_between(low: float, high: float, whole: bool, digits: int) -> float:
    """Return a number ≥ low and < high with no more digits than it takes, but so many at least; `low` if all are whole.

    Examples
    --------
    >>> cut_between(0.123456, 0.129999, whole=False, digits=2), cut_between(6, 9, whole=True, digits=2)
    (0.127, 6.0)
    """
    middle = low / 2 + high / 2
    if (whole and abs(low) < 1e15) or not math.isfinite(middle):
        return float(low)
    candidates = (float(f"{middle:.{n}g}") for n in range(digits, 18))
    return next((value for value in candidates if low <= value < high), float(low))


def number_text(value: float) -> str:
    """Return a number with as many digits as it has, a whole one without a point.

    Examples
    --------
    >>> number_text(6.0), number_text(0.125), number_text(0.1 + 0.2)
    ('6', '0.125', '0.30000000000000004')
    """
    if abs(value) < 1e15 and value == round(value):
        return f"{value:.0f}"
    return f"{value:.15g}" if float(f"{value:.15g}") == value else repr(float(value))


def tree_paths(tree: DecisionTreeClassifier) -> list[tuple[tuple[int, int, bool], ...]]:
    """Return the way to each node of a tree that was fitted on whole numbers, the root's first.

    A step is the matrix column, the code that it is split after, and whether the node is on the side of larger codes.
    """
    nodes = tree.tree_
    paths: list[tuple[tuple[int, int, bool], ...]] = [()] * nodes.node_count
    for node in range(nodes.node_count):  # a node's children come after it
        for child, larger in ((nodes.children_left[node], False), (nodes.children_right[node], True)):
            if child >= 0:
                paths[child] = (*paths[node], (int(nodes.feature[node]), math.floor(nodes.threshold[node]), larger))
    return paths


# -- What a group is -------------------------------------------------------------------------------------


def describe_partition(
    partition: Any, X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None
) -> pd.DataFrame:
    """Return what each group is, as the partition itself says (`describe`), and as rows of the groups show."""
    own = pd.DataFrame(partition.describe()) if hasattr(partition, "describe") else pd.DataFrame()
    return own if "features" in own else pd.DataFrame({**describe_groups(X, labels, n_groups, weights), **own})


def describe_groups(X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None = None) -> pd.DataFrame:
    """Describe each group: a rule from a shallow tree, how well it fits, and the features that set the group apart.

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

    features = _GroupFeatures(X, weights)
    descriptions = []
    for group in range(n_groups):
        inside = labels == group
        rule, fidelity = features.best_rule(inside)
        descriptions.append({"rule": rule, "fidelity": fidelity, "features": features.differences(inside)})
    return pd.DataFrame(descriptions)


class _GroupFeatures:
    """The features that describe groups: the ten columns of largest weight as numbers, missing values filled."""

    def __init__(self, X: Table, weights: FloatArray | None) -> None:
        share = np.ones(X.shape[1]) if weights is None or not np.any(weights) else np.asarray(weights)
        readable = readable_columns(X)
        self.matrix = np.empty((len(X), 0))
        self.names: list[tuple[Any, Any]] = []  # each matrix column's name and, of a category, its value
        self.places = np.empty(0, dtype=np.intp)
        if readable:
            if len(readable) < X.shape[1]:
                X, share = pd.DataFrame(X).iloc[:, readable], share[readable]
            matrix, origin, names = Features(X, max_categories=MOST_CATEGORIES).one_hot(X)
            allowed = [j for j in np.argsort(-share, kind="stable")[:10] if share[j] > 0]
            kept = np.flatnonzero(np.isin(origin, allowed) & ~np.isnan(matrix).all(axis=0))
            matrix = matrix[:, kept]
            self.matrix = np.where(np.isnan(matrix), np.nanmedian(matrix, axis=0), matrix)
            self.names, self.places = [names[j] for j in kept], origin[kept]

        # A tree splits the ranks of values as it would split the values, and its 32-bit floats hold ranks exactly.
        pairs = [np.unique(column, return_inverse=True) for column in self.matrix.T]
        self.distinct = [values for values, _ in pairs]
        self.ranks = np.array([ranks for _, ranks in pairs], dtype=np.intp).T

        # How columns and their values are called; the code of a category is its matrix column.
        categories = ["" if category is None else str(category) for _, category in self.names]
        self.columns: dict[int, Column] = {}
        for place, (name, category), values in zip(self.places, self.names, self.distinct, strict=True):
            two = [f"{value:.15g}" for value in values] if len(values) == 2 else None
            self.columns[int(place)] = Column(str(name), categories if category is not None else two)

    def best_rule(self, inside: BoolArray) -> tuple[str, float]:
        """Return the rule of the leaf that overlaps most with the group, and the overlap (Jaccard's index)."""
        if not inside.any():
            return "no rows", 0.0
        if not self.names:
            return "all rows", float(inside.mean())

        tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=3, random_state=0).fit(self.ranks, inside)
        leaves = tree.apply(self.ranks)
        hits = np.bincount(leaves, weights=inside)
        overlaps = hits / (np.bincount(leaves) + inside.sum() - hits)
        best = int(overlaps.argmax())

        conditions: list[Within | Equals] = []
        for feature, rank, larger in sorted(tree_paths(tree)[best], key=lambda step: step[0]):
            place, values = int(self.places[feature]), self.distinct[feature]
            if self.names[feature][1] is not None:
                conditions.append(Equals(place, feature, negated=not larger))
            elif len(values) == 2:
                conditions.append(Equals(place, float(larger)))
            else:
                cut = cut_between(values[rank], values[rank + 1], bool(np.all(values == np.round(values))), digits=3)
                conditions.append(Within(place, cut, math.inf) if larger else Within(place, -math.inf, cut))
        return words(simplified(conditions), self.columns), float(overlaps[best])

    def differences(self, inside: BoolArray) -> str:
        """Return the three columns whose mean inside differs most from the mean of all, in standard deviations."""
        if not inside.any():
            return ""
        largest = np.abs(self.matrix).max(axis=0)  # as unit, so that squares don't overflow
        scaled = np.divide(self.matrix, largest, out=np.zeros_like(self.matrix), where=largest > 0)
        mean, ours, spread = scaled.mean(axis=0), scaled[inside].mean(axis=0), scaled.std(axis=0)
        effect = np.divide(ours - mean, spread, out=np.zeros_like(mean), where=spread > 1e-12)

        texts = []
        for j in np.argsort(-np.abs(effect), kind="stable")[:3]:
            (name, category), own, overall = self.names[j], ours[j] * largest[j], mean[j] * largest[j]
            if abs(effect[j]) <= 1e-12:
                continue
            if category is not None:
                texts.append(f"{name} = {category} in {100 * own:.0f} % (all: {100 * overall:.0f} %)")
            else:
                texts.append(f"{name} {'higher' if own > overall else 'lower'} ({own:.3g}; all: {overall:.3g})")
        return "; ".join(texts)
