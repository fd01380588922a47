"""Rows with their targets: checked, and split into rows to train on and rows to calibrate with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import column_or_1d

from icqr.features import FloatArray, IntArray, Table


@dataclass(frozen=True)
class Rows:
    """Features and targets of some rows, and where in the given table they stood."""

    X: Table
    y: FloatArray
    index: IntArray

    def take(self, index: IntArray) -> Rows:
        """Give some of the rows."""
        X = self.X.iloc[index] if isinstance(self.X, pd.DataFrame) else self.X[index]
        return Rows(X, self.y[index], self.index[index])

    def extended(self, other: Rows) -> Rows:
        """Give these and other rows, one below the other."""
        if isinstance(self.X, pd.DataFrame) and isinstance(other.X, pd.DataFrame):
            X: Table = pd.concat([self.X, other.X])
        else:
            X = np.concatenate([np.asarray(self.X), np.asarray(other.X)])
        return Rows(X, np.concatenate([self.y, other.y]), np.concatenate([self.index, other.index]))

    def __len__(self) -> int:
        return len(self.y)


def check_target(y: Any, n_rows: int, limits: tuple[float, float]) -> FloatArray:
    """Give y as a 1-D array of finite floats within the limits, or say which row is wrong.

    Examples
    --------
    >>> check_target([1, 2], 2, (0, float("inf")))
    array([1., 2.])
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values = column_or_1d(y, warn=True)
    if np.iscomplexobj(values):
        raise ValueError("Complex data not supported: y must hold real numbers")
    if len(values) != n_rows:
        raise ValueError(f"X and y must have the same number of rows, got {n_rows} and {len(values)}")
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers: {error}") from error
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
            f"y must lie between y_min={limits[0]:g} and y_max={limits[1]:g}; row {row} is {numbers[row]:g}"
        )
    return numbers


def split_rows(rows: Rows, calibration_size: Any, seed: int) -> tuple[Rows, Rows]:
    """Draw the rows to train on and the rows to calibrate with, at random, each in the order they came.

    Examples
    --------
    >>> train, held_out = split_rows(Rows(np.zeros((9, 1)), np.zeros(9), np.arange(9)), 1 / 3, seed=0)
    >>> len(train), len(held_out)
    (6, 3)
    """
    n = len(rows)
    whole = isinstance(calibration_size, int | np.integer) and not isinstance(calibration_size, bool)
    share = isinstance(calibration_size, float | np.floating) and 0 < calibration_size < 1
    if n < 2 or not (share or (whole and 1 <= calibration_size < n)):
        raise ValueError(
            f"calibration_size must be a share strictly between 0 and 1, or a number of rows that leaves at least one "
            f"to train on, got {calibration_size!r} with n_samples={n}"
        )
    first, second = train_test_split(np.arange(n), test_size=calibration_size, random_state=seed)
    return rows.take(np.sort(first)), rows.take(np.sort(second))
