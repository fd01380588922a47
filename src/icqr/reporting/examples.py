"""What a report shows by example: five rows with their intervals, and what is covered at other levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icqr._tables import Table, align
from icqr.plots.axes import find_column
from icqr.plots.method_displays import reliability

if TYPE_CHECKING:
    from icqr.reporting.summary import Evidence

#: The rows that are shown, by the rank of their prediction: from small to large, whether they are covered or not.
RANKS = (0.1, 0.3, 0.5, 0.7, 0.9)
#: So many columns say what kind of row it is.
MOST_COLUMNS = 4
#: Below this level nobody asks for intervals.
LEAST_LEVEL = 0.5


def known_importances(evidence: Evidence) -> tuple[Table | None, pd.DataFrame | None]:
    """Return the rows, and the columns that have any importance, the most important first.

    They are those of the model in detail or, if it has none, of another; rows have the names by which it knows columns.
    """
    for _, model in sorted(evidence.models.items(), key=lambda entry: entry[0] != evidence.main):
        importances = getattr(model, "importances_", None)
        if evidence.X is not None and importances is not None and importances["share"].any():
            ordered = importances[importances["share"] > 0].sort_values("share", ascending=False, kind="stable")
            return align(evidence.X, model.columns_), ordered
    return evidence.X, None


def examples(evidence: Evidence) -> dict[str, Any] | None:
    """Return five rows of the method in detail, from a small to a large prediction.

    `columns` are the names of the most important columns (or, where none is known, of the first), and `predicted` says
    whether the method predicts a value besides the interval. Each of `rows` has `values` (one per column), `group`
    (None: there are no groups), `prediction` (None: no bound is finite), `lower`, `upper`, `y`, `covered`.
    """
    if not evidence.rows:
        return None
    audited = evidence.rows[evidence.main]
    lower, upper = audited.intervals.T
    centre = audited.prediction
    if centre is None:  # the middle of the interval, or its one finite bound
        with np.errstate(invalid="ignore"):
            middle = lower / 2 + upper / 2
        centre = np.where(np.isfinite(middle), middle, np.where(np.isfinite(lower), lower, upper))
    n = len(centre)
    chosen = np.argsort(centre, kind="stable")[sorted({int(rank * n) for rank in RANKS})]

    X, importances = known_importances(evidence)
    shown: list[pd.Series[Any]] = []
    if X is not None:
        names = range(X.shape[1]) if importances is None else importances["feature"]
        shown = [find_column(X, name) for name in list(names)[:MOST_COLUMNS]]
    rows = [
        {
            "values": [_plain_value(column.iloc[row]) for column in shown],
            "group": None if evidence.labels is None else int(evidence.labels[row]),
            "prediction": float(centre[row]) if np.isfinite(centre[row]) else None,
            "lower": float(lower[row]),
            "upper": float(upper[row]),
            "y": float(audited.rows.y[row]),
            "covered": bool(audited.rows.covered[row]),
        }
        for row in chosen
    ]
    predicted = audited.prediction is not None
    return {"columns": [str(column.name) for column in shown], "predicted": predicted, "rows": rows}


def _plain_value(value: Any) -> Any:
    """Return a number, a truth value or text; None for what is missing, and a day without its midnight."""
    value = value.item() if isinstance(value, np.generic) else value
    if pd.isna(value):
        return None
    return value if isinstance(value, bool | int | float) else str(value).removesuffix(" 00:00:00")


def reliability_of(evidence: Evidence) -> pd.DataFrame | None:
    """Return what the model in detail covers at several levels: asked, observed, lower, upper, n.

    All levels come from one fit. Without rows, or of a method with one level only, there is nothing to show.
    """
    if evidence.model is None or not evidence.rows or evidence.X is None:
        return None
    table = reliability(evidence.model, evidence.X, evidence.rows[evidence.main].rows.y)
    table = table[table["asked"] >= LEAST_LEVEL]
    return table if len(table) > 1 else None
