"""Scores that equal the offset: closed intervals cover all of them, `ties="random"` as many as the promise needs."""

import copy
import itertools
import os
import pickle
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator

from icqr import CQR, ICQR, QR, AutoICQR, GroupPartition, Naive, streaming
from icqr.calibration import Calibration, SelectedCalibration, closed_share, just_below
from icqr.conformity import Conformity
from icqr.datasets import load_dataset, make_heteroscedastic


class Constant(BaseEstimator):
    """The same lower bound, median and upper bound for every row."""

    def __init__(self, lower: float, median: float, upper: float) -> None:
        self.lower, self.median, self.upper = lower, median, upper

    def fit(self, X: Any, y: Any) -> Self:
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> np.ndarray:
        places = np.sign(np.asarray(levels) - 0.5).astype(int) + 1
        return np.tile(np.array([self.lower, self.median, self.upper])[places], (len(X), 1))


def fitted(y: Any, bounds: Any = (0.0, 1.0, 2.0), **settings: Any) -> CQR:
    """Calibrate CQR, with constant bounds, on these y."""
    settings = {"coverage": 0.8, "ties": "random", "random_state": 0, **settings}
    return CQR(Constant(*bounds), **settings).fit(np.zeros((2, 1)), [0, 1], np.zeros((len(y), 1)), np.asarray(y, float))


def inside(intervals: np.ndarray, y: Any) -> np.ndarray:
    return (intervals[:, 0] <= y) & (y <= intervals[:, 1])


# -- The share ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_below", "n_tied", "rank", "share"), [(5, 4, 7, 2 / 5), (5, 4, 6, 1 / 5), (5, 4, 9, 4 / 5), (8, 1, 9, 1 / 2)]
)
def test_the_share_by_hand(n_below: int, n_tied: int, rank: int, share: float) -> None:
    assert closed_share(n_below, n_tied, rank) == share


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("coverage", [0.3, 0.5, 0.6])
def test_coverage_is_exactly_the_promise_over_all_draws_of_few_whole_numbers(n: int, coverage: float) -> None:
    # Every possible set of n scores of 0, 1 and 2, and every new score, weighted by its probability.
    law, total = {0.0: 0.5, 1.0: 0.2, 2.0: 0.3}, 0.0
    conformity, labels = Conformity(), np.zeros(n, dtype=int)
    for scores in itertools.product(law, repeat=n):
        calibration = Calibration.from_scores(conformity, np.array(scores)[:, None], labels, 1)
        offset = calibration.offsets(coverage, np.array([0]))[0, 0]
        share = calibration.closed_shares(coverage)[0, 0]
        held = sum(law[new] * (1.0 if new < offset else share * (new == offset)) for new in law)
        total += held * np.prod([law[score] for score in scores])
    assert total == pytest.approx(calibration.ranks(coverage)[0] / (n + 1), abs=1e-12)


def test_each_group_and_each_side_has_its_own_share() -> None:
    # Rank 9 of 10 on each side. Group 0: below all ten tie; above nine values, the last two tie. Group 1: no ties.
    below, above = np.zeros(10), np.array([*range(8), 8, 8])
    scores = np.vstack([np.column_stack([below, above]), np.column_stack([np.arange(10)] * 2)])
    calibration = Calibration.from_scores(Conformity(symmetric=False), scores, np.repeat([0, 1], 10), 2, "infinite")
    assert calibration.ranks(0.6).tolist()[:2] == [9, 9]
    expected = [[9 / 11, 1 / 3], [1 / 2, 1 / 2], [1, 1]]  # the last is for rows of no known group
    np.testing.assert_allclose(calibration.closed_shares(0.6), expected)


def test_just_below_is_the_next_number() -> None:
    offsets = np.array([[0.0, 1.0], [np.inf, -np.finfo(float).max]])
    found = just_below(offsets, np.array([[True], [True]]))
    assert found.tolist() == [[-5e-324, np.nextafter(1.0, 0.0)], [np.finfo(float).max, -np.inf]]
    assert just_below(offsets, np.array([[False], [False]])).tolist() == offsets.tolist()


# -- Intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(0.0, 1.0, 2.0), (0.3, 1.0, 1.7), (-99.7, 0.1, 99.9)])
@pytest.mark.parametrize("conformity", ["cqr", "cqr-r", "cqr-m"])
@pytest.mark.parametrize("scale", [1.0, 0.1, 1000.0])
def test_open_ends_leave_out_a_tied_y_wherever_it_lies(
    bounds: tuple[float, ...], conformity: str, scale: float
) -> None:
    # 30 of 100 y lie at 100, on whose score the offset falls. Just below the score is not just below 100: the distance
    # from one double to the next differs.
    y = scale * np.r_[np.full(70, 1.0), np.full(30, 100.0)]
    bounds = tuple(scale * bound for bound in bounds)
    model = fitted(y, bounds, conformity=conformity, side="upper", coverage=0.8)
    X = np.zeros((20_000, 1))
    share = (81 - 70) / 31  # rank 81, 70 scores below, 30 tied
    held = inside(model.predict_interval(X), scale * 100.0)
    assert abs(held.mean() - share) < 4 * np.sqrt(share * (1 - share) / len(X))
    assert inside(model.predict_interval(X), scale * 1.0).all()


def test_zeros_under_constant_bounds_of_zero_are_left_out() -> None:
    y = np.r_[np.zeros(60), np.arange(1.0, 40.0)]
    model = fitted(y, (0.0, 3.0, 50.0), side="lower", coverage=0.9)
    held = inside(model.predict_interval(np.zeros((20_000, 1))), 0.0)
    share = (90 - 39) / 61
    assert abs(held.mean() - share) < 4 * np.sqrt(share * (1 - share) / 20_000)


def test_an_interval_still_contains_its_centre_and_is_never_empty() -> None:
    model = fitted(np.zeros(99), (0.0, 0.0, 0.0))
    assert (model.predict_interval(np.zeros((50, 1))) == 0).all()
    # The lower end would leave out 0, but 0 is the median too.
    model = fitted(np.r_[np.zeros(60), np.arange(1.0, 40.0)], (0.0, 0.0, 5.0), symmetric=False)
    assert inside(model.predict_interval(np.zeros((50, 1))), 0.0).all()


def test_known_limits_of_y_still_clip() -> None:
    model = fitted(np.zeros(99), (0.0, 0.0, 0.0), side="upper", y_min=0.0)
    intervals = model.predict_interval(np.zeros((50, 1)))
    assert (intervals == 0).all()


def test_groups_that_are_too_small_keep_their_answers() -> None:
    X, y = np.repeat([0.0, 1.0], [30, 3])[:, None], np.r_[np.ones(30), np.full(3, 5.0)]
    intervals = {}
    for small_groups in ("pooled", "infinite"):
        for ties in ("covered", "random"):
            model = ICQR(
                Constant(0.0, 0.0, 0.0), 0.9, ties=ties, partition=GroupPartition(0), small_groups=small_groups,
                random_state=0,
            )  # fmt: skip
            with pytest.warns(UserWarning, match="group 1 has 3") if small_groups == "pooled" else nullcontext():
                intervals[small_groups, ties] = model.fit(X[[0, -1]], [0, 1], X, y).predict_interval(np.ones((40, 1)))
    np.testing.assert_array_equal(intervals["pooled", "random"], np.tile([-5.0, 5.0], (40, 1)))
    assert np.isinf(intervals["infinite", "random"]).all()
    for small_groups in ("pooled", "infinite"):
        np.testing.assert_array_equal(intervals[small_groups, "random"], intervals[small_groups, "covered"])


def test_intervals_nest_as_coverage_grows() -> None:
    rng = np.random.default_rng(0)
    coverages = np.linspace(0.05, 0.95, 37)
    for settings in ({}, {"symmetric": False}, {"conformity": "cqr-m"}, {"side": "upper"}):
        model = fitted(rng.poisson(1.0, size=60), (0.0, 1.0, 2.0), **settings)
        lower, upper = np.moveaxis(model.predict_interval(np.zeros((300, 1)), coverage=coverages), 1, 0)
        assert (lower[:, 1:] <= lower[:, :-1]).all()
        assert (upper[:, 1:] >= upper[:, :-1]).all()
        assert (lower <= upper).all()
        for place, coverage in enumerate(coverages):
            alone = model.predict_interval(np.zeros((300, 1)), coverage=coverage)
            np.testing.assert_array_equal(alone, np.column_stack([lower[:, place], upper[:, place]]))


def test_without_ties_bounds_move_by_rounding_alone() -> None:
    y = np.random.default_rng(0).normal(size=99)
    X = np.zeros((200, 1))
    covered, random = fitted(y, ties="covered").predict_interval(X), fitted(y).predict_interval(X)
    np.testing.assert_allclose(random, covered, rtol=0, atol=1e-15)
    assert (random[:, 0] >= covered[:, 0]).all()
    assert (random[:, 1] <= covered[:, 1]).all()


# -- The draws ---------------------------------------------------------------------------------------------------------

COUNTS = np.r_[np.zeros(60), np.arange(1.0, 40.0)]
ROWS = np.zeros((100, 1))


def test_the_same_table_gets_the_same_intervals_and_predicting_changes_nothing() -> None:
    model = fitted(COUNTS, (0.0, 1.0, 50.0), side="lower")
    before = pickle.dumps({name: value for name, value in vars(model).items() if name not in ("estimator", "model_")})
    first = model.predict_interval(ROWS)
    assert len(np.unique(first[:, 0])) == 2, "rows alike get different intervals"
    np.testing.assert_array_equal(model.predict_interval(ROWS), first)
    np.testing.assert_array_equal(model.predict_interval(ROWS[:30]), first[:30])
    after = pickle.dumps({name: value for name, value in vars(model).items() if name not in ("estimator", "model_")})
    assert before == after


def test_the_draws_follow_from_random_state() -> None:
    def lower(seed: Any) -> Any:
        return fitted(COUNTS, (0.0, 1.0, 50.0), side="lower", random_state=seed).predict_interval(ROWS)[:, 0]

    np.testing.assert_array_equal(lower(1), lower(1))
    assert (lower(1) != lower(2)).any()
    np.testing.assert_array_equal(lower(np.random.RandomState(1)), lower(1))


def test_without_a_random_state_one_fitted_model_repeats_its_draws() -> None:
    # As with random_state=None, which would draw from numpy's global generator, nothing but the model knows the seed.
    model = fitted(COUNTS, (0.0, 1.0, 50.0), side="lower", random_state=np.random.RandomState(3))
    seed = model.ties_seed_
    model.random_state = None
    again = copy.deepcopy(model)
    np.testing.assert_array_equal(again.predict_interval(ROWS), model.predict_interval(ROWS))
    assert again.calibrate(np.zeros((99, 1)), COUNTS).ties_seed_ == seed


def test_a_model_that_draws_nothing_keeps_no_seed() -> None:
    assert not hasattr(fitted(COUNTS, ties="covered"), "ties_seed_")
    refitted = fitted(COUNTS).set_params(ties="covered").fit(np.zeros((2, 1)), [0, 1], np.zeros((99, 1)), COUNTS)
    assert not hasattr(refitted, "ties_seed_")


def test_ties_does_not_change_what_else_is_drawn() -> None:
    X, y = make_heteroscedastic(300, n_features=2, random_state=0, return_X_y=True)
    models = [ICQR(LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1), ties=ties, random_state=0).fit(X, y)
              for ties in ("covered", "random")]  # fmt: skip
    for one, other in zip(*(model.calibration_.scores for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("settings", [{}, {"symmetric": False}, {"side": "lower"}, {"side": "upper"}], ids=str)
def test_explain_shows_the_offset_and_the_interval_that_each_row_got(settings: dict[str, Any]) -> None:
    model = fitted(COUNTS, (0.0, 5.0, 11.0), **settings)
    table, intervals = model.explain(ROWS), model.predict_interval(ROWS)
    np.testing.assert_array_equal(table[["lower", "upper"]], intervals)
    certificate = model.certificate().groups.iloc[0]
    assert certificate["promised"] == (0.8 if model.symmetric else pytest.approx(2 * 90 / 100 - 1))
    for name in ("offset_lower", "offset_upper"):
        closed = certificate[name]
        if np.isnan(closed):
            assert table[name].isna().all()
        else:
            assert set(table[name]) <= {closed, np.nextafter(closed, -np.inf)}
            assert len(set(table[name])) == 2


# -- Methods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Naive, CQR, ICQR, AutoICQR])
def test_every_calibrated_method_takes_it(method: Any) -> None:
    X, y = make_heteroscedastic(600, n_features=2, random_state=0, return_X_y=True)
    model = method(LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1), ties="random", random_state=0)
    model.fit(X, np.maximum(np.round(y), 0))
    assert model.conformity_.ties == "random"
    np.testing.assert_array_equal(model.explain(X)[["lower", "upper"]], model.predict_interval(X))


def test_quantile_regression_has_no_offset_to_tie_with() -> None:
    with pytest.raises(TypeError, match="ties"):
        QR(ties="random")  # type: ignore[call-arg]


def test_a_calibration_that_keeps_only_some_scores_is_refused() -> None:
    model = fitted(COUNTS)
    some = SelectedCalibration(
        model.conformity_, (np.array([[7.0], [9.0]]), np.empty((0, 1))),
        kept=(np.array([80, 99]), np.array([], int)), counts=np.array([99, 0]),
        pooled_scores=np.array([[7.0], [9.0]]), pooled_ranks=np.array([80, 99]), coverages=("0.8",),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"ties='random' needs all calibration scores.*fit with ties='covered'"):
        model.with_calibration(some).predict_interval(ROWS)


@pytest.mark.parametrize("name", ["calibrate", "predict_interval", "explain"])
def test_files_are_refused_before_they_are_read(name: str, tmp_path: Any) -> None:
    arguments = {"calibrate": ["no such file", "y"]}.get(name, ["no such file", tmp_path / "out.parquet"])
    with pytest.raises(ValueError, match="ties='random' is not possible with Dask collections and Parquet files"):
        getattr(streaming, name)(fitted(COUNTS), *arguments)


def test_dask_collections_are_refused_before_any_work() -> None:
    dd = pytest.importorskip("dask.dataframe", reason='needs pip install "icqr[dask]"')
    from icqr import dask as on_cluster

    table = pd.DataFrame({"x": np.zeros(99), "y": COUNTS})
    frame = dd.from_pandas(table, npartitions=2)
    message = "ties='random' is not possible with Dask collections and Parquet files"
    with pytest.raises(ValueError, match=message):
        on_cluster.CQR(ties="random").fit(frame[["x"]], frame["y"])
    local = CQR(Constant(0.0, 1.0, 2.0), ties="random", random_state=0).fit(
        table[["x"]][:2], [0, 1], table[["x"]], table["y"]
    )
    model = on_cluster.on_dask(local)
    np.testing.assert_array_equal(model.predict_interval(table[["x"]]), local.predict_interval(table[["x"]]))
    for call in (
        lambda: model.calibrate(frame[["x"]], frame["y"]),
        lambda: model.predict_interval(frame[["x"]]),
        lambda: model.explain(frame[["x"]]),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert model.predict(frame[["x"]]).compute(scheduler="synchronous").tolist() == [1.0] * 99


# -- Real data ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("ICQR_DATA_HOME"), reason="set ICQR_DATA_HOME to the folder with the data files")
def test_on_blog_feedback_random_ties_bring_coverage_to_the_promise() -> None:
    # 65 % of y are 0, and the lower bound of CQR is 0 for most rows.
    X, y = load_dataset("blog")
    y = np.asarray(y, dtype=float)
    order = np.random.default_rng(0).permutation(len(y))
    train, held_out = order[: len(y) // 2], order[len(y) // 2 :]
    model = CQR(LGBMRegressor(n_estimators=300, n_jobs=1, verbose=-1), coverage=0.9, ties="random", random_state=0)
    model.fit(X.iloc[train], y[train], X.iloc[held_out], y[held_out])
    bounds, (_, scores) = (
        model.predict_quantiles(X.iloc[held_out]),
        model.conformity_scores(X.iloc[held_out], y[held_out]),
    )

    # Halves of the held-out rows calibrate, the others are predicted, again and again: little noise is left.
    excess = {"covered": [], "random": []}
    rng, n = np.random.default_rng(1), len(held_out) // 2
    for _ in range(20):
        rows = rng.permutation(len(held_out))
        one_group = np.zeros(n, dtype=int)
        calibration = Calibration.from_scores(model.conformity_, scores[rows[:n]], one_group, 1)
        offset, share = calibration.offsets(0.9, one_group[:1]), calibration.closed_shares(0.9)[:1]
        promised = calibration.ranks(0.9)[0] / (n + 1)
        new = rows[n : 2 * n]
        for ties, leaves_out in (("covered", np.zeros((n, 1), bool)), ("random", rng.uniform(size=(n, 1)) >= share)):
            intervals = model.conformity_.intervals(bounds[new], just_below(np.repeat(offset, n, 0), leaves_out))
            excess[ties].append(inside(intervals, y[held_out][new]).mean() - promised)
    assert np.mean(excess["covered"]) > 0.03
    assert abs(np.mean(excess["random"])) < 0.003
