"""What was learned about columns, as records of a file and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from icqr._tables import Features
from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Record
from icqr.artifact.values import encode, encode_labels


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
                "values": encode_labels(categories, f"{place}.categories of the column {name!r}"),
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


def n_one_hot(features: Features) -> int:
    """Give the number of columns after one-hot encoding."""
    return features.n_columns + sum(len(codes) - 1 for codes in features.one_hot_codes.values())
