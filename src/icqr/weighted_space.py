"""The space in which K-means measures distances: scaled, filled, one-hot and weighted features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from icqr.features import Features, FloatArray, IntArray, Table

Weights: TypeAlias = FloatArray | None

#: How many categories of a column, the most frequent, get a column of their own; rarer ones count as missing.
MOST_CATEGORIES = 100
#: Scaled values end here: so many ranges away from the training rows is as far as a row gets. Keeps squares finite.
FARTHEST = 1e9


@dataclass(frozen=True)
class WeightedSpace:
    """Scaled, filled, one-hot and weighted features; columns that are constant or weigh nothing are left out."""

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
        matrix, origin, _ = features.one_hot(X)
        weight = _check_weights(weights, X.shape[1])[origin]
        columns = np.flatnonzero((weight > 0) & ~np.isnan(matrix).all(axis=0))
        matrix = matrix[:, columns]
        # Powers of two: dividing by them is exact, and differences of the largest numbers stay finite.
        unit = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(matrix), axis=0))[1] - 1)
        matrix = matrix / unit
        low, fill = np.nanmin(matrix, axis=0), np.nanmedian(matrix, axis=0)
        width = np.nanmax(matrix, axis=0) - low
        varied = width > 0
        learned = (columns, unit, low, width, fill, weight[columns])
        return cls(features, *(part[varied] for part in learned))

    def transform(self, X: Table) -> FloatArray:
        """Give the (n, columns) matrix in which K-means measures distances."""
        with np.errstate(over="ignore"):
            matrix = self.features.one_hot(X)[0][:, self.columns] / self.unit
            scaled = (np.where(np.isnan(matrix), self.fill, matrix) - self.low) / self.width
        return np.asarray(np.clip(scaled, -FARTHEST, FARTHEST) * self.weight)


def _check_weights(weights: Weights, n_columns: int) -> FloatArray:
    given = np.ones(n_columns) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (n_columns,) or not np.all(np.isfinite(given) & (given >= 0)):
        raise ValueError(f"weights must be {n_columns} finite numbers, one per column, 0 or more, got {given}")
    return given
