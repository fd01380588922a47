"""Parquet files as blocks of a Dask DataFrame: columns become numbers and text as in `icqr.cli.reading`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from icqr._cluster import gathered, on_each
from icqr._parquet import Piece, listed, pieces_of, schema_of
from icqr.cli.columns import as_series, is_written_index
from icqr.cli.data import check_column
from icqr.cli.reading import EVERYTHING, Wish
from icqr.cli.wording import listed_names
from icqr.dask import delayed_blocks


@dataclass(frozen=True)
class BlockTable:
    """Rows of Parquet files, none of them read yet.

    Attributes
    ----------
    name : str
        As the user wrote it.
    frame : Dask DataFrame
        Columns of numbers and text.
    example : DataFrame
        The same columns without a row.
    n_rows : int
        As the files' footers say.
    notes : list of str
        What is done to columns.
    unused : list of str
        Names of other columns.
    """

    name: str
    frame: Any
    example: pd.DataFrame
    n_rows: int
    notes: list[str]
    unused: list[str]


def open_blocks(data: str, wish: Wish = EVERYTHING) -> BlockTable:
    """Open Parquet files: a file, a folder or a pattern.

    Parameters
    ----------
    data : str
        As the user wrote it.
    wish : Wish
        What is wanted of their columns; those to keep are not read as well.
    """
    files = [str(Path(file).absolute()) for file in listed(data)]  # workers may be in another folder
    schema = schema_of(files)
    schema = pa.schema([field for field in schema if not is_written_index(field.name)])
    pieces = pieces_of(files)
    n_rows = sum(piece.n_rows for piece in pieces)
    if not n_rows or not schema.names:
        raise ValueError(f"{data}: {len(files):,} files without a row")
    unused = [name for name in schema.names if not wish.needs(name)]
    schema = pa.schema([field for field in schema if wish.needs(field.name)])
    # Text is text: whether it holds dates could be told only from all rows, and a block has some of them.
    texts = tuple(field.name for field in schema if field.name in wish.text or _is_text(field.type))
    kept = tuple(wish.keep)
    notes: list[str] = []
    example = _converted(schema.empty_table(), texts, kept, notes)
    with dask.config.set({"dataframe.convert-string": False}):  # text as the local engine has it
        given = {"schema": schema, "texts": texts, "kept": kept}
        frame = dd.from_map(read_block, pieces, **given, meta=example, label="read-parquet")
    return BlockTable(data, frame, example, n_rows, notes, unused)


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def read_block(piece: Piece, columns: Any = None, *, schema: Any, texts: Sequence[str], kept: Sequence[str]) -> Any:
    """Read a piece of a file; Dask asks for the `columns` that are used."""
    names = schema.names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    return _converted(piece.read(pa.schema([schema.field(name) for name in names])), texts, kept, [])


def _converted(table: Any, texts: Sequence[str], kept: Sequence[str], notes: list[str]) -> pd.DataFrame:
    def converted(name: str) -> Any:
        return table[name].to_pandas() if name in kept else as_series(table[name], name, name in texts, notes)

    return pd.DataFrame({name: converted(name) for name in table.column_names})


# -- Checks ----------------------------------------------------------------------------------------------------------


def check_block_numbers(table: BlockTable, names: Sequence[str], options: Sequence[str], drop_missing: bool) -> Any:
    """Give the rows in which these columns are known numbers, and how many; raise if they hold text or gaps."""
    for name, option in zip(names, options, strict=True):
        check_column(table.example.columns, name, option)
        if not pd.api.types.is_numeric_dtype(table.example[name].dtype):
            raise ValueError(f"{option}: column {name!r} must hold numbers, but it holds text")
    count = on_each(_missing, delayed_blocks(table.frame[list(names)]))
    gaps, without = (sum(found) for found in zip(*gathered(count, "looking for missing values"), strict=True))
    if not without:
        return table.frame, table.n_rows
    if not drop_missing:
        first = gaps.index[gaps > 0][0]
        raise ValueError(
            f"column {first!r} is missing in {gaps[first]:,} of {table.n_rows:,} rows; --drop-missing would leave out "
            f"{without:,} rows and keep {table.n_rows - without:,}"
        )
    if without == table.n_rows:
        raise ValueError(f"columns {listed_names(names)} have no row without a missing value; nothing is left")
    table.notes.append(f"{without:,} of {table.n_rows:,} rows are left out: {listed_names(names)} missing there")
    return table.frame.dropna(subset=list(names)), table.n_rows - without


def _missing(block: pd.DataFrame) -> tuple[pd.Series[int], int]:
    gaps = block.isna()
    return gaps.sum(), int(gaps.any(axis=1).sum())
