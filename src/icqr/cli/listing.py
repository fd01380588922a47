"""icqr plan and datasets: what can be expected, and what there is."""

from __future__ import annotations

from icqr._sheet import Column, Sheet, cell, share, span
from icqr.auditing import plan
from icqr.auditing.findings import as_json, promise
from icqr.cli.console import say, say_json, say_table
from icqr.datasets import list_datasets


def say_plan(
    rows: int | None, coverage: float, n_groups: int, precision: float | None, confidence: float, json: bool
) -> None:
    """Do what `icqr plan` says."""
    found = plan(rows, coverage, n_groups, precision=precision, confidence=confidence)
    if json:
        say_json(found.to_json())
        return
    say(found.sentence, "bold")
    say()
    columns = [Column("Rows in a group"), Column("Rank"), Column("Promised"), Column("True coverage between")]
    cells = [
        [
            cell(one["rows"]),
            cell(one["rank"]),
            share(one["promised"]),
            span(one["band_lower"], one["band_upper"]),
        ]
        for one in found.to_dict()["table"]
    ]
    caption = f"Calibration rows in a group, and the coverage that {promise(confidence)} of all calibrations give"
    say_table(Sheet(columns, cells, caption))


def say_datasets(json: bool) -> None:
    """Do what `icqr datasets` says."""
    known = list_datasets()
    if json:
        say_json(as_json(known))
        return
    columns = [Column("Name", False), Column("Rows"), Column("Columns"), Column("Target", False), Column("Here", False)]
    rows = [
        [cell(one.name), cell(one.rows), cell(one.columns), cell(one.target), cell(one.available)]
        for one in known.itertuples(index=False)
    ]
    where = (
        "Files are looked up in the folder that ICQR_DATA_HOME names and in the user's cache; where a public address "
        "with the same bytes is known, they are downloaded when they are used."
    )
    say_table(Sheet(columns, rows, "Data sets that can stand for DATA", where))
