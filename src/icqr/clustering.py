"""Clusterings for one k after the other, and what they explain."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score

from icqr._tables import FloatArray, IntArray

Seed: TypeAlias = int | None


@dataclass
class Clustering:
    """A clustering. Clusters without rows are left out; `found` are the clusterer's labels of the others."""

    labels: IntArray
    centroids: FloatArray
    explained: float
    found: IntArray
    clusterer: Any = None
    silhouette: float = -math.inf

    @classmethod
    def of(cls, Z: FloatArray, given: Any, clusterer: Any = None) -> Clustering:
        """Make a clustering from the labels that a clusterer gave."""
        found, labels = np.unique(given, return_inverse=True)
        means = np.stack([Z[labels == cell].mean(axis=0) for cell in range(len(found))])
        solution = cls(labels, means, explained_variance(Z, labels, means), found, clusterer)
        if isinstance(clusterer, KMeans | MiniBatchKMeans):
            # Their `predict` gives the nearest centroid too, but by matrix products; see `closest`.
            solution.centroids, solution.clusterer = clusterer.cluster_centers_[found], None
        return solution

    @classmethod
    def whole(cls, Z: FloatArray) -> Clustering:
        """Put all rows into one cluster."""
        return cls.of(Z, np.zeros(len(Z)))

    @property
    def summary(self) -> dict[str, float]:
        """A row of the path: k, σ_k, and the silhouette if it was asked for."""
        row: dict[str, float] = {"k": len(self.centroids), "explained_variance": self.explained}
        return row if math.isinf(self.silhouette) else {**row, "silhouette": self.silhouette}


def _squares(Z: FloatArray, centre: FloatArray) -> FloatArray:
    return np.asarray(((Z - centre) ** 2).sum(axis=1))


def closest(Z: FloatArray, centroids: FloatArray) -> IntArray:
    """Give the index of each row's nearest centroid.

    Examples
    --------
    >>> closest(np.array([[0.0], [9.0]]), np.array([[1.0], [8.0]]))
    array([0, 1])
    """
    if len(Z) == 1:
        return np.asarray(cdist(Z, centroids, "sqeuclidean").argmin(axis=1))
    step = max(1, 2**18 // len(centroids))
    return np.concatenate([_closest(Z[i : i + step], centroids) for i in range(0, len(Z), step)])


def _closest(Z: FloatArray, centroids: FloatArray) -> IntArray:
    # A matrix product is quick, but rounds a row's distances in ways that depend on the rows it comes with. Where the
    # two nearest are nearer to each other than rounding can tell, distances are computed row by row.
    lengths = np.einsum("ij,ij->i", centroids, centroids)
    distances = Z @ (-2 * centroids.T)
    distances += lengths
    nearest: IntArray = distances.argmin(axis=1)
    if len(centroids) == 1:
        return nearest
    rows = np.arange(len(Z))
    least = distances[rows, nearest]
    distances[rows, nearest] = np.inf
    rounding = 16 * np.finfo(np.float64).eps * (2 + Z.shape[1])
    tolerance = rounding * (np.einsum("ij,ij->i", Z, Z) + lengths.max())
    unclear = np.flatnonzero(~(distances.min(axis=1) - least > tolerance))
    nearest[unclear] = cdist(Z[unclear], centroids, "sqeuclidean").argmin(axis=1)
    return nearest


def explained_variance(Z: FloatArray, labels: IntArray, centroids: FloatArray) -> float:
    """Give σ_k, the share of variance that the centroids explain (the paper's equation for the choice of k).

    ``Σ n_i |c_i - μ|² / Σ |x_i - μ|²``, computed as ``1 - Σ |x_i - c|² / Σ |x_i - μ|²``: for centroids that are means
    the same, and exactly 1 when each row is its centroid.

    Examples
    --------
    >>> Z = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> round(explained_variance(Z, np.array([0, 0, 1, 1]), np.array([[1.0], [11.0]])), 4)
    0.9615
    """
    total = float(_squares(Z, Z.mean(axis=0)).sum())
    return 1 - float(_squares(Z, centroids[labels]).sum()) / total if total > 0 else 1.0


def grown(Z: FloatArray, last: Clustering, rng: np.random.Generator) -> Clustering:
    """Add one centroid, as k-means++ would draw it with a few trials, and let Lloyd's iterations settle."""
    distances = _squares(Z, last.centroids[last.labels])
    trials = rng.choice(len(Z), size=2 + int(math.log(len(last.centroids) + 1)), p=distances / distances.sum())
    left = [np.minimum(distances, _squares(Z, Z[trial])).sum() for trial in trials]
    return settled(Z, np.concatenate([last.centroids, Z[[trials[int(np.argmin(left))]]]]))


def settled(Z: FloatArray, start: FloatArray) -> Clustering:
    """Run Lloyd's iterations from these centroids."""
    return Clustering.of(Z, KMeans(len(start), init=start, n_init=1, random_state=0).fit(Z).labels_)


def from_scratch(Z: FloatArray, k: int, clusterer: Any, random_state: Seed) -> Clustering:
    """Fit a copy of the clusterer with k clusters."""
    model = clone(clusterer).set_params(n_clusters=k)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=random_state)
    with warnings.catch_warnings():
        # Fewer distinct rows than k make fewer groups, which is no surprise here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit(Z).predict(Z)
    return Clustering.of(Z, labels, model)


def silhouette_of(Z: FloatArray, labels: IntArray) -> float:
    """Give the mean silhouette of (a sample of) the rows, -1 where it is not defined."""
    # All pairs of rows are compared: a sample, the same for each k, keeps time and memory bounded.
    size = min(len(Z), 2000)
    rows = np.random.default_rng(0).choice(len(Z), size=size, replace=False)
    distinct = len(np.unique(labels[rows]))
    return float(silhouette_score(Z[rows], labels[rows])) if 2 <= distinct < size else -1.0


def elbow(explained: FloatArray) -> int:
    """Give the index of the point farthest above the line between the curve's ends."""
    if len(explained) < 3:
        return len(explained) - 1
    line = np.linspace(explained[0], explained[-1], len(explained))
    return int(np.argmax(explained - line))
