"""Each metric against a hand-computed case, against MAPIE and covmetrics, and in simulations whose truth is known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_pinball_loss

from icqr import metrics as m

INF = float("inf")
Y = np.array([1.0, 2.0, 3.0, 4.0])
INTERVALS = np.array([[0.0, 1.0], [2.5, 3.0], [2.0, 4.0], [0.0, 4.0]])  # the second misses by 0.5; widths 1, 0.5, 2, 4
METRICS: dict[str, Callable[[Any, Any], Any]] = {
    "coverage_score": m.coverage_score,
    "mean_width": m.mean_width,
    "width_summary": m.width_summary,
    "interval_score": lambda y, i: m.interval_score(y, i, coverage=0.9),
    "coverage_by_group": lambda y, i: m.coverage_by_group(y, i, np.arange(len(y)) % 2),
    "coverage_gap": lambda y, i: m.coverage_gap(y, i, np.arange(len(y)) % 2, coverage=0.9),
    "size_stratified_coverage": m.size_stratified_coverage,
    "coverage_width_correlation": m.coverage_width_correlation,
    "hsic": m.hsic,
    "interval_iou": lambda y, i: m.interval_iou(y, i, [[0, 1]] * len(y)),
    "worst_slab_coverage": lambda y, i: m.worst_slab_coverage(y, i, np.arange(len(y))[:, None]),
    "excess_risk": lambda y, i: m.excess_risk(y, i, np.arange(len(y))[:, None], coverage=0.9, n_splits=2),
}


def simulate(seed: int, n: int = 300) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    width = rng.gamma(3, size=n)
    centre = rng.normal(size=n)
    return centre + rng.normal(size=n), np.column_stack([centre - width / 2, centre + width / 2])


def with_coverage(rng: np.random.Generator, probability: Any) -> tuple[Any, Any]:
    """y uniform on [0, 1] and intervals [0, p]: the coverage at each row is p."""
    return rng.random(len(probability)), np.column_stack([np.zeros(len(probability)), probability])


# By hand


def test_crps_by_hand_and_as_an_integral() -> None:
    assert m.crps([3.0], [[1.0]]) == 2.0  # one point: the absolute error
    assert m.crps([1.0, 1.0], [[0.0, 2.0], [1.0, 1.0]], sample_weight=[1, 3]) == 0.125
    rng = np.random.default_rng(0)
    y, points = rng.normal(size=20), rng.normal(size=(20, 30))
    grid = np.linspace(-6, 6, 24_001)
    shares = (points[:, :, None] <= grid).mean(axis=1)
    integral = ((shares - (y[:, None] <= grid)) ** 2).sum(axis=1) * (grid[1] - grid[0])
    assert m.crps(y, points) == pytest.approx(integral.mean(), rel=1e-3)
    with pytest.raises(ValueError, match=r"points must have the shape \(n, m\)"):
        m.crps([1.0], [1.0])
    with pytest.raises(ValueError, match="points must be finite; row 0 has one that is not"):
        m.crps([1.0], [[INF, 0.0]])


def test_pit_deviation_by_hand() -> None:
    table = m.pit_deviation([0.5, 0.2, 0.7], groups=["b", "a", "a"])
    assert table["n"].to_dict() == {"a": 2, "b": 1}
    assert table["deviation"].to_dict() == pytest.approx({"a": 0.3, "b": 0.5})
    rng = np.random.default_rng(0)
    below = [m.pit_deviation(rng.uniform(size=100))["p_value"].item() < 0.05 for _ in range(400)]
    assert 8 <= sum(below) <= 36  # 20 expected
    with pytest.raises(ValueError, match="pit must hold numbers from 0 to 1"):
        m.pit_deviation([0.5, np.nan])
    with pytest.raises(ValueError, match="groups must have a label for each of 1 rows"):
        m.pit_deviation([0.5], groups=[])


def test_coverage_and_width_by_hand() -> None:
    assert m.coverage_score(Y, INTERVALS) == 0.75
    assert m.coverage_score(Y, INTERVALS, sample_weight=[1, 2, 1, 0]) == 0.5
    assert m.mean_width(Y, INTERVALS) == 7.5 / 4
    assert m.mean_width(Y, INTERVALS, sample_weight=[0, 1, 1, 0]) == 1.25


def test_clopper_pearson_by_hand() -> None:
    # k = n: lower bound (tail)^(1/n); k = 0: its mirror image; 8 of 10 as printed in tables.
    low, high = m.binomial_interval([10, 0, 8], [10, 10, 10])
    np.testing.assert_allclose(low, [0.025**0.1, 0, 0.44390], atol=5e-6)
    np.testing.assert_allclose(high, [1, 1 - 0.025**0.1, 0.97479], atol=5e-6)
    assert m.binomial_interval(0, 0) == (0, 1)


@pytest.mark.parametrize(("weight", "k", "n"), [(None, 3, 4), ([7] * 4, 3, 4), ([1, 1, 0, 0], 1, 2)])
def test_weights_count_as_an_effective_number_of_rows(weight: Any, k: int, n: int) -> None:
    """Equal weights leave the interval exact; weight on half of the rows counts half of them."""
    table = m.coverage_by_group(Y, INTERVALS, ["a"] * 4, sample_weight=weight)
    np.testing.assert_allclose(table[["coverage_lower", "coverage_upper"]].iloc[0], m.binomial_interval(k, n))


def test_width_summary_is_pandas_describe() -> None:
    summary = m.width_summary(Y, INTERVALS)
    describe = pd.Series([1, 0.5, 2, 4]).describe()
    assert list(summary.index) == ["min", "max", "mean", "std", "Q1", "median", "Q3", "IQR", "n", "n_infinite"]
    expected = describe[["min", "max", "mean", "std", "25%", "50%", "75%"]]
    np.testing.assert_allclose(summary.iloc[:7], expected)
    assert summary["IQR"] == describe["75%"] - describe["25%"]


def test_interval_score_by_hand() -> None:
    # Widths sum to 7.5, the one miss costs 2 / 0.1 * 0.5 = 10.
    assert m.interval_score(Y, INTERVALS, coverage=0.9) == pytest.approx(17.5 / 4)
    assert m.interval_score(Y, INTERVALS, coverage=0.9, sample_weight=[0, 1, 0, 1]) == pytest.approx(14.5 / 2)


def test_pinball_loss_by_hand_and_as_in_scikit_learn() -> None:
    # Level 0.1: errors 1 and -1 cost 0.1 and 0.9; level 0.9: error -2 costs 0.2, error 0 nothing.
    assert m.pinball_loss([1, 2], [[0, 3], [3, 2]], [0.1, 0.9]) == pytest.approx((0.1 + 0.9 + 0.2 + 0) / 4)
    assert m.pinball_loss([1, 2], [[0, 3], [3, 2]], [0.1, 0.9], [3, 1]) == pytest.approx((3 * 0.3 + 0.9) / 8)
    y, q = simulate(0)
    expected = np.mean([mean_pinball_loss(y, q[:, j], alpha=level) for j, level in enumerate([0.1, 0.7])])
    assert m.pinball_loss(y, q, [0.1, 0.7]) == pytest.approx(expected)
    assert m.pinball_loss(y, q[:, 0], 0.1) == pytest.approx(mean_pinball_loss(y, q[:, 0], alpha=0.1))


def test_interval_score_is_the_pinball_loss_of_its_bounds() -> None:
    y, intervals = simulate(1)
    pinball = m.pinball_loss(y, intervals, [0.05, 0.95])
    assert m.interval_score(y, intervals, coverage=0.9) == pytest.approx(2 * pinball * 2 / 0.1)


def test_coverage_by_group_by_hand() -> None:
    table = m.coverage_by_group(Y, INTERVALS, ["b", "a", "a", "b"])
    assert table.index.to_list() == ["a", "b"]
    assert table["n"].to_list() == [2, 2]
    assert table["coverage"].to_list() == [0.5, 1.0]
    assert table["mean_width"].to_list() == [1.25, 2.5]
    np.testing.assert_allclose(table[["coverage_lower", "coverage_upper"]].loc["a"], m.binomial_interval(1, 2))
    weighted = m.coverage_by_group(Y, INTERVALS, ["b", "a", "a", "b"], sample_weight=[1, 1, 3, 0])
    assert weighted["coverage"].to_list() == [0.75, 1.0]
    assert weighted["share"].to_list() == [0.8, 0.2]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_a_group_are_a_group(missing: Any) -> None:
    table = m.coverage_by_group(Y, INTERVALS, ["b", missing, "a", "b"])
    assert table["n"].to_list() == [1, 2, 1]
    assert table.index.isna().tolist() == [False, False, True]
    assert table["coverage"].iloc[-1] == 0


def test_coverage_gap_by_hand() -> None:
    groups = ["a", "b", "b", "b"]  # coverage 1 and 2/3
    assert m.coverage_gap(Y, INTERVALS, groups, coverage=0.9) == pytest.approx((0.1 + 0.9 - 2 / 3) / 2)
    assert m.coverage_gap(Y, INTERVALS, groups, coverage=0.9, weighted=True) == pytest.approx(0.025 + 0.675 - 0.5)


def test_strata_by_hand() -> None:
    by_size = m.size_stratified_coverage(Y, INTERVALS, n_bins=2)
    assert by_size["coverage"].to_list() == [0.5, 1.0]
    assert by_size.index.to_list() == [pd.Interval(0.5, 1, "both"), pd.Interval(2, 4, "both")]


def test_equal_widths_share_a_stratum() -> None:
    assert m.size_stratified_coverage(Y, [[0, 3]] * 4)["n"].to_list() == [4]


def test_widths_that_differ_by_rounding_are_equal() -> None:
    rng = np.random.default_rng(0)
    y, prediction = rng.normal(size=1000), rng.lognormal(3, 3, size=1000)
    intervals = np.column_stack([prediction - 16.487, prediction + 16.487])
    assert len(np.unique(intervals[:, 1] - intervals[:, 0])) > 5
    assert m.size_stratified_coverage(y, intervals)["n"].to_list() == [1000]
    assert np.isnan(m.coverage_width_correlation(y, intervals))
    assert m.hsic(y, intervals) == 0
    two = intervals + np.where(np.arange(1000) < 400, 1e-9, 0)[:, None] * [-1, 1] * prediction[:, None]
    assert len(m.size_stratified_coverage(y, two)) > 1  # more than rounding


def test_correlation_and_hsic_by_hand() -> None:
    width, covered = [1, 0.5, 2, 4], [1.0, 0.0, 1.0, 1.0]
    assert m.coverage_width_correlation(Y, INTERVALS) == pytest.approx(np.corrcoef(width, covered)[0, 1])
    assert np.isnan(m.coverage_width_correlation(Y, [[0, 3]] * 4))
    assert m.hsic(Y, [[0, 3]] * 4) == 0
    # Two widths, 2 standard deviations apart, that tell "covered" exactly.
    by_hand = 2 * (1 - np.exp(-1)) * 2 * (1 - np.exp(-4)) / 9
    assert m.hsic([0, 0, 5, 5], [[0, 1], [0, 1], [0, 2], [0, 2]]) == pytest.approx(by_hand, abs=1e-6)


def test_hsic_is_the_trace_of_the_definition() -> None:
    y, intervals = simulate(2)
    width = intervals[:, 1] - intervals[:, 0]
    covered = ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).astype(float)
    centre = np.eye(len(y)) - 1 / len(y)
    one = np.exp(-np.square(np.subtract.outer(width, width) / width.std()))
    two = np.exp(-np.square(np.subtract.outer(covered, covered)))
    exact = np.trace(one @ centre @ two @ centre) / (len(y) - 1) ** 2
    assert m.hsic(y, intervals) == pytest.approx(exact, abs=1e-7)
    assert m.hsic(60 * y, 60 * intervals) == pytest.approx(exact, abs=1e-7)


def test_iou_by_hand() -> None:
    known = [[0, 2], [0, 1], [2, 4], [-INF, 4]]
    # 1/2, apart, the same, one of them infinite
    assert m.interval_iou(Y, INTERVALS, known) == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    infinite = m.interval_iou([0, 0, 0], [[0, INF], [0, INF], [1, 1]], [[5, INF], [-INF, INF], [1, 1]])
    assert infinite == pytest.approx((1 + 0.5 + 1) / 3)
    assert m.interval_iou([0, 0], [[1, 1], [0, 1]], [[2, 2], [0, 1]], sample_weight=[3, 1]) == 0.25


# Infinite bounds: peers raise, or return an infinite mean width without a word


def test_infinite_bounds_have_a_stated_meaning() -> None:
    intervals = [[-INF, INF], [3, INF], [2, 4], [0, 4]]
    assert m.coverage_score(Y, intervals) == 0.75
    with pytest.warns(UserWarning, match="2 of 4 intervals are infinite.*width_summary"):
        assert m.mean_width(Y, intervals) == INF
    assert m.mean_width(Y, intervals, sample_weight=[0, 0, 1, 1]) == 3
    assert m.width_summary(Y, intervals)[["min", "mean", "n", "n_infinite"]].to_list() == [2, 3, 4, 2]
    assert m.width_summary([0], [[-INF, INF]]).isna().sum() == 8
    assert m.interval_score(Y, intervals, coverage=0.9) == INF
    assert m.pinball_loss([1], [[-INF, INF]], [0.1, 0.9]) == INF
    assert m.coverage_by_group(Y, intervals, [0, 0, 1, 1])["mean_width"].to_list() == [INF, 3]
    assert m.size_stratified_coverage(Y, intervals, n_bins=2)["coverage"].to_list() == [1, 0.5]


WITHOUT_WIDTHS = ("coverage_score", "coverage_gap", "worst_slab_coverage", "excess_risk")


@pytest.mark.filterwarnings("ignore:.*intervals are infinite")
@pytest.mark.parametrize("name", METRICS)
def test_every_metric_takes_infinite_bounds(name: str) -> None:
    y, intervals = simulate(3, n=60)
    for lower, upper in [(-INF, INF), (0, INF), (-INF, 0)]:
        mixed = np.where((np.arange(60) % 3 == 0)[:, None], [lower, upper], intervals)
        for case in (mixed, np.broadcast_to([lower, upper], (60, 2))):
            found = METRICS[name](y, case)
            if name in WITHOUT_WIDTHS:
                assert repr(found) == repr(METRICS[name](y, np.clip(case, -1e9, 1e9)))


@pytest.mark.parametrize("name", ["coverage_width_correlation", "hsic"])
def test_dependence_leaves_infinite_widths_out(name: str) -> None:
    y, intervals = simulate(4)
    longer = np.vstack([intervals, [[-INF, 0]] * 5])
    assert METRICS[name](np.append(y, [0.0] * 5), longer) == pytest.approx(METRICS[name](y, intervals))


@pytest.mark.parametrize("name", METRICS)
def test_y_may_be_a_column(name: str) -> None:
    y, intervals = simulate(5, n=60)
    assert repr(METRICS[name](pd.DataFrame({"y": y}), intervals)) == repr(METRICS[name](y, intervals))


# Errors name the parameter, what is allowed, what came


@pytest.mark.parametrize(
    ("y", "message"), [(["1", "2"], "y must hold numbers, got the text '1'"), (["2026-01-01"] * 2, "got the text")]
)
def test_text_is_no_target(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        m.coverage_score(y, [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="y must hold numbers, got datetime64"):
        m.coverage_score(np.array(["2026-01-01"] * 2, dtype="datetime64[D]"), [[0, 1], [0, 1]])


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    ("y", "intervals", "message"),
    [
        ([1, np.nan], [[0, 1], [0, 1]], "y must be finite, got nan in row 1"),
        ([-INF, 1], [[0, 1], [0, 1]], "y must be finite, got -inf in row 0"),
        ([[1, 1], [2, 2]], [[0, 1], [0, 1]], r"y must have the shape \(n,\).*got \(2, 2\)"),
        ([], np.empty((0, 2)), "at least one row"),
        ([1, 2], [[0, 1]], r"intervals must have the shape \(n, 2\).*n = 2.*got \(1, 2\)"),
        ([1, 2], np.zeros((2, 2, 1)), r"got \(2, 2, 1\)"),
        ([1, 2], [[0, 1], [4.9, -4.9]], r"lower ≤ upper in every row.*got \[4.9, -4.9\] in row 1"),
        ([1, 2], [[0, np.nan], [0, 1]], r"no NaN.*got \[0.0, nan\] in row 0"),
        ([1, 2], [[0, 1], [INF, INF]], r"not both \+inf.*\[inf, inf\] in row 1"),
    ],
)
def test_bad_rows_are_named(name: str, y: Any, intervals: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        METRICS[name](y, intervals)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.interval_score(Y, INTERVALS, coverage=90), "coverage must be .* got 90; did you mean 0.9?"),
        (lambda: m.interval_score(Y, INTERVALS, coverage=1), "strictly between 0 and 1, got 1$"),
        (lambda: m.coverage_gap(Y, INTERVALS, Y, coverage=float("nan")), "coverage must be .* got nan"),
        (lambda: m.excess_risk(Y, INTERVALS, Y, coverage="90%"), "coverage must be .* got '90%'"),  # type: ignore[arg-type]
        (lambda: m.coverage_by_group(Y, INTERVALS, Y, confidence=95), "confidence must be .* did you mean 0.95?"),
        (lambda: m.worst_slab_coverage(Y, INTERVALS, Y, mass=0), "mass must be strictly between 0 and 1, got 0"),
        (lambda: m.worst_slab_coverage(Y, INTERVALS, [1, 1, 1, 1]), "X must have a column that varies"),
        (lambda: m.worst_slab_coverage(Y, INTERVALS, [1, 2]), r"X must have 4 rows.*got \(2, 1\)"),
        (lambda: m.coverage_score(Y, INTERVALS, sample_weight=[1, 2]), r"sample_weight .* \(4,\).*got \(2,\)"),
        (lambda: m.coverage_score(Y, INTERVALS, sample_weight=[1, 1, 1, -1]), "sample_weight .* negative.*-1.0"),
        (lambda: m.coverage_score(Y, INTERVALS, sample_weight=[0] * 4), "all 0"),
        (lambda: m.coverage_score(Y, INTERVALS, sample_weight=[1, np.nan, 1, 1]), "sample_weight .* row 1"),
        (lambda: m.coverage_by_group(Y, INTERVALS, ["a"]), "groups must have 4 values.*got 1"),
        (lambda: m.size_stratified_coverage(Y, INTERVALS, n_bins=0), "n_bins must be at least 1, got 0"),
        (lambda: m.interval_iou(Y, INTERVALS, INTERVALS[:, ::-1]), "known must have lower ≤ upper"),
        (lambda: m.binomial_interval(3, 2), "covered must be between 0 and n"),
        (lambda: m.pinball_loss([1], [[1, 2]], [0.1, 1]), "levels must be strictly between 0 and 1"),
        (lambda: m.pinball_loss([1, 2], [[1, 2, 3], [1, 2, 3]], [0.1, 0.9]), r"quantiles .* got \(2, 3\)"),
        (lambda: m.pinball_loss([1, 2], [[1, np.nan], [1, 2]], [0.1, 0.9]), "quantiles must not be NaN.*row 0"),
        (lambda: m.pinball_loss([1, INF], [[1, 2], [1, INF]], [0.1, 0.9]), "y must be finite, got inf in row 1"),
    ],
)
def test_bad_parameters_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# Properties

numbers = st.floats(-1e6, 1e6)
cases = st.lists(st.tuples(numbers, numbers, numbers, st.integers(0, 3)), min_size=1, max_size=30).filter(
    lambda rows: any(row[3] for row in rows)
)


@settings(max_examples=50)
@given(cases)
def test_integer_weights_repeat_rows(rows: list[tuple[float, float, float, int]]) -> None:
    table = np.array(rows)
    y, intervals, weight = table[:, 0], np.sort(table[:, 1:3], axis=1), table[:, 3].astype(int)
    repeated, longer = np.repeat(y, weight), np.repeat(intervals, weight, axis=0)
    metrics: list[Callable[..., float]] = [
        m.coverage_score,
        m.mean_width,
        lambda *a, **k: m.interval_score(*a, coverage=0.8, **k),
        lambda *a, **k: m.pinball_loss(*a, [0.1, 0.9], **k),
        lambda *a, **k: m.interval_iou(*a, [[0, 1]] * len(a[0]), **k),
        lambda *a, **k: m.coverage_gap(*a, np.zeros(len(a[0])), coverage=0.9, **k),
    ]
    for metric in metrics:
        assert metric(y, intervals, sample_weight=weight) == pytest.approx(metric(repeated, longer), rel=1e-9)


@given(cases, st.floats(0, 100))
def test_wider_intervals_cover_more(rows: list[tuple[float, float, float, int]], extra: float) -> None:
    table = np.array(rows)
    y, intervals = table[:, 0], np.sort(table[:, 1:3], axis=1)
    assert m.coverage_score(y, intervals + np.array([-extra, extra])) >= m.coverage_score(y, intervals)
    assert m.interval_score(y, intervals, coverage=0.9) >= m.mean_width(y, intervals)
    assert m.interval_iou(y, intervals, intervals) == 1
    other = np.sort(table[:, :2], axis=1)
    overlap = m.interval_iou(y, intervals, other)
    assert 0 <= overlap <= 1
    assert overlap == pytest.approx(m.interval_iou(y, other, intervals))


@settings(max_examples=50)
@given(cases, st.integers(1, 8))
def test_strata_hold_each_row_once(rows: list[tuple[float, float, float, int]], n_bins: int) -> None:
    table = np.array(rows)
    y, intervals = table[:, 0], np.sort(table[:, 1:3], axis=1)
    strata = m.size_stratified_coverage(y, intervals, n_bins=n_bins)
    assert strata["n"].sum() == len(y)
    assert (strata["n"] > 0).all()
    assert (strata["n"] * strata["coverage"]).sum() / len(y) == pytest.approx(m.coverage_score(y, intervals))
    assert len(strata) <= n_bins


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: len({row[:2] for row in rows}) > 1
    ),
    st.floats(0.05, 0.95),
)
def test_no_slab_along_a_feature_looks_worse_than_the_chosen(rows: list[tuple[int, int, bool]], mass: float) -> None:
    table = np.array(rows)
    X, y, n = table[:, :2], np.where(table[:, 2], 0.0, 9.0), len(rows)
    slab = m.worst_slab_coverage(y, [[-1, 1]] * n, X, mass=mass, n_directions=0)

    # The half of the rows that chooses, and all slabs along a feature that hold enough of them.
    search = np.setdiff1d(np.arange(n), np.array_split(np.random.default_rng(0).permutation(n), 2)[1])
    X, covered = X[search], y[search] == 0
    slabs = [(x >= a) & (x <= b) for x in X.T for a in x for b in x]
    least = min(covered[inside].mean() for inside in slabs if inside.sum() >= np.ceil(mass * len(search)))

    projection = X[:, [int(name) for name in slab.direction.index]] @ slab.direction.to_numpy()
    inside = (projection >= slab.lower) & (projection <= slab.upper)
    assert inside.sum() >= np.ceil(mass * len(search))
    assert covered[inside].mean() == pytest.approx(least)


# Against peers


@pytest.fixture
def mapie() -> ModuleType:
    module = pytest.importorskip("mapie.metrics.regression", reason="MAPIE is not installed")
    assert isinstance(module, ModuleType)
    return module


def test_agrees_with_mapie(mapie: ModuleType) -> None:
    y, intervals = simulate(5)
    assert m.coverage_score(y, intervals) == pytest.approx(mapie.regression_coverage_score(y, intervals)[0])
    assert m.mean_width(y, intervals) == pytest.approx(mapie.regression_mean_width_score(intervals[:, :, None])[0])
    theirs = mapie.regression_mwi_score(y, intervals[:, :, None], confidence_level=0.8)
    assert m.interval_score(y, intervals, coverage=0.8) == pytest.approx(theirs)
    strata = m.size_stratified_coverage(y, intervals, n_bins=7)
    np.testing.assert_allclose(strata["coverage"], mapie.regression_ssc(y, intervals, num_bins=7)[0])
    scale = (intervals[:, 1] - intervals[:, 0]).std()
    assert m.hsic(y, intervals) == pytest.approx(mapie.hsic(y / scale, intervals / scale)[0] ** 2, abs=1e-7)


@pytest.fixture
def covmetrics() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns at import
        module = pytest.importorskip("covmetrics", reason="covmetrics needs torch, which is not a test dependency")
    assert isinstance(module, ModuleType)
    return module


def test_agrees_with_covmetrics(covmetrics: ModuleType) -> None:
    y, intervals = simulate(6)
    groups = np.random.default_rng(6).integers(0, 5, len(y))
    width, covered = intervals[:, 1] - intervals[:, 0], ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).astype(float)
    for weighted in (False, True):
        ours = m.coverage_gap(y, intervals, groups, coverage=0.9, weighted=weighted)
        assert ours == pytest.approx(covmetrics.CovGap().evaluate(groups, covered, alpha=0.1, weighted=weighted))
    ours = m.coverage_by_group(y, intervals, groups)["coverage"].min()
    assert ours == pytest.approx(covmetrics.FSC().evaluate(groups, covered))
    ours = m.coverage_width_correlation(y, intervals)
    assert ours == pytest.approx(covmetrics.PearsonCorrelation().evaluate(width, covered))
    theirs = covmetrics.HSIC().evaluate(width / width.std(), covered)
    assert m.hsic(y, intervals) == pytest.approx(theirs, abs=1e-7)


def test_excess_risk_agrees_with_covmetrics(covmetrics: ModuleType) -> None:
    y, intervals = simulate(7, n=500)
    covered = ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).astype(float)
    X = np.column_stack([intervals.sum(axis=1), intervals[:, 1] - intervals[:, 0]])
    theirs = covmetrics.ERT(LogisticRegression).evaluate_multiple_losses(X, covered, alpha=0.1, random_state=42)
    ours = m.excess_risk(y, intervals, X, coverage=0.9, classifier=LogisticRegression(), random_state=42)["value"]
    names = {"l1": "L1_miscoverage", "squared": "brier_score"}
    for form, name in names.items():
        for side in ("", "_under", "_over"):
            assert ours[form + side] == pytest.approx(theirs[f"ERT_{name}{side}"], abs=1e-12)


# Simulations with known truth


def test_excess_risk_of_oracle_intervals_is_noise() -> None:
    risks = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y, intervals = with_coverage(rng, np.full(2000, 0.9))
        risks.append(m.excess_risk(y, intervals, rng.normal(size=(2000, 4)), coverage=0.9))
    values, errors = (pd.DataFrame([r[c].to_dict() for r in risks]) for c in ("value", "standard_error"))
    within = (values.abs() <= 2 * errors).sum()
    assert within["l1"] >= 10  # P(fewer) < 2 % if each is with 95 %
    assert (values["squared"] <= 2 * errors["squared"]).sum() >= 10
    assert -0.001 < values["squared"].mean() < 0  # biased downwards, not clipped


@pytest.mark.slow
def test_excess_risk_measures_a_known_error_from_below() -> None:
    risks = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"x": rng.random(4000), "noise": rng.normal(size=4000), "kind": rng.choice(["a", "b"], 4000)})
        y, intervals = with_coverage(rng, np.where((X["x"] < 0.5) & (X["kind"] == "a"), 0.7, 0.95))
        risks.append(m.excess_risk(y, intervals, X, coverage=0.9))
    # A quarter of the rows is 0.2 below the promise, the others are 0.05 above.
    truth = {"l1": 0.0875, "l1_under": 0.05, "l1_over": 0.0375}
    truth |= {"squared": 0.011875, "squared_under": 0.01, "squared_over": 0.001875}
    values = pd.DataFrame([risk["value"] for risk in risks])
    for name, true in truth.items():
        assert values[name].mean() < true + 3 * values[name].sem()
        assert values[name].mean() > 0.8 * true
    np.testing.assert_allclose(values["l1"], values["l1_under"] + values["l1_over"])
    np.testing.assert_allclose(values["squared"], values["squared_under"] + values["squared_over"])


def test_excess_risk_without_misses_is_the_distance_from_the_promise() -> None:
    risk = m.excess_risk(np.zeros(100), [[-1, 1]] * 100, np.arange(100), coverage=0.9)
    np.testing.assert_allclose(risk["value"], [0.1, 0, 0.1, 0.01, 0, 0.01], atol=1e-12)


def test_excess_risk_leaves_columns_out_that_are_nearly_empty() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.random(500)})
    y, intervals = with_coverage(rng, np.where(X["x"] < 0.5, 0.6, 0.95))
    alone = m.excess_risk(y, intervals, X, coverage=0.9)
    X["empty"], X["no text"], X["few"] = np.nan, None, np.where(X.index < 29, X["x"], np.nan)
    pd.testing.assert_frame_equal(m.excess_risk(y, intervals, X, coverage=0.9), alone)
    nothing = m.excess_risk(y, intervals, X[["empty", "no text"]], coverage=0.9)["value"]
    assert nothing["l1"] == pytest.approx(0.9 - m.coverage_score(y, intervals))  # all that is left is the mean


def test_the_worst_slab_finds_a_planted_one_along_a_feature() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((4000, 5)), columns=list("abcde")) * 100
    bad = (X["c"] > 20) & (X["c"] < 40)
    y, intervals = with_coverage(rng, np.where(bad, 0.5, 0.95))
    slab = m.worst_slab_coverage(y, intervals, X)
    assert slab.direction.abs().idxmax() == "c"
    assert slab.direction.abs().sum() == 1
    assert 15 < slab.lower < slab.upper < 45
    assert slab.interval[0] < 0.5 < slab.interval[1]
    assert slab.n == len(slab.rows)
    assert X["c"].iloc[slab.rows].between(slab.lower, slab.upper).all()
    assert slab.coverage == m.coverage_score(y[slab.rows], intervals[slab.rows])


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e300])
def test_the_worst_slab_is_the_same_in_any_unit(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((1000, 3))
    y, intervals = with_coverage(rng, np.where(X[:, 0] < 0.3, 0.5, 0.95))
    slab, other = (m.worst_slab_coverage(y, intervals, table) for table in (X, X * [scale, 1, 1]))
    np.testing.assert_array_equal(slab.rows, other.rows)
    projection = (X * [scale, 1, 1])[other.rows] @ other.direction.to_numpy()
    assert ((projection >= other.lower) & (projection <= other.upper)).all()


def test_columns_of_the_same_name_are_two_columns() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((400, 2)))
    y, intervals = with_coverage(rng, np.where(X[0] < 0.3, 0.5, 0.95))
    twice = X.set_axis(["a", "a"], axis=1)
    pd.testing.assert_frame_equal(*(m.excess_risk(y, intervals, table, coverage=0.9) for table in (X, twice)))
    assert m.worst_slab_coverage(y, intervals, twice).direction.index.tolist() == ["a (0)", "a (1)"]


def test_the_worst_slab_finds_a_planted_one_across_features() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 2)) * [1, 1000] + [5, 0]
    along = (X[:, 0] - 5 + X[:, 1] / 1000) / np.sqrt(2)
    y, intervals = with_coverage(rng, np.where(np.abs(along) < 0.25, 0.5, 0.95))
    slab = m.worst_slab_coverage(y, intervals, X)
    assert slab.coverage < 0.65
    assert np.mean(np.abs(along[slab.rows]) < 0.25) > 0.7
    projection = X[slab.rows] @ slab.direction.to_numpy()
    assert ((projection >= slab.lower) & (projection <= slab.upper)).all()


def test_the_worst_slab_finds_a_category_and_survives_gaps() -> None:
    rng = np.random.default_rng(2)
    kind = rng.choice(["bus", "car", None], 3000, p=[0.2, 0.7, 0.1])
    X = pd.DataFrame({"kind": kind, "x": np.where(rng.random(3000) < 0.1, np.nan, rng.random(3000))})
    y, intervals = with_coverage(rng, np.where(kind == "bus", 0.6, 0.95))
    slab = m.worst_slab_coverage(y, intervals, X)
    assert (kind[slab.rows] == "bus").all()
    assert slab.coverage == pytest.approx(0.6, abs=0.1)


def test_the_worst_slab_of_oracle_intervals_is_unbiased() -> None:
    covered = n = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y, intervals = with_coverage(rng, np.full(400, 0.9))
        slab = m.worst_slab_coverage(y, intervals, rng.normal(size=(400, 3)), n_directions=200, random_state=seed)
        covered, n = covered + round(slab.coverage * slab.n), n + slab.n
    assert abs(covered / n - 0.9) < 3 * np.sqrt(0.09 / n)


def test_results_depend_on_the_seed_alone() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y, intervals = with_coverage(rng, np.full(300, 0.9))
    one, two = (m.worst_slab_coverage(y, intervals, X, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(one.rows, two.rows)
    first, second = (m.excess_risk(y, intervals, X, coverage=0.9, random_state=5) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


def test_data_frames_of_any_kind() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "number": pd.array([None, *range(199)], dtype="Int64"),
            "flag": rng.random(200) < 0.5,
            "when": pd.date_range("2024-01-01", periods=200),
            "text": [None, *[f"name {i}" for i in range(199)]],
            "infinite": [INF, *range(199)],
        },
        index=np.arange(200)[::-1],
    )
    y, intervals = with_coverage(rng, np.full(200, 0.8))
    table = pd.DataFrame(intervals, columns=["lower", "upper"], index=frame.index)
    series = pd.Series(y, index=frame.index)
    for X in (frame, pl.from_pandas(frame), frame.to_numpy(dtype=object)):
        assert m.excess_risk(series, table, X, coverage=0.8).notna().all(axis=None)
        assert m.worst_slab_coverage(series, table, X).n > 0
    polars = m.coverage_by_group(pl.Series(y), table, pl.Series(["a", "b"] * 100))
    pd.testing.assert_frame_equal(polars, m.coverage_by_group(y, intervals, ["a", "b"] * 100))


def test_all_is_sorted_and_each_name_has_an_example() -> None:
    assert m.__all__ == sorted(m.__all__)
    functions = [getattr(m, name) for name in m.__all__ if name != "WorstSlab"]
    assert all(">>>" in (function.__doc__ or "") for function in functions)
