"""Quantile models: every family on every kind of column, pipelines, transformed targets, fitted models, weights."""

import pickle

import joblib
import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from catboost import CatBoostRegressor, Pool
from joblib import parallel_config
from lightgbm import LGBMRegressor
from quantile_forest import ExtraTreesQuantileRegressor, RandomForestQuantileRegressor
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor, XGBRFRegressor

from icqr import CQR, ICQR, QR, Naive, QuantileModel, WholePartition, prefit, quantiles
from icqr.importance import column_replacer
from icqr.metrics import pinball_loss
from icqr.quantiles import PointModel, is_prefit

LEVELS = (0.1, 0.5, 0.9)
FAMILIES = {
    "hist": HistGradientBoostingRegressor(max_iter=40, random_state=0),
    "gradient": GradientBoostingRegressor(n_estimators=40, random_state=0),
    "linear": QuantileRegressor(alpha=0),
    "lightgbm": LGBMRegressor(n_estimators=40, n_jobs=1, random_state=0),
    "xgboost": XGBRegressor(n_estimators=40, n_jobs=1, random_state=0),
    "xgboost-forest": XGBRFRegressor(n_estimators=40, n_jobs=1, random_state=0),
    "catboost": CatBoostRegressor(n_estimators=40, thread_count=1),
    "forest": RandomForestQuantileRegressor(n_estimators=40, min_samples_leaf=20, random_state=0),
    "extra-trees": ExtraTreesQuantileRegressor(n_estimators=40, min_samples_leaf=20, random_state=0),
}
TAKES_MISSING_NUMBERS = ("hist", "lightgbm", "xgboost", "xgboost-forest", "catboost")


def families(*slow):
    """Run a test on every family, but on some of them only in `make test-all`."""
    each = [pytest.param(family, marks=[pytest.mark.slow] * (family in slow)) for family in FAMILIES]
    return pytest.mark.parametrize("family", each)


each_family = families()
# Asked as another one of their library is.
each_library = families("xgboost-forest", "extra-trees")
# And given their rows as another one is: one-hot, as the linear model.
each_encoding = families("xgboost-forest", "extra-trees", "gradient", "forest")


@pytest.fixture(autouse=True)
def _one_thread():
    """Keep HistGradientBoosting to one thread, as the other models: on small data more threads only wait."""
    with threadpool_limits(limits=1):
        yield


def draw(n, seed=0):
    """Draw y = x + (1 + c) times a standard normal number, where c is one of three groups: 0, 1 or 2."""
    rng = np.random.default_rng(seed)
    x, group = rng.uniform(0, 4, size=n), rng.integers(3, size=n)
    y = x + (1 + group) * rng.standard_normal(n)
    return pd.DataFrame({"x": x, "c": np.array(["low", "mid", "top"])[group]}), y


def true_quantiles(X, levels=LEVELS):
    scale = 1 + X["c"].map({"low": 0, "mid": 1, "top": 2}).to_numpy(dtype=float)
    return X["x"].to_numpy()[:, None] + scale[:, None] * stats.norm.ppf(levels)


X, Y = draw(400)
NUMBERS = X[["x"]].to_numpy()


def small(family):
    """Return the family's model with few trees: enough to see how it takes its rows."""
    model = clone(FAMILIES[family])
    return model if family == "linear" else model.set_params(**{"max_iter" if family == "hist" else "n_estimators": 5})


# -- Every family ----------------------------------------------------------------------------------------------------


@each_family
def test_quantiles_of_a_known_law(family):
    train, y = draw(2000, seed=1)
    new, y_new = draw(2000, seed=2)
    model = QuantileModel(FAMILIES[family]).fit(train, y, LEVELS)
    quantiles = model.predict(new)
    assert quantiles.shape == (2000, 3)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    best = pinball_loss(y_new, true_quantiles(new), LEVELS)
    constant = pinball_loss(y_new, np.tile(np.quantile(y, LEVELS), (2000, 1)), LEVELS)
    # A linear model can't widen its bounds by x and shift them by c at once, but it beats a constant by far.
    assert best * 0.97 < pinball_loss(y_new, quantiles, LEVELS) < best + 0.5 * (constant - best)


@each_family
def test_levels_of_a_one_sided_bound(family):
    levels = (0.5, 0.95)
    quantiles = QuantileModel(small(family)).fit(X, Y, levels).predict(X)
    assert quantiles.shape == (400, 2)
    assert QuantileModel(small(family)).fit(X, Y, levels[:1]).predict(X).shape == (400, 1)


@each_family
def test_models_can_be_pickled_and_predict_the_same(family):
    model = QuantileModel(small(family)).fit(X, Y, LEVELS)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@each_family
def test_the_users_estimator_is_left_alone(family):
    given = small(family)
    before = str(given.get_params())
    QuantileModel(given).fit(X, Y, LEVELS)
    assert str(given.get_params()) == before
    with pytest.raises(NotFittedError):
        sklearn.utils.validation.check_is_fitted(given)


def test_crossed_rows_are_sorted_and_counted():
    class Crossing(BaseEstimator):
        def fit(self, X, y):
            return self

        def predict_quantiles(self, X, levels):
            x = X[:, 0]
            return np.column_stack([x, np.where(x > 2, x - 1, x), x + 1])

    bounds, crossed = QuantileModel(Crossing()).fit(NUMBERS, Y, LEVELS).predict_sorted(NUMBERS)
    np.testing.assert_array_equal(crossed, X["x"] > 2)
    assert (np.diff(bounds, axis=1) >= 0).all()
    model = CQR(Crossing(), coverage=0.8, random_state=0).fit(NUMBERS, Y)
    assert 0 < model.n_crossed_["calibration"] < 134
    assert model.explain(NUMBERS)["crossed"].sum() == crossed.sum()


def test_levels_at_the_same_time_give_the_same_model():
    expected = QuantileModel(small("hist")).fit(X, Y, LEVELS).predict(X)
    with joblib.parallel_config(backend="threading"):
        at_once = QuantileModel(small("hist"), n_jobs=2).fit(X, Y, LEVELS)
    np.testing.assert_array_equal(at_once.predict(X), expected)


# -- Features as people have them ------------------------------------------------------------------------------------

CODES = X["c"].map({"low": 0, "mid": 1, "top": 2})
COLUMNS = {
    "text": X["c"],
    "objects": X["c"].astype(object),
    "categories": X["c"].astype("category"),
    "ordered": pd.Series(pd.Categorical(X["c"], categories=["low", "mid", "top", "never"], ordered=True)),
    "number categories": CODES.astype("category"),
    "real categories": (CODES / 2).astype("category"),
    "boolean categories": (CODES > 1).astype("category"),
    "interval categories": pd.cut(X["x"], 5),
    "text and numbers": X["c"].astype(object).where(CODES > 0, 7),
    "missing text": X["c"].where(CODES > 0, None),
    "missing nullable text": X["c"].astype("string").where(CODES > 0, pd.NA),
    "missing categories": X["c"].where(CODES > 0, None).astype("category"),
    "integers": CODES.astype("int32"),
    "booleans": CODES > 1,
    "nullable integers": CODES.astype("Int64"),
    "nullable booleans": (CODES > 1).astype("boolean"),
    "no text at all": pd.Series([None] * 400, dtype=object),
    "no number at all": pd.Series([np.nan] * 400),
    "an identity each": pd.Series([f"id{i}" for i in range(400)]),
}
MISSING_NUMBERS = {
    "missing numbers": CODES.where(CODES > 0, np.nan),
    "missing nullable integers": CODES.astype("Int64").where(CODES > 0, pd.NA),
    "missing nullable booleans": (CODES > 1).astype("boolean").where(CODES > 0, pd.NA),
    "missing object booleans": (CODES > 1).astype(object).where(CODES > 0, None),
}


def fit_and_predict(family, frame):
    model = QuantileModel(small(family)).fit(frame, Y, LEVELS)
    quantiles = model.predict(frame)
    assert quantiles.shape == (400, 3)
    assert np.isfinite(quantiles).all()
    return model, quantiles


@each_encoding
@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_every_kind(family, column):
    fit_and_predict(family, pd.DataFrame({"x": X["x"], "z": COLUMNS[column]}))


@each_encoding
@pytest.mark.parametrize("column", MISSING_NUMBERS)
def test_missing_numbers_reach_the_models_that_take_them(family, column):
    frame = pd.DataFrame({"x": X["x"], "z": MISSING_NUMBERS[column]})
    if family in TAKES_MISSING_NUMBERS:
        fit_and_predict(family, frame)
    else:
        with pytest.raises(ValueError, match="does not accept missing values"):
            fit_and_predict(family, frame)


@each_family
def test_unknown_and_missing_categories_at_predict_time(family):
    train = X.assign(c=X["c"].where(X["c"] != "top", None))
    model = QuantileModel(small(family)).fit(train, Y, LEVELS)
    new = pd.DataFrame({"x": [2.0] * 3, "c": ["never seen", None, "top"]})
    predicted = model.predict(new)
    assert np.isfinite(predicted).all()
    # Training rows had missing values, and an unknown category is one.
    np.testing.assert_array_equal(predicted, np.tile(predicted[0], (3, 1)))


@each_encoding
@pytest.mark.parametrize("names", [("a[b]<c>", "x:y"), ('a,"b"', "{c} d"), (0, 1), (10, 20)])
def test_column_names_of_every_kind(family, names):
    expected = fit_and_predict(family, X)[1]
    np.testing.assert_allclose(fit_and_predict(family, X.set_axis(list(names), axis=1))[1], expected)


@each_family
def test_the_same_rows_in_any_container(family):
    expected = fit_and_predict(family, X)[1]
    polars = pl.DataFrame({"x": X["x"].to_numpy(), "c": X["c"].tolist()})
    for same in (polars, polars.with_columns(pl.col("c").cast(pl.Categorical)), X.to_numpy(dtype=object)):
        np.testing.assert_array_equal(fit_and_predict(family, same)[1], expected)


@pytest.mark.parametrize("family", TAKES_MISSING_NUMBERS)
def test_polars_with_nulls(family):
    frame = pl.DataFrame({"x": X["x"].to_numpy(), "c": X["c"].tolist(), "n": [1, None, 3, 4] * 100})
    frame = frame.with_columns(
        pl.when(pl.col("c") == "top").then(None).otherwise(pl.col("c")).cast(pl.Categorical).alias("c")
    )
    fit_and_predict(family, frame)


@each_family
def test_arrays(family):
    fit_and_predict(family, NUMBERS)
    fit_and_predict(family, NUMBERS.astype(np.float32))
    fit_and_predict(family, NUMBERS.tolist())


def test_the_default_model_takes_more_categories_than_it_has_bins():
    rng = np.random.default_rng(0)
    codes = rng.integers(300, size=3000)
    frame = pd.DataFrame({"shop": [f"s{code}" for code in codes]})
    assert frame["shop"].nunique() > 255
    y = np.where(codes < 150, 0.0, 10.0) + rng.standard_normal(3000)
    median = QuantileModel(small("hist").set_params(learning_rate=0.5)).fit(frame, y, LEVELS).predict(frame)[:, 1]
    assert np.corrcoef(median, codes < 150)[0, 1] < -0.7


@each_family
def test_importance_can_move_a_columns_values(family):
    model = QuantileModel(small(family)).fit(X, Y, LEVELS)
    order = np.random.default_rng(0).permutation(400)
    shuffled = X.assign(c=X["c"].to_numpy()[order])
    moved = column_replacer(model, X).replace(1, np.stack([np.arange(400), order]))
    plain = np.stack([model.predict(X), model.predict(shuffled)])
    if family in ("hist", "lightgbm"):  # their trees are read, and summed in another order
        np.testing.assert_allclose(moved, plain, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(moved, plain)


# -- Pipelines and transformed targets -------------------------------------------------------------------------------


def text_to_columns(model):
    return make_pipeline(make_column_transformer((OneHotEncoder(), ["c"]), remainder="passthrough"), model)


@each_family
def test_a_pipeline_prepares_its_rows_itself(family):
    fit_and_predict(family, X)
    model = QuantileModel(text_to_columns(small(family))).fit(X, Y, LEVELS)
    assert model.predict(X).shape == (400, 3)
    scaled = QuantileModel(make_pipeline(StandardScaler(), "passthrough", small(family))).fit(NUMBERS, Y, LEVELS)
    assert scaled.predict(NUMBERS).shape == (400, 3)


def test_a_linear_model_does_not_mind_being_scaled():
    direct = QuantileModel(QuantileRegressor(alpha=0)).fit(NUMBERS, Y, LEVELS)
    scaled = QuantileModel(make_pipeline(StandardScaler(), QuantileRegressor(alpha=0))).fit(NUMBERS, Y, LEVELS)
    np.testing.assert_allclose(scaled.predict(NUMBERS), direct.predict(NUMBERS), atol=1e-6)


def logarithm(model):
    return TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)


@each_library
@pytest.mark.parametrize(
    "nested",
    [
        logarithm,
        lambda model: logarithm(text_to_columns(model)),
        lambda model: text_to_columns(logarithm(model)),
        lambda model: logarithm(TransformedTargetRegressor(model, transformer=StandardScaler())),
    ],
    ids=["target", "target(pipeline)", "pipeline(target)", "target(target)"],
)
def test_a_logarithmic_target(family, nested):
    prices = np.exp(Y)
    model = QuantileModel(nested(small(family))).fit(X, prices, LEVELS)
    quantiles = model.predict(X)
    assert (quantiles > -1).all()
    plain = QuantileModel(text_to_columns(small(family))).fit(X, np.log1p(prices), LEVELS)
    share_below = (prices[:, None] <= quantiles).mean(axis=0)
    np.testing.assert_allclose(share_below, (np.log1p(prices)[:, None] <= plain.predict(X)).mean(axis=0), atol=0.15)


def test_a_logarithmic_target_means_the_logarithms_quantiles():
    prices = np.exp(Y)
    plain = QuantileModel(small("lightgbm")).fit(X, np.log1p(prices), LEVELS).predict(X)
    transformed = QuantileModel(logarithm(small("lightgbm"))).fit(X, prices, LEVELS).predict(X)
    # LightGBM stores y as 32-bit floats; of a plain target it gets the normalised one.
    np.testing.assert_allclose(transformed, np.expm1(plain), rtol=1e-6)


@pytest.mark.parametrize(
    ("func", "inverse"), [(np.negative, np.negative), (np.reciprocal, np.reciprocal), (lambda y: (y - 2) ** 2, np.sqrt)]
)
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: make_pipeline(StandardScaler(), model)])
def test_a_decreasing_target_transformation_is_refused(func, inverse, wrap):
    target = TransformedTargetRegressor(small("hist"), func=func, inverse_func=inverse, check_inverse=False)
    with pytest.raises(ValueError, match="function decreases, which turns the quantile levels around"):
        QuantileModel(wrap(target)).fit(NUMBERS, np.exp(Y), LEVELS)


def test_two_decreasing_transformations_make_an_increasing_one():
    turned = TransformedTargetRegressor(small("linear"), func=np.negative, inverse_func=np.negative)
    twice = TransformedTargetRegressor(turned, transformer=FunctionTransformer(np.negative, np.negative))
    expected = QuantileModel(small("linear")).fit(NUMBERS, Y, LEVELS).predict(NUMBERS)
    np.testing.assert_allclose(QuantileModel(twice).fit(NUMBERS, Y, LEVELS).predict(NUMBERS), expected)


# -- Other models ----------------------------------------------------------------------------------------------------


class OwnLevel(RegressorMixin, BaseEstimator):
    """A regressor with a parameter for the level, which predicts y's quantile."""

    def __init__(self, tau=0.5):
        self.tau = tau

    def fit(self, X, y):
        self.value_ = np.quantile(y, self.tau)
        return self

    def predict(self, X):
        return np.full(len(X), self.value_)


class OwnQuantiles:
    """Not a scikit-learn estimator at all."""

    def fit(self, X, y):
        self.y = y
        return self

    def predict_quantiles(self, X, levels):
        return np.tile(np.quantile(self.y, levels), (len(X), 1))


@pytest.mark.parametrize(
    "model",
    [
        QuantileModel(OwnLevel(), level_parameter="tau"),
        QuantileModel(make_pipeline(StandardScaler(), OwnLevel()), level_parameter="tau"),
        QuantileModel(OwnQuantiles()),
        OwnQuantiles(),
    ],
)
# These models know no columns.
@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")
def test_models_of_the_users_own(model):
    fitted = QR(model, coverage=0.8, random_state=0).fit(NUMBERS, Y)
    np.testing.assert_allclose(fitted.predict_quantiles(NUMBERS[:1]), [np.quantile(Y, LEVELS)])


def test_a_level_parameter_may_be_one_that_is_not_listed():
    named = QuantileModel(small("lightgbm").set_params(objective="quantile"), level_parameter="alpha")
    expected = QuantileModel(small("lightgbm")).fit(X, Y, LEVELS).predict(X)
    np.testing.assert_array_equal(named.fit(X, Y, LEVELS).predict(X), expected)


@pytest.mark.parametrize("model", [OwnLevel(), OwnQuantiles(), Ridge()])
def test_a_wrong_level_parameter_is_named(model):
    with pytest.raises(ValueError, match=f"level_parameter='nu' is not a parameter of {type(model).__name__}"):
        QuantileModel(model, level_parameter="nu").fit(NUMBERS, Y, LEVELS)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(random_state=0),
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
        TransformedTargetRegressor(),
    ],
)
def test_a_model_of_the_mean_is_told_what_can(model):
    with pytest.raises(ValueError, match=r"can't predict quantiles.*LGBMRegressor.*level_parameter.*prefit.*Naive"):
        CQR(model, random_state=0).fit(NUMBERS, Y)
    assert Naive(model, coverage=0.8, random_state=0).fit(NUMBERS, Y).predict_interval(NUMBERS).shape == (400, 2)


@each_family
def test_models_of_the_mean_take_the_same_rows(family):
    point = PointModel(small(family)).fit(X, Y)
    assert point.predict(X).shape == (400,)


class Wrong(OwnQuantiles):
    def __init__(self, answer):
        self.answer = answer

    def predict_quantiles(self, X, levels):
        return self.answer(len(X))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.zeros((n, 2)), r"must predict shape \(400, 3\) .* got \(400, 2\)"),
        (lambda n: np.zeros(n), r"got \(400, 1\)"),
        (lambda n: np.full((n, 3), np.nan), "for row 0; quantiles must be finite"),
        (lambda n: np.full((n, 3), np.inf), "quantiles must be finite"),
    ],
)
def test_predictions_are_checked(answer, message):
    model = QuantileModel(Wrong(answer)).fit(NUMBERS, Y, LEVELS)
    with pytest.raises(ValueError, match=message):
        model.predict(NUMBERS)


# -- Models that are fitted already ----------------------------------------------------------------------------------


def fitted_levels(rows=NUMBERS, levels=LEVELS):
    return QuantileModel(small("lightgbm")).fit(rows, Y, levels).models_


def fitted_bounds():
    lower, median, upper = fitted_levels()
    return prefit(lower=lower, median=median.booster_, upper=upper.predict, levels=LEVELS)


def test_fitted_estimators_boosters_and_callables():
    expected = np.column_stack([model.predict(NUMBERS) for model in fitted_levels()])
    np.testing.assert_allclose(fitted_bounds().predict_quantiles(NUMBERS, LEVELS), expected)
    np.testing.assert_allclose(fitted_bounds().predict_quantiles(NUMBERS, LEVELS[::-1]), expected[:, ::-1])


def test_fitted_models_are_kept_through_clone():
    class Session:
        """A callable that can't be copied, as sessions of model servers can't."""

        def __call__(self, X):
            return X[:, 0]

        def __deepcopy__(self, memo):
            raise TypeError("can't be copied")

    session = Session()
    bounds = prefit(lower=session, median=fitted_levels()[1], upper=session, levels=LEVELS)
    again = clone(CQR(bounds, coverage=0.8, random_state=0)).estimator
    assert all(a.estimator is b.estimator for a, b in zip(again.models, bounds.models, strict=True))
    assert CQR(bounds, coverage=0.8, random_state=0).fit(NUMBERS, Y).model_.models_[0].models[0].estimator is session


def test_fitting_with_fitted_models_takes_the_rows_as_unseen():
    cqr = CQR(fitted_bounds(), coverage=0.8, random_state=0).fit(NUMBERS, Y)
    assert cqr.calibration_.sizes.sum() == 400
    naive = Naive(FrozenEstimator(fitted_levels()[1]), coverage=0.8, random_state=0).fit(NUMBERS, Y)
    assert naive.calibration_.sizes.sum() == 400
    # Something is learned here: the groups, or the floor of the widths.
    icqr = ICQR(fitted_bounds(), coverage=0.8, partition=WholePartition(), random_state=0).fit(NUMBERS, Y)
    assert icqr.calibration_.sizes.sum() == 134
    assert (
        CQR(fitted_bounds(), coverage=0.8, conformity="cqr-r", random_state=0).fit(NUMBERS, Y).calibration_.sizes.sum()
        == 134
    )


def test_fitted_models_get_the_rows_as_they_came():
    seen = []

    def model(rows):
        seen.append(rows)
        return rows["x"]

    CQR(prefit(lower=model, median=model, upper=model, levels=LEVELS), coverage=0.8, random_state=0).fit(X, Y)
    assert all(rows["c"].tolist() == X["c"].tolist() for rows in seen)


@pytest.mark.parametrize(
    ("coverage", "side", "level"), [(0.9, "both", "0.05"), (0.8, "lower", "0.2"), (0.95, "upper", "0.95")]
)
def test_fitted_levels_are_checked_against_the_coverage(coverage, side, level):
    with pytest.raises(ValueError, match=rf"need a model of level {level}, but .* levels \(0.1, 0.5, 0.9\)"):
        CQR(fitted_bounds(), coverage=coverage, side=side, random_state=0).fit(NUMBERS, Y)


def test_a_one_sided_bound_needs_its_own_model_only():
    _, median, upper = fitted_levels()
    bounds = prefit(median=median, upper=upper, levels=(0.5, 0.9))
    assert (
        CQR(bounds, coverage=0.9, side="upper", random_state=0).fit(NUMBERS, Y).predict_interval(NUMBERS)[0, 0]
        == -np.inf
    )


def test_a_fitted_quantile_model_is_used_as_it_is():
    fitted = QuantileModel(LGBMRegressor(n_estimators=5, n_jobs=1, random_state=0)).fit(X, Y, LEVELS)
    model = ICQR(FrozenEstimator(fitted), coverage=0.8, random_state=0).fit(X, Y)
    assert model.model_.models_ is fitted.models_
    np.testing.assert_array_equal(model.predict_quantiles(X), fitted.predict(X))
    point = PointModel(LGBMRegressor(n_estimators=5, n_jobs=1, random_state=0)).fit(X, Y)
    naive = Naive(FrozenEstimator(point), coverage=0.8, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(naive.predict(X), point.predict(X))
    with pytest.raises(ValueError, match=r"need the levels \(0.05, 0.5, 0.95\), but the fitted QuantileModel has"):
        CQR(FrozenEstimator(fitted), coverage=0.9, random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("models", "levels", "error", "message"),
    [
        ({}, (), ValueError, "one level for each of the 0 models"),
        ({"lower": len, "upper": len}, LEVELS, ValueError, "one level for each of the 2 models"),
        ({"lower": len, "upper": len}, (0.9, 0.1), ValueError, "levels must grow from lower to upper"),
        ({"lower": len, "upper": len}, (5, 95), ValueError, "strictly between 0 and 1"),
        ({"lower": "a model"}, (0.1,), ValueError, r"must have predict\(X\) or be callable, got str"),
        ({"lower": LGBMRegressor()}, (0.1,), NotFittedError, "LGBMRegressor instance is not fitted"),
        ({"lower": CatBoostRegressor()}, (0.1,), NotFittedError, "CatBoostRegressor instance is not fitted"),
        ({"lower": make_pipeline(Ridge())}, (0.1,), NotFittedError, "not fitted"),
    ],
)
def test_what_can_not_be_prefit(models, levels, error, message):
    with pytest.raises(error, match=message):
        prefit(**models, levels=levels)


def test_an_object_that_only_predicts_is_fitted_already():
    class Served:
        def predict_quantiles(self, X, levels):
            return X[:, :1] + stats.norm.ppf(levels)

    assert is_prefit(Served())
    assert not is_prefit(None)
    assert CQR(Served(), coverage=0.8, random_state=0).fit(NUMBERS, Y).calibration_.sizes.sum() == 400


def test_a_frozen_model_of_one_level_points_to_prefit():
    with pytest.raises(ValueError, match="prefit"):
        CQR(FrozenEstimator(fitted_levels()[0]), random_state=0).fit(NUMBERS, Y)


def test_fitted_models_notice_columns_in_another_order():
    rows = pd.DataFrame({"a": NUMBERS[:, 0], "b": -NUMBERS[:, 0]})
    lower, median, upper = fitted_levels(rows)
    bounds = prefit(lower=lower, median=median, upper=upper, levels=LEVELS)
    with pytest.raises(ValueError, match=r"in the same order: \['a', 'b'\], got \['b', 'a'\]"):
        CQR(bounds, coverage=0.8, random_state=0).fit(rows[["b", "a"]], Y)


# -- Weights and fit parameters --------------------------------------------------------------------------------------

ROUTING = pytest.mark.parametrize("routing", [False, True])
WEIGHTED = pytest.mark.parametrize("family", ["hist", "gradient", "linear", "lightgbm", "xgboost"])
HALF = np.arange(400) % 2 == 0


def weighted(family):
    """Return a model whose fit on weights 0 and 1 is exactly the fit on the rows of weight 1."""
    model = small(family)
    if family == "lightgbm":  # its smallest leaf counts rows, whatever they weigh
        model.set_params(min_child_samples=1, min_child_weight=5, subsample_for_bin=1)
    return model


def fit_weighted(model, routing, **params):
    with sklearn.config_context(enable_metadata_routing=routing):
        if routing:
            model.set_fit_request(**dict.fromkeys(params, True))
        return CQR(model, coverage=0.8, random_state=0).fit(NUMBERS, Y, **params)


@ROUTING
@WEIGHTED
# One row in LightGBM's bins makes no splits.
@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")
def test_rows_of_weight_zero_do_not_train(family, routing):
    spoilt = np.where(HALF, Y, Y + 1000)
    model = fit_weighted(weighted(family), routing, sample_weight=HALF.astype(float))
    with_spoilt = CQR(weighted(family), coverage=0.8, random_state=0)
    with sklearn.config_context(enable_metadata_routing=routing):
        if routing:
            with_spoilt.estimator.set_fit_request(sample_weight=True)
        with_spoilt.fit(NUMBERS, spoilt, sample_weight=HALF.astype(float))
    np.testing.assert_allclose(with_spoilt.predict(NUMBERS), model.predict(NUMBERS), atol=1e-6)


@ROUTING
def test_weights_never_touch_calibration(routing):
    """Only weights that differ: the same bounds, so the same scores, whatever the calibration rows' weights are."""
    plain = fit_weighted(OwnWeights(), routing, sample_weight=np.ones(400))
    heavy = fit_weighted(OwnWeights(), routing, sample_weight=np.where(HALF, 1.0, 50.0))
    assert len(plain.calibration_.scores[0]) == 134
    np.testing.assert_array_equal(heavy.calibration_.scores[0], plain.calibration_.scores[0])
    assert len(OwnWeights.seen) == 266
    assert set(OwnWeights.seen) == {1.0, 50.0}


class OwnWeights(BaseEstimator):
    """Keeps the weights it was given; its bounds don't depend on them."""

    def fit(self, X, y, sample_weight=None):
        OwnWeights.seen = sample_weight
        self.rows_ = X
        return self

    def predict_quantiles(self, X, levels):
        return X[:, :1] + stats.norm.ppf(levels)


def test_weights_are_split_with_their_rows():
    model = OwnWeights()
    CQR(model, coverage=0.8, random_state=0).fit(NUMBERS, Y, sample_weight=NUMBERS[:, 0])
    fitted = CQR(model, coverage=0.8, random_state=0).fit(NUMBERS, Y, sample_weight=pd.Series(NUMBERS[:, 0])).model_
    np.testing.assert_array_equal(np.asarray(OwnWeights.seen), fitted.models_[0].rows_[:, 0])


@ROUTING
@pytest.mark.parametrize(
    "nested",
    [
        lambda model: make_pipeline(StandardScaler(), model),
        lambda model: TransformedTargetRegressor(model, transformer=StandardScaler()),
        lambda model: TransformedTargetRegressor(make_pipeline(StandardScaler(), model), transformer=StandardScaler()),
    ],
    ids=["pipeline", "target", "target(pipeline)"],
)
def test_weights_reach_a_model_inside(nested, routing):
    with sklearn.config_context(enable_metadata_routing=routing):
        model = small("linear")
        if routing:
            model.set_fit_request(sample_weight=True)
        estimator = nested(model)
        if routing and "standardscaler" in str(estimator.get_params().keys()):
            scaler = StandardScaler().set_fit_request(sample_weight=False)
            name = next(key for key in estimator.get_params() if key.endswith("standardscaler"))
            estimator.set_params(**{name: scaler})
        fitted = CQR(estimator, coverage=0.8, random_state=0)
        spoilt = np.where(HALF, Y, -Y)
        plain = clone(fitted).fit(NUMBERS, spoilt)
        fitted.fit(NUMBERS, spoilt, sample_weight=HALF.astype(float))
    assert np.abs(fitted.predict(NUMBERS) - plain.predict(NUMBERS)).max() > 0.5


def test_weights_that_nobody_asked_for_are_refused_when_routing():
    with sklearn.config_context(enable_metadata_routing=True), pytest.raises(ValueError, match="sample_weight"):
        CQR(small("hist"), coverage=0.8, random_state=0).fit(NUMBERS, Y, sample_weight=HALF.astype(float))


X_EVAL, Y_EVAL = draw(300, seed=3)
# Newer versions of LightGBM prefer `eval_X` and `eval_y`; `eval_set` is what people still write.
old_spelling = pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")


@old_spelling
@pytest.mark.parametrize(
    ("model", "params", "trees"),
    [
        (
            LGBMRegressor(n_estimators=500, learning_rate=0.5, n_jobs=1),
            {"eval_set": [(X_EVAL, Y_EVAL)], "callbacks": [lightgbm.early_stopping(5, verbose=False)]},
            lambda model: model.best_iteration_,
        ),
        (
            LGBMRegressor(n_estimators=500, learning_rate=0.5, n_jobs=1),
            {"eval_X": X_EVAL, "eval_y": Y_EVAL, "callbacks": [lightgbm.early_stopping(5, verbose=False)]},
            lambda model: model.best_iteration_,
        ),
        (
            XGBRegressor(n_estimators=500, learning_rate=0.5, early_stopping_rounds=5, n_jobs=1),
            {"eval_set": [(X_EVAL, Y_EVAL)], "verbose": False},
            lambda model: model.best_iteration,
        ),
        (
            CatBoostRegressor(n_estimators=500, learning_rate=0.5, early_stopping_rounds=5, thread_count=1),
            {"eval_set": (X_EVAL, Y_EVAL)},
            lambda model: model.tree_count_,
        ),
        (
            CatBoostRegressor(n_estimators=500, learning_rate=0.5, early_stopping_rounds=5, thread_count=1),
            {"eval_set": Pool(X_EVAL, Y_EVAL, cat_features=["c"])},
            lambda model: model.tree_count_,
        ),
        (
            HistGradientBoostingRegressor(
                max_iter=500, learning_rate=0.5, early_stopping=True, n_iter_no_change=5, random_state=0
            ),
            {"X_val": X_EVAL, "y_val": Y_EVAL},
            lambda model: model.n_iter_,
        ),
    ],
    ids=["lightgbm", "lightgbm-eval_X", "xgboost", "catboost", "catboost-pool", "hist"],
)
def test_early_stopping_on_the_users_rows(model, params, trees):
    fitted = CQR(model, coverage=0.8, random_state=0).fit(X, Y, **params)
    assert all(1 <= trees(model) < 200 for model in fitted.model_.models_)
    assert fitted.predict_interval(X).shape == (400, 2)


@old_spelling
def test_early_stopping_by_routing():
    model = LGBMRegressor(n_estimators=500, learning_rate=0.5, n_jobs=1)
    params = {"eval_set": [(NUMBERS[:50], Y[:50])], "callbacks": [lightgbm.early_stopping(5, verbose=False)]}
    fitted = fit_weighted(model, True, **params)
    assert all(model.best_iteration_ < 200 for model in fitted.model_.models_)


# -- Threads ---------------------------------------------------------------------------------------------------------


def test_lightgbm_models_that_are_fitted_at_once_share_the_cores(monkeypatch):
    asked = []

    class Watched(LGBMRegressor):
        def fit(self, *args, **kwargs):
            asked.append(self.n_jobs)
            return super().fit(*args, **kwargs)

    monkeypatch.setattr(quantiles, "cpu_count", lambda: 4)
    model = QuantileModel(Watched(n_estimators=3, verbose=-1), n_jobs=2)
    with parallel_config(backend="threading"):
        model.fit(NUMBERS, Y, LEVELS)
    assert asked == [2, 2, 2]
    assert [one.n_jobs for one in model.models_] == [None] * 3
    for given, wanted in ((None, None), (1, 1)):
        asked.clear()
        QuantileModel(Watched(n_estimators=3, verbose=-1, n_jobs=given)).fit(NUMBERS, Y, LEVELS)
        assert asked == [wanted] * 3
