"""Bounds: any library's quantile model behind one face, fitted once for several levels and sorted per row."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from icqr._libraries import Encoder, class_names, copied, core_of, prepares_rows, seeded
from icqr._tables import FloatArray, Table, as_table, settle_kinds
from icqr.cross_fitting import cross_fit
from icqr.families import Family, Levels, PrefitQuantiles, ask, check_increasing, check_level_parameter, find_family

#: The level of the median.
MEDIAN = 0.5

# -- The one face ----------------------------------------------------------------------------------------------------


class QuantileModel(BaseEstimator):
    """A quantile model: fit once for several levels, predict them as (n, levels), sorted in each row.

    Parameters
    ----------
    estimator : estimator, optional
        The plain estimator, for example ``LGBMRegressor(n_estimators=300)``; objective and levels are set here. By
        default scikit-learn's HistGradientBoostingRegressor. ``FrozenEstimator(model)`` of a fitted `QuantileModel` is
        used as it is.
    level_parameter : str, optional
        For an estimator not known here: the name of its parameter that holds the quantile level.
    n_jobs : int, optional
        Levels fitted at the same time, for models that need one fit per level.

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
        """Fit the levels; `fit_params` go to the estimator's own fit."""
        fitted = _frozen(self.estimator, QuantileModel)
        if fitted is not None:
            if fitted.levels_ != check_levels(levels):
                raise ValueError(
                    f"the coverage and side asked for need the levels {tuple(levels)}, but the fitted QuantileModel "
                    f"has {fitted.levels_}; ask for the coverage it was fitted for, or fit it at these levels"
                )
            _take_over(self, fitted)
            return self
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        settings = self.prepare(X, y, levels)
        rows, params = self.encoder_.encode(X), self.encoder_.fit_params(fit_params)
        threads = self._shared_threads(len(settings))
        self.models_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_clone)(bare(self.estimator), {**task, **threads}, rows, y, params) for task in settings
        )
        for model in self.models_ if threads else ():
            model.set_params(**dict.fromkeys(threads))  # it may predict with all of them
        check_increasing(self.models_[0], y)
        return self

    def _shared_threads(self, n_tasks: int) -> dict[str, int]:
        """Share the cores between models fitted at the same time; LightGBM would take all of them for each."""
        at_once = min(effective_n_jobs(self.n_jobs), n_tasks)
        prefix, core = core_of(bare(self.estimator))
        has_choice = "lightgbm.LGBMModel" in class_names(core) and core.n_jobs is None
        return {f"{prefix}n_jobs": max(1, cpu_count() // at_once)} if at_once > 1 and has_choice else {}

    def prepare(self, X: Table, y: FloatArray, levels: Levels) -> list[dict[str, Any]]:
        """Learn how rows are encoded, and give the settings of each model that must be fitted to become `models_`."""
        estimator = bare(self.estimator)
        family = self._family(estimator)
        self.levels_ = check_levels(levels)
        _, core = core_of(estimator)
        if self.level_parameter is not None:
            check_level_parameter(core, self.level_parameter)
        if isinstance(core, PrefitQuantiles):
            core.check_levels(self.levels_)
        self.encoder_ = Encoder(estimator, X)
        self.encoder_.check_ranges(X, y)
        spread = 1.0 if self.encoder_.transforms_target else float(np.ptp(y)) or 1.0
        settings = [family.scaled(family.settings(task), spread) for task in self._tasks(family)]
        return [self.encoder_.settings(task) for task in settings]

    def _family(self, estimator: Any) -> Family:
        # Found again when needed, not kept: its functions could not be pickled.
        return find_family(core_of(estimator)[1], self.level_parameter)

    def _tasks(self, family: Family) -> list[tuple[float, ...]]:
        return [self.levels_] if family.joint else [(level,) for level in self.levels_]

    def predict(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Give the (n, levels) quantiles, sorted in each row, of all fitted levels or of some of them."""
        unknown = [level for level in levels or () if level not in self.levels_]
        if unknown:
            raise ValueError(
                f"levels must be among the fitted ones, {self.levels_}, got {unknown[0]:g}; fit it as well"
            )
        quantiles = self.predict_sorted(X)[0]
        return quantiles if levels is None else quantiles[:, [self.levels_.index(level) for level in levels]]

    def predict_sorted(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Give the sorted quantiles, and which rows were not in order before."""
        return self.predict_encoded(self.encoder_.encode(as_table(X)))

    def predict_encoded(self, rows: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Do the same for rows in the form that the models take."""
        raw = self._raw(rows)
        crossed = np.asarray((raw[:, 1:] < raw[:, :-1]).any(axis=1))
        return (np.sort(raw, axis=1) if crossed.any() else raw), crossed

    def _raw(self, rows: Any) -> FloatArray:
        """Give the models' own quantiles, not sorted."""
        family = self._family(self.models_[0])
        asked = zip(self.models_, self._tasks(family), strict=True)
        raw = np.concatenate([ask(model, rows, family, task) for model, task in asked], axis=1)
        self._check_prediction(raw, len(rows))
        return raw

    def _check_prediction(self, raw: FloatArray, n_rows: int) -> None:
        if raw.shape != (n_rows, len(self.levels_)):
            raise ValueError(
                f"the quantile model must predict shape {(n_rows, len(self.levels_))} for levels {self.levels_}, "
                f"got {raw.shape}"
            )
        if not np.isfinite(raw).all():
            row = int(np.argwhere(~np.isfinite(raw))[0, 0])
            raise ValueError(f"the quantile model predicts {raw[row].tolist()} for row {row}; quantiles must be finite")


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Give quantile levels as floats, or say what is wrong with them.

    Examples
    --------
    >>> check_levels([0.05, 0.5])
    (0.05, 0.5)
    """
    given = tuple(float(level) for level in levels)
    if not given or not all(0 < level < 1 for level in given) or sorted(set(given)) != list(given):
        raise ValueError(
            f"levels must be quantile levels strictly between 0 and 1, in ascending order, got {list(given)}; for "
            "example levels=(0.05, 0.5, 0.95)"
        )
    return given


def fit_clone(estimator: Any, settings: dict[str, Any], X: Any, y: FloatArray, params: dict[str, Any]) -> Any:
    """Fit a copy of an estimator with these settings; an object without `fit` is used as it is."""
    if not hasattr(estimator, "fit"):
        return estimator
    model = copied(estimator)
    if settings:
        model.set_params(**settings)
    return model.fit(X, y, **params)


class PointModel(BaseEstimator):
    """Any regressor, with rows encoded as its library takes them.

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
        """Fit the regressor; `fit_params` go to its own fit."""
        fitted = _frozen(self.estimator, PointModel)
        if fitted is not None:
            _take_over(self, fitted)
            return self
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        settings = self.prepare(X, y)
        rows, params = self.encoder_.encode(X), self.encoder_.fit_params(fit_params)
        self.model_ = fit_clone(bare(self.estimator), settings, rows, y, params)
        return self

    def prepare(self, X: Table, y: FloatArray) -> dict[str, Any]:
        """Learn how rows are encoded, and give the settings of the model that must be fitted to become `model_`."""
        self.encoder_ = Encoder(bare(self.estimator), X)
        self.encoder_.check_ranges(X, y, point=True)
        return {} if isinstance(bare(self.estimator), FrozenEstimator) else self.encoder_.settings({})

    def predict(self, X: Table) -> FloatArray:
        """Give the regressor's predictions."""
        X = as_table(X)
        values = np.asarray(self.model_.predict(self.encoder_.encode(X)), dtype=np.float64).reshape(len(X), -1)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise ValueError(f"the regressor must predict one finite number per row, got shape {values.shape}")
        return values[:, 0]


def bare(estimator: Any) -> Any:
    """Give the estimator itself: that of a `QuantileModel`, and the default in place of None.

    Examples
    --------
    >>> bare(QuantileModel(None))
    HistGradientBoostingRegressor()
    """
    inner = estimator.estimator if isinstance(estimator, QuantileModel) else estimator
    return HistGradientBoostingRegressor() if inner is None else inner


# -- Models that are fitted already ----------------------------------------------------------------------------------


def is_prefit(estimator: Any) -> bool:
    """Tell whether fitting leaves this model as it is."""
    if isinstance(estimator, QuantileModel):
        estimator = estimator.estimator
    if estimator is None:
        return False
    return isinstance(estimator, PrefitQuantiles | FrozenEstimator) or not hasattr(estimator, "fit")


def _frozen(estimator: Any, kind: type[Any]) -> Any:
    """Return the fitted model of this kind that a FrozenEstimator holds, or None."""
    inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else None
    return inner if isinstance(inner, kind) else None


def _take_over(model: Any, fitted: Any) -> None:
    """Give a model all that a fitted one has learned: how columns are encoded, and the models themselves."""
    check_is_fitted(fitted)
    for name, value in vars(fitted).items():
        if name.endswith("_"):
            setattr(model, name, value)


# -- Two stages ------------------------------------------------------------------------------------------------------


class ResidualQuantiles(RegressorMixin, BaseEstimator):
    """Quantiles in two stages: the median first, then the quantiles of what it leaves.

    1. The rows are cut into five folds at random. A model of the median is fitted without each fold, and predicts it:
       so each training row has a median from a model that has not seen it.
    2. On the same folds, models of the other levels learn the residuals, ``y - median``, from the columns and the
       median.
    3. A new row's median is the mean over five models, and so are the residual's quantiles, which are added to it.

    So the spread is learned from residuals as new rows have them, not from those of a model that knows its rows. The
    price: five fits on 4/5 of the rows, about 4 times the time of one quantile model (8 times for a library that fits
    all levels at once), and 5 times as many models to ask. The out-of-fold quantiles that `ICQR` needs for
    ``partition="auto"`` and `ScorePartition` are then there already, and cost no more fits. Permutation importance is
    that of the median: what a column does to the residual's quantiles alone doesn't count.

    Use it where a quantile model is asked for: ``ICQR(ResidualQuantiles(LGBMRegressor()))``. To transform the target,
    put a TransformedTargetRegressor around it, not inside: residuals may be negative. (Out-of-fold quantiles then cost
    five more fits of the whole, as for any other model.)

    Parameters
    ----------
    estimator : estimator, optional
        What `QuantileModel` takes, or a `QuantileModel`. By default scikit-learn's HistGradientBoostingRegressor.
    levels : sequence of float, default=(0.05, 0.5, 0.95)
        The levels to predict; inside a method that method sets them.
    random_state : int, RandomState or None
        Seed of the folds, and of models whose own is None.
    n_jobs : int, optional
        Folds fitted at the same time; the result is the same.

    Attributes
    ----------
    medians_ : list of QuantileModel
        The models of the median, one for each fold.
    residuals_ : list of QuantileModel
        The models of the residuals' quantiles, one for each fold; none if the median is the only level.
    out_of_fold_ : array of shape (n, levels)
        Each training row's quantiles by the models of the fold that it is in, which were fitted without it, sorted.
        (What these learned as residuals are those of medians of the other folds, which had seen it.)

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> ResidualQuantiles(random_state=0).fit(X, X.ravel()).predict_quantiles(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        estimator: Any = None,
        levels: Levels = (0.05, 0.5, 0.95),
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.levels = levels
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Table, y: FloatArray, sample_weight: Any = None) -> Self:
        """Fit both stages; of fit parameters only `sample_weight` has a meaning for both."""
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        check_levels(self.levels)
        validate_data(self, X, skip_check_array=True)
        folds, seed = check_random_state(self.random_state).randint(2**31 - 1, size=2).tolist()
        model = self._model(seed)
        self._check_base(model, X)
        if prepares_rows(model.estimator):
            X = settle_kinds(X)
        params = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight, dtype=np.float64)}
        self.medians_, predicted = cross_fit(model, X, y, (MEDIAN,), folds, params, self.n_jobs)
        median = predicted[:, 0]
        self.unit_ = _power_of_two(y, y - median)
        others = [level for level in self.levels if level != MEDIAN]
        self.residuals_: list[QuantileModel] = []
        residual = np.empty((len(y), 0))
        if others:
            rows, target = _with_column(X, median), (y - median) / self.unit_
            self.residuals_, residual = cross_fit(model, rows, target, others, folds, params, self.n_jobs)
        self.out_of_fold_ = np.sort(self._added(self.levels, median, residual), axis=1)
        return self

    def predict_quantiles(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Give (n, levels) quantiles, not sorted, of all fitted levels or of some of them."""
        check_is_fitted(self)
        X = as_table(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        median = np.mean([model.predict(X)[:, 0] for model in self.medians_], axis=0)
        asked = tuple(self.levels if levels is None else levels)
        others = [level for level in asked if level != MEDIAN]
        residual = np.empty((len(median), 0))
        if others:
            rows = _with_column(X, median)
            residual = np.mean([model.predict(rows, others) for model in self.residuals_], axis=0)
        return self._added(asked, median, residual)

    def _added(self, levels: Levels, median: FloatArray, residual: FloatArray) -> FloatArray:
        """Give quantiles from the median and, for the other levels, those of the residual in its unit."""
        found = np.repeat(median[:, None], len(levels), axis=1)
        found[:, [level != MEDIAN for level in levels]] += residual * self.unit_
        return found

    def predict(self, X: Table) -> FloatArray:
        """Give the median."""
        return self.predict_quantiles(X, (MEDIAN,))[:, 0]

    @property
    def levels_(self) -> tuple[float, ...]:
        """The fitted levels."""
        return tuple(self.levels)

    def _model(self, seed: int) -> QuantileModel:
        given = self.estimator
        model: QuantileModel = copied(given) if isinstance(given, QuantileModel) else QuantileModel(given)
        model.set_params(estimator=seeded(bare(given), seed))
        return model

    def _check_base(self, model: QuantileModel, X: Table) -> None:
        """Raise before any fit what can't be fitted in two stages, and what all rows tell about the columns."""
        if is_prefit(model.estimator):
            raise ValueError(
                "ResidualQuantiles fits its estimator on folds, and can't with one that is fitted already; give the "
                "estimator unfitted, or use the fitted one without ResidualQuantiles"
            )
        if Encoder(model.estimator, X).transforms_target:
            raise ValueError(
                "ResidualQuantiles(TransformedTargetRegressor(…)) would transform residuals, which may be negative; "
                "put it around: TransformedTargetRegressor(ResidualQuantiles(…), …)"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows come as the user gave them: `QuantileModel` encodes them for the estimator.
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _with_column(X: Table, median: FloatArray) -> Table:
    """Add the median as the last column, under a name that no other column has."""
    if not isinstance(X, pd.DataFrame):
        return np.column_stack([X, median])
    name: Any = "predicted_median"
    if not all(isinstance(known, str) for known in X.columns):
        name = X.shape[1]  # scikit-learn refuses names of which some are text
    while name in X.columns:
        name += "_" if isinstance(name, str) else 1
    # Not `assign`: pandas warns when a column is added to a table of more than 100 that were read one by one.
    return pd.concat([X, pd.Series(median, index=X.index)], axis=1).set_axis([*X.columns, name], axis=1)


def _power_of_two(y: FloatArray, residual: FloatArray) -> float:
    """Give the unit in which residuals are about as large as y's deviations: what a library can work with."""
    spread, left = np.mean(np.abs(y - np.median(y))), np.mean(np.abs(residual))
    return float(np.ldexp(1.0, int(np.frexp(left)[1]) - int(np.frexp(spread)[1]))) if spread > 0 < left else 1.0
