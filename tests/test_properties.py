"""What holds for every input: order, centre, nesting, equivariance, and no row lost to rounding."""

import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator

from icqr import CQR, ICQR
from icqr.calibration import Calibration, conformal_rank, just_below, rows_needed
from icqr.conformity import Conformity
from icqr.partition import GroupPartition

# Nearly all of a drawn y may be the same, and then so are the model's quantiles.
pytestmark = pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")

KINDS = ("cqr", "cqr-r", "cqr-m")
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=5e-324, allow_infinity=False)
COVERAGE = st.floats(min_value=0.01, max_value=0.99).map(lambda value: round(value, 2))
# Arithmetic on these is exact: multiples of 1/8 below 2**20 in size.
DYADIC = st.integers(-(2**23), 2**23).map(lambda eighths: eighths / 8)


def between(smallest, largest):
    """Draw zero and numbers of either sign with sizes between these."""
    return st.just(0.0) | st.floats(smallest, largest) | st.floats(-largest, -smallest)


ORDINARY = between(1e-6, 1e6)


@st.composite
def conformities(draw):
    """Draw any score: its kind, symmetry, side and floor."""
    side = draw(st.sampled_from(["both", "lower", "upper"]))
    symmetric = draw(st.booleans()) if side == "both" else True
    return Conformity(draw(st.sampled_from(KINDS)), symmetric, side, draw(POSITIVE))


def bounds_of(conformity, triples):
    """Sort lower, median and upper in each row; the side that is not asked for is infinite."""
    bounds = np.sort(np.array(triples, dtype=float), axis=1)
    if conformity.side == "upper":
        bounds[:, 0] = -math.inf
    if conformity.side == "lower":
        bounds[:, 2] = math.inf
    return bounds


@st.composite
def problems(draw, values=FINITE):
    """Draw a score, and rows with their bounds and their y."""
    conformity = draw(conformities())
    rows = draw(st.lists(st.tuples(values, values, values, values), min_size=1, max_size=12))
    return conformity, bounds_of(conformity, [row[:3] for row in rows]), np.array([row[3] for row in rows])


def holds(intervals, y):
    return (intervals[:, 0] <= y) & (y <= intervals[:, 1])


def offset_pairs(scores, row):
    """Return every row the offsets that are one row's scores."""
    return np.broadcast_to(scores[row], (len(scores), 2))


# -- Rounding outwards, with floats of wild magnitudes ---------------------------------------------------


@given(problems())
def test_every_row_whose_score_is_at_most_the_offset_lies_in_its_interval(problem):
    conformity, bounds, y = problem
    scores = conformity.scores(bounds, y)
    assert not np.isnan(scores).any()
    for row in range(len(y)):
        offsets = offset_pairs(scores, row)
        reached = (scores <= scores[row]).all(axis=1)
        assert holds(conformity.intervals(bounds, offsets), y)[reached].all()


@given(problems())
def test_with_random_ties_only_rows_whose_score_is_at_most_the_offset_lie_in_their_interval(problem):
    conformity, bounds, y = problem
    conformity = replace(conformity, ties="random")
    scores = conformity.scores(bounds, y)
    assume(np.isfinite(scores).all())
    for row in range(len(y)):
        for offsets in (offset_pairs(scores, row), just_below(offset_pairs(scores, row), np.array(True))):
            reached = (scores <= offsets[:, : scores.shape[1]]).all(axis=1)
            inside = holds(conformity.intervals(bounds, offsets), y)
            assert inside[reached].all()
            # Bounds that collapse may contain more: they stop at the centre.
            assert not inside[~reached & ~conformity.collapsed(bounds, offsets)].any()


@given(problems(), COVERAGE)
def test_as_many_calibration_rows_lie_inside_as_the_rank_says(problem, coverage):
    conformity, bounds, y = problem
    assume(len(y) >= rows_needed(coverage, conformity.symmetric))
    labels = np.zeros(len(y), dtype=int)
    calibration = Calibration.from_scores(conformity, conformity.scores(bounds, y), labels, 1)
    inside = holds(conformity.intervals(bounds, calibration.offsets(coverage, labels)), y)
    missed_at_most = (len(y) - calibration.ranks(coverage)[0]) * (1 if conformity.symmetric else 2)
    assert len(y) - inside.sum() <= missed_at_most


@given(problems(), st.integers(0, 11))
def test_known_limits_of_y_cut_off_no_y(problem, row):
    conformity, bounds, y = problem
    offsets = offset_pairs(conformity.scores(bounds, y), row % len(y))
    cut = replace(conformity, y_min=y.min(), y_max=y.max())
    whole, clipped = conformity.intervals(bounds, offsets), cut.intervals(bounds, offsets)
    assert (holds(clipped, y) >= holds(whole, y)).all()
    assert (clipped >= y.min()).all()
    assert (clipped <= y.max()).all()


@given(FINITE, FINITE)
def test_a_score_is_the_smallest_double_at_or_above_the_distance(bound, y):
    score = Conformity(side="lower").scores(np.array([[bound, bound, math.inf]]), np.array([y]))[0, 0]
    assert_rounded_up(score, Fraction(bound) - Fraction(y))


@given(FINITE, FINITE, POSITIVE)
def test_a_scaled_score_is_the_smallest_double_at_or_above_the_ratio(bound, y, floor):
    conformity = Conformity("cqr-m", side="lower", floor=floor)
    plain = Conformity(side="lower")
    rows = np.array([[bound, bound, math.inf]]), np.array([y])
    distance, score = plain.scores(*rows)[0, 0], conformity.scores(*rows)[0, 0]
    assume(math.isfinite(distance))
    assert_rounded_up(score, Fraction(distance) / Fraction(floor))


@given(FINITE, POSITIVE)
def test_a_scaled_offset_moves_a_bound_by_the_smallest_double_at_or_above_the_product(offset, floor):
    conformity = Conformity("cqr-m", side="upper", floor=floor)
    moved = conformity.intervals(np.array([[-math.inf, 0.0, 0.0]]), np.full((1, 2), offset))[0, 1]
    assert_rounded_up(moved, Fraction(offset) * Fraction(floor))


def assert_rounded_up(found, exact):
    below = math.nextafter(found, -math.inf)
    assert found == math.inf or Fraction(found) >= exact
    assert below == -math.inf or Fraction(below) < exact


# -- Order, centre and nesting ---------------------------------------------------------------------------

OFFSET = st.floats(allow_nan=False).filter(lambda value: value != -math.inf)


def centre_of(conformity, bounds):
    lower, median, upper = bounds.T
    if conformity.kind == "cqr-m" or not conformity.symmetric:
        return median
    return lower / 2 + upper / 2


@given(problems(), OFFSET, OFFSET)
def test_lower_is_never_above_upper(problem, first, second):
    conformity, bounds, y = problem
    offsets = np.tile([first, first if conformity.symmetric else second], (len(y), 1))
    intervals = conformity.intervals(bounds, offsets)
    assert (intervals[:, 0] <= intervals[:, 1]).all()
    assert (intervals[:, 0] < math.inf).all()
    assert (intervals[:, 1] > -math.inf).all()


@given(problems(values=between(1e-300, 1e300)), OFFSET, OFFSET)
def test_the_centre_is_inside(problem, first, second):
    conformity, bounds, y = problem
    assume(conformity.side == "both")
    offsets = np.tile([first, first if conformity.symmetric else second], (len(y), 1))
    assert holds(conformity.intervals(bounds, offsets), centre_of(conformity, bounds)).all()


@given(problems(), st.lists(OFFSET, min_size=2, max_size=2))
def test_a_larger_offset_gives_an_interval_around_the_smaller_ones(problem, offsets):
    conformity, bounds, y = problem
    smaller, larger = (conformity.intervals(bounds, np.full((len(y), 2), value)) for value in sorted(offsets))
    assert (larger[:, 0] <= smaller[:, 0]).all()
    assert (smaller[:, 1] <= larger[:, 1]).all()


@st.composite
def grouped(draw, small_groups):
    """Draw a calibration of three groups, some of them perhaps empty, and a row of each and of no known group."""
    conformity = draw(conformities())
    sizes = [*draw(st.tuples(*[st.integers(0, 25)] * 3)), draw(st.integers(0, 3))]
    labels = np.repeat([0, 1, 2, -1], sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    triples, y = rng.normal(size=(len(labels), 3)), 2 * rng.standard_t(2, size=len(labels))
    scores = conformity.scores(bounds_of(conformity, triples.reshape(-1, 3)), y)
    calibration = Calibration.from_scores(conformity, scores, labels, 3, small_groups)
    return calibration, bounds_of(conformity, rng.normal(size=(4, 3)))


def answer(calibration, bounds, coverage):
    """Return the intervals of a row of each group, or None where the answer is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*needs .* calibration rows in each group", category=UserWarning)
        try:
            offsets = calibration.offsets(coverage, np.array([0, 1, 2, -1]))
        except ValueError:
            return None
    return calibration.conformity.intervals(bounds, offsets)


@pytest.mark.parametrize("small_groups", ["pooled", "infinite", "error"])
@given(data=st.data(), coverages=st.lists(COVERAGE, min_size=2, max_size=5, unique=True))
def test_intervals_nest_as_coverage_grows(small_groups, data, coverages):
    calibration, bounds = data.draw(grouped(small_groups))
    found = [answer(calibration, bounds, coverage) for coverage in sorted(coverages)]
    given_up = [intervals is None for intervals in found]
    assert given_up == sorted(given_up), "what was refused at some coverage is not given at a higher one"
    if small_groups == "infinite":
        assert not any(given_up)
    inner = [intervals for intervals in found if intervals is not None]
    for smaller, larger in itertools.pairwise(inner):
        assert (larger[:, 0] <= smaller[:, 0]).all()
        assert (smaller[:, 1] <= larger[:, 1]).all()


@given(st.integers(0, 3000), COVERAGE, COVERAGE)
def test_the_rank_grows_with_coverage_and_with_n(n, first, second):
    low, high = sorted([first, second])
    assert 1 <= conformal_rank(n, low) <= conformal_rank(n, high) <= n + 1
    assert conformal_rank(n, low) <= conformal_rank(n + 1, low) <= conformal_rank(n, low) + 1


# -- The estimators with a model that moves with y -------------------------------------------------------

N_ROWS = 30
FEWER = settings(max_examples=50)  # each example fits four models


class Equivariant(BaseEstimator):
    """Columns 0, 1 and 2 are the quantiles; column 3 is the group."""

    def fit(self, X, y):
        return self

    def predict_quantiles(self, X, levels):
        return X[:, : len(levels)]


@st.composite
def methods(draw, kinds=KINDS):
    """Draw CQR or ICQR with any setting; the groups of column 3 may be too small."""
    side = draw(st.sampled_from(["both", "lower", "upper"]))
    parameters = {
        "coverage": 0.6,
        "conformity": draw(st.sampled_from(kinds)),
        "symmetric": draw(st.booleans()) if side == "both" else True,
        "side": side,
        "random_state": 0,
    }
    if draw(st.booleans()):
        return CQR(Equivariant(), **parameters)
    return ICQR(Equivariant(), partition=GroupPartition(3), small_groups="infinite", **parameters)


@st.composite
def tables(draw, values):
    """Draw quantiles with groups, and y."""
    matrix = draw(arrays(np.float64, (N_ROWS, 4), elements=values))
    groups = draw(arrays(np.int64, N_ROWS, elements=st.integers(0, 2)))
    return np.column_stack([np.sort(matrix[:, :3], axis=1), groups]), matrix[:, 3]


@st.composite
def tables_of_even_widths(draw):
    """Draw rows whose quantiles are powers of two apart, so that dividing by widths is exact as well."""
    X, y = draw(tables(DYADIC))
    step = 2.0 ** draw(arrays(np.int64, N_ROWS, elements=st.integers(-3, 8)))
    X[:, 0], X[:, 2] = X[:, 1] - step, X[:, 1] + step
    return X, y


def moved(X, factor=1.0, shift=0.0):
    """Scale and shift the quantiles, not the group."""
    return np.column_stack([X[:, :3] * factor + shift, X[:, 3]])


def assert_moves_along(model, X, y, factor=1.0, shift=0.0):
    """Fit before and after moving y and the quantiles, and compare the intervals."""
    X_moved = moved(X, factor, shift)
    before = model.fit(X, y).predict_interval(X)
    after = model.fit(X_moved, y * factor + shift).predict_interval(X_moved)
    np.testing.assert_array_equal(after, before * factor + shift)


@given(tables(DYADIC), methods(kinds=["cqr"]), DYADIC)
@FEWER
def test_shifting_y_shifts_intervals_to_the_bit(table, model, shift):
    assert_moves_along(model, *table, shift=shift)


@given(tables_of_even_widths(), methods(), DYADIC)
@FEWER
def test_shifting_y_shifts_scaled_intervals_to_the_bit_where_division_is_exact(table, model, shift):
    assert_moves_along(model, *table, shift=shift)


@given(tables(ORDINARY), methods(), st.integers(-500, 500))
@FEWER
def test_scaling_y_by_a_power_of_two_scales_intervals_to_the_bit(table, model, exponent):
    assert_moves_along(model, *table, factor=2.0**exponent)


@given(tables(ORDINARY), methods(), st.permutations(range(N_ROWS)))
@FEWER
def test_the_order_of_rows_changes_nothing(table, model, order):
    X, y = table
    expected = model.fit(X, y).calibrate(X, y).predict_interval(X)
    np.testing.assert_array_equal(model.predict_interval(X[order]), expected[order])
    np.testing.assert_array_equal(model.predict_interval(X[:1]), expected[:1])
    np.testing.assert_array_equal(model.calibrate(X[order], y[order]).predict_interval(X), expected)


# What may come between two calls; some try to spoil what they were given.
CALLS = (
    lambda model, X: model.predict_interval(X[::-1], coverage=0.4),
    lambda model, X: model.predict(X),
    lambda model, X: model.explain(X, coverage=0.5),
    lambda model, X: model.certificate(0.2),
    lambda model, X: model.predict_interval(X).fill(0.0),
    lambda model, X: model.predict_quantiles(X.copy()).sort(axis=0),
    lambda model, X: model.calibration_.offsets(0.3, np.array([0])).fill(0.0),
)


@given(tables(ORDINARY), methods(), st.lists(st.sampled_from(CALLS), max_size=6))
@FEWER
def test_two_calls_give_the_same_answer_whatever_came_between(table, model, calls):
    X, y = table
    first = model.fit(X, y).predict_interval(X, coverage=[0.3, 0.6])
    kept = first.copy()
    for call in calls:
        call(model, X)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(model.predict_interval(X, coverage=[0.3, 0.6]), kept)
