"""CQR with eight times the trees at a quarter of the learning rate: what else could be had for the same time.

    ICQR_DATA_HOME=DATA python benchmarks/learning_rate.py docs/benchmark/rows.parquet --seeds 2

The benchmark's control, "CQR, more trees", keeps the learning rate. Here it is lower, on the same splits (LightGBM,
coverage 0.9); the other methods' numbers come from the benchmark's rows. Relative to CQR.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import measuring
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from icqr import CQR
from icqr.experiments.benchmark import read_rows
from icqr.experiments.benchmark_methods import Outcome
from icqr.experiments.benchmark_rows import Measures, make_case
from icqr.experiments.benchmark_settings import MORE, REAL, Cell, Settings

LEVEL, BASE, RATE = 0.9, "lightgbm", 0.025
LOWER, RESIDUAL = "lower rate", "ICQR, residual, auto"
METHODS = (MORE, LOWER, RESIDUAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="the benchmark's rows.parquet")
    parser.add_argument("data", nargs="*", help=f"of {', '.join(REAL)} (default: all but blog)")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    rows = read_rows(options.rows)
    rows = rows[(rows["base"] == BASE) & (rows["level"] == LEVEL) & (rows["seed"] < options.seeds)]
    rows["seconds"] = rows["base_seconds"] + rows["own_seconds"]
    measuring.print_head(["data", *(f"{what} of {name}" for what in ("score", "seconds") for name in METHODS)])
    found = []
    for data in options.data or [name for name in REAL if name != "blog"]:
        ran = pd.DataFrame([judged(data, seed) for seed in range(options.seeds)])
        means = pd.concat([rows[rows["data"] == data], ran])[["method", "interval_score", "seconds"]]
        table = means.groupby("method").mean()
        ratios = (table / table.loc["CQR"]).loc[list(METHODS)]
        found.append(np.log(ratios.to_numpy()))
        measuring.print_row([data, *ratios["interval_score"], *ratios["seconds"]])
    for measure, values in zip(("interval score", "seconds"), np.exp(np.mean(found, axis=0)).T, strict=True):
        print(f"{measure} / CQR's:", dict(zip(METHODS, values.round(3).tolist(), strict=True)))


def judged(data: str, seed: int) -> dict[str, object]:
    """Fit CQR with more trees at the lower rate, and measure it."""
    with threadpool_limits(limits=1):
        case = make_case(Cell(data, BASE, LEVEL, seed), Settings())
        more = case.base.with_more_effort()
        slower = replace(more, settings={**more.settings, "learning_rate": RATE})
        held_out, start = case.calibration, time.process_time()
        model = CQR(slower.make(seed), LEVEL, random_state=seed)
        model.fit(case.train.X, case.train.y, X_calibration=held_out.X, y_calibration=held_out.y)
        intervals = model.predict_interval(case.test.X)
        seconds = time.process_time() - start
        score = Measures(case).all(Outcome(intervals))["interval_score"]
    return {"method": LOWER, "interval_score": score, "seconds": seconds}


if __name__ == "__main__":
    main()
