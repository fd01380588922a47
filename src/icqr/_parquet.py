"""Parquet files that are one table: which they are, their columns, and pieces that can be read by themselves."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

try:
    import pyarrow as pa
    import pyarrow.parquet
except ImportError as error:
    raise ImportError("Parquet files are read by pyarrow: pip install pyarrow") from error

Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Row groups of a file are read together up to this many bytes (unpacked).
PIECE_BYTES = 64_000_000


def listed(files: Files) -> list[str]:
    """Return the files that a path, a folder, a pattern or a list of them stands for, sorted within each."""
    if not isinstance(files, str | os.PathLike):
        return [path for item in files for path in listed(item)]
    path = os.fspath(files)
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**", "*.parquet")
    elif os.path.exists(path):
        return [path]
    paths = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not paths:
        raise FileNotFoundError(f"there is no Parquet file at {os.fspath(files)}")
    return paths


def schema_of(files: Sequence[str], columns: Iterable[str] | None = None) -> Any:
    """Return the columns that files share, each with a type that holds its values in all of them.

    Parameters
    ----------
    files : list of str
        Parquet files.
    columns : iterable of str, optional
        The columns to read, which every file must have; by default all, and no file may have others.

    Returns
    -------
    pyarrow.Schema
    """
    schemas = {file: _footer(file).schema_arrow.remove_metadata() for file in files}
    names = dict.fromkeys(name for schema in schemas.values() for name in schema.names) if columns is None else columns
    names = list(names)
    for file, schema in schemas.items():
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise ValueError(f"{file} has no column {missing[0]!r}; its columns are {schema.names}")
    selected = [pa.schema([schema.field(name) for name in names]) for schema in schemas.values()]
    try:
        if len({*selected}) == 1:
            return selected[0]
        return pa.unify_schemas([_without_categories(schema) for schema in selected], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"the files do not fit together: {error}. A column must be a number, or text, in all of them."
        ) from error


def _footer(file: str) -> Any:
    try:
        return pyarrow.parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} is not a Parquet file, or is damaged") from error


def _without_categories(schema: Any) -> Any:
    """Return a schema with categories as plain text: a column may be one here and the other there."""
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            schema = schema.set(place, field.with_type(field.type.value_type))
    return schema


# -- Pieces ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """Some row groups of a file, one after the other."""

    file: str
    row_groups: tuple[int, ...]
    n_rows: int

    def read(self, schema: Any) -> Any:
        """Read the schema's columns, as the types that it has for them."""
        with pyarrow.parquet.ParquetFile(self.file) as opened:
            table = opened.read_row_groups(list(self.row_groups), columns=schema.names, use_threads=False)
        return table.select(schema.names).cast(schema)


def pieces_of(files: Sequence[str]) -> list[Piece]:
    """Cut files into pieces of about `PIECE_BYTES`, by what their footers say; a row group is never cut."""
    pieces: list[Piece] = []
    for file in files:
        about = _footer(file).metadata
        groups: list[int] = []
        n_bytes = n_rows = 0
        for number in range(about.num_row_groups):
            group = about.row_group(number)
            if groups and n_bytes + group.total_byte_size > PIECE_BYTES:
                pieces.append(Piece(file, tuple(groups), n_rows))
                groups, n_bytes, n_rows = [], 0, 0
            groups.append(number)
            n_bytes, n_rows = n_bytes + group.total_byte_size, n_rows + group.num_rows
        if groups:
            pieces.append(Piece(file, tuple(groups), n_rows))
    return pieces
