"""What DATA stands for, and the rows in it: columns of numbers and text, features and target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from icqr.cli.columns import (
    FEWEST_VALUES,
    PLAIN_NUMBERS,
    as_series,
    as_written,
    is_written_index,
    maybe_thousands,
)
from icqr.cli.console import did_you_mean, listed_names, note
from icqr.cli.options import Source, TextFormat
from icqr.cli.reading import RawTable, check_width, read_file

#: Rows of the built-in data.
_BUILT_IN = 8000
#: A larger share of rows that are copies is worth a note.
_MOST_COPIES = 0.01
_ROW_NUMBER_NAMES = ("id", "index", "instant", "row", "rownames", "unnamed: 0", "column 1")


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
    known = []
    if data != "-" and (path.is_dir() or not path.exists()):
        from icqr.datasets import list_datasets, load_dataset

        known = list_datasets()["name"].tolist()
        if data in known:
            X, y = load_dataset(data)
            frame = X.assign(**{str(y.name): y})
            unused = [name for name in frame.columns if name in ignore]
            kept = frame[[name for name in keep if name in frame.columns]]
            return UserTable(data, frame.drop(columns=unused), target=str(y.name), kept=kept, unused=unused)

    if data == "-" or path.exists():  # of a folder the reader says what is in it
        raw = read_file(data, text_format, as_text, keep)
    elif any(sign in data for sign in "*?["):
        from icqr.streaming import list_files, open_files

        raw = RawTable(open_files(list_files(data)).to_table())
    else:
        beside = [str(file) for file in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(data, [*known, *beside])
        raise ValueError(f"there is no file {data!r}, and no data set of that name{hint}")
    return _as_user_table(raw, "standard input" if data == "-" else data, text_format, as_text, only, keep, ignore)


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
    read = {column for column in columns if column not in ignore and (only is None or column in only)}
    twice = [column for column, n in Counter(columns).items() if n > 1 and (column in read or column in keep)]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")

    notes: list[str] = []
    if text_format.decimal is None and text_format.thousands is None:
        notes += [text for column, text in maybe_thousands(raw.sample) if column in read]
    frame = {
        column: as_series(table.column(place), column, column in as_text, text_format, notes)
        for place, column in enumerate(columns)
        if column in read
    }

    kept = [column for column in keep if column in columns]
    if raw.texts is not None:
        texts = raw.texts.to_pandas()
        texts.columns = [column.strip() for column in texts.columns]
        copies = texts[kept].apply(as_written, args=(text_format.decimal_sign,))
    else:
        copies = table.select([columns.index(column) for column in kept]).to_pandas().set_axis(kept, axis=1)
    unused = list(dict.fromkeys(column for column in columns if column not in frame))
    return UserTable(name, pd.DataFrame(frame), notes, kept=copies, unused=unused)


# -- Rows ------------------------------------------------------------------------------------------------


def read_rows(data: str | None, source: Source, text_format: TextFormat) -> tuple[str, pd.DataFrame, pd.Series[Any]]:
    """Return what the rows are, in words, their features and their target; tell the user what is odd about them."""
    if data is None:
        from icqr.datasets import make_heteroscedastic

        X, y = make_heteroscedastic(_BUILT_IN, random_state=0, return_X_y=True)
        return f"built-in data whose spread grows along x1 ({_BUILT_IN:,} rows)", X, y

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
    for text in [*table.notes, *_oddities(frame, X)]:
        note(text)
    described = f"{table.name} ({len(X):,} rows, {X.shape[1]:,} columns, target {target!r})"
    return described, X, frame[target].astype(float)


def _oddities(frame: pd.DataFrame, X: pd.DataFrame) -> list[str]:
    """Return notes on columns that say nothing, and on rows that a split at random may not be right for."""
    empty = [name for name in X if X[name].isna().all()]
    constant = [name for name in X if X[name].nunique(dropna=False) == 1 and name not in empty and len(X) > 1]
    numbering = [name for name in X if _numbers_rows(X[name])]
    notes = [
        f"columns {what}: {listed_names(map(str, names))}"
        for what, names in (
            ("without any value, which say nothing", empty),
            ("with the same value in all rows, which say nothing", constant),
            ("that seem to number the rows; if so, --ignore them", numbering),
        )
        if names
    ]

    copies = int(frame.duplicated().sum())
    if copies > _MOST_COPIES * len(frame):
        notes.append(
            f"{copies:,} of {len(frame):,} rows are copies of other rows, the target included; if they are the same "
            "case twice, take them out of the file: what trains must not calibrate, or intervals are too narrow"
        )
    ordered = []
    for name in X.select_dtypes("number"):
        known = X[name].dropna()
        is_sorted = known.is_monotonic_increasing or known.is_monotonic_decreasing
        if is_sorted and known.nunique() >= FEWEST_VALUES and name not in numbering:
            ordered.append(str(name))
    if ordered:
        notes.append(
            f"the rows are in the order of {listed_names(ordered)}; if that is time, a split at random promises too "
            "much: fit on the older rows, and icqr recalibrate with the latest"
        )
    return notes


def _numbers_rows(column: pd.Series[Any]) -> bool:
    """Tell whether a column may only number the rows: whole numbers, none twice, in steps of one or named as an id."""
    if not pd.api.types.is_integer_dtype(column.dtype) or len(column) < 10 or not column.is_unique:
        return False
    name = str(column.name).lower()
    is_named = name in _ROW_NUMBER_NAMES or name.endswith(("_id", " id"))
    return is_named or bool((column.diff().iloc[1:] == 1).all())


# -- Checks ----------------------------------------------------------------------------------------------


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
                f"for example {example}; numbers are read if {PLAIN_NUMBERS}"
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
