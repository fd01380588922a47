"""What is audited: rows, intervals and groups, whatever form they came in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from icqr._predicting import IntervalRegressor
from icqr._rules import value_rule
from icqr._tables import FloatArray, IntArray, as_table
from icqr.auditing.findings import records
from icqr.metrics.marginal import CheckedRows, check_rows, check_share

#: How many of the calibrations lie in a band.
BAND = 0.9


class IntervalModel(Protocol):
    """A fitted model of any library that predicts intervals."""

    def predict_interval(self, X: Any, /) -> Any:
        """Return intervals in any form that :func:`as_intervals` reads."""


#: What may be audited: a model, or bounds in any form that :func:`as_intervals` reads.
Intervals: TypeAlias = IntervalModel | ArrayLike | Sequence[ArrayLike | None]
#: Labels, a table of labels, or the names of columns of X.
Groups: TypeAlias = ArrayLike | Sequence[Hashable]


class Grouping(NamedTuple):
    """Groups that were not chosen by looking at coverage: a code per row, and a row of `table` per code."""

    codes: IntArray
    table: pd.DataFrame

    @property
    def is_of_a_model(self) -> bool:
        """Whether the groups are a model's own, and not the user's, too."""
        return bool(self.table["kind"].iloc[0] == "model group")


@dataclass(frozen=True, eq=False)
class Audited:
    """Checked rows with what is promised for them.

    `X` is a DataFrame with text as column names, `prediction` a model's. `whole` is what is known of all rows together,
    by columns of the table of regions: a model with a single group has a band.
    """

    rows: CheckedRows
    intervals: FloatArray
    coverage: float
    X: pd.DataFrame | None
    groupings: list[Grouping]
    whole: dict[str, Any]
    prediction: FloatArray | None = None


def prepare(
    y: ArrayLike, intervals: Intervals, X: ArrayLike | None, groups: Groups | None, coverage: float | None
) -> Audited:
    """Return the arguments of :func:`audit` in one form, or say what is wrong with them."""
    check_not_swapped(y)
    model_groups, prediction = None, None
    if not hasattr(intervals, "predict_interval"):
        bounds = as_intervals(intervals, len(np.asarray(y)))
    elif X is None:
        model = type(intervals).__name__
        raise ValueError(f"X must be given with a model ({model}), got None; give the rows to predict")
    elif isinstance(intervals, IntervalRegressor):
        # A model of ours knows its coverage and its groups.
        coverage = intervals.certificate(coverage).coverage
        explained = intervals.explain(X, coverage)
        bounds, prediction = explained[["lower", "upper"]].to_numpy(), explained["median"].to_numpy()
        model_groups = _model_groups(intervals, coverage, explained["group"].to_numpy())
    else:
        bounds = as_intervals(intervals.predict_interval(X), len(np.asarray(y)))

    if coverage is None:
        raise ValueError(
            "coverage must be given with intervals from elsewhere, got None; say what they promise, for example "
            "coverage=0.9 (a fitted icqr model knows its own)"
        )
    level, rows = check_share("coverage", coverage), check_rows(y, bounds)
    table = None if X is None else _named(X)
    if table is not None and len(table) != len(rows.y):
        raise ValueError(f"X must have {len(rows.y)} rows, one per row of y, got {len(table)}")

    # The only group of a model is all rows. Groups that are both the user's and the model's are judged once, as the
    # user's, with what the model knows of them.
    whole: dict[str, Any] = {}
    groupings = [] if groups is None else _user_groups(groups, table, len(rows.y))
    if model_groups is not None and len(model_groups.table) == 1:
        (whole,) = records(model_groups.table)
    elif model_groups is not None:
        whole = _band_of_all(model_groups)
        codes = pd.factorize(model_groups.codes)[0]
        same = [np.array_equal(pd.factorize(each.codes)[0], codes) for each in groupings]
        if any(same):
            given = groupings[same.index(True)]
            number_of_code = pd.Series(model_groups.codes).groupby(given.codes).first()
            facts = model_groups.table.iloc[number_of_code].reset_index(drop=True)
            facts = facts.assign(region=given.table["region"], kind="group")
            groupings[same.index(True)] = Grouping(given.codes, facts)
        else:
            groupings.append(model_groups)
    whole = {**whole, "region": "all rows", "kind": "all rows", "group": None}
    return Audited(rows, bounds, level, table, groupings, whole, prediction)


def check_not_swapped(y: Any) -> None:
    """Say that y and X look swapped, if y is a table or the methods of a comparison."""
    is_table = np.ndim(y) == 2 and np.shape(y)[1] > 1
    if is_table or isinstance(y, Mapping) or hasattr(y, "predict_interval"):
        got = f"{type(y).__name__}{f' of shape {np.shape(y)}' * is_table}"
        raise ValueError(
            f"y must hold one number per row, got {got}; y and X look swapped: y comes first, as in "
            "audit(y, intervals, X), compare(y, methods, X) and report(subject, path, y, X)"
        )


def as_intervals(intervals: Any, n: int) -> FloatArray:
    """Return the intervals of n rows as an (n, 2) array, whatever library they come from.

    (n, 2) or (n, 2, 1) bounds (crepes, MAPIE); a table with two columns; (prediction, bounds) (MAPIE); (lower, upper);
    (prediction, lower, upper) (puncc, whose prediction may be None or quantiles). A plain list of two pairs is taken as
    two rows.
    """
    parts = intervals if isinstance(intervals, tuple | list) else [intervals]
    bounds = intervals
    is_list_of_rows = isinstance(intervals, list) and len(intervals) == n == 2
    if len(parts) in (2, 3) and not is_list_of_rows:
        is_column = [np.shape(part) in ((n,), (n, 1)) for part in parts]
        if all(is_column[-2:]):
            bounds = np.column_stack([np.ravel(part) for part in parts[-2:]])
        elif is_column[0] and len(parts) == 2:
            bounds = parts[1]

    try:
        array = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):  # text, or parts of different lengths
        array = np.empty(0)
    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.shape != (n, 2):
        shapes = ", ".join(str(np.shape(part)) for part in parts[:3])
        raise ValueError(
            f"intervals must hold a lower and an upper bound for each of the {n} rows of y: an (n, 2) or (n, 2, 1) "
            "array, (lower, upper), (prediction, lower, upper), (prediction, (n, 2, 1) array) or a fitted model; "
            f"got {type(intervals).__name__} of shape {shapes}. Of several coverages audit one at a time: "
            "intervals[:, :, 0]"
        )
    return array


def _named(X: Any) -> pd.DataFrame:
    """Return a table as a DataFrame with text as column names; two names may be the same only as text."""
    table = as_table(X.set_axis([str(name) for name in X.columns], axis=1) if isinstance(X, pd.DataFrame) else X)
    if isinstance(table, pd.DataFrame):
        return table.reset_index(drop=True)
    return pd.DataFrame(table, columns=pd.Index([f"x{j}" for j in range(table.shape[1])]))


def _model_groups(model: IntervalRegressor, coverage: float, labels: IntArray) -> Grouping:
    """Return a model's groups with their rules and what their calibration can give."""
    names = [f"group {group} ({rule})" for group, rule in enumerate(model.descriptions_["rule"])]
    table = model.certificate(coverage).groups.rename(columns={"n": "calibration_rows"})
    table = table.assign(region=[*names, "no known group"], kind="model group")
    codes = np.where(labels < 0, len(table) - 1, labels).astype(np.intp)
    # Rows of no known group are a group only where there are any.
    return Grouping(codes, table if codes.max() == len(table) - 1 else table.iloc[:-1])


def _band_of_all(groups: Grouping) -> dict[str, Any]:
    """Return the band of the coverage of all rows together, from those of a model's groups; without one: nothing.

    A group's coverage over calibration sets is Beta(rank, n + 1 − rank). Their mean, weighted by the groups' shares of
    the rows, is nearly a Beta with the same mean and variance.
    """
    table = groups.table.assign(share=pd.Series(groups.codes).value_counts(normalize=True)).fillna({"share": 0})
    present = table[table["share"] > 0]
    if present["band_lower"].isna().any():
        return {}
    total = present["calibration_rows"] + 1
    means = present["rank"] / total
    variance = float((present["share"] ** 2 * means * (1 - means) / (total + 1)).sum())
    mean = float((present["share"] * means).sum())
    size = mean * (1 - mean) / variance - 1
    low, high = stats.beta.interval(BAND, mean * size, (1 - mean) * size)
    return {"calibration_rows": int(present["calibration_rows"].sum()), "band_lower": low, "band_upper": high}


def _user_groups(groups: Any, X: pd.DataFrame | None, n: int) -> list[Grouping]:
    """Return a grouping for each column of labels: an array, a table, or names of columns of X."""
    # A table of labels, whatever was given. A list as long as X has rows holds labels, a shorter one names.
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
        table = pd.DataFrame({"region": [value_rule(name, value) for value in values], "kind": "group"})
        groupings.append(Grouping(codes.astype(np.intp), table))
    return groupings
