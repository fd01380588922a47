"""Bounds: any library's quantile model behind one face, fitted once for several levels and sorted per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from icqr.features import FloatArray, IntArray, Table, as_table
from icqr.libraries import Encoder, class_names, copied, core_of

Levels: TypeAlias = Sequence[float]


# -- How each kind of model is asked for quantiles -------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """How one kind of model is asked for quantiles.

    Parameters
    ----------
    classes : tuple of str
        Class names, with the package they come from: "lightgbm.LGBMRegressor".
    settings : callable
        Parameters that make a model predict the given levels.
    joint : bool
        One model predicts all levels; otherwise one model is fitted per level.
    predict : callable
        ``predict(model, X, levels)`` asks the fitted model.
    scaled : callable
        ``scaled(settings, spread)`` fits the settings to the spread of y, where a library has an absolute tolerance.
    """

    classes: tuple[str, ...]
    settings: Callable[[Levels], dict[str, Any]]
    joint: bool = False
    predict: Callable[[Any, Any, Levels], Any] = lambda model, X, levels: model.predict(X)
    scaled: Callable[[dict[str, Any], float], dict[str, Any]] = lambda settings, spread: settings


def _multi_quantile(levels: Levels) -> dict[str, Any]:
    loss = "Quantile" if len(levels) == 1 else "MultiQuantile"
    return {"loss_function": f"{loss}:alpha={','.join(map(str, levels))}"}


def _with_delta(settings: dict[str, Any], spread: float) -> dict[str, Any]:
    # CatBoost's default of 1e-6 spoils predictions of a y that is not much larger; above, it refuses larger ones.
    return {"loss_function": f"{settings['loss_function']};delta={1e-6 * min(spread, 1.0)!r}"}


FAMILIES = (
    Family(("sklearn.HistGradientBoostingRegressor",), lambda levels: {"loss": "quantile", "quantile": levels[0]}),
    Family(("sklearn.GradientBoostingRegressor",), lambda levels: {"loss": "quantile", "alpha": levels[0]}),
    Family(("sklearn.QuantileRegressor",), lambda levels: {"quantile": levels[0]}),
    Family(("lightgbm.LGBMRegressor",), lambda levels: {"objective": "quantile", "alpha": levels[0]}),
    Family(
        ("xgboost.XGBRegressor", "xgboost.XGBRFRegressor"),
        lambda levels: {"objective": "reg:quantileerror", "quantile_alpha": np.array(levels)},
        joint=True,
    ),
    Family(("catboost.CatBoostRegressor",), _multi_quantile, joint=True, scaled=_with_delta),
    Family(
        ("quantile_forest.RandomForestQuantileRegressor", "quantile_forest.ExtraTreesQuantileRegressor"),
        lambda levels: {},
        joint=True,
        predict=lambda model, X, levels: model.predict(X, quantiles=list(levels)),
    ),
)


def find_family(core: Any, level_parameter: str | None = None) -> Family:
    """Find out how a model is asked for quantiles, or say which models can be.

    Examples
    --------
    >>> find_family(HistGradientBoostingRegressor()).settings([0.05])
    {'loss': 'quantile', 'quantile': 0.05}
    """
    if level_parameter is not None:
        _check_parameter(core, level_parameter)
        return Family((), lambda levels: {level_parameter: levels[0]})
    names = class_names(core)
    for family in FAMILIES:
        if not set(family.classes).isdisjoint(names):
            return family
    if hasattr(core, "predict_quantiles"):
        ask = lambda model, X, levels: model.predict_quantiles(X, levels)  # noqa: E731
        return Family((), lambda levels: _own_levels(core, levels), joint=True, predict=ask)
    known = ", ".join(name.partition(".")[2] for family in FAMILIES for name in family.classes)
    raise ValueError(
        f"{type(core).__name__} can't predict quantiles. Models that can: {known}; these at the end of a Pipeline or "
        "in a TransformedTargetRegressor; any object with predict_quantiles(X, levels); any model with a parameter for "
        "the level, as QuantileModel(model, level_parameter='…'); fitted models of each level, by prefit(…). For a "
        "model of the mean use Naive: it takes any regressor."
    )


def _check_parameter(core: Any, name: str) -> None:
    # Asked by setting it, not by its name alone: LightGBM and CatBoost list only what was given.
    try:
        copied(core).set_params(**{name: 0.5})
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"level_parameter={name!r} is not a parameter of {type(core).__name__}") from error


def _own_levels(core: Any, levels: Levels) -> dict[str, Any]:
    """Tell the levels to a model that has a parameter for them, as QuantileNetwork does."""
    fixed = isinstance(core, FrozenEstimator | PrefitQuantiles) or not hasattr(core, "get_params")
    return {"levels": tuple(levels)} if not fixed and "levels" in core.get_params() else {}


def _predict(model: Any, X: Any, family: Family, levels: Levels) -> FloatArray:
    """Go down to the model that predicts, through pipelines, and its predictions back through target transformers."""
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            X = X if step is None or step == "passthrough" else step.transform(X)
        return _predict(model.steps[-1][1], X, family, levels)
    if isinstance(model, TransformedTargetRegressor):
        transformed = _predict(model.regressor_, X, family, levels)
        columns = [model.transformer_.inverse_transform(column[:, None]).ravel() for column in transformed.T]
        return np.column_stack(columns)
    return _columns(family.predict(model, X, levels))


def _columns(values: Any) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


# -- The one face ----------------------------------------------------------------------------------------------------


class QuantileModel(BaseEstimator):
    """A quantile model: fit once for several levels, predict them as (n, levels), sorted in each row.

    Parameters
    ----------
    estimator : estimator, optional
        The plain estimator, for example ``LGBMRegressor(n_estimators=300)``; objective and levels are set here. By
        default scikit-learn's HistGradientBoostingRegressor.
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
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        settings = self.prepare(X, y, levels)
        rows, params = self.encoder_.encode(X), self.encoder_.fit_params(fit_params)
        self.models_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_clone)(self._given(), task, rows, y, params) for task in settings
        )
        _check_increasing(self.models_[0], y)
        return self

    def prepare(self, X: Table, y: FloatArray, levels: Levels) -> list[dict[str, Any]]:
        """Learn how rows are encoded, and give the settings of each model that must be fitted to become `models_`."""
        estimator = self._given()
        family = self._family(estimator)
        self.levels_ = tuple(float(level) for level in levels)
        _, core = core_of(estimator)
        if isinstance(core, PrefitQuantiles):
            core.check_levels(self.levels_)
        self.encoder_ = Encoder(estimator, X)
        self.encoder_.check_ranges(X, y)
        spread = 1.0 if self.encoder_.transforms_target else float(np.ptp(y)) or 1.0
        settings = [family.scaled(family.settings(task), spread) for task in self._tasks(family)]
        return [self.encoder_.settings(task) for task in settings]

    def _given(self) -> Any:
        return HistGradientBoostingRegressor() if self.estimator is None else self.estimator

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
        family = self._family(self.models_[0])
        asked = zip(self.models_, self._tasks(family), strict=True)
        raw = np.concatenate([_predict(model, rows, family, task) for model, task in asked], axis=1)
        self._check_prediction(raw, len(rows))
        crossed = np.asarray((np.diff(raw, axis=1) < 0).any(axis=1))
        return (np.sort(raw, axis=1) if crossed.any() else raw), crossed

    def _check_prediction(self, raw: FloatArray, n_rows: int) -> None:
        if raw.shape != (n_rows, len(self.levels_)):
            raise ValueError(
                f"the quantile model must predict shape {(n_rows, len(self.levels_))} for levels {self.levels_}, "
                f"got {raw.shape}"
            )
        if not np.isfinite(raw).all():
            row = int(np.argwhere(~np.isfinite(raw))[0, 0])
            raise ValueError(f"the quantile model predicts {raw[row].tolist()} for row {row}; quantiles must be finite")

    def replacer(self, X: Table) -> Replacer:
        """Prepare predictions on these rows with the values of one column in another order."""
        X = as_table(X)
        # Encoded once: what becomes of a value depends on no other row.
        rows = self.encoder_.encode(X)
        model = self.models_[0]
        knows_how = hasattr(model, "replacer") and tuple(model.levels_) == self.levels_
        quick = model.replacer(rows) if knows_how else None
        return Replacer(_Encoded(self), rows, lambda column: self.encoder_.positions(X, column), quick)


def fit_clone(estimator: Any, settings: dict[str, Any], X: Any, y: FloatArray, params: dict[str, Any]) -> Any:
    """Fit a copy of an estimator with these settings; an object without `fit` is used as it is."""
    if not hasattr(estimator, "fit"):
        return estimator
    model = copied(estimator)
    if settings:
        model.set_params(**settings)
    return model.fit(X, y, **params)


@dataclass(frozen=True)
class _Encoded:
    """A quantile model of rows that are encoded already."""

    model: QuantileModel

    def predict(self, rows: Any) -> FloatArray:
        return self.model.predict_encoded(rows)[0]


class Replacer:
    """Predictions on fixed rows with one column's values taken from other rows.

    Parameters
    ----------
    model : object with `predict`
        Gives (n, levels) quantiles.
    X : table
        The rows.
    positions : callable, optional
        Where in X a column's values are, if not at its own position: a category has several columns when one-hot.
    quick : object with `replace`, optional
        The model's own, quicker way to predict with a single column replaced, as QuantileNetwork has it:
        ``replace(column, values)`` gives (R, n, levels) predictions, not sorted.
    """

    def __init__(
        self, model: Any, X: Any, positions: Callable[[int], IntArray] | None = None, quick: Any = None
    ) -> None:
        self.model = model
        self.rows = X
        self.positions = positions or (lambda column: np.array([column]))
        self.quick = quick

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Give (R, n, levels) predictions, the column's values in the orders (R, n)."""
        positions = self.positions(column)
        if self.quick is not None and len(positions) == 1:
            values = np.asarray(self.rows, dtype=np.float64)[:, positions[0]]
            return np.sort(self.quick.replace(int(positions[0]), values[orders]), axis=2)
        return np.stack([self.model.predict(self._replaced(positions, order)) for order in orders])

    def _replaced(self, positions: IntArray, order: IntArray) -> Any:
        if isinstance(self.rows, pd.DataFrame):
            frame = self.rows.copy(deep=False)
            for j in positions:
                frame.isetitem(j, self.rows.iloc[:, j].array.take(order))
            return frame
        copy = self.rows.copy()
        copy[:, positions] = copy[np.ix_(order, positions)]
        return copy


def _check_increasing(model: Any, y: FloatArray) -> None:
    """Refuse a transformation of the target that decreases anywhere: it would turn the levels around."""
    transformed = _transformed(model, np.sort(y)[:, None]).ravel()
    rounding = 1e-9 * np.abs(transformed[1:]) + 1e-12 * np.ptp(transformed)
    if np.any(np.diff(transformed) < -rounding):
        raise ValueError(
            "the TransformedTargetRegressor's function decreases, which turns the quantile levels around; "
            "use an increasing one"
        )


def _transformed(model: Any, y: FloatArray) -> FloatArray:
    """Give targets as the model that predicts sees them, through all target transformers."""
    if isinstance(model, Pipeline):
        return _transformed(model.steps[-1][1], y)
    if isinstance(model, TransformedTargetRegressor):
        return _transformed(model.regressor_, np.asarray(model.transformer_.transform(y)).reshape(-1, 1))
    return y


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
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        settings = self.prepare(X, y)
        rows, params = self.encoder_.encode(X), self.encoder_.fit_params(fit_params)
        self.model_ = fit_clone(self._given(), settings, rows, y, params)
        return self

    def prepare(self, X: Table, y: FloatArray) -> dict[str, Any]:
        """Learn how rows are encoded, and give the settings of the model that must be fitted to become `model_`."""
        self.encoder_ = Encoder(self._given(), X)
        self.encoder_.check_ranges(X, y, point=True)
        return {} if isinstance(self._given(), FrozenEstimator) else self.encoder_.settings({})

    def _given(self) -> Any:
        return HistGradientBoostingRegressor() if self.estimator is None else self.estimator

    def predict(self, X: Table) -> FloatArray:
        """Give the regressor's predictions."""
        X = as_table(X)
        values = np.asarray(self.model_.predict(self.encoder_.encode(X)), dtype=np.float64).reshape(len(X), -1)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise ValueError(f"the regressor must predict one finite number per row, got shape {values.shape}")
        return values[:, 0]


# -- Models that are fitted already ----------------------------------------------------------------------------------


class PrefitQuantiles(BaseEstimator):
    """Fitted models for given levels, behind `predict_quantiles`; made by `prefit`.

    Parameters
    ----------
    models : tuple
        Fitted estimators or callables, as FrozenEstimator, so that cloning keeps them; in the order of `levels`.
    levels : tuple of float
        The level that each of them predicts.
    """

    def __init__(self, models: tuple[Any, ...], levels: tuple[float, ...]) -> None:
        self.models = models
        self.levels = levels

    def fit(self, X: Any, y: Any) -> Self:
        """Do nothing: the models are fitted."""
        return self

    def predict_quantiles(self, X: Any, levels: Levels) -> FloatArray:
        """Give (n, levels) predictions of the models of these levels."""
        columns = []
        for level in levels:
            model = self.models[self._index(level)].estimator
            columns.append(_columns(model.predict(X) if hasattr(model, "predict") else model(X)))
        return np.concatenate(columns, axis=1)

    def __sklearn_tags__(self) -> Any:
        # The models get the rows as they came: they were made for them.
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def check_levels(self, levels: Levels) -> None:
        """Raise unless there is a model for each of these levels."""
        for level in levels:
            self._index(level)

    def _index(self, level: float) -> int:
        near = np.flatnonzero(np.isclose(self.levels, level, rtol=0, atol=1e-9))
        if len(near) == 0:
            raise ValueError(
                f"the coverage and side asked for need a model of level {level:g}, but the fitted models have levels "
                f"{tuple(self.levels)}. Give a model of that level, or ask for the coverage the models were fitted for."
            )
        return int(near[0])


def prefit(*, lower: Any = None, median: Any = None, upper: Any = None, levels: Levels) -> PrefitQuantiles:
    """Use models that are fitted already as a quantile model.

    The rows given to ``fit`` of a method are then taken as rows that the models have not seen: `ICQR` uses one part for
    the partition and the rest for calibration, `CQR` calibrates on all (on `calibration_size` of them with a scaled
    conformity score, whose scale is learned from the others). **Don't give the rows the models were trained on**: their
    scores are too small, and the intervals would be too narrow. (`Naive` takes a fitted regressor as scikit-learn's
    ``FrozenEstimator(model)``.)

    Parameters
    ----------
    lower, median, upper : fitted estimator or callable
        Models of the lower bound, the median and the upper bound. A one-sided interval needs its own bound and the
        median.
    levels : sequence of float
        The level of each model given, in the order lower, median, upper. They are checked against the coverage.

    Examples
    --------
    >>> from icqr import CQR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 1)); y = X.ravel() + rng.normal(size=200)
    >>> bounds = prefit(
    ...     lower=lambda X: X[:, 0] - 1, median=lambda X: X[:, 0], upper=lambda X: X[:, 0] + 1, levels=(0.05, 0.5, 0.95)
    ... )
    >>> CQR(bounds, coverage=0.9).fit(X, y).predict_interval(X).shape
    (200, 2)
    """
    given = [model for model in (lower, median, upper) if model is not None]
    if not given or len(given) != len(levels):
        raise ValueError(f"levels must have one level for each of the {len(given)} models given, got {tuple(levels)}")
    if any(low >= high for low, high in pairwise([0.0, *levels, 1.0])):
        raise ValueError(
            f"levels must grow from lower to upper, strictly between 0 and 1, got {tuple(levels)}; for 90 % coverage "
            "they are (0.05, 0.5, 0.95)"
        )
    return PrefitQuantiles(tuple(_frozen(model) for model in given), tuple(float(level) for level in levels))


def _frozen(model: Any) -> FrozenEstimator:
    if not hasattr(model, "predict") and not callable(model):
        raise ValueError(f"a prefit model must have predict(X) or be callable, got {type(model).__name__}")
    if hasattr(model, "fit") and hasattr(model, "predict"):
        check_is_fitted(model)
    return FrozenEstimator(model)


def is_prefit(estimator: Any) -> bool:
    """Tell whether fitting leaves this model as it is."""
    if isinstance(estimator, QuantileModel):
        estimator = estimator.estimator
    if estimator is None:
        return False
    return isinstance(estimator, PrefitQuantiles | FrozenEstimator) or not hasattr(estimator, "fit")
