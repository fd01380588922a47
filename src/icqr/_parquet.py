"""Parquet files that are one table: which they are, their columns, and pieces of them to read by themselves."""

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

#: Row groups of a file are read together up to so many bytes (unpacked).
PIECE_BYTES = 64_000_000


def listed(files: Files) -> list[str]:
    """Give the files that a path, a folder, a pattern or a list of them stands for, sorted within each."""
    if not isinstance(files, str | os.PathLike):
        return [found for one in files for found in listed(one)]
    path = os.fspath(files)
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**", "*.parquet")
    elif os.path.exists(path):
        return [path]
    found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not found:
        raise FileNotFoundError(f"there is no Parquet file at {os.fspath(files)}")
    return found


def schema_of(files: Sequence[str], columns: Iterable[str] | None = None) -> Any:
    """Give the columns that files share, each with a type that holds its values in all of them.

    Parameters
    ----------
    files : list of str
        Parquet files.
    columns : iterable of str, optional
        The columns that are wanted, which every file must have; by default all, and no file may have others.

    Returns
    -------
    pyarrow.Schema
    """
    schemas = {file: _footer(file).schema_arrow.remove_metadata() for file in files}
    wanted = list(columns) if columns is not None else list(dict.fromkeys(n for s in schemas.values() for n in s.names))
    for file, schema in schemas.items():
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise ValueError(f"{file} has no column {missing[0]!r}; its columns are {schema.names}")
    chosen = [pa.schema([schema.field(name) for name in wanted]) for schema in schemas.values()]
    try:
        if len({*chosen}) == 1:
            return chosen[0]
        return pa.unify_schemas([_without_categories(schema) for schema in chosen], promote_options="permissive")
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
    """Give a schema with categories as plain text: a column may be the one here and the other there."""
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
