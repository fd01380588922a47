"""K-means on columns weighted by their importance for the score, in place of their importance for the quantiles.

    ICQR_DATA_HOME=DATA python -m benchmarks.score_importance --seeds 8

A regressor of the out-of-fold conformity score (that of `ScorePartition`) is asked which columns it needs, by
permutation importance, and clusters are made on these weights. All else is as in the benchmark (LightGBM, coverage
0.9), but for the seeds, which start at 100: this decides whether it becomes a part of the library. Relative to CQR.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import REAL, Cell, Settings
from benchmarks.quality.methods import Case, Outcome
from benchmarks.quality.run import make_case, measures
from icqr import CQR, ICQR, PermutationImportance, ScorePartition
from icqr.conformity import Conformity
from icqr.quantiles import QuantileModel, cross_fit

LEVEL, BASE = 0.9, "lightgbm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help=f"of {', '.join(REAL)} (default: all but blog)")
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    kinds = ("quantiles", "score")
    columns = [f"{measure}, {kind}" for measure in ("interval score", "ERT", "groups") for kind in kinds]
    measuring.print_head(["data", *columns, "ERT, CQR"])
    results = []
    for data in options.data or [name for name in REAL if name != "blog"]:
        cqr, *ours = np.mean([judged(data, 100 + i) for i in range(options.seeds)], axis=0)
        scores, erts, groups = np.transpose(ours)
        results.append([np.log(scores / cqr[0]), erts, cqr[1]])
        measuring.print_row([data, *(scores / cqr[0]).tolist(), *erts.tolist(), *groups.tolist(), float(cqr[1])])
    scores, erts, of_cqr = zip(*results, strict=True)
    print("interval score / CQR's:", dict(zip(kinds, np.exp(np.mean(scores, axis=0)).round(3).tolist(), strict=True)))
    print("ERT / CQR's:", dict(zip(kinds, (np.sum(erts, axis=0) / np.sum(of_cqr)).round(2).tolist(), strict=True)))


def judged(data: str, seed: int) -> list[list[float]]:
    """Return interval score, ERT and number of groups of CQR and of both kinds of clusters."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about clusters that explain little
        case = make_case(Cell(data, BASE, LEVEL, seed), Settings())
        methods = (
            CQR(case.shared(), LEVEL, random_state=seed),
            ICQR(case.shared(), LEVEL, random_state=seed),
            ICQR(case.shared(), LEVEL, importance=ScoreImportance(case), random_state=seed),
        )
        held_out = case.calibration
        results = []
        for method in methods:
            method.fit(case.train.X, case.train.y, X_calibration=held_out.X, y_calibration=held_out.y)
            row = measures(case, Outcome(method.predict_interval(case.test.X)))
            results.append([row["interval_score"], row["ert"], float(method.n_groups_)])
    return results


class ScoreImportance(PermutationImportance):
    """Importance for a regressor of the out-of-fold scores of a case's base model."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def compute(self, model: Any, X: Any, y: Any, random_state: Any = None, n_jobs: Any = None) -> Any:
        base = QuantileModel(self.case.base.make(self.case.seed))
        bounds = cross_fit(base, X, y, self.case.levels, self.case.seed)[1]
        scores = Conformity().scores(bounds, y).max(axis=1)
        regressor = ScorePartition().regressor(random_state).fit(X, scores, (LEVEL,))
        return super().compute(regressor, X, scores, random_state, n_jobs)


if __name__ == "__main__":
    main()
