"""How coverage depends on the width of the interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from icqr.metrics.checks import Floats, check_rows, equal_widths


def coverage_width_correlation(y: ArrayLike, intervals: ArrayLike) -> float:
    """Pearson's correlation of "covered" and width: 0 if coverage is the same at every x.

    Rows with an infinite width are left out (it has no distance to the others). NaN if all rows are covered, none is,
    or all widths are equal.

    References
    ----------
    Feldman, Bates and Romano (2021), "Improving conditional coverage via orthogonal quantile regression", *NeurIPS*.

    Examples
    --------
    >>> round(coverage_width_correlation([0, 0, 5], [[0, 1], [0, 2], [0, 3]]), 3)
    -0.866
    """
    covered, width = _finite_rows(y, intervals)
    spread = covered.std() * width.std() if len(width) else 0.0
    if spread == 0:
        return float("nan")
    return float(((covered - covered.mean()) * (width - width.mean())).mean() / spread)


def hsic(y: ArrayLike, intervals: ArrayLike) -> float:
    r"""Hilbert–Schmidt independence criterion of "covered" and width: 0 if independent; any dependence raises it.

    :math:`tr(KHLH) / (n-1)^2` with Gaussian kernels :math:`e^{-d^2}` of "covered" and of the width in standard
    deviations, so that the unit of ``y`` does not matter. Its bias is upwards, of order 1/n. Rows with an infinite
    width are left out. MAPIE's ``hsic`` is its root for widths with a standard deviation of 1.

    "Covered" has two values, so this is a quadratic form in the centred "covered"; a grid of the widths with step
    1/1000 and one FFT give it in O(n) memory and O(n log n) time, with an error below 1e-6.

    References
    ----------
    Gretton et al. (2005), *Algorithmic Learning Theory*, 63–77; Feldman, Bates and Romano (2021), *NeurIPS*.

    Examples
    --------
    >>> round(hsic([0, 0, 5, 5], [[0, 1], [0, 1], [0, 2], [0, 2]]), 4)
    0.2758
    """
    covered, width = _finite_rows(y, intervals)
    if len(width) < 2 or np.ptp(width) == 0:
        return 0.0
    place = (width - width.min()) / width.std() * 1000
    cell = np.floor(place).astype(np.int64)
    centred, right = covered - covered.mean(), place - cell
    size = int(cell.max()) + 2
    grid = np.bincount(cell, centred * (1 - right), size) + np.bincount(cell + 1, centred * right, size)
    # Twice the length keeps the circular autocorrelation free of wrap-around; each lag ≠ 0 occurs twice.
    together = np.fft.irfft(np.abs(np.fft.rfft(grid, 2 * size)) ** 2, 2 * size)[:size]
    kernel = np.exp(-((np.arange(size) / 1000) ** 2))
    form = 2 * (together @ kernel) - together[0]
    # The kernel of "covered" is 1 or 1/e; centred, it is 2(1 − 1/e) times the outer product of the centred vector.
    return float(2 * (1 - np.exp(-1)) * form / (len(width) - 1) ** 2)


def _finite_rows(y: ArrayLike, intervals: ArrayLike) -> tuple[Floats, Floats]:
    rows = check_rows(y, intervals)
    finite = np.isfinite(rows.width)
    return rows.covered[finite].astype(float), equal_widths(rows.lower[finite], rows.upper[finite])
