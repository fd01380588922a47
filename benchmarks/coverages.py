"""Other coverages from one fit: how much worse they are than those of a fit of their own.

    ICQR_DATA_HOME=DATA python -m benchmarks.coverages --seeds 2

AutoICQR is fitted at 0.9 on the benchmark's splits and asked for other coverages. The table has their interval score
over that of a fit at that coverage (geometric mean over seeds), and the share of test rows whose predicted median lies
outside the interval.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import BASES, DATA, REAL, Cell, Settings
from benchmarks.quality.run import make_case
from icqr import AutoICQR
from icqr.metrics import interval_score
from icqr.residual_quantiles import EFFORTS

FITTED, ASKED = 0.9, (0.5, 0.8, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help=f"of {', '.join(DATA)} (default: the real sets)")
    parser.add_argument("--bases", nargs="+", choices=BASES, default=["lightgbm"])
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=["quick"])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    columns = [f"{what} at {coverage:g}" for what in ("score / own", "median outside") for coverage in ASKED]
    measuring.print_head(["data", "base", "effort", *columns])
    for base in options.bases:
        for effort in options.efforts:
            log_ratios = []
            for data in options.data or REAL:
                each = [judged(Cell(data, base, FITTED, seed), effort) for seed in range(options.seeds)]
                logs, outside = np.mean(each, axis=0)
                log_ratios.append(logs)
                measuring.print_row([data, base, effort, *np.exp(logs).tolist(), *outside.tolist()])
            mean, worst = (np.exp(over(log_ratios, axis=0)).round(3).tolist() for over in (np.mean, np.max))
            print(f"over the sets: {mean}, at most {worst}")


def judged(cell: Cell, effort: str) -> list[list[float]]:
    """Return, for each coverage, the logarithm of the ratio of scores and the share of medians outside."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about small groups: they are a part of the result
        case = make_case(cell, Settings())

        def fitted(coverage: float) -> AutoICQR:
            model = AutoICQR(case.base.make(case.seed), coverage, effort=effort, random_state=case.seed)
            return model.fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)

        model = fitted(FITTED)
        median, log_ratios, outside = model.predict(case.test.X), [], []
        for coverage in ASKED:
            intervals = model.predict_interval(case.test.X, coverage)
            own = fitted(coverage).predict_interval(case.test.X)
            scores = [interval_score(case.test.y, bounds, coverage=coverage) for bounds in (intervals, own)]
            log_ratios.append(float(np.log(scores[0] / scores[1])))
            outside.append(float(np.mean((median < intervals[:, 0]) | (median > intervals[:, 1]))))
        return [log_ratios, outside]


if __name__ == "__main__":
    main()
