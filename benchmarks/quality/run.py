"""The benchmark: data set × base model × coverage × seed, a cell each; `benchmarks.quality.grid` says which.

In a cell, half of the rows train the base quantile model, a quarter calibrates and a quarter judges. The model is
fitted once, and all methods work with that fitted model and those calibration rows. Only methods whose point is another
model fit their own: `AutoICQR` and the controls from the same training rows, methods that cross-fit from the rows that
train and those that calibrate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks.quality import figures, tables
from benchmarks.quality.grid import BASES, DATA, MORE, SYNTHETIC, Cell, Settings, cells
from benchmarks.quality.methods import METHODS, ON_REQUEST, PEERS, Case, Outcome, split
from icqr import metrics
from icqr.datasets import Synthetic, load_dataset
from paper import results
from paper.notebook import Array
from paper.results import Progress, kept_warnings, run_command, write_rows

#: Columns of rows.parquet, their type and their meaning.
COLUMNS = {
    "data": ("string", "data set"),
    "base": ("string", "base model"),
    "level": ("float64", "requested coverage"),
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
    "true_gap": ("float64", "mean distance of the true conditional coverage from the requested one (synthetic data)"),
    "inverted": ("float64", "share of intervals with lower above upper; they are turned around before measuring"),
    "infinite": ("float64", "share of intervals without an end"),
    "n_groups": ("int32", "number of groups"),
    "base_seconds": ("float64", "fitting the quantile model on the training rows (seconds of the processor)"),
    "own_seconds": ("float64", "all else that the method does"),
    "cell_seconds": ("float64", "what the cell took, with all methods and measures; the same in its rows"),
    "notes": ("string", "warnings, or why there are no measures"),
}
KEY = ["data", "base", "level", "seed", "method"]
#: All methods, in the order of the tables.
ALL = (*METHODS, *PEERS, *ON_REQUEST)
#: What a peer may raise on some rows; its row then has the message in place of measures.
FAILURES = (ImportError, ValueError, ArithmeticError, RuntimeError, np.linalg.LinAlgError, IndexError)


# -- All cells -------------------------------------------------------------------------------------------------------


def run(chosen: Iterable[Cell], out: str | Path, settings: Settings | None = None, n_jobs: int | None = None) -> Path:
    """Run the cells that are not done yet, write rows, tables and figures, and return the path of ``rows.parquet``.

    Results don't depend on where cells run (``n_jobs``, or joblib's ``parallel_config``, also on a Dask cluster whose
    workers find this folder and the data files); seconds do.

    Parameters
    ----------
    chosen : list of Cell
        The cells.
    out : path
        The folder. Other cells in it are kept; other settings than it was written with are refused.
    settings : Settings, optional
        By default those of the benchmark.
    n_jobs : int, optional
        Cells at the same time; by default as joblib's `parallel_config` says, else one.
    """
    chosen, settings, out = list(chosen), settings or Settings(), Path(out)
    if not chosen:
        raise ValueError("there are no such cells; benchmarks/quality/grid.py (PLANS) lists those there are")
    folder = out / "cells"
    if (out / "rows.parquet").exists() and not (folder / "settings.json").exists():
        unpack(out)
    results.keep_settings(folder / "settings.json", asdict(settings), "the benchmark")

    missing = [cell for cell in chosen if not (folder / f"{cell.name}.parquet").exists()]
    progress, done = Progress("benchmark: cells"), len(chosen) - len(missing)
    progress(done, len(chosen))
    tasks = (delayed(run_cell)(cell, settings) for cell in missing)
    for cell, rows in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks):
        write_rows(folder / f"{cell.name}.parquet", results.as_table(rows, COLUMNS))
        done += 1
        progress(done, len(chosen))
    return write_results(out)


def unpack(out: Path) -> None:
    """Write the cells that rows are of, and their settings, where there are rows alone."""
    table = pq.read_table(out / "rows.parquet")
    keys = table.select(list(Cell._fields)).to_pandas()
    (out / "cells").mkdir(exist_ok=True)
    for cell, places in keys.groupby(list(Cell._fields)).indices.items():
        write_rows(out / "cells" / f"{Cell(*cell).name}.parquet", table.take(places))
    about = json.loads(table.schema.metadata[b"icqr"])
    results.keep_settings(out / "cells" / "settings.json", about, "the benchmark")


def write_results(out: Path) -> Path:
    """Write rows from the finished cells, and tables and figures from rows; those alone are enough for them."""
    file, parts = out / "rows.parquet", sorted((out / "cells").glob("*.parquet"))
    if parts:
        about = json.loads((out / "cells" / "settings.json").read_text(encoding="utf-8"))
        results.gather_rows(file, parts, COLUMNS, about)
    elif not file.exists():
        raise ValueError(f"{out} has no finished cells; run the benchmark with --out {out}, without --tables-only")
    rows = read_rows(file)
    tables.write_tables(rows, out / "tables")
    figures.write_figures(rows, out / "figures")
    return file


def read_rows(file: Path) -> pd.DataFrame:
    """Return the rows of a file, data sets and methods in the order of the tables."""
    rows, _ = results.read_rows(file)
    rows["data"] = pd.Categorical(rows["data"], DATA)
    rows["method"] = pd.Categorical(rows["method"], (*ALL, tables.FLOOR))
    return rows.sort_values(KEY, ignore_index=True).astype({"data": object, "method": object})


# -- One cell --------------------------------------------------------------------------------------------------------


def run_cell(cell: Cell, settings: Settings) -> tuple[Cell, list[dict[str, Any]]]:
    """Run all methods of a cell; return it with a row for each method."""
    start = time.process_time()
    with threadpool_limits(limits=1):  # how many cells run at the same time is the caller's choice
        case = make_case(cell, settings)
        case.quantiles(case.train.X[:1])  # fits the base model, so that the first method has no other seconds
        rows = [run_method(case, name) for name in methods_of(cell, case)]
        rows.append({"method": tables.FLOOR, **conditional_measures(case, drawn_covered(case, cell))})
    shared = {**cell._asdict(), "drawn": int(cell.data in SYNTHETIC), "cell_seconds": time.process_time() - start}
    for name in ("train", "calibration", "test"):
        shared[f"n_{name}"] = len(getattr(case, name).y)
    return cell, [row | shared for row in rows]


def make_case(cell: Cell, settings: Settings) -> Case:
    """Load and split the rows of a cell."""
    X, y, truth = load(cell.data, cell.seed if cell.data in SYNTHETIC else 0, settings.synthetic_rows)
    return Case(*split(X, y, cell.seed), settings.bases[cell.base], cell.level, cell.seed, settings, truth)


@lru_cache(maxsize=10)
def load(data: str, seed: int, synthetic_rows: int) -> tuple[pd.DataFrame, pd.Series[Any], Synthetic | None]:
    """Return a data set's features, its target and, if it is drawn, its law."""
    if data not in SYNTHETIC:
        return *load_dataset(data), None
    truth = SYNTHETIC[data](synthetic_rows, random_state=seed)
    return truth.X, truth.y, truth


def methods_of(cell: Cell, case: Case) -> list[str]:
    """Return the methods that run in this cell."""
    settings, n = case.settings, len(case.calibration.y)
    return [
        name
        for name in settings.methods or (*METHODS, *PEERS)
        if (name not in settings.first_seeds or (cell.level == 0.9 and cell.seed < settings.first_seeds[name]))
        and n <= settings.most_rows.get(name, np.inf)
        and (name != MORE or case.base.effort is not None)
    ]


def run_method(case: Case, name: str) -> dict[str, Any]:
    """Run one method and return its row; a peer's failure leaves a note instead of measures."""
    notes: list[str] = []
    case.fits.start()
    start = time.process_time()
    try:
        with kept_warnings(notes):
            outcome = (METHODS | PEERS | ON_REQUEST)[name](case)
            seconds = time.process_time() - start + case.fits.saved
            row = measures(case, outcome)
    except FAILURES as error:
        if name in METHODS:
            raise
        return {"method": name, "notes": f"no result: {error}"}
    return row | {
        "method": name,
        "promised": case.level if outcome.promised is None else outcome.promised,
        "unpromised": outcome.unpromised,
        "n_groups": outcome.n_groups,
        "base_seconds": case.fits.whole,
        "own_seconds": seconds - case.fits.whole,
        "notes": " | ".join(notes),
    }


# -- Measures --------------------------------------------------------------------------------------------------------


def measures(case: Case, outcome: Outcome) -> dict[str, float]:
    """Return all measures of the test rows' intervals."""
    y, given = case.test.y, np.asarray(outcome.intervals, dtype=float)
    intervals = np.sort(given, axis=1)
    row = {
        "coverage": metrics.coverage_score(y, intervals),
        "mean_width": metrics.mean_width(y, intervals),
        "interval_score": metrics.interval_score(y, intervals, coverage=case.level),
        "size_stratified": float(metrics.size_stratified_coverage(y, intervals)["coverage"].min()),
        "inverted": float(np.mean(given[:, 0] > given[:, 1])),
        "infinite": float(np.mean(np.isinf(intervals).any(axis=1))),
    }
    if case.truth is not None:
        row["true_gap"] = float(np.abs(case.truth.coverage(case.test.X, intervals) - case.level).mean())
    return row | conditional_measures(case, intervals)


def conditional_measures(case: Case, intervals: Array) -> dict[str, float]:
    """Return what tells of coverage given the features."""
    most = case.settings.conditional_rows
    X, y, intervals = case.test.X[:most], case.test.y[:most], intervals[:most]
    risk = metrics.excess_risk(y, intervals, X, coverage=case.level)["value"]
    parts = {"ert": "l1", "ert_under": "l1_under", "ert_over": "l1_over"}
    slab = metrics.worst_slab_coverage(y, intervals, X).coverage
    return {"worst_slab": slab, **{name: float(risk[part]) for name, part in parts.items()}}


def drawn_covered(case: Case, cell: Cell) -> Array:
    """Return intervals of `tables.FLOOR`: each row is covered by a draw of its own, another one in each cell."""
    y = case.test.y
    hit = np.random.default_rng(crc32(cell.name.encode())).uniform(size=len(y)) < case.level
    return np.where(hit[:, None], np.column_stack([y, y]), np.column_stack([y + 1, y + 2]))


# -- The command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description="Compare interval methods, ours and other packages', on the same fitted quantile models.",
        epilog="Without options the whole grid runs, as benchmarks/quality/grid.py says.",
    )
    names = (*DATA, "all")
    parser.add_argument("data", nargs="*", choices=names, default="all", metavar="DATA", help=", ".join(names))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a stopped run goes on from it")
    parser.add_argument("--seeds", type=int, help="no more than so many seeds of each (default: all)")
    parser.add_argument("--levels", type=float, nargs="+", help="only these coverages: 0.9 0.8 0.95 (default: all)")
    parser.add_argument("--bases", nargs="+", choices=BASES, default=tuple(BASES), help="only these base models")
    methods = ", ".join(f'"{name}"' for name in ALL)
    parser.add_argument("--methods", nargs="+", choices=ALL, metavar="METHOD", help=f"only these, and CQR: {methods}")
    parser.add_argument("--jobs", type=int, help="cells at the same time (default: 1)")
    parser.add_argument("--tables-only", action="store_true", help="only write tables and figures of what is there")
    options = parser.parse_args(arguments)

    def job() -> Path:
        if options.tables_only:
            return write_results(options.out)
        data = DATA if "all" in options.data else options.data
        # All tables compare with CQR.
        methods = options.methods and tuple(name for name in ALL if name in {"CQR", *options.methods})
        chosen = cells(data, options.levels, options.seeds, options.bases)
        return run(chosen, options.out, Settings(methods=methods), options.jobs)

    return run_command(job, options.out)
