"""Plans against the Beta law, by brute force."""

from __future__ import annotations

import json

import pytest
from scipy import stats

from icqr import plan
from icqr.calibration import conformal_rank


def within(n: int, coverage: float, precision: float, confidence: float) -> bool:
    k = conformal_rank(n, coverage)
    if k > n:
        return False
    low, high = stats.beta.interval(confidence, k, n + 1 - k)
    return bool(low >= coverage - precision and high <= coverage + precision)


@pytest.mark.parametrize(
    ("coverage", "precision", "confidence"),
    [(0.9, 0.05, 0.9), (0.95, 0.03, 0.9), (0.5, 0.1, 0.95), (0.8, 0.3, 0.9), (0.99, 0.02, 0.9), (0.9, 0.2, 0.5)],
)
def test_rows_needed_against_brute_force(coverage: float, precision: float, confidence: float) -> None:
    found = plan(coverage=coverage, precision=precision, confidence=confidence).rows_needed
    assert found is not None
    assert found < 900
    inside = [within(n, coverage, precision, confidence) for n in range(1, 1000)]
    assert all(inside[found - 1 :])
    assert found == 1 or not inside[found - 2]


def test_high_precision_is_quick() -> None:
    needed = plan(coverage=0.9, precision=0.001).rows_needed
    assert needed is not None
    assert 240_000 < needed < 260_000


def test_band_is_that_of_the_beta_law() -> None:
    found = plan(1003, coverage=0.9, n_groups=10, confidence=0.8)
    assert found.rows_per_group == 100
    assert found.band == pytest.approx(stats.beta.interval(0.8, 91, 10))
    assert "Each of 10 groups with 100 calibration rows" in str(found)


def test_too_few_rows() -> None:
    found = plan(40, coverage=0.9, n_groups=5)
    assert found.band is None
    assert found.sentence == "Each of 5 groups with 8 calibration rows: too few for a finite interval, which needs 9."
    assert json.loads(found.to_json())["table"][0]["band_lower"] is None
    assert plan(5, n_groups=5).sentence.startswith("Each of 5 groups with 1 calibration row: too few")


def test_precision_for_groups_is_told_in_all() -> None:
    found = plan(coverage=0.9, n_groups=4, precision=0.05)
    assert found.rows_needed == 110
    assert "110 calibration rows in each group, 440 in all, are needed" in found.sentence


def test_nothing_asked() -> None:
    found = plan()
    assert "needs at least 9 calibration rows" in found.sentence
    assert found.to_frame()["rows"].tolist()[0] == 9
    assert found.to_markdown().startswith("**90 % needs")
    assert "<table" in found._repr_html_()


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"precision must be strictly between 0 and 1, got 2; did you mean 0\.02\?"):
        plan(precision=2)
    with pytest.raises(ValueError, match="n_groups must be a whole number, 1 or more, got 0"):
        plan(100, n_groups=0)
    with pytest.raises(ValueError, match="n_calibration must be a whole number"):
        plan(10.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"did you mean 0\.9"):
        plan(100, coverage=90)
