"""icqr audit: the intervals of any library, as a file has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from icqr._predicting import EXPLAINED
from icqr.auditing import Audit, audit
from icqr.auditing.findings import as_json
from icqr.cli.building import need_report
from icqr.cli.console import note, progress, say, say_all, say_json, say_table
from icqr.cli.data import check_column, check_numbers, read_data
from icqr.cli.models import PREDICTED
from icqr.cli.options import Bounds, Source
from icqr.cli.wording import listed_names
from icqr.reporting import report, summarize
from icqr.reporting.report_tables import tables_of

#: The options that name columns of numbers.
OPTIONS = ("--target", "--lower", "--upper")
_MOST_GROUPS = 15


def audit_intervals(source: Source, bounds: Bounds, seed: int, report_path: str | None, json: bool) -> None:
    """Do what `icqr audit` says."""
    need_report(report_path)
    with progress(2) as begin:
        begin("Reading the data")
        table = read_data(str(source.data), source.encoding)
        for text in table.notes:
            note(text)
        names = interval_columns(source, bounds)
        rows = check_numbers(table.frame, names, OPTIONS, source.drop_missing)
        begin(f"Checking {len(rows):,} intervals")
        found, summary = judged(rows, names, bounds, seed, report_path, f"{table.name} ({len(rows):,} rows)")
    say_audit(found, summary, report_path, json)


def interval_columns(source: Source, bounds: Bounds) -> list[str]:
    """Give the columns that `OPTIONS` name."""
    return [str(source.target), bounds.lower, bounds.upper]


def judged(
    rows: pd.DataFrame, names: Sequence[str], bounds: Bounds, seed: int, report_path: str | None, described: str
) -> tuple[Audit, dict[str, Any]]:
    """Audit rows and write the report; give what was found, and a summary for machines."""
    if bounds.groups is not None:
        check_column(rows.columns, bounds.groups, "--groups")
    y, intervals = rows[names[0]], rows[list(names[1:])].to_numpy(dtype=float)
    crossed = int((intervals[:, 0] > intervals[:, 1]).sum())
    if crossed:
        raise ValueError(
            f"--lower {names[1]} is above --upper {names[2]} in {crossed:,} of {len(rows):,} rows; are the two swapped?"
        )
    features = rows.drop(columns=[*names, *_no_features(rows, bounds)])
    X = features if features.shape[1] else None
    labels = None if bounds.groups is None else rows[bounds.groups]
    found = audit(y, intervals, X, labels, coverage=bounds.coverage, random_state=seed)
    about = {"data": described, "intervals": f"columns {names[1]!r} and {names[2]!r}"}
    if report_path is not None:
        report(found, report_path, X, y, methods=intervals, about=about)
    return found, summarize(found, X, y, methods=intervals, about=about)


def _no_features(rows: pd.DataFrame, bounds: Bounds) -> list[str]:
    """Name columns in which no regions are looked for: the groups, judged anyway, and what `icqr predict` wrote."""
    given, columns = {bounds.groups}, set(rows.columns)
    found = EXPLAINED if set(EXPLAINED) <= columns else PREDICTED if set(PREDICTED) <= columns else ()
    written = set(found) - {"lower", "median", "upper"}
    if written - given:
        note(f"regions are not looked for in columns that icqr predict wrote: {listed_names(sorted(written - given))}")
    return [name for name in rows.columns if name in given | written]


def say_audit(
    found: Audit, summary: dict[str, Any], report_path: str | None, json: bool, counted: Sequence[str] = ()
) -> None:
    """Print what an audit found; `counted` are sentences on all rows, where the audit is of a sample."""
    if json:
        say_json(as_json(summary))
        return
    say(found.summary, "bold")
    say()
    said = [*counted, *found.findings[:-1]]
    if said:
        say_all(said)
        say()
    if not counted and "coverage_by_group" in summary:
        say_table(replace(tables_of(summary)["coverage_by_group"], note=""), most=_MOST_GROUPS)
    if report_path is not None:
        say(f"Report: {report_path} (open it in a browser)")
