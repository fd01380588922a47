"""Coverage in groups of rows: given ones, and bins of the width or of a feature."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.metrics.checks import CheckedRows, Floats, Integers, check_rows, check_share, equal_widths
from icqr.metrics.marginal import binomial_interval


def coverage_by_group(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:
    """Coverage in each group, with its exact interval as in :func:`coverage_interval`.

    Parameters
    ----------
    groups : (n,) array
        Labels of any kind; rows without a label are a group of their own.

    Returns
    -------
    pandas.DataFrame
        A row per group: ``n``, ``share`` (of rows, or of weight), ``coverage``, ``coverage_lower``, ``coverage_upper``,
        ``mean_width`` (infinite if one interval is).

    Examples
    --------
    >>> coverage_by_group([1, 2, 3], [[0, 1], [0, 1], [2, 4]], ["a", "a", "b"])[["n", "coverage", "mean_width"]]
           n  coverage  mean_width
    group
    a      2       0.5         1.0
    b      1       1.0         2.0
    """
    rows = check_rows(y, intervals, sample_weight)
    codes, labels = pd.factorize(_column("groups", groups, len(rows.y)), sort=True, use_na_sentinel=False)
    return _by_code(rows, codes, pd.Index(labels, name="group"), confidence)


def coverage_gap(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    *,
    coverage: float,
    weighted: bool = False,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Mean distance of the groups' coverage from the promise: :math:`\sum_g s_g |coverage_g - coverage|`.

    Each group counts alike (:math:`s_g = 1/G`), or by its share of rows if ``weighted``. Small groups are noisy: a gap
    above 0 is expected even of perfect intervals.

    References
    ----------
    Ding et al. (2023), "Class-conditional conformal prediction with many classes", *NeurIPS*.

    Examples
    --------
    >>> coverage_gap([1, 2, 3], [[0, 1], [0, 1], [2, 4]], ["a", "a", "b"], coverage=0.75)
    0.25
    """
    check_share("coverage", coverage)
    table = coverage_by_group(y, intervals, groups, sample_weight=sample_weight)
    gap = (table["coverage"] - coverage).abs()
    return float((gap * table["share"]).sum() if weighted else gap.mean())


def size_stratified_coverage(
    y: ArrayLike, intervals: ArrayLike, *, n_bins: int = 10, confidence: float = 0.95
) -> pd.DataFrame:
    """Coverage by width: a table like :func:`coverage_by_group` over ``n_bins`` equally large bins of the width.

    Equal widths share a bin, so there may be fewer; infinite widths are the largest. Its smallest ``coverage`` is the
    size-stratified coverage of Angelopoulos and Bates (2023), *Foundations and Trends in Machine Learning* 16.

    Examples
    --------
    >>> size_stratified_coverage([0, 0, 5, 0], [[0, 1], [0, 2], [0, 3], [0, 4]], n_bins=2)["coverage"].to_list()
    [1.0, 0.5]
    """
    rows = check_rows(y, intervals)
    return _by_code(rows, *_bins(equal_widths(rows.lower, rows.upper), n_bins, "width"), confidence)


def feature_stratified_coverage(
    y: ArrayLike, intervals: ArrayLike, feature: ArrayLike, *, n_bins: int = 10, confidence: float = 0.95
) -> pd.DataFrame:
    """Coverage by a feature: a table like :func:`coverage_by_group`.

    A numeric feature is cut in ``n_bins`` equally large bins as in :func:`size_stratified_coverage`, any other has a
    row per value; missing values have a row of their own.

    Examples
    --------
    >>> feature_stratified_coverage([0, 0, 5, 0], [[0, 1]] * 4, [10, 20, 30, 40], n_bins=2)["coverage"].to_dict()
    {Interval(10.0, 20.0, closed='both'): 1.0, Interval(30.0, 40.0, closed='both'): 0.5}
    """
    rows = check_rows(y, intervals)
    column = _column("feature", feature, len(rows.y))
    name = "feature" if column.name is None else column.name
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return _by_code(rows, *_bins(column.to_numpy(dtype=float, na_value=np.nan), n_bins, name), confidence)
    codes, labels = pd.factorize(column, sort=True, use_na_sentinel=False)
    return _by_code(rows, codes, pd.Index(labels, name=name), confidence)


def _column(name: str, values: Any, n: int) -> pd.Series[Any]:
    column = pd.Series(values.to_pandas() if hasattr(values, "to_pandas") else values)
    if len(column) != n:
        raise ValueError(f"{name} must have {n} values, one per row of y; got {len(column)}")
    return column


def _bins(values: Floats, n_bins: int, name: Hashable) -> tuple[Integers, pd.Index[Any]]:
    """Code of the equally large bin each value is in, and the bins; NaN comes last."""
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    ordered = np.sort(values[~np.isnan(values)])
    ends = np.unique([part[-1] for part in np.array_split(ordered, n_bins) if len(part)])
    starts = ordered[np.append(0, np.searchsorted(ordered, ends[:-1], side="right"))] if len(ends) else ends
    if len(ordered) < len(values):
        starts, ends = np.append(starts, np.nan), np.append(ends, np.nan)
    return np.searchsorted(ends, values), pd.IntervalIndex.from_arrays(starts, ends, closed="both", name=name)


def _by_code(rows: CheckedRows, codes: Integers, labels: pd.Index[Any], confidence: float) -> pd.DataFrame:
    weight = np.ones(len(codes)) if rows.weight is None else rows.weight

    def total(values: Floats) -> Floats:
        return np.bincount(codes, values, len(labels)).astype(float)

    mass = total(weight)
    with np.errstate(invalid="ignore", divide="ignore"):  # a group may weigh nothing: its numbers are NaN
        coverage = total(weight * rows.covered) / mass
        effective = mass**2 / total(weight**2)
        width = total(np.where(weight > 0, rows.width, 0) * weight) / mass
    low, high = binomial_interval(coverage * effective, effective, confidence=confidence)
    sizes = {"n": np.bincount(codes, minlength=len(labels)), "share": mass / mass.sum()}
    shares = {"coverage": coverage, "coverage_lower": low, "coverage_upper": high}
    return pd.DataFrame({**sizes, **shares, "mean_width": width}, index=labels)
