"""Models that last: everything works after loading, and nothing that is not sound is loaded."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import stat
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
from icqr._file_checks import CLASSES
from icqr.calibration import SelectedCalibration
from icqr.datasets import fetch_bike_sharing
from icqr.neural import QuantileNetwork
from icqr.persistence import ModelFileError

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
NETWORK = QuantileNetwork(hidden=(6,), epochs=2, n_networks=2)
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
    "naive": (Naive(HIST), MISSING),
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
    "random ties": (CQR(HIST, ties="random"), NUMBERS),
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
    "residual quantiles": (
        ICQR(ResidualQuantiles(LGBMRegressor(n_jobs=1, n_estimators=2)), partition=ScorePartition(2, HIST)),
        MISSING,
    ),
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
    if model.random_state is None:
        model.set_params(random_state=0)
    with warnings.catch_warnings():
        # Few rows, made-up settings: what fit says about them is not looked at here.
        warnings.simplefilter("ignore")
        return model.fit(X, y)


@pytest.fixture(scope="module")
def small() -> Any:
    """A model of the default kind, with categories and three groups."""
    return fitted(ICQR(HIST, partition=KMeansPartition(choose=3), random_state=0), MISSING)


@pytest.fixture(scope="module")
def sound(small: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of this model, and of one with trees of the other kind."""
    path = tmp_path_factory.mktemp("sound") / "model.icqr"
    files = {}
    for name, model in {"small": small, "boosting": fitted(CQR(BOOST), NUMBERS)}.items():
        save(model, path)
        files[name] = path.read_bytes()
    return files


@pytest.fixture
def boosted(tmp_path: Path, sound: dict[str, bytes]) -> Path:
    path = tmp_path / "boosted.icqr"
    path.write_bytes(sound["boosting"])
    return path


@pytest.fixture
def file(tmp_path: Path, sound: dict[str, bytes]) -> Path:
    path = tmp_path / "model.icqr"
    path.write_bytes(sound["small"])
    return path


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
    with pytest.raises(ModelFileError, match=r"labels of the type datetime64.* can't be stored without pickle"):
        save(model, tmp_path / "model.icqr", with_estimator=False)
    X = pd.DataFrame({"a": np.arange(90.0), "day": pd.Categorical(names.repeat(45))})
    model = CQR(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(X, X["a"])
    with pytest.raises(ModelFileError, match=r"categories\['day'\] has labels of the type .* by astype\(str\)"):
        save(model, tmp_path / "model.icqr")


@pytest.mark.slow
def test_a_checkpoint_may_be_a_path(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((90, 2))
    network = QuantileNetwork(hidden=(4,), epochs=1, checkpoint=tmp_path / "checkpoint")
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
    save(again, tmp_path / "again.icqr")
    if "catboost" not in name:  # which puts its settings into another order
        assert (tmp_path / "again.icqr").read_bytes() == file.read_bytes()  # the same model gives the same bytes
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
    before, after = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("before", "after"))
    assert before | {"made": ""} == after | {"made": ""}  # the minute in which each was made
    refitted, expected = fitted(clone(again), MISSING), small
    assert np.array_equal(refitted.predict_interval(MISSING), expected.predict_interval(MISSING))
    pd.testing.assert_frame_equal(again.group_shift(MISSING).table, small.group_shift(MISSING).table)
    with pytest.raises(ValueError, match="X lacks columns that it had in fit"):
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
    "TargetEncoder": lambda kind: kind(shuffle=False),
    "VotingRegressor": lambda kind: kind([("a", LinearRegression()), ("b", BOOST)]),
}


ESTIMATORS = [
    f"{module}.{name}"
    for module, names in CLASSES.items()
    for name in names.split()
    if module == "quantile_forest" or (module.startswith("sklearn.") and "._" not in module)
    if not name.endswith("KMeans") and name not in ("Bunch", "KernelCenterer", "LabelBinarizer")
]


@pytest.mark.parametrize("name", ESTIMATORS)
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
        r"func is of type builtins\.function.*with_estimator=False",
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
        r"builtins\.function, which can't be stored",
    ),
    "own objective": (
        Naive(LGBMRegressor(n_jobs=1, n_estimators=2, objective=lambda y, f: (f - y, y))),
        ARRAY,
        r"objective is of type builtins\.function",
    ),
    "own groups": (
        ICQR(HIST, partition=GroupPartition(lambda X: X["a"] > 0.5)),
        NUMBERS,
        r"by is of type builtins\.function.*GroupPartition",
    ),
    "own partition": (ICQR(HIST, partition=Halves()), NUMBERS, "partition is of type .*Halves.*GroupPartition"),
    "own clusterer": (
        ICQR(HIST, partition=KMeansPartition(clusterer=BisectingKMeans(), choose=2)),
        NUMBERS,
        "clusterer is of type .*BisectingKMeans.*KMeans and MiniBatchKMeans can",
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
    with pytest.raises(ModelFileError, match=message):
        save(model, file)
    assert file.read_bytes() == b"the old one"
    assert os.listdir(tmp_path) == ["model.icqr"]


def test_a_pipeline_with_a_cache_is_refused(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), QuantileRegressor(alpha=0), memory=str(tmp_path / "cache"))
    with pytest.raises(ModelFileError, match="a Pipeline with memory keeps pickles"):
        save(fitted(CQR(pipeline), NUMBERS), tmp_path / "model.icqr")
    assert os.listdir(tmp_path) == ["cache"]


def test_a_parameter_that_was_left_out_as_told_lets_the_model_be_stored(tmp_path: Path) -> None:
    model = fitted(ICQR(HIST, importance=PermutationImportance(error=own_error), random_state=0), NUMBERS)
    again = load_copy(model.set_params(importance__error=None), tmp_path)
    pd.testing.assert_frame_equal(again.importances_, model.importances_)


def test_only_fitted_methods_are_stored(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save(ICQR(), tmp_path / "model.icqr")
    with pytest.raises(ModelFileError, match="must be a fitted Naive, QR, CQR, ICQR"):
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
    with pytest.raises(ModelFileError, match="predicts other values"):
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
from icqr import CQR, save
X = np.random.default_rng(0).uniform(size=(90, 2))
try:
    save(CQR(random_state=0).fit(X, X[:, 0]), sys.argv[1])
except ImportError as error:
    print(error)
"""


def test_without_skops_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_SKOPS, str(tmp_path / "model.icqr")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'pip install "icqr[files]"' in run.stdout
    assert not os.listdir(tmp_path)


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


# -- The golden file -------------------------------------------------------------------------------------------------


def golden_rows(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with missing ones, and categories."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"area": rng.uniform(20, 200, n), "age": rng.integers(0, 100, n)})
    X["city"] = rng.choice(["Bern", "Genf", "Zürich"], n)
    y = 3 * X["area"] + (X["city"] == "Genf") * 200 + (20 + X["age"]) * rng.normal(size=n)
    X.loc[::9, "area"] = np.nan
    X.loc[::14, "city"] = None
    return X, y.to_numpy()


def make_golden() -> None:
    """Write the golden file of a new version of the format: python tests/test_persistence.py."""
    X, y = golden_rows(400, seed=0)
    new, _ = golden_rows(12, seed=1)
    estimator = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=7)
    model = ICQR(estimator, coverage=0.8, partition=KMeansPartition(choose=4), y_min=-1000, random_state=0).fit(X, y)
    save(model, DATA / "golden-v2.icqr", key="golden")
    explained = model.explain(new)
    answers = {
        "rows": json.loads(new.to_json(orient="records")),
        "interval": model.predict_interval(new).tolist(),
        "interval_50": model.predict_interval(new, coverage=0.5).tolist(),
        "median": model.predict(new).tolist(),
        "group": explained["group"].tolist(),
        "promised": explained["promised"].tolist(),
        "rules": model.groups_["rule"].tolist(),
    }
    (DATA / "golden-v2.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")


def test_version_2_is_read_by_every_later_version() -> None:
    expected = json.loads((DATA / "golden-v2.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        # Another version of scikit-learn than wrote the file; what it predicts is checked below.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = load(DATA / "golden-v2.icqr", key="golden")
    X = pd.DataFrame(expected["rows"])
    close = {"rtol": 1e-9, "atol": 1e-9}  # of y's unit; another machine may round otherwise
    np.testing.assert_allclose(model.predict_interval(X), expected["interval"], **close)
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.5), expected["interval_50"], **close)
    np.testing.assert_allclose(model.predict(X), expected["median"], **close)
    explained = model.explain(X)
    assert explained["group"].tolist() == expected["group"]
    np.testing.assert_allclose(explained["promised"], expected["promised"])
    assert model.groups_["rule"].tolist() == expected["rules"]
    with pytest.raises(ValueError, match=r"an older file; call calibrate\(X, y\) with fresh rows"):
        model.predict_distribution(X)  # the file was written before there were distributions
    X_new, y_new = pd.concat([X] * 10), np.tile(expected["median"], 10)
    assert model.calibrate(X_new, y_new).predict_interval(X).shape == (len(X), 2)
    assert np.isfinite(model.predict_distribution(X).median()).all()


# -- Signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"\x00\xff secret", "our secret"])
def test_a_signed_file_needs_its_key(key: Any, small: Any, tmp_path: Path) -> None:
    file = tmp_path / "signed.icqr"
    save(small, file, key=key)
    assert np.array_equal(load(file, key=key).predict(MISSING), small.predict(MISSING))
    with pytest.raises(ModelFileError, match=r"the file is signed: give the key .* load\(path, key=…\)"):
        load(file)
    with pytest.raises(ModelFileError, match="signature is wrong: the file was saved with another key, or changed"):
        load(file, key="another")


def test_a_key_is_no_use_for_a_file_without_signature(file: Path) -> None:
    with pytest.raises(ModelFileError, match="the file is not signed, so the key can't show who wrote it"):
        load(file, key="ours")


@pytest.mark.parametrize("key", ["", b"", 7])
def test_a_key_must_be_bytes_or_text(key: Any, small: Any, file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="key must be bytes or text that is not empty"):
        save(small, tmp_path / "other.icqr", key=key)
    with pytest.raises(ValueError, match="key must be bytes or text that is not empty"):
        load(file, key=key)


def test_the_signature_is_checked_before_any_part_is_read(small: Any, tmp_path: Path) -> None:
    """Whoever changes a part and repairs its hash is found out; so is who changes a part that can't even be read."""
    file = tmp_path / "signed.icqr"
    save(small, file, key="ours")
    sound = file.read_bytes()
    with pytest.raises(ModelFileError, match="signature is wrong"):
        load(altered(file, lambda manifest, files: files.update({"schema.json": b"{"})), key="ours")
    file.write_bytes(sound)
    parts = unzipped(file)
    with pytest.raises(ModelFileError, match=r"schema\.json was changed"):
        load(rezipped(file, {**parts, "schema.json": b"{"}), key="ours")
    with pytest.raises(ModelFileError, match="not signed"):
        load(rezipped(file, {name: content for name, content in parts.items() if name != "signature"}), key="ours")


# -- Files that are refused ------------------------------------------------------------------------------------------

Files = dict[str, bytes]


def altered(file: Path, change: Callable[[dict[str, Any], Files], None], repair: bool = True) -> Path:
    """Change what is in a file, and (unless it is tampering that must be seen) make its hashes right again."""
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    change(manifest, files)
    for name, about in manifest.get("parts", {}).items():
        if repair and name in files:
            about["bytes"], about["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    return rezipped(file, {"manifest.json": json.dumps(manifest).encode(), **files})


def rezipped(file: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def unzipped(file: Path) -> Files:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a zip archive"),
        (b"a,b\n1,2\n", "not a zip archive"),
        (b"\x80\x04\x95\x00", "a pickle, which can run any code"),
        (b"PK\x03\x04 and nothing else", "damaged: cut off"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path / "file")


def test_another_zip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"a zip archive without manifest\.json"):
        load(rezipped(tmp_path / "file", {"readme.txt": b"hello"}))
    with pytest.raises(ModelFileError, match='does not say "format"'):
        load(rezipped(tmp_path / "file", {"manifest.json": b"{}"}))


def test_a_truncated_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for size in (3, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"damaged|not a zip"):
            load(file)


def test_a_changed_part_is_refused(file: Path) -> None:
    def change(manifest: dict[str, Any], files: Files) -> None:
        files["7.npy"] = files["7.npy"][:-8] + np.float64(0.0).tobytes()

    with pytest.raises(ModelFileError, match=r"7\.npy was changed after the file was written"):
        load(altered(file, change, repair=False))


@pytest.mark.parametrize(
    ("version", "message"),
    [(3, "update icqr"), (1, "fit the model again"), (0, "fit"), ("2", "fit"), (True, "fit"), (2.0, "fit")],
)
def test_another_version_is_refused(version: Any, message: str, file: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        load(altered(file, lambda manifest, files: manifest.update(version=version)))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(file: Path) -> None:
    def change(manifest: dict[str, Any], files: Files) -> None:
        files["999.bin"] = bytes(200 * 2**20)
        manifest["parts"]["999.bin"] = {}

    altered(file, change)
    assert file.stat().st_size < 2**20
    with pytest.raises(ModelFileError, match="a zip bomb"):
        load(file)


def test_a_part_that_unpacks_to_more_than_it_claims_is_refused(file: Path) -> None:
    files = unzipped(file)
    name = "7.npy"
    whole = rezipped(file, {**files, name: files[name] + bytes(8)}).read_bytes()
    # Claim the old size in the list of parts.
    place = whole.rindex(name.encode()) - 46 + 24
    claimed = whole[:place] + len(files[name]).to_bytes(4, "little") + whole[place + 4 :]
    file.write_bytes(claimed)
    with pytest.raises(ModelFileError, match="damaged"):
        load(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../outside", "leads out of the file"),
        ("/etc/passwd", "leads out of the file"),
        ("..\\outside", "leads out of the file"),
        ("C:/outside", "leads out of the file"),
        ("model.pkl", "holds a pickle"),
        ("model.JOBLIB", "holds a pickle"),
        ("Model", "none that icqr writes"),
        ("extra", "none that icqr writes"),
        ("999.bin", r"the parts in the file and those its manifest lists differ: 999\.bin"),
    ],
)
def test_names_that_no_model_has_are_refused(name: str, message: str, file: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        load(rezipped(file, {**unzipped(file), name: b"x"}))


def test_a_part_twice_is_refused(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("7.npy", b"x")
    with pytest.raises(ModelFileError, match=r"is there twice: '7\.npy'"):
        load(file)


def test_links_and_other_ways_of_packing_are_refused(file: Path) -> None:
    files = unzipped(file)
    link = zipfile.ZipInfo("999.bin")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ModelFileError, match=r"999\.bin is not a plain file"):
        load(file)
    with pytest.raises(ModelFileError, match="packed by method"):
        load(rezipped(file, files, zipfile.ZIP_LZMA))


def test_a_file_without_a_description_of_its_objects_is_refused(file: Path) -> None:
    manifest = b'{"format": "icqr-model", "version": 2, "written_by": {}, "parts": {}}'
    with pytest.raises(ModelFileError, match=r"damaged.*no item named 'schema\.json'"):
        load(rezipped(file, {"manifest.json": manifest}))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON: RecursionError"),
        (b'{"format": "icqr-model", "version": 2}', "must have format, version, written_by and parts"),
        (b'{"format": "icqr-model", "version": 2, "written_by": {}, "parts": 7}', "must have format, version"),
        (b'{"format": "icqr-model", "version": 2, "written_by": {}, "parts": {}}', "differ: 0.npy"),
        (b"[" + b"0," * 6_000_000 + b"0]", "more than 5000000 entries"),
    ],
)
def test_a_manifest_that_is_not_sound_is_refused(manifest: bytes, message: str, file: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        load(rezipped(file, {**unzipped(file), "manifest.json": manifest}))


# -- Files with right hashes, made to do harm ------------------------------------------------------------------------

Change = Callable[[dict[str, Any], Files], None]


def crafted(file: Path, change: Change) -> Path:
    """Change the description of the objects, or the parts, and make the hashes right."""

    def outer(manifest: dict[str, Any], files: Files) -> None:
        schema = json.loads(files["schema.json"])
        change(schema, files)
        files["schema.json"] = json.dumps(schema).encode()
        for name in manifest["parts"]:
            if f'"file": "{name}"'.encode() not in files["schema.json"] and name != "schema.json":
                del files[name]
        manifest["parts"] = {name: {} for name in files}

    return altered(file, outer)


def node_at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Find the description of an attribute, as ``model.model_.models_.0``."""
    node = schema
    for key in path.split("."):
        while node["__loader__"] in ("ObjectNode", "ConstructorFromReduceNode"):
            node = node["content"]
        node = node["content"][int(key) if isinstance(node["content"], list) else key]
    return node


def plain(value: Any) -> dict[str, Any]:
    return {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": json.dumps(value)}


def setting(path: str, value: Any) -> Change:
    holder, _, name = path.rpartition(".")

    def change(schema: dict[str, Any], files: Files) -> None:
        node = node_at(schema, holder)
        while node["__loader__"] in ("ObjectNode", "ConstructorFromReduceNode"):
            node = node["content"]
        if isinstance(node["content"], dict) and name not in node["content"]:
            text = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
            node["key_types"]["content"].append(text)
        node["content"][int(name) if isinstance(node["content"], list) else name] = (
            value if isinstance(value, dict) else plain(value)
        )

    return change


def setting_array(path: str, field: str, place: Any, value: Any) -> Change:
    def change(schema: dict[str, Any], files: Files) -> None:
        node = node_at(schema, path)
        array = np.load(io.BytesIO(files[node["file"]]))
        (array[field] if field else array)[place] = value
        node["file"] = "999.npy"
        files["999.npy"] = npy(array)

    return change


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def made_by(function: str, node: dict[str, Any]) -> None:
    """Name another function of pandas as what makes an Index."""
    assert (node["__module__"], node["__class__"]) == ("pandas", "Index")
    node["__class__"] = function


def as_part(data: bytes) -> Change:
    """Put other bytes where the sizes of the training rows' groups are."""

    def change(schema: dict[str, Any], files: Files) -> None:
        node_at(schema, "model.partition_.counts_")["file"] = "999.npy"
        files["999.npy"] = data

    return change


def many_times(schema: dict[str, Any], files: Files) -> None:
    """A part of 40 MB that two hundred arrays are made of."""
    array = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
    files["999.npy"] = npy(np.zeros(5_000_000))
    listed = [{**array, "file": "999.npy"}] * 200
    setting("model.more", {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": listed})(
        schema, files
    )


ARGUMENTS = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": [plain("true")]}
CALL = {"__class__": "system", "__module__": "posix", "__loader__": "ConstructorFromReduceNode", "content": ARGUMENTS}
VOID = {"__class__": "void", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": "0.npy"}
FLOAT = {"__class__": "float32", "__module__": "numpy", "__loader__": "TypeNode"}
OBJECTS = npy(np.array([{}], dtype=object), allow_pickle=True)
HUGE = npy(np.zeros(100)).replace(b"(100,), }        ", b"(99999999999,), }")
HIST_TREE = "model.model_.models_.0._predictors.0.0.nodes"
UNSOUND: dict[str, tuple[Change, str]] = {
    "code": (setting("model.more", CALL), r"asks skops for posix\.system \(ConstructorFromReduceNode\)"),
    "type": (setting("model.more", VOID), r"asks skops for numpy\.void"),
    "addresses": (lambda schema, files: schema.update(__id__=1), "refer to each other"),
    "old protocol": (lambda schema, files: schema.update(protocol=0), "protocol 0"),
    "no protocol": (lambda schema, files: schema.update(protocol="2"), "protocol 2 of skops, which icqr never wrote"),
    "unused part": (lambda schema, files: files.update({"999.npy": npy(np.zeros(3))}), "does not use: 999.npy"),
    "missing part": (
        lambda schema, files: node_at(schema, HIST_TREE).update(file="manifest.json"),
        r"names the part 'manifest\.json', which is not there",
    ),
    "array of objects": (as_part(OBJECTS), "pickled objects"),
    "huge shape": (as_part(HUGE), "which is not the shape"),
    "no array": (as_part(b"x"), r"999\.npy can't be read"),
    "part used many times": (many_times, "a zip bomb: the arrays of the model would take"),
    "another class": (lambda schema, files: schema["content"].update(model=plain(1)), "must hold one of Naive, QR"),
    "5,000,000 columns": (setting("model.n_features_in_", 5_000_000), "n_features_in_ must be at most 100000"),
    "columns of the model": (
        setting("model.model_.encoder_.features.n_columns", 10**12),
        "n_columns must be at most 100000",
    ),
    "groups": (setting("model.n_groups_", 10**12), "n_groups_ must be at most"),
    "fewer groups": (setting("model.n_groups_", 2), r"numbers of groups don't fit together: \[2, 3\]"),
    "scores": (setting_array("model.calibration_.scores.0", "", 0, 1e9), "scores must be sorted numbers"),
    "no scores": (setting_array("model.calibration_.scores.0", "", 0, np.nan), "scores must be sorted numbers"),
    "coverage": (setting("model.coverage", 90), "between 0 and 1"),
    "guarantee": (setting("model.calibration_.guarantee", 2**31), "the model does not work"),
    "distances": (setting_array("model.calibration_.novelty.distances.0", "", 0, 1e9), "distances must be sorted"),
    "signed scores": (
        setting_array("model.calibration_.signed.values.0", "", 0, 1e9),
        "signed scores must be sorted",
    ),
    "stand-in": (
        lambda schema, files: node_at(schema, "model")["content"]["content"]["columns_"].update(
            __class__="read_pickle"
        ),
        r"asks skops for pandas\.read_pickle \(ConstructorFromReduceNode\)",
    ),
    "table": (setting("model.described_.1.0.0", plain([])), "columns of a table must be of the same length"),
    "no words": (setting("model.described_", plain(None)), "described_ must be a table with a rule for each of the 3"),
    "words under another name": (
        lambda schema, files: (content := node_at(schema, "model")["content"]["content"]).update(
            described=content.pop("described_")
        ),
        "described_ must be a table with a rule for each of the 3 groups",
    ),
    "method": (setting("model.model_.models_.0._preprocess_X", FLOAT), "in place of its method '_preprocess_X'"),
    "check": (setting_array("predicted", "", (0, 2), 1e6), "predicts other values"),
    "tree: cycle": (setting_array(HIST_TREE, "left", 0, 0), "children of a tree's node must come after it"),
    "tree: child": (setting_array(HIST_TREE, "right", 0, 2**31), "children of a tree's node must come after it"),
    "tree: shared child": (setting_array(HIST_TREE, "right", 0, 1), "exactly one other"),
    "tree: column": (setting_array(HIST_TREE, "feature_idx", 0, 99), "a column that is not there"),
    "tree: categories": (setting_array(HIST_TREE, "is_categorical", 0, 1), "categories"),
    "tree: columns": (setting("model.model_.models_.0.n_features_in_", 3), "don't fit together"),
    "tree: preprocessor": (
        setting("model.model_.models_.0._preprocessor.transformers_.1.2", plain([])),
        "can't be read|don't fit together",
    ),
    "tree: arguments": (
        setting("model.model_.models_.0._preprocessor.transformers_.1.1.func.args", ARGUMENTS),
        "columns of a HistGradientBoostingRegressor don't fit together",
    ),
    "function": (
        setting("model.more", {"__class__": "save", "__module__": "numpy", "__loader__": "FunctionNode"}),
        r"asks skops for numpy\.save \(FunctionNode\)",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_file_made_to_do_harm_is_refused(name: str, file: Path) -> None:
    change, message = UNSOUND[name]
    with pytest.raises(ModelFileError, match=message):
        load(crafted(file, change))


TREE = "model.model_.models_.0.estimators_.0.0.tree_"
UNSOUND_TREES: dict[str, tuple[Change, str]] = {
    "child": (setting_array(f"{TREE}.1", "left_child", 0, 2**20), "children of a tree's node must come after it"),
    "negative child": (
        setting_array(f"{TREE}.1", "right_child", 0, -7),
        "children of a tree's node must come after it",
    ),
    "column": (setting_array(f"{TREE}.1", "feature", 0, 50), "a column that is not there"),
    "columns": (setting(f"{TREE}.0", 9), "made for another number of columns"),
    "no columns": (setting(f"{TREE}.0", 10**12), "from 1 to 100000 columns"),
    "values": (setting(f"{TREE}.2", plain(None)), "can't be read"),
    "start": (setting("model.model_.models_.0.init_", plain(None)), "must start from a constant"),
    "at a time": (setting("model.model_.models_.0.n_trees_per_iteration_", 9), "one tree at a time"),
}


@pytest.mark.parametrize("name", UNSOUND_TREES)
def test_trees_that_would_crash_scikit_learn_are_refused(name: str, boosted: Path) -> None:
    change, message = UNSOUND_TREES[name]
    with pytest.raises(ModelFileError, match=message):
        load(crafted(boosted, change))


def test_a_model_of_lightgbm_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    def cut(schema: dict[str, Any], files: Files) -> None:
        node = node_at(schema, "model.model_.models_.0._Booster._handle")
        node["content"] = json.dumps(json.loads(node["content"])[:500])

    save(fitted(CQR(LIGHT), NUMBERS), tmp_path / "model.icqr")
    with pytest.raises(ModelFileError, match="the model of LightGBM is cut off"):
        load(crafted(tmp_path / "model.icqr", cut))


def test_a_file_does_not_decide_how_many_jobs_are_started(tmp_path: Path) -> None:
    model = fitted(Naive(RandomForestRegressor(n_estimators=3, n_jobs=1), random_state=0), NUMBERS)
    save(model, tmp_path / "model.icqr")
    crafted(tmp_path / "model.icqr", setting("model.model_.model_.n_jobs", 1000))
    again = load(crafted(tmp_path / "model.icqr", setting("model.n_jobs", 1000)))
    assert again.n_jobs == again.model_.model_.n_jobs == os.cpu_count()
    np.testing.assert_allclose(again.predict(NUMBERS), model.predict(NUMBERS))  # threads sum in any order


if __name__ == "__main__":
    make_golden()
