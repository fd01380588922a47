"""The report's tables, from the summary's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from icqr._rules import LEAST_FIDELITY
from icqr._sheet import MISSING, Cell, Column, Sheet, aligned, cell, share, span
from icqr.auditing.findings import promise
from icqr.auditing.verdicts import HOLDS, LUCK, OVER, SURE, UNDER, UNKNOWN
from icqr.calibration import INFINITE, POOLED, REFUSED
from icqr.cross import CROSS, CROSS_APPROXIMATE

#: The most important columns have a row of their own in the table of importances.
MOST_COLUMNS = 20
MEASURES = {
    "coverage": "coverage (points)",
    "mean_width": "mean width",
    "interval_score": "interval score",
    "excess_risk_l1": "excess risk",
}
DIFFERENCES = {"Difference": "difference", "95 % from": "lower", "95 % to": "upper"}
WIDTHS = {"Least": "min", "First quartile": "q1", "Median": "median", "Third quartile": "q3", "Largest": "max"}
WIDTHS |= {"Mean": "mean", "Standard deviation": "std"}
SELECTION_RULE = (
    "Of the partitions whose loss is above the lowest by no more than its standard error, the one with the most groups "
    "is taken, as coverage is promised in each group; K-means clusters only where no other is as good."
)
REGIONS_NOTE = f"The intervals are {SURE}, and each verdict follows from the interval beside it."
DIFFICULTY = (
    "Difficulty is how far a row's bounds are likely to miss before calibration, predicted from its columns. A rule "
    "in columns only comes near to it."
)
BAND = "The share covered in nine of ten calibrations with this number of rows."
RULE = "What the group's rows have in common, and nearly no others."
OTHER_GROUPS = "Methods with other groups, or with none, promise nothing for these."

#: Part of the summary: dicts with the same keys.
Entries: TypeAlias = Sequence[dict[str, Any]]


class Head(NamedTuple):
    """A column: its label, keys of the entries, what makes a cell of their values, and what it means."""

    label: str
    keys: str
    make: Callable[..., Any] = cell
    help: str = ""


def tables_of(summary: dict[str, Any]) -> dict[str, Sheet]:
    """Return the tables for which the summary has numbers, by name."""
    makers = {
        "examples": _example_sheets,
        "methods": _method_sheets,
        "differences": _difference_sheets,
        "coverage_by_group": _coverage_sheets,
        "audits": _audit_sheets,
        "groups": _group_sheets,
        "selection": _selection_sheets,
        "importance": _importance_sheets,
        "widths": _width_sheets,
        "reliability": _reliability_sheets,
    }
    sheets = (sheet for part, make in makers.items() if part in summary for sheet in make(summary))
    return {sheet.name: sheet for sheet in sheets}


def _sheet(
    name: str,
    caption: str,
    entries: Entries,
    heads: Sequence[Head],
    note: str = "",
    groups: Sequence[int] | None = None,
) -> Sheet:
    """Make a row of each entry; columns in which nothing is known are left out."""
    columns, cells = [], []
    for label, keys, make, meaning in heads:
        values = [[entry[key] for key in keys.split()] for entry in entries]
        made = aligned(number for (number,) in values) if make is aligned else [make(*parts) for parts in values]
        numeric = not any(entry.tone or isinstance(entry.value, str) for entry in made)
        columns.append(Column(label, numeric, meaning))
        cells.append(made)
    return Sheet(columns, list(zip(*cells, strict=True)), caption, note, name, groups).known()


def verdict_cell(verdict: str) -> Cell:
    """Return a verdict with its tone; it is sorted with the worst first."""
    tones = {UNDER: "under", OVER: "over", LUCK: "luck", UNKNOWN: "unknown", HOLDS: "holds"}
    return Cell("too few rows" if verdict == UNKNOWN else verdict, list(tones).index(verdict), tones[verdict])


# -- Examples -------------------------------------------------------------------------------------------


def _example_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of example rows: first what is predicted and what happened, then what kind of row it is."""
    shown, names = (
        summary["examples"],
        {entry["group"]: entry["name"] for entry in summary.get("coverage_by_group", [])},
    )
    rows, keys = shown["rows"], ("prediction", "lower", "upper", "y")
    numbers = iter(aligned(row[key] for row in rows for key in keys))  # all with equally many decimals
    columns = [_as_in_the_data(values) for values in zip(*(row["values"] for row in rows), strict=True)]
    entries: list[dict[str, Any]] = []
    for row in rows:
        prediction, lower, upper, y = (next(numbers) for _ in keys)
        entries.append(
            {
                "prediction": prediction,
                "interval": _interval_cell(lower, upper),
                "y": cell(int(row["y"])) if float(row["y"]).is_integer() else y,
                "inside": "yes" if row["covered"] else "no, above" if row["y"] > row["upper"] else "no, below",
                "group": names.get(row["group"]),
                **{f"column-{place}": column[len(entries)] for place, column in enumerate(columns)},
            }
        )
    heads = [Head("Prediction", "prediction", Cell._make)] if shown["predicted"] else []
    heads += [Head("Interval", "interval", Cell._make), Head("What happened", "y", Cell._make)]
    heads += [Head("Inside", "inside"), Head("Group", "group")]
    heads += [Head(name, f"column-{place}", Cell._make) for place, name in enumerate(shown["columns"])]
    target = summary["computed"]["data"].get("target")
    units = f", in units of {target}" if target not in (None, "y") else ""
    of_method = f" of {summary['in_detail']}" if len(summary["methods"]) > 1 else ""
    caption = f"{promise(summary['promised'])} intervals{of_method}{units}"
    note = "From a small to a large prediction, chosen by its rank alone, whether what happened is inside or not."
    yield _sheet("examples", caption, entries, heads, note)


def _interval_cell(lower: Cell, upper: Cell) -> Cell:
    """Return an interval in words, sorted by its lower bound."""
    is_open = lower.value == -math.inf, upper.value == math.inf
    words = {(True, True): "any value", (True, False): f"at most {upper.text}", (False, True): f"at least {lower.text}"}
    return Cell(words.get(is_open, f"{lower.text} to {upper.text}"), lower.value)


def _as_in_the_data(values: Sequence[Any]) -> list[Cell]:
    """Return a feature's cells; whole numbers without commas: they may be years or postal codes."""
    known = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return [cell(value) for value in values]
    if not all(float(value).is_integer() for value in known):
        cells = aligned(values)
        zeros = min(
            len(one.text) - len(one.text.rstrip("0")) if "." in one.text else 0 for one in cells if one.text != MISSING
        )
        return [one._replace(text=one.text[: len(one.text) - zeros]) if one.text != MISSING else one for one in cells]
    return [cell(None) if value is None else Cell(f"{value:.0f}".replace("-", "\u2212"), value) for value in values]


def _reliability_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    heads = [
        Head("Asked for", "asked", lambda level: Cell(promise(level).replace(" ", "\u00a0"), level)),
        Head("Covered", "observed", share),
        Head("95 % interval", "lower upper", span, "What the true share covered very likely is (exact interval)."),
    ]
    caption = f"What {summary['in_detail']} covers at several levels, all from one fit"
    yield _sheet("reliability", caption, summary["reliability"], heads)


# -- Methods ---------------------------------------------------------------------------------------------

EXACT_INTERVAL = "coverage_lower coverage_upper"


def _method_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of methods, and that of more measures of them."""

    def counted(short: int, looked: int) -> Cell:
        return Cell(f"{short} of {looked}", short)

    def with_error(risk: float | None, error: float | None) -> Cell:
        known = risk is not None and error is not None
        return Cell(f"{risk:.3f} ± {error:.3f}".replace("-", "−"), risk) if known else cell(None)

    seconds = summary.get("seconds", {})
    entries = [{**entry, "seconds": seconds.get(entry["method"])} for entry in summary["methods"]]
    heads = [
        Head("Method", "method"),
        Head("On average", "verdict", verdict_cell, "Whether the promise holds over all rows."),
        Head("Covered", "coverage", share, "Share of rows whose interval holds what happened."),
        Head("95 % interval", EXACT_INTERVAL, span, f"What the true share covered very likely is ({SURE})."),
        Head("By group", "lowest_group highest_group", span, "Lowest and highest share covered in the groups below."),
        Head(
            "Falls short in",
            "undercovers regions",
            counted,
            "Regions shown to cover too little, of those looked at; the same for all methods.",
        ),
        Head("Mean width", "mean_width", aligned, "In units of the target; of two that hold, the narrower says more."),
        Head("Interval score", "interval_score", aligned, "Width plus a penalty for misses (Winkler); less is better."),
        Head("Infinite", "n_infinite", _infinite, "Number of infinite intervals."),
        Head("Seconds to fit", "seconds", aligned, "A model that methods share is counted in each of them."),
    ]
    # Of intervals from elsewhere nobody knows whether their model has seen the rows.
    unseen = " that no model has seen" if all("model" in origin for origin in summary["computed"]["models"]) else ""
    caption = f"{promise(summary['promised'])} promised, {int(entries[0]['n']):,} rows{unseen}"
    yield _sheet("methods", caption, entries, heads, " ".join(summary.get("remarks", [])))

    slab = "Share covered in a slab of rows that was chosen for low coverage on other rows."
    risk = "How far coverage depends on the features (ERT); 0 or less: no sign that it does."
    heads = [
        Head("Method", "method"),
        Head("Lowest by width", "size_stratified_coverage", share, "Lowest share covered in ten bins of the width."),
        Head("Worst slab", "worst_slab_coverage", share, slab),
        Head("Excess risk", "excess_risk_l1 excess_risk_l1_error", with_error, risk),
    ]
    yield _sheet("measures", "How far coverage depends on where one looks", entries, heads)


def _difference_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    entries = []
    for entry in summary["differences"]:
        scale = 100 if entry["measure"] == "coverage" else 1
        numbers = {key: entry[key] and scale * entry[key] for key in ("difference", "lower", "upper")}
        cells = dict(zip(numbers, aligned(numbers.values()), strict=True))
        entries.append({**entry, **cells, "measure": MEASURES[entry["measure"]]})
    heads = [
        Head("Method", "method"),
        Head("Measure", "measure"),
        *(Head(label, key, Cell._make) for label, key in DIFFERENCES.items()),
        Head("Verdict", "verdict", cell, "With a chance of at most 5 % that any is wrong."),
    ]
    compared = {entry["method"] for entry in entries}
    reference = next(entry["method"] for entry in summary["methods"] if entry["method"] not in compared)
    yield _sheet("differences", f"Differences to {reference} on the same rows", entries, heads)


def _width_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    # The spread of equal widths is 0, whatever rounding made of it.
    entries = [
        {**entry, "std": 0.0} if entry["std"] is not None and entry["std"] < 1e-12 * entry["mean"] else entry
        for entry in summary["widths"]
    ]
    heads = [Head(label, key, aligned) for label, key in WIDTHS.items()]
    finite = "finite " if any(entry["n_infinite"] for entry in entries) else ""
    heads = [Head("Method", "method"), *heads, Head("Infinite", "n_infinite", _infinite)]
    yield _sheet("widths", f"Widths of the {finite}intervals", entries, heads)


def _infinite(n: float) -> Cell:
    """Return a number of infinite intervals, or a dash for none."""
    return Cell(f"{n:,.0f}" if n else MISSING, n)


# -- Groups and regions ------------------------------------------------------------------------------------


def _coverage_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    main, groups = summary["in_detail"], summary["coverage_by_group"]
    methods = list(dict.fromkeys(name for group in groups for name in group["methods"]))
    several = len(methods) > 1
    entries = []
    for group in groups:
        covered = {f"method-{j}": group["methods"].get(name, {}).get("coverage") for j, name in enumerate(methods)}
        entries.append({**group, **group["methods"][main], **covered})

    interval = f"What the true share covered by the method in detail very likely is ({SURE})."
    rules = {group["group"]: group["rule"] for group in summary.get("groups", [])}
    for entry in entries:  # a group of the user's own is named by its rule
        rule = rules.get(entry["group"]) if entry["kind"] == "model group" else None
        entry["rule"] = None if rule == entry["name"] else rule
    heads = [Head("Group", "name"), Head("Rows", "n")]
    heads += [Head(name if several else "Covered", f"method-{j}", share) for j, name in enumerate(methods)]
    heads += [
        Head("95 % interval", EXACT_INTERVAL, span, interval),
        Head(f"Verdict on {main}" if several else "Verdict", "verdict", verdict_cell),
        Head("Mean width", "mean_width", aligned),
        Head("Rule", "rule", cell, RULE),
    ]
    own = [entry for entry in entries if entry["kind"] == "model group" and several]
    which = "groups" if len(own) == len(entries) else f"first {sum(entry['group'] >= 0 for entry in own)} groups"
    caption = f"Coverage by group, {promise(summary['promised'])} promised"
    caption += f"; the {which} are those of {main}" if own else ""
    note = OTHER_GROUPS if own else ""
    numbers = [entry["group"] for entry in entries]
    yield _sheet("coverage_by_group", caption, entries, heads, note, numbers)
    others = {f"method-{j}": name for j, name in enumerate(methods) if name in other_methods(summary)}
    if others:
        heads = [Head("Group", "name"), *(Head(name, key, share) for key, name in others.items())]
        yield _sheet("coverage_of_others", "The other methods in the same groups", entries, heads, groups=numbers)


def other_methods(summary: dict[str, Any]) -> list[str]:
    """Return the methods besides the one in detail and the one that all are compared with."""
    compared = list(dict.fromkeys(entry["method"] for entry in summary.get("differences", [])))
    return [name for name in compared if name != summary["in_detail"]]


def _audit_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    """Make the table of all regions for each method, and for the one in detail that of its coverage by width."""
    regions = [
        Head("Region", "region"),
        Head("Found as", "kind"),
        Head("Rows", "n"),
        Head("Covered", "coverage", share),
        Head("95 % interval", EXACT_INTERVAL, span, f"Exact, {SURE}."),
        Head("Verdict", "verdict", verdict_cell, "With a chance of at most 5 % of any false alarm in the whole audit."),
        Head("Mean width", "mean_width", aligned),
    ]
    strata = [
        Head("Width from", "width_from", aligned),
        Head("to", "width_to", aligned),
        Head("Rows", "n"),
        Head("Covered", "coverage", share),
        Head("95 % interval", EXACT_INTERVAL, span),
    ]
    several = len(summary["audits"]) > 1
    for place, (method, audit) in enumerate(summary["audits"].items()):
        caption = (
            f"Regions{f' of {method}' if several else ''}, the worst first; {promise(summary['promised'])} promised"
        )
        yield _sheet(f"regions-{place}", caption, _numbered(audit["regions"]), regions, REGIONS_NOTE)
    main = summary["in_detail"]
    bins = summary["audits"][main]["size_strata"]
    yield _sheet("strata", f"Coverage by width of the interval{f', {main}' if several else ''}", bins, strata)


def _numbered(regions: Entries) -> list[dict[str, Any]]:
    """Return regions with their number, as in pictures, before their name."""
    numbers = count(1)
    named = (r["region"] if r["kind"] == "all rows" else f"{next(numbers)}. {r['region']}" for r in regions)
    return [{**region, "region": name} for region, name in zip(regions, named, strict=True)]


# -- How groups came about ---------------------------------------------------------------------------------


def _group_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    entries, bands = [], {entry["group"]: entry for entry in summary.get("coverage_by_group", [])}
    for group in summary["groups"]:  # a rule that is rough needs more words
        rough = group["fidelity"] < LEAST_FIDELITY
        words = {
            "name": f"group {group['group']}",
            "features": (group["features"] or None) if rough else None,
            **{key: bands.get(group["group"], {}).get(key) for key in ("band_lower", "band_upper")},
            "exception": group["guarantee"] if group["guarantee"] in (POOLED, INFINITE, REFUSED) else None,
        }
        entries.append({**group, **words})
    moved = "How far the bound is moved outwards."
    offsets = [Head("Lower offset", "offset_lower", aligned, moved), Head("Upper offset", "offset_upper", aligned)]
    if all(entry["offset_lower"] == entry["offset_upper"] for entry in entries):
        offsets = [Head("Offset", "offset_lower", aligned, "How far both bounds are moved outwards.")]
    average = "The share covered on average over calibration sets."
    if any(entry["guarantee"] in (CROSS, CROSS_APPROXIMATE) for entry in entries):
        offsets = []  # a group has no one offset
        average = "The share covered at least, on average over such sets of rows; in practice it is more."
    apart = "Where the rule is rough: the columns whose mean differs most from all."
    heads = [
        Head("Group", "name"),
        Head("Rule", "rule", cell, RULE),
        *offsets,
        Head("Promised", "promised", lambda least: share(least) if least else Cell("none", 0.0), average),
        Head("Exception", "exception"),
        Head("Calibration rows", "n"),
        Head("Calibration can give", "band_lower band_upper", span, BAND),
    ]
    details = [
        Head("Group", "name"),
        Head("Rule fits", "fidelity", share, "Rows with both rule and group, of those with either."),
        Head("What sets it apart", "features", cell, apart),
        Head("Two of its rows", "examples", cell, "Their values in the columns that count most."),
    ]
    note = DIFFICULTY if any(entry["rule"].startswith("difficulty ") for entry in entries) else ""
    numbers = [int(entry["group"]) for entry in entries]
    yield _sheet("groups", "Groups and their offsets", entries, heads, note, numbers)
    yield _sheet("group_details", "How well rules fit, and two rows of each group", entries, details, groups=numbers)


def _selection_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    loss = "Mean pinball loss of the bounds, on rows that did not calibrate them; less is better."
    heads = [
        Head("Partition", "partition", cell, "Difficulty is the conformity score that is predicted for a row."),
        Head("Groups", "groups"),
        Head("Chosen", "chosen", lambda chosen: Cell("chosen", 0, "holds") if chosen else Cell(MISSING, 1)),
        Head("Loss", "loss", aligned, loss),
        Head("Above the lowest", "difference", aligned, "Its difference from the lowest loss."),
        Head("Standard error", "standard_error", aligned, "Of that difference."),
    ]
    for place, selection in enumerate(summary["selection"]):
        caption = "Partitions that were tried on the training rows"
        yield _sheet(f"selection-{place}", caption, selection["candidates"], heads, SELECTION_RULE)


def _importance_sheets(summary: dict[str, Any]) -> Iterator[Sheet]:
    ordered = sorted(summary["importance"], key=lambda entry: -entry["share"])
    if not ordered[0]["share"]:  # all are zero, as the sentence says
        return
    heads = [
        Head("Column", "feature", lambda name: cell(str(name))),
        Head("Share of all", "share", share),
        Head("Importance", "mean", aligned),
        Head("± over repeats", "std", aligned),
    ]
    rest = ordered[MOST_COLUMNS:]
    shares = share(sum(entry["share"] for entry in rest)).text
    note = f"{len(rest)} other columns have {shares} of all." if rest else ""
    yield _sheet("importance", "Importance of columns", ordered[:MOST_COLUMNS], heads, note)
