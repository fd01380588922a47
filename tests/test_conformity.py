"""Conformity scores against cases computed by hand: the score, the interval it means, and rounding outwards."""

import math

import numpy as np
import pytest

from icqr.calibration import Calibration
from icqr.conformity import Conformity, width_floor

KINDS = ("cqr", "cqr-r", "cqr-m")
BOUNDS = {"both": [0.0, 1.0, 4.0], "lower": [0.0, 1.0, math.inf], "upper": [-math.inf, 1.0, 4.0]}


def scores(conformity, y):
    y = np.atleast_1d(np.asarray(y, dtype=float))
    return conformity.scores(np.tile(BOUNDS[conformity.side], (len(y), 1)), y)


def interval(conformity, offset_lower, offset_upper=None):
    offsets = np.array([[offset_lower, offset_lower if offset_upper is None else offset_upper]])
    return conformity.intervals(np.array([BOUNDS[conformity.side]]), offsets)[0].tolist()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [  # y = 7, -4, 2 and 3 with bounds 0 and 4, median 1
        ("cqr", [3, 4, -2, -1]),
        ("cqr-r", [3 / 4, 4 / 4, -2 / 4, -1 / 4]),
        ("cqr-m", [3 / 3, 4 / 1, -2 / 3, -1 / 3]),
    ],
)
def test_symmetric_scores_by_hand(kind, expected):
    found = scores(Conformity(kind, floor=0.01), [7, -4, 2, 3])
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("cqr", [-7, 3]), ("cqr-r", [-7 / 4, 3 / 4]), ("cqr-m", [-7 / 1, 3 / 3])],
)
def test_scores_with_one_offset_per_side_by_hand(kind, expected):
    assert scores(Conformity(kind, symmetric=False, floor=0.01), 7).tolist() == [expected]


@pytest.mark.parametrize(
    ("kind", "side", "expected"),
    [
        ("cqr", "lower", [-7, 4]),
        ("cqr-r", "lower", [-7 / 1, 4 / 1]),
        ("cqr-m", "lower", [-7 / 1, 4 / 1]),
        ("cqr", "upper", [3, -8]),
        ("cqr-r", "upper", [3 / 3, -8 / 3]),
        ("cqr-m", "upper", [3 / 3, -8 / 3]),
    ],
)
def test_one_sided_scores_by_hand(kind, side, expected):
    found = scores(Conformity(kind, side=side, floor=0.01), [7, -4])
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("cqr", [-0.5, 4.5]), ("cqr-r", [-2.0, 6.0]), ("cqr-m", [-0.5, 5.5])],
)
def test_the_interval_of_an_offset_by_hand(kind, expected):
    assert interval(Conformity(kind, floor=0.01), 0.5) == expected


def test_each_side_moves_by_its_own_offset():
    conformity = Conformity(symmetric=False)
    assert interval(conformity, 0.5, -2.0) == [-0.5, 2.0]
    assert interval(conformity, -0.5, 2.0) == [0.5, 6.0]


@pytest.mark.parametrize(("side", "expected"), [("lower", [-0.5, math.inf]), ("upper", [-math.inf, 4.5])])
@pytest.mark.parametrize("kind", KINDS)
def test_a_one_sided_interval_is_infinite_on_the_other_side(kind, side, expected):
    scale = {"cqr": 1.0, "lower": 1.0, "upper": 3.0}["cqr" if kind == "cqr" else side]
    np.testing.assert_allclose(interval(Conformity(kind, side=side, floor=0.01), 0.5 / scale), expected, rtol=1e-15)


def test_narrow_rows_are_divided_by_the_floor():
    narrow = np.array([[1.0, 1.0, 1.0]])
    conformity = Conformity("cqr-r", floor=0.5)
    assert conformity.scores(narrow, np.array([2.0])).tolist() == [[2.0]]
    assert conformity.intervals(narrow, np.array([[2.0, 2.0]])).tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize(
    ("widths", "floor"),
    [
        ([1.0, 2.0, 3.0], 2e-3),
        ([0.0, 0.0, 3.0], 1e-3),
        ([0.0, 0.0, 0.0], 1.0),
        ([1e308, 1.7e308], 1e-3 * np.finfo(float).max),
        ([5e-324, 5e-324], 5e-324),
    ],
)
def test_the_floor_is_a_thousandth_of_the_typical_width(widths, floor):
    assert width_floor(np.array(widths)) == pytest.approx(floor, rel=1e-15, abs=0)


def test_a_negative_offset_never_turns_an_interval_around():
    # One narrow row among wide ones; another library returns [4.9, -4.9] here.
    bounds = np.array([[-0.1, 0.0, 0.1]])
    conformity = Conformity()
    assert conformity.intervals(bounds, np.full((1, 2), -5.0)).tolist() == [[0.0, 0.0]]
    assert conformity.collapsed(bounds, np.full((1, 2), -5.0)).tolist() == [True]
    assert conformity.collapsed(bounds, np.full((1, 2), -0.05)).tolist() == [False]


@pytest.mark.parametrize(
    ("conformity", "offset", "centre"),
    [
        (Conformity(), -9.0, 2.0),
        (Conformity("cqr-r", floor=0.01), -9.0, 2.0),
        (Conformity("cqr-m", floor=0.01), -9.0, 1.0),
        (Conformity(symmetric=False), -9.0, 1.0),
        (Conformity("cqr-r", symmetric=False, floor=0.01), -9.0, 1.0),
    ],
)
def test_bounds_meet_at_the_midpoint_or_the_median(conformity, offset, centre):
    assert interval(conformity, offset) == [centre, centre]


def test_one_collapsed_side_stops_at_the_median():
    assert interval(Conformity(symmetric=False), -3.0, 1.0) == [1.0, 5.0]


def test_one_sided_bounds_have_no_centre_to_stop_at():
    assert interval(Conformity(side="lower"), -9.0) == [9.0, math.inf]
    assert not Conformity(side="lower").collapsed(np.array([BOUNDS["lower"]]), np.full((1, 2), -9.0)).any()


def test_intervals_are_clipped_to_the_limits_of_y():
    conformity = Conformity(y_min=0.0, y_max=5.0)
    assert interval(conformity, 2.0) == [0.0, 5.0]
    assert interval(conformity, -1.0) == [1.0, 3.0]
    assert interval(Conformity(side="lower", y_max=5.0), math.inf) == [-math.inf, 5.0]
    assert conformity.intervals(np.array([[-9.0, -8.0, -7.0]]), np.zeros((1, 2))).tolist() == [[0.0, 0.0]]


def test_no_bound_is_minus_zero():
    bounds = np.array([[0.0, 0.5, 1.0], [-0.0, 0.0, 1.0]])
    assert not np.signbit(Conformity().intervals(bounds, np.zeros((2, 2)))).any()


# -- Rounding outwards -----------------------------------------------------------------------------------


def share_inside(conformity, bounds, y, coverage):
    """Calibrate and predict the same rows; return the share of rows inside, and the share with score <= offset."""
    found = conformity.scores(bounds, y)
    labels = np.zeros(len(y), dtype=int)
    offsets = Calibration.from_scores(conformity, found, labels, 1).offsets(coverage, labels)
    intervals = conformity.intervals(bounds, offsets)
    inside = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    reached = (found <= offsets[:, : found.shape[1]]).all(axis=1)
    assert inside[reached].all()
    return inside.mean(), reached.mean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("unit", [0.1, 1 / 3, 1e-7, 1e300, 1e-300, 5e-324, 1e16])
def test_lattice_values_and_a_constant_model_lose_no_row_to_rounding(kind, symmetric, unit):
    y = unit * np.arange(-40.0, 60.0)
    bounds = np.tile(unit * np.array([-3.0, 2.0, 11.0]), (len(y), 1))
    inside, reached = share_inside(Conformity(kind, symmetric, floor=unit), bounds, y, 0.9)
    assert inside >= reached >= 0.9


@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3, 1e300, -1.7e308, 5e-324])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_always_right_gets_intervals_of_width_zero(value, kind):
    bounds = np.full((30, 3), value)
    conformity = Conformity(kind, floor=0.1)
    found = conformity.scores(bounds, bounds[:, 1])
    assert (found == 0).all()
    assert (conformity.intervals(bounds, np.repeat(found, 2, axis=1)) == value).all()


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_at_the_ends_of_the_floats_give_numbers_and_no_warning(kind, side):
    big = np.finfo(float).max
    bounds = np.array([[-big, -big, big], [-big, big, big], [big, big, big], [-big, 0.0, big], [0.0, 5e-324, big]])
    bounds[:, 0] = -math.inf if side == "upper" else bounds[:, 0]
    bounds[:, 2] = math.inf if side == "lower" else bounds[:, 2]
    conformity = Conformity(kind, side=side, floor=5e-324)
    for y in (-big, -5e-324, 0.0, 1.0, big):
        found = conformity.scores(bounds, np.full(len(bounds), y))
        assert not np.isnan(found).any()
        intervals = conformity.intervals(bounds, np.repeat(found, 2, axis=1))
        assert (intervals[:, 0] <= y).all()
        assert (y <= intervals[:, 1]).all()


def test_a_lower_bound_is_never_plus_infinity():
    big = np.finfo(float).max
    intervals = Conformity(side="lower").intervals(np.array([[big, big, math.inf]]), np.full((1, 2), -big))
    assert intervals.tolist() == [[big, math.inf]]


def test_rounding_moves_nothing_where_arithmetic_is_exact():
    bounds, y = np.array([[-2.0, 0.0, 2.0]]), np.array([5.0])
    for kind, offset in (("cqr", 3.0), ("cqr-r", 0.75), ("cqr-m", 1.5)):
        conformity = Conformity(kind, floor=0.01)
        assert conformity.scores(bounds, y).tolist() == [[offset]]
        assert conformity.intervals(bounds, np.full((1, 2), offset)).tolist() == [[-5.0, 5.0]]


def test_a_product_below_the_smallest_double_is_rounded_up_by_no_more_than_needed() -> None:
    conformity = Conformity("cqr-r", side="lower", floor=5e-324)
    bounds, offsets = np.array([[0.0, 0.0, math.inf]]), np.full((1, 2), -0.5)
    assert conformity.intervals(bounds, offsets)[0, 0] == 0.0  # -0.5 * 5e-324 is between -5e-324 and 0
