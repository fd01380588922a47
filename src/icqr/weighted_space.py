"""The space in which K-means measures distances: scaled, filled, one-hot and weighted features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from icqr._tables import Features, FloatArray, IntArray, Table

Weights: TypeAlias = FloatArray | None

#: How many categories of a column, the most frequent, get a column of their own; rarer ones count as missing.
MOST_CATEGORIES = 100
#: Columns that together hold less of the variance than this are left out: they hardly move a centroid.
NEGLIGIBLE = 1e-3
#: Scaled values end here: so many ranges away from the training rows is as far as a row gets. Keeps squares finite.
FARTHEST = 1e9


@dataclass(frozen=True)
class WeightedSpace:
    """Scaled, filled, one-hot and weighted features; columns that are constant or weigh nothing are left out.

    Examples
    --------
    >>> space = WeightedSpace.of(np.array([[0.0, 5.0], [4.0, 5.0]]), np.array([0.5, 0.5]))
    >>> space.transform(np.array([[2.0, 7.0]]))
    array([[0.25]])
    """

    features: Features
    columns: IntArray
    unit: FloatArray
    low: FloatArray
    width: FloatArray
    fill: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, X: Table, weights: Weights) -> WeightedSpace:
        """Learn scaling from rows; weights are one per column of X, by default all equal."""
        features = Features(X, max_categories=MOST_CATEGORIES)
        weight = _check_weights(weights, X.shape[1])
        origin = features.origins()
        # A few columns at a time: a copy of all would take as much memory as the rows themselves.
        used, at_once = np.flatnonzero(weight > 0), max(1, 2**22 // len(X))
        parts = []
        for start in range(0, len(used), at_once):
            positions = np.flatnonzero(np.isin(origin, used[start : start + at_once]))
            parts.append(_scaling(features.one_hot_columns(X, positions), positions, weight[origin[positions]]))
        learned = (
            [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.empty(0)] * len(_LEARNED)
        )
        return cls(features, learned[0].astype(np.intp), *learned[1:])

    def transform(self, X: Table) -> FloatArray:
        """Give the (n, columns) matrix in which K-means measures distances."""
        matrix = self.features.one_hot_columns(X, self.columns)
        with np.errstate(over="ignore"):
            matrix /= self.unit
            np.copyto(matrix, self.fill, where=np.isnan(matrix))
            matrix -= self.low
            matrix /= self.width
        np.clip(matrix, -FARTHEST, FARTHEST, out=matrix)
        matrix *= self.weight
        return matrix

    def columns_that_matter(self, Z: FloatArray) -> IntArray:
        """Give the columns of these rows in the space but for those that hold next to none of their variance."""
        variance = Z.var(axis=0)
        order = np.argsort(variance, kind="stable")
        return np.sort(order[np.cumsum(variance[order]) > NEGLIGIBLE * variance.sum()])

    def only(self, columns: IntArray) -> WeightedSpace:
        """Give the space of some of its columns."""
        return replace(self, **{name: getattr(self, name)[columns] for name in _LEARNED})


def _scaling(matrix: FloatArray, positions: IntArray, weight: FloatArray) -> tuple[Any, ...]:
    """Give what `_LEARNED` names for the columns of a matrix that vary."""
    low, high = np.fmin.reduce(matrix, axis=0), np.fmax.reduce(matrix, axis=0)  # NaN where nothing is known
    varied = low < high
    low, high, matrix = low[varied], high[varied], matrix[:, varied]
    # Powers of two: dividing by them is exact, and differences of the largest numbers stay finite.
    unit = np.ldexp(1.0, np.frexp(np.maximum(-low, high))[1] - 1)
    middle = np.nanmedian if np.isnan(matrix).any() else np.median
    low, high, fill = low / unit, high / unit, middle(matrix, axis=0) / unit
    return positions[varied], unit, low, high - low, fill, weight[varied]


_LEARNED = ("columns", "unit", "low", "width", "fill", "weight")


def _check_weights(weights: Weights, n_columns: int) -> FloatArray:
    given = np.ones(n_columns) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (n_columns,) or not np.all(np.isfinite(given) & (given >= 0)):
        raise ValueError(f"weights must be {n_columns} finite numbers, one per column, 0 or more, got {given}")
    return given
