"""Methods on few rows: 200 to train and calibrate with, the rest to judge by.

    pip install -e ".[benchmark]"
    ICQR_DATA_HOME=DATA python -m benchmarks.few_rows --seeds 20

Each seed draws the rows anew. Base models have their libraries' defaults, and every method gets all 200 rows: ours set
rows aside for calibration or cross-fit, as their defaults are; MAPIE's two cross-fit in five folds. Interval scores at
coverage 0.9 are relative to those of MAPIE's CV+ (``CrossConformalRegressor(method="plus")``) on the same rows,
geometric means over seeds; coverages are means. `diabetes`, which comes with scikit-learn, is there to try it out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import Base, Settings
from benchmarks.quality.methods import PEERS, Case, Outcome, Rows
from icqr import CQR, AutoICQR, Naive
from icqr.datasets import load_dataset
from icqr.metrics import coverage_score, interval_score

LEVEL = 0.9
DATA = ("boston", "concrete", "star", "communities")
BASES = {
    "lightgbm": Base("lightgbm", "LGBMRegressor", {"n_jobs": 1, "verbosity": -1}),
    "histgb": Base("sklearn.ensemble", "HistGradientBoostingRegressor", {}),
}


def with_defaults(make: Callable[..., Any], case: Case) -> Outcome:
    """Fit one of our methods on all known rows."""
    model = make(case.base.make(case.seed), case.level, random_state=case.seed).fit(*case.known)
    return Outcome(model.predict_interval(case.test.X))


REFERENCE = "MAPIE CV+"
METHODS: dict[str, Callable[[Case], Outcome]] = {
    "AutoICQR": partial(with_defaults, AutoICQR),
    "AutoICQR, thorough": partial(with_defaults, partial(AutoICQR, effort="thorough")),
    "CQR": partial(with_defaults, CQR),
    "Naive": partial(with_defaults, Naive),
    **{name: PEERS[name] for name in ("MAPIE cross CQR", REFERENCE)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=DATA, help=f"of {', '.join(DATA)}, diabetes (default: all but this)")
    parser.add_argument("--bases", nargs="+", choices=BASES, default=list(BASES))
    parser.add_argument("--rows", type=int, default=200, help="to train and calibrate with (default: 200)")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    columns = [f"score, {name}" for name in METHODS if name != REFERENCE] + [f"coverage, {name}" for name in METHODS]
    measuring.print_head(["data", "base", "seeds", *columns])
    for base in options.bases:
        sets = []
        for data in options.data:
            logs, coverages = np.mean([judged(data, base, options.rows, seed) for seed in range(options.seeds)], axis=0)
            relative = (logs - logs[-1])[:-1]  # the last one is the reference
            sets.append(relative)
            measuring.print_row([data, base, options.seeds, *np.exp(relative).tolist(), *coverages.tolist()])
        over = dict(zip(METHODS, np.exp(np.mean(sets, axis=0)).round(3).tolist(), strict=False))
        print(f"over the sets, {base}: {over}")


def judged(data: str, base: str, n: int, seed: int) -> list[list[float]]:
    """Return the logarithm of the interval score, and the coverage, of all methods on one draw."""
    case = draw(data, base, n, seed)
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that rows are few is the point
        intervals = [np.sort(method(case).intervals, axis=1) for method in METHODS.values()]
    return [
        [float(np.log(interval_score(case.test.y, bounds, coverage=LEVEL))) for bounds in intervals],
        [coverage_score(case.test.y, bounds) for bounds in intervals],
    ]


def draw(data: str, base: str, n: int, seed: int) -> Case:
    """Draw the rows; all that are known count as training rows, and each method does with them what it does."""
    X, y = load_diabetes(return_X_y=True, as_frame=True) if data == "diabetes" else load_dataset(data)
    order = np.random.default_rng(seed).permutation(len(y))
    known, none, new = (part(X, y, places) for places in (order[:n], order[:0], order[n:]))
    return Case(known, none, new, BASES[base], LEVEL, seed, Settings())


def part(X: pd.DataFrame, y: pd.Series[float], places: Any) -> Rows:
    return Rows(X.iloc[places], y.to_numpy(dtype=float)[places])


if __name__ == "__main__":
    main()
