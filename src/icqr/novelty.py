"""New rows against the calibration rows: is a row unlike its group, and has the mix of groups changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
from scipy import stats

from icqr._notebook import foldable, shown
from icqr._sheet import Cell, Column, Sheet, cell, share
from icqr._tables import FloatArray, IntArray

#: A smaller p-value counts as a sign that the mix of groups has changed.
LEAST_P_VALUE = 0.05


@dataclass(frozen=True)
class Novelty:
    """Each group's sorted distances from its calibration rows to its centroid. They show how unusual a new row is.

    Examples
    --------
    >>> novelty = Novelty.of(np.array([1.0, 2.0, 3.0]), np.zeros(3, dtype=int), 1)
    >>> novelty.p_values(np.array([2.5, 9.0]), np.zeros(2, dtype=int))
    array([0.5 , 0.25])
    """

    distances: tuple[FloatArray, ...]

    @classmethod
    def of(cls, distances: FloatArray, labels: IntArray, n_groups: int) -> Novelty:
        """Sort the calibration rows' distances by group."""
        return cls(tuple(np.sort(distances[labels == group]) for group in range(n_groups)))

    @classmethod
    def merged(cls, parts: Sequence[Novelty]) -> Novelty:
        """Return the same as `of` would for the rows of all parts together."""
        return cls(
            tuple(np.sort(np.concatenate(group)) for group in zip(*(part.distances for part in parts), strict=True))
        )

    def p_values(self, distances: FloatArray, labels: IntArray) -> FloatArray:
        """Return conformal p-values: small means farther from the centroid than the group's calibration rows.

        They are NaN in a group without calibration rows.
        """
        values = np.full(len(labels), np.nan)
        for group, known in enumerate(self.distances):
            if len(known) == 0:
                continue  # nothing to compare with
            rows = labels == group
            farther = len(known) - np.searchsorted(known, distances[rows], side="left")
            values[rows] = (1 + farther) / (len(known) + 1)
        return values


@dataclass(frozen=True)
class GroupShift:
    """Each group's share of the new rows, next to its share of the calibration rows.

    Attributes
    ----------
    table : DataFrame
        A row per group (-1: rows of no known group): `calibration_share`, `new_share`.
    p_value : float
        From the chi-squared test that both have the same shares, or from 1,999 random tables if counts are small. A
        small value means that the mix of groups has changed. This affects the coverage over all rows, but not the
        coverage in each group.
    """

    table: pd.DataFrame
    p_value: float

    def __str__(self) -> str:
        if self.p_value >= LEAST_P_VALUE:
            return f"No sign that the mix of groups has changed (p = {self.p_value:.2g})."
        # The group whose share has changed most.
        row = self.table.iloc[int((self.table["new_share"] - self.table["calibration_share"]).abs().argmax())]
        group = "no known group" if row["group"] < 0 else f"group {row['group']:.0f}"
        return (
            f"The mix of groups has changed (p = {self.p_value:.2g}), most of all in {group}: {row['new_share']:.1%} "
            f"of the new rows, {row['calibration_share']:.1%} of the calibration rows. If only the mix has "
            "changed, each group keeps its promise, and that over all rows may not hold. It does not show whether y "
            "behaves differently: audit labelled rows."
        )

    def __repr__(self) -> str:
        return f"{self}\n{self.table.to_string(index=False, max_rows=10)}"

    def _repr_html_(self) -> str:
        heads = [Column("group"), Column("of the calibration rows"), Column("of the new rows")]
        rows = [
            [Cell("none known") if group < 0 else cell(group), share(old), share(new)]
            for group, old, new in self.table.itertuples(index=False, name=None)
            if group >= 0 or old or new
        ]
        return shown(
            f"<p><strong>{escape(str(self))}</strong></p>", foldable("Share of each group", Sheet(heads, rows))
        )


def group_shift(calibration_sizes: IntArray, labels: IntArray) -> GroupShift:
    """Compare the groups of new rows with the calibration's; `calibration_sizes` ends with rows of no known group.

    Examples
    --------
    >>> group_shift(np.array([50, 50, 0]), np.repeat([0, 1], [45, 55])).p_value > 0.05
    True
    """
    n_groups = len(calibration_sizes) - 1
    new = np.bincount(np.where(labels < 0, n_groups, labels), minlength=n_groups + 1)
    counts = np.stack([calibration_sizes, new])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    table = pd.DataFrame({"group": [*range(n_groups), -1], "calibration_share": shares[0], "new_share": shares[1]})

    counts = counts[:, counts.sum(axis=0) > 0]
    if counts.shape[1] < 2 or not counts.any(axis=1).all():
        return GroupShift(table, 1.0)  # nothing to compare
    statistic, p_value, _, expected = stats.chi2_contingency(counts, correction=False)
    if expected.min() < 5:
        # The chi-squared distribution is far off for small counts. Compare with random tables of the same totals.
        law = stats.random_table(counts.sum(axis=1), counts.sum(axis=0))
        tables = law.rvs(1999, random_state=np.random.default_rng(0))
        as_far = ((tables - expected) ** 2 / expected).sum(axis=(1, 2)) >= statistic * (1 - 1e-12)
        p_value = (1 + as_far.sum()) / (1 + len(tables))
    return GroupShift(table, float(p_value))
