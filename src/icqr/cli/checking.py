"""icqr audit: the intervals of any library, as a file has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from icqr.auditing import Audit, audit
from icqr.auditing.findings import as_json
from icqr.cli.building import need_report
from icqr.cli.console import note, progress, say, say_all, say_json
from icqr.cli.data import check_column, check_numbers, read_data
from icqr.cli.options import Bounds, Source
from icqr.reporting import report, summarize

#: The options that name columns of numbers.
OPTIONS = ("--target", "--lower", "--upper")


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
        check_column(rows, bounds.groups, "--groups")
    y, intervals = rows[names[0]], rows[list(names[1:])].to_numpy(dtype=float)
    features = rows.drop(columns=list(names))
    X = features if features.shape[1] else None
    labels = None if bounds.groups is None else rows[bounds.groups]
    found = audit(y, intervals, X, labels, coverage=bounds.coverage, random_state=seed)
    about = {"data": described, "intervals": f"columns {names[1]!r} and {names[2]!r}"}
    if report_path is not None:
        report(found, report_path, X, y, methods=intervals, about=about)
    return found, summarize(found, X, y, methods=intervals, about=about)


def say_audit(
    found: Audit, summary: dict[str, Any], report_path: str | None, json: bool, counted: Sequence[str] = ()
) -> None:
    """Print what an audit found; `counted` are sentences on all rows, where the audit is of a sample."""
    if json:
        say_json(as_json(summary))
        return
    say(found.summary, "bold")
    say()
    say_all([*counted, *found.findings[:-1]])
    if report_path is not None:
        say()
        say(f"Report: {report_path} (open it in a browser)")
