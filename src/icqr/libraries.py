"""What each model library must be told: how it takes categories and names, its precision, and where a model sits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from icqr.features import Features, FloatArray, Table, as_table


@dataclass(frozen=True)
class Library:
    """How a library wants to be treated.

    Parameters
    ----------
    categories : {"one-hot", "native", "text", "raw"}
        How it takes categorical columns: not at all, as pandas categoricals, as text named in `fit`; or "raw": the
        model gets the rows as the user gave them.
    settings : dict
        Parameters that every model of the library gets.
    single_precision : bool
        It stores y as 32-bit floats.
    safe_names : bool
        It refuses some characters in column names.
    """

    categories: str = "one-hot"
    settings: dict[str, Any] = field(default_factory=dict)
    single_precision: bool = False
    safe_names: bool = False


_LIBRARIES = {
    "HistGradientBoostingRegressor": Library("native"),
    "lightgbm": Library("native", {"verbosity": -1}, single_precision=True, safe_names=True),
    "xgboost": Library("native", {"enable_categorical": True}, single_precision=True, safe_names=True),
    # CatBoost otherwise prints a line per tree and leaves a folder behind.
    "catboost": Library("text", {"verbose": False, "allow_writing_files": False}, single_precision=True),
}


def class_names(estimator: Any) -> list[str]:
    """Give the names of a model's class and its ancestors, each with its package: "lightgbm.LGBMRegressor"."""
    return [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(estimator).__mro__]


def library_of(core: Any) -> Library:
    """Find out how a model takes its rows.

    Examples
    --------
    >>> library_of(HistGradientBoostingRegressor()).categories, library_of(LinearRegression()).categories
    ('native', 'one-hot')
    """
    for name in class_names(core):
        package, _, kind = name.partition(".")
        known = _LIBRARIES.get(package) or (_LIBRARIES.get(kind) if package == "sklearn" else None)
        if known:
            return known
    # An object of the user's own, or fitted already, knows what it was made for.
    if isinstance(core, FrozenEstimator) or not hasattr(core, "__sklearn_tags__"):
        return Library("raw")
    tags = get_tags(core).input_tags
    return Library("raw" if tags.categorical or tags.string else "one-hot")


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


def _has_pipeline(estimator: Any) -> bool:
    if isinstance(estimator, TransformedTargetRegressor):
        return _has_pipeline(estimator.regressor)
    return isinstance(estimator, Pipeline)


def seeded(estimator: Any, seed: int) -> Any:
    """Clone an estimator and set each `random_state` that is None, nested ones included."""
    estimator = clone(estimator)
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
        self.library = library_of(core)
        self.categories = "raw" if _has_pipeline(estimator) else self.library.categories
        self.in_pipeline = isinstance(estimator, Pipeline)
        # HistGradientBoosting has as many categories a column as bins.
        most = getattr(core, "max_bins", None) if self.library is _LIBRARIES["HistGradientBoostingRegressor"] else None
        self.features = Features(X, max_categories=most)

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Give the library's and these parameters, addressed to the model inside the estimator."""
        return {self.prefix + key: value for key, value in {**self.library.settings, **settings}.items()}

    def prepare(self, X: Table) -> Table:
        """Do the part of `encode` that depends on no other column, so that repeated calls are quick."""
        return X if self.categories == "raw" else self.features.transform(X)

    def encode(self, X: Table) -> Any:
        """Give the rows as the model takes them."""
        if self.categories == "raw" or not isinstance(X, pd.DataFrame):
            return X
        if self.categories == "one-hot" and self.features.categorical:
            return self.features.one_hot(X)[0]
        frame = self.features.transform_frame(X)
        if self.categories == "text":
            for name in self.features.categorical:
                frame[name] = frame[name].astype(object).where(frame[name].notna(), "").map(str)
        if self.library.safe_names and not all(str(name).replace("_", "").isalnum() for name in frame.columns):
            frame.columns = pd.Index([f"f{j}" for j in range(frame.shape[1])])
        return frame

    def fit_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Encode evaluation rows like training rows, and address parameters to the model in a pipeline."""
        params = dict(params)
        if isinstance(params.get("eval_set"), tuple | list):
            given = params["eval_set"]
            pairs = [given] if isinstance(given, tuple) else given
            params["eval_set"] = [(self.encode(as_table(X)), *rest) for X, *rest in pairs]
        if params.get("X_val") is not None:
            params["X_val"] = self.encode(as_table(params["X_val"]))
        if self.categories == "text" and self.features.categorical:
            params.setdefault("cat_features", self.features.categorical)
        if self.in_pipeline and not get_config()["enable_metadata_routing"]:
            step = self.prefix.partition("__")[0]
            return {key if "__" in key else f"{step}__{key}": value for key, value in params.items()}
        return params

    def check_target(self, y: FloatArray) -> None:
        """Raise when y has values that the library can't store."""
        limits = np.finfo(np.float32)
        largest = float(np.max(np.abs(y)))
        if self.library.single_precision and (largest > limits.max or 0 < largest < limits.tiny):
            raise ValueError(
                f"The model stores y as 32-bit floats, which hold {limits.tiny:.0e} to {limits.max:.0e}; y's largest "
                f"absolute value is {largest:.0e}. Scale y, or use HistGradientBoostingRegressor, which has 64 bits."
            )
