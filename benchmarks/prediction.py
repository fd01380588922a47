"""The price of an interval: `predict_interval` against the raw predictions of the same models, and against MAPIE's.

    ICQR_DATA_HOME=DATA python benchmarks/prediction.py 1000000x20 bike --models default lightgbm

"rows at once" predicts all rows of a data set, repeated up to --rows; "one row" predicts rows one by one, as a service
does. The raw predictions are those of the three fitted levels, on the same input.
"""

from __future__ import annotations

import argparse
from typing import Any

import measuring
import numpy as np
import pandas as pd
from mapie.regression import ConformalizedQuantileRegressor

from icqr import CQR, ICQR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="data sets, or ROWSxCOLUMNS for synthetic rows")
    parser.add_argument("--models", nargs="+", default=["default", "lightgbm"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--singles", type=int, default=200, help="rows predicted one by one")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    measuring.print_head(["data", "model", "rows", "groups", "raw, s", "CQR / raw", "ICQR / raw", "ICQR / MAPIE"])
    for name in options.names:
        for model in options.models:
            X, y = training_rows(name)
            icqr, cqr = (method(measuring.model(model), random_state=0).fit(X, y) for method in (ICQR, CQR))
            for n, rows in ((options.rows, [many(X, options.rows)]), (1, singles(X, options.singles))):
                seconds = measuring.in_turns(jobs(icqr, cqr, X, y, rows), options.runs)
                ratios = [measuring.ratio(seconds, one, other) for one, other in COMPARED]
                raw = measuring.median(seconds, "raw") / len(rows)
                measuring.print_row([name, model, n, icqr.n_groups_, raw, *ratios])


COMPARED = (("CQR", "raw"), ("ICQR", "raw"), ("ICQR", "MAPIE"))


def training_rows(name: str) -> tuple[Any, Any]:
    X, _, y, _ = measuring.load(name)
    return X[:20_000], y[:20_000]


def many(X: Any, n: int) -> Any:
    index = np.arange(n) % len(X)
    return X.iloc[index].reset_index(drop=True) if isinstance(X, pd.DataFrame) else X[index]


def singles(X: Any, n: int) -> list[Any]:
    return [X[i : i + 1] for i in range(n)]


def jobs(icqr: ICQR, cqr: CQR, X: Any, y: Any, rows: list[Any]) -> dict[str, measuring.Job]:
    """Give jobs that predict the same rows, each with its own class and with the same fitted models."""
    lower, median, upper = icqr.model_.models_
    peer = ConformalizedQuantileRegressor([lower, upper, median], confidence_level=0.9, prefit=True)
    peer.conformalize(icqr.model_.encoder_.encode(X), np.asarray(y))
    encoded = [icqr.model_.encoder_.encode(row) for row in rows]
    return {
        "raw": lambda: [[model.predict(row) for model in icqr.model_.models_] for row in encoded],
        "CQR": lambda: [cqr.predict_interval(row) for row in rows],
        "ICQR": lambda: [icqr.predict_interval(row) for row in rows],
        "MAPIE": lambda: [peer.predict_interval(row) for row in encoded],
    }


if __name__ == "__main__":
    main()
