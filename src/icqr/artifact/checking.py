"""Made-up rows and their predictions, which a file keeps: the model that is read must predict the same.

A library whose new version reads its old models otherwise is noticed, and so is another model than was saved.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from icqr._predicting import IntervalRegressor
from icqr._tables import Features, FloatArray, Table
from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.values import encode
from icqr.quantiles import ResidualQuantiles

#: What columns of numbers hold in the made-up rows; none that a logarithm or a root refuses.
NUMBERS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
#: Relative to the largest prediction: the last bits may differ from machine to machine.
TOLERANCE = 1e-6


def store_check(model: IntervalRegressor, parts: Parts) -> dict[str, Any] | None:
    """Give made-up rows and what the model predicts for them, or None if it can't take them."""
    columns = _made_up(model)
    try:
        predicted = _predictions(model, _as_rows(columns, model.columns_))
    except ArtifactError:  # a pipeline may refuse rows that nobody would give it
        return None
    return {
        "rows": [encode(column, "check") for column in columns],
        "predictions": parts.array("check/predictions", predicted, "float64"),
    }


def _made_up(model: IntervalRegressor) -> list[list[Any]]:
    """Give values of each column: its categories in turn, or numbers."""
    known = known_features(model)
    names = range(model.n_features_in_) if known is None or known.names is None else known.names
    columns = []
    for j, name in enumerate(names):
        categories = None if known is None else known.categories.get(name)
        values = NUMBERS if categories is None else categories.tolist()
        columns.append([values[(i + j) % len(values)] for i in range(len(NUMBERS))])
    return columns


def known_features(model: IntervalRegressor) -> Features | None:
    """Give what is known of the columns; with a pipeline and without a K-means partition, nothing is."""
    space = getattr(model.partition_, "space_", None)
    first = getattr(model.model_, "models_", [None])[0]
    # It takes rows as they come, and its own models encode them.
    fitted = first.medians_[0] if isinstance(first, ResidualQuantiles) else model.model_
    features: Features | None = fitted.encoder_.features or getattr(space, "features", None)
    return features


def _as_rows(columns: list[list[Any]], names: Any) -> Table:
    if names is None:
        return np.array(columns, dtype=np.float64).T
    return pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)


def _predictions(model: IntervalRegressor, rows: Table) -> FloatArray:
    with refusing("the model"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up rows are unlike any that were seen
        return np.asarray(model.model_.predict(rows), dtype=np.float64).reshape(len(rows), -1)


def check_predictions(record: Record | None, model: IntervalRegressor) -> None:
    """Raise unless the model predicts what the file says for the rows that it keeps."""
    if record is None:
        return
    columns = record.value("rows")
    stored = record.array("predictions", "float64", (len(NUMBERS), None))
    record.check_all_read()
    if not isinstance(columns, list) or len(columns) != model.n_features_in_:
        raise ArtifactError(f"{record.place}.rows must have {model.n_features_in_} columns")
    if any(not isinstance(column, list) or len(column) != len(NUMBERS) for column in columns):
        raise ArtifactError(f"{record.place}.rows must have {len(NUMBERS)} values of each column")
    with refusing(f"{record.place}.rows"):
        rows = _as_rows(columns, model.columns_)
    found = _predictions(model, rows)
    scale = np.abs(stored).max(initial=0.0)
    if found.shape != stored.shape or not (np.abs(found - stored) <= TOLERANCE * scale).all():
        raise ArtifactError(
            "the model predicts other values for the rows that the file keeps as a check than it did when it was "
            "saved: it is another model, or another version of its library reads it otherwise (`written_by` in the "
            "file's manifest names the versions)"
        )
