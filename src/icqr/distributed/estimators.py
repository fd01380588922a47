"""Naive, QR, CQR and ICQR that take Dask collections besides tables."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from icqr import regressors
from icqr._libraries import class_names, core_of
from icqr._predicting import NOT_CALIBRATED, Coverages, IntervalRegressor, Seeds, is_list
from icqr.calibration import COVERAGES, MOST_SCORES, reduced_to
from icqr.distributed.blocks import SAMPLE_ROWS, DaskRows, check_table, example_of, is_collection
from icqr.distributed.cluster import reduced
from icqr.distributed.predicting import lazy_explanations, lazy_intervals, lazy_points
from icqr.distributed.training import dask_twin_name, is_dask_estimator, local_twin, train_on_cluster
from icqr.partition import GroupPartition
from icqr.quantiles import ResidualQuantiles, is_prefit
from icqr.rows import Rows


class OnDask(IntervalRegressor):
    """What a method needs to take Dask collections; tables go to the method itself."""

    # -- Learning ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        X_calibration: Any = None,
        y_calibration: Any = None,
        *,
        sample_rows: int = SAMPLE_ROWS,
        coverages: Sequence[float] = COVERAGES,
        max_scores: int = MOST_SCORES,
        **fit_params: Any,
    ) -> Self:
        """Fit the model, learn the groups and calibrate.

        Parameters
        ----------
        X, y : Dask DataFrame and Series, or Dask Arrays
            Rows to train on; unless calibration rows are given, `calibration_size` of every block is set aside for
            calibration. Tables are fitted here, as the local class does it.
        X_calibration, y_calibration : optional
            Calibration rows, which the model must not have seen.
        sample_rows : int, default=200_000
            Importance and groups are learned from so many random rows, and the model too unless it is
            `lightgbm.DaskLGBMRegressor` or `xgboost.dask.DaskXGBRegressor`: these train on all rows, on the cluster.
        coverages, max_scores
            See `calibrate`.
        **fit_params : optional
            For the estimator's own fit, if it is fitted on the sample; none with a value per row.

        Returns
        -------
        self
        """
        if not is_collection(X):
            given = {"X_calibration": X_calibration, "y_calibration": y_calibration}
            return super().fit(X, y, **{key: one for key, one in given.items() if one is not None}, **fit_params)
        _check_fit_params(fit_params, is_dask_estimator(super()._inner()))
        kept: dict[str, Any] = {"coverages": coverages, "most_scores": max_scores}
        if X_calibration is not None and y_calibration is not None:
            fit_params["X_calibration"] = DaskRows.to_fit(X_calibration, y_calibration, sample_rows, **kept)
        elif X_calibration is not None:
            fit_params["X_calibration"] = X_calibration
        if y_calibration is not None:
            fit_params["y_calibration"] = y_calibration
        return super().fit(DaskRows.to_fit(X, y, sample_rows, **kept), y, **fit_params)

    def calibrate(
        self, X: Any, y: Any, *, coverages: Sequence[float] = COVERAGES, max_scores: int = MOST_SCORES
    ) -> Self:
        """Replace the calibration by fresh rows; model and groups stay as they are.

        Parameters
        ----------
        X, y : Dask DataFrame and Series, or Dask Arrays
            Rows that neither the model nor the groups were learned from. Offsets are those that the local class gives
            for the same rows, to the bit.
        coverages : sequence of float
            With more than `max_scores` scores only those are kept that these coverages and the model's own need, and
            no other can be asked for. By default 0.1, 0.2, …, 0.8, 0.85, 0.9, 0.95, 0.98 and 0.99.
        max_scores : int, default=5_000_000
            So many scores are all kept, 8 bytes each; any coverage can then be asked for.

        Returns
        -------
        self
        """
        if not is_collection(X):
            return super().calibrate(X, y)
        return super().calibrate(DaskRows.to_calibrate(X, y, coverages=coverages, most_scores=max_scores), y)

    # -- Predicting --------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Predict the median (`Naive`: the regressor's own prediction).

        Of a Dask DataFrame lazily as a Series with its index, of a Dask Array as an Array.
        """
        if not is_collection(X):
            return super().predict(X)
        return lazy_points(self._predictor(X).for_workers(), X)

    def predict_interval(self, X: Any, coverage: Coverages = None) -> Any:
        """Predict intervals.

        Parameters
        ----------
        X : Dask DataFrame or Array, or a table
            Rows to predict.
        coverage : float or list of float, optional
            By default the estimator's own.

        Returns
        -------
        Dask DataFrame or Array
            Nothing is computed yet. For a DataFrame one with its index and the columns lower and upper (for a list of
            coverages lower_0.8, upper_0.8, …); for an Array one of shape (n, 2), or (n, 2, number of coverages) for a
            list. For a table, what the local class gives.
        """
        if not is_collection(X):
            return super().predict_interval(X, coverage)
        levels = self._levels(coverage)
        model = self._predictor(X).for_workers(levels)
        self._check_scores(levels)
        return lazy_intervals(model, X, levels if is_list(coverage) else levels[0])

    def explain(self, X: Any, coverage: float | None = None) -> Any:
        """Say for each row how its interval came about and what is promised.

        Of Dask collections lazily as a DataFrame, with X's index if X is a DataFrame.
        """
        if not is_collection(X):
            return super().explain(X, coverage)
        level = self._asked(coverage)
        model = self._predictor(X).for_workers([level], with_novelty=True)
        self._check_scores([level])
        return lazy_explanations(model, X, level)

    def to_local(self) -> Any:
        """Give the same model as an object of the local class, which needs no Dask."""
        kind = next(one for one in type(self).__mro__ if one.__module__ == regressors.__name__)
        params = self.get_params(deep=False)
        params["estimator"] = local_twin(params["estimator"])
        return _with_state(kind(**params), self)

    # -- Steps -------------------------------------------------------------------------------------------------------

    def _check_scores(self, levels: Sequence[float]) -> None:
        """Raise now, not when the first block is computed, if the scores needed were not kept or are too few."""
        for level in levels:
            if self.certificate(level).guarantee != NOT_CALIBRATED:
                self.calibration_.check_enough(level)

    def _predictor(self, X: Any) -> Self:
        """Give the model itself; that it is fitted and X has the right columns is checked before any work."""
        check_is_fitted(self)
        self._check_table(example_of(check_table(X)))
        return self

    def for_workers(self, coverages: Sequence[Any] = (), with_novelty: bool = False) -> Any:
        """Give the local model as workers use it, each task with one thread, without the scores that they don't need.

        Up to 5,000,000 scores and distances are kept: more than the rest of the model, and each worker gets a copy.
        """
        local = self.to_local()
        if hasattr(local, "calibration_"):
            local.calibration_ = reduced_to(local.calibration_, coverages)
            local.novelty_ = local.novelty_ if with_novelty else None
        # Dask's workers set OMP_NUM_THREADS=1. LightGBM alone takes all cores unless its own parameter says otherwise.
        if any(_light(local.model_)):
            local.model_ = copy.deepcopy(local.model_)
            for model in _light(local.model_):
                model.set_params(n_jobs=1)
        return local

    def _inner(self) -> Any:
        return local_twin(super()._inner())

    def _train(self, model: Any, train: Rows, *levels: Any, **params: Any) -> Any:
        given = super()._inner()
        if isinstance(train, DaskRows) and is_dask_estimator(given):
            self.n_train_ = train.total
            return train_on_cluster(model, given, train, (self.conformity_.y_min, self.conformity_.y_max), *levels)
        if isinstance(train, DaskRows):
            _warn_about_sample(given, train)
        return super()._train(model, train, *levels, **params)

    def _fit_groups(self, train: Rows, held_out: Rows, seeds: Seeds, params: dict[str, Any]) -> None:
        partition = getattr(self, "partition", None)
        if isinstance(partition, GroupPartition):
            # A user's own groups are looked for in all rows: the sample may lack some.
            for rows in (train, held_out):
                if isinstance(rows, DaskRows):
                    held_out = held_out.extended(_first_of_groups(rows, partition))
        super()._fit_groups(train, held_out, seeds, params)


def _with_state(model: Any, other: IntervalRegressor) -> Any:
    vars(model).update({name: value for name, value in vars(other).items() if name.endswith("_")})
    return model


def _check_fit_params(params: dict[str, Any], on_cluster: bool) -> None:
    if on_cluster and params:
        raise ValueError(
            f"fit parameters ({', '.join(params)}) are not handed to Dask estimators; set them on the estimator itself"
        )
    for name, value in params.items():
        if is_collection(value):
            raise ValueError(f"{name} is a Dask collection; fit parameters with a value per row are not taken here")


def _warn_about_sample(given: Any, train: DaskRows) -> None:
    twin = dask_twin_name(given)
    if twin is not None and len(train) < train.total and not is_prefit(given):
        warnings.warn(
            f"{type(given).__name__} is fitted on a sample of {len(train)} of {train.total} training rows; "
            f"{twin} trains on all of them, on the cluster.",
            UserWarning,
            stacklevel=2,
        )


def _first_of_groups(rows: DaskRows, partition: GroupPartition) -> Rows:
    """Find all groups on the cluster, and give one row of each."""
    parts = rows.blocks.map(_firsts, partition)
    found: Rows = reduced(parts, partial(_firsts_of_all, partition), "finding groups")
    return found


def _firsts(X: Any, y: Any, number: int, partition: GroupPartition) -> Rows:
    rows = Rows(X, np.zeros(len(X)), np.zeros(len(X), dtype=np.intp))
    return rows if len(X) == 0 else _firsts_of_all(partition, [rows])


def _firsts_of_all(partition: GroupPartition, parts: Sequence[Rows]) -> Rows:
    rows = reduce(Rows.extended, [part for part in parts if len(part)] or parts)
    if len(rows) == 0:
        return rows
    labels = clone(partition).fit(rows.X, rows.y, np.empty((len(rows), 0))).assign(rows.X)
    return rows.take(np.unique(labels, return_index=True)[1])


class Naive(OnDask, regressors.Naive):
    """`icqr.Naive` for Dask collections: the same parameters, methods and results. See `ICQR` here."""


class QR(OnDask, regressors.QR):
    """`icqr.QR` for Dask collections: the same parameters, methods and results. See `ICQR` here."""


class CQR(OnDask, regressors.CQR):
    """`icqr.CQR` for Dask collections: the same parameters, methods and results. See `ICQR` here."""


class ICQR(OnDask, regressors.ICQR):
    """`icqr.ICQR` for Dask collections: the same parameters, methods and results.

    `fit` and `calibrate` need a client (`icqr.distributed.connect`); predictions are lazy, and any scheduler computes
    them.

    1. The model: `lightgbm.DaskLGBMRegressor` and `xgboost.dask.DaskXGBRegressor` train on all training rows, on the
       cluster; every other estimator on a sample of them, here.
    2. Importance and groups: from the sample. A user's own groups (`GroupPartition`) are looked for in all rows.
    3. Scores: where the rows are, by the local class's functions.
    4. Offsets: exact order statistics of all scores, merged on the workers.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = ICQR(random_state=0).fit(X, y)  # a table, and so fitted here; Dask collections on the cluster
    >>> intervals = model.predict_interval(dd.from_pandas(X, npartitions=4))
    >>> intervals.compute(scheduler="synchronous").shape
    (500, 2)
    """


def _light(model: Any) -> Iterator[Any]:
    """Give the fitted LightGBM models inside a quantile or point model."""
    for fitted in getattr(model, "models_", None) or [model.model_]:
        if isinstance(fitted, ResidualQuantiles):
            for stage in (*fitted.medians_, *fitted.residuals_):
                yield from _light(stage)
        elif "lightgbm.LGBMModel" in class_names(core_of(fitted)[1]):
            yield core_of(fitted)[1]


def on_dask(model: IntervalRegressor) -> OnDask:
    """Give a local model, fitted here or loaded from a file, as one that takes Dask collections.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> local = regressors.CQR(random_state=0).fit(X, y)
    >>> on_dask(local).predict_interval(dd.from_pandas(X, npartitions=4)).columns.tolist()
    ['lower', 'upper']
    """
    if isinstance(model, OnDask):
        return model
    for kind in (Naive, QR, CQR, ICQR):
        if isinstance(model, kind.__mro__[2]):
            return _with_state(kind(**model.get_params(deep=False)), model)  # type: ignore[no-any-return]
    raise TypeError(f"model must be Naive, QR, CQR or ICQR, got {type(model).__name__}")
