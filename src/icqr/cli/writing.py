"""Tables of results as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from icqr._files import replacing
from icqr.auditing.findings import as_json, records

#: How a table's name may end; that says what it is written as.
ENDINGS = (".parquet", ".feather", ".csv", ".csv.gz", ".jsonl")


def check_destination(path: str, option: str, endings: Sequence[str]) -> None:
    """Say before any work is done why a file can't be written there.

    Examples
    --------
    >>> check_destination("intervals.xls", "--out", [".csv", ".parquet"])
    Traceback (most recent call last):
    ...
    ValueError: --out: the file's name must end in .csv or .parquet, got 'intervals.xls'
    """
    file = Path(path).expanduser()
    if not path.lower().endswith(tuple(endings)):
        allowed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise ValueError(f"{option}: the file's name must end in {allowed}, got {path!r}")
    if file.is_dir():
        raise ValueError(f"{option}: {path} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise ValueError(f"{option}: there is no folder {str(file.parent)!r}; make it first")
    if not os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ValueError(f"{option}: nothing may be written in the folder {str(file.parent)!r}; give another one")


def write_table(frame: pd.DataFrame, path: str) -> None:
    """Write a table in the format that the end of its name says; to "-" as CSV on standard output."""
    if path == "-":
        frame.to_csv(sys.stdout, index=False)
        return
    ending = Path(path).suffix.lower()
    with replacing(path) as part:
        if ending == ".parquet":
            frame.to_parquet(part, index=False)
        elif ending == ".feather":
            frame.to_feather(part)
        elif ending == ".jsonl":
            part.write_text("".join(f"{as_json(row)}\n" for row in records(frame)), encoding="utf-8")
        else:
            frame.to_csv(part, index=False, compression="gzip" if ending == ".gz" else None)
