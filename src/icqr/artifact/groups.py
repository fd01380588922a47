"""What was learned about columns and groups, as records of a file and back: features, space, partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans, MiniBatchKMeans

from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.values import encode, encode_labels, encode_parameters
from icqr.features import Features
from icqr.partition import GroupPartition, KMeansPartition, WholePartition
from icqr.weighted_space import WeightedSpace

# -- Columns ---------------------------------------------------------------------------------------------------------


def store_features(features: Features | None, place: str) -> dict[str, Any] | None:
    """Give the columns of the training rows: names, categories, and which were empty."""
    if features is None:
        return None
    names = features.names
    position = {name: j for j, name in enumerate(names or range(features.n_columns))}
    return {
        "n_columns": features.n_columns,
        "names": None if names is None else encode(names, f"{place}.names"),
        "empty": sorted(position[name] for name in features.empty),
        "categories": [
            {
                "column": position[name],
                "values": encode_labels(categories, f"{place}.categories"),
                "one_hot": features.one_hot_codes[name].tolist(),
            }
            for name, categories in features.categories.items()
        ],
    }


def restore_features(record: Record, n_columns: int) -> Features:
    """Give the columns back."""
    features = Features.__new__(Features)
    features.n_columns = record.integer("n_columns", n_columns, n_columns)
    features.names = record.value("names")
    if features.names is not None:
        check_names(features.names, n_columns, record.place)
    known = range(n_columns) if features.names is None else features.names
    features.empty = {known[j] for j in positions(record.items("empty"), n_columns, record.place)}
    features.categories, features.one_hot_codes = {}, {}
    given = record.records("categories")
    columns = positions([one.raw("column") for one in given], n_columns, record.place)
    if given and features.names is None:
        raise ArtifactError(f"{record.place}: an array has no categories")
    for j, one in zip(columns, given, strict=True):
        labels = one.labels("values")
        if labels.isna().any() or len(labels) == 0:
            raise ArtifactError(f"{one.place} must have at least one category, and none that is missing")
        shown = positions(one.items("one_hot"), len(labels), one.place)
        features.categories[known[j]] = labels
        features.one_hot_codes[known[j]] = np.array(shown, dtype=np.intp)
        one.check_all_read()
    record.check_all_read()
    return features


def check_names(names: Any, n_columns: int, place: str) -> None:
    """Raise unless these are different names of so many columns: all text, or none, as scikit-learn wants them."""
    if not isinstance(names, list) or len(names) != n_columns:
        raise ArtifactError(f"{place} must have {n_columns} column names, got {str(names)[:80]}")
    try:
        distinct = len(set(names)) == n_columns
    except TypeError as error:
        raise ArtifactError(f"{place} must have column names, got {str(names)[:80]}") from error
    if not distinct or len({isinstance(name, str) for name in names}) > 1:
        raise ArtifactError(f"{place} must have different column names, all text or none, got {str(names)[:80]}")


def positions(given: list[Any], n: int, place: str) -> list[int]:
    """Give positions among n things: whole numbers from 0 to n - 1 that grow."""
    if not all(type(j) is int and 0 <= j < n for j in given) or sorted(set(given)) != given:
        raise ArtifactError(f"{place} must have growing positions from 0 to {n - 1}, got {str(given)[:80]}")
    return given


def _n_one_hot(features: Features) -> int:
    return features.n_columns + sum(len(codes) - 1 for codes in features.one_hot_codes.values())


# -- Partitions ------------------------------------------------------------------------------------------------------

_SPACE = tuple(one.name for one in fields(WeightedSpace) if one.name not in ("features", "columns"))
_CLUSTERERS = {kind.__name__: kind for kind in (KMeans, MiniBatchKMeans)}
_KINDS = ("kmeans", "groups", "whole")


def store_partition(partition: Any, parts: Parts) -> dict[str, Any]:
    """Give a fitted partition."""
    record = store_settings(partition)
    if record["kind"] == "groups":
        record["keys"] = encode(partition.keys_.tolist(), "partition.keys")
    if record["kind"] == "kmeans":
        record |= _store_clusters(partition, parts)
    return record


def store_settings(partition: Any) -> dict[str, Any]:
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


def restore_settings(record: Record | None) -> Any:
    """Give back a partition as the user set it."""
    if record is None:
        return None
    kind = record.text("kind", _KINDS)
    if kind == "whole":
        return WholePartition()
    if kind == "groups":
        by = record.value("by")
        if not isinstance(by, str | int | float | list | tuple) or by in ([], ()):
            raise ArtifactError(f"{record.place}.by must be a column, or a list of columns")
        return GroupPartition(by)
    partition = KMeansPartition()
    parameters = record.known(name for name in partition.get_params(deep=False) if name != "clusterer")
    clusterer = _restore_clusterer(record.optional("clusterer"))
    with refusing(record.place):
        partition.set_params(**parameters, clusterer=clusterer).check_parameters()
        if partition.data not in ("train", "calibration"):
            raise ValueError("data must be train or calibration")
    return partition


def _restore_clusterer(record: Record | None) -> Any:
    if record is None:
        return None
    kind = _CLUSTERERS[record.text("class", tuple(_CLUSTERERS))]
    parameters = record.values("parameters")
    record.check_all_read()
    with refusing(record.place):
        return kind(**parameters)


def restore_partition(record: Record, n_columns: int) -> Any:
    """Give back a fitted partition."""
    partition = restore_settings(record)
    if isinstance(partition, KMeansPartition):
        _restore_clusters(record, n_columns, partition)
    elif isinstance(partition, GroupPartition):
        _restore_keys(record, partition)
    else:
        partition.n_groups_ = 1
    record.check_all_read()
    return partition


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
    columns = positions(record.items("columns"), _n_one_hot(features), f"{record.place}.columns")
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
