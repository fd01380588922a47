"""The benchmark against other methods and packages: ``python -m icqr.experiments.benchmark all --out DIR``.

The grid is data set × base model × coverage × seed, a cell each; `icqr.experiments.benchmark_settings` says which. In a
cell, half of the rows train the base quantile model, a quarter calibrates and a quarter judges. The model is fitted
once, and all methods work with that fitted model and those calibration rows; only methods whose point is another model
(residual quantiles, the controls) fit their own, from the same training rows.

Methods are named in `icqr.experiments.benchmark_methods` and, by other packages, in `icqr.experiments.benchmark_peers`.
"independent of X" is no method: each test row is covered by a draw of its own. It shows what ERT and the worst slab
give where there is nothing to find.

A folder holds:

=================  ==============================================================================================
``rows.parquet``   a row per (data, base, level, seed, method), see `icqr.experiments.benchmark_rows`, and the settings;
                   alone in a folder, it is enough to go on
``tables/``        all tables as CSV, Markdown and LaTeX, see `icqr.experiments.benchmark_tables`
``figures/``       the figures as PNG and SVG, with ``captions.md``
``cells/``         finished cells, so that a stopped run goes on where it was
=================  ==============================================================================================

Cells run in parallel with ``--jobs``, or from Python inside joblib's ``parallel_config``, also on a Dask cluster whose
workers find the data files (``ICQR_DATA_HOME``). Results don't depend on it, seconds do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed

from icqr.experiments.benchmark_figures import write_figures
from icqr.experiments.benchmark_rows import COLUMNS, KEY, ORDER, run_cell
from icqr.experiments.benchmark_settings import BASES, DATA, Cell, Settings, cells
from icqr.experiments.benchmark_tables import write_tables
from icqr.experiments.extras import need
from icqr.experiments.progress import run_command, steps
from icqr.experiments.tidy_rows import as_table, keep_settings, schema, write_table


def run(chosen: Iterable[Cell], out: Path, settings: Settings | None = None, n_jobs: int | None = None) -> Path:
    """Run the cells that are not done yet, then write rows, tables and figures.

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

    Returns
    -------
    Path
        ``rows.parquet``.
    """
    settings = settings or Settings()
    chosen = list(chosen)
    if not chosen:
        raise ValueError("there are no such cells; icqr.experiments.benchmark_settings.PLANS lists those there are")
    for module in ("pyarrow", "matplotlib"):
        need(module)  # before any work
    folder = out / "cells"
    _unpack(out / "rows.parquet", folder)
    keep_settings(folder / "settings.json", settings.as_dict(), "the benchmark")
    missing = [cell for cell in chosen if not _file(folder, cell).exists()]
    tasks = (delayed(run_cell)(cell, settings) for cell in missing)
    with steps("benchmark: cells", len(chosen), len(chosen) - len(missing)) as advance:
        for cell, rows in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks):
            write_table(_file(folder, cell), as_table(rows, COLUMNS))
            advance()
    return write_results(out)


def _file(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.name}.parquet"


def _unpack(rows: Path, folder: Path) -> None:
    """Write the cells that rows are of, and their settings, where there are rows alone."""
    settings = folder / "settings.json"
    if settings.exists() or not rows.exists():
        return
    table = need("pyarrow.parquet").read_table(rows)
    folder.mkdir(exist_ok=True)
    of = table.select(list(Cell._fields)).to_pandas()
    for cell, places in of.groupby(list(Cell._fields)).indices.items():
        write_table(_file(folder, Cell(*cell)), table.take(places))
    keep_settings(settings, json.loads(table.schema.metadata[b"icqr"]), "the benchmark")


def write_results(out: Path) -> Path:
    """Write rows from the finished cells, and tables and figures from rows; those alone are enough for them."""
    parquet, written = need("pyarrow.parquet"), out / "rows.parquet"
    files = sorted((out / "cells").glob("*.parquet"))
    if files:
        settings = json.loads((out / "cells" / "settings.json").read_text(encoding="utf-8"))
        rows = need("pyarrow").concat_tables(parquet.read_table(file, schema=schema(COLUMNS)) for file in files)
        write_table(written, rows.replace_schema_metadata(schema(COLUMNS, settings).metadata))
    elif not written.exists():
        raise ValueError(f"{out} has no finished cells; run the benchmark with --out {out}, without --tables-only")
    found = read_rows(written)
    write_tables(found, out / "tables")
    write_figures(found, out / "figures")
    return written


def read_rows(file: Path) -> pd.DataFrame:
    """Read rows.parquet, data sets and methods in the order of the tables."""
    rows: pd.DataFrame = need("pyarrow.parquet").read_table(file).to_pandas()
    rows["data"] = pd.Categorical(rows["data"], DATA)
    rows["method"] = pd.Categorical(rows["method"], ORDER)
    return rows.sort_values(KEY, ignore_index=True).astype({"data": object, "method": object})


# -- The command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)

    def job() -> Path:
        if options.tables_only:
            return write_results(options.out)
        data = DATA if "all" in options.data else options.data
        return run(cells(data, options.levels, options.seeds, options.bases), options.out, n_jobs=options.jobs)

    return run_command(job, options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m icqr.experiments.benchmark",
        description="Compare interval methods, ours and other packages', on the same fitted quantile models.",
        epilog="Without options the whole grid runs, as icqr/experiments/benchmark_settings.py says.",
    )
    names = (*DATA, "all")
    parser.add_argument("data", nargs="*", choices=names, default="all", metavar="DATA", help=", ".join(names))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a stopped run goes on from it")
    parser.add_argument("--seeds", type=int, help="no more than so many seeds of each (default: all)")
    parser.add_argument("--levels", type=float, nargs="+", help="only these coverages: 0.9 0.8 0.95 (default: all)")
    parser.add_argument("--bases", nargs="+", choices=BASES, default=tuple(BASES), help="only these base models")
    parser.add_argument("--jobs", type=int, help="cells at the same time (default: 1)")
    parser.add_argument("--tables-only", action="store_true", help="only write tables and figures of what is there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
