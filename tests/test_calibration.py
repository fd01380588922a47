"""The calibration against cases computed by hand: ranks, offsets, small groups, and what is promised."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from icqr.calibration import (
    Calibration,
    NoCalibration,
    bounds_from_quantiles,
    check_coverage,
    conformal_quantile,
    conformal_rank,
    offset_level,
    quantile_levels,
    rows_needed,
    too_few_rows,
)
from icqr.conformity import Conformity

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)


# -- The rank --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", COVERAGES)
def test_the_rank_is_the_exact_ceiling_for_every_n_up_to_2000(coverage):
    ranks = [conformal_rank(n, coverage) for n in range(1, 2001)]
    assert ranks == [math.ceil((n + 1) * Fraction(str(coverage))) for n in range(1, 2001)]


@pytest.mark.parametrize("hundredths", [7, 14, 28, 55, 56, 57, 69, 99])
def test_the_rank_is_exact_where_a_product_of_doubles_is_not(hundredths):
    # 100 · 0.55 is 55.00000000000001 in doubles, whose ceiling is 56.
    assert conformal_rank(99, hundredths / 100) == hundredths
    assert conformal_rank(9999, hundredths / 100) == 100 * hundredths


@pytest.mark.parametrize(
    ("n", "coverage", "rank"),
    [(9, 0.9, 9), (99, 0.9, 90), (8, 0.9, 9), (10, 0.95, 11), (19, 0.95, 19), (0, 0.9, 1), (1, 0.5, 1), (99, 0.7, 70)],
)
def test_the_rank_by_hand(n, coverage, rank):
    assert conformal_rank(n, coverage) == rank


@pytest.mark.parametrize("coverage", [0.9, np.float64(0.9), np.float32(0.9), Fraction(9, 10)])
@pytest.mark.parametrize("n", [99, np.int64(99), np.int32(99)])
def test_every_kind_of_number_gives_the_same_rank(n, coverage):
    assert conformal_rank(n, coverage) == 90


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_needed_is_the_smallest_n_with_a_finite_offset(coverage, symmetric):
    level, needed = offset_level(coverage, symmetric), rows_needed(coverage, symmetric)
    assert conformal_rank(needed, level) <= needed
    assert all(conformal_rank(n, level) == n + 1 for n in range(needed))


def test_one_offset_per_side_halves_the_miss():
    assert offset_level(0.9, symmetric=True) == Fraction(9, 10)
    assert offset_level(0.9, symmetric=False) == Fraction(19, 20)
    assert offset_level(0.8, symmetric=False) == Fraction(9, 10)


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("confidence", [0.05, 0.6, 0.9, 0.95, 0.999])
def test_the_rank_with_confidence_is_the_first_whose_beta_reaches_it(coverage, confidence):
    for n in [*range(1, 60), 100, 333, 1000, 2000]:
        ranks = np.arange(1, n + 1)
        reached = stats.beta.sf(coverage, ranks, n + 1 - ranks) >= confidence
        expected = ranks[reached][0] if reached.any() else n + 1
        assert conformal_rank(n, coverage, confidence) == expected


def test_no_scores_give_no_rank_with_confidence_either():
    assert conformal_rank(0, 0.9, confidence=0.95) == 1


def test_the_quantile_is_an_order_statistic_without_interpolation():
    scores = np.array([4.0, 1.0, 3.0, 2.0, 9.0, 8.0, 7.0, 6.0, 5.0])
    assert conformal_quantile(scores, 0.9) == 9.0
    assert conformal_quantile(scores, 0.85) == 9.0
    assert conformal_quantile(scores, 0.8) == 8.0
    assert conformal_quantile(scores, 0.91) == math.inf
    assert conformal_quantile([], 0.5) == math.inf
    assert scores[0] == 4.0, "the caller's array stays in its order"


@pytest.mark.parametrize(
    ("coverage", "message"),
    [
        (90, "strictly between 0 and 1, got 90; did you mean 0.9"),
        (99.9, "did you mean 0.999"),
        (0, "strictly between 0 and 1, got 0; for nine times out of ten pass 0.9"),
        (1, "strictly between 0 and 1, got 1"),
        (1.0, "strictly between 0 and 1, got 1.0"),
        (-0.1, "strictly between 0 and 1, got -0.1"),
        (math.nan, "strictly between 0 and 1, got nan"),
        (math.inf, "strictly between 0 and 1, got inf"),
        ("0.9", r"must be a number .* got '0.9' \(str\)"),
        (None, r"must be a number .* got None \(NoneType\)"),
        (True, r"must be a number .* got True \(bool\)"),
    ],
)
def test_a_wrong_coverage_is_refused_with_a_remedy(coverage, message):
    with pytest.raises(ValueError, match=message):
        check_coverage(coverage)
    with pytest.raises(ValueError, match=message):
        conformal_rank(10, coverage)


@pytest.mark.parametrize("n", [-1, 9.0, 9.5, "9"])
def test_a_wrong_n_is_refused(n):
    with pytest.raises(ValueError, match=f"n must be a whole number, 0 or more, got {n!r}"):
        conformal_rank(n, 0.9)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_wrong_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match=f"confidence must be strictly between 0 and 1, got {confidence}"):
        conformal_rank(10, 0.9, confidence)


def test_scores_that_are_no_list_of_numbers_are_refused():
    with pytest.raises(ValueError, match="scores must not be NaN; row 1 is"):
        conformal_quantile([0.0, math.nan], 0.5)
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(2, 1\)"):
        conformal_quantile(np.zeros((2, 1)), 0.5)


# -- Levels and bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "side", "levels"),
    [
        (0.9, "both", (0.05, 0.5, 0.95)),
        (0.8, "both", (0.1, 0.5, 0.9)),
        (0.9, "lower", (0.1, 0.5)),
        (0.9, "upper", (0.5, 0.9)),
        (0.5, "lower", (0.5,)),
        (0.3, "lower", (0.5, 0.7)),
        (0.3, "upper", (0.3, 0.5)),
    ],
)
def test_the_levels_a_model_must_predict(coverage, side, levels):
    assert quantile_levels(coverage, side) == levels


@pytest.mark.parametrize(
    ("coverage", "side", "quantiles", "bounds"),
    [
        (0.9, "both", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        (0.9, "lower", [1.0, 2.0], [1.0, 2.0, math.inf]),
        (0.9, "upper", [2.0, 3.0], [-math.inf, 2.0, 3.0]),
        (0.5, "upper", [2.0], [-math.inf, 2.0, 2.0]),
        (0.3, "lower", [1.0, 2.0], [2.0, 1.0, math.inf]),
    ],
)
def test_bounds_are_taken_from_the_right_quantiles(coverage, side, quantiles, bounds):
    assert bounds_from_quantiles(np.array([quantiles]), coverage, side).tolist() == [bounds]


# -- Offsets per group -----------------------------------------------------------------------------------


def calibrated(sizes, small_groups="error", conformity=None, n_unknown=0):
    """Calibrate groups of these sizes: group g has the scores 100 g + 1, 100 g + 2, …; the unknown ones 1001, …"""
    values = [100.0 * g + np.arange(1, n + 1) for g, n in enumerate(sizes)] + [1000.0 + np.arange(1, n_unknown + 1)]
    labels = np.repeat([*range(len(sizes)), -1], [*sizes, n_unknown])
    conformity = conformity or Conformity()
    found = np.concatenate(values)[:, None]
    if not conformity.symmetric:
        found = np.concatenate([found, -found], axis=1)
    shuffled = np.random.default_rng(0).permutation(len(found))
    return Calibration.from_scores(
        conformity, found[shuffled], labels[shuffled], len(sizes), small_groups, guarantee="group-wise"
    )


def offset(calibration, coverage, group):
    return calibration.offsets(coverage, np.array([group]))[0].tolist()


def test_each_group_has_the_offset_of_its_own_rank():
    calibration = calibrated([9, 19, 99])
    assert calibration.sizes.tolist() == [9, 19, 99, 0]
    assert calibration.ranks(0.9).tolist() == [9, 18, 90, 1]
    assert calibration.offsets(0.9, np.array([2, 0, 1, 0])).tolist() == [[290, 290], [9, 9], [118, 118], [9, 9]]
    assert calibration.offsets(0.5, np.array([0, 1])).tolist() == [[5, 5], [110, 110]]


def test_one_offset_per_side_is_ranked_on_each_side():
    calibration = calibrated([19, 39], conformity=Conformity(symmetric=False))
    assert calibration.ranks(0.9).tolist() == [19, 38, 1]
    # The upper scores are minus the lower ones: their 38th smallest of 39 is minus the second smallest lower one.
    assert calibration.offsets(0.9, np.array([0, 1])).tolist() == [[19, -1], [138, -102]]


def test_groups_without_rows_and_labels_beyond_the_groups_count_as_no_known_group():
    found = np.arange(5.0)[:, None]
    calibration = Calibration.from_scores(Conformity(), found, np.array([2, 0, 7, -1, 0]), 4)
    assert [group.ravel().tolist() for group in calibration.scores] == [[1, 4], [], [0], [], [2, 3]]


def test_a_row_without_a_score_is_named():
    with pytest.raises(ValueError, match="scores must not be NaN; row 1 is"):
        Calibration.from_scores(Conformity(), np.array([[0.0], [math.nan]]), np.zeros(2, dtype=int), 1)


def test_nine_rows_are_enough_at_90_percent_and_ten_are_not_at_95():
    assert offset(calibrated([9]), 0.9, 0) == [9, 9]
    with pytest.raises(ValueError, match="needs at least 19 calibration rows for a finite interval, got n_samples=10"):
        offset(calibrated([10]), 0.95, 0)


def test_pooled_takes_the_larger_of_everyones_offset_and_the_groups_largest_score():
    calibration = calibrated([90, 4], "pooled")
    # 94 scores: rank ceil(95 · 0.5) = 48 and ceil(95 · 0.95) = 91, the first score of group 1.
    assert offset(calibration, 0.5, 1) == [103, 103], "large enough at this coverage"
    with pytest.warns(UserWarning, match=r"coverage=0.9 needs 9 calibration rows in each group; group 1 has 4\. "):
        assert offset(calibration, 0.9, 1) == [104, 104], "the group's largest score"
    low = calibrated([4, 90], "pooled")
    with pytest.warns(UserWarning, match="group 0 has 4"):
        assert offset(low, 0.9, 0) == [182, 182], "everyone's rank ceil(95 · 0.9) = 86 is group 1's 82nd score"


def test_pooled_counts_unknown_rows_among_everyone():
    calibration = calibrated([20, 20], "pooled", n_unknown=10)
    with pytest.warns(UserWarning, match="a group unknown to the calibration has none"):
        assert offset(calibration, 0.9, -1) == [1010, 1010]
    fewer = calibrated([89], "pooled", n_unknown=1)
    with pytest.warns(UserWarning, match="unknown"):
        assert offset(fewer, 0.9, -1) == [1001, 1001]


def test_pooled_works_on_each_side():
    calibration = calibrated([39, 2], "pooled", Conformity(symmetric=False))
    with pytest.warns(UserWarning, match="needs 19 calibration rows"):
        # Rank ceil(42 · 0.95) = 40 of 41: lower scores end 39, 101, 102; upper ones end -3, -2, -1.
        assert offset(calibration, 0.9, 1) == [102, -2]


@pytest.mark.parametrize("group", [1, -1])
def test_infinite_keeps_the_promise_without_a_warning(group):
    assert offset(calibrated([90, 4], "infinite"), 0.9, group) == [math.inf, math.inf]


def test_infinite_answers_even_when_all_rows_together_are_too_few():
    assert offset(calibrated([4], "infinite"), 0.9, 0) == [math.inf, math.inf]


def test_error_says_which_groups_and_what_to_do():
    with pytest.raises(ValueError, match=r"group 1 has 4, group 2 has 0\. Give more calibration rows, use fewer"):
        calibrated([90, 4, 0]).offsets(0.9, np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="unknown to the calibration has none"):
        offset(calibrated([90]), 0.9, -1)


@pytest.mark.parametrize("small_groups", ["pooled", "error"])
def test_a_small_group_that_no_row_falls_into_disturbs_nobody(small_groups):
    assert offset(calibrated([90, 4], small_groups), 0.9, 0) == [82, 82]


@pytest.mark.parametrize("small_groups", ["pooled", "error"])
def test_too_few_rows_in_all_is_an_error(small_groups):
    with pytest.raises(ValueError, match="needs at least 9 calibration rows for a finite interval, got n_samples=7"):
        offset(calibrated([4, 3], small_groups), 0.9, 0)


def test_many_small_groups_are_named_briefly():
    with pytest.raises(ValueError, match=r"group 4 has 2, 15 more groups have too few, a group unknown"):
        calibrated([2] * 20).offsets(0.9, np.arange(-1, 20))


def test_thousands_of_groups_calibrate_as_one_by_one():
    rng = np.random.default_rng(0)
    found, labels = rng.normal(size=(60_000, 2)), rng.integers(3000, size=60_000)
    calibration = Calibration.from_scores(Conformity(symmetric=False), found, labels, 3000)
    table = calibration.offsets(0.5, np.arange(3000))
    level = offset_level(0.5, symmetric=False)
    for group in range(0, 3000, 100):
        expected = [conformal_quantile(side, level) for side in found[labels == group].T]
        assert table[group].tolist() == expected


def test_too_few_rows_names_the_remedies():
    text = too_few_rows(5, 0.9, symmetric=False)
    assert text.startswith("coverage=0.9 with one offset per side needs at least 19 calibration rows")
    assert "n_samples=5" in text


# -- The certificate -------------------------------------------------------------------------------------


def row(certificate, group):
    return certificate.groups.set_index("group").loc[group]


def test_the_certificate_promises_rank_over_n_plus_one_with_the_beta_band():
    certificate = calibrated([9, 25]).certificate(0.9)
    assert certificate.groups["group"].tolist() == [0, 1, -1]
    first, second = row(certificate, 0), row(certificate, 1)
    assert (first["n"], first["rank"], first["promised"], first["guarantee"]) == (9, 9, 0.9, "group-wise")
    assert (second["rank"], second["promised"]) == (24, 24 / 26)
    assert (second["offset_lower"], second["offset_upper"]) == (124, 124)
    # Beta(9, 1) has the distribution function x**9.
    assert first["band_lower"] == pytest.approx(0.05 ** (1 / 9))
    assert first["band_upper"] == pytest.approx(0.95 ** (1 / 9))
    assert (certificate.unpromised, certificate.marginal) == (0.0, 0.9)
    assert str(certificate) == ("Coverage 0.9, group-wise, if new rows come from where the calibration rows came from.")


def test_the_certificate_names_groups_without_calibration_rows():
    certificate = calibrated([90, 0], "pooled").certificate(0.9)
    assert "1 of 2 groups, with 0.0% of the calibration rows, are too small for a promise" in str(certificate)


def test_where_one_row_is_enough_single_rows_show_how_often_a_group_is_new():
    certificate = calibrated([6, 1, 1], "pooled").certificate(0.5)
    assert certificate.unpromised == 2 / 8


def test_one_offset_per_side_promises_twice_the_rank_and_no_band():
    first = row(calibrated([25], conformity=Conformity(symmetric=False)).certificate(0.9), 0)
    assert (first["rank"], first["promised"]) == (25, pytest.approx(2 * 25 / 26 - 1))
    assert first[["band_lower", "band_upper"]].isna().all()


@pytest.mark.parametrize(("side", "absent"), [("lower", "offset_upper"), ("upper", "offset_lower")])
def test_a_side_that_is_not_asked_for_has_no_offset(side, absent):
    first = row(calibrated([9], conformity=Conformity(side=side)).certificate(0.9), 0)
    present = {"offset_lower", "offset_upper"} - {absent}
    assert math.isnan(first[absent])
    assert first[present.pop()] == 9


def test_pooled_promises_nothing_for_small_groups_and_less_for_all_rows():
    certificate = calibrated([90, 4], "pooled", n_unknown=6).certificate(0.9)
    for group in (1, -1):
        assert row(certificate, group)["promised"] == 0
        assert row(certificate, group)["guarantee"] == "none (pooled offset)"
        assert math.isnan(row(certificate, group)["band_lower"])
    assert row(certificate, 1)["offset_lower"] == 104
    assert row(certificate, 0)["guarantee"] == "group-wise"
    assert certificate.unpromised == pytest.approx(0.1)
    assert certificate.marginal == pytest.approx(0.8)
    assert "10.0% of the calibration rows" in str(certificate)
    assert "at least 80.0% is promised" in str(certificate)


def test_infinite_intervals_are_certain_and_lower_no_promise():
    certificate = calibrated([90, 4], "infinite").certificate(0.9)
    assert row(certificate, 1)["promised"] == 1
    assert row(certificate, 1)["guarantee"] == "certain (infinite interval)"
    assert row(certificate, 1)["offset_lower"] == math.inf
    assert (certificate.unpromised, certificate.marginal) == (0.0, 0.9)


@pytest.mark.parametrize(("sizes", "small_groups"), [([90, 4], "error"), ([2, 4], "pooled")])
def test_where_no_interval_is_given_the_certificate_says_so(sizes, small_groups):
    second = row(calibrated(sizes, small_groups).certificate(0.9), 1)
    assert second["guarantee"] == "none (too few calibration rows)"
    assert second["promised"] == 0
    assert math.isnan(second["offset_lower"])


def test_an_empty_certificate_promises_nothing_and_does_not_blame_small_groups():
    certificate = NoCalibration.of(Conformity(), 0.9, "none (not calibrated)").certificate(0.9)
    assert certificate.marginal == 0
    assert str(certificate) == "Coverage 0.9, none (not calibrated)."
    assert list(certificate.groups.columns) == list(calibrated([9]).certificate(0.9).groups.columns)
    assert isinstance(certificate.groups, pd.DataFrame)
