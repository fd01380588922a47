"""New rows against calibration rows: p-values are uniform when nothing has changed, and small when something has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from icqr import CQR, ICQR, KMeansPartition, prefit
from icqr.novelty import Novelty, group_shift


def test_p_values_by_hand() -> None:
    novelty = Novelty.of(np.array([3.0, 1.0, 2.0, 8.0]), np.array([0, 0, 0, 1]), 3)
    distances = np.array([0.0, 1.0, 2.5, 3.0, 9.0, 8.0, 9.0, 1.0, 1.0])
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2, -1])
    expected = [1.0, 1.0, 0.5, 0.5, 0.25, 1.0, 0.5, np.nan, np.nan]
    assert novelty.p_values(distances, labels) == pytest.approx(expected, nan_ok=True)


def bounds() -> Any:
    return prefit(
        lower=lambda X: X[:, 0] - 2, median=lambda X: X[:, 0], upper=lambda X: X[:, 0] + 2, levels=(0.05, 0.5, 0.95)
    )


def rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


def fitted(seed: int) -> ICQR:
    X, y = rows(900, seed)
    return ICQR(bounds(), partition=KMeansPartition(choose=4), random_state=0).fit(X, y)


def test_novelty_is_uniform_for_rows_like_the_calibration_rows() -> None:
    values = []
    for seed in range(40):
        table = fitted(seed).explain(rows(50, 1000 + seed)[0])
        spread = np.random.default_rng(seed).uniform(size=50) / (table["n"] + 1)  # p-values are multiples of 1/(n + 1)
        values.append(table["novelty"].to_numpy() - spread.to_numpy())
    assert stats.kstest(np.concatenate(values), "uniform").pvalue > 0.001


def test_novelty_is_small_for_extrapolation() -> None:
    model = fitted(0)
    table = model.explain(np.array([[30.0, 0.0], [-30.0, 0.0], [1e300, 0.0]]))
    assert np.all(table["novelty"] == 1 / (table["n"] + 1))


def test_novelty_is_among_the_rows_of_the_last_calibration() -> None:
    model = fitted(0)
    X, y = rows(600, 77)
    far = np.array([[8.0, 0.0]])
    before = model.explain(far)["novelty"][0]
    model.calibrate(np.concatenate([X, X + np.array([8.0, 0.0])]), np.concatenate([y, y]))
    assert before < 0.02 < 0.1 < model.explain(far)["novelty"][0]


def test_one_group_without_a_centroid_has_no_novelty() -> None:
    X, y = rows(300, 0)
    assert CQR(bounds(), random_state=0).fit(X, y).explain(X)["novelty"].isna().all()


# -- The mix of groups -----------------------------------------------------------------------------------------------


def test_shift_table_by_hand() -> None:
    shift = group_shift(np.array([30, 60, 10]), np.array([0, 0, 1, -1]))
    assert shift.table["group"].tolist() == [0, 1, -1]
    assert shift.table["calibration_share"].tolist() == [0.3, 0.6, 0.1]
    assert shift.table["new_share"].tolist() == [0.5, 0.25, 0.25]


def test_shift_of_large_counts_is_the_chi_squared_test() -> None:
    counts = np.array([[300, 500, 200], [250, 500, 260]])
    expected = stats.chi2_contingency(counts).pvalue
    labels = np.repeat([0, 1, 2], counts[1])
    assert group_shift(np.array([*counts[0], 0]), labels).p_value == pytest.approx(expected)


SHARES = {"even": np.full(5, 0.2), "two": np.array([0.6, 0.4]), "rare": np.array([0.9, 0.09, 0.008, 0.002])}


@pytest.mark.parametrize("shares", list(SHARES))
@pytest.mark.parametrize("n_new", [30, 1000])
def test_p_value_is_uniform_without_shift(shares: str, n_new: int) -> None:
    rng = np.random.default_rng(1)
    chances = SHARES[shares]
    values = np.array(
        [
            group_shift(
                np.append(rng.multinomial(1000, chances), 0), rng.choice(len(chances), size=n_new, p=chances)
            ).p_value
            for _ in range(300)
        ]
    )
    for level in (0.01, 0.05, 0.2, 0.5):
        # Few values are possible with small counts: then the test may only be too careful.
        assert np.mean(values <= level) < level + 4 * np.sqrt(level * (1 - level) / 300)
    if n_new == 1000 and shares != "rare":
        assert stats.kstest(values, "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("sizes", "labels"),
    [
        ([500, 500, 0], np.repeat([0, 1], [900, 100])),
        ([500, 500, 0], np.repeat([0, 1, -1], [45, 45, 10])),
        ([990, 10, 0], np.repeat([0, 1], [5, 15])),
    ],
)
def test_p_value_is_tiny_with_shift(sizes: list[int], labels: Any) -> None:
    assert group_shift(np.array(sizes), labels).p_value <= 0.001


@pytest.mark.parametrize(("sizes", "labels"), [([5, 0], np.zeros(3, dtype=int)), ([5, 5, 0], np.zeros(0, dtype=int))])
def test_nothing_to_compare_is_no_shift(sizes: list[int], labels: Any) -> None:
    assert group_shift(np.array(sizes), labels).p_value == 1


def test_icqr_compares_new_rows_with_its_calibration_rows() -> None:
    model = fitted(0)
    assert model.group_shift(rows(500, 5)[0]).p_value > 0.001
    assert model.group_shift(rows(500, 5)[0] + 1).p_value < 1e-9
