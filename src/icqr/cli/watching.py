"""The steps of icqr watch: a monitor that goes on where its file ended, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import typer

from icqr import Monitor
from icqr._predicting import IntervalRegressor
from icqr._sheet import Column, Sheet, cell, share, span
from icqr.auditing.findings import as_json, promise, records
from icqr.cli.console import say, say_sheet

_MOST_GROUPS = 50


def open_monitor(state: str, model: IntervalRegressor, coverage: float | None, error_rate: float | None) -> Monitor:
    """Return the monitor that a file holds, or a new one if there is no such file."""
    if not Path(state).expanduser().exists():
        return Monitor(model, coverage, 0.05 if error_rate is None else error_rate)
    monitor = Monitor.load(Path(state).expanduser(), model)
    for option, value, known in (
        ("coverage", coverage, monitor.coverage),
        ("error-rate", error_rate, monitor.error_rate),
    ):
        if value is not None and value != known:
            raise ValueError(
                f"--{option} {value:g}: {state} was begun with {known:g}, and evidence can't be carried over; leave "
                "the option out, or give --state another file"
            )
    return monitor


def say_monitor(monitor: Monitor, data: str, as_document: bool) -> None:
    """Print the alarms, and a table of all groups."""
    status = monitor.status()
    if as_document:
        typer.echo(as_json({"rows": monitor.n_rows, "alarms": monitor.alarms, "groups": status}))
        return
    say(f"{monitor.n_rows:,} rows with their labels so far, the last from {data}.")
    say()
    for sentence in monitor.alarms:
        say(f"- {sentence}")
    if not monitor.alarms:
        say("No alarm: coverage is what was promised, as far as these rows can tell.", "bold")
    say()
    labels = ("Group", "Rule", "Rows", "Covered", "True coverage", "Promised", "Alarm")
    columns = [Column(label, label not in ("Group", "Rule", "Alarm")) for label in labels]
    cells = [
        [
            *(cell(row[name]) for name in ("group", "rule", "n")),
            share(row["coverage"]),
            span(row["band_lower"], row["band_upper"]),
            share(row["promised"]),
            cell(row["alarm"] or None),
        ]
        for row in records(status)
    ]
    note = (
        "True coverage: very likely between these, however often you look, as long as it stays the same "
        f"({promise(1 - monitor.error_rate)} sure in each group)."
    )
    say_sheet(Sheet(columns, cells, "Coverage in each group so far", note), most=_MOST_GROUPS)
