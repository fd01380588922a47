"""Measures of whole distributions: how near they are to what happened, and whether their probabilities hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from icqr.metrics.marginal import as_target, check_finite, check_weight, weighted_mean


def crps(y: ArrayLike, points: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score of distributions given by equally likely points (smaller is better).

    It is in the unit of ``y``: for one point the absolute error, and for two rows of points the mean distance of a
    point from ``y`` less half the mean distance of two points. `PredictiveDistribution.crps` gives it row by row
    without making the points.

    Parameters
    ----------
    y : (n,) array
        What happened.
    points : (n, m) array
        Each row's points, from any library: draws, or quantiles at evenly spaced levels.
    sample_weight : (n,) array, optional
        Weights of the rows.

    References
    ----------
    Gneiting and Raftery (2007), *Journal of the American Statistical Association* 102, 359–378.

    Examples
    --------
    >>> crps([1.0], [[0.0, 2.0]])
    0.5
    """
    values, rows = as_target(y), np.asarray(points, dtype=float)
    if not len(values) or rows.ndim != 2 or len(rows) != len(values) or not rows.shape[1]:
        raise ValueError(
            f"points must have the shape (n, m), m points for each of {len(values)} rows; got {rows.shape}"
        )
    check_finite("y", values)
    if not np.isfinite(rows).all():
        raise ValueError(
            f"points must be finite; row {int((~np.isfinite(rows)).any(axis=1).argmax())} has one that is not"
        )
    n_points = rows.shape[1]
    # With this weight for the i-th smallest, points add up to the sum of the distances of all pairs.
    pairs = np.sort(rows, axis=1) @ np.arange(1.0 - n_points, n_points, 2.0)
    scores = np.abs(rows - values[:, None]).mean(axis=1) - pairs / n_points**2
    return weighted_mean(scores, check_weight(sample_weight, len(values)))


def pit_deviation(pit: ArrayLike, groups: ArrayLike | None = None) -> pd.DataFrame:
    """How far probability integral transforms are from uniform, in all rows or in each group.

    Parameters
    ----------
    pit : (n,) array
        For example from `PredictiveDistribution.pit`. Uniform if probabilities hold.
    groups : (n,) array, optional
        Each row's group. By default all rows are one.

    Returns
    -------
    DataFrame
        A row per group: ``n``; ``deviation``, the largest distance between the share of values up to u and u itself;
        ``p_value``, the chance of such a deviation or a larger one if the values are uniform.

    Examples
    --------
    >>> pit_deviation([0.1, 0.4, 0.6, 0.9], groups=["a", "a", "b", "b"]).round(3)
           n  deviation  p_value
    group
    a      2        0.6     0.32
    b      2        0.6     0.32
    """
    values = np.asarray(pit, dtype=float)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("pit must hold numbers from 0 to 1, at least one and without NaN, as an array of shape (n,)")
    labels = np.zeros(len(values), dtype=np.intp) if groups is None else np.asarray(groups)
    if labels.shape != values.shape:
        raise ValueError(f"groups must have a label for each of {len(values)} rows, got shape {labels.shape}")
    rows = {}
    for group, own in pd.Series(values).groupby(labels):
        test = stats.kstest(own, "uniform")
        rows[group] = [len(own), float(test.statistic), float(test.pvalue)]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["n", "deviation", "p_value"])
    return table.rename_axis("group")
