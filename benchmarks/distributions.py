"""Predictive distributions against crepes' conformal predictive systems, on the same fitted models.

    ICQR_DATA_HOME=DATA python -m benchmarks.distributions concrete star --seeds 2
    python -m benchmarks.distributions --time 1000000

First table: the CRPS over that of crepes' better system (normalized by the bounds' width, or Mondrian with ten bins of
it), and the PIT's mean deviation from uniform over ICQR's groups. Second: the interval score of the distribution's
intervals over that of `predict_interval`, on rows where both are finite, and the share of other rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measuring
from benchmarks.quality.grid import BASES, DATA, REAL, Cell, Settings
from benchmarks.quality.methods import Case
from benchmarks.quality.run import make_case
from icqr import CQR, ICQR, AutoICQR
from icqr.metrics import crps, interval_score, pit_deviation

COVERAGES = (0.5, 0.8, 0.9, 0.95)
OURS = ("CQR", "ICQR", "ICQR auto", "AutoICQR")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help=f"of {', '.join(DATA)} (default: the real sets)")
    parser.add_argument("--base", choices=BASES, default="lightgbm")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--time", type=int, metavar="ROWS", help="only time sf(limit) on so many rows")
    options = parser.parse_args()
    if options.time:
        print_times(options.time)
        return
    names = ["crepes normalized", "crepes Mondrian", *OURS]
    measuring.print_head(["data", "measure", *names])
    ratios: list[Any] = []
    intervals: list[tuple[str, Any]] = []
    for data in options.data or REAL:
        judged = [judge(make_case(Cell(data, options.base, 0.9, seed), Settings())) for seed in range(options.seeds)]
        scores, deviations = (np.array([[each[name][place] for name in names] for each in judged]) for place in (0, 1))
        ratios.append(np.log(scores / scores[:, :2].min(axis=1, keepdims=True)).mean(axis=0))
        measuring.print_row([data, "CRPS / crepes'", *np.exp(ratios[-1]).round(3).tolist()])
        measuring.print_row([data, "PIT deviation", *deviations.mean(axis=0).round(4).tolist()])
        intervals.append((data, np.array([[each[name][2] for name in OURS] for each in judged])))
    measuring.print_row(["all", "CRPS / crepes'", *np.exp(np.mean(ratios, axis=0)).round(3).tolist()])
    print()
    measuring.print_head(
        ["data", "method", *(f"{what} {c}" for c in COVERAGES for what in ("score ratio", "not finite"))]
    )
    for data, each in intervals:
        for place, name in enumerate(OURS):
            logs, infinite = each[:, place].mean(axis=0)
            cells = np.column_stack([np.exp(logs), infinite]).ravel()
            measuring.print_row([data, name, *cells.round(3).tolist()])


def judge(case: Case) -> dict[str, Any]:
    """Return each system's CRPS and mean PIT deviation, and for ours the comparison of intervals."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about small groups: they are a part of the result
        shared: dict[str, Any] = {"coverage": case.level, "random_state": case.seed}
        models = {
            "CQR": CQR(case.shared(), **shared),
            "ICQR": ICQR(case.shared(), **shared),
            "ICQR auto": ICQR(case.shared(), partition="auto", **shared),
            "AutoICQR": AutoICQR(case.base.make(case.seed), **shared),
        }
        for model in models.values():
            model.fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)
        groups = models["ICQR"].assign(case.test.X)
        results: dict[str, Any] = {
            name: (score, deviation(pit, groups)) for name, (score, pit) in crepes_systems(case).items()
        }
        for name, model in models.items():
            distribution = model.predict_distribution(case.test.X)
            pit = distribution.pit(case.test.y, random_state=case.seed)
            score = float(np.nanmean(distribution.crps(case.test.y)))
            results[name] = (score, deviation(pit, groups), compare_intervals(model, distribution, case))
        return results


def deviation(pit: Any, groups: Any) -> float:
    """Return the mean deviation over groups, weighted by their rows."""
    table = pit_deviation(pit, groups)
    return float(np.average(table["deviation"], weights=table["n"]))


def crepes_systems(case: Case) -> dict[str, Any]:
    """Return the CRPS and the PIT of crepes' systems around the median of the same bounds."""
    from crepes import ConformalPredictiveSystem  # type: ignore[import-untyped]
    from crepes.extras import binning  # type: ignore[import-untyped]

    known, new = case.quantiles(case.calibration.X), case.quantiles(case.test.X)
    residuals, y = case.calibration.y - known[:, 1], case.test.y
    sigmas, new_sigmas = (np.maximum(bounds[:, 2] - bounds[:, 0], 1e-9) for bounds in (known, new))
    bins, edges = binning(sigmas, bins=10, seed=case.seed)
    results = {}
    for name, own, of_new in (
        ("crepes normalized", {"sigmas": sigmas}, {"sigmas": new_sigmas}),
        ("crepes Mondrian", {"bins": bins}, {"bins": binning(new_sigmas, bins=edges, seed=case.seed)}),
    ):
        system = ConformalPredictiveSystem().fit(residuals, **own, seed=case.seed)
        pit = system.predict_p(new[:, 1], y, **of_new, seed=case.seed)
        points = system.predict_cpds(new[:, 1], **of_new)
        each = [crps([value], np.asarray(row, dtype=float)[None]) for value, row in zip(y, points, strict=True)]
        results[name] = float(np.mean(each)), pit
    return results


def compare_intervals(model: Any, distribution: Any, case: Case) -> Any:
    """Return, for each coverage, the logarithm of the ratio of interval scores and the share of rows left out."""
    rows = []
    for coverage in COVERAGES:
        ours, usual = distribution.interval(coverage), model.predict_interval(case.test.X, coverage)
        finite = np.isfinite(ours).all(axis=1) & np.isfinite(usual).all(axis=1)
        y = case.test.y[finite]
        scores = [interval_score(y, each[finite], coverage=coverage) for each in (ours, usual)]
        rows.append([np.log(scores[0] / scores[1]), 1 - finite.mean()])
    return np.array(rows).T


def print_times(n_rows: int) -> None:
    """Time the probability of exceeding a limit against `predict_interval`: processor's seconds, best of three."""
    X, y = measuring.synthetic(20_000, 10)
    new = measuring.synthetic(n_rows, 10, seed=1)[0]
    measuring.print_head(["method", "predict_interval", "sf(limit)", "ratio"])
    for name, model in {"CQR": CQR(random_state=0), "ICQR": ICQR(random_state=0)}.items():
        model.fit(X, y)
        seconds: dict[str, list[float]] = {"interval": [], "sf": []}
        for _ in range(3):
            start = time.process_time()
            model.predict_interval(new)
            between = time.process_time()
            model.predict_distribution(new).sf(3)
            seconds["interval"].append(between - start)
            seconds["sf"].append(time.process_time() - between)
        best = [min(times) for times in seconds.values()]
        measuring.print_row([name, *best, best[1] / best[0]])


if __name__ == "__main__":
    main()
