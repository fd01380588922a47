"""The search for regions of feature space in which coverage looks wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from icqr._dates import as_days, unit_text, whole_units
from icqr._rules import (
    BoolArray,
    Column,
    Condition,
    Cuts,
    Equals,
    Rule,
    RuleTrees,
    Split,
    Within,
    cut_after,
    number_text,
    simplified,
)
from icqr._tables import FloatArray, column_kind
from icqr.metrics import WorstSlab
from icqr.metrics.marginal import equal_widths

#: Smaller regions are no candidates.
FEWEST_ROWS = 20
#: A region of a larger share of the rows is all rows, more or less.
LARGEST_SHARE = 0.8
#: The number of regions to keep: those that look worst, and those that cover most.
MOST_UNDER, MOST_OVER = 14, 5
#: A region that shares more of its rows with a better one (Jaccard's index) says nothing new.
LARGEST_OVERLAP = 0.7
#: The number of bins of a column, and how many cuts and levels of it the tree may use.
N_BINS, MOST_CUTS, MOST_LEVELS = 5, 32, 20
#: Limits in rules have at least this many significant digits.
DIGITS = 2
#: What rules may use besides the columns of X.
WIDTH, CENTRE = "interval width", "interval centre"
#: How the name of a slab across many columns begins.
SLAB = "a slab across "


class Region(NamedTuple):
    """A rule, and the kind of search that proposed it."""

    rule: Rule
    kind: str

    def mask(self, values: FloatArray) -> BoolArray:
        """Return which rows of a matrix it holds."""
        return np.asarray(np.logical_and.reduce([condition.mask(values) for condition in self.rule]))


# -- What is searched ------------------------------------------------------------------------------------


def searched_columns(
    X: pd.DataFrame | None, lower: FloatArray, upper: FloatArray, method: str = ""
) -> tuple[list[Column], FloatArray]:
    """Return the columns that rules may use, and their values: X, the interval's width and centre (or only bound).

    Among several methods the names of the last two say whose intervals they are of.
    """
    of = f" of {method}" if method else ""
    pairs = [] if X is None else [_column(X[name]) for name in X.columns]
    with np.errstate(over="ignore", invalid="ignore"):
        middle = lower / 2 + upper / 2
        centre = np.where(np.isinf(lower), upper, np.where(np.isinf(upper), lower, middle))
        centre = np.where(np.isinf(centre), np.nan, centre)
        pairs += [(Column(f"{WIDTH}{of}"), equal_widths(lower, upper)), (Column(f"{CENTRE}{of}"), centre)]
    return [column for column, _ in pairs], np.column_stack([values for _, values in pairs])


def _column(column: pd.Series[Any]) -> tuple[Column, FloatArray]:
    """Return a column as numbers, NaN for missing; of text, and of all that has two values, the codes of its levels."""
    name = str(column.name)
    try:
        kind = column_kind(column)
    except TypeError:
        kind = "category"
    if pd.api.types.infer_dtype(column, skipna=True) in ("boolean", "timedelta64"):  # their texts say more
        kind = "category"

    if kind == "date":
        values, unit = whole_units(column)
        return Column(name, unit=unit), values

    if kind == "number":
        values = column.to_numpy(dtype=float, na_value=np.nan)
        codes, distinct = pd.factorize(values, sort=True)
        if len(distinct) > 2:
            return Column(name), values
        levels = [number_text(value) for value in distinct]
    else:
        codes, texts = pd.factorize(column.astype(object).map(str, na_action="ignore"), sort=True)
        levels = list(texts)
    return Column(name, levels), np.where(codes < 0, np.nan, codes)


# -- The regions that look worst -------------------------------------------------------------------------


def find_regions(columns: Sequence[Column], values: FloatArray, covered: BoolArray, coverage: float) -> list[Region]:
    """Return the regions whose coverage is furthest from the promise, a bounded number of them.

    Candidates are bins of each column, values, missing values, and the nodes of a shallow tree on "covered". They are
    ranked by the binomial z-score of their coverage, less a tenth for each further condition: a plain rule beats one
    that only fits noise better. A region that says nothing new beside a better one is left out, and so is one that
    holds nearly all rows: nobody can act on "all customers but one".

    Examples
    --------
    >>> from icqr._rules import words
    >>> hour = np.arange(1000) % 24.0
    >>> regions = find_regions([Column("hour")], hour[:, None], hour > 6, coverage=0.9)
    >>> words(regions[0].rule, [Column("hour")])
    'hour ≤ 6'
    """
    scored = []
    for region in _candidates(columns, values, covered):
        mask = region.mask(values)
        score = _z_score(mask, covered, coverage) * 0.9 ** (len(region.rule) - 1)
        if mask.mean() <= LARGEST_SHARE and not math.isnan(score):
            scored.append((score, region))
    scored.sort(key=lambda pair: pair[0])

    # From the worst and, backwards, from the best.
    under = _distinct([region for score, region in scored if score < 0], values, covered, coverage, MOST_UNDER)
    over = _distinct([region for score, region in scored[::-1] if score > 0], values, covered, coverage, MOST_OVER)
    return under + over


def _z_score(inside: BoolArray, covered: BoolArray, coverage: float) -> float:
    """Return the binomial z-score of the coverage inside; NaN for too few rows."""
    n = int(inside.sum())
    if n < FEWEST_ROWS:
        return math.nan
    return float((covered[inside].sum() - n * coverage) / math.sqrt(n * coverage * (1 - coverage)))


def _distinct(
    regions: Sequence[Region], values: FloatArray, covered: BoolArray, coverage: float, most: int
) -> list[Region]:
    """Keep the first regions, without those that say nothing new beside the ones kept before."""
    kept: list[Region] = []
    masks: list[BoolArray] = []
    explained = np.zeros(len(values), dtype=bool)  # rows of the regions that are kept
    for region in regions:
        mask = region.mask(values)
        if any(_says_the_same(mask, better, covered) for better in masks):
            continue
        # A region may look wrong only because of rows that are explained already: the rest of it must look wrong too,
        # unless it is too small to tell (NaN).
        z = _z_score(mask, covered, coverage)
        rest = math.copysign(1.0, z) * _z_score(mask & ~explained, covered, coverage)
        if rest < min(1.0, abs(z) - 0.5):
            continue
        kept.append(region)
        masks.append(mask)
        explained |= mask
        if len(kept) == most:
            break
    return kept


def _says_the_same(mask: BoolArray, better: BoolArray, covered: BoolArray) -> bool:
    """Return whether a better region has the same rows or, with most of them among its own, the same coverage."""
    n, shared = int(mask.sum()), int((mask & better).sum())
    if shared > LARGEST_OVERLAP * (n + int(better.sum()) - shared):
        return True
    share = float(covered[better].mean())
    noise = 2 * math.sqrt(max(share * (1 - share), 1 / n) / n)
    return shared >= 0.8 * n and abs(float(covered[mask].mean()) - share) <= noise


# -- Candidates ------------------------------------------------------------------------------------------


def _candidates(columns: Sequence[Column], values: FloatArray, covered: BoolArray) -> list[Region]:
    """Return bins of numbers, frequent values and missing values of each column; then what a tree makes of them."""
    regions: list[Region] = []
    splits: list[Split] = []
    for place, column in enumerate(columns):
        known = np.sort(values[~np.isnan(values[:, place]), place])
        distinct, counts = np.unique(known, return_counts=True)
        if column.levels is not None:
            frequent = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
            levels = [Equals(place, float(distinct[i])) for i in frequent if counts[i] >= FEWEST_ROWS]
            regions += [Region((level,), "category") for level in levels]
            splits += levels[:1] if len(column.levels) == 2 else levels  # one of two values says it all
        elif len(distinct) > 1:
            cuts, bins = _cuts_and_bins(place, known, distinct)
            kind = next((name for name in (WIDTH, CENTRE) if column.name.startswith(name)), "feature bin")
            regions += [Region((condition,), kind) for condition in bins]
            splits.append(cuts)
        if len(known) < len(values):
            missing = Equals(place, math.nan)
            regions.append(Region((missing,), "missing values"))
            splits.append(missing)
    return regions + _tree_regions(values, covered, splits)


def _cuts_and_bins(place: int, known: FloatArray, distinct: FloatArray) -> tuple[Cuts, list[Condition]]:
    """Return where a tree may cut a column, and bins of it, from its sorted values."""
    # Cuts are between all values or, if there are many, between equal shares.
    after = distinct
    if len(distinct) > MOST_CUTS + 1:
        after = np.unique(known[np.arange(1, MOST_CUTS + 1) * len(known) // (MOST_CUTS + 1) - 1])
    after = after[after < distinct[-1]]

    # Bins are equally large; of a column with few values there is one for each.
    if len(distinct) <= 2 * N_BINS:
        return Cuts(place, after), [Equals(place, float(value)) for value in distinct]
    last = known[np.arange(1, N_BINS) * len(known) // N_BINS - 1]
    chosen = np.unique(after[np.minimum(np.searchsorted(after, last), len(after) - 1)])
    edges = [-math.inf, *(cut_after(distinct, value, DIGITS) for value in chosen), math.inf]
    return Cuts(place, after), [Within(place, low, high) for low, high in pairwise(edges)]


def _tree_regions(values: FloatArray, covered: BoolArray, splits: Sequence[Split]) -> list[Region]:
    """Return the nodes of a shallow tree that tells covered rows from missed ones, and parts of their rules."""
    if not splits or covered.all() or not covered.any():
        return []
    _, paths = RuleTrees(values, splits, DIGITS).fit(covered, smallest=max(FEWEST_ROWS, len(covered) // 50))
    rules: dict[Rule, None] = {}  # in their order, each once
    for path in paths:
        rule = simplified(sorted(path, key=lambda condition: isinstance(condition, Equals)))  # limits come first
        # A greedy tree may come to a rule by a detour, so parts of a rule are candidates too.
        rules |= dict.fromkeys(part for size in range(1, len(rule) + 1) for part in combinations(rule, size))
    return [Region(rule, "tree leaf") for rule in rules]


# -- The worst slab --------------------------------------------------------------------------------------


def _date_words(slab: WorstSlab, days: FloatArray) -> str:
    """Return a slab that is a range of dates in words."""
    unit, per_day = ("m", 24 * 60) if np.any(days % 1 > 0) else ("D", 1)
    is_turned = slab.direction[slab.direction != 0].iloc[0] < 0
    low, high = (-slab.upper, -slab.lower) if is_turned else (slab.lower, slab.upper)
    name = slab.direction.index[slab.direction != 0][0]
    first = "" if math.isinf(low) else f"{unit_text(math.ceil(low * per_day), unit)} ≤ "
    last = "" if math.isinf(high) else f" ≤ {unit_text(math.floor(high * per_day), unit)}"
    return f"{first}{name}{last}" if last else f"{name} ≥ {first.removesuffix(' ≤ ')}"


def slab_words(slab: WorstSlab, X: pd.DataFrame) -> str:
    """Return in words which rows a slab holds; of one across more than three columns, the three that matter most.

    Examples
    --------
    >>> from icqr.metrics import worst_slab_coverage
    >>> x = pd.DataFrame({"hour": np.arange(1000) % 24})
    >>> slab_words(worst_slab_coverage(np.where(x["hour"] < 7, 2, 0), [[-1, 1]] * 1000, x), x)
    'hour ≤ 6.5'
    """
    # The columns that move the inequality most.
    used = slab.direction[slab.direction != 0]
    dates = {name: as_days(X[name]) for name in used.index if name in X.columns and _column(X[name])[0].unit}
    numbers = X.select_dtypes("number").replace([np.inf, -np.inf], np.nan).assign(**dates)
    spread = numbers.std().reindex(used.index).fillna(0.5)  # of a 0/1 column at most
    largest = used.loc[(used.abs() * spread).sort_values(ascending=False, kind="stable").index[:3]]

    # An inequality in dozens of terms, or in days, helps nobody; `Audit.worst_slab` has it.
    rest = len(used) - len(largest)
    if rest or (dates and len(used) > 1):
        others = f" and {rest} other column{'s' * (rest > 1)}" if rest else ""
        return f"{SLAB}{', '.join(map(str, largest.index))}{others}"
    if dates:
        return _date_words(slab, dates[largest.index[0]])

    # One category, or all others.
    name = str(largest.index[0])
    if len(largest) == 1 and name not in X.columns:
        return name if slab.lower <= largest.iloc[0] <= slab.upper else name.replace(" = ", " ≠ ", 1)

    # A weighted sum between two limits.
    terms = []
    for term, weight in largest.items():
        size = "" if abs(weight) == 1 else f"{abs(weight):.3g}·"
        terms.append(f"{'-' if weight < 0 else '+'} {size}{term if term in X.columns else f'[{term}]'}")
    text = " ".join(terms).removeprefix("+ ")
    if math.isinf(slab.upper):
        return f"{text} ≥ {slab.lower:.4g}"
    return f"{text} ≤ {slab.upper:.4g}" if math.isinf(slab.lower) else f"{slab.lower:.4g} ≤ {text} ≤ {slab.upper:.4g}"
