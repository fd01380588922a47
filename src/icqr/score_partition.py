"""Groups by predicted difficulty: how far out of its bounds a row's y is likely to be."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr._libraries import core_of, seeded
from icqr._tables import FloatArray, IntArray, Table
from icqr.families import find_family
from icqr.group_sizes import too_small
from icqr.quantiles import QuantileModel, bare
from icqr.weighted_space import Weights


class ScorePartition(BaseEstimator):
    """Groups of rows with about the same predicted difficulty: the conformity score's quantile, given the features.

    1. A quantile regressor learns the scores' quantile at the coverage from the features. Scores are out-of-fold: the
       bounds of a training row come from a quantile model that has not seen it. (Scores of rows that the model knows
       are too small, and groups made from them help no more than one group does.)
    2. The predicted difficulties of the training rows are cut at their quantiles, into groups of about the same size.
    3. Groups that would probably get too few calibration rows are merged with a neighbour (`merge_small`).
    4. A new row belongs to the group that its predicted difficulty falls in.

    The right offset of a row is just that quantile; in a group of rows that are alike in it, one offset fits all. With
    a quantile model that is right everywhere, difficulties are alike everywhere, and the groups are as good as one.
    `ICQR` gives the out-of-fold scores, which costs five more fits of its quantile model (none, if that is `prefit` or
    `ResidualQuantiles`, which has been cross-fitted already).

    Parameters
    ----------
    n_groups : int, default=8
        The number of groups, before merging.
    estimator : estimator, optional
        What predicts the difficulty, see `QuantileModel`. By default a HistGradientBoostingRegressor with small trees,
        whatever the quantile model of `ICQR` is: it takes missing values and categories, and finds what a linear model
        left.

    Attributes
    ----------
    model_ : QuantileModel
        Predicts the difficulty.
    edges_ : array
        Difficulties that part the groups; group g is above ``edges_[g - 1]`` and up to ``edges_[g]``.
    counts_ : array
        Training rows in each group.

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
    # ICQR then gives out-of-fold bounds and their scores.
    needs_scores = True

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
        """Learn to predict scores, and cut.

        Parameters
        ----------
        X, y : table and array
            Training rows.
        bounds : array of shape (n, levels)
            Their raw quantiles, out-of-fold.
        weights : ignored
            Columns are weighted by the regressor.
        random_state : int, optional
            Seed of the regressor.
        scores : array of shape (n, sides), optional
            Their conformity scores. By default the distance out of the first and last column of `bounds`.
        coverage : float, default=0.9
            The scores' quantile that is predicted.
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
        """Give what will predict the difficulty, not fitted yet."""
        # A quantile far out needs many rows in a leaf.
        default = HistGradientBoostingRegressor(max_leaf_nodes=8, min_samples_leaf=40, early_stopping=False)
        return QuantileModel(seeded(default if self.estimator is None else self.estimator, seed or 0))

    @property
    def n_groups_(self) -> int:
        """Number of groups, after merging."""
        return len(self.edges_) + 1

    def assign(self, X: Table) -> IntArray:
        """Give each row the group of its predicted difficulty."""
        return np.searchsorted(self.edges_, self.model_.predict(X)[:, 0])

    def merge_small(self, n_calibration: int, needed: int) -> None:
        """Merge the smallest group with its smaller neighbour, while it would too probably get too few rows."""
        while self.n_groups_ > 1:
            smallest = int(self.counts_.argmin())
            if not too_small(self.counts_, n_calibration, needed)[smallest]:
                return
            sides = [j for j in (smallest - 1, smallest + 1) if 0 <= j < self.n_groups_]
            first = min(smallest, min(sides, key=lambda j: self.counts_[j]))
            self.edges_ = np.delete(self.edges_, first)
            self.counts_[first] += self.counts_[first + 1]
            self.counts_ = np.delete(self.counts_, first + 1)

    def describe(self) -> pd.DataFrame:
        """Say what each group is: its place among the groups, and the scores that are predicted for its rows."""
        return pd.DataFrame({"rule": [self._rule(group) for group in range(self.n_groups_)], "fidelity": 1.0})

    def _rule(self, group: int) -> str:
        if self.n_groups_ == 1:
            return "all rows"
        above = "" if group == 0 else f"{self.edges_[group - 1]:.3g} < "
        below = "" if group == self.n_groups_ - 1 else f" ≤ {self.edges_[group]:.3g}"
        if not below:
            above, below = "", f" > {self.edges_[group - 1]:.3g}"
        return f"difficulty {group + 1} of {self.n_groups_}: {above}predicted score{below}"

    def check_parameters(self) -> None:
        """Raise if a parameter is not allowed."""
        if not isinstance(self.n_groups, int | np.integer) or isinstance(self.n_groups, bool) or self.n_groups < 1:
            raise ValueError(f"n_groups must be a whole number, 1 or more, got {self.n_groups!r}")
        if isinstance(self.estimator, type):
            raise ValueError(f"estimator must be a model, {self.estimator.__name__}(…), got the class")
        if not isinstance(self.estimator, QuantileModel):
            find_family(core_of(bare(self.estimator))[1])  # which raises if it can't predict quantiles


def cut(difficulty: FloatArray, n_groups: int) -> FloatArray:
    """Give the edges that part difficulties into groups of about the same size; equal ones stay together.

    Examples
    --------
    >>> cut(np.array([1.0, 2.0, 3.0, 4.0, 4.0, 4.0]), 3)
    array([2.])
    """
    edges = np.unique(np.quantile(difficulty, np.arange(1, n_groups) / n_groups, method="inverted_cdf"))
    return np.asarray(edges[edges < difficulty.max()])
