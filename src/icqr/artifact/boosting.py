"""Boosted trees of each library: in the library's own format, those of scikit-learn as plain arrays."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr._messages import imported
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.trees import restore_boosting, store_boosting
from icqr.artifact.values import encode, encode_parameters

#: Columns × categories of the rows that scikit-learn is shown, at most: more is no sound model.
MOST_VALUES = 10_000_000
MOST_THREADS = 4096


def _library(name: str) -> Any:
    return imported(name, "the file holds a model that needs", name)


# -- scikit-learn's HistGradientBoostingRegressor --------------------------------------------------------------------


def store_histogram(parts: Parts, model: HistGradientBoostingRegressor, place: str) -> dict[str, Any]:
    """Give a model, fitted or not."""
    record = {"parameters": encode_parameters(model, place), "fitted": None}
    if not hasattr(model, "_predictors"):
        return record
    encoder = _encoder(model)
    fitted = {
        "n_features": model.n_features_in_,
        "names": model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None,
        "categorical": [] if encoder is None else np.flatnonzero(model.is_categorical_).tolist(),
        "categories": [] if encoder is None else encode(_categories(encoder), f"{place}.categories"),
        "trees": store_boosting(model, parts, place),
    }
    return {**record, "fitted": fitted}


def _encoder(model: HistGradientBoostingRegressor) -> Any:
    """Give what turns categories into numbers, None if there are no categories."""
    return None if model._preprocessor is None else model._preprocessor.named_transformers_["encoder"]


def _categories(encoder: Any) -> list[list[Any]]:
    return [values.tolist() for values in encoder.categories_]


def restore_histogram(record: Record) -> HistGradientBoostingRegressor:
    """Give the model back.

    scikit-learn makes all that surrounds the trees itself, by fitting rows with the same columns and categories.
    """
    parameters = record.values("parameters")
    fitted = record.optional("fitted")
    with refusing(record.place):
        model = HistGradientBoostingRegressor(**parameters)
    if fitted is None:
        return model
    n_features = fitted.integer("n_features", 1, 2**31)
    names, categorical, categories = (fitted.value(name) for name in ("names", "categorical", "categories"))
    with refusing(fitted.place):
        rows = _rows_with(n_features, names, dict(zip(categorical, categories, strict=True)))
        needed = {name: parameters[name] for name in ("loss", "quantile", "categorical_features", "max_bins")}
        model = HistGradientBoostingRegressor(**needed, max_iter=1, early_stopping=False).fit(rows, np.ones(len(rows)))
        model.set_params(**parameters)
        encoder = _encoder(model)
        # As text, in which NaN equals NaN and 1 is not 1.0.
        if repr([] if encoder is None else _categories(encoder)) != repr(categories):
            raise ValueError("no model of scikit-learn has these categories")
    restore_boosting(fitted.record("trees"), model)
    fitted.check_all_read()
    return model


def _rows_with(n_features: int, names: list[str] | None, categories: dict[int, list[Any]]) -> Any:
    """Give rows in which each category appears, as a table or (without names and categories) as an array."""
    n_rows = max([2, *(len(values) for values in categories.values())])
    if n_rows * n_features > MOST_VALUES:
        raise ValueError("it has too many columns and categories")
    if names is None and not categories:
        return np.zeros((n_rows, n_features))
    columns = [
        pd.Series(pd.Categorical(np.resize(np.array(categories[j], dtype=object), n_rows)))
        if j in categories
        else pd.Series(np.zeros(n_rows))
        for j in range(n_features)
    ]
    return pd.concat(columns, axis=1).set_axis(names or range(n_features), axis=1)


# -- LightGBM, XGBoost, CatBoost -------------------------------------------------------------------------------------


def store_lightgbm(parts: Parts, model: Any, place: str) -> dict[str, Any]:
    """Give a model, fitted or not, as LightGBM's text."""
    record = {"parameters": encode_parameters(model, place), "named": False, "booster": None}
    if not model.__sklearn_is_fitted__():
        return record
    text = model.booster_.model_to_string().encode()
    record["named"] = bool(getattr(model, "_fitted_with_feature_names", False))
    return {**record, "booster": parts.add(f"{place}.lightgbm.txt", text, format="lightgbm-text")}


def restore_lightgbm(record: Record) -> Any:
    """Give the model back."""
    lightgbm = _library("lightgbm")
    parameters = record.values("parameters")
    with refusing(record.place):
        _check_threads(parameters)
        model = lightgbm.LGBMRegressor(**parameters)
    named = record.flag("named")
    if record.is_none("booster"):
        return model
    data = record.blob("booster", "lightgbm-text")
    with refusing(record.place):
        text = data.decode()
        if "\nend of parameters\n" not in text:  # on which LightGBM would crash
            raise ValueError("the text is cut off")
        booster = lightgbm.Booster(model_str=text)
        # What its own `fit` sets, and all that `predict` needs.
        model._Booster, model.fitted_ = booster, True
        model._n_features = model._n_features_in = booster.num_feature()
        model._fitted_with_feature_names = named
    return model


def _check_threads(parameters: dict[str, Any]) -> None:
    """Raise if more threads are asked for than any machine has: LightGBM ends the process when it can't start them."""
    for name in ("n_jobs", "n_threads", "nthread", "nthreads", "num_thread", "num_threads"):
        asked = parameters.get(name)
        if asked is not None and (type(asked) is not int or abs(asked) > MOST_THREADS):
            raise ValueError(f"{name} must be a whole number up to {MOST_THREADS}")


def store_xgboost(parts: Parts, model: Any, place: str) -> dict[str, Any]:
    """Give a model, fitted or not, as XGBoost's UBJSON."""
    record = {"class": type(model).__name__, "parameters": encode_parameters(model, place), "booster": None}
    if not model.__sklearn_is_fitted__():
        return record
    data = bytes(model.get_booster().save_raw("ubj"))
    return {**record, "booster": parts.add(f"{place}.xgboost.ubj", data, format="xgboost-ubj")}


def restore_xgboost(record: Record) -> Any:
    """Give the model back."""
    kind = getattr(_library("xgboost"), record.text("class", ("XGBRegressor", "XGBRFRegressor")))
    parameters = record.values("parameters")
    with refusing(record.place):
        model = kind(**parameters)
    if record.is_none("booster"):
        return model
    data = record.blob("booster", "xgboost-ubj")
    with refusing(record.place):
        model.load_model(bytearray(data))
        model.set_params(**parameters)  # loading has changed some
    return model


def store_catboost(parts: Parts, model: Any, place: str) -> dict[str, Any]:
    """Give a model, fitted or not, as CatBoost's cbm."""
    record = {"parameters": encode_parameters(model, place), "booster": None}
    if not model.is_fitted():
        return record
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.cbm")
        model.save_model(file, format="cbm")
        data = file.read_bytes()
    return {**record, "booster": parts.add(f"{place}.catboost.cbm", data, format="catboost-cbm")}


def restore_catboost(record: Record) -> Any:
    """Give the model back."""
    catboost = _library("catboost")
    with refusing(record.place):
        model = catboost.CatBoostRegressor(**record.values("parameters"))
    if record.is_none("booster"):
        return model
    data = record.blob("booster", "catboost-cbm")
    with refusing(record.place):
        model.load_model(blob=data)
    return model
