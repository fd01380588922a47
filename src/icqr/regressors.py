"""Naive, QR, CQR and ICQR: the parts of Algorithm 3 in the paper's order, one `fit` each.

Part 4 (`_calibrate`) and part 5 (`predict_interval`) are the same for all methods: see `IntervalRegressor` in
_predicting.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.cluster import KMeans

from icqr._libraries import copied, seeded
from icqr._predicting import (
    APPROXIMATE,
    GROUPWISE,
    MARGINAL,
    NOT_CALIBRATED,
    IntervalRegressor,
    check_labels,
)
from icqr._rows import Rows, naming
from icqr._rules import describe_groups, describe_partition
from icqr._tables import Features, FloatArray, Table
from icqr.calibration import Calibration, NoCalibration, bounds_from_quantiles, quantile_levels, rows_needed
from icqr.importance import PermutationImportance, leak_alarm, median_absolute_error
from icqr.partition import GroupPartition, KMeansPartition, Partition, ScorePartition, WholePartition
from icqr.quantiles import PointModel, ResidualQuantiles, bare, cross_fit, fit_quantiles, is_prefit
from icqr.selection import group_numbers, select

#: Training rows from which groups are put into words.
MOST_DESCRIBED = 5000
#: Calibration rows on which the leak alarm looks at the median's error.
MOST_UNSEEN = 500
NO_CALIBRATION = "QR has no calibration; use CQR or ICQR, which take the same estimator"


class Naive(IntervalRegressor):
    """Split conformal prediction around any regressor's prediction: the same width for every row.

    1. Fit the regressor on the training rows.
    2. Scores of the calibration rows: ``|y - f(x)|``; the offset q is the score of rank ``ceil((n + 1) coverage)``.
    3. Interval: ``f(x) ± q``. Holds on average over all rows (marginally).

    Parameters
    ----------
    estimator : regressor, optional
        By default HistGradientBoostingRegressor. A FrozenEstimator is used as it is, and all rows calibrate.
    coverage : float, default=0.9
        How often an interval should hold.
    side : {"both", "lower", "upper"}, default="both"
        An interval, or a bound on one side.
    y_min, y_max : float, optional
        Known limits of y.
    calibration_size : float or int, default=1/3
        Share or number of rows set aside for calibration.
    random_state : int, RandomState or None
        Seed of everything random.
    n_jobs : int, optional
        Handed to the regressor, if it has this parameter.

    Examples
    --------
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> Naive(coverage=0.9, random_state=0).fit(X, y).predict_interval(X).shape
    (500, 2)
    """

    _takes_quantiles = False

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        side: str = "both",
        y_min: float | None = None,
        y_max: float | None = None,
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. Unless calibration rows are given, `calibration_size` of these are set aside.
        X_calibration, y_calibration : table and array, optional
            Calibration rows, which the model must not have seen.
        **fit_params : optional
            For the estimator's own fit; see `ICQR.fit`.

        Returns
        -------
        self
        """
        calibrates = "all" if is_prefit(self.estimator) else "share"
        train, calibration, params, seeds = self._prepare(X, y, X_calibration, y_calibration, fit_params, calibrates)

        # 1. Fit the regressor.
        regressor = seeded(bare(self.estimator), seeds.model)
        if self.n_jobs is not None and hasattr(regressor, "get_params") and "n_jobs" in regressor.get_params():
            regressor.set_params(n_jobs=self.n_jobs)
        self.model_ = PointModel(regressor).fit(train.X, train.y, **params)

        # 2. One offset for all rows.
        _put_into_one_group(self, train)
        return self._calibrate(calibration, MARGINAL)


class QR(IntervalRegressor):
    """Quantile regression as it is: no calibration, and so no promise.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on all rows.
    2. Interval: the outer two.

    Parameters
    ----------
    estimator : quantile model, optional
        The plain estimator, see `QuantileModel`. By default HistGradientBoostingRegressor.
    coverage : float, default=0.9
        Sets the quantile levels.
    side : {"both", "lower", "upper"}, default="both"
        An interval, or a bound on one side.
    y_min, y_max : float, optional
        Known limits of y.
    random_state : int, RandomState or None
        Seed of everything random.
    n_jobs : int, optional
        Number of tasks run at the same time.

    Examples
    --------
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> QR(coverage=0.9, random_state=0).fit(X, y).predict_interval(X).shape
    (500, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        side: str = "both",
        y_min: float | None = None,
        y_max: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the quantile model on all rows; `fit_params` go to the estimator's own fit."""
        calibration = [fit_params.pop(name, None) for name in ("X_calibration", "y_calibration")]
        if any(rows is not None for rows in calibration):
            raise ValueError(NO_CALIBRATION)
        train, _, params, seeds = self._prepare(X, y, None, None, fit_params, calibrates="none")
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = fit_quantiles(self.estimator, train, levels, seeds.model, self.n_jobs, params)
        self._look_at_training_bounds(train)
        _put_into_one_group(self, train)
        self.calibration_ = NoCalibration.of(self.conformity_, self.coverage_, NOT_CALIBRATED)
        return self

    def calibrate(self, X: object, y: object) -> Self:
        """Refuse: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)

    def with_calibration(self, calibration: Calibration) -> Self:
        """Refuse: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)


class CQR(IntervalRegressor):
    """Conformalized quantile regression: the quantile model's bounds, moved by one offset.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on the training rows.
    2. Scores of the calibration rows: ``max(lower - y, y - upper)`` (or scaled, see `conformity`).
    3. The offset q is the score of rank ``ceil((n + 1) coverage)``; interval: ``[lower - q, upper + q]``.

    Holds on average over all rows (marginally).

    Parameters
    ----------
    estimator : quantile model, optional
        The plain estimator, see `QuantileModel`. By default HistGradientBoostingRegressor.
    coverage : float, default=0.9
        How often an interval should hold.
    conformity : {"cqr", "cqr-r", "cqr-m"}, default="cqr"
        The score: distance to the nearer bound; that over the width; that over the bound's distance to the median.
    symmetric : bool, default=True
        One offset for both bounds, or (False) one for each, so that both tails hold on their own.
    side : {"both", "lower", "upper"}, default="both"
        An interval, or a bound on one side.
    y_min, y_max : float, optional
        Known limits of y.
    calibration_size : float or int, default=1/3
        Share or number of rows set aside for calibration.
    random_state : int, RandomState or None
        Seed of everything random.
    n_jobs : int, optional
        Number of tasks run at the same time.

    Examples
    --------
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = CQR(coverage=0.9, random_state=0).fit(X, y)
    >>> model.predict_interval(X, coverage=[0.8, 0.9]).shape
    (500, 2, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        conformity: str = "cqr",
        symmetric: bool = True,
        side: str = "both",
        y_min: float | None = None,
        y_max: float | None = None,
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.conformity = conformity
        self.symmetric = symmetric
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. Unless calibration rows are given, `calibration_size` of these are set aside.
        X_calibration, y_calibration : table and array, optional
            Calibration rows, which the model must not have seen.
        **fit_params : optional
            For the estimator's own fit; see `ICQR.fit`.

        Returns
        -------
        self
        """
        # A model that is fitted already leaves all rows for calibration, but for scores whose scale must be learned.
        calibrates = "all" if is_prefit(self.estimator) and self.conformity == "cqr" else "share"
        train, calibration, params, seeds = self._prepare(X, y, X_calibration, y_calibration, fit_params, calibrates)

        # 1. Estimate the conditional quantiles.
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = fit_quantiles(self.estimator, train, levels, seeds.model, self.n_jobs, params)
        self._look_at_training_bounds(train)

        # 2. One offset for all rows.
        _put_into_one_group(self, train)
        return self._calibrate(calibration, MARGINAL)


class ICQR(IntervalRegressor):
    """Improved conformalized quantile regression: one offset for each group of similar rows.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on the training rows.
    2. Permutation importance of each column (`importance`).
    3. Groups: K-means on the scaled columns, weighted by importance (`partition`); small groups are merged.
    4. In each group, the scores of its calibration rows and the offset: the score of rank ``ceil((n + 1) coverage)``.
    5. A new row gets the offset of its group.

    With importance and groups learned from training rows alone (the default), coverage holds in every group, in finite
    samples. `as_printed` gives the paper's Algorithm 3, which learns both from calibration rows.

    Parameters
    ----------
    estimator : quantile model, optional
        The plain estimator, see `QuantileModel`. By default HistGradientBoostingRegressor.
    coverage : float, default=0.9
        How often an interval should hold, in each group.
    conformity : {"cqr", "cqr-r", "cqr-m"}, default="cqr"
        The score: distance to the nearer bound; that over the width; that over the bound's distance to the median.
    symmetric : bool, default=True
        One offset for both bounds, or (False) one for each, so that both tails hold on their own.
    side : {"both", "lower", "upper"}, default="both"
        An interval, or a bound on one side.
    y_min, y_max : float, optional
        Known limits of y.
    partition : partition or "auto", optional
        By default `KMeansPartition()`. `ScorePartition` groups by predicted difficulty, `GroupPartition` takes your own
        groups; anything with `fit` and `assign` does. "auto" chooses, from training rows alone: one group, K-means
        clusters, or groups by difficulty and their number (`icqr.selection.select`); it fits the quantile model five
        more times for that, unless it is `prefit` or `ResidualQuantiles`.
    importance : PermutationImportance, optional
        By default `PermutationImportance()`; with ``partition="auto"``, 2 repeats on at most 2,000 rows.
    small_groups : {"pooled", "infinite", "error"}, default="pooled"
        What happens in a group with too few calibration rows: an offset from all rows, which promises nothing for these
        rows; an infinite interval, which keeps the promise; or an error.
    calibration_size : float or int, default=1/3
        Share or number of rows set aside for calibration.
    random_state : int, RandomState or None
        Seed of everything random.
    n_jobs : int, optional
        Number of tasks run at the same time.

    Attributes
    ----------
    model_ : QuantileModel
        The fitted quantile model.
    importances_ : DataFrame
        Importance of each column; absent when the partition uses none.
    partition_ : partition
        The fitted partition.
    selection_ : DataFrame
        With ``partition="auto"``, the candidates, their losses and which was chosen.
    calibration_ : Calibration
        The sorted calibration scores of each group.
    groups_ : DataFrame
        A row per group: size, offsets, what is promised, and what the group is in words.
    n_crossed_ : dict
        How many training and calibration rows had their quantiles sorted.

    Examples
    --------
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(1000, random_state=0, return_X_y=True)
    >>> model = ICQR(coverage=0.9, random_state=0).fit(X, y)
    >>> model.predict_interval(X).shape
    (1000, 2)
    >>> model.explain(X)["guarantee"].unique().tolist()
    ['group-wise']
    """

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        conformity: str = "cqr",
        symmetric: bool = True,
        side: str = "both",
        y_min: float | None = None,
        y_max: float | None = None,
        partition: Partition | str | None = None,
        importance: PermutationImportance | None = None,
        small_groups: str = "pooled",
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.conformity = conformity
        self.symmetric = symmetric
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.partition = partition
        self.importance = importance
        self.small_groups = small_groups
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def as_printed(cls, estimator: Any = None, coverage: float = 0.9, **parameters: Any) -> ICQR:
        """Return the paper's Algorithm 3 as printed.

        Importance and K-means on calibration rows, K-means from scratch for each k, no merging. The promise is
        approximate until `calibrate` is called with fresh rows. The paper leaves open, and this decides: the error
        (the absolute error of the median), min-max scaling, the largest k where σ is not reached, and pooled offsets in
        clusters that are too small for the rank.

        Examples
        --------
        >>> ICQR.as_printed(coverage=0.8).partition.data
        'calibration'
        """
        importance = PermutationImportance(error=median_absolute_error, data="calibration", max_rows=None)
        partition = KMeansPartition(clusterer=KMeans(n_init=10), merge=False, data="calibration")
        return cls(estimator, coverage, **{"importance": importance, "partition": partition, **parameters})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model, learn the groups and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. Unless calibration rows are given, `calibration_size` of these, drawn at random, are set
            aside for calibration. A random draw is right only if rows are exchangeable: with rows in time order give
            the latest ones as calibration rows; with several rows per customer or site give whole customers or sites.
        X_calibration, y_calibration : table and array, optional
            Calibration rows, which the model must not have seen.
        **fit_params : optional
            For the estimator's own fit: `sample_weight`, evaluation sets, callbacks. Arrays with a value per row are
            split with the rows; calibration never uses weights. Where scikit-learn's metadata routing is enabled, they
            go where they are requested.

        Returns
        -------
        self
        """
        train, calibration, params, seeds = self._prepare(
            X, y, X_calibration, y_calibration, fit_params, calibrates="share"
        )
        self._check_columns_can_group(train, calibration)

        # Part 1: estimate the conditional quantiles.
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = fit_quantiles(self.estimator, train, levels, seeds.model, self.n_jobs, params)
        self._look_at_training_bounds(train)

        # Part 2: weigh the columns by permutation importance (Algorithm 2).
        partition: Any = KMeansPartition() if self.partition is None else copied(self.partition)
        weights = None
        if getattr(partition, "needs_weights", True):
            weights = self._weigh_columns(train, calibration, seeds.importance)

        # Part 3: group the rows: K-means on the weighted columns, the smallest k that explains enough variance
        # (Algorithm 1), or another partition. Groups that would get too few calibration rows are merged.
        partition = self._fit_partition(partition, train, calibration, weights, seeds.partition, params)
        if hasattr(partition, "merge_small"):
            partition.merge_small(len(calibration), rows_needed(self.coverage, self.symmetric))
        self.partition_ = partition
        self.n_groups_ = _count_groups(partition, train, calibration)

        # Some rows, from which the groups are put into words when somebody asks (`groups_`).
        grouped = calibration if _data_of(partition) == "calibration" else train
        described = grouped.sample(min(max(1000, 100 * self.n_groups_), MOST_DESCRIBED), seeds.partition).X
        labels = self._groups_of(described)
        self.described_ = partial(describe_partition, partition, described, labels, self.n_groups_, weights)

        # Part 4: keep the calibration scores of each group. Its offset, the score of rank ceil((n + 1) coverage), is
        # taken from them when a coverage is asked for (calibration.py, `_offsets_at`).
        learned_from = {_data_of(partition)} | ({_data_of(self.importance)} if weights is not None else set())
        return self._calibrate(calibration, APPROXIMATE if "calibration" in learned_from else GROUPWISE)

    def _weigh_columns(self, train: Rows, calibration: Rows, seed: int) -> FloatArray:
        """Return each column's share of the permutation importance, and warn of columns that leak the target."""
        # For "auto" the weights only make one candidate of several.
        default = PermutationImportance(n_repeats=2, max_rows=2000) if self._is_auto() else PermutationImportance()
        importance = self.importance or default
        rows = calibration if _data_of(importance) == "calibration" else train
        self.importances_ = importance.compute(self.model_, rows.X, rows.y, seed, self.n_jobs)
        # Only a warning: nothing is learned from these calibration rows.
        unseen = calibration.sample(MOST_UNSEEN, seed)
        bounds, _ = self._bounds(unseen.X)
        leak_alarm(self.importances_, unseen.y, median=bounds[:, 1])
        # I_j over their sum: K-means does not depend on a common factor.
        return self.importances_["share"].to_numpy()

    def _fit_partition(
        self,
        partition: Any,
        train: Rows,
        calibration: Rows,
        weights: FloatArray | None,
        seed: int,
        params: dict[str, Any],
    ) -> Any:
        """Learn the groups from the rows that the partition asks for: training rows, unless it says otherwise."""
        no_bounds = np.empty((len(train), 0))
        if self._is_auto():
            can_choose = group_numbers(len(train), len(calibration), self.coverage, self.symmetric)
            bounds = self._out_of_fold_bounds(train, seed, params) if can_choose else no_bounds
            chosen, self.selection_ = select(
                train, bounds, weights, self.conformity_, self.coverage, len(calibration), seed
            )
            return chosen
        if getattr(partition, "needs_scores", False):
            bounds = self._out_of_fold_bounds(train, seed, params)
            scores = self.conformity_.scores(bounds, train.y)
            return partition.fit(
                train.X, train.y, bounds, weights=weights, random_state=seed, scores=scores, coverage=self.coverage
            )
        if isinstance(partition, GroupPartition):  # nothing is learned: calibration rows may name groups too
            if isinstance(train.X, pd.DataFrame):
                both: Table = pd.concat([train.X, pd.DataFrame(calibration.X)])
            else:
                both = np.concatenate([train.X, calibration.X])
            return partition.fit(both, np.empty(0), no_bounds)
        rows = calibration if _data_of(partition) == "calibration" else train
        options: dict[str, Any] = {"weights": weights, "random_state": seed}
        if isinstance(partition, KMeansPartition):
            options["reference"] = train.X  # scaling is that of the training rows, whichever rows are clustered
        bounds = self.model_.predict(rows.X) if getattr(partition, "needs_bounds", True) else no_bounds
        return partition.fit(rows.X, rows.y, bounds, **options)

    def _out_of_fold_bounds(self, train: Rows, seed: int, params: dict[str, Any]) -> FloatArray:
        """Return (n, 3) bounds of the training rows by models that have not seen them."""
        if is_prefit(self.estimator):
            return self._bounds(train.X)[0]
        fitted = self.model_.models_[0]
        if isinstance(fitted, ResidualQuantiles):  # has made them for itself
            quantiles = fitted.out_of_fold_
        else:
            model = clone(self.model_).set_params(n_jobs=None)
            quantiles = cross_fit(model, train.X, train.y, self.model_.levels_, seed, params, self.n_jobs)[1]
        return bounds_from_quantiles(quantiles, self.coverage_, self.conformity_.side)

    def _is_auto(self) -> bool:
        return isinstance(self.partition, str) and self.partition == "auto"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        partition = self.partition
        is_partition = not isinstance(partition, type) and hasattr(partition, "fit") and hasattr(partition, "assign")
        if not (partition is None or self._is_auto() or is_partition):
            raise ValueError(
                "partition must be KMeansPartition(), ScorePartition(), GroupPartition(…), WholePartition(), 'auto', "
                f"or an object with fit(X, y, bounds, weights, random_state) and assign(X), got {partition!r}"
            )
        if not isinstance(self.importance, PermutationImportance | None):
            raise ValueError(f"importance must be PermutationImportance() or None, got {self.importance!r}")
        for name, part in (("importance", self.importance), ("partition", partition)):
            data = getattr(part, "data", "train")
            if isinstance(data, str) and data not in ("train", "calibration"):
                raise ValueError(f"{name}.data must be 'train' or 'calibration', got {data!r}")
            if isinstance(part, PermutationImportance | KMeansPartition | ScorePartition):
                part.check_parameters()

    def _check_columns_can_group(self, train: Rows, calibration: Rows) -> None:
        """Raise before the model is fitted what grouping the rows would raise after."""
        if self.partition is None or self._is_auto() or isinstance(self.partition, KMeansPartition):
            with naming("calibration rows"):
                Features(train.X).transform(calibration.X)
        if isinstance(self.partition, GroupPartition):
            clone(self.partition).fit(train.X, train.y, np.empty((len(train), 0)))


# -- Steps of fit ----------------------------------------------------------------------------------------------------


def _put_into_one_group(method: IntervalRegressor, train: Rows) -> None:
    """Judge every row with all others, as methods without groups do."""
    method.partition_ = WholePartition().fit(train.X, train.y, np.empty((0, 0)))
    method.n_groups_ = 1
    method.described_ = describe_groups(train.X, np.zeros(len(train), dtype=np.intp), 1)


def _data_of(part: Any) -> str:
    """Return which rows a partition or importance is learned from: "train" or "calibration"."""
    data = getattr(part, "data", None)  # of the user's own partition it may be anything
    return "calibration" if isinstance(data, str) and data == "calibration" else "train"


def _count_groups(partition: Any, *parts: Rows) -> int:
    """Return the number of groups, as the partition says or as its labels of these rows show."""
    if hasattr(partition, "n_groups_"):
        return int(partition.n_groups_)
    return 1 + max(int(check_labels(partition.assign(rows.X), len(rows)).max(initial=0)) for rows in parts)
