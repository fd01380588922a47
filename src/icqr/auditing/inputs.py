"""What is audited: the intervals of any library, or of a model, brought into one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from icqr._predicting import IntervalRegressor
from icqr._tables import FloatArray, IntArray, as_table
from icqr.metrics.checks import CheckedRows, check_rows, check_share
from icqr.partition import value_rule

#: What a grouping's table says of each group: its name in words and, of a model's groups, their number (-1: rows of no
#: known group) and what calibration can give.
GROUP_COLUMNS = ["region", "kind", "group", "calibration_rows", "band_lower", "band_upper", "guarantee"]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups that were not chosen by looking at coverage: a code per row, and a row of `table` per code."""

    codes: IntArray
    table: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Audited:
    """Checked rows with what is promised for them; `X` is a DataFrame with text as column names, or None.

    `whole` says what is promised for all rows together (`GROUP_COLUMNS`): a model with a single group has a band.
    `prediction` is that of a model.
    """

    rows: CheckedRows
    intervals: FloatArray
    coverage: float
    X: pd.DataFrame | None
    groupings: list[Grouping]
    whole: pd.DataFrame
    prediction: FloatArray | None = None


def prepare(y: Any, intervals: Any, X: Any, groups: Any, coverage: float | None) -> Audited:
    """Bring what was given to an audit into one form, or say what is wrong with it."""
    table = None if X is None else _named(X)
    own: list[Grouping] = []
    prediction = None
    if isinstance(intervals, IntervalRegressor):
        coverage = intervals.certificate(coverage).coverage
        explained = intervals.explain(_needed(X, intervals), coverage)
        bounds, prediction = explained[["lower", "upper"]].to_numpy(), explained["median"].to_numpy()
        own = [_model_groups(intervals, coverage, explained["group"].to_numpy())]
    else:
        if hasattr(intervals, "predict_interval"):
            intervals = intervals.predict_interval(_needed(X, intervals))
        bounds = as_intervals(intervals, len(np.asarray(y)))
    if coverage is None:
        raise ValueError(
            "coverage must be given with intervals from elsewhere, got None; say what they promise, for example "
            "coverage=0.9 (a fitted icqr model knows its own)"
        )
    level = check_share("coverage", coverage)
    rows = check_rows(y, bounds)
    if table is not None and len(table) != len(rows.y):
        raise ValueError(f"X must have {len(rows.y)} rows, one per row of y, got {len(table)}")
    whole = own.pop().table if len(own) == 1 and len(own[0].table) == 1 else _whole()
    given = [] if groups is None else _given_groups(groups, table, len(rows.y))
    whole = whole.assign(region="all rows", kind="all rows", group=None)
    given = [one for one in given if not any(_same_groups(one, other) for other in own)]
    return Audited(rows, bounds, level, table, given + own, whole, prediction)


def _same_groups(one: Grouping, other: Grouping) -> bool:
    return np.array_equal(pd.factorize(one.codes)[0], pd.factorize(other.codes)[0])


def as_intervals(given: Any, n: int) -> FloatArray:
    """Bring the intervals of n rows into an (n, 2) array, whichever library they come from.

    Parameters
    ----------
    given : array, table or tuple
        (n, 2) or (n, 2, 1) bounds (crepes, MAPIE); a table with two columns; (prediction, bounds) (MAPIE); (lower,
        upper); (prediction, lower, upper) (puncc, whose prediction may be None or quantiles). A plain list of two pairs
        is taken as two rows.
    n : int
        Number of rows.

    Examples
    --------
    >>> as_intervals(([1, 2, 3], [0, 1, 2], [2, 3, 4]), 3).tolist()
    [[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]
    """
    parts = list(given) if isinstance(given, tuple | list) and len(given) in (2, 3) else []
    shapes: list[tuple[Any, ...]] = [np.shape(part) for part in parts]
    if len(parts) == 2 and shapes[1] in ((n, 2), (n, 2, 1)) and shapes[0] in ((n,), (n, 1)):
        return as_intervals(np.asarray(parts[1], dtype=float), n)
    columns = all(shape in ((n,), (n, 1)) for shape in shapes[-2:])
    rows = isinstance(given, list) and len(parts) == n == 2
    if parts and columns and not rows:
        return np.column_stack([np.asarray(part, dtype=float).ravel() for part in parts[-2:]])
    bounds = np.asarray(given, dtype=float) if not parts or len(set(shapes)) == 1 else np.empty(0)
    bounds = bounds[:, :, 0] if bounds.ndim == 3 and bounds.shape[2] == 1 else bounds
    if bounds.shape != (n, 2):
        raise ValueError(
            f"intervals must hold a lower and an upper bound for each of the {n} rows of y: an (n, 2) or (n, 2, 1) "
            "array, (lower, upper), (prediction, lower, upper), (prediction, (n, 2, 1) array) or a fitted model; "
            f"got {_shape_of(given)}. Of several coverages audit one at a time: intervals[:, :, 0]"
        )
    return bounds


def _shape_of(given: Any) -> str:
    if isinstance(given, tuple):
        return f"a tuple of {len(given)} with the shapes {', '.join(str(np.shape(part)) for part in given)}"
    return f"{type(given).__name__} of shape {getattr(given, 'shape', len(given) if hasattr(given, '__len__') else ())}"


def _needed(X: Any, model: Any) -> Any:
    if X is None:
        raise ValueError(f"X must be given with a model ({type(model).__name__}), got None; give the rows to predict")
    return X


def _named(X: Any) -> pd.DataFrame:
    table = as_table(X)
    if not isinstance(table, pd.DataFrame):
        return pd.DataFrame(table, columns=pd.Index([f"x{j}" for j in range(table.shape[1])]))
    named = table.set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)
    as_table(named)  # two names may be the same as text
    return named


def _model_groups(model: IntervalRegressor, coverage: float, labels: IntArray) -> Grouping:
    table = model.certificate(coverage).groups.rename(columns={"n": "calibration_rows"})
    table = table.assign(region=[*_group_names(model.descriptions_), "no known group"], kind="model group")
    codes = np.where(labels < 0, len(table) - 1, labels).astype(np.intp)
    # Rows of no known group are a group only where there are any.
    table = table[GROUP_COLUMNS] if codes.max() == len(table) - 1 else table[GROUP_COLUMNS].iloc[:-1]
    return Grouping(codes, table)


def _group_names(described: pd.DataFrame) -> list[str]:
    """Name a model's groups: by number and rule; a rule that fits poorly is called rough."""
    rough = np.where(described["fidelity"] < 0.8, "roughly ", "")
    return [f"group {g} ({word}{rule})" for g, (word, rule) in enumerate(zip(rough, described["rule"], strict=True))]


def _whole() -> pd.DataFrame:
    return pd.DataFrame([dict.fromkeys(GROUP_COLUMNS)])


def _given_groups(groups: Any, X: pd.DataFrame | None, n: int) -> list[Grouping]:
    """Give a grouping for each column of labels: an array, a table, or names of columns of X."""
    if isinstance(groups, str):
        if X is None or groups not in X.columns:
            raise ValueError(f"groups must be labels or the name of a column of X, got {groups!r}, which X lacks")
        groups = X[[groups]]
    elif X is not None and isinstance(groups, list) and len(groups) < n and set(map(str, groups)) <= {*X.columns}:
        groups = X[[str(name) for name in groups]]
    if np.ndim(groups) == 1:
        named = pd.Series(np.asarray(groups), name=getattr(groups, "name", None) or "group", dtype=object)
        groups = named.to_frame()
    labels = _named(groups)
    if len(labels) != n:
        raise ValueError(f"groups must have {n} labels, one per row of y, got {len(labels)}")
    return [_grouping(labels[name]) for name in labels.columns]


def _grouping(labels: pd.Series[Any]) -> Grouping:
    # By their text, as they are shown: 1 and "1" are one group.
    texts = labels.astype(object).map(str, na_action="ignore")
    codes, values = pd.factorize(texts, sort=False, use_na_sentinel=False)
    names = [value_rule(labels.name, value) for value in values]
    table = pd.DataFrame({"region": names, "kind": "group"}).reindex(columns=GROUP_COLUMNS)
    return Grouping(codes.astype(np.intp), table)
