"""One cell of the benchmark: a row of measures for each method."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from threadpoolctl import threadpool_limits

from icqr._tables import FloatArray
from icqr.experiments.benchmark_methods import METHODS, Case, Outcome, split
from icqr.experiments.benchmark_peers import PEERS
from icqr.experiments.benchmark_settings import MORE, REAL, SYNTHETIC, Cell, Settings, load
from icqr.experiments.notes import kept_warnings
from icqr.metrics import (
    coverage_score,
    excess_risk,
    interval_score,
    mean_width,
    size_stratified_coverage,
    worst_slab_coverage,
)

#: Columns of rows.parquet, their type and their meaning.
COLUMNS = {
    "data": ("string", "data set"),
    "base": ("string", "base model"),
    "level": ("float64", "coverage asked for"),
    "seed": ("int32", "of the split, of the models and of the methods"),
    "method": ("string", "method"),
    "n_train": ("int32", "training rows"),
    "n_calibration": ("int32", "calibration rows"),
    "n_test": ("int32", "test rows"),
    "drawn": ("int32", "1 where the rows are drawn anew for each seed, 0 where seeds split the same rows"),
    "coverage": ("float64", "share of test rows inside their interval"),
    "promised": ("float64", "mean coverage that is promised; missing where nothing is"),
    "unpromised": ("float64", "share of calibration rows in groups too small for a promise"),
    "mean_width": ("float64", "mean width of the intervals"),
    "interval_score": ("float64", "mean interval score"),
    "ert": ("float64", "L1 excess risk of the target coverage"),
    "ert_under": ("float64", "its part from rows that are covered too seldom"),
    "ert_over": ("float64", "its part from rows that are covered too often"),
    "worst_slab": ("float64", "coverage in the slab of feature space that looks worst"),
    "size_stratified": ("float64", "least coverage among ten bins of the width"),
    "true_gap": ("float64", "mean distance of the true conditional coverage from the one asked for (synthetic data)"),
    "inverted": ("float64", "share of intervals with lower above upper; they are turned around before measuring"),
    "infinite": ("float64", "share of intervals without an end"),
    "n_groups": ("int32", "number of groups"),
    "base_seconds": ("float64", "fitting the quantile model on the training rows (seconds of the processor)"),
    "own_seconds": ("float64", "all else that the method does"),
    "cell_seconds": ("float64", "what the cell took, with all methods and measures; the same in its rows"),
    "notes": ("string", "warnings, or why there are no measures"),
}
KEY = ["data", "base", "level", "seed", "method"]
#: Intervals that hold with the coverage asked for whatever the features are: what ERT gives where there is nothing to
#: find, 0 but for chance. Each test row is covered or not by a draw of its own, so there is no width.
FLOOR = "independent of X"
#: All methods, in the order of the tables.
ORDER = (*METHODS, *PEERS, FLOOR)

#: What a peer may raise on some rows; its row then has the message in place of measures.
_FAILURES = (ImportError, ValueError, ArithmeticError, RuntimeError, np.linalg.LinAlgError, IndexError)


def run_cell(cell: Cell, settings: Settings) -> tuple[Cell, list[dict[str, Any]]]:
    """Run all methods of a cell; give it back with a row for each.

    One thread: how many cells run at the same time is the caller's.
    """
    start = time.process_time()
    with threadpool_limits(limits=1):
        case = make_case(cell, settings)
        measured = Measures(case)
        case.quantiles(case.train.X[:1])  # fits the base model, so that the first method has no other seconds
        rows = [_row(case, name, measured) for name in _names(cell, case)]
        rows.append({"method": FLOOR, **measured.conditional(drawn_covered(case, cell))})
    sizes = {"n_train": len(case.train), "n_calibration": len(case.calibration), "n_test": len(case.test)}
    keys = {"drawn": int(cell.data in SYNTHETIC), "cell_seconds": time.process_time() - start}
    keys |= {**cell._asdict(), **sizes}
    return cell, [{**row, **keys} for row in rows]


def make_case(cell: Cell, settings: Settings) -> Case:
    """Load, split and hand over."""
    X, y, truth = _load(cell.data, cell.seed if cell.data in SYNTHETIC else 0, settings.synthetic_rows)
    parts = split(X, y, cell.seed)
    return Case(*parts, settings.bases[cell.base], cell.level, cell.seed, settings, truth)


_load = lru_cache(maxsize=len(REAL))(load)


def _names(cell: Cell, case: Case) -> list[str]:
    """Give the methods that run in this cell."""
    settings, n = case.settings, len(case.calibration)
    return [
        name
        for name in (*METHODS, *PEERS)
        if (name not in settings.first_seeds or (cell.level == 0.9 and cell.seed < settings.first_seeds[name]))
        and n <= settings.most_rows.get(name, np.inf)
        and (name != MORE or case.base.effort is not None)
    ]


def _row(case: Case, name: str, measured: Measures) -> dict[str, Any]:
    notes: list[str] = []
    case.fits.start()
    start = time.process_time()
    try:
        with kept_warnings(notes):
            outcome = (METHODS | PEERS)[name](case)
            seconds = time.process_time() - start + case.fits.saved
            measures = measured.all(outcome)
    except _FAILURES as error:
        if name in METHODS:
            raise
        return {"method": name, "notes": f"no result: {error}"}
    return {
        "method": name,
        "promised": None if name == "QR" else case.level if outcome.promised is None else outcome.promised,
        "unpromised": outcome.unpromised,
        "n_groups": outcome.n_groups,
        "base_seconds": case.fits.whole,
        "own_seconds": seconds - case.fits.whole,
        "notes": " | ".join(notes),
        **measures,
    }


# -- Measures --------------------------------------------------------------------------------------------------------


class Measures:
    """Measures of intervals for the test rows; what depends on "covered" alone is computed once.

    Parameters
    ----------
    case : Case
        With the test rows.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[bytes, dict[str, float]] = {}

    def all(self, outcome: Outcome) -> dict[str, float]:
        """Give all measures."""
        case, y = self.case, self.case.test.y
        given = np.asarray(outcome.intervals, dtype=np.float64)
        intervals = np.sort(given, axis=1)
        found = {
            "coverage": coverage_score(y, intervals),
            "mean_width": mean_width(y, intervals),
            "interval_score": interval_score(y, intervals, coverage=case.level),
            "size_stratified": float(size_stratified_coverage(y, intervals)["coverage"].min()),
            "inverted": float(np.mean(given[:, 0] > given[:, 1])),
            "infinite": float(np.mean(np.isinf(intervals).any(axis=1))),
        }
        if case.truth is not None:
            gap = np.abs(case.truth.coverage(case.test.X, intervals) - case.level)
            found["true_gap"] = float(gap.mean())
        return {**found, **self.conditional(intervals)}

    def conditional(self, intervals: FloatArray) -> dict[str, float]:
        """Give what tells of coverage given the features."""
        case, most = self.case, self.case.settings.conditional_rows
        X, y, bounds = case.test.X[:most], case.test.y[:most], intervals[:most]
        key = ((bounds[:, 0] <= y) & (y <= bounds[:, 1])).tobytes()
        if key not in self._known:
            risk = excess_risk(y, bounds, X, coverage=case.level)["value"]
            names = {"ert": "l1", "ert_under": "l1_under", "ert_over": "l1_over"}
            slab = worst_slab_coverage(y, bounds, X).coverage
            self._known[key] = {"worst_slab": slab, **{name: float(risk[form]) for name, form in names.items()}}
        return self._known[key]


def drawn_covered(case: Case, cell: Cell) -> FloatArray:
    """Give intervals that hold by a draw of their own, another one in each cell."""
    y = case.test.y
    hit = np.random.default_rng(crc32(cell.name.encode())).uniform(size=len(y)) < case.level
    return np.where(hit[:, None], np.column_stack([y, y]), np.column_stack([y + 1, y + 2]))
