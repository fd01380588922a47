"""The audit of prediction intervals: what holds, what does not, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr import metrics
from icqr._messages import progress, step
from icqr._rules import words
from icqr._tables import IntArray
from icqr.auditing.audited import Audited, Groups, Intervals, prepare
from icqr.auditing.findings import Written, overall_sentence, plain, promise, records, region_sentence
from icqr.auditing.regions import find_regions, searched_columns, slab_words
from icqr.auditing.verdicts import (
    CONFIDENCE,
    ERROR_RATE,
    FOUND,
    GIVEN,
    OVER,
    SURE,
    UNDER,
    definitions,
    judge,
    tolerance,
)
from icqr.metrics import WorstSlab
from icqr.metrics.marginal import check_whole_number

#: Version of the written form, see auditing/schema.json.
FORMAT = "icqr-audit/1"
#: Columns of the table of regions. Those from `group` on are known of a model's groups only.
REGION_COLUMNS = [
    *("region", "kind", "basis", "n", "coverage", "coverage_lower", "coverage_upper", "confidence", "verdict"),
    *("mean_width", "median_width"),
    *("group", "calibration_rows", "band_lower", "band_upper", "within_band", "guarantee"),
]
#: With fewer rows no regions are searched for, and no classifier is trained.
FEWEST_TO_SEARCH = 100
#: The excess risk is computed on at most this many rows, drawn at random; on fewer if there are many columns, so that
#: it takes seconds.
MOST_FOR_RISK, FEWEST_FOR_RISK, CELLS_FOR_RISK = 20_000, 5_000, 2_000_000
#: Forms and parts of the excess risk, see :func:`icqr.metrics.excess_risk`.
RISKS = ["l1", "l1_under", "l1_over", "squared", "squared_under", "squared_over"]


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Written):
    """What :func:`audit` found; its JSON follows auditing/schema.json.

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
        meanings = " ".join(f"{name.capitalize()}: {text}" for name, text in definitions(self.coverage).items())
        return (
            "All rows and given groups are judged on all rows. Other regions are found on one half of the rows (seed "
            f"{self.random_state}) and judged on the other; n counts the rows that judge. Each region has an exact "
            f"interval for its true coverage; the intervals are {SURE}, so the chance of any false alarm in the audit "
            f"is at most {promise(ERROR_RATE)}. The verdict follows from the interval. {meanings} All this takes rows "
            "to be independent, unseen by the model, and like those to come."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the regions, worst first.

        Columns: `region` in words, its `kind`, the rows it is judged on (`basis`, `n`), `coverage` with its exact
        interval, the `confidence` of that interval by itself (all together: 95 %), `verdict`, `mean_width`,
        `median_width`; of a model's groups their number `group` (-1: rows of no known group), the number of
        `calibration_rows`, the 90 % band of the coverage these can give and whether the region's interval meets it.
        """
        return self.regions.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; NaN becomes None."""
        bins: Any = self.size_strata.index
        strata = self.size_strata.reset_index(drop=True).assign(width_from=bins.left, width_to=bins.right)
        return {
            "format": FORMAT,
            "promised": self.coverage,
            "summary": self.summary,
            "findings": list(self.findings),
            "numbers": plain(self.numbers),
            "regions": plain(self.regions),
            "size_strata": plain(strata),
            "method": self.method,
            "error_rate": ERROR_RATE,
            "confidence": CONFIDENCE,
            "tolerance": tolerance(self.coverage),
            "random_state": self.random_state,
        }

    def _contents(self) -> tuple[str, str, list[str], dict[str, pd.DataFrame], str]:
        known = {name: value for name, value in self.numbers.items() if not math.isnan(value)}
        numbers = pd.DataFrame({"measure": list(known), "value": list(known.values())})
        shown = ["region", "kind", "n", "coverage", "coverage_lower", "coverage_upper", "verdict", "mean_width"]
        findings = [sentence for sentence in self.findings if sentence != self.summary]
        tables = {"Measures": numbers, "Regions, worst first": self.regions[shown]}
        return "Audit of prediction intervals", self.summary, findings, tables, self.method


def audit(
    y: ArrayLike,
    intervals: Intervals,
    X: ArrayLike | None = None,
    groups: Groups | None = None,
    *,
    coverage: float | None = None,
    random_state: int = 0,
    with_excess_risk: bool = True,
    verbose: bool = False,
) -> Audit:
    """Say where prediction intervals hold and where they do not, in words.

    1. Regions known beforehand (all rows, your groups, the model's groups) are judged on all rows: nothing about them
       was chosen by looking at coverage.
    2. Other regions are *found* on one half of the rows: bins and values of each column, bins of the interval's width
       and centre, the leaves of a shallow tree on "covered", the worst slab. The 20 at most whose coverage looks
       furthest from the promise are *judged* on the other half.
    3. Each region has an exact (Clopper-Pearson) interval for its true coverage. The intervals are wide enough for all
       regions together: the chance that any of them misses is at most 5 %. All rows, your groups, the model's own
       groups and the found regions get equal shares of that.
    4. The verdict follows from that interval and nothing else: *undercovers* if all of it is below the promise,
       *overcovers* if all of it is above. If it contains the promise, the region *holds* when the interval ends at most
       5 points (half the promised misses, if that is less) below the promise and is at most twice as wide; otherwise
       there are *too few rows to tell*.
    5. For the groups of a model it is known which coverage its number of calibration rows gives (90 % of calibrations).
       An interval that leaves out the promise but overlaps that range is *within calibration luck*.

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
    verbose : bool
        True shows the steps as they are done (needs tqdm).

    Returns
    -------
    Audit

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"hr": rng.integers(0, 24, 4000), "temp": rng.random(4000)})
    >>> y = rng.normal(scale=np.where(X["hr"] <= 6, 1.5, 1.0))
    >>> result = audit(y, np.full((4000, 2), [-1.645, 1.645]), X, coverage=0.9)
    >>> print(result.findings[0])
    Rows with hr ≤ 6: 7... % of 5... covered, 90 % promised; the true value is very likely between 6... % and 8... %.
    """
    seed = check_whole_number("random_state", random_state, 0)
    with progress(verbose, "audit", n_steps=2):
        audited = prepare(y, intervals, X, groups, coverage)
        return audit_rows(audited, find(audited, seed), n_families([audited]), seed, with_excess_risk)


# -- The audit -------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What was found on one half of the rows: the worst slab, and regions with their rows in the other half."""

    slab: WorstSlab | None
    regions: list[tuple[dict[str, Any], IntArray]]


def find(audited: Audited, seed: int, method: str = "") -> Found:
    """Find regions on one half of the rows; in a comparison they are found for a `method`, and judged for all."""
    rows, X = audited.rows, audited.X
    step("regions")
    if len(rows.y) < FEWEST_TO_SEARCH:
        return Found(None, [])
    slab, regions = None, []
    if X is not None:
        with suppress(ValueError):  # no column varies
            slab = metrics.worst_slab_coverage(rows.y, audited.intervals, X, n_directions=200, random_state=seed)
        if slab is not None and (math.isfinite(slab.lower) or math.isfinite(slab.upper)):
            regions = [({"region": slab_words(slab, X), "kind": "worst slab"}, slab.rows.astype(np.intp))]

    # The halves that `worst_slab_coverage` draws from the same seed, so that its slab, too, is found on the one and
    # judged on the other. A region whose rows are all rows of one group is judged anyway.
    search, judging = map(np.sort, np.array_split(np.random.default_rng(seed).permutation(len(rows.y)), 2))
    columns, values = searched_columns(X, rows.lower, rows.upper, method)
    judged_anyway = [
        grouping.codes[judging] for grouping in audited.groupings if not (method and grouping.is_of_a_model)
    ]
    for region in find_regions(columns, values[search], rows.covered[search], audited.coverage):
        inside = region.mask(values[judging])
        if not any(inside.any() and np.array_equal(inside, codes == codes[inside][0]) for codes in judged_anyway):
            regions.append(({"region": words(region.rule, columns), "kind": region.kind}, judging[inside]))
    return Found(slab, regions)


def n_families(methods: Sequence[Audited]) -> int:
    """Return how many families of regions share the error rate, the same for methods that are compared.

    All rows; the user's groups and models' own, where there are some; and regions that are found, if there are rows
    enough to search.
    """
    kinds = {grouping.is_of_a_model for each in methods for grouping in each.groupings}
    return 1 + len(kinds) + (len(methods[0].rows.y) >= FEWEST_TO_SEARCH)


def audit_rows(audited: Audited, found: Found, n_families: int, seed: int, with_excess_risk: bool) -> Audit:
    """Audit rows that are in one form already, see :func:`audit`."""
    step("measures")
    coverage, rows = audited.coverage, audited.rows
    regions = _judged_regions(audited, found, n_families)
    strata = metrics.size_stratified_coverage(rows.y, audited.intervals)
    (whole,) = records(regions[regions["kind"] == "all rows"])
    numbers = _numbers(audited, strata, found.slab, whole) | _risk_numbers(audited, seed, with_excess_risk)

    # That some intervals are infinite is worth a sentence, unless it was asked for: a bound on one side.
    infinite = []
    n_infinite = int(np.isinf(rows.width).sum())
    if n_infinite and np.isinf(rows.lower).all() == np.isinf(rows.upper).all():
        are = "intervals is" if n_infinite == 1 else "intervals are"
        rest = "infinite, and with that the mean width and the interval score of all rows."
        infinite = [f"{n_infinite:,} of {len(rows.y):,} {are} {rest}"]

    # The alarms, worst first; then the summary, after the infinite intervals unless the promise is broken on average.
    alarms = regions[regions["verdict"].isin([UNDER, OVER])]
    findings = [region_sentence(row, coverage) for row in records(alarms[alarms["kind"] != "all rows"])]
    summary = overall_sentence(regions, coverage)
    last = [summary, *infinite] if (alarms["kind"] == "all rows").any() else [*infinite, summary]
    return Audit(coverage, numbers, regions, summary, (*findings, *last), strata, found.slab, seed)


def _numbers(audited: Audited, strata: pd.DataFrame, slab: WorstSlab | None, whole: dict[str, Any]) -> dict[str, float]:
    """Return the measures over all rows but the excess risk; NaN where there is nothing to compute one from."""
    y, bounds, width = audited.rows.y, audited.intervals, audited.rows.width
    widths = metrics.width_summary(y, bounds)

    gap = weighted_gap = math.nan
    if audited.groupings:
        first = (y, bounds, audited.groupings[0].codes)
        gap = metrics.coverage_gap(*first, coverage=audited.coverage)
        weighted_gap = metrics.coverage_gap(*first, coverage=audited.coverage, weighted=True)

    numbers = {
        "n": len(y),
        **{name: whole[name] for name in ("coverage", "coverage_lower", "coverage_upper")},
        "mean_width": width.mean(),
        "median_width": np.median(width),
        **{f"finite_width_{name.lower()}": widths[name] for name in widths.index[:-2]},
        "n_infinite": widths["n_infinite"],
        "interval_score": metrics.interval_score(y, bounds, coverage=audited.coverage),
        "coverage_gap": gap,
        "weighted_coverage_gap": weighted_gap,
        "size_stratified_coverage": strata["coverage"].min(),
        "coverage_width_correlation": metrics.coverage_width_correlation(y, bounds),
        "hsic": metrics.hsic(y, bounds),
        "worst_slab_coverage": math.nan if slab is None else slab.coverage,
        "worst_slab_lower": math.nan if slab is None else slab.interval[0],
        "worst_slab_upper": math.nan if slab is None else slab.interval[1],
        "worst_slab_n": math.nan if slab is None else slab.n,
    }
    return {name: float(value) for name, value in numbers.items()}


def _risk_numbers(audited: Audited, seed: int, with_excess_risk: bool) -> dict[str, float]:
    """Return the excess risk in its forms and parts, each with its standard error; NaN without."""
    n = len(audited.rows.y)
    risk = pd.DataFrame(math.nan, index=RISKS, columns=["value", "standard_error"])
    if with_excess_risk and audited.X is not None and n >= FEWEST_TO_SEARCH:
        most = int(np.clip(CELLS_FOR_RISK // audited.X.shape[1], FEWEST_FOR_RISK, MOST_FOR_RISK))
        rows = np.sort(np.random.default_rng(seed).permutation(n)[:most])
        y, bounds, X = audited.rows.y[rows], audited.intervals[rows], audited.X.iloc[rows]
        risk = metrics.excess_risk(y, bounds, X, coverage=audited.coverage, random_state=seed)
    values = {f"excess_risk_{form}": float(risk["value"][form]) for form in RISKS}
    return values | {f"excess_risk_{form}_error": float(risk["standard_error"][form]) for form in RISKS}


def _judged_regions(audited: Audited, found: Found, n_families: int) -> pd.DataFrame:
    """Return the table of regions with their verdicts, worst first."""
    # Each region: what is known of it, the rows that judge it, and what these are called.
    everywhere = np.arange(len(audited.rows.y))
    regions: list[tuple[dict[str, Any], IntArray, str]] = [(audited.whole, everywhere, GIVEN)]
    for grouping in audited.groupings:
        rows_of_code = pd.Series(grouping.codes).groupby(grouping.codes).indices
        known = enumerate(records(grouping.table))
        regions += [(facts, np.asarray(rows_of_code[code]), GIVEN) for code, facts in known if code in rows_of_code]
    regions += [(facts, rows, FOUND) for facts, rows in found.regions]

    table = []
    for facts, rows, basis in regions:
        width = pd.Series(audited.rows.width[rows])
        counts = {"n": len(rows), "covered": int(audited.rows.covered[rows].sum())}
        widths = {"mean_width": width.mean(), "median_width": width.median()}
        table.append({**facts, "basis": basis, **counts, **widths})
    columns = pd.DataFrame(table).reindex(columns=[*REGION_COLUMNS, "covered"])
    judged = judge(columns, audited.coverage, n_families)
    return judged[REGION_COLUMNS].astype({"group": "Int64", "calibration_rows": "Int64"})
