"""Features as people have them: pandas, polars or arrays in; one table that models and partitions can use out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_array

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
Table: TypeAlias = pd.DataFrame | FloatArray

#: Rows that are worked on at a time.
ROWS_AT_ONCE = 2**16
#: A column gets at most so many one-hot columns, for its most frequent categories: memory stays bounded.
MOST_ONE_HOT = 255
#: Of tables with more values no copy is made.
MOST_COPIED = 2**24
_NUMBERS = (bool, int, float, Decimal, np.number, np.bool_)
_NO_DATES = (
    "columns must be numbers or categories. Turn it into numbers first (for example year, month, hour, or days since a "
    "start)."
)


def as_table(X: Any) -> Table:
    """Give a pandas DataFrame for pandas and polars input and for arrays of objects, else a 2-D float array.

    Missing values are allowed. Complex numbers, sparse matrices, and tables without a row or a column are refused;
    infinite values and dates are, too: in an array at once, in a DataFrame by `Features`.

    Examples
    --------
    >>> as_table([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and 0 < X.size < 10_000 and np.isfinite(X).all():
        return X  # a few rows, as a service predicts them: the checks below would take longer than the rest
    package = type(X).__module__.partition(".")[0]
    if package in ("dask", "dask_expr"):
        raise TypeError(
            "X is a Dask collection, whose rows are not here: icqr.distributed.ICQR (CQR, QR, Naive) takes it, and "
            "icqr.distributed.on_dask(model) any fitted model; or bring the rows here by X.compute()"
        )
    if package == "polars":
        X = _from_polars(X)
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OUS" and X.ndim == 2:
        X = pd.DataFrame(X)
    if isinstance(X, pd.DataFrame):
        _check_frame(X)
        return X
    if isinstance(X, pd.Series):
        raise ValueError(
            "Expected 2D array, got 1D array instead: X must be a table of rows, got a pandas Series; one row of a "
            "table is X.iloc[[0]], one column X[['name']]"
        )
    if getattr(getattr(X, "dtype", None), "kind", "") in ("m", "M"):
        raise ValueError(f"X holds dates or durations ({X.dtype}); {_NO_DATES}")
    return np.asarray(check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", input_name="X"))


def _from_polars(X: Any) -> pd.DataFrame:
    if not hasattr(X, "get_column"):
        raise TypeError(
            f"X must be a polars DataFrame, got a polars {type(X).__name__}; call X.collect() or to_frame()"
        )
    # Column by column: `to_pandas` would need pyarrow.
    return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})


def _check_frame(X: pd.DataFrame) -> None:
    n_rows, n_columns = X.shape
    if n_rows == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=({n_rows}, {n_columns})) while a minimum of 1 is required."
        )
    if n_columns == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 is required.")
    if not X.columns.is_unique:
        twice = sorted({str(name) for name in X.columns[X.columns.duplicated()]})
        raise ValueError(f"Column names must be unique; these appear more than once: {', '.join(twice)}. Rename them.")


def align(X: Table, columns: list[Any] | pd.Index[Any] | None) -> Table:
    """Give new rows the form of the training rows: with their column names, or (None) as an array of numbers.

    Rows without names (an array, or columns numbered 0, 1, … where the training rows' are not numbered) get the names
    by position.

    Examples
    --------
    >>> align(np.array([[1.0, 2.0]]), pd.Index(["a", "b"])).columns.tolist()
    ['a', 'b']
    """
    if columns is None:
        return _as_array(X) if isinstance(X, pd.DataFrame) else X
    if not isinstance(X, pd.DataFrame):
        return pd.DataFrame(X, columns=columns)
    names, known = list[Any](X.columns), list[Any](columns)
    if names == known:
        return X
    if names == list(range(len(known))) and set(names).isdisjoint(known):
        return X.set_axis(columns, axis=1)
    raise ValueError(
        f"X must have the columns it had in fit, in the same order: {known}, got {names}. "
        "Select them by name, in that order."
    )


def _as_array(X: pd.DataFrame) -> FloatArray:
    numbers = plain_numbers(X)
    if numbers is not None:
        return numbers
    return np.column_stack([_as_numbers(X[name]).to_numpy(dtype=np.float64) for name in X.columns])


def take_rows(X: Table, index: IntArray | slice) -> Table:
    """Give some rows of a table.

    Examples
    --------
    >>> take_rows(np.array([[1.0], [2.0]]), np.array([1]))
    array([[2.]])
    """
    if isinstance(index, slice) and index.start == 0 and index.stop >= len(X):
        return X  # all of them, in one block: pandas takes its time for a slice
    return X.iloc[index] if isinstance(X, pd.DataFrame) else X[index]


def blocks(n_rows: int) -> list[slice]:
    """Cut rows into blocks: what is computed for one at a time takes little memory, and stays in the cache.

    Examples
    --------
    >>> len(blocks(100)), len(blocks(1_000_000))
    (1, 16)
    """
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, n_rows, ROWS_AT_ONCE)]


def draw_rows(n: int, most: int | None, rng: np.random.Generator) -> IntArray:
    """Give all of n rows, or at most so many of them, drawn at random; in their order.

    Examples
    --------
    >>> draw_rows(3, None, np.random.default_rng(0)), len(draw_rows(100, 10, np.random.default_rng(0)))
    (array([0, 1, 2]), 10)
    """
    return np.arange(n) if most is None or n <= most else np.sort(rng.choice(n, size=most, replace=False))


class Features:
    """The columns of the training rows: their kinds, and the categories of text columns.

    Text, object and categorical columns become pandas categoricals with the categories that the training rows hold;
    other values become missing. Numbers, also nullable and boolean ones, become plain numbers. A column without any
    known value in the training rows says nothing, and some models can't take it: it becomes zeros, whatever it holds
    later.

    Parameters
    ----------
    X : table
        Training rows, as :func:`as_table` gives them.
    max_categories : int, optional
        Keep only so many categories a column, the most frequent ones; the others become missing.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [50, 70], "city": ["Bern", "Genf"]})
    >>> features = Features(frame)
    >>> features.categorical
    ['city']
    >>> features.transform(pd.DataFrame({"size": [60], "city": ["Rom"]}))["city"].isna().item()
    True
    """

    def __init__(self, X: Table, max_categories: int | None = None) -> None:
        self.categories: dict[Any, pd.Index[Any]] = {}
        self.one_hot_codes: dict[Any, IntArray] = {}
        self.n_columns: int = X.shape[1]
        self.names: list[Any] | None = list(X.columns) if isinstance(X, pd.DataFrame) else None
        if not isinstance(X, pd.DataFrame):
            self.empty: set[Any] = set(np.flatnonzero(np.isnan(X).all(axis=0)).tolist())
            return
        plain = X.size < MOST_COPIED and all(isinstance(dtype, np.dtype) for dtype in X.dtypes)
        numbers = plain_numbers(X) if plain else None
        if numbers is not None:
            self.empty = set(X.columns[np.asarray(np.isnan(numbers).all(axis=0))])
            return
        self.empty = {name for name in X.columns if X[name].isna().all()}
        for name in X.columns:
            values = None if name in self.empty else _column(X[name])
            if values is not None and isinstance(values.dtype, pd.CategoricalDtype):
                self._learn_categories(values, max_categories)

    def _learn_categories(self, values: pd.Series[Any], most: int | None) -> None:
        codes = values.cat.codes.to_numpy()
        counts = np.bincount(codes[codes >= 0], minlength=len(values.cat.categories))
        kept = _most_frequent(counts, most)
        self.categories[values.name] = values.cat.categories[kept]
        self.one_hot_codes[values.name] = _most_frequent(counts[kept], MOST_ONE_HOT)

    @property
    def categorical(self) -> list[Any]:
        """Names of the categorical columns."""
        return list(self.categories)

    def transform(self, X: Table) -> Table:
        """Bring rows into the form of the training rows: a DataFrame or a float array, as these were."""
        X = align(X, self.names)
        if isinstance(X, pd.DataFrame):
            return self.transform_frame(X)
        if self.empty:
            X = X.copy()
            X[:, list(self.empty)] = 0.0
        return X

    def transform_frame(self, X: pd.DataFrame) -> pd.DataFrame:
        """Bring a DataFrame's rows into the form of the training rows; plain numbers stay as they are."""
        if not self.categories and not self.empty and plain_numbers(X) is not None:
            return X
        return pd.DataFrame({name: self._transform_column(X[name]) for name in X.columns}, index=X.index, copy=False)

    def _transform_column(self, column: pd.Series[Any]) -> pd.Series[Any]:
        if column.name in self.empty:
            return pd.Series(0.0, index=column.index)
        if column.name not in self.categories:
            return _as_numbers(column)
        categories = self.categories[column.name]
        if isinstance(column.dtype, pd.CategoricalDtype) and column.cat.categories.equals(categories):
            known = pd.Categorical.from_codes(column.cat.codes.to_numpy(), categories=categories)
        else:
            known = pd.Categorical(known_values(column, categories), categories=categories)
        return pd.Series(known, index=column.index)

    def one_hot(self, X: Table) -> tuple[FloatArray, IntArray, list[tuple[Any, Any]]]:
        """Give a float matrix with categories one-hot, each column's origin, and each column's (name, category).

        The category is None for a numeric column. A missing, unknown or rare category (beyond the 255 most frequent
        ones) is a row of zeros.
        """
        origin, codes = self._layout()
        names = [f"x{j}" for j in range(self.n_columns)] if self.names is None else self.names
        labels = [
            (names[j], None if code < 0 else self.categories[names[j]][code])
            for j, code in zip(origin.tolist(), codes.tolist(), strict=True)
        ]
        return self.one_hot_columns(X, np.arange(len(origin))), origin, labels

    def one_hot_columns(self, X: Table, positions: IntArray) -> FloatArray:
        """Give the columns at these positions of the one-hot matrix, as an array of their own."""
        origin, codes = (part[positions] for part in self._layout())
        if self.names is None:
            return np.array(np.asarray(self.transform(X))[:, origin], dtype=np.float64)
        frame = pd.DataFrame(align(X, self.names))
        numbers = None if self.categories or self.empty else _some_numbers(frame, origin)
        if numbers is not None:
            return numbers
        matrix = np.empty((len(frame), len(positions)))
        for j in np.unique(origin):
            column, mine = self._transform_column(frame.iloc[:, j]), np.flatnonzero(origin == j)
            if codes[mine[0]] < 0:
                matrix[:, mine] = column.to_numpy(dtype=np.float64)[:, None]
            else:
                matrix[:, mine] = column.cat.codes.to_numpy()[:, None] == codes[mine]
        return matrix

    def origins(self) -> IntArray:
        """Give the column of X that each column of the one-hot matrix comes from."""
        return self._layout()[0]

    def _layout(self) -> tuple[IntArray, IntArray]:
        """Give the one-hot matrix's columns: the column of X they come from, and the category's code (-1: numbers)."""
        if self.names is None or not self.one_hot_codes:
            return np.arange(self.n_columns), np.full(self.n_columns, -1)
        parts = [self.one_hot_codes.get(name, np.array([-1])) for name in self.names]
        return np.repeat(np.arange(self.n_columns), [len(part) for part in parts]), np.concatenate(parts)


def plain_numbers(X: pd.DataFrame) -> FloatArray | None:
    """Give a DataFrame's values if all its columns are plain numbers, none of them infinite, and None if they are not.

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


def _some_numbers(X: pd.DataFrame, columns: IntArray) -> FloatArray | None:
    """Give an array of some columns' values if `plain_numbers` has them."""
    if X.size < MOST_COPIED:  # to choose columns takes pandas longer than to give all of them
        numbers = plain_numbers(X)
        return None if numbers is None else numbers[:, columns]
    numbers = plain_numbers(X.iloc[:, columns])
    return None if numbers is None else numbers[:, np.arange(len(columns))]


def known_values(column: pd.Series[Any], categories: pd.Index[Any]) -> pd.Series[Any]:
    """Give the values that are categories, None for others.

    A number and a text are the same if the text reads as that number, and no other category does: a file's column may
    be read as either.
    """
    values = column.astype(object).where(column.notna(), None)
    known = values.isin(categories)
    others = values[~known & column.notna()].unique()
    if not len(others):
        return values
    numbers, texts = (_by_reading(c for c in categories if isinstance(c, str) == text) for text in (False, True))
    meant = {value: (numbers if isinstance(value, str) else texts).get(_reading(value)) for value in others}
    return values.where(known, values.map(meant))


def _by_reading(categories: Iterable[Any]) -> dict[Any, Any]:
    """Give the categories by what they read as, without those that read the same."""
    found: dict[Any, list[Any]] = {}
    for category in categories:
        found.setdefault(_reading(category), []).append(category)
    return {reading: same[0] for reading, same in found.items() if len(same) == 1}


def _reading(value: Any) -> Any:
    """Give the number that a value is or reads as, else its text.

    Examples
    --------
    >>> [_reading(value) for value in ("1.0", 1, Decimal("1"), True, "True", "Bern")]
    [1.0, 1.0, 1.0, 'True', 'True', 'Bern']
    """
    if isinstance(value, bool | np.bool_):
        return str(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _column(column: pd.Series[Any]) -> pd.Series[Any]:
    """Decide a training column's kind: categorical, or numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return _as_numbers(column)
    if _has_dates(column):
        raise ValueError(f"Column {column.name!r} holds dates or durations ({column.dtype}); {_NO_DATES}")
    known = column.dropna()
    for value in known:
        if not isinstance(value, (str, *_NUMBERS)):
            raise TypeError(
                f"Column {column.name!r}: each argument must be a string or a number, got {type(value).__name__}; turn "
                "it into numbers or text first (dates, for example, into year, month, or days since a start)."
            )
    if all(not isinstance(value, str) for value in known):
        return _as_numbers(column)
    if isinstance(column.dtype, pd.ArrowDtype):
        column = column.astype(object)  # pandas fails on a dictionary of Arrow that has gaps
    return column.astype("category")


def readable_columns(X: Table) -> list[int]:
    """Give the positions of the columns that are numbers or categories.

    Examples
    --------
    >>> readable_columns(pd.DataFrame({"a": [1], "day": pd.to_datetime(["2026-01-01"])}))
    [0]
    """

    def is_readable(column: pd.Series[Any]) -> bool:
        try:
            _column(column)
        except (ValueError, TypeError):
            return False
        return True

    if not isinstance(X, pd.DataFrame):
        return list(range(X.shape[1]))
    return [j for j in range(X.shape[1]) if is_readable(X.iloc[:, j])]


def _has_dates(column: pd.Series[Any]) -> bool:
    kinds = pd.api.types
    return bool(kinds.is_datetime64_any_dtype(column.dtype) or kinds.is_timedelta64_dtype(column.dtype))


def _as_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    if _has_dates(column):
        raise ValueError(
            f"Column {column.name!r} held numbers in training and now holds dates or durations ({column.dtype}). Turn "
            "them into the numbers that they were in training."
        )
    if pd.api.types.is_complex_dtype(column.dtype):
        raise ValueError(f"Complex data not supported: column {column.name!r}.")
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu":
        numbers = column
    else:
        try:
            numbers = pd.Series(
                column.to_numpy(dtype=np.float64, na_value=np.nan), index=column.index, name=column.name
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Column {column.name!r} held numbers in training and now holds something else: {error}"
            ) from error
    infinite = np.isinf(numbers.to_numpy())
    if infinite.any():
        raise ValueError(
            f"Column {column.name!r} is infinite in row {int(np.flatnonzero(infinite)[0])}: infinity is not allowed. "
            "Replace it by a finite number or by a missing value."
        )
    return numbers


def _most_frequent(counts: NDArray[np.integer[Any]], most: int | None) -> IntArray:
    """Give the codes of the most frequent categories, in their own order; those that never appear are left out."""
    by_frequency = np.argsort(-counts, kind="stable")[:most]
    return np.sort(by_frequency[counts[by_frequency] > 0])


def settle_kinds(X: Table) -> Table:
    """Make categories of columns that hold both text and numbers.

    Of such a column some rows may hold numbers only; taken alone, they would be a column of numbers.

    Examples
    --------
    >>> settle_kinds(pd.DataFrame({"a": [1.5, "n/a"], "b": [1.5, 2.5]})).dtypes.astype(str).tolist()
    ['category', 'float64']
    """
    if not isinstance(X, pd.DataFrame):
        return X
    mixed = [name for name in X.columns if X[name].dtype == object and _is_mixed(X[name])]
    if not mixed:
        return X
    settled = X.copy(deep=False)
    for name in mixed:
        settled[name] = X[name].astype("category")
    return settled


def _is_mixed(column: pd.Series[Any]) -> bool:
    """Tell whether a column holds text, numbers, and nothing else."""
    if pd.api.types.infer_dtype(column, skipna=True) not in ("mixed", "mixed-integer"):
        return False
    known = column.dropna()
    text = sum(isinstance(value, str) for value in known)
    numbers = sum(isinstance(value, _NUMBERS) for value in known)
    return 0 < text < len(known) == text + numbers


def warn_about_text(X: Table) -> None:
    """Warn about columns with text in which more than half of the values are different: no model learns from those.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [f"{n} m" for n in range(100)]})
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_about_text(frame)
    >>> len(caught)
    1
    """
    if not isinstance(X, pd.DataFrame) or len(X) < 100:
        return
    for name, column in X.items():
        text = pd.api.types.infer_dtype(column, skipna=True) == "string" or _is_mixed(column)
        if not text or column.nunique() <= len(X) / 2:
            continue
        share = pd.to_numeric(column.astype(object), errors="coerce").notna().mean()
        advice = "Drop it, or turn it into numbers or fewer categories."
        if share > 0.5:
            advice = f"{share:.0%} of its values read as numbers: pd.to_numeric(…, errors='coerce') makes it numbers."
        warnings.warn(
            f"Column {name!r} holds text and {column.nunique()} of its {len(X)} values are different, so that its "
            f"categories say little. {advice}",
            UserWarning,
            stacklevel=3,
        )
