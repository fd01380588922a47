"""Predictive distributions: calibrated in each group, coherent, and silent about what is unknown."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor

from icqr import CQR, ICQR, QR, AutoICQR, GroupPartition, Naive, PredictiveDistribution, load, prefit, save
from icqr.calibration import Calibration

Floats = NDArray[np.float64]
SMALL = HistGradientBoostingRegressor(max_iter=15)


def known_bounds(coverage: float = 0.5) -> Any:
    """Bounds that need no fit: the median is the first column; scores count in 1 below it and in 2 above it.

    The bounds are 0.5 and 2.5 away, 1.5 on average, and each side's scale is halfway between the two.
    """
    levels = (0.5 - coverage / 2, 0.5, 0.5 + coverage / 2)
    return prefit(lower=lambda X: X[:, 0] - 0.5, median=lambda X: X[:, 0], upper=lambda X: X[:, 0] + 2.5, levels=levels)


@lru_cache
def uncollapsed(**options: Any) -> CQR:
    """A model with these bounds, to calibrate."""
    y = np.linspace(-2, 2, 40)
    return CQR(known_bounds(), 0.5, random_state=0, **options).fit(y[:, None], y)


def by_hand(scores: list[float], **options: Any) -> PredictiveDistribution:
    """The distribution of two rows with the medians 0 and 10, from these signed scores; its coverage is 0.5."""
    t = np.array(scores)
    y = np.where(t < 0, t, 2 * t)
    model = uncollapsed(**options).calibrate(np.zeros((len(t), 1)), y)
    return model.predict_distribution(np.array([[0.0], [10.0]]))


def grouped(n: int, seed: int, discrete: bool = False) -> tuple[Floats, Floats]:
    """Rows in two groups: the second, a quarter of them, has three times the noise, skewed."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), np.arange(n) % 4 == 0])
    if discrete:
        X = np.round(X)
    y = X[:, 0] + np.where(X[:, 1] == 1, 3 * (rng.exponential(size=n) - 1), rng.normal(size=n))
    return X, np.round(y) if discrete else y


# -- By hand ---------------------------------------------------------------------------------------------------------


def test_probabilities_by_hand() -> None:
    distribution = by_hand([-2.0, -1.0, 1.0])
    # The points are -2, -1 and 2, with the cdf 1/4, 2/4 and 3/4. Between scores it is linear in the score: 1/2 above
    # the median, of a score of 0.25, is 1.25 of 2 from the second to the third.
    for y, expected in [
        (-9, 0.25),
        (-2, 0.25),
        (-1.5, 0.375),
        (-1, 0.5),
        (0.5, (2 + 1.25 / 2) / 4),
        (2, 0.75),
        (9, 0.75),
    ]:
        assert distribution.cdf(y)[0] == pytest.approx(expected)
        assert distribution.cdf([y, 10 + y]) == pytest.approx(expected)
        assert distribution.sf([y, 10 + y]) == pytest.approx(1 - expected)
    quantiles = distribution.ppf([0.0, 0.2, 0.25, 0.375, 0.5, 0.75, 0.8, 1.0])
    assert quantiles[0] == pytest.approx([-math.inf, -math.inf, -2, -1.5, -1, 2, math.inf, math.inf])
    assert quantiles[1] == pytest.approx(quantiles[0] + 10)
    assert distribution.median() == pytest.approx([-1, 9])
    assert distribution.mean() == pytest.approx([-1 / 3, 10 - 1 / 3])
    assert distribution.interval(0.5) == pytest.approx(np.array([[-2, 2], [8, 12]]))
    assert distribution.interval([0.5, 0.51])[0, :, 1].tolist() == [-math.inf, math.inf]
    # |x - y| is 3, 2 and 1 for y = 1; the pairs of points are 1, 3 and 4 apart: 6/3 - 8/9.
    assert distribution.crps([1, 11]) == pytest.approx(2 - 8 / 9)


def test_ties_jump_in_the_cdf() -> None:
    distribution = by_hand([-1.0, 0.0, 0.0, 0.0, 1.0])
    just_below = np.nextafter(0.0, -1.0)
    assert distribution.cdf(0.0)[0] == pytest.approx(4 / 6)
    assert distribution.cdf(just_below)[0] == pytest.approx(2 / 6)
    assert distribution.ppf([0.4, 0.5, 0.6])[0].tolist() == [0, 0, 0]
    draws = np.array([distribution.pit([0.0, 10.0], seed)[0] for seed in range(300)])
    assert 1 / 6 <= draws.min() < 0.2
    assert 4.9 / 6 - 0.03 < draws.max() <= 5 / 6


def test_limits_of_y_hold_the_unknown_part() -> None:
    distribution = by_hand([-2.0, -1.0, 1.0], y_min=-2.5, y_max=11.0)
    assert distribution.cdf([-2.6, 11.0]).tolist() == [0.0, 1.0]
    assert distribution.cdf([-2.5, 10.9]) == pytest.approx([0.25, (2 + 1.45 / 2) / 4])
    assert distribution.ppf([0.25, 0.75]).tolist() == [[-2.0, 2.0], [8.0, 11.0]]  # the second row's last point is 12
    assert distribution.ppf([0.2, 0.8]).tolist() == [[-2.5, 11.0], [-2.5, 11.0]]
    assert distribution.interval(0.9).tolist() == [[-2.5, 11.0], [-2.5, 11.0]]
    assert distribution.mean() == pytest.approx([-1 / 3, (8 + 9 + 11) / 3])
    assert distribution.sample(100, 0).max() == 11.0
    assert distribution.crps([1, 11]) == pytest.approx([2 - 8 / 9, 5 / 3 - (1 + 2 + 3) / 9])


def test_a_table_has_the_rows_names_and_the_picture_of_an_object_is_short() -> None:
    X, y = grouped(300, 0)
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"<row {i}>" for i in range(300)])
    distribution = CQR(SMALL, random_state=0).fit(frame, y).predict_distribution(frame)
    table = distribution.to_frame([0.1, 0.5])
    assert table.index.equals(frame.index)
    assert table.columns.tolist() == ["quantile_0.1", "quantile_0.5"]
    np.testing.assert_array_equal(table["quantile_0.5"], distribution.median())
    assert repr(distribution) == "<PredictiveDistribution: 300 rows, each with 100 points>"
    assert len(distribution) == 300
    html = distribution._repr_html_()
    assert "&lt;row 4&gt;" in html
    assert "row 5" not in html


# -- Properties ------------------------------------------------------------------------------------------------------

SCORES = st.lists(st.floats(-5, 5) | st.integers(-2, 2).map(float), min_size=1, max_size=30)


@given(SCORES, st.lists(st.floats(-20, 20), min_size=2, max_size=20))
def test_the_cdf_is_monotone_and_within_0_and_1(scores: list[float], values: list[float]) -> None:
    distribution = by_hand(scores)
    cdf = np.array([distribution.cdf(y)[0] for y in sorted(values)])
    assert (np.diff(cdf) >= 0).all()
    assert (cdf >= 1 / (len(scores) + 1)).all()
    assert (cdf <= len(scores) / (len(scores) + 1)).all()
    np.testing.assert_allclose(distribution.sf(values[0]), 1 - distribution.cdf(values[0]))


@given(SCORES, st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_ppf_is_the_inverse_of_the_cdf(scores: list[float], levels: list[float]) -> None:
    distribution = by_hand(scores)
    quantiles = distribution.ppf(sorted(levels))
    assert (quantiles[:, 1:] >= quantiles[:, :-1]).all()
    for level, y in zip(sorted(levels), quantiles[0], strict=True):
        if math.isfinite(y):  # the smallest y with cdf(y) >= level, but for rounding
            assert distribution.cdf(y + 1e-9)[0] >= level - 1e-9
            if y > distribution.ppf(1 / (len(scores) + 1))[0]:
                assert distribution.cdf(y - 1e-9)[0] <= level + 1e-6 / max(np.diff(sorted({*scores, 9.0})).min(), 1e-9)


@given(SCORES, st.lists(st.floats(0.01, 0.99), min_size=2, max_size=10))
def test_intervals_nest(scores: list[float], coverages: list[float]) -> None:
    intervals = by_hand(scores).interval(sorted(coverages))
    assert (intervals[:, 0, 1:] <= intervals[:, 0, :-1]).all()
    assert (intervals[:, 1, 1:] >= intervals[:, 1, :-1]).all()


@given(SCORES, st.floats(-9, 9), st.booleans())
def test_crps_is_the_integral_of_its_definition(scores: list[float], y: float, limited: bool) -> None:
    limits = {"y_min": -10.0, "y_max": 10.5} if limited else {}
    distribution = by_hand(scores, **limits)
    points = np.clip([t if t < 0 else 2 * t for t in scores], *(limits.values() or (-math.inf, math.inf)))
    knots = np.sort([*points, y])
    brute = sum(((points <= left).mean() - (y <= left)) ** 2 * (right - left) for left, right in pairwise(knots))
    assert distribution.crps([y, 10])[0] == pytest.approx(brute, abs=1e-9)
    assert distribution.mean()[0] == pytest.approx(points.mean(), abs=1e-9)


def test_crps_by_quadrature() -> None:
    distribution = by_hand([-1.5, -0.25, 0.5, 2.0])
    points = np.array([-1.5, -0.25, 1.0, 4.0])
    value, _ = integrate.quad(lambda z: ((points <= z).mean() - (z >= 0.3)) ** 2, -3, 6, points=[*points, 0.3])
    assert distribution.crps([0.3, 10.3]) == pytest.approx(value, abs=1e-8)


def test_the_order_of_rows_changesnullcontext() -> None:
    X, y = grouped(900, 0)
    model = ICQR(SMALL, partition=GroupPartition(1), random_state=0).fit(X, y)
    order = np.random.default_rng(0).permutation(len(X))
    one, other = model.predict_distribution(X), model.predict_distribution(X[order])
    np.testing.assert_array_equal(one.cdf(y)[order], other.cdf(y[order]))
    np.testing.assert_array_equal(one.ppf([0.2, 0.9])[order], other.ppf([0.2, 0.9]))
    np.testing.assert_array_equal(one.crps(y)[order], other.crps(y[order]))
    np.testing.assert_array_equal(one.interval(0.8)[order], other.interval(0.8))


# -- Validity, by simulation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("discrete", [False, True])
def test_pit_is_uniform_in_each_group(discrete: bool) -> None:
    # One new row in each group for each of 600 calibrations, so that the values are independent.
    values: dict[int, list[float]] = {0: [], 1: []}
    cdf: dict[int, list[float]] = {0: [], 1: []}
    for seed in range(600):
        X, y = grouped(60, seed, discrete)
        model = ICQR(known_bounds(), 0.5, partition=GroupPartition(1), random_state=0).fit(
            *grouped(20, 10_000 + seed), X, y
        )
        new, y_new = grouped(30, 50_000 + seed, discrete)
        first = [1, 0]  # a row of each group
        distribution = model.predict_distribution(new[first])
        pit = distribution.pit(y_new[first], random_state=seed)
        for group in (0, 1):
            values[group].append(pit[group])
            cdf[group].append(distribution.cdf(y_new[first])[group])
        if not discrete:  # without ties, the cdf is within 1 / (n + 1) of it
            assert (np.abs(distribution.cdf(y_new[first]) - pit) <= 1 / (distribution.sizes + 1) + 1e-12).all()
    for group in (0, 1):
        assert stats.kstest(values[group], "uniform").pvalue > 0.001
    if discrete:  # without the draws it is not
        assert stats.kstest(cdf[0], "uniform").pvalue < 1e-6


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("discrete", [False, True])
def test_an_interval_covers_at_least_what_it_promises(coverage: float, discrete: bool) -> None:
    n_calibrations, covered = 400, np.zeros(2)
    for seed in range(n_calibrations):
        X, y = grouped(80, seed, discrete)
        model = ICQR(known_bounds(), 0.5, partition=GroupPartition(1), random_state=0).fit(
            *grouped(20, 10_000 + seed), X, y
        )
        new, y_new = grouped(30, 50_000 + seed, discrete)
        first = [1, 0]  # a row of each group
        intervals = model.predict_distribution(new[first]).interval(coverage)
        covered += (intervals[:, 0] <= y_new[first]) & (y_new[first] <= intervals[:, 1])
    assert (covered >= stats.binom.ppf(0.001, n_calibrations, coverage)).all()


@pytest.mark.parametrize(
    "options", [{}, {"conformity": "cqr-r"}, {"conformity": "cqr-m"}, {"side": "upper"}, {"side": "lower"}]
)
def test_pit_is_uniform_for_every_score_and_side(options: dict[str, Any]) -> None:
    X, y = grouped(9000, 0)
    model = CQR(QuantileRegressor(alpha=0.0), random_state=0, **options).fit(X[:1000, :1], y[:1000])
    model.calibrate(X[1000:5000, :1], y[1000:5000])
    distribution = model.predict_distribution(X[5000:, :1])
    pit = distribution.pit(y[5000:], random_state=0)
    # Calibration and new rows are 4,000 each: a two-sample test.
    own = model.predict_distribution(X[1000:5000, :1]).pit(y[1000:5000], random_state=1)
    assert stats.ks_2samp(pit, own).pvalue > 0.001


@pytest.mark.parametrize("method", [Naive, AutoICQR])
def test_other_methods_have_distributions(method: Any) -> None:
    X, y = grouped(3000, 0)
    model = method(LinearRegression() if method is Naive else SMALL, random_state=0).fit(X[:2000], y[:2000])
    distribution = model.predict_distribution(X[2000:])
    intervals = distribution.interval(0.8)
    covered = (intervals[:, 0] <= y[2000:]) & (y[2000:] <= intervals[:, 1])
    assert covered.mean() == pytest.approx(0.8, abs=0.06)
    below = (y[2000:] <= distribution.ppf(0.3)).mean()
    assert below == pytest.approx(0.3, abs=0.06)
    assert distribution.crps(y[2000:]).mean() < np.abs(y[2000:] - distribution.median()).mean()


def test_naive_points_are_residuals_around_the_prediction() -> None:
    X, y = grouped(300, 0)
    model = Naive(LinearRegression(), random_state=0).fit(X[:100], y[:100], X[100:200], y[100:200])
    residuals = np.sort(y[100:200] - model.predict(X[100:200]))
    expected = model.predict(X[200:])[:, None] + residuals
    levels = np.arange(1, 101) / 101
    np.testing.assert_allclose(model.predict_distribution(X[200:]).ppf(levels), expected, atol=1e-9)


def test_after_cross_calibration_points_come_from_the_model_of_each_fold() -> None:
    X, y = grouped(240, 0)
    model = CQR(QuantileRegressor(alpha=0.0), 0.8, calibration="cross", random_state=0).fit(X, y)
    new, y_new = grouped(200, 1)
    lower, median, upper = np.moveaxis(model.model_.predict_each(new)[0], 2, 0)
    own = model.model_.out_of_fold_
    points = np.empty((len(new), len(X)))
    for i, fold in enumerate(model.model_.fold_of_):
        half = (own[i, 2] - own[i, 0]) / 2
        t = (y[i] - own[i, 1]) / ((half + (own[i, 1] - own[i, 0] if y[i] < own[i, 1] else own[i, 2] - own[i, 1])) / 2)
        distance = median[fold] - lower[fold] if t < 0 else upper[fold] - median[fold]
        scale = ((upper[fold] - lower[fold]) / 2 + distance) / 2
        points[:, i] = median[fold] + t * scale
    points.sort(axis=1)
    distribution = model.predict_distribution(new)
    np.testing.assert_allclose(distribution.ppf(np.arange(1, 241) / 241), points, atol=1e-9)
    np.testing.assert_allclose(distribution.mean(), points.mean(axis=1))
    np.testing.assert_allclose(distribution.interval(0.8), points[:, [23, 216]], atol=1e-9)
    brute = np.abs(points - y_new[:, None]).mean(axis=1)
    brute -= np.abs(points[:, :, None] - points[:, None]).mean(axis=(1, 2)) / 2
    np.testing.assert_allclose(distribution.crps(y_new), brute, atol=1e-9)
    assert set(np.round(distribution.sample(5, 0)[0], 9)) <= set(np.round(points[0], 9))
    assert stats.kstest(distribution.pit(y_new, random_state=0), "uniform").pvalue > 0.001


@pytest.mark.parametrize("calibration", ["split", "cross"])
def test_a_loaded_model_has_the_same_distributions(calibration: str, tmp_path: Path) -> None:
    X, y = grouped(400, 0)
    model = ICQR(SMALL, partition=GroupPartition(1), calibration=calibration, random_state=0).fit(X[:300], y[:300])
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    for _ in range(2):  # as it was saved, and calibrated afresh
        one, other = (each.predict_distribution(X[300:]) for each in (model, again))
        np.testing.assert_array_equal(one.ppf([0.1, 0.5, 0.9]), other.ppf([0.1, 0.5, 0.9]))
        np.testing.assert_array_equal(one.crps(y[300:]), other.crps(y[300:]))
        model.calibrate(X[300:], y[300:])
        again.calibrate(X[300:], y[300:])


# -- Groups that are too small ---------------------------------------------------------------------------------------


def few_in_a_group(small_groups: str) -> tuple[ICQR, Floats]:
    """A model whose second group has two calibration rows, and a row of each group and of none."""
    X, y = grouped(100, 0)
    X[:, 1] = np.arange(100) >= 98
    model = ICQR(known_bounds(0.8), 0.8, partition=GroupPartition(1), random_state=0, small_groups=small_groups)
    training = np.column_stack([np.zeros(6), [0, 1] * 3])
    with pytest.warns(UserWarning, match="pooled offset") if small_groups == "pooled" else nullcontext():
        model.fit(training, np.zeros(6), X, y)
    return model, np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 7.0]])


def test_small_groups_get_the_points_of_all_rows_if_pooled() -> None:
    model, rows = few_in_a_group("pooled")
    with pytest.warns(UserWarning, match="group 1 has 2"):
        distribution = model.predict_distribution(rows)
    assert distribution.sizes.tolist() == [98, 100, 100]


def test_small_groups_keep_their_own_points_if_infinite() -> None:
    model, rows = few_in_a_group("infinite")
    distribution = model.predict_distribution(rows)
    assert distribution.sizes.tolist() == [98, 2, 0]
    assert distribution.cdf(100.0)[1] == pytest.approx(2 / 3)
    assert np.isinf(distribution.interval(0.8)[1:]).all()
    values = [distribution.cdf(0.0), distribution.median(), distribution.mean(), distribution.crps([0, 0, 0])]
    assert np.isnan(np.array(values)).tolist() == [[False, False, True]] * 4
    assert np.isnan(distribution.sample(3, 0)[2]).all()
    assert 0 < distribution.pit([0, 0, 0], 0)[2] < 1  # uniform: nothing is known


def test_small_groups_are_an_error_if_asked() -> None:
    X, y = grouped(100, 0)
    model = ICQR(known_bounds(0.8), 0.8, partition=GroupPartition(1), random_state=0, small_groups="error")
    model.fit(np.column_stack([np.zeros(6), [0, 1] * 3]), np.zeros(6), X, y)
    with pytest.raises(ValueError, match="a group unknown to the calibration has none"):
        model.predict_distribution(np.array([[0.0, 7.0]]))


# -- What is refused -------------------------------------------------------------------------------------------------


def test_quantile_regression_has_no_distribution(models: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="QR has no calibration; use CQR or ICQR"):
        models["QR"].predict_distribution(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="not fitted"):
        CQR().predict_distribution(np.zeros((1, 3)))
    assert isinstance(models["QR"], QR)


def test_a_calibration_without_signed_scores_says_what_to_do() -> None:
    X, y = grouped(300, 0)
    model = CQR(SMALL, random_state=0).fit(X, y)
    labels, scores = model.conformity_scores(X, y)
    model.with_calibration(Calibration.from_scores(model.conformity_, scores, labels, 1))
    with pytest.raises(ValueError, match=r"no signed scores.*call calibrate\(X, y\) with fresh rows"):
        model.predict_distribution(X)
    assert model.calibrate(X, y).predict_distribution(X[:2]).sizes.tolist() == [300, 300]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d: d.cdf([1.0]), r"y must be a number, or one for each of the 2 rows, and not NaN; got shape \(1,\)"),
        (lambda d: d.sf(math.nan), "y must be a number.*got NaN"),
        (lambda d: d.ppf(1.5), "levels must be a number or a list of numbers from 0 to 1, got 1.5"),
        (lambda d: d.ppf([[0.5]]), "levels must be a number or a list"),
        (lambda d: d.interval(90), "did you mean 0.9"),
        (lambda d: d.crps([1.0, math.nan]), "y must be finite"),
        (lambda d: d.pit([1.0], random_state=0), "same number of rows, got 2 and 1"),
        (lambda d: d.sample(-1, 0), "n must be a whole number, 0 or more, got -1"),
        (lambda d: d.sample(2.5, 0), "n must be a whole number"),
    ],
)
def test_bad_input_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(by_hand([-1.0, 0.0, 1.0]))


def test_no_rows_have_no_values() -> None:
    distribution = by_hand([-1.0, 0.0, 1.0])
    distribution = replace(distribution, bounds=distribution.bounds[:, :0], groups=distribution.groups[:0])
    assert distribution.cdf(1.0).shape == (0,)
    assert distribution.ppf([0.1, 0.2]).shape == (0, 2)
    assert distribution.interval(0.5).shape == (0, 2)
    assert distribution.sample(3, 0).shape == (0, 3)
    assert "0 rows" in repr(distribution)


def test_bounds_that_meet_give_finite_points() -> None:
    # Training rows set the smallest scale; bounds without any width are then no division by zero.
    X, y = np.zeros((300, 1)), np.round(np.random.default_rng(0).normal(size=300))
    with pytest.warns(UserWarning, match="same"):
        model = CQR(QuantileRegressor(alpha=1e6), random_state=0).fit(X, y)
    distribution = model.predict_distribution(X[:3])
    assert np.isfinite(distribution.ppf([0.1, 0.9])).all()
    assert (np.diff(distribution.ppf([0.1, 0.9])) > 0).all()
