"""Tidy results as files: tables with a documented type for each column, and the settings they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icqr._files import replacing
from icqr.experiments.extras import need

#: Name, type and meaning of columns.
Columns = Mapping[str, tuple[str, str]]


def schema(columns: Columns, metadata: Mapping[str, Any] | None = None) -> Any:
    """Give the Arrow schema; the metadata is stored under the key `icqr`."""
    pa = need("pyarrow")
    kinds = {"string": pa.string(), "int32": pa.int32(), "float64": pa.float64()}
    kinds |= {"list<float32>": pa.list_(pa.float32()), "list<float64>": pa.list_(pa.float64())}
    fields = [pa.field(name, kinds[kind], metadata={"meaning": text}) for name, (kind, text) in columns.items()]
    return pa.schema(fields, metadata={"icqr": json.dumps(metadata or {})})


def as_table(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Any:
    """Give rows as an Arrow table; what a row lacks is missing."""
    rows = [{name: row.get(name) for name in columns} for row in rows]
    return need("pyarrow").Table.from_pylist(rows, schema=schema(columns))


def write_table(file: Path, rows: Any) -> None:
    """Write an Arrow table as Parquet; the file is whole or not there."""
    with replacing(file) as part:
        need("pyarrow.parquet").write_table(rows, part, compression="zstd")


def write_text(file: Path, text: str) -> None:
    """Write a text file that is whole or not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as part:
        part.write_text(text, encoding="utf-8")


def keep_settings(file: Path, settings: Mapping[str, Any], of: str) -> None:
    """Write the settings of results, or, where there are some already, refuse others and say what differs."""
    settings = json.loads(json.dumps(settings))
    if not file.exists():
        write_text(file, json.dumps(settings, indent=1))
        return
    stored = json.loads(file.read_text(encoding="utf-8"))
    differing = [
        f"{name} = {stored.get(name)!r}, not {value!r}" for name, value in settings.items() if stored.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"out must be a folder without results of {of}, or with results of the same settings, but "
            f"{file.parent} was written with {'; '.join(differing)}; give another folder, or delete this one"
        )
