"""Libraries: what each is told, how rows are encoded for it, and the normalised target."""

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor, early_stopping
from quantile_forest import RandomForestQuantileRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Lasso, QuantileRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor

from icqr import CQR, ICQR, Naive, ResidualQuantiles, ScorePartition, prefit
from icqr._libraries import Encoder, copied, core_of, find_library, mean_copy, seeded
from icqr.quantiles import PointModel, QuantileModel

FRAME = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0], "city": ["Bern", None, "Genf", "Bern"], "n": [1, 2, 3, 4]})
NEW = pd.DataFrame({"x": [0.5], "city": ["Rom"], "n": [7]})


def settings_of(model, X, **settings):
    return Encoder(model, X).settings(model, settings)


def fit_params_of(model, params):
    return Encoder(model, FRAME).fit_params(model, params)


@pytest.fixture(autouse=True)
def _one_thread():
    """Keep HistGradientBoosting to one thread, as the other models: on small data more threads only wait."""
    with threadpool_limits(limits=1):
        yield


class Own:
    def predict_quantiles(self, X, levels):
        return np.zeros((len(X), len(levels)))


class Strict(BaseEstimator):
    """A model of the user's own that says it takes text."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


# -- What a library is told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "categories"),
    [
        (HistGradientBoostingRegressor(), "native"),
        (LGBMRegressor(), "native"),
        (type("Mine", (LGBMRegressor,), {})(), "native"),
        (XGBRegressor(), "native"),
        (CatBoostRegressor(), "text"),
        (GradientBoostingRegressor(), "one-hot"),
        (RandomForestQuantileRegressor(), "one-hot"),
        (QuantileRegressor(), "one-hot"),
        (Ridge(), "one-hot"),
        (Strict(), "raw"),
        (Own(), "raw"),
        (FrozenEstimator(LGBMRegressor()), "raw"),
        (prefit(lower=len, levels=[0.1]), "raw"),
    ],
)
def test_how_categories_are_taken(model, categories):
    assert find_library(model).categories == categories


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {"verbose": False, "allow_writing_files": False}),
        ({"silent": True}, {"allow_writing_files": False}),
        ({"logging_level": "Info", "allow_writing_files": True}, {}),
    ],
)
def test_users_settings_are_kept(given, told):
    X = np.ones((2, 1))
    assert settings_of(CatBoostRegressor(**given), X) == told


def test_settings_go_to_the_model_inside():
    nested = Pipeline([("scale", StandardScaler()), ("target", TransformedTargetRegressor(XGBRegressor()))])
    prefix = "target__regressor__"
    assert core_of(nested)[:2] == (prefix, nested[-1].regressor)
    settings = settings_of(nested, FRAME, max_depth=2)
    assert settings == {prefix + "enable_categorical": True, prefix + "max_depth": 2}


def test_catboosts_objective_is_the_one_it_obeys():
    model = CatBoostRegressor(objective="MAE", silent=True, allow_writing_files=False)
    settings = settings_of(model, np.ones((2, 1)), loss_function="Quantile:alpha=0.1")
    assert settings == {"objective": "Quantile:alpha=0.1"}


def test_seeds_that_are_unset_are_set():
    model = Pipeline([("scale", StandardScaler()), ("model", RandomForestRegressor())])
    assert seeded(model, 3).get_params()["model__random_state"] == 3
    assert model.get_params()["model__random_state"] is None
    assert seeded(RandomForestRegressor(random_state=5), 3).random_state == 5
    assert isinstance(seeded(Own(), 3), Own)
    frozen = FrozenEstimator(RandomForestRegressor())
    assert seeded(frozen, 3) is frozen


def test_catboost_with_a_list_of_columns_can_be_copied():
    model = CatBoostRegressor(cat_features=["city"])
    with pytest.raises(RuntimeError, match="Cannot clone"):  # the reason why `copied` exists
        clone(model)
    assert copied(model).get_params()["cat_features"] == ("city",)


# -- Rows as the library takes them ----------------------------------------------------------------------------------


def encoded(model, new=NEW, frame=FRAME):
    encoder = Encoder(model, frame)
    return encoder.encode(frame), encoder.encode(new)


@pytest.mark.parametrize("model", [HistGradientBoostingRegressor(), LGBMRegressor(), XGBRegressor()])
def test_native_categories_are_whole_numbers(model):
    train, new = encoded(model)
    assert train["city"].cat.codes.tolist() == [0, -1, 1, 0]
    assert train["city"].cat.categories.tolist() == [0, 1]
    assert new["city"].cat.categories.tolist() == [0, 1]
    assert new["city"].isna().all()


def test_text_for_catboost():
    train, new = encoded(CatBoostRegressor())
    assert train["city"].tolist() == ["Bern", "", "Genf", "Bern"]
    assert new["city"].tolist() == [""]


@pytest.mark.parametrize(
    ("given", "positions"), [(None, (1,)), (["city"], (1,)), (["n"], (1, 2)), ([2], (1, 2)), ([1, 2], (1, 2))]
)
def test_catboost_is_told_all_categorical_columns(given, positions):
    assert settings_of(CatBoostRegressor(cat_features=given), FRAME)["cat_features"] == positions


def test_catboost_takes_numbers_as_categories_of_any_kind():
    rows = pd.DataFrame({"flag": [True, False, True, True], "code": pd.array([7, None, 8, 7], dtype="Int64")})
    train, new = encoded(CatBoostRegressor(cat_features=["flag", "code"]), rows[:2], rows)
    assert train.to_dict("list") == {"flag": ["True", "False", "True", "True"], "code": ["7", "", "8", "7"]}
    assert new.to_dict("list") == {"flag": ["True", "False"], "code": ["7", ""]}
    X = pd.concat([rows] * 30, ignore_index=True)
    CQR(CatBoostRegressor(iterations=2, cat_features=["flag", "code"]), random_state=0).fit(X, np.arange(120.0))


def test_categories_named_in_fit_are_joined_with_text_columns():
    X, y = pd.DataFrame({"my col [x]": np.arange(120) % 3, "city": ["Bern", "Genf"] * 60}), np.arange(120.0)
    CQR(CatBoostRegressor(iterations=2), random_state=0).fit(X, y, cat_features=["city"])
    with pytest.raises(ValueError, match=r"positions \[0\]; give cat_features to CatBoostRegressor"):
        CQR(CatBoostRegressor(iterations=2), random_state=0).fit(X, y, cat_features=["my col [x]"])
    for names in (["city"], ["my col [x]"], [0]):
        model = CQR(LGBMRegressor(n_estimators=2), random_state=0).fit(X, y, categorical_feature=names)
        kinds = model.model_.models_[0].booster_.dump_model()["feature_infos"]
        assert [bool(kinds[name]["values"]) for name in ("f0", "f1")] == [names != ["city"], True]
    with pytest.raises(ValueError, match="there is no column 'town' to take as a category"):
        CQR(LGBMRegressor(n_estimators=2), random_state=0).fit(X, y, categorical_feature=["town"])


@pytest.mark.parametrize("given", [["code"], [0], [True, False, False], "from_dtype", None])
def test_scikit_learn_is_told_all_categorical_columns(given):
    X = pd.DataFrame({"code": [7, 9] * 60, "size": np.arange(120.0), "city": ["Bern", "Genf", "Rom"] * 40})
    model = CQR(HistGradientBoostingRegressor(max_iter=2, categorical_features=given), random_state=0)
    named = isinstance(given, list)
    fitted = model.fit(X, X["size"]).model_.models_[0]
    assert fitted.is_categorical_.tolist() == [named, False, True]


def test_positions_are_positions_whatever_the_columns_are_called():
    X = pd.DataFrame({1: [5, 6, 5, 6], 0: [0.5, 1.5, 2.5, 3.5]})
    model = CatBoostRegressor(cat_features=[0])
    encoder = Encoder(model, X)
    assert encoder.settings(model, {})["cat_features"] == (0,)
    assert list(encoder.features.categories) == [1]
    for wrong in ([2], ["town"]):
        with pytest.raises(ValueError, match=r"cat_features=.*there is no column .* positions from 0 to 1"):
            Encoder(CatBoostRegressor(cat_features=wrong), X)


@pytest.mark.parametrize("given", [["code"], np.array([0])])
@pytest.mark.parametrize(
    "wrap",
    [
        CQR,
        lambda model: CQR(QuantileModel(model)),
        lambda model: CQR(ResidualQuantiles(model)),
        lambda model: CQR(ResidualQuantiles(QuantileModel(model))),
        lambda model: CQR(TransformedTargetRegressor(model)),
        lambda model: ICQR(HistGradientBoostingRegressor(max_iter=2), partition=ScorePartition(2, model)),
    ],
)
def test_catboost_can_be_told_its_categories_wherever_it_stands(wrap, given):
    X = pd.DataFrame({"code": np.arange(120) % 3, "size": np.arange(120.0)})
    model = wrap(CatBoostRegressor(iterations=2, cat_features=given)).set_params(random_state=0)
    assert np.isfinite(model.fit(X, X["size"]).predict_interval(X)).all()


@pytest.mark.parametrize("wrap", [FrozenEstimator, lambda model: make_pipeline(FrozenEstimator(model))])
def test_a_fitted_catboost_stays_fitted(wrap):
    X = pd.DataFrame({"code": np.arange(120) % 3, "size": np.arange(120.0)})
    fitted = CatBoostRegressor(iterations=2, cat_features=["code"], verbose=0, allow_writing_files=False)
    fitted.fit(X, X["size"])
    model = Naive(wrap(fitted), random_state=0).fit(X, X["size"])
    np.testing.assert_allclose(model.predict(X), fitted.predict(X))


def test_one_hot_for_models_without_categories():
    train, new = encoded(Ridge())
    np.testing.assert_array_equal(train[:, 1:3], [[1, 0], [0, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(new, [[0.5, 0, 0, 7]])
    numbers, _ = encoded(Ridge(), frame=FRAME[["x", "n"]], new=NEW[["x", "n"]])
    assert list(numbers.columns) == ["x", "n"]


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), Ridge()),
        TransformedTargetRegressor(make_pipeline(StandardScaler(), LGBMRegressor())),
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 10]}),
        VotingRegressor([("a", make_pipeline(StandardScaler(), Ridge()))]),
        Own(),
    ],
)
def test_rows_that_stay_as_they_came(model):
    train, new = encoded(model)
    assert train is FRAME
    assert new is NEW
    dates = pd.DataFrame({"day": pd.to_datetime(["2020-01-01"])})
    assert Encoder(model, dates).encode(dates) is dates


@pytest.mark.parametrize(
    ("model", "names", "renamed"),
    [
        (LGBMRegressor(), ["a[b]<c>", "x:y", "n"], True),
        (LGBMRegressor(), ["a b", "Größe_1", "n"], False),
        (LGBMRegressor(), ["a b", "a_b", "n"], True),
        (LGBMRegressor(), [10, 20, 30], True),
        (XGBRegressor(), ["a[b]<c>", "x:y", "n"], True),
        (XGBRegressor(), ["a b", "x:y", "n"], False),
        (HistGradientBoostingRegressor(), ["a[b]<c>", "x:y", "n"], False),
    ],
)
def test_names_that_a_library_refuses(model, names, renamed):
    train, new = encoded(model, frame=FRAME.set_axis(names, axis=1), new=NEW.set_axis(names, axis=1))
    assert list(train.columns) == (["f0", "f1", "f2"] if renamed else names)
    assert list(train.columns) == list(new.columns)


def test_histgradientboosting_has_as_many_categories_as_bins():
    frame = pd.DataFrame({"id": [*(f"c{i}" for i in range(256)), *["c7"] * 5, *["c9"] * 5]})
    few = frame[1:]
    assert isinstance(encoded(HistGradientBoostingRegressor(), frame=few, new=few)[0]["id"].dtype, pd.CategoricalDtype)
    train, _ = encoded(HistGradientBoostingRegressor(), frame=frame, new=frame)
    assert train.columns.tolist() == ["id", "spread_id"]
    assert (train.dtypes == np.float64).all()
    assert isinstance(encoded(LGBMRegressor(), frame=frame, new=frame)[0]["id"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("params", [{"eval_set": (NEW, [0])}, {"eval_set": [(NEW, [0])]}])
def test_evaluation_rows_are_encoded_like_training_rows(params):
    [(X, y)] = fit_params_of(LGBMRegressor(), params)["eval_set"]
    assert X["city"].cat.categories.tolist() == [0, 1]
    assert y == [0]


@pytest.mark.parametrize("name", ["eval_set", "X_val", "eval_X"])
def test_evaluation_rows_have_their_columns_brought_into_order(name):
    for new in (NEW, NEW[NEW.columns[::-1]]):
        rows = fit_params_of(LGBMRegressor(), {name: [(new, [0])] if name == "eval_set" else new})[name]
        rows = rows[0][0] if name == "eval_set" else rows
        assert list(rows.columns) == list(FRAME.columns)
    new = NEW.drop(columns="city")
    with pytest.raises(ValueError, match=r"X lacks columns that it had in fit: 'city'"):
        fit_params_of(LGBMRegressor(), {name: [(new, [0])] if name == "eval_set" else new})


@pytest.mark.parametrize("name", ["X_val", "eval_X"])
def test_evaluation_rows_under_other_names(name):
    assert fit_params_of(LGBMRegressor(), {name: NEW})[name]["city"].isna().all()
    (again,) = fit_params_of(LGBMRegressor(), {name: (NEW,)})[name]
    assert again["city"].isna().all()


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (LGBMRegressor(), "sample_weight"),
        (TransformedTargetRegressor(LGBMRegressor()), "sample_weight"),
        (Pipeline([("m", LGBMRegressor())]), "m__sample_weight"),
        (TransformedTargetRegressor(Pipeline([("m", LGBMRegressor())])), "m__sample_weight"),
        (Pipeline([("m", TransformedTargetRegressor(LGBMRegressor()))]), "m__sample_weight"),
        (Pipeline([("a", Pipeline([("b", LGBMRegressor())]))]), "a__b__sample_weight"),
    ],
)
def test_fit_parameters_are_addressed_to_the_model(model, key):
    params = fit_params_of(model, {"sample_weight": 1, "scale__own": 2})
    assert params == {key: 1, "scale__own": 2}


# -- y is normalised before a library sees it ------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.uniform(1, 2, size=(60, 1))
Y = X.ravel() + RNG.uniform(size=60)
LEVELS = (0.1, 0.5, 0.9)
QUANTILE_MODELS = [
    LGBMRegressor(n_estimators=2, n_jobs=1),
    XGBRegressor(n_estimators=2, n_jobs=1),
    CatBoostRegressor(n_estimators=2, thread_count=1, random_state=0),
    HistGradientBoostingRegressor(max_iter=5, random_state=0),
    GradientBoostingRegressor(n_estimators=5, random_state=0),
    QuantileRegressor(alpha=0.0),
    RandomForestQuantileRegressor(n_estimators=2, random_state=0),
]


@pytest.mark.parametrize("model", QUANTILE_MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("exponent", [-990, -40, 30, 990])
def test_the_unit_of_y_changes_nothing(model, exponent):
    scale = 2.0**exponent
    expected = QuantileModel(model).fit(X, Y, LEVELS).predict(X)
    np.testing.assert_array_equal(QuantileModel(model).fit(X, Y * scale, LEVELS).predict(X) / scale, expected)


@pytest.mark.parametrize("model", QUANTILE_MODELS, ids=lambda model: type(model).__name__)
def test_32_bits_lose_no_digits_of_y(model):
    offset = 2.0**30  # 32-bit floats are 128 apart there
    expected = QuantileModel(model).fit(X, Y, LEVELS).predict(X)
    moved = QuantileModel(model).fit(X, Y + offset, LEVELS).predict(X) - offset
    np.testing.assert_allclose(moved, expected, atol=1e-5)


@pytest.mark.parametrize("model", QUANTILE_MODELS[:3], ids=lambda model: type(model).__name__)
def test_models_of_the_mean_lose_no_digits_of_y(model):
    expected = PointModel(model).fit(X, Y).predict(X)
    moved = PointModel(model).fit(X, Y + 2.0**30).predict(X) - 2.0**30
    np.testing.assert_allclose(moved, expected, atol=1e-5)


@pytest.mark.parametrize("model", [XGBRegressor(objective="count:poisson"), LGBMRegressor(objective="poisson")])
def test_a_model_of_counts_sees_counts(model):
    counts = np.random.default_rng(0).poisson(3 * X.ravel()).astype(float)
    predicted = PointModel(clone(model).set_params(n_estimators=5, n_jobs=1)).fit(X, counts).predict(X)
    assert np.all(predicted > 0)


def test_a_model_with_parameters_in_the_unit_of_y_sees_y_as_it_is():
    expected = Lasso(alpha=0.1, random_state=0).fit(X, 100 * Y).predict(X)
    np.testing.assert_array_equal(PointModel(Lasso(alpha=0.1, random_state=0)).fit(X, 100 * Y).predict(X), expected)


@pytest.mark.parametrize("model", QUANTILE_MODELS[:2], ids=lambda model: type(model).__name__)
def test_evaluation_targets_are_normalised_too(model):
    if isinstance(model, LGBMRegressor):
        stopping = {"eval_X": X, "eval_y": Y + 1e6, "callbacks": [early_stopping(5, verbose=False)]}
        model = clone(model).set_params(n_estimators=30)
    else:
        stopping = {"eval_set": [(X, Y + 1e6)], "verbose": False}
        model = clone(model).set_params(n_estimators=30, early_stopping_rounds=5)
    fitted = QuantileModel(model).fit(X, Y + 1e6, LEVELS, **stopping)
    assert np.all(np.abs(fitted.predict(X) - 1e6 - Y.mean()) < 2)
    trees = [getattr(part, "best_iteration_", None) or part.best_iteration for part in fitted.models_]
    assert min(trees) > 1  # evaluation rows far from all predictions would have stopped at once


def test_a_model_that_is_told_where_to_start_sees_y_as_it_is():
    model = XGBRegressor(n_estimators=1, learning_rate=1e-9, base_score=7.0, n_jobs=1)
    np.testing.assert_allclose(QuantileModel(model).fit(X, Y + 7, LEVELS).predict(X), 7.0, atol=1e-5)


def test_a_transformed_target_may_be_of_any_size():
    log = TransformedTargetRegressor(LGBMRegressor(n_estimators=5, n_jobs=1), func=np.log, inverse_func=np.exp)
    y = 10.0 ** np.random.default_rng(0).uniform(200, 300, size=60)
    bounds = QuantileModel(log).fit(X, y, LEVELS).predict(X)
    assert y.min() <= bounds.min() < bounds.max() <= y.max() * 1.001


def test_zeros_are_no_matter_of_scale():
    model = CQR(XGBRegressor(n_estimators=2, n_jobs=1), coverage=0.5, random_state=0).fit(X * 0, Y * 0)
    assert not model.predict_interval(X * 0).any()


def test_lightgbm_s_booster_is_asked_as_its_own_class_asks_it() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=400), "city": rng.choice(["Bern", "Rom", "Genf"], 400), "b": np.arange(400)})
    X.loc[::7, "a"] = np.nan
    y = X["b"] / 400 + (X["city"] == "Rom") + X["a"].fillna(0.0)
    new = X.copy()
    new.loc[::5, "city"] = "Oslo"  # new to the model, so missing
    model = QuantileModel(LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)).fit(X, y.to_numpy(), (0.1, 0.5, 0.9))
    rows, matrix = model.encoder_.encode(new), model.encoder_.encode_new(new)
    assert isinstance(rows, pd.DataFrame)
    assert isinstance(matrix, np.ndarray)
    own = np.sort(np.column_stack([part.predict(rows) for part in model.models_]), axis=1)
    np.testing.assert_array_equal(model.predict(new), model.scale_.unscaled(own))


def test_a_class_made_from_lightgbm_s_predicts_in_its_own_way() -> None:
    class Doubled(LGBMRegressor):
        def predict(self, X, **parameters):
            return 2 * super().predict(X, **parameters)

    X, y = np.arange(200.0)[:, None], np.arange(200.0)
    settings = {"n_estimators": 20, "n_jobs": 1, "verbose": -1}
    plain, doubled = (QuantileModel(kind(**settings)).fit(X, y, (0.5,)) for kind in (LGBMRegressor, Doubled))
    centre = plain.scale_.centre
    np.testing.assert_allclose(doubled.predict(X) - centre, 2 * (plain.predict(X) - centre))


def test_a_mean_is_learned_whatever_the_name_of_the_loss() -> None:
    for named in ({"objective": "MAE"}, {"loss_function": "MAE"}):
        fitted = mean_copy(CatBoostRegressor(iterations=2, verbose=False, **named)).fit(np.eye(4), np.arange(4.0))
        assert fitted.get_all_params()["loss_function"] == "RMSE"
