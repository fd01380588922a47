"""What displays read from models and intervals: rows with their intervals, groups and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.metrics.checks import CheckedRows, Floats, check_rows


def named_models(models: Any) -> dict[str, Any]:
    """Give models by name: one model, a list (by the names of their classes), or a mapping from names to models."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        given = list(models) if isinstance(models, list | tuple) else [models]
        names = [type(model).__name__ for model in given]
        numbered = [f"{name} {place + 1}" if names.count(name) > 1 else name for place, name in enumerate(names)]
        named = dict(zip(numbered, given, strict=True))
    for name, model in named.items():
        if not hasattr(model, "explain"):
            hint = "for intervals of other libraries use from_predictions"
            raise TypeError(f"model must be a fitted Naive, QR, CQR or ICQR, got {name} ({type(model)}); {hint}")
    return named


def named_intervals(intervals: Any, method: str) -> dict[str, Any]:
    """Give intervals by method: one array, or a mapping from methods to arrays."""
    named = {str(k): v for k, v in intervals.items()} if isinstance(intervals, Mapping) else {method: intervals}
    if not named:
        raise ValueError("intervals must hold at least one method, got none")
    return named


def shared_coverage(models: Mapping[str, Any], coverage: float | None) -> float:
    """Give the coverage that is asked for: by default the models' own, which must then be one."""
    if coverage is not None:
        return float(coverage)
    own = {float(model.coverage) for model in models.values()}
    if len(own) > 1:
        raise ValueError(f"models were fitted for several coverages, {sorted(own)}; say which with coverage=")
    return own.pop()


def name_of(y: Any, given: str | None) -> str | None:
    """Give the target's name: the given one, or that of a pandas or polars column."""
    name = getattr(y, "name", None) if given is None else given
    return None if name is None else str(name)


def row_table(
    y: ArrayLike, intervals: ArrayLike, prediction: ArrayLike | None = None, groups: ArrayLike | None = None
) -> pd.DataFrame:
    """Give a row per target: y, lower, upper, covered, centre (the prediction, if there is one), group."""
    rows = check_rows(y, intervals)
    table = pd.DataFrame({"y": rows.y, "lower": rows.lower, "upper": rows.upper, "covered": rows.covered})
    table["centre"] = _centres(rows) if prediction is None else _column("prediction", prediction, len(table))
    table["group"] = 0 if groups is None else _column("groups", groups, len(table))
    return table


def predictions_of(model: Any, X: Any, coverage: float | None) -> dict[str, Any]:
    """Give what a display's `from_predictions` asks of a model: intervals, prediction, groups, and its name."""
    ((method, model),) = named_models(model).items()
    table = model.explain(X, coverage)
    bounds, median, group = table[["lower", "upper"]].to_numpy(), table["median"].to_numpy(), table["group"].to_numpy()
    return {"intervals": bounds, "prediction": median, "groups": group, "method": method}


def _column(name: str, values: Any, n: int) -> Any:
    column = np.asarray(values)
    if column.shape != (n,):
        raise ValueError(f"{name} must have the shape ({n},), one value per row of y; got {column.shape}")
    return column


def _centres(rows: CheckedRows) -> Floats:
    """Give the middle of each interval, or the one bound that is finite."""
    with np.errstate(invalid="ignore"):
        middle = rows.lower / 2 + rows.upper / 2
    one_sided = np.where(np.isfinite(rows.lower), rows.lower, rows.upper)
    centres = np.where(np.isfinite(rows.width), middle, one_sided)
    if not np.isfinite(centres).all():
        row = int((~np.isfinite(centres)).argmax())
        raise ValueError(f"prediction is needed where both bounds are infinite, as in row {row}; give prediction=")
    return np.asarray(centres)
