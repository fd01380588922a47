"""Groups: which rows are judged together. K-means on weighted features, a user's own groups, or one group."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from icqr.features import Features, FloatArray, IntArray, Table

#: Chance that a group gets too few calibration rows, above which it is merged.
MERGE_RISK = 0.001


class Partition(Protocol):
    """What `ICQR` needs of a partition: learn from rows, then give each row an integer label.

    Labels are 0, 1, …; -1 is a row of no known group.
    """

    def fit(
        self,
        X: Table,
        y: FloatArray,
        bounds: FloatArray,
        weights: FloatArray | None = None,
        random_state: int | None = None,
    ) -> Self:
        """Learn the groups from rows, their targets, raw quantiles and the columns' weights."""

    def assign(self, X: Table) -> IntArray:
        """Give each row its group."""


class WholePartition(BaseEstimator):
    """One group: every row is judged with all others, as in CQR.

    Examples
    --------
    >>> WholePartition().fit(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 3))).assign(np.zeros((2, 1)))
    array([0, 0])
    """

    needs_weights = False

    def fit(
        self,
        X: Table,
        y: FloatArray,
        bounds: FloatArray,
        weights: FloatArray | None = None,
        random_state: int | None = None,
    ) -> Self:
        """Learn nothing."""
        self.n_groups_ = 1
        return self

    def assign(self, X: Table) -> IntArray:
        """Give every row group 0."""
        return np.zeros(len(X), dtype=np.intp)


class GroupPartition(BaseEstimator):
    """A user's own groups (Mondrian conformal prediction). They are never merged.

    Parameters
    ----------
    by : column, list of columns, or callable
        Column names (positions for arrays) whose values are the groups, or a function of X that gives a label per row.

    Attributes
    ----------
    keys_ : Index
        The groups' values; group g is ``keys_[g]``.

    Examples
    --------
    >>> X = pd.DataFrame({"city": ["Bern", "Genf", "Bern"]})
    >>> partition = GroupPartition("city").fit(X, np.zeros(3), np.zeros((3, 3)))
    >>> partition.assign(pd.DataFrame({"city": ["Genf", "Rom"]}))
    array([ 1, -1])
    """

    # Which rows hold which group is the user's choice, not learned: calibration rows may name groups too.
    data = "all"
    needs_weights = False

    def __init__(self, by: Any) -> None:
        self.by = by

    def fit(
        self,
        X: Table,
        y: FloatArray,
        bounds: FloatArray,
        weights: FloatArray | None = None,
        random_state: int | None = None,
    ) -> Self:
        """Give each group that appears a number."""
        keys = self._keys(X).unique()
        self.keys_: pd.Index[Any] = keys[sorted(range(len(keys)), key=lambda i: _sort_key(keys[i]))]
        self.n_groups_ = len(keys)
        return self

    def assign(self, X: Table) -> IntArray:
        """Give each row its group, -1 for a value that did not appear in `fit`."""
        return np.asarray(self.keys_.get_indexer(self._keys(X)), dtype=np.intp)

    def describe(self) -> pd.DataFrame:
        """Give each group's rule: the values that make it."""
        names = ["group"] if callable(self.by) else self._columns()
        rows = [key if isinstance(key, tuple) else (key,) for key in self.keys_]
        rules = [" and ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True)) for row in rows]
        return pd.DataFrame({"rule": rules, "fidelity": 1.0, "features": ", ".join(map(str, names))})

    def _columns(self) -> list[Any]:
        return list(self.by) if isinstance(self.by, list | tuple) else [self.by]

    def _keys(self, X: Table) -> pd.Index[Any]:
        if callable(self.by):
            labels = np.asarray(self.by(X))
            if labels.shape != (len(X),):
                raise ValueError(f"by(X) must give one label per row, shape ({len(X)},), got shape {labels.shape}")
            return pd.Index(labels.tolist())
        frame: pd.DataFrame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
        unknown = [name for name in self._columns() if name not in frame.columns]
        if unknown:
            raise ValueError(f"by={self.by!r}: there is no column {unknown[0]!r}; columns are {list(frame.columns)}")
        chosen = [pd.Index(frame[name].astype(object)) for name in self._columns()]
        keys: pd.Index[Any] = chosen[0] if len(chosen) == 1 else pd.MultiIndex.from_arrays(chosen)
        return keys


def _sort_key(key: Any) -> tuple[Any, ...]:
    """Sort numbers by size, everything else by its text, also when a column holds both."""
    values = key if isinstance(key, tuple) else (key,)
    return tuple((0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in values)


class KMeansPartition(BaseEstimator):
    """K-means clusters of scaled features, each column weighted by its importance (Algorithms 1 and 3).

    1. Numeric columns are min-max scaled, missing values get the median, categories are one-hot.
    2. Each column is multiplied by its weight; a category's columns share their column's weight.
    3. K-means is fitted for k = 2, 3, …, each started from the last centroids and one new one, so that the explained
       variance ``σ_k = Σ n_i |c_i - μ|² / Σ |x_i - μ|²`` grows; the first k with ``σ_k > explained_variance`` is it.
    4. Groups that would probably get too few calibration rows are merged (`merge_small`).
    5. A new row belongs to the nearest centroid.

    Parameters
    ----------
    explained_variance : float, default=0.9
        σ, the share of variance that the centroids must explain.
    max_groups : int, default=50
        K, the largest k tried. If σ is not reached, the largest is taken, with a warning.
    choose : {"explained_variance", "silhouette", "elbow"} or int, default="explained_variance"
        How k is chosen. Silhouette and elbow look at every k up to `max_groups`; a number is k itself.
    clusterer : estimator, optional
        A scikit-learn clusterer with `n_clusters` and `predict`, fitted from scratch at each k instead:
        ``KMeans(n_init=10)`` is the algorithm as printed.
    merge : bool, default=True
        Merge small groups before calibration.
    data : {"train", "calibration"}, default="train"
        Which rows `ICQR` hands over; see `PermutationImportance`.

    Attributes
    ----------
    path_ : DataFrame
        Each k that was tried with its explained variance (and silhouette), for the picture.
    k_ : int
        The chosen k, before merging.
    n_groups_ : int
        The number of groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(50, 2)), 10 + rng.normal(size=(50, 2))])
    >>> partition = KMeansPartition().fit(X, np.zeros(100), np.zeros((100, 3)), random_state=0)
    >>> partition.n_groups_
    2
    """

    def __init__(
        self,
        explained_variance: float = 0.9,
        max_groups: int = 50,
        choose: str | int = "explained_variance",
        clusterer: Any = None,
        merge: bool = True,
        data: str = "train",
    ) -> None:
        self.explained_variance = explained_variance
        self.max_groups = max_groups
        self.choose = choose
        self.clusterer = clusterer
        self.merge = merge
        self.data = data

    def fit(
        self,
        X: Table,
        y: FloatArray,
        bounds: FloatArray,
        weights: FloatArray | None = None,
        random_state: int | None = None,
        reference: Table | None = None,
    ) -> Self:
        """Cluster the rows. `reference` are the rows that set scaling, if not X itself."""
        self._check()
        self.space_ = WeightedSpace.of(X if reference is None else reference, weights)
        Z = self.space_.transform(X)
        spread = float(((Z - Z.mean(axis=0)) ** 2).sum()) if Z.size else 0.0
        if spread == 0:
            self._one_group(Z, weights)
            return self
        solutions = list(self._solutions(Z, np.random.default_rng(random_state)))
        self.path_ = pd.DataFrame([solution.summary() for solution in solutions])
        chosen = self._chosen(solutions)
        self.k_ = chosen.k
        self.clusterer_ = chosen.clusterer
        self.centroids_ = chosen.centroids
        self.group_of_: IntArray = np.arange(chosen.k)
        self.counts_ = np.bincount(chosen.labels, minlength=chosen.k)
        return self

    @property
    def n_groups_(self) -> int:
        """Number of groups, after merging."""
        return int(self.group_of_.max()) + 1

    def assign(self, X: Table) -> IntArray:
        """Give each row the group of its nearest centroid."""
        Z = self.space_.transform(X)
        return np.asarray(self.group_of_[self._nearest(Z)], dtype=np.intp)

    def distance(self, X: Table) -> FloatArray:
        """Give each row's distance to its centroid, in the weighted space."""
        Z = self.space_.transform(X)
        return np.asarray(np.sqrt(((Z - self.centroids_[self._nearest(Z)]) ** 2).sum(axis=1)))

    def merge_small(self, n_calibration: int, needed: int) -> None:
        """Merge the smallest group into the nearest, while it would too probably get fewer than `needed` rows.

        "Too probably": P(Binomial(n_calibration, the group's share) < needed) > 0.001.
        """
        while self.n_groups_ > 1:
            counts = np.bincount(self.group_of_, weights=self.counts_).astype(np.float64)
            smallest = int(counts.argmin())
            risk = stats.binom.cdf(needed - 1, n_calibration, counts[smallest] / counts.sum())
            if risk <= MERGE_RISK:
                return
            self._merge_into_nearest(smallest, counts)

    def _merge_into_nearest(self, group: int, counts: FloatArray) -> None:
        sums = np.zeros((len(counts), self.centroids_.shape[1]))
        np.add.at(sums, self.group_of_, self.centroids_ * self.counts_[:, None])
        centres = sums / counts[:, None]
        distances = ((centres - centres[group]) ** 2).sum(axis=1)
        distances[group] = np.inf
        self.group_of_[self.group_of_ == group] = distances.argmin()
        self.group_of_ = np.unique(self.group_of_, return_inverse=True)[1]

    def _check(self) -> None:
        names = ("explained_variance", "silhouette", "elbow")
        if self.choose not in names and not (isinstance(self.choose, int | np.integer) and self.choose >= 1):
            raise ValueError(f"choose must be one of {', '.join(names)}, or a number of groups, got {self.choose!r}")
        if not 0 < self.explained_variance < 1:
            raise ValueError(f"explained_variance must be strictly between 0 and 1, got {self.explained_variance}")
        if self.max_groups < 1:
            raise ValueError(f"max_groups must be 1 or more, got {self.max_groups}")

    def _one_group(self, Z: FloatArray, weights: FloatArray | None) -> None:
        if weights is not None and not np.any(weights):
            reason = "all importances are zero: permuting a column changes no prediction's error"
        else:
            reason = "all rows are equal in the columns that matter"
        warnings.warn(f"One group only, as in CQR: {reason}.", UserWarning, stacklevel=4)
        self.path_ = pd.DataFrame({"k": [1], "explained_variance": [1.0]})
        self.k_, self.clusterer_ = 1, None
        self.centroids_ = Z.mean(axis=0, keepdims=True)
        self.group_of_ = np.zeros(1, dtype=np.intp)
        self.counts_ = np.array([len(Z)])

    def _nearest(self, Z: FloatArray) -> IntArray:
        if self.clusterer_ is not None:
            return np.asarray(self.clusterer_.predict(Z))
        # Not by matrix products: a row's group must not depend on the rows it comes with, not even by rounding.
        step = max(1, 10_000_000 // len(self.centroids_))
        parts = [cdist(Z[i : i + step], self.centroids_, "sqeuclidean").argmin(axis=1) for i in range(0, len(Z), step)]
        return np.concatenate(parts)

    def _solutions(self, Z: FloatArray, rng: np.random.Generator) -> Iterator[_Solution]:
        """Give the clusterings for k = 1, 2, …, up to the last one that the choice needs."""
        last = self.choose if isinstance(self.choose, int | np.integer) else self.max_groups
        seed = int(rng.integers(2**31))
        solution = _Solution.whole(Z)
        yield solution
        while solution.k < last and solution.explained < 1 - 1e-12:
            if self.choose == "explained_variance" and solution.explained > self.explained_variance:
                return
            if self.clusterer is None:
                solution = _grown(Z, solution, rng)
            else:
                solution = _from_scratch(Z, solution.k + 1, self.clusterer, seed)
            if self.choose == "silhouette":
                solution.silhouette = _silhouette(Z, solution.labels, seed)
            yield solution

    def _chosen(self, solutions: list[_Solution]) -> _Solution:
        last = solutions[-1]
        if self.choose == "silhouette":
            return max(solutions, key=lambda solution: solution.silhouette)
        if self.choose == "elbow":
            return solutions[_elbow(np.array([solution.explained for solution in solutions]))]
        if self.choose == "explained_variance" and last.explained <= self.explained_variance:
            warnings.warn(
                f"explained_variance={self.explained_variance:g} was not reached with max_groups={self.max_groups}: "
                f"{last.k} groups explain {last.explained:.3f}. They are used; a larger max_groups would explain more.",
                UserWarning,
                stacklevel=4,
            )
        return last


# -- The weighted space ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedSpace:
    """Scaled, filled, one-hot and weighted features; columns of weight zero are left out."""

    features: Features
    columns: IntArray
    low: FloatArray
    scale: FloatArray
    fill: FloatArray

    @classmethod
    def of(cls, X: Table, weights: FloatArray | None) -> WeightedSpace:
        """Learn scaling from rows; weights are one per column of X, by default all equal."""
        features = Features(X)
        matrix, origin, _ = features.one_hot(X)
        share = np.ones(X.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
        low, high, fill = (np.zeros(matrix.shape[1]) for _ in range(3))
        known = ~np.isnan(matrix).all(axis=0)
        low[known], high[known] = np.nanmin(matrix[:, known], axis=0), np.nanmax(matrix[:, known], axis=0)
        fill[known] = np.nanmedian(matrix[:, known], axis=0)
        columns = np.flatnonzero((high > low) & (share[origin] > 0))
        # share / range would overflow for the narrowest ranges; the two steps in `transform` do not.
        return cls(features, columns, low[columns], np.stack([high - low, share[origin]])[:, columns], fill[columns])

    def transform(self, X: Table) -> FloatArray:
        """Give the (n, columns) matrix in which K-means measures distances."""
        matrix = self.features.one_hot(X)[0][:, self.columns]
        matrix = np.where(np.isnan(matrix), self.fill, matrix)
        return np.asarray((matrix - self.low) / self.scale[0] * self.scale[1])


# -- Clusterings for each k ------------------------------------------------------------------------------------------


@dataclass
class _Solution:
    k: int
    labels: IntArray
    centroids: FloatArray
    explained: float
    clusterer: Any = None
    silhouette: float = field(default=-math.inf)

    @classmethod
    def of(cls, Z: FloatArray, labels: IntArray, clusterer: Any = None) -> _Solution:
        k = int(labels.max()) + 1
        counts = np.bincount(labels, minlength=k)
        sums = np.stack([np.bincount(labels, weights=column, minlength=k) for column in Z.T], axis=1)
        centroids = np.asarray(sums / counts[:, None], dtype=np.float64)
        return cls(k, labels, centroids, explained_variance(Z, labels, centroids), clusterer)

    @classmethod
    def whole(cls, Z: FloatArray) -> _Solution:
        return cls.of(Z, np.zeros(len(Z), dtype=np.intp))

    def summary(self) -> dict[str, float]:
        row: dict[str, float] = {"k": self.k, "explained_variance": self.explained}
        return row if math.isinf(self.silhouette) else {**row, "silhouette": self.silhouette}


def explained_variance(Z: FloatArray, labels: IntArray, centroids: FloatArray) -> float:
    """Give σ_k, the share of variance that the centroids explain (the paper's equation for the choice of k).

    Examples
    --------
    >>> Z = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> round(explained_variance(Z, np.array([0, 0, 1, 1]), np.array([[1.0], [11.0]])), 4)
    0.9615
    """
    mean = Z.mean(axis=0)
    counts = np.bincount(labels, minlength=len(centroids))
    between = float((counts * ((centroids - mean) ** 2).sum(axis=1)).sum())
    return between / float(((Z - mean) ** 2).sum())


def _grown(Z: FloatArray, last: _Solution, rng: np.random.Generator) -> _Solution:
    """Add one centroid, as k-means++ would draw it with a few trials, and let Lloyd's iterations settle."""
    distances = ((Z - last.centroids[last.labels]) ** 2).sum(axis=1)
    trials = rng.choice(len(Z), size=2 + int(math.log(last.k + 1)), p=distances / distances.sum())
    gains = [np.minimum(distances, ((Z - Z[trial]) ** 2).sum(axis=1)).sum() for trial in trials]
    start = np.concatenate([last.centroids, Z[[trials[int(np.argmin(gains))]]]])
    # One thread: with several, the order of additions, and so the last bits, would differ from run to run.
    with threadpool_limits(limits=1):
        labels = KMeans(last.k + 1, init=start, n_init=1).fit(Z).labels_
    return _Solution.of(Z, np.asarray(labels, dtype=np.intp))


def _from_scratch(Z: FloatArray, k: int, clusterer: Any, seed: int) -> _Solution:
    model = clone(clusterer).set_params(n_clusters=k)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=seed)
    with threadpool_limits(limits=1):
        labels = np.asarray(model.fit(Z).predict(Z), dtype=np.intp)
    return _Solution.of(Z, labels, model)


def _silhouette(Z: FloatArray, labels: IntArray, seed: int) -> float:
    # All pairs of rows are compared: a sample keeps time and memory bounded.
    size = min(len(Z), 5000)
    rows = np.random.default_rng(seed).choice(len(Z), size=size, replace=False)
    distinct = len(np.unique(labels[rows]))
    return float(silhouette_score(Z[rows], labels[rows])) if 2 <= distinct < size else -1.0


def _elbow(explained: FloatArray) -> int:
    """Give the index of the point farthest above the line between the curve's ends."""
    line = np.linspace(explained[0], explained[-1], len(explained))
    return int(np.argmax(explained - line))
