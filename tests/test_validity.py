"""Coverage is what was promised: simulations over thousands of calibration sets, with a deliberately bad model.

A model is fitted once. Then each of the draws has calibration rows and test rows of its own. Calibrating the draws one
after the other is slow, so column `DRAW` of X says to which draw a row belongs, and `KeepApart` makes each group of
each draw a group of its own: one call of `calibrate` then does the work of thousands, with the same result
(`test_draws_kept_apart_equal_draws_one_by_one`).
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr import CQR, ICQR, AutoICQR, Naive, prefit
from icqr.partition import GroupPartition, KMeansPartition, ScorePartition, WholePartition

DRAWS = 2000
DRAW = 3
KINDS = ("cqr", "cqr-r", "cqr-m")


# -- The data, the bad model, and how draws are kept apart -----------------------------------------------


def sample(rng, n, draws=1):
    """Draw skewed, heteroscedastic rows: column 0 moves y, column 1 its spread, column 2 nothing, 3 is the draw."""
    X = np.column_stack([rng.uniform(size=(n * draws, 3)), np.repeat(np.arange(draws), n)])
    noise = (0.3 + 3 * X[:, 1] ** 2) * (rng.gamma(2.0, size=len(X)) - 2)
    return X, 4 * X[:, 0] + noise


class BadQuantiles(BaseEstimator):
    """Quantiles with half the slope, the wrong spread, off centre, and in the wrong order for every other row."""

    def fit(self, X, y):
        return self

    def predict_quantiles(self, X, levels):
        spread = 0.5 + X[:, 1:2] + X[:, 0:1]
        quantiles = 1 + 2 * X[:, 0:1] + spread * (2 * np.square(levels) - 0.6)
        turned = (X[:, 2] > 0.5)[:, None]
        return np.where(turned, quantiles[:, ::-1], quantiles)


class WholeQuantiles(BadQuantiles):
    """The same, on a lattice."""

    def predict_quantiles(self, X, levels):
        return np.round(super().predict_quantiles(X, levels))


class BadRegressor(RegressorMixin, BaseEstimator):
    """A prediction that is off centre."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return 1 + 2 * X[:, 0]


class WholeRegressor(BadRegressor):
    """The same, on a lattice."""

    def predict(self, X):
        return np.round(super().predict(X))


class KeepApart:
    """A fitted partition with each draw's groups apart: group g of draw d is number d · n_groups + g."""

    def __init__(self, partition, draws):
        self.partition = partition
        self.n_groups_ = draws * partition.n_groups_

    def assign(self, X):
        draw = X[:, DRAW].astype(int)
        return draw * self.partition.n_groups_ + self.partition.assign(X)


def keep_apart(model, draws=DRAWS):
    model.partition_ = KeepApart(model.partition_, draws)
    model.n_groups_ = model.partition_.n_groups_
    return model


def fitted(model, seed=0):
    X, y = sample(np.random.default_rng(seed), 3000)
    return model.fit(X, y)


def simulate(model, n_calibration, n_test=60, rounded=False, seed=1):
    """Return a row per test row that has a promise: its draw, its group, what was promised, and whether it held."""
    rng = np.random.default_rng(seed)
    (X, y), (X_test, y_test) = sample(rng, n_calibration, DRAWS), sample(rng, n_test, DRAWS)
    y, y_test = (np.round(y), np.round(y_test)) if rounded else (y, y_test)
    groups = model.partition_.assign(X_test)
    keep_apart(model).calibrate(X, y)
    lower, upper = model.predict_interval(X_test).T
    promises = model.certificate().groups.iloc[model.partition_.assign(X_test)]
    table = pd.DataFrame(
        {
            "draw": X_test[:, DRAW].astype(int),
            "group": groups,
            "promised": promises["promised"].to_numpy(),
            "held": (lower <= y_test) & (y_test <= upper),
        }
    )
    return table[promises["guarantee"].isin(["group-wise", "marginal"]).to_numpy()]


def excess(table):
    """Return coverage minus promise, in standard errors of the mean over draws; draws are the independent units."""
    by_draw = (table["held"] - table["promised"]).groupby(table["draw"]).mean()
    assert len(by_draw) > DRAWS / 2
    return by_draw.mean() / (by_draw.std() / np.sqrt(len(by_draw)))


def excesses(table):
    """Return the excess in each group and over all rows."""
    groups = {f"group {group}": excess(rows) for group, rows in table.groupby("group")}
    return {**groups, "all": excess(table)}


def assert_exact(table, n_groups):
    found = excesses(table)
    assert len(found) == n_groups + 1
    assert all(abs(value) < 4 for value in found.values()), found


def assert_at_least(table, n_groups):
    found = excesses(table)
    assert len(found) == n_groups + 1
    assert all(value > -4 for value in found.values()), found


# -- Every method, conformity, symmetry and side ---------------------------------------------------------

SETTINGS = [
    *({"conformity": kind, "symmetric": symmetric} for kind in KINDS for symmetric in (True, False)),
    *({"conformity": kind, "side": side} for kind in KINDS for side in ("lower", "upper")),
]


def by_values(settings):
    return "-".join(str(value) for value in settings.values())


def three_groups(estimator=None, **settings):
    """Make ICQR with three K-means groups; where one is too small, nothing but infinity is promised."""
    partition = KMeansPartition(choose=3)
    settings = {"coverage": 0.8, "small_groups": "infinite", "random_state": 0, **settings}
    return ICQR(estimator or BadQuantiles(), partition=partition, **settings)


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_icqr_holds_in_every_group(settings):
    assert_exact(simulate(fitted(three_groups(**settings)), n_calibration=80), n_groups=3)


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_cqr_holds_over_all_rows(settings):
    model = fitted(CQR(BadQuantiles(), coverage=0.8, random_state=0, **settings))
    assert_exact(simulate(model, n_calibration=23, n_test=30), n_groups=1)


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
def test_naive_holds_over_all_rows(side):
    model = fitted(Naive(BadRegressor(), coverage=0.8, side=side, random_state=0))
    assert_exact(simulate(model, n_calibration=23, n_test=30), n_groups=1)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_icqr_holds_at_other_coverages(coverage):
    assert_exact(simulate(fitted(three_groups(coverage=coverage)), n_calibration=120), n_groups=3)


def test_icqr_with_the_groups_it_chooses_itself_holds_in_every_group():
    model = fitted(ICQR(BadQuantiles(), coverage=0.9, small_groups="infinite", calibration_size=150, random_state=0))
    n_groups = model.partition_.n_groups_
    assert n_groups >= 3
    assert_exact(simulate(model, n_calibration=150), n_groups)


# The arithmetic of the settings is tested above; with these groups, all of them only in `make test-all`.
@pytest.mark.parametrize(
    "settings", [SETTINGS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in SETTINGS[1:])], ids=by_values
)
def test_groups_by_difficulty_hold(settings):
    partition = ScorePartition(n_groups=3)
    model = ICQR(BadQuantiles(), 0.8, partition=partition, small_groups="infinite", random_state=0, **settings)
    assert_exact(simulate(fitted(model), n_calibration=80), n_groups=3)


OTHERS = [{"conformity": "cqr-r"}, {"symmetric": False}, {"side": "upper"}]


@pytest.mark.parametrize("settings", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=str)
def test_groups_that_auto_chooses_hold(settings):
    model = fitted(ICQR(BadQuantiles(), 0.8, partition="auto", small_groups="infinite", random_state=0, **settings))
    n_groups = model.partition_.n_groups_
    assert n_groups >= 2
    assert_exact(simulate(model, n_calibration=30 * n_groups), n_groups)


@pytest.mark.parametrize("settings", [{}, pytest.param({"effort": "thorough"}, marks=pytest.mark.slow)], ids=by_values)
@pytest.mark.parametrize("coverage", [0.8, 0.5])
def test_auto_icqr_holds_in_every_group_at_the_fitted_coverage_and_at_another(settings, coverage):
    estimator = HistGradientBoostingRegressor(max_iter=5, early_stopping=False, random_state=0)
    model = AutoICQR(estimator, 0.8, partition=ScorePartition(3), small_groups="infinite", random_state=0, **settings)
    n_groups = fitted(model).n_groups_
    assert n_groups == 3
    assert_exact(simulate(model.set_params(coverage=coverage), n_calibration=30 * n_groups), n_groups)


class OneLine(BaseEstimator):
    """A line of a given slope, and the quantiles of the residuals of the rows that it was fitted on."""

    def fit(self, X, y):
        self.left_ = y - 2 * X[:, 0]
        return self

    def predict_quantiles(self, X, levels):
        return 2 * X[:, :1] + np.quantile(self.left_, levels)


CROSSED = [{}, {"symmetric": False}, {"side": "lower"}, {"side": "upper"}, {"conformity": "cqr-m"}]


def assert_about_and_at_least(held, coverage, promised):
    """Coverage is about what was asked for, which is more than theory promises."""
    error = np.std(held) / np.sqrt(len(held))
    assert promised < coverage - 4 * error < np.mean(held) < coverage + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("settings", CROSSED, ids=str)
def test_cross_calibration_holds_on_average_and_keeps_its_promise(settings):
    rng, n, n_new, held = np.random.default_rng(0), 60, 20, []
    model = CQR(OneLine(), 0.8, calibration="cross", random_state=0, **settings)
    for _ in range(DRAWS):
        X, y = sample(rng, n + n_new)
        X = X[:, :2]
        lower, upper = model.fit(X[:n], y[:n]).predict_interval(X[n:]).T
        held.append(np.mean((lower <= y[n:]) & (y[n:] <= upper)))
    assert_about_and_at_least(held, 0.8, model.certificate().marginal)


@pytest.mark.slow
def test_cross_calibration_holds_in_a_users_own_groups():
    rng, n, n_new, held = np.random.default_rng(0), 120, 40, {0: [], 1: []}
    halves = GroupPartition(lambda X: X[:, 1] > 0.5)
    model = ICQR(OneLine(), 0.8, calibration="cross", partition=halves, random_state=0)
    for _ in range(DRAWS):
        X, y = sample(rng, n + n_new)
        X = X[:, :2]
        lower, upper = model.fit(X[:n], y[:n]).predict_interval(X[n:]).T
        inside = (lower <= y[n:]) & (y[n:] <= upper)
        for group in held:
            held[group].append(inside[(X[n:, 1] > 0.5) == group].mean())
    for group, promised in enumerate(model.certificate().groups["promised"].iloc[:2]):
        assert_about_and_at_least(held[group], 0.8, promised)


# Groups that are learned from the rows that are scored: the promise is approximate. AutoICQR takes 0.2 s for a draw.
LEARNED = [
    (ICQR(OneLine(), 0.8, calibration="cross", partition=KMeansPartition(choose=2), random_state=0), DRAWS),
    (AutoICQR(OneLine(), 0.8, random_state=0), 300),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "draws"), LEARNED, ids=["K-means", "AutoICQR"])
def test_cross_calibration_holds_on_average_over_groups_that_it_learns(model, draws):
    rng, n, n_new, held, several = np.random.default_rng(0), 240, 40, [], 0
    for _ in range(draws):
        X, y = sample(rng, n + n_new)
        X = X[:, :2]
        lower, upper = model.fit(X[:n], y[:n]).predict_interval(X[n:]).T
        held.append(np.mean((lower <= y[n:]) & (y[n:] <= upper)))
        several += model.n_groups_ > 1
    assert several > draws / 2
    assert_about_and_at_least(held, 0.8, model.certificate().marginal)


def test_a_users_own_groups_hold():
    halves = GroupPartition(lambda X: X[:, 1] > 0.7)
    model = fitted(ICQR(BadQuantiles(), coverage=0.8, partition=halves, small_groups="infinite", random_state=0))
    assert_exact(simulate(model, n_calibration=60), n_groups=2)


# -- Where it may only exceed ----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_lattice_values_may_only_exceed(settings):
    model = fitted(three_groups(WholeQuantiles(), **settings))
    assert_at_least(simulate(model, n_calibration=80, rounded=True), n_groups=3)


class FarOff(BadQuantiles):
    """Bounds far too wide for most rows, so that many intervals collapse."""

    def predict_quantiles(self, X, levels):
        spread = 0.1 + 50 * X[:, 1:2] * X[:, 2:3]
        return 4 * X[:, 0:1] + spread * (2 * np.asarray(levels) - 1)


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_collapsed_intervals_may_only_exceed(settings):
    model = fitted(CQR(FarOff(), coverage=0.8, random_state=0, **settings))
    assert_at_least(simulate(model, n_calibration=23, n_test=30), n_groups=1)


# -- Ties, of which random ones are left out ---------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_lattice_values_are_exact_in_every_group_with_random_ties(settings):
    model = fitted(three_groups(WholeQuantiles(), coverage=0.9, ties="random", **settings))
    assert_exact(simulate(model, n_calibration=120, rounded=True), n_groups=3)


@pytest.mark.parametrize("settings", SETTINGS, ids=by_values)
def test_lattice_values_are_exact_with_few_rows_and_random_ties(settings):
    # With one offset per side and fewer rows, some bounds collapse at the median, and coverage exceeds.
    n_calibration = 9 if settings.get("symmetric", True) else 23
    model = fitted(CQR(WholeQuantiles(), coverage=0.8, ties="random", random_state=0, **settings))
    assert_exact(simulate(model, n_calibration, n_test=30, rounded=True), n_groups=1)


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
def test_naive_is_exact_with_random_ties(side):
    model = fitted(Naive(WholeRegressor(), coverage=0.8, side=side, ties="random", random_state=0))
    assert_exact(simulate(model, n_calibration=9, n_test=30, rounded=True), n_groups=1)


# -- What the certificate and the guarantee say ----------------------------------------------------------


def redrawn(model, hard, n_calibration, rng):
    """Calibrate once, the hard group's y blown up; give coverage of all and of hard rows, and the certificate."""
    X, y = sample(rng, n_calibration + 100)
    y = np.where(hard(X), 20 * y, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*group 1 has", category=UserWarning)
        model.calibrate(X[:n_calibration], y[:n_calibration])
        lower, upper = model.predict_interval(X[n_calibration:]).T
    held = (lower <= y[n_calibration:]) & (y[n_calibration:] <= upper)
    in_hard = held[hard(X[n_calibration:])]
    return held.mean(), in_hard.mean() if len(in_hard) else np.nan, model.certificate()


@pytest.mark.parametrize(
    ("rare", "n_calibration"),
    [pytest.param(0.03, 29, id="often unseen", marks=pytest.mark.slow), pytest.param(0.08, 110, id="at the edge")],
)
def test_the_marginal_promise_is_true_with_a_hard_group_that_is_too_small(rare, n_calibration):
    def hard(X):
        return X[:, 1] > 1 - rare

    model = fitted(ICQR(BadQuantiles(), coverage=0.9, partition=GroupPartition(hard), random_state=0))
    rng = np.random.default_rng(1)
    results = [redrawn(model, hard, n_calibration, rng) for _ in range(DRAWS)]
    small = np.array([certificate.groups["n"][1] < 9 for *_, certificate in results])
    assert small.mean() > 0.3, "the group is too small in many draws"
    assert np.nanmean([in_hard for _, in_hard, _ in results], where=small) < 0.88, "and then the offset falls short"
    above = np.array([held - certificate.marginal for held, _, certificate in results])
    assert above.mean() > -4 * above.std(ddof=1) / np.sqrt(DRAWS)


@pytest.mark.slow
def test_the_marginal_promise_is_true_where_hard_rows_are_always_of_a_new_group():
    zero = dict.fromkeys(("lower", "median", "upper"), lambda X: 0 * X[:, 0])
    bounds = prefit(**zero, levels=(0.25, 0.5, 0.75))
    rng = np.random.default_rng(1)
    above = []
    for _ in range(400):
        hard = rng.uniform(size=500) < 0.5
        names, y = np.where(hard, rng.uniform(size=500), -1.0), rng.normal(scale=np.where(hard, 100, 1))
        model = ICQR(bounds, coverage=0.5, partition=GroupPartition(0), random_state=0)
        with warnings.catch_warnings(action="ignore"):  # about groups without calibration rows, which is the point
            lower, upper = model.fit(names[:300, None], y[:300]).predict_interval(names[300:, None]).T
        above.append(np.mean((lower <= y[300:]) & (y[300:] <= upper)) - model.certificate().marginal)
    assert np.mean(above) > -4 * np.std(above, ddof=1) / np.sqrt(len(above))


def test_fresh_rows_make_the_algorithm_as_printed_exact():
    model = fitted(ICQR.as_printed(BadQuantiles(), coverage=0.8, small_groups="infinite", random_state=0))
    assert model.certificate().guarantee.startswith("approximate")
    n_groups = model.partition_.n_groups_
    table = simulate(model, n_calibration=40 * n_groups, n_test=20 * n_groups)
    assert model.certificate().guarantee == "group-wise"
    assert_exact(table, n_groups)


# -- The simulation itself -------------------------------------------------------------------------------


def test_draws_kept_apart_equal_draws_one_by_one():
    rng = np.random.default_rng(1)
    (X, y), (X_test, _) = sample(rng, 90, draws=5), sample(rng, 20, draws=5)
    apart, single = keep_apart(fitted(three_groups()), draws=5), fitted(three_groups())
    together = apart.calibrate(X, y).predict_interval(X_test)
    for draw in range(5):
        rows, test_rows = X[:, DRAW] == draw, X_test[:, DRAW] == draw
        alone = single.calibrate(X[rows], y[rows]).predict_interval(X_test[test_rows])
        np.testing.assert_array_equal(together[test_rows], alone)


def test_the_bound_is_sharp_enough_to_see_a_rank_that_is_one_off():
    model = fitted(CQR(BadQuantiles(), coverage=0.8, random_state=0))
    table = simulate(model, n_calibration=99, n_test=30)
    assert abs(excess(table)) < 4
    assert excess(table.assign(promised=81 / 100)) < -4
    assert excess(table.assign(promised=79 / 100)) > 4


def test_cqr_is_icqr_with_one_group():
    X, y = sample(np.random.default_rng(2), 600)
    for settings in SETTINGS:
        one = CQR(BadQuantiles(), random_state=0, **settings).fit(X, y)
        other = ICQR(BadQuantiles(), partition=WholePartition(), random_state=0, **settings).fit(X, y)
        np.testing.assert_array_equal(one.predict_interval(X), other.predict_interval(X))
