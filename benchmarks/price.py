"""How much longer ICQR and AutoICQR take to fit than CQR with the same estimator, and where ICQR's time goes.

    ICQR_DATA_HOME=DATA python -m benchmarks.price protein bike 300000x20 --models default lightgbm --no-guard
    ICQR_DATA_HOME=DATA python -m benchmarks.price protein bike blog 1000000x20 --models default lightgbm

Fits run in turns. The guard says what ICQR's shortcuts cost: the rank correlation (weighted by share) of the
importances with those on all rows, and the held-out interval score against that of ICQR without any shortcut.
--no-guard leaves it out.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any
from unittest.mock import patch

from sklearn.cluster import KMeans

from benchmarks import measuring
from icqr import CQR, ICQR, AutoICQR, _trees
from icqr.importance import PermutationImportance
from icqr.metrics import interval_score
from icqr.partition import KMeansPartition


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="data sets, or ROWSxCOLUMNS for synthetic rows")
    parser.add_argument("--models", nargs="+", default=["default", "lightgbm"])
    parser.add_argument("--runs", type=int, default=5, help="fits of each, in turns (default: 5)")
    parser.add_argument("--no-guard", action="store_true")
    options = parser.parse_args()
    columns = ["data", "model", "rows", "groups", "levels, s", "importance, s", "groups, s"]
    columns += ["ICQR / CQR", "AutoICQR / CQR", "thorough / CQR", "rank correlation", "interval score, all rows = 1"]
    measuring.print_head(columns)
    for name in options.names:
        for model in options.models:
            measuring.print_row(price(name, model, options.runs, not options.no_guard))


def price(name: str, model: str, runs: int, guard: bool) -> list[Any]:
    X, X_test, y, y_test = measuring.load(name)
    estimator = measuring.model(model)
    icqr, cqr = ICQR(estimator, random_state=0), CQR(estimator, random_state=0)
    quick, thorough = (AutoICQR(estimator, effort=effort, random_state=0) for effort in ("quick", "thorough"))
    methods = {"CQR": cqr, "ICQR": icqr, "AutoICQR": quick, "thorough": thorough}
    seconds = measuring.in_turns({key: partial(method.fit, X, y) for key, method in methods.items()}, runs)
    steps = seconds_of_steps(ICQR(estimator, random_state=0), X, y)
    ratios = [measuring.ratio(seconds, key, "CQR") for key in methods if key != "CQR"]
    row = [name, model, len(y), icqr.n_groups_, *steps.values(), *ratios]
    if not guard:
        return [*row, "", ""]
    slow = ICQR(
        estimator,
        partition=KMeansPartition(clusterer=KMeans(n_init=1)),
        importance=PermutationImportance(max_rows=None),
        random_state=0,
    )
    with warnings.catch_warnings(), patch.object(_trees, "MOST_BYTES", 2**32):
        # The shortcut changes no result, and on all rows takes memory instead of hours.
        warnings.simplefilter("ignore")
        slow.fit(X, y)
    scores = [interval_score(y_test, fitted.predict_interval(X_test), coverage=0.9) for fitted in (icqr, slow)]
    shares = [fitted.importances_["share"] for fitted in (icqr, slow)]
    return [*row, measuring.rank_correlation(*shares), f"{scores[0] / scores[1]:.4f}"]


def seconds_of_steps(method: Any, X: Any, y: Any) -> dict[str, float]:
    """Fit once with a clock around each step."""
    with measuring.clocked(measuring.STEPS) as seconds, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method.fit(X, y)
    return seconds


if __name__ == "__main__":
    main()
