"""The paper's experiments: data set × variant × method × network.

On each of T fitted networks all methods run, so that they differ by nothing but themselves. Variants say which rules
gave the offsets and the groups:

=========  ======================  =================================================================================
variant    methods                 what it is
=========  ======================  =================================================================================
exact      Naive, QR, CQR          the library's own: the offset is the score of rank ``ceil((n + 1) 0.9)``, quantiles
                                   are sorted. There is one right way, so these have no other variant of ours
printed    ICQR                    `ICQR.as_printed`: Algorithm 3, importance and K-means on calibration rows; clusters
                                   too small for the rank get the pooled offset
ours       ICQR                    `ICQR()`: importance and K-means on training rows, small clusters merged, so that
                                   coverage holds in every group
notebook   Naive, QR, CQR, ICQR    what the authors' notebook does, see `paper.notebook`
=========  ======================  =================================================================================

ICQR "printed" and "ours" are compared with the "exact" CQR, and ICQR "notebook" with the "notebook" CQR. On Boston,
where the variants differ most, "printed, …" is the printed algorithm with one thing changed.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from icqr import datasets
from icqr.datasets import Synthetic, load_dataset
from icqr.neural import QuantileNetwork
from paper import figures, tables
from paper.methods import CELLS, CHANGED, LEVELS, Case, Split, run_cell, split_rows
from paper.notebook import find_clusters
from paper.results import Progress, as_table, gather_rows, keep_settings, run_command, write_rows

#: Columns of rows.parquet: a row per (data, variant, method, network). All tables and figures are made from it alone.
COLUMNS = {
    "data": ("string", "data set"),
    "variant": ("string", "exact, notebook, printed, ours, or printed with one change"),
    "method": ("string", "Naive, QR, CQR or ICQR"),
    "network": ("int32", "index of the network"),
    "coverage": ("float64", "share of validation rows inside their interval"),
    "mean_width": ("float64", "mean width of the intervals"),
    "coverage_easy": ("float64", "coverage of the third of rows with the narrowest raw quantiles"),
    "coverage_hard": ("float64", "coverage of the third of rows with the widest raw quantiles"),
    "worst_slab": ("float64", "worst-slab coverage; missing where it was not computed"),
    "excess_risk": ("float64", "L1 excess risk; missing where it was not computed"),
    "true_coverage": ("float64", "mean true conditional coverage (synthetic data)"),
    "true_gap": ("float64", "mean distance of the true conditional coverage from the promise (synthetic data)"),
    "true_low": ("float64", "5 % quantile of the true conditional coverage (synthetic data)"),
    "iou": ("float64", "mean overlap with the oracle interval (synthetic data)"),
    "n_groups": ("int32", "number of groups"),
    "k": ("int32", "number of clusters chosen, before merging"),
    "unpromised": ("float64", "share of calibration rows in groups too small for a promise"),
    "crossed": ("float64", "share of validation rows whose raw lower quantile is above the upper one"),
    "seconds": ("float64", "time of the method, without the network's training"),
    "notes": ("string", "warnings of the library"),
    "widths": ("list<float32>", "widths of all validation rows"),
    "importance": ("list<float64>", "share of importance of each column; missing where groups are shared"),
    "explained": ("list<float64>", "explained variance for k = 1, 2, … up to the chosen k"),
}


@dataclass(frozen=True)
class Data:
    """A data set of the grid.

    Parameters
    ----------
    unit : str
        What y counts, for the axes.
    law : callable, optional
        Draws synthetic rows whose law is known.
    share_groups : bool
        The printed variant takes the groups of the first network for all, as the notebook does: with the 280 columns
        and 15,005 rows of BlogFeedback, learning them takes most of the methods' time. Offsets are each network's own.
    changed : bool
        Also run the printed algorithm with one thing changed at a time.
    """

    unit: str
    law: Callable[..., Synthetic] | None = None
    share_groups: bool = False
    changed: bool = False


#: The data sets, in the order of the tables.
DATA = {
    "boston": Data("1000 dollars", changed=True),
    "bike-leak": Data("rentals per hour"),
    "bike": Data("rentals per hour"),
    "blog": Data("comments in 24 hours", share_groups=True),
    "linear_spread": Data("units of y", datasets.make_linear_spread),
    "sine_spread": Data("units of y", datasets.make_sine_spread),
    "radial_spread": Data("units of y", datasets.make_radial_spread),
    "sum_spread": Data("units of y", datasets.make_sum_spread),
}
#: What can be asked for, and the data sets it stands for.
NAMES = {name: [name] for name in ("boston", "bike", "bike-leak", "blog")}
NAMES |= {"synthetic": [name for name, data in DATA.items() if data.law], "all": list(DATA)}


@dataclass(frozen=True)
class Settings:
    """What a run depends on, besides the data.

    Parameters
    ----------
    networks : int
        T, the number of networks.
    epochs : int
        The authors trained for 1000; fewer are for trials.
    seed : int
        Seed of everything random: network t depends on it and t alone.
    conditional : int
        Number of networks whose worst-slab coverage and excess risk are measured, on at most 20,000 rows.
    hidden : tuple of int
        Units of the network's hidden layers.
    synthetic_rows : int
        Rows of a synthetic set.
    """

    networks: int = 100
    epochs: int = 1000
    seed: int = 0
    conditional: int = 10
    hidden: tuple[int, ...] = (100, 50, 25)
    synthetic_rows: int = 4000


def run(names: Iterable[str], out: str | Path, settings: Settings | None = None, draw: bool = True) -> Path:
    """Run experiments, write rows, tables and figures, and return the path of ``rows.parquet``.

    A folder may hold several data sets, run one after the other; tables and figures show all that are complete.

    Parameters
    ----------
    names : list of str
        "boston", "bike", "bike-leak", "blog", "synthetic" or "all".
    out : path
        The folder. A stopped run with the same settings goes on where it was; other settings are refused.
    settings : Settings, optional
        By default the paper's.
    draw : bool, default=True
        Draw the figures.
    """
    out, settings = Path(out), settings or Settings()
    chosen = {data for name in names for data in NAMES[name]}
    if settings.networks < 1 or settings.epochs < 1:
        raise ValueError(f"networks and epochs must be 1 or more, got {settings.networks} and {settings.epochs}")
    for name in (name for name in DATA if name in chosen):
        run_data(name, out, settings)

    # All data sets in the folder whose networks are all there, also those of an earlier run.
    about, parts = {}, []
    for name in DATA:
        file = out / "parts" / name / "settings.json"
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"networks": 0}
        files = [_part(out, name, network) for network in range(stored["networks"])]
        if files and all(part.exists() for part in files):
            about[name] = stored
            parts += files
    gather_rows(out / "rows.parquet", parts, COLUMNS, about)
    tables.write_tables(out)
    if draw:
        figures.write_figures(out)
    return out / "rows.parquet"


def _part(out: Path, name: str, network: int) -> Path:
    """Return the file of one finished network."""
    return out / "parts" / name / f"network-{network:04d}.parquet"


# -- One data set ----------------------------------------------------------------------------------------------------


def run_data(name: str, out: Path, settings: Settings) -> None:
    """Train the networks of one data set and run the methods on each, unless a file says that it is done."""
    data, truth = DATA[name], None
    if data.law is None:
        X, y = load_dataset(name)
    else:
        truth = data.law(settings.synthetic_rows, random_state=settings.seed)
        X, y = truth.X, truth.y
    split = split_rows(X.to_numpy(dtype=float), y.to_numpy(dtype=float))
    keep_settings(out / "parts" / name / "settings.json", _about(data, settings, split, X), name)
    missing = [network for network in range(settings.networks) if not _part(out, name, network).exists()]
    if not missing:
        return

    trained = QuantileNetwork(
        LEVELS,
        settings.hidden,
        epochs=settings.epochs,
        n_networks=settings.networks,
        checkpoint=out / "networks" / name,
        random_state=settings.seed,
        progress=Progress(f"{name}: epochs of training"),
    )
    trained.fit(split.X[0], split.y[0])

    # Tasks are made one after the other, so that not all networks' copies are in memory at once. How many run at a
    # time, and where, is the user's choice (joblib.parallel_config); parts are written here, as they come.
    case = _first_case(data, split, trained, settings)
    seeds = np.random.SeedSequence(settings.seed).generate_state(settings.networks).tolist()
    cells = [*CELLS, *(CHANGED if data.changed else ())]
    tasks = (
        delayed(run_network)(
            network,
            Case(
                split, trained.network(network), case.clusters, seeds[network], case.printed_groups if network else None
            ),
            cells,
            network < settings.conditional,
            truth,
        )
        for network in missing
    )
    progress, done = Progress(f"{name}: methods"), settings.networks - len(missing)
    progress(done, settings.networks)
    for network, rows in Parallel(return_as="generator_unordered")(tasks):
        write_rows(_part(out, name, network), as_table([row | {"data": name} for row in rows], COLUMNS))
        done += 1
        progress(done, settings.networks)


def _about(data: Data, settings: Settings, split: Split, X: pd.DataFrame) -> dict[str, Any]:
    """Return what the rows' metadata says about a data set; a run with another answer is another run."""
    sizes = dict(zip(("n_train", "n_calibration", "n_validation"), map(len, split.y), strict=True))
    features = [str(name) for name in X]
    return {**asdict(settings), **sizes, "share_groups": data.share_groups, "unit": data.unit, "features": features}


def _first_case(data: Data, split: Split, trained: QuantileNetwork, settings: Settings) -> Case:
    """Learn from the first network what the others share: the notebook's clusters, and perhaps the printed groups."""
    seed = int(np.random.SeedSequence(settings.seed).generate_state(settings.networks)[0])
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # run_cell keeps those of the first network
        case = Case(split, trained.network(0), find_clusters(trained.network(0), split.X, split.y, seed), seed)
        if data.share_groups:
            case.printed_groups = CELLS["printed", "ICQR"](case).partition
    return case


def run_network(
    network: int, case: Case, cells: Sequence[tuple[str, str]], conditional: bool, truth: Synthetic | None
) -> tuple[int, list[dict[str, Any]]]:
    """Run all methods on one network; return its index and a row of results for each."""
    # One thread: the work is many short products and loops, on which several threads mostly wait for each other.
    with threadpool_limits(limits=1):
        return network, [run_cell(case, cell, conditional, truth) | {"network": network} for cell in cells]


# -- The command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m paper", description="Reproduce the paper's tables and figures.")
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=f"one or more of {', '.join(NAMES)}")
    parser.add_argument("--networks", type=int, default=100, help="T, the number of networks (default: 100)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a stopped run goes on from it")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    parser.add_argument("--epochs", type=int, default=1000, help="the authors' 1000; fewer for a trial")
    parser.add_argument(
        "--conditional", type=int, default=10, help="measure conditional coverage of so many networks (default: 10)"
    )
    parser.add_argument("--no-figures", action="store_true", help="write rows and tables only")
    options = parser.parse_args(arguments)
    settings = Settings(options.networks, options.epochs, options.seed, options.conditional)
    return run_command(lambda: run(options.names, options.out, settings, not options.no_figures), options.out)
