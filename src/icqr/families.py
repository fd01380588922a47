"""How each kind of model is asked for quantiles, also in pipelines, and models that are fitted already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from icqr._libraries import class_names, copied
from icqr._tables import FloatArray

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
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> find_family(HistGradientBoostingRegressor()).settings([0.05])
    {'loss': 'quantile', 'quantile': 0.05}
    """
    if level_parameter is not None:
        return Family((), lambda levels: {level_parameter: levels[0]})
    names = set(class_names(core))
    for family in FAMILIES:
        if not names.isdisjoint(family.classes):
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


def check_level_parameter(core: Any, name: str) -> None:
    """Raise unless the model has this parameter."""
    # Asked by setting it, not by its name alone: LightGBM and CatBoost list only what was given.
    try:
        copied(core).set_params(**{name: 0.5})
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"level_parameter={name!r} is not a parameter of {type(core).__name__}") from error


def _own_levels(core: Any, levels: Levels) -> dict[str, Any]:
    """Tell the levels to a model that has a parameter for them, as QuantileNetwork does."""
    fixed = isinstance(core, FrozenEstimator | PrefitQuantiles) or not hasattr(core, "get_params")
    return {"levels": tuple(levels)} if not fixed and "levels" in core.get_params() else {}


def ask(model: Any, X: Any, family: Family, levels: Levels) -> FloatArray:
    """Go down to the model that predicts, through pipelines, and its predictions back through target transformers."""
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            X = X if step is None or step == "passthrough" else step.transform(X)
        return ask(model.steps[-1][1], X, family, levels)
    if isinstance(model, TransformedTargetRegressor):
        transformed = ask(model.regressor_, X, family, levels)
        columns = [model.transformer_.inverse_transform(column[:, None]).ravel() for column in transformed.T]
        return np.column_stack(columns)
    return _columns(family.predict(model, X, levels))


def _columns(values: Any) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def check_increasing(model: Any, y: FloatArray) -> None:
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
            _check_order(model, X)
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


def _check_order(model: Any, X: Any) -> None:
    """Raise if rows have the model's columns in another order, which LightGBM would not notice."""
    known, names = (
        np.asarray(given, dtype=object).tolist()
        for given in (getattr(model, "feature_names_in_", ()), getattr(X, "columns", ()))
    )
    if known != names and sorted(map(str, known)) == sorted(map(str, names)):
        raise ValueError(
            f"X must have the columns that the fitted model knows, in the same order: {known}, got {names}. Select "
            "them by name, in that order."
        )


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
