"""What went wrong for users of other libraries, each as a test of ours."""

import tracemalloc
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

from icqr import CQR, ICQR, QR, GroupPartition, Naive, prefit
from icqr.calibration import conformal_quantile, conformal_rank

METHODS = (Naive, QR, CQR, ICQR)
CALIBRATED = (Naive, CQR, ICQR)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


def quick() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5, random_state=0)


def draw(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=n)


X, Y = draw(200)


class Lines(BaseEstimator):
    """A quick quantile model: the level, moved by the first column; the second column is the bounds' width."""

    def fit(self, X: Any, y: Any) -> Self:
        self.fitted_ = True
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        X = np.asarray(X, dtype=float)
        return X[:, :1] + X[:, 1:2] * (np.asarray(levels) - 0.5)


# 1. A shrinking correction on a narrow row returned [4.9, -4.9] (MAPIE).
@pytest.mark.parametrize("parameters", [{}, {"symmetric": False}, {"conformity": "cqr-r"}, {"conformity": "cqr-m"}])
# All rows are the same, so their bounds are.
@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")
def test_1_a_shrinking_correction_never_inverts_a_narrow_interval(parameters: dict[str, Any]) -> None:
    wide = np.column_stack([np.zeros(100), np.full(100, 20.0)])  # raw bounds ±9, y within ±1
    model = CQR(Lines(), coverage=0.9, random_state=0, **parameters).fit(wide, np.linspace(-1, 1, 100))
    narrow = np.array([[0.0, 0.1], [0.0, 0.0], [5.0, 1.0]])
    explained = model.explain(narrow)
    assert (explained["offset_upper"] < 0).all()
    assert (explained["lower"] <= explained["upper"]).all()
    centre = np.array([0, 0, 5])  # up to rounding: the midpoint of the raw bounds
    assert (explained["lower"] <= centre + 1e-12).all()
    assert (explained["upper"] >= centre - 1e-12).all()
    if not parameters:
        assert explained["collapsed"].all()


# 2. n = 9 at 90 %: rank 9 of 9 is valid, yet an error (MAPIE) or ±inf from int((1 - 0.9) * 10) (crepes).
@pytest.mark.parametrize("method", CALIBRATED)
def test_2_nine_calibration_rows_give_a_finite_90_percent_interval(method: Any) -> None:
    estimator = quick() if method is Naive else Lines()
    parameters = {"partition": GroupPartition(lambda X: np.zeros(len(X)))} if method is ICQR else {}
    model = method(estimator, coverage=0.9, random_state=0, **parameters).fit(
        X, Y, X_calibration=X[:9], y_calibration=Y[:9]
    )
    explained = model.explain(X)
    assert explained[["n", "rank"]].eq(9).all(axis=None)
    assert np.isfinite(explained[["lower", "upper"]]).all(axis=None)
    bounds = model.predict_interval(X[:9])
    assert np.all((bounds[:, 0] <= Y[:9]) & (Y[:9] <= bounds[:, 1]))


# 3. n = 99 at 90 %: rank 91 instead of 90 (crepes). n = 10 at 95 %: a finite interval although none exists (MAPIE).
# 95 % of the rows are in one group, whose median is the same.
@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")
def test_3_the_rank_is_exact_and_no_interval_is_made_up() -> None:
    assert conformal_rank(99, 0.9) == 90
    assert CQR(Lines(), 0.9, random_state=0).fit(X, Y, X[:99], Y[:99]).explain(X)["rank"].unique().tolist() == [90]
    assert conformal_quantile(np.arange(10.0), 0.95) == np.inf
    with pytest.raises(ValueError, match=r"needs at least 19 calibration rows .* got n_samples=10"):
        CQR(Lines(), 0.95, random_state=0).fit(X, Y, X[:10], Y[:10])
    # The group alone is too small: infinite if asked for, never a made-up finite interval.
    small = np.where(np.arange(200) < 10, 0.0, 1.0)
    model = ICQR(Lines(), 0.95, partition=GroupPartition(0), small_groups="infinite", random_state=0)
    rows = np.column_stack([small, X[:, 1]])
    model.fit(rows, Y, rows[::-1], Y[::-1])
    assert np.isinf(model.predict_interval([[0.0, 0.5]])).all()
    assert np.isfinite(model.predict_interval([[1.0, 0.5]])).all()


# 4. A test row in a group unseen in calibration got [0, 0] with no warning (crepes).
def test_4_a_row_of_an_unseen_group_is_told() -> None:
    table = pd.DataFrame({"x": X[:, 0], "width": X[:, 1], "city": np.where(X[:, 1] < 0.5, "Bern", "Genf")})
    model = ICQR(quick(), 0.8, partition=GroupPartition("city"), random_state=0).fit(table, Y)
    with pytest.warns(UserWarning, match="a group unknown to the calibration has none.*promises nothing for them"):
        intervals = model.predict_interval(table[:2].assign(city="Rom"))
    assert np.all(np.diff(intervals) > 0)


# 5. NaN residual accepted silently (crepes). Negative scale raises deep inside (puncc).
@pytest.mark.parametrize("method", METHODS)
def test_5_a_prediction_that_is_nan_is_refused(method: Any) -> None:
    class Broken(Lines):
        def predict(self, X: Any) -> Any:
            return np.full(len(X), np.nan)

        predict_quantiles = lambda self, X, levels: np.full((len(X), len(levels)), np.nan)  # noqa: E731

    with pytest.raises(ValueError, match="finite"):
        method(Broken(), 0.8, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="scores must not be NaN; row 1 is"):
        conformal_quantile([0.0, np.nan], 0.5)


@pytest.mark.parametrize("conformity", ["cqr-r", "cqr-m"])
def test_5_a_width_of_zero_or_below_scales_nothing_by_less_than_the_floor(conformity: str) -> None:
    crossed = np.column_stack([X[:, 0], np.where(np.arange(200) % 2, 1.0, -1.0) * X[:, 1]])  # every other row crosses
    crossed[::5, 1] = 0.0
    model = CQR(Lines(), 0.8, conformity=conformity, random_state=0).fit(crossed, Y)
    assert model.n_crossed_["train"] > 0
    intervals = model.predict_interval(crossed)
    assert np.isfinite(intervals).all()
    assert np.all(intervals[:, 0] <= intervals[:, 1])


# 6. A list of levels crashes (MAPIE). A second `fit` raises; `clone` raises TypeError (MAPIE, crepes).
@pytest.mark.parametrize("method", CALIBRATED)
def test_6_a_list_of_levels_a_second_fit_and_a_clone_all_work(method: Any) -> None:
    model = method(quick(), 0.8, random_state=0).fit(X, Y)
    first = model.predict_interval(X, coverage=[0.7, 0.8])
    assert first.shape == (200, 2, 2)
    np.testing.assert_array_equal(clone(model).fit(*draw(90, seed=1)).fit(X, Y).predict_interval(X, [0.7, 0.8]), first)


# 7. A later call changes an earlier result, because a cache is edited in place (conformal-tights).
@pytest.mark.parametrize("method", CALIBRATED)
def test_7_results_depend_on_no_call_before_or_after(method: Any) -> None:
    model = method(quick(), 0.8, random_state=0).fit(X, Y)
    first = model.predict_interval(X)
    kept, groups, explained = first.copy(), model.groups_, model.explain(X)
    before = groups.copy()
    # Nor on what the user does with a result.
    first[:] = groups["n"] = explained["offset_lower"] = 0
    model.predict_interval(X[::-1], coverage=[0.5, 0.7])
    np.testing.assert_array_equal(model.predict_interval(X), kept)
    pd.testing.assert_frame_equal(model.groups_, before)


# 10. Memory: a check that builds an n × n array (MAPIE #410); 50 GB at 200,000 rows (#160).
@pytest.mark.parametrize("method", METHODS)
def test_10_memory_grows_with_the_rows_not_with_their_square(method: Any) -> None:
    X, y = draw(60_000)
    model = method(quick() if method is Naive else Lines(), 0.9, random_state=0)
    tracemalloc.start()
    try:
        model.fit(X, y).explain(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60_000 * 2_000  # 2 kB a row; a square of booleans would be 3.6 GB


# 11. Categorical columns, pipelines and DataFrames refused by input checks (MAPIE #128, #149, #406; crepes #43).
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("piped", [False, True])
def test_11_categories_pipelines_and_frames_are_taken(method: Any, piped: bool) -> None:
    city = np.where(X[:, 1] < 0.5, "Bern", "Genf")
    table = pd.DataFrame({"x": X[:, 0], "city": pd.Categorical(city), "text": city})
    encode = make_column_transformer((OneHotEncoder(), ["city", "text"]), remainder="passthrough")
    model = method(make_pipeline(encode, quick()) if piped else quick(), 0.8, random_state=0).fit(table, Y)
    assert model.predict_interval(table).shape == (200, 2)
    pd.testing.assert_index_equal(model.explain(table.set_axis(np.arange(200) * 2)).index, pd.Index(np.arange(200) * 2))


# 12. The level given at predict differs from the models' levels and nobody notices (puncc).
def test_12_a_level_that_the_models_were_not_made_for_is_noticed() -> None:
    lines = [lambda X, level=level: level + 0.1 * X[:, 0] for level in (0.05, 0.5, 0.95)]
    fitted = prefit(lower=lines[0], median=lines[1], upper=lines[2], levels=(0.05, 0.5, 0.95))
    for method in (QR, CQR, ICQR):
        with pytest.raises(ValueError, match=r"need a model of level 0\.1, but the fitted models have levels"):
            method(fitted, coverage=0.8, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"QR predicts the levels it was fitted for, coverage=0\.9; got coverage=0\.8"):
        QR(fitted, coverage=0.9, random_state=0).fit(X, Y).predict_interval(X, coverage=0.8)
    # Calibrated methods answer any level: the offset makes up for the bounds' own level.
    intervals = CQR(fitted, coverage=0.9, random_state=0).fit(X, Y).predict_interval(X, coverage=0.8)
    assert np.mean((intervals[:, 0] <= Y) & (intervals[:, 1] >= Y)) == pytest.approx(0.8, abs=0.01)
