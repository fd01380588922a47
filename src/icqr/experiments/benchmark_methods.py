"""The methods of the benchmark, on one fitted quantile model, the same rows to calibrate with and the same to judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from icqr._tables import FloatArray, IntArray, Table
from icqr.calibration import quantile_levels
from icqr.datasets import Synthetic
from icqr.experiments import notebook
from icqr.experiments.benchmark_settings import AVERAGED, MORE, Base, Settings
from icqr.experiments.shared_fits import Fits, FoldMean, Shared, SharedResiduals
from icqr.partition import GroupPartition, ScorePartition
from icqr.regressors import CQR, ICQR, QR, Naive
from icqr.rows import Rows

#: Groups by width; crepes has as many by default.
_WIDTH_BINS = 10


@dataclass
class Case:
    """What the methods of a cell share.

    Parameters
    ----------
    train, calibration, test : Rows
        Half of the rows, a quarter and a quarter.
    base : Base
        The base model.
    level : float
        The coverage asked for.
    seed : int
        Of everything random.
    settings : Settings
        Of the benchmark.
    truth : Synthetic, optional
        The law of the rows, if it is known.
    """

    train: Rows
    calibration: Rows
    test: Rows
    base: Base
    level: float
    seed: int
    settings: Settings
    truth: Synthetic | None = None
    fits: Fits = field(init=False)

    def __post_init__(self) -> None:
        self.fits = Fits(len(self.train))

    @property
    def shared(self) -> Shared:
        """The base model, for a method: fitted by the first that asks."""
        return Shared(self.base.make(self.seed), self.fits, self.levels)

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the lower bound, the median and the upper bound."""
        return tuple(quantile_levels(self.level, "both"))

    def quantiles(self, X: Table) -> FloatArray:
        """Give the (n, 3) quantiles by the fitted base model, sorted."""
        return self.shared.fit(self.train.X, self.train.y).predict_quantiles(X)


def split(X: Table, y: Any, seed: int) -> tuple[Rows, Rows, Rows]:
    """Draw half of the rows to train on, a quarter to calibrate with and a quarter to judge by.

    Examples
    --------
    >>> [len(rows) for rows in split(np.zeros((506, 1)), np.zeros(506), seed=0)]
    [253, 126, 127]
    """
    everything = Rows(X, np.asarray(y, dtype=np.float64), np.arange(len(X)))
    train, rest = train_test_split(everything.index, test_size=0.5, random_state=seed)
    calibration, test = train_test_split(rest, test_size=0.5, random_state=seed)
    return everything.take(train), everything.take(calibration), everything.take(test)


@dataclass(frozen=True)
class Outcome:
    """The test rows' intervals, and what was promised.

    Parameters
    ----------
    intervals : array of shape (n, 2)
        Lower and upper bounds, as the method gave them.
    promised : float, optional
        Mean coverage that is promised; by default what was asked for.
    unpromised : float
        Share of calibration rows in groups too small for a promise.
    n_groups : int
        Number of groups.
    """

    intervals: FloatArray
    promised: float | None = None
    unpromised: float = 0.0
    n_groups: int = 1


Method = Callable[[Case], Outcome]


def _outcome(case: Case, method: Any) -> Outcome:
    """Fit one of the library's methods and predict."""
    if isinstance(method, QR):
        method.fit(case.train.X, case.train.y)
        return Outcome(method.predict_interval(case.test.X))
    held_out = case.calibration
    method.fit(case.train.X, case.train.y, X_calibration=held_out.X, y_calibration=held_out.y)
    intervals = method.predict_interval(case.test.X)
    certificate = method.certificate()
    groups = certificate.groups[certificate.groups["n"] > 0]
    # A group without a promise gets the pooled offset, which is meant to give what was asked for.
    promised = np.where(groups["promised"] > 0, groups["promised"], case.level)
    return Outcome(
        intervals, float(np.average(promised, weights=groups["n"])), certificate.unpromised, method.n_groups_
    )


def _plain(make: Callable[..., Any], **parameters: Any) -> Method:
    """Run a class on the shared base model."""
    return lambda case: _outcome(case, make(case.shared, case.level, random_state=case.seed, **parameters))


def _width_bins(case: Case) -> Outcome:
    """Mondrian CQR: groups are bins of the raw bounds' width, cut at its quantiles among the training rows."""

    def width(X: Table) -> FloatArray:
        quantiles = case.quantiles(X)
        return np.asarray(quantiles[:, -1] - quantiles[:, 0])

    edges = np.unique(np.quantile(width(case.train.X), np.arange(1, _WIDTH_BINS) / _WIDTH_BINS))

    def labels(X: Table) -> IntArray:
        return np.searchsorted(edges, width(X))

    return _plain(ICQR, partition=GroupPartition(labels))(case)


def _notebook(case: Case) -> Outcome:
    """Take clusters and offsets as the authors' notebook does; quantiles are sorted, as for all methods here."""
    model = case.shared.fit(case.train.X, case.train.y)
    parts = (case.train, case.calibration, case.test)
    found = notebook.find_clusters(model, [rows.X for rows in parts], [rows.y for rows in parts], case.seed)
    bounds = notebook.icqr_bounds(
        case.quantiles(case.calibration.X),
        case.calibration.y,
        case.quantiles(case.test.X),
        case.level,
        (found.calibration, found.validation),
        found.k,
    )
    return Outcome(bounds, n_groups=found.k)


def _residual(make: Callable[..., Any], **parameters: Any) -> Method:
    """Run a class on residual quantiles of the base model."""

    def run(case: Case) -> Outcome:
        bounds = SharedResiduals(case.base.make(case.seed), case.fits, case.levels)
        return _outcome(case, make(bounds, case.level, random_state=case.seed, **parameters))

    return run


def _more(case: Case) -> Outcome:
    """Give CQR's base model more trees (or epochs), the learning rate being what it was."""
    longer = Shared(case.base.with_more_effort().make(case.seed), case.fits, case.levels)
    return _outcome(case, CQR(longer, case.level, random_state=case.seed))


def _averaged(case: Case) -> Outcome:
    """Give CQR the mean of five base models."""
    mean = FoldMean(case.base.make(case.seed), case.fits, case.levels, case.seed)
    return _outcome(case, CQR(mean, case.level, random_state=case.seed))


#: The library's methods by name, in the order of the tables. "residual" is `ResidualQuantiles`.
METHODS: dict[str, Method] = {
    "Naive": _plain(Naive),
    "QR": _plain(QR),
    "CQR": _plain(CQR),
    "CQR-r": _plain(CQR, conformity="cqr-r"),
    "CQR-m": _plain(CQR, conformity="cqr-m"),
    "ICQR printed": _plain(ICQR.as_printed),
    "ICQR notebook": _notebook,
    "ICQR": _plain(ICQR),
    "ICQR, width bins": _width_bins,
    "ICQR, score bins": _plain(ICQR, partition=ScorePartition()),
    "ICQR, auto": _plain(ICQR, partition="auto"),
    "CQR, residual": _residual(CQR),
    "ICQR, residual, auto": _residual(ICQR, partition="auto"),
    MORE: _more,
    AVERAGED: _averaged,
}
