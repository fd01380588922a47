"""Rows with their targets: positions, not labels, belong together; every bad target names its row."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import DataConversionWarning

from icqr._rows import Rows, check_target

NO_LIMITS = (-np.inf, np.inf)
FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]}, index=[7, 7, 9])


def rows_of(n: int) -> Rows:
    return Rows(np.arange(float(n))[:, None], np.arange(float(n)), np.arange(n))


@pytest.mark.parametrize(
    "y",
    [
        [1, 0, 2],
        (1.0, 0.0, 2.0),
        np.array([True, False, 2]),
        np.array([1, 0, 2], dtype=object),
        pd.Series([1, 0, 2], index=[2, 1, 0]),
        pd.Series([1, 0, 2], dtype="Int64"),
        pd.DataFrame({"y": [1, 0, 2]})["y"],
        pl.Series("y", [1, 0, 2]),
    ],
    ids=lambda y: type(y).__name__,
)
def test_targets_of_many_kinds_become_floats_in_the_order_given(y: Any) -> None:
    np.testing.assert_array_equal(check_target(y, 3, NO_LIMITS), [1.0, 0.0, 2.0])


def test_a_target_table_of_one_column_is_flattened_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        y = check_target(pd.DataFrame({"y": [1, 0, 2]}), 3, NO_LIMITS)
    np.testing.assert_array_equal(y, [1.0, 0.0, 2.0])


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf, None, pd.NA], ids=str)
def test_a_missing_or_infinite_target_names_its_row(missing: Any) -> None:
    y = pd.Series([1.0, missing, 2.0, missing], dtype=object)
    with pytest.raises(ValueError, match="y must be finite; 2 of 4 values are NaN or infinity, the first in row 1"):
        check_target(y, 4, NO_LIMITS)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1, 2], "X and y must have the same number of rows, got 3 and 2"),
        (["1", "2", "3"], r"y must hold numbers: row 0 is .*'1'.* \(str_?\)\. Convert it first"),
        (np.array([1, "2", 3], dtype=object), r"y must hold numbers: row 1 is '2' \(str\)"),
        (pd.Series(pd.date_range("2024", periods=3)), "y must hold numbers: row 0 is"),
        (np.array([1, {}, 3], dtype=object), "y must hold numbers: .*dict"),
        (np.array([1j, 2, 3]), "Complex data not supported"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_target(y, 3, NO_LIMITS)


@pytest.mark.parametrize(("limits", "row"), [((0, np.inf), 1), ((-np.inf, 4), 2)])
def test_a_target_beyond_its_limits_names_its_row(limits: tuple[float, float], row: int) -> None:
    with pytest.raises(ValueError, match=f"between y_min={limits[0]:g} and y_max={limits[1]:g}; row {row} is"):
        check_target([1, -2, 5], 3, limits)


@pytest.mark.parametrize(("size", "held_out"), [(1 / 3, 4), (0.25, 3), (5, 5), (np.int64(1), 1), (np.float32(0.5), 5)])
def test_a_split_holds_out_a_share_or_a_number_and_keeps_the_order(size: Any, held_out: int) -> None:
    train, calibration = rows_of(10).split(size, seed=0)
    assert (len(train), len(calibration)) == (10 - held_out, held_out)
    for part in (train, calibration):
        np.testing.assert_array_equal(part.X[:, 0], part.y)
        assert np.all(np.diff(part.index) > 0)
    assert sorted([*train.index, *calibration.index]) == list(range(10))


def test_the_seed_alone_decides_the_split() -> None:
    one, two, other = (rows_of(50).split(1 / 3, seed)[1].index for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [0.0, 1.0, 1.5, -0.2, True, "0.3", None, np.nan])
def test_a_calibration_size_is_a_share_or_a_number(size: Any) -> None:
    with pytest.raises(ValueError, match=r"calibration_size must be a share .* got .*; for a third"):
        rows_of(10).split(size, seed=0)


@pytest.mark.parametrize(("n", "size"), [(1, 1 / 3), (2, 0.9), (10, 10), (10, 0), (10, -3), (10, 11)])
def test_both_parts_of_a_split_have_rows(n: int, size: Any) -> None:
    with pytest.raises(ValueError, match=f"n_samples={n} rows must leave at least one row"):
        rows_of(n).split(size, seed=0)


@pytest.mark.parametrize("X", [FRAME, FRAME[["a"]].to_numpy()], ids=["frame", "array"])
def test_rows_are_taken_and_put_together_by_position(X: Any) -> None:
    rows = Rows(X, np.arange(3.0), np.arange(3))
    last, first = rows.take(np.array([2])), rows.take(np.array([0, 1]))
    again = first.extended(last)
    np.testing.assert_array_equal(np.asarray(again.X), np.asarray(X))
    np.testing.assert_array_equal(again.y, rows.y)
    np.testing.assert_array_equal(again.index, rows.index)
