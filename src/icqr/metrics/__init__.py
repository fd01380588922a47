"""Measures of prediction intervals: how often they hold, how wide they are, and where they fail.

Each function takes ``(y, intervals, …)``: ``y`` finite, of shape ``(n,)``; ``intervals`` of shape ``(n, 2)``, lower
and upper bounds side by side, from any library. Intervals are closed: a ``y`` on a bound is covered. Bounds may be
infinite, and each function says what that means for it. ``sample_weight`` is ``(n,)``, not negative; None weighs all
rows alike. ``coverage`` is the promised share (0.9), ``confidence`` that of an exact interval.
"""

from icqr.metrics.conditional import (
    WorstSlab,
    coverage_by_group,
    coverage_gap,
    excess_risk,
    size_stratified_coverage,
    worst_slab_coverage,
)
from icqr.metrics.marginal import (
    binomial_interval,
    coverage_score,
    coverage_width_correlation,
    hsic,
    interval_iou,
    interval_score,
    mean_width,
    pinball_loss,
    width_summary,
)
from icqr.metrics.probabilistic import crps, pit_deviation

__all__ = [
    "WorstSlab",
    "binomial_interval",
    "coverage_by_group",
    "coverage_gap",
    "coverage_score",
    "coverage_width_correlation",
    "crps",
    "excess_risk",
    "hsic",
    "interval_iou",
    "interval_score",
    "mean_width",
    "pinball_loss",
    "pit_deviation",
    "size_stratified_coverage",
    "width_summary",
    "worst_slab_coverage",
]
