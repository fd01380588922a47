"""Bounds: one interface to any library's quantile model, fitted for several levels and sorted in each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import _check_method_params, check_is_fitted

from icqr._libraries import (
    Encoder,
    Levels,
    ask,
    check_increasing,
    check_level_parameter,
    class_names,
    copied,
    core_of,
    find_quantile_library,
    is_fitted_already,
    seeded,
    target_scale,
)
from icqr._messages import counted
from icqr._rows import Rows
from icqr._tables import FloatArray, IntArray, Table, as_table, blocks, take_rows

#: The level of the median.
MEDIAN = 0.5
#: Cross-fitting cuts the rows into this many folds.
FOLDS = 5


# -- One interface to all libraries ----------------------------------------------------------------------------------


class QuantileModel(BaseEstimator):
    """A quantile model of any library: fits several levels, and predicts them as (n, levels), sorted in each row.

    Parameters
    ----------
    estimator : estimator, optional
        A plain estimator, for example ``LGBMRegressor(n_estimators=300)``; `fit` sets its objective and levels. By
        default scikit-learn's HistGradientBoostingRegressor. ``FrozenEstimator(model)`` around a fitted `QuantileModel`
        is not fitted again.
    level_parameter : str, optional
        For a library that icqr does not know: the name of the parameter that sets the quantile level.
    n_jobs : int, optional
        Number of levels to fit at the same time, for models that need one fit per level.

    Attributes
    ----------
    levels_ : tuple of float
        The fitted levels.
    models_ : list
        The fitted models: one for each level, or one for all of them.
    encoder_ : Encoder
        Turns rows into what the models take.
    scale_ : TargetScale
        Turns y into what the models learn; see `target_scale`.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = QuantileModel().fit(X, X.ravel(), levels=(0.25, 0.5, 0.75))
    >>> model.predict(X[:2]).shape
    (2, 3)
    """

    def __init__(self, estimator: Any = None, level_parameter: str | None = None, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.level_parameter = level_parameter
        self.n_jobs = n_jobs

    def fit(self, X: Table, y: FloatArray, levels: Levels, **fit_params: Any) -> Self:
        """Fit all levels; `fit_params` are passed to the estimator's own fit."""
        if _take_over(self):
            if self.levels_ != check_levels(levels):
                raise ValueError(
                    f"the coverage and side asked for need the levels {tuple(levels)}, but the fitted QuantileModel "
                    f"has {self.levels_}; ask for the coverage it was fitted for, or fit it at these levels"
                )
            return self
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        estimator = bare(self.estimator)
        settings = self.prepare(X, y, levels, fit_params)
        rows, target = self.encoder_.encode_training(X, y, fit_params.get("sample_weight")), self.scale_.scaled(y)
        params = self.encoder_.fit_params(estimator, fit_params, self.scale_.scaled)

        # Models fitted at the same time share the cores. Otherwise each LightGBM model would take all of them.
        at_once = min(effective_n_jobs(self.n_jobs), len(settings))
        core = core_of(estimator)
        threads = {}
        if at_once > 1 and "lightgbm.LGBMModel" in class_names(core.model) and core.model.n_jobs is None:
            threads = {f"{core.prefix}n_jobs": max(1, cpu_count() // at_once)}
        self.models_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_clone)(estimator, {**task, **threads}, rows, target, params)
            for task in counted(settings, "level")
        )
        for model in self.models_ if threads else ():
            model.set_params(**dict.fromkeys(threads))  # it may predict with all cores

        check_increasing(self.models_[0], y)
        return self

    def prepare(
        self, X: Table, y: FloatArray, levels: Levels, fit_params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Learn how rows and y are encoded, and return the settings of each model to fit."""
        estimator = bare(self.estimator)
        core = core_of(estimator).model
        library = find_quantile_library(core, self.level_parameter)
        assert library.levels is not None
        self.levels_ = check_levels(levels)
        if self.level_parameter is not None:
            check_level_parameter(core, self.level_parameter)
        if isinstance(core, PrefitQuantiles):
            core.check_levels(self.levels_)
        self.encoder_ = Encoder(estimator, X)
        self.scale_ = target_scale(estimator, y, fit_params or {})
        tasks = [self.levels_] if library.joint else [(level,) for level in self.levels_]
        return [self.encoder_.settings(estimator, library.levels(task)) for task in tasks]

    def predict(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Return (n, levels) quantiles, sorted in each row, for all fitted levels or some of them."""
        unknown = [level for level in levels or () if level not in self.levels_]
        if unknown:
            raise ValueError(
                f"levels must be among the fitted ones, {self.levels_}, got {unknown[0]:g}; fit it as well"
            )
        quantiles = self.predict_sorted(X)[0]
        return quantiles if levels is None else quantiles[:, [self.levels_.index(level) for level in levels]]

    def predict_sorted(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the sorted quantiles, and which rows had to be sorted."""
        X = as_table(X)
        # One block at a time, so that the encoded rows are never all in memory.
        parts = [self.predict_encoded(self.encoder_.encode_new(take_rows(X, block))) for block in blocks(len(X))]
        quantiles, crossed = zip(*parts, strict=True)
        return np.concatenate(quantiles), np.concatenate(crossed)

    def predict_encoded(self, rows: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the same as `predict_sorted`, for encoded rows."""
        tasks = [self.levels_] if len(self.models_) == 1 else [(level,) for level in self.levels_]
        pairs = zip(self.models_, tasks, strict=True)
        columns = [ask(model, rows, levels, self.level_parameter) for model, levels in pairs]
        quantiles = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        if quantiles.shape != (len(rows), len(self.levels_)):
            raise ValueError(
                f"the quantile model must predict shape {(len(rows), len(self.levels_))} for levels {self.levels_}, "
                f"got {quantiles.shape}"
            )
        if not np.isfinite(quantiles).all():
            row = int(np.argwhere(~np.isfinite(quantiles))[0, 0])
            raise ValueError(
                f"the quantile model predicts {quantiles[row].tolist()} for row {row}; quantiles must be finite"
            )

        quantiles = self.scale_.unscaled(quantiles)
        crossed = np.asarray((quantiles[:, 1:] < quantiles[:, :-1]).any(axis=1))
        return (np.sort(quantiles, axis=1) if crossed.any() else quantiles), crossed


def fit_quantiles(
    estimator: Any, rows: Rows, levels: Levels, seed: int, n_jobs: int | None, fit_params: Mapping[str, Any]
) -> QuantileModel:
    """Fit any estimator as a quantile model, with this seed and `n_jobs` unless it has its own.

    Examples
    --------
    >>> rows = Rows(np.linspace(0, 1, 200)[:, None], np.linspace(0, 1, 200), np.arange(200))
    >>> fit_quantiles(None, rows, (0.25, 0.75), seed=0, n_jobs=None, fit_params={}).levels_
    (0.25, 0.75)
    """
    model = as_quantile_model(estimator, seed)
    for part in (model, model.estimator):
        if isinstance(part, QuantileModel) or getattr(part, "is_cross_fitted", False):
            part.set_params(n_jobs=n_jobs if part.n_jobs is None else part.n_jobs)
    return model.fit(rows.X, rows.y, levels, **fit_params)


def as_quantile_model(estimator: Any, seed: int) -> QuantileModel:
    """Return a copy of any estimator as a quantile model, seeded where it has no seed of its own."""
    model: QuantileModel = copied(estimator) if isinstance(estimator, QuantileModel) else QuantileModel()
    model.set_params(estimator=seeded(bare(estimator), seed))
    return model


class PointModel(BaseEstimator):
    """A regressor of any library: gets rows in the form that the library takes.

    Parameters
    ----------
    estimator : regressor, optional
        By default scikit-learn's HistGradientBoostingRegressor.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> PointModel().fit(X, X.ravel()).predict(X[:2]).shape
    (2,)
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def fit(self, X: Table, y: FloatArray, **fit_params: Any) -> Self:
        """Fit the regressor; `fit_params` are passed to its own fit."""
        if _take_over(self):
            return self
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        settings = self.prepare(X, y, fit_params)
        rows, target = self.encoder_.encode_training(X, y, fit_params.get("sample_weight")), self.scale_.scaled(y)
        params = self.encoder_.fit_params(bare(self.estimator), fit_params, self.scale_.scaled)
        self.model_ = fit_clone(bare(self.estimator), settings, rows, target, params)
        return self

    def prepare(self, X: Table, y: FloatArray, fit_params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Learn how rows and y are encoded, and return the settings of the model to fit."""
        estimator = bare(self.estimator)
        self.encoder_ = Encoder(estimator, X)
        self.scale_ = target_scale(estimator, y, fit_params or {}, of_mean=True)
        return {} if isinstance(estimator, FrozenEstimator) else self.encoder_.settings(estimator, {})

    def predict(self, X: Table) -> FloatArray:
        """Return the regressor's predictions."""
        X = as_table(X)
        parts = [self.model_.predict(self.encoder_.encode(take_rows(X, block))) for block in blocks(len(X))]
        values = np.concatenate(parts).astype(np.float64).reshape(len(X), -1)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise ValueError(f"the regressor must predict one finite number per row, got shape {values.shape}")
        return self.scale_.unscaled(values[:, 0])


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Check quantile levels, and return them as floats.

    Examples
    --------
    >>> check_levels([0.05, 0.5])
    (0.05, 0.5)
    """
    checked = tuple(float(level) for level in levels)
    if not checked or not all(0 < level < 1 for level in checked) or sorted(set(checked)) != list(checked):
        raise ValueError(
            f"levels must be quantile levels strictly between 0 and 1, in ascending order, got {list(checked)}; for "
            "example levels=(0.05, 0.5, 0.95)"
        )
    return checked


def fit_clone(estimator: Any, settings: dict[str, Any], X: Any, y: FloatArray, params: dict[str, Any]) -> Any:
    """Fit a copy of an estimator with these settings; return an object without `fit` as it is."""
    if not hasattr(estimator, "fit"):
        return estimator
    model = copied(estimator)
    if settings:
        model.set_params(**settings)
    return model.fit(X, y, **params)


def bare(estimator: Any) -> Any:
    """Return the estimator that a `QuantileModel` holds, or the estimator itself; in place of None, the default.

    Examples
    --------
    >>> bare(QuantileModel(None))
    HistGradientBoostingRegressor()
    """
    inner = estimator.estimator if isinstance(estimator, QuantileModel) else estimator
    return HistGradientBoostingRegressor() if inner is None else inner


def is_prefit(estimator: Any) -> bool:
    """Return whether this model is fitted already, so that `fit` leaves it as it is."""
    return is_fitted_already(bare(estimator))


def _take_over(model: Any) -> bool:
    """Copy what a fitted model has learned, if a FrozenEstimator holds one of the same class; return whether it did."""
    fitted = model.estimator.estimator if isinstance(model.estimator, FrozenEstimator) else None
    if not isinstance(fitted, type(model)):
        return False
    check_is_fitted(fitted)
    vars(model).update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    return True


# -- Models that are fitted already ----------------------------------------------------------------------------------


class PrefitQuantiles(BaseEstimator):
    """Fitted models, one for each level, with one `predict_quantiles`; made by `prefit`.

    Parameters
    ----------
    models : tuple
        Fitted estimators or callables, in the order of `levels`, each in a FrozenEstimator so that cloning keeps it.
    levels : tuple of float
        The level that each model predicts.
    """

    is_prefit = True  # `fit` leaves it as it is

    def __init__(self, models: tuple[Any, ...], levels: tuple[float, ...]) -> None:
        self.models = models
        self.levels = levels

    def fit(self, X: Any, y: Any) -> Self:
        """Do nothing: the models are fitted already."""
        return self

    def predict_quantiles(self, X: Any, levels: Levels) -> FloatArray:
        """Return (n, levels) predictions, each column by the model of its level."""
        columns = []
        for level in levels:
            model = self.models[self._index(level)].estimator
            _check_order(model, X)
            answer = np.asarray(model.predict(X) if hasattr(model, "predict") else model(X), dtype=np.float64)
            columns.append(answer[:, None] if answer.ndim == 1 else answer)
        return np.concatenate(columns, axis=1)

    def __sklearn_tags__(self) -> Any:
        # The models get the rows as the user gives them, which is the form they were fitted on.
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def check_levels(self, levels: Levels) -> None:
        """Raise unless there is a model for each of these levels."""
        for level in levels:
            self._index(level)

    def _index(self, level: float) -> int:
        matches = np.flatnonzero(np.isclose(self.levels, level, rtol=0, atol=1e-9))
        if len(matches) == 0:
            raise ValueError(
                f"the coverage and side asked for need a model of level {level:g}, but the fitted models have levels "
                f"{tuple(self.levels)}. Give a model of that level, or ask for the coverage the models were fitted for."
            )
        return int(matches[0])


def _check_order(model: Any, X: Any) -> None:
    """Raise if X has the model's columns in another order, which LightGBM would not notice."""
    known = np.asarray(getattr(model, "feature_names_in_", ()), dtype=object).tolist()
    names = np.asarray(getattr(X, "columns", ()), dtype=object).tolist()
    if known != names and sorted(map(str, known)) == sorted(map(str, names)):
        raise ValueError(
            f"X must have the columns that the fitted model knows, in the same order: {known}, got {names}. Select "
            "them by name, in that order."
        )


def prefit(*, lower: Any = None, median: Any = None, upper: Any = None, levels: Levels) -> PrefitQuantiles:
    """Use models that are fitted already as a quantile model.

    Give a method's ``fit`` rows that the models have not seen. `ICQR` uses one part of them for the partition and the
    rest for calibration. `CQR` calibrates on all of them, or with a scaled conformity score on `calibration_size` of
    them: it learns the scale from the others. **Don't give the rows the models were trained on**: their scores are too
    small, and the intervals would be too narrow. `Naive` takes a fitted regressor as scikit-learn's
    ``FrozenEstimator(model)`` instead.

    Parameters
    ----------
    lower, median, upper : fitted estimator or callable
        Models of the lower bound, the median and the upper bound. A one-sided interval needs its own bound and the
        median.
    levels : sequence of float
        The level of each model, in the order lower, median, upper. The method checks them against its coverage.

    Examples
    --------
    >>> from icqr import CQR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 1)); y = X.ravel() + rng.normal(size=200)
    >>> bounds = prefit(
    ...     lower=lambda X: X[:, 0] - 1, median=lambda X: X[:, 0], upper=lambda X: X[:, 0] + 1, levels=(0.05, 0.5, 0.95)
    ... )
    >>> CQR(bounds, coverage=0.9, random_state=0).fit(X, y).predict_interval(X).shape
    (200, 2)
    """
    models = [model for model in (lower, median, upper) if model is not None]
    if not models or len(models) != len(levels):
        raise ValueError(f"levels must have one level for each of the {len(models)} models given, got {tuple(levels)}")
    if any(low >= high for low, high in pairwise([0.0, *levels, 1.0])):
        raise ValueError(
            f"levels must grow from lower to upper, strictly between 0 and 1, got {tuple(levels)}; for 90 % coverage "
            "they are (0.05, 0.5, 0.95)"
        )
    for model in models:
        if not hasattr(model, "predict") and not callable(model):
            raise ValueError(f"a prefit model must have predict(X) or be callable, got {type(model).__name__}")
        if hasattr(model, "fit") and hasattr(model, "predict"):
            check_is_fitted(model)
    return PrefitQuantiles(tuple(map(FrozenEstimator, models)), tuple(float(level) for level in levels))


# -- Out-of-fold predictions -----------------------------------------------------------------------------------------


def cut_folds(n: int, n_folds: int, seed: int | None, sample_weight: Any = None) -> list[IntArray]:
    """Cut n rows into folds at random; each fold is the positions of its rows, in ascending order.

    With weights, some rows with a weight must be left outside of each fold.

    Examples
    --------
    >>> [len(fold) for fold in cut_folds(7, 3, seed=0)]
    [3, 2, 2]
    """
    if n < 2:
        raise ValueError(f"rows to train on must be at least 2 to be cut into folds, got n_samples={n}; give more rows")
    order = np.random.default_rng(seed).permutation(n)
    folds = [np.sort(fold) for fold in np.array_split(order, min(n_folds, n))]
    if sample_weight is not None:
        counts = np.asarray(sample_weight) > 0
        if max(counts[fold].sum() for fold in folds) == counts.sum():
            raise ValueError(
                f"sample_weight must be above 0 in rows of several folds, but of {n} rows to train on {counts.sum()} "
                f"have such a weight, all in one of {len(folds)} folds: a model without that fold would learn from "
                "nothing; give more rows a weight"
            )
    return folds


def cross_fit(
    model: Any,
    X: Table,
    y: FloatArray,
    levels: Sequence[float],
    seed: int | None,
    fit_params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    n_folds: int = FOLDS,
) -> tuple[list[Any], FloatArray, list[IntArray]]:
    """Fit a quantile model without each of some random folds, and predict that fold with it.

    Parameters
    ----------
    model : quantile model
        A model with ``fit(X, y, levels)`` and ``predict(X)``, such as `QuantileModel`. It is cloned.
    X, y : table and array
        Rows to fit and predict.
    levels : sequence of float
        The levels.
    seed : int
        Seed for the folds.
    fit_params : dict, optional
        Passed to the model's fit. Arrays with one value per row are split with the rows.
    n_jobs : int, optional
        Number of folds to fit at the same time. The result stays the same.
    n_folds : int, default=5
        The number of folds.

    Returns
    -------
    models : list
        The fitted models, one for each fold.
    predictions : array of shape (n, levels)
        Each row's prediction by the model that was fitted without it.
    folds : list of arrays
        The positions of each fold's rows.

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> models, median, folds = cross_fit(QuantileModel(), X, X.ravel(), levels=(0.5,), seed=0)
    >>> len(models), median.shape, len(folds[0])
    (5, (200, 1), 40)
    """
    folds = cut_folds(len(y), n_folds, seed, (fit_params or {}).get("sample_weight"))
    unfitted = without_checkpoints(clone(model))
    counts = counted(folds, "fold")
    tasks = (delayed(_fit_without)(clone(unfitted), X, y, levels, fold, fit_params or {}) for fold in counts)
    models = Parallel(n_jobs=n_jobs)(tasks)
    predictions = np.empty((len(y), len(levels)))
    for fitted, fold in zip(models, folds, strict=True):
        predictions[fold] = fitted.predict(take_rows(X, fold))
    return models, predictions, folds


def without_checkpoints(model: Any) -> Any:
    """Return the model, with all its checkpoints unset: one belongs to one set of rows, so folds must not share it."""
    names = [name for name in model.get_params(deep=True) if name.endswith("checkpoint")]
    return model.set_params(**dict.fromkeys(names)) if names else model


def _fit_without(
    model: Any, X: Table, y: FloatArray, levels: Sequence[float], fold: IntArray, fit_params: Mapping[str, Any]
) -> Any:
    rest = np.setdiff1d(np.arange(len(y)), fold, assume_unique=True)
    return model.fit(take_rows(X, rest), y[rest], levels, **_check_method_params(X, dict(fit_params), indices=rest))
