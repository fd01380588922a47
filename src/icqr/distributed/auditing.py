"""How often intervals hold, counted over all rows of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from icqr.distributed.blocks import delayed_blocks
from icqr.distributed.cluster import on_each, reduced


def coverage_counts(frame: Any, y: str, lower: str, upper: str, groups: str | None = None) -> pd.DataFrame:
    """Count the rows of a Dask DataFrame whose interval holds, in all and in each group.

    Parameters
    ----------
    frame : Dask DataFrame
        Rows with their intervals.
    y, lower, upper : str
        The columns of what happened and of the bounds.
    groups : str, optional
        A column whose values are groups.

    Returns
    -------
    DataFrame
        A row for each group, by default one for all rows, with `n`, `covered` and `coverage`.
    """
    columns = list(dict.fromkeys([y, lower, upper, *([] if groups is None else [groups])]))
    blocks = delayed_blocks(frame[columns])
    counts: pd.DataFrame = reduced(on_each(_counted, blocks, y, lower, upper, groups), _added, "counting")
    return counts.assign(coverage=counts["covered"] / counts["n"])


def _counted(block: pd.DataFrame, y: str, lower: str, upper: str, groups: str | None) -> pd.DataFrame:
    covered = (block[lower] <= block[y]) & (block[y] <= block[upper])
    labels = np.full(len(block), "all rows", dtype=object) if groups is None else block[groups].to_numpy(dtype=object)
    rows = pd.DataFrame({"group": labels, "n": 1, "covered": covered.to_numpy(dtype=np.int64)})
    return rows.groupby("group", dropna=False).sum()


def _added(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts).groupby("group", dropna=False).sum()
