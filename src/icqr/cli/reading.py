"""What DATA stands for, as a table: a file, standard input, a pattern of files, or a known data set; and its checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from icqr._messages import did_you_mean
from icqr.cli.columns import advice_on, are_numbers, as_series, as_written, csv_values, is_written_index
from icqr.cli.console import listed_names, note
from icqr.cli.formats import check_width, read_file
from icqr.cli.options import CALIBRATIONS, TextFormat, TrainingRows

if TYPE_CHECKING:
    import pyarrow as pa

#: A larger share of rows that are copies is worth a note.
_MOST_COPIES = 0.01
#: Rows are in the order of a column, and not by chance, if it has so many different values.
_FEWEST_VALUES = 20
_ROW_NUMBER_NAMES = ("id", "index", "instant", "row", "rownames", "unnamed: 0", "column 1")


@dataclass
class UserTable:
    """A table that was read: columns of numbers, text and dates, and what the user might not expect of them."""

    name: str
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    #: The column to predict, where it is known.
    target: str | None = None
    #: Columns as the file has them: an id keeps its leading zeros, and a date is a date.
    kept: pd.DataFrame = field(default_factory=pd.DataFrame)
    #: Names of columns that were not asked for.
    unused: list[str] = field(default_factory=list)
    text_format: TextFormat = field(default_factory=TextFormat)

    @property
    def names(self) -> list[str]:
        """Names of all columns that the file has."""
        return [*map(str, self.frame.columns), *self.unused]


# -- Rows to learn from ----------------------------------------------------------------------------------


def read_rows(
    data: str, rows: TrainingRows, text_format: TextFormat, *, drawn: bool = True
) -> tuple[str, pd.DataFrame, pd.Series[Any]]:
    """Return what the rows are, in words, their features and their target; tell the user what is odd about them.

    `drawn` says that some of them will be drawn at random to calibrate with, unless the rows are in time.
    """
    table = read_data(data, text_format, ignore=rows.ignore or ())
    target, order = target_of(table, rows), rows.order_by
    if order is not None:
        check_column(table.names, order, "--order-by")
        if holds_text(table.frame[order]):
            raise ValueError(
                f"--order-by: column {order!r} must hold dates or numbers, but it holds text, for example "
                f"{table.frame[order].dropna().iloc[0]!r}; if these are dates, say --date-format"
            )
    frame = check_numbers(table, {"--target": target}, rows.drop_missing, [order] if order else [])
    left_out = len(table.frame) - len(frame)
    if left_out:
        what = f"target or {order!r}" if order else "target"
        table.notes.append(f"{left_out:,} of {len(table.frame):,} rows are left out: their {what} is missing")
    X = frame.drop(columns=target)
    if not X.shape[1]:
        raise ValueError(f"{table.name} has no column beside the target {target!r}; there is nothing to predict from")
    note(*table.notes, *_notes_on_rows(frame, X, drawn and order is None))
    described = f"{table.name} ({len(X):,} rows, {X.shape[1]:,} columns, target {target!r})"
    return described, X, frame[target].astype(float)


def read_calibration(
    data: str, X: pd.DataFrame, y: pd.Series[Any], text_format: TextFormat, drop_missing: bool
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return the features and the target of rows to calibrate with, whose columns have the names of `X` and `y`."""
    target, as_text = str(y.name), [str(name) for name in X if holds_text(X[name])]
    try:
        table = read_data(data, text_format, as_text=as_text, only=[*X, target])
        for name in (*X, target):
            check_column(table.names, name, f"{table.name} lacks columns that DATA has")
        for name in X.columns.difference([*as_text, *X.select_dtypes("datetime")]):
            check_is_numbers(table, name, f"column {name!r} must hold numbers, as in DATA")
        frame = check_numbers(table, {"--target": target}, drop_missing)
    except ValueError as error:
        raise ValueError(f"--calibration {data}: {error}{did_you_mean(data, CALIBRATIONS)}") from error
    note(*(text for text in table.notes if "holds dates" not in text))
    return frame[[*X]], frame[target].astype(float)


def target_of(table: UserTable, rows: TrainingRows) -> str:
    """Return the column to predict; refuse columns to ignore that are not there."""
    for name in rows.ignore or ():
        check_column(table.names, name, "--ignore")
    target = table.target if rows.target is None else rows.target
    if target is None:
        columns = listed_names(table.frame.columns)
        raise ValueError(f"--target must be given with a file: the column to predict, one of {columns}")
    return target


def _notes_on_rows(frame: pd.DataFrame, X: pd.DataFrame, drawn: bool) -> Iterator[str]:
    """Yield notes on columns that say nothing, on copies, and if rows are `drawn` at random on rows in an order."""
    empty = [name for name in X if X[name].isna().all()]
    constant = [name for name in X if X[name].nunique(dropna=False) == 1 and name not in empty and len(X) > 1]
    numbering = [name for name in X if _numbers_rows(X[name])]
    for what, names in (
        ("without any value, which say nothing", empty),
        ("with the same value in all rows, which say nothing", constant),
        ("that seem to number the rows; if so, --ignore them", numbering),
    ):
        if names:
            yield f"columns {what}: {listed_names(names)}"

    copies = int(frame.duplicated().sum())
    if copies > _MOST_COPIES * len(frame):
        yield (
            f"{copies:,} of {len(frame):,} rows are copies of other rows, the target included; if a case is in the "
            "file twice, take one out: a row that trains must not calibrate too, or intervals get too narrow"
        )
    if not drawn:
        return
    ordered = []
    for name in X.select_dtypes(["number", "datetime"]).columns.difference(numbering, sort=False):
        known = X[name].dropna()
        is_sorted = known.is_monotonic_increasing or known.is_monotonic_decreasing
        if is_sorted and known.nunique() >= _FEWEST_VALUES:
            ordered.append(name)
    if ordered:
        yield (
            f"the rows are in the order of {listed_names(ordered)}; if that is time, a split at random promises too "
            f"much: --order-by {quote(ordered[0])} trains on the oldest rows and calibrates with the newest"
        )


def _numbers_rows(column: pd.Series[Any]) -> bool:
    """Tell whether a column may only number the rows: whole numbers, none twice, in steps of one or named as an id."""
    if not pd.api.types.is_integer_dtype(column.dtype) or len(column) < 10 or not column.is_unique:
        return False
    name = str(column.name).lower()
    is_named = name in _ROW_NUMBER_NAMES or name.endswith(("_id", " id"))
    return is_named or bool((column.diff().iloc[1:] == 1).all())


# -- Any table -------------------------------------------------------------------------------------------


def read_data(
    data: str,
    text_format: TextFormat,
    *,
    as_text: Collection[str] = (),
    only: Collection[str] | None = None,
    keep: Sequence[str] = (),
    ignore: Collection[str] = (),
) -> UserTable:
    """Read a file, standard input ("-"), Parquet files of a pattern, or a known data set, which comes after files.

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
    """
    table, is_csv, target = _open_data(data, text_format)
    table = table.drop_columns([column for column in table.column_names if is_written_index(column)])
    name = "standard input" if data == "-" else data
    check_width(table.num_columns, name)
    columns = [str(column).strip() or f"column {place}" for place, column in enumerate(table.column_names, start=1)]
    # The target of a known data set is read anyway.
    read = {column for column in columns if only is None or column in only or column == target} - {*ignore}
    twice = [column for column, n in Counter(columns).items() if n > 1 and (column in read or column in keep)]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")

    frame: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    notes: list[str] = []
    for column, values in zip(columns, table.columns, strict=True):
        if column in keep:
            kept[column] = as_written(values, text_format) if is_csv else values.to_pandas()
        if column in read:
            is_text = column in as_text
            if is_csv:
                values = csv_values(values, column, text_format, notes, as_text=is_text)
            frame[column] = as_series(values, column, text_format, notes, as_text=is_text)
    copies = pd.DataFrame({column: kept[column] for column in keep if column in kept})
    unused = list(dict.fromkeys(column for column in columns if column not in frame))
    return UserTable(name, pd.DataFrame(frame), notes, target, copies, unused, text_format)


def _open_data(data: str, text_format: TextFormat) -> tuple[pa.Table, bool, str | None]:
    """Return DATA as an Arrow table, whether it is of a CSV file, all text, and its target if that is known."""
    path = Path(data)
    if data == "-" or (path.exists() and not path.is_dir()):
        return *read_file(data, text_format), None
    if any(sign in data for sign in "*?["):
        from icqr.streaming import list_files, open_files

        return open_files(list_files(data)).to_table(), False, None

    from pyarrow import Table

    from icqr.datasets import list_datasets, load_dataset

    known = list_datasets()["name"].tolist()
    if data in known:
        X, y = load_dataset(data)
        return Table.from_pandas(X.assign(**{str(y.name): y}), preserve_index=False), False, str(y.name)
    if path.is_dir():
        inside = sorted(file.name for file in path.iterdir() if file.is_file())
        raise ValueError(f"{data} is a folder{f', which has {listed_names(inside)}' if inside else ''}; give a file")
    beside = [str(file) for file in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = did_you_mean(data, [*known, *beside])
    raise ValueError(f"there is no file {data!r}, and no data set of that name{hint}")


# -- Checks ----------------------------------------------------------------------------------------------


def check_column(known: Iterable[Any], name: str, option: str) -> None:
    """Raise if a name is not among the columns' names."""
    columns = [str(column) for column in known]
    if name in columns:
        return
    hint = did_you_mean(f"column {name}" if name.isdigit() else name, columns)
    if not hint and pd.to_numeric(pd.Series(columns, dtype=object), errors="coerce").notna().all():
        hint = "; if the first line of the file is a row and not the columns' names, say --no-header"
    raise ValueError(f"{option}: there is no column {name!r}; columns are {listed_names(columns)}{hint}")


def check_numbers(
    table: UserTable, names: Mapping[str, str], drop_missing: bool, others: Sequence[str] = ()
) -> pd.DataFrame:
    """Return the rows in which these columns, after their options, are known numbers; refuse text and gaps.

    In `others`, too, no value may be missing.
    """
    frame = table.frame
    for option, name in names.items():
        check_column(frame.columns, name, option)
        check_is_numbers(table, name, f"{option}: column {name!r} must hold numbers")
    missing = frame[[*names.values(), *others]].isna()
    rows = missing.any(axis=1)
    check_gaps(missing.sum(), int(rows.sum()), len(frame), drop_missing)
    return frame[~rows].reset_index(drop=True) if rows.any() else frame


def holds_text(column: pd.Series[Any]) -> bool:
    """Tell whether a column that was read holds text, and not numbers, true/false or dates."""
    return column.dtype == object or isinstance(column.dtype, pd.StringDtype)


def check_is_numbers(table: UserTable, name: str, rule: str) -> None:
    """Raise if values of a column are text or dates; `rule` says that they must be numbers."""
    known = table.frame[name].dropna()
    if known.dtype.kind == "M" and len(known):
        raise ValueError(f"{rule}, but it holds dates, for example {str(known.iloc[0]).removesuffix(' 00:00:00')!r}")
    if not len(known) or not holds_text(known):
        return
    is_number = are_numbers(known.astype(str), table.text_format)
    wrong = known if is_number.all() else known[~is_number]  # all of them: text in a Parquet file
    example = str(wrong.iloc[0])
    # Text in every row is no missing value.
    has_advice = is_number.any() or any(sign.isdigit() for sign in example)
    raise ValueError(
        f"{rule}, but {len(wrong):,} of {len(known):,} values are text, for example {example!r} in row "
        f"{wrong.index[0]:,}, counted from 0{f'; {advice_on(example)}' if has_advice else ''}"
    )


def check_gaps(gaps: pd.Series[int], without: int, n_rows: int, drop_missing: bool) -> None:
    """Raise if columns have gaps that the user did not say to drop, or nothing else; `without` counts their rows."""
    if without and not drop_missing:
        first = gaps.index[gaps > 0][0]
        raise ValueError(
            f"column {first!r} is missing in {gaps[first]:,} of {n_rows:,} rows; --drop-missing would leave out "
            f"{without:,} rows and keep {n_rows - without:,}"
        )
    if without == n_rows:
        raise ValueError(f"in every row one of {listed_names(gaps.index)} is missing; nothing is left")
