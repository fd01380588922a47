"""Verdicts on coverage in many regions at once, with a stated chance of any false alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from icqr._tables import FloatArray
from icqr.metrics import binomial_interval

#: Chance of any false alarm, "undercovers" or "overcovers", in one audit.
ERROR_RATE = 0.05
#: Confidence of each region's exact interval, by itself.
CONFIDENCE = 0.95
UNDER, OVER, HOLDS, UNKNOWN = "undercovers", "overcovers", "holds", "too few rows to tell"
VERDICTS = (UNDER, OVER, UNKNOWN, HOLDS)


def tolerance(coverage: float) -> float:
    """Give the shortfall up to which a promise counts as kept: 5 points, but at most half the promised misses.

    Examples
    --------
    >>> round(tolerance(0.8), 3), round(tolerance(0.9), 3), round(tolerance(0.99), 3)
    (0.05, 0.05, 0.005)
    """
    return min(0.05, (1 - coverage) / 2)


def exact_p_values(hits: ArrayLike, n: ArrayLike, coverage: float) -> FloatArray:
    """Give two-sided binomial p-values of "the true coverage is the promised one": twice the smaller tail.

    Examples
    --------
    >>> exact_p_values([9, 5, 0], [10, 10, 0], 0.9).round(4).tolist()
    [1.0, 0.0033, 1.0]
    """
    k, rows = np.asarray(hits), np.asarray(n)
    below, above = stats.binom.cdf(k, rows, coverage), stats.binom.sf(k - 1, rows, coverage)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


def holm(p_values: ArrayLike) -> FloatArray:
    """Give Holm's adjusted p-values: rejecting those ≤ α keeps the chance of any false rejection ≤ α.

    No independence is needed.

    References
    ----------
    Holm (1979), *Scandinavian Journal of Statistics* 6, 65–70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.asarray(np.minimum(adjusted, 1.0))


def judge(regions: pd.DataFrame, coverage: float) -> pd.DataFrame:
    """Judge regions and put the worst first.

    Regions with the same `basis` are one family: those given beforehand, judged on all rows, and those found on one
    half of the rows, judged on the other. Holm's adjustment is made within each family, and each gets an equal share of
    `ERROR_RATE`. (One Holm step over both would not be exact: how many regions are found depends on rows that also
    judge the given ones.)

    Parameters
    ----------
    regions : DataFrame
        A row per region with `kind`, `n`, `covered` (a count), `basis`, `band_lower` and `band_upper`.
    coverage : float
        What is promised.

    Returns
    -------
    DataFrame
        With `coverage`, `coverage_lower`, `coverage_upper`, `p_value` (adjusted), `verdict`, `within_band` in addition.
    """
    low, high = binomial_interval(regions["covered"], regions["n"], confidence=CONFIDENCE)
    raw = pd.Series(exact_p_values(regions["covered"], regions["n"], coverage), index=regions.index)
    families = regions["basis"].nunique()
    p_value = np.minimum(raw.groupby(regions["basis"]).transform(holm) * families, 1.0)
    share = regions["covered"] / regions["n"].replace(0, np.nan)
    judged = regions.assign(coverage=share, coverage_lower=low, coverage_upper=high, p_value=p_value)
    judged["verdict"] = _verdicts(judged, coverage)
    judged["within_band"] = _within_band(judged)
    return _worst_first(judged)


def _verdicts(judged: pd.DataFrame, coverage: float) -> Any:
    alarm = judged["p_value"] <= ERROR_RATE
    kept = (judged["coverage_lower"] >= coverage - tolerance(coverage)) & (judged["coverage_upper"] >= coverage)
    cases = [alarm & (judged["coverage"] < coverage), alarm, kept]
    return np.select(cases, [UNDER, OVER, HOLDS], default=UNKNOWN)


def _within_band(judged: pd.DataFrame) -> list[bool | None]:
    """Tell whether a region's exact interval meets the band that its calibration can give; None without a band."""
    low, high = judged["band_lower"].astype(float), judged["band_upper"].astype(float)
    meets = (judged["coverage_lower"] <= high) & (judged["coverage_upper"] >= low)
    return [None if missing else bool(value) for value, missing in zip(meets, low.isna(), strict=True)]


def _worst_first(judged: pd.DataFrame) -> pd.DataFrame:
    """Sort by verdict; then by how far from the promise a region is at least (its interval's nearer end).

    A slab, which is hard to read, comes after the regions with the same verdict.
    """
    severity = judged["verdict"].map({verdict: place for place, verdict in enumerate(VERDICTS)})
    nearer = np.where(judged["verdict"] == OVER, -judged["coverage_lower"], judged["coverage_upper"])
    slab = judged["kind"] == "worst slab"
    order = np.lexsort((judged["coverage"].fillna(1.0), nearer, slab, severity))
    return judged.iloc[order].reset_index(drop=True)
