"""Exact selection over blocks, against sorting all numbers; and calibrations that keep only what it finds."""

from __future__ import annotations

import warnings
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icqr._blocks import calibration_in_blocks, order_statistics
from icqr.calibration import COVERAGES, Calibration, SelectedCalibration, sort_by_group
from icqr.conformity import Conformity

ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=True, allow_subnormal=True)


def in_memory(blocks: list[Calibration]) -> Any:
    return lambda function, merge: merge([function(block) for block in blocks])


def calibrated(scores: np.ndarray, labels: np.ndarray, whole: Calibration, coverages: Any) -> Any:
    """The calibration by seven blocks, for a model that has the settings of the one by all rows."""
    settings = {"conformity": whole.conformity, "small_groups": whole.small_groups, "guarantee": whole.guarantee}
    model: Any = SimpleNamespace(
        coverage=0.8, coverage_=0.8, n_groups_=len(whole.scores) - 1, calibration_=whole, conformity_=whole.conformity
    )
    model.small_groups = whole.small_groups
    blocks = [
        Calibration(scores=sort_by_group(scores[i::7], labels[i::7], model.n_groups_), **settings) for i in range(7)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # groups that are too small
        return calibration_in_blocks(model, in_memory(blocks), coverages)


@settings(max_examples=50)
@given(st.data())
def test_selected_numbers_are_those_of_a_full_sort(data: st.DataObject) -> None:
    n_groups, n_sides = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    # Few distinct values, so that ties cross blocks, among them neighbours that differ in the last bit.
    pool = data.draw(st.lists(ANY_FLOAT, min_size=1, max_size=6))
    pool += [float(np.nextafter(value, np.inf)) for value in pool]
    blocks = []
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(0, 12))
        values = np.array([[data.draw(st.sampled_from(pool)) for _ in range(n_sides)] for _ in range(n)])
        labels = np.array([data.draw(st.integers(-1, n_groups - 1)) for _ in range(n)], dtype=int)
        scores = sort_by_group(values.reshape(n, n_sides), labels, n_groups)
        blocks.append(Calibration(Conformity(symmetric=n_sides == 1), scores))
    whole = [np.sort(np.concatenate(parts), axis=0) for parts in zip(*(block.scores for block in blocks), strict=True)]
    whole.append(np.sort(np.concatenate(whole), axis=0))
    groups = np.repeat(np.arange(len(whole)), [len(part) for part in whole])
    if len(groups) == 0:
        return
    ranks = np.concatenate([1 + np.arange(len(part)) for part in whole])
    selected = order_statistics(in_memory(blocks), groups, ranks, n_sides)
    np.testing.assert_array_equal(selected, np.concatenate(whole))


def test_a_pass_brings_256_counts_for_a_number() -> None:
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=(3, 200_000, 1)), axis=1)
    sizes = []

    def reduce(function: Any, merge: Any) -> Any:
        merged = merge([function(Calibration(Conformity(), (block,))) for block in scores])
        sizes.append(merged.size)
        return merged

    assert order_statistics(reduce, np.array([0]), np.array([300_000]))[0, 0] == np.sort(scores.ravel())[299_999]
    assert sizes == [256] * 8


@pytest.mark.parametrize("small_groups", ["pooled", "infinite"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_selected_calibration_answers_as_one_with_all_scores(
    symmetric: bool, small_groups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", 100)
    rng = np.random.default_rng(1)
    n, n_groups = 5000, 4
    scores = rng.normal(size=(n, 1 if symmetric else 2))
    labels = rng.choice([-1, 0, 1, 2, 3], size=n, p=[0.01, 0.6, 0.38, 0.01, 0.0])  # group 3 has no row
    conformity = Conformity(symmetric=symmetric)
    all_of_them = Calibration.from_scores(conformity, scores, labels, n_groups, small_groups, "group-wise")
    ours = calibrated(scores, labels, all_of_them, COVERAGES)
    assert isinstance(ours, SelectedCalibration)
    assert sum(len(group) for group in ours.scores) < 100
    np.testing.assert_array_equal(ours.sizes, all_of_them.sizes)
    for coverage in COVERAGES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # groups that are too small
            groups = np.array([0, 1, 2, 3, -1])
            np.testing.assert_array_equal(ours.offsets(coverage, groups), all_of_them.offsets(coverage, groups))
        assert ours.certificate(coverage).groups.equals(all_of_them.certificate(coverage).groups)
        assert ours.certificate(coverage).marginal == all_of_them.certificate(coverage).marginal


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_coverage_whose_score_was_not_kept_is_refused_by_name(
    symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", 100)
    scores = np.random.default_rng(2).normal(size=(5000, 1 if symmetric else 2))
    labels = np.zeros(5000, dtype=int)
    whole = Calibration.from_scores(Conformity(symmetric=symmetric), scores, labels, 1)
    calibration = calibrated(scores, labels, whole, [Fraction(9, 10)])
    message = r"of 5000 calibration scores only those for coverage=9/10, 0\.8 were kept.* calibrate again, with"
    with pytest.raises(ValueError, match=message):
        calibration.offsets(0.77, np.array([0]))
    for coverage in (0.8, 0.9):
        assert np.isfinite(calibration.offsets(coverage, np.array([0]))).all()


def test_few_scores_are_all_kept_and_equal_those_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", 300)
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(300, 1)), rng.integers(0, 3, size=300)
    whole = Calibration.from_scores(Conformity(), scores, labels, 3, "pooled")
    ours = calibrated(scores, labels, whole, COVERAGES)
    for mine, other in zip(ours.scores, whole.scores, strict=True):
        np.testing.assert_array_equal(mine, other)
