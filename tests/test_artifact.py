"""Models that last: everything works after loading, and nothing that is not sound is loaded."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import polars as pl
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from quantile_forest import ExtraTreesQuantileRegressor, RandomForestQuantileRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import BisectingKMeans
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import InconsistentVersionWarning, NotFittedError
from sklearn.feature_selection import f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor, XGBRFRegressor

from icqr import (
    CQR,
    ICQR,
    QR,
    GroupPartition,
    KMeansPartition,
    Naive,
    PermutationImportance,
    QuantileModel,
    ResidualQuantiles,
    ScorePartition,
    WholePartition,
    audit,
    load,
    prefit,
    report,
    save,
)
from icqr.artifact import ArtifactError
from icqr.artifact.scikit import ESTIMATORS
from icqr.calibration import SelectedCalibration
from icqr.datasets import fetch_bike_sharing
from icqr.neural import QuantileNetwork

DATA = Path(__file__).with_name("data")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


# -- Rows and models -------------------------------------------------------------------------------------------------


def draw(n: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(n, 3)), columns=["a", "b [m]", "c"])
    X["city"] = rng.choice(["Bern", "Genf", "Zürich", "Rom"], n)
    y = 5 + X["a"] + (X["city"] == "Rom") + (0.1 + X["b [m]"]) * rng.normal(size=n)
    return X, y.to_numpy()


FULL, Y = draw()
NUMBERS = FULL.drop(columns="city")
ARRAY = NUMBERS.to_numpy()
MISSING = FULL.assign(band=pd.cut(FULL["c"], [0, 0.3, 0.6, 1]), flag=FULL["a"] > 0.5, code=(FULL["c"] * 3).astype(int))
MISSING.loc[::17, "a"] = np.nan
MISSING.loc[::13, "city"] = None
POLARS = pl.DataFrame({"a": FULL["a"].to_numpy(), "city": FULL["city"].to_list()})
NUMBERED = pd.DataFrame({0: FULL["a"], 1: FULL["city"], 2: FULL["b [m]"]})
GROUPED = np.column_stack([np.arange(len(ARRAY)) % 3, ARRAY])

HIST = HistGradientBoostingRegressor(max_iter=3)
LIGHT = LGBMRegressor(n_jobs=1, n_estimators=5)
BOOST = GradientBoostingRegressor(n_estimators=5)
NETWORK = QuantileNetwork(hidden=(6,), epochs=2, n_networks=2, verbose=False)
LIBRARIES = {
    "hist": HIST,
    "lightgbm": LIGHT,
    "xgboost": XGBRegressor(n_jobs=1, n_estimators=5),
    "catboost": CatBoostRegressor(thread_count=1, iterations=5),
    "boosting": BOOST,
    "linear": QuantileRegressor(alpha=0),
    "forest": RandomForestQuantileRegressor(n_estimators=5),
    "network": NETWORK,
}
ONCE = PermutationImportance(n_repeats=1)
TAKES_EVERYTHING = ("hist", "lightgbm", "xgboost", "catboost")
PREPARED = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b [m]", "c"]),
    (OneHotEncoder(handle_unknown="ignore"), ["city"]),
)


def fitted_levels() -> Any:
    models = [
        LGBMRegressor(n_jobs=1, n_estimators=3, objective="quantile", alpha=q, verbose=-1) for q in (0.05, 0.5, 0.95)
    ]
    lower, median, upper = (model.fit(ARRAY, Y) for model in models)
    return prefit(lower=lower, median=median, upper=upper, levels=(0.05, 0.5, 0.95))


CASES: dict[str, tuple[Any, Any]] = {}
for name, estimator in LIBRARIES.items():
    table = MISSING if name in TAKES_EVERYTHING else NUMBERS
    CASES[name] = (ICQR(estimator, importance=ONCE, random_state=0), table)
    CASES[f"{name}, array"] = (CQR(estimator, random_state=0), ARRAY)
    CASES[f"{name}, pipeline"] = (CQR(make_pipeline(PREPARED, estimator), random_state=0), FULL)
    transformed = TransformedTargetRegressor(estimator, func=np.log1p, inverse_func=np.expm1)
    CASES[f"{name}, log y"] = (CQR(transformed, random_state=0), NUMBERS)
CASES |= {
    "default": (ICQR(importance=ONCE, random_state=0), FULL),
    "boosting, categories": (CQR(BOOST, random_state=0), FULL),
    "xgboost, forest": (CQR(XGBRFRegressor(n_jobs=1, n_estimators=3), random_state=0), NUMBERS),
    "extra trees": (CQR(ExtraTreesQuantileRegressor(n_estimators=3), random_state=0), NUMBERS),
    "pipeline in log y": (
        CQR(TransformedTargetRegressor(make_pipeline(StandardScaler(), BOOST), transformer=StandardScaler())),
        NUMBERS,
    ),
    "log y in pipeline": (
        CQR(make_pipeline(StandardScaler(), TransformedTargetRegressor(LIGHT, transformer=StandardScaler()))),
        NUMBERS,
    ),
    "hist, categories by position": (
        CQR(HistGradientBoostingRegressor(max_iter=5, categorical_features=[0], monotonic_cst=[0, 1, 0, 0])),
        GROUPED,
    ),
    "hist, categories in pipeline": (
        CQR(
            make_pipeline(
                make_column_transformer((OrdinalEncoder(), ["city"]), remainder="passthrough"),
                HistGradientBoostingRegressor(max_iter=5, categorical_features=[0]),
            )
        ),
        FULL,
    ),
    "naive": (Naive(random_state=0), MISSING),
    "naive, forest": (Naive(RandomForestRegressor(n_estimators=3), random_state=0), NUMBERS),
    "naive, catboost": (Naive(CatBoostRegressor(thread_count=1, iterations=5), random_state=0), MISSING),
    "naive, poisson loss": (Naive(HistGradientBoostingRegressor(loss="poisson", max_iter=5)), NUMBERS),
    "naive, frozen": (Naive(FrozenEstimator(LinearRegression().fit(ARRAY, Y))), ARRAY),
    "naive, frozen lightgbm": (
        Naive(FrozenEstimator(LGBMRegressor(n_jobs=1, n_estimators=3, verbose=-1).fit(ARRAY, Y))),
        ARRAY,
    ),
    "qr": (QR(HIST, coverage=0.8), NUMBERS),
    "pipeline and groups": (ICQR(make_pipeline(PREPARED, LIGHT), importance=ONCE, random_state=0), FULL),
    "two offsets": (
        ICQR(HIST, importance=ONCE, symmetric=False, conformity="cqr-m", y_min=-5, random_state=np.int64(3)),
        NUMBERS,
    ),
    "lower": (CQR(HIST, side="lower", coverage=np.float32(0.9), conformity="cqr-r"), NUMBERS),
    "upper": (ICQR(HIST, importance=ONCE, side="upper", y_max=1000, n_jobs=1), NUMBERS),
    "groups": (ICQR(LIGHT, partition=GroupPartition("city"), small_groups="infinite"), MISSING),
    "groups of two columns": (
        ICQR(LIGHT, partition=GroupPartition(["city", "band"]), small_groups="infinite"),
        MISSING,
    ),
    "groups of an array": (ICQR(HIST, partition=GroupPartition(0), small_groups="infinite"), GROUPED),
    "one group": (ICQR(HIST, partition=WholePartition()), NUMBERS),
    "as printed": (ICQR.as_printed(HIST, random_state=0), NUMBERS),
    "silhouette": (ICQR(HIST, partition=KMeansPartition(choose="silhouette", max_groups=4)), NUMBERS),
    "prefit": (CQR(fitted_levels()), ARRAY),
    "quantile model": (CQR(QuantileModel(BOOST, n_jobs=1)), ARRAY),
    "level parameter": (CQR(QuantileModel(BOOST.set_params(loss="quantile"), level_parameter="alpha")), ARRAY),
    "residual quantiles": (ICQR(ResidualQuantiles(LIGHT), partition=ScorePartition(2), random_state=0), MISSING),
    "auto": (ICQR(LIGHT, partition="auto", importance=ONCE, calibration_size=200, random_state=0), MISSING),
    "polars": (ICQR(LIGHT, importance=ONCE, random_state=0), POLARS),
    "numbered columns": (ICQR(HIST, importance=ONCE, random_state=0), NUMBERED),
}
# Second looks, in `make test-all` only: every library is stored as it is in `make test`, and in a pipeline, under a
# logarithm and fitted on an array it is stored as the libraries are that are not listed here.
SLOW = {
    *(f"{name}, pipeline" for name in ("network", "lightgbm", "boosting", "catboost", "xgboost", "forest", "linear")),
    *(f"{name}, log y" for name in ("boosting", "forest", "xgboost", "catboost", "linear", "lightgbm")),
    *(f"{name}, array" for name in ("boosting", "forest", "lightgbm", "linear", "catboost")),
}


def fitted(model: Any, X: Any, y: Any = Y) -> Any:
    with warnings.catch_warnings():
        # Few rows, made-up settings: what fit says about them is not looked at here.
        warnings.simplefilter("ignore")
        return model.fit(X, y)


@pytest.fixture(scope="module")
def small() -> Any:
    """A model of the default kind, with categories and three groups."""
    return fitted(ICQR(HIST, partition=KMeansPartition(choose=3), random_state=0), MISSING)


@pytest.fixture
def file(tmp_path: Path, small: Any) -> Path:
    save(small, tmp_path / "model.icqr")
    return tmp_path / "model.icqr"


# -- Round trips -----------------------------------------------------------------------------------------------------


def test_labels_of_any_type_of_pandas(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(200), "c": rng.choice(list("xyz"), 200), "n": rng.integers(0, 5, 200)})
    nullable = frame.astype({"n": "Int64"}).astype({"n": "category"})
    dummies = pd.get_dummies(frame["c"].astype("category")) * 1.0  # their names are a CategoricalIndex
    for X in (frame.convert_dtypes(dtype_backend="pyarrow"), nullable, dummies):
        model = CQR(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(X, frame["a"])
        save(model, tmp_path / "model.icqr")
        again = load(tmp_path / "model.icqr")
        np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_labels_that_no_file_can_hold_are_refused_when_it_is_written(tmp_path: Path) -> None:
    names = pd.date_range("2026-01-01", periods=2)
    X = pd.DataFrame(np.random.default_rng(0).random((90, 2)), columns=names)
    model = CQR(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(X, np.arange(90.0))
    with pytest.raises(ArtifactError, match=r"labels of the type datetime64.* can't be stored without pickle"):
        save(model, tmp_path / "model.icqr", with_estimator=False)
    X = pd.DataFrame({"a": np.arange(90.0), "day": pd.Categorical(names.repeat(45))})
    model = CQR(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(X, X["a"])
    with pytest.raises(ArtifactError, match=r"the column 'day' has labels of the type .* by astype\(str\)"):
        save(model, tmp_path / "model.icqr")


def test_a_checkpoint_may_be_a_path(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((90, 2))
    network = QuantileNetwork(hidden=(4,), epochs=1, verbose=False, checkpoint=tmp_path / "checkpoint")
    model = CQR(network, random_state=0).fit(X, X[:, 0])
    save(model, tmp_path / "model.icqr")
    np.testing.assert_array_equal(load(tmp_path / "model.icqr").predict(X), model.predict(X))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_everything_works_after_loading_as_before(name: str, tmp_path: Path) -> None:
    model, X = CASES[name]
    model = fitted(clone(model), X)
    file = tmp_path / "model.icqr"
    save(model, file)
    again = load(file)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="coverage=.* needs")  # groups that are too small, in both
        coverages = None if isinstance(model, QR) else [0.6, 0.95]
        assert np.array_equal(again.predict_interval(X, coverages), model.predict_interval(X, coverages))
        assert np.array_equal(again.predict(X), model.predict(X))
        pd.testing.assert_frame_equal(again.explain(X), model.explain(X))
        pd.testing.assert_frame_equal(again.groups_, model.groups_)
        pd.testing.assert_frame_equal(again.certificate().groups, model.certificate().groups)
        assert str(again.certificate()) == str(model.certificate())
        assert again.n_crossed_ == model.n_crossed_
        assert repr(again) == repr(model)
        assert repr(clone(again)) == repr(clone(model))
        assert hasattr(again, "importances_") == hasattr(model, "importances_")
        if hasattr(model, "importances_"):
            pd.testing.assert_frame_equal(again.importances_, model.importances_)
        if not isinstance(model, QR):
            fresh = Y + 0.1
            model.calibrate(X, fresh)
            again.calibrate(X, fresh)
            pd.testing.assert_frame_equal(again.explain(X), model.explain(X))


@pytest.mark.parametrize("name", ["hist", "forest", "linear, pipeline", "network", "lightgbm", "xgboost", "catboost"])
def test_the_same_model_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    model, X = CASES[name]
    model = fitted(clone(model), X)
    for file in ("one", "two"):
        save(model, tmp_path / file)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_model_that_was_loaded_gives_the_same_bytes(tmp_path: Path) -> None:
    X = pd.DataFrame({"a": np.arange(90.0), "c": pd.Series(["u", "v", None] * 30, dtype="string")})
    save(CQR(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(X, X["a"]), tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


SAVED_ELSEWHERE = """
import sys, numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from icqr import CQR, save
X = np.random.default_rng(0).uniform(size=(200, 2))
save(CQR(GradientBoostingRegressor(n_estimators=3), random_state=0).fit(X, X[:, 0]), sys.argv[1])
"""


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", SAVED_ELSEWHERE, str(tmp_path / seed)], check=True, env=environment)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_a_loaded_model_can_be_saved_fitted_audited_and_reported(file: Path, small: Any, tmp_path: Path) -> None:
    again = load(file)
    save(again, tmp_path / "again.icqr")
    assert (tmp_path / "again.icqr").read_bytes() == file.read_bytes()
    one, other = (audit(Y, model, MISSING, with_excess_risk=False) for model in (again, small))
    assert one.to_dict() == other.to_dict()
    for name, model in {"before": small, "after": again}.items():
        report(model, tmp_path / f"{name}.html", json_path=tmp_path / f"{name}.json")
    assert (tmp_path / "before.json").read_bytes() == (tmp_path / "after.json").read_bytes()
    refitted, expected = fitted(clone(again), MISSING), small
    assert np.array_equal(refitted.predict_interval(MISSING), expected.predict_interval(MISSING))
    pd.testing.assert_frame_equal(again.group_shift(MISSING).table, small.group_shift(MISSING).table)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(MISSING.rename(columns={"a": "z"}))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("ICQR_DATA_HOME"), reason="set ICQR_DATA_HOME to the folder with the data files")
def test_the_file_for_bike_is_small(tmp_path: Path) -> None:
    X, y = fetch_bike_sharing(return_X_y=True)
    model = fitted(ICQR(importance=ONCE, random_state=0), X, y)
    again = load_copy(model, tmp_path)
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
    assert (tmp_path / "copy.icqr").stat().st_size < 2_000_000


def test_a_calibration_that_keeps_some_scores_is_stored(small: Any, tmp_path: Path) -> None:
    model = load_copy(small, tmp_path)
    groups = [group[[len(group) * 9 // 10, -1]] for group in small.calibration_.scores[:-1]]
    sizes = small.calibration_.sizes
    kept = tuple(np.array([n * 9 // 10 + 1, n]) for n in sizes[:-1])
    pooled = np.sort(np.concatenate(small.calibration_.scores), axis=0)
    model.calibration_ = SelectedCalibration(
        small.conformity_,
        (*groups, np.empty((0, 1))),
        "pooled",
        "group-wise",
        kept=(*kept, np.empty(0, dtype=int)),
        counts=sizes,
        pooled_scores=pooled[[-1]],
        pooled_ranks=np.array([len(pooled)]),
        coverages=("0.9",),
    )
    again = load_copy(model, tmp_path)
    assert isinstance(again.calibration_, SelectedCalibration)
    assert np.array_equal(again.calibration_.sizes, sizes)
    for own, stored in zip(model.calibration_.kept, again.calibration_.kept, strict=True):
        assert np.array_equal(own, stored)
    with pytest.raises(ValueError, match=r"only those for coverage=0\.9 were kept"):
        again.predict_interval(MISSING, coverage=0.3)


def load_copy(model: Any, folder: Path) -> Any:
    save(model, folder / "copy.icqr")
    return load(folder / "copy.icqr")


SPECIAL: dict[str, Callable[[Any], Any]] = {
    "ColumnTransformer": lambda kind: make_column_transformer((StandardScaler(), [0]), remainder="passthrough"),
    "FeatureUnion": lambda kind: make_union(StandardScaler(), SimpleImputer()),
    "FrozenEstimator": lambda kind: kind(LinearRegression().fit(ARRAY, Y)),
    "GaussianRandomProjection": lambda kind: kind(n_components=2),
    "MissingIndicator": lambda kind: make_union(StandardScaler(), MissingIndicator(features="all")),
    "OneHotEncoder": lambda kind: kind(handle_unknown="ignore"),
    "OrdinalEncoder": lambda kind: kind(handle_unknown="use_encoded_value", unknown_value=-1),
    "Pipeline": lambda kind: make_pipeline(StandardScaler(), SimpleImputer()),
    "SelectFromModel": lambda kind: kind(LinearRegression()),
    "SelectKBest": lambda kind: kind(f_regression, k=2),
    "SelectPercentile": lambda kind: kind(f_regression, percentile=50),
    "VotingRegressor": lambda kind: kind([("a", LinearRegression()), ("b", BOOST)]),
}


@pytest.mark.parametrize("name", [f"{module}.{name}" for module, names in ESTIMATORS.items() for name in names.split()])
def test_each_estimator_that_is_trusted_comes_back(name: str, tmp_path: Path) -> None:
    module, _, short = name.rpartition(".")
    kind = getattr(importlib.import_module(module), short)
    estimator = SPECIAL.get(short, lambda kind: kind())(kind)
    if "n_estimators" in estimator.get_params():
        estimator.set_params(n_estimators=3)
    if not hasattr(estimator, "predict"):
        estimator = make_pipeline(estimator, LinearRegression())
    model = fitted(Naive(estimator, random_state=0), ARRAY)
    assert np.array_equal(load_copy(model, tmp_path).predict(ARRAY), model.predict(ARRAY))


# -- What can't be stored --------------------------------------------------------------------------------------------


class Lines(BaseEstimator):
    """A quantile model of a user's own."""

    def __init__(self, width: float = 1.0) -> None:
        self.width = width

    def fit(self, X: Any, y: Any) -> Self:
        self.slope_ = float(np.polyfit(np.asarray(X)[:, 0], y, 1)[0])
        return self

    def predict(self, X: Any) -> Any:
        return self.predict_quantiles(X, [0.5])[:, 0]

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return self.slope_ * np.asarray(X)[:, :1] + self.width * (np.asarray(levels) - 0.5)


class Own(ICQR):
    """A user's own subclass."""


class Halves:
    """A partition of a user's own."""

    def fit(self, X: Any, y: Any, bounds: Any, weights: Any = None, random_state: Any = None) -> Self:
        return self

    def assign(self, X: Any) -> Any:
        return (np.asarray(X)[:, 0] > 0.5).astype(int)


def own_error(y: Any, quantiles: Any, levels: Any) -> float:
    return float(np.mean(np.abs(y - quantiles[:, 1])))


UNSTORABLE: dict[str, tuple[Any, Any, str]] = {
    "own model": (CQR(Lines()), NUMBERS, r"Lines, which can't be stored .*with_estimator=False.*prefit\("),
    "own model in a pipeline": (CQR(make_pipeline(StandardScaler(), Lines())), NUMBERS, "Lines, which can't be stored"),
    "own step": (
        CQR(make_pipeline(FunctionTransformer(lambda X: X), QuantileRegressor(alpha=0))),
        NUMBERS,
        r"(?s)lambda.*with_estimator=False",
    ),
    "own function": (
        CQR(
            prefit(
                lower=lambda X: X[:, 0],
                upper=lambda X: X[:, 0] + 9,
                median=lambda X: X[:, 1] + 1,
                levels=(0.05, 0.5, 0.95),
            )
        ),
        ARRAY,
        "builtins.function, which can't be stored",
    ),
    "own objective": (
        Naive(LGBMRegressor(n_jobs=1, n_estimators=2, objective=lambda y, f: (f - y, y))),
        ARRAY,
        "objective is of type builtins.function",
    ),
    "own groups": (
        ICQR(HIST, partition=GroupPartition(lambda X: X["a"] > 0.5)),
        NUMBERS,
        "by is a function.*GroupPartition",
    ),
    "own partition": (ICQR(HIST, partition=Halves()), NUMBERS, "the partition is of type .*Halves.*GroupPartition"),
    "own clusterer": (
        ICQR(HIST, partition=KMeansPartition(clusterer=BisectingKMeans(), choose=2)),
        NUMBERS,
        "clusterer is a BisectingKMeans",
    ),
    "own error": (
        ICQR(HIST, importance=PermutationImportance(error=own_error)),
        NUMBERS,
        r"importance\.error is of type builtins\.function.*set_params\(importance__error=None\)",
    ),
    "random state": (CQR(HIST, random_state=np.random.RandomState(0)), NUMBERS, r"set_params\(random_state=None\)"),
    "own subclass": (Own(HIST), NUMBERS, "the code of a class of your own"),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_cant_be_stored_is_named_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    model, X, message = UNSTORABLE[name]
    model = fitted(model, X)
    file = tmp_path / "model.icqr"
    file.write_bytes(b"the old one")
    with pytest.raises(ArtifactError, match=message):
        save(model, file)
    assert file.read_bytes() == b"the old one"
    assert os.listdir(tmp_path) == ["model.icqr"]


def test_a_pipeline_with_a_cache_is_refused(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), QuantileRegressor(alpha=0), memory=str(tmp_path / "cache"))
    with pytest.raises(ArtifactError, match="a Pipeline with memory keeps pickles"):
        save(fitted(CQR(pipeline), NUMBERS), tmp_path / "model.icqr")
    assert os.listdir(tmp_path) == ["cache"]


def test_a_parameter_that_was_left_out_as_told_lets_the_model_be_stored(tmp_path: Path) -> None:
    model = fitted(ICQR(HIST, importance=PermutationImportance(error=own_error), random_state=0), NUMBERS)
    again = load_copy(model.set_params(importance__error=None), tmp_path)
    pd.testing.assert_frame_equal(again.importances_, model.importances_)


def test_only_fitted_methods_are_stored(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save(ICQR(), tmp_path / "model.icqr")
    with pytest.raises(ArtifactError, match="must be a fitted Naive, QR, CQR, ICQR"):
        save(LinearRegression().fit(ARRAY, Y), tmp_path / "model.icqr")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_a_model_can_be_given_when_the_file_is_loaded(tmp_path: Path) -> None:
    model = fitted(ICQR(Lines(), random_state=0), FULL)  # text: the rows reach it one-hot
    file = tmp_path / "model.icqr"
    save(model, file, with_estimator=False)
    own = model.model_.models_[0]
    again = load(file, estimator=own)
    assert np.array_equal(again.predict_interval(FULL, [0.5, 0.9]), model.predict_interval(FULL, [0.5, 0.9]))
    levels = (0.05, 0.5, 0.95)
    lower, median, upper = (lambda X, q=q: own.predict_quantiles(X, [q]) for q in levels)
    by_level = load(file, estimator=prefit(lower=lower, median=median, upper=upper, levels=levels))
    assert np.array_equal(by_level.predict_interval(FULL), model.predict_interval(FULL))
    with pytest.raises(ArtifactError, match="predicts other values"):
        load(file, estimator=Lines(width=2.0).fit(ARRAY, Y))
    with pytest.raises(ValueError, match=r"saved without its fitted model.*predict_quantiles, got nothing"):
        load(file)
    with pytest.raises(ValueError, match="predict_quantiles, got a LinearRegression"):
        load(file, estimator=LinearRegression())


def test_a_regressor_can_be_given_when_the_file_is_loaded(tmp_path: Path) -> None:
    model = fitted(Naive(LinearRegression()), ARRAY)
    save(model, tmp_path / "model.icqr", with_estimator=False)
    again = load(tmp_path / "model.icqr", estimator=model.model_.model_)
    assert np.array_equal(again.predict_interval(ARRAY), model.predict_interval(ARRAY))


def test_no_model_is_given_to_a_file_that_has_one(file: Path, small: Any) -> None:
    with pytest.raises(ValueError, match="holds its fitted model"):
        load(file, estimator=small.model_)


WITHOUT_SKOPS = """
import sys
sys.modules["skops"] = None
import numpy as np
from sklearn.linear_model import QuantileRegressor
from icqr import CQR, ICQR, load, save
X = np.random.default_rng(0).uniform(size=(90, 2))
for model in (ICQR(random_state=0), ICQR.as_printed(random_state=0)):
    save(model.fit(X, X[:, 0]), sys.argv[1])
    load(sys.argv[1])
try:
    save(CQR(QuantileRegressor()).fit(X, X[:, 0]), sys.argv[1])
except ImportError as error:
    print(error)
"""


def test_the_default_model_needs_no_skops_and_others_say_how_to_get_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_SKOPS, str(tmp_path / "model.icqr")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'pip install "icqr[artifact]"' in run.stdout


# -- Writing ---------------------------------------------------------------------------------------------------------

ON_A_FULL_DISK = """
import resource, signal, sys
import numpy as np
from icqr import ICQR, load, save
X = np.random.default_rng(0).uniform(size=(90, 2))
model = ICQR(random_state=0).fit(X, X[:, 0])
save(model, sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save(model.set_params(coverage=0.8), sys.argv[1])
except OSError as error:
    print("refused", error.errno)
print(load(sys.argv[1]).coverage)
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ON_A_FULL_DISK, str(tmp_path / "model.icqr")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["refused", "27", "0.9"]
    assert os.listdir(tmp_path) == ["model.icqr"]


def test_a_missing_folder_is_an_error_of_its_own(small: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(small, tmp_path / "nowhere" / "model.icqr")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.icqr")


# -- The golden files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lightgbm", "hist", "linear"])
def test_version_1_is_read_by_every_later_version(name: str) -> None:
    expected = json.loads((DATA / f"golden-v1-{name}.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        # Another version of scikit-learn than wrote the file; what it predicts is checked below.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = load(DATA / f"golden-v1-{name}.icqr")
    X = pd.DataFrame(expected["rows"])
    close = {"rtol": 1e-9, "atol": 1e-9}  # of y's unit; another machine may round otherwise
    np.testing.assert_allclose(model.predict_interval(X), expected["interval"], **close)
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.5), expected["interval_50"], **close)
    np.testing.assert_allclose(model.predict(X), expected["median"], **close)
    explained = model.explain(X)
    assert explained["group"].tolist() == expected["group"]
    np.testing.assert_allclose(explained["promised"], expected["promised"])
    assert model.groups_["rule"].tolist() == expected["rules"]
    X_new, y_new = pd.concat([X] * 10), np.tile(expected["median"], 10)
    assert model.calibrate(X_new, y_new).predict_interval(X).shape == (len(X), 2)


def fields_of(record: Any) -> Iterator[str]:
    """Give the names of a record's fields, and of those inside; not the users' parameters."""
    if isinstance(record, dict):
        for name, value in record.items():
            yield name
            if name != "parameters":
                yield from fields_of(value)
    elif isinstance(record, list):
        for one in record:
            yield from fields_of(one)


@pytest.mark.parametrize(
    "name",
    ["hist", "lightgbm", "xgboost", "catboost", "network", "forest, pipeline", "prefit", "residual quantiles", "auto"],
)
def test_each_field_is_written_down(name: str, tmp_path: Path) -> None:
    model, X = CASES[name]
    save(fitted(clone(model), X), tmp_path / "model.icqr")
    with zipfile.ZipFile(tmp_path / "model.icqr") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    text = (Path(__file__).parents[1] / "docs" / "artifact.md").read_text(encoding="utf-8")
    settings = {*KMeansPartition().get_params(), "dict", "tuple", "interval", "float", "number", "array"}
    found = {*manifest, *fields_of(manifest["model"]), *fields_of(manifest["scikit_learn"])} - settings
    assert not [field for field in sorted(found) if f"`{field}`" not in text]
