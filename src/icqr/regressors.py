"""Naive, QR, CQR, ICQR and AutoICQR. `ICQR.fit` follows parts 1 to 4 of the paper's Algorithm 3.

In the paper's letters: coverage is 1 - α, the raw bounds are the quantiles Q̂, weights are the importances I_j, scores
are ε, offsets q̂. Part 4 (`_calibrate`) and part 5 (`predict_interval`) are the same for all methods: see
`IntervalRegressor` in _predicting.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.cluster import KMeans

from icqr._libraries import copied, core_of, seeded
from icqr._messages import step, warn, with_progress
from icqr._predicting import (
    APPROXIMATE,
    GROUPWISE,
    MARGINAL,
    NOT_CALIBRATED,
    IntervalRegressor,
    Seeds,
    check_labels,
)
from icqr._rows import Order, Rows, naming
from icqr._rules import describe_groups, describe_partition
from icqr._tables import Features, FloatArray, Table
from icqr.calibration import Calibration, NoCalibration, bounds_from_quantiles, quantile_levels, rows_needed
from icqr.cross import CROSS, CROSS_APPROXIMATE, FoldModels, models_of
from icqr.distribution import PredictiveDistribution
from icqr.importance import FEWEST_ROWS, PermutationImportance, leak_alarm, median_absolute_error
from icqr.partition import GroupPartition, KMeansPartition, Partition, ScorePartition, WholePartition
from icqr.quantiles import PointModel, QuantileModel, as_quantile_model, bare, cross_fit, fit_quantiles, is_prefit
from icqr.residual_quantiles import EFFORTS, ResidualQuantiles, around, small_of
from icqr.selection import group_numbers, select

#: Groups are put into words from at most this many rows.
MOST_DESCRIBED = 5000
#: The leak alarm measures the median's error on at most this many calibration rows.
MOST_UNSEEN = 500
#: AutoICQR takes long to predict: it learns the floor of scaled scores, and looks for a collapse, on so many rows.
MOST_SEEN = 500
NO_CALIBRATION = "QR has no calibration; use CQR or ICQR, which take the same estimator"


class Naive(IntervalRegressor):
    """Split conformal prediction around any regressor's prediction: the same width for every row.

    1. Fit the regressor on the training rows.
    2. Score the calibration rows: ``|y - f(x)|``. The offset q is the score of rank ``ceil((n + 1) coverage)``.
    3. Return the interval ``f(x) ± q``. Its coverage holds on average over all rows (marginally).

    Parameters
    ----------
    estimator : regressor, optional
        By default HistGradientBoostingRegressor. A FrozenEstimator is not fitted again; all rows then calibrate.
    coverage : float, default=0.9
        The share of intervals that should contain y.
    side : {"both", "lower", "upper"}, default="both"
        Bound y on both sides, or on one only.
    ties : {"covered", "random"}, default="covered"
        What to do with y whose score equals the offset: many do if y is a count or often zero. "covered": every
        interval contains them, so coverage may be above what is promised. "random": the intervals of some rows, drawn
        by `random_state`, leave them out, so that coverage is what is promised and no more (`predict_interval` has the
        details). The price: two equal rows can get different intervals, and an interval no longer follows from its row
        alone.
    y_min, y_max : float, optional
        Known limits of y. Intervals stay within them.
    calibration_size : float or int, default=1/3
        Share or number of rows to set aside for calibration.
    random_state : int, RandomState or None
        Seed for everything random.
    n_jobs : int, optional
        Passed to the regressor, if it has this parameter.
    verbose : bool, default=False
        True shows the steps of `fit` as they are done (needs tqdm).

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
        ties: str = "covered",
        y_min: float | None = None,
        y_max: float | None = None,
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.side = side
        self.ties = ties
        self.y_min = y_min
        self.y_max = y_max
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_progress(n_steps=2)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        *,
        order: Order | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. If you give no calibration rows, `calibration_size` of these are set aside.
        X_calibration, y_calibration : table and array, optional
            Calibration rows. The model must not have seen them.
        order : str or array, optional
            What says how old rows are; see `ICQR.fit`.
        **fit_params : optional
            Passed to the estimator's own fit; see `ICQR.fit`.

        Returns
        -------
        self
        """
        how = "all" if is_prefit(self.estimator) else "split"
        train, calibration, params, seeds, _ = self._prepare(X, y, X_calibration, y_calibration, fit_params, how, order)

        # 1. Fit the regressor.
        step("regression")
        regressor = seeded(bare(self.estimator), seeds.model)
        if self.n_jobs is not None and hasattr(regressor, "get_params") and "n_jobs" in regressor.get_params():
            regressor.set_params(n_jobs=self.n_jobs)
        self.model_ = PointModel(regressor).fit(train.X, train.y, **params)

        # 2. Score the calibration rows, |y - f(x)| (see `_bounds`: lower and upper are f(x)); one offset for all rows.
        step("calibration")
        _put_into_one_group(self, train)
        return self._calibrate(calibration, MARGINAL)


class QR(IntervalRegressor):
    """Plain quantile regression: it is not calibrated, so it promises nothing.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on all rows.
    2. Return the outer two quantiles as the interval.

    Parameters
    ----------
    estimator : quantile model, optional
        A plain estimator; see `QuantileModel`. By default HistGradientBoostingRegressor, and where its quantiles are
        wrongly constant, `ResidualQuantiles`, with a warning.
    coverage : float, default=0.9
        Sets the quantile levels.
    side : {"both", "lower", "upper"}, default="both"
        Bound y on both sides, or on one only.
    y_min, y_max : float, optional
        Known limits of y. Intervals stay within them.
    random_state : int, RandomState or None
        Seed for everything random.
    n_jobs : int, optional
        Number of tasks to run at the same time.
    verbose : bool, default=False
        True shows the steps of `fit` as they are done (needs tqdm).

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
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.side = side
        self.y_min = y_min
        self.y_max = y_max
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_progress(n_steps=1)
    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the quantile model on all rows; `fit_params` are passed to the estimator's own fit."""
        calibration = [fit_params.pop(name, None) for name in ("X_calibration", "y_calibration", "order")]
        if any(part is not None for part in calibration):
            raise ValueError(NO_CALIBRATION)
        train, _, params, seeds, _ = self._prepare(X, y, None, None, fit_params, calibration="none")

        # 1. Estimate the conditional quantiles.
        step("quantiles")
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = fit_quantiles(self.estimator, train, levels, seeds.model, self.n_jobs, params)
        bounds = self._count_crossings_and_set_floor(train)
        self._notice_collapse(train, bounds, seeds.model, params)

        # 2. All methods predict alike: here with one group, and offsets of zero.
        _put_into_one_group(self, train)
        self.calibration_ = NoCalibration.of(self.conformity_, self.coverage_, NOT_CALIBRATED)
        return self

    def calibrate(self, X: object, y: object) -> Self:
        """Raise an error: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)

    def predict_distribution(self, X: object) -> PredictiveDistribution:
        """Raise an error: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)

    def with_calibration(self, calibration: Calibration) -> Self:
        """Raise an error: quantile regression has no calibration."""
        raise ValueError(NO_CALIBRATION)


class CQR(IntervalRegressor):
    """Conformalized quantile regression: the quantile model's bounds, moved by one offset.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on the training rows.
    2. Score the calibration rows: ``max(lower - y, y - upper)``, or a scaled score (see `conformity`).
    3. The offset q is the score of rank ``ceil((n + 1) coverage)``. Return the interval ``[lower - q, upper + q]``.

    Its coverage holds on average over all rows (marginally).

    Parameters
    ----------
    estimator : quantile model, optional
        A plain estimator; see `QuantileModel`. By default HistGradientBoostingRegressor. Where its quantiles are
        wrongly constant, you get a warning, and with ``calibration="split"`` `ResidualQuantiles` takes its place.
    coverage : float, default=0.9
        The share of intervals that should contain y.
    conformity : {"cqr", "cqr-r", "cqr-m"}, default="cqr"
        The score: distance to the nearer bound; the same over the width; or over that bound's distance to the median.
    symmetric : bool, default=True
        True: one offset for both bounds. False: one for each, so that each tail holds on its own.
    side : {"both", "lower", "upper"}, default="both"
        Bound y on both sides, or on one only.
    ties : {"covered", "random"}, default="covered"
        What to do with y whose score equals the offset: many do if y is a count or often zero. "covered": every
        interval contains them, so coverage may be above what is promised. "random": the intervals of some rows, drawn
        by `random_state`, leave them out, so that coverage is what is promised and no more (`predict_interval` has the
        details). The price: two equal rows can get different intervals, and an interval no longer follows from its row
        alone.
    y_min, y_max : float, optional
        Known limits of y. Intervals stay within them.
    calibration : {"split", "cross"}, default="split"
        "split" sets rows aside to calibrate with. "cross" trains and calibrates with all rows, each scored by a model
        that has not seen it (CV+, ten folds): better with few rows, slower, and with a weaker promise; see
        `icqr.cross.CrossCalibration`.
    calibration_size : float or int, default=1/3
        Share or number of rows to set aside for calibration.
    random_state : int, RandomState or None
        Seed for everything random.
    n_jobs : int, optional
        Number of tasks to run at the same time.
    verbose : bool, default=False
        True shows the steps of `fit` as they are done (needs tqdm).

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
        ties: str = "covered",
        y_min: float | None = None,
        y_max: float | None = None,
        calibration: str = "split",
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.conformity = conformity
        self.symmetric = symmetric
        self.side = side
        self.ties = ties
        self.y_min = y_min
        self.y_max = y_max
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_progress(n_steps=2)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        *,
        order: Order | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. If you give no calibration rows, `calibration_size` of these are set aside.
        X_calibration, y_calibration : table and array, optional
            Calibration rows. The model must not have seen them.
        order : str or array, optional
            What says how old rows are; see `ICQR.fit`.
        **fit_params : optional
            Passed to the estimator's own fit; see `ICQR.fit`.

        Returns
        -------
        self
        """
        # A fitted model needs no training rows, so all rows calibrate; scaled scores still need some for their scale.
        needs_none = is_prefit(self.estimator) and self.conformity == "cqr" and self.calibration == "split"
        train, calibration, params, seeds, crosses = self._prepare(
            X, y, X_calibration, y_calibration, fit_params, "all" if needs_none else None, order
        )

        # 1. Estimate the conditional quantiles.
        step("quantiles")
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = _fit_bounds(self, self.estimator, train, levels, seeds, params, crosses)
        bounds = self._count_crossings_and_set_floor(train)
        self._notice_collapse(train, bounds, seeds.model, params)

        # 2. and 3. Score the calibration rows; one offset for all rows.
        step("calibration")
        _put_into_one_group(self, train)
        if crosses:
            return self._calibrate_across(train, CROSS)
        return self._calibrate(calibration, MARGINAL)


class ICQR(IntervalRegressor):
    """Improved conformalized quantile regression: one offset for each group of similar rows.

    1. Fit the quantile model at the levels ``(1 - coverage) / 2``, 1/2 and ``(1 + coverage) / 2`` on the training rows.
    2. Measure the permutation importance of each column (`importance`).
    3. Group the rows: K-means on the scaled columns, weighted by importance (`partition`). Merge small groups.
    4. In each group, score the calibration rows. The offset is the score of rank ``ceil((n + 1) coverage)``.
    5. Give each new row the offset of its group.

    By default, importance and groups are learned from training rows alone, so coverage holds in every group, in finite
    samples. `as_printed` returns the paper's Algorithm 3, which learns both from calibration rows.

    Parameters
    ----------
    estimator : quantile model, optional
        A plain estimator; see `QuantileModel`. By default HistGradientBoostingRegressor. Where its quantiles are
        wrongly constant, you get a warning, and with ``calibration="split"`` `ResidualQuantiles` takes its place.
    coverage : float, default=0.9
        The share of intervals that should contain y, in each group.
    conformity : {"cqr", "cqr-r", "cqr-m"}, default="cqr"
        The score: distance to the nearer bound; the same over the width; or over that bound's distance to the median.
    symmetric : bool, default=True
        True: one offset for both bounds. False: one for each, so that each tail holds on its own.
    side : {"both", "lower", "upper"}, default="both"
        Bound y on both sides, or on one only.
    ties : {"covered", "random"}, default="covered"
        What to do with y whose score equals the offset: many do if y is a count or often zero. "covered": every
        interval contains them, so coverage may be above what is promised. "random": the intervals of some rows, drawn
        by `random_state`, leave them out, so that coverage is what is promised and no more (`predict_interval` has the
        details). The price: two equal rows can get different intervals, and an interval no longer follows from its row
        alone.
    y_min, y_max : float, optional
        Known limits of y. Intervals stay within them.
    partition : partition or "auto", optional
        By default `KMeansPartition()`. `ScorePartition` groups by predicted difficulty, `GroupPartition` takes your own
        groups, and any object with `fit` and `assign` will do. "auto" chooses from training rows alone: one group,
        K-means clusters, or a number of groups by difficulty (`icqr.selection.select`). This fits the quantile model
        five more times, unless it is `prefit` or `ResidualQuantiles`. For the importance it then predicts at most twice
        as many rows as train, unless trees or a network make it quick; with too many columns for that, it is left out.
    importance : PermutationImportance, optional
        By default `PermutationImportance()`, with ``partition="auto"`` with 2 repeats.
    small_groups : {"pooled", "infinite", "error"}, default="pooled"
        What a group with too few calibration rows gets: an offset from all rows, which promises nothing for this group;
        an infinite interval, which keeps the promise; or an error.
    calibration : {"split", "cross"}, default="split"
        "split" sets rows aside to calibrate with. "cross" trains and calibrates with all rows, each scored by a model
        that has not seen it (CV+, ten folds): better with few rows, slower, and with a weaker promise; see
        `icqr.cross.CrossCalibration`.
    calibration_size : float or int, default=1/3
        Share or number of rows to set aside for calibration.
    random_state : int, RandomState or None
        Seed for everything random.
    n_jobs : int, optional
        Number of tasks to run at the same time.
    verbose : bool, default=False
        True shows the steps of `fit` as they are done (needs tqdm).

    Attributes
    ----------
    model_ : QuantileModel
        The fitted quantile model; with ``calibration="cross"`` a `FoldModels`, which holds one for each fold.
    importances_ : DataFrame
        Importance of each column; absent if the partition uses none, or if "auto" left it out.
    partition_ : partition
        The fitted partition.
    selection_ : DataFrame
        With ``partition="auto"``: the candidates, their losses, and which one was chosen.
    calibration_ : Calibration
        The sorted calibration scores of each group.
    groups_ : DataFrame
        A row per group: size, offsets, what is promised, and what the group is in words.
    n_crossed_ : dict
        Number of training rows, and of calibration rows, whose quantiles had to be sorted. With
        ``calibration="cross"`` these are the same rows, and count as training rows.
    collapse_ : str or None
        What a warning said if the model predicts the same for nearly all training rows, and that seems wrong.
    ties_seed_ : int
        With ``ties="random"``: the seed of its draws.

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
        ties: str = "covered",
        y_min: float | None = None,
        y_max: float | None = None,
        partition: Partition | str | None = None,
        importance: PermutationImportance | None = None,
        small_groups: str = "pooled",
        calibration: str = "split",
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.conformity = conformity
        self.symmetric = symmetric
        self.side = side
        self.ties = ties
        self.y_min = y_min
        self.y_max = y_max
        self.partition = partition
        self.importance = importance
        self.small_groups = small_groups
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def as_printed(cls, estimator: Any = None, coverage: float = 0.9, **parameters: Any) -> ICQR:
        """Return the paper's Algorithm 3 as printed.

        Importance and K-means use the calibration rows, K-means starts from scratch for each k, and no groups are
        merged. The promise is approximate until you call `calibrate` with fresh rows. The paper leaves some choices
        open. Here, the error is the absolute error of the median, columns are min-max scaled, K-means is the best of
        ten starts with scikit-learn's tolerance, the largest k is used if σ is not reached, clusters too small for the
        rank get pooled offsets, and crossed quantiles are sorted.

        Examples
        --------
        >>> ICQR.as_printed(coverage=0.8).partition.data
        'calibration'
        """
        importance = PermutationImportance(error=median_absolute_error, data="calibration", max_rows=None)
        partition = KMeansPartition(clusterer=KMeans(n_init=10), merge=False, data="calibration")
        return cls(estimator, coverage, **{"importance": importance, "partition": partition, **parameters})

    @with_progress(n_steps=4)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        *,
        order: Order | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model, learn the groups and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. If you give no calibration rows, `calibration_size` of these are drawn at random and set
            aside. A random draw is right only if rows are exchangeable. If they are in time order, use `order`. If
            there are several rows per customer or site, give whole customers or sites as calibration rows.
        X_calibration, y_calibration : table and array, optional
            Calibration rows. The model must not have seen them.
        order : str or array, optional
            What says how old rows are: the name of a column of X, which stays a feature, or one number or date per row.
            The oldest rows train, and the newest `calibration_size` calibrate, with all that are as old as the oldest
            of them. Rows in time are not exchangeable, so the promise holds as far as new rows are like the newest ones
            here. No draw at random then sets rows aside, and ``calibration="cross"`` is not possible.
        **fit_params : optional
            Passed to the estimator's own fit: `sample_weight`, evaluation sets, callbacks. Arrays with one value per
            row are split with the rows. Calibration never uses weights. If scikit-learn's metadata routing is enabled,
            each parameter goes where it is requested.

        Returns
        -------
        self
        """
        # The rows are checked and split into the paper's D_train and D_cal.
        train, calibration, params, seeds, crosses = self._prepare(
            X, y, X_calibration, y_calibration, fit_params, order=order
        )
        self._check_columns_can_group(train, calibration)

        # Part 1: estimate the conditional quantiles at α/2 and 1 - α/2, where α = 1 - coverage, and the median. The
        # paper asks for normalised sets: the model learns y centred and scaled (`target_scale`).
        step("quantiles")
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = _fit_bounds(self, self.estimator, train, levels, seeds, params, crosses)
        bounds = self._count_crossings_and_set_floor(train)
        self._notice_collapse(train, bounds, seeds.model, params)

        # Part 2: each column's weight is its permutation importance (Algorithm 2), on training rows unless `importance`
        # says otherwise. Columns are multiplied by their weights in part 3, and again in part 5.
        step("importance")
        weights = self._column_weights(train, calibration, seeds.importance)

        # Part 3: group the rows. By default `KMeansPartition.fit` scales and weights the columns, runs K-means
        # (Algorithm 1) for k = 2, 3, …, and takes the first k with σ_k > σ.
        step("groups")
        self.partition_ = self._fit_partition(train, calibration, weights, seeds.partition, params)
        # Not in the paper: groups that would get too few calibration rows are merged, and described in words.
        self._settle_groups(train, calibration, weights, seeds.partition)

        # Part 4: find each calibration row's group, score the row, and keep the scores of each group. Its offset q̂ is
        # the score of rank ceil((n + 1) coverage). Part 5, `predict_interval`, looks it up for the coverage asked for.
        step("calibration")
        return self._calibrate_by_group(train, calibration, crosses)

    def _column_weights(self, train: Rows, calibration: Rows, seed: int) -> FloatArray | None:
        """Return each column's share of the permutation importance; None if the partition needs no weights."""
        if not getattr(self.partition, "needs_weights", True):
            return None
        # With "auto" the weights shape only one of several candidates, so fewer repeats will do.
        importance = self.importance or PermutationImportance(n_repeats=2 if self._is_auto() else 5)
        rows = calibration if _data_of(importance) == "calibration" else train
        # Of the models of several folds, one is enough to tell the columns' importance.
        model = models_of(self.model_)[0]
        if self._is_auto() and importance.max_rows == "auto":
            # Permuting columns must not take a slow model longer than "auto" itself, which predicts these rows twice.
            limited = importance.within(model, rows.X, most_predicted=2 * len(train))
            if limited is None:
                warn(_unmeasured(len(train), rows.X.shape[1]))
                return None
            importance = limited
        self.importances_ = importance.compute(model, rows.X, rows.y, seed, self.n_jobs)

        # The alarm only warns: nothing is learned from these calibration rows, so the promise holds.
        unseen = calibration.sample(MOST_UNSEEN, seed)
        if isinstance(self.model_, FoldModels):
            out_of_fold = self.model_.out_of_fold_[unseen.index]
            bounds = bounds_from_quantiles(out_of_fold, self.coverage_, self.conformity_.side)
        else:
            bounds = self._bounds(unseen.X)[0]
        leak_alarm(self.importances_, unseen.y, median=bounds[:, 1])
        # The shares, I_j over their sum, serve as well as I_j: a common factor does not change K-means.
        return self.importances_["share"].to_numpy()

    def _fit_partition(
        self, train: Rows, calibration: Rows, weights: FloatArray | None, seed: int, params: dict[str, Any]
    ) -> Any:
        """Fit the partition on the rows that it asks for: training rows, unless it says otherwise."""
        partition: Any = KMeansPartition() if self.partition is None else copied(self.partition)
        rows = calibration if _data_of(partition) == "calibration" else train
        options: dict[str, Any] = {"weights": weights, "random_state": seed}
        no_bounds = np.empty((len(rows), 0))

        if isinstance(partition, KMeansPartition):
            # Training rows set the scale, whichever rows are clustered.
            return partition.fit(rows.X, rows.y, no_bounds, reference=train.X, **options)

        if isinstance(partition, GroupPartition):
            # It learns nothing from y, so calibration rows may add groups.
            if isinstance(train.X, pd.DataFrame):
                all_rows: Table = pd.concat([train.X, pd.DataFrame(calibration.X)])
            else:
                all_rows = np.concatenate([train.X, calibration.X])
            return partition.fit(all_rows, np.empty(0), no_bounds)

        if self._is_auto():
            judged, bounds = train, no_bounds
            if group_numbers(len(train), len(calibration), self.coverage, self.symmetric):
                judged, bounds = self._out_of_fold_bounds(train, seed, params)
            chosen, self.selection_ = select(
                judged,
                bounds,
                weights,
                self.conformity_,
                self.coverage,
                len(calibration),
                seed,
                small_of(self.estimator),
            )
            return chosen

        if getattr(partition, "needs_scores", False):
            judged, bounds = self._out_of_fold_bounds(train, seed, params)
            scores = self.conformity_.scores(bounds, judged.y)
            return partition.fit(judged.X, judged.y, bounds, scores=scores, coverage=self.coverage, **options)

        bounds = self.model_.predict(rows.X) if getattr(partition, "needs_bounds", True) else no_bounds
        return partition.fit(rows.X, rows.y, bounds, **options)

    def _settle_groups(self, train: Rows, calibration: Rows, weights: FloatArray | None, seed: int) -> None:
        """Merge groups that would get too few calibration rows, and keep some rows to put groups into words."""
        if hasattr(self.partition_, "merge_small"):
            self.partition_.merge_small(len(calibration), rows_needed(self.coverage, self.symmetric))
        self.n_groups_ = _count_groups(self.partition_, train, calibration)
        # The words are made from these rows when you first ask for `groups_`.
        rows = calibration if _data_of(self.partition_) == "calibration" else train
        kept = rows.sample(min(max(1000, 100 * self.n_groups_), MOST_DESCRIBED), seed).X
        groups = self._groups_of(kept)
        self.described_ = partial(describe_partition, self.partition_, kept, groups, self.n_groups_, weights)

    def _out_of_fold_bounds(self, train: Rows, seed: int, params: dict[str, Any]) -> tuple[Rows, FloatArray]:
        """Return training rows, all or some, and their (n, 3) bounds from models that have not seen the row."""
        if is_prefit(self.estimator):
            return train, self._bounds(train.X)[0]
        if isinstance(self.model_, FoldModels):
            return train, bounds_from_quantiles(self.model_.out_of_fold_, self.coverage_, self.conformity_.side)
        fitted = self.model_.models_[0]
        if isinstance(fitted, ResidualQuantiles):  # its centre is cross-fitted already
            held, quantiles = fitted.held_out(train.X, train.y, seed, params)
            train = train.take(held)
        else:
            model = clone(self.model_).set_params(n_jobs=None)
            quantiles = cross_fit(model, train.X, train.y, self.model_.levels_, seed, params, self.n_jobs)[1]
        return train, bounds_from_quantiles(quantiles, self.coverage_, self.conformity_.side)

    def _calibrate_by_group(self, train: Rows, calibration: Rows, crosses: bool) -> Self:
        """Keep the scores of each group. Less is promised if groups were learned, or chosen, from the scored rows."""
        if crosses:
            was_chosen = self._is_auto() and len(self.selection_) > 1
            is_fixed = not was_chosen and isinstance(self.partition_, GroupPartition | WholePartition)
            return self._calibrate_across(train, CROSS if is_fixed else CROSS_APPROXIMATE)
        # Algorithm 3 as printed learns both from calibration rows; importance counts only where it was measured.
        learned = [self.partition_, self.importance] if hasattr(self, "importances_") else [self.partition_]
        is_approximate = any(_data_of(part) == "calibration" for part in learned)
        return self._calibrate(calibration, APPROXIMATE if is_approximate else GROUPWISE)

    def _why_not_cross(self, X_calibration: object, order: object) -> str | None:
        for name in ("importance", "partition"):
            if _data_of(getattr(self, name)) == "calibration":
                return (
                    f"{name} is learned from calibration rows (data='calibration'), and calibration='cross' sets none "
                    "aside; use data='train', or calibration='split'"
                )
        return super()._why_not_cross(X_calibration, order)

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
        """Check the columns before the model is fitted, so that grouping the rows does not fail after it."""
        if self.partition is None or self._is_auto() or isinstance(self.partition, KMeansPartition):
            with naming("calibration rows"):
                Features(train.X).transform(calibration.X)
        if isinstance(self.partition, GroupPartition):
            clone(self.partition).fit(train.X, train.y, np.empty((len(train), 0)))


class AutoICQR(ICQR):
    """The best intervals we have, in every group: bounds in two stages, and groups chosen from the training rows.

    1. Predict a centre by models that have not seen the row, and learn the quantiles of the residuals
       (`ResidualQuantiles`).
    2. Choose the groups by what they cost on training rows: one group, K-means clusters of the columns weighted by
       importance, or groups by predicted difficulty (`icqr.selection.select`).
    3. In each group, score the calibration rows. The offset is the score of rank ``ceil((n + 1) coverage)``.
    4. Give each new row the offset of its group.

    With 1,000 rows or more, some are set aside to calibrate with. Bounds and groups are learned from the others alone,
    so coverage holds in every group, in finite samples. With fewer, all rows train and calibrate, each scored by a
    model that has not seen it (CV+), and a new row's interval comes from the bounds and scores of ten models. Then
    coverage is about what you ask for in practice, and less is promised: see `calibration` and `certificate`.

    Parameters
    ----------
    estimator : estimator, optional
        A plain estimator; see `QuantileModel`. By default HistGradientBoostingRegressor. It must be unfitted: for a
        model that is fitted already use ``ICQR(prefit(…), partition="auto")``.
    coverage : float, default=0.9
        The share of intervals that should contain y, in each group.
    effort : {"quick", "thorough"}, default="quick"
        "quick" takes up to twice the time of `CQR`, "thorough" up to five times, and ten times that where
        `calibration` is "cross"; see `ResidualQuantiles`.
    conformity : {"cqr", "cqr-r", "cqr-m"}, default="cqr-m"
        The score; see `CQR`. The default scales both bounds around the median, in proportion to their distance from it.
        So other coverages than the fitted one keep each row's shape, and always contain the median.
    symmetric : bool, default=True
        True: one offset for both bounds. False: one for each, so that each tail holds on its own.
    side : {"both", "lower", "upper"}, default="both"
        Bound y on both sides, or on one only.
    ties : {"covered", "random"}, default="covered"
        What to do with y whose score equals the offset: many do if y is a count or often zero. "covered": every
        interval contains them, so coverage may be above what is promised. "random": the intervals of some rows, drawn
        by `random_state`, leave them out, so that coverage is what is promised and no more (`predict_interval` has the
        details). The price: two equal rows can get different intervals, and an interval no longer follows from its row
        alone. It sets rows aside, however few there are. Bounds in two stages rarely equal y exactly, even where many y
        are 0 or counts, so that few scores tie and "random" may change little here.
    y_min, y_max : float, optional
        Known limits of y. Intervals stay within them.
    partition : partition or "auto", default="auto"
        "auto" chooses the groups. `GroupPartition` takes your own; see `ICQR` for others.
    importance : PermutationImportance, optional
        By default `PermutationImportance()`, with ``partition="auto"`` with 2 repeats.
    small_groups : {"pooled", "infinite", "error"}, default="pooled"
        What a group with too few calibration rows gets: an offset from all rows, which promises nothing for this group;
        an infinite interval, which keeps the promise; or an error.
    calibration : {"auto", "split", "cross"}, default="auto"
        "split" sets rows aside to calibrate with. "cross" trains and calibrates with all rows, each scored by a model
        that has not seen it (CV+, ten folds): better with few rows, slower, and with a weaker promise; see
        `icqr.cross.CrossCalibration`. "auto" is "cross" below 1,000 rows, unless you give calibration rows, `order`, a
        partition or importance with ``data="calibration"``, or ``ties="random"``. What "cross" costs: it fits ten
        models, and asks all ten for each prediction. With 300 rows, one row took 29 ms, and `CQR` 2.4 ms; to write or
        read a file takes seconds. Where a row must be answered fast, use "split".
    calibration_size : float or int, default=1/3
        Share or number of rows to set aside for calibration.
    random_state : int, RandomState or None
        Seed for everything random.
    n_jobs : int, optional
        Number of tasks to run at the same time.
    verbose : bool, default=False
        True shows the steps of `fit` as they are done (needs tqdm).

    Attributes
    ----------
    model_, importances_, partition_, selection_, calibration_, groups_, collapse_
        As of `ICQR`.
    n_crossed_ : dict
        As of `ICQR`, but always 0: the residuals' quantiles are sorted before the centre is added. Of the training
        rows only a sample of 500 is looked at.

    Examples
    --------
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(1000, random_state=0, return_X_y=True)
    >>> model = AutoICQR(coverage=0.9, random_state=0).fit(X, y)
    >>> model.predict_interval(X).shape
    (1000, 2)
    >>> model.explain(X)["guarantee"].unique().tolist()
    ['group-wise']
    """

    _calibrations = ("auto", "split", "cross")

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        *,
        effort: str = "quick",
        conformity: str = "cqr-m",
        symmetric: bool = True,
        side: str = "both",
        ties: str = "covered",
        y_min: float | None = None,
        y_max: float | None = None,
        partition: Partition | str | None = "auto",
        importance: PermutationImportance | None = None,
        small_groups: str = "pooled",
        calibration: str = "auto",
        calibration_size: float = 1 / 3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.effort = effort
        self.conformity = conformity
        self.symmetric = symmetric
        self.side = side
        self.ties = ties
        self.y_min = y_min
        self.y_max = y_max
        self.partition = partition
        self.importance = importance
        self.small_groups = small_groups
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_progress(n_steps=4)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None = None,
        y_calibration: ArrayLike | None = None,
        *,
        order: Order | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the bounds, choose the groups and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. If you give no calibration rows, `calibration_size` of these are set aside, drawn at
            random; `ICQR.fit` says when that is right. Of fewer than 1,000 rows none are set aside: see `calibration`.
        X_calibration, y_calibration : table and array, optional
            Calibration rows. The model must not have seen them.
        order : str or array, optional
            What says how old rows are; see `ICQR.fit`.
        **fit_params : optional
            `sample_weight` is the only one that makes sense for all models that are fitted here.

        Returns
        -------
        self
        """
        unknown = [name for name, value in fit_params.items() if name != "sample_weight" and value is not None]
        if unknown:
            raise TypeError(
                f"AutoICQR fits several models, which share one fit parameter only: sample_weight, got {unknown[0]}; "
                "set parameters of the estimator itself, or use ICQR, which passes fit parameters on"
            )
        train, calibration, params, seeds, crosses = self._prepare(
            X, y, X_calibration, y_calibration, fit_params, order=order
        )
        self._check_columns_can_group(train, calibration)

        # 1. Bounds: a cross-fitted centre, and the quantiles of its residuals.
        step("quantiles")
        bounds = around(self.estimator, ResidualQuantiles(effort=self.effort))
        levels = quantile_levels(self.coverage, self.side)
        self.model_ = _fit_bounds(self, bounds, train, levels, seeds, params, crosses)
        seen = train.sample(MOST_SEEN, seeds.model)
        self._notice_collapse(seen, self._count_crossings_and_set_floor(seen), seeds.model, params)

        # 2. Groups. The columns' importance weighs them for K-means, and warns of columns that leak the target.
        step("importance")
        weights = self._column_weights(train, calibration, seeds.importance)
        step("groups")
        self.partition_ = self._fit_partition(train, calibration, weights, seeds.partition, params)
        self._settle_groups(train, calibration, weights, seeds.partition)

        # 3. One offset for each group; `predict_interval` looks it up for the coverage asked for.
        step("calibration")
        return self._calibrate_by_group(train, calibration, crosses)

    @classmethod
    def as_printed(cls, estimator: Any = None, coverage: float = 0.9, **parameters: Any) -> ICQR:
        """Raise an error: the paper's Algorithm 3 is `ICQR`."""
        raise ValueError("the paper's Algorithm 3 as printed is ICQR, not AutoICQR; use ICQR.as_printed(…)")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.effort not in EFFORTS:
            raise ValueError(f"effort must be one of {', '.join(map(repr, EFFORTS))}, got {self.effort!r}")
        if is_prefit(self.estimator):
            raise ValueError(
                "AutoICQR fits its estimator on folds, and can't with one that is fitted already; give it unfitted, or "
                "use ICQR(…, partition='auto'), which takes fitted models"
            )
        if isinstance(core_of(bare(self.estimator)).model, ResidualQuantiles):
            raise ValueError(
                "estimator: AutoICQR puts ResidualQuantiles around its estimator itself, and takes none, got "
                f"{bare(self.estimator)!r}; write AutoICQR(LGBMRegressor()) instead of "
                "AutoICQR(ResidualQuantiles(LGBMRegressor())), or with settings of your own "
                "ICQR(ResidualQuantiles(…), conformity='cqr-m', partition='auto')"
            )


# -- Steps of fit ----------------------------------------------------------------------------------------------------


def _unmeasured(n_rows: int, n_columns: int) -> str:
    return (
        f"The importance of columns is not measured: to permute each of {n_columns} columns in {FEWEST_ROWS} rows, the "
        f"model would predict {FEWEST_ROWS * (n_columns + 1)} rows, and partition='auto' allows it only twice the "
        f"{n_rows} training rows. So K-means clusters weigh all columns alike, and columns that leak the target are "
        f"not looked for. importance=PermutationImportance(max_rows={FEWEST_ROWS}) measures it all the same."
    )


def _fit_bounds(
    method: IntervalRegressor,
    estimator: Any,
    train: Rows,
    levels: tuple[float, ...],
    seeds: Seeds,
    params: dict[str, Any],
    crosses: bool,
) -> QuantileModel | FoldModels:
    """Fit the quantile model on all training rows, or a model without each fold of them."""
    if not crosses:
        return fit_quantiles(estimator, train, levels, seeds.model, method.n_jobs, params)
    model = as_quantile_model(estimator, seeds.model)
    return FoldModels(model).fit(train.X, train.y, levels, seeds.split, params, method.n_jobs)


def _put_into_one_group(method: IntervalRegressor, train: Rows) -> None:
    """Put all rows into one group, for the methods that have no groups."""
    method.partition_ = WholePartition().fit(train.X, train.y, np.empty((0, 0)))
    method.n_groups_ = 1
    method.described_ = describe_groups(train.X, np.zeros(len(train), dtype=np.intp), 1)


def _data_of(part: Any) -> str:
    """Return which rows a partition or importance is learned from: "train" or "calibration"."""
    data = getattr(part, "data", None)  # a user's own partition may hold anything under this name
    return "calibration" if isinstance(data, str) and data == "calibration" else "train"


def _count_groups(partition: Any, *parts: Rows) -> int:
    """Return the number of groups: the partition's own, or else what its labels of these rows show."""
    if hasattr(partition, "n_groups_"):
        return int(partition.n_groups_)
    return 1 + max(int(check_labels(partition.assign(rows.X), len(rows)).max(initial=0)) for rows in parts)
