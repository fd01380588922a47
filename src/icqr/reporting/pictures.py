"""The report's pictures: displays as SVG, each with words that say what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

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
from icqr.plots.displays import Display
from icqr.plots.group_displays import most_important
from icqr.plots.placing import find_column
from icqr.reporting.evidence import Evidence

#: Inches; narrow, so that words stay large enough on a phone.
WIDTH = 4.4
#: How many points a picture holds at most: each takes about 80 bytes.
MOST_POINTS = 800
#: How many groups a picture of coverage holds at most; fewer for several methods, so that it fits on a screen.
MOST_GROUPS = 25


class Picture(NamedTuple):
    """A picture as SVG, and the line below it."""

    svg: str
    caption: str


def pictures_of(evidence: Evidence, summary: dict[str, Any]) -> dict[str, Picture]:
    """Give the pictures that can be drawn from what was given, by the section that they belong to."""
    if evidence.X is not None and evidence.model is not None:  # with the names by which the model knows the columns
        evidence = replace(evidence, X=align(as_table(evidence.X), evidence.model.columns_))
    return {
        name: Picture(_svg(display, title), caption)
        for name, display, title, caption in [
            *_of_groups(evidence, summary),
            *_of_model(evidence, summary),
            *_of_rows(evidence),
        ]
    }


#: A name, a display, what a screen reader says, and a caption.
_Drawn = Iterator[tuple[str, Display, str, str]]


def _svg(display: Display, title: str) -> str:
    figure = display.plot(blank_axes(WIDTH, display.size[1])).figure_
    return figure_to_svg(figure, title=title)


def _of_groups(evidence: Evidence, summary: dict[str, Any]) -> _Drawn:
    entries = summary.get("coverage_by_group", [])
    for kind, name in (("model group", "coverage_by_group"), ("group", "coverage_by_given_group")):
        chosen = [one for one in entries if one["kind"] == kind]
        if chosen:
            display = _group_coverage(evidence, chosen)
            yield (
                name,
                display,
                _coverage_words(chosen, evidence),
                "The table has these numbers, and those of all groups.",
            )


def _group_coverage(evidence: Evidence, entries: list[dict[str, Any]]) -> GroupCoverageDisplay:
    methods = [name for name in evidence.audits if all(name in one["methods"] for one in entries)]
    rows = [
        {"method": name, "group": one["group"], "n": one["n"], **one["methods"][name]}
        for name in methods
        for one in entries
    ]
    overall = [{"method": name, **evidence.audits[name].numbers} for name in methods]
    names = {one["group"]: one["name"] for one in entries}
    table, everything = pd.DataFrame(rows), pd.DataFrame(overall).astype({"n": int})
    most = max(8, MOST_GROUPS // len(methods))
    return GroupCoverageDisplay(table, everything, evidence.coverage, max_groups=most, names=names)


def _coverage_words(entries: list[dict[str, Any]], evidence: Evidence) -> str:
    main = evidence.main
    ordered = sorted(entries, key=lambda one: one["methods"][main]["coverage"])
    low, high = (f"{one['name']} with {percent(one['methods'][main]['coverage'])}" for one in (ordered[0], ordered[-1]))
    return f"Coverage of {main} by group, {promise(evidence.coverage)} promised: from {low} to {high}."


def _of_model(evidence: Evidence, summary: dict[str, Any]) -> _Drawn:
    model = evidence.model
    if summary.get("importance"):
        first = max(summary["importance"], key=lambda one: one["share"])
        words = f"Importance of columns: {first['feature']} most, {percent(first['share'])} of all."
        yield "importance", ImportanceDisplay.from_estimator(model, ax=blank_axes()), words, ""
    if "choice_of_k" in summary and len(summary["choice_of_k"]["path"]) > 1:
        display = ExplainedVarianceDisplay.from_estimator(model, ax=blank_axes())
        yield "choice_of_k", display, summary["choice_of_k"]["sentence"], ""
    labels, important = evidence.labels, _most_important(evidence)
    if labels is not None and len(important) > 1:
        drawn = GroupMapDisplay.from_labels(evidence.X, labels, important, max_points=MOST_POINTS, ax=blank_axes())
        words = f"Groups in the plane of {drawn.across.name} and {drawn.along.name}."
        yield "map", drawn, words, "Two of the most important columns; groups that differ in others lie on each other."


def _of_rows(evidence: Evidence) -> _Drawn:
    if not evidence.rows:
        return
    main, rows = evidence.main, evidence.rows[evidence.main]
    y, name = rows.rows.y, evidence.y_name
    intervals = {method: audited.intervals for method, audited in evidence.rows.items()}
    display = WidthDisplay.from_predictions(y, intervals, y_name=name, ax=blank_axes())
    yield "widths", display, f"Distribution of the widths of {', '.join(intervals)}.", ""
    options: dict[str, Any] = {"groups": evidence.labels, "prediction": rows.prediction, "method": main}
    options |= {"y_name": name, "max_points": MOST_POINTS}
    if options["prediction"] is None and not np.isfinite(rows.intervals).any(axis=1).all():
        return  # an interval without any finite bound has no middle to draw
    shown = IntervalDisplay.from_predictions(y, rows.intervals, **options, **_across(evidence), ax=blank_axes())
    yield "intervals", shown, f"Intervals of {main} against {shown.column.name}, with what happened.", ""
    if np.isfinite(rows.rows.width).any():
        words = "Where intervals follow the error, the line with marks runs along the dotted one."
        fit = WidthResidualDisplay.from_predictions(
            y, rows.intervals, coverage=evidence.coverage, **options, ax=blank_axes()
        )
        yield "residuals", fit, f"Absolute residuals of {main} against the width of its intervals.", words


def _most_important(evidence: Evidence) -> list[Any]:
    """Give the two columns to draw by; none if the model has no importances or there are no rows."""
    table = getattr(evidence.model, "importances_", None)
    return [] if table is None or not evidence.rows else most_important(table, evidence.X)


def _across(evidence: Evidence) -> dict[str, Any]:
    """Give the most important column as the picture's x; without importances, it is the prediction."""
    names = _most_important(evidence)
    return {"x": find_column(evidence.X, names[0]), "x_name": str(names[0])} if names else {}
