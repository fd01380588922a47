"""Fitted quantile models with how they take their rows, and models made of several of them, as records and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icqr._libraries import Encoder, Library, Range
from icqr.artifact.columns import check_names, restore_features, store_features
from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Record
from icqr.artifact.values import encode
from icqr.quantiles import MEDIAN, QuantileModel, ResidualQuantiles

if TYPE_CHECKING:
    from icqr.artifact.estimators import Packer, Unpacker

_CATEGORIES = ("one-hot", "native", "text")


# -- How a model takes its rows --------------------------------------------------------------------------------------


def store_encoder(encoder: Encoder) -> dict[str, Any] | None:
    """Give how rows are brought into the form that the model takes; None if it takes them as they come."""
    if encoder.features is None:
        return None
    return {
        "features": store_features(encoder.features, "columns"),
        "categories": encoder.library.categories,
        "forbidden": encoder.library.forbidden,
        "largest": encode(encoder.library.X.largest, "largest"),
        "why": encoder.library.X.why,
    }


def restore_encoder(record: Record | None, n_columns: int) -> Encoder:
    """Give back how rows of so many columns are encoded."""
    encoder = Encoder.__new__(Encoder)
    encoder.features, encoder.library = None, Library("raw")
    # Of use in fitting alone, which makes a new encoder.
    encoder.prefix, encoder.step_prefix, encoder.transforms_target = "", None, False
    encoder.synonyms, encoder.own_settings = {}, {}
    if record is not None:
        encoder.features = restore_features(record.record("features"), n_columns)
        encoder.library = Library(
            categories=record.text("categories", _CATEGORIES),
            forbidden=record.text("forbidden"),
            X=Range(largest=record.number("largest"), why=record.text("why")),
        )
        record.check_all_read()
    return encoder


# -- Settings -------------------------------------------------------------------------------------------------------


def pack_settings(packer: Packer, model: Any, place: str) -> dict[str, Any]:
    """Give the parameters of a QuantileModel or a PointModel: an estimator, and plain values."""
    given = model.get_params(deep=False)
    estimator = packer.pack(given.pop("estimator"), f"{place}/estimator")
    return {"estimator": estimator, **{name: encode(value, f"{place}.{name}") for name, value in given.items()}}


def unpack_settings(unpacker: Unpacker, record: Record, like: Any) -> dict[str, Any]:
    """Give back the parameters of a model like this."""
    given = {"estimator": unpacker.unpack(record.optional("estimator"))}
    given |= record.known(name for name in like.get_params(deep=False) if name != "estimator")
    return given


# -- A fitted quantile model -----------------------------------------------------------------------------------------


def store_quantile_model(packer: Packer, model: QuantileModel, place: str) -> dict[str, Any]:
    """Give a fitted quantile model that stands on its own."""
    return {
        "settings": pack_settings(packer, model, place),
        "levels": list(model.levels_),
        "encoder": store_encoder(model.encoder_),
        "fitted": [packer.pack(one, f"{place}/{i}") for i, one in enumerate(model.models_)],
    }


def restore_quantile_model(unpacker: Unpacker, record: Record, n_columns: int) -> QuantileModel:
    """Give back a fitted quantile model for rows of so many columns."""
    settings = record.record("settings")
    model = QuantileModel(**unpack_settings(unpacker, settings, QuantileModel()))
    settings.check_all_read()
    model.levels_ = record.levels("levels")
    model.encoder_ = restore_encoder(record.optional("encoder"), n_columns)
    model.models_ = check_fitted([unpacker.unpack(one) for one in record.records("fitted")])
    record.check_all_read()
    return model


def check_fitted(models: list[Any]) -> list[Any]:
    """Give the models, or raise if there is none or one can't predict."""
    if not models or not all(hasattr(one, "predict") or hasattr(one, "predict_quantiles") for one in models):
        raise ArtifactError("the file must have at least one fitted model, each with predict")
    return models


# -- Two stages ------------------------------------------------------------------------------------------------------


def pack_residual(packer: Packer, model: ResidualQuantiles, place: str) -> dict[str, Any]:
    """Give a quantile model of two stages, fitted or not."""
    record = pack_settings(packer, model, place)
    if not hasattr(model, "medians_"):
        return {**record, "fitted": None}
    names = getattr(model, "feature_names_in_", None)
    medians = [store_quantile_model(packer, one, f"{place}/median/{i}") for i, one in enumerate(model.medians_)]
    residuals = [store_quantile_model(packer, one, f"{place}/residual/{i}") for i, one in enumerate(model.residuals_)]
    fitted = {
        "n_columns": model.n_features_in_,
        "names": None if names is None else encode(names.tolist(), f"{place}.names"),
        "unit": model.unit_,
        "medians": medians,
        "residuals": residuals,
    }
    return {**record, "fitted": fitted}


def unpack_residual(unpacker: Unpacker, record: Record) -> ResidualQuantiles:
    """Give it back."""
    fitted = record.optional("fitted")
    model = ResidualQuantiles(**unpack_settings(unpacker, record, ResidualQuantiles()))
    if fitted is None:
        return model
    model.n_features_in_ = n_columns = fitted.integer("n_columns", 1, 2**31)
    names = fitted.value("names")
    if names is not None:
        check_names(names, n_columns, fitted.place)
        model.feature_names_in_ = np.array(names, dtype=object)
    model.unit_ = fitted.finite("unit")
    model.medians_ = [restore_quantile_model(unpacker, one, n_columns) for one in fitted.records("medians")]
    # They have the median as one more column.
    model.residuals_ = [restore_quantile_model(unpacker, one, n_columns + 1) for one in fitted.records("residuals")]
    if model.unit_ <= 0 or not model.medians_ or any(one.levels_ != (MEDIAN,) for one in model.medians_):
        raise ArtifactError(f"{fitted.place} must have models of the median, and a unit larger than 0")
    fitted.check_all_read()
    return model
