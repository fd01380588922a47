"""What is audited: the intervals of any library, or of a model, brought into one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from icqr._predicting import IntervalRegressor
from icqr._rules import value_rule
from icqr._tables import FloatArray, IntArray, as_table
from icqr.metrics.checks import CheckedRows, check_rows, check_share

#: What is known of a region beforehand: its name in words and, of a model's groups, their number (-1: rows of no known
#: group) and what calibration can give.
GROUP_COLUMNS = ["region", "kind", "group", "calibration_rows", "band_lower", "band_upper", "guarantee"]


class Grouping(NamedTuple):
    """Groups that were not chosen by looking at coverage: a code per row, and a row of `table` per code."""

    codes: IntArray
    table: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Audited:
    """Checked rows with what is promised for them; `X` is a DataFrame with text as column names, or None.

    `whole` is what is known of all rows together (`GROUP_COLUMNS`): a model with a single group has a band.
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
    """Return what was given to an audit in one form, or say what is wrong with it."""
    table = None if X is None else _named(X)
    if X is None and hasattr(intervals, "predict_interval"):
        model = type(intervals).__name__
        raise ValueError(f"X must be given with a model ({model}), got None; give the rows to predict")

    # A model of ours knows its coverage and its groups, any other only its intervals.
    own, prediction = None, None
    if isinstance(intervals, IntervalRegressor):
        coverage = intervals.certificate(coverage).coverage
        explained = intervals.explain(X, coverage)
        bounds, prediction = explained[["lower", "upper"]].to_numpy(), explained["median"].to_numpy()
        own = _model_groups(intervals, coverage, explained["group"].to_numpy())
    else:
        if hasattr(intervals, "predict_interval"):
            intervals = intervals.predict_interval(X)
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

    # The only group of a model is all rows; groups that are the model's own are judged once.
    groupings = [] if groups is None else _user_groups(groups, table, len(rows.y))
    whole = pd.DataFrame([dict.fromkeys(GROUP_COLUMNS)])
    if own is not None and len(own.table) == 1:
        whole = own.table
    elif own is not None:
        codes = pd.factorize(own.codes)[0]
        groupings = [each for each in groupings if not np.array_equal(pd.factorize(each.codes)[0], codes)] + [own]
    whole = whole.assign(region="all rows", kind="all rows", group=None)
    return Audited(rows, bounds, level, table, groupings, whole, prediction)


def as_intervals(intervals: Any, n: int) -> FloatArray:
    """Return the intervals of n rows as an (n, 2) array, whichever library they come from.

    (n, 2) or (n, 2, 1) bounds (crepes, MAPIE); a table with two columns; (prediction, bounds) (MAPIE); (lower, upper);
    (prediction, lower, upper) (puncc, whose prediction may be None or quantiles). A plain list of two pairs is taken as
    two rows.
    """
    parts = list(intervals) if isinstance(intervals, tuple | list) and len(intervals) in (2, 3) else []
    shapes: list[tuple[Any, ...]] = [np.shape(part) for part in parts]
    if len(parts) == 2 and shapes[1] in ((n, 2), (n, 2, 1)) and shapes[0] in ((n,), (n, 1)):
        return as_intervals(np.asarray(parts[1], dtype=float), n)

    columns = all(shape in ((n,), (n, 1)) for shape in shapes[-2:])
    rows = isinstance(intervals, list) and len(parts) == n == 2
    if parts and columns and not rows:
        return np.column_stack([np.asarray(part, dtype=float).ravel() for part in parts[-2:]])

    bounds = np.asarray(intervals, dtype=float) if not parts or len(set(shapes)) == 1 else np.empty(0)
    bounds = bounds[:, :, 0] if bounds.ndim == 3 and bounds.shape[2] == 1 else bounds
    if bounds.shape != (n, 2):
        if isinstance(intervals, tuple):
            got = f"a tuple of {len(intervals)} with the shapes {', '.join(str(np.shape(part)) for part in intervals)}"
        else:
            size = len(intervals) if hasattr(intervals, "__len__") else ()
            got = f"{type(intervals).__name__} of shape {getattr(intervals, 'shape', size)}"
        raise ValueError(
            f"intervals must hold a lower and an upper bound for each of the {n} rows of y: an (n, 2) or (n, 2, 1) "
            "array, (lower, upper), (prediction, lower, upper), (prediction, (n, 2, 1) array) or a fitted model; "
            f"got {got}. Of several coverages audit one at a time: intervals[:, :, 0]"
        )
    return bounds


def _named(X: Any) -> pd.DataFrame:
    table = as_table(X)
    if not isinstance(table, pd.DataFrame):
        return pd.DataFrame(table, columns=pd.Index([f"x{j}" for j in range(table.shape[1])]))
    named = table.set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)
    as_table(named)  # two names may be the same as text
    return named


def _model_groups(model: IntervalRegressor, coverage: float, labels: IntArray) -> Grouping:
    """Return a model's groups with their rules (one that fits poorly is called rough) and what calibration can give."""
    names = [
        f"group {group} ({'roughly ' if fidelity < 0.8 else ''}{rule})"
        for group, (rule, fidelity) in enumerate(model.descriptions_[["rule", "fidelity"]].itertuples(index=False))
    ]
    table = model.certificate(coverage).groups.rename(columns={"n": "calibration_rows"})
    table = table.assign(region=[*names, "no known group"], kind="model group")[GROUP_COLUMNS]
    codes = np.where(labels < 0, len(table) - 1, labels).astype(np.intp)
    # Rows of no known group are a group only where there are any.
    return Grouping(codes, table if codes.max() == len(table) - 1 else table.iloc[:-1])


def _user_groups(groups: Any, X: pd.DataFrame | None, n: int) -> list[Grouping]:
    """Return a grouping for each column of labels: an array, a table, or names of columns of X."""
    if isinstance(groups, str):
        if X is None or groups not in X.columns:
            raise ValueError(f"groups must be labels or the name of a column of X, got {groups!r}, which X lacks")
        groups = X[[groups]]
    elif X is not None and isinstance(groups, list) and len(groups) < n and set(map(str, groups)) <= {*X.columns}:
        groups = X[[str(name) for name in groups]]
    if np.ndim(groups) == 1:
        name = getattr(groups, "name", None) or "group"
        groups = pd.Series(np.asarray(groups), name=name, dtype=object).to_frame()
    labels = _named(groups)
    if len(labels) != n:
        raise ValueError(f"groups must have {n} labels, one per row of y, got {len(labels)}")

    groupings = []
    for name in labels.columns:
        # By their text, as they are shown: 1 and "1" are one group.
        texts = labels[name].astype(object).map(str, na_action="ignore")
        codes, values = pd.factorize(texts, sort=False, use_na_sentinel=False)
        rules = [value_rule(name, value) for value in values]
        table = pd.DataFrame({"region": rules, "kind": "group"}).reindex(columns=GROUP_COLUMNS)
        groupings.append(Grouping(codes.astype(np.intp), table))
    return groupings
