"""Models of any library, also inside pipelines, as records of a file and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from icqr.artifact.boosting import (
    restore_catboost,
    restore_histogram,
    restore_lightgbm,
    restore_xgboost,
    store_catboost,
    store_histogram,
    store_lightgbm,
    store_xgboost,
)
from icqr.artifact.container import ArtifactError
from icqr.artifact.network import restore_network, store_network
from icqr.artifact.quantile_models import pack_residual, pack_settings, unpack_residual, unpack_settings
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.scikit import is_estimator, restore_objects, store_objects
from icqr.families import PrefitQuantiles
from icqr.quantiles import QuantileModel


@contextmanager
def offering_to_leave_out() -> Iterator[None]:
    """Add to an error about a model what can be done."""
    try:
        yield
    except ArtifactError as error:
        raise ArtifactError(
            f"{error}. save(model, path, with_estimator=False) stores everything else, and "
            "load(path, estimator=fitted) takes the fitted model: one with predict_quantiles(X, levels), or "
            "prefit(lower=…, median=…, upper=…, levels=…); for Naive one with predict(X)."
        ) from error


class Packer:
    """Puts models into the parts of a file; objects of scikit-learn are collected and stored together."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._objects: list[Any] = []

    def pack(self, estimator: Any, place: str) -> dict[str, Any] | None:
        """Give a model, fitted or not, as a record; its parts have names that start with `place`."""
        if estimator is None:
            return None
        name = f"{type(estimator).__module__.partition('.')[0]}.{type(estimator).__qualname__}"
        if name in _MODELS:
            kind, store, _ = _MODELS[name]
            return {"kind": kind, **store(self._parts, estimator, place)}
        if name in _CONTAINERS:
            kind, pack, _ = _CONTAINERS[name]
            return {"kind": kind, **pack(self, estimator, place)}
        if not is_estimator(estimator):
            whole = f"{type(estimator).__module__}.{type(estimator).__qualname__}"
            raise ArtifactError(f"the model is, or contains, a {whole}, which can't be stored without pickle")
        return {"kind": "scikit-learn", "object": self.keep(estimator)}

    def keep(self, given: Any) -> int:
        """Put an object among those of scikit-learn, and give its number."""
        self._objects.append(given)
        return len(self._objects) - 1

    def finish(self) -> dict[str, Any] | None:
        """Store the objects of scikit-learn."""
        return store_objects(self._objects, self._parts)


class Unpacker:
    """Makes models from the records of a file."""

    def __init__(self, objects: Record | None) -> None:
        self._objects: dict[int, Any] = dict(enumerate(restore_objects(objects)))

    def unpack(self, record: Record | None) -> Any:
        """Give the model that `Packer.pack` made a record of."""
        if record is None:
            return None
        kind = record.text("kind", (*_RESTORES, *_UNPACKS, "scikit-learn"))
        if kind in _RESTORES:
            made = _RESTORES[kind](record)
        elif kind in _UNPACKS:
            made = _UNPACKS[kind](self, record)
        else:
            made = self.take(record, "object")
        record.check_all_read()
        return made

    def take(self, record: Record, name: str) -> Any:
        """Give an object of scikit-learn by the number in a record; each is used once."""
        number = record.integer(name, 0)
        if number not in self._objects:
            raise ArtifactError(f"{record.place}.{name}: there is no object {number}, or it is used twice")
        return self._objects.pop(number)

    def check_all_used(self) -> None:
        """Raise if an object of scikit-learn has no place in the model."""
        if self._objects:
            raise ArtifactError(
                f"the file holds {len(self._objects)} objects of scikit-learn that its model does not use"
            )


# -- Models that hold others -----------------------------------------------------------------------------------------


def _pack_pipeline(packer: Packer, model: Pipeline, place: str) -> dict[str, Any]:
    shell = copy.copy(model)
    *before, (name, last) = model.steps
    shell.steps = [*before, (name, None)]
    return {"shell": packer.keep(shell), "last": packer.pack(last, f"{place}/last")}


def _unpack_pipeline(unpacker: Unpacker, record: Record) -> Pipeline:
    shell, last = unpacker.take(record, "shell"), unpacker.unpack(record.optional("last"))
    with refusing(record.place):
        if type(shell) is not Pipeline:
            raise TypeError("its shell is no Pipeline")
        *before, (name, _) = shell.steps
        shell.steps = [*before, (name, last)]
    return shell


def _pack_transformed(packer: Packer, model: TransformedTargetRegressor, place: str) -> dict[str, Any]:
    shell = copy.copy(model)
    shell.regressor = None
    fitted = vars(shell).pop("regressor_", None)
    return {
        "shell": packer.keep(shell),
        "regressor": packer.pack(model.regressor, f"{place}/regressor"),
        "fitted": packer.pack(fitted, f"{place}/fitted"),
    }


def _unpack_transformed(unpacker: Unpacker, record: Record) -> TransformedTargetRegressor:
    shell = unpacker.take(record, "shell")
    if type(shell) is not TransformedTargetRegressor:
        raise ArtifactError(f"{record.place}.shell must be a TransformedTargetRegressor")
    shell.regressor = unpacker.unpack(record.optional("regressor"))
    fitted = unpacker.unpack(record.optional("fitted"))
    if fitted is not None:
        shell.regressor_ = fitted
    return shell


def _pack_prefit(packer: Packer, model: PrefitQuantiles, place: str) -> dict[str, Any]:
    models = [packer.pack(one.estimator, f"{place}/{i}") for i, one in enumerate(model.models)]
    return {"levels": list(model.levels), "models": models}


def _unpack_prefit(unpacker: Unpacker, record: Record) -> PrefitQuantiles:
    levels = record.levels("levels")
    models = tuple(FrozenEstimator(unpacker.unpack(one)) for one in record.records("models"))
    if len(models) != len(levels):
        raise ArtifactError(f"{record.place} must have a model for each level")
    return PrefitQuantiles(models, levels)


def _pack_frozen(packer: Packer, model: FrozenEstimator, place: str) -> dict[str, Any]:
    return {"estimator": packer.pack(model.estimator, place)}


def _unpack_frozen(unpacker: Unpacker, record: Record) -> FrozenEstimator:
    return FrozenEstimator(unpacker.unpack(record.record("estimator")))


def _unpack_quantile_model(unpacker: Unpacker, record: Record) -> QuantileModel:
    return QuantileModel(**unpack_settings(unpacker, record, QuantileModel()))


_MODELS: dict[str, tuple[str, Callable[[Parts, Any, str], dict[str, Any]], Callable[[Record], Any]]] = {
    "sklearn.HistGradientBoostingRegressor": ("hist-gradient-boosting", store_histogram, restore_histogram),
    "lightgbm.LGBMRegressor": ("lightgbm", store_lightgbm, restore_lightgbm),
    "xgboost.XGBRegressor": ("xgboost", store_xgboost, restore_xgboost),
    "xgboost.XGBRFRegressor": ("xgboost", store_xgboost, restore_xgboost),
    "catboost.CatBoostRegressor": ("catboost", store_catboost, restore_catboost),
    "icqr.QuantileNetwork": ("network", store_network, restore_network),
}
_CONTAINERS: dict[str, tuple[str, Callable[[Packer, Any, str], dict[str, Any]], Callable[[Unpacker, Record], Any]]] = {
    "sklearn.Pipeline": ("pipeline", _pack_pipeline, _unpack_pipeline),
    "sklearn.TransformedTargetRegressor": ("transformed-target", _pack_transformed, _unpack_transformed),
    "sklearn.FrozenEstimator": ("frozen", _pack_frozen, _unpack_frozen),
    "icqr.PrefitQuantiles": ("prefit", _pack_prefit, _unpack_prefit),
    "icqr.QuantileModel": ("quantile-model", pack_settings, _unpack_quantile_model),
    "icqr.ResidualQuantiles": ("residual-quantiles", pack_residual, unpack_residual),
}
_RESTORES = {kind: restore for kind, _, restore in _MODELS.values()}
_UNPACKS = {kind: unpack for kind, _, unpack in _CONTAINERS.values()}
