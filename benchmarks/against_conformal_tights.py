"""conformal-tights on the benchmark's splits, beside methods that `benchmarks.quality` ran on them.

    pip install -e ".[benchmark]" conformal-tights
    python -m benchmarks.against_conformal_tights DIR --seeds 5

It is no method of the benchmark because it takes neither a fitted quantile model nor calibration rows of one's own:
it fits a point model and quantiles by XGBoost, and draws its calibration rows itself. So here it gets both, the rows
that train and those that calibrate, and is judged on the same rows as all others. "default" is as it comes, "lightgbm"
has the benchmark's LightGBM as its point model. Other methods' numbers are read from ``DIR/rows.parquet``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from conformal_tights import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    ConformalCoherentQuantileRegressor,
)
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import REAL, Cell, Settings
from benchmarks.quality.methods import Outcome
from benchmarks.quality.run import make_case, measures, read_rows

LEVEL, BASE = 0.9, "lightgbm"
SETTINGS = Settings()
METHODS = ["CQR", "AutoICQR", "default", BASE]
MEASURES = ["coverage", "interval score", "ERT", "seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the benchmark")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows = read_rows(options.folder / "rows.parquet")
    rows = rows[(rows["base"] == BASE) & (rows["level"] == LEVEL) & (rows["seed"] < options.seeds)]
    shown = [(measure, name) for measure in MEASURES[:2] for name in METHODS[1:]] + [("ERT", name) for name in METHODS]
    measuring.print_head(["data", "seeds", *(f"{measure}, {name}" for measure, name in shown)])
    tables = {}
    for data in [data for data in REAL if data in set(rows["data"])]:
        known = rows[rows["data"] == data]
        seeds = known["seed"].unique()
        of_set = {name: beside(known[known["method"] == name]) for name in METHODS[:2]}
        of_set |= {name: np.mean([tights(data, seed, name) for seed in seeds], axis=0) for name in METHODS[2:]}
        of_cqr = of_set["CQR"][MEASURES.index("interval score")]
        for values in of_set.values():
            values[MEASURES.index("interval score")] /= of_cqr
        measuring.print_row([data, len(seeds), *(of_set[name][MEASURES.index(measure)] for measure, name in shown)])
        tables[data] = pd.DataFrame(of_set, index=MEASURES)
    scores, erts, seconds = (pd.DataFrame({data: tables[data].loc[row] for data in tables}) for row in MEASURES[1:])
    print("interval score / CQR's:", np.exp(np.log(scores).mean(axis=1)).round(3).to_dict())
    for name, values in (("ERT", erts), ("seconds", seconds)):
        print(f"{name} / CQR's:", (values.sum(axis=1) / values.loc["CQR"].sum()).round(2).to_dict())


def beside(rows: pd.DataFrame) -> Any:
    """Return the means of a method of the benchmark."""
    seconds = rows["base_seconds"] + rows["own_seconds"]
    return np.array([rows["coverage"].mean(), rows["interval_score"].mean(), rows["ert"].mean(), seconds.mean()])


def tights(data: str, seed: int, kind: str) -> Any:
    """Return the measures of conformal-tights on one split."""
    case = make_case(Cell(data, BASE, LEVEL, seed), SETTINGS)
    everything = numbered(pd.concat([rows.X for rows in (case.train, case.calibration, case.test)]))
    X, X_test = everything[: -len(case.test.y)], everything[-len(case.test.y) :]
    y = np.concatenate([case.train.y, case.calibration.y])
    estimator = "auto" if kind == "default" else SETTINGS.bases[BASE].make(seed)
    model = ConformalCoherentQuantileRegressor(estimator, random_state=seed)
    start = time.process_time()
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own
        model.fit(X, y)
        intervals = np.asarray(model.predict_interval(X_test, coverage=LEVEL))
        seconds = time.process_time() - start
        row = measures(case, Outcome(intervals))
    return np.array([row["coverage"], row["interval_score"], row["ert"], seconds])


def numbered(X: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose categories are numbers: it refuses text."""
    texts = X.select_dtypes(exclude="number").columns
    return X.assign(**{name: X[name].astype("category").cat.codes.astype("category") for name in texts})


if __name__ == "__main__":
    main()
