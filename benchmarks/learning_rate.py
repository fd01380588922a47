"""CQR with eight times the trees at a quarter of the learning rate: what else could be had for the time.

    ICQR_DATA_HOME=DATA python -m benchmarks.learning_rate DIR/rows.parquet --seeds 2

The benchmark's control, "CQR, more trees", keeps the learning rate. Here it is lower, on the same splits (LightGBM,
coverage 0.9); the other methods' numbers come from the benchmark's rows. Interval scores, relative to CQR's; "nan"
where the rows lack the method.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import MORE, REAL, Cell, Settings
from benchmarks.quality.run import make_case, read_rows
from icqr import CQR
from icqr.metrics import interval_score

LEVEL, BASE, RATE = 0.9, "lightgbm", 0.025
LOWER = "lower rate"
METHODS = (MORE, LOWER, "AutoICQR", "AutoICQR, thorough")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="the benchmark's rows.parquet")
    parser.add_argument("data", nargs="*", help=f"of {', '.join(REAL)} (default: all but blog)")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    rows = read_rows(options.rows)
    rows = rows[(rows["base"] == BASE) & (rows["level"] == LEVEL) & (rows["seed"] < options.seeds)]
    measuring.print_head(["data", *METHODS])
    log_ratios = []
    for data in options.data or [name for name in REAL if name != "blog"]:
        scores = rows[rows["data"] == data].groupby("method")["interval_score"].mean()
        scores[LOWER] = np.mean([judged(data, seed) for seed in range(options.seeds)])
        ratios = (scores / scores["CQR"]).reindex(METHODS)
        log_ratios.append(np.log(ratios))
        measuring.print_row([data, *ratios])
    print("over the sets:", np.exp(np.mean(log_ratios, axis=0)).round(3).tolist())


def judged(data: str, seed: int) -> float:
    """Fit CQR with more trees at the lower rate, and return its interval score."""
    with threadpool_limits(limits=1):
        case = make_case(Cell(data, BASE, LEVEL, seed), Settings())
        more = case.base.with_more_effort()
        slower = replace(more, settings={**more.settings, "learning_rate": RATE})
        held_out = case.calibration
        model = CQR(slower.make(seed), LEVEL, random_state=seed)
        model.fit(case.train.X, case.train.y, X_calibration=held_out.X, y_calibration=held_out.y)
        return interval_score(case.test.y, model.predict_interval(case.test.X), coverage=LEVEL)


if __name__ == "__main__":
    main()
