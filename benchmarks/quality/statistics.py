"""Comparisons over seeds and over data sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from paper.notebook import Array


class Paired(NamedTuple):
    """A mean difference over seeds, its standard error and 95 % interval, and how sure it is to be beyond a margin.

    `p_below` and `p_above` are one-sided p-values of "not below -margin" and "not above margin".
    """

    mean: float
    standard_error: float
    low: float
    high: float
    p_below: float
    p_above: float


def corrected_error(differences: ArrayLike, test_share: float) -> float:
    r"""Return the standard error of a mean over splits of the same rows, by Nadeau and Bengio (2003).

    :math:`\sqrt{(1/J + n_{test}/n_{train})\, s^2}` for J splits, :math:`s^2` the variance over them: splits share rows,
    so that their results are not independent. With ``test_share=0`` it is the usual one.

    Parameters
    ----------
    differences : array
        One for each split.
    test_share : float
        Test rows over the rows learned from, in each split.

    Examples
    --------
    >>> corrected_error([1.0, 2.0, 3.0], test_share=1 / 3)  # s² = 1, 1/3 + 1/3
    0.816496580927726
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2:
        return float("nan")
    return float(np.sqrt((1 / len(values) + test_share) * values.var(ddof=1)))


def paired(differences: ArrayLike, test_share: float, margin: float = 0.0) -> Paired:
    """Compare by Student's t with the corrected standard error.

    Without spread the p-values are 0 or 1. With an infinite difference, so is the mean; it is above every margin.

    Examples
    --------
    >>> result = paired([-0.02, -0.03, -0.04], test_share=1 / 3, margin=0.01)
    >>> result.mean, round(result.p_below, 4)  # t = (-0.03 + 0.01) / (0.01 √(2/3)), two degrees of freedom
    (-0.03, 0.067)
    """
    values = np.asarray(differences, dtype=float)
    if np.isposinf(values).any():
        return Paired(np.inf, np.nan, np.nan, np.nan, 1.0, 0.0)
    mean, error = float(values.mean()), corrected_error(values, test_share)
    if np.isnan(error):  # one split tells nothing of the spread
        return Paired(mean, error, np.nan, np.nan, np.nan, np.nan)
    if error == 0:
        return Paired(mean, error, mean, mean, float(mean >= -margin), float(mean <= margin))

    freedom = len(values) - 1
    half = float(special.stdtrit(freedom, 0.975)) * error
    below, above = (float(special.stdtr(freedom, beyond / error)) for beyond in (mean + margin, margin - mean))
    return Paired(mean, error, mean - half, mean + half, below, above)


def holm(p_values: ArrayLike) -> Array:
    """Adjust p-values for their number by Holm (1979); missing ones stay missing and don't count.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(values), np.nan)
    order = np.argsort(values)[: int(np.isfinite(values).sum())]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * values[order]), 1.0)
    return adjusted


def ratio_of_sums(
    over: Sequence[Array], under: Sequence[Array], n_resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Return a sum over data sets divided by another, with a 95 % bootstrap interval; nothing is clipped.

    Each data set's value is a mean over seeds. Both sums are from the same draws.

    Parameters
    ----------
    over, under : lists of arrays
        For each data set its values by seed.

    Examples
    --------
    >>> ratio_of_sums([np.array([1.0, 3.0]), np.array([2.0])], [np.array([2.0, 6.0]), np.array([4.0])])
    (0.5, 0.5, 0.5)
    """
    (a, drawn_a), (b, drawn_b) = _sums(over, n_resamples, seed), _sums(under, n_resamples, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.quantile(drawn_a / drawn_b, [0.025, 0.975])
        return float(np.divide(a, b)), float(low), float(high)


def mean_over_sets(values: Sequence[Array], n_resamples: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """Return the mean over data sets, each set's value a mean over seeds, with a 95 % bootstrap interval.

    With an infinite value the mean is infinite, and there is no interval.

    Examples
    --------
    >>> mean_over_sets([np.array([1.0, 1.0]), np.array([1.0])])
    (1.0, 1.0, 1.0)
    """
    if not all(np.isfinite(by_seed).all() for by_seed in values):
        return float(np.mean([by_seed.mean() for by_seed in values])), np.nan, np.nan
    total, drawn = _sums(values, n_resamples, seed)
    low, high = np.quantile(drawn, [0.025, 0.975]) / len(values)
    return total / len(values), float(low), float(high)


def _sums(values: Sequence[Array], n_resamples: int, seed: int) -> tuple[float, Array]:
    """Return the sum over data sets of the means over seeds, and the same of each bootstrap draw."""
    sizes = [len(by_seed) for by_seed in values]
    together = np.concatenate(list(values))
    weights = _weights(tuple(sizes), n_resamples, seed)
    return float(together @ np.repeat(1 / np.array(sizes), sizes)), together @ weights


@lru_cache(maxsize=8)
def _weights(sizes: tuple[int, ...], n_resamples: int, seed: int) -> Array:
    """Return (values, draws): how much each data set's values count, one set's after the other's.

    Data sets are drawn with replacement, and in each the seeds. So an interval holds what other sets of this kind, and
    other seeds, might have given.
    """
    rng, n, ends = np.random.default_rng(seed), np.array(sizes), np.cumsum(sizes)
    weights = np.zeros((int(ends[-1]), n_resamples))
    for draw in range(n_resamples):
        sets = rng.integers(len(n), size=len(n))
        seeds = np.concatenate([ends[j] - n[j] + rng.integers(n[j], size=n[j]) for j in sets])
        np.add.at(weights[:, draw], seeds, np.repeat(1 / n[sets], n[sets]))
    return weights
