"""A centre first, then the quantiles of its residuals: what is learned from what, any base model, any method."""

import contextlib
import warnings
from typing import Any
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBRegressor

from icqr import CQR, ICQR, QR, AutoICQR, QuantileModel, ResidualQuantiles, WholePartition, centres, load, save
from icqr.centres import FittedOnce, SmoothRidge
from icqr.datasets import make_heteroscedastic
from icqr.importance import column_replacer
from icqr.metrics import coverage_score, interval_score
from icqr.neural import QuantileNetwork

LEVELS = (0.05, 0.5, 0.95)
HIST = HistGradientBoostingRegressor(max_iter=3, random_state=0)
LIGHT = LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1, random_state=0)


def draw(n: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(n, 2)), columns=["a", "b [m]"])
    X["city"] = rng.choice(["Bern", "Genf", "Rom"], n)
    X.loc[::11, "a"] = np.nan
    y = 5 + 3 * X["b [m]"] + (X["city"] == "Rom") + (0.1 + X["b [m]"]) * rng.normal(size=n)
    return X, y.to_numpy()


FULL, Y = draw()
ARRAY = FULL[["b [m]"]].to_numpy()
BASES = {
    "default": (None, FULL[:120]),
    "hist": (HIST, FULL),
    "lightgbm": (LIGHT, FULL),
    "xgboost": (XGBRegressor(n_estimators=5, n_jobs=1, random_state=0), FULL),
    "boosting": (GradientBoostingRegressor(n_estimators=5, random_state=0), FULL.drop(columns="a")),
    "linear": (QuantileRegressor(alpha=0), ARRAY),
    "pipeline": (make_pipeline(StandardScaler(), HIST), ARRAY),
    "network": (QuantileNetwork(hidden=(4,), epochs=2, random_state=0), ARRAY),
    "quantile model": (
        QuantileModel(
            GradientBoostingRegressor(loss="quantile", n_estimators=5, random_state=0), level_parameter="alpha"
        ),
        ARRAY,
    ),
    "numbered columns": (LIGHT, pd.DataFrame({0: FULL["a"], 1: FULL["city"]})),
}


# A network in two stages is fitted below, where its columns are replaced.
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "network")) for name in BASES])
def test_any_quantile_model_may_be_the_base(name: str) -> None:
    base, X = BASES[name]
    y = Y[: len(X)]
    model = CQR(ResidualQuantiles(base), random_state=0).fit(X, y)
    intervals = model.predict_interval(X)
    assert np.isfinite(intervals).all()
    assert coverage_score(y, intervals) > 0.8
    centre = model.model_.models_[0].centre_
    assert len(centre.members_) == len(centre.weights_) >= 1
    assert centre.weights_.sum() == pytest.approx(1)


@pytest.mark.slow
def test_a_row_s_quantiles_come_from_models_that_have_not_seen_it() -> None:
    # Noise, and trees with a leaf for each row: a model's median of rows that it knows is y itself.
    by_heart = HistGradientBoostingRegressor(
        max_iter=50, min_samples_leaf=1, max_leaf_nodes=None, learning_rate=0.5, random_state=0
    )
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(200, 1)), rng.normal(size=200)
    known = QuantileModel(by_heart).fit(X, y, LEVELS).predict(X)
    model = ResidualQuantiles(by_heart, centre=by_heart, random_state=0).fit(X, y)
    held, unknown = model.held_out(X, y, seed=0, fit_params={})
    assert np.abs(y - known[:, 1]).mean() < 0.1
    assert np.abs(y[held] - unknown[:, 1]).mean() > 0.5
    # On noise, intervals of unseen rows hold less often than those of known ones.
    assert coverage_score(y[held], unknown[:, [0, 2]]) < 0.9 < coverage_score(y, known[:, [0, 2]] + [-0.1, 0.1])


def test_quantiles_are_the_centre_plus_those_of_what_it_leaves() -> None:
    model = ResidualQuantiles(LIGHT, random_state=0).fit(ARRAY, Y)
    centre, spread = model.centre_.predict(ARRAY)
    residuals = model.residuals_.predict(np.column_stack([ARRAY, centre, spread]))
    found = model.predict_quantiles(ARRAY)
    np.testing.assert_array_equal(found, centre[:, None] + residuals)
    np.testing.assert_array_equal(model.predict(ARRAY), found[:, 1])
    np.testing.assert_array_equal(model.predict_quantiles(ARRAY, (0.95,)), found[:, [2]])
    # What the second stage has learned from: residuals of rows that the centre has not seen.
    centre, spread = model.centre_.out_of_fold_
    rows = np.column_stack([ARRAY, centre, spread])
    again = clone(model.residuals_).fit(rows, Y - centre, LEVELS)
    np.testing.assert_array_equal(again.predict(rows), model.residuals_.predict(rows))


def test_a_mixture_says_how_far_its_models_are_from_it() -> None:
    models = [LinearRegression(), DummyRegressor(), HIST]
    mixture = ResidualQuantiles(LIGHT, centre=models, random_state=0).fit(ARRAY, np.abs(Y - 6) + Y).centre_
    parts = np.column_stack([member.predict(ARRAY) for member in mixture.members_])
    centre, spread = mixture.predict(ARRAY)
    assert parts.shape[1] > 1
    np.testing.assert_allclose(centre, parts @ mixture.weights_)
    np.testing.assert_allclose(spread, np.abs(parts - centre[:, None]) @ mixture.weights_)
    # A single model has no such column.
    alone = ResidualQuantiles(LIGHT, centre=HIST, random_state=0).fit(ARRAY, Y)
    assert alone.residuals_.models_[0].n_features_in_ == ARRAY.shape[1] + 1


def test_the_residuals_model_is_a_small_one_of_the_same_library() -> None:
    constrained = {"monotone_constraints": [1], "num_iterations": 500, "min_data_in_leaf": 2}
    for n, leaves in ((300, 6), (2000, 15)):
        x = np.linspace(0, 1, n)[:, None]
        large = LGBMRegressor(n_jobs=1, verbose=-1, **constrained)
        small = ResidualQuantiles(large, random_state=0).fit(x, x.ravel()).residuals_.models_[0]
        assert isinstance(small, LGBMRegressor)
        # Whatever LightGBM's names for them: the booster says what it took.
        params = small.booster_.params
        assert (small.booster_.num_trees() <= 40, params["num_leaves"], params["min_data_in_leaf"]) == (
            True,
            leaves,
            40,
        )
    linear = ResidualQuantiles(QuantileRegressor(alpha=0.5), random_state=0).fit(ARRAY, Y)
    assert linear.residuals_.models_[0].alpha == 0.5


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingRegressor(max_iter=3, monotonic_cst=[1, 0]),
        LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1, monotone_constraints=[1, 0]),
        XGBRegressor(n_estimators=5, n_jobs=1, monotone_constraints=(1, 0)),
        CatBoostRegressor(iterations=5, thread_count=1, monotone_constraints="(1,0)"),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_constraints_of_columns_hold_for_the_centre_alone(estimator: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = -X[:, 0] + rng.normal(size=300)
    model = ResidualQuantiles(estimator, centre="stack", random_state=0).fit(X, y)
    first = model.centre_.members[0].fit(X, y, seed=0)
    steps = np.column_stack([np.linspace(0, 1, 50), np.full(50, 0.5)])
    assert (np.diff(first.predict(steps)) >= 0).all()
    assert np.isfinite(model.predict_quantiles(steps)).all()


def test_a_thorough_model_is_the_same_from_a_file_with_more_tasks_and_row_by_row(tmp_path: Any) -> None:
    X, y = make_heteroscedastic(1500, random_state=0, return_X_y=True)
    estimator = LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)
    one, two = (AutoICQR(estimator, effort="thorough", random_state=0, n_jobs=n).fit(X, y) for n in (None, 2))
    intervals = one.predict_interval(X)
    np.testing.assert_array_equal(two.predict_interval(X), intervals)
    np.testing.assert_array_equal(one.predict_interval(X.iloc[:1]), intervals[:1])
    save(one, tmp_path / "model.icqr")
    np.testing.assert_array_equal(load(tmp_path / "model.icqr").predict_interval(X), intervals)


# -- The centre ------------------------------------------------------------------------------------------------------


def kinds(model: ResidualQuantiles) -> list[str]:
    """Return the classes of the models that were tried for the centre."""
    found = []
    for member in model.centre_.members:
        inner = member.model.estimator
        loss = getattr(inner, "loss", "") if isinstance(inner, HistGradientBoostingRegressor) else ""
        kind = "median" if isinstance(member.model, QuantileModel) else "mean"
        found.append(f"{type(inner).__name__} {kind} {loss}".strip())
    return found


def test_the_stack_has_the_estimator_a_smooth_and_a_linear_model() -> None:
    model = ResidualQuantiles(HistGradientBoostingRegressor(loss="absolute_error", max_iter=3), random_state=0)
    mean = "HistGradientBoostingRegressor mean squared_error"
    smooth = ["SmoothRidge mean"] * 2
    assert kinds(model.fit(FULL, Y)) == [mean, *smooth]
    median = "HistGradientBoostingRegressor median absolute_error"
    assert kinds(model.fit(FULL, np.exp(3 * Y))) == [mean, median, *smooth]
    model.set_params(effort="thorough")
    assert kinds(model.fit(FULL, Y)) == [mean, median, *smooth, "ExtraTreesRegressor mean"]
    in_folds, once = model.centre_.members[:2], model.centre_.members[2:]
    assert [member.n_folds for member in in_folds] == [5, 3]
    assert [type(member) for member in once] == [FittedOnce] * 3


def test_the_smooth_model_tells_what_it_predicts_for_a_row_without_it() -> None:
    rng = np.random.default_rng(0)
    Z, weights = rng.normal(size=(60, 4)), rng.uniform(0.5, 2, 60)
    weights[3] = 0.0
    y = Z @ np.arange(4.0) + rng.normal(size=60)
    with mock.patch.object(centres, "PENALTIES", np.array([0.7])):
        model = SmoothRidge(n_landmarks=0, random_state=0).fit(Z, y, weights)
        for row in (0, 3, 59):
            kept = np.arange(60) != row
            # Columns are standardised by all rows in the one, and by the others in the other.
            scaled = (Z - model.mean_) / model.spread_
            slopes, intercept, _ = centres._ridge(scaled[kept], y[kept], weights[kept])
            assert model.oob_prediction_[row] == pytest.approx(scaled[row] @ slopes + intercept, rel=1e-9)
    model = SmoothRidge(max_rows=40, random_state=0).fit(Z, y)
    assert (model.oob_prediction_ == model.predict(Z)).sum() == 20  # rows that were not drawn are new to it


def test_the_smooth_model_learns_which_columns_count() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 20))
    y = np.sin(2 * X[:, 3]) + X[:, 7] ** 2
    alike = mock.patch.object(centres, "ROUNDS", 1)  # all columns weigh the same in the first round
    errors = []
    for context in (contextlib.nullcontext(), alike):
        with context:
            model = SmoothRidge(random_state=0).fit(X[:900], y[:900])
        errors.append(np.abs(model.predict(X[900:]) - y[900:]).mean())
        if context is alike:
            np.testing.assert_allclose(model.scales_, model.scales_[0])
        else:
            assert set(np.argsort(model.scales_)[-2:]) == {3, 7}
    assert errors[0] < 0.5 * errors[1]


def test_the_slopes_that_weigh_a_column_are_those_of_the_function() -> None:
    # Slopes known by hand: 10 x along the first column, 2 x along the second, 0 along the others.
    X = np.random.default_rng(0).uniform(-1, 1, size=(800, 4))
    scales = centres._column_scales(X, 5 * X[:, 0] ** 2 + X[:, 1] ** 2, np.ones(800), 200)
    assert scales[1] / scales[0] == pytest.approx(0.2, abs=0.02)
    assert scales[2:].max() < 0.02 * scales[0]


def test_with_few_rows_the_smooth_model_does_not_learn_noise_by_heart() -> None:
    squares = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 50)), rng.normal(size=100)
        model = SmoothRidge(random_state=seed).fit(X, y)
        squares.append((model.predict(rng.normal(size=(200, 50))) ** 2).mean())
    assert max(squares) < 1  # the variance of y


def test_a_row_s_centre_does_not_depend_on_the_rows_beside_it() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 20)))
    model = SmoothRidge(random_state=0).fit(X, X[0] + rng.normal(size=300))
    together = model.predict(X)
    np.testing.assert_array_equal([model.predict(X.iloc[[i]])[0] for i in range(300)], together)
    np.testing.assert_array_equal(model.predict(np.asfortranarray(X)), together)


def test_models_of_equal_worth_all_stay() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=1000)
    X = y[:, None] + 0.3 * rng.normal(size=(1000, 25))
    columns = [make_pipeline(ColumnTransformer([("one", "passthrough", [j])]), LinearRegression()) for j in range(25)]
    centre = ResidualQuantiles(LIGHT, centre=columns, random_state=0).fit(X, y).centre_
    assert len(centre.weights_) > 20
    assert centre.weights_.max() < 0.1


def test_rows_that_every_tree_drew_get_the_mean_of_the_others_predictions() -> None:
    def two_trees(_: int, **parameters: Any) -> Any:
        return ExtraTreesRegressor(2, **parameters)

    with mock.patch("icqr.residual_quantiles.ExtraTreesRegressor", two_trees), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ResidualQuantiles(LIGHT, effort="thorough", random_state=0).fit(ARRAY, Y)
        forest = clone(model.centre_.members[-1]).fit(ARRAY, Y, seed=0)
    drawn = [np.bincount(rows, minlength=300) > 0 for rows in forest.fitted_.estimators_samples_]
    known = np.all(drawn, axis=0)
    assert 50 < known.sum() < 200
    np.testing.assert_allclose(forest.out_of_fold_[known], forest.out_of_fold_[~known].mean())
    assert np.ptp(forest.out_of_fold_[~known]) > 1


def test_models_step_aside_where_they_can_not_work() -> None:
    # A pipeline's own steps may be all that reads its columns.
    inside = ResidualQuantiles(make_pipeline(StandardScaler(), HIST), random_state=0).fit(ARRAY, Y)
    assert len(inside.centre_.members) == 1
    # A linear model of quantiles has no squared loss; nor has a model whose level parameter you name.
    linear = ResidualQuantiles(QuantileRegressor(alpha=0), random_state=0).fit(ARRAY, Y)
    assert kinds(linear)[0] == "QuantileRegressor median"
    many = pd.DataFrame({f"c{j}": [f"{(i + j) % 30}" for i in range(300)] for j in range(17)})  # 510 one-hot columns
    assert len(ResidualQuantiles(LIGHT, random_state=0).fit(many, Y).centre_.members) == 1
    # Of more categories than 30, each becomes two numbers, so that there are few columns.
    ids = pd.DataFrame({"id": [f"{i % 100}" for i in range(300)], "b": Y, "c": [f"c{i % 100}" for i in range(300)]})
    assert len(ResidualQuantiles(LIGHT, random_state=0).fit(ids, Y).centre_.members) == 3


def test_the_centre_may_be_your_own() -> None:
    one = ResidualQuantiles(LIGHT, centre=LinearRegression(), random_state=0).fit(ARRAY, Y)
    assert [type(member.fitted_) for member in one.centre_.members_] == [LinearRegression]
    models = [LinearRegression(), HIST]
    two = ResidualQuantiles(LIGHT, centre=models, random_state=0).fit(ARRAY, Y)
    assert kinds(two) == ["LinearRegression mean", "HistGradientBoostingRegressor mean squared_error"]
    with pytest.raises(ValueError, match="centre must be 'stack', a regressor or a list of regressors, got 'mean'"):
        ResidualQuantiles(LIGHT, centre="mean", random_state=0).fit(ARRAY, Y)
    for wrong in ([], 3, None, [HIST, "mean"], LinearRegression):
        with pytest.raises(ValueError, match=r"centre must be 'stack', a regressor or a list .* got .*; for example"):
            ResidualQuantiles(LIGHT, centre=wrong, random_state=0).fit(ARRAY, Y)
    fitted = FrozenEstimator(LinearRegression().fit(ARRAY, Y))
    with pytest.raises(ValueError, match=r"centre is fitted on folds, and can't be fitted already, got .*Frozen"):
        ResidualQuantiles(LIGHT, centre=[HIST, fitted], random_state=0).fit(ARRAY, Y)
    thorough = ResidualQuantiles(LIGHT, centre=models, effort="thorough", random_state=0).fit(ARRAY, Y)
    np.testing.assert_array_equal(thorough.centre_.predict(ARRAY)[0], two.centre_.predict(ARRAY)[0])
    with pytest.raises(ValueError, match="effort must be one of 'quick', 'thorough', got 'fast'"):
        ResidualQuantiles(LIGHT, effort="fast", random_state=0).fit(ARRAY, Y)


def test_an_almost_noise_free_function_is_followed() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 3))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.001 * rng.normal(size=1500)
    widths = []
    for estimator in (LGBMRegressor(n_jobs=1, verbose=-1), ResidualQuantiles(LGBMRegressor(n_jobs=1, verbose=-1))):
        model = CQR(estimator, random_state=0).fit(X[:1000], y[:1000])
        widths.append(np.ptp(model.predict_interval(X[1000:]), axis=1).mean())
    assert widths[1] < 0.2 * widths[0]


def test_intervals_are_better_where_the_mean_is_hard_and_the_spread_is_simple() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 4))
    y = 10 * np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1]) + 5 * X[:, 2] ** 2 + (0.2 + X[:, 3]) * rng.normal(size=3000)
    scores = []
    base = LGBMRegressor(n_estimators=50, n_jobs=1)
    for estimator in (base, ResidualQuantiles(base)):
        model = CQR(estimator, random_state=0).fit(X[:2000], y[:2000])
        scores.append(interval_score(y[2000:], model.predict_interval(X[2000:]), coverage=0.9))
    assert scores[1] < 0.9 * scores[0]


# -- Under every method ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"side": "lower", "conformity": "cqr-r"},
        {"side": "upper", "coverage": 0.5},  # the median is the only level
        {"conformity": "cqr-m"},
        {"symmetric": False},
    ],
    ids=str,
)
def test_every_setting_works(settings: dict[str, Any]) -> None:
    model = CQR(ResidualQuantiles(LIGHT), random_state=0, **settings).fit(FULL, Y)
    assert model.predict_interval(FULL, [0.8, 0.9]).shape == (300, 2, 2)
    lower, upper = model.predict_interval(FULL, 0.8).T
    assert np.mean((lower <= Y) & (upper >= Y)) > 0.7


def test_quantiles_are_sorted_before_the_centre_is_added_so_that_none_cross() -> None:
    class InTheWrongOrder(BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            self.y_ = y
            return self

        def predict_quantiles(self, X: Any, levels: Any) -> Any:
            return np.asarray(X)[:, :1] + np.quantile(self.y_, levels)[::-1]

    X = np.random.default_rng(0).uniform(size=(1200, 2))
    y = X[:, 0] + np.random.default_rng(1).normal(size=1200)
    counts = [method(InTheWrongOrder(), random_state=0).fit(X, y).n_crossed_ for method in (CQR, AutoICQR)]
    assert counts == [{"train": 800, "calibration": 400}, {"train": 0, "calibration": 0}]


def test_an_interval_of_lower_coverage_contains_the_median_in_every_row() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 3))
    y = X[:, 0] + (0.1 + X[:, 1]) * rng.gamma(2.0, size=600)
    model = AutoICQR(LIGHT, 0.9, calibration="split", random_state=0).fit(X[:400], y[:400])
    lower, upper = model.predict_interval(X, coverage=0.5).T
    median = model.predict(X)
    assert ((lower <= median) & (median <= upper)).all()
    assert 0.35 < coverage_score(y[400:], np.column_stack([lower, upper])[400:]) < 0.65


def test_icqr_weighs_the_columns_that_matter() -> None:
    X, y = make_heteroscedastic(1000, random_state=0, return_X_y=True)
    model = ICQR(ResidualQuantiles(LIGHT), random_state=0).fit(X, y)
    assert set(model.importances_.nlargest(2, "share")["feature"]) == {"x1", "x2"}
    assert QR(ResidualQuantiles(LIGHT), random_state=0).fit(X, y).predict_interval(X).shape == (1000, 2)


@pytest.mark.parametrize("name", ["hist", "lightgbm", "linear", "network"])
def test_a_replaced_column_moves_the_centre_and_with_it_all_levels(name: str) -> None:
    base, X = BASES[name]
    column = X.shape[1] - 1
    model = QuantileModel(ResidualQuantiles(base, random_state=0)).fit(X, Y, LEVELS)
    order = np.random.default_rng(0).permutation(len(X))
    moved = X.copy()
    if isinstance(X, pd.DataFrame):
        moved["city"] = X["city"].to_numpy()[order]
    else:
        moved[:, column] = X[order, column]
    replacer = column_replacer(model, X)
    np.testing.assert_allclose(replacer.predicted, model.predict(X), rtol=1e-9)
    assert replacer.uses(column)
    same, found = replacer.replace(column, np.stack([np.arange(len(X)), order]))
    np.testing.assert_allclose(same, model.predict(X), rtol=1e-9)
    inner = model.models_[0]  # its quantiles are not sorted
    move = inner.centre_.predict(moved)[0] - inner.centre_.predict(X)[0]
    wanted = np.sort(inner.predict_quantiles(X), axis=1) + move[:, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    assert np.abs(found - same).max() > 1e-3


def test_its_own_centre_serves_the_choice_of_groups() -> None:
    class Counting(GradientBoostingRegressor):
        fits = 0

        def fit(self, X: Any, y: Any, **params: Any) -> Any:
            Counting.fits += 1
            return super().fit(X, y, **params)

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(660, 1))
    y = X.ravel() + rng.normal(size=660)
    model = ICQR(ResidualQuantiles(Counting(n_estimators=2)), partition="auto", random_state=0).fit(X, y)
    assert len(model.selection_) > 1
    # The centre without each of three folds, and on all rows; three levels of the residuals, on all rows and on half of
    # them; the difficulty on two halves of the rest, and on all of it if it is chosen.
    assert Counting.fits == 3 + 1 + 3 * 2 + 2 + (model.n_groups_ > 1)


# -- Seeds, tasks at the same time, copies ---------------------------------------------------------------------------


def test_the_seed_decides_whatever_n_jobs() -> None:
    noisy = LGBMRegressor(n_estimators=5, n_jobs=1, subsample=0.5, subsample_freq=1, verbose=-1)
    first = ResidualQuantiles(noisy, random_state=1).fit(ARRAY, Y).predict_quantiles(ARRAY)
    with joblib.parallel_config(backend="threading"):
        at_once = ResidualQuantiles(noisy, random_state=1, n_jobs=2).fit(ARRAY, Y)
    np.testing.assert_array_equal(at_once.predict_quantiles(ARRAY), first)
    assert not np.array_equal(ResidualQuantiles(noisy, random_state=2).fit(ARRAY, Y).predict_quantiles(ARRAY), first)
    methods = [CQR(ResidualQuantiles(noisy), random_state=0).fit(ARRAY, Y).predict_interval(ARRAY) for _ in range(2)]
    np.testing.assert_array_equal(*methods)


def test_it_is_cloned_and_has_nested_parameters() -> None:
    model = CQR(ResidualQuantiles(LIGHT), random_state=0)
    assert clone(model).set_params(estimator__estimator__n_estimators=3).estimator.estimator.n_estimators == 3
    assert model.estimator.estimator.n_estimators == 5
    inside = make_pipeline(StandardScaler(), ResidualQuantiles(HIST))
    assert CQR(inside, random_state=0).fit(ARRAY, Y).predict_interval(ARRAY).shape == (300, 2)


def test_the_target_is_transformed_around_it() -> None:
    around = TransformedTargetRegressor(ResidualQuantiles(HIST), func=np.log, inverse_func=np.exp)
    y = np.exp(Y)
    intervals = CQR(around, random_state=0).fit(ARRAY, y).predict_interval(ARRAY)
    assert 0.8 < coverage_score(y, intervals) < 1
    inside = ResidualQuantiles(TransformedTargetRegressor(HIST, func=np.log, inverse_func=np.exp))
    with pytest.raises(ValueError, match=r"put it around: TransformedTargetRegressor\(ResidualQuantiles"):
        CQR(inside, random_state=0).fit(ARRAY, y)


# -- What it takes and what it refuses -------------------------------------------------------------------------------


def test_weights_count_in_both_stages() -> None:
    # The second half of the rows has another mean and no spread; with weight 0 it plays no part.
    x = np.arange(400) / 400
    rng = np.random.default_rng(0)
    y = np.where(np.arange(400) % 2, rng.normal(size=400), 100.0)
    linear = QuantileRegressor(alpha=0)
    weighted = ResidualQuantiles(linear, random_state=0).fit(x[:, None], y, sample_weight=np.arange(400) % 2)
    assert np.abs(weighted.predict_quantiles(x[:, None])).max() < 5
    assert np.abs(ResidualQuantiles(linear, random_state=0).fit(x[:, None], y).predict_quantiles(x[:, None])).max() > 50
    CQR(ResidualQuantiles(LIGHT), random_state=0).fit(FULL, Y, sample_weight=np.ones(300))
    with pytest.raises(TypeError, match="unexpected keyword argument 'eval_set'"):
        CQR(ResidualQuantiles(LIGHT), random_state=0).fit(FULL, Y, eval_set=[(FULL, Y)])


def test_rows_without_weight_have_no_say_in_which_models_make_the_centre() -> None:
    # Rows with weight are on a line; the more numerous others lie where a constant is best, and far out to one side.
    rng = np.random.default_rng(0)
    x, weights = rng.uniform(size=600), np.repeat([1.0, 0.0], [200, 400])
    y = np.where(weights > 0, 3 * x + 0.1 * rng.normal(size=600), 1.5)
    models = [LinearRegression(), DummyRegressor()]
    unweighted, weighted = (
        ResidualQuantiles(LIGHT, centre=models, random_state=0).fit(x[:, None], y, params).centre_
        for params in (None, weights)
    )
    shares = {
        type(member.fitted_).__name__: share for member, share in zip(weighted.members_, weighted.weights_, strict=True)
    }
    assert shares["LinearRegression"] > 0.95
    alone = ResidualQuantiles(LIGHT, centre=models, random_state=0).fit(x[:, None], y, np.ones(600)).centre_
    np.testing.assert_allclose(alone.weights_, unweighted.weights_)

    y = np.where(weights > 0, y, 50 * rng.exponential(size=600))
    median = "LGBMRegressor median"
    assert median in kinds(ResidualQuantiles(LIGHT, random_state=0).fit(x[:, None], y))
    assert median not in kinds(ResidualQuantiles(LIGHT, random_state=0).fit(x[:, None], y, weights))


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "linear"])
def test_the_unit_of_the_weights_does_not_matter(name: str) -> None:
    base, X = BASES[name]
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(X))
    one, other = (
        ResidualQuantiles(base, random_state=0).fit(X, Y, unit * weights).predict_quantiles(X)
        for unit in (1.0, 2.0**-20)
    )
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_weights_must_not_all_lie_in_one_fold() -> None:
    for n_with_weight in (0, 1):
        weights = np.repeat([1.0, 0.0], [n_with_weight, 300 - n_with_weight])
        with pytest.raises(ValueError, match=f"sample_weight .* of 300 rows to train on {n_with_weight} have such a"):
            ResidualQuantiles(LIGHT, random_state=0).fit(FULL, Y, weights)
        with pytest.raises(ValueError, match=f"on {n_with_weight} have such a weight, all in one of 10 folds"):
            CQR(LIGHT, calibration="cross", random_state=0).fit(FULL, Y, sample_weight=weights)


def test_auto_icqr_refuses_what_its_several_models_can_not_share() -> None:
    for unknown in ({"foo": 3}, {"eval_set": [(FULL, Y)], "sample_weight": np.ones(300)}):
        with pytest.raises(TypeError, match=f"share one fit parameter only: sample_weight, got {next(iter(unknown))}"):
            AutoICQR(LIGHT, random_state=0).fit(FULL, Y, **unknown)
    for inner in (ResidualQuantiles(LIGHT), make_pipeline(StandardScaler(), ResidualQuantiles(LIGHT))):
        with pytest.raises(ValueError, match=r"write AutoICQR\(LGBMRegressor\(\)\) instead of AutoICQR\(Resid"):
            AutoICQR(inner, random_state=0).fit(FULL, Y)


def test_models_that_are_fitted_already_are_refused() -> None:
    fitted = FrozenEstimator(LinearRegression().fit(ARRAY, Y))
    with pytest.raises(ValueError, match="ResidualQuantiles fits its estimator on folds, and can't with one that is"):
        ResidualQuantiles(fitted, random_state=0).fit(ARRAY, Y)


def test_a_model_of_the_mean_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="LinearRegression can't predict quantiles"):
        CQR(ResidualQuantiles(LinearRegression()), random_state=0).fit(ARRAY, Y)


def test_few_rows_are_cut_into_fewer_folds_and_one_is_refused() -> None:
    base = HistGradientBoostingRegressor(min_samples_leaf=1, random_state=0)
    for n in (2, 3, 4):
        model = ResidualQuantiles(base, random_state=0).fit(ARRAY[:n], Y[:n])
        assert np.isfinite(model.predict_quantiles(ARRAY)).all()
    with pytest.raises(ValueError, match="at least 2 to be cut into folds, got n_samples=1"):
        ResidualQuantiles(base, random_state=0).fit(ARRAY[:1], Y[:1])


@pytest.mark.parametrize("base", [HIST, LIGHT, QuantileRegressor(alpha=0)], ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("value", [0.0, 7.3])
def test_a_constant_target_is_predicted(base: Any, value: float) -> None:
    model = CQR(ResidualQuantiles(base), random_state=0).fit(ARRAY, np.full(300, value))
    np.testing.assert_allclose(model.predict_interval(ARRAY), value, atol=1e-6)


def test_residuals_of_any_size_reach_the_library_in_its_range() -> None:
    # On a line, residuals are rounding; QuantileRegressor works with numbers from 1e-6 on.
    y = 3 * ARRAY.ravel() + 1
    model = CQR(ResidualQuantiles(QuantileRegressor(alpha=0)), random_state=0).fit(ARRAY, y)
    np.testing.assert_allclose(model.predict_interval(ARRAY), np.column_stack([y, y]), atol=1e-6)


def test_a_column_of_the_same_name_does_no_harm() -> None:
    X = FULL.rename(columns={"a": "predicted_centre"})
    one, other = (CQR(ResidualQuantiles(LIGHT), random_state=0).fit(Z, Y) for Z in (X, FULL))
    np.testing.assert_array_equal(one.predict_interval(X), other.predict_interval(FULL))


def test_columns_of_several_levels_do_no_harm() -> None:
    X = pd.DataFrame(ARRAY.repeat(2, axis=1), columns=pd.MultiIndex.from_product([["a"], ["b", "c"]]))
    plain = CQR(ResidualQuantiles(HIST), random_state=0).fit(X.to_numpy(), Y).predict_interval(X.to_numpy())
    np.testing.assert_array_equal(CQR(ResidualQuantiles(HIST), random_state=0).fit(X, Y).predict_interval(X), plain)


@pytest.mark.parametrize("effort", ["quick", "thorough"])
@pytest.mark.parametrize("unit", [2.0**-996, 2.0**996])  # exact, so that nothing is rounded otherwise
def test_y_may_be_of_any_size(unit: float, effort: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60)
    one, other = (ResidualQuantiles(HIST, effort=effort, random_state=0).fit(X, size * y) for size in (1.0, unit))
    np.testing.assert_allclose(other.predict_quantiles(X) / unit, one.predict_quantiles(X), rtol=1e-6, atol=1e-9)


def test_a_new_row_may_lie_anywhere() -> None:
    model = ResidualQuantiles(LIGHT, random_state=0).fit(ARRAY, Y)
    assert np.isfinite(model.predict_quantiles(np.array([[1e200], [-1e300]]))).all()


def test_columns_are_checked_when_predicting() -> None:
    model = ResidualQuantiles(HIST, random_state=0).fit(FULL, Y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FULL.rename(columns={"a": "z"}))


SLOW_TO_KEEP = ("hist", "xgboost", "linear", "network", "numbered columns")


# How each library's models are stored is tested in test_persistence.py; here, how the two stages are.
@pytest.mark.parametrize(
    "name",
    [
        "lightgbm",
        "pipeline",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_TO_KEEP),
    ],
)
def test_a_file_keeps_it(name: str, tmp_path: Any) -> None:
    base, X = BASES[name]
    model = ICQR(ResidualQuantiles(base), partition=WholePartition(), random_state=0).fit(X, Y)
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(again.predict_interval(X, [0.6, 0.9]), model.predict_interval(X, [0.6, 0.9]))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(clone(again).fit(X, Y).predict_interval(X), model.predict_interval(X))


def test_the_default_is_the_model_that_it_names() -> None:
    """`icqr fit` passes the default model by name: it must get the same seeds, also for folds of many categories."""
    rng = np.random.default_rng(0)
    shop = rng.integers(300, size=2000)
    X = pd.DataFrame({"shop": shop.astype(str), "x": rng.uniform(size=2000)})
    y = rng.normal(size=300)[shop] + X["x"] * rng.normal(size=2000)
    named = AutoICQR(HistGradientBoostingRegressor(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(AutoICQR(random_state=0).fit(X, y).predict_interval(X), named.predict_interval(X))
