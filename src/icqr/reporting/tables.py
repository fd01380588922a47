"""The report's tables, from the summary's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from icqr.auditing.findings import promise
from icqr.calibration import INFINITE, POOLED, REFUSED
from icqr.reporting.cells import Cell, Column, Row, Table, aligned, number, share, span, text, verdict

#: So many columns have a row of their own in the table of importances.
MOST_COLUMNS = 20
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
#: Tables that are made from a part of the summary with another name.
PARTS = {"measures": "methods"}


def tables_of(summary: dict[str, Any]) -> dict[str, Table]:
    """Give the tables for which the summary has numbers, by name."""
    makers: dict[str, Callable[[dict[str, Any]], Table]] = {
        "methods": _methods,
        "measures": _measures,
        "differences": _differences,
        "coverage_by_group": _coverage_by_group,
        "groups": _groups,
        "importance": _importance,
        "widths": _widths,
    }
    found = {name: make(summary) for name, make in makers.items() if PARTS.get(name, name) in summary}
    for place, (name, audit) in enumerate(summary.get("audits", {}).items()):
        found[f"regions-{place}"] = _regions(f"regions-{place}", name, audit)
        found[f"strata-{place}"] = _strata(f"strata-{place}", name, audit)
    for place, one in enumerate(summary.get("selection", [])):
        found[f"selection-{place}"] = _selection(f"selection-{place}", one["candidates"])
    return found


def _kept(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> tuple[list[Column], list[list[Cell]]]:
    """Leave out the columns in which nothing is known."""
    given = list(rows)
    places = [j for j in range(len(columns)) if j == 0 or any(cells[j].text not in ("–", "") for cells in given)]
    return [columns[j] for j in places], [[cells[j] for j in places] for cells in given]


def _methods(summary: dict[str, Any]) -> Table:
    columns = [
        Column("Method", False),
        Column("On average", False, "Whether the promise holds over all rows."),
        Column("Covered", help="Share of rows whose interval holds what happened."),
        Column("95 % interval", help="What the true share covered very likely is (exact interval)."),
        Column("By group", help="Lowest and highest share covered among the groups below."),
        Column("Falls short in", help="Regions that are shown to cover less than promised, of those looked at."),
        Column("Mean width", help="In units of the target; of two methods that hold, the narrower says more."),
        Column("Interval score", help="Width plus a penalty for misses (Winkler); less is better."),
        Column("Infinite", help="Number of infinite intervals."),
        Column("Seconds to fit", help="To fit and calibrate; a model that methods share is counted in each of them."),
    ]
    entries = summary["methods"]
    some_infinite = any(one["n_infinite"] for one in entries)
    widths, scores = (aligned(one[key] for one in entries) for key in ("mean_width", "interval_score"))
    seconds = aligned(summary.get("seconds", {}).get(one["method"]) for one in entries)
    rows = [
        [
            text(one["method"]),
            verdict(one["verdict"]),
            share(one["coverage"]),
            span(one["coverage_lower"], one["coverage_upper"]),
            span(one["lowest_group"], one["highest_group"]),
            Cell(f"{one['undercovers']} of {one['regions']}", float(one["undercovers"])),
            width,
            score,
            number(int(one["n_infinite"])) if some_infinite else Cell("–"),
            taken,
        ]
        for one, width, score, taken in zip(entries, widths, scores, seconds, strict=True)
    ]
    # Of intervals from elsewhere nobody knows.
    unseen = " that no model has seen" if all("model" in one for one in summary["computed"]["models"]) else ""
    caption = f"{promise(summary['promised'])} promised, {int(entries[0]['n']):,} rows{unseen}"
    kept, cells = _kept(columns, rows)
    return Table("methods", caption, kept, [Row(row) for row in cells], " ".join(summary.get("remarks", [])))


def _measures(summary: dict[str, Any]) -> Table:
    columns = [
        Column("Method", False),
        Column("Lowest by width", help="Lowest share covered in ten bins of the interval's width."),
        Column("Worst slab", help="Share covered in a slab of rows that was chosen for low coverage on other rows."),
        Column("Excess risk", help="How far coverage depends on the features (ERT); 0 or less: no sign that it does."),
    ]
    rows = [
        [
            text(one["method"]),
            share(one["size_stratified_coverage"]),
            share(one["worst_slab_coverage"]),
            _with_error(one["excess_risk_l1"], one["excess_risk_l1_error"]),
        ]
        for one in summary["methods"]
    ]
    kept, cells = _kept(columns, rows)
    return Table("measures", "How far coverage depends on where one looks", kept, [Row(row) for row in cells])


def _with_error(value: Any, error: Any) -> Cell:
    if value is None or error is None:
        return Cell("–")
    return Cell(f"{value:.3f} ± {error:.3f}".replace("-", "−"), float(value))


def _differences(summary: dict[str, Any]) -> Table:
    columns = [Column("Method", False), Column("Measure", False), Column("Difference"), Column("95 % from")]
    columns += [Column("95 % to"), Column("Verdict", False, "With a chance of at most 5 % that any is wrong.")]
    rows = []
    for one in summary["differences"]:
        scale = 100 if one["measure"] == "coverage" else 1
        values = aligned(None if one[key] is None else scale * one[key] for key in ("difference", "lower", "upper"))
        rows.append(Row([text(one["method"]), text(MEASURES[one["measure"]]), *values, text(one["verdict"])]))
    others = {one["method"] for one in summary["differences"]}
    reference = next(one["method"] for one in summary["methods"] if one["method"] not in others)
    return Table("differences", f"Differences to {reference} on the same rows", columns, rows)


def _coverage_by_group(summary: dict[str, Any]) -> Table:
    entries = summary["coverage_by_group"]
    methods = list(dict.fromkeys(name for one in entries for name in one["methods"]))
    main = summary["in_detail"]
    several = len(methods) > 1
    columns = [Column("Group", False), Column("Rows")]
    columns += [Column(name if several else "Covered") for name in methods]
    columns += [
        Column("95 % interval", help=f"What the true share that {main} covers very likely is (exact interval)."),
        Column(f"Verdict on {main}" if several else "Verdict", False),
        Column("Mean width"),
        Column("Calibration can give", help="The share covered in nine of ten calibrations with this number of rows."),
    ]
    widths = aligned(one["methods"][main]["mean_width"] for one in entries)
    described = (_group_cells(one, methods, main, width) for one, width in zip(entries, widths, strict=True))
    kept, cells = _kept(columns, described)
    rows = [Row(row, one["group"]) for row, one in zip(cells, entries, strict=True)]
    caption = f"Coverage by group, {promise(summary['promised'])} promised"
    own = [one for one in entries if one["kind"] == "model group" and several]
    which = "These" if len(own) == len(entries) else f"The first {sum(one['group'] >= 0 for one in own)}"
    note = f"{which} groups are those of {main}. {OTHER_GROUPS}" if own else ""
    return Table("coverage_by_group", caption, kept, rows, note)


def _group_cells(one: dict[str, Any], methods: list[str], main: str, width: Cell) -> list[Cell]:
    by_method = [share(one["methods"][name]["coverage"]) if name in one["methods"] else Cell("–") for name in methods]
    measured, unseen = one["methods"][main], Cell("–")  # where there is no room; the table of all regions has them
    return [
        Cell(one["name"], float(one["group"])),
        number(one["n"]),
        *by_method,
        span(measured["coverage_lower"], measured["coverage_upper"]) if len(methods) < 5 else unseen,
        verdict(one["verdict"]),
        width if len(methods) < 5 else unseen,
        span(one["band_lower"], one["band_upper"]) if len(methods) == 1 else unseen,
    ]


def _groups(summary: dict[str, Any]) -> Table:
    entries = summary["groups"]
    same = all(one["offset_lower"] == one["offset_upper"] for one in entries)
    offsets = [Column("Offset", help="How far both bounds are moved outwards.")]
    if not same:
        offsets = [Column("Lower offset", help="How far the bound is moved outwards."), Column("Upper offset")]
    columns = [
        Column("Group", False),
        Column("Rule", False, "What the group's rows have in common, and nearly no others."),
        *offsets,
        Column("Promised", help="The share covered on average over calibration sets."),
        Column("Exception", False),
        Column("Calibration rows"),
        Column("Rule fits", help="Rows with both rule and group, of those with either."),
        Column("What sets it apart", False, "Where the rule is rough: the columns whose mean differs most from all."),
    ]
    moved = zip(*(aligned(one[key] for one in entries) for key in ("offset_lower", "offset_upper")), strict=True)
    rows = [_rule_cells(one, both[:1] if same else both) for one, both in zip(entries, moved, strict=True)]
    kept, cells = _kept(columns, rows)
    caption = "Groups, their rules and offsets"
    numbered = [Row(row, int(one["group"])) for row, one in zip(cells, entries, strict=True)]
    return Table("groups", caption, kept, numbered)


def _rule_cells(one: dict[str, Any], offsets: Sequence[Cell]) -> list[Cell]:
    rough = one["fidelity"] < 0.8
    return [
        Cell(f"group {one['group']}", float(one["group"])),
        text(f"roughly {one['rule']}" if rough else one["rule"]),
        *offsets,
        share(one["promised"]),
        text(one["guarantee"] if one["guarantee"] in (POOLED, INFINITE, REFUSED) else None),
        number(one["n"]),
        Cell(f"{100 * one['fidelity']:.0f}\u00a0%", float(one["fidelity"])),
        text(one["features"] or None if rough else None),
    ]


def _importance(summary: dict[str, Any]) -> Table:
    entries = sorted(summary["importance"], key=lambda one: -one["share"])
    columns = [Column("Column", False), Column("Share of all"), Column("Importance"), Column("± over repeats")]
    largest = entries[:MOST_COLUMNS]
    means, spreads = (aligned(one[key] for one in largest) for key in ("mean", "std"))
    rows = [
        Row([text(one["feature"]), share(one["share"]), mean, spread])
        for one, mean, spread in zip(largest, means, spreads, strict=True)
    ]
    rest = entries[MOST_COLUMNS:]
    note = f"{len(rest)} other columns have {share(sum(one['share'] for one in rest)).text} of all." if rest else ""
    return Table("importance", "Importance of columns", columns, rows, note)


def _selection(name: str, candidates: list[dict[str, Any]]) -> Table:
    columns = [
        Column("Partition", False, "Difficulty is the conformity score that is predicted for a row."),
        Column("Groups"),
        Column("Chosen", False),
        Column("Loss", help="Mean pinball loss of the bounds, on rows that did not calibrate them; less is better."),
        Column("Above the lowest", help="Its difference from the lowest loss."),
        Column("Standard error", help="Of that difference."),
    ]
    measured = (aligned(one[key] for one in candidates) for key in ("loss", "difference", "standard_error"))
    rows = [
        Row([text(one["partition"]), number(one["groups"]), _chosen(one["chosen"]), *numbers])
        for one, *numbers in zip(candidates, *measured, strict=True)
    ]
    return Table(name, "Partitions that were tried on the training rows", columns, rows, SELECTION_RULE)


def _chosen(chosen: bool) -> Cell:
    return Cell("chosen", 0, "holds", "✓") if chosen else Cell("–", 1)


def _widths(summary: dict[str, Any]) -> Table:
    names = {"min": "Least", "q1": "First quartile", "median": "Median", "q3": "Third quartile", "max": "Largest"}
    names |= {"mean": "Mean", "std": "Standard deviation"}
    columns = [Column("Method", False), *(Column(label) for label in names.values()), Column("Infinite")]
    entries = summary["widths"]
    some_infinite = any(one["n_infinite"] for one in entries)
    infinite = [number(one["n_infinite"]) if some_infinite else Cell("–") for one in entries]
    measured = [aligned(_no_noise(one, key) for one in entries) for key in names]
    kept, cells = _kept(columns, zip([text(one["method"]) for one in entries], *measured, infinite, strict=True))
    finite = "finite " if some_infinite else ""
    return Table("widths", f"Widths of the {finite}intervals", kept, [Row(row) for row in cells])


def _no_noise(one: dict[str, Any], key: str) -> Any:
    """Give a statistic; the spread of equal widths is 0, whatever rounding made of it."""
    return 0.0 if key == "std" and one["std"] is not None and one["std"] < 1e-12 * one["mean"] else one[key]


def _regions(name: str, method: str, audit: dict[str, Any]) -> Table:
    columns = [
        Column("Region", False),
        Column("Found as", False),
        Column("Rows"),
        Column("Covered"),
        Column("95 % interval", help="Exact, of each region by itself."),
        Column("Verdict", False, "With a chance of at most 5 % of any false alarm in the whole audit."),
        Column("Mean width"),
    ]
    widths = aligned(one["mean_width"] for one in audit["regions"])
    rows = [
        Row(
            [
                text(one["region"]),
                text(one["kind"]),
                number(one["n"]),
                share(one["coverage"]),
                span(one["coverage_lower"], one["coverage_upper"]),
                verdict(one["verdict"]),
                width,
            ]
        )
        for one, width in zip(audit["regions"], widths, strict=True)
    ]
    note = (
        "Each interval is of a region by itself. A verdict allows for the number of regions that were looked at: among "
        "many, a few intervals leave out the promise by chance."
    )
    return Table(name, f"All regions that {method} was judged in, worst first", columns, rows, note)


def _strata(name: str, method: str, audit: dict[str, Any]) -> Table:
    columns = [Column("Width from"), Column("to"), Column("Rows"), Column("Covered"), Column("95 % interval")]
    edges = zip(*(aligned(one[key] for one in audit["size_strata"]) for key in ("width_from", "width_to")), strict=True)
    rows = [
        Row([*edge, number(one["n"]), share(one["coverage"]), span(one["coverage_lower"], one["coverage_upper"])])
        for edge, one in zip(edges, audit["size_strata"], strict=True)
    ]
    return Table(name, f"{method}: coverage by width of the interval", columns, rows)
