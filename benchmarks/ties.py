"""What random ties do on y with many equal values: coverage, and how many rows get another interval.

    ICQR_DATA_HOME=DATA python -m benchmarks.ties blog --seeds 5

Methods are fitted at 0.9 on the benchmark's splits. Coverage beyond what was asked for, with its standard error over
seeds, once with all ties covered and once with `ties="random"`.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import BASES, DATA, Cell, Settings
from benchmarks.quality.run import make_case
from icqr import CQR, AutoICQR
from icqr.conformity import TIES
from icqr.metrics import coverage_score

METHODS = {"CQR": CQR, "AutoICQR": AutoICQR}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["blog"], help=f"of {', '.join(DATA)} (default: blog)")
    parser.add_argument("--bases", nargs="+", choices=BASES, default=["lightgbm", "histgb"])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    columns = [f"{what}, {ties}" for ties in TIES for what in ("coverage - 0.9", "standard error")]
    measuring.print_head(["data", "base", "method", *columns])
    for data in options.data:
        for base in options.bases:
            for name, method in METHODS.items():
                each = np.array([excesses(Cell(data, base, 0.9, seed), method) for seed in range(options.seeds)])
                means, errors = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
                cells = [f"{value:+.4f}" for pair in zip(means, errors, strict=True) for value in pair]
                measuring.print_row([data, base, name, *cells])


def excesses(cell: Cell, method: Any) -> list[float]:
    """Return coverage beyond what was asked for, with all ties covered and with random ones."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        case = make_case(cell, Settings())
        found = []
        for ties in TIES:
            model = method(case.base.make(cell.seed), cell.level, ties=ties, random_state=cell.seed)
            model.fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)
            found.append(coverage_score(case.test.y, model.predict_interval(case.test.X)) - cell.level)
        return found


if __name__ == "__main__":
    main()
