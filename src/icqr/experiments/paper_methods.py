"""The four methods on one fitted network, each in its variants: a row of results for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from icqr._tables import FloatArray, IntArray, Table
from icqr.datasets import Synthetic
from icqr.experiments import notebook
from icqr.experiments.notes import kept_warnings
from icqr.metrics import excess_risk, interval_iou, worst_slab_coverage
from icqr.regressors import CQR, ICQR, QR, Naive

COVERAGE = 0.9
LEVELS = (0.05, 0.5, 0.95)
_MOST_ROWS = 20_000  # of which conditional coverage is measured


@dataclass(frozen=True)
class Split:
    """Training, calibration and validation rows."""

    X: tuple[FloatArray, FloatArray, FloatArray]
    y: tuple[FloatArray, FloatArray, FloatArray]


def split_as_notebook(X: FloatArray, y: FloatArray) -> Split:
    """Split in halves, and the second half in two, as the authors did.

    Examples
    --------
    >>> [len(part) for part in split_as_notebook(np.zeros((506, 1)), np.zeros(506)).y]
    [253, 126, 127]
    """
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.5, random_state=22)
    X_cal, X_val, y_cal, y_val = train_test_split(X_rest, y_rest, test_size=0.5, random_state=22)
    return Split((X_train, X_cal, X_val), (y_train, y_cal, y_val))


class SharedGroups:
    """A partition that another network's ICQR has learned already."""

    data = "calibration"
    needs_weights = False

    def __init__(self, fitted: Any) -> None:
        self.fitted = fitted
        self.n_groups_ = fitted.n_groups_

    def fit(self, X: Any, y: Any, bounds: Any, **_: Any) -> SharedGroups:
        """Learn nothing more."""
        return self

    def assign(self, X: Table) -> IntArray:
        """Give each row its group."""
        return np.asarray(self.fitted.assign(X), dtype=np.intp)


# -- The methods -----------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One network with what its methods need.

    Parameters
    ----------
    split : Split
        The rows.
    network : QuantileNetwork
        Fitted, one network.
    clusters : Clusters
        The notebook's clusters.
    seed : int
        Of importance and K-means.
    printed_groups : partition, optional
        Use these groups in the printed variant, instead of learning them from this network.
    """

    split: Split
    network: Any
    clusters: notebook.Clusters
    seed: int
    printed_groups: Any = None
    raw: tuple[FloatArray, FloatArray] = field(init=False)
    measured: dict[bytes, dict[str, float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        _, X_cal, X_val = self.split.X
        self.raw = self.network.predict_quantiles(X_cal), self.network.predict_quantiles(X_val)

    def fitted(self, method: Any) -> Any:
        """Fit a method around the network: only what comes after the network is learned."""
        (X_train, X_cal, _), (y_train, y_cal, _) = self.split.X, self.split.y
        if isinstance(method, QR):
            return method.fit(X_train, y_train)
        return method.fit(X_train, y_train, X_calibration=X_cal, y_calibration=y_cal)

    def as_notebook(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Give the arguments that the notebook's functions share."""
        return self.raw[0], self.split.y[1], self.raw[1], COVERAGE


@dataclass
class Outcome:
    """The validation rows' bounds (n, 2), and how the groups came about."""

    bounds: FloatArray
    n_groups: int = 1
    k: int = 1
    unpromised: float = 0.0
    importance: FloatArray | None = None
    explained: FloatArray | None = None
    partition: Any = None


def _exact(make: Callable[[Any], Any]) -> Callable[[Case], Outcome]:
    def run(case: Case) -> Outcome:
        method = case.fitted(make(FrozenEstimator(case.network)))
        return Outcome(method.predict_interval(case.split.X[2]))

    return run


def _printed(case: Case) -> Outcome:
    shared = {} if case.printed_groups is None else {"partition": SharedGroups(case.printed_groups)}
    return _grouped(case, ICQR.as_printed(FrozenEstimator(case.network), COVERAGE, random_state=case.seed, **shared))


def _printed_but(**change: Any) -> Callable[[Case], Outcome]:
    def run(case: Case) -> Outcome:
        method = ICQR.as_printed(FrozenEstimator(case.network), COVERAGE, random_state=case.seed)
        return _grouped(case, method.set_params(**change))

    return run


def _printed_with_notebook_offsets(case: Case) -> Outcome:
    """Give the printed clusters the notebook's offsets: interpolated, clipped in small clusters, 0 in empty ones."""
    outcome = _printed(case)
    _, X_cal, X_val = case.split.X
    labels = outcome.partition.assign(X_cal), outcome.partition.assign(X_val)
    return replace(outcome, bounds=notebook.icqr_bounds(*case.as_notebook(), labels, outcome.partition.n_groups_))


def _ours(case: Case) -> Outcome:
    return _grouped(case, ICQR(FrozenEstimator(case.network), COVERAGE, random_state=case.seed))


def _grouped(case: Case, method: ICQR) -> Outcome:
    case.fitted(method)
    partition: Any = getattr(method.partition_, "fitted", method.partition_)
    shared = partition is not method.partition_
    return Outcome(
        method.predict_interval(case.split.X[2]),
        n_groups=partition.n_groups_,
        k=partition.k_,
        unpromised=method.certificate().unpromised,
        importance=None if shared else method.importances_["share"].to_numpy(),
        explained=None if shared else partition.path_["explained_variance"].to_numpy()[: partition.k_],
        partition=partition,
    )


def _notebook_naive(case: Case) -> Outcome:
    return Outcome(notebook.naive_bounds(*case.as_notebook()))


def _notebook_qr(case: Case) -> Outcome:
    return Outcome(case.raw[1][:, [0, 2]])


def _notebook_cqr(case: Case) -> Outcome:
    return Outcome(notebook.cqr_bounds(*case.as_notebook()))


def _notebook_icqr(case: Case) -> Outcome:
    found = case.clusters
    bounds = notebook.icqr_bounds(*case.as_notebook(), (found.calibration, found.validation), found.k)
    sizes = np.bincount(found.calibration, minlength=found.k)
    small = float(sizes[sizes < 9].sum() / sizes.sum())  # rank ceil(0.9 (n + 1)) is above n
    return Outcome(bounds, found.k, found.k, small, found.importance, found.explained)


#: The grid: each (variant, method), and what gives its bounds.
CELLS: dict[tuple[str, str], Callable[[Case], Outcome]] = {
    ("exact", "Naive"): _exact(Naive),
    ("exact", "QR"): _exact(QR),
    ("exact", "CQR"): _exact(CQR),
    ("notebook", "Naive"): _notebook_naive,
    ("notebook", "QR"): _notebook_qr,
    ("notebook", "CQR"): _notebook_cqr,
    ("notebook", "ICQR"): _notebook_icqr,
    ("printed", "ICQR"): _printed,
    ("ours", "ICQR"): _ours,
}

#: The printed algorithm with one thing changed, to see what each does: where the variants differ, they differ in all.
CHANGED: dict[tuple[str, str], Callable[[Case], Outcome]] = {
    (f"printed, {change}", "ICQR"): run
    for change, run in {
        "clusters of training rows": _printed_but(partition__data="train"),
        "importance from training rows": _printed_but(importance__data="train"),
        "importance by pinball loss": _printed_but(importance__error=None),
        "columns resampled": _printed_but(importance__replace=True),
        "small clusters merged": _printed_but(partition__merge=True),
        "offsets of the notebook": _printed_with_notebook_offsets,
    }.items()
}


# -- Measures --------------------------------------------------------------------------------------------------------


def run_cell(
    case: Case, cell: tuple[str, str], conditional: bool, truth: Synthetic | None
) -> tuple[dict[str, Any], Any]:
    """Run one method in one variant; give its row of results, and its fitted partition if it has one."""
    notes: list[str] = []
    start = time.perf_counter()
    with kept_warnings(notes):
        outcome = (CELLS | CHANGED)[cell](case)
    seconds = time.perf_counter() - start
    row = {"variant": cell[0], "method": cell[1], "seconds": seconds, "notes": " | ".join(notes)}
    row |= {name: getattr(outcome, name) for name in ("n_groups", "k", "unpromised", "importance", "explained")}
    row |= _measures(case, outcome.bounds)
    if conditional:
        row |= _conditional(case, _covered(case, outcome.bounds))
    if truth is not None:
        row |= _against_truth(case, outcome.bounds, truth)
    return row, outcome.partition


def _covered(case: Case, bounds: FloatArray) -> NDArray[np.bool_]:
    y = case.split.y[2]
    return np.asarray((bounds[:, 0] <= y) & (y <= bounds[:, 1]))


def _measures(case: Case, bounds: FloatArray) -> dict[str, Any]:
    """Give coverage and width; easy rows are the third with the narrowest raw quantiles, hard ones the widest."""
    raw = case.raw[1]
    covered, width = _covered(case, bounds), np.abs(bounds[:, 1] - bounds[:, 0])
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


def _conditional(case: Case, covered: NDArray[np.bool_]) -> dict[str, float]:
    """Give worst-slab coverage and the L1 excess risk, which depend on the intervals through "covered" alone."""
    key = covered.tobytes()
    if key not in case.measured:
        X, hit = case.split.X[2][:_MOST_ROWS], covered[:_MOST_ROWS]
        X = X[:, np.ptp(X, axis=0) > 0]
        y, intervals = np.where(hit, 0.0, 2.0), np.broadcast_to([-1.0, 1.0], (len(hit), 2))
        slab = worst_slab_coverage(y, intervals, X)
        risk = excess_risk(y, intervals, X, coverage=COVERAGE)
        case.measured[key] = {"worst_slab": slab.coverage, "excess_risk": float(risk["value"]["l1"])}
    return case.measured[key]


def _against_truth(case: Case, bounds: FloatArray, truth: Synthetic) -> dict[str, float]:
    """Compare with the known law: the true coverage of each row, and the overlap with the oracle's interval."""
    X, y = case.split.X[2], case.split.y[2]
    coverage = truth.coverage(X, bounds)
    return {
        "true_coverage": float(coverage.mean()),
        "true_gap": float(np.abs(coverage - COVERAGE).mean()),
        "true_low": float(np.quantile(coverage, 0.05)),
        "iou": interval_iou(y, np.sort(bounds, axis=1), truth.quantile(X, LEVELS[::2])),
    }
