"""Arithmetic that rounds towards plus infinity, so that intervals can round outwards.

A score and a bound are each a few operations away from y, and each operation rounds. Scores are rounded up and bounds
outwards, each operation by its exact error and so by one double at most, never more than needed: every y whose score
is at most the offset lies inside, and where arithmetic is exact nothing moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icqr._tables import FloatArray

LARGEST = float(np.finfo(np.float64).max)
_SMALLEST_NORMAL = float(np.finfo(np.float64).smallest_normal)


def _up(value: FloatArray, exact: NDArray[np.bool_]) -> FloatArray:
    """Give the next double unless exact; an overflow to minus infinity becomes the most negative double."""
    return np.maximum(np.where(exact, value, np.nextafter(value, np.inf)), -LARGEST)


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Give a + b, rounded towards plus infinity (the error is Knuth's two-sum)."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        return _up(total, error <= 0)


def times_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Give a * b, rounded towards plus infinity, for b > 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * b
        # Mantissas alone: their product neither over- nor underflows.
        error = _product_error(np.frexp(a)[0], np.frexp(b)[0])
        return _up(product, (error <= 0) & (np.abs(product) >= _SMALLEST_NORMAL) | (a == 0))


def divide_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Give a / b, rounded towards plus infinity, for b > 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        quotient = a / b
        (x, i), (y, j) = np.frexp(quotient), np.frexp(b)
        rest = (np.ldexp(a, -i - j) - x * y) - _product_error(x, y)
        return _up(quotient, (rest <= 0) & (np.abs(quotient) >= _SMALLEST_NORMAL) | (a == 0))


def _product_error(a: FloatArray, b: FloatArray) -> FloatArray:
    """Give exactly what rounding takes from a * b (Dekker): both are split into halves whose products are exact."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return np.asarray(a_low * b_low - (((a * b - a_high * b_high) - a_low * b_high) - a_high * b_low))


def _halves(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    shifted = a * (2**27 + 1)
    high = shifted - (shifted - a)
    return high, a - high
