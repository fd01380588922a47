"""Groups: which rows are judged together.

K-means on weighted features (the paper's Algorithms 1 and 3), a user's own groups, groups by predicted difficulty, or
one group for all.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable
from reprlib import repr as shortened
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr._clustering import (
    Clustering,
    Seed,
    WeightedSpace,
    Weights,
    add_centroid,
    elbow,
    from_scratch,
    lloyd,
    mean_silhouette,
    nearest_centroid,
)
from icqr._dates import as_texts, is_dates
from icqr._libraries import core_of, find_quantile_library, one_thread, seeded
from icqr._messages import warn
from icqr._rules import value_rule
from icqr._tables import FloatArray, IntArray, Table, blocks, draw_rows, known_values, take_rows
from icqr.quantiles import QuantileModel, bare

#: Without a user's clusterer, at most this many rows are clustered, and at most this many serve to find k.
MOST_ROWS, PATH_ROWS = 10_000, 2000
#: Choices of k by name.
CHOICES = ("explained_variance", "silhouette", "elbow")
#: A group is merged if its chance of getting too few calibration rows is above this.
MERGE_RISK = 0.001


class Partition(Protocol):
    """What `ICQR` needs from a partition: learn from rows, then give each row an integer label.

    Labels are 0, 1, …; a row of no known group has -1.
    """

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
    ) -> Self:
        """Learn the groups from rows, their targets, raw quantiles and the columns' weights."""

    def assign(self, X: Table) -> IntArray:
        """Return each row's group."""


# -- One group -------------------------------------------------------------------------------------------------------


class WholePartition(BaseEstimator):
    """One group: every row is judged with all others, as in CQR.

    Examples
    --------
    >>> WholePartition().fit(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 3))).assign(np.zeros((2, 1)))
    array([0, 0])
    """

    needs_weights = needs_bounds = False

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
    ) -> Self:
        """Learn nothing."""
        self.n_groups_ = 1
        return self

    def assign(self, X: Table) -> IntArray:
        """Return group 0 for every row."""
        return np.zeros(len(X), dtype=np.intp)


# -- K-means on weighted features ------------------------------------------------------------------------------------


class KMeansPartition(BaseEstimator):
    """K-means clusters of scaled features, each column weighted by its importance (Algorithms 1 and 3).

    1. Scale numeric columns (min-max), fill missing values with the median, and turn categories into one-hot columns
       (the 100 most frequent of each column; all others count as one, and a warning says so).
    2. Multiply each column by its weight. Each one-hot column gets the weight of the column that it comes from.
    3. Fit K-means for k = 2, 3, …. Each fit starts from the last centroids and one new one, so that the explained
       variance ``σ_k = Σ n_i |c_i - μ|² / Σ |x_i - μ|²`` grows. Take the first k with ``σ_k > explained_variance``.
    4. Merge groups that would probably get too few calibration rows (`merge_small`).
    5. Give each new row the group of its nearest centroid.

    To save time, k is found on a sample of 2,000 rows, at most 10,000 rows are then clustered, and columns that
    together hold less than 0.1 % of the variance are left out. With a `clusterer`, all rows and columns are used.

    Parameters
    ----------
    explained_variance : float, default=0.9
        σ, the share of variance that the centroids must explain.
    max_groups : int, default=50
        K, the largest k to try. If it does not reach σ, it is used all the same, and `explained_variance_` is below σ.
        That takes nothing from the promise: groups are larger and more mixed, and coverage holds in each.
    choose : {"explained_variance", "silhouette", "elbow"} or int, default="explained_variance"
        How to choose k. Silhouette and elbow look at every k up to `max_groups`. A number is k itself.
    clusterer : estimator, optional
        A scikit-learn clusterer with `n_clusters` and `predict`, to fit from scratch at each k instead:
        ``KMeans(n_init=10)`` is Algorithm 1, up to its tolerance. A `random_state` of None gets the partition's.
    merge : bool, default=True
        Merge small groups before calibration.
    data : {"train", "calibration"}, default="train"
        Which rows `ICQR` passes; see `PermutationImportance`.

    Attributes
    ----------
    path_ : DataFrame
        Each k that was tried, with its explained variance (and silhouette), ready to plot.
    k_ : int
        The chosen k, before merging.
    explained_variance_ : float
        The share of variance that the chosen centroids explain.
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

    needs_bounds = False

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
        weights: Weights = None,
        random_state: Seed = None,
        reference: Table | None = None,
    ) -> Self:
        """Cluster the rows. The scaling is learned from the rows in `reference`, by default X itself."""
        self.check_parameters()
        rng = np.random.default_rng(random_state)

        # Scale the columns, and multiply them by their weights.
        self.space_ = WeightedSpace.learn(X if reference is None else reference, weights)
        rows = draw_rows(len(X), MOST_ROWS if self.clusterer is None else None, rng)
        Z = self.space_.transform(take_rows(X, rows))
        if self.clusterer is None:
            self.space_, Z = self.space_.without_negligible(Z)
        self.space_.warn_about_lumped()

        # Find the smallest k that explains enough variance, and its centroids.
        if np.all(np.ptp(Z, axis=0) <= 1e-9 * np.abs(Z).max(initial=0)):  # equal, up to rounding
            chosen = Clustering.of(Z, np.zeros(len(Z)))
            path = [chosen]
            reason = "all rows are equal in the columns that matter"
            if weights is not None and not np.any(weights):
                reason = (
                    "all importances are zero: permuting a column changes no prediction's error. Perhaps the quantile "
                    "model predicts the same for every row (predict_quantiles shows it); then try another"
                )
            warn(f"One group only, as in CQR: {reason}.")
        else:
            with one_thread():
                path, chosen = self._choose_k(Z, rng, random_state)

        self.path_ = pd.DataFrame(
            {
                "k": [len(clustering.centroids) for clustering in path],
                "explained_variance": [clustering.sigma for clustering in path],
            }
        )
        if self.choose == "silhouette":
            silhouettes = pd.Series([clustering.silhouette for clustering in path])
            self.path_["silhouette"] = silhouettes.replace(-np.inf, np.nan)  # one cluster has none
        self.k_, self.explained_variance_ = len(chosen.centroids), float(chosen.sigma)
        self.clusterer_, self.cells_ = chosen.clusterer, chosen.cells
        self.centroids_ = chosen.centroids
        self.group_of_: IntArray = np.arange(self.k_)
        self.counts_ = np.bincount(chosen.labels)
        return self

    def _choose_k(
        self, Z: FloatArray, rng: np.random.Generator, random_state: Seed
    ) -> tuple[list[Clustering], Clustering]:
        """Return the clusterings that were tried, and the one that was chosen."""
        if self.clusterer is not None:  # as printed: from scratch for k = 2, 3, …, on all rows
            path = self._try_each_k(
                Z, Clustering.of(Z, np.zeros(len(Z))), lambda _, k: from_scratch(Z, k, self.clusterer, random_state)
            )
            return path, self._pick(path)

        # A sample of the rows is enough to find k.
        sample = Z[draw_rows(len(Z), PATH_ROWS, rng)]
        path = self._try_each_k(
            sample, Clustering.of(sample, np.zeros(len(sample))), lambda last, _: add_centroid(sample, last, rng)
        )
        chosen = self._pick(path)
        if len(sample) == len(Z):
            return path, chosen

        # Then fit the centroids to all rows, and add more if the sample's k is too small for them.
        final = [lloyd(Z, chosen.centroids)]
        if self.choose not in ("silhouette", "elbow"):
            final = self._try_each_k(Z, final[0], lambda last, _: add_centroid(Z, last, rng))
        final[0].silhouette = chosen.silhouette
        others = [clustering for clustering in path if clustering is not chosen]
        return sorted([*others, *final], key=lambda clustering: len(clustering.centroids)), final[-1]

    def _try_each_k(
        self, Z: FloatArray, first: Clustering, next_clustering: Callable[[Clustering, int], Clustering]
    ) -> list[Clustering]:
        """Return the first clustering and the next ones with larger k, up to the last that the choice needs."""
        path = [first]
        most = self.max_groups if self.choose in CHOICES else int(self.choose)
        for k in range(len(first.centroids) + 1, most + 1):  # k = 2, 3, … after one cluster
            last = path[-1]  # first check whether the last k is enough
            if last.sigma > 1 - 1e-12:  # no more distinct rows
                break
            if self.choose == "explained_variance" and last.sigma > self.explained_variance:  # σ_k > σ
                break
            path.append(next_clustering(last, k))
            if self.choose == "silhouette":
                path[-1].silhouette = mean_silhouette(Z, path[-1].labels)
        return path

    def _pick(self, path: list[Clustering]) -> Clustering:
        if self.choose == "silhouette":
            return max(path, key=lambda clustering: clustering.silhouette)
        if self.choose == "elbow":
            return path[elbow(np.array([clustering.sigma for clustering in path]))]
        return path[-1]

    @property
    def n_groups_(self) -> int:
        """Number of groups, after merging."""
        return int(self.group_of_.max()) + 1

    def assign(self, X: Table) -> IntArray:
        """Return the group of each row's nearest centroid."""
        if self.k_ == 1:
            return np.zeros(len(X), dtype=np.intp)
        cells = [self._nearest(self.space_.transform(take_rows(X, block))) for block in blocks(len(X))]
        return np.asarray(self.group_of_[np.concatenate(cells)], dtype=np.intp)

    def distance(self, X: Table) -> FloatArray:
        """Return each row's distance to its centroid, in the weighted space."""
        distances = np.empty(len(X))
        for block in blocks(len(X)):
            Z = self.space_.transform(take_rows(X, block))
            distances[block] = np.sqrt(((Z - self.centroids_[self._nearest(Z)]) ** 2).sum(axis=1))
        return distances

    def _nearest(self, Z: FloatArray) -> IntArray:
        if self.clusterer_ is None:
            return nearest_centroid(Z, self.centroids_)
        # KMeans never comes here (see `from_scratch`). Other clusterers predict by their own rule. If that gives a
        # cluster without training rows, the nearest centroid decides.
        labels = pd.Index(self.cells_).get_indexer(self.clusterer_.predict(Z))
        return np.where(labels < 0, nearest_centroid(Z, self.centroids_), labels)

    def merge_small(self, n_calibration: int, needed: int) -> None:
        """Merge the smallest group into the nearest, while it risks getting fewer than `needed` calibration rows.

        The risk is P(Binomial(n_calibration, share of training rows) < needed) > 0.001. Not done with ``merge=False``.
        """
        while self.merge and self.n_groups_ > 1:
            counts = np.bincount(self.group_of_, weights=self.counts_).astype(np.float64)
            smallest = int(counts.argmin())
            if not _is_too_small(counts, smallest, n_calibration, needed):
                return
            # A merged group's centre is the mean of its rows.
            sums = np.zeros((len(counts), self.centroids_.shape[1]))
            np.add.at(sums, self.group_of_, self.centroids_ * self.counts_[:, None])
            centres = sums / counts[:, None]
            distances = ((centres - centres[smallest]) ** 2).sum(axis=1)
            distances[smallest] = np.inf
            self.group_of_[self.group_of_ == smallest] = distances.argmin()
            self.group_of_ = np.unique(self.group_of_, return_inverse=True)[1]

    def check_parameters(self) -> None:
        """Raise if a parameter is not allowed."""
        is_number = isinstance(self.choose, int | np.integer) and not isinstance(self.choose, bool)
        if self.choose not in CHOICES and not (is_number and int(self.choose) >= 1):
            raise ValueError(f"choose must be one of {', '.join(CHOICES)}, or a number of groups, got {self.choose!r}")
        if not 0 < self.explained_variance < 1:
            raise ValueError(f"explained_variance must be strictly between 0 and 1, got {self.explained_variance}")
        if not isinstance(self.max_groups, int | np.integer) or self.max_groups < 1:
            raise ValueError(f"max_groups must be a whole number, 1 or more, got {self.max_groups!r}")
        if not isinstance(self.merge, bool | np.bool_):
            raise ValueError(f"merge must be True or False, got {self.merge!r}")
        clusterer = self.clusterer
        if clusterer is not None and not (hasattr(clusterer, "predict") and "n_clusters" in clusterer.get_params()):
            raise ValueError(
                "clusterer must have a parameter n_clusters and predict, as KMeans, BisectingKMeans, MiniBatchKMeans "
                f"and Birch do, got {clusterer!r}"
            )


def _is_too_small(counts: NDArray[Any], group: int, n_calibration: int, needed: int) -> bool:
    """Return whether a group's risk of getting fewer than `needed` calibration rows is above `MERGE_RISK`."""
    return bool(stats.binom.cdf(needed - 1, n_calibration, counts[group] / counts.sum()) > MERGE_RISK)


# -- A user's own groups ---------------------------------------------------------------------------------------------


class GroupPartition(BaseEstimator):
    """Your own groups (Mondrian conformal prediction). They are never merged.

    Parameters
    ----------
    by : column, list of columns, or callable
        The columns whose values are the groups: names, or positions for arrays. Or a function of X that returns one
        label per row.

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

    needs_weights = needs_bounds = False

    def __init__(self, by: Any) -> None:
        self.by = by

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
    ) -> Self:
        """Find the groups that appear in X, and sort them."""
        keys = self._keys(X)
        # A row's label must not depend on the other rows, as a label by quantiles of X would.
        if callable(self.by) and len(X) > 1 and not keys[::2].equals(self._keys(take_rows(X, np.arange(0, len(X), 2)))):
            raise ValueError(
                "by(X) must give a row the same label whatever rows it comes with, but labels change when half of "
                "the rows are given; use fixed edges, for example pd.cut(X['a'], bins=[…]) instead of pd.qcut"
            )
        keys = keys.unique()
        self.keys_: pd.Index[Any] = keys[sorted(range(len(keys)), key=lambda i: _sort_key(keys[i]))]
        self.n_groups_ = len(keys)
        return self

    def assign(self, X: Table) -> IntArray:
        """Return each row's group, -1 for a value that did not appear in `fit`."""
        keys = self._keys(X)
        groups = np.asarray(self.keys_.get_indexer(keys), dtype=np.intp)
        if (groups >= 0).all() or callable(self.by):
            return groups

        # What is a number here may have been text in `fit`, or the other way round (see `known_values`).
        columns = []
        for j in range(keys.nlevels):
            values = pd.Series(keys.get_level_values(j), dtype=object)
            known = known_values(values, self.keys_.get_level_values(j).dropna().unique())
            columns.append(pd.Index(known.where(known.notna(), values), dtype=object))
        keys = pd.MultiIndex.from_arrays(columns) if isinstance(keys, pd.MultiIndex) else columns[0]
        return np.asarray(self.keys_.get_indexer(keys), dtype=np.intp)

    def describe(self) -> pd.DataFrame:
        """Return each group's rule in words: the values that its rows share."""
        names = ["group"] if callable(self.by) else self._columns()
        rows = [key if isinstance(key, tuple) else (key,) for key in self.keys_]
        rules = [" and ".join(map(value_rule, names, row)) for row in rows]
        return pd.DataFrame({"rule": rules, "fidelity": 1.0, "features": ", ".join(map(str, names))})

    def _columns(self) -> list[Any]:
        columns = list(self.by) if isinstance(self.by, list | tuple) else [self.by]
        wrong = [type(column).__name__ for column in columns if not isinstance(column, Hashable)]
        if not columns or wrong:
            raise ValueError(
                "by must be the name of a column, a list of names, or a function of X, got "
                f"{wrong[0] if wrong else 'no column'}; labels of your own must be a column of X"
            )
        return columns

    def _keys(self, X: Table) -> pd.Index[Any]:
        """Return each row's key: its values in the columns, or the function's label."""
        if callable(self.by):
            labels = _as_keys(self.by(X))
            if labels.shape != (len(X),):
                raise ValueError(f"by(X) must give one label per row, shape ({len(X)},), got shape {labels.shape}")
            return pd.Index(labels, dtype=object)
        frame: pd.DataFrame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
        unknown = [name for name in self._columns() if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"by={shortened(self.by)}: there is no column {unknown[0]!r}; columns are {list(frame.columns)}"
            )
        columns = [pd.Index(_as_keys(frame[name]), dtype=object) for name in self._columns()]
        return columns[0] if len(columns) == 1 else pd.MultiIndex.from_arrays(columns)


def _as_keys(values: Any) -> NDArray[np.object_]:
    """Return values as objects, so that each keeps its type; dates become text, and missing values of any kind NaN."""
    if isinstance(values, pd.Series) and is_dates(values):
        return as_texts(values)
    keys = np.asarray(values, dtype=object)
    return np.where(pd.isna(keys), np.nan, keys)


def _sort_key(key: Any) -> tuple[Any, ...]:
    """Return a sort key: numbers come first, by size, then everything else, by its text, and missing values last."""
    return tuple(
        (2, 0, "") if pd.isna(value) else (0, value, "") if isinstance(value, numbers.Real) else (1, 0, str(value))
        for value in (key if isinstance(key, tuple) else (key,))
    )


# -- Groups by predicted difficulty ----------------------------------------------------------------------------------


class ScorePartition(BaseEstimator):
    """Groups of rows with about the same predicted difficulty: the conformity score's quantile, given the features.

    1. Learn the scores' quantile at the coverage from the features. The scores are out-of-fold: each training row's
       bounds come from a quantile model that has not seen it. Scores of rows that the model knows are too small, and
       groups made from them help no more than one group does.
    2. Cut the training rows' predicted difficulties at their quantiles, into groups of about the same size.
    3. Merge groups that would probably get too few calibration rows with a neighbour (`merge_small`).
    4. Give each new row the group that its predicted difficulty falls in.

    The difficulty of a row is the offset that it needs, so one offset fits a whole group. If the quantile model is
    right everywhere, all rows are equally difficult, and these groups do no better than one group. `ICQR` computes the
    out-of-fold scores. This costs five more fits of its quantile model, or none if the model is `prefit` or
    `ResidualQuantiles`, which is cross-fitted already.

    Parameters
    ----------
    n_groups : int, default=8
        The number of groups, before merging.
    estimator : estimator, optional
        The model that predicts the difficulty; see `QuantileModel`. By default a HistGradientBoostingRegressor with
        small trees, whatever the quantile model of `ICQR` is. It takes missing values and categories, and finds what a
        linear model missed.

    Attributes
    ----------
    model_ : QuantileModel
        Predicts the difficulty.
    edges_ : array
        The difficulties between the groups; group g is above ``edges_[g - 1]`` and up to ``edges_[g]``.
    counts_ : array
        Number of training rows in each group.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = X[:, 0] * rng.normal(size=1000)
    >>> bounds = np.tile([-1.0, 0.0, 1.0], (1000, 1))  # of the same width everywhere
    >>> partition = ScorePartition(n_groups=2).fit(X, y, bounds, random_state=0)
    >>> partition.assign(np.array([[0.1], [0.9]]))
    array([0, 1])
    """

    needs_weights = False
    needs_scores = True  # so that ICQR passes out-of-fold bounds and their scores

    def __init__(self, n_groups: int = 8, estimator: Any = None) -> None:
        self.n_groups = n_groups
        self.estimator = estimator

    def fit(
        self,
        X: Table,
        y: FloatArray,
        bounds: FloatArray,
        weights: Weights = None,
        random_state: int | None = None,
        scores: FloatArray | None = None,
        coverage: float = 0.9,
    ) -> Self:
        """Learn to predict scores, and cut them into groups. Weights are ignored: the regressor weighs columns itself.

        Parameters
        ----------
        X, y, bounds : table and arrays
            Training rows, and their raw out-of-fold quantiles, (n, levels).
        scores : array of shape (n, sides), optional
            The rows' conformity scores. By default, how far y lies outside the first and last column of `bounds`.
        coverage : float, default=0.9
            The quantile of the scores to predict.
        """
        self.check_parameters()
        if scores is None:
            scores = np.column_stack([bounds[:, 0] - y, y - bounds[:, -1]])
        self.model_ = self.regressor(random_state).fit(X, scores.max(axis=1), (float(coverage),))
        difficulty = self.model_.predict(X)[:, 0]
        self.edges_ = cut(difficulty, self.n_groups)
        self.counts_ = np.bincount(np.searchsorted(self.edges_, difficulty), minlength=self.n_groups_)
        return self

    def regressor(self, seed: int | None) -> QuantileModel:
        """Return the unfitted model that will predict the difficulty."""
        # An extreme quantile needs many rows in each leaf.
        default = HistGradientBoostingRegressor(max_leaf_nodes=8, min_samples_leaf=40, early_stopping=False)
        return QuantileModel(seeded(default if self.estimator is None else self.estimator, seed or 0))

    @property
    def n_groups_(self) -> int:
        """Number of groups, after merging."""
        return len(self.edges_) + 1

    def assign(self, X: Table) -> IntArray:
        """Return the group of each row's predicted difficulty."""
        return np.searchsorted(self.edges_, self.model_.predict(X)[:, 0])

    def merge_small(self, n_calibration: int, needed: int) -> None:
        """Merge the smallest group with its smaller neighbour, while it risks getting too few calibration rows."""
        while self.n_groups_ > 1:
            smallest = int(self.counts_.argmin())
            if not _is_too_small(self.counts_, smallest, n_calibration, needed):
                return
            neighbours = [j for j in (smallest - 1, smallest + 1) if 0 <= j < self.n_groups_]
            first = min(smallest, min(neighbours, key=lambda j: self.counts_[j]))
            self.edges_ = np.delete(self.edges_, first)
            self.counts_[first] += self.counts_[first + 1]
            self.counts_ = np.delete(self.counts_, first + 1)

    def describe(self) -> pd.DataFrame:
        """Return each group's name: its place among the groups, from the easiest rows to the hardest."""
        ends = {1: ", the easiest", self.n_groups_: ", the hardest"}
        places = range(1, self.n_groups_ + 1)
        return pd.DataFrame(
            {"name": [f"difficulty {place} of {self.n_groups_}{ends.get(place, '')}" for place in places]}
        )

    def check_parameters(self) -> None:
        """Raise if a parameter is not allowed."""
        if not isinstance(self.n_groups, int | np.integer) or isinstance(self.n_groups, bool) or self.n_groups < 1:
            raise ValueError(f"n_groups must be a whole number, 1 or more, got {self.n_groups!r}")
        if isinstance(self.estimator, type):
            raise ValueError(f"estimator must be a model, {self.estimator.__name__}(…), got the class")
        if not isinstance(self.estimator, QuantileModel):
            find_quantile_library(core_of(bare(self.estimator)).model)  # raises if it can't predict quantiles


def cut(difficulty: FloatArray, n_groups: int) -> FloatArray:
    """Return the edges that cut difficulties into groups of about the same size; equal values stay together.

    Examples
    --------
    >>> cut(np.array([1.0, 2.0, 3.0, 4.0, 4.0, 4.0]), 3)
    array([2.])
    """
    edges = np.unique(np.quantile(difficulty, np.arange(1, n_groups) / n_groups, method="inverted_cdf"))
    return np.asarray(edges[edges < difficulty.max()])
