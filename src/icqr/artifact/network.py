"""The paper's network as plain arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.values import encode_parameters


def store_network(parts: Parts, model: Any, place: str) -> dict[str, Any]:
    """Give networks, fitted or not."""
    record = {"parameters": encode_parameters(model, place), "fitted": None}
    if not hasattr(model, "weights_"):
        return record
    layers = [
        {
            "weights": parts.array(f"{place}/weights-{i}", weights, "float32"),
            "biases": parts.array(f"{place}/biases-{i}", biases, "float32"),
        }
        for i, (weights, biases) in enumerate(zip(model.weights_, model.biases_, strict=True))
    ]
    fitted = {
        "names": model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None,
        "levels": list(model.levels_),
        "x_min": parts.array(f"{place}/x_min", model.x_min_, "float64"),
        "x_range": parts.array(f"{place}/x_range", model.x_range_, "float64"),
        "layers": layers,
        "y_mean": model.y_mean_,
        "y_scale": model.y_scale_,
        "n_epochs": parts.array(f"{place}/n_epochs", model.n_epochs_, "int64"),
    }
    return {**record, "fitted": fitted}


def restore_network(record: Record) -> Any:
    """Give the networks back."""
    from icqr.neural import QuantileNetwork

    parameters = record.values("parameters")
    fitted = record.optional("fitted")
    with refusing(record.place):
        model = QuantileNetwork(**parameters)
    if fitted is not None:
        _restore_fitted(fitted, model)
    return model


def _restore_fitted(record: Record, model: Any) -> None:
    names = record.value("names")
    model.levels_ = record.levels("levels")
    model.x_min_ = record.array("x_min", "float64", (None,))
    model.n_features_in_ = len(model.x_min_)
    model.x_range_ = record.array("x_range", "float64", (model.n_features_in_,))
    n_networks, width = _restore_layers(record, model)
    model.y_mean_, model.y_scale_ = record.finite("y_mean"), record.finite("y_scale")
    model.n_epochs_ = record.array("n_epochs", "int64", (n_networks,))
    record.check_all_read()
    if not model.n_features_in_ or width != len(model.levels_) or (model.x_range_ == 0).any():
        raise ArtifactError(f"{record.place}: the columns, layers and levels of the network don't fit together")
    if names is not None:
        if not isinstance(names, list) or len(names) != model.n_features_in_:
            raise ArtifactError(f"{record.place}.names must be the names of {model.n_features_in_} columns")
        model.feature_names_in_ = np.array(names, dtype=object)


def _restore_layers(record: Record, model: Any) -> tuple[int, int]:
    """Give the number of networks, and the width of the last layer."""
    n_networks, width = None, model.n_features_in_
    model.weights_, model.biases_ = [], []
    for layer in record.records("layers"):
        weights = layer.array("weights", "float32", (n_networks, None, width))
        n_networks, width = weights.shape[:2]
        model.weights_.append(weights)
        model.biases_.append(layer.array("biases", "float32", (n_networks, width)))
        layer.check_all_read()
    if not n_networks:
        raise ArtifactError(f"{record.place} must have at least one network of one layer")
    return n_networks, width
