"""Rows with their targets, as `fit` takes them: y of every kind, the split, and errors that name the row."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import DataConversionWarning

from icqr import Naive

Y = np.tile([1.0, 0.0, 2.0], 10)
X = np.arange(30.0)[:, None]


class Memory(RegressorMixin, BaseEstimator):
    """Predicts the mean, and remembers the rows it was last fitted on."""

    rows: ClassVar[list[float]] = []

    def fit(self, X: Any, y: Any) -> Self:
        Memory.rows = X[:, 0].tolist()
        self.mean_ = np.mean(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


def fitted(y: Any, n: int = 30, **parameters: Any) -> Naive:
    return Naive(Memory(), **{"coverage": 0.5, "random_state": 0, **parameters}).fit(X[:n], y)


# -- Targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        Y.astype(int).tolist(),
        tuple(Y),
        np.array([True, False, 2] * 10),
        Y.astype(object),
        pd.Series(Y, index=np.arange(30)[::-1]),
        pd.Series(Y, dtype="Int64"),
        pl.Series("y", Y),
    ],
    ids=lambda y: type(y).__name__,
)
def test_targets_of_every_kind_are_numbers_in_the_order_given(y: Any) -> None:
    np.testing.assert_array_equal(fitted(y).predict_interval(X), fitted(Y).predict_interval(X))


def test_a_target_table_of_one_column_is_flattened_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = fitted(pd.DataFrame({"y": Y}))
    np.testing.assert_array_equal(model.predict_interval(X), fitted(Y).predict_interval(X))


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf, None, pd.NA], ids=str)
def test_a_missing_or_infinite_target_names_its_row(missing: Any) -> None:
    y = pd.Series(Y, dtype=object)
    y[1] = y[3] = missing
    with pytest.raises(ValueError, match="y must be finite; 2 of 30 values are NaN or infinity, the first in row 1"):
        fitted(y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1, 2], "X and y must have the same number of rows, got 30 and 2"),
        (["1"] * 30, r"y must hold numbers: row 0 is .*'1'.* \(str_?\)\. Convert it first"),
        (np.array([1, "2", 3] * 10, dtype=object), r"y must hold numbers: row 1 is '2' \(str\)"),
        (pd.Series(pd.date_range("2024", periods=30)), "y must hold numbers: row 0 is"),
        (np.array([1, {}, 3] * 10, dtype=object), "y must hold numbers: .*dict"),
        (np.array([1j, 2, 3] * 10), "Complex data not supported"),
    ],
    ids=["None", "short", "texts", "a text", "dates", "dicts", "complex"],
)
def test_targets_that_are_no_numbers_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(y)


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"y_min": 0.5}, "y_min=0.5 and y_max=inf; row 1 is 0"), ({"y_max": 1}, "y_min=-inf and y_max=1; row 2 is 2")],
)
def test_a_target_beyond_its_limits_names_its_row(limits: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"y must lie between {message}"):
        fitted(Y, **limits)


# -- The split -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "held_out"), [(1 / 3, 4), (0.25, 3), (5, 5), (np.int64(1), 1), (np.float32(0.5), 5)])
def test_a_split_holds_out_a_share_or_a_number_and_keeps_the_order(size: Any, held_out: int) -> None:
    model = fitted(Y[:10], 10, calibration_size=size)
    assert model.groups_["n"].tolist() == [held_out]
    assert len(set(Memory.rows)) == 10 - held_out
    assert Memory.rows == sorted(Memory.rows)


def test_the_seed_alone_decides_the_split() -> None:
    drawn = []
    for seed in (1, 1, 2):
        fitted(Y, random_state=seed)
        drawn.append(Memory.rows)
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("size", [0.0, 1.0, 1.5, -0.2, True, "0.3", None, np.nan])
def test_a_calibration_size_is_a_share_or_a_number(size: Any) -> None:
    with pytest.raises(ValueError, match=r"calibration_size must be a share .* got .*; for a third"):
        fitted(Y, calibration_size=size)


@pytest.mark.parametrize(("n", "size"), [(1, 1 / 3), (2, 0.9), (10, 10), (10, 0), (10, -3), (10, 11)])
def test_both_parts_of_a_split_have_rows(n: int, size: Any) -> None:
    with pytest.raises(ValueError, match=f"n_samples={n} rows must leave at least one row"):
        fitted(Y[:n], n, calibration_size=size)
