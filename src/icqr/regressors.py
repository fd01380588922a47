"""Naive, QR, CQR and ICQR: scikit-learn estimators that put the steps in order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans

from icqr._libraries import copied, seeded
from icqr._predicting import APPROXIMATE, GROUPWISE, NOT_CALIBRATED, IntervalRegressor, Seeds, check_labels
from icqr._rules import describe_groups
from icqr._tables import Features, FloatArray, IntArray, Table, blocks, take_rows
from icqr.calibration import (
    Calibration,
    Certificate,
    bounds_from_quantiles,
    check_coverage,
    quantile_levels,
    rows_needed,
    width_floor,
)
from icqr.cross_fitting import cross_fit
from icqr.importance import PermutationImportance, leak_alarm, median_absolute_error
from icqr.partition import GroupPartition, KMeansPartition, Partition, ScorePartition
from icqr.quantiles import PointModel, QuantileModel, ResidualQuantiles, is_prefit
from icqr.rows import Rows, naming
from icqr.selection import Evidence, group_numbers, select


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

    _asks = ("predict",)

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        side: str = "both",
        y_min: float | None = None,
        y_max: float | None = None,
        calibration_size: float = 1 / 3,
        random_state: Any = None,
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

    def _fit_model(self, train: Rows, seed: int, params: dict[str, Any]) -> None:
        regressor = seeded(self._inner(), seed)
        if self.n_jobs is not None and hasattr(regressor, "get_params") and "n_jobs" in regressor.get_params():
            regressor.set_params(n_jobs=self.n_jobs)
        self.model_ = self._train(PointModel(regressor), train, **params)

    def _bounds(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        point, side = self.model_.predict(X), self.conformity_.side
        lower = np.full_like(point, -np.inf) if side == "upper" else point
        upper = np.full_like(point, np.inf) if side == "lower" else point
        return np.column_stack([lower, point, upper]), np.zeros(len(point), dtype=np.bool_)


class _QuantileRegressor(IntervalRegressor):
    """What the methods on a quantile model share."""

    def _fit_model(self, train: Rows, seed: int, params: dict[str, Any]) -> None:
        given = self.estimator
        model = copied(given) if isinstance(given, QuantileModel) else QuantileModel(given)
        model.set_params(estimator=seeded(self._inner(), seed))
        if model.n_jobs is None:
            model.set_params(n_jobs=self.n_jobs)
        if isinstance(model.estimator, ResidualQuantiles) and model.estimator.n_jobs is None:
            model.estimator.set_params(n_jobs=self.n_jobs)
        self.model_ = self._train(model, train, quantile_levels(self.coverage, self.side), **params)
        parts = [self._bounds(take_rows(train.X, block)) for block in blocks(len(train.X))]
        self.n_crossed_["train"] = sum(int(crossed.sum()) for _, crossed in parts)
        if self.conformity != "cqr":
            widths = np.concatenate([self.conformity_.widths(bounds) for bounds, _ in parts])
            self.conformity_ = replace(self.conformity_, floor=width_floor(widths))


#: Rows from which groups are put into words; calibration rows on which the leak alarm looks at the median's error.
MOST_DESCRIBED, MOST_UNSEEN = 5000, 500
NO_CALIBRATION = "QR has no calibration; use CQR or ICQR, which take the same estimator"


class QR(_QuantileRegressor):
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
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:  # type: ignore[override]
        """Fit the quantile model on all rows; `fit_params` go to the estimator's own fit."""
        calibration = [fit_params.pop(name, None) for name in ("X_calibration", "y_calibration")]
        if any(given is not None for given in calibration):
            raise ValueError(NO_CALIBRATION)
        return super().fit(X, y, **fit_params)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Refuse: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)

    def _split(self, rows: Rows, X_calibration: Any, y_calibration: Any, seed: int) -> tuple[Rows, Rows]:
        return rows, rows

    def _calibrate(self, held_out: Rows, guarantee: str) -> Self:
        no_scores = np.empty((0, 1))
        self.calibration_ = Calibration(self.conformity_, (no_scores, no_scores), guarantee=NOT_CALIBRATED)
        self.novelty_ = None
        return self

    def _offsets(self, labels: IntArray, coverage: float) -> FloatArray:
        self._check_own(coverage)
        return np.zeros((self.n_groups_ + 1, 2))

    def certificate(self, coverage: float | None = None) -> Certificate:
        """Say that nothing is promised."""
        self._check_fitted()
        self._check_own(self._asked(coverage))
        return Certificate.empty(float(self.coverage_), NOT_CALIBRATED)

    def _check_own(self, coverage: float) -> None:
        if check_coverage(coverage) != check_coverage(self.coverage_):
            raise ValueError(
                f"QR predicts the levels it was fitted for, coverage={self.coverage_}; got coverage={coverage}. "
                f"Fit QR(coverage={coverage}), or use CQR or ICQR, which give any coverage from one fit."
            )


class CQR(_QuantileRegressor):
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
        random_state: Any = None,
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


class ICQR(_QuantileRegressor):
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
        random_state: Any = None,
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
        """Make the paper's Algorithm 3 exactly as printed.

        Importance by the absolute error of the median, importance and K-means on calibration rows, K-means from scratch
        for each k, no merging. The promise is approximate until `calibrate` is called with fresh rows.

        Examples
        --------
        >>> ICQR.as_printed(coverage=0.8).partition.data
        'calibration'
        """
        importance = PermutationImportance(error=median_absolute_error, data="calibration", max_rows=None)
        partition = KMeansPartition(clusterer=KMeans(n_init=10), merge=False, data="calibration")
        return cls(estimator, coverage, **{"importance": importance, "partition": partition, **parameters})

    def _learns(self) -> bool:
        return True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (self.partition is None or self._is_auto() or _is_partition(self.partition)):
            raise ValueError(
                "partition must be KMeansPartition(), ScorePartition(), GroupPartition(…), WholePartition(), 'auto', "
                "or an object with fit(X, y, bounds, weights, random_state) and assign(X), "
                f"got {self.partition!r}"
            )
        if not isinstance(self.importance, PermutationImportance | None):
            raise ValueError(f"importance must be PermutationImportance() or None, got {self.importance!r}")
        for name in ("importance", "partition"):
            data = getattr(getattr(self, name), "data", "train")
            if isinstance(data, str) and data not in ("train", "calibration"):
                raise ValueError(f"{name}.data must be 'train' or 'calibration', got {data!r}")
        for part in (self.importance, self.partition):
            if isinstance(part, PermutationImportance | KMeansPartition | ScorePartition):
                part.check_parameters()

    def _check_columns(self, rows: Rows, train: Rows, held_out: Rows) -> None:
        super()._check_columns(rows, train, held_out)
        if self.partition is None or self._is_auto() or isinstance(self.partition, KMeansPartition):
            with naming("calibration rows"):
                Features(train.X).transform(held_out.X)
        if isinstance(self.partition, GroupPartition):
            clone(self.partition).fit(train.X, train.y, np.empty((len(train), 0)))

    def _fit_groups(self, train: Rows, held_out: Rows, seeds: Seeds, params: dict[str, Any]) -> None:
        partition: Any = KMeansPartition() if self.partition is None else copied(self.partition)
        weights = None
        if getattr(partition, "needs_weights", True):
            weights = self._weigh(train, held_out, seeds.importance)
        data = _rows_learned_from(partition)
        rows = held_out if data == "calibration" else train.extended(held_out) if data == "all" else train
        given: dict[str, Any] = {"weights": weights, "random_state": seeds.partition}
        if self._is_auto():
            if group_numbers(len(train), held_out.total, self.coverage, self.symmetric):
                bounds = self._out_of_fold(train, seeds.partition, params)
            else:
                bounds = np.empty((len(train), 0))  # nothing to judge by them
            evidence = Evidence(train, bounds, weights, self.conformity_, self.coverage, held_out.total)
            partition, self.selection_ = select(evidence, seeds.partition)
        elif getattr(partition, "needs_scores", False):
            bounds = self._out_of_fold(train, seeds.partition, params)
            scores = self.conformity_.scores(bounds, train.y)
            partition.fit(train.X, train.y, bounds, **given, scores=scores, coverage=self.coverage)
        else:
            # Scaling is always that of the training rows, whichever rows are clustered.
            given |= {"reference": train.X} if isinstance(partition, KMeansPartition) else {}
            needs_bounds = getattr(partition, "needs_bounds", True)
            bounds = self.model_.predict(rows.X) if needs_bounds else np.empty((len(rows), 0))
            partition.fit(rows.X, rows.y, bounds, **given)
        if hasattr(partition, "merge_small"):
            partition.merge_small(held_out.total, rows_needed(self.coverage, self.symmetric))
        self.partition_ = partition
        self.n_groups_ = _count_groups(partition, train, held_out)
        X = rows.some(min(max(1000, 100 * self.n_groups_), MOST_DESCRIBED), seeds.partition).X
        self.described_ = partial(_describe, partition, X, self._assign(X), self.n_groups_, weights)

    def _out_of_fold(self, train: Rows, seed: int, params: dict[str, Any]) -> FloatArray:
        """Give (n, 3) bounds of the training rows by models that have not seen them."""
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

    def _weigh(self, train: Rows, held_out: Rows, seed: int) -> FloatArray:
        # For "auto" the weights only make one candidate of several.
        default = PermutationImportance(n_repeats=2, max_rows=2000) if self._is_auto() else PermutationImportance()
        importance = self.importance or default
        rows = held_out if importance.data == "calibration" else train
        self.importances_ = importance.compute(self.model_, rows.X, rows.y, seed, self.n_jobs)
        unseen = held_out.some(MOST_UNSEEN, seed)
        leak_alarm(self.importances_, unseen.y, self._bounds(unseen.X)[0][:, 1])
        return self.importances_["share"].to_numpy()

    def _guarantee(self) -> str:
        learned = [_rows_learned_from(self.partition_)]
        if hasattr(self, "importances_"):
            learned.append((self.importance or PermutationImportance()).data)
        return APPROXIMATE if "calibration" in learned else GROUPWISE

    def _fresh_guarantee(self) -> str:
        return GROUPWISE


def _describe(partition: Any, X: Table, labels: IntArray, n_groups: int, weights: FloatArray | None) -> pd.DataFrame:
    if isinstance(partition, GroupPartition):
        return partition.describe()
    table = describe_groups(X, labels, n_groups, weights)
    if hasattr(partition, "describe"):
        # The partition knows its rules; what sets the groups apart is seen in the rows.
        return pd.DataFrame({**table, **pd.DataFrame(partition.describe())})
    return table


def _is_partition(given: Any) -> bool:
    return not isinstance(given, type) and hasattr(given, "fit") and hasattr(given, "assign")


def _rows_learned_from(partition: Any) -> str:
    """Give "train" or "calibration"; "all" for the user's own groups: not learned, calibration rows may name some."""
    if isinstance(partition, GroupPartition):
        return "all"
    data = getattr(partition, "data", None)  # of the user's own partition it may be anything
    return "calibration" if isinstance(data, str) and data == "calibration" else "train"


def _count_groups(partition: Any, *parts: Rows) -> int:
    """Give the number of groups, as the partition says or as its labels of these rows show."""
    if hasattr(partition, "n_groups_"):
        return int(partition.n_groups_)
    return 1 + max(int(check_labels(partition.assign(rows.X), len(rows)).max(initial=0)) for rows in parts)
