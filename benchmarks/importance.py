"""Permutation importance against `sklearn.inspection.permutation_importance`, with the same repeats on the same rows.

    ICQR_DATA_HOME=DATA python -m benchmarks.importance protein:default blog:lightgbm blog:network

Both measure the same loss (pinball loss over three levels) of the same fitted quantile model. "difference" is the
largest difference of a column's importance, in standard errors of the mean over the repeats of both.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance

from benchmarks import measuring
from icqr.importance import PermutationImportance
from icqr.metrics import pinball_loss
from icqr.quantiles import QuantileModel

LEVELS = (0.05, 0.5, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="DATA:MODEL", help="MODEL is default, lightgbm or network")
    parser.add_argument("--rows", type=int, default=1000, help="rows on which importance is computed")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    head = ["data", "model", "rows", "columns", "scikit-learn, s", "ours, s", "times faster", "rank correlation"]
    measuring.print_head([*head, "difference"])
    for case in options.cases:
        data, model = case.split(":")
        measuring.print_row(compare(data, model, options.rows, options.runs))


def compare(name: str, model: str, n_rows: int, runs: int) -> list[Any]:
    X, _, y, _ = measuring.load(name)
    y = np.asarray(y, dtype=float)
    fitted = QuantileModel(network() if model == "network" else measuring.model(model)).fit(
        X[:30_000], y[:30_000], LEVELS
    )
    X, y = X[:n_rows], y[:n_rows]
    results: dict[str, Any] = {}

    def ours() -> None:
        results["ours"] = PermutationImportance(max_rows=None).compute(fitted, X, y, random_state=0)

    def theirs() -> None:
        results["theirs"] = permutation_importance(fitted, X, y, scoring=negative_loss, n_repeats=5, random_state=0)

    seconds = measuring.in_turns({"theirs": theirs, "ours": ours}, runs)
    changes = np.abs(results["theirs"].importances)
    error = np.sqrt((changes.var(axis=1) + results["ours"]["std"] ** 2) / changes.shape[1])
    differences = np.abs(changes.mean(axis=1) - results["ours"]["mean"])
    worst = float((differences / error.where(error > 0, np.inf)).max())
    return [
        name,
        model,
        len(y),
        X.shape[1],
        measuring.median(seconds, "theirs"),
        measuring.median(seconds, "ours"),
        measuring.ratio(seconds, "theirs", "ours"),
        measuring.rank_correlation(results["ours"]["mean"], changes.mean(axis=1)),
        worst,
    ]


def negative_loss(model: Any, X: Any, y: Any) -> float:
    return -float(pinball_loss(y, model.predict(X), LEVELS))


def network() -> Any:
    from icqr.neural import QuantileNetwork

    return QuantileNetwork(LEVELS, epochs=20, random_state=0)


if __name__ == "__main__":
    main()
