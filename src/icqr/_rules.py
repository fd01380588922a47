"""Rules in words: what a group is, and which region an audit found.

A rule is a tuple of conditions that all hold: ``hour ≤ 6``, ``2 < temp ≤ 5``, ``city = Bern``, ``city ≠ Bern``,
``temp is missing``. Its words say exactly which rows it holds, because thresholds are short numbers from the start. A
row whose value is missing satisfies neither ``x ≤ 3`` nor ``x > 3``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from icqr._clustering import MOST_CATEGORIES
from icqr._dates import unit_text, whole_units
from icqr._tables import Features, FloatArray, IntArray, Table, readable_columns

BoolArray: TypeAlias = NDArray[np.bool_]
#: What a rule without a condition says.
ALL_ROWS = "all rows"
#: A rule that fits its group less well than the first is called a rough one, and less well than the second, none.
LEAST_FIDELITY, LEAST_ROUGH = 0.95, 0.5
#: An example row shows at most this many columns, and of a text at most this many characters.
MOST_EXAMPLE_COLUMNS, LONGEST_EXAMPLE = 4, 30

# -- Conditions ------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """How a column and its values are called; values are codes of `levels`, whole `unit`s (of dates) or numbers."""

    name: str
    levels: Sequence[str] | None = None
    unit: str | None = None

    def text(self, value: float) -> str:
        """Return a value as it is shown."""
        if self.levels is not None:
            return self.levels[int(value)]
        return number_text(value) if self.unit is None else unit_text(value, self.unit)


class Within(NamedTuple):
    """The condition above < value ≤ up_to on the column at `place` (two columns may have the same name)."""

    place: int
    above: float
    up_to: float

    def mask(self, values: FloatArray) -> BoolArray:
        """Return which rows of a matrix satisfy it."""
        column = values[:, self.place]
        low = column > self.above if self.above > -math.inf else ~np.isnan(column)
        return np.asarray(low & (column <= self.up_to))

    def words(self, columns: Sequence[Column]) -> str:
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

    def words(self, columns: Sequence[Column]) -> str:
        """Return the condition in words."""
        column = columns[self.place]
        return value_rule(column.name, None if math.isnan(self.value) else column.text(self.value), self.negated)


Condition: TypeAlias = Within | Equals
Rule: TypeAlias = tuple[Condition, ...]


def value_rule(name: object, value: Any, negated: bool = False) -> str:
    """Return in words that a column has a value, or has not.

    Examples
    --------
    >>> value_rule("city", "Bern"), value_rule("city", "Bern", negated=True), value_rule("city", np.nan)
    ('city = Bern', 'city ≠ Bern', 'city is missing')
    """
    if pd.isna(value):
        return f"{name} is {'known' if negated else 'missing'}"
    return f"{name} {'≠' if negated else '='} {value}"


def words(rule: Rule, columns: Sequence[Column]) -> str:
    """Return a rule in words.

    Examples
    --------
    >>> columns = [Column("hour"), Column("city", ["Bern", "Rom"])]
    >>> words((Within(0, 6, 9), Equals(1, 0), Equals(0, math.nan, negated=True)), columns)
    '6 < hour ≤ 9 and city = Bern and hour is known'
    """
    return " and ".join(condition.words(columns) for condition in rule) or ALL_ROWS


def simplified(conditions: Iterable[Condition]) -> Rule:
    """Return conditions with the limits of each column joined, and without what a known value says anyway.

    Examples
    --------
    >>> simplified([Within(0, 2, math.inf), Equals(1, 3, negated=True), Within(0, -math.inf, 5), Equals(1, 4)])
    (Within(place=0, above=2, up_to=5), Equals(place=1, value=4, negated=False))
    """
    joined: dict[int | Equals, Condition] = {}
    for condition in conditions:
        key = condition.place if isinstance(condition, Within) else condition
        earlier = joined.get(key)
        if isinstance(condition, Within) and isinstance(earlier, Within):
            above, up_to = max(condition.above, earlier.above), min(condition.up_to, earlier.up_to)
            condition = Within(condition.place, above, up_to)
        joined[key] = condition

    # "city ≠ Rom" says nothing beside "city = Bern".
    equals = [condition for condition in joined.values() if isinstance(condition, Equals)]
    known = {condition.place for condition in equals if not condition.negated}
    superfluous = {condition for condition in equals if condition.negated and condition.place in known}
    return tuple(condition for condition in joined.values() if condition not in superfluous)


# -- Numbers as they are read ----------------------------------------------------------------------------


def cut_after(column: FloatArray, value: float, digits: int) -> float:
    """Return a short number that parts a column's values up to `value` from those above it.

    It has no more digits than it takes, but so many at least. Between whole numbers it is the value itself.

    Examples
    --------
    >>> cut_after(np.array([0.1, 0.123456, 0.129999]), 0.123456, digits=2), cut_after(np.array([6, 9, 12]), 9, digits=2)
    (0.127, 9.0)
    """
    following = column[column > value].min()
    middle = value / 2 + following / 2
    is_whole = bool(np.all((column == np.round(column)) | np.isnan(column)))
    if (is_whole and abs(value) < 1e15) or not math.isfinite(middle):
        return float(value)
    candidates = (float(f"{middle:.{n}g}") for n in range(digits, 18))
    return next((number for number in candidates if value <= number < following), float(value))


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


# -- Trees of rules --------------------------------------------------------------------------------------


class Cuts(NamedTuple):
    """Values of the column at `place`, in increasing order, after each of which it may be cut."""

    place: int
    after: FloatArray


#: What a tree may split rows by: limits on a column, or whether it has a value.
Split: TypeAlias = Cuts | Equals


class RuleTrees:
    """Shallow trees in which the way to each node is a rule.

    Parameters
    ----------
    values : (n, d) array
        Columns of numbers or codes. A missing number (NaN) counts as the median.
    splits : sequence of Split
        What trees may split by.
    digits : int
        Limits have at least this many significant digits.
    """

    def __init__(self, values: FloatArray, splits: Sequence[Split], digits: int) -> None:
        self.values, self.splits, self.digits = values, splits, digits
        # A tree gets codes in the order of the values: it splits them alike, and its 32-bit floats hold them exactly.
        # They lie in memory column by column, as each column is filled, and later summed, by itself.
        self.codes = np.empty((len(values), len(splits)), order="F")
        for j, split in enumerate(splits):
            if isinstance(split, Cuts):
                column = values[:, split.place]
                filled = np.where(np.isnan(column), np.nanmedian(column), column)
                self.codes[:, j] = np.searchsorted(split.after, filled)
            else:
                self.codes[:, j] = split.mask(values)

    def fit(self, target: BoolArray, smallest: int) -> tuple[IntArray, list[Rule]]:
        """Return the leaf of each row in a tree that tells `target` from the others, and the way to each node.

        The tree has a depth of 3, and each leaf has at least `smallest` rows.
        """
        tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=smallest, random_state=0).fit(self.codes, target)
        nodes = tree.tree_
        paths: list[Rule] = [()] * nodes.node_count
        for node in np.flatnonzero(nodes.children_left >= 0):  # a node's children come after it
            below, above = self._sides(self.splits[nodes.feature[node]], math.floor(nodes.threshold[node]))
            paths[nodes.children_left[node]] = (*paths[node], below)
            paths[nodes.children_right[node]] = (*paths[node], above)
        return tree.apply(self.codes), paths

    def _sides(self, split: Split, code: int) -> tuple[Condition, Condition]:
        """Return the conditions of the rows up to a code of a split, and of those above it."""
        place, column = split.place, self.values[:, split.place]
        if isinstance(split, Cuts):
            cut = cut_after(column, split.after[code], self.digits)
            return Within(place, -math.inf, cut), Within(place, cut, math.inf)

        # "Not the one of two values" is "the other", unless further splits ask for the other.
        others = np.unique(column[column != split.value])
        if len(others) == 1 and sum(each.place == place for each in self.splits) == 1:
            return Equals(place, float(others[0])), split
        return split._replace(negated=True), split


# -- What a group is -------------------------------------------------------------------------------------


def describe_partition(
    partition: Any, X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None
) -> pd.DataFrame:
    """Return what each group is, as rows of the groups show and as the partition itself says (`describe`).

    What the partition says replaces what the rows show. Only its `name` of a group stands before the rule in columns.
    """
    own = pd.DataFrame(partition.describe()) if hasattr(partition, "describe") else pd.DataFrame()
    if {"rule", "features"} <= {*own}:
        return own.assign(examples=example_rows(X, labels, n_groups, weights))
    described = describe_groups(X, labels, n_groups, weights)
    if "name" in own and n_groups > 1:
        described["rule"] = own["name"] + ": " + described["rule"]
    return described.assign(**own.drop(columns="name", errors="ignore"))


def describe_groups(X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None = None) -> pd.DataFrame:
    """Describe each group: a rule from a shallow tree, how well it fits, and the features that set the group apart.

    Columns of weight zero are not used, nor those that are not numbers, categories or dates (lists, which the user's
    pipeline reads). Missing values count as the median.

    Returns
    -------
    DataFrame
        A row per group: `rule`, with "roughly" before one that fits less well than `LEAST_FIDELITY`, and below
        `LEAST_ROUGH` the feature that differs most in place of a rule; `fidelity`, the share of rows that satisfy both
        rule and group among those that satisfy one (1 is a perfect rule); `features`, the three features whose mean
        differs most from all rows'; `examples`, two of its rows.

    Examples
    --------
    >>> X = pd.DataFrame({"hour": np.arange(24), "day": 1})
    >>> described = describe_groups(X, (X["hour"] > 6).to_numpy().astype(int), 2)
    >>> described["rule"].tolist()
    ['hour ≤ 6', 'hour > 6']
    >>> described["examples"][0]
    'hour 2, day 1; hour 4, day 1'
    """
    if n_groups == 1:
        return pd.DataFrame({"rule": [ALL_ROWS], "fidelity": [1.0], "features": [""], "examples": [""]})

    features = _GroupFeatures(X, weights)
    descriptions = []
    for group in range(n_groups):
        inside = labels == group
        if inside.any():
            rule, fidelity = features.best_rule(inside)
            differences = features.differences(inside)
            if rule != ALL_ROWS and fidelity < LEAST_ROUGH:
                rule = "; ".join(["no simple rule", *differences[:1]])
            elif rule != ALL_ROWS and fidelity < LEAST_FIDELITY:
                rule = f"roughly {rule}"
            descriptions.append({"rule": rule, "fidelity": fidelity, "features": "; ".join(differences)})
        else:
            descriptions.append({"rule": "no rows", "fidelity": 0.0, "features": ""})
    return pd.DataFrame(descriptions).assign(examples=example_rows(X, labels, n_groups, weights))


def example_rows(X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None = None) -> list[str]:
    """Return two rows of each group in words, with their values in the columns of largest weight.

    They lie a third and two thirds of the way through the group's rows, in the order of the first of these columns.

    Examples
    --------
    >>> X = pd.DataFrame({"city": ["Bern", "Rom", "Rom"], "size": [50.25, 60, 70]})
    >>> example_rows(X, np.array([0, 1, 1]), 2, np.array([0.1, 0.9]))
    ['city Bern, size 50.25', 'city Rom, size 60; city Rom, size 70']
    """
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).add_prefix("x")
    share = np.zeros(table.shape[1]) if weights is None else np.asarray(weights)
    largest = np.argsort(-share, kind="stable")[:MOST_EXAMPLE_COLUMNS]
    order = _rank(table.iloc[:, largest[0]])
    texts = []
    for group in range(n_groups):
        rows = np.flatnonzero(labels == group)
        rows = rows[np.argsort(order[rows], kind="stable")]
        chosen = sorted({rows[len(rows) * place // 3] for place in (1, 2)}, key=order.__getitem__) if len(rows) else []
        examples = [
            ", ".join(f"{table.columns[j]} {_example_text(table.iat[row, j])}" for j in sorted(largest))
            for row in chosen
        ]
        texts.append("; ".join(examples))
    return texts


def _rank(column: pd.Series[Any]) -> FloatArray:
    """Return each value's place in increasing order: of numbers and dates by size, of others by their text."""
    if column.dtype.kind not in "biufmM":
        column = column.astype(str)
    return np.asarray(column.rank(method="first").to_numpy(na_value=math.inf), dtype=np.float64)


def _example_text(value: Any) -> str:
    """Return a value in an example row, short enough to read."""
    if pd.isna(value):
        return "missing"
    if isinstance(value, float | np.floating):
        return number_text(float(f"{value:.4g}")) if value != round(value) else number_text(float(value))
    text = str(value).removesuffix(" 00:00:00")  # of a date without a time
    return text if len(text) <= LONGEST_EXAMPLE else f"{text[: LONGEST_EXAMPLE - 1]}…"


class _GroupFeatures:
    """The features that describe groups: what the ten columns of largest weight hold, gaps filled."""

    def __init__(self, X: Table, weights: FloatArray | None) -> None:
        table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).add_prefix("x")
        share = np.ones(table.shape[1]) if weights is None or not np.any(weights) else np.asarray(weights)
        readable = np.array(readable_columns(table), dtype=np.intp)
        largest = readable[np.argsort(-share[readable], kind="stable")[:10]]
        table = table.iloc[:, sorted(j for j in largest if share[j] > 0)]  # in their order
        known = Features(table, max_categories=MOST_CATEGORIES)
        dates = {name: whole_units(table[name]) for name in known.dates}
        table = pd.DataFrame(known.transform(table))

        # A feature is a column of numbers or dates, or one of the categories of a column.
        self.columns: list[Column] = []
        self.splits: list[Split] = []
        values = np.empty(table.shape)
        for place, (name, column) in enumerate(table.items()):
            levels = unit = None
            if isinstance(column.dtype, pd.CategoricalDtype):
                levels = [str(category) for category in column.cat.categories]
                values[:, place] = np.where(column.isna(), np.nan, column.cat.codes)
                self.splits += [Equals(place, float(code)) for code in range(len(levels))]
            else:
                numbers, unit = dates.get(name, (column.to_numpy(dtype=float), None))
                median = np.nanmedian(numbers) if unit is None else np.floor(np.nanmedian(numbers))
                values[:, place] = np.where(np.isnan(numbers), median, numbers)
                distinct = np.unique(values[:, place])
                two = len(distinct) == 2
                self.splits.append(Equals(place, float(distinct[1])) if two else Cuts(place, distinct[:-1]))
            self.columns.append(Column(str(name), levels, unit))
        self.trees = RuleTrees(values, self.splits, digits=3)

        # Each feature as a number that has a mean: a category is there (1) or not (0).
        places = [split.place for split in self.splits]
        is_number = [self.columns[place].levels is None for place in places]
        matrix = np.where(is_number, values[:, places], self.trees.codes)
        largest = np.abs(matrix).max(axis=0)
        self.unit = np.where(largest > 0, largest, 1.0)  # so that squares don't overflow
        self.scaled = matrix / self.unit
        self.mean, self.spread = self.scaled.mean(axis=0), self.scaled.std(axis=0)

    def best_rule(self, inside: BoolArray) -> tuple[str, float]:
        """Return the rule of the leaf that overlaps most with the group, and the overlap (Jaccard's index)."""
        if not self.columns:
            return ALL_ROWS, float(inside.mean())
        leaves, paths = self.trees.fit(inside, smallest=3)
        hits = np.bincount(leaves, weights=inside)
        overlaps = hits / (np.bincount(leaves) + inside.sum() - hits)
        best = int(overlaps.argmax())
        return words(simplified(sorted(paths[best])), self.columns), float(overlaps[best])

    def differences(self, inside: BoolArray) -> list[str]:
        """Return the three features whose mean inside differs most from the mean of all, in standard deviations."""
        mean = self.scaled[inside].mean(axis=0)
        effect = (mean - self.mean) / np.where(self.spread > 1e-12, self.spread, np.inf)
        own, overall = mean * self.unit, self.mean * self.unit

        texts = []
        for j in np.argsort(-np.abs(effect), kind="stable")[:3]:
            column = self.columns[self.splits[j].place]
            if abs(effect[j]) <= 1e-12:
                continue
            if column.unit is not None:
                later = "later" if own[j] > overall[j] else "earlier"
                texts.append(f"{column.name} {later} ({column.text(own[j])}; all: {column.text(overall[j])})")
            elif column.levels is None:
                higher = "higher" if own[j] > overall[j] else "lower"
                texts.append(f"{column.name} {higher} ({own[j]:.3g}; all: {overall[j]:.3g})")
            else:
                category = self.splits[j].words(self.columns)
                texts.append(f"{category} in {100 * own[j]:.0f} % (all: {100 * overall[j]:.0f} %)")
        return texts
