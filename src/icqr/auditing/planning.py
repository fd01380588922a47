"""How many calibration rows are needed, and what a number of them can give."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from icqr._tables import FloatArray
from icqr.auditing.findings import Written, percent, plain, promise
from icqr.calibration import check_coverage, conformal_rank, rows_needed
from icqr.metrics.marginal import check_share, check_whole_number

#: Sizes shown in every plan.
SIZES = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Written):
    """What :func:`plan` says.

    Attributes
    ----------
    coverage, confidence, n_groups : float, float, int
        As given.
    n_calibration, rows_per_group : int or None
        Calibration rows in all and in each group.
    band : (float, float) or None
        Limits of the true coverage in a group, for the share `confidence` of all calibrations; None without rows.
    precision, rows_needed : float and int, or None
        The wanted precision, and the rows that it needs *in each group*.
    table : DataFrame
        A row per number of rows in a group: `rank`, `promised` on average over calibrations, `band_lower`,
        `band_upper`; NaN where rows are too few for a finite interval.
    """

    coverage: float
    confidence: float
    n_groups: int
    n_calibration: int | None
    rows_per_group: int | None
    band: tuple[float, float] | None
    precision: float | None
    rows_needed: int | None
    table: pd.DataFrame

    @property
    def sentence(self) -> str:
        """The answer in words."""
        sentences, least = [], f"{rows_needed(self.coverage):,}"
        if self.rows_per_group is not None:
            rows = f"{self.rows_per_group} calibration row{'' if self.rows_per_group == 1 else 's'}"
            subject = rows if self.n_groups == 1 else f"Each of {self.n_groups:,} groups with {rows}"
            if self.band is None:
                sentences.append(f"{subject}: too few for a finite interval, which needs {least}.")
            else:
                low, high = map(percent, self.band)
                sentences.append(
                    f"{subject}: {promise(self.coverage)} promised; the true coverage is between {low} and {high} in "
                    f"{promise(self.confidence)} of calibrations."
                )
        if self.precision is not None and self.rows_needed is not None:
            total = "" if self.n_groups == 1 else f" in each group, {self.rows_needed * self.n_groups:,} in all,"
            reach = f"To stay within {100 * self.precision:.4g} points of it"
            sentences.append(f"{reach}, {self.rows_needed:,} calibration rows{total} are needed.")
        if not sentences:
            return f"{promise(self.coverage)} needs at least {least} calibration rows in each group; see the table."
        return " ".join(sentences)

    def to_frame(self) -> pd.DataFrame:
        """Return the table."""
        return self.table.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; NaN becomes None."""
        contents: dict[str, Any] = plain({**vars(self), "sentence": self.sentence})
        return contents

    def _contents(self) -> tuple[str, str, tuple[()], dict[str, pd.DataFrame], str]:
        return "Calibration plan", self.sentence, (), {"Calibration rows in a group": self.table}, ""

    def __str__(self) -> str:
        return self.sentence


def plan(
    n_calibration: int | None = None,
    coverage: float = 0.9,
    n_groups: int = 1,
    *,
    precision: float | None = None,
    confidence: float = 0.9,
) -> Plan:
    """Say how far from the promise a calibration of some size can be, and how many rows a precision needs.

    With n calibration rows in a group and k = ceil((n + 1) · coverage), the coverage that the group's new rows get is
    distributed as Beta(k, n + 1 - k) over calibrations, if scores have no ties. The band is its central `confidence`.

    Parameters
    ----------
    n_calibration : int, optional
        Calibration rows in all; groups are taken to be equally large.
    coverage : float
        What is to be promised.
    n_groups : int
        Number of groups, each calibrated by itself.
    precision : float, optional
        How far from the promise the band may reach (0.02 is two points): the rows needed in each group are the
        smallest number from which on it reaches no further.
    confidence : float
        Share of calibrations that the band is for.

    Returns
    -------
    Plan

    Examples
    --------
    >>> print(plan(1000, coverage=0.9, n_groups=5))
    Each of 5 groups with 200 calibration rows: 90 % promised; the true coverage is between 86.4 % and 93.3 % in 90 % of
    calibrations.
    >>> plan(coverage=0.9, precision=0.02).rows_needed
    650
    """
    level, share = float(check_coverage(coverage)), check_share("confidence", confidence)
    total = None if n_calibration is None else check_whole_number("n_calibration", n_calibration, 0)
    groups = check_whole_number("n_groups", n_groups, 1)
    each = None if total is None else total // groups
    reach = None if precision is None else check_share("precision", precision)
    needed = None if reach is None else smallest_size(level, reach, share)

    # A row per usual number of rows, and for those that the answer is about.
    sizes = {*SIZES, rows_needed(level), *(n for n in (each, needed) if n is not None)}
    n = np.array(sorted(sizes))
    rank = np.array([conformal_rank(int(size), level) for size in n])
    low, high = _beta_band(rank, n, share)
    promised = np.where(rank <= n, rank / (n + 1), np.nan)
    table = pd.DataFrame({"rows": n, "rank": rank, "promised": promised, "band_lower": low, "band_upper": high})

    band = None
    if each is not None and each >= rows_needed(level):
        place = int(np.searchsorted(n, each))
        band = float(low[place]), float(high[place])
    return Plan(level, share, groups, total, each, band, reach, needed, table)


def _beta_band(ranks: ArrayLike, sizes: ArrayLike, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the central band of the coverage that rank k of n scores gives, Beta(k, n + 1 - k); NaN for k > n."""
    k, rest = np.asarray(ranks, dtype=float), np.asarray(sizes, dtype=float) + 1 - np.asarray(ranks, dtype=float)
    tail = (1 - confidence) / 2
    low, high = (np.where(rest > 0, stats.beta.ppf(q, k, np.maximum(rest, 1e-9)), np.nan) for q in (tail, 1 - tail))
    return low, high


def smallest_size(coverage: float, precision: float, confidence: float) -> int:
    """Return the smallest number of rows from which on the band stays within the precision.

    The rank is rounded up, so the band moves in steps and a single smaller number may be lucky. Without rounding it
    would shrink steadily: the band of the exact rank is the worst on the lower side, and that of the exact rank plus 1
    on the upper. Bisection on these gives a number that is enough; the true ranks below it are then looked at.

    Examples
    --------
    >>> smallest_size(0.9, 0.05, 0.9)
    110
    """

    def is_enough(n: int) -> bool:
        exact = (n + 1) * coverage
        low, _ = _beta_band(exact, n, confidence)
        _, high = _beta_band(min(exact + 1, n + 0.5), n, confidence)
        return bool(low >= coverage - precision and high <= coverage + precision)

    end = bisect_left(range(10**12), True, lo=rows_needed(coverage), key=is_enough)

    # Downwards in blocks, to the last number of rows whose band reaches too far (or that is too small for a band).
    while end > 0:
        n = np.arange(max(end - 1000, 0), end)
        low, high = _beta_band([conformal_rank(int(size), coverage) for size in n], n, confidence)
        outside = ~((low >= coverage - precision) & (high <= coverage + precision))
        if outside.any():
            return int(n[outside][-1]) + 1
        end = int(n[0])
    return 1
