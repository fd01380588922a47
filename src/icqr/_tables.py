"""What a user's table becomes: every check of X, kinds of columns, categories, missing values.

Users pass pandas, polars or arrays. Models and partitions get a DataFrame of numbers and categories, or a float array.
Only `column_kind` decides whether a column holds numbers, categories or dates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from reprlib import repr as shortened
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_array

from icqr._dates import DATE_TYPES, as_days, parts_of
from icqr._messages import did_you_mean, warn

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
Table: TypeAlias = pd.DataFrame | FloatArray
Kind: TypeAlias = Literal["number", "category", "date"]

#: Number of rows to work on at a time.
ROWS_AT_ONCE = 2**16
#: Larger tables are not copied.
MOST_COPIED = 2**24
_NUMBERS = (bool, int, float, Decimal, np.number, np.bool_)
_NO_DURATIONS = "columns must be numbers, categories or dates. Turn it into numbers first: / pd.Timedelta(days=1)."
#: Text that may be meant as dates.
_MAYBE_DATE = r"\d{1,4}[-./ ](\d{1,2}|[A-Za-z]{3,9})[-./ ]\d{2,4}([ T].*)?"
#: From this many different values on, text that looks like dates, or mostly like numbers, is warned about.
_MANY_VALUES = 20


# -- Tables ----------------------------------------------------------------------------------------------------------


def as_table(X: Any) -> Table:
    """Return a pandas DataFrame for pandas, polars and arrays of objects, and a 2-D float array for everything else.

    Missing values are allowed. Complex numbers, sparse matrices, and tables without rows or columns are refused. So are
    infinite values and durations: in an array at once, in a DataFrame by `Features`.

    Examples
    --------
    >>> as_table([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and 0 < X.size < 10_000 and np.isfinite(X).all():
        return X  # a service predicts a few rows at a time: the checks below would take longer than predicting
    package = type(X).__module__.partition(".")[0]
    if package in ("dask", "dask_expr"):
        raise TypeError(
            "X is a Dask collection, whose rows are not here: icqr.dask.AutoICQR (ICQR, CQR, QR, Naive) takes it, and "
            "icqr.dask.on_dask(model) any fitted model; or bring the rows here by X.compute()"
        )
    if package == "polars":
        if not hasattr(X, "get_column"):
            raise TypeError(
                f"X must be a polars DataFrame, got a polars {type(X).__name__}; call X.collect() or to_frame()"
            )
        # Convert column by column: `to_pandas` would need pyarrow.
        X = pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OUSM" and X.ndim == 2:
        X = pd.DataFrame(X)
    if isinstance(X, pd.DataFrame):
        # scikit-learn's estimator checks look for this wording.
        for count, what in zip(X.shape, ("sample(s)", "feature(s)"), strict=True):
            if count == 0:
                raise ValueError(f"Found array with 0 {what} (shape={X.shape}) while a minimum of 1 is required.")
        if not X.columns.is_unique:
            repeated = ", ".join(sorted({str(name) for name in X.columns[X.columns.duplicated()]}))
            raise ValueError(f"Column names must be unique; these appear more than once: {repeated}. Rename them.")
        return X
    if isinstance(X, pd.Series):
        raise ValueError(
            "Expected 2D array, got 1D array instead: X must be a table of rows, got a pandas Series; one row of a "
            "table is X.iloc[[0]], one column X[['name']]"
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "m":
        raise ValueError(f"X holds durations ({X.dtype}); {_NO_DURATIONS}")
    return np.asarray(check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", input_name="X"))


def align(X: Table, columns: list[Any] | pd.Index[Any] | None) -> Table:
    """Return new rows in the form of the training rows: with their columns in their order, or as an array if None.

    Columns are found by their names; others than the training rows' are left out. Rows without names get the training
    rows' names by position. This is for arrays, and for columns numbered 0, 1, … that were not numbered in training.

    Examples
    --------
    >>> align(np.array([[1.0, 2.0]]), pd.Index(["a", "b"])).columns.tolist()
    ['a', 'b']
    >>> align(pd.DataFrame({"other": [0], "b": [2], "a": [1]}), pd.Index(["a", "b"])).columns.tolist()
    ['a', 'b']
    """
    if columns is None:
        if not isinstance(X, pd.DataFrame):
            return X
        numbers = plain_numbers(X)
        if numbers is None:
            numbers = np.column_stack([as_numbers(X[name]).to_numpy(dtype=np.float64) for name in X.columns])
        return numbers
    if not isinstance(X, pd.DataFrame):
        return pd.DataFrame(X, columns=columns)
    names, known = list[Any](X.columns), list[Any](columns)
    if names == known:
        return X
    if names == list(range(len(names))):  # they have no names, only places
        if len(names) == len(known) and set(names).isdisjoint(known):
            return X.set_axis(columns, axis=1)
        raise ValueError(
            f"X must have the columns it had in fit: {known}, got columns numbered from 0 to {len(names) - 1}. Give a "
            "DataFrame with their names."
        )
    missing = [name for name in known if name not in X.columns]
    if missing:
        others = [str(name) for name in names if name not in known]
        hint = next(filter(None, (did_you_mean(str(name), others) for name in missing)), "")
        listed = ", ".join(map(repr, missing[:12])) + (f" and {len(missing) - 12} more" if len(missing) > 12 else "")
        raise ValueError(f"X lacks columns that it had in fit: {listed}; its columns are {shortened(names)}{hint}")
    return X[known]


def take_rows(X: Table, index: IntArray | slice) -> Table:
    """Return some rows of a table.

    Examples
    --------
    >>> take_rows(np.array([[1.0], [2.0]]), np.array([1]))
    array([[2.]])
    """
    if isinstance(index, slice) and index.start == 0 and index.stop >= len(X):
        return X  # all rows: a slice of a pandas table takes time
    return X.iloc[index] if isinstance(X, pd.DataFrame) else X[index]


def blocks(n_rows: int) -> list[slice]:
    """Cut rows into blocks, so that what is computed for one block takes little memory and stays in the cache.

    Examples
    --------
    >>> len(blocks(100)), len(blocks(1_000_000))
    (1, 16)
    """
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, n_rows, ROWS_AT_ONCE)]


def draw_rows(n: int, most: int | None, rng: np.random.Generator) -> IntArray:
    """Return the positions of all n rows, or of `most` rows drawn at random if there are more; in ascending order.

    Examples
    --------
    >>> draw_rows(3, None, np.random.default_rng(0)), len(draw_rows(100, 10, np.random.default_rng(0)))
    (array([0, 1, 2]), 10)
    """
    return np.arange(n) if most is None or n <= most else np.sort(rng.choice(n, size=most, replace=False))


def with_columns(X: Table, added: Mapping[str, FloatArray]) -> Table:
    """Return the table with these as its last columns, under names that no other column has.

    Examples
    --------
    >>> with_columns(pd.DataFrame({"a": [1]}), {"a": np.array([2.0])}).columns.tolist()
    ['a', 'a_']
    """
    if not isinstance(X, pd.DataFrame):
        return np.column_stack([X, *added.values()])
    table = X.copy()
    if isinstance(table.columns, pd.MultiIndex):
        table.columns = table.columns.to_flat_index()
    for name, values in added.items():
        table[free_name(name, list(table.columns))] = values
    return table


# -- Kinds of columns ------------------------------------------------------------------------------------------------


def column_kind(column: pd.Series[Any]) -> Kind:
    """Return what a column holds: numbers or truth values, categories (if any value is text), or dates.

    Raise TypeError if a value is none of these, and if dates come together with others.

    Examples
    --------
    >>> column_kind(pd.Series([1, 2.5])), column_kind(pd.Series(["Bern", None])), column_kind(pd.Series([1, "n/a"]))
    ('number', 'category', 'category')
    """
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype):
        return "category"
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return "number"
    if column.dtype.kind == "M":  # Arrow's too
        return "date"
    if column.dtype.kind == "m":
        raise TypeError(f"Column {column.name!r} holds durations ({column.dtype}); {_NO_DURATIONS}")
    kinds: set[Kind] = set()
    for value in column.dropna():
        if isinstance(value, str):
            kinds.add("category")
        elif isinstance(value, _NUMBERS):
            kinds.add("number")
        elif isinstance(value, DATE_TYPES):
            kinds.add("date")
        else:
            raise TypeError(
                f"Column {column.name!r}: each argument must be a string, a number or a date, got "
                f"{type(value).__name__}; turn it into one of these first."
            )
    if "date" in kinds and len(kinds) > 1:
        raise TypeError(
            f"Column {column.name!r} holds dates, and values that are none; pd.to_datetime(…, errors='coerce') makes "
            "these missing."
        )
    return "date" if "date" in kinds else "category" if "category" in kinds else "number"


def readable_columns(X: Table) -> list[int]:
    """Return the positions of the columns that are numbers, categories or dates.

    Examples
    --------
    >>> readable_columns(pd.DataFrame({"any": [{}], "day": pd.to_datetime(["2026-01-01"])}))
    [1]
    """

    def is_readable(column: pd.Series[Any]) -> bool:
        try:
            column_kind(column)
        except TypeError:
            return False
        return True

    if not isinstance(X, pd.DataFrame):
        return list(range(X.shape[1]))
    return [j for j in range(X.shape[1]) if is_readable(X.iloc[:, j])]


def is_mixed(column: pd.Series[Any]) -> bool:
    """Return whether a column holds both text and numbers, and nothing else."""
    if pd.api.types.infer_dtype(column, skipna=True) not in ("mixed", "mixed-integer"):
        return False
    known = column.dropna()
    text = sum(isinstance(value, str) for value in known)
    numbers = sum(isinstance(value, _NUMBERS) for value in known)
    return 0 < text < len(known) == text + numbers


def settle_kinds(X: Table) -> Table:
    """Return the table with each column of both text and numbers turned into categories.

    Otherwise a part of the rows that happens to hold only numbers would be taken for a column of numbers.

    Examples
    --------
    >>> settle_kinds(pd.DataFrame({"a": [1.5, "n/a"], "b": [1.5, 2.5]})).dtypes.astype(str).tolist()
    ['category', 'float64']
    """
    if not isinstance(X, pd.DataFrame):
        return X
    mixed = [name for name in X.columns if X[name].dtype == object and is_mixed(X[name])]
    return X.astype(dict.fromkeys(mixed, "category")) if mixed else X


def warn_about_text(X: Table) -> None:
    """Warn about text that looks like dates or numbers, and text of which more than half of the values are different.

    No model learns from such categories.
    """
    if not isinstance(X, pd.DataFrame) or len(X) < 100:
        return
    for name, column in X.items():
        text = pd.api.types.infer_dtype(column, skipna=True) == "string" or is_mixed(column)
        if not text:
            continue
        distinct = pd.Series(column.dropna().unique(), dtype=object).astype(str)
        share = pd.to_numeric(column.astype(object), errors="coerce").notna().mean()
        many = len(distinct) > _MANY_VALUES
        are_dates = many and bool(distinct.str.fullmatch(_MAYBE_DATE).all())
        mostly_numbers = many and 0.5 < share < 1  # numbers alone may be codes, such as postcodes
        if len(distinct) <= len(X) / 2 and not are_dates and not mostly_numbers:
            continue
        advice = "Drop it, or turn it into numbers or fewer categories."
        if are_dates or distinct.str.fullmatch(_MAYBE_DATE).mean() > 0.5:
            advice = f"They look like dates, for example {distinct[0]!r}: pd.to_datetime makes it dates."
        elif share > 0.5:
            advice = f"{share:.0%} of its values read as numbers: pd.to_numeric(…, errors='coerce') makes it numbers."
        warn(
            f"Column {name!r} holds text and {len(distinct)} of its {len(X)} values are different, so that its "
            f"categories say little. {advice}"
        )


def plain_numbers(X: pd.DataFrame) -> FloatArray | None:
    """Return a DataFrame's values if all its columns are plain numbers, none of them infinite; else None.

    Examples
    --------
    >>> plain_numbers(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}))
    array([[1. , 0.5],
           [2. , 1.5]])
    >>> plain_numbers(pd.DataFrame({"a": ["x"]}))
    """
    values = X.to_numpy()
    if values.dtype.kind not in "fiu":
        return None
    numbers = values.astype(np.float64, copy=False)
    return None if np.isinf(numbers).any() else numbers


def as_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column that held numbers in training as plain numbers, or raise if it no longer does."""
    if column.dtype.kind in ("m", "M"):
        raise ValueError(
            f"Column {column.name!r} held numbers in training and now holds dates or durations ({column.dtype}). Turn "
            "them into the numbers that they were in training."
        )
    if pd.api.types.is_complex_dtype(column.dtype):
        raise ValueError(f"Complex data not supported: column {column.name!r}.")
    numbers = column
    if not (isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu"):
        try:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Column {column.name!r} held numbers in training and now holds something else: {error}"
            ) from error
        numbers = pd.Series(values, index=column.index, name=column.name)
    infinite = np.isinf(numbers.to_numpy())
    if infinite.any():
        raise ValueError(
            f"Column {column.name!r} is infinite in row {int(np.flatnonzero(infinite)[0])}: infinity is not allowed. "
            "Replace it by a finite number or by a missing value."
        )
    return numbers


def known_values(column: pd.Series[Any], categories: pd.Index[Any]) -> pd.Series[Any]:
    """Return the values that are known categories, and a missing value in place of each other one.

    A number and a text match if the text reads as that number and no other category does, because a file reader may
    return the same column as either.

    Examples
    --------
    >>> known_values(pd.Series([1, "Rome"], dtype=object), pd.Index(["1", "Bern"])).tolist()
    ['1', nan]
    """
    values = column.astype(object).where(column.notna(), None)
    known = values.isin(categories)
    unknown = values[~known & column.notna()].unique()
    if not len(unknown):
        return values
    texts = _by_reading(category for category in categories if isinstance(category, str))
    numbers = _by_reading(category for category in categories if not isinstance(category, str))
    meant = {value: (numbers if isinstance(value, str) else texts).get(_reading(value)) for value in unknown}
    return values.where(known, values.map(meant))


def _by_reading(categories: Iterable[Any]) -> dict[float | str, Any]:
    """Return a dict from reading to category, without categories that read the same as another."""
    by_reading: dict[float | str, list[Any]] = {}
    for category in categories:
        by_reading.setdefault(_reading(category), []).append(category)
    return {reading: same[0] for reading, same in by_reading.items() if len(same) == 1}


def _reading(value: Any) -> float | str:
    """Return the number that a value reads as ("1.0" reads as 1), else its text."""
    try:
        return str(value) if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError):
        return str(value)


def free_name(wanted: str, names: Collection[Any]) -> Any:
    """Return a name for one more column, which no other has: a number if the others are not all text.

    Examples
    --------
    >>> free_name("hour", ["hour"]), free_name("hour", [0, 1])
    ('hour_', 2)
    """
    # scikit-learn refuses a mix of text and other names.
    name: Any = wanted if all(isinstance(known, str) for known in names) else len(names)
    while name in names:
        name += "_" if isinstance(name, str) else 1
    return name


class Features:
    """The columns of the training rows: their kinds, and the categories of text columns.

    Text, object and categorical columns become pandas categoricals with the categories of the training rows; other
    values become missing. Numbers, including nullable and boolean ones, become plain numbers, and dates become days. A
    column that is all missing in the training rows becomes zeros, whatever it holds later: it says nothing, and some
    models can't take it.

    Parameters
    ----------
    X : table
        Training rows, as :func:`as_table` returns them.
    max_categories : int, optional
        Keep only this many categories of a column, the most frequent ones; the others become missing.
    most_one_hot : int, optional
        A column with more categories than this gets no one-hot columns, but one column of their numbers.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [50, 70], "city": ["Bern", "Genf"]})
    >>> features = Features(frame)
    >>> list(features.categories)
    ['city']
    >>> features.transform(pd.DataFrame({"size": [60], "city": ["Rom"]}))["city"].isna().item()
    True
    """

    # Names of the columns of dates; and of their parts, which models get too: a name, the date's place and the part's.
    dates: Sequence[Any] = ()
    date_parts: Sequence[tuple[Any, int, str]] = ()

    def __init__(self, X: Table, max_categories: int | None = None, most_one_hot: int | None = None) -> None:
        self.categories: dict[Any, pd.Index[Any]] = {}
        self.lumped: dict[Any, int] = {}  # how many categories were not kept
        self.n_columns: int = X.shape[1]
        # For each column of the one-hot matrix: the column of X it comes from, and its category's code. -1 stands for
        # numbers, and for the codes of a column with too many categories.
        self.origins, self.codes = np.arange(self.n_columns), np.full(self.n_columns, -1)
        self.names: list[Any] | None = list(X.columns) if isinstance(X, pd.DataFrame) else None
        if not isinstance(X, pd.DataFrame):
            self.empty: set[Any] = set(np.flatnonzero(np.isnan(X).all(axis=0)).tolist())
            return
        if X.size < MOST_COPIED and all(isinstance(dtype, np.dtype) for dtype in X.dtypes):
            numbers = plain_numbers(X)
            if numbers is not None:  # the usual case, in one step
                self.empty = set(X.columns[np.asarray(np.isnan(numbers).all(axis=0))])
                return
        self.empty = {name for name in X.columns if X[name].isna().all()}
        one_hot: dict[Any, IntArray] = {}
        for name in X.columns.difference(list(self.empty), sort=False):
            kind = column_kind(X[name])
            if kind == "date":
                self._learn_date(X, name)
                continue
            if kind == "number":
                as_numbers(X[name])  # raises where a value is infinite or complex
                continue
            column = X[name]
            if not isinstance(column.dtype, pd.CategoricalDtype):
                # Convert to objects first: pandas fails on an Arrow dictionary with missing values.
                column = column.astype(object).astype("category")
            codes = column.cat.codes.to_numpy()
            counts = np.bincount(codes[codes >= 0], minlength=len(column.cat.categories))
            frequent = _most_frequent(counts, max_categories)
            self.categories[name] = column.cat.categories[frequent]
            if (counts > 0).sum() > len(frequent):
                self.lumped[name] = int((counts > 0).sum()) - len(frequent)
            is_wide = most_one_hot is not None and len(frequent) > most_one_hot
            one_hot[name] = np.array([-1]) if is_wide else np.arange(len(frequent))
        if one_hot:
            parts = [one_hot.get(name, np.array([-1])) for name in X.columns]
            self.origins = np.repeat(np.arange(self.n_columns), [len(part) for part in parts])
            self.codes = np.concatenate(parts)

    def _learn_date(self, X: pd.DataFrame, name: Any) -> None:
        self.dates = [*self.dates, name]
        for part in parts_of(as_days(X[name])):
            names = [*X.columns, *(taken for taken, _, _ in self.date_parts)]
            place = list(X.columns).index(name)
            self.date_parts = [*self.date_parts, (free_name(f"{name} {part}", names), place, part)]

    @property
    def is_plain(self) -> bool:
        """Whether columns of plain numbers stay as they are."""
        return not (self.categories or self.dates or self.empty)

    def transform(self, X: Table) -> Table:
        """Return rows in the form of the training rows: a DataFrame, or a float array."""
        X = align(X, self.names)
        if isinstance(X, pd.DataFrame):
            if self.is_plain and plain_numbers(X) is not None:
                return X
            columns = {name: self._transform_column(X[name]) for name in X.columns}
            return pd.DataFrame(columns, index=X.index, copy=False)
        if self.empty:
            X = X.copy()
            X[:, list(self.empty)] = 0.0
        return X

    def _transform_column(self, column: pd.Series[Any]) -> pd.Series[Any]:
        if column.name in self.empty:
            return pd.Series(0.0, index=column.index)
        if column.name in self.dates:
            return pd.Series(as_days(column), index=column.index)
        if column.name not in self.categories:
            return as_numbers(column)
        categories = self.categories[column.name]
        if isinstance(column.dtype, pd.CategoricalDtype) and column.cat.categories.equals(categories):
            known = pd.Categorical.from_codes(column.cat.codes.to_numpy(), categories=categories)
        else:
            known = pd.Categorical(known_values(column, categories), categories=categories)
        return pd.Series(known, index=column.index)

    def one_hot(self, X: Table) -> tuple[FloatArray, IntArray, list[tuple[Any, Any]]]:
        """Return a float matrix with one-hot categories, each column's origin, and each column's (name, category).

        The category is None for a column of numbers. A missing or unknown category is a row of zeros; in a column of
        codes it is -1.
        """
        names = [f"x{j}" for j in range(self.n_columns)] if self.names is None else self.names
        labels = [
            (names[j], None if code < 0 else self.categories[names[j]][code])
            for j, code in zip(self.origins.tolist(), self.codes.tolist(), strict=True)
        ]
        return self.one_hot_columns(X, np.arange(len(self.origins))), self.origins, labels

    def one_hot_columns(self, X: Table, positions: IntArray) -> FloatArray:
        """Return the columns at these positions of the one-hot matrix, as a new array."""
        origin, codes = self.origins[positions], self.codes[positions]
        if self.names is None:
            return np.array(np.asarray(self.transform(X))[:, origin], dtype=np.float64)
        frame = pd.DataFrame(align(X, self.names))
        if self.is_plain:
            # In pandas it takes longer to choose columns than to take them all, unless there are many values.
            chosen, places = (frame, origin) if frame.size < MOST_COPIED else (frame.iloc[:, origin], slice(None))
            numbers = plain_numbers(chosen)
            if numbers is not None:
                return np.array(numbers[:, places])
        matrix = np.empty((len(frame), len(positions)))
        for j in np.unique(origin):
            column, places = self._transform_column(frame.iloc[:, j]), np.flatnonzero(origin == j)
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            values = column.cat.codes.to_numpy() if is_category else column.to_numpy(dtype=np.float64)
            is_one_hot = codes[places[0]] >= 0
            matrix[:, places] = values[:, None] == codes[places] if is_one_hot else values[:, None]
        return matrix


def _most_frequent(counts: NDArray[np.integer[Any]], most: int | None) -> IntArray:
    """Return the codes of the most frequent categories, in ascending order, without those that never appear."""
    by_frequency = np.argsort(-counts, kind="stable")[:most]
    return np.sort(by_frequency[counts[by_frequency] > 0])
