"""Libraries: what each is told, how rows are encoded for it, and the named errors for numbers it can't hold."""

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from quantile_forest import RandomForestQuantileRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor

from icqr import CQR, ICQR, Naive, ResidualQuantiles, ScorePartition, prefit
from icqr._libraries import Encoder, copied, core_of, library_of, seeded
from icqr.quantiles import PointModel, QuantileModel

FRAME = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0], "city": ["Bern", None, "Genf", "Bern"], "n": [1, 2, 3, 4]})
NEW = pd.DataFrame({"x": [0.5], "city": ["Rom"], "n": [7]})


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
    assert library_of(model).categories == categories


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
    assert Encoder(CatBoostRegressor(**given), X).settings({}) == told


def test_settings_go_to_the_model_inside():
    nested = Pipeline([("scale", StandardScaler()), ("target", TransformedTargetRegressor(XGBRegressor()))])
    prefix = "target__regressor__"
    assert core_of(nested) == (prefix, nested[-1].regressor)
    settings = Encoder(nested, FRAME).settings({"max_depth": 2})
    assert settings == {prefix + "enable_categorical": True, prefix + "max_depth": 2}


def test_catboosts_objective_is_the_one_it_obeys():
    encoder = Encoder(CatBoostRegressor(objective="MAE", silent=True, allow_writing_files=False), np.ones((2, 1)))
    assert encoder.settings({"loss_function": "Quantile:alpha=0.1"}) == {"objective": "Quantile:alpha=0.1"}


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
    assert Encoder(CatBoostRegressor(cat_features=given), FRAME).settings({})["cat_features"] == positions


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
    encoder = Encoder(CatBoostRegressor(cat_features=[0]), X)
    assert encoder.settings({})["cat_features"] == (0,)
    assert encoder.features.categorical == [1]
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
    frame = pd.DataFrame({"id": [*(f"c{i}" for i in range(300)), *["c7"] * 5, *["c9"] * 5]})
    train, _ = encoded(HistGradientBoostingRegressor(max_bins=2), frame=frame, new=frame)
    assert train["id"].notna().sum() == 12
    assert Encoder(LGBMRegressor(), frame).encode(frame)["id"].notna().all()


@pytest.mark.parametrize("params", [{"eval_set": (NEW, [0])}, {"eval_set": [(NEW, [0])]}])
def test_evaluation_rows_are_encoded_like_training_rows(params):
    [(X, y)] = Encoder(LGBMRegressor(), FRAME).fit_params(params)["eval_set"]
    assert X["city"].cat.categories.tolist() == [0, 1]
    assert y == [0]


@pytest.mark.parametrize("name", ["eval_set", "X_val", "eval_X"])
def test_evaluation_rows_have_their_columns_in_the_same_order(name):
    new = NEW[NEW.columns[::-1]]
    with pytest.raises(ValueError, match="X must have the columns it had in fit, in the same order"):
        Encoder(LGBMRegressor(), FRAME).fit_params({name: [(new, [0])] if name == "eval_set" else new})


@pytest.mark.parametrize("name", ["X_val", "eval_X"])
def test_evaluation_rows_under_other_names(name):
    encoder = Encoder(LGBMRegressor(), FRAME)
    assert encoder.fit_params({name: NEW})[name]["city"].isna().all()
    (again,) = encoder.fit_params({name: (NEW,)})[name]
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
    params = Encoder(model, FRAME).fit_params({"sample_weight": 1, "scale__own": 2})
    assert params == {key: 1, "scale__own": 2}


# -- Numbers that a library can't hold -------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.uniform(1, 2, size=(60, 1))
Y = X.ravel() + RNG.uniform(size=60)
LEVELS = (0.1, 0.5, 0.9)
SINGLE = [
    LGBMRegressor(n_estimators=2, n_jobs=1),
    XGBRegressor(n_estimators=2, n_jobs=1),
    CatBoostRegressor(n_estimators=2, thread_count=1),
]


@pytest.mark.parametrize("model", SINGLE, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("scale", [1e-300, 1e-40, 1e37, 1e300])
def test_y_beyond_32_bits_is_refused_by_name(model, scale):
    with pytest.raises(ValueError, match=r"stores y as 32-bit floats .* the largest absolute value of y is .*Scale y"):
        QuantileModel(model).fit(X, Y * scale, LEVELS)
    with pytest.raises(ValueError, match="stores y as 32-bit floats"):
        PointModel(model).fit(X, Y * scale)


@pytest.mark.parametrize("model", SINGLE, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e34])
def test_within_32_bits_scale_changes_nothing(model, scale):
    expected = QuantileModel(model).fit(X, Y, LEVELS).predict(X)
    np.testing.assert_allclose(QuantileModel(model).fit(X, Y * scale, LEVELS).predict(X) / scale, expected, rtol=1e-4)


@pytest.mark.parametrize("model", SINGLE, ids=lambda model: type(model).__name__)
def test_digits_of_y_that_32_bits_lose_are_warned_of(model):
    offset = 2.0**23  # numbers from here on are 1 apart
    with pytest.warns(
        UserWarning, match=r"32-bit floats, which are 1 apart .* median by 0\.4 on .* Subtract a constant"
    ):
        QuantileModel(model).fit(X, Y + offset, LEVELS)
    with pytest.warns(UserWarning, match="Subtract a constant"):
        PointModel(model).fit(X, Y + offset)
    QuantileModel(model).fit(X, Y + offset / 1000, LEVELS)  # warnings are errors


def test_64_bits_keep_the_digits_of_y():
    expected = QuantileModel().fit(X, Y, LEVELS).predict(X)
    np.testing.assert_allclose(QuantileModel().fit(X, Y + 2.0**24, LEVELS).predict(X) - 2.0**24, expected, atol=1e-6)


def test_a_transformed_target_may_be_of_any_size():
    log = TransformedTargetRegressor(LGBMRegressor(n_estimators=5, n_jobs=1), func=np.log, inverse_func=np.exp)
    y = 10.0 ** RNG.uniform(200, 300, size=60)
    bounds = QuantileModel(log).fit(X, y, LEVELS).predict(X)
    assert y.min() <= bounds.min() < bounds.max() <= y.max() * 1.001


SINGLE_X = [
    *SINGLE[1:],
    GradientBoostingRegressor(n_estimators=2),
    RandomForestQuantileRegressor(n_estimators=2),
]


@pytest.mark.parametrize("model", SINGLE_X, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("scale", [1e-300, 1e300])
@pytest.mark.parametrize("frame", [False, True])
def test_columns_beyond_32_bits_are_refused_by_name(model, scale, frame):
    table = pd.DataFrame({"a": X[:, 0], "big": X[:, 0] * scale, "city": "Bern"}) if frame else X * scale
    with pytest.raises(ValueError, match=f"stores columns as 32-bit .* column {'.big.' if frame else 0} is"):
        QuantileModel(model).fit(table, Y, LEVELS)


@pytest.mark.parametrize("model", SINGLE_X, ids=lambda model: type(model).__name__)
def test_new_rows_may_be_small_but_not_too_large(model):
    fitted = QuantileModel(model).fit(X, Y, LEVELS)
    assert fitted.predict(np.array([[1e-300]])).shape == (1, 3)
    with pytest.raises(ValueError, match=r"the largest absolute value of column 0 is 1.0e\+300"):
        fitted.predict(np.array([[1e300]]))


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e16, 1e300])
def test_linear_programmes_have_absolute_tolerances(scale):
    with pytest.raises(ValueError, match=r"linear programme with absolute tolerances .* of y is"):
        QuantileModel(QuantileRegressor()).fit(X, Y * scale, LEVELS)
    with pytest.raises(ValueError, match=r"linear programme with absolute tolerances .* of column 0 is"):
        QuantileModel(QuantileRegressor()).fit(X * scale, Y, LEVELS)


@pytest.mark.parametrize(
    "model", [HistGradientBoostingRegressor(max_iter=5), GradientBoostingRegressor(n_estimators=5)]
)
@pytest.mark.parametrize("exponent", [-990, -200, 200, 990])
def test_quantile_boosting_of_scikit_learn_takes_y_of_any_size(model, exponent):
    scale = 2.0**exponent
    model = clone(model).set_params(random_state=0)
    expected = QuantileModel(model).fit(X, Y, LEVELS).predict(X)
    np.testing.assert_allclose(QuantileModel(model).fit(X, Y * scale, LEVELS).predict(X) / scale, expected, rtol=1e-12)


@pytest.mark.parametrize("exponent", [-990, 990])
def test_the_default_model_takes_columns_of_almost_any_size(exponent):
    model, scaled = HistGradientBoostingRegressor(max_iter=5, random_state=0), X * 2.0**exponent
    expected = QuantileModel(model).fit(X, Y, LEVELS).predict(X)
    np.testing.assert_array_equal(QuantileModel(model).fit(scaled, Y, LEVELS).predict(scaled), expected)
    with pytest.raises(ValueError, match="cuts columns off at 1e300"):
        QuantileModel(model).fit(X * 1e301, Y, LEVELS)


@pytest.mark.parametrize("model", [None, LinearRegression(), ExtraTreesRegressor(n_estimators=2)])
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_models_of_the_mean_refuse_sizes_they_would_get_wrong(model, scale):
    with pytest.raises(ValueError, match="the largest absolute value of y is"):
        Naive(model, coverage=0.5).fit(X, Y * scale)


def test_zeros_are_no_matter_of_scale():
    bounds = CQR(XGBRegressor(n_estimators=2, n_jobs=1), coverage=0.5).fit(X * 0, Y * 0).predict_interval(X * 0)
    assert not bounds.any()
