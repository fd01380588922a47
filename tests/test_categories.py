"""Many categories: none is dropped, rare ones stay known, a row's own target is not learned, and the user is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from quantile_forest import RandomForestQuantileRegressor
from scipy.stats import binom
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor

from icqr import CQR, AutoICQR, Naive, ResidualQuantiles, load, save
from icqr._category_means import learn_means
from icqr._libraries import Encoder
from icqr.centres import CrossFitted
from icqr.importance import column_replacer
from icqr.metrics import coverage_score, interval_score, pinball_loss
from icqr.persistence import ModelFileError
from icqr.quantiles import PointModel, QuantileModel

HIST = HistGradientBoostingRegressor(max_iter=30, random_state=0)
QUICK = HistGradientBoostingRegressor(max_iter=10, random_state=0)
UNSEEDED = HistGradientBoostingRegressor(max_iter=30)
LEVELS = (0.05, 0.5, 0.95)


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(limits=1):
        yield


def shops(n: int, n_shops: int, seed: int, spread: float = 0.0) -> tuple[pd.DataFrame, np.ndarray]:
    """Sales in shops, each with a level, and perhaps a spread, of its own; the same shops whatever the seed."""
    own, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    level, scale = own.normal(size=n_shops), np.exp(spread * own.normal(size=n_shops))
    shop = rng.integers(n_shops, size=n)
    X = pd.DataFrame({"a": rng.uniform(size=n), "shop": np.char.add("s", shop.astype(str)).astype(object)})
    return X, X["a"].to_numpy() + level[shop] + 0.3 * scale[shop] * rng.normal(size=n)


def cut_off(X: pd.DataFrame, most: int = 255) -> pd.DataFrame:
    """Keep the most frequent shops; the others are missing."""
    return X.assign(shop=X["shop"].where(X["shop"].isin(X["shop"].value_counts().index[:most]), None))


# -- What is learned of a category -----------------------------------------------------------------------------------


def test_means_are_those_of_scikit_learn_where_categories_are_alike():
    rng = np.random.default_rng(0)
    codes, y = np.repeat(np.arange(40), 25), rng.normal(size=1000) + np.repeat(rng.normal(size=40), 25)
    means, _ = learn_means(codes, 40, y)
    # With categories of one size, shrinking by one variance is shrinking by a number of rows.
    groups = pd.Series(y).groupby(codes)
    within, between = groups.var().mean(), groups.mean().var() - groups.var().mean() / 25
    encoder = TargetEncoder(smooth=within / between, target_type="continuous").fit(codes[:, None], y)
    np.testing.assert_allclose(means[:40, 0], encoder.encodings_[0])
    assert means[40, 0] == pytest.approx(encoder.target_mean_)


def test_a_row_learns_nothing_of_its_own_target():
    rng = np.random.default_rng(0)
    codes, y = rng.integers(100, size=300), rng.normal(size=300)
    before, changed = learn_means(codes, 100, y)[1], y.copy()
    changed[7] += 1000.0
    after = learn_means(codes, 100, changed)[1]
    np.testing.assert_array_equal(before[7], after[7])
    assert not np.array_equal(before, after)


def test_categories_that_differ_by_chance_alone_are_all_the_same():
    y = np.random.default_rng(0).normal(size=500)
    means, of_rows = learn_means(np.arange(500), 500, y)  # one row each
    np.testing.assert_array_equal(means[:, 0], means[0, 0])
    folds = np.unique(of_rows[:, 0])
    assert len(folds) <= 5


def test_weights_count_as_rows():
    rng = np.random.default_rng(0)
    codes, y, times = rng.integers(50, size=400), rng.normal(size=400), rng.integers(0, 3, size=400)
    y += codes / 25
    weighted, _ = learn_means(codes, 50, y, 7.0 * times)
    repeated, _ = learn_means(np.repeat(codes, times), 50, np.repeat(y, times))
    assert np.corrcoef(weighted[:50, 0], repeated[:50, 0])[0, 1] > 0.99
    # A row of weight 0 is as if it were not there.
    wild = np.where(times == 0, 1e9, y)
    np.testing.assert_array_equal(learn_means(codes, 50, wild, times)[0], learn_means(codes, 50, y, times)[0])


def test_missing_values_are_a_category_and_unknown_ones_are_missing():
    X = pd.DataFrame({"id": [f"i{i % 501}" for i in range(3000)]})
    y = np.random.default_rng(0).normal(size=3000)
    X.loc[::5, "id"] = None
    y[::5] += 10.0
    encoder = Encoder(HIST, X)
    encoder.encode_training(X, y)
    new = encoder.encode(pd.DataFrame({"id": ["i1", None, "nowhere"]}))
    assert new["id"][1] - new["id"][0] > 1
    assert new["id"][1] == new["id"][2]


@pytest.mark.parametrize("exponent", [-990, 30, 900])
def test_the_unit_of_y_changes_nothing(exponent):
    X, y = shops(600, 300, seed=0)
    expected = QuantileModel(HIST).fit(X, y, LEVELS).predict(X)
    np.testing.assert_array_equal(
        QuantileModel(HIST).fit(X, y * 2.0**exponent, LEVELS).predict(X), expected * 2.0**exponent
    )


# -- None is dropped -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "most"), [(CQR, 0.75), (AutoICQR, 0.75)])
def test_a_thousand_categories_are_better_than_the_255_most_frequent(method, most):
    X, y = shops(6000, 1000, seed=0)
    new, y_new = shops(3000, 1000, seed=1)
    known = cut_off(X)["shop"].dropna().unique()
    lost = new.assign(shop=new["shop"].where(new["shop"].isin(known), None))
    scores = [
        interval_score(y_new, method(HIST, random_state=0).fit(rows, y).predict_interval(asked), coverage=0.9)
        for rows, asked in ((X, new), (cut_off(X), lost))
    ]
    assert scores[0] < most * scores[1]


def test_how_far_the_target_spreads_in_a_category_is_learned_too():
    X, y = shops(6000, 400, seed=0, spread=1.0)
    new, y_new = shops(3000, 400, seed=1, spread=1.0)
    scale = np.exp(np.random.default_rng(0).normal(size=(2, 400))[1])[new["shop"].str[1:].astype(int)]
    for model in (CQR(HIST, random_state=0), AutoICQR(HIST, random_state=0)):
        widths = np.diff(model.fit(X, y).predict_interval(new))[:, 0]
        assert np.mean(widths[scale > 2]) > 2 * np.mean(widths[scale < 0.5])
        assert coverage_score(y_new, model.predict_interval(new)) > 0.87


@pytest.mark.parametrize(
    "model",
    [
        HIST,
        GradientBoostingRegressor(n_estimators=30),
        QuantileRegressor(alpha=0),
        RandomForestQuantileRegressor(n_estimators=10),
        LGBMRegressor(n_estimators=30, n_jobs=1),
        XGBRegressor(n_estimators=30, n_jobs=1),
        CatBoostRegressor(iterations=30, thread_count=1),
        TransformedTargetRegressor(HIST, func=np.arcsinh, inverse_func=np.sinh),
        ResidualQuantiles(HIST),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_library_takes_many_categories(model):
    X, y = shops(2000, 300, seed=0)
    X.loc[::50, "shop"] = None
    new = X[:4].assign(shop=["s1", "s299", "nowhere", None])
    fitted = CQR(model, random_state=0).fit(X, y, sample_weight=np.ones(2000))
    intervals = fitted.predict_interval(new)
    assert np.isfinite(intervals).all()
    np.testing.assert_array_equal(fitted.predict_interval(new[::-1])[::-1], intervals)
    a_unknown, a_missing = (fitted.predict_interval(new.assign(shop=[value] * 4)) for value in ("nowhere", None))
    if not isinstance(model, XGBRegressor):
        np.testing.assert_array_equal(a_unknown, a_missing)
    assert fitted.categories_["categories"].item() > 255


def test_a_rare_category_is_known():
    X, y = shops(4000, 300, seed=0)
    X.loc[:5, "shop"], X.loc[6:9, "shop"] = "rare and high", "rare and low"
    y[:6], y[6:10] = 30.0, -30.0
    model = QuantileModel(clone(HIST).set_params(min_samples_leaf=2)).fit(X, y, LEVELS)
    high, low, unknown = model.predict(X[:3].assign(shop=["rare and high", "rare and low", "nowhere"]))[:, 1]
    assert high > unknown + 1
    assert low < unknown - 1


# Numbers with a text among them look like numbers that were read badly, but here they are codes.
@pytest.mark.filterwarnings("ignore:Column 'id' holds text:UserWarning")
@pytest.mark.parametrize("kind", ["numbers", "text", "mixed", "booleans"])
def test_categories_of_any_type(kind):
    rng = np.random.default_rng(0)
    codes = rng.integers(300, size=3000)
    values: Any = {
        "numbers": pd.Categorical(codes),
        "text": codes.astype(str).astype(object),
        "mixed": np.where(codes < 3, "none", codes.astype(object)),
        "booleans": pd.Categorical(np.where(codes < 2, codes == 1, codes.astype(object)).astype(object)),
    }[kind]
    X, y = pd.DataFrame({"id": values, "flag": codes % 2 == 0}), codes / 300 + 0.01 * rng.normal(size=3000)
    model = CQR(HIST, random_state=0).fit(X, y)
    assert model.categories_["categories"].item() >= 297
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.95
    # Numbers and text that read the same are the same category.
    if kind in ("numbers", "text"):
        other = X.assign(id=codes.astype(str).astype(object) if kind == "numbers" else codes)
        np.testing.assert_array_equal(model.predict_interval(other), model.predict_interval(X))


def test_constraints_given_by_position_still_hold():
    X, y = shops(2000, 300, seed=0)
    model = clone(HIST).set_params(monotonic_cst=[-1, 0], categorical_features=["shop"])
    line = pd.DataFrame({"a": np.linspace(0, 1, 20), "shop": "s1"})
    assert np.all(np.diff(PointModel(model).fit(X, y).predict(line)) <= 0)
    assert model.monotonic_cst == [-1, 0]


@pytest.mark.parametrize("model", [HIST, GradientBoostingRegressor(n_estimators=5, random_state=0)])
def test_dates_and_many_categories_come_together(model):
    X, y = shops(800, 300, seed=0)
    X["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(800) * 9, unit="h")
    fitted = QuantileModel(clone(model)).fit(X, y, LEVELS)
    order = np.random.default_rng(0).permutation(800)
    for place, name in enumerate(X.columns):
        moved = column_replacer(fitted, X).replace(place, order[None])[0]
        expected = fitted.predict(X.assign(**{name: X[name].to_numpy()[order]}))
        np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-12)
    if model is HIST:
        limited = clone(HIST).set_params(monotonic_cst=[-1, 0, 0])
        line = X[:20].assign(a=np.linspace(0, 1, 20), shop="s1", day=X["day"][0])
        assert np.all(np.diff(PointModel(limited).fit(X, y).predict(line)) <= 0)


def test_evaluation_rows_get_the_means_of_training_rows():
    X, y = shops(1000, 300, seed=0)
    encoder = Encoder(HIST, X)
    encoder.encode_training(X, y)
    params = encoder.fit_params(HIST, {"X_val": X[:5], "y_val": y[:5]})
    pd.testing.assert_frame_equal(params["X_val"], encoder.encode(X[:5]))
    stopping = clone(HIST).set_params(early_stopping=True)
    fitted = QuantileModel(stopping).fit(X, y, LEVELS, X_val=X[:200], y_val=y[:200])
    assert np.isfinite(fitted.predict(X)).all()


@pytest.mark.parametrize(
    "model", [HIST, QuantileRegressor(alpha=0), GradientBoostingRegressor(n_estimators=10, random_state=0)]
)
def test_importance_moves_all_that_comes_from_a_column(model):
    X, y = shops(800, 300, seed=0)
    X["other"] = np.random.default_rng(0).choice(["u", "v"], 800)
    fitted = QuantileModel(clone(model)).fit(X, y, LEVELS)
    order = np.random.default_rng(0).permutation(800)
    for place, name in enumerate(X.columns):
        moved = column_replacer(fitted, X).replace(place, order[None])[0]
        expected = fitted.predict(X.assign(**{name: X[name].to_numpy()[order]}))
        np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-12)


def test_the_seed_is_the_methods():
    X, y = shops(1500, 300, seed=0)
    first, again, other = (
        CQR(UNSEEDED, random_state=seed).fit(X, y).model_.encoder_.means["shop"] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    rows = Encoder(clone(HIST).set_params(random_state=1), X), Encoder(clone(HIST).set_params(random_state=2), X)
    one, two = (encoder.encode_training(X, y)["shop"] for encoder in rows)
    assert not one.equals(two)


# -- No leak ---------------------------------------------------------------------------------------------------------


def ids(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Each number belongs to two rows, and says nothing."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"id": np.char.add("i", (np.arange(n) // 2).astype(str)).astype(object)}), rng.normal(size=n)


@pytest.mark.filterwarnings("ignore:Column 'id' holds text", "ignore:The quantile model predicts the same")
@pytest.mark.parametrize(("calibration", "draws"), [("split", 12), ("cross", 4)])
def test_coverage_holds_on_a_column_of_ids(calibration, draws):
    n_new, covered = 200, 0
    for seed in range(draws):
        X, y = ids(1000, seed)
        order = np.random.default_rng(seed).permutation(1000)
        train, new = order[:800], order[800:]
        model = CQR(QUICK, calibration=calibration, random_state=seed).fit(X.iloc[train], y[train])
        covered += round(coverage_score(y[new], model.predict_interval(X.iloc[new])) * n_new)
    # The draw of the calibration rows makes the coverage of one model vary as well: by as much as 800 / 3 rows do.
    spread = np.sqrt(0.9 * 0.1 * (1 / (draws * n_new) + 1 / (draws * 266)))
    assert covered / (draws * n_new) > 0.9 - 3 * spread
    assert binom.cdf(covered, draws * n_new, 0.9) > 1e-6


def test_a_model_does_not_learn_ids_by_heart():
    X, y = ids(2000, 0)
    model = QuantileModel(HIST).fit(X, y, LEVELS)
    constant = np.tile(np.quantile(y, LEVELS), (2000, 1))
    trained = pinball_loss(y, model.predict(X), LEVELS)
    assert trained > 0.9 * pinball_loss(y, constant, LEVELS)


@pytest.mark.parametrize("model", [PointModel(HIST), PointModel(Ridge()), QuantileModel(HIST)])
def test_folds_of_a_centre_learn_nothing_of_each_other(model):
    """Each fold's rows are encoded by what the other folds' rows say."""
    X, y = ids(3000, 0)
    out_of_fold = CrossFitted(model).fit(X, y, seed=0).out_of_fold_
    assert abs(np.corrcoef(np.argsort(np.argsort(out_of_fold)), y)[0, 1]) < 4 / np.sqrt(3000)


# -- What the user is told -------------------------------------------------------------------------------------------


def test_what_becomes_of_categories_can_be_looked_up():
    X, y = shops(6000, 300, seed=0)
    X["size"] = np.random.default_rng(0).choice(["small", "large"], 6000)
    X["none"] = np.random.default_rng(1).choice([f"n{i}" for i in range(31)], 6000)
    columns = ["column", "categories", "encoding", "reason"]
    told = CQR(QUICK, random_state=0).fit(X, y).categories_  # and no warning
    assert told.columns.tolist() == columns
    means = "mean and spread of the target"
    expected = [
        ["shop", 300, means, "more than the 255 that HistGradientBoostingRegressor takes"],
        ["size", 2, "categories", ""],
        ["none", 31, "categories", ""],
    ]
    assert told.to_numpy().tolist() == expected
    assert AutoICQR(QUICK, random_state=0).fit(X, y).categories_.equals(told)
    assert Naive(QUICK, random_state=0).fit(X, y).categories_.equals(told)
    assert CQR(QUICK, calibration="cross", random_state=0).fit(X, y).categories_.equals(told)
    assert set(CQR(LGBMRegressor(n_jobs=1), random_state=0).fit(X, y).categories_["encoding"]) == {"categories"}
    one_hot = CQR(GradientBoostingRegressor(n_estimators=2), random_state=0).fit(X, y).categories_
    assert one_hot["encoding"].tolist() == [means, "one-hot", means]
    too_many = "more than the 30 that become one-hot columns"
    assert one_hot["reason"].tolist() == [too_many, "", too_many]
    numbers = CQR(make_pipeline(HIST), random_state=0).fit(X[["a"]], y).categories_
    assert (len(numbers), numbers.columns.tolist()) == (0, columns)


# -- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [CQR(HIST), AutoICQR(QUICK), CQR(GradientBoostingRegressor(n_estimators=5)), Naive(Ridge())]
)
def test_a_file_keeps_the_means(model, tmp_path: Path):
    X, y = shops(2000, 300, seed=0)
    X.loc[::50, "shop"] = None
    new = pd.concat([X[:300], X[:2].assign(shop="nowhere")])
    fitted = clone(model).set_params(random_state=0).fit(X, y)
    save(fitted, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(new), fitted.predict_interval(new))
    assert again.categories_.equals(fitted.categories_)


@pytest.mark.parametrize(
    "change",
    [
        lambda encoder: encoder.means["shop"].fill(np.nan),
        lambda encoder: encoder.means.update(shop=np.zeros((3, 2))),
        lambda encoder: encoder.means.update(shop=encoder.means["shop"][:, :1]),
        lambda encoder: encoder.means.update(a=np.zeros((3, 2))),
        lambda encoder: encoder.means.update(shop=encoder.means["shop"].astype(np.float32)),
    ],
)
def test_a_file_of_unsound_means_is_refused(change, tmp_path: Path):
    X, y = shops(1000, 300, seed=0)
    fitted = CQR(QUICK, random_state=0).fit(X, y)
    change(fitted.model_.encoder_)
    with pytest.raises(ModelFileError, match=r"means of the categories of column '(shop|a)' must be \(\d+, 2\) finite"):
        save(fitted, tmp_path / "model.icqr")
