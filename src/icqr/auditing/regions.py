"""Regions of feature space in which coverage looks wrong: found on some rows, described in words.

A region is a rule, and its words say exactly which rows it holds: thresholds are short numbers from the start. A row
whose value is missing satisfies neither ``x ≤ 3`` nor ``x > 3``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from icqr._tables import FloatArray, IntArray
from icqr.metrics.checks import equal_widths

#: Fewer rows than this make no candidate.
FEWEST_ROWS = 20
#: At most so many rules are kept: those that look worst, and those that cover most.
MOST_UNDER, MOST_OVER = 14, 5
#: A rule that shares more than this of its rows with a better one (Jaccard's index) says nothing new.
LARGEST_OVERLAP = 0.7
N_BINS, MOST_CUTS, MOST_LEVELS = 5, 32, 20

NDBool = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Column:
    """A column as numbers, NaN for missing; of text, and of anything with two values, the codes of its `levels`."""

    name: str
    values: FloatArray
    levels: tuple[str, ...] | None = None
    is_date: bool = False

    def take(self, rows: IntArray) -> Column:
        """Give the same column of some rows."""
        return replace(self, values=self.values[rows])

    def known(self) -> FloatArray:
        """Give the values that are not missing, sorted."""
        return np.sort(self.values[~np.isnan(self.values)])

    def show(self, value: float) -> str:
        """Give a value as text."""
        if self.levels is not None:
            return self.levels[int(value)]
        return str(np.datetime64(int(value), "s")).replace("T", " ") if self.is_date else _short_text(value)


def columns_of(X: pd.DataFrame | None, lower: FloatArray, upper: FloatArray) -> list[Column]:
    """Give the columns rules may use: those of X, the interval's width and its centre (or only bound)."""
    with np.errstate(over="ignore", invalid="ignore"):
        middle = lower / 2 + upper / 2
        centre = np.where(np.isinf(lower), upper, np.where(np.isinf(upper), lower, middle))
        centre = np.where(np.isinf(centre), np.nan, centre)
        own = [Column("interval width", equal_widths(lower, upper)), Column("interval centre", centre)]
    return [*([] if X is None else (_column(X[name]) for name in X.columns)), *own]


def _column(column: pd.Series[Any]) -> Column:
    name = str(column.name)
    if pd.api.types.is_datetime64_any_dtype(column):
        seconds = column.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64).astype(float)
        return Column(name, np.where(column.isna(), np.nan, seconds), is_date=True)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        codes, distinct = pd.factorize(values, sort=True)
        if len(distinct) > 2:
            return Column(name, values)
        return Column(name, np.where(codes < 0, np.nan, codes), tuple(_short_text(value) for value in distinct))
    text = column.astype(object).map(str, na_action="ignore")
    codes, levels = pd.factorize(text, sort=True)
    return Column(name, np.where(codes < 0, np.nan, codes), tuple(levels))


# -- Rules -----------------------------------------------------------------------------------------------


class Within(NamedTuple):
    """above < value ≤ up_to, for the column at a place."""

    place: int
    above: float
    up_to: float

    def mask(self, columns: Sequence[Column]) -> NDBool:
        """Tell which rows satisfy it."""
        values = columns[self.place].values
        low = values > self.above if self.above > -math.inf else ~np.isnan(values)
        return np.asarray(low & (values <= self.up_to))

    def words(self, columns: Sequence[Column]) -> str:
        """Say it."""
        column = columns[self.place]
        if self.above == -math.inf:
            return f"{column.name} ≤ {column.show(self.up_to)}"
        if self.up_to == math.inf:
            return f"{column.name} > {column.show(self.above)}"
        return f"{column.show(self.above)} < {column.name} ≤ {column.show(self.up_to)}"


class Equals(NamedTuple):
    """Value = (or, negated, ≠) a value, for the column at a place; NaN stands for missing."""

    place: int
    value: float
    negated: bool = False

    def mask(self, columns: Sequence[Column]) -> NDBool:
        """Tell which rows satisfy it."""
        values = columns[self.place].values
        return np.asarray((np.isnan(values) if math.isnan(self.value) else values == self.value) != self.negated)

    def words(self, columns: Sequence[Column]) -> str:
        """Say it."""
        column = columns[self.place]
        if math.isnan(self.value):
            return f"{column.name} is {'known' if self.negated else 'missing'}"
        return f"{column.name} {'≠' if self.negated else '='} {column.show(self.value)}"


class Rule(NamedTuple):
    """All of some conditions, and where the rule comes from."""

    conditions: tuple[Within | Equals, ...]
    kind: str

    def mask(self, columns: Sequence[Column]) -> NDBool:
        """Tell which rows satisfy it."""
        return np.asarray(np.logical_and.reduce([condition.mask(columns) for condition in self.conditions]))

    def words(self, columns: Sequence[Column]) -> str:
        """Say it."""
        return " and ".join(condition.words(columns) for condition in self.conditions)


# -- Candidates ------------------------------------------------------------------------------------------


def find_rules(columns: Sequence[Column], covered: NDBool, coverage: float) -> list[Rule]:
    """Find the regions whose coverage is furthest from the promise, a bounded number of them.

    Candidates are bins of each column, values, missing values, and the nodes of a shallow tree on "covered". They are
    ranked by the binomial z-score of their coverage, less a tenth for each further condition: a plain rule beats one
    that only fits noise better. One that says nothing new beside a better one is left out.

    Examples
    --------
    >>> hour = Column("hour", np.arange(1000) % 24.0)
    >>> rules = find_rules([hour], hour.values > 6, coverage=0.9)
    >>> rules[0].words([hour])
    'hour ≤ 6'
    """
    candidates = [*_simple_rules(columns), *_tree_rules(columns, covered)]
    candidates = [rule for rule in candidates if not rule.mask(columns).all()]  # which would be all rows
    scores = np.array([_score(rule, columns, covered, coverage) for rule in candidates])
    order = np.argsort(scores, kind="stable")
    under = (candidates[i] for i in order if scores[i] < 0)
    over = (candidates[i] for i in order[::-1] if scores[i] > 0)
    worst = _distinct(under, columns, covered, coverage, MOST_UNDER)
    return [*worst, *_distinct(over, columns, covered, coverage, MOST_OVER)]


def _score(rule: Rule, columns: Sequence[Column], covered: NDBool, coverage: float) -> float:
    return _z(rule.mask(columns), covered, coverage) * 0.9 ** (len(rule.conditions) - 1)


def _z(inside: NDBool, covered: NDBool, coverage: float) -> float:
    """Give the binomial z-score of the coverage inside; NaN for too few rows."""
    n = int(inside.sum())
    if n < FEWEST_ROWS:
        return math.nan
    return float((covered[inside].sum() - n * coverage) / math.sqrt(n * coverage * (1 - coverage)))


def _distinct(
    rules: Iterable[Rule], columns: Sequence[Column], covered: NDBool, coverage: float, most: int
) -> list[Rule]:
    """Keep the first rules, leaving out those that say nothing new."""
    kept: list[Rule] = []
    masks: list[NDBool] = []
    for rule in rules:
        mask = rule.mask(columns)
        new = all(_says_new(mask, other, covered) for other in masks)
        if new and not _explained(mask, masks, covered, coverage):
            kept.append(rule)
            masks.append(mask)
        if len(kept) == most:
            break
    return kept


def _says_new(mask: NDBool, better: NDBool, covered: NDBool) -> bool:
    """Tell whether a region differs from a better one: by its rows, or as a part of it by its coverage."""
    n, shared = int(mask.sum()), int((mask & better).sum())
    if shared > LARGEST_OVERLAP * (n + int(better.sum()) - shared):
        return False
    share, whole = float(covered[mask].mean()), float(covered[better].mean())
    return shared < 0.8 * n or abs(share - whole) > 2 * math.sqrt(max(whole * (1 - whole), 1 / n) / n)


def _explained(mask: NDBool, kept: list[NDBool], covered: NDBool, coverage: float) -> bool:
    """Tell whether a region looks wrong only because of rows that are in regions kept already."""
    z = _z(mask, covered, coverage)
    rest = _z(mask & ~np.logical_or.reduce(kept), covered, coverage) if kept else math.nan
    evidence = math.copysign(1.0, z) * rest
    return evidence < min(1.0, abs(z) - 0.5)


def _simple_rules(columns: Sequence[Column]) -> Iterator[Rule]:
    for place, column in enumerate(columns):
        kind = column.name if column.name.startswith("interval ") else "feature bin"
        if column.levels is not None:
            yield from (Rule((Equals(place, level),), "category") for level in _frequent_levels(column))
        else:
            yield from (Rule((condition,), kind) for condition in _bins(place, column))
        if np.isnan(column.values).any():
            yield Rule((Equals(place, math.nan),), "missing values")


def _frequent_levels(column: Column) -> list[float]:
    values, counts = np.unique(column.known(), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
    return [float(values[i]) for i in order if counts[i] >= FEWEST_ROWS]


def _bins(place: int, column: Column) -> list[Within | Equals]:
    """Give equally large bins; of a column with few values, a condition for each."""
    known = column.known()
    distinct = np.unique(known)
    if len(distinct) <= 2 * N_BINS:
        return [Equals(place, float(value)) for value in distinct] if len(distinct) > 1 else []
    cuts = _cuts(known)
    ends = known[np.arange(1, N_BINS) * len(known) // N_BINS - 1]
    edges = np.unique(cuts[np.minimum(np.searchsorted(cuts, ends), len(cuts) - 1)])
    return [Within(place, low, up) for low, up in zip([-math.inf, *edges], [*edges, math.inf], strict=True)]


def _cuts(known: FloatArray) -> FloatArray:
    """Give short numbers that part sorted values: between all of them, or if they are many, between equal shares."""
    distinct = np.unique(known)
    ends = distinct
    if len(distinct) > MOST_CUTS + 1:
        ends = np.unique(known[np.arange(1, MOST_CUTS + 1) * len(known) // (MOST_CUTS + 1) - 1])
    ends = ends[ends < distinct[-1]] if len(distinct) else ends
    following = distinct[np.searchsorted(distinct, ends, side="right")]
    whole = bool(np.all(distinct == np.round(distinct)))
    return np.array([low if whole else _between(low, up) for low, up in zip(ends, following, strict=True)])


def _between(low: float, up: float) -> float:
    """Give a number with few digits that is ≥ low and < up."""
    middle = low / 2 + up / 2
    short = (float(f"{middle:.{digits}g}") for digits in range(2, 17)) if math.isfinite(middle) else iter(())
    return next((value for value in short if low <= value < up), float(low))


def _short_text(value: float) -> str:
    """Give a number with as many digits as it has, whole ones without a point."""
    if abs(value) < 1e15 and value == round(value):
        return f"{value:.0f}"
    return f"{value:.15g}" if float(f"{value:.15g}") == value else repr(float(value))


# -- The tree --------------------------------------------------------------------------------------------


class _Split(NamedTuple):
    """A column of the tree's matrix: codes of a column between its cuts, or whether it equals a value."""

    place: int
    cuts: FloatArray
    value: float

    def codes(self, column: Column) -> FloatArray:
        if not len(self.cuts):
            return Equals(0, self.value).mask([column]).astype(float)
        # A missing value goes with the median; where that matters, the column "is missing" tells them apart.
        filled = np.where(np.isnan(column.values), np.median(column.known()), column.values)
        return np.searchsorted(self.cuts, filled).astype(float)


def _tree_rules(columns: Sequence[Column], covered: NDBool) -> list[Rule]:
    """Give the nodes of a tree of depth 3 that tells covered rows from missed ones, and parts of their paths."""
    splits = [split for place, column in enumerate(columns) for split in _splits(place, column)]
    if not splits or covered.all() or not covered.any():
        return []
    matrix = np.column_stack([split.codes(columns[split.place]) for split in splits])
    smallest = max(FEWEST_ROWS, len(covered) // 50)
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=smallest, random_state=0).fit(matrix, covered)
    paths = (_conditions(path, splits, columns) for path in _nodes(tree.tree_, 0) if path)
    # A greedy tree may come to a rule by a detour, so parts of a path are candidates too.
    parts = (part for path in paths for size in range(1, len(path) + 1) for part in combinations(path, size))
    return [Rule(part, "tree leaf") for part in dict.fromkeys(parts)]


def _splits(place: int, column: Column) -> Iterator[_Split]:
    none = np.empty(0)
    missing = int(np.isnan(column.values).sum())
    if column.levels is None:
        cuts = _cuts(column.known())
        if len(cuts):
            yield _Split(place, cuts, math.nan)
    else:
        levels = _frequent_levels(column)
        # One of two values says it all.
        yield from (_Split(place, none, level) for level in levels[: 1 if len(column.levels) == 2 else None])
    if missing:
        yield _Split(place, none, math.nan)


def _nodes(tree: Any, node: int, path: tuple[tuple[int, int, bool], ...] = ()) -> list[Any]:
    """Give each node's path of (matrix column, code, whether codes are larger)."""
    left, right = int(tree.children_left[node]), int(tree.children_right[node])
    if left < 0:
        return [path]
    step = int(tree.feature[node]), math.floor(tree.threshold[node])
    return [path, *_nodes(tree, left, (*path, (*step, False))), *_nodes(tree, right, (*path, (*step, True)))]


def _conditions(
    path: Iterable[tuple[int, int, bool]], splits: Sequence[_Split], columns: Sequence[Column]
) -> tuple[Within | Equals, ...]:
    """Turn a path into conditions, one per column: limits are joined, and what a value is says what it is not."""
    ranges: dict[int, Within] = {}
    values: list[Equals] = []
    for feature, code, larger in path:
        place, cuts, value = splits[feature]
        if len(cuts):
            _, above, up_to = ranges.get(place, Within(place, -math.inf, math.inf))
            cut = float(cuts[code])
            ranges[place] = Within(place, max(above, cut), up_to) if larger else Within(place, above, min(up_to, cut))
        else:
            values.append(_equals(place, value, larger, columns[place]))
    settled = {condition.place for condition in values if not condition.negated}
    return (*ranges.values(), *(c for c in values if not c.negated or c.place not in settled))


def _equals(place: int, value: float, equal: bool, column: Column) -> Equals:
    """Say which value it is, also where it is the other of two."""
    two = column.levels is not None and len(column.levels) == 2 and not np.isnan(column.values).any()
    if not equal and two and not math.isnan(value):
        return Equals(place, 1.0 - value)
    return Equals(place, value, negated=not equal)
