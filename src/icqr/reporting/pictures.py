"""The report's pictures: displays as SVG, each with a title that says what it shows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from icqr import plots
from icqr.auditing.findings import percent, promise
from icqr.auditing.verdicts import SURE
from icqr.plots.axes import find_column
from icqr.plots.displays import Display
from icqr.plots.group_displays import most_important
from icqr.reporting.examples import known_importances
from icqr.reporting.report_tables import other_methods
from icqr.reporting.summary import Evidence

#: Inches; narrow, so that words stay large enough on a phone: their smallest are 8.3 points, of 266 in all.
WIDTH = 3.7
#: How many points a picture holds at most: each takes about 80 bytes.
MOST_POINTS = 800
#: How many groups or regions a picture of coverage holds at most, so that it fits on a screen.
MOST_GROUPS = 10
#: A name, a display, and what a screen reader says.
_Drawn: TypeAlias = Iterator[tuple[str, Display, str]]


def pictures_of(evidence: Evidence, summary: dict[str, Any]) -> dict[str, str]:
    """Return the pictures that can be drawn from what was given as SVG, by name."""
    X, importances = known_importances(evidence)
    important = [] if X is None or importances is None else most_important(importances, X)
    evidence = replace(evidence, X=X)

    pictures = {}
    for name, display, title in [
        *_group_pictures(evidence, summary),
        *_model_pictures(evidence, summary, important),
        *_row_pictures(evidence, summary, important),
    ]:
        # As high as its rows need; coverage against coverage is nearly a square.
        height = 1.1 * WIDTH if name == "reliability" else display.size[1]
        display.figure_.canvas.figure.set_size_inches(WIDTH, height)
        pictures[name] = plots.figure_to_svg(display.figure_, title=title)
    return pictures


def _group_pictures(evidence: Evidence, summary: dict[str, Any]) -> _Drawn:
    """Draw coverage in the groups of the model, and in those that the user gave; without any, in the regions found.

    The method in detail is drawn, and the one that it is compared with.
    """
    if evidence.audits and "coverage_by_group" not in summary:
        yield from _region_picture(evidence, summary)
    drawn = [method for method in evidence.audits if method not in other_methods(summary)]
    for kind, name in (("model group", "coverage_by_group"), ("group", "coverage_by_given_group")):
        groups = [entry for entry in summary.get("coverage_by_group", []) if entry["kind"] == kind]
        if not groups:
            continue
        methods = [method for method in drawn if all(method in group["methods"] for group in groups)]
        table = pd.DataFrame(
            {"method": method, "group": group["group"], "n": group["n"], **group["methods"][method]}
            for method in methods
            for group in groups
        )
        overall = pd.DataFrame({"method": method, **evidence.audits[method].numbers} for method in methods)
        names: dict[Hashable, str] = {group["group"]: group["name"] for group in groups}
        numbers = table, overall.astype({"n": int}), evidence.coverage
        display = plots.GroupCoverageDisplay(*numbers, MOST_GROUPS, names, note=f"intervals {SURE}").plot(
            plots.blank_axes(WIDTH)
        )
        covered = table.loc[table["method"] == evidence.main, "coverage"]
        ends = f"from {percent(covered.min())} to {percent(covered.max())}"
        title = f"Coverage of {evidence.main} by group, {promise(evidence.coverage)} promised: {ends}."
        yield name, display, title


def _region_picture(evidence: Evidence, summary: dict[str, Any]) -> _Drawn:
    """Draw coverage in the regions that the audit of the method in detail puts first."""
    audit = summary["audits"][evidence.main]
    regions = [region for region in audit["regions"] if region["kind"] != "all rows"][:MOST_GROUPS]
    if not regions:
        return
    table = pd.DataFrame(regions).assign(method=evidence.main, group=range(len(regions)))
    overall = pd.DataFrame([{"method": evidence.main, **audit["numbers"]}]).astype({"n": int})
    names: dict[Hashable, str] = {place: f"region {place + 1}" for place in range(len(regions))}
    display = plots.GroupCoverageDisplay(
        table, overall, evidence.coverage, MOST_GROUPS, names, "region", f"intervals {SURE}"
    )
    title = f"Coverage of {evidence.main} by region, {promise(evidence.coverage)} promised."
    yield "coverage_by_region", display.plot(plots.blank_axes(WIDTH)), title


def _model_pictures(evidence: Evidence, summary: dict[str, Any], important: Sequence[Hashable]) -> _Drawn:
    """Draw how the groups of the model came about."""
    model, labels = evidence.model, evidence.labels
    if model is None:
        return
    first = max(summary.get("importance", []), key=lambda entry: entry["share"], default=None)
    if first is not None and first["share"] > 0:  # if all are zero, the sentence says so
        title = f"Importance of columns: {first['feature']} most, {percent(first['share'])} of all."
        yield "importance", plots.ImportanceDisplay.from_estimator(model, ax=plots.blank_axes(WIDTH)), title
    if "choice_of_k" in summary and len(summary["choice_of_k"]["path"]) > 1:
        display = plots.ExplainedVarianceDisplay.from_estimator(model, ax=plots.blank_axes(WIDTH))
        yield "choice_of_k", display, summary["choice_of_k"]["sentence"]
    if evidence.X is not None and labels is not None and len(important) > 1:
        group_map = plots.GroupMapDisplay.from_labels(
            evidence.X, labels, important, max_points=MOST_POINTS, ax=plots.blank_axes(WIDTH)
        )
        yield "map", group_map, f"Groups in the plane of {group_map.across.name} and {group_map.along.name}."


def _row_pictures(evidence: Evidence, summary: dict[str, Any], important: Sequence[Hashable]) -> _Drawn:
    """Draw the intervals of the rows, if there are rows."""
    if not evidence.rows:
        return
    if "reliability" in summary:
        table = pd.DataFrame(summary["reliability"]).assign(method=evidence.main)
        reliability = plots.ReliabilityDisplay(table).plot(plots.blank_axes(WIDTH))
        yield "reliability", reliability, f"Coverage of {evidence.main} against what is asked for, at several levels."
    main, rows = evidence.main, evidence.rows[evidence.main]
    y, bounds = pd.Series(rows.rows.y, name=evidence.y_name), rows.intervals
    intervals = {method: audited.intervals for method, audited in evidence.rows.items()}
    widths = plots.WidthDisplay.from_predictions(y, intervals, ax=plots.blank_axes(WIDTH))
    yield "widths", widths, f"Distribution of the widths of {', '.join(intervals)}."

    if rows.prediction is None and not np.isfinite(bounds).any(axis=1).all():
        return  # an interval without any finite bound has no middle to draw
    options: dict[str, Any] = {"groups": evidence.labels, "prediction": rows.prediction, "method": main}
    options["max_points"] = MOST_POINTS
    # Against the most important column; without importances, against the prediction.
    x = find_column(evidence.X, important[0]) if evidence.X is not None and important else None
    display = plots.IntervalDisplay.from_predictions(y, bounds, x=x, **options, ax=plots.blank_axes(WIDTH))
    yield "intervals", display, f"Intervals of {main} against {display.column.name}, with what happened."

    if np.isfinite(rows.rows.width).any():
        options |= {"coverage": evidence.coverage, "ax": plots.blank_axes(WIDTH)}
        residuals = plots.WidthResidualDisplay.from_predictions(y, bounds, **options)
        yield "residuals", residuals, f"Absolute residuals of {main} against the width of its intervals."
