"""The paper's own numbers: its Tables 2 to 7, from `paper_values.csv` beside this file."""

from __future__ import annotations

from importlib import resources

import pandas as pd

STATISTICS = ("min", "max", "mean", "std", "Q1", "median", "Q3", "IQR")


def paper_values(measure: str) -> pd.DataFrame:
    """Give the paper's own table of "width" or "coverage"; its bike sharing has the leak.

    Examples
    --------
    >>> table = paper_values("coverage")
    >>> table.loc[("boston", "QR"), "mean"].item()
    0.837795
    """
    with resources.files("icqr.experiments").joinpath("paper_values.csv").open(encoding="utf-8") as stream:
        table = pd.read_csv(stream)
    return table[table["measure"] == measure].drop(columns="measure").set_index(["data", "method"])
