"""The audit of prediction intervals: what holds, what does not, and where."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr import metrics
from icqr._messages import progress, step
from icqr._predicting import IntervalRegressor
from icqr._rules import value_rule, words
from icqr._tables import FloatArray, IntArray, as_table
from icqr.auditing.findings import (
    CONFIDENCE,
    ERROR_RATE,
    OVER,
    UNDER,
    Written,
    judge,
    overall_sentence,
    plain,
    promise,
    records,
    region_sentence,
    tolerance,
)
from icqr.auditing.regions import find_regions, searched_columns, slab_words
from icqr.metrics import WorstSlab
from icqr.metrics.marginal import CheckedRows, check_rows, check_share, check_whole_number

#: Version of the written form, see auditing/schema.json.
FORMAT = "icqr-audit/1"
#: The rows that judge a region: of one that was given, and of one that was found.
GIVEN, FOUND = "all rows", "the half not searched"
#: Columns of the table of regions. Those from `group` on are known of a model's groups only.
REGION_COLUMNS = [
    *("region", "kind", "basis", "n", "coverage", "coverage_lower", "coverage_upper", "verdict", "p_value"),
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


class IntervalModel(Protocol):
    """A fitted model of any library that predicts intervals."""

    def predict_interval(self, X: Any, /) -> Any:
        """Return intervals in any form that :func:`as_intervals` reads."""


#: What may be audited: a model, or bounds in any form that :func:`as_intervals` reads.
Intervals: TypeAlias = IntervalModel | ArrayLike | Sequence[ArrayLike | None]
#: Labels, a table of labels, or the names of columns of X.
Groups: TypeAlias = ArrayLike | Sequence[Hashable]


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
        return (
            "All rows and given groups are judged on all rows. Other regions are found on one half of the rows (seed "
            f"{self.random_state}) and judged on the other; n counts the rows that judge. Undercovers, overcovers: "
            f"exact binomial test, Holm-adjusted, with a chance of at most {promise(ERROR_RATE)} of any false alarm in "
            f"the whole audit. Holds: neither, and the exact {promise(CONFIDENCE)} interval reaches the promise and "
            f"lies above {promise(self.coverage - tolerance(self.coverage))}. Intervals are of each region by itself. "
            "All this takes rows to be independent, unseen by the model, and like those to come."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the regions, worst first.

        Columns: `region` in words, its `kind`, the rows it is judged on (`basis`, `n`), `coverage` with the exact 95 %
        interval, `verdict`, adjusted `p_value`, `mean_width`, `median_width`; of a model's groups their number `group`
        (-1: rows of no known group), the number of `calibration_rows`, the 90 % band of the coverage these can give and
        whether the region's interval meets it.
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
    Rows with hr ≤ 6: 7... % of 5... covered, 90 % promised; the true value is very likely between 7... % and 7... %.
    """
    with progress(verbose, "audit", n_steps=2):
        return audit_rows(prepare(y, intervals, X, groups, coverage), random_state, with_excess_risk)


# -- What is audited --------------------------------------------------------------------------------------


class Grouping(NamedTuple):
    """Groups that were not chosen by looking at coverage: a code per row, and a row of `table` per code."""

    codes: IntArray
    table: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Audited:
    """Checked rows with what is promised for them.

    `X` is a DataFrame with text as column names, `prediction` a model's. `whole` is what is known of all rows together,
    by columns of the table of regions: a model with a single group has a band.
    """

    rows: CheckedRows
    intervals: FloatArray
    coverage: float
    X: pd.DataFrame | None
    groupings: list[Grouping]
    whole: dict[str, Any]
    prediction: FloatArray | None = None


def prepare(
    y: ArrayLike, intervals: Intervals, X: ArrayLike | None, groups: Groups | None, coverage: float | None
) -> Audited:
    """Return the arguments of :func:`audit` in one form, or say what is wrong with them."""
    check_not_swapped(y)
    model_groups, prediction = None, None
    if not hasattr(intervals, "predict_interval"):
        bounds = as_intervals(intervals, len(np.asarray(y)))
    elif X is None:
        model = type(intervals).__name__
        raise ValueError(f"X must be given with a model ({model}), got None; give the rows to predict")
    elif isinstance(intervals, IntervalRegressor):
        # A model of ours knows its coverage and its groups.
        coverage = intervals.certificate(coverage).coverage
        explained = intervals.explain(X, coverage)
        bounds, prediction = explained[["lower", "upper"]].to_numpy(), explained["median"].to_numpy()
        model_groups = _model_groups(intervals, coverage, explained["group"].to_numpy())
    else:
        bounds = as_intervals(intervals.predict_interval(X), len(np.asarray(y)))

    if coverage is None:
        raise ValueError(
            "coverage must be given with intervals from elsewhere, got None; say what they promise, for example "
            "coverage=0.9 (a fitted icqr model knows its own)"
        )
    level, rows = check_share("coverage", coverage), check_rows(y, bounds)
    table = None if X is None else _named(X)
    if table is not None and len(table) != len(rows.y):
        raise ValueError(f"X must have {len(rows.y)} rows, one per row of y, got {len(table)}")

    # The only group of a model is all rows. Groups that are both the user's and the model's are judged once.
    whole: dict[str, Any] = {}
    groupings = [] if groups is None else _user_groups(groups, table, len(rows.y))
    if model_groups is not None and len(model_groups.table) == 1:
        (whole,) = records(model_groups.table)
    elif model_groups is not None:
        codes = pd.factorize(model_groups.codes)[0]
        groupings = [each for each in groupings if not np.array_equal(pd.factorize(each.codes)[0], codes)]
        groupings.append(model_groups)
    whole = {**whole, "region": "all rows", "kind": "all rows", "group": None}
    return Audited(rows, bounds, level, table, groupings, whole, prediction)


def check_not_swapped(y: Any) -> None:
    """Say that y and X look swapped, if y is a table or the methods of a comparison."""
    is_table = np.ndim(y) == 2 and np.shape(y)[1] > 1
    if is_table or isinstance(y, Mapping) or hasattr(y, "predict_interval"):
        got = f"{type(y).__name__}{f' of shape {np.shape(y)}' * is_table}"
        raise ValueError(
            f"y must hold one number per row, got {got}; y and X look swapped: y comes first, as in "
            "audit(y, intervals, X), compare(y, methods, X) and report(subject, path, y, X)"
        )


def as_intervals(intervals: Any, n: int) -> FloatArray:
    """Return the intervals of n rows as an (n, 2) array, whatever library they come from.

    (n, 2) or (n, 2, 1) bounds (crepes, MAPIE); a table with two columns; (prediction, bounds) (MAPIE); (lower, upper);
    (prediction, lower, upper) (puncc, whose prediction may be None or quantiles). A plain list of two pairs is taken as
    two rows.
    """
    parts = intervals if isinstance(intervals, tuple | list) else [intervals]
    bounds = intervals
    is_list_of_rows = isinstance(intervals, list) and len(intervals) == n == 2
    if len(parts) in (2, 3) and not is_list_of_rows:
        is_column = [np.shape(part) in ((n,), (n, 1)) for part in parts]
        if all(is_column[-2:]):
            bounds = np.column_stack([np.ravel(part) for part in parts[-2:]])
        elif is_column[0] and len(parts) == 2:
            bounds = parts[1]

    try:
        array = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):  # text, or parts of different lengths
        array = np.empty(0)
    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.shape != (n, 2):
        shapes = ", ".join(str(np.shape(part)) for part in parts[:3])
        raise ValueError(
            f"intervals must hold a lower and an upper bound for each of the {n} rows of y: an (n, 2) or (n, 2, 1) "
            "array, (lower, upper), (prediction, lower, upper), (prediction, (n, 2, 1) array) or a fitted model; "
            f"got {type(intervals).__name__} of shape {shapes}. Of several coverages audit one at a time: "
            "intervals[:, :, 0]"
        )
    return array


def _named(X: Any) -> pd.DataFrame:
    """Return a table as a DataFrame with text as column names; two names may be the same only as text."""
    table = as_table(X.set_axis([str(name) for name in X.columns], axis=1) if isinstance(X, pd.DataFrame) else X)
    if isinstance(table, pd.DataFrame):
        return table.reset_index(drop=True)
    return pd.DataFrame(table, columns=pd.Index([f"x{j}" for j in range(table.shape[1])]))


def _model_groups(model: IntervalRegressor, coverage: float, labels: IntArray) -> Grouping:
    """Return a model's groups with their rules and what their calibration can give."""
    names = [f"group {group} ({rule})" for group, rule in enumerate(model.descriptions_["rule"])]
    table = model.certificate(coverage).groups.rename(columns={"n": "calibration_rows"})
    table = table.assign(region=[*names, "no known group"], kind="model group")
    codes = np.where(labels < 0, len(table) - 1, labels).astype(np.intp)
    # Rows of no known group are a group only where there are any.
    return Grouping(codes, table if codes.max() == len(table) - 1 else table.iloc[:-1])


def _user_groups(groups: Any, X: pd.DataFrame | None, n: int) -> list[Grouping]:
    """Return a grouping for each column of labels: an array, a table, or names of columns of X."""
    # A table of labels, whatever was given. A list as long as X has rows holds labels, a shorter one names.
    if isinstance(groups, str):
        if X is None or groups not in X.columns:
            raise ValueError(f"groups must be labels or the name of a column of X, got {groups!r}, which X lacks")
        groups = X[[groups]]
    elif X is not None and isinstance(groups, list) and len(groups) < n and set(map(str, groups)) <= {*X.columns}:
        groups = X[[str(name) for name in groups]]
    if np.ndim(groups) == 1:
        name = getattr(groups, "name", None) or "group"
        groups = pd.Series(np.asarray(groups), name=name, dtype=object).to_frame()
    labels = _named(groups)
    if len(labels) != n:
        raise ValueError(f"groups must have {n} labels, one per row of y, got {len(labels)}")

    groupings = []
    for name in labels.columns:
        # By their text, as they are shown: 1 and "1" are one group.
        texts = labels[name].astype(object).map(str, na_action="ignore")
        codes, values = pd.factorize(texts, sort=False, use_na_sentinel=False)
        table = pd.DataFrame({"region": [value_rule(name, value) for value in values], "kind": "group"})
        groupings.append(Grouping(codes.astype(np.intp), table))
    return groupings


# -- The audit -------------------------------------------------------------------------------------------


def audit_rows(audited: Audited, random_state: int, with_excess_risk: bool) -> Audit:
    """Audit rows that are in one form already, see :func:`audit`."""
    seed, coverage, rows = check_whole_number("random_state", random_state, 0), audited.coverage, audited.rows
    step("measures")
    slab = None
    if audited.X is not None and len(rows.y) >= FEWEST_TO_SEARCH:
        with suppress(ValueError):  # no column varies
            slab = metrics.worst_slab_coverage(
                rows.y, audited.intervals, audited.X, n_directions=200, random_state=seed
            )
    strata = metrics.size_stratified_coverage(rows.y, audited.intervals)
    numbers = _numbers(audited, strata, slab) | _risk_numbers(audited, seed, with_excess_risk)
    step("regions")
    regions = _judged_regions(audited, slab, seed)

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
    return Audit(coverage, numbers, regions, summary, (*findings, *last), strata, slab, seed)


def _numbers(audited: Audited, strata: pd.DataFrame, slab: WorstSlab | None) -> dict[str, float]:
    """Return the measures over all rows but the excess risk; NaN where there is nothing to compute one from."""
    y, bounds, covered, width = audited.rows.y, audited.intervals, audited.rows.covered, audited.rows.width
    low, high = metrics.binomial_interval(covered.sum(), len(y), confidence=CONFIDENCE)
    widths = metrics.width_summary(y, bounds)

    gap = weighted_gap = math.nan
    if audited.groupings:
        first = (y, bounds, audited.groupings[0].codes)
        gap = metrics.coverage_gap(*first, coverage=audited.coverage)
        weighted_gap = metrics.coverage_gap(*first, coverage=audited.coverage, weighted=True)

    numbers = {
        "n": len(y),
        "coverage": covered.mean(),
        "coverage_lower": low,
        "coverage_upper": high,
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


def _judged_regions(audited: Audited, slab: WorstSlab | None, seed: int) -> pd.DataFrame:
    """Return the table of regions with their verdicts, worst first."""
    # Each region: what is known of it, the rows that judge it, and what these are called.
    n = len(audited.rows.y)
    regions: list[tuple[dict[str, Any], IntArray, str]] = [(audited.whole, np.arange(n), GIVEN)]
    for grouping in audited.groupings:
        rows_of_code = pd.Series(grouping.codes).groupby(grouping.codes).indices
        known = enumerate(records(grouping.table))
        regions += [(facts, np.asarray(rows_of_code[code]), GIVEN) for code, facts in known if code in rows_of_code]
    if n >= FEWEST_TO_SEARCH:
        regions += [(facts, rows, FOUND) for facts, rows in _found_regions(audited, slab, seed)]

    table = []
    for facts, rows, basis in regions:
        width = pd.Series(audited.rows.width[rows])
        counts = {"n": len(rows), "covered": int(audited.rows.covered[rows].sum())}
        widths = {"mean_width": width.mean(), "median_width": width.median()}
        table.append({**facts, "basis": basis, **counts, **widths})
    judged = judge(pd.DataFrame(table).reindex(columns=[*REGION_COLUMNS, "covered"]), audited.coverage)
    return judged[REGION_COLUMNS].astype({"group": "Int64", "calibration_rows": "Int64"})


def _found_regions(audited: Audited, slab: WorstSlab | None, seed: int) -> Iterator[tuple[dict[str, Any], IntArray]]:
    """Find regions on one half of the rows; return their words and kind, and their rows in the other half."""
    # The halves that `worst_slab_coverage` draws from the same seed, so that its slab, too, is found on the one and
    # judged on the other.
    rows = audited.rows
    search, judging = map(np.sort, np.array_split(np.random.default_rng(seed).permutation(len(rows.y)), 2))
    columns, values = searched_columns(audited.X, rows.lower, rows.upper)
    group_codes = [grouping.codes[judging] for grouping in audited.groupings]
    for region in find_regions(columns, values[search], rows.covered[search], audited.coverage):
        inside = region.mask(values[judging])
        # A region whose rows are all rows of one group is judged anyway.
        if not any(inside.any() and np.array_equal(inside, codes == codes[inside][0]) for codes in group_codes):
            yield {"region": words(region.rule, columns), "kind": region.kind}, judging[inside]
    if slab is not None and audited.X is not None and (math.isfinite(slab.lower) or math.isfinite(slab.upper)):
        yield {"region": slab_words(slab, audited.X), "kind": "worst slab"}, slab.rows.astype(np.intp)
