"""Measures over all rows: coverage, width, scores, overlap with known intervals, dependence of coverage on width.

First the checks of targets, intervals and weights that all measures rely on.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from icqr._messages import warn

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

# -- Checked rows ----------------------------------------------------------------------------------------


class CheckedRows(NamedTuple):
    """Rows that passed :func:`check_rows`, with the width of each interval and whether it holds y."""

    y: Floats
    lower: Floats
    upper: Floats
    width: Floats
    covered: NDArray[np.bool_]
    weight: Floats | None


def check_rows(
    y: ArrayLike, intervals: ArrayLike, sample_weight: ArrayLike | None = None, name: str = "intervals"
) -> CheckedRows:
    """Return the rows with each interval's width and whether it holds y; an error names the first row that is wrong."""
    values, bounds = as_target(y), np.asarray(intervals, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"y must have the shape (n,) with at least one row, got {values.shape}")
    check_finite("y", values)
    if bounds.shape != (len(values), 2):
        wanted = f"(n, 2), lower and upper bounds side by side for the n = {len(values)} rows of y"
        raise ValueError(f"{name} must have the shape {wanted}; got {bounds.shape}")
    lower, upper = bounds[:, 0], bounds[:, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        width = upper - lower
    wrong = ~(width >= 0)  # also true of NaN, which [inf, inf] gives as well
    if wrong.any():
        row = int(wrong.argmax())
        rule = "lower ≤ upper in every row, no NaN, and bounds that are not both +inf or both -inf"
        fix = "np.sort(…, axis=1) orders crossed bounds, -inf and inf stand for no bound"
        raise ValueError(f"{name} must have {rule}; got [{lower[row]}, {upper[row]}] in row {row} ({fix})")
    covered = (lower <= values) & (values <= upper)
    return CheckedRows(values, lower, upper, width, covered, check_weight(sample_weight, len(values)))


def as_target(y: ArrayLike) -> Floats:
    """Return y as floats, a single column as one dimension; refuse text and dates.

    Examples
    --------
    >>> as_target([[1], [2]])
    array([1., 2.])
    """
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind in "OSU":
        text = next((value for value in values.flat if isinstance(value, str | bytes)), None)
        if text is not None:
            fix = "convert it first, for example by pd.to_numeric"
            raise ValueError(f"y must hold numbers, got the text {str(text)!r}; {fix}")
    if values.dtype.kind in "mM":
        raise ValueError(f"y must hold numbers, got {values.dtype}; turn dates and durations into numbers first")
    return values.astype(float)


def equal_widths(lower: Floats, upper: Floats) -> Floats:
    """Return upper − lower, with widths made equal that differ by no more than the rounding of their bounds.

    A method that adds the same number to each prediction has one width, not one per rounding error.

    Examples
    --------
    >>> lower, upper = np.array([0.1, 0.7, 1e6]) - 0.3, np.array([0.1, 0.7, 1e6]) + 0.3
    >>> len(set(upper - lower)), len(set(equal_widths(lower, upper)))
    (3, 1)
    """
    with np.errstate(over="ignore"):
        width = upper - lower

    # In order of size, a new width begins after a gap that is larger than the rounding on either side of it.
    order = np.argsort(width, kind="stable")
    ordered, largest = width[order], np.maximum(np.abs(lower), np.abs(upper))[order]
    noise = 4 * np.finfo(float).eps * np.where(np.isfinite(ordered), largest, 0.0)
    with np.errstate(invalid="ignore"):  # infinite widths are equal
        gaps = np.diff(ordered, prepend=-np.inf)
    starts = np.flatnonzero(gaps > np.maximum(noise, np.append(noise[:1], noise[:-1])))

    # All rows up to the next one have the least of their widths.
    equal = np.empty_like(width)
    equal[order] = np.repeat(ordered[starts], np.diff(np.append(starts, len(ordered))))
    return equal


def check_finite(name: str, values: Floats) -> None:
    """Raise, naming the row, if a value is NaN or infinite."""
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise ValueError(f"{name} must be finite, got {values[row]} in row {row}; drop or fill such rows")


def check_weight(sample_weight: ArrayLike | None, n: int) -> Floats | None:
    """Return n weights that are not negative and not all zero, or None if none are given."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=float)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have the shape ({n},), one weight per row of y; got {weight.shape}")
    check_finite("sample_weight", weight)
    if weight.min() < 0 or weight.sum() == 0:
        raise ValueError(f"sample_weight must not be negative nor all 0; its least value is {weight.min()}")
    return weight


def check_share(name: str, share: object) -> float:
    """Return a share as a float, if it is strictly between 0 and 1."""
    number = float(share) if isinstance(share, Real) else float("nan")
    if not 0 < number < 1:
        hint = f"; did you mean {number / 100:g}?" if 1 < number < 100 else ""
        raise ValueError(f"{name} must be strictly between 0 and 1, got {share!r}{hint}")
    return number


def check_whole_number(name: str, value: object, least: int) -> int:
    """Return a whole number as an int, if it is not too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}; give {least} for example")
    return int(value)


def weighted_mean(values: NDArray[Any], weight: Floats | None) -> float:
    """Return the mean; None weighs all rows alike."""
    if weight is None:
        return float(values.mean())
    used = weight > 0  # an infinite value of weight 0 must not turn the mean into NaN
    return float(np.average(values[used], weights=weight[used]))


# -- Coverage --------------------------------------------------------------------------------------------


def coverage_score(y: ArrayLike, intervals: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Share of rows whose interval holds ``y``: :math:`\frac1n \sum_i 1[l_i \le y_i \le u_i]`.

    An infinite bound covers everything on its side.

    Examples
    --------
    >>> coverage_score([1, 2, 3, 4], [[0, 1], [0, 1], [2, 4], [-float("inf"), 9]])
    0.75
    """
    rows = check_rows(y, intervals, sample_weight)
    return weighted_mean(rows.covered, rows.weight)


def binomial_interval(covered: ArrayLike, n: ArrayLike, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Exact confidence interval of a share, from counts (arrays are taken element by element).

    The bounds are quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k); no rows at all give (0, 1).

    References
    ----------
    Clopper and Pearson (1934), *Biometrika* 26, 404–413.

    Examples
    --------
    >>> low, high = binomial_interval([9, 0], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.555, 0.   ]), array([0.997, 0.308]))
    """
    k, rows = np.asarray(covered, dtype=float), np.asarray(n, dtype=float)
    if np.any((k < 0) | (k > rows)):
        raise ValueError(f"covered must be between 0 and n in every place, got {k} of {rows}")
    tail = (1 - check_share("confidence", confidence)) / 2
    # Where the formula has no meaning (k = 0, k = n), 1 stands in for the parameter and `where` for the result.
    low = np.where(k > 0, betaincinv(np.where(k > 0, k, 1), rows - k + 1, tail), 0.0)
    high = np.where(k < rows, betaincinv(k + 1, np.where(k < rows, rows - k, 1), 1 - tail), 1.0)
    return low, high


# -- Width -----------------------------------------------------------------------------------------------


def mean_width(y: ArrayLike, intervals: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean of upper − lower; ``y`` is only checked, so that all metrics are called alike.

    One infinite interval makes it infinite, and a warning says how many there are; :func:`width_summary` describes the
    others.

    Examples
    --------
    >>> mean_width([0, 0], [[0, 1], [0, 2]])
    1.5
    """
    rows = check_rows(y, intervals, sample_weight)
    infinite = np.isinf(rows.width)
    if rows.weight is not None:
        infinite &= rows.weight > 0
    if infinite.any():
        how_many = f"{infinite.sum()} of {len(rows.y)} intervals are infinite"
        warn(f"{how_many}, and so is their mean width; width_summary describes the finite ones")
    return weighted_mean(rows.width, rows.weight)


def width_summary(y: ArrayLike, intervals: ArrayLike) -> pd.Series[float]:
    """Eight statistics of the *finite* widths, the number of rows and the number of infinite intervals.

    ``std`` divides by n − 1 and quantiles are interpolated linearly, as in :meth:`pandas.Series.describe`. Read the
    statistics together with ``n_infinite``: they say nothing of those rows. Without finite widths they are NaN.

    Examples
    --------
    >>> width_summary([0, 0, 0, 0], [[0, 1], [0, 2], [0, 3], [0, float("inf")]]).to_dict()
    {'min': 1.0, 'max': 3.0, 'mean': 2.0, 'std': 1.0, 'Q1': 1.5, 'median': 2.0, 'Q3': 2.5, 'IQR': 1.0, 'n': 4.0,
     'n_infinite': 1.0}
    """
    width = check_rows(y, intervals).width
    finite = pd.Series(width[np.isfinite(width)])
    low, middle, high = finite.quantile([0.25, 0.5, 0.75])
    spread = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "std": finite.std()}
    order = {"Q1": low, "median": middle, "Q3": high, "IQR": high - low}
    return pd.Series({**spread, **order, "n": len(width), "n_infinite": len(width) - len(finite)}, dtype=float)


# -- Scores ----------------------------------------------------------------------------------------------


def interval_score(
    y: ArrayLike, intervals: ArrayLike, *, coverage: float, sample_weight: ArrayLike | None = None
) -> float:
    r"""Winkler's score, less is better: :math:`\frac1n\sum_i (u_i-l_i) + \frac{2}{1-coverage}\,dist(y_i, [l_i, u_i])`.

    It is proper for central intervals of the given coverage. An infinite interval makes it infinite.

    References
    ----------
    Winkler (1972), *JASA* 67, 187–191; Gneiting and Raftery (2007), *JASA* 102, 359–378, section 6.2.

    Examples
    --------
    >>> interval_score([1, 3], [[0, 2], [0, 2]], coverage=0.5)
    4.0
    """
    check_share("coverage", coverage)
    rows = check_rows(y, intervals, sample_weight)
    return weighted_mean(row_scores(rows, coverage), rows.weight)


def row_scores(rows: CheckedRows, coverage: float) -> Floats:
    """Return each row's interval score; :func:`interval_score` is their mean."""
    distance = np.maximum(np.maximum(rows.lower - rows.y, rows.y - rows.upper), 0)
    return rows.width + 2 / (1 - coverage) * distance


def pinball_loss(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean over rows and levels of :math:`\max(\tau (y - q), (\tau - 1)(y - q))`.

    Parameters
    ----------
    quantiles : (n, L) array, or (n,) for one level
        Predicted quantiles, one column per level; an infinite one makes the loss infinite.
    levels : (L,) array or number
        Strictly between 0 and 1.

    References
    ----------
    Koenker and Bassett (1978), *Econometrica* 46, 33–50.

    Examples
    --------
    >>> pinball_loss([1, 2], [[0, 3], [2, 2]], levels=[0.5, 0.75])
    0.25
    """
    tau, values = np.atleast_1d(np.asarray(levels, dtype=float)), as_target(y)
    predicted = np.asarray(quantiles, dtype=float)
    predicted = predicted[:, None] if predicted.ndim == len(tau) == 1 else predicted
    if not ((tau > 0) & (tau < 1)).all():
        raise ValueError(f"levels must be strictly between 0 and 1, got {tau}")
    if not values.size or predicted.shape != (*values.shape, len(tau)) or predicted.ndim != 2:
        shapes = f"got {predicted.shape} for y of shape {values.shape} and {len(tau)} levels"
        raise ValueError(f"quantiles must have a row per y and a column per level; {shapes}")
    with np.errstate(invalid="ignore"):
        error = values[:, None] - predicted
        losses = np.maximum(tau * error, (tau - 1) * error) @ np.full(len(tau), 1 / len(tau))
        loss = weighted_mean(losses, check_weight(sample_weight, len(values)))
    if not np.isfinite(loss):  # looked at only now, because models call the loss in loops
        check_finite("y", values)
        if np.isnan(predicted).any():
            raise ValueError(f"quantiles must not be NaN, got one in row {np.isnan(predicted).any(axis=1).argmax()}")
    return loss


# -- Overlap and dependence ------------------------------------------------------------------------------


def interval_iou(
    y: ArrayLike, intervals: ArrayLike, known: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean overlap with known intervals: length of intersection / length of union; ``y`` is only checked.

    With infinite bounds it is the limit over growing windows [−t, t]: the infinite sides they share over those that
    either has (``[0, ∞)`` and ``(−∞, ∞)``: 1/2). Two equal points overlap wholly.

    Parameters
    ----------
    known : (n, 2) array
        The intervals to compare with, for example the true quantiles of simulated data.

    Examples
    --------
    >>> interval_iou([0, 0], [[0, 2], [0, 1]], [[1, 3], [0, 1]])
    0.6666666666666666
    """
    ours, theirs = check_rows(y, intervals, sample_weight), check_rows(y, known, name="known")
    shared = np.maximum(np.minimum(ours.upper, theirs.upper) - np.maximum(ours.lower, theirs.lower), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        union = ours.width + theirs.width - shared
        overlap = np.where(union > 0, shared / union, ours.lower == theirs.lower)

    # Where a bound is infinite, only the infinite sides count in the limit.
    first, second = np.isinf([ours.lower, ours.upper]), np.isinf([theirs.lower, theirs.upper])
    sides = (first & second).sum(axis=0) / np.maximum((first | second).sum(axis=0), 1)
    overlap = np.where((first | second).any(axis=0), sides, overlap)
    return weighted_mean(overlap, ours.weight)


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

    # Each row's centred "covered", shared between the two grid points beside its width.
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
    """Return "covered" and width of the rows with a finite width."""
    rows = check_rows(y, intervals)
    finite = np.isfinite(rows.width)
    return rows.covered[finite].astype(float), equal_widths(rows.lower[finite], rows.upper[finite])
