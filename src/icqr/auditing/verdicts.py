"""The verdicts on regions: each follows from the interval that is printed beside it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from icqr._tables import FloatArray
from icqr.metrics import binomial_interval

#: Chance that any interval of an audit misses the true coverage of its region, so also of any false alarm.
ERROR_RATE = 0.05
#: How sure an audit's intervals are, all together; and other intervals, each by itself.
CONFIDENCE = 1 - ERROR_RATE
UNDER, OVER, LUCK, UNKNOWN, HOLDS = (
    "undercovers",
    "overcovers",
    "within calibration luck",
    "too few rows to tell",
    "holds",
)
#: What a region's interval is.
SURE = "95 % sure for all regions together"
#: The rows that judge a region: of one that was given, and of one that was found.
GIVEN, FOUND = "all rows", "the half not searched"


def definitions(coverage: float) -> dict[str, str]:
    """Return what each verdict means, the worst first. This is the one place that defines them.

    The interval is the one printed beside the verdict: the exact interval of the region's coverage, 95 % sure for all
    regions of an audit together.

    Examples
    --------
    >>> definitions(0.9)["holds"]
    'The interval contains the promise, ends at most 5 points below it, and is at most 10 points wide.'
    """
    points = f"{100 * tolerance(coverage):.4g} points"
    twice = f"{200 * tolerance(coverage):.4g} points"
    return {
        UNDER: "The whole interval is below the promise.",
        OVER: "The whole interval is above the promise.",
        LUCK: (
            "The interval leaves out the promise, but overlaps the coverage that nine of ten calibrations with this "
            "number of calibration rows give."
        ),
        UNKNOWN: "The interval contains the promise, but is too wide to say more; more rows would tell.",
        HOLDS: f"The interval contains the promise, ends at most {points} below it, and is at most {twice} wide.",
    }


def tolerance(coverage: float) -> float:
    """Return the shortfall up to which a promise counts as kept: 5 points, but at most half the promised misses."""
    return min(0.05, (1 - coverage) / 2)


def digits(coverage: float) -> int:
    """Return the decimals of a percentage that judges a promise: one, more for promises above 99 %.

    Examples
    --------
    >>> digits(0.9), digits(0.99), digits(0.999)
    (1, 1, 2)
    """
    return max(1, math.ceil(-math.log10(tolerance(coverage)) - 1e-9) - 2)


def judge(regions: pd.DataFrame, coverage: float, n_families: int) -> pd.DataFrame:
    """Judge regions, a row each with `kind`, `basis`, `n`, `covered` (a count) and a band, and put the worst first.

    There are up to four families: all rows, the user's groups, a model's own groups, and the regions that were found.
    Each has an equal share of `ERROR_RATE`, so that the one interval of all rows keeps most power. Within a family each
    interval has an equal part (Bonferroni), so that no independence is needed. How many regions are found depends on
    rows that also judge the others, so the number of families is fixed before the search.
    """
    kind, found = regions["kind"], regions["basis"] == FOUND
    families = [kind == "all rows", kind == "group", kind == "model group", found]

    # The exact intervals, rounded outwards to the digits that are printed: what is printed is what is judged.
    low, high, sure = (np.full(len(regions), math.nan) for _ in range(3))
    for inside in families:
        if inside.any():
            sure[inside] = 1 - ERROR_RATE / n_families / inside.sum()
            counts = regions.loc[inside, ["covered", "n"]].to_numpy(dtype=float).T
            low[inside], high[inside] = binomial_interval(*counts, confidence=float(sure[inside][0]))
    scale = 10.0 ** (digits(coverage) + 2)
    low, high = np.floor(low * scale) / scale, np.ceil(high * scale) / scale

    covered = regions["covered"] / regions["n"].replace(0, np.nan)
    verdict, meets = _verdicts(low, high, regions, coverage)
    judged = regions.assign(
        coverage=covered, coverage_lower=low, coverage_upper=high, confidence=sure, verdict=verdict, within_band=meets
    )

    # The worst verdict first; then the region that is at least furthest from the promise, by its interval's nearer
    # end. A slab, which is hard to read, comes after the regions with the same verdict.
    severity = pd.Series(verdict).map({name: place for place, name in enumerate(definitions(coverage))})
    nearer = np.where(verdict == OVER, -low, high)
    order = np.lexsort((covered.fillna(1.0), nearer, regions["kind"] == "worst slab", severity))
    return judged.iloc[order].reset_index(drop=True)


def looked_at(regions: pd.DataFrame) -> pd.DataFrame:
    """Return the regions but all rows and a model's own groups: in a comparison all methods are judged in these."""
    return regions[~regions["kind"].isin(["all rows", "model group"])]


def _verdicts(
    low: FloatArray, high: FloatArray, regions: pd.DataFrame, coverage: float
) -> tuple[FloatArray, pd.Series]:
    """Return the verdicts, see :func:`definitions`, and whether each interval meets its band (None: it has none)."""
    # The band is compared as it is printed, to the same digits.
    band_low, band_high = (
        regions[f"band_{end}"].astype(float).round(digits(coverage) + 2) for end in ("lower", "upper")
    )
    meets = (low <= band_high) & (high >= band_low)

    slack, rounding = tolerance(coverage), 1e-9
    outside = (high < coverage - rounding) | (low > coverage + rounding)
    kept = (low >= coverage - slack - rounding) & (high - low <= 2 * slack + rounding)
    verdict = np.select(
        [outside & meets, high < coverage - rounding, low > coverage + rounding, kept],
        [LUCK, UNDER, OVER, HOLDS],
        default=UNKNOWN,
    )
    return verdict, pd.Series(meets, dtype=object).where(band_low.notna(), None)
