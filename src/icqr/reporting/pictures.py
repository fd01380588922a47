"""The report's pictures: displays as SVG, each with a title that says what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from icqr._tables import align, as_table
from icqr.auditing.findings import percent, promise
from icqr.plots import (
    ExplainedVarianceDisplay,
    GroupCoverageDisplay,
    GroupMapDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    WidthDisplay,
    WidthResidualDisplay,
    blank_axes,
    figure_to_svg,
)
from icqr.plots.axes import find_column
from icqr.plots.displays import Display
from icqr.plots.group_displays import most_important
from icqr.reporting.summary import Evidence

#: Inches; narrow, so that words stay large enough on a phone.
SIZE = 4.4, 4.2
#: How many points a picture holds at most: each takes about 80 bytes.
MOST_POINTS = 800
#: How many groups a picture of coverage holds at most; fewer for several methods, so that it fits on a screen.
MOST_GROUPS = 25
#: A name, a display, and what a screen reader says.
_Drawn: TypeAlias = Iterator[tuple[str, Display, str]]


def pictures_of(evidence: Evidence, summary: dict[str, Any]) -> dict[str, str]:
    """Return the pictures that can be drawn from what was given as SVG, by name."""
    if evidence.X is not None and evidence.model is not None:  # with the names by which the model knows the columns
        evidence = replace(evidence, X=align(as_table(evidence.X), evidence.model.columns_))
    importances = getattr(evidence.model, "importances_", None)
    important = [] if importances is None or not evidence.rows else most_important(importances, evidence.X)
    pictures = {}
    for name, display, title in [
        *_group_pictures(evidence, summary),
        *_model_pictures(evidence, summary, important),
        *_row_pictures(evidence, important),
    ]:
        if not hasattr(display, "figure_") or display.size[1] != SIZE[1]:  # as high as its rows need
            display.plot(blank_axes(SIZE[0], display.size[1]))
        pictures[name] = figure_to_svg(display.figure_, title=title)
    return pictures


def _group_pictures(evidence: Evidence, summary: dict[str, Any]) -> _Drawn:
    """Draw coverage in the groups of the model, and in those that the user gave to the audit."""
    main = evidence.main
    for kind, name in (("model group", "coverage_by_group"), ("group", "coverage_by_given_group")):
        groups = [entry for entry in summary.get("coverage_by_group", []) if entry["kind"] == kind]
        if not groups:
            continue
        methods = [method for method in evidence.audits if all(method in group["methods"] for group in groups)]
        table = pd.DataFrame(
            {"method": method, "group": group["group"], "n": group["n"], **group["methods"][method]}
            for method in methods
            for group in groups
        )
        overall = pd.DataFrame({"method": method, **evidence.audits[method].numbers} for method in methods)
        display = GroupCoverageDisplay(
            table,
            overall.astype({"n": int}),
            evidence.coverage,
            max_groups=max(8, MOST_GROUPS // len(methods)),
            names={group["group"]: group["name"] for group in groups},
        )
        covered = table.loc[table["method"] == main, "coverage"]
        title = f"Coverage of {main} by group, {promise(evidence.coverage)} promised: "
        yield name, display, f"{title}from {percent(covered.min())} to {percent(covered.max())}."


def _model_pictures(evidence: Evidence, summary: dict[str, Any], important: Sequence[Any]) -> _Drawn:
    model, labels = evidence.model, evidence.labels
    if summary.get("importance"):
        first = max(summary["importance"], key=lambda entry: entry["share"])
        title = f"Importance of columns: {first['feature']} most, {percent(first['share'])} of all."
        yield "importance", ImportanceDisplay.from_estimator(model, ax=blank_axes(*SIZE)), title
    if "choice_of_k" in summary and len(summary["choice_of_k"]["path"]) > 1:
        display = ExplainedVarianceDisplay.from_estimator(model, ax=blank_axes(*SIZE))
        yield "choice_of_k", display, summary["choice_of_k"]["sentence"]
    if labels is not None and len(important) > 1:
        plane = GroupMapDisplay.from_labels(evidence.X, labels, important, max_points=MOST_POINTS, ax=blank_axes(*SIZE))
        title = f"Groups in the plane of {plane.across.name} and {plane.along.name}."
        yield "map", plane, title


def _row_pictures(evidence: Evidence, important: Sequence[Any]) -> _Drawn:
    if not evidence.rows:
        return
    main, rows = evidence.main, evidence.rows[evidence.main]
    y, bounds = pd.Series(rows.rows.y, name=evidence.y_name), rows.intervals
    intervals = {method: audited.intervals for method, audited in evidence.rows.items()}
    widths = WidthDisplay.from_predictions(y, intervals, ax=blank_axes(*SIZE))
    yield "widths", widths, f"Distribution of the widths of {', '.join(intervals)}."

    if rows.prediction is None and not np.isfinite(bounds).any(axis=1).all():
        return  # an interval without any finite bound has no middle to draw
    options: dict[str, Any] = {"groups": evidence.labels, "prediction": rows.prediction, "method": main}
    options["max_points"] = MOST_POINTS
    # Against the most important column; without importances, against the prediction.
    x = find_column(evidence.X, important[0]) if important else None
    display = IntervalDisplay.from_predictions(y, bounds, x=x, **options, ax=blank_axes(*SIZE))
    yield "intervals", display, f"Intervals of {main} against {display.column.name}, with what happened."

    if np.isfinite(rows.rows.width).any():
        fit = WidthResidualDisplay.from_predictions(
            y, bounds, coverage=evidence.coverage, **options, ax=blank_axes(*SIZE)
        )
        yield "residuals", fit, f"Absolute residuals of {main} against the width of its intervals."
