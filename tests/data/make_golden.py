"""Made the golden files of the artifact's version 1. They are kept as they are: every later icqr must read them.

    python tests/data/make_golden.py

writes golden-v1-NAME.icqr, and beside each golden-v1-NAME.json with rows and what the model answered for them. Run it
only for a new version of the format, under new names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icqr import CQR, ICQR, GroupPartition, KMeansPartition, save


def make_rows(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with missing ones, and categories."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"area": rng.uniform(20, 200, n), "age": rng.integers(0, 100, n), "floor": rng.integers(0, 9, n)})
    X["city"] = rng.choice(["Bern", "Genf", "Zürich"], n)
    y = 3 * X["area"] + (X["city"] == "Genf") * 200 + (20 + X["age"]) * rng.normal(size=n)
    X.loc[::9, "area"] = np.nan
    X.loc[::14, "city"] = None
    return X, y.to_numpy()


GOLDEN: dict[str, Any] = {
    "lightgbm": ICQR(
        LGBMRegressor(n_estimators=5, num_leaves=7), partition=KMeansPartition(choose=4), y_min=-1000, random_state=0
    ),
    "hist": ICQR(
        HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=7),
        coverage=0.8,
        partition=GroupPartition(["city"]),
        symmetric=False,
        random_state=0,
    ),
    "linear": CQR(make_pipeline(StandardScaler(), QuantileRegressor(alpha=0.1)), conformity="cqr-r", random_state=0),
}


def main() -> None:
    folder = Path(__file__).parent
    X, y = make_rows(400, seed=0)
    new, _ = make_rows(12, seed=1)
    for name, model in GOLDEN.items():
        columns = ["age", "floor"] if name == "linear" else list(X.columns)
        model.fit(X[columns], y)
        save(model, folder / f"golden-v1-{name}.icqr")
        explained = model.explain(new[columns])
        answers = {
            "rows": json.loads(new[columns].to_json(orient="records")),
            "interval": model.predict_interval(new[columns]).tolist(),
            "interval_50": model.predict_interval(new[columns], coverage=0.5).tolist(),
            "median": model.predict(new[columns]).tolist(),
            "group": explained["group"].tolist(),
            "promised": explained["promised"].tolist(),
            "rules": model.groups_["rule"].tolist(),
        }
        (folder / f"golden-v1-{name}.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
