"""What DATA stands for, and the rows in it: columns of numbers and text, features and target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from icqr.cli import notes
from icqr.cli.console import did_you_mean, listed_names
from icqr.cli.options import Source, TextFormat
from icqr.cli.reading import (
    MISSING,
    RawTable,
    as_series,
    as_written,
    check_width,
    is_written_index,
    read_file,
    read_parquet_files,
)
from icqr.datasets import list_datasets, load_dataset, make_heteroscedastic

#: Rows of the built-in data.
_BUILT_IN = 8000


@dataclass
class UserTable:
    """A table that was read: columns of numbers and text, and what the user might not expect of them."""

    name: str
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    #: The column to predict, where it is known.
    target: str | None = None
    #: Columns as the file has them: an id keeps its leading zeros, and a date is a date.
    kept: pd.DataFrame = field(default_factory=pd.DataFrame)
    #: Names of columns that were not asked for.
    unused: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns that the file has."""
        return [*map(str, self.frame.columns), *self.unused]


def read_data(
    data: str,
    text_format: TextFormat,
    *,
    as_text: Collection[str] = (),
    only: Collection[str] | None = None,
    keep: Sequence[str] = (),
    ignore: Collection[str] = (),
) -> UserTable:
    r"""Read a file, standard input ("-"), Parquet files of a pattern, or a known data set, which comes after files.

    Parameters
    ----------
    data : str
        As the user wrote it.
    text_format : TextFormat
        How a CSV file is written.
    as_text : collection of str
        Columns to take as text even if all their values look like numbers.
    only, ignore : collection of str
        Columns to read as numbers or text (by default all), and columns not to read; of the others only the names are
        looked at.
    keep : sequence of str
        Columns to return as the file has them, too.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rooms.csv")
    ...     size = file.write_text("size;city\n12,5;Bern\n20;Genf\n", encoding="utf-8")
    ...     read_data(str(file), TextFormat(decimal=",")).frame
       size  city
    0  12.5  Bern
    1  20.0  Genf
    """
    path = Path(data)
    is_file = data == "-" or (path.exists() and not path.is_dir())
    known = [] if is_file else list_datasets()["name"].tolist()
    if data in known:
        X, y = load_dataset(data)
        frame = X.assign(**{str(y.name): y})
        unused = [name for name in frame.columns if name in ignore]
        kept = frame[[name for name in keep if name in frame.columns]]
        return UserTable(data, frame.drop(columns=unused), target=str(y.name), kept=kept, unused=unused)

    if is_file or path.is_dir():  # of a folder the reader says what is in it
        raw = read_file(data, text_format, as_text, keep)
    elif any(sign in data for sign in "*?["):
        raw = RawTable(read_parquet_files(data))
    else:
        beside = [str(file) for file in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(data, [*known, *beside])
        raise ValueError(f"there is no file {data!r}, and no data set of that name{hint}")
    wanted = set(only) - set(ignore) if only is not None else None
    return _as_user_table(raw, "standard input" if data == "-" else data, text_format, as_text, wanted, keep, ignore)


def _as_user_table(
    raw: RawTable,
    name: str,
    text_format: TextFormat,
    as_text: Collection[str],
    only: Collection[str] | None,
    keep: Sequence[str],
    ignore: Collection[str],
) -> UserTable:
    table = raw.columns.drop_columns([column for column in raw.columns.column_names if is_written_index(column)])
    check_width(table.num_columns, name)
    columns = [str(column).strip() or f"column {place}" for place, column in enumerate(table.column_names, start=1)]

    def is_read(column: str) -> bool:
        return column not in ignore and (only is None or column in only)

    twice = [column for column, n in Counter(columns).items() if n > 1 and (is_read(column) or column in keep)]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")

    found: list[str] = []
    if text_format.decimal is None and text_format.thousands is None:
        found += [text for column, text in notes.maybe_thousands(raw.sample, MISSING) if is_read(column)]
    frame = {
        column: as_series(table.column(place), column, column in as_text, text_format, found)
        for place, column in enumerate(columns)
        if is_read(column)
    }
    kept = [column for column in keep if column in columns]
    if raw.texts is not None:
        texts = raw.texts.to_pandas()
        texts.columns = [column.strip() for column in texts.columns]
        copies = texts[kept].apply(as_written, args=(text_format.decimal_sign,))
    else:
        copies = table.select([columns.index(column) for column in kept]).to_pandas().set_axis(kept, axis=1)
    unused = list(dict.fromkeys(column for column in columns if column not in frame))
    return UserTable(name, pd.DataFrame(frame), found, kept=copies, unused=unused)


# -- Rows ------------------------------------------------------------------------------------------------


def read_rows(
    data: str | None, source: Source, text_format: TextFormat
) -> tuple[str, pd.DataFrame, pd.Series[Any], list[str]]:
    """Return what the rows are, in words, their features, their target, and notes on what is odd about them."""
    if data is None:
        X, y = make_heteroscedastic(_BUILT_IN, random_state=0, return_X_y=True)
        return f"built-in data whose spread grows along x1 ({_BUILT_IN:,} rows)", X, y, []

    ignore = source.ignore or []
    table = read_data(data, text_format, ignore=ignore)
    for name in ignore:
        check_column(table.names, name, "--ignore")
    target = table.target if source.target is None else source.target
    if target is None:
        columns = listed_names(map(str, table.frame.columns))
        raise ValueError(f"--target must be given with a file: the column to predict, one of {columns}")

    frame = check_numbers(table.frame, {"--target": target}, source.drop_missing)
    left_out = len(table.frame) - len(frame)
    if left_out:
        table.notes.append(f"{left_out:,} of {len(table.frame):,} rows are left out: their target is missing")
    X = frame.drop(columns=target)
    if not X.shape[1]:
        raise ValueError(f"{table.name} has no column beside the target {target!r}; there is nothing to predict from")
    found = [*table.notes, *notes.odd_columns(X), *notes.odd_rows(frame, target)]
    return (
        f"{table.name} ({len(X):,} rows, {X.shape[1]:,} columns, target {target!r})",
        X,
        frame[target].astype(float),
        found,
    )


def check_column(known: Iterable[Any], name: str, option: str) -> None:
    """Raise if a name is not among the columns' names."""
    columns = [str(column) for column in known]
    if name in columns:
        return
    hint = did_you_mean(name, columns)
    if not hint and pd.to_numeric(pd.Series(columns, dtype=object), errors="coerce").notna().all():
        hint = "; if the first line of the file is a row and not the columns' names, say --no-header"
    raise ValueError(f"{option}: there is no column {name!r}; columns are {listed_names(columns)}{hint}")


def check_numbers(frame: pd.DataFrame, names: Mapping[str, str], drop_missing: bool) -> pd.DataFrame:
    """Return the rows in which these columns, after their options, are known numbers; refuse text and gaps."""
    for option, name in names.items():
        check_column(frame.columns, name, option)
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            known = column.dropna()
            wrong = known[pd.to_numeric(known.astype(object), errors="coerce").isna()]
            example = (
                f"{wrong.iloc[0]!r} in row {wrong.index[0]:,}, counted from 0" if len(wrong) else "numbers as text"
            )
            raise ValueError(
                f"{option}: column {name!r} must hold numbers, but {len(wrong):,} of {len(known):,} values are text, "
                f"for example {example}; numbers are read if {notes.PLAIN_NUMBERS}"
            )
    missing = frame[list(names.values())].isna()
    rows = missing.any(axis=1)
    check_gaps(missing.sum(), int(rows.sum()), len(frame), drop_missing)
    return frame[~rows].reset_index(drop=True) if rows.any() else frame


def check_gaps(gaps: pd.Series[int], without: int, n_rows: int, drop_missing: bool) -> None:
    """Raise if columns have gaps that the user did not say to drop, or nothing else; `without` counts their rows."""
    if without and not drop_missing:
        first = gaps.index[gaps > 0][0]
        raise ValueError(
            f"column {first!r} is missing in {gaps[first]:,} of {n_rows:,} rows; --drop-missing would leave out "
            f"{without:,} rows and keep {n_rows - without:,}"
        )
    if without == n_rows:
        raise ValueError(f"columns {listed_names(gaps.index)} have no row without a missing value; nothing is left")
