"""Cross-calibration: every row trains, and is scored by a model that has not seen it (CV+)."""

import warnings
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.model_selection import PredefinedSplit

import icqr.streaming
from icqr import (
    CQR,
    ICQR,
    AutoICQR,
    GroupPartition,
    KMeansPartition,
    WholePartition,
    audit,
    compare,
    load,
    prefit,
    report,
    save,
)
from icqr.calibration import Calibration, conformal_rank
from icqr.cross import CrossCalibration, FoldModels, least_coverage
from icqr.metrics import coverage_score
from icqr.persistence import ModelFileError
from icqr.plots import (
    GroupCoverageDisplay,
    GroupMapDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    ReliabilityDisplay,
    WidthDisplay,
    WidthResidualDisplay,
)
from icqr.reporting import summarize

LIGHT = LGBMRegressor(n_estimators=15, num_leaves=6, n_jobs=1, verbose=-1)
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(size=(240, 3)), columns=list("abc"))
Y = 3 * X["a"].to_numpy() + (0.2 + X["b"].to_numpy()) * RNG.normal(size=240)
NEW = pd.DataFrame(RNG.uniform(size=(50, 3)), columns=list("abc"))


@pytest.mark.parametrize("options", [{}, {"symmetric": False}, {"conformity": "cqr-m"}, {"side": "upper"}])
def test_an_interval_has_the_ends_of_rank_k_by_hand(options: dict[str, Any]) -> None:
    model = CQR(QuantileRegressor(alpha=0.0), 0.8, calibration="cross", random_state=0, **options).fit(X, Y)
    folds = model.model_
    assert isinstance(folds, FoldModels)
    lower, upper = [], []
    level = 0.9 if options.get("symmetric") is False else 0.8
    k = conformal_rank(len(Y), level)
    for i in range(len(Y)):
        part = folds.models_[folds.fold_of_[i]]
        mine, new = (_three(part.predict(rows), options) for rows in (X.iloc[[i]], NEW))
        score = model.conformity_.scores(mine, Y[[i]])
        ends = model.conformity_.intervals(new, np.repeat(np.broadcast_to(score, (1, 2)), len(new), axis=0))
        lower.append(ends[:, 0])
        upper.append(ends[:, 1])
    wanted = np.column_stack([np.sort(lower, axis=0)[len(Y) - k], np.sort(upper, axis=0)[k - 1]])
    np.testing.assert_allclose(model.predict_interval(NEW), wanted, rtol=1e-12)


def _three(quantiles: Any, options: dict[str, Any]) -> Any:
    if options.get("side") != "upper":
        return quantiles
    return np.column_stack([np.full(len(quantiles), -np.inf), quantiles])


class PointOnly(BaseEstimator):  # type: ignore[misc]
    """A line, in place of each quantile: its scores are the distances from the line."""

    def fit(self, X: Any, y: Any) -> Any:
        self.line_ = LinearRegression().fit(X, y)
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.repeat(self.line_.predict(X)[:, None], len(levels), axis=1)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_it_agrees_with_mapie_on_the_same_folds(coverage: float) -> None:
    mapie = pytest.importorskip("mapie.regression", reason="MAPIE is not installed")
    rng = np.random.default_rng(0)
    X, new = rng.uniform(size=(130, 2)), rng.uniform(size=(40, 2))  # folds of 13 rows
    y = 3 * X[:, 0] + (1 + X[:, 1]) * rng.normal(size=130)
    for ours, kind, theirs in (
        (PointOnly(), "CrossConformalRegressor", LinearRegression()),
        (QuantileRegressor(alpha=0.0), "CrossConformalizedQuantileRegressor", QuantileRegressor(alpha=0.0)),
    ):
        model = CQR(ours, coverage, calibration="cross", random_state=0).fit(X, y)
        folds = PredefinedSplit(model.model_.fold_of_)
        peer = getattr(mapie, kind)(theirs, confidence_level=coverage, method="plus", cv=folds, random_state=0)
        intervals = peer.fit_conformalize(X, y).predict_interval(new)[1][:, :, 0]
        np.testing.assert_allclose(model.predict_interval(new), intervals, atol=1e-9)


def test_no_row_is_scored_by_a_model_that_has_seen_it() -> None:
    class ByHeart(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        """Predict y for rows that it knows, and 100 for others."""

        def __init__(self, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> None:
            self.levels = levels

        def fit(self, X: Any, y: Any) -> Any:
            self.known_ = dict(zip(map(float, np.asarray(X)[:, 0]), y, strict=True))
            return self

        def predict(self, X: Any) -> Any:
            return self.predict_quantiles(X, (0.5,))[:, 0]

        def predict_quantiles(self, X: Any, levels: Any) -> Any:
            values = [self.known_.get(float(value), 100.0) for value in np.asarray(X)[:, 0]]
            return np.repeat(np.array(values)[:, None], len(levels), axis=1)

    model = CQR(ByHeart(), calibration="cross", random_state=0).fit(X[["a"]].to_numpy(), Y)
    assert (model.model_.out_of_fold_ == 100).all()
    np.testing.assert_allclose(np.sort(model.calibration_.scores[0][:, 0]), np.sort(np.abs(100 - Y)))


@pytest.mark.slow
def test_coverage_is_about_what_was_asked_for_over_many_draws() -> None:
    rng, hits, n = np.random.default_rng(0), [], 60
    model = CQR(QuantileRegressor(alpha=0.0), 0.8, calibration="cross", random_state=0)
    for _ in range(150):
        Z = rng.uniform(size=(n + 200, 1))
        y = Z[:, 0] + (0.2 + Z[:, 0]) * rng.normal(size=n + 200)
        hits.append(coverage_score(y[n:], model.fit(Z[:n], y[:n]).predict_interval(Z[n:])))
    error = np.std(hits) / np.sqrt(len(hits))
    assert least_coverage(np.full(10, n // 10), 0.8) < 0.8 - 4 * error < np.mean(hits) < 0.8 + 0.05


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_bound_of_low_coverage_lies_beyond_the_median(side: str) -> None:
    new = pd.DataFrame(np.random.default_rng(1).uniform(size=(2000, 3)), columns=list("abc"))
    y = 3 * new["a"].to_numpy() + (0.2 + new["b"].to_numpy()) * np.random.default_rng(2).normal(size=2000)
    model = CQR(QuantileRegressor(alpha=0.0), 0.3, side=side, calibration="cross", random_state=0).fit(X, Y)
    bound = model.predict_interval(new)[:, 0 if side == "lower" else 1]
    assert np.mean(bound <= y if side == "lower" else bound >= y) == pytest.approx(0.3, abs=0.06)
    median = model.predict(new)
    assert np.mean(bound > median if side == "lower" else bound < median) > 0.95


def test_each_group_has_its_own_scores() -> None:
    rows = X.assign(kind=np.where(X["a"] > 0.5, "high", "low"))
    y = np.where(rows["kind"] == "high", 10.0, 1.0) * RNG.normal(size=len(rows))
    model = ICQR(LIGHT, calibration="cross", partition=GroupPartition("kind"), random_state=0).fit(rows, y)
    widths = np.ptp(model.predict_interval(rows), axis=1)
    high = (rows["kind"] == "high").to_numpy()
    assert np.median(widths[high]) > 4 * np.median(widths[~high])
    explained = model.explain(rows)
    assert explained["guarantee"].unique().tolist() == ["cross-validated (CV+)"]
    assert explained["n"].nunique() == 2
    np.testing.assert_allclose(explained[["lower", "upper"]], model.predict_interval(rows))


def test_learned_groups_make_the_promise_approximate() -> None:
    model = ICQR(LIGHT, calibration="cross", partition=KMeansPartition(choose=2), random_state=0).fit(X, Y)
    assert model.n_groups_ == 2
    assert model.explain(NEW)["guarantee"].unique().tolist() == ["approximate (CV+, groups learned from the same rows)"]


def test_what_is_promised_is_the_theorem_s_bound() -> None:
    model = CQR(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    # n = 240 in 10 folds: 1 - 2 * 0.1 less min(2 * 0.9 / 25, (1 - 10 / 240) / 11).
    assert model.certificate().marginal == pytest.approx(0.8 - 1.8 / 25)
    assert model.explain(NEW)["promised"].iloc[0] == pytest.approx(0.8 - 1.8 / 25)
    assert "at least 72.8% is promised" in str(model.certificate())
    # The second bound, which is better with few rows, is for folds of one size, without groups.
    assert least_coverage(np.full(10, 10), 0.9) == pytest.approx(0.8 - 0.9 / 11)
    assert least_coverage(np.full(10, 10), 0.9, is_alone=False) == pytest.approx(0.8 - 1.8 / 11)
    assert least_coverage(np.array([11, *9 * [10]]), 0.9) == pytest.approx(0.8 - 1.8 / 11.1)
    assert least_coverage(np.ones(5, dtype=int), 0.9, is_alone=False) == 0


def test_where_theory_promises_nothing_it_is_said() -> None:
    model = CQR(LIGHT, 0.5, calibration="cross", random_state=0).fit(X, Y)
    assert str(model.certificate()) == (
        "Coverage about 0.5 in practice, cross-validated (CV+); in theory nothing is promised."
    )
    sentence = summarize(model)["verdict"]["sentence"]
    assert sentence.startswith("The model covers about 50 % in practice, in theory no promise;")
    rows = X.assign(kind=["rare"] * 5 + ["few"] * 85 + ["often"] * 150)
    groups = ICQR(LIGHT, 0.5, calibration="cross", partition=GroupPartition("kind"), symmetric=False, random_state=0)
    assert str(groups.fit(rows, Y).certificate()).endswith("; in theory nothing is promised.")


def test_any_coverage_from_one_fit_and_intervals_nest() -> None:
    model = AutoICQR(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    intervals = model.predict_interval(NEW, coverage=[0.5, 0.8, 0.9, 0.95])
    assert intervals.shape == (50, 2, 4)
    assert (np.diff(intervals[:, 0], axis=1) <= 0).all()
    assert (np.diff(intervals[:, 1], axis=1) >= 0).all()
    np.testing.assert_array_equal(intervals[:, :, 2], model.predict_interval(NEW))


def test_few_rows_are_cross_calibrated_by_default() -> None:
    assert isinstance(AutoICQR(LIGHT, random_state=0).fit(X, Y).calibration_, CrossCalibration)
    split = AutoICQR(LIGHT, calibration="split", random_state=0).fit(X, Y)  # which needs no warning
    assert not isinstance(split.calibration_, CrossCalibration)
    own = AutoICQR(LIGHT, random_state=0).fit(X[:150], Y[:150], X_calibration=X[150:], y_calibration=Y[150:])
    assert not isinstance(own.calibration_, CrossCalibration)


def test_fresh_rows_make_it_exact() -> None:
    model = CQR(LIGHT, calibration="cross", random_state=0).fit(X[:120], Y[:120]).calibrate(X[120:], Y[120:])
    assert model.explain(NEW)["guarantee"].unique().tolist() == ["marginal"]
    scores = model.conformity_.scores(model.predict_quantiles(X[120:]), Y[120:])[:, 0]
    offset = np.sort(scores)[conformal_rank(120, 0.9) - 1]
    np.testing.assert_allclose(model.explain(NEW)["offset_upper"], offset)


def test_with_an_offset_for_each_side_both_may_miss() -> None:
    model = CQR(LIGHT, calibration="cross", symmetric=False, random_state=0).fit(X, Y)
    # Each side is promised 1 - 2 * 0.05 less 1.8 / 25.
    assert model.certificate().marginal == pytest.approx(1 - 2 * (0.1 + 1.8 / 25))


def test_all_rows_together_get_the_mean_of_the_groups_promises() -> None:
    rows = X.assign(kind=["rare"] * 5 + ["few"] * 85 + ["often"] * 150)
    model = ICQR(LIGHT, calibration="cross", partition=GroupPartition("kind"), random_state=0)
    with pytest.warns(UserWarning, match="group 2 has 5"):
        certificate = model.fit(rows, Y).certificate()
    few, often, rare = certificate.groups["promised"].iloc[:3]
    assert often == pytest.approx(0.8 - 1.8 / 16)  # the second bound is not for groups
    assert rare == 0
    assert certificate.marginal == pytest.approx((85 * few + 150 * often) / 240)
    assert "Nothing is promised in groups that are too small; 2.1% of the rows are in one." in str(certificate)


CROSSED = {
    "auto": AutoICQR(LIGHT, random_state=0),
    "one group": CQR(LIGHT, calibration="cross", random_state=0),
    "clusters": ICQR(LIGHT, calibration="cross", partition=KMeansPartition(choose=2), random_state=0),
    "upper": ICQR(
        LIGHT, calibration="cross", side="upper", y_min=-10, partition=GroupPartition("kind"), random_state=0
    ),
    "two offsets": CQR(LIGHT, calibration="cross", symmetric=False, conformity="cqr-r", random_state=0),
}


@pytest.mark.parametrize("name", CROSSED)
def test_every_door_is_open(name: str, tmp_path: Any) -> None:
    rows, new = (table.assign(kind=np.where(table["a"] > 0.5, "high", "low")) for table in (X, NEW))
    y = NEW["a"].to_numpy()
    model = clone(CROSSED[name]).fit(rows, Y)
    assert isinstance(model.calibration_, CrossCalibration)
    intervals, bounds = model.predict_interval(new), model.predict_quantiles(new)
    assert (intervals[:, 0] <= intervals[:, 1]).all()
    assert bounds.shape == (50, 3)
    groups, scores = model.conformity_scores(new, y)
    assert (groups == model.assign(new)).all()
    assert scores.shape == (50, 2 if name == "two offsets" else 1)
    assert np.isfinite(model.score(new, y))
    assert 0 <= model.group_shift(rows).p_value <= 1

    # Offsets are how far the ends are from the bounds; where there is no bound, there is none.
    explained = model.explain(new)
    np.testing.assert_allclose(explained["offset_upper"], intervals[:, 1] - bounds[:, 2])
    assert explained["offset_lower"].isna().all() == (name == "upper")
    assert explained["promised"].between(0.3, 0.8).all()
    assert model.groups_["offset_upper"].isna().all()

    # Audits, reports and pictures.
    assert audit(y, model, new, with_excess_risk=False).coverage == 0.9
    other = CQR(LIGHT, random_state=0).fit(rows, Y)
    assert list(compare(y, {"it": model, "other": other}, new, with_excess_risk=False).audits) == ["it", "other"]
    sentence = summarize(model)["verdict"]["sentence"]
    assert sentence.startswith("The model covers about 90 % in practice, at least ")
    assert ("(approximate)" in sentence) == (name in ("auto", "clusters"))  # groups learned, or one group chosen
    report(model, tmp_path / "alone.html")
    report(model, tmp_path / "checked.html", y, new)
    page = (tmp_path / "alone.html").read_text(encoding="utf-8")
    assert "All rows train and calibrate, each scored by a model that has not seen it (CV+)" in page
    for display in (IntervalDisplay, WidthResidualDisplay, GroupCoverageDisplay, WidthDisplay):
        display.from_estimator(model, new, y)
    if name != "upper":
        ReliabilityDisplay.from_estimator(model, new, y)
    if hasattr(model, "importances_"):
        GroupMapDisplay.from_estimator(model, new)
        ImportanceDisplay.from_estimator(model)
    plt.close("all")

    # Files, and Parquet files in blocks.
    save(model, tmp_path / "model.icqr")
    np.testing.assert_array_equal(load(tmp_path / "model.icqr").explain(new)["lower"], explained["lower"])
    new.assign(y=y).to_parquet(tmp_path / "new.parquet")
    out = icqr.streaming.predict_interval(model, tmp_path / "new.parquet", tmp_path / "out.parquet", block_rows=20)
    np.testing.assert_array_equal(pd.read_parquet(out), intervals)

    # Fresh rows, by each way, give the same exact calibration.
    fresh = clone(CROSSED[name]).fit(rows, Y).calibrate(new, y)
    by_scores = Calibration.from_scores(model.conformity_, scores, groups, model.n_groups_, model.small_groups)
    np.testing.assert_array_equal(model.with_calibration(by_scores).predict_interval(new), fresh.predict_interval(new))
    streamed = icqr.streaming.calibrate(load(tmp_path / "model.icqr"), tmp_path / "new.parquet", target="y")
    np.testing.assert_array_equal(streamed.predict_interval(new), fresh.predict_interval(new))
    assert model.certificate().guarantee in ("group-wise", "marginal")
    assert "CV+" not in str(model.explain(new)["guarantee"].unique())


def test_a_group_has_no_one_offset() -> None:
    model = CQR(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="a group has no one offset"):
        model.calibration_.offsets(0.9, np.array([0]))


def test_limits_of_y_and_several_coverages_ask_each_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CQR(LIGHT, calibration="cross", y_min=0.5, y_max=2, random_state=0).fit(X[Y > 0.6], Y[Y > 0.6].clip(0.5, 2))
    n_asked, predict = [0], FoldModels.predict_each

    def counted(self: FoldModels, rows: Any) -> Any:
        n_asked[0] += 1
        return predict(self, rows)

    monkeypatch.setattr(FoldModels, "predict_each", counted)
    intervals = model.predict_interval(NEW, [0.8, 0.9])
    model.explain(NEW)
    assert n_asked == [2]
    assert intervals.min() >= 0.5
    assert intervals.max() <= 2


def test_a_collapsed_model_is_told_of() -> None:
    with pytest.warns(UserWarning, match="predicts the same .* Try AutoICQR"):
        CQR(calibration="cross", random_state=0).fit(X[:20], Y[:20])


def test_a_column_that_leaks_the_target_is_told_of_whatever_the_side() -> None:
    rows = X.assign(leak=Y)
    model = ICQR(QuantileRegressor(alpha=0.0), calibration="cross", side="upper", random_state=0)
    with pytest.warns(UserWarning, match="leak"):
        model.fit(rows, Y)


def test_small_groups_get_the_answer_that_was_asked_for() -> None:
    rows = X.assign(kind=["rare"] * 5 + ["often"] * 235)
    model = ICQR(LIGHT, calibration="cross", partition=GroupPartition("kind"), random_state=0)
    with pytest.warns(UserWarning, match="group 1 has 5"):
        model.fit(rows, Y)
    with pytest.warns(UserWarning, match="group 1 has 5"):
        pooled = model.predict_interval(rows[:5])
    assert np.isfinite(pooled).all()
    infinite = clone(model).set_params(small_groups="infinite").fit(rows, Y)
    assert np.isinf(infinite.predict_interval(rows[:5])).all()
    assert np.isfinite(infinite.predict_interval(rows[5:])).all()
    with pytest.raises(ValueError, match="group 1 has 5"):
        clone(model).set_params(small_groups="error").fit(rows, Y)


def test_the_result_does_not_depend_on_tasks_at_the_same_time_or_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (AutoICQR(LIGHT, calibration="cross", random_state=0, n_jobs=n).fit(X, Y) for n in (None, 2))
    intervals = one.predict_interval(NEW)
    np.testing.assert_array_equal(intervals, two.predict_interval(NEW))
    monkeypatch.setattr("icqr.cross.MOST_PAIRS", 500)
    np.testing.assert_array_equal(intervals, one.predict_interval(NEW))


def test_a_stored_model_predicts_the_same(tmp_path: Any) -> None:
    model = AutoICQR(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    save(model, tmp_path / "model.icqr")
    with pytest.raises(ModelFileError, match="leaves out one fitted model, and this one holds 10"):
        save(model, tmp_path / "other.icqr", with_estimator=False)
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(NEW), model.predict_interval(NEW))
    assert str(again.certificate()) == str(model.certificate())


def test_a_file_whose_folds_have_no_model_is_refused(tmp_path: Any) -> None:
    model = CQR(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    for folds in (model.calibration_.folds[0] + 1, model.calibration_.folds[0][:-1]):
        model.calibration_ = replace(model.calibration_, folds=(folds, model.calibration_.folds[1]))
        with pytest.raises(ModelFileError, match="folds must be the places of 10 models, one for each score"):
            save(model, tmp_path / "model.icqr")


def test_what_can_not_be_is_refused() -> None:
    for model in (CQR(LIGHT, calibration="cross", random_state=0), ICQR(LIGHT, calibration="cross", random_state=0)):
        with pytest.raises(ValueError, match="'cross' calibrates with the training rows, but X_calibration is given"):
            model.fit(X, Y, X_calibration=NEW, y_calibration=Y[:50])
    with pytest.raises(ValueError, match="calibration must be one of 'split', 'cross', got 'auto'"):
        CQR(LIGHT, calibration="auto", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="calibration must be one of 'auto', 'split', 'cross', got 'plus'"):
        AutoICQR(LIGHT, calibration="plus", random_state=0).fit(X, Y)
    fitted = prefit(
        lower=lambda X: X[:, 0], median=lambda X: X[:, 0], upper=lambda X: X[:, 0], levels=(0.05, 0.5, 0.95)
    )
    with pytest.raises(ValueError, match="can't with one that is fitted already"):
        CQR(fitted, calibration="cross", random_state=0).fit(X.to_numpy(), Y)
    with pytest.raises(ValueError, match="ties='random' makes coverage exact, but calibration='cross' promises only"):
        CQR(LIGHT, calibration="cross", ties="random", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"importance is learned from calibration rows .* sets none aside"):
        ICQR.as_printed(LIGHT, calibration="cross", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="partition is learned from calibration rows"):
        AutoICQR(LIGHT, calibration="cross", partition=KMeansPartition(data="calibration"), random_state=0).fit(X, Y)


@pytest.mark.parametrize("options", [{"ties": "random"}, {"partition": KMeansPartition(choose=2, data="calibration")}])
def test_few_rows_are_split_where_cross_calibration_can_not_be(options: dict[str, Any]) -> None:
    for calibration in ("auto", "split"):
        model = AutoICQR(LIGHT, calibration=calibration, random_state=0, **options).fit(X, Y)
        assert type(model.calibration_) is Calibration
        assert model.calibration_.sizes.sum() == 80


def test_weights_are_split_with_the_rows_and_missing_values_and_text_are_welcome() -> None:
    rows = X.assign(kind=np.where(X["a"] > 0.5, "high", None), d=X["c"].where(X["c"] > 0.2))
    weights = RNG.uniform(0.5, 1.5, len(Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AutoICQR(HistGradientBoostingRegressor(max_iter=10), partition=WholePartition(), random_state=0)
        model.fit(rows, Y, sample_weight=weights)
    assert np.isfinite(model.predict_interval(rows)).all()
    assert coverage_score(Y, model.predict_interval(rows)) > 0.9
