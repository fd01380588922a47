"""The choice of k: `KMeansPartition` against the plain loop over `KMeans(k, n_init=10)`, as the paper prints it.

    ICQR_DATA_HOME=DATA python -m benchmarks.choice_of_k protein blog --models lightgbm --rows 15000

Both get the same rows and the same weights, the importances of a fitted model. The loop sees all of them in the whole
weighted space, and stops at the first k whose explained variance is above 0.9, or at 50. σ of both is measured there,
on all rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from benchmarks import measuring
from icqr._clustering import WeightedSpace, explained_variance
from icqr.importance import PermutationImportance
from icqr.partition import KMeansPartition
from icqr.quantiles import QuantileModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="data sets, or ROWSxCOLUMNS for synthetic rows")
    parser.add_argument("--models", nargs="+", default=["lightgbm"])
    parser.add_argument("--rows", type=int, default=15_000, help="rows that are clustered (default: 15000)")
    options = parser.parse_args()
    measuring.print_head(["data", "model", "rows", "loop, s", "ours, s", "times faster", "k (loop)", "σ (loop)"])
    for name in options.names:
        for model in options.models:
            measuring.print_row(compare(name, model, options.rows))


def compare(name: str, model: str, n_rows: int) -> list[Any]:
    X, _, y, _ = measuring.load(name)
    X, y = X[:n_rows], np.asarray(y, dtype=float)[:n_rows]
    quantiles = QuantileModel(measuring.model(model)).fit(X, y, (0.05, 0.5, 0.95))
    weights = PermutationImportance().compute(quantiles, X, y, random_state=0)["share"].to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = measuring.in_turns({"ours": lambda: fit_ours(X, y, weights)}, 3)
    partition = fit_ours(X, y, weights)
    Z = WeightedSpace.learn(X, weights).transform(X)
    start = time.process_time()
    k, sigma = plain_loop(Z)
    loop = time.process_time() - start
    labels = partition.assign(X)
    centres = np.stack([Z[labels == group].mean(axis=0) for group in range(partition.k_)])
    own = explained_variance(Z, labels, centres)
    seconds = measuring.median(ours, "ours")
    shown = [f"{partition.k_} ({k})", f"{own:.4f} ({sigma:.4f})"]
    return [name, model, len(y), loop, seconds, loop / seconds, *shown]


def fit_ours(X: Any, y: Any, weights: Any) -> KMeansPartition:
    return KMeansPartition().fit(X, y, np.empty((len(y), 0)), weights=weights, random_state=0)


def plain_loop(Z: np.ndarray) -> tuple[int, float]:
    sigma, k = 0.0, 1
    while sigma <= 0.9 and k < 50:
        k += 1
        fitted = KMeans(k, n_init=10, random_state=0).fit(Z)
        sigma = explained_variance(Z, fitted.labels_, fitted.cluster_centers_)
    return k, sigma


if __name__ == "__main__":
    main()
