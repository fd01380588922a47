"""Rows with their targets: every check of y and weights, and the split into training and calibration rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import column_or_1d

from icqr._tables import FloatArray, IntArray, Table, draw_rows, take_rows

#: What says which rows are older: a column's name of X, or one value per row.
Order: TypeAlias = Hashable | ArrayLike
#: Kinds of values that have an order, as pandas names them.
_ORDERED = {
    *("integer", "floating", "mixed-integer-float", "decimal"),
    *("datetime64", "datetime", "date", "period", "timedelta64", "timedelta"),
}


@dataclass(frozen=True)
class Rows:
    """Features and targets of some rows, and their positions in the user's table."""

    X: Table
    y: FloatArray
    index: IntArray

    def take(self, index: IntArray) -> Rows:
        """Return some of the rows."""
        return Rows(take_rows(self.X, index), self.y[index], self.index[index])

    def sample(self, most: int, seed: int) -> Rows:
        """Return all rows, or if there are more than `most`, that many drawn at random."""
        return self.take(draw_rows(len(self), most, np.random.default_rng(seed)))

    def split(self, calibration_size: float, seed: int) -> tuple[Rows, Rows]:
        """Split the rows at random into training and calibration rows, each in the order in which they came.

        Examples
        --------
        >>> train, calibration = Rows(np.zeros((9, 1)), np.zeros(9), np.arange(9)).split(1 / 3, seed=0)
        >>> len(train), len(calibration)
        (6, 3)
        """
        size = held_out_size(calibration_size, len(self))
        train, calibration = train_test_split(np.arange(len(self)), test_size=size, random_state=seed)
        return self.take(np.sort(train)), self.take(np.sort(calibration))

    def split_in_order(self, calibration_size: float, order: Order) -> tuple[Rows, Rows]:
        """Split off the newest rows to calibrate with; those as old as the oldest of them go with them.

        Examples
        --------
        >>> rows = Rows(np.zeros((5, 1)), np.zeros(5), np.arange(5))
        >>> train, calibration = rows.split_in_order(2, order=[2021, 2019, 2020, 2022, 2020])
        >>> train.index, calibration.index
        (array([1, 2, 4]), array([0, 3]))
        """
        places = _places(order, self.X)
        size = held_out_size(calibration_size, len(self))
        is_newest = places >= np.sort(places)[-size]
        if is_newest.all():
            raise ValueError(
                f"order must leave older rows to train on, but the newest {size} of {len(self)} rows begin with the "
                "oldest value there is; give values that tell the rows apart, or a smaller calibration_size"
            )
        return self.take(np.flatnonzero(~is_newest)), self.take(np.flatnonzero(is_newest))

    def __len__(self) -> int:
        return len(self.y)


def _places(order: Any, X: Table) -> IntArray:
    """Return each row's place in time, 0 for the oldest; rows of equal values have the same."""
    values = order
    if np.ndim(order) == 0:
        if not isinstance(X, pd.DataFrame) or order not in X.columns:
            known = f"one of {X.columns.tolist()}" if isinstance(X, pd.DataFrame) else "but X is an array without names"
            raise ValueError(
                f"order={order!r} must be the name of a column of X, {known}; give a column's name, or one value per "
                "row"
            )
        values = X[order]
    if np.shape(values) != (len(X),):
        raise ValueError(f"order must have one value for each of the {len(X)} rows of X, got shape {np.shape(values)}")

    column = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values))
    missing = np.flatnonzero(column.isna())
    if len(missing):
        raise ValueError(
            f"order must say of each row how old it is; {len(missing)} of {len(X)} values are missing, the first in "
            f"row {missing[0]}. Fill them in, or drop these rows."
        )
    kind = pd.api.types.infer_dtype(column)
    if kind not in _ORDERED:
        raise ValueError(
            f"order must hold numbers or dates, got {kind} values, such as {column.iloc[0]!r} in row 0; turn text into "
            "dates by pd.to_datetime"
        )
    return pd.factorize(column, sort=True)[0]


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Begin the message of any error raised inside with `where`: the rows that it is about.

    Examples
    --------
    >>> with naming("block 3"):
    ...     check_target([1, None], 2, (0, 1))
    Traceback (most recent call last):
    ...
    ValueError: block 3: y must be finite; ...
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}: {error}") from error


def check_target(y: ArrayLike | None, n_rows: int, limits: tuple[float, float] = (-math.inf, math.inf)) -> FloatArray:
    """Check that y is finite and within the limits, and return it as a 1-D float array. Errors name the row.

    X and y are matched by position; a pandas index plays no part.

    Examples
    --------
    >>> check_target([1, 2], 2, (0, float("inf")))
    array([1., 2.])
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values = column_or_1d(y, warn=True)
    if len(values) != n_rows:
        raise ValueError(f"X and y must have the same number of rows, got {n_rows} and {len(values)}")
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold real numbers")
    numbers: FloatArray
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64, copy=not values.flags.writeable)  # models may write into it
    else:
        numbers = _numbers_of_objects(values)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(
            f"y must be finite; {len(bad)} of {n_rows} values are NaN or infinity, the first in row {bad[0]}. "
            "Drop these rows: a missing target can neither train nor calibrate."
        )
    outside = np.flatnonzero((numbers < limits[0]) | (numbers > limits[1]))
    if len(outside):
        row = outside[0]
        raise ValueError(
            f"y must lie between y_min={limits[0]:g} and y_max={limits[1]:g}; row {row} is {numbers[row]:g}. "
            "Correct the row, or the limits."
        )
    return numbers


def _numbers_of_objects(values: NDArray[Any]) -> FloatArray:
    """Return objects (None, Decimal, numbers) as floats. Errors name the row that is no number."""
    not_text = np.array([not isinstance(value, str | bytes) for value in values]) & (values.dtype.kind == "O")
    try:
        if not not_text.all():
            row = int(np.argmin(not_text))
            raise TypeError(f"row {row} is {values[row]!r} ({type(values[row]).__name__})")
        return np.where(pd.isna(values), np.nan, values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers: {error}. Convert it first, for example by pd.to_numeric.") from error


def target_name(y: object) -> str | None:
    """Return the target's name: that of a pandas or polars column."""
    name = getattr(y, "name", None)
    return None if name is None else str(name)


def held_out_size(calibration_size: float, n: int) -> int:
    """Return how many of `n` rows to set aside for calibration, or raise if `calibration_size` is not possible.

    Examples
    --------
    >>> held_out_size(1 / 3, 10), held_out_size(4, 10)
    (4, 4)
    """
    if isinstance(calibration_size, int | np.integer) and not isinstance(calibration_size, bool):
        size = int(calibration_size)
    elif isinstance(calibration_size, float | np.floating) and 0 < calibration_size < 1:
        size = math.ceil(calibration_size * n)
    else:
        raise ValueError(
            "calibration_size must be a share strictly between 0 and 1 or a whole number of rows, "
            f"got {calibration_size!r}; for a third of the rows pass 1 / 3"
        )
    if not 1 <= size < n:
        raise ValueError(
            f"calibration_size={calibration_size!r} of n_samples={n} rows must leave at least one row to calibrate "
            "with and one to train on. Give more rows, or another calibration_size."
        )
    return size


def check_pair(X_calibration: object, y_calibration: object) -> None:
    """Check that both or neither are given.

    Examples
    --------
    >>> check_pair(None, None)
    """
    if (X_calibration is None) != (y_calibration is None):
        name = "y_calibration" if X_calibration is None else "X_calibration"
        raise ValueError(f"X_calibration and y_calibration go together, got {name} alone; give both or neither")


def check_weights(fit_params: Mapping[str, Any], n_rows: int) -> None:
    """Check that there is one `sample_weight` for each row given to fit, finite and not negative.

    Examples
    --------
    >>> check_weights({"sample_weight": [1.0, 2.0]}, 2)
    """
    for name, values in fit_params.items():
        # Weights of evaluation sets (`eval_sample_weight`) belong to other rows.
        if values is None or not (name == "sample_weight" or name.endswith("__sample_weight")):
            continue
        if np.shape(values) != (n_rows,):
            raise ValueError(
                f"{name} must have one weight for each of the {n_rows} rows of X, got shape {np.shape(values)}; those "
                "of rows set aside for calibration are left out by themselves"
            )
        weights = np.asarray(values, dtype=np.float64)
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if len(bad):
            raise ValueError(f"{name} must be finite and not negative, got {weights[bad[0]]:g} in row {bad[0]}")
