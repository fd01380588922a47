"""Rows with their targets, as `fit` takes them: y of every kind, the split, and errors that name the row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import DataConversionWarning

from icqr import CQR, ICQR, QR, AutoICQR, Naive, prefit

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


# -- The split in time -----------------------------------------------------------------------------------------------

AGES = np.random.default_rng(0).permutation(30)  # row 3 is the oldest if AGES[3] is 0
DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(AGES, unit="D")


def trained_in_order(order: Any, **parameters: Any) -> list[float]:
    Naive(Memory(), **{"coverage": 0.5, "random_state": 0, **parameters}).fit(X, Y, order=order)
    return Memory.rows


@pytest.mark.parametrize(
    "order",
    [
        AGES,
        AGES.tolist(),
        AGES / 7,
        pd.Series(AGES, dtype="Int64"),
        [Decimal(int(age)) for age in AGES],
        DAYS,
        DAYS.tz_localize("Europe/Zurich"),
        pd.Series(DAYS, index=np.arange(30)[::-1]),
        DAYS.to_period("D"),
        [dt.date(2024, 1, 1) + dt.timedelta(days=int(age)) for age in AGES],
        pl.Series("when", DAYS.to_numpy()),
    ],
    ids=["ints", "list", "floats", "Int64", "decimals", "dates", "zone", "Series", "periods", "objects", "polars"],
)
def test_the_oldest_rows_train_whatever_says_how_old_they_are(order: Any) -> None:
    assert trained_in_order(order) == np.flatnonzero(AGES < 20).tolist()
    assert trained_in_order(order, calibration_size=4) == np.flatnonzero(AGES < 26).tolist()


@pytest.mark.parametrize("wrap", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("method", [Naive, CQR, ICQR, AutoICQR])
def test_a_column_of_x_may_say_how_old_rows_are(method: Any, wrap: Any) -> None:
    rng = np.random.default_rng(0)
    table = {"a": rng.random(300), "year": rng.integers(1990, 2020, 300).astype(float)}
    y = 9 * table["a"] + rng.normal(size=300)
    model = method(random_state=0).fit(wrap(table), y, order="year")
    newest = table["year"] >= np.sort(table["year"])[200]  # a whole year stays on one side
    assert newest.sum() > 100
    expected = method(random_state=0).fit(
        wrap(table), y, X_calibration=wrap({k: v[newest] for k, v in table.items()}), y_calibration=y[newest]
    )
    assert model.n_train_ == 300 - newest.sum()
    assert model.groups_["n"].sum() == expected.groups_["n"].sum() == newest.sum()
    assert list(model.feature_names_in_) == ["a", "year"]  # it stays a feature


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_a_date_column_says_how_old_rows_are_and_stays_a_feature(zone: str | None) -> None:
    table = pd.DataFrame({"a": X.ravel(), "when": DAYS.tz_localize(zone)})
    model = Naive(random_state=0, coverage=0.5).fit(table, Y, order="when")
    newest = AGES >= 20
    split = Naive(random_state=0, coverage=0.5).fit(table[~newest], Y[~newest], table[newest], Y[newest])
    np.testing.assert_array_equal(model.predict_interval(table), split.predict_interval(table))
    assert list(model.feature_names_in_) == ["a", "when"]


def test_weights_go_with_their_rows() -> None:
    model = Naive(random_state=0, coverage=0.8)
    weights = np.where(AGES < 10, 1.0, 0.0)
    ordered = model.fit(X, Y, order=AGES, sample_weight=weights).predict_interval(X)
    train, newest = AGES < 20, AGES >= 20
    model.fit(X[train], Y[train], X[newest], Y[newest], sample_weight=weights[train])
    np.testing.assert_array_equal(ordered, model.predict_interval(X))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("when", "order='when' must be the name of a column of X, but X is an array without names; give a column's"),
        (AGES[:7], r"order must have one value for each of the 30 rows of X, got shape \(7,\)"),
        (X, r"order must have one value for each of the 30 rows of X, got shape \(30, 1\)"),
        (
            [1.0, None, np.nan] * 10,
            "order must say of each row how old it is; 20 of 30 values are missing, .* row 1. Fi",
        ),
        (
            pd.Series(DAYS).where(AGES != 7),
            f"1 of 30 values are missing, the first in row {np.flatnonzero(AGES == 7)[0]}",
        ),
        (DAYS.astype(str), f"must hold numbers or dates, got string values, such as '{DAYS[0].date()}' in row 0; turn"),
        ([True, False] * 15, "order must hold numbers or dates, got boolean values"),
        ([1, "b"] * 15, "order must hold numbers or dates, got string values"),
        (np.zeros(30), "order must leave older rows to train on, but the newest 10 of 30 rows begin with the oldest"),
    ],
    ids=["no name", "short", "table", "missing", "no date", "text", "booleans", "mixed", "all equal"],
)
def test_an_order_that_tells_no_ages_is_refused(order: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trained_in_order(order)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"order='when' must be the name of a column of X, one of \['a'\]"):
        Naive(random_state=0).fit(pd.DataFrame({"a": Y}), Y, order="when")


def test_an_order_goes_with_nothing_else_that_says_which_rows_calibrate() -> None:
    with pytest.raises(ValueError, match="order says which rows of X calibrate, but X_calibration is given"):
        Naive(random_state=0).fit(X, Y, X, Y, order=AGES)
    with pytest.raises(ValueError, match="order lets the newest rows calibrate, but calibration='cross'"):
        AutoICQR(calibration="cross", random_state=0).fit(X, Y, order=AGES)
    bounds = prefit(
        lower=lambda X: X[:, 0], median=lambda X: X[:, 0], upper=lambda X: X[:, 0], levels=(0.05, 0.5, 0.95)
    )
    with pytest.raises(ValueError, match="the estimator is fitted already, so that all rows calibrate; leave order"):
        CQR(bounds, random_state=0).fit(X, Y, order=AGES)
    with pytest.raises(ValueError, match="QR has no calibration"):
        QR(random_state=0).fit(X, Y, order=AGES)


def test_coverage_holds_on_rows_like_the_newest() -> None:
    # The noise doubles after two thirds of the time. A split at random calibrates for the past as well.
    rng = np.random.default_rng(0)
    n, n_new = 3000, 5000
    table = rng.random((n, 2))
    noise = np.where(np.arange(n) < 2000, 1.0, 2.0)
    y, y_new = table[:, 0] + noise * rng.normal(size=n), rng.normal(scale=2.0, size=n_new)
    new = rng.random((n_new, 2))
    y_new += new[:, 0]

    def covered(order: Any) -> int:
        lower, upper = Naive(random_state=0).fit(table, y, order=order).predict_interval(new).T
        return int(((lower <= y_new) & (y_new <= upper)).sum())

    # The luck of 1,000 calibration rows (a Beta law) and of 5,000 new ones together: a beta-binomial band of 99.9 %.
    band = stats.betabinom(n_new, 901, 100).ppf([0.0005, 0.9995])
    assert band[0] <= covered(np.arange(n)) <= band[1]
    assert covered(None) < band[0]
