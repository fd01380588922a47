"""partition="auto": chosen from training rows alone, by what groups cost and promise."""

import copy
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, clone

from hard_rows import LEVEL_WIDTHS, draw
from icqr import (
    CQR,
    ICQR,
    KMeansPartition,
    PermutationImportance,
    ResidualQuantiles,
    ScorePartition,
    WholePartition,
    load,
    prefit,
    save,
)
from icqr._rows import Rows
from icqr.conformity import Conformity
from icqr.datasets import make_heteroscedastic, make_sine_spread
from icqr.metrics import interval_score, pinball_loss
from icqr.selection import pinball, select

LIGHT = LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)


X, Y = draw(1200)


@pytest.fixture(scope="module")
def fitted() -> ICQR:
    """A model that chose its groups among those of `X`; tests must not change it."""
    return ICQR(LIGHT, partition="auto", random_state=0).fit(X, Y)


def selected(X: Any, y: Any, bounds: Any, n_calibration: int) -> tuple[Any, pd.DataFrame]:
    rows = Rows(X, y, np.arange(len(y)))
    return select(rows, bounds, np.ones(X.shape[1]), Conformity(), 0.9, n_calibration, seed=0)


# -- What is chosen --------------------------------------------------------------------------------------------------


def test_groups_are_found_where_they_help() -> None:
    model = ICQR(LEVEL_WIDTHS, partition="auto", random_state=0).fit(X, Y)
    assert model.partition == "auto"
    assert isinstance(model.partition_, ScorePartition | KMeansPartition)
    table = model.selection_
    assert table["partition"].unique().tolist() == ["one group", "K-means", "difficulty"]
    assert table["chosen"].sum() == 1
    chosen = table[table["chosen"]].iloc[0]
    assert chosen["groups"] == model.n_groups_ > 1
    assert table["difference"].min() == 0 <= chosen["difference"] <= chosen["standard_error"]
    whole = table.loc[0]
    assert whole["difference"] > 3 * whole["standard_error"]


def test_bounds_that_are_right_everywhere_lose_nothing() -> None:
    ratios = []
    for seed in range(3):
        data, test = (make_heteroscedastic(n, random_state=seed + n) for n in (3000, 4000))
        true = [lambda Z, level=level, data=data: data.quantile(Z, level) for level in (0.05, 0.5, 0.95)]
        oracle = prefit(lower=true[0], median=true[1], upper=true[2], levels=(0.05, 0.5, 0.95))
        methods = ICQR(oracle, partition="auto", random_state=0), CQR(oracle, random_state=0)
        scores = [
            interval_score(test.y, one.fit(data.X, data.y).predict_interval(test.X), coverage=0.9) for one in methods
        ]
        ratios.append(scores[0] / scores[1])
    assert np.mean(ratios) < 1.01


def test_small_data_have_one_group() -> None:
    model = ICQR(LIGHT, partition="auto", random_state=0).fit(X[:450], Y[:450])
    assert isinstance(model.partition_, WholePartition)
    assert model.selection_["partition"].tolist() == ["one group"]
    expected = CQR(LIGHT, random_state=0).fit(X[:450], Y[:450])
    np.testing.assert_array_equal(model.predict_interval(X), expected.predict_interval(X))


def test_where_there_is_nothing_to_choose_nothing_is_cross_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icqr.regressors.cross_fit", lambda *_: pytest.fail("five more fits for nothing"))
    ICQR(LIGHT, partition="auto", random_state=0).fit(X[:450], Y[:450])


@pytest.mark.parametrize(("n_train", "coverage"), [(16, 0.9), (150, 0.99)])
def test_training_rows_that_are_too_few_to_judge_give_one_group(n_train: int, coverage: float) -> None:
    fresh = {"X_calibration": X[n_train:600], "y_calibration": Y[n_train:600]}
    model = ICQR(LIGHT, coverage, partition="auto", random_state=0).fit(X[:n_train], Y[:n_train], **fresh)
    assert isinstance(model.partition_, WholePartition)
    assert model.selection_["chosen"].tolist() == [True]
    expected = CQR(LIGHT, coverage, random_state=0).fit(X[:n_train], Y[:n_train], **fresh)
    np.testing.assert_array_equal(model.predict_interval(X), expected.predict_interval(X))


def test_of_candidates_as_good_as_the_best_the_most_groups_are_taken() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(4000, 2)), rng.normal(size=4000)
    bounds = np.tile([-1.6, 0.0, 1.6], (4000, 1))  # right everywhere: groups cost little and bring nothing
    partition, table = selected(x, y, bounds, 4000)
    good = table[table["difference"] <= table["standard_error"]]
    difficulty = good[good["partition"] != "K-means"]
    assert table.loc[table["chosen"], "groups"].item() == difficulty["groups"].max()
    assert partition.n_groups_ == difficulty["groups"].max()
    assert table["groups"].max() == 16


def test_no_group_is_tried_that_would_have_too_few_calibration_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1000, 1))
    y = x[:, 0] * rng.normal(size=1000)
    bounds = np.tile([-1.0, 0.0, 1.0], (1000, 1))
    for n_calibration, most in ((199, 1), (250, 2), (800, 8), (5000, 16)):
        _, table = selected(x, y, bounds, n_calibration)
        assert table.loc[table["partition"] != "K-means", "groups"].max() == most


@pytest.mark.parametrize(
    ("estimator", "partition"),
    [
        (LIGHT, KMeansPartition()),
        (LIGHT, ScorePartition(3)),
        (LIGHT, "auto"),
        (ResidualQuantiles(LIGHT), "auto"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_only_training_rows_are_looked_at(estimator: Any, partition: Any) -> None:
    """The simulations of test_validity.py calibrate fixed groups; that groups are fixed before is seen here."""
    near = X[:400], Y[:400]
    far = X[:400].assign(a=X["a"] + 5, b=-X["b"], city="Rom"), 100 * Y[:400] + 7
    model = ICQR(estimator, partition=partition, small_groups="infinite", random_state=3)
    one, other = (clone(model).fit(X[400:], Y[400:], *rows) for rows in (near, far))
    if partition == "auto":
        pd.testing.assert_frame_equal(one.selection_, other.selection_)
    assert one.n_groups_ > 1
    np.testing.assert_array_equal(one.partition_.assign(X), other.partition_.assign(X))
    assert one.certificate().guarantee == "group-wise"


# -- How it is judged ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "levels"), [("both", (0.05, 0.95)), ("lower", (0.1,)), ("upper", (0.9,))])
def test_the_loss_is_the_pinball_loss_of_the_bounds(side: str, levels: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    y, intervals = rng.normal(size=50), np.sort(rng.normal(size=(50, 2)), axis=1)
    columns = {"both": [0, 1], "lower": [0], "upper": [1]}[side]
    if side != "both":
        intervals[:, 1 - columns[0]] = np.inf if side == "lower" else -np.inf
    expected = len(levels) * pinball_loss(y, intervals[:, columns], levels)
    np.testing.assert_allclose(pinball(intervals, y, side, 0.9).mean(), expected)
    if side == "both":  # 2 / (1 - coverage) times it is the interval score
        np.testing.assert_allclose(20 * expected, interval_score(y, intervals, coverage=0.9))


@pytest.mark.parametrize(
    "settings",
    [
        {"side": "lower"},
        pytest.param({"side": "upper", "conformity": "cqr-m"}, marks=pytest.mark.slow),
        {"symmetric": False, "conformity": "cqr-m"},
        {"conformity": "cqr-r", "coverage": 0.8, "y_min": -60.0, "y_max": 60.0, "small_groups": "infinite"},
    ],
    ids=str,
)
def test_every_setting_works(settings: dict[str, Any]) -> None:
    model = ICQR(LIGHT, partition="auto", random_state=0, **settings).fit(X, Y)
    assert np.isfinite(model.selection_[["loss", "difference", "standard_error"]]).all(axis=None)
    lower, upper = model.predict_interval(X, [0.8, 0.9]).transpose(1, 0, 2)
    assert (np.mean((lower <= Y[:, None]) & (Y[:, None] <= upper), axis=0) > [0.75, 0.85]).all()


def test_conditional_coverage_of_a_model_that_is_wrong_is_twice_as_good() -> None:
    """A straight line through a sine: with enough rows, the groups take more than half of the error away."""

    class Line(BaseEstimator):
        """The least-squares line, and the residuals' quantiles: linear quantile regression with parallel lines."""

        def fit(self, X: Any, y: Any) -> Any:
            design = np.column_stack([np.ones(len(X)), X])
            self.coefficients_ = np.linalg.lstsq(design, y, rcond=None)[0]
            self.residuals_ = y - design @ self.coefficients_
            return self

        def predict_quantiles(self, X: Any, levels: Any) -> Any:
            centre = np.column_stack([np.ones(len(X)), X]) @ self.coefficients_
            return centre[:, None] + np.quantile(self.residuals_, levels)

    data, test = make_sine_spread(12_000, random_state=0), make_sine_spread(5000, random_state=1)
    errors = [
        np.abs(data.coverage(test.X, model.fit(data.X.to_numpy(), data.y).predict_interval(test.X.to_numpy())) - 0.9)
        for model in (ICQR(Line(), partition="auto", random_state=0), CQR(Line(), random_state=0))
    ]
    assert errors[0].mean() < 0.5 * errors[1].mean()


# -- Determinism, degenerate rows, files -----------------------------------------------------------------------------


def test_the_seed_decides_whatever_n_jobs(fitted: ICQR) -> None:
    with joblib.parallel_config(backend="threading"):
        at_once = ICQR(LIGHT, partition="auto", random_state=0, n_jobs=2).fit(X, Y)
    pd.testing.assert_frame_equal(fitted.selection_, at_once.selection_)
    np.testing.assert_array_equal(fitted.predict_interval(X), at_once.predict_interval(X))
    assert clone(fitted).partition == "auto"


def test_a_constant_target_gives_one_group() -> None:
    model = ICQR(LIGHT, partition="auto", random_state=0).fit(X[["a"]], np.full(len(X), 3.0))
    assert model.n_groups_ == 1
    np.testing.assert_allclose(model.predict_interval(X[["a"]]), 3.0, atol=1e-6)


def test_a_new_fit_forgets_the_old_choice(fitted: ICQR) -> None:
    model = copy.deepcopy(fitted)
    assert hasattr(model, "selection_")
    assert not hasattr(model.set_params(partition=WholePartition()).fit(X, Y), "selection_")


@pytest.mark.parametrize("partition", ["best", "", 3, ScorePartition])
def test_other_words_are_refused(partition: Any) -> None:
    with pytest.raises(ValueError, match=r"partition must be KMeansPartition\(\), .*'auto', or an object .* got"):
        ICQR(LIGHT, partition=partition, random_state=0).fit(X, Y)


# -- Models that are slow to predict ---------------------------------------------------------------------------------


def wide_rows(n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, n_columns))
    return X, X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=3000)


def fitted_counting(n_columns: int, **parameters: Any) -> tuple[ICQR, int]:
    """Return ICQR of 2,000 training rows around fitted bounds, and how many rows these predicted."""
    n_predicted = 0

    def lower(X: Any) -> Any:
        nonlocal n_predicted
        n_predicted += len(X)
        return X[:, 0] - 1.645 * (0.1 + X[:, 1])

    others = {"median": lambda X: X[:, 0], "upper": lambda X: X[:, 0] + 1.645 * (0.1 + X[:, 1])}
    bounds = prefit(lower=lower, **others, levels=(0.05, 0.5, 0.95))
    model = ICQR(bounds, random_state=0, **parameters).fit(*wide_rows(n_columns))
    return model, n_predicted


@pytest.mark.parametrize("n_columns", [2, 20, 78])
def test_importance_costs_a_slow_model_no_more_than_the_choice_itself(n_columns: int) -> None:
    model, n_predicted = fitted_counting(n_columns, partition="auto")
    # Training rows twice, calibration rows, and up to 500 of these for the leak alarm.
    assert n_predicted - (2 * 2000 + 1000 + 500) <= 2 * 2000
    assert model.importances_["share"].nlargest(2).index.tolist() == [0, 1]
    assert fitted_counting(n_columns)[1] > 2 * n_predicted or n_columns == 2  # K-means alone has no such limit


def test_importance_that_would_cost_a_slow_model_too_much_is_left_out_and_said() -> None:
    with pytest.warns(UserWarning, match="The importance of columns is not measured") as caught:
        model, n_predicted = fitted_counting(80, partition="auto")
    assert n_predicted == 2 * 2000 + 1000
    assert not hasattr(model, "importances_")
    assert model.selection_["chosen"].sum() == 1
    (warning,) = caught
    assert warning.filename == __file__
    said = str(warning.message)
    assert "each of 80 columns in 50 rows, the model would predict 4050 rows, and partition='auto' allows it" in said
    assert said.endswith("importance=PermutationImportance(max_rows=50) measures it all the same.")
    measured, n_predicted = fitted_counting(80, partition="auto", importance=PermutationImportance(max_rows=50))
    assert measured.importances_["share"].nlargest(2).index.tolist() == [0, 1]
    assert n_predicted == 2 * 2000 + 1000 + 500 + 5 * 50 * 81


def test_a_model_that_is_quick_by_its_trees_has_no_such_limit() -> None:
    X, y = wide_rows(80)
    model = ICQR(LGBMRegressor(n_estimators=3, n_jobs=1, verbosity=-1), partition="auto", random_state=0).fit(X, y)
    assert model.importances_["std"].max() > 0  # over five repeats


def test_a_file_keeps_the_choice(tmp_path: Any, fitted: ICQR) -> None:
    save(fitted, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    assert again.partition == "auto"
    pd.testing.assert_frame_equal(again.selection_, fitted.selection_)
    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))
