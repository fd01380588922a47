"""The price of an interval: `predict_interval` against the raw predictions of the same models, and against MAPIE's.

    ICQR_DATA_HOME=DATA python -m benchmarks.prediction 1000000x20 bike --models default lightgbm
    ICQR_DATA_HOME=DATA python -m benchmarks.prediction protein bike 300000x20 --rows 100000

Models are fitted on at most 20,000 rows. All rows of a data set, repeated up to --rows, are predicted at once; then
some of them one by one (rows: 1), as a service does. The raw predictions are those of the three fitted levels, on the
same input. AutoICQR has bounds of its own, so it is compared with CQR of the same estimator.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from mapie.regression import ConformalizedQuantileRegressor  # type: ignore[import-untyped]

from benchmarks import measuring
from icqr import CQR, ICQR, AutoICQR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="data sets, or ROWSxCOLUMNS for synthetic rows")
    parser.add_argument("--models", nargs="+", default=["default", "lightgbm"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--singles", type=int, default=200, help="rows predicted one by one")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.INFO)  # MAPIE says so each time when quantiles cross
    ratios = [f"{one} / {other}" for one, other in COMPARED]
    measuring.print_head(["data", "model", "rows", "groups", "raw, s", *ratios])
    for name in options.names:
        for model in options.models:
            X, y = training_rows(name)
            methods = {key: make(measuring.model(model), random_state=0).fit(X, y) for key, make in METHODS.items()}
            icqr = methods["ICQR"]
            jobs, encode = predictors(methods, X, y), icqr.model_.encoder_.encode
            for n, rows in ((options.rows, [many(X, options.rows)]), (1, singles(X, options.singles))):
                seconds = seconds_of(jobs, [(row, encode(row)) for row in rows], options.runs)
                times = [measuring.ratio(seconds, one, other) for one, other in COMPARED]
                measuring.print_row([name, model, n, icqr.n_groups_, measuring.median(seconds, "raw"), *times])


METHODS: dict[str, Callable[..., Any]] = {
    "CQR": CQR,
    "ICQR": ICQR,
    "AutoICQR": AutoICQR,
    "thorough": partial(AutoICQR, effort="thorough"),
}
COMPARED = (("CQR", "raw"), ("ICQR", "raw"), ("ICQR", "MAPIE"), ("AutoICQR", "CQR"), ("thorough", "CQR"))


def training_rows(name: str) -> tuple[Any, Any]:
    X, _, y, _ = measuring.load(name)
    return X[:20_000], y[:20_000]


def many(X: Any, n: int) -> Any:
    index = np.arange(n) % len(X)
    return X.iloc[index].reset_index(drop=True) if isinstance(X, pd.DataFrame) else X[index]


def singles(X: Any, n: int) -> list[Any]:
    return [X[i : i + 1] for i in range(n)]


def predictors(methods: dict[str, Any], X: Any, y: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Return functions of rows, as they are and encoded, that predict them; raw and MAPIE with ICQR's fitted models."""
    icqr = methods["ICQR"]
    lower, median, upper = icqr.model_.models_
    peer = ConformalizedQuantileRegressor([lower, upper, median], confidence_level=0.9, prefit=True)
    peer.conformalize(icqr.model_.encoder_.encode(X), np.asarray(y))
    return {
        "raw": lambda _, encoded: [model.predict(encoded) for model in icqr.model_.models_],
        **{name: partial(predict, method) for name, method in methods.items()},
        "MAPIE": lambda _, encoded: peer.predict_interval(encoded),
    }


def predict(method: Any, rows: Any, _: Any) -> Any:
    return method.predict_interval(rows)


def seconds_of(
    jobs: dict[str, Callable[[Any, Any], Any]], inputs: list[tuple[Any, Any]], runs: int
) -> dict[str, list[float]]:
    """Return each job's seconds for each input, in turns, so that a machine's slow moments slow down all jobs."""
    parts = [
        measuring.in_turns({name: partial(job, *rows) for name, job in jobs.items()}, runs, tidy=len(inputs) == 1)
        for rows in inputs
    ]
    return {name: [second for part in parts for second in part[name]] for name in jobs}


if __name__ == "__main__":
    main()
