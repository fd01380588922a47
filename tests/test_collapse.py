"""Quantile models that predict the same for nearly all rows: where that is wrong, and what is done about it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

from icqr import CQR, ICQR, QR, AutoICQR, ResidualQuantiles, load, prefit, save
from icqr.quantiles import QuantileModel
from icqr.reporting import summarize

HIST = HistGradientBoostingRegressor(max_iter=30, random_state=0)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(1500, 3))
# Zero in two thirds of the rows: by chance alone, or seldom where the first column is large.
BY_CHANCE = np.where(RNG.uniform(size=1500) < 2 / 3, 0.0, RNG.gamma(2, size=1500))
VARIES = np.where(RNG.uniform(size=1500) < np.where(X[:, 0] > 0.65, 0.2, 0.9), 0.0, RNG.gamma(2, size=1500))
SAME = "The quantile model predicts the same "


def constant(*values: float) -> Any:
    """Return a fitted model of constant bounds and median."""
    lower, median, upper = (lambda X, value=value: np.full(len(X), value) for value in values)
    return prefit(lower=lower, median=median, upper=upper, levels=(0.05, 0.5, 0.95))


# -- What is noticed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [QR, CQR, ICQR])
def test_a_constant_median_is_noticed_where_the_truth_varies(method: Any) -> None:
    with pytest.warns(UserWarning, match=SAME) as caught:
        model = method(HIST, random_state=0).fit(X, VARIES)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.collapse_ == str(caught[0].message)
    assert model.collapse_.startswith(f"{SAME}median (0) for nearly all training rows, though y varies. y is 0 in ")
    assert "of the rows, which a small tree finds, y is above this median in " in model.collapse_
    assert model.collapse_.endswith("Try AutoICQR, whose centre is learned by squared loss, or another quantile model.")
    assert np.ptp(model.predict(X)) < 1e-6  # the user's own model stays


def test_constants_that_are_right_are_no_collapse() -> None:
    rare = RNG.poisson(0.5 + X[:, 0]).astype(float)
    for y in (rare, BY_CHANCE):
        model = CQR(HIST, random_state=0).fit(X, y)  # warnings are errors
        assert model.collapse_ is None
        assert np.ptp(model.predict_quantiles(X)[:, 0]) < 1e-6  # the lower bound is 0 everywhere
    assert np.ptp(model.predict(X)) < 1e-6  # and so is the median, of which the columns say nothing


def test_a_constant_target_and_a_handful_of_rows_are_no_collapse() -> None:
    nearly = np.zeros(1500)
    nearly[:5] = 1.0
    assert QR(constant(-1, 0, 1), random_state=0).fit(X, nearly).collapse_ is None
    assert QR(constant(-1, 0, 1), random_state=0).fit(X[:19], X[:19, 0]).collapse_ is None


def test_all_constant_is_always_noticed() -> None:
    noise = np.random.default_rng(1).normal(size=1500)
    cases = {
        "by chance": ((-1.645, 0, 1.645), noise),
        "by columns": ((-1.645, 0, 1.645), 3 * X[:, 0] - 1.5),
        "far off": ((-5, -4, -3), noise),
        "tied": ((0, 0, 0), np.where(BY_CHANCE < 3, 0.0, BY_CHANCE)),
    }
    said = {}
    for name, (values, y) in cases.items():
        with pytest.warns(UserWarning, match=SAME):
            said[name] = QR(constant(*values), random_state=0).fit(X, y).collapse_
    all_of_them = "0.05-quantile (-1.645), median (0), 0.95-quantile (1.645) for nearly all training rows"
    assert f"{SAME}{all_of_them}" in said["by chance"]
    assert (
        "Either the columns say nothing about y, or the model needs more rows, more trees, or fewer"
        in said["by chance"]
    )
    assert "which a small tree finds, y is " in said["by columns"]
    assert "The model may have too few trees, or need too many rows in each leaf." in said["by columns"]
    assert "But in all rows, y is above this 0.95-quantile in 100% (allowed: 5%)." in said["far off"]
    assert (
        "where a value is so frequent, quantiles are equal to it unless the columns say much about y." in said["tied"]
    )


@pytest.mark.parametrize(("coverage", "named"), [(0.45, r"median \(0\), 0.55-quantile \(0\)"), (0.5, r"median \(0\)")])
def test_a_bound_on_one_side_has_its_own_level(coverage: float, named: str) -> None:
    with pytest.warns(UserWarning, match=f"{SAME}{named} for nearly all"):
        CQR(HIST, coverage, side="lower", random_state=0).fit(X, VARIES)


def test_columns_that_no_tree_reads_do_no_harm() -> None:
    days = pd.DataFrame({"day": pd.date_range("2026-01-01", periods=1500), "x": X[:, 0]})
    days.loc[3, "x"] = np.inf
    hour = make_column_transformer((_Hour(), ["day"]))
    with pytest.warns(UserWarning, match=f"{SAME}0.05-quantile"):
        CQR(make_pipeline(hour, HIST), random_state=0).fit(days, VARIES)
    with pytest.warns(UserWarning, match=f"{SAME}0.05-quantile"):
        QR(constant(-1, 0, 9), random_state=0).fit(days[["day"]], VARIES)


class _Hour:
    """Turns dates into a column that says nothing."""

    def fit(self, X: Any, y: Any = None) -> Any:
        return self

    def transform(self, X: Any) -> Any:
        return X.apply(lambda column: column.dt.hour).to_numpy()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}


# -- What takes the place of the default model -----------------------------------------------------------------------


@pytest.mark.parametrize("method", [QR, CQR, ICQR])
def test_two_stages_take_the_place_of_the_default_model(method: Any) -> None:
    with pytest.warns(UserWarning, match=r"So ResidualQuantiles\(\) takes the place of the default model"):
        model = method(random_state=0).fit(X, VARIES)
    assert isinstance(model.model_.estimator, ResidualQuantiles)
    assert model.estimator is None
    assert np.corrcoef(model.predict(X), X[:, 0])[0, 1] > 0.5
    if method is ICQR:
        assert model.importances_.set_index("feature")["share"].idxmax() == "x0"


@pytest.mark.filterwarnings(f"ignore:{SAME}:UserWarning")
def test_calibration_rows_have_no_say_in_it() -> None:
    quiet, loud = (
        CQR(random_state=0).fit(X[:1000], VARIES[:1000], X[1000:], y) for y in (VARIES[1000:], 9 * BY_CHANCE[1000:])
    )
    np.testing.assert_array_equal(quiet.predict_quantiles(X), loud.predict_quantiles(X))


@pytest.mark.filterwarnings(f"ignore:{SAME}:UserWarning")
def test_it_is_fitted_with_the_weights_and_counted_and_stored(tmp_path: Any) -> None:
    fit_params = {"sample_weight": 1 + X[:, 1], "X_val": X[:50], "y_val": VARIES[:50]}
    model = CQR(conformity="cqr-r", random_state=0).fit(X, VARIES, X[::3], VARIES[::3], **fit_params)
    alone = CQR(ResidualQuantiles(), conformity="cqr-r", random_state=0)
    alone.fit(X, VARIES, X[::3], VARIES[::3], sample_weight=1 + X[:, 1])
    np.testing.assert_array_equal(model.predict_interval(X), alone.predict_interval(X))
    assert (model.n_crossed_, model.conformity_) == (alone.n_crossed_, alone.conformity_)
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    assert again.collapse_ == model.collapse_


def test_the_default_model_stays_if_two_stages_collapse_as_well() -> None:
    rare = np.where(BY_CHANCE < 3, 0.0, BY_CHANCE)
    with pytest.warns(UserWarning, match=r"ResidualQuantiles\(\) collapses as well. Give more rows, columns that say"):
        model = CQR(coverage=0.5, random_state=0).fit(X, rare)
    assert isinstance(model.model_.estimator, HistGradientBoostingRegressor)
    with pytest.warns(UserWarning, match="Give it more rows, columns that say more about y, or another estimator"):
        AutoICQR(coverage=0.5, random_state=0).fit(X[:300], rare[:300])


@pytest.mark.filterwarnings(f"ignore:{SAME}:UserWarning")
def test_the_report_says_what_the_model_is() -> None:
    model = CQR(random_state=0).fit(X, VARIES)
    (facts,) = summarize(model, VARIES, X)["computed"]["models"]
    assert facts["model"] == "ResidualQuantiles(HistGradientBoostingRegressor())"
    assert facts["bounds"].startswith("in two stages")
    assert facts["constant quantiles"] == model.collapse_
    (facts,) = summarize(CQR(HIST, random_state=0).fit(X, X[:, 0]), VARIES, X)["computed"]["models"]
    assert "constant quantiles" not in facts


def test_other_models_are_left_as_they_are() -> None:
    """Only the default of a method is replaced: None inside a `QuantileModel` is the user's own choice."""
    with pytest.warns(UserWarning, match="Try AutoICQR"):
        model = CQR(QuantileModel(n_jobs=1), random_state=0).fit(X, VARIES)
    assert isinstance(model.model_.estimator, HistGradientBoostingRegressor)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_a_target_may_be_of_any_size(size: float) -> None:
    with pytest.warns(UserWarning, match=SAME):
        QR(constant(0, 0, size), random_state=0).fit(X, size * VARIES)


def test_of_a_range_that_overflows_nothing_is_said() -> None:
    QR(constant(0, 0, 8e307), random_state=0).fit(X, np.where(VARIES > 0, 8e307, -8e307))


def test_two_stages_inside_a_transformation_are_not_advised_to_use_two_stages() -> None:
    logs = TransformedTargetRegressor(HIST, func=np.log1p, inverse_func=np.expm1)
    with pytest.warns(UserWarning, match="Give it more rows, columns that say more about y, or another estimator"):
        AutoICQR(logs, coverage=0.5, random_state=0).fit(X[:300], np.where(BY_CHANCE < 3, 0.0, BY_CHANCE)[:300])
