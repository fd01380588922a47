"""Naive, QR, CQR and ICQR as records of a file and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import get_tags

from icqr._predicting import IntervalRegressor
from icqr.artifact.calibrations import restore_calibration, store_calibration
from icqr.artifact.checking import check_predictions, store_check
from icqr.artifact.columns import check_names
from icqr.artifact.container import ArtifactError
from icqr.artifact.estimators import Packer, Unpacker, offering_to_leave_out
from icqr.artifact.groups import (
    restore_partition,
    restore_settings,
    restore_table,
    store_partition,
    store_settings,
    store_table,
)
from icqr.artifact.quantile_models import check_fitted, pack_settings, restore_encoder, store_encoder, unpack_settings
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.values import encode, encode_labels
from icqr.calibration import check_coverage, quantile_levels
from icqr.importance import PermutationImportance, median_absolute_error
from icqr.quantiles import PointModel, QuantileModel
from icqr.regressors import CQR, ICQR, QR, Naive

METHODS: dict[str, type[IntervalRegressor]] = {kind.__name__: kind for kind in (Naive, QR, CQR, ICQR)}
_IMPORTANCES = {"feature": object, "mean": float, "std": float, "share": float, "error_ratio": float}
_SELECTION = {
    "partition": str,
    "groups": int,
    "loss": float,
    "difference": float,
    "standard_error": float,
    "chosen": bool,
}
_DESCRIPTIONS = {"rule": str, "fidelity": float, "features": str}


# -- Writing ---------------------------------------------------------------------------------------------------------


def store_method(model: IntervalRegressor, parts: Parts, with_estimator: bool) -> dict[str, Any]:
    """Give a fitted method."""
    packer = Packer(parts)
    record = {
        "method": type(model).__name__,
        "parameters": _store_parameters(model, packer),
        "coverage": encode(model.coverage_, "coverage"),
        "n_columns": model.n_features_in_,
        "columns": None if model.columns_ is None else encode_labels(model.columns_, "columns"),
        "n_train": int(model.n_train_),
        "n_crossed": {name: int(n) for name, n in model.n_crossed_.items()},
        "encoder": store_encoder(model.model_.encoder_),
        "partition": store_partition(model.partition_, parts, packer),
        "importances": store_table(model.importances_) if hasattr(model, "importances_") else None,
        "descriptions": store_table(model.descriptions_),
        "calibration": store_calibration(model, parts),
        "quantiles": _store_quantiles(model, packer) if with_estimator else None,
        "check": store_check(model, parts),
    }
    if hasattr(model, "selection_"):
        record["selection"] = store_table(model.selection_)
    with offering_to_leave_out():
        return {"model": record, "scikit_learn": packer.finish()}


def _store_parameters(model: IntervalRegressor, packer: Packer) -> dict[str, Any]:
    """Give all parameters but the estimator."""
    given = model.get_params(deep=False)
    given.pop("estimator")
    stored: dict[str, Any] = {}
    if "partition" in given:
        partition = given.pop("partition")
        plain = partition is None or isinstance(partition, str)
        stored["partition"] = partition if plain else store_settings(partition, packer, "parameters/partition")
        stored["importance"] = _store_importance(given.pop("importance"))
    return {**stored, **{name: _droppable(name, value) for name, value in given.items()}}


def _droppable(name: str, value: Any) -> Any:
    """Give a parameter that has done its work; where it can't be stored, say how to do without."""
    try:
        return encode(value, name)
    except ArtifactError as error:
        path = name.replace(".", "__")
        raise ArtifactError(
            f"{error} The fitted model does not need it any more: model.set_params({path}=None) leaves it out."
        ) from error


def _store_importance(importance: Any) -> dict[str, Any] | None:
    if importance is None:
        return None
    if type(importance) is not PermutationImportance:
        raise ArtifactError(
            f"importance is of type {type(importance).__qualname__}, whose code a file can't hold. The fitted model "
            "does not need it any more: model.set_params(importance=None) leaves it out."
        )
    given = importance.get_params(deep=False)
    if given["error"] is median_absolute_error:
        given["error"] = "median_absolute_error"
    return {name: _droppable(f"importance.{name}", value) for name, value in given.items()}


def _store_quantiles(model: IntervalRegressor, packer: Packer) -> dict[str, Any]:
    """Give the fitted quantile model (`Naive`: regressor), and the estimator that it was made from."""
    inner = model.model_
    fitted = inner.models_ if isinstance(inner, QuantileModel) else [inner.model_]
    with offering_to_leave_out():
        return {
            "estimator": packer.pack(model.estimator, "estimator"),
            "settings": pack_settings(packer, inner, "model"),
            "fitted": [packer.pack(one, f"model/{i}") for i, one in enumerate(fitted)],
        }


# -- Reading ---------------------------------------------------------------------------------------------------------


def restore_method(manifest: Record, given: Any) -> IntervalRegressor:
    """Give back a fitted method; `given` is its fitted model, if the file holds none."""
    unpacker = Unpacker(manifest.optional("scikit_learn"))
    record = manifest.record("model")
    manifest.check_all_read()
    kind = METHODS[record.text("method", tuple(METHODS))]
    quantiles = record.optional("quantiles")
    _check_given(quantiles, given, kind)
    model = kind(**_restore_parameters(record.record("parameters"), kind, unpacker))
    model.coverage_ = record.value("coverage")
    with refusing(record.place):
        model._check_parameters()
        check_coverage(model.coverage_)
    _restore_columns(record, model)
    model.n_train_ = record.integer("n_train", 0)
    model.n_crossed_ = _restore_crossed(record.record("n_crossed"))
    model.partition_ = restore_partition(record.record("partition"), model.n_features_in_, unpacker)
    model.n_groups_ = int(model.partition_.n_groups_)
    model.described_ = restore_table(record.record("descriptions"), _DESCRIPTIONS, model.n_groups_)
    importances = record.optional("importances")
    if importances is not None:
        model.importances_ = restore_table(importances, _IMPORTANCES, model.n_features_in_)
    if record.has("selection"):
        model.selection_ = restore_table(record.record("selection"), _SELECTION)
    restore_calibration(record.record("calibration"), model)
    encoder = restore_encoder(record.optional("encoder"), model.n_features_in_)
    if quantiles is None:
        model.estimator, model.model_ = given, _made(model, [given])
    else:
        _restore_quantiles(quantiles, model, unpacker)
    model.model_.encoder_ = encoder
    check_predictions(record.optional("check"), model)
    record.check_all_read()
    unpacker.check_all_used()
    return model


def _check_given(quantiles: Record | None, given: Any, kind: type[IntervalRegressor]) -> None:
    if quantiles is not None and given is not None:
        raise ValueError("the file holds its fitted model; leave estimator out, as load(path)")
    asked = "predict" if kind is Naive else "predict_quantiles"
    if quantiles is None and not hasattr(given, asked):
        got = "nothing" if given is None else f"a {type(given).__qualname__}"
        raise ValueError(
            f"the file was saved without its fitted model: give it as load(path, estimator=fitted), with {asked}, "
            f"got {got}. prefit(lower=…, median=…, upper=…, levels=…) makes one from fitted models of each level."
        )


def _restore_parameters(record: Record, kind: type[IntervalRegressor], unpacker: Unpacker) -> dict[str, Any]:
    known = kind().get_params(deep=False)
    found: dict[str, Any] = {}
    if "partition" in known:
        found["partition"] = _restore_partition_parameter(record, unpacker)
        found["importance"] = _restore_importance(record.optional("importance"))
    found |= record.known(name for name in known if name not in ("estimator", "partition", "importance"))
    record.check_all_read()
    return found


def _restore_partition_parameter(record: Record, unpacker: Unpacker) -> Any:
    if record.is_none("partition"):
        return None
    if record.is_text("partition"):
        return record.text("partition", ("auto",))
    settings = record.record("partition")
    partition = restore_settings(settings, unpacker)
    settings.check_all_read()
    return partition


def _restore_importance(record: Record | None) -> PermutationImportance | None:
    if record is None:
        return None
    given = record.known(PermutationImportance().get_params())
    record.check_all_read()
    if given.get("error") == "median_absolute_error":
        given["error"] = median_absolute_error
    importance = PermutationImportance(**given)
    with refusing(record.place):
        importance.check_parameters()
        if importance.data not in ("train", "calibration"):
            raise ValueError("data must be train or calibration")
    return importance


def _restore_columns(record: Record, model: IntervalRegressor) -> None:
    model.n_features_in_ = record.integer("n_columns", 1, 2**31)
    model.columns_ = None
    if record.is_none("columns"):
        return
    model.columns_ = record.labels("columns")
    check_names(list(model.columns_), model.n_features_in_, f"{record.place}.columns")
    if all(isinstance(name, str) for name in model.columns_):
        model.feature_names_in_ = np.array(model.columns_, dtype=object)


def _restore_crossed(record: Record) -> dict[str, int]:
    found = {name: record.integer(name, 0) for name in ("train", "calibration") if record.has(name)}
    record.check_all_read()
    return found


def _restore_quantiles(record: Record, model: IntervalRegressor, unpacker: Unpacker) -> None:
    model.estimator = unpacker.unpack(record.optional("estimator"))
    settings = record.record("settings")
    fitted = [unpacker.unpack(one) for one in record.records("fitted")]
    record.check_all_read()
    made = _made(model, fitted)
    with refusing(record.place):
        made.set_params(**unpack_settings(unpacker, settings, made))
        settings.check_all_read()
        model._check_parameters()
        for one in (model, *fitted):
            if hasattr(one, "__sklearn_tags__"):
                get_tags(one)  # a library's own check of its parameters may be here
    model.model_ = made


def _made(model: IntervalRegressor, fitted: list[Any]) -> QuantileModel | PointModel:
    check_fitted(fitted)
    if isinstance(model, Naive):
        point = PointModel()
        point.model_ = fitted[0]
        return point
    quantile = QuantileModel()
    quantile.levels_ = quantile_levels(model.coverage_, model.conformity_.side)
    quantile.models_ = fitted
    return quantile
