"""Rows of which some are hard to predict, and bounds that do not know it."""

import numpy as np
import pandas as pd

from icqr import prefit

#: The same width everywhere.
LEVEL_WIDTHS = prefit(
    lower=lambda X: 3 * X["a"] - 2,
    median=lambda X: 3 * X["a"],
    upper=lambda X: 3 * X["a"] + 2,
    levels=(0.05, 0.5, 0.95),
)


def draw(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw rows whose spread is ten times as large in Rome."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(n, 2)), columns=["a", "b"])
    X["city"] = rng.choice(["Bern", "Genf", "Rom"], n)
    X.loc[::11, "b"] = np.nan
    return X, (3 * X["a"] + np.where(X["city"] == "Rom", 10, 1) * rng.normal(size=n)).to_numpy()
