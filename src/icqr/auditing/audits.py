"""The audit of prediction intervals: what holds, what does not, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from icqr._tables import IntArray
from icqr.auditing.findings import (
    SLAB,
    as_json,
    html_page,
    markdown,
    markdown_list,
    markdown_table,
    overall_sentence,
    plain,
    promise,
    records,
    region_sentence,
)
from icqr.auditing.inputs import GROUP_COLUMNS, Audited, Grouping, prepare
from icqr.auditing.numbers import FEWEST_TO_SEARCH, marginal_numbers, risk_numbers, slab_numbers, worst_slab
from icqr.auditing.regions import columns_of, find_rules
from icqr.auditing.verdicts import CONFIDENCE, ERROR_RATE, OVER, UNDER, judge, tolerance
from icqr.metrics import WorstSlab, size_stratified_coverage
from icqr.metrics.checks import CheckedRows

#: Version of the written form, see auditing/schema.json.
FORMAT = "icqr-audit/1"
GIVEN, FOUND = "all rows", "the half not searched"
REGION_COLUMNS = ["region", "kind", "basis", "n", "coverage", "coverage_lower", "coverage_upper", "verdict", "p_value"]
REGION_COLUMNS += ["mean_width", "median_width", "group", "calibration_rows", "band_lower", "band_upper"]
REGION_COLUMNS += ["within_band", "guarantee"]


@dataclass(frozen=True, eq=False)
class Audit:
    """What :func:`audit` found.

    Attributes
    ----------
    coverage : float
        What was promised.
    numbers : dict
        Measures over all rows: coverage with its exact interval, widths, interval score, coverage gap over groups, the
        least size-stratified coverage, dependence of coverage on width, worst slab, excess risk with standard errors.
        NaN where there is nothing to compute it from (no X, no groups, fewer than 100 rows).
    regions : DataFrame
        A row per region, worst first, see :meth:`to_frame`.
    summary : str
        One sentence or two on the whole.
    findings : tuple of str
        A sentence for each region that fails, worst first, and the summary.
    size_strata : DataFrame
        Coverage by width, see :func:`icqr.metrics.size_stratified_coverage`.
    worst_slab : WorstSlab or None
        See :func:`icqr.metrics.worst_slab_coverage`.
    random_state : int
        Seed of the split in halves.
    """

    coverage: float
    numbers: dict[str, float]
    regions: pd.DataFrame
    summary: str
    findings: tuple[str, ...]
    size_strata: pd.DataFrame
    worst_slab: WorstSlab | None
    random_state: int

    @property
    def alarms(self) -> pd.DataFrame:
        """The regions that under- or overcover."""
        return self.regions[self.regions["verdict"].isin([UNDER, OVER])]

    @property
    def method(self) -> str:
        """How verdicts are reached, in words."""
        return (
            "All rows and given groups are judged on all rows. Other regions are found on one half of the rows (seed "
            f"{self.random_state}) and judged on the other; n counts the rows that judge. Undercovers, overcovers: "
            f"exact binomial test, Holm-adjusted, with a chance of at most {promise(ERROR_RATE)} of any false alarm in "
            f"the whole audit. Holds: neither, and the exact {promise(CONFIDENCE)} interval reaches the promise and "
            f"lies above {promise(self.coverage - tolerance(self.coverage))}. Intervals are of each region by itself. "
            "All this takes rows to be independent, unseen by the model, and like those to come."
        )

    def to_frame(self) -> pd.DataFrame:
        """Give the regions, worst first.

        Columns: `region` in words, its `kind`, the rows it is judged on (`basis`, `n`), `coverage` with the exact 95 %
        interval, `verdict`, adjusted `p_value`, `mean_width`, `median_width`; of a model's groups their number `group`
        (-1: rows of no known group), the number of `calibration_rows`, the 90 % band of the coverage these can give and
        whether the region's interval meets it.
        """
        return self.regions.copy()

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain Python values; NaN becomes None."""
        return {
            "format": FORMAT,
            "promised": self.coverage,
            "summary": self.summary,
            "findings": list(self.findings),
            "numbers": plain(self.numbers),
            "regions": plain(self.regions),
            "size_strata": plain(_with_bins(self.size_strata)),
            "method": self.method,
            "error_rate": ERROR_RATE,
            "confidence": CONFIDENCE,
            "tolerance": tolerance(self.coverage),
            "random_state": self.random_state,
        }

    def to_json(self) -> str:
        """Give :meth:`to_dict` as JSON, which follows auditing/schema.json; infinity is the text "Infinity"."""
        return as_json(self.to_dict())

    def to_markdown(self) -> str:
        """Give summary, findings, numbers and regions as Markdown, with everything from data escaped."""
        parts = [
            f"**{markdown(self.summary)}**",
            markdown_list(self.findings[:-1]),
            markdown_table(self._number_table()),
        ]
        return "\n\n".join(
            part for part in [*parts, markdown_table(self._short_table()), markdown(self.method)] if part
        )

    def _repr_html_(self) -> str:
        tables = (self._number_table(), self._short_table())
        return html_page("Audit of prediction intervals", self.summary, self.findings[:-1], *tables)

    def __str__(self) -> str:
        return "\n".join(self.findings)

    def _number_table(self) -> pd.DataFrame:
        known = {name: value for name, value in self.numbers.items() if not math.isnan(value)}
        return pd.DataFrame({"measure": list(known), "value": list(known.values())})

    def _short_table(self) -> pd.DataFrame:
        return self.regions[[*REGION_COLUMNS[:2], "n", *REGION_COLUMNS[4:8], "mean_width"]]


def audit(
    y: Any,
    intervals: Any,
    X: Any = None,
    groups: Any = None,
    *,
    coverage: float | None = None,
    random_state: int = 0,
    with_excess_risk: bool = True,
) -> Audit:
    """Say where prediction intervals hold and where they do not, in words.

    1. Regions known beforehand (all rows, your groups, the model's groups) are judged on all rows: nothing about them
       was chosen by looking at coverage.
    2. Other regions are *found* on one half of the rows: bins and values of each column, bins of the interval's width
       and centre, the leaves of a shallow tree on "covered", the worst slab. The 20 at most whose coverage looks
       furthest from the promise are *judged* on the other half.
    3. Exact binomial tests, Holm-adjusted: the chance that an audit of intervals that keep their promise in every
       region raises any alarm is at most 5 %. Steps 1 and 2 get half of that each.
    4. A region *holds* if it gives no alarm and its exact 95 % interval reaches the promise and ends at most 5 points
       (half the promised misses, if that is less) below it. If rows are too few for that, the verdict says so.
    5. Of a model's groups it is also said whether the distance from the promise is within what their number of
       calibration rows can give (90 % of calibrations).

    Parameters
    ----------
    y : (n,) array
        What happened, for rows that the model has not seen.
    intervals : array, tuple or model
        (n, 2) or (n, 2, 1) bounds; (lower, upper); what MAPIE, crepes or puncc return; or a fitted model, which then
        predicts X. Bounds may be infinite.
    X : table, optional
        Features, in pandas, polars or an array. Without them only width and centre of the interval are searched.
    groups : (n,) array, table or str, optional
        Groups to judge, fixed without looking at coverage: labels, several columns of labels, or the name of a
        column of X, or a list of names.
    coverage : float, optional
        What is promised. Must be given, except with an icqr model, which knows its own.
    random_state : int
        Seed of the split in halves.
    with_excess_risk : bool
        Whether to compute the excess risk (ERT), which takes most of the time and changes no verdict. At most 20,000
        rows are used for it, drawn at random; with more than 100 columns fewer, down to 5,000.

    Returns
    -------
    Audit

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"hr": rng.integers(0, 24, 4000), "temp": rng.random(4000)})
    >>> y = rng.normal(scale=np.where(X["hr"] <= 6, 1.5, 1.0))
    >>> found = audit(y, np.full((4000, 2), [-1.645, 1.645]), X, coverage=0.9)
    >>> print(found.findings[0])
    Rows with hr ≤ 6: 7... % of 5... covered, 90 % promised; the true value is very likely between 7... % and 7... %.
    """
    return audit_rows(prepare(y, intervals, X, groups, coverage), random_state, with_excess_risk)


def audit_rows(audited: Audited, random_state: int, with_excess_risk: bool) -> Audit:
    """Audit rows that are in one form already, see :func:`audit`."""
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state must be a whole number, 0 or more, got {random_state!r}; pass 0 for example")
    seed = int(random_state)
    slab = worst_slab(audited, seed)
    strata = size_stratified_coverage(audited.rows.y, audited.intervals)
    numbers = marginal_numbers(audited, strata) | slab_numbers(slab) | risk_numbers(audited, seed, with_excess_risk)
    regions = judged_regions(audited, slab, seed)
    summary = overall_sentence(regions, audited.coverage)
    overall = regions.loc[regions["kind"] == "all rows", "verdict"].iloc[0]
    ends = [summary, *_infinite_sentence(audited.rows)]
    findings = (*_alarm_sentences(regions, audited.coverage), *(ends if overall in (UNDER, OVER) else ends[::-1]))
    return Audit(audited.coverage, numbers, regions, summary, findings, strata, slab, seed)


# -- Regions ---------------------------------------------------------------------------------------------


def judged_regions(audited: Audited, slab: WorstSlab | None, random_state: int) -> pd.DataFrame:
    """Give the table of regions with their verdicts, worst first."""
    given = [_measured(audited, records(audited.whole)[0], np.arange(len(audited.rows.y)), GIVEN)]
    for grouping in audited.groupings:
        pairs = zip(records(grouping.table), _members(grouping), strict=True)
        given += [_measured(audited, about, rows, GIVEN) for about, rows in pairs if len(rows)]
    found = [_measured(audited, about, rows, FOUND) for about, rows in _found(audited, slab, random_state)]
    judged = judge(pd.DataFrame([*given, *found]), audited.coverage)
    return judged.reindex(columns=REGION_COLUMNS).astype({"group": "Int64", "calibration_rows": "Int64"})


def _members(grouping: Grouping) -> list[IntArray]:
    """Give each group's rows, in time that does not grow with the number of groups."""
    order = np.argsort(grouping.codes, kind="stable").astype(np.intp)
    sizes = np.bincount(grouping.codes, minlength=len(grouping.table))
    return np.split(order, np.cumsum(sizes)[:-1])


def _measured(audited: Audited, about: dict[str, Any], rows: IntArray, basis: str) -> dict[str, Any]:
    width = audited.rows.width[rows]
    return {
        **dict.fromkeys(GROUP_COLUMNS),
        **about,
        "basis": basis,
        "n": len(rows),
        "covered": int(audited.rows.covered[rows].sum()),
        "mean_width": float(width.mean()) if len(rows) else math.nan,
        "median_width": float(np.median(width)) if len(rows) else math.nan,
    }


def halves(n: int, random_state: int) -> tuple[IntArray, IntArray]:
    """Give the rows to search and the rows to judge on.

    These are the halves that :func:`icqr.metrics.worst_slab_coverage` draws from the same seed, so that its slab, too,
    is found on the one and judged on the other.
    """
    search, judging = np.array_split(np.random.default_rng(random_state).permutation(n), 2)
    return np.sort(search), np.sort(judging)


def _found(audited: Audited, slab: WorstSlab | None, random_state: int) -> Iterator[tuple[dict[str, Any], IntArray]]:
    """Give the regions found on one half: their words and kind, and their rows in the other half."""
    rows = audited.rows
    if len(rows.y) < FEWEST_TO_SEARCH:
        return
    search, judging = halves(len(rows.y), random_state)
    columns = columns_of(audited.X, rows.lower, rows.upper)
    rules = find_rules([column.take(search) for column in columns], rows.covered[search], audited.coverage)
    fresh = [column.take(judging) for column in columns]
    for rule in rules:
        inside = judging[rule.mask(fresh)]
        if not any(_is_group(grouping.codes, inside, judging) for grouping in audited.groupings):
            yield {"region": rule.words(columns), "kind": rule.kind}, inside
    if slab is not None and audited.X is not None and (math.isfinite(slab.lower) or math.isfinite(slab.upper)):
        inside = slab.rows[np.isin(slab.rows, judging)].astype(np.intp)
        yield {"region": slab_words(slab, audited.X), "kind": "worst slab"}, inside


def _is_group(codes: IntArray, rows: IntArray, among: IntArray) -> bool:
    """Tell whether these rows are all rows of one group, which is judged anyway."""
    return len(rows) > 0 and np.array_equal(rows, among[codes[among] == codes[rows[0]]])


def slab_words(slab: WorstSlab, X: pd.DataFrame) -> str:
    """Say which rows a slab holds; of one across more than three columns, the three of its terms that vary most.

    Examples
    --------
    >>> from icqr.metrics import worst_slab_coverage
    >>> x = pd.DataFrame({"hour": np.arange(1000) % 24})
    >>> slab_words(worst_slab_coverage(np.where(x["hour"] < 7, 2, 0), [[-1, 1]] * 1000, x), x)
    'hour ≤ 6.5'
    """
    used = slab.direction[slab.direction != 0]
    spread = X.select_dtypes("number").std().reindex(used.index).fillna(0.5)  # of a 0/1 column at most
    largest = used.loc[(used.abs() * spread).sort_values(ascending=False, kind="stable").index[:3]]
    rest = len(used) - len(largest)
    if rest:  # an inequality in dozens of terms helps nobody; `Audit.worst_slab` has it
        return f"{SLAB}{', '.join(map(str, largest.index))} and {rest} other column{'s' * (rest > 1)}"
    name = str(largest.index[0])
    if len(largest) == 1 and name not in X.columns:  # a category, or all others
        return name if slab.lower <= largest.iloc[0] <= slab.upper else name.replace(" = ", " ≠ ", 1)
    terms = [_term(name if name in X.columns else f"[{name}]", weight) for name, weight in largest.items()]
    text = " ".join(terms).removeprefix("+ ")
    low, high = (f"{cut:.4g}" for cut in (slab.lower, slab.upper))
    if math.isinf(slab.upper):
        return f"{text} ≥ {low}"
    return f"{text} ≤ {high}" if math.isinf(slab.lower) else f"{low} ≤ {text} ≤ {high}"


def _term(name: Any, weight: float) -> str:
    size = "" if abs(weight) == 1 else f"{abs(weight):.3g}·"
    return f"{'-' if weight < 0 else '+'} {size}{name}"


def _alarm_sentences(regions: pd.DataFrame, coverage: float) -> list[str]:
    alarms = regions[regions["verdict"].isin([UNDER, OVER]) & (regions["kind"] != "all rows")]
    return [region_sentence(row, coverage) for row in records(alarms)]


def _infinite_sentence(rows: CheckedRows) -> list[str]:
    infinite, n = int(np.isinf(rows.width).sum()), len(rows.y)
    one_sided = np.isinf(rows.lower).all() != np.isinf(rows.upper).all()  # which is what was asked for
    if not infinite or one_sided:
        return []
    said = "1 of {:,} intervals is" if infinite == 1 else f"{infinite:,} of {{:,}} intervals are"
    return [f"{said.format(n)} infinite, and with that the mean width and the interval score of all rows."]


def _with_bins(strata: pd.DataFrame) -> pd.DataFrame:
    """Give the strata with their bounds as columns."""
    bins: Any = strata.index
    return strata.reset_index(drop=True).assign(width_from=bins.left, width_to=bins.right)
