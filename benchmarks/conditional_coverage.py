"""Coverage given the features where the quantile model is wrong: linear quantile regression on the paper's four laws.

    python -m benchmarks.conditional_coverage --rows 3000 12000 48000

The law is known, and so is each interval's true coverage. The table has the mean distance from the coverage asked for:
of CQR, of ``ICQR(partition="auto")``, and of groups made from the true difficulty, which nobody knows. The best of 2,
4, 8 and 16 of those is what groups could do with so many rows. The linear model is fitted on 2,000 other rows; two
thirds of the rows learn the groups, one third calibrates.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import QuantileRegressor

from benchmarks import measuring
from benchmarks.quality.grid import SYNTHETIC
from icqr import CQR, ICQR, GroupPartition, prefit
from icqr.calibration import quantile_levels
from icqr.datasets import Synthetic

COVERAGE = 0.9
LEVELS = tuple(quantile_levels(COVERAGE, "both"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[3000, 12000, 48000])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    measuring.print_head(["law", "rows", "CQR", "auto", "auto / CQR", "true groups / CQR", "groups of auto"])
    for name, law in SYNTHETIC.items():
        for n in options.rows:
            each = [distances(law, n, seed) for seed in range(options.seeds)]
            cqr, auto, *true, groups = np.mean(each, axis=0).tolist()
            measuring.print_row([name, n, cqr, auto, auto / cqr, min(true) / cqr, groups])


def distances(law: Any, n: int, seed: int) -> list[float]:
    """Return the distances of CQR, of auto and of 2, 4, 8 and 16 true groups, and the number of groups of auto."""
    known, drawn, judged = (law(size, random_state=3 * seed + i) for i, size in enumerate((2000, n, 5000)))
    levels = [QuantileRegressor(alpha=0.0, quantile=level).fit(known.X, known.y) for level in LEVELS]
    bounds = prefit(lower=levels[0], median=levels[1], upper=levels[2], levels=LEVELS)

    def difficulty(X: Any) -> Any:
        return true_difficulty(known, X, levels[0].predict(X), levels[2].predict(X))

    cut = 2 * n // 3
    edges = [np.quantile(difficulty(drawn.X[:cut]), np.arange(1, k) / k) for k in (2, 4, 8, 16)]
    partitions = [GroupPartition(lambda X, at=at: np.searchsorted(at, difficulty(X))) for at in edges]
    auto = ICQR(bounds, COVERAGE, partition="auto", random_state=seed)
    true = [ICQR(bounds, COVERAGE, partition=partition, random_state=seed) for partition in partitions]
    methods = [CQR(bounds, COVERAGE, random_state=seed), auto, *true]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of true groups that are too small
        for method in methods:
            method.fit(drawn.X[:cut], drawn.y[:cut], X_calibration=drawn.X[cut:], y_calibration=drawn.y[cut:])
        intervals = [method.predict_interval(judged.X) for method in methods]
    gaps = [float(np.abs(judged.coverage(judged.X, bounds) - COVERAGE).mean()) for bounds in intervals]
    return [*gaps, auto.n_groups_]


def true_difficulty(law: Synthetic, X: Any, lower: Any, upper: Any) -> Any:
    """Return the offset with which the bounds cover just as often as asked, by bisection."""
    low, high = np.full(len(X), -(upper - lower) / 2), np.full(len(X), 10.0)
    for _ in range(30):
        middle = (low + high) / 2
        enough = law.coverage(X, np.column_stack([lower - middle, upper + middle])) >= COVERAGE
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


if __name__ == "__main__":
    main()
