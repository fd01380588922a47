"""Groups: which rows are judged together. K-means on weighted features, a user's own groups, or one group.

`ScorePartition`, groups by predicted difficulty, has a file of its own.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Hashable
from functools import cache
from reprlib import repr as shortened
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from threadpoolctl import ThreadpoolController

from icqr._tables import FloatArray, IntArray, Table, draw_rows, known_values, take_rows
from icqr.clustering import Clustering, Seed, closest, elbow, from_scratch, grown, settled, silhouette_of
from icqr.group_sizes import too_small
from icqr.score_partition import ScorePartition as ScorePartition
from icqr.weighted_space import WeightedSpace, Weights

#: Rows that are clustered without a clusterer of the user's own; and those on which k is looked for.
MOST_ROWS, PATH_ROWS = 10_000, 2000
#: Choices of k by name.
CHOICES = ("explained_variance", "silhouette", "elbow")


class Partition(Protocol):
    """What `ICQR` needs of a partition: learn from rows, then give each row an integer label.

    Labels are 0, 1, …; -1 is a row of no known group.
    """

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
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

    needs_weights = needs_bounds = False

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
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

    needs_weights = needs_bounds = False

    def __init__(self, by: Any) -> None:
        self.by = by

    def fit(
        self, X: Table, y: FloatArray, bounds: FloatArray, weights: Weights = None, random_state: Seed = None
    ) -> Self:
        """Give each group that appears a number."""
        self._check_rowwise(X)
        keys = self._keys(X).unique()
        self.keys_: pd.Index[Any] = keys[sorted(range(len(keys)), key=lambda i: _sort_key(keys[i]))]
        self.n_groups_ = len(keys)
        return self

    def assign(self, X: Table) -> IntArray:
        """Give each row its group, -1 for a value that did not appear in `fit`."""
        keys = self._keys(X)
        groups = np.asarray(self.keys_.get_indexer(keys), dtype=np.intp)
        if (groups < 0).any() and not callable(self.by):  # a number that was text, or text that was a number
            groups = np.asarray(self.keys_.get_indexer(self._as_known(keys)), dtype=np.intp)
        return groups

    def _as_known(self, keys: pd.Index[Any]) -> pd.Index[Any]:
        """Give the keys with each value as the one of `fit` that it is the same as (see `known_values`)."""
        several = isinstance(keys, pd.MultiIndex)
        parts = []
        for j in range(keys.nlevels):
            given = pd.Series(keys.get_level_values(j), dtype=object)
            known = known_values(given, self.keys_.get_level_values(j).dropna().unique())
            parts.append(pd.Index(known.where(known.notna(), given), dtype=object))
        return pd.MultiIndex.from_arrays(parts) if several else parts[0]

    def describe(self) -> pd.DataFrame:
        """Give each group's rule: the values that make it."""
        names = ["group"] if callable(self.by) else self._columns()
        rows = [key if isinstance(key, tuple) else (key,) for key in self.keys_]
        rules = [" and ".join(map(value_rule, names, row)) for row in rows]
        return pd.DataFrame({"rule": rules, "fidelity": 1.0, "features": ", ".join(map(str, names))})

    def _check_rowwise(self, X: Table) -> None:
        """Refuse a function whose label for a row depends on the other rows, as one by quantiles of X does."""
        if callable(self.by) and len(X) > 1:
            half = take_rows(X, np.arange(0, len(X), 2))
            if not self._keys(X)[::2].equals(self._keys(half)):
                raise ValueError(
                    "by(X) must give a row the same label whatever rows it comes with, but labels change when half of "
                    "the rows are given; use fixed edges, for example pd.cut(X['a'], bins=[…]) instead of pd.qcut"
                )

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
        chosen = [pd.Index(_as_keys(frame[name]), dtype=object) for name in self._columns()]
        return chosen[0] if len(chosen) == 1 else pd.MultiIndex.from_arrays(chosen)


def value_rule(name: Any, value: Any) -> str:
    """Say that a column has a value.

    Examples
    --------
    >>> value_rule("city", "Bern"), value_rule("city", np.nan)
    ('city = Bern', 'city is missing')
    """
    return f"{name} is missing" if pd.isna(value) else f"{name} = {value}"


def _as_keys(values: Any) -> NDArray[np.object_]:
    """Give values as they are, whatever their common type would be, with one kind of missing value."""
    keys = np.asarray(values, dtype=object)
    return np.where(pd.isna(keys), np.nan, keys)


def _sort_key(key: Any) -> tuple[Any, ...]:
    """Sort numbers by size, everything else by its text, missing values last, also when a column holds all three."""
    return tuple(
        (2, 0, "") if pd.isna(value) else (0, value, "") if isinstance(value, numbers.Real) else (1, 0, str(value))
        for value in (key if isinstance(key, tuple) else (key,))
    )


class KMeansPartition(BaseEstimator):
    """K-means clusters of scaled features, each column weighted by its importance (Algorithms 1 and 3).

    1. Numeric columns are min-max scaled, missing values get the median, categories are one-hot (the 100 most frequent
       of a column).
    2. Each column is multiplied by its weight; a category's columns share their column's weight.
    3. K-means is fitted for k = 2, 3, …, each started from the last centroids and one new one, so that the explained
       variance ``σ_k = Σ n_i |c_i - μ|² / Σ |x_i - μ|²`` grows; the first k with ``σ_k > explained_variance`` is it.
       Of more than 2,000 rows a sample is looked at until k is found, then 10,000 of them; columns that hold less than
       0.1 % of the variance together are left out. With a `clusterer` all rows and columns are used.
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
        ``KMeans(n_init=10)`` is the algorithm as printed. A `random_state` of None gets the partition's.
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
        """Cluster the rows. `reference` are the rows that set scaling, if not X itself."""
        self.check_parameters()
        self.space_ = WeightedSpace.of(X if reference is None else reference, weights)
        rng = np.random.default_rng(random_state)
        rows = draw_rows(len(X), MOST_ROWS if self.clusterer is None else None, rng)
        Z = self.space_.transform(take_rows(X, rows))
        if self.clusterer is None:
            kept = self.space_.columns_that_matter(Z)
            self.space_, Z = self.space_.only(kept), Z[:, kept]
        if np.all(np.ptp(Z, axis=0) <= 1e-9 * np.abs(Z).max(initial=0)):  # equal, up to rounding
            _warn_one_group(weights)
            path = [Clustering.whole(Z)]
            chosen = path[0]
        else:
            # One thread: with several, the order of additions, and so the last bits, would differ from run to run.
            with _threads().limit(limits=1):
                path, chosen = self._cluster(Z, rng, random_state)
            self._check_reached(chosen)
        self.path_ = pd.DataFrame([solution.summary for solution in path])
        self.k_ = len(chosen.centroids)
        self.clusterer_, self.found_ = chosen.clusterer, chosen.found
        self.centroids_ = chosen.centroids
        self.group_of_: IntArray = np.arange(self.k_)
        self.counts_ = np.bincount(chosen.labels)
        return self

    @property
    def n_groups_(self) -> int:
        """Number of groups, after merging."""
        return int(self.group_of_.max()) + 1

    def assign(self, X: Table) -> IntArray:
        """Give each row the group of its nearest centroid."""
        if self.k_ == 1:
            return np.zeros(len(X), dtype=np.intp)
        return np.asarray(self.group_of_[self._nearest(self.space_.transform(X))], dtype=np.intp)

    def distance(self, X: Table) -> FloatArray:
        """Give each row's distance to its centroid, in the weighted space."""
        Z = self.space_.transform(X)
        return np.asarray(np.sqrt(((Z - self.centroids_[self._nearest(Z)]) ** 2).sum(axis=1)))

    def merge_small(self, n_calibration: int, needed: int) -> None:
        """Merge the smallest group into the nearest, while it would too probably get fewer than `needed` rows.

        "Too probably" as `group_sizes.too_small` has it. With ``merge=False``, never.
        """
        while self.merge and self.n_groups_ > 1:
            counts = np.bincount(self.group_of_, weights=self.counts_).astype(np.float64)
            smallest = int(counts.argmin())
            if not too_small(counts, n_calibration, needed)[smallest]:
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
        given = self.clusterer
        if given is not None and not (hasattr(given, "predict") and "n_clusters" in given.get_params()):
            raise ValueError(
                "clusterer must have a parameter n_clusters and predict, as KMeans, BisectingKMeans, MiniBatchKMeans "
                f"and Birch do, got {given!r}"
            )

    def _nearest(self, Z: FloatArray) -> IntArray:
        if self.clusterer_ is None:
            return closest(Z, self.centroids_)
        cells = pd.Index(self.found_).get_indexer(self.clusterer_.predict(Z))
        return np.where(cells < 0, closest(Z, self.centroids_), cells)

    def _cluster(
        self, Z: FloatArray, rng: np.random.Generator, random_state: Seed
    ) -> tuple[list[Clustering], Clustering]:
        """Give the clusterings that were tried, and the one that was chosen."""
        if self.clusterer is not None:
            path = self._path(Z, Clustering.whole(Z), lambda _, k: from_scratch(Z, k, self.clusterer, random_state))
            return path, self._chosen(path)
        sample = Z[draw_rows(len(Z), PATH_ROWS, rng)]
        path = self._path(sample, Clustering.whole(sample), lambda last, _: grown(sample, last, rng))
        chosen = self._chosen(path)
        if len(sample) == len(Z):
            return path, chosen
        settled_ = [settled(Z, chosen.centroids)]
        if self.choose not in ("silhouette", "elbow"):  # the sample's k may be too small for all rows
            settled_ = self._path(Z, settled_[0], lambda last, _: grown(Z, last, rng))
        settled_[0].silhouette = chosen.silhouette
        kept = [solution for solution in path if solution is not chosen]
        return sorted([*kept, *settled_], key=lambda solution: len(solution.centroids)), settled_[-1]

    def _path(self, Z: FloatArray, first: Clustering, add: Callable[[Clustering, int], Clustering]) -> list[Clustering]:
        """Give a clustering and those of more clusters that follow it, up to the last one that the choice needs."""
        solutions = [first]
        most = self.max_groups if self.choose in CHOICES else int(self.choose)
        for k in range(len(first.centroids) + 1, most + 1):
            last = solutions[-1]
            if last.explained > 1 - 1e-12:  # no more distinct rows
                break
            if self.choose == "explained_variance" and last.explained > self.explained_variance:
                break
            solutions.append(add(last, k))
            if self.choose == "silhouette":
                solutions[-1].silhouette = silhouette_of(Z, solutions[-1].labels)
        return solutions

    def _chosen(self, path: list[Clustering]) -> Clustering:
        if self.choose == "silhouette":
            return max(path, key=lambda solution: solution.silhouette)
        if self.choose == "elbow":
            return path[elbow(np.array([solution.explained for solution in path]))]
        return path[-1]

    def _check_reached(self, chosen: Clustering) -> None:
        if self.choose == "explained_variance" and chosen.explained <= self.explained_variance:
            n = len(chosen.centroids)
            said = "1 group explains" if n == 1 else f"{n} groups explain"
            more = "a larger max_groups" if n == self.max_groups else f"a finer setting of {self.clusterer!r}"
            warnings.warn(
                f"explained_variance={self.explained_variance:g} was not reached with max_groups={self.max_groups}: "
                f"{said} {chosen.explained:.3f}. This is used; {more} would explain more.",
                UserWarning,
                stacklevel=5,
            )


@cache
def _threads() -> ThreadpoolController:
    """Find the libraries that have threads, which takes longer than a K-means fit."""
    return ThreadpoolController()


def _warn_one_group(weights: Weights) -> None:
    reason = "all rows are equal in the columns that matter"
    if weights is not None and not np.any(weights):
        reason = "all importances are zero: permuting a column changes no prediction's error"
    warnings.warn(f"One group only, as in CQR: {reason}.", UserWarning, stacklevel=5)
