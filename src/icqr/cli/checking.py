"""icqr audit: the intervals of any library, as a file has them."""

from __future__ import annotations

from icqr.auditing import audit
from icqr.auditing.findings import as_json
from icqr.cli.building import need_report
from icqr.cli.console import note, progress, say, say_all, say_json
from icqr.cli.data import check_column, check_numbers, read_data
from icqr.cli.options import Bounds, Source
from icqr.reporting import report, summarize


def audit_intervals(
    source: Source, bounds: Bounds, groups: str | None, seed: int, report_path: str | None, json: bool
) -> None:
    """Do what `icqr audit` says."""
    need_report(report_path)
    with progress(3) as begin:
        begin("Reading the data")
        table = read_data(str(source.data), source.encoding)
        for text in table.notes:
            note(text)
        names = [str(source.target), bounds.lower, bounds.upper]
        rows = check_numbers(table.frame, names, ["--target", "--lower", "--upper"], source.drop_missing)
        if groups is not None:
            check_column(rows, groups, "--groups")
        y, intervals = rows[names[0]], rows[names[1:]].to_numpy(dtype=float)
        features = rows.drop(columns=names)
        X = features if features.shape[1] else None
        begin(f"Checking {len(rows):,} intervals")
        labels = None if groups is None else rows[groups]
        found = audit(y, intervals, X, labels, coverage=bounds.coverage, random_state=seed)
        begin("Putting the results together")
        about = {"data": f"{table.name} ({len(rows):,} rows)", "intervals": f"columns {names[1]!r} and {names[2]!r}"}
        if report_path is not None:
            report(found, report_path, X, y, methods=intervals, about=about)
        summary = summarize(found, X, y, methods=intervals, about=about)
    if json:
        say_json(as_json(summary))
        return
    say(found.summary, "bold")
    say()
    say_all(found.findings[:-1])
    if report_path is not None:
        say()
        say(f"Report: {report_path} (open it in a browser)")
