"""The report's tables, from the summary's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from icqr._sheet import MISSING, Cell, Column, Sheet, aligned, cell, share, span
from icqr.auditing.findings import HOLDS, OVER, UNDER, UNKNOWN, promise
from icqr.calibration import INFINITE, POOLED, REFUSED

#: The most important columns have a row of their own in the table of importances.
MOST_COLUMNS = 20
#: So many methods leave no room for the interval and the width of the one that is shown in detail.
MANY_METHODS = 5
MEASURES = {
    "coverage": "coverage (points)",
    "mean_width": "mean width",
    "interval_score": "interval score",
    "excess_risk_l1": "excess risk",
}
SELECTION_RULE = (
    "Of the partitions whose loss is above the lowest by no more than its standard error, the one with the most groups "
    "is taken, as coverage is promised in each group; K-means clusters only where no other is as good."
)
OTHER_GROUPS = "Methods with other groups, or with none, promise nothing for these."

#: What the columns of each table mean.
MEANINGS = {
    "methods": {
        "On average": "Whether the promise holds over all rows.",
        "Covered": "Share of rows whose interval holds what happened.",
        "95 % interval": "What the true share covered very likely is (exact interval).",
        "By group": "Lowest and highest share covered among the groups below.",
        "Falls short in": "Regions that are shown to cover less than promised, of those looked at.",
        "Mean width": "In units of the target; of two methods that hold, the narrower says more.",
        "Interval score": "Width plus a penalty for misses (Winkler); less is better.",
        "Infinite": "Number of infinite intervals.",
        "Seconds to fit": "To fit and calibrate; a model that methods share is counted in each of them.",
    },
    "measures": {
        "Lowest by width": "Lowest share covered in ten bins of the interval's width.",
        "Worst slab": "Share covered in a slab of rows that was chosen for low coverage on other rows.",
        "Excess risk": "How far coverage depends on the features (ERT); 0 or less: no sign that it does.",
    },
    "differences": {"Verdict": "With a chance of at most 5 % that any is wrong."},
    "coverage_by_group": {
        "95 % interval": "What the true share covered by the method in detail very likely is (exact interval).",
        "Calibration can give": "The share covered in nine of ten calibrations with this number of rows.",
    },
    "groups": {
        "Rule": "What the group's rows have in common, and nearly no others.",
        "Offset": "How far both bounds are moved outwards.",
        "Lower offset": "How far the bound is moved outwards.",
        "Promised": "The share covered on average over calibration sets.",
        "Rule fits": "Rows with both rule and group, of those with either.",
        "What sets it apart": "Where the rule is rough: the columns whose mean differs most from all.",
    },
    "selection": {
        "Partition": "Difficulty is the conformity score that is predicted for a row.",
        "Loss": "Mean pinball loss of the bounds, on rows that did not calibrate them; less is better.",
        "Above the lowest": "Its difference from the lowest loss.",
        "Standard error": "Of that difference.",
    },
    "regions": {
        "95 % interval": "Exact, of each region by itself.",
        "Verdict": "With a chance of at most 5 % of any false alarm in the whole audit.",
    },
}

#: Part of the summary: dicts with the same keys.
Entries: TypeAlias = Sequence[dict[str, Any]]


def tables_of(summary: dict[str, Any]) -> dict[str, Sheet]:
    """Return the tables for which the summary has numbers, by name."""
    makers = {
        "methods": _method_sheets,
        "differences": _difference_sheets,
        "coverage_by_group": _coverage_sheets,
        "audits": _region_sheets,
        "groups": _group_sheets,
        "selection": _selection_sheets,
        "importance": _importance_sheets,
        "widths": _width_sheets,
    }
    sheets = (sheet for part, make in makers.items() if part in summary for sheet in make(summary))
    return {sheet.name: sheet for sheet in sheets}


def verdict_cell(verdict: str) -> Cell:
    """Return a verdict with its tone; it is sorted with the worst first."""
    tones = {UNDER: "under", OVER: "over", HOLDS: "holds", UNKNOWN: "unknown"}
    return Cell("too few rows" if verdict == UNKNOWN else verdict, list(tones).index(verdict), tones[verdict])


def _sheet(
    name: str,
    caption: str,
    labelled: Sequence[tuple[str, Sequence[Cell]]],
    note: str = "",
    groups: Sequence[int] | None = None,
) -> Sheet:
    """Put labelled columns side by side, with what they mean; those in which nothing is known are left out."""
    meanings = MEANINGS.get(name.partition("-")[0], {})
    heads = [
        Column(label, not any(entry.tone or isinstance(entry.value, str) for entry in cells), meanings.get(label, ""))
        for label, cells in labelled
    ]
    rows = list(zip(*(cells for _, cells in labelled), strict=True))
    return Sheet(heads, rows, caption, note, name, groups).known()


def _cells(entries: Entries, key: str, make: Callable[[Any], Cell] = cell) -> list[Cell]:
    return [make(entry[key]) for entry in entries]


def _numbers(entries: Entries, key: str) -> list[Cell]:
    return aligned(entry[key] for entry in entries)


def _spans(entries: Entries, low: str = "coverage_lower", high: str = "coverage_upper") -> list[Cell]:
    return [span(entry[low], entry[high]) for entry in entries]


def _infinite(entries: Entries) -> list[Cell]:
    """Return the numbers of infinite intervals; nothing if no method has any."""
    some = any(entry["n_infinite"] for entry in entries)
    return [cell(int(entry["n_infinite"]) if some else None) for entry in entries]


# -- Methods ---------------------------------------------------------------------------------------------


def _method_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of methods, and that of more measures of them."""
    entries, seconds = summary["methods"], summary.get("seconds", {})
    short = [Cell(f"{entry['undercovers']} of {entry['regions']}", entry["undercovers"]) for entry in entries]
    columns = [
        ("Method", _cells(entries, "method")),
        ("On average", _cells(entries, "verdict", verdict_cell)),
        ("Covered", _cells(entries, "coverage", share)),
        ("95 % interval", _spans(entries)),
        ("By group", _spans(entries, "lowest_group", "highest_group")),
        ("Falls short in", short),
        ("Mean width", _numbers(entries, "mean_width")),
        ("Interval score", _numbers(entries, "interval_score")),
        ("Infinite", _infinite(entries)),
        ("Seconds to fit", aligned(seconds.get(entry["method"]) for entry in entries)),
    ]
    # Of intervals from elsewhere nobody knows whether their model has seen the rows.
    unseen = " that no model has seen" if all("model" in origin for origin in summary["computed"]["models"]) else ""
    caption = f"{promise(summary['promised'])} promised, {int(entries[0]['n']):,} rows{unseen}"
    yield _sheet("methods", caption, columns, " ".join(summary.get("remarks", [])))

    risks = []
    for entry in entries:
        risk, error = entry["excess_risk_l1"], entry["excess_risk_l1_error"]
        known = risk is not None and error is not None
        risks.append(Cell(f"{risk:.3f} ± {error:.3f}".replace("-", "−"), risk) if known else cell(None))
    columns = [
        ("Method", _cells(entries, "method")),
        ("Lowest by width", _cells(entries, "size_stratified_coverage", share)),
        ("Worst slab", _cells(entries, "worst_slab_coverage", share)),
        ("Excess risk", risks),
    ]
    yield _sheet("measures", "How far coverage depends on where one looks", columns)


def _difference_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    entries = summary["differences"]
    numbers = []
    for entry in entries:
        scale = 100 if entry["measure"] == "coverage" else 1
        values = (entry[key] for key in ("difference", "lower", "upper"))
        numbers.append(aligned(None if value is None else scale * value for value in values))
    difference, low, high = zip(*numbers, strict=True)
    columns = [
        ("Method", _cells(entries, "method")),
        ("Measure", [cell(MEASURES[entry["measure"]]) for entry in entries]),
        ("Difference", difference),
        ("95 % from", low),
        ("95 % to", high),
        ("Verdict", _cells(entries, "verdict")),
    ]
    compared = {entry["method"] for entry in entries}
    reference = next(entry["method"] for entry in summary["methods"] if entry["method"] not in compared)
    yield _sheet("differences", f"Differences to {reference} on the same rows", columns)


def _width_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of widths and, of each method, that of its coverage by width."""
    # The spread of equal widths is 0, whatever rounding made of it.
    entries = [
        {**entry, "std": 0.0} if entry["std"] is not None and entry["std"] < 1e-12 * entry["mean"] else entry
        for entry in summary["widths"]
    ]
    labels = {"min": "Least", "q1": "First quartile", "median": "Median", "q3": "Third quartile", "max": "Largest"}
    labels |= {"mean": "Mean", "std": "Standard deviation"}
    columns = [("Method", _cells(entries, "method"))]
    columns += [(label, _numbers(entries, key)) for key, label in labels.items()]
    columns += [("Infinite", _infinite(entries))]
    finite = "finite " if any(entry["n_infinite"] for entry in entries) else ""
    yield _sheet("widths", f"Widths of the {finite}intervals", columns)

    for place, (method, audit) in enumerate(summary["audits"].items()):
        strata = audit["size_strata"]
        columns = [
            ("Width from", _numbers(strata, "width_from")),
            ("to", _numbers(strata, "width_to")),
            ("Rows", _cells(strata, "n")),
            ("Covered", _cells(strata, "coverage", share)),
            ("95 % interval", _spans(strata)),
        ]
        yield _sheet(f"strata-{place}", f"{method}: coverage by width of the interval", columns)


# -- Groups and regions ------------------------------------------------------------------------------------


def _coverage_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    entries, main = summary["coverage_by_group"], summary["in_detail"]
    methods = list(dict.fromkeys(name for entry in entries for name in entry["methods"]))
    several = len(methods) > 1
    measured = [entry["methods"][main] for entry in entries]
    columns = [("Group", _cells(entries, "name")), ("Rows", _cells(entries, "n"))]
    for name in methods:
        covered = [share(entry["methods"].get(name, {}).get("coverage")) for entry in entries]
        columns.append((name if several else "Covered", covered))
    verdict = (f"Verdict on {main}" if several else "Verdict", _cells(entries, "verdict", verdict_cell))
    # Where there is no room; the table of all regions has these.
    if len(methods) < MANY_METHODS:
        columns += [("95 % interval", _spans(measured)), verdict, ("Mean width", _numbers(measured, "mean_width"))]
    else:
        columns.append(verdict)
    if not several:
        columns.append(("Calibration can give", _spans(entries, "band_lower", "band_upper")))

    own = [entry for entry in entries if entry["kind"] == "model group" and several]
    which = "These" if len(own) == len(entries) else f"The first {sum(entry['group'] >= 0 for entry in own)}"
    note = f"{which} groups are those of {main}. {OTHER_GROUPS}" if own else ""
    caption = f"Coverage by group, {promise(summary['promised'])} promised"
    yield _sheet("coverage_by_group", caption, columns, note, [entry["group"] for entry in entries])


def _region_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of all regions of each method."""
    note = (
        "Each interval is of a region by itself. A verdict allows for the number of regions that were looked at: among "
        "many, a few intervals leave out the promise by chance."
    )
    for place, (method, audit) in enumerate(summary["audits"].items()):
        entries = audit["regions"]
        columns = [
            ("Region", _cells(entries, "region")),
            ("Found as", _cells(entries, "kind")),
            ("Rows", _cells(entries, "n")),
            ("Covered", _cells(entries, "coverage", share)),
            ("95 % interval", _spans(entries)),
            ("Verdict", _cells(entries, "verdict", verdict_cell)),
            ("Mean width", _numbers(entries, "mean_width")),
        ]
        yield _sheet(f"regions-{place}", f"All regions that {method} was judged in, worst first", columns, note)


# -- How groups came about ---------------------------------------------------------------------------------


def _group_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    entries = summary["groups"]
    lower, upper = (_numbers(entries, key) for key in ("offset_lower", "offset_upper"))
    same = all(entry["offset_lower"] == entry["offset_upper"] for entry in entries)
    rules, apart = [], []
    for entry in entries:  # a rule that is rough needs more words
        rough = entry["fidelity"] < 0.8
        rules.append(cell(f"{'roughly ' * rough}{entry['rule']}"))
        apart.append(cell(entry["features"] or None if rough else None))
    exceptions = (POOLED, INFINITE, REFUSED)
    columns = [
        ("Group", [cell(f"group {entry['group']}") for entry in entries]),
        ("Rule", rules),
        *([("Offset", lower)] if same else [("Lower offset", lower), ("Upper offset", upper)]),
        ("Promised", _cells(entries, "promised", share)),
        ("Exception", _cells(entries, "guarantee", lambda kind: cell(kind if kind in exceptions else None))),
        ("Calibration rows", _cells(entries, "n")),
        ("Rule fits", _cells(entries, "fidelity", lambda fit: Cell(f"{100 * fit:.0f}\u00a0%", fit))),
        ("What sets it apart", apart),
    ]
    numbers = [int(entry["group"]) for entry in entries]
    yield _sheet("groups", "Groups, their rules and offsets", columns, groups=numbers)


def _selection_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    for place, selection in enumerate(summary["selection"]):
        entries = selection["candidates"]
        columns = [
            ("Partition", _cells(entries, "partition")),
            ("Groups", _cells(entries, "groups")),
            ("Chosen", [Cell("chosen", 0, "holds") if entry["chosen"] else Cell(MISSING, 1) for entry in entries]),
            ("Loss", _numbers(entries, "loss")),
            ("Above the lowest", _numbers(entries, "difference")),
            ("Standard error", _numbers(entries, "standard_error")),
        ]
        yield _sheet(f"selection-{place}", "Partitions that were tried on the training rows", columns, SELECTION_RULE)


def _importance_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    ordered = sorted(summary["importance"], key=lambda entry: -entry["share"])
    largest, rest = ordered[:MOST_COLUMNS], ordered[MOST_COLUMNS:]
    columns = [
        ("Column", _cells(largest, "feature", lambda name: cell(str(name)))),
        ("Share of all", _cells(largest, "share", share)),
        ("Importance", _numbers(largest, "mean")),
        ("± over repeats", _numbers(largest, "std")),
    ]
    shares = share(sum(entry["share"] for entry in rest)).text
    note = f"{len(rest)} other columns have {shares} of all." if rest else ""
    yield _sheet("importance", "Importance of columns", columns, note)
