"""Naive, QR, CQR and ICQR as estimators: what they give, what they keep, and how they work inside scikit-learn."""

import copy
import pickle
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import parallel_config
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from icqr import (
    CQR,
    ICQR,
    QR,
    AutoICQR,
    GroupPartition,
    KMeansPartition,
    Naive,
    PermutationImportance,
    QuantileModel,
    ScorePartition,
    WholePartition,
    _tables,
    prefit,
)
from icqr.calibration import Calibration
from icqr.metrics import coverage_score, interval_score, pinball_loss

METHODS = (Naive, QR, CQR, ICQR)
# QR and CQR do a part of what ICQR does.
MOST_WORK = (Naive, ICQR, *(pytest.param(method, marks=pytest.mark.slow) for method in (QR, CQR)))
CALIBRATED = (Naive, CQR, ICQR)
COLUMNS = [
    *("group", "n", "rank", "offset_lower", "offset_upper", "promised", "guarantee", "novelty"),
    *("lower", "median", "upper", "crossed", "collapsed", "band_lower", "band_upper"),
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


def quick(**parameters: Any) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5, **parameters)


def draw(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows whose noise grows with `size` and is larger in one of the two towns; y is never negative."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"size": rng.uniform(size=n), "age": rng.uniform(size=n), "town": rng.choice(["Bern", "Genf"], size=n)},
        index=[f"row {i}" for i in range(n)],
    )
    spread = (0.2 + X["size"]) * np.where(X["town"] == "Genf", 2, 1)
    return X, np.abs(3 * X["size"] + spread * rng.normal(size=n)).to_numpy()


X, Y = draw(360, seed=0)
X_NEW, Y_NEW = draw(600, seed=1)
NUMBERS, NUMBERS_NEW = X[["size", "age"]], X_NEW[["size", "age"]]


def fitted(method: Any, *args: Any, X: Any = X, y: Any = Y, **parameters: Any) -> Any:
    return method(*(args or (quick(),)), **{"coverage": 0.8, "random_state": 0, **parameters}).fit(X, y)


@cache
def plain(method: Any) -> Any:
    """Return the method fitted with no more than a seed; tests must not change it."""
    return fitted(method)


@pytest.fixture(scope="module", params=METHODS, ids=lambda method: method.__name__)
def model(request: pytest.FixtureRequest, one_thread: None) -> Any:
    return plain(request.param)


@pytest.fixture(scope="module", params=CALIBRATED, ids=lambda method: method.__name__)
def calibrated(request: pytest.FixtureRequest, one_thread: None) -> Any:
    return plain(request.param)


@pytest.fixture(scope="module")
def icqr(one_thread: None) -> ICQR:
    return plain(ICQR)


def bounds_model(half_width: float = 1.0) -> BaseEstimator:
    """Fitted bounds for coverage 0.8: three times the first column, give or take `half_width`."""
    centre = lambda X: 3 * np.asarray(X)[:, 0].astype(float)  # noqa: E731
    return prefit(
        lower=lambda X: centre(X) - half_width,
        median=centre,
        upper=lambda X: centre(X) + half_width,
        levels=(0.1, 0.5, 0.9),
    )


def assert_covers(intervals: np.ndarray) -> None:
    """Check coverage 0.8 up to 4 standard errors, of 600 new rows after 120 calibration rows."""
    assert abs(coverage_score(Y_NEW, intervals) - 0.8) < 4 * np.sqrt(0.16 / 600 + 0.16 / 120)


# -- Predictions -----------------------------------------------------------------------------------------------------


def test_intervals_have_a_row_each_and_lower_is_at_most_upper(model: Any) -> None:
    intervals = model.predict_interval(X_NEW)
    assert intervals.shape == (len(X_NEW), 2)
    assert np.all(intervals[:, 0] <= intervals[:, 1])


def test_intervals_of_calibrated_methods_cover(calibrated: Any) -> None:
    assert_covers(calibrated.predict_interval(X_NEW))


def test_a_list_of_coverages_adds_an_axis_and_a_number_does_not(calibrated: Any) -> None:
    both = calibrated.predict_interval(X_NEW, coverage=[0.5, 0.9])
    assert both.shape == (len(X_NEW), 2, 2)
    assert calibrated.predict_interval(X_NEW, coverage=[0.5]).shape == (len(X_NEW), 2, 1)
    for i, coverage in enumerate((0.5, 0.9)):
        np.testing.assert_array_equal(both[..., i], calibrated.predict_interval(X_NEW, coverage=coverage))
    assert np.all(both[:, 0, 0] >= both[:, 0, 1])
    assert np.all(both[:, 1, 0] <= both[:, 1, 1])


def test_predict_gives_the_median_or_the_regressors_own_prediction(model: Any) -> None:
    if isinstance(model, Naive):
        expected = model.model_.predict(X_NEW)
        np.testing.assert_allclose(model.predict_interval(X_NEW).mean(axis=1), expected)
    else:
        expected = model.predict_quantiles(X_NEW)[:, 1]
    np.testing.assert_array_equal(model.predict(X_NEW), expected)


@pytest.mark.parametrize("method", [QR, CQR, ICQR])
@pytest.mark.parametrize(("side", "levels"), [("both", (0.1, 0.5, 0.9)), ("lower", (0.2, 0.5)), ("upper", (0.5, 0.8))])
def test_quantiles_are_those_of_the_model_sorted(method: Any, side: str, levels: tuple[float, ...]) -> None:
    model = fitted(method, side=side)
    quantiles = model.predict_quantiles(X_NEW)
    assert model.model_.levels_ == levels
    assert quantiles.shape == (len(X_NEW), 3)
    assert np.all(quantiles[:, :-1] <= quantiles[:, 1:])
    assert np.isinf(quantiles).any(axis=0).tolist() == [side == "upper", False, side == "lower"]


def test_naive_has_its_prediction_as_all_raw_bounds() -> None:
    model = plain(Naive)
    np.testing.assert_array_equal(model.predict_quantiles(X_NEW), np.tile(model.predict(X_NEW)[:, None], 3))


@pytest.mark.parametrize("method", [Naive, CQR, ICQR])
def test_a_calibration_through_the_doors_is_that_of_calibrate(method: Any) -> None:
    model = plain(method)
    groups, scores = model.conformity_scores(X_NEW, Y_NEW)
    np.testing.assert_array_equal(groups, model.assign(X_NEW))
    calibration = Calibration.from_scores(model.conformity_, scores, groups, model.n_groups_)
    through_doors = copy.copy(model).with_calibration(calibration)
    calibrated = copy.copy(model).calibrate(X_NEW, Y_NEW)
    pd.testing.assert_frame_equal(through_doors.groups_, calibrated.groups_)
    np.testing.assert_array_equal(through_doors.predict_interval(X_NEW), calibrated.predict_interval(X_NEW))


def test_naive_intervals_all_have_one_width() -> None:
    widths = np.diff(plain(Naive).predict_interval(X_NEW), axis=1).ravel()
    np.testing.assert_allclose(widths, widths[0])


def test_qr_gives_the_models_own_outer_quantiles() -> None:
    model = fitted(QR)
    np.testing.assert_array_equal(model.predict_interval(X_NEW), model.predict_quantiles(X_NEW)[:, [0, 2]])
    assert model.explain(X_NEW)["guarantee"].unique().tolist() == ["none (not calibrated)"]


def test_icqr_with_one_group_is_cqr() -> None:
    one, two = fitted(ICQR, partition=WholePartition()), plain(CQR)
    np.testing.assert_array_equal(one.predict_interval(X_NEW), two.predict_interval(X_NEW))


def test_cqr_offset_is_the_score_of_the_exact_rank() -> None:
    model = fitted(CQR, bounds_model(), X=NUMBERS)  # fitted already: all 360 rows calibrate
    scores = np.sort(np.abs(Y - 3 * NUMBERS["size"].to_numpy()) - 1)
    explained = model.explain(NUMBERS_NEW)
    assert explained[["n", "rank"]].drop_duplicates().to_numpy().tolist() == [[360, 289]]
    np.testing.assert_allclose(explained["offset_upper"], scores[288])
    np.testing.assert_allclose(explained["upper"], 3 * NUMBERS_NEW["size"] + 1 + scores[288])


# -- One-sided, asymmetric, scaled, clipped --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("side", "column"), [("lower", 0), ("upper", 1)])
def test_a_side_bounds_y_on_that_side_alone(method: Any, side: str, column: int) -> None:
    model = fitted(method, side=side)
    intervals = model.predict_interval(X_NEW)
    assert np.isfinite(intervals[:, column]).all()
    assert np.isinf(intervals[:, 1 - column]).all()
    if method is not QR:
        assert_covers(intervals)
    assert model.explain(X_NEW)[f"offset_{'upper' if side == 'lower' else 'lower'}"].fillna(0).eq(0).all()


@pytest.mark.parametrize("method", [CQR, ICQR])
def test_one_offset_per_side_holds_both_tails(method: Any) -> None:
    model = fitted(method, symmetric=False)
    intervals = model.predict_interval(X_NEW)
    for missed in (intervals[:, 0] > Y_NEW, intervals[:, 1] < Y_NEW):
        assert missed.mean() < 0.1 + 4 * np.sqrt(0.09 / 600 + 0.09 / 120)
    explained = model.explain(X_NEW)
    assert (explained["offset_lower"] != explained["offset_upper"]).any()
    assert explained[["band_lower", "band_upper"]].isna().all(axis=None)
    np.testing.assert_allclose(explained["promised"], 2 * explained["rank"] / (explained["n"] + 1) - 1)


@pytest.mark.parametrize("method", [CQR, ICQR])
@pytest.mark.parametrize("conformity", ["cqr-r", "cqr-m"])
def test_scaled_scores_cover_too(method: Any, conformity: str) -> None:
    model = fitted(method, conformity=conformity)
    assert 0 < model.conformity_.floor < 0.1
    assert_covers(model.predict_interval(X_NEW))


@pytest.mark.parametrize("method", METHODS)
def test_known_limits_clip_and_keep_the_coverage(method: Any) -> None:
    estimator = Ridge() if method is Naive else bounds_model(2.0)
    free, clipped = (fitted(method, estimator, X=NUMBERS, **limits) for limits in ({}, {"y_min": 0, "y_max": 10}))
    wide, tight = (model.predict_interval(NUMBERS_NEW) for model in (free, clipped))
    assert (wide < 0).any()
    np.testing.assert_array_equal(tight, np.clip(wide, 0, 10))
    assert coverage_score(Y_NEW, tight) == coverage_score(Y_NEW, wide)
    assert clipped.predict(NUMBERS_NEW).min() >= 0


# -- Explanations ----------------------------------------------------------------------------------------------------


def test_explain_has_its_columns_and_the_index_of_the_rows(model: Any) -> None:
    explained = model.explain(X_NEW)
    assert list(explained.columns) == COLUMNS
    pd.testing.assert_index_equal(explained.index, X_NEW.index)


@pytest.mark.parametrize("coverage", [None, 0.6])
def test_explain_agrees_with_the_intervals_and_the_groups(calibrated: Any, coverage: float | None) -> None:
    explained = calibrated.explain(X_NEW, coverage=coverage)
    np.testing.assert_array_equal(explained[["lower", "upper"]], calibrated.predict_interval(X_NEW, coverage))
    np.testing.assert_array_equal(explained["median"], calibrated.predict(X_NEW))
    assert np.all(explained["rank"] == np.ceil((explained["n"] + 1) * (coverage or 0.8)))
    assert (explained["promised"] >= (coverage or 0.8)).all()
    assert (explained["band_lower"] < explained["promised"]).all()
    assert (explained["promised"] < explained["band_upper"]).all()
    per_group = explained.groupby("group")[["n", "offset_lower"]].first()
    groups = calibrated.groups_.set_index("group")
    pd.testing.assert_series_equal(per_group["n"], groups["n"].loc[per_group.index])
    if coverage is None:
        pd.testing.assert_series_equal(per_group["offset_lower"], groups["offset_lower"].loc[per_group.index])


def test_explain_marks_rows_unlike_their_group(icqr: ICQR) -> None:
    usual, far = icqr.explain(X_NEW), icqr.explain(X_NEW.assign(size=X_NEW["size"] + 100))
    assert usual["novelty"].between(0, 1).all()
    assert usual["novelty"].median() > 0.2
    np.testing.assert_allclose(far["novelty"], 1 / (far["n"] + 1))  # farther than all calibration rows


# The median is 0 for every row, so that bounds meet there.
@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")
def test_explain_marks_crossed_and_collapsed_rows() -> None:
    crossing = prefit(
        lower=lambda X: np.where(X["size"] < 0.5, 9.0, -9.0),
        median=lambda X: np.zeros(len(X)),
        upper=lambda X: np.where(X["size"] < 0.5, -9.0, 9.0),
        levels=(0.1, 0.5, 0.9),
    )
    model = fitted(CQR, crossing)
    explained = model.explain(X_NEW)
    np.testing.assert_array_equal(explained["crossed"], X_NEW["size"] < 0.5)
    assert model.n_crossed_ == {"train": (X["size"] < 0.5).sum(), "calibration": (X["size"] < 0.5).sum()}
    assert not explained["collapsed"].any()
    shrunk = CQR(bounds_model(50.0), coverage=0.8, random_state=0).fit(NUMBERS[:20], 3 * NUMBERS["size"][:20])
    assert shrunk.explain(NUMBERS_NEW)["collapsed"].sum() == 0  # shrinks to its centre, not past it
    np.testing.assert_allclose(shrunk.predict_interval(NUMBERS_NEW)[:, 0], 3 * NUMBERS_NEW["size"])


def test_groups_say_what_they_are(icqr: ICQR) -> None:
    groups = icqr.groups_
    assert list(groups.columns[:3]) == ["group", "n", "share"]
    assert {"offset_lower", "offset_upper", "promised", "guarantee", "rule", "fidelity", "features"} <= {*groups}
    assert len(groups) > 1
    assert groups["n"].sum() == 120
    assert groups["share"].sum() == pytest.approx(1)
    assert groups["rule"].is_unique
    assert groups["guarantee"].unique().tolist() == ["group-wise"]


def test_the_certificate_states_the_promise(calibrated: Any) -> None:
    certificate = calibrated.certificate(0.7)
    assert certificate.coverage == 0.7
    assert certificate.marginal == 0.7
    assert certificate.guarantee == ("group-wise" if isinstance(calibrated, ICQR) else "marginal")
    assert (certificate.groups["promised"][:-1] >= 0.7).all()


def test_a_shift_of_the_groups_is_seen(icqr: ICQR) -> None:
    assert icqr.group_shift(X_NEW).p_value > 0.001
    assert icqr.group_shift(X_NEW[icqr.explain(X_NEW)["group"] == 0]).p_value < 0.001


def test_importances_are_weights_of_the_columns(icqr: ICQR) -> None:
    assert icqr.importances_["feature"].tolist() == list(X.columns)
    assert icqr.importances_["share"].sum() == pytest.approx(1)
    assert icqr.importances_.set_index("feature")["share"].idxmax() == "size"


# -- Scores ----------------------------------------------------------------------------------------------------------


def test_score_is_the_negative_interval_score(model: Any) -> None:
    weights = np.linspace(1, 2, len(Y_NEW))
    expected = interval_score(Y_NEW, model.predict_interval(X_NEW), coverage=0.8, sample_weight=weights)
    assert model.score(X_NEW, Y_NEW, sample_weight=weights) == -expected


@pytest.mark.parametrize(("side", "column", "level"), [("lower", 0, 0.2), ("upper", 1, 0.8)])
def test_one_sided_score_is_the_negative_pinball_loss(side: str, column: int, level: float) -> None:
    model = fitted(CQR, side=side)
    expected = pinball_loss(Y_NEW, model.predict_interval(X_NEW)[:, [column]], [level])
    assert model.score(X_NEW, Y_NEW) == pytest.approx(-expected)


# -- Calibration rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CALIBRATED)
@pytest.mark.parametrize(("size", "n"), [(0.25, 90), (77, 77), (1 / 3, 120)])
def test_calibration_size_is_a_share_or_a_number(method: Any, size: Any, n: int) -> None:
    assert fitted(method, calibration_size=size).groups_["n"].sum() == n


@pytest.mark.parametrize("method", CALIBRATED)
def test_given_calibration_rows_are_used_and_all_others_train(method: Any) -> None:
    model = method(quick(), coverage=0.8, random_state=0).fit(X, Y, X_calibration=X_NEW, y_calibration=Y_NEW)
    assert model.groups_["n"].sum() == 600
    if method is not Naive:
        np.testing.assert_array_equal(model.predict(X), plain(QR).predict(X))  # QR trains on all rows
    before = model.predict_interval(X)
    np.testing.assert_array_equal(model.calibrate(X_NEW, Y_NEW).predict_interval(X), before)


@pytest.mark.parametrize("method", CALIBRATED)
def test_calibrate_replaces_the_calibration_and_nothing_else(method: Any) -> None:
    model = fitted(method)
    before = {name: pickle.dumps(getattr(model, name)) for name in ("model_", "partition_", "conformity_")}
    median, groups = model.predict(X), model.explain(X)["group"]
    assert model.calibrate(X_NEW[:300], Y_NEW[:300] + 5) is model
    assert {name: pickle.dumps(getattr(model, name)) for name in before} == before
    np.testing.assert_array_equal(model.predict(X), median)
    pd.testing.assert_series_equal(model.explain(X)["group"], groups)
    assert model.groups_["n"].sum() == 300
    assert model.groups_["offset_upper"].min() > 3


def test_a_failed_calibrate_leaves_the_old_calibration() -> None:
    model = fitted(ICQR, small_groups="error", partition=GroupPartition("town"))
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="needs 4 calibration rows in each group; group 1 has 0"):
        model.calibrate(X[X["town"] == "Bern"], Y[X["town"] == "Bern"])
    assert pickle.dumps(model) == before


def test_qr_refuses_calibration() -> None:
    for refused in (
        lambda: fitted(QR).calibrate(X, Y),
        lambda: fitted(QR).with_calibration(plain(CQR).calibration_),
        lambda: QR(quick(), random_state=0).fit(X, Y, X_calibration=X_NEW, y_calibration=Y_NEW),
    ):
        with pytest.raises(ValueError, match="QR has no calibration; use CQR or ICQR"):
            refused()
    QR(quick(), random_state=0).fit(X, Y, X_calibration=None, y_calibration=None)
    certificate = QR(quick(), Fraction(9, 10), random_state=0).fit(X, Y).certificate()
    assert str(certificate) == "Coverage 0.9, none (not calibrated)."


@pytest.mark.parametrize("ask", ["predict_interval", "explain", "certificate"])
def test_qr_refuses_levels_it_was_not_fitted_for(ask: str) -> None:
    model = fitted(QR)
    arguments = () if ask == "certificate" else (X,)
    with pytest.raises(ValueError, match=r"fitted for, coverage=0\.8; got coverage=0\.9"):
        getattr(model, ask)(*arguments, coverage=0.9)
    with pytest.raises(ValueError, match=r"fitted for, coverage=0\.8; got coverage=0\.9"):
        getattr(model.set_params(coverage=0.9), ask)(*arguments)


def test_weights_train_and_never_calibrate() -> None:
    weights = np.where(X["town"] == "Genf", 1.0, 0.0)
    model = CQR(quick(), coverage=0.8, random_state=0).fit(X, Y, sample_weight=pd.Series(weights))
    assert not np.array_equal(model.predict(X), plain(CQR).predict(X))
    assert model.calibration_.sizes.tolist() == [120, 0]


# -- Models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "regressor",
    [RandomForestRegressor(n_estimators=10), Ridge(), make_pipeline(StandardScaler(), LinearRegression()), None],
    ids=["forest", "ridge", "pipeline", "default"],
)
def test_naive_takes_any_regressor(regressor: Any) -> None:
    table, new = (X, X_NEW) if not isinstance(regressor, Pipeline) else (NUMBERS, NUMBERS_NEW)
    assert_covers(fitted(Naive, regressor, X=table).predict_interval(new))


def test_a_fitted_regressor_is_used_as_it_is_and_all_rows_calibrate() -> None:
    ridge = Ridge().fit(NUMBERS, Y)
    model = fitted(Naive, FrozenEstimator(ridge), X=NUMBERS_NEW, y=Y_NEW)
    np.testing.assert_array_equal(model.predict(NUMBERS), ridge.predict(NUMBERS))
    assert model.groups_["n"].tolist() == [600]


def test_fitted_bounds_leave_icqr_rows_for_its_groups() -> None:
    model = fitted(ICQR, bounds_model(), X=NUMBERS)
    assert model.groups_["n"].sum() == 120


@pytest.mark.parametrize(("given", "own", "used"), [(None, 1, 1), (1, 2, 1)])
def test_n_jobs_reaches_the_models(given: int | None, own: int, used: int) -> None:
    assert CQR(QuantileModel(quick(), n_jobs=given), n_jobs=own, random_state=0).fit(X, Y).model_.n_jobs == used
    forest = RandomForestRegressor(n_estimators=2)
    assert Naive(forest, n_jobs=own, random_state=0).fit(X, Y).model_.estimator.n_jobs == own


# -- Groups ----------------------------------------------------------------------------------------------------------


def test_own_groups_make_mondrian_cqr() -> None:
    model = fitted(ICQR, partition=GroupPartition("town"))
    groups = model.groups_
    assert groups["rule"].tolist() == ["town = Bern", "town = Genf"]
    assert groups["offset_upper"].is_unique
    assert not hasattr(model, "importances_")
    town = X_NEW["town"].map({"Bern": 0, "Genf": 1})
    np.testing.assert_array_equal(model.explain(X_NEW)["group"], town)


def test_a_group_of_calibration_rows_alone_has_its_own_offset() -> None:
    seen = X["town"] == "Bern"
    model = ICQR(quick(), coverage=0.8, partition=GroupPartition("town"), random_state=0)
    model.fit(X[seen], Y[seen], X_calibration=X_NEW, y_calibration=Y_NEW)
    assert model.groups_["rule"].tolist() == ["town = Bern", "town = Genf"]
    assert model.groups_["n"].tolist() == X_NEW["town"].value_counts().sort_index().tolist()
    genf = X_NEW["town"] == "Genf"
    assert coverage_score(Y_NEW[genf], model.predict_interval(X_NEW[genf])) >= 0.8


@pytest.mark.parametrize("policy", ["pooled", "infinite", "error"])
def test_a_row_of_an_unseen_group_is_answered_as_the_policy_says(policy: str) -> None:
    model = fitted(ICQR, partition=GroupPartition("town"), small_groups=policy)
    unseen = X_NEW[:3].assign(town="Rom")
    if policy == "error":
        with pytest.raises(ValueError, match="a group unknown to the calibration has none"):
            model.predict_interval(unseen)
    elif policy == "infinite":
        assert np.isinf(model.predict_interval(unseen)).all()
        assert model.explain(unseen)["guarantee"].unique().tolist() == ["certain (infinite interval)"]
    else:
        with pytest.warns(UserWarning, match="a group unknown to the calibration has none"):
            intervals = model.predict_interval(unseen)
        assert np.isfinite(intervals).all()
        with pytest.warns(UserWarning, match="pooled offset"):
            explained = model.explain(unseen)
        assert explained["guarantee"].unique().tolist() == ["none (pooled offset)"]
        assert explained["promised"].eq(0).all()
        assert explained["group"].eq(-1).all()


@pytest.mark.parametrize(("policy", "lost"), [("pooled", 3 / 360), ("infinite", 0.0)])
# Fitting tells which group is too small; the next test looks at that.
@pytest.mark.filterwarnings("ignore:coverage=0.8 needs:UserWarning")
def test_a_small_group_lowers_the_marginal_promise_unless_it_is_infinite(policy: str, lost: float) -> None:
    rare = X.assign(town=np.where(np.arange(len(X)) < 3, "Rom", X["town"]))
    model = ICQR(quick(), coverage=0.8, partition=GroupPartition("town"), small_groups=policy, random_state=0)
    model.fit(X, Y, X_calibration=rare, y_calibration=Y)
    assert model.certificate().marginal == pytest.approx(0.8 - lost)


def test_a_small_group_is_told_at_fit() -> None:
    rare = X.assign(town=np.where(np.arange(len(X)) < 3, "Rom", X["town"]))
    model = ICQR(quick(), coverage=0.8, partition=GroupPartition("town"), random_state=0)
    with pytest.warns(UserWarning, match=r"group 2 has 3\. Their intervals use the pooled offset"):
        model.fit(X, Y, X_calibration=rare, y_calibration=Y)


class Halves:
    """A partition of the user's own: only `fit` and `assign`, no `n_groups_`, no `clone`."""

    def fit(self, X: Any, y: Any, bounds: Any, weights: Any = None, random_state: Any = None) -> "Halves":
        assert bounds.shape == (len(y), 3)
        assert weights is not None
        return self

    def assign(self, X: Any) -> Any:
        return (X["size"] > 0.5).to_numpy().astype(int)


def test_any_object_with_fit_and_assign_is_a_partition() -> None:
    model = fitted(ICQR, partition=Halves())
    np.testing.assert_array_equal(model.explain(X_NEW)["group"], X_NEW["size"] > 0.5)
    assert all(rule.startswith("size") for rule in model.groups_["rule"])
    # Fresh rows of one half only: the other half is there, and empty.
    low = X_NEW["size"] <= 0.5
    with pytest.warns(UserWarning, match="group 1 has 0"):
        model.calibrate(X_NEW[low], Y_NEW[low])
    assert model.groups_["n"].tolist() == [low.sum(), 0]


# Algorithm 3 merges no groups, and a hundred rows make some too small.
@pytest.mark.filterwarnings("ignore:coverage=0.8 needs:UserWarning")
def test_as_printed_promises_only_approximately_until_fresh_rows_come() -> None:
    model = ICQR.as_printed(quick(), coverage=0.8, random_state=0, conformity="cqr-r")
    assert model.conformity == "cqr-r"
    assert model.importance.data == model.partition.data == "calibration"
    assert not model.partition.merge
    assert model.fit(NUMBERS, Y).certificate().guarantee == "approximate (groups learned from calibration rows)"
    assert model.calibrate(NUMBERS_NEW, Y_NEW).certificate().guarantee == "group-wise"


@pytest.mark.parametrize(
    "parameters",
    [
        {"importance": PermutationImportance(data="calibration")},
        {"partition": KMeansPartition(data="calibration")},
    ],
)
def test_learning_from_calibration_rows_makes_the_promise_approximate(parameters: dict[str, Any]) -> None:
    assert fitted(ICQR, **parameters).certificate().guarantee.startswith("approximate")
    auto = fitted(AutoICQR, **parameters)
    assert auto.certificate().guarantee == "approximate (groups learned from calibration rows)"
    assert auto.explain(X_NEW)["guarantee"].str.startswith("approximate").all()
    assert auto.calibrate(X_NEW, Y_NEW).certificate().guarantee == "group-wise"


def test_the_algorithm_as_printed_is_icqr() -> None:
    with pytest.raises(ValueError, match=r"is ICQR, not AutoICQR; use ICQR\.as_printed"):
        AutoICQR.as_printed()


# -- The scikit-learn contract ---------------------------------------------------------------------------------------


def same(one: Any, two: Any) -> None:
    pd.testing.assert_frame_equal(one.explain(X_NEW), two.explain(X_NEW))
    pd.testing.assert_frame_equal(one.groups_, two.groups_)


def test_clones_and_refits_are_the_same(model: Any) -> None:
    again = clone(model)
    assert not hasattr(again, "model_")
    same(again.fit(X_NEW[:100], Y_NEW[:100]).fit(X, Y), model)


def test_a_second_fit_forgets_the_first_entirely() -> None:
    model = (
        fitted(ICQR).set_params(partition=GroupPartition(0), conformity="cqr-r").fit(np.round(NUMBERS.to_numpy()), Y)
    )
    fresh = clone(model).fit(np.round(NUMBERS.to_numpy()), Y)
    assert vars(model).keys() == vars(fresh).keys()
    assert not hasattr(model, "importances_")
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.calibration_.scores[0], fresh.calibration_.scores[0])


def test_a_failed_fit_leaves_no_half_fitted_model(model: Any) -> None:
    broken = clone(model).fit(X, Y)
    with pytest.raises(ValueError, match="same number of rows"):
        broken.fit(X, Y[:-1])
    with pytest.raises(ValueError, match="is not fitted yet"):
        broken.predict_interval(X)


def test_parameters_set_after_fit_change_no_fitted_bounds() -> None:
    model = fitted(CQR, side="lower")
    before = model.predict_interval(X, coverage=0.8)
    model.set_params(side="upper", y_min=0, coverage=0.4)  # below 0.5 the levels stand in another order
    np.testing.assert_array_equal(model.predict_interval(X, coverage=0.8), before)


def test_pickles_predict_the_same(model: Any) -> None:
    same(pickle.loads(pickle.dumps(model)), model)


def _days_as_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(day=(rows["day"] - pd.Timestamp(0)).dt.days)


def test_groups_are_in_words_where_only_the_pipeline_reads_dates() -> None:
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=len(X)), "x": X["size"].to_numpy()})
    pipeline = make_pipeline(FunctionTransformer(_days_as_numbers), HistGradientBoostingRegressor(max_iter=2))
    model = ICQR(pipeline, 0.8, partition=ScorePartition(2, estimator=pipeline), random_state=0).fit(frame, Y)
    assert "x " in model.groups_["features"][0]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_interval(frame), model.predict_interval(frame))


def test_predicting_changes_no_state(model: Any) -> None:
    before = pickle.dumps(model)
    first = model.explain(X)
    model.predict_interval(X_NEW)
    model.predict(X_NEW[:5])
    model.score(X_NEW, Y_NEW)
    model.group_shift(X_NEW)
    if not isinstance(model, QR):
        model.predict_interval(X_NEW, coverage=[0.5, 0.6])
    assert pickle.dumps(model) == before
    pd.testing.assert_frame_equal(model.explain(X), first)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_seed_alone_decides_the_result(method: Any, backend: str) -> None:
    estimator = RandomForestRegressor(n_estimators=5) if method is Naive else quick()
    with parallel_config(backend=backend):
        one, parallel = (fitted(method, estimator, n_jobs=n_jobs) for n_jobs in (None, 2))
    same(one, parallel)
    if method is not QR:
        assert not np.array_equal(one.predict(X), fitted(method, estimator, random_state=1).predict(X))


@pytest.mark.parametrize("method", MOST_WORK)
def test_grid_search_over_inner_parameters_and_coverage(method: Any) -> None:
    grid = {"estimator__max_iter": [1, 5], "coverage": [0.5, 0.8]}
    search = GridSearchCV(method(quick(), random_state=0), grid, cv=2, error_score="raise").fit(NUMBERS, Y)
    assert search.best_params_["coverage"] == 0.5  # narrow intervals of low coverage have the smaller interval score
    assert search.predict(NUMBERS_NEW).shape == (len(X_NEW),)


def test_grid_search_over_the_parts_of_icqr() -> None:
    grid = {"partition__max_groups": [2, 3], "importance__n_repeats": [1]}
    model = ICQR(quick(), 0.8, partition=KMeansPartition(0.3), importance=PermutationImportance(), random_state=0)
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(NUMBERS, Y)
    assert search.best_estimator_.importance.n_repeats == 1


@pytest.mark.parametrize("method", MOST_WORK)
def test_cross_validation_of_a_pipeline(method: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), method(quick(), coverage=0.8, random_state=0))
    scores = cross_val_score(pipeline, NUMBERS, Y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert (scores < 0).all()


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_weights_go_where_they_are_requested() -> None:
    weights = np.where(X["size"] > 0.5, 1.0, 0.01)
    asks = CQR(quick().set_fit_request(sample_weight=True), coverage=0.8, random_state=0)
    weighted = asks.fit(NUMBERS, Y, sample_weight=weights).predict(NUMBERS)
    assert not np.array_equal(weighted, fitted(CQR, X=NUMBERS).predict(NUMBERS))
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        CQR(quick(), coverage=0.8, random_state=0).fit(NUMBERS, Y, sample_weight=weights)
    through = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asks).fit(
        NUMBERS, Y, sample_weight=weights
    )
    np.testing.assert_allclose(through.predict(NUMBERS), weighted)


@pytest.mark.usefixtures("routing")
def test_cross_validation_splits_requested_weights() -> None:
    model = CQR(quick().set_fit_request(sample_weight=True), coverage=0.8, random_state=0)
    model.set_score_request(sample_weight=True)
    weights = np.linspace(0.1, 1, len(Y))
    scores = cross_val_score(model, NUMBERS, Y, cv=2, params={"sample_weight": weights}, error_score="raise")
    assert not np.array_equal(scores, cross_val_score(model, NUMBERS, Y, cv=2, params={}))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("method", CALIBRATED)
def test_a_pipeline_transforms_the_calibration_rows(method: Any) -> None:
    last = method(quick(), coverage=0.8, random_state=0).set_fit_request(X_calibration=True, y_calibration=True)
    pipeline = Pipeline([("scale", StandardScaler()), ("model", last)], transform_input=["X_calibration"])
    pipeline.fit(NUMBERS, Y, X_calibration=NUMBERS_NEW, y_calibration=Y_NEW)
    scaler = StandardScaler().fit(NUMBERS)
    by_hand = clone(last).fit(scaler.transform(NUMBERS), Y, scaler.transform(NUMBERS_NEW), Y_NEW)
    np.testing.assert_array_equal(
        pipeline[-1].predict_interval(scaler.transform(NUMBERS)), by_hand.predict_interval(scaler.transform(NUMBERS))
    )
    assert pipeline[-1].groups_["n"].sum() == 600


# -- Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MOST_WORK)
@pytest.mark.parametrize("convert", [pl.from_pandas, np.asarray], ids=["polars", "object array"])
def test_the_kind_of_table_changes_nothing(method: Any, convert: Any) -> None:
    if convert is pl.from_pandas:
        convert = lambda frame: pl.DataFrame({name: frame[name].to_list() for name in frame})  # noqa: E731
    model = method(quick(), coverage=0.8, random_state=0).fit(convert(X), Y)
    explained = model.explain(convert(X_NEW))
    pd.testing.assert_frame_equal(explained, plain(method).explain(X_NEW).reset_index(drop=True))


def test_an_array_after_a_frame_is_taken_by_position_with_scikit_learns_warning(model: Any) -> None:
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        intervals = model.predict_interval(X_NEW.to_numpy())
    np.testing.assert_array_equal(intervals, model.predict_interval(X_NEW))


def test_a_frame_after_an_array_is_taken_by_position_with_scikit_learns_warning() -> None:
    model = fitted(CQR, X=NUMBERS.to_numpy())
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        intervals = model.predict_interval(NUMBERS_NEW)
    np.testing.assert_array_equal(intervals, model.predict_interval(NUMBERS_NEW.to_numpy()))


def test_quantiles_of_some_of_the_fitted_levels() -> None:
    model = plain(CQR)
    every = model.predict_quantiles(X_NEW)
    np.testing.assert_array_equal(model.model_.predict(X_NEW, [0.9, 0.5]), every[:, [2, 1]])
    with pytest.raises(ValueError, match=r"levels must be among the fitted ones, \(0\.1, 0\.5, 0\.9\), got 0\.2"):
        model.model_.predict(X_NEW, [0.2])


def test_a_warning_about_small_groups_points_to_the_users_line() -> None:
    model = plain(ICQR)
    for ask in (model.predict_interval, model.explain):
        with pytest.warns(UserWarning, match="calibration rows in each group") as caught:
            ask(X_NEW, coverage=0.99)
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="calibration rows in each group") as caught:
        ICQR(quick(), coverage=0.99, partition=GroupPartition("town"), random_state=0).fit(X, Y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("data", ["calibration", "all"])
def test_a_users_partition_that_sees_calibration_rows_has_no_exact_promise(data: str) -> None:
    class Nosy:
        def fit(self, X: Any, y: Any, bounds: Any, weights: Any = None, random_state: Any = None) -> Any:
            return self

        def assign(self, X: Any) -> Any:
            return np.zeros(len(X), dtype=int)

    Nosy.data = data  # type: ignore[attr-defined]
    model = ICQR(quick(), coverage=0.8, partition=Nosy(), random_state=0)
    if data == "all":  # no partition gets them
        with pytest.raises(ValueError, match=r"partition\.data must be 'train' or 'calibration', got 'all'"):
            model.fit(X, Y)
    else:
        assert model.fit(X, Y).groups_["guarantee"].iloc[0].startswith("approximate")


# -- Rows in blocks --------------------------------------------------------------------------------------------------


def test_predictions_in_blocks_are_the_same_to_the_bit(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    several = None if isinstance(model, QR) else [0.8, 0.9]
    whole = model.predict(X), model.predict_interval(X), model.predict_interval(X, coverage=several)
    monkeypatch.setattr(_tables, "ROWS_AT_ONCE", 64)
    blocks = model.predict(X), model.predict_interval(X), model.predict_interval(X, coverage=several)
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", CALIBRATED)
@pytest.mark.parametrize("table", ["frame", "array"])
def test_a_row_predicted_alone_follows_whatever_changes_the_model(method: Any, table: str) -> None:
    X, y = draw(300, seed=0)
    X = X if table == "frame" else X[["size", "age"]].to_numpy()
    model = method(quick(), coverage=0.8, random_state=0).fit(X, y)

    def check(fitted: Any) -> np.ndarray:
        together = fitted.predict_interval(X)
        np.testing.assert_array_equal(
            np.concatenate([fitted.predict_interval(X[i : i + 1]) for i in range(9)]), together[:9]
        )
        return together

    first = check(model)
    assert (np.diff(check(model.set_params(coverage=0.6))) < np.diff(first)).any()
    np.testing.assert_array_equal(check(pickle.loads(pickle.dumps(model.set_params(coverage=0.8)))), first)
    assert (np.diff(check(model.calibrate(X, 10 * y))) > np.diff(first)).all()
    np.testing.assert_array_equal(check(clone(model).fit(X, y)), first)
    wider = np.column_stack([X, X]) if table == "array" else X.rename(columns=str.upper)
    with pytest.raises(ValueError, match=r"X has \d+ features|X lacks columns"):
        model.predict_interval(wider[:1])
