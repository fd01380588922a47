"""The four methods on one fitted network, each in its variants, and what is measured of their intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from icqr import CQR, ICQR, QR, GroupPartition, Naive
from icqr.datasets import Synthetic
from icqr.metrics import excess_risk, interval_iou, worst_slab_coverage
from paper import notebook
from paper.notebook import Array
from paper.results import kept_warnings

COVERAGE = 0.9
LEVELS = (0.05, 0.5, 0.95)
_MOST_ROWS = 20_000  # on which conditional coverage is measured


class Split(NamedTuple):
    """Training, calibration and validation rows."""

    X: tuple[Array, Array, Array]
    y: tuple[Array, Array, Array]


def split_rows(X: Array, y: Array) -> Split:
    """Split in halves, and the second half in two, as the authors did.

    Examples
    --------
    >>> [len(part) for part in split_rows(np.zeros((506, 1)), np.zeros(506)).y]
    [253, 126, 127]
    """
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.5, random_state=22)
    X_cal, X_val, y_cal, y_val = train_test_split(X_rest, y_rest, test_size=0.5, random_state=22)
    return Split((X_train, X_cal, X_val), (y_train, y_cal, y_val))


@dataclass
class Case:
    """One fitted network with what its methods need.

    Parameters
    ----------
    split : Split
        The rows.
    network : QuantileNetwork
        Fitted, one network.
    clusters : Clusters
        The notebook's clusters.
    seed : int
        Seed of importance and K-means.
    printed_groups : partition, optional
        Use these groups in the printed variant, instead of learning them from this network.
    """

    split: Split
    network: Any
    clusters: notebook.Clusters
    seed: int
    printed_groups: Any = None

    @cached_property
    def raw(self) -> list[Array]:
        """The network's quantiles of the calibration and of the validation rows, (n, 3) each, not sorted."""
        return [self.network.predict_quantiles(X) for X in self.split.X[1:]]

    @property
    def for_notebook(self) -> tuple[Array, Array, Array, float]:
        """The arguments that the notebook's functions share."""
        return self.raw[0], self.split.y[1], self.raw[1], COVERAGE


@dataclass
class Outcome:
    """The validation rows' bounds (n, 2), and how the groups came about."""

    bounds: Array
    n_groups: int = 1
    k: int = 1
    unpromised: float = 0.0
    importance: Array | None = None
    explained: Array | None = None
    partition: Any = None


# -- The methods -----------------------------------------------------------------------------------------------------


def _fitted(case: Case, method: Any) -> Any:
    """Fit a method around the network: only what comes after the network is learned."""
    (X_train, X_cal, _), (y_train, y_cal, _) = case.split
    if isinstance(method, QR):
        return method.fit(X_train, y_train)
    return method.fit(X_train, y_train, X_calibration=X_cal, y_calibration=y_cal)


def _exact(case: Case, make: Callable[..., Any]) -> Outcome:
    method = make(FrozenEstimator(case.network), random_state=case.seed)
    return Outcome(_fitted(case, method).predict_interval(case.split.X[2]))


def _grouped(case: Case, make: Callable[..., ICQR], shared: Any = None, **change: Any) -> Outcome:
    """Run ICQR, with parameters changed or with groups that another network's ICQR has learned."""
    given = {} if shared is None else {"partition": GroupPartition(shared.assign)}
    method = make(FrozenEstimator(case.network), COVERAGE, random_state=case.seed, **given).set_params(**change)
    _fitted(case, method)
    bounds, unpromised = method.predict_interval(case.split.X[2]), method.certificate().unpromised
    if shared is not None:
        return Outcome(bounds, shared.n_groups_, shared.k_, unpromised, partition=shared)

    partition = method.partition_
    importance = method.importances_["share"].to_numpy()
    explained = partition.path_["explained_variance"].to_numpy()[: partition.k_]
    return Outcome(bounds, partition.n_groups_, partition.k_, unpromised, importance, explained, partition)


def _printed(case: Case) -> Outcome:
    return _grouped(case, ICQR.as_printed, case.printed_groups)


def _printed_with_notebook_offsets(case: Case) -> Outcome:
    """Give the printed clusters the notebook's offsets: interpolated, clipped in small clusters, 0 in empty ones."""
    outcome = _printed(case)
    labels = [outcome.partition.assign(X) for X in case.split.X[1:]]
    return replace(outcome, bounds=notebook.icqr_bounds(*case.for_notebook, *labels))


def _notebook_icqr(case: Case) -> Outcome:
    clusters = case.clusters
    bounds = notebook.icqr_bounds(*case.for_notebook, clusters.calibration, clusters.validation)
    sizes = np.bincount(clusters.calibration)
    small = float(sizes[sizes < 9].sum() / sizes.sum())  # rank ceil(0.9 (n + 1)) is above n
    return Outcome(bounds, clusters.k, clusters.k, small, clusters.importance, clusters.explained)


#: The grid: each (variant, method), and what gives its bounds.
CELLS: dict[tuple[str, str], Callable[[Case], Outcome]] = {
    ("exact", "Naive"): partial(_exact, make=Naive),
    ("exact", "QR"): partial(_exact, make=QR),
    ("exact", "CQR"): partial(_exact, make=CQR),
    ("notebook", "Naive"): lambda case: Outcome(notebook.naive_bounds(*case.for_notebook)),
    ("notebook", "QR"): lambda case: Outcome(case.raw[1][:, [0, 2]]),
    ("notebook", "CQR"): lambda case: Outcome(notebook.cqr_bounds(*case.for_notebook)),
    ("notebook", "ICQR"): _notebook_icqr,
    ("printed", "ICQR"): _printed,
    ("ours", "ICQR"): partial(_grouped, make=ICQR),
}

#: The printed algorithm with one thing changed, to see what each does: where the variants differ, they differ in all.
CHANGES: dict[str, dict[str, Any]] = {
    "clusters of training rows": {"partition__data": "train"},
    "importance from training rows": {"importance__data": "train"},
    "importance by pinball loss": {"importance__error": None},
    "columns resampled": {"importance__replace": True},
    "small clusters merged": {"partition__merge": True},
}
CHANGED: dict[tuple[str, str], Callable[[Case], Outcome]] = {
    (f"printed, {change}", "ICQR"): partial(_grouped, make=ICQR.as_printed, **parameters)
    for change, parameters in CHANGES.items()
} | {("printed, offsets of the notebook", "ICQR"): _printed_with_notebook_offsets}


# -- Measures --------------------------------------------------------------------------------------------------------


def run_cell(case: Case, cell: tuple[str, str], conditional: bool, truth: Synthetic | None) -> dict[str, Any]:
    """Run one method in one variant and return its row of results."""
    notes: list[str] = []
    start = time.perf_counter()
    with kept_warnings(notes):
        outcome = (CELLS | CHANGED)[cell](case)
    seconds = time.perf_counter() - start

    row = {"variant": cell[0], "method": cell[1], "seconds": seconds, "notes": " | ".join(notes)}
    row |= {name: value for name, value in vars(outcome).items() if name not in ("bounds", "partition")}
    row |= measures(outcome.bounds, case.split.y[2], case.raw[1])
    if conditional:
        row |= conditional_measures(outcome.bounds, case.split.X[2], case.split.y[2])
    if truth is not None:
        row |= true_measures(outcome.bounds, case.split.X[2], case.split.y[2], truth)
    return row


def measures(bounds: Array, y: Array, raw: Array) -> dict[str, Any]:
    """Return coverage and widths; easy rows are the third with the narrowest raw quantiles, hard ones the widest."""
    covered, width = (bounds[:, 0] <= y) & (y <= bounds[:, 1]), np.abs(bounds[:, 1] - bounds[:, 0])
    by_width = np.argsort(np.abs(raw[:, 2] - raw[:, 0]), kind="stable")
    third = len(by_width) // 3
    return {
        "coverage": float(covered.mean()),
        "mean_width": float(width.mean()),
        "coverage_easy": float(covered[by_width[:third]].mean()),
        "coverage_hard": float(covered[by_width[-third:]].mean()),
        "crossed": float(np.mean(raw[:, 0] > raw[:, 2])),
        "widths": width.astype(np.float32),
    }


def conditional_measures(bounds: Array, X: Array, y: Array) -> dict[str, float]:
    """Return worst-slab coverage and the L1 excess risk, of at most 20,000 rows."""
    X, y, bounds = X[:_MOST_ROWS], y[:_MOST_ROWS], bounds[:_MOST_ROWS]
    X = X[:, np.ptp(X, axis=0) > 0]
    # Only "covered or not" counts, and the notebook's bounds may be crossed: such a row is not covered.
    covered = (bounds[:, 0] <= y) & (y <= bounds[:, 1])
    y, intervals = np.where(covered, 0.0, 2.0), np.broadcast_to([-1.0, 1.0], (len(y), 2))
    risk = excess_risk(y, intervals, X, coverage=COVERAGE)["value"]["l1"]
    return {"worst_slab": worst_slab_coverage(y, intervals, X).coverage, "excess_risk": float(risk)}


def true_measures(bounds: Array, X: Array, y: Array, truth: Synthetic) -> dict[str, float]:
    """Compare with the known law: the true coverage of each row, and the overlap with the oracle's interval."""
    coverage = truth.coverage(X, bounds)
    return {
        "true_coverage": float(coverage.mean()),
        "true_gap": float(np.abs(coverage - COVERAGE).mean()),
        "true_low": float(np.quantile(coverage, 0.05)),
        "iou": interval_iou(y, np.sort(bounds, axis=1), truth.quantile(X, LEVELS[::2])),
    }
