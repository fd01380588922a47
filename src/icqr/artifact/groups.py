"""What was learned about groups, as records of a file and back: partitions, and small tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans, MiniBatchKMeans

from icqr._clustering import WeightedSpace
from icqr.artifact.columns import n_one_hot, positions, restore_features, store_features
from icqr.artifact.container import ArtifactError
from icqr.artifact.quantile_models import pack_settings, restore_quantile_model, store_quantile_model, unpack_settings
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.values import encode, encode_parameters
from icqr.partition import GroupPartition, KMeansPartition, ScorePartition, WholePartition

if TYPE_CHECKING:
    from icqr.artifact.estimators import Packer, Unpacker

# -- Partitions ------------------------------------------------------------------------------------------------------

_SPACE = tuple(one.name for one in fields(WeightedSpace) if one.name not in ("features", "columns"))
_CLUSTERERS = {kind.__name__: kind for kind in (KMeans, MiniBatchKMeans)}
_KINDS = ("kmeans", "groups", "score", "whole")


def store_partition(partition: Any, parts: Parts, packer: Packer) -> dict[str, Any]:
    """Give a fitted partition."""
    record = store_settings(partition, packer, "partition")
    if record["kind"] == "groups":
        record["keys"] = encode(partition.keys_.tolist(), "partition.keys")
    if record["kind"] == "kmeans":
        record |= _store_clusters(partition, parts)
    if record["kind"] == "score":
        record["edges"] = parts.array("partition/edges", partition.edges_, "float64")
        record["counts"] = partition.counts_.tolist()
        record["model"] = store_quantile_model(packer, partition.model_, "partition/model")
    return record


def store_settings(partition: Any, packer: Packer, place: str) -> dict[str, Any]:
    """Give a partition as the user set it."""
    if type(partition) is WholePartition:
        return {"kind": "whole"}
    if type(partition) is GroupPartition:
        if callable(partition.by):
            raise ArtifactError(
                "GroupPartition's by is a function, and a file can't hold code. Make its labels a column of X, at fit "
                "as at predict, and use GroupPartition('that column')"
            )
        return {"kind": "groups", "by": encode(partition.by, "partition.by")}
    if type(partition) is ScorePartition:
        return {"kind": "score", **pack_settings(packer, partition, place)}
    if type(partition) is not KMeansPartition:
        raise ArtifactError(
            f"the partition is of type {type(partition).__module__}.{type(partition).__qualname__}, whose code a file "
            "can't hold. Make its labels a column of X, at fit as at predict, and use GroupPartition('that column')"
        )
    parameters = partition.get_params(deep=False)
    clusterer = parameters.pop("clusterer")
    record = {name: encode(value, f"partition.{name}") for name, value in parameters.items()}
    return {"kind": "kmeans", **record, "clusterer": _store_clusterer(clusterer)}


def _store_clusterer(clusterer: Any) -> dict[str, Any] | None:
    if clusterer is None:
        return None
    if type(clusterer) not in _CLUSTERERS.values():
        raise ArtifactError(
            f"the partition's clusterer is a {type(clusterer).__qualname__}, which has its own way to give new rows a "
            "cluster. KMeans and MiniBatchKMeans can be stored: theirs is the nearest centroid"
        )
    return {"class": type(clusterer).__name__, "parameters": encode_parameters(clusterer, "partition.clusterer")}


def _store_clusters(partition: KMeansPartition, parts: Parts) -> dict[str, Any]:
    space = partition.space_
    return {
        "features": store_features(space.features, "partition.features"),
        "columns": space.columns.tolist(),
        **{name: parts.array(f"partition/{name}", getattr(space, name), "float64") for name in _SPACE},
        "centroids": parts.array("partition/centroids", partition.centroids_, "float64"),
        "group_of": partition.group_of_.tolist(),
        "counts": partition.counts_.tolist(),
        "path": store_table(partition.path_),
    }


def restore_settings(record: Record, unpacker: Unpacker) -> Any:
    """Give back a partition as the user set it."""
    kind = record.text("kind", _KINDS)
    if kind == "whole":
        return WholePartition()
    if kind == "groups":
        by = record.value("by")
        if not isinstance(by, str | int | float | list | tuple) or by in ([], ()):
            raise ArtifactError(f"{record.place}.by must be a column, or a list of columns")
        return GroupPartition(by)
    if kind == "score":
        return _restore_score_settings(record, unpacker)
    partition = KMeansPartition()
    parameters = record.known(name for name in partition.get_params(deep=False) if name != "clusterer")
    clusterer = _restore_clusterer(record.optional("clusterer"))
    with refusing(record.place):
        partition.set_params(**parameters, clusterer=clusterer).check_parameters()
        if partition.data not in ("train", "calibration"):
            raise ValueError("data must be train or calibration")
    return partition


def _restore_score_settings(record: Record, unpacker: Unpacker) -> ScorePartition:
    partition = ScorePartition(**unpack_settings(unpacker, record, ScorePartition()))
    with refusing(record.place):
        partition.check_parameters()
    return partition


def _restore_clusterer(record: Record | None) -> Any:
    if record is None:
        return None
    kind = _CLUSTERERS[record.text("class", tuple(_CLUSTERERS))]
    parameters = record.values("parameters")
    record.check_all_read()
    with refusing(record.place):
        return kind(**parameters)


def restore_partition(record: Record, n_columns: int, unpacker: Unpacker) -> Any:
    """Give back a fitted partition."""
    partition = restore_settings(record, unpacker)
    if isinstance(partition, KMeansPartition):
        _restore_clusters(record, n_columns, partition)
    elif isinstance(partition, GroupPartition):
        _restore_keys(record, partition)
    elif isinstance(partition, ScorePartition):
        _restore_difficulty(record, n_columns, partition, unpacker)
    else:
        partition.n_groups_ = 1
    record.check_all_read()
    return partition


def _restore_difficulty(record: Record, n_columns: int, partition: ScorePartition, unpacker: Unpacker) -> None:
    partition.edges_ = record.array("edges", "float64", (None,))
    partition.counts_ = _whole_numbers(record, "counts", partition.n_groups_)
    partition.model_ = restore_quantile_model(unpacker, record.record("model"), n_columns)
    if (np.diff(partition.edges_) <= 0).any() or len(partition.model_.levels_) != 1:
        raise ArtifactError(f"{record.place} must have growing edges, and a model of one level")


def _restore_keys(record: Record, partition: GroupPartition) -> None:
    keys = record.value("keys")
    width = len(partition.by) if isinstance(partition.by, list | tuple) else 1
    if not isinstance(keys, list) or not keys:
        raise ArtifactError(f"{record.place}.keys must be the values of at least one group")
    if width > 1 and not all(isinstance(key, tuple) and len(key) == width for key in keys):
        raise ArtifactError(f"{record.place}.keys must be {width} values each")
    with refusing(f"{record.place}.keys"):
        columns = [_objects(column) for column in (zip(*keys, strict=True) if width > 1 else [keys])]
        partition.keys_ = columns[0] if width == 1 else pd.MultiIndex.from_arrays(columns)
        if not partition.keys_.is_unique:
            raise ValueError("a group appears twice")
    partition.n_groups_ = len(keys)


def _objects(values: Any) -> pd.Index[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return pd.Index(array, dtype=object)


def _restore_clusters(record: Record, n_columns: int, partition: KMeansPartition) -> None:
    features = restore_features(record.record("features"), n_columns)
    columns = positions(record.items("columns"), n_one_hot(features), f"{record.place}.columns")
    learned = {name: record.array(name, "float64", (len(columns),)) for name in _SPACE}
    if not all((learned[name] > 0).all() for name in ("unit", "width", "weight")):
        raise ArtifactError(f"{record.place}: unit, width and weight must be larger than 0")
    partition.space_ = WeightedSpace(features, np.array(columns, dtype=np.intp), **learned)
    partition.centroids_ = record.array("centroids", "float64", (None, len(columns)))
    partition.k_ = k = len(partition.centroids_)
    partition.clusterer_, partition.found_ = None, np.arange(k)
    partition.group_of_, partition.counts_ = (_whole_numbers(record, name, k) for name in ("group_of", "counts"))
    if k == 0 or set(partition.group_of_.tolist()) != set(range(partition.n_groups_)):
        raise ArtifactError(f"{record.place} must have centroids, and group_of must number the groups 0, 1, …")
    known = {"k": int, "explained_variance": float}
    partition.path_ = restore_table(record.record("path"), known, optional={"silhouette": float})
    if k not in partition.path_["k"].tolist():
        raise ArtifactError(f"{record.place}.path must have the chosen k, {k}")


def _whole_numbers(record: Record, name: str, length: int) -> Any:
    given = record.items(name)
    if len(given) != length or not all(type(one) is int and 0 <= one < 2**40 for one in given):
        raise ArtifactError(f"{record.place}.{name} must be {length} whole numbers, 0 or more, got {str(given)[:80]}")
    return np.array(given, dtype=np.intp)


# -- Tables ----------------------------------------------------------------------------------------------------------


def store_table(table: pd.DataFrame) -> dict[str, Any]:
    """Give a small table, column by column."""
    return {str(name): encode(column.tolist(), str(name)) for name, column in table.items()}


def restore_table(
    record: Record,
    columns: Mapping[str, type[Any]],
    n_rows: int | None = None,
    optional: Mapping[str, type[Any]] | None = None,
) -> pd.DataFrame:
    """Give back a table with these columns (`object`: any labels), each of so many values."""
    found: dict[str, Any] = {}
    for name, kind in {**columns, **(optional or {})}.items():
        if name in columns or record.has(name):
            values = record.value(name)
            n_rows = len(values) if n_rows is None and isinstance(values, list) else n_rows
            if not isinstance(values, list) or len(values) != n_rows:
                raise ArtifactError(f"{record.place}.{name} must have {n_rows} values")
            if kind is not object and not all(type(one) is kind for one in values):
                raise ArtifactError(f"{record.place}.{name} must be values of type {kind.__name__}")
            found[name] = pd.Series(values, dtype=object if kind is object else None)
    record.check_all_read()
    return pd.DataFrame(found)
