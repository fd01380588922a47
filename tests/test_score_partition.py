"""Groups by predicted difficulty: what they are learned from, their sizes, what they say, and how they are kept."""

from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor

from hard_rows import LEVEL_WIDTHS, draw
from icqr import CQR, ICQR, ScorePartition, load, prefit, save
from icqr.group_sizes import too_small
from icqr.metrics import coverage_score
from icqr.partition import ScorePartition as FromPartition
from icqr.score_partition import cut

LIGHT = LGBMRegressor(n_estimators=10, n_jobs=1, verbose=-1)


X, Y = draw(900)


def test_it_is_at_home_with_the_other_partitions() -> None:
    assert ScorePartition is FromPartition


def test_hard_rows_and_easy_rows_are_parted() -> None:
    model = ICQR(LEVEL_WIDTHS, partition=ScorePartition(3), random_state=0).fit(X, Y)
    hardest = model.explain(X)["group"] == 2
    assert hardest[X["city"] == "Rom"].mean() > 0.9
    assert hardest[X["city"] != "Rom"].mean() < 0.1
    rome = (X["city"] == "Rom").to_numpy()
    one_group = CQR(LEVEL_WIDTHS).fit(X, Y)
    held, before = (coverage_score(Y[rome], method.predict_interval(X[rome])) for method in (model, one_group))
    assert before < 0.75 < 0.8 < held


def test_rows_are_cut_at_quantiles_and_equal_difficulties_stay_together() -> None:
    np.testing.assert_array_equal(cut(np.arange(8.0), 4), [1, 3, 5])
    np.testing.assert_array_equal(cut(np.array([0.0, 0, 0, 0, 0, 5]), 3), [0])
    assert len(cut(np.zeros(9), 4)) == 0
    assert len(cut(np.arange(8.0), 1)) == 0


class Column(BaseEstimator):
    """Predicts its first column at every level: a difficulty that a test can set."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.repeat(X[:, :1], len(levels), axis=1)


def by_column(values: Any, n_groups: int) -> ScorePartition:
    rows = np.asarray(values, dtype=float)[:, None]
    return ScorePartition(n_groups, Column()).fit(rows, np.zeros(len(rows)), np.zeros((len(rows), 3)))


def test_small_groups_are_merged_with_their_smaller_neighbour() -> None:
    partition = by_column(np.repeat([0, 1, 2, 3, 4], [40, 5, 30, 20, 5]), 100)
    np.testing.assert_array_equal(partition.counts_, [40, 5, 30, 20, 5])
    partition.merge_small(n_calibration=100, needed=4)
    np.testing.assert_array_equal(partition.counts_, [40, 35, 25])
    np.testing.assert_array_equal(partition.edges_, [0, 2])
    np.testing.assert_array_equal(partition.assign(np.array([[-9.0], [0], [0.1], [2], [3], [99]])), [0, 0, 1, 1, 2, 2])
    assert not too_small(partition.counts_, 100, 4).any()
    partition.merge_small(n_calibration=5, needed=9)
    assert partition.n_groups_ == 1


def test_groups_are_large_enough_to_calibrate() -> None:
    model = ICQR(LIGHT, partition=ScorePartition(50), small_groups="error", random_state=0).fit(X, Y)
    assert 3 < model.n_groups_ < 50
    assert model.groups_["n"].min() >= 9


@pytest.mark.slow
def test_scores_are_those_that_are_calibrated_and_out_of_fold() -> None:
    class Recording(ScorePartition):
        def fit(self, *args: Any, **given: Any) -> Any:
            self.given_ = given
            return super().fit(*args, **given)

    by_heart = HistGradientBoostingRegressor(max_iter=50, min_samples_leaf=1, learning_rate=0.5)
    for settings in ({"side": "upper"}, {"conformity": "cqr-r"}, {"symmetric": False}, {"coverage": 0.8}):
        model = ICQR(by_heart, partition=Recording(2), random_state=0, **settings).fit(X, Y)
        given = model.partition_.given_
        assert given["coverage"] == model.coverage
        assert given["scores"].shape == (600, 1 if model.symmetric else 2)
        # Rows that the model knows lie outside as often as they should; rows it has not seen, far more often.
        known = model.conformity_.scores(model._bounds(X)[0], Y)
        assert np.mean(given["scores"].max(axis=1) > 0) > 1.5 * np.mean(known.max(axis=1) > 0)


def test_the_default_score_is_the_distance_out_of_the_bounds() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(500, 1))
    y = x[:, 0] * rng.normal(size=500)
    bounds = np.tile([-1.0, 0, 1], (500, 1))
    scores = np.maximum(bounds[:, 0] - y, y - bounds[:, 2])[:, None]
    one, other = (ScorePartition(3).fit(x, y, bounds, random_state=0, scores=given) for given in (None, scores))
    np.testing.assert_array_equal(one.edges_, other.edges_)


def test_a_model_that_is_fitted_already_is_not_fitted_again() -> None:
    class Once(GradientBoostingRegressor):
        fits = 0

        def fit(self, X: Any, y: Any, **params: Any) -> Any:
            Once.fits += 1
            return super().fit(X, y, **params)

    numbers = X[["a"]].to_numpy()
    models = [Once(loss="quantile", alpha=level, n_estimators=3).fit(numbers, Y) for level in (0.05, 0.5, 0.95)]
    bounds = prefit(lower=models[0], median=models[1], upper=models[2], levels=(0.05, 0.5, 0.95))
    assert ICQR(bounds, partition=ScorePartition(3), random_state=0).fit(numbers, Y).n_groups_ == 3
    assert Once.fits == 3


def test_weights_of_rows_reach_the_models_of_the_folds() -> None:
    weights = np.where(X["city"] == "Rom", 1e-9, 1.0)
    models = [
        ICQR(LIGHT, partition=ScorePartition(2), random_state=0).fit(X, Y, sample_weight=w) for w in (weights, None)
    ]
    assert not np.array_equal(models[0].partition_.edges_, models[1].partition_.edges_)


# -- Determinism and degenerate rows ---------------------------------------------------------------------------------


def test_the_seed_decides_whatever_n_jobs() -> None:
    noisy = LGBMRegressor(n_estimators=5, n_jobs=1, subsample=0.5, subsample_freq=1, verbose=-1)
    first = ICQR(noisy, partition=ScorePartition(), random_state=1).fit(X, Y)
    with joblib.parallel_config(backend="threading"):
        at_once = ICQR(noisy, partition=ScorePartition(), random_state=1, n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(first.partition_.edges_, at_once.partition_.edges_)
    np.testing.assert_array_equal(first.predict_interval(X), at_once.predict_interval(X))
    assert not hasattr(first.partition, "edges_")
    assert clone(first).partition.get_params() == {"n_groups": 8, "estimator": None}


def test_a_row_has_its_group_whatever_rows_it_comes_with() -> None:
    partition = ICQR(LIGHT, partition=ScorePartition(), random_state=0).fit(X, Y).partition_
    together = partition.assign(X)
    np.testing.assert_array_equal(partition.assign(X.iloc[5:6]), together[5:6])
    np.testing.assert_array_equal(partition.assign(X.iloc[::-1]), together[::-1])


def test_a_constant_target_gives_one_group() -> None:
    model = ICQR(LIGHT, partition=ScorePartition(), random_state=0).fit(X, np.full(len(X), 3.0))
    assert model.n_groups_ == 1
    assert model.groups_["rule"].tolist() == ["all rows"]
    np.testing.assert_allclose(model.predict_interval(X), 3.0, atol=1e-6)


def test_few_rows_give_one_group() -> None:
    model = ICQR(HistGradientBoostingRegressor(max_iter=3), partition=ScorePartition(), random_state=0)
    assert model.fit(X[:40], Y[:40]).n_groups_ == 1


@pytest.mark.parametrize("n_groups", [0, 2.5, True, "many"])
def test_a_number_of_groups_that_is_none_is_refused_before_any_work(n_groups: Any) -> None:
    with pytest.raises(ValueError, match="n_groups must be a whole number, 1 or more, got"):
        ICQR(LIGHT, partition=ScorePartition(n_groups)).fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LinearRegression(), "LinearRegression can't predict quantiles"),
        (
            HistGradientBoostingRegressor,
            r"estimator must be a model, HistGradientBoostingRegressor\(…\), got the class",
        ),
    ],
)
def test_an_estimator_that_can_t_predict_quantiles_is_refused_before_any_work(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ICQR(Unfitted(), partition=ScorePartition(2, estimator)).fit(X, Y)


class Unfitted(HistGradientBoostingRegressor):
    """A model that must not be fitted."""

    def fit(self, X: Any, y: Any, **params: Any) -> Any:
        raise AssertionError("fitted before the parameters were checked")


# -- Words and files -------------------------------------------------------------------------------------------------


def test_groups_say_what_they_are() -> None:
    groups = ICQR(LEVEL_WIDTHS, partition=ScorePartition(3), random_state=0).fit(X, Y).groups_
    first, second, third = groups["rule"]
    assert first.startswith("difficulty 1 of 3: predicted score ≤ ")
    assert second.startswith("difficulty 2 of 3: ")
    assert " < predicted score ≤ " in second
    assert third.startswith("difficulty 3 of 3: predicted score > ")
    assert "city = Rom" in groups["features"][2]
    assert (groups["fidelity"] == 1).all()
    assert groups["offset_upper"].idxmax() == 2


@pytest.mark.parametrize(
    "partition",
    [
        ScorePartition(3),
        ScorePartition(2, QuantileRegressor(alpha=0)),
        pytest.param(ScorePartition(2, LIGHT), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_file_keeps_it(partition: ScorePartition, tmp_path: Any) -> None:
    rows = X[["a"]] if isinstance(partition.estimator, QuantileRegressor) else X
    model = ICQR(LIGHT, partition=partition, random_state=0).fit(rows, Y)
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(rows, [0.6, 0.9]), model.predict_interval(rows, [0.6, 0.9]))
    pd.testing.assert_frame_equal(again.explain(rows), model.explain(rows))
    pd.testing.assert_frame_equal(again.groups_, model.groups_)
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(clone(again).fit(rows, Y).predict_interval(rows), model.predict_interval(rows))
