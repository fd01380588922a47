"""Checked rows: targets, intervals and weights that the measures can rely on."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


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
    order = np.argsort(width, kind="stable")
    ordered, largest = width[order], np.maximum(np.abs(lower), np.abs(upper))[order]
    noise = 4 * np.finfo(float).eps * np.where(np.isfinite(ordered), largest, 0.0)
    with np.errstate(invalid="ignore"):  # infinite widths are equal
        gaps = np.diff(ordered, prepend=-np.inf)
    starts = np.flatnonzero(gaps > np.maximum(noise, np.append(noise[:1], noise[:-1])))
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


def check_share(name: str, share: Any) -> float:
    """Return a share as a float, if it is strictly between 0 and 1."""
    number = float(share) if isinstance(share, Real) else float("nan")
    if not 0 < number < 1:
        hint = f"; did you mean {number / 100:g}?" if 1 < number < 100 else ""
        raise ValueError(f"{name} must be strictly between 0 and 1, got {share!r}{hint}")
    return number


def weighted_mean(values: NDArray[Any], weight: Floats | None) -> float:
    """Return the mean; None weighs all rows alike."""
    if weight is None:
        return float(values.mean())
    used = weight > 0  # an infinite value of weight 0 must not turn the mean into NaN
    return float(np.average(values[used], weights=weight[used]))
