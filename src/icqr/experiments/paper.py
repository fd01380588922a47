"""The paper's experiments: ``python -m icqr.experiments.paper boston --networks 100 --out DIR``.

The grid is data set × variant × method × network. On each of T fitted networks all methods run, so that they differ by
nothing but themselves. Variants say which rules gave the offsets and the groups:

=========  ======================  =================================================================================
variant    methods                 what it is
=========  ======================  =================================================================================
exact      Naive, QR, CQR          the library's own: the offset is the score of rank ``ceil((n + 1) 0.9)``, quantiles
                                   are sorted. There is one right way, so these have no other variant of ours
printed    ICQR                    `ICQR.as_printed`: Algorithm 3, importance and K-means on calibration rows; clusters
                                   too small for the rank get the pooled offset
ours       ICQR                    `ICQR()`: importance and K-means on training rows, small clusters merged, so that
                                   coverage holds in every group
notebook   Naive, QR, CQR, ICQR    what the authors' notebook does, see `icqr.experiments.notebook`
=========  ======================  =================================================================================

On Boston, where the variants differ most, "printed, …" is the printed algorithm with one thing changed.

So ICQR "printed" and "ours" are compared with the "exact" CQR, and ICQR "notebook" with the "notebook" CQR.

Choices, all written into the metadata of ``rows.parquet``:

- Networks have the authors' settings (`QuantileNetwork`'s defaults); each sees the rows in an order of its own.
- On BlogFeedback the printed variant learns importance and clusters from the first network alone, as the notebook does
  on all data (`share_groups`): with 280 columns and 15,005 rows they take most of the methods' time. Offsets are each
  network's own.
- Worst-slab coverage and excess risk are computed for the first `conditional` networks (10), on at most 20,000 rows.

A folder holds:

=========================  =======================================================================================
``rows.parquet``           a row per (data, variant, method, network), see `icqr.experiments.paper_rows`
``width.csv``              min, max, mean, std, Q1, median, Q3, IQR of the widths of all networks' intervals together
``coverage.csv``           the same of the networks' coverages
``tables/``                all tables as CSV, Markdown and LaTeX, see `icqr.experiments.paper_tables`
``figures/``               all figures as PNG and SVG, with ``captions.md``
``parts/``, ``networks/``  finished networks and the state of training, so that a stopped run goes on where it was
=========================  =======================================================================================
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from icqr.datasets import (
    Synthetic,
    load_dataset,
    make_linear_spread,
    make_radial_spread,
    make_sine_spread,
    make_sum_spread,
)
from icqr.experiments import notebook, paper_figures, paper_tables
from icqr.experiments.extras import need
from icqr.experiments.paper_methods import CELLS, CHANGED, LEVELS, Case, Split, run_cell, split_as_notebook
from icqr.experiments.paper_rows import Parts, gather
from icqr.experiments.progress import lines_or_bar, run_command, steps
from icqr.neural import QuantileNetwork

_CHUNK = 25  # networks trained at the same time
_SYNTHETIC_ROWS = 4000


@dataclass(frozen=True)
class Data:
    """A data set of the grid.

    Parameters
    ----------
    name : str
        As on the command line.
    unit : str
        What y counts, for the axes.
    share_groups : bool
        The printed variant takes the groups of the first network for all.
    changed : bool
        Also run the printed algorithm with one thing changed at a time.
    make : callable, optional
        Draws synthetic rows whose law is known.
    """

    name: str
    unit: str
    share_groups: bool = False
    changed: bool = False
    make: Callable[..., Synthetic] | None = None

    def load(self, seed: int) -> tuple[pd.DataFrame, pd.Series[Any], Synthetic | None]:
        """Give the features, the target and, for synthetic rows, their law."""
        if self.make is None:
            return *load_dataset(self.name), None
        drawn = self.make(_SYNTHETIC_ROWS, random_state=seed)
        return drawn.X, drawn.y, drawn


#: The data sets, in the order of the tables.
DATA = {
    data.name: data
    for data in (
        Data("boston", "1000 dollars", changed=True),
        Data("bike-leak", "rentals per hour"),
        Data("bike", "rentals per hour"),
        Data("blog", "comments in 24 hours", share_groups=True),
        Data("linear_spread", "units of y", make=make_linear_spread),
        Data("sine_spread", "units of y", make=make_sine_spread),
        Data("radial_spread", "units of y", make=make_radial_spread),
        Data("sum_spread", "units of y", make=make_sum_spread),
    )
}
_SYNTHETIC = [data.name for data in DATA.values() if data.make]
NAMES = ("boston", "bike", "bike-leak", "blog", "synthetic", "all")


@dataclass(frozen=True)
class Settings:
    """What a run depends on, besides the data.

    Parameters
    ----------
    networks : int
        T.
    epochs : int
        The authors trained for 1000; fewer are for trials.
    seed : int
        Of everything random: network t depends on it and t alone.
    conditional : int
        Number of networks whose conditional coverage is measured.
    hidden : tuple of int
        Units of the network's hidden layers.
    """

    networks: int = 100
    epochs: int = 1000
    seed: int = 0
    conditional: int = 10
    hidden: tuple[int, ...] = (100, 50, 25)


def reproduce(
    names: str | Iterable[str],
    networks: int = 100,
    out: str | Path = "reproduction",
    *,
    seed: int = 0,
    epochs: int = 1000,
    conditional: int = 10,
    figures: bool = True,
) -> Path:
    """Run the paper's experiments and write rows, tables and figures.

    A folder may hold several data sets, run one after the other; tables and figures show all that are complete.

    Parameters
    ----------
    names : str or list of str
        "boston", "bike", "bike-leak", "blog", "synthetic" or "all".
    networks : int, default=100
        T, the number of networks.
    out : path
        The folder. A stopped run with the same settings goes on where it was; other settings are refused.
    seed : int, default=0
        Of everything random.
    epochs : int, default=1000
        The authors' number; fewer are for trials.
    conditional : int, default=10
        Conditional coverage is measured for so many networks.
    figures : bool, default=True
        Draw the figures.

    Returns
    -------
    Path
        ``rows.parquet``.
    """
    settings = Settings(networks, epochs, seed, conditional)
    return run([names] if isinstance(names, str) else names, Path(out), settings, figures)


def run(names: Iterable[str], out: Path, settings: Settings, figures: bool = True) -> Path:
    """Do what `reproduce` does, for any settings."""
    for module in ("pyarrow", *(["matplotlib"] if figures else [])):
        need(module)  # before any work
    chosen = data_sets(names)
    if settings.networks < 1 or settings.epochs < 1:
        raise ValueError(f"networks and epochs must be 1 or more, got {settings.networks} and {settings.epochs}")
    for name in chosen:
        run_data(DATA[name], out, settings)
    rows = gather(out, DATA)
    paper_tables.write_tables(rows, out)
    if figures:
        paper_figures.write_figures(rows, out / "figures")
    return rows


def data_sets(names: Iterable[str]) -> list[str]:
    """Give the data sets that names stand for, in the order of the tables.

    Examples
    --------
    >>> data_sets(["bike", "boston"])
    ['boston', 'bike']
    """
    known = {**{name: [name] for name in DATA}, "synthetic": _SYNTHETIC, "all": list(DATA)}
    chosen: set[str] = set()
    for name in names:
        if name not in known:
            raise ValueError(f"names must be among {', '.join(NAMES)}, got {name!r}")
        chosen.update(known[name])
    return [name for name in DATA if name in chosen]


# -- One data set ----------------------------------------------------------------------------------------------------


def run_data(data: Data, out: Path, settings: Settings) -> None:
    """Train the networks of one data set and run the methods on each, unless a file says that it is done."""
    X, y, truth = data.load(settings.seed)
    split = split_as_notebook(X.to_numpy(dtype=np.float64), y.to_numpy(dtype=np.float64))
    parts = Parts(out, data.name)
    parts.open(_about(data, settings, split, X))
    missing = parts.missing()
    if not missing:
        return
    trained = train(data, split, settings, out / "networks" / data.name, parts)
    with threadpool_limits(limits=1):  # see `run_network`
        cases = _cases(data, split, trained, settings, parts.folder / "notebook.npz")
    cells = [*CELLS, *(CHANGED if data.changed else ())]
    tasks = (
        delayed(run_network)(network, cases(network), cells, network < settings.conditional, truth)
        for network in missing
    )
    with steps(f"{data.name}: methods", settings.networks, settings.networks - len(missing)) as advance:
        # How many at a time, and where, is the user's: joblib.parallel_config. Parts are written here as they come.
        for network, rows in Parallel(return_as="generator_unordered")(tasks):
            parts.write(network, rows)
            advance()


def run_network(
    network: int, case: Callable[[], Case], cells: Sequence[tuple[str, str]], conditional: bool, truth: Synthetic | None
) -> tuple[int, list[dict[str, Any]]]:
    """Run all methods on one network; give its index and a row of results for each.

    One thread: the work is many short products and loops, on which several threads mostly wait for each other.
    """
    with threadpool_limits(limits=1):
        made = case()
        return network, [run_cell(made, cell, conditional, truth)[0] for cell in cells]


def _about(data: Data, settings: Settings, split: Split, X: pd.DataFrame) -> dict[str, Any]:
    """Give what the file says about a data set; a run with another answer is another run."""
    sizes = dict(zip(("n_train", "n_calibration", "n_validation"), map(len, split.y), strict=True))
    own = {"share_groups": data.share_groups, "unit": data.unit, "features": [str(name) for name in X]}
    return {**asdict(settings), **sizes, **own}


def train(data: Data, split: Split, settings: Settings, folder: Path, parts: Parts) -> QuantileNetwork:
    """Train the T networks, going on from the folder; the time is noted if it was done in one go."""
    fresh, start = not folder.exists(), time.perf_counter()
    model = QuantileNetwork(
        LEVELS,
        settings.hidden,
        epochs=settings.epochs,
        n_networks=settings.networks,
        chunk_size=_CHUNK,
        checkpoint=folder,
        random_state=settings.seed,
        verbose=lines_or_bar(f"{data.name}: epochs of training"),
    )
    model.fit(split.X[0], split.y[0])
    if fresh:
        parts.note(training_seconds=time.perf_counter() - start)
    return model


def _cases(
    data: Data, split: Split, trained: QuantileNetwork, settings: Settings, file: Path
) -> Callable[[int], Callable[[], Case]]:
    """Give a function of a network that gives what makes its case; what all share is learned here, from the first."""
    seeds = np.random.SeedSequence(settings.seed).generate_state(settings.networks)
    if not file.exists():
        with steps(f"{data.name}: clusters of the first network, as in the notebook", 1) as advance:
            notebook.find_clusters(trained.network(0), split.X, split.y, int(seeds[0])).save(file)
            advance()
    clusters = notebook.Clusters.load(file)
    first = Case(split, trained.network(0), clusters, int(seeds[0]))
    groups = run_cell(first, ("printed", "ICQR"), False, None)[1] if data.share_groups else None

    def make(network: int) -> Callable[[], Case]:
        shared = None if network == 0 else groups
        return partial(Case, split, trained.network(network), clusters, int(seeds[network]), shared)

    return make


# -- The command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    go = partial(reproduce, options.names, options.networks, options.out, seed=options.seed, epochs=options.epochs)
    return run_command(partial(go, conditional=options.conditional, figures=not options.no_figures), options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m icqr.experiments.paper", description="Reproduce the paper's tables and figures."
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=f"one or more of {', '.join(NAMES)}")
    parser.add_argument("--networks", type=int, default=100, help="T, the number of networks (default: 100)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a stopped run goes on from it")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    parser.add_argument("--epochs", type=int, default=1000, help="the authors' 1000; fewer for a trial")
    parser.add_argument(
        "--conditional", type=int, default=10, help="measure conditional coverage of so many networks (default: 10)"
    )
    parser.add_argument("--no-figures", action="store_true", help="write rows and tables only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
