"""How late is a change found, and how often is there a false alarm: `Monitor` and MAPIE's `OnlineMartingaleTest`.

    python -m benchmarks.monitoring --streams 20

A stream has ten groups. After `--before` rows the residuals of one group are multiplied by `--spread`; in the null
streams nothing changes. Both get the same rows in the same batches, and the same fitted model, which is the truth; each
stream has 2,000 calibration rows of its own. MAPIE's test compares scores with those of earlier rows, so it is given
the calibration rows first. It has one test for all rows. "MAPIE per group" is ten of them, one for each group, that
share the error rate. Delays count rows of the whole stream since the change; a stream without an alarm counts as
`--after` rows. The last line says how long a million rows take.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from mapie.exchangeability_testing import OnlineMartingaleTest  # type: ignore[import-untyped]
from mapie.regression import SplitConformalRegressor  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, RegressorMixin

from benchmarks import measuring
from icqr import ICQR, GroupPartition, Monitor
from icqr._tables import FloatArray, IntArray

GROUPS, CALIBRATION, ERROR_RATE = 10, 2000, 0.05
#: Takes groups and targets of a batch, and returns whether there is an alarm by now.
Watch = Callable[[IntArray, FloatArray], bool]


class Zero(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The true mean of every row."""

    def fit(self, X: Any, y: Any) -> Zero:
        self.n_features_in_ = 1
        return self

    def predict(self, X: Any) -> FloatArray:
        return np.zeros(len(X))

    def predict_quantiles(self, X: Any, levels: Any) -> FloatArray:
        return np.zeros((len(X), len(levels)))


def our_monitor(groups: IntArray, y: FloatArray) -> Monitor:
    X, train = pd.DataFrame({"g": groups}), pd.DataFrame({"g": np.arange(GROUPS)})
    model = ICQR(Zero(), 0.9, partition=GroupPartition("g"), random_state=0)
    model.fit(train, np.zeros(GROUPS), X_calibration=X, y_calibration=y)
    return Monitor(model, error_rate=ERROR_RATE)


def watch_by_us(groups: IntArray, y: FloatArray) -> Watch:
    monitor = our_monitor(groups, y)

    def watch(new: IntArray, target: FloatArray) -> bool:
        return bool(monitor.update(pd.DataFrame({"g": new}), target).alarms)

    return watch


def martingale(y: FloatArray, level: float, method: str) -> OnlineMartingaleTest:
    """Return MAPIE's test after the calibration rows."""
    regressor = SplitConformalRegressor(Zero().fit(None, None), confidence_level=0.9, prefit=True)
    test = OnlineMartingaleTest(regressor, "regression", method, level, warn=False, random_state=0)
    return test.update(np.zeros((len(y), 1)), y)


def watch_by_mapie(groups: IntArray, y: FloatArray, method: str = "jumper_martingale") -> Watch:
    test = martingale(y, ERROR_RATE, method)

    def watch(new: IntArray, target: FloatArray) -> bool:
        return test.update(np.zeros((len(new), 1)), target).is_exchangeable is False

    return watch


def watch_by_mapie_per_group(groups: IntArray, y: FloatArray, method: str = "jumper_martingale") -> Watch:
    tests = [martingale(y[groups == group], ERROR_RATE / GROUPS, method) for group in range(GROUPS)]

    def watch(new: IntArray, target: FloatArray) -> bool:
        for group in np.unique(new).tolist():
            rows = target[new == group]
            tests[group].update(np.zeros((len(rows), 1)), rows)
        return any(test.is_exchangeable is False for test in tests)

    return watch


WATCHES = {"icqr Monitor": watch_by_us, "MAPIE": watch_by_mapie, "MAPIE per group": watch_by_mapie_per_group}


def delay(
    make: Callable[[IntArray, FloatArray], Watch], seed: int, spread: float, options: argparse.Namespace
) -> float:
    """Return the rows from the change to the alarm: negative for a false alarm before it, infinite for none."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(GROUPS, size=CALIBRATION)
    watch = make(groups, rng.normal(size=CALIBRATION))
    for start in range(0, options.before + options.after, options.batch):
        groups = rng.integers(GROUPS, size=options.batch)
        is_changed = (groups == 3) & (start >= options.before)
        if watch(groups, np.where(is_changed, spread, 1) * rng.normal(size=options.batch)):
            return float(start + options.batch - options.before)
    return np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--null-streams", type=int, default=20)
    parser.add_argument("--before", type=int, default=2000)
    parser.add_argument("--after", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--spreads", type=float, nargs="+", default=[1.5, 2.0, 3.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    measuring.print_head(["residuals times", "watched by", "alarms", "false alarms", "median delay", "mean delay"])
    for spread in [1.0, *options.spreads]:
        for name, make in WATCHES.items():
            seeds = range(options.null_streams if spread == 1 else options.streams)
            delays = np.array([delay(make, seed, spread, options) for seed in seeds])
            is_false = np.isfinite(delays) if spread == 1 else delays <= 0
            late = np.minimum(delays[~is_false], options.after)
            shown = ["–", "–"] if spread == 1 else [f"{np.median(late):,.0f}", f"{late.mean():,.0f}"]
            counts = [f"{np.isfinite(delays).sum()} of {len(delays)}", f"{is_false.sum()} of {len(delays)}"]
            measuring.print_row([f"{spread:g}", name, *counts, *shown])
    for rows, batch in ((1_000_000, 10_000), (1_000_000, 100), (100_000, 10), (10_000, 1)):
        print(f"{rows:,} rows in batches of {batch:,}: {seconds(rows, batch):.1f} s")


def seconds(rows: int, batch: int) -> float:
    """Return how long it takes to observe so many rows with their predictions."""
    rng = np.random.default_rng(0)
    monitor = our_monitor(rng.integers(GROUPS, size=CALIBRATION), rng.normal(size=CALIBRATION))
    predictions = monitor.model.explain(pd.DataFrame({"g": rng.integers(GROUPS, size=batch)}))
    y = rng.normal(size=(rows // batch, batch))
    start = time.process_time()
    for target in y:
        monitor.observe(predictions, target)
    return time.process_time() - start


if __name__ == "__main__":
    main()
