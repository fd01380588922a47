"""Collapse: a quantile model that predicts the same for nearly all rows, though y varies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.tree import DecisionTreeRegressor

from icqr._tables import FloatArray, Table, draw_rows, readable_columns, settle_kinds, take_rows
from icqr.quantiles import MEDIAN, PointModel

#: Values are the same if they differ by at most this share of y's mean distance from its median.
SAME = 1e-3
#: Predictions are constant if at least this share of them is the same, and y if this share of it is.
NEARLY_ALL, CONSTANT_Y = 0.95, 0.99
#: With fewer rows nothing is said.
FEWEST_ROWS = 20
#: Whether the columns tell rows apart is tested on at most this many rows, and on fewer than this not at all.
MOST_TESTED, FEWEST_TESTED = 4000, 40
#: Rows in which a constant seems wrong count only if chance makes as many less often than this.
CHANCE = 1e-3


class Evidence(NamedTuple):
    """What speaks against a constant quantile: rows in which y is on one side of it too often."""

    chance: float  # that so many rows are on this side if the constant is right
    side: str = ""
    share: float = 0.0  # of all rows
    found: float = 0.0  # the share of them in which y is on this side
    allowed: float = 0.0


def find_collapse(X: Table, y: FloatArray, quantiles: FloatArray, levels: Sequence[float], seed: int) -> str | None:
    """Return a sentence that says which quantiles have collapsed and why, or None.

    A quantile is constant if it is the same for at least 95 % of the rows. That is right where y's own quantile does
    not change: the lower bound of counts may be 0 everywhere. So a constant quantile has collapsed only if all are
    constant, or if the columns speak against it. For that, a small tree looks on one half of the rows for those in
    which y is above the constant (or below it) too often, and they are counted on the other half.

    If 99 % of y is the same, nothing has collapsed; and of fewer than 20 rows nothing is said.

    Parameters
    ----------
    X, y : table and array
        The training rows.
    quantiles : array of shape (n, levels)
        Their predicted quantiles.
    levels : sequence of float
        The level of each column of `quantiles`.
    seed : int
        Seed for the halves.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> quantiles = np.column_stack([X - 1, np.full(100, 0.5), X + 1])
    >>> find_collapse(X, X.ravel(), quantiles, (0.05, 0.5, 0.95), seed=0).partition(",")[0]
    'The quantile model predicts the same median (0.5) for nearly all training rows'
    """
    with np.errstate(over="ignore", invalid="ignore"):  # if y spans nearly all floats, nothing is said
        tolerance = SAME * float(np.mean(np.abs(y - np.median(y))))
        places = [place for place, column in enumerate(quantiles.T) if _is_constant(column, tolerance, NEARLY_ALL)]
        if len(y) < FEWEST_ROWS or not places or _is_constant(y, tolerance, CONSTANT_Y):
            return None

    values = [float(np.median(quantiles[:, place])) for place in places]
    found = []
    for place, value in zip(places, values, strict=True):
        inside = np.flatnonzero(np.abs(quantiles[:, place] - value) <= tolerance)
        found.append(_evidence(take_rows(X, inside), y[inside] - value, tolerance, levels[place], seed))
    against = [evidence is not None for evidence in found]
    if not any(against) and len(places) < len(levels):
        return None

    # If all are constant, all have collapsed. Otherwise, those that something speaks against.
    collapsed = [i for i in range(len(places)) if against[i] or len(places) == len(levels)]
    named = ", ".join(f"{_name(levels[places[i]])} ({values[i]:.6g})" for i in collapsed)
    first = min(collapsed, key=lambda i: (found[i] or Evidence(1.0), levels[places[i]] != MEDIAN))
    return f"The quantile model predicts the same {named} for nearly all training rows, though y varies. " + _reason(
        y, values[first], tolerance, _name(levels[places[first]]), found[first]
    )


def _is_constant(values: FloatArray, tolerance: float, share: float) -> bool:
    return bool(np.mean(np.abs(values - np.median(values)) <= tolerance) >= share)


def _name(level: float) -> str:
    return "median" if level == MEDIAN else f"{level:g}-quantile"


def _evidence(X: Table, y: FloatArray, tolerance: float, level: float, seed: int) -> Evidence | None:
    """Look for rows in which y is above 0, or below it, more often than 0 as a quantile of this level allows."""
    if len(y) < FEWEST_TESTED:
        return None
    rng = np.random.default_rng(seed)
    rows = rng.permutation(draw_rows(len(y), MOST_TESTED, rng))
    looked, counted = np.array_split(np.arange(len(rows)), 2)
    y, table = y[rows], pd.DataFrame(take_rows(X, rows))
    # A pipeline may read columns that a tree can't: dates, or numbers that are infinite.
    readable = settle_kinds(table.iloc[:, readable_columns(table)].replace([np.inf, -np.inf], np.nan))
    if not readable.shape[1]:
        return None

    found = []
    for side, beyond, allowed in (("above", y > tolerance, 1 - level), ("below", y < -tolerance, level)):
        tree = DecisionTreeRegressor(max_leaf_nodes=8, min_samples_leaf=max(10, len(looked) // 50), random_state=0)
        fitted = PointModel(tree).fit(take_rows(readable, looked), beyond[looked].astype(np.float64))
        suspect = beyond[counted][fitted.predict(take_rows(readable, counted)) > allowed]
        if len(suspect):
            chance = float(stats.binom.sf(suspect.sum() - 1, len(suspect), allowed))
            share = len(suspect) / len(counted)
            found.append(Evidence(chance, side, share, float(suspect.mean()), allowed))
    strongest = min(found, default=None)
    return strongest if strongest is not None and strongest.chance < CHANCE else None


def _reason(y: FloatArray, value: float, tolerance: float, name: str, evidence: Evidence | None) -> str:
    tied = np.abs(y - value) <= tolerance
    is_tied = tied.sum() >= max(5, 0.03 * len(y))
    ties = f"y is {value:.6g} in {tied.mean():.0%} of the rows, and "
    if evidence is not None:
        where = "all rows" if evidence.share == 1 else f"{evidence.share:.0%} of the rows, which a small tree finds"
        against = (
            f"in {where}, y is {evidence.side} this {name} in {evidence.found:.0%} (allowed: {evidence.allowed:.0%})."
        )
        if is_tied:
            return f"{ties}the model does not get away from it. Yet {against}"
        return f"But {against} The model may have too few trees, or need too many rows in each leaf."
    if is_tied:
        return f"{ties}where a value is so frequent, quantiles are equal to it unless the columns say much about y."
    return (
        "Either the columns say nothing about y, or the model needs more rows, more trees, or fewer rows in each leaf."
    )
