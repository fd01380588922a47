"""K-means in a weighted space: the space itself, clusterings for growing k, and the variance that they explain."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score

from icqr._messages import warn
from icqr._tables import Features, FloatArray, IntArray, Table

Seed: TypeAlias = int | None
Weights: TypeAlias = FloatArray | None

#: Of each column, this many categories get a one-hot column, the most frequent ones; rarer ones count as one.
MOST_CATEGORIES = 100
#: Columns that together hold less than this share of the variance are left out: they hardly move a centroid.
NEGLIGIBLE = 1e-3
#: Scaled values are clipped to this many ranges, so that their squares stay finite.
FARTHEST = 1e9


# -- The weighted space ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedSpace:
    """Scaled, filled, one-hot and weighted features, without the columns that are constant or have no weight.

    Examples
    --------
    >>> space = WeightedSpace.learn(np.array([[0.0, 5.0], [4.0, 5.0]]), np.array([0.5, 0.5]))
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
    def learn(cls, X: Table, weights: Weights) -> WeightedSpace:
        """Learn the scaling from rows. There is one weight per column of X; by default all are equal."""
        weight = np.ones(X.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
        if weight.shape != (X.shape[1],) or not np.all(np.isfinite(weight) & (weight >= 0)):
            raise ValueError(f"weights must be {X.shape[1]} finite numbers, one per column, 0 or more, got {weight}")
        features = Features(X, max_categories=MOST_CATEGORIES)
        origin = features.origins

        # Take a few columns at a time: a copy of all would need as much memory as the rows themselves.
        used, at_once = np.flatnonzero(weight > 0), max(1, 2**22 // len(X))
        parts = []
        for start in range(0, len(used), at_once):
            positions = np.flatnonzero(np.isin(origin, used[start : start + at_once]))
            matrix = features.one_hot_columns(X, positions)
            low, high = np.fmin.reduce(matrix, axis=0), np.fmax.reduce(matrix, axis=0)  # NaN where nothing is known
            varied = low < high
            positions, low, high, matrix = positions[varied], low[varied], high[varied], matrix[:, varied]
            # Powers of two: dividing by them is exact, and differences of the largest numbers stay finite.
            unit = np.ldexp(1.0, np.frexp(np.maximum(-low, high))[1] - 1)
            median = (np.nanmedian if np.isnan(matrix).any() else np.median)(matrix, axis=0)
            width = high / unit - low / unit
            parts.append((positions, unit, low / unit, width, median / unit, weight[origin[positions]]))
        if not parts:
            return cls(features, np.empty(0, dtype=np.intp), *[np.empty(0)] * 5)
        return cls(features, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def warn_about_lumped(self) -> None:
        """Warn about columns with more categories than groups tell apart, unless distances leave the column out."""
        for j in np.unique(self.features.origins[self.columns]):
            name = None if self.features.names is None else self.features.names[j]
            if name in self.features.lumped:
                kept, others = len(self.features.categories[name]), self.features.lumped[name]
                warn(
                    f"Column {name!r} has {kept + others:,} categories: K-means groups tell the {kept} most frequent "
                    f"apart, and take the other {others:,} for one. Coverage holds in each group all the same; "
                    "ScorePartition() makes groups by predicted difficulty, for which no category is dropped."
                )

    def transform(self, X: Table) -> FloatArray:
        """Return the (n, columns) matrix in which K-means measures distances."""
        matrix = self.features.one_hot_columns(X, self.columns)
        with np.errstate(over="ignore"):
            matrix /= self.unit
            np.copyto(matrix, self.fill, where=np.isnan(matrix))
            matrix -= self.low
            matrix /= self.width
        np.clip(matrix, -FARTHEST, FARTHEST, out=matrix)
        matrix *= self.weight
        return matrix

    def without_negligible(self, Z: FloatArray) -> tuple[WeightedSpace, FloatArray]:
        """Return the space and the matrix Z of its rows, without the columns that hold next to no variance."""
        variance = Z.var(axis=0)
        order = np.argsort(variance, kind="stable")
        kept = np.sort(order[np.cumsum(variance[order]) > NEGLIGIBLE * variance.sum()])
        learned = ("columns", "unit", "low", "width", "fill", "weight")
        return replace(self, **{name: getattr(self, name)[kept] for name in learned}), Z[:, kept]


# -- Clusterings -----------------------------------------------------------------------------------------------------


@dataclass
class Clustering:
    """A clustering of rows.

    `sigma` is the paper's σ_k. Clusters without rows are left out; `cells` has the clusterer's own labels of the rest.
    """

    labels: IntArray
    centroids: FloatArray
    sigma: float
    cells: IntArray
    clusterer: Any = None
    silhouette: float = -math.inf

    @classmethod
    def of(cls, Z: FloatArray, cell_of: Any) -> Clustering:
        """Return the clustering of rows with these labels; its centroids are the means of their rows."""
        cells, labels = np.unique(cell_of, return_inverse=True)
        means = np.stack([Z[labels == label].mean(axis=0) for label in range(len(cells))])
        return cls(labels, means, explained_variance(Z, labels, means), cells)


def add_centroid(Z: FloatArray, last: Clustering, rng: np.random.Generator) -> Clustering:
    """Add one centroid, the best of a few random draws as in k-means++, and run Lloyd's iterations."""
    distances = _squares(Z, last.centroids[last.labels])
    trials = rng.choice(len(Z), size=2 + int(math.log(len(last.centroids) + 1)), p=distances / distances.sum())
    remaining = [np.minimum(distances, _squares(Z, Z[trial])).sum() for trial in trials]
    return lloyd(Z, np.concatenate([last.centroids, Z[[trials[int(np.argmin(remaining))]]]]))


def lloyd(Z: FloatArray, start: FloatArray) -> Clustering:
    """Run Lloyd's iterations (Algorithm 1) from these centroids."""
    return Clustering.of(Z, KMeans(len(start), init=start, n_init=1, random_state=0).fit(Z).labels_)


def from_scratch(Z: FloatArray, k: int, clusterer: Any, random_state: Seed) -> Clustering:
    """Fit a copy of the clusterer with k clusters."""
    model = clone(clusterer).set_params(n_clusters=k)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=random_state)
    with warnings.catch_warnings():
        # With fewer distinct rows than k there are fewer groups, which needs no warning here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit(Z).predict(Z)
    clustering = Clustering.of(Z, labels)
    if isinstance(model, KMeans | MiniBatchKMeans):
        # Their `predict` finds the nearest centroid by matrix products, which round; `nearest_centroid` is safer.
        clustering.centroids = model.cluster_centers_[clustering.cells]
    else:
        clustering.clusterer = model
    return clustering


def explained_variance(Z: FloatArray, labels: IntArray, centroids: FloatArray) -> float:
    """Return σ_k, the share of variance that the centroids explain (the paper's equation for the choice of k).

    It is ``Σ n_i |c_i - μ|² / Σ |x_i - μ|²``, computed as ``1 - Σ |x_i - c|² / Σ |x_i - μ|²``. Both are the same if the
    centroids are means, and the latter is exactly 1 if each row is its own centroid.

    Examples
    --------
    >>> Z = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> round(explained_variance(Z, np.array([0, 0, 1, 1]), np.array([[1.0], [11.0]])), 4)
    0.9615
    """
    total = float(_squares(Z, Z.mean(axis=0)).sum())
    return 1 - float(_squares(Z, centroids[labels]).sum()) / total if total > 0 else 1.0


def _squares(Z: FloatArray, centre: FloatArray) -> FloatArray:
    return np.asarray(((Z - centre) ** 2).sum(axis=1))


def mean_silhouette(Z: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette of the rows, or of a sample of them; -1 where it is not defined."""
    # The silhouette compares all pairs of rows. A sample, the same for each k, bounds time and memory.
    size = min(len(Z), 2000)
    rows = np.random.default_rng(0).choice(len(Z), size=size, replace=False)
    distinct = len(np.unique(labels[rows]))
    return float(silhouette_score(Z[rows], labels[rows])) if 2 <= distinct < size else -1.0


def elbow(sigmas: FloatArray) -> int:
    """Return the index of the point farthest above the line between the curve's ends."""
    if len(sigmas) < 3:
        return len(sigmas) - 1
    return int(np.argmax(sigmas - np.linspace(sigmas[0], sigmas[-1], len(sigmas))))


def nearest_centroid(Z: FloatArray, centroids: FloatArray) -> IntArray:
    """Return the index of each row's nearest centroid.

    Examples
    --------
    >>> nearest_centroid(np.array([[0.0], [9.0]]), np.array([[1.0], [8.0]]))
    array([0, 1])
    """
    if len(centroids) == 1 or len(Z) == 1:
        return np.asarray(cdist(Z, centroids, "sqeuclidean").argmin(axis=1))

    # A matrix product is quick, but how it rounds a row's distances depends on the other rows. If the two smallest
    # distances differ by less than rounding may change them, compute the row's distances on their own.
    lengths = np.einsum("ij,ij->i", centroids, centroids)
    rounding = 16 * np.finfo(np.float64).eps * (2 + Z.shape[1])
    labels = np.empty(len(Z), dtype=np.intp)
    step = max(1, 2**18 // len(centroids))
    for start in range(0, len(Z), step):
        block = Z[start : start + step]
        distances = block @ (-2 * centroids.T)
        distances += lengths
        nearest = distances.argmin(axis=1)

        rows = np.arange(len(block))
        least = distances[rows, nearest]
        distances[rows, nearest] = np.inf
        tolerance = rounding * (np.einsum("ij,ij->i", block, block) + lengths.max())
        unclear = np.flatnonzero(~(distances.min(axis=1) - least > tolerance))
        nearest[unclear] = cdist(block[unclear], centroids, "sqeuclidean").argmin(axis=1)
        labels[start : start + step] = nearest
    return labels
