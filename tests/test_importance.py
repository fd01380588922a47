"""Algorithm 2 by hand, against scikit-learn, and what the leak alarm says."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import QuantileRegressor
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

from icqr import ICQR, PermutationImportance, datasets, prefit
from icqr.importance import leak_alarm, median_absolute_error
from icqr.metrics import pinball_loss
from icqr.partition import KMeansPartition
from icqr.quantiles import QuantileModel

LEVELS = (0.05, 0.5, 0.95)


class Model:
    """A quantile model made of one function of the rows: the median, with bounds 1 to both sides."""

    levels_ = LEVELS

    def __init__(self, median: Callable[[Any], Any]) -> None:
        self.median = median

    def predict(self, X: Any) -> Any:
        return np.asarray(self.median(X), dtype=float)[:, None] + [-1.0, 0.0, 1.0]


def linear(X: Any) -> Any:
    return 2 * X[:, 0] - X[:, 1]


def noisy_rows(n: int = 400, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, linear(X) + rng.normal(size=n)


# -- Algorithm 2 -----------------------------------------------------------------------------------------------------


def test_two_rows_have_two_permutations() -> None:
    # Rows (0, 5) and (1, 5), y = 0 and 1, the median is column 0: swapping it gives errors 1 and 1 instead of 0 and 0.
    X, y = np.array([[0.0, 5.0], [1.0, 5.0]]), np.array([0.0, 1.0])
    importance = PermutationImportance(n_repeats=200, error=median_absolute_error)
    table = importance.compute(Model(lambda X: X[:, 0]), X, y, random_state=0)
    swapped = table["mean"][0]
    assert abs(swapped - 0.5) < 4 * 0.5 / np.sqrt(200)
    assert swapped * 200 == pytest.approx(round(swapped * 200))
    assert table["std"][0] == pytest.approx(np.sqrt(swapped * (1 - swapped)))
    assert table["mean"][1] == table["std"][1] == 0
    assert table["share"].tolist() == [1.0, 0.0]
    assert table["error_ratio"].tolist() == [np.inf, 1.0]  # the base error is 0


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    "error", [None, median_absolute_error, lambda y, q, levels: float(np.max(np.abs(y - q[:, 0])))]
)
def test_importance_is_the_mean_absolute_change_of_the_error(replace: bool, error: Any) -> None:
    X, y = noisy_rows(50)
    asked: list[Any] = []

    def median(rows: Any) -> Any:
        asked.append(rows.copy())
        return linear(rows)

    model = Model(median)
    importance = PermutationImportance(n_repeats=4, error=error, replace=replace)
    table = importance.compute(model, X, y, random_state=3)

    measure = error or pinball_loss
    base = measure(y, model.predict(X), LEVELS)
    for column, permuted in enumerate(asked[1:4]):  # after the rows as they are
        changes = []
        for rows in np.split(permuted, 4):
            changes.append(abs(base - measure(y, model.predict(rows), LEVELS)))
            np.testing.assert_array_equal(np.delete(rows, column, axis=1), np.delete(X, column, axis=1))
            assert (sorted(rows[:, column]) == sorted(X[:, column])) != replace
            assert set(rows[:, column]) <= set(X[:, column])
        assert table["mean"][column] == pytest.approx(np.mean(changes))
        assert table["std"][column] == pytest.approx(np.std(changes))
        assert table["error_ratio"][column] == pytest.approx((base + np.mean(changes)) / base)
    assert table["share"].to_numpy() == pytest.approx(table["mean"] / table["mean"].sum())
    assert table["mean"][2] == 0  # the model does not use it


def test_agrees_with_scikit_learn_in_expectation() -> None:
    class Median(RegressorMixin, BaseEstimator):
        def fit(self, X: Any, y: Any) -> Any:
            return self

        def predict(self, X: Any) -> Any:
            return linear(X)

    X, y = noisy_rows(200)
    ours = PermutationImportance(n_repeats=100, error=median_absolute_error).compute(
        Model(linear), X, y, random_state=0
    )
    theirs = permutation_importance(Median(), X, y, scoring="neg_mean_absolute_error", n_repeats=100, random_state=1)
    tolerance = 4 * theirs.importances_std * np.sqrt(2 / 100)
    assert np.all(np.abs(ours["mean"] - theirs.importances_mean) <= tolerance)
    assert ours["std"].to_numpy() == pytest.approx(theirs.importances_std, rel=0.3)


def test_number_of_jobs_changes_no_bit() -> None:
    X, y = noisy_rows()
    tables = [
        PermutationImportance().compute(Model(linear), X, y, random_state=5, n_jobs=n_jobs) for n_jobs in (None, 2, 4)
    ]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], table, check_exact=True)
    other = PermutationImportance().compute(Model(linear), X, y, random_state=6)
    assert not np.array_equal(other["mean"], tables[0]["mean"])


def test_category_is_permuted_as_one_column() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"city": rng.choice(["a", "b", "c"], size=300), "size": rng.normal(size=300)})
    seen = []

    def median(X: pd.DataFrame) -> Any:
        seen.append(X)
        return X["city"].map({"a": 0.0, "b": 5.0, "c": 9.0}).to_numpy()

    y = median(X)
    table = PermutationImportance(n_repeats=2).compute(Model(median), X, y, random_state=0)
    assert table["feature"].tolist() == ["city", "size"]
    assert table["share"].tolist() == [1.0, 0.0]
    stacked = next(frame for frame in seen if len(frame) == 600 and not frame["city"][:300].equals(X["city"]))
    for frame in (stacked[:300], stacked[300:].reset_index(drop=True)):
        assert not frame["city"].equals(X["city"])
        assert frame["city"].value_counts().equals(X["city"].value_counts())
        assert frame["size"].equals(X["size"])


def test_category_of_a_one_hot_model_counts_as_one() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.normal(size=200), "city": rng.choice(["a", "b", "c"], size=200)})
    y = X["city"].map({"a": 0.0, "b": 5.0, "c": 9.0}).to_numpy() + rng.normal(size=200)
    model = QuantileModel(QuantileRegressor(alpha=0.0)).fit(X, y, LEVELS)
    table = PermutationImportance().compute(model, X, y, random_state=0)
    assert table["feature"].tolist() == ["size", "city"]
    assert table["share"][1] > 0.9


# -- Degenerate cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3.0, np.nan])
def test_constant_column_weighs_nothing_even_if_predictions_waver(value: float) -> None:
    X, y = noisy_rows()
    X[:, 2] = value
    rng = np.random.default_rng(0)
    wavering = Model(lambda X: linear(X) + 1e-9 * rng.normal(size=len(X)))
    table = PermutationImportance().compute(wavering, X, y, random_state=0)
    assert table["mean"][2] == table["share"][2] == 0
    assert np.all(table["mean"][:2] > 0)


def test_constant_model_has_zero_shares() -> None:
    X, y = noisy_rows()
    table = PermutationImportance().compute(Model(lambda X: np.zeros(len(X))), X, y, random_state=0)
    assert table["share"].tolist() == table["mean"].tolist() == [0.0] * 3
    assert table["error_ratio"].tolist() == [1.0] * 3


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**1000])
def test_huge_and_tiny_targets_have_the_same_shares(scale: float) -> None:
    X, y = noisy_rows()
    importance = PermutationImportance(error=median_absolute_error)
    plain = importance.compute(Model(linear), X, y, random_state=0)
    scaled = importance.compute(Model(lambda X: linear(X) * scale), X, y * scale, random_state=0)
    assert scaled["share"].tolist() == plain["share"].tolist()
    for name in ("mean", "std"):
        assert scaled[name].to_numpy() == pytest.approx(plain[name].to_numpy() * scale, rel=1e-12, abs=0)


def test_ratio_of_a_tiny_base_error_is_infinite_and_of_a_negative_one_unknown() -> None:
    X = np.array([[0.0], [1.0], [2.0]])
    y = np.array([1e-315, 1.0, 2.0])
    model = Model(lambda X: X[:, 0])
    tiny = PermutationImportance(error=median_absolute_error).compute(model, X, y, random_state=0)
    assert tiny["error_ratio"][0] == np.inf
    score = PermutationImportance(error=lambda y, q, levels: -1 / (1 + median_absolute_error(y, q, levels)))
    assert score.compute(model, X, y, random_state=0)["error_ratio"].isna().all()


def test_at_most_max_rows_are_used() -> None:
    X, y = noisy_rows()
    sizes = set()

    def median(X: Any) -> Any:
        sizes.add(len(X))
        return linear(X)

    few = PermutationImportance(max_rows=30).compute(Model(median), X, y, random_state=0)
    assert sizes == {5 * 30}  # as they are; the five repeats of a column at once, each on rows of its own
    whole = PermutationImportance(max_rows=None).compute(Model(median), X, y, random_state=0)
    assert sizes == {5 * 30, 400, 5 * 400}
    assert few["share"].to_numpy() == pytest.approx(whole["share"].to_numpy(), abs=0.1)
    frame = PermutationImportance(max_rows=30).compute(
        Model(lambda X: linear(X.to_numpy())), pd.DataFrame(X), y, random_state=0
    )
    assert frame["mean"].tolist() == few["mean"].tolist()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("n", "size", "rounds"), [(100, 20, [5]), (23, 4, [5]), (9, 4, [2, 2, 1]), (7, 7, [1, 1, 1, 1, 1])]
)
def test_each_repeat_compares_its_own_rows(n: int, size: int, rounds: list[int], replace: bool) -> None:
    # The column is y itself: the rows of each error are known by their y, and a column's values stay within a repeat.
    y, seen = np.arange(float(n)), []

    def error(y: Any, q: Any, levels: Any) -> float:
        seen.append((set(y.tolist()), set(q[:, 1].tolist())))
        return median_absolute_error(y, q, levels)

    importance = PermutationImportance(error=error, replace=replace, max_rows=size)
    importance.compute(Model(lambda X: X[:, 0]), y[:, None], y, random_state=0)
    bases, permuted = seen[1:6], seen[6:]  # after that of all rows together
    assert [rows for rows, _ in bases] == [rows for rows, _ in permuted]
    for rows, values in permuted:
        assert len(rows) == size
        assert values <= rows if replace else values == rows
    # Repeats of a round have no row in common.
    repeats = iter(rows for rows, _ in bases)
    for count in rounds:
        assert len(set.union(*(next(repeats) for _ in range(count)))) == count * size


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_repeats": 0}, "n_repeats must be a whole number, 1 or more, got 0"),
        ({"n_repeats": 2.5}, r"n_repeats must be a whole number, 1 or more, got 2\.5"),
        ({"max_rows": 0}, "max_rows must be a whole number, 1 or more, None for all rows, or 'auto', got 0"),
        ({"error": "mae"}, "error must be a function"),
        ({"error": lambda y, q, levels: np.nan}, "error must give a finite number, got nan"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    X, y = noisy_rows(20)
    with pytest.raises(ValueError, match=message):
        PermutationImportance(**parameters).compute(Model(linear), X, y, random_state=0)


def test_clone_keeps_parameters() -> None:
    importance = PermutationImportance(n_repeats=15, error=median_absolute_error, replace=True, data="calibration")
    assert clone(importance).get_params() == importance.get_params()


# -- Inside ICQR -----------------------------------------------------------------------------------------------------


def prefit_linear() -> Any:
    return prefit(lower=lambda X: linear(X) - 1.6, median=linear, upper=lambda X: linear(X) + 1.6, levels=LEVELS)


@pytest.mark.parametrize(
    ("data", "rows", "guarantee"),
    [("train", slice(0, 300), "group-wise"), ("calibration", slice(300, None), "approximate")],
)
def test_icqr_hands_over_the_rows_asked_for(data: str, rows: slice, guarantee: str) -> None:
    X, y = noisy_rows(500)
    seen = []

    def error(y: Any, quantiles: Any, levels: Any) -> float:
        seen.append(y)
        return pinball_loss(y, quantiles, levels)

    model = ICQR(
        prefit_linear(),
        importance=PermutationImportance(error=error, data=data),
        partition=KMeansPartition(choose=3),
        random_state=0,
    ).fit(X[:300], y[:300], X_calibration=X[300:], y_calibration=y[300:])
    assert all(np.array_equal(given, y[rows]) for given in seen)
    assert model.explain(X)["guarantee"].str.startswith(guarantee).all()


# -- The leak alarm --------------------------------------------------------------------------------------------------


def table_of(shares: list[float], ratios: list[float]) -> pd.DataFrame:
    names = [f"c{j}" for j in range(len(shares))]
    return pd.DataFrame({"feature": names, "share": shares, "error_ratio": ratios})


Y = np.tile([-1.0, 1.0], 50)  # its mean absolute deviation is 1


def alarms(table: pd.DataFrame, error: float) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leak_alarm(table, Y, Y + error)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("shares", "ratios", "error", "named"),
    [
        ([0.4, 0.3, 0.3], [5.0, 4.0, 3.0], 0.021, None),
        ([0.4, 0.3, 0.3], [5.0, 4.0, 3.0], 0.019, "'c0' and 'c1'"),
        ([0.01, 0.9, 0.06, 0.03], [1.0, 21.0, 1.5, 1.0], 0.05, "'c1' and 'c2'"),
        ([0.01, 0.97, 0.02], [1.0, 21.0, 1.0], 0.05, "'c1' may"),
        ([0.01, 0.97, 0.02], [1.0, 19.0, 1.0], 0.05, None),
        ([0.06, 0.9, 0.04], [1.0, 21.0, 1.0], 0.05, "'c1' and 'c0'"),
        ([0.06, 0.88, 0.06], [1.0, 21.0, 1.0], 0.05, None),
        ([0.01, 0.97, 0.02], [1.0, 21.0, 1.0], 0.11, None),  # good on the rows it knows by heart, not on new ones
        ([0.97, 0.03], [np.nan, np.nan], 0.05, None),
        ([0.01] * 100, [1.0] * 100, 0.0, "'c0' and 'c1'"),
    ],
)
def test_leak_alarm_conditions(shares: list[float], ratios: list[float], error: float, named: str | None) -> None:
    messages = alarms(table_of(shares, ratios), error)
    assert len(messages) == (named is not None)
    if named is not None:
        assert messages[0].startswith(f"{'Columns' if ' and ' in named else 'Column'} {named}")


def test_constant_target_is_no_leak() -> None:
    leak_alarm(table_of([0.0], [1.0]), np.ones(9), np.ones(9))


def leaking_rows() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=["age", "size", "total"])
    y = (X["age"] + rng.normal(size=600)).to_numpy()
    X["total"] = y
    return X, y


def test_icqr_names_the_leaking_column_and_the_line_that_called_it() -> None:
    X, y = leaking_rows()
    bounds = prefit(
        lower=lambda X: X["total"] - 0.1, median=lambda X: X["total"], upper=lambda X: X["total"] + 0.1, levels=LEVELS
    )
    with pytest.warns(UserWarning, match="Column 'total' may leak the target") as caught:
        ICQR(bounds, random_state=0).fit(X, y)
    assert caught[0].filename == __file__


def test_model_that_knows_its_training_rows_by_heart_is_no_leak() -> None:
    class Nearest(KNeighborsRegressor):
        def predict_quantiles(self, X: Any, levels: Any) -> Any:
            return self.predict(X)[:, None] + 0.1 * (np.asarray(levels) - 0.5)

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 1))
    y = X[:, 0] + rng.normal(scale=0.2, size=600)
    model = ICQR(Nearest(n_neighbors=1), partition=KMeansPartition(choose=4), random_state=0).fit(X, y)
    assert model.importances_["error_ratio"][0] > 20


def has_bike() -> bool:
    listed = datasets.list_datasets().set_index("name")
    return bool(listed["available"]["bike"])


@pytest.mark.skipif(not has_bike(), reason="the bike sharing file is not here")
@pytest.mark.parametrize("leak", [True, False])
def test_bike_sharing_raises_the_alarm_only_with_its_leak(leak: bool) -> None:
    X, y = datasets.fetch_bike_sharing(return_X_y=True, leak=leak)
    model = ICQR(
        HistGradientBoostingRegressor(max_iter=40, learning_rate=0.3, random_state=0),
        importance=PermutationImportance(n_repeats=1, max_rows=1000),
        partition=KMeansPartition(choose=3),
        random_state=0,
    )
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X, y)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == leak
    assert not leak or "Columns 'registered' and 'casual' may leak the target" in messages[0]
