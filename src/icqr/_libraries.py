"""What each model library must be told: how it takes categories and names, its precision, and where a model sits."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from icqr._tables import Features, FloatArray, IntArray, Table, as_table, plain_numbers


@dataclass(frozen=True)
class Range:
    """The sizes of numbers that a library can work with: a largest absolute value must be 0 or lie in between.

    Numbers that it stores as 32-bit floats (`single`) also lose digits, which matters if they differ by little.

    Examples
    --------
    >>> Range(1e-37, 1e38, "stores 32-bit floats").holds(np.array([0, 1, 1e300]))
    array([ True,  True, False])
    """

    smallest: float = 0.0
    largest: float = math.inf
    why: str = ""
    single: bool = False

    def holds(self, size: Any) -> Any:
        """Tell whether numbers of this size can be worked with."""
        return (size == 0) | ((self.smallest <= size) & (size <= self.largest))


ANY = Range()
# A margin for sums over rows: XGBoost and CatBoost fail near the ends of what 32-bit floats hold.
SINGLE_Y = Range(1e-25, 1e35, "stores y as 32-bit floats", single=True)
SINGLE_X = Range(1e-37, 3e38, "stores columns as 32-bit floats")
SQUARED_Y = Range(1e-150, 1e150, "squares y")
#: The step between values that a library can tell apart, relative to y's mean distance from its median, is at most so
#: large without a warning.
_MOST_STEP = 0.1


@dataclass(frozen=True)
class Library:
    """How a library wants to be treated.

    Parameters
    ----------
    categories : {"one-hot", "native", "text", "raw"}
        How it takes categorical columns: not at all, as pandas categoricals, as text named by `cat_features`; or "raw":
        the model gets the rows as the user gave them.
    settings : dict
        Parameters that every model of the library gets.
    quiet : dict
        Parameters that it gets unless the user has set them; each key lists the spellings the library knows.
    forbidden : str
        Characters that it refuses (or replaces) in column names.
    most_categories : str, optional
        The parameter that limits a column's number of categories.
    categorical : str, optional
        The parameter that names the categorical columns.
    X, y, point_y : Range
        Sizes of columns and of y that its quantile models, and its models of the mean, can work with.
    """

    categories: str = "one-hot"
    settings: dict[str, Any] = field(default_factory=dict)
    quiet: dict[tuple[str, ...], Any] = field(default_factory=dict)
    forbidden: str = ""
    most_categories: str | None = None
    categorical: str | None = None
    X: Range = ANY
    y: Range = ANY
    point_y: Range = ANY


_TREES = Library(X=SINGLE_X, point_y=SQUARED_Y)
_LIBRARIES = {
    "sklearn.HistGradientBoostingRegressor": Library(
        "native",
        most_categories="max_bins",
        categorical="categorical_features",
        X=Range(0, 1e300, "cuts columns off at 1e300"),
        point_y=Range(1e-35, 1e35, "has 32-bit gradients"),
    ),
    "sklearn.BaseGradientBoosting": _TREES,
    "sklearn.BaseForest": _TREES,
    "sklearn.BaseDecisionTree": _TREES,
    "sklearn.QuantileRegressor": Library(
        X=Range(1e-9, 1e15, "solves a linear programme with absolute tolerances"),
        y=Range(1e-6, 1e15, "solves a linear programme with absolute tolerances"),
    ),
    "lightgbm": Library(
        "native",
        quiet={("verbosity", "verbose"): -1},
        forbidden='[]{}",:',
        X=Range(1e-35, math.inf, "takes smaller values for 0"),
        y=replace(SINGLE_Y, smallest=1e-13, why=f"{SINGLE_Y.why} (and takes means below 1e-15 for 0)"),
        point_y=SINGLE_Y,
    ),
    "xgboost": Library(
        "native", {"enable_categorical": True}, forbidden="[]<", X=SINGLE_X, y=SINGLE_Y, point_y=SINGLE_Y
    ),
    # CatBoost otherwise prints a line per tree and leaves a folder behind.
    "catboost": Library(
        "text",
        quiet={("verbose", "silent", "logging_level"): False, ("allow_writing_files",): False},
        categorical="cat_features",
        X=SINGLE_X,
        y=SINGLE_Y,
        point_y=SINGLE_Y,
    ),
}


def class_names(estimator: Any) -> list[str]:
    """Give the names of a model's class and its ancestors, each with its package: "lightgbm.LGBMRegressor"."""
    return [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(estimator).__mro__]


def library_of(core: Any) -> Library:
    """Find out how a model takes its rows.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> library_of(HistGradientBoostingRegressor()).categories, library_of(LinearRegression()).categories
    ('native', 'one-hot')
    """
    for name in class_names(core):
        known = _LIBRARIES.get(name) or _LIBRARIES.get(name.partition(".")[0])
        if known:
            return known
    # An object of the user's own, or fitted already, knows what it was made for.
    if isinstance(core, FrozenEstimator) or not hasattr(core, "__sklearn_tags__"):
        return Library("raw")
    tags = get_tags(core).input_tags
    raw = tags.categorical or tags.string or _holds_pipeline(core)
    return Library("raw" if raw else "one-hot", point_y=SQUARED_Y)


def _holds_pipeline(core: Any) -> bool:
    """Tell whether a model of models (a search, an ensemble) has its own steps that prepare the rows."""
    return any(isinstance(value, Pipeline | ColumnTransformer) for value in core.get_params(deep=True).values())


def prepares_rows(estimator: Any) -> bool:
    """Tell whether rows are brought into a form that the model takes; pipelines and others get them as they came.

    Examples
    --------
    >>> prepares_rows(LinearRegression()), prepares_rows(Pipeline([("model", LinearRegression())]))
    (True, False)
    """
    return _step_prefix(estimator) is None and library_of(core_of(estimator)[1]).categories != "raw"


# -- Models inside models --------------------------------------------------------------------------------------------


def core_of(estimator: Any) -> tuple[str, Any]:
    """Find the model that predicts inside pipelines and target transformers, and the prefix of its parameters.

    Examples
    --------
    >>> core_of(Pipeline([("scale", None), ("model", LinearRegression())]))
    ('model__', LinearRegression())
    """
    if isinstance(estimator, Pipeline):
        name, step = estimator.steps[-1]
        prefix, core = core_of(step)
        return f"{name}__{prefix}", core
    if isinstance(estimator, TransformedTargetRegressor):
        prefix, core = core_of(LinearRegression() if estimator.regressor is None else estimator.regressor)
        return f"regressor__{prefix}", core
    return "", estimator


def _step_prefix(estimator: Any) -> str | None:
    """Give the prefix of fit parameters for the model in a pipeline, or None where there is no pipeline."""
    if isinstance(estimator, TransformedTargetRegressor):
        return _step_prefix(estimator.regressor)
    if not isinstance(estimator, Pipeline):
        return None
    name, step = estimator.steps[-1]
    return f"{name}__{_step_prefix(step) or ''}"


def _transforms_target(estimator: Any) -> bool:
    step = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else None
    return isinstance(estimator, TransformedTargetRegressor) or (step is not None and _transforms_target(step))


def copied(estimator: Any) -> Any:
    """Give an unfitted copy of an estimator; of any other object, a copy as it is."""
    parts = {"": estimator, **(estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {})}
    # CatBoost copies a list that it was given, and scikit-learn then refuses to clone it.
    with_lists = [
        name
        for name, part in parts.items()
        if "catboost.CatBoost" in class_names(part)
        and any(isinstance(value, list | np.ndarray) for value in part.get_params().values())
        and not isinstance(parts.get(name.rpartition("__")[0]), FrozenEstimator)
    ]
    if with_lists == [""]:
        estimator = _with_tuples(estimator)
    elif with_lists:
        estimator = copy.deepcopy(estimator).set_params(**{name: _with_tuples(parts[name]) for name in with_lists})
    return clone(estimator, safe=False)


def _with_tuples(model: Any) -> Any:
    """Give a model, not fitted, that has tuples in place of lists."""
    given = model.get_params()
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list | np.ndarray)}
    return type(model)(**{**given, **lists})


def seeded(estimator: Any, seed: int) -> Any:
    """Clone an estimator and set each `random_state` that is None, nested ones included."""
    estimator = copied(estimator)
    if isinstance(estimator, FrozenEstimator) or not hasattr(estimator, "get_params"):
        return estimator
    unset = {
        key: seed
        for key, value in estimator.get_params(deep=True).items()
        if (key == "random_state" or key.endswith("__random_state")) and value is None
    }
    return estimator.set_params(**unset)


# -- Rows as the library takes them ----------------------------------------------------------------------------------


class Encoder:
    """Brings rows into the form that a model takes, the same for training and new rows.

    A pipeline gets the rows as they came: preparing them is its own first steps' work.

    Parameters
    ----------
    estimator : estimator
        The model, perhaps inside a pipeline or a target transformer.
    X : table
        Training rows.
    """

    def __init__(self, estimator: Any, X: Table) -> None:
        self.prefix, core = core_of(estimator)
        self.step_prefix = _step_prefix(estimator)
        self.transforms_target = _transforms_target(estimator)
        self.library = library_of(core)
        self.features: Features | None = None
        if prepares_rows(estimator):
            most = getattr(core, self.library.most_categories or "", None)
            self.features = Features(self._with_categories(X, core), max_categories=most)
        # CatBoost prefers `objective` to `loss_function` where it has both.
        self.synonyms = {"loss_function": "objective"} if "objective" in self._params(core) else {}
        self.own_settings = {**self.library.settings, **self._quiet(core), **self._categorical()}

    def _params(self, core: Any) -> dict[str, Any]:
        """Give the parameters that the user has set, of a library where this matters."""
        return dict(core.get_params()) if self.library.quiet or self.library.categorical else {}

    def _quiet(self, core: Any) -> dict[str, Any]:
        given = self._params(core)
        return {
            names[0]: value for names, value in self.library.quiet.items() if all(given.get(n) is None for n in names)
        }

    def _with_categories(self, X: Table, core: Any) -> Table:
        """Make categories of the columns that the user tells the library to take as such."""
        parameter = self.library.categorical
        given = self._params(core).get(parameter or "")
        if given is None or isinstance(given, str) or not isinstance(X, pd.DataFrame):  # "from_dtype" is a text
            return X
        asked = _places(given, list(X.columns), f"{parameter}={given!r}")
        return X.astype({X.columns[j]: "category" for j in asked})

    def _categorical(self) -> dict[str, Any]:
        """Tell the library all categorical columns: those that the user has named, and text."""
        if self.library.categorical is None or self.features is None or not self.features.categorical:
            return {}
        names = self.features.names or []
        by_type = self.library.categories == "native"  # encoded columns have the type that it looks for
        # A tuple, see `copied`.
        places = tuple(names.index(column) for column in self.features.categorical)
        return {self.library.categorical: "from_dtype" if by_type else places}

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Give the library's and these parameters, addressed to the model inside the estimator."""
        everything = {**self.own_settings, **settings}
        return {self.prefix + self.synonyms.get(key, key): value for key, value in everything.items()}

    def encode(self, X: Table) -> Any:
        """Give the rows as the model takes them."""
        if self.features is None:
            return X
        rows = self.features.transform(X)
        _check_columns(rows, Range(0, self.library.X.largest, self.library.X.why))
        if not isinstance(rows, pd.DataFrame):
            return rows
        if self._is_one_hot():
            return self.features.one_hot(rows)[0]
        for name, categories in self.features.categories.items():
            rows[name] = _encoded(rows[name], categories, self.library.categories)
        if not self._takes_names():
            rows = rows.set_axis([f"f{j}" for j in range(rows.shape[1])], axis=1)
        return rows

    def positions(self, X: Table, column: int) -> IntArray:
        """Give the positions that a column of these rows has after encoding."""
        if self.features is None or not self._is_one_hot():
            return np.array([column])
        return np.flatnonzero(self.features.origins() == column)

    def _is_one_hot(self) -> bool:
        return self.features is not None and self.library.categories == "one-hot" and bool(self.features.categorical)

    def _takes_names(self) -> bool:
        forbidden, names = set(self.library.forbidden), (self.features.names if self.features else None) or []
        # LightGBM takes a number for a position, and "a b" for "a_b".
        taken = {name.replace(" ", "_") for name in names if isinstance(name, str) and forbidden.isdisjoint(name)}
        return not forbidden or len(taken) == len(names)

    def fit_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Encode evaluation rows like training rows, and address parameters to the model in a pipeline."""
        params = dict(params)
        if isinstance(params.get("eval_set"), tuple | list):
            given = params["eval_set"]
            pairs = [given] if isinstance(given, tuple) else given
            params["eval_set"] = [(self.encode(as_table(X)), *rest) for X, *rest in pairs]
        for name in ("X_val", "eval_X"):  # scikit-learn's and LightGBM's names
            if params.get(name) is not None:
                params[name] = self._encode_all(params[name])
        self._join_categories(params)
        if self.step_prefix is not None and not get_config()["enable_metadata_routing"]:
            return {key if "__" in key else self.step_prefix + key: value for key, value in params.items()}
        return params

    def _join_categories(self, params: dict[str, Any]) -> None:
        """Join the columns that the user names as categories with the text columns, which are so anyway."""
        names, known = (self.features.names, self.features.categorical) if self.features else (None, [])
        if isinstance(params.get("categorical_feature"), list | tuple) and names is not None:  # LightGBM's
            asked = _places(params["categorical_feature"], names, "categorical_feature")
            params["categorical_feature"] = sorted({*asked, *map(names.index, known)})
        if params.get("cat_features") is not None and "cat_features" in self.own_settings:  # CatBoost's
            asked = _places(params.pop("cat_features"), names or [], "cat_features")
            others = set(asked) - set(self.own_settings["cat_features"])
            if others:
                raise ValueError(
                    f"cat_features: fit got columns besides the text columns, at the positions {sorted(others)}; give "
                    "cat_features to CatBoostRegressor(…) itself"
                )

    def _encode_all(self, X: Any) -> Any:
        return tuple(self.encode(as_table(part)) for part in X) if isinstance(X, tuple) else self.encode(as_table(X))

    def check_ranges(self, X: Table, y: FloatArray, point: bool = False) -> None:
        """Raise when training rows have values that the library can't work with; y as the user gave it."""
        if self.features is not None:
            _check_columns(self.features.transform(X), self.library.X)
        if not self.transforms_target:
            _check_target(y, self.library.point_y if point else self.library.y)


def _places(columns: Any, names: list[Any], parameter: str) -> list[int]:
    """Give the positions of columns that a library's parameter names, numbers by position or marks by True.

    Examples
    --------
    >>> _places(["b", 0], ["a", "b"], "cat_features"), _places([True, False], ["a", "b"], "categorical_features")
    ([0, 1], [0])
    """
    given = list(columns)
    if len(given) == len(names) and all(isinstance(mark, bool | np.bool_) for mark in given):
        return np.flatnonzero(given).tolist()
    for column in given:
        if column not in names if isinstance(column, str) else not -len(names) <= column < len(names):
            raise ValueError(
                f"{parameter}: there is no column {column!r} to take as a category; columns are {names}, or positions "
                f"from 0 to {len(names) - 1}"
            )
    return sorted({names.index(column) if isinstance(column, str) else column % len(names) for column in given})


def _encoded(column: pd.Series[Any], categories: pd.Index[Any], how: str) -> pd.Series[Any]:
    """Give a categorical column as text, or with whole numbers for categories: no library refuses these."""
    codes = column.cat.codes.to_numpy()
    if how == "text":
        return pd.Series(np.array([*map(str, categories), ""], dtype=object)[codes], index=column.index, dtype=object)
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.RangeIndex(len(categories))), index=column.index)


def _check_columns(X: Table, allowed: Range) -> None:
    if allowed.smallest == 0 and math.isinf(allowed.largest):
        return
    if isinstance(X, pd.DataFrame):
        plain = plain_numbers(X)
        numbers = X.select_dtypes("number") if plain is None else X
        names = list[Any](numbers.columns)
        values = numbers.to_numpy(dtype=np.float64) if plain is None else plain
    else:
        names, values = list[Any](range(X.shape[1])), X
    sizes = np.fmax(np.fmax.reduce(values, axis=0, initial=0.0), -np.fmin.reduce(values, axis=0, initial=0.0))
    for j in np.flatnonzero(~allowed.holds(sizes)):
        raise _refusal(f"column {names[j]!r}", sizes[j], allowed)


def _check_target(y: FloatArray, allowed: Range) -> None:
    size = np.max(np.abs(y))
    if not allowed.holds(size):
        raise _refusal("y", size, allowed)
    if allowed.single:
        _warn_of_lost_digits(y, float(np.spacing(np.float32(size))))


def _warn_of_lost_digits(y: FloatArray, step: float) -> None:
    spread = np.mean(np.abs(y - np.median(y)))
    if step > _MOST_STEP * spread > 0:
        warnings.warn(
            f"The model's library stores y as 32-bit floats, which are {step:g} apart where y is, while y differs from "
            f"its median by {spread:.1g} on average: intervals will be too wide. Subtract a constant from y, or use a "
            "quantile model on HistGradientBoostingRegressor, which has 64 bits.",
            UserWarning,
            stacklevel=2,
        )


def _refusal(what: str, size: float, allowed: Range) -> ValueError:
    return ValueError(
        f"The model's library {allowed.why} and works with absolute values from {allowed.smallest:g} to "
        f"{allowed.largest:g}; the largest absolute value of {what} is {size:.1e}. Scale {what}, or use a quantile "
        "model on HistGradientBoostingRegressor, which has 64 bits."
    )
