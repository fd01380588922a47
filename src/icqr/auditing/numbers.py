"""The measures of an audit over all rows: one number each."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from icqr.auditing.inputs import Audited
from icqr.auditing.verdicts import CONFIDENCE
from icqr.metrics import (
    WorstSlab,
    binomial_interval,
    coverage_gap,
    coverage_width_correlation,
    excess_risk,
    hsic,
    interval_score,
    width_summary,
    worst_slab_coverage,
)

#: With fewer rows no regions are searched for, and no classifier is trained.
FEWEST_TO_SEARCH = 100
#: The excess risk is computed on at most so many rows, drawn at random; on fewer if there are many columns, so that it
#: takes seconds.
MOST_FOR_RISK, FEWEST_FOR_RISK, CELLS_FOR_RISK = 20_000, 5_000, 2_000_000
N_DIRECTIONS = 200
RISKS = ("l1", "l1_under", "l1_over", "squared", "squared_under", "squared_over")


def marginal_numbers(audited: Audited, strata: pd.DataFrame) -> dict[str, float]:
    """Give coverage, widths, score and how coverage depends on groups and width; NaN where there is none."""
    y, bounds, width = audited.rows.y, audited.intervals, audited.rows.width
    low, high = binomial_interval(audited.rows.covered.sum(), len(y), confidence=CONFIDENCE)
    summary = width_summary(y, bounds)
    return {
        "n": float(len(y)),
        "coverage": float(audited.rows.covered.mean()),
        "coverage_lower": float(low),
        "coverage_upper": float(high),
        "mean_width": float(width.mean()),
        "median_width": float(np.median(width)),
        **{f"finite_width_{name.lower()}": float(summary[name]) for name in summary.index[:-2]},
        "n_infinite": float(summary["n_infinite"]),
        "interval_score": interval_score(y, bounds, coverage=audited.coverage),
        **_gaps(audited),
        "size_stratified_coverage": float(strata["coverage"].min()),
        "coverage_width_correlation": coverage_width_correlation(y, bounds),
        "hsic": hsic(y, bounds),
    }


def _gaps(audited: Audited) -> dict[str, float]:
    """Give the coverage gap over the first grouping, plain and weighted by rows."""
    gaps = {"coverage_gap": math.nan, "weighted_coverage_gap": math.nan}
    if audited.groupings:
        labels, y, bounds = audited.groupings[0].codes, audited.rows.y, audited.intervals
        for name, weighted in zip(gaps, (False, True), strict=True):
            gaps[name] = coverage_gap(y, bounds, labels, coverage=audited.coverage, weighted=weighted)
    return gaps


def worst_slab(audited: Audited, random_state: int) -> WorstSlab | None:
    """Give the worst slab, if there are features that vary and rows enough to search."""
    if audited.X is None or len(audited.X) < FEWEST_TO_SEARCH or not _varies(audited.X):
        return None
    y, bounds = audited.rows.y, audited.intervals
    return worst_slab_coverage(y, bounds, audited.X, n_directions=N_DIRECTIONS, random_state=random_state)


def _varies(X: pd.DataFrame) -> bool:
    # Of these a missing value is no value of its own.
    numeric = X.select_dtypes(["number", "bool", "boolean", "datetime", "datetimetz"])
    known = numeric.replace([np.inf, -np.inf], np.nan)
    others = X.drop(columns=list(numeric.columns))
    return bool((known.nunique() > 1).any() or (others.nunique(dropna=False) > 1).any())


def slab_numbers(slab: WorstSlab | None) -> dict[str, float]:
    """Give the slab's coverage, exact interval and number of rows."""
    names = ("worst_slab_coverage", "worst_slab_lower", "worst_slab_upper", "worst_slab_n")
    if slab is None:
        return dict.fromkeys(names, math.nan)
    return dict(zip(names, (slab.coverage, *slab.interval, float(slab.n)), strict=True))


def risk_numbers(audited: Audited, random_state: int, wanted: bool) -> dict[str, float]:
    """Give the excess risk in its forms and parts, each with its standard error."""
    n = len(audited.rows.y)
    risk = pd.DataFrame(math.nan, index=list(RISKS), columns=["value", "standard_error"])
    if wanted and audited.X is not None and n >= FEWEST_TO_SEARCH:
        most = int(np.clip(CELLS_FOR_RISK // audited.X.shape[1], FEWEST_FOR_RISK, MOST_FOR_RISK))
        rows = np.sort(np.random.default_rng(random_state).permutation(n)[:most])
        y, bounds, X = audited.rows.y[rows], audited.intervals[rows], audited.X.iloc[rows]
        risk = excess_risk(y, bounds, X, coverage=audited.coverage, random_state=random_state)
    values = {f"excess_risk_{name}": float(risk["value"][name]) for name in RISKS}
    return values | {f"excess_risk_{name}_error": float(risk["standard_error"][name]) for name in RISKS}
