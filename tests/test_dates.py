"""A column of dates from end to end: every library, file and side of the program takes it, and rules name its days."""

import datetime
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor

from icqr import (
    CQR,
    ICQR,
    AutoICQR,
    GroupPartition,
    KMeansPartition,
    Naive,
    audit,
    load,
    save,
    streaming,
)
from icqr.cli import main
from icqr.dask import on_dask

# y is higher at the weekend, and grows from day to day.
RNG = np.random.default_rng(0)
DAYS = pd.Series(pd.Timestamp("2021-03-01") + pd.to_timedelta(np.sort(RNG.integers(0, 500, 600)), unit="D"))
X = pd.DataFrame({"size": RNG.uniform(size=600), "Order Date": DAYS, "town": RNG.choice(["Bern", "Genf"], size=600)})
Y = 10.0 * (DAYS.dt.day_of_week >= 5) + np.arange(600) / 60 + RNG.normal(size=600)
NEW = X.sample(50, random_state=1).reset_index(drop=True)
NAMES = list(X)
QUICK = {"max_iter": 20, "min_samples_leaf": 5, "random_state": 0}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


def quick() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(**QUICK)


@cache
def fitted() -> CQR:
    return CQR(quick(), coverage=0.8, random_state=0).fit(X, Y)


# -- Models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        quick(),
        LGBMRegressor(n_estimators=20, n_jobs=1),
        XGBRegressor(n_estimators=20, n_jobs=1),
        CatBoostRegressor(iterations=20, thread_count=1),
        QuantileRegressor(alpha=0.0),
    ],
)
def test_every_library_takes_dates(estimator: Any, tmp_path: Path) -> None:
    model = ICQR(estimator, coverage=0.8, random_state=0).fit(X, Y)
    intervals = model.predict_interval(NEW)
    assert np.isfinite(intervals).all()
    later = model.predict_interval(NEW.assign(**{"Order Date": NEW["Order Date"] + pd.Timedelta(days=1)}))
    assert (later != intervals).any(), "the date counts"
    assert model.importances_["feature"].tolist() == NAMES, "one importance for each of the user's columns"
    assert model.importances_["feature"][model.importances_["share"].idxmax()] == "Order Date"

    save(model, tmp_path / "model.icqr")
    np.testing.assert_array_equal(load(tmp_path / "model.icqr").predict_interval(NEW), intervals)


@pytest.mark.parametrize("calibration", ["split", pytest.param("cross", marks=pytest.mark.slow)])
def test_the_centre_in_two_stages_takes_dates(calibration: str, tmp_path: Path) -> None:
    model = AutoICQR(coverage=0.8, calibration=calibration, random_state=0).fit(X[:300], Y[:300])
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(NEW), model.predict_interval(NEW))


def test_the_mean_takes_dates() -> None:
    forest = RandomForestRegressor(n_estimators=10, random_state=0)
    assert np.isfinite(Naive(forest, random_state=0).fit(X, Y).predict_interval(NEW)).all()


def test_the_weekday_makes_intervals_narrower_than_days_alone() -> None:
    days = X.assign(**{"Order Date": (X["Order Date"] - pd.Timestamp(0)).dt.days})

    def width(rows: pd.DataFrame) -> float:
        model = CQR(quick(), coverage=0.8, random_state=0).fit(rows, Y)
        return float(np.diff(model.predict_interval(rows)).mean())

    assert width(X) < 0.7 * width(days)


# -- Rows in other forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda dates: dates.astype("datetime64[s]"),
        lambda dates: dates.astype("datetime64[ns]"),
        lambda dates: dates.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        lambda dates: dates.astype(pd.ArrowDtype(pa.timestamp("ms"))),
        lambda dates: dates.astype(pd.ArrowDtype(pa.date32())),
        lambda dates: dates.dt.date.astype(object),
        lambda dates: dates.dt.strftime("%Y-%m-%d"),
        lambda dates: dates.dt.strftime("%Y-%m-%dT00:00:00Z").astype("category"),
    ],
    ids=["s", "ns", "zone", "arrow", "arrow date", "objects", "text", "category"],
)
def test_the_form_of_dates_changes_no_interval(form: Any) -> None:
    other = NEW.assign(**{"Order Date": form(NEW["Order Date"])})
    np.testing.assert_array_equal(fitted().predict_interval(other), fitted().predict_interval(NEW))


def test_polars_dates() -> None:
    columns = {name: NEW[name].tolist() for name in ("size", "town")}
    dates = pl.Series("Order Date", NEW["Order Date"].dt.date.tolist(), dtype=pl.Date)
    for column in (dates, dates.cast(pl.Datetime("us")), dates.cast(pl.Datetime("ms", "UTC"))):
        frame = pl.DataFrame(columns).with_columns(column)
        np.testing.assert_array_equal(fitted().predict_interval(frame), fitted().predict_interval(NEW))


def test_missing_dates_are_missing_values() -> None:
    gaps = X["Order Date"].where(RNG.uniform(size=len(X)) > 0.3)
    y = np.where(gaps.isna(), 100.0, Y)
    model = ICQR(quick(), coverage=0.8, random_state=0).fit(X.assign(**{"Order Date": gaps}), y)
    nothing = NEW.assign(**{"Order Date": pd.NaT})
    assert (model.predict(nothing) > 50).all()
    np.testing.assert_array_equal(model.predict(NEW.assign(**{"Order Date": None})), model.predict(nothing))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (19783.0, "'Order Date' held dates in training and now holds numbers. Turn them into dates, .* pd.to_datetime"),
        ("31.12.2024", "'Order Date' held dates in training and now holds something else, or dates that are not"),
        (datetime.time(12), "'Order Date' held dates in training and now holds values such as '12:00:00'"),
    ],
)
def test_what_is_no_date_is_refused(values: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fitted().predict_interval(NEW.assign(**{"Order Date": values}))


def test_text_that_looks_like_dates_is_warned_about() -> None:
    text = X.assign(**{"Order Date": X["Order Date"].astype(str)})
    with pytest.warns(
        UserWarning, match=r"'Order Date' holds text .* look like dates, .* pd\.to_datetime makes it dates"
    ):
        CQR(quick(), coverage=0.8, random_state=0).fit(text, Y)


# -- Words -----------------------------------------------------------------------------------------------------------


def test_groups_and_regions_are_named_by_dates() -> None:
    half = Y + np.where(DAYS > "2021-11-05", 60 * RNG.normal(size=600), 0.0)
    model = ICQR(quick(), 0.8, partition=KMeansPartition(choose=2), random_state=0).fit(X[["Order Date"]], half)
    assert model.groups_["rule"].str.fullmatch(r"Order Date [≤>] 20\d\d-\d\d-\d\d").all()
    assert model.groups_["features"].str.match(r"Order Date (earlier|later) \(20\d\d-\d\d-\d\d; all: 2021-").all()

    found = audit(half, np.column_stack([Y - 5, Y + 5]), X, coverage=0.9)
    assert "Order Date > 2021-11-05" in found.regions["region"].tolist()
    assert any("Order Date > 2021-11-05" in sentence for sentence in found.findings)
    as_objects = X.assign(**{"Order Date": X["Order Date"].dt.date.astype(object)})
    again = audit(half, np.column_stack([Y - 5, Y + 5]), as_objects, coverage=0.9)
    assert again.findings == found.findings


def test_dates_can_be_groups(tmp_path: Path) -> None:
    rows = X.assign(**{"Order Date": np.repeat(pd.to_datetime(["2022-08-01 00:00", "2022-09-01 12:30"]), 300)})
    model = ICQR(quick(), 0.8, partition=GroupPartition("Order Date"), random_state=0).fit(rows, Y)
    assert model.groups_["rule"].tolist() == ["Order Date = 2022-08-01", "Order Date = 2022-09-01 12:30:00"]
    save(model, tmp_path / "model.icqr")
    assert load(tmp_path / "model.icqr").assign(rows[::150]).tolist() == [0, 0, 1, 1]
    assert model.assign(rows[:1].assign(**{"Order Date": pd.Timestamp("2000-01-01")})).tolist() == [-1]


# -- Files -----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_dates_mean_the_same_in_python_and_in_the_command(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in (("rows", X.assign(y=np.round(Y, 6))), ("new", NEW)):
        rows.to_csv(f"{name}.csv", index=False) if ending == "csv" else rows.to_parquet(f"{name}.parquet")
    run("fit", f"rows.{ending}", "--target", "y", "--method", "cqr", "--coverage", "0.8", "--out", "theirs.icqr")
    assert capsys.readouterr().err.startswith("note: column 'Order Date' holds dates\n")
    save(CQR(HistGradientBoostingRegressor(), coverage=0.8, random_state=0).fit(X, np.round(Y, 6)), "ours.icqr")
    expected = load("ours.icqr").predict_interval(NEW)

    # Fitted by either side, predicted by either side.
    np.testing.assert_array_equal(load("theirs.icqr").predict_interval(NEW), expected)
    for model in ("ours", "theirs"):
        run("predict", f"{model}.icqr", f"new.{ending}", "--out", f"{model}.parquet")
        predicted = pd.read_parquet(f"{model}.parquet")[["lower", "upper"]].to_numpy()
        np.testing.assert_array_equal(predicted, expected)

    # Dates of another form are read as the option says.
    capsys.readouterr()
    NEW.assign(**{"Order Date": NEW["Order Date"].dt.strftime("%d.%m.%Y")}).to_csv("form.csv", index=False)
    run("predict", "ours.icqr", "form.csv", "--date-format", "%d.%m.%Y", "--out", "form.parquet")
    assert capsys.readouterr().err == "note: column 'Order Date' holds dates (%d.%m.%Y)\n"
    np.testing.assert_array_equal(pd.read_parquet("form.parquet")[["lower", "upper"]].to_numpy(), expected)

    run("inspect", "theirs.icqr")
    assert "Columns: 'size' (numbers), 'Order Date' (dates), 'town' (2 categories)." in capsys.readouterr().out


def test_dates_calibrate_in_the_command_but_are_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = X.assign(y=np.round(Y, 6))
    rows[::2].to_csv("train.csv", index=False)
    rows[1::2].to_parquet("calibrate.parquet")
    given = ("--target", "y", "--method", "cqr", "--coverage", "0.8", "--out", "ours.icqr")
    run("fit", "train.csv", *given, "--calibration", "calibrate.parquet")
    model = CQR(HistGradientBoostingRegressor(), coverage=0.8, random_state=0)
    model.fit(X[::2], rows["y"][::2], X_calibration=X[1::2], y_calibration=rows["y"][1::2])
    np.testing.assert_array_equal(load("ours.icqr").predict_interval(NEW), model.predict_interval(NEW))

    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["fit", "train.csv", "--target", "Order Date", "--out", "none.icqr"])
    assert "--target: column 'Order Date' must hold numbers, but it holds dates" in capsys.readouterr().err
    NEW.assign(size=NEW["Order Date"]).to_csv("dates.csv", index=False)
    with pytest.raises(SystemExit):
        main(["predict", "ours.icqr", "dates.csv"])
    assert "column 'size': the model was trained on numbers, but it holds dates" in capsys.readouterr().err


def test_dates_on_dask_with_columns_in_any_order() -> None:
    mixed = NEW.assign(more=1.0)[["more", *NAMES[::-1]]]
    lazy = on_dask(fitted()).predict_interval(dd.from_pandas(mixed, npartitions=3))
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous").to_numpy(), fitted().predict_interval(NEW))
    with pytest.raises(ValueError, match="X lacks columns that it had in fit: 'size'"):
        on_dask(fitted()).predict(dd.from_pandas(mixed.drop(columns="size"), npartitions=3))


def test_dates_in_files_larger_than_memory(tmp_path: Path) -> None:
    labelled = NEW.assign(y=Y[:50])
    labelled.to_parquet(tmp_path / "stamps.parquet")
    dates = labelled.assign(**{"Order Date": labelled["Order Date"].dt.date})
    dates.to_parquet(tmp_path / "dates.parquet", schema=None)
    expected = CQR(quick(), coverage=0.8, random_state=0).fit(X, Y).calibrate(NEW, Y[:50]).predict_interval(NEW)
    for name in ("stamps", "dates"):
        model = CQR(quick(), coverage=0.8, random_state=0).fit(X, Y)
        streaming.calibrate(model, tmp_path / f"{name}.parquet", "y", block_rows=20)
        out = streaming.predict_interval(model, tmp_path / f"{name}.parquet", tmp_path / "out.parquet", block_rows=20)
        np.testing.assert_array_equal(pd.read_parquet(out).to_numpy(), expected)


# -- Columns by their names ------------------------------------------------------------------------------------------


@cache
def by_name(kind: str) -> Any:
    if kind == "AutoICQR":
        return AutoICQR(quick(), coverage=0.8, calibration="split", random_state=0).fit(X[:300], Y[:300])
    method = {"Naive": Naive, "CQR": CQR, "ICQR": ICQR}[kind]
    return method(quick(), coverage=0.8, random_state=0).fit(X, Y)


@pytest.mark.parametrize("kind", ["Naive", "CQR", "ICQR", "AutoICQR"])
def test_columns_may_come_in_any_order_with_others_beside_them(kind: str) -> None:
    model = by_name(kind)
    mixed = NEW.assign(more="x", number=np.inf)[["number", "town", "Order Date", "more", "size"]]
    for method in ("predict", "predict_interval", "assign", "predict_quantiles"):
        np.testing.assert_array_equal(getattr(model, method)(mixed), getattr(model, method)(NEW))
    pd.testing.assert_frame_equal(model.explain(mixed), model.explain(NEW))
    for ours, theirs in zip(model.conformity_scores(mixed, Y[:50]), model.conformity_scores(NEW, Y[:50]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.score(mixed, Y[:50]) == model.score(NEW, Y[:50])
    pd.testing.assert_frame_equal(model.group_shift(mixed).table, model.group_shift(NEW).table)
    assert audit(Y[:50], model, mixed).summary == audit(Y[:50], model, NEW).summary
    assert model.feature_names_in_.tolist() == NAMES


@pytest.mark.parametrize("method", [Naive, CQR, ICQR])
def test_calibration_rows_may_have_their_columns_in_any_order(method: Any) -> None:
    first, rest, reordered = X[::2], X[1::2], X[1::2].assign(more=1)[["more", *NAMES[::-1]]]

    def intervals(calibration: pd.DataFrame) -> Any:
        model = method(quick(), coverage=0.8, random_state=0)
        return model.fit(first, Y[::2], X_calibration=calibration, y_calibration=Y[1::2]).predict_interval(NEW)

    np.testing.assert_array_equal(intervals(reordered), intervals(rest))
    again = [
        method(quick(), coverage=0.8, random_state=0).fit(first, Y[::2]).calibrate(rows, Y[1::2]).predict_interval(NEW)
        for rows in (rest, reordered)
    ]
    np.testing.assert_array_equal(*again)


def test_a_pipeline_gets_the_columns_in_the_order_of_training() -> None:
    numbers = pd.DataFrame(RNG.uniform(size=(300, 3)), columns=["a", "b", "c"])
    pipeline = make_pipeline(FunctionTransformer(np.asarray), quick())
    model = CQR(pipeline, coverage=0.8, random_state=0).fit(numbers, numbers["a"] - numbers["c"])
    mixed = numbers.assign(d=0.0)[["d", "c", "b", "a"]]
    np.testing.assert_array_equal(model.predict_interval(mixed), model.predict_interval(numbers))


@pytest.mark.parametrize("kind", ["Naive", "ICQR", "AutoICQR"])
def test_missing_columns_are_named_with_what_may_be_meant(kind: str) -> None:
    model = by_name(kind)
    renamed = NEW.rename(columns={"Order Date": "order date"}).drop(columns="size")
    said = (
        r"X lacks columns that it had in fit: 'size', 'Order Date'; its columns are \[.*\]; did you mean 'order date'\?"
    )
    for method in ("predict", "predict_interval", "explain", "assign", "group_shift"):
        with pytest.raises(ValueError, match=said):
            getattr(model, method)(renamed)
    for method in ("conformity_scores", "calibrate", "score"):
        with pytest.raises(ValueError, match=said):
            getattr(model, method)(renamed, Y[:50])
    with pytest.raises(ValueError, match=said):
        audit(Y[:50], model, renamed)
