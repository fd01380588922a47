"""Exact selection over blocks, against sorting all numbers; and calibrations that keep only what it finds."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icqr._order_statistics import Counts, Search, from_keys, select, to_keys
from icqr.calibration import COVERAGES, Calibration, Conformity, SelectedCalibration, sort_by_group
from icqr.scored import Scored, ScoredBlocks

ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=True, allow_subnormal=True)


class InMemory(ScoredBlocks):
    def __init__(self, blocks: list[Scored]) -> None:
        self.blocks = blocks

    def reduce(self, function: Any, merge: Any) -> Any:
        return merge([function(block) for block in self.blocks])


def scored(scores: np.ndarray, labels: np.ndarray, n_groups: int) -> Scored:
    return Scored(sort_by_group(scores, labels, n_groups), 0, None)


@given(hnp.arrays(np.float64, st.integers(1, 50), elements=ANY_FLOAT))
def test_keys_have_the_order_of_the_numbers_and_lead_back_to_them(values: np.ndarray) -> None:
    keys = to_keys(values)
    np.testing.assert_array_equal(from_keys(keys), values)
    np.testing.assert_array_equal(keys[:, None] < keys, values[:, None] < values)


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
        blocks.append(sort_by_group(values.reshape(n, n_sides), labels, n_groups))
    whole = [np.sort(np.concatenate(parts), axis=0) for parts in zip(*blocks, strict=True)]
    whole.append(np.sort(np.concatenate(whole), axis=0))
    groups = np.repeat(np.arange(len(whole)), [len(part) for part in whole])
    if len(groups) == 0:
        return
    ranks = np.concatenate([1 + np.arange(len(part)) for part in whole])
    found = select(lambda count, merge: merge([count(block) for block in blocks]), groups, ranks, n_sides)
    np.testing.assert_array_equal(found, np.concatenate(whole))


def test_a_pass_brings_at_most_65536_counts_for_a_number() -> None:
    rng = np.random.default_rng(0)
    blocks = [(np.sort(rng.normal(size=(200_000, 1)), axis=0),) for _ in range(3)]
    search = Search(np.array([0]), np.array([0]), np.array([300_000]), np.zeros(1, dtype=np.uint64))
    sizes = []
    for _ in range(4):
        counted = Counts.merged([search.count(block) for block in blocks])
        sizes.append(len(counted.codes))
        search = search.narrowed(counted)
    assert max(sizes) <= 65_536
    assert from_keys(search.found)[0] == np.sort(np.concatenate([block[0][:, 0] for block in blocks]))[299_999]


@pytest.mark.parametrize("small_groups", ["pooled", "infinite"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_selected_calibration_answers_as_one_with_all_scores(symmetric: bool, small_groups: str) -> None:
    rng = np.random.default_rng(1)
    n, n_groups = 5000, 4
    scores = rng.normal(size=(n, 1 if symmetric else 2))
    labels = rng.choice([-1, 0, 1, 2, 3], size=n, p=[0.01, 0.6, 0.38, 0.01, 0.0])  # group 3 has no row
    conformity = Conformity(symmetric=symmetric)
    parts = [scored(scores[i::7], labels[i::7], n_groups) for i in range(7)]
    selected = InMemory(parts).summed_up(n, symmetric, COVERAGES, most_scores=100)
    ours = selected.calibration(conformity, small_groups, "group-wise")
    all_of_them = Calibration.from_scores(conformity, scores, labels, n_groups, small_groups, "group-wise")
    assert isinstance(ours, SelectedCalibration)
    assert sum(len(group) for group in ours.scores) < 100
    np.testing.assert_array_equal(ours.sizes, all_of_them.sizes)
    for coverage in COVERAGES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # groups that are too small
            asked = np.array([0, 1, 2, 3, -1])
            np.testing.assert_array_equal(ours.offsets(coverage, asked), all_of_them.offsets(coverage, asked))
        assert ours.certificate(coverage).groups.equals(all_of_them.certificate(coverage).groups)
        assert ours.certificate(coverage).marginal == all_of_them.certificate(coverage).marginal


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_coverage_whose_score_was_not_kept_is_refused_by_name(symmetric: bool) -> None:
    scores = np.random.default_rng(2).normal(size=(5000, 1 if symmetric else 2))
    block = scored(scores, np.zeros(5000, dtype=int), 1)
    selected = InMemory([block]).summed_up(5000, symmetric, [0.8, Fraction(9, 10)], most_scores=100)
    calibration = selected.calibration(Conformity(symmetric=symmetric), "error", "marginal")
    message = r"of 5000 calibration scores only those for coverage=0\.8, 9/10 were kept.* calibrate again, with"
    with pytest.raises(ValueError, match=message):
        calibration.offsets(0.77, np.array([0]))
    for coverage in (0.8, 0.9):
        assert np.isfinite(calibration.offsets(coverage, np.array([0]))).all()


def test_few_scores_are_all_kept_and_equal_those_of_one_table() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(300, 1)), rng.integers(0, 3, size=300)
    parts = [scored(scores[i::4], labels[i::4], 3) for i in range(4)]
    merged = InMemory(parts).summed_up(300, True, COVERAGES, most_scores=300)
    for ours, whole in zip(merged.scores, sort_by_group(scores, labels, 3), strict=True):
        np.testing.assert_array_equal(ours, whole)
