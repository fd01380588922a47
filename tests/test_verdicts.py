"""Verdicts by hand-computed cases and by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from icqr.auditing.verdicts import HOLDS, OVER, UNDER, UNKNOWN, exact_p_values, holm, judge


def regions(*counts: tuple[int, int], basis: str = "all rows") -> pd.DataFrame:
    table = pd.DataFrame(counts, columns=["covered", "n"])
    return table.assign(kind="group", basis=basis, band_lower=np.nan, band_upper=np.nan)


@pytest.mark.parametrize(
    ("covered", "n", "verdict"),
    [
        (900, 1000, HOLDS),
        (850, 1000, UNDER),
        (950, 1000, OVER),
        (9, 10, UNKNOWN),
        (0, 0, UNKNOWN),
        (100, 100, OVER),
        (1760, 2000, UNDER),
    ],
)
def test_verdicts(covered: int, n: int, verdict: str) -> None:
    assert judge(regions((covered, n)), 0.9)["verdict"].tolist() == [verdict]


def test_holm_spares_what_chance_explains() -> None:
    # 870 of 1,000 has p = 0.0023 by itself; among 50 regions that is no news, yet it is not called kept either.
    one = judge(regions((870, 1000), *[(900, 1000)] * 49), 0.9)
    assert one["verdict"].tolist() == [UNKNOWN] + [HOLDS] * 49


def test_families_share_the_error_rate() -> None:
    given, found = regions((875, 1000)), regions((900, 1000), basis="other")
    alone = judge(given, 0.9)["p_value"].iloc[0]
    both = judge(pd.concat([given, found], ignore_index=True), 0.9)["p_value"].iloc[0]
    assert both == pytest.approx(2 * alone)


def test_p_values_are_twice_the_smaller_tail() -> None:
    p = exact_p_values(np.arange(21), np.full(21, 20), 0.9)
    exact = [stats.binomtest(k, 20, 0.9, alternative=side).pvalue for k in range(21) for side in ("less", "greater")]
    np.testing.assert_allclose(p, np.minimum(1, 2 * np.reshape(exact, (21, 2)).min(axis=1)))


def test_holm_keeps_the_family_wise_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.random((2000, 10))
    wrong = np.mean([holm(row).min() <= 0.05 for row in p])
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert holm([]).size == 0


def test_worst_first() -> None:
    table = judge(regions((900, 1000), (960, 1000), (9, 10), (700, 1000), (650, 1000), (990, 1000)), 0.9)
    assert table["covered"].tolist() == [650, 700, 990, 960, 9, 900]


def test_band() -> None:
    table = regions((850, 1000)).assign(band_lower=[0.86], band_upper=[0.94])
    assert judge(table, 0.9)["within_band"].tolist() == [True]
    assert judge(table.assign(band_lower=0.88), 0.9)["within_band"].tolist() == [False]
    assert judge(regions((850, 1000)), 0.9)["within_band"].tolist() == [None]
