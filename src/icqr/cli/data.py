"""What DATA stands for, and the rows in it: features and target."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from icqr.cli.columns import PLAIN_NUMBERS
from icqr.cli.console import note
from icqr.cli.options import Source
from icqr.cli.reading import EVERYTHING, Table, Wish, read_parquet_files, read_table
from icqr.cli.wording import did_you_mean, listed_names
from icqr.datasets import list_datasets, load_dataset, make_heteroscedastic

#: Rows of the built-in data.
_BUILT_IN = 8000
#: A larger share of rows that are copies, and a column in order with so many values or more, are worth a note.
_MOST_COPIES, _FEWEST_IN_ORDER = 0.01, 20
_ROW_NUMBER_NAMES = ("id", "index", "instant", "row", "rownames", "unnamed: 0", "column 1")


def read_data(data: str, encoding: str | None = None, wish: Wish = EVERYTHING) -> Table:
    """Read a file, standard input ("-"), Parquet files of a pattern, or a known data set, which comes after files.

    Examples
    --------
    >>> read_data("sine_spread").frame.columns.tolist()
    ['x1', 'x2', 'y']
    """
    path = Path(data)
    if data == "-" or (path.exists() and not path.is_dir()):
        return read_table(data, encoding=encoding, wish=wish)
    known = list_datasets()["name"].tolist()
    if data in known:
        X, y = load_dataset(data)
        frame = X.assign(**{str(y.name): y})
        kept = frame[[name for name in wish.keep if name in frame.columns]]
        unused = [name for name in frame.columns if name in wish.ignore]
        return Table(data, frame.drop(columns=unused), target=str(y.name), kept=kept, unused=unused)
    if path.is_dir():
        return read_table(data)
    if any(sign in data for sign in "*?["):
        return read_parquet_files(data, wish)
    beside = [str(file) for file in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ValueError(f"there is no file {data!r}, and no data set of that name{did_you_mean(data, [*known, *beside])}")


def read_rows(source: Source) -> tuple[str, pd.DataFrame, pd.Series[Any]]:
    """Give what the rows are, in words, their features and their target; say what is odd about them."""
    if source.data is None:
        X, y = make_heteroscedastic(_BUILT_IN, random_state=0, return_X_y=True)
        return f"built-in data whose spread grows along x1 ({_BUILT_IN:,} rows)", X, y
    table = read_data(source.data, source.encoding, Wish(ignore=source.ignore))
    for name in source.ignore:
        check_column(table.names, name, "--ignore")
    target = table.target if source.target is None else source.target
    if target is None:
        columns = listed_names(map(str, table.frame.columns))
        raise ValueError(f"--target must be given with a file: the column to predict, one of {columns}")
    X, y = split_target(table, target, source.drop_missing)
    for text in table.notes:
        note(text)
    return f"{table.name} ({len(X):,} rows, {X.shape[1]:,} columns, target {target!r})", X, y


def check_column(known: Iterable[Any], name: str, option: str) -> None:
    """Raise if a name is not among the columns' names."""
    columns = [str(one) for one in known]
    if name in columns:
        return
    hint = did_you_mean(name, columns)
    if not hint and all(_is_number(one) for one in columns):
        hint = "; the first line of a CSV file must be the columns' names"
    raise ValueError(f"{option}: there is no column {name!r}; columns are {listed_names(columns)}{hint}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_numbers(
    frame: pd.DataFrame, names: Collection[str], options: Collection[str], drop_missing: bool
) -> pd.DataFrame:
    """Give the rows in which these columns are known numbers; raise if they hold text or, unless dropped, gaps."""
    for name, option in zip(names, options, strict=True):
        check_column(frame.columns, name, option)
        _check_no_text(frame[name], name, option)
    missing = frame[list(names)].isna()
    rows = missing.any(axis=1)
    if rows.any() and not drop_missing:
        counts = missing.sum()
        first = counts.index[counts > 0][0]
        raise ValueError(
            f"column {first!r} is missing in {counts[first]:,} of {len(frame):,} rows; --drop-missing would leave out "
            f"{rows.sum():,} rows and keep {(~rows).sum():,}"
        )
    if rows.all():
        raise ValueError(f"columns {listed_names(names)} have no row without a missing value; nothing is left")
    return frame[~rows].reset_index(drop=True) if rows.any() else frame


def _check_no_text(column: pd.Series[Any], name: str, option: str) -> None:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return
    known = column.dropna()
    wrong = known[pd.to_numeric(known.astype(object), errors="coerce").isna()]
    example = (
        f"{wrong.iloc[0]!r} in row {wrong.index[0]:,}, counted from 0" if len(wrong) else "numbers written as text"
    )
    raise ValueError(
        f"{option}: column {name!r} must hold numbers, but {len(wrong):,} of {len(known):,} values are text, for "
        f"example {example}; numbers are read if {PLAIN_NUMBERS}"
    )


def split_target(table: Table, target: str, drop_missing: bool) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Give the features and the target, and add to the table's notes what is odd about them."""
    frame = check_numbers(table.frame, [target], ["--target"], drop_missing)
    left_out = len(table.frame) - len(frame)
    if left_out:
        table.notes.append(f"{left_out:,} of {len(table.frame):,} rows are left out: their target is missing")
    X = frame.drop(columns=target)
    if not X.shape[1]:
        raise ValueError(f"{table.name} has no column beside the target {target!r}; there is nothing to predict from")
    table.notes += [*_odd_columns(X), *_odd_rows(frame, target)]
    return X, frame[target].astype(float)


def _odd_rows(frame: pd.DataFrame, target: str) -> list[str]:
    """Tell of rows that a split at random may not be right for: copies of each other, and rows in an order."""
    said, copies = [], int(frame.duplicated().sum())
    if copies > _MOST_COPIES * len(frame):
        said.append(
            f"{copies:,} of {len(frame):,} rows are copies of other rows, the target included; if they are the same "
            "case twice, take them out of the file: what trains must not calibrate, or intervals are too narrow"
        )
    ordered = [str(name) for name in frame.columns if name != target and _orders_rows(frame[name])]
    if ordered:
        said.append(
            f"the rows are in the order of {listed_names(ordered)}; if that is time, a split at random promises too "
            "much: fit on the older rows, and icqr recalibrate with the latest"
        )
    return said


def _orders_rows(column: pd.Series[Any]) -> bool:
    if not pd.api.types.is_numeric_dtype(column.dtype) or column.nunique() < _FEWEST_IN_ORDER or _numbers_rows(column):
        return False
    known = column.dropna()
    return bool(known.is_monotonic_increasing or known.is_monotonic_decreasing)


def _odd_columns(X: pd.DataFrame) -> list[str]:
    """Tell of columns that say nothing, or that may only number the rows."""
    empty = [str(name) for name in X.columns if X[name].isna().all()]
    constant = [str(name) for name in X.columns if X[name].nunique(dropna=False) == 1 and name not in empty]
    numbering = [str(name) for name in X.columns if _numbers_rows(X[name])]
    said = []
    if empty:
        said.append(f"columns without any value, which say nothing: {listed_names(empty)}")
    if constant and len(X) > 1:
        said.append(f"columns with the same value in all rows, which say nothing: {listed_names(constant)}")
    if numbering:
        said.append(f"columns that seem to number the rows; if so, --ignore them: {listed_names(numbering)}")
    return said


def _numbers_rows(column: pd.Series[Any]) -> bool:
    if not pd.api.types.is_integer_dtype(column.dtype) or len(column) < 10 or not column.is_unique:
        return False
    consecutive = bool((column.diff().iloc[1:] == 1).all())
    name = str(column.name).lower()
    return consecutive or name in _ROW_NUMBER_NAMES or name.endswith(("_id", " id"))
