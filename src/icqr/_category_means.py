"""Many categories as two numbers: how large the target is in each category, and how far it spreads there."""

from __future__ import annotations

from typing import Any

import numpy as np

from icqr._tables import FloatArray, IntArray

#: A training row gets what the rows of other folds say about its category; so many folds there are.
FOLDS = 5


def learn_means(
    codes: IntArray, n_categories: int, y: FloatArray, sample_weight: Any = None, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Return (categories + 1, 2) means of each category, and each training row's (n, 2) means, learned without the row.

    The two are the mean of y, and the mean distance from it. A mean that counts the row itself would tell a model the
    row's own y. So a training row gets means over the rows of other folds, as with scikit-learn's TargetEncoder. That
    class takes no weights, and does not draw a category of one row towards the others, so it is not used here.

    The last means are those of missing values (code -1). Unknown categories get them too; without missing values in the
    training rows, they are the means of all rows.

    Examples
    --------
    >>> codes = np.repeat([0, 1], 50)
    >>> means, of_rows = learn_means(codes, 2, np.where(codes == 0, 10.0, 20.0))
    >>> means.tolist(), of_rows[:1].tolist()
    ([[10.0, 0.0], [20.0, 0.0], [15.0, 0.0]], [[10.0, 0.0]])
    """
    codes = np.where(codes < 0, n_categories, codes)
    weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    # 1 in the mean of the rows that count, whatever the weights' unit; a row of weight 0 is as if it were not there.
    counted = np.flatnonzero(weights)
    weights = weights[counted] / (weights[counted].mean() if len(counted) else 1.0)
    folds = np.random.default_rng(seed).permutation(len(y)) % FOLDS

    of_rows = np.empty((len(y), 2))
    for fold in range(FOLDS):
        inside, others = folds == fold, folds[counted] != fold
        rows = counted[others]
        of_rows[inside] = _means(codes[rows], n_categories + 1, y[rows], weights[others])[codes[inside]]
    return _means(codes[counted], n_categories + 1, y[counted], weights), of_rows


def _means(codes: IntArray, n_categories: int, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Return each category's mean of y, and its mean distance from it."""
    means = _shrunk_means(codes, n_categories, y, weights)
    return np.column_stack([means, _shrunk_means(codes, n_categories, np.abs(y - means[codes]), weights)])


def _shrunk_means(codes: IntArray, n_categories: int, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return each category's mean, drawn towards the mean of all rows: a category of a few rows says little.

    How far follows from the variance of the values within categories and that of the categories' own means, both
    estimated by the analysis of variance (empirical Bayes). If categories differ by no more than chance, all get the
    mean of all rows.
    """
    counts = np.bincount(codes, weights, minlength=n_categories)
    total, n_seen = counts.sum(), int((counts > 0).sum())
    if total <= 0:
        return np.zeros(n_categories)
    overall = float(weights @ values) / total
    seen = np.maximum(counts, np.finfo(np.float64).tiny)
    differences = np.bincount(codes, weights * (values - overall), minlength=n_categories) / seen
    within = float(weights @ (values - overall - differences[codes]) ** 2) / max(total - n_seen, 1.0)
    chance = (n_seen - 1) * within
    pairs = total - float(counts @ counts) / total
    between = max(float(counts @ differences**2) - chance, 0.0) / pairs if total > n_seen and pairs > 0 else 0.0
    kept = counts * between / np.maximum(counts * between + within, np.finfo(np.float64).tiny)
    return np.asarray(overall + kept * differences)
