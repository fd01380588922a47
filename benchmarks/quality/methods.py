"""The methods of the benchmark, on one fitted quantile model, the same rows to calibrate with and the same to judge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import train_test_split

from benchmarks.quality.grid import AVERAGED, MORE, Base, Settings
from benchmarks.quality.models import Fits, FoldMean, Shared, SharedResiduals
from icqr import CQR, ICQR, QR, GroupPartition, Naive, QuantileModel, ScorePartition
from icqr.calibration import conformal_rank, quantile_levels
from icqr.datasets import Synthetic
from paper import notebook
from paper.notebook import Array


class Rows(NamedTuple):
    """Features and target of some rows."""

    X: Any
    y: Array


def split(X: Any, y: Any, seed: int) -> tuple[Rows, Rows, Rows]:
    """Draw half of the rows to train on, a quarter to calibrate with and a quarter to judge by.

    Examples
    --------
    >>> [len(rows.y) for rows in split(np.zeros((506, 1)), np.zeros(506), seed=0)]
    [253, 126, 127]
    """
    y = np.asarray(y, dtype=float)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed)
    X_cal, X_test, y_cal, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=seed)
    return Rows(X_train, y_train), Rows(X_cal, y_cal), Rows(X_test, y_test)


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
        The requested coverage.
    seed : int
        Seed of everything random.
    settings : Settings
        Those of the benchmark.
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
        self.fits = Fits(len(self.train.y))

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the lower bound, the median and the upper bound."""
        return tuple(quantile_levels(self.level, "both"))

    def shared(self, model: Any = None) -> Shared:
        """Return a model for a method, by default the base model: fitted by the first method that asks."""
        return Shared(model or QuantileModel(self.base.make(self.seed)), self.fits, self.levels)

    def quantiles(self, X: Any) -> Array:
        """Return the (n, 3) quantiles by the fitted base model, sorted."""
        predicted: Array = self.shared().fit(*self.train).predict_quantiles(X)
        return predicted


class Outcome(NamedTuple):
    """The test rows' intervals, and what was promised.

    Parameters
    ----------
    intervals : array of shape (n, 2)
        Lower and upper bounds, as the method gave them.
    promised : float, optional
        Mean coverage that is promised; by default the requested one.
    unpromised : float
        Share of calibration rows in groups too small for a promise.
    n_groups : int
        Number of groups.
    """

    intervals: Array
    promised: float | None = None
    unpromised: float = 0.0
    n_groups: int = 1


Method = Callable[[Case], Outcome]


# -- Ours ------------------------------------------------------------------------------------------------------------


def fit_and_predict(case: Case, method: Any) -> Outcome:
    """Fit one of the library's methods and predict the test rows."""
    if isinstance(method, QR):
        return Outcome(method.fit(*case.train).predict_interval(case.test.X))
    method.fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)
    certificate = method.certificate()
    groups = certificate.groups[certificate.groups["n"] > 0]
    # A group without a promise gets the pooled offset, which is meant to give what was requested.
    promised = np.where(groups["promised"] > 0, groups["promised"], case.level)
    mean = float(np.average(promised, weights=groups["n"]))
    return Outcome(method.predict_interval(case.test.X), mean, certificate.unpromised, method.n_groups_)


def _plain(make: Callable[..., Any], **parameters: Any) -> Method:
    """Run a class on the shared base model."""
    return lambda case: fit_and_predict(case, make(case.shared(), case.level, random_state=case.seed, **parameters))


def _residual(make: Callable[..., Any], **parameters: Any) -> Method:
    """Run a class on residual quantiles of the base model."""

    def run(case: Case) -> Outcome:
        bounds = SharedResiduals(case.base.make(case.seed), case.fits, case.levels)
        return fit_and_predict(case, make(bounds, case.level, random_state=case.seed, **parameters))

    return run


def _width_bins(case: Case) -> Outcome:
    """Mondrian CQR: groups are ten bins (as in crepes) of the raw bounds' width, cut at quantiles of training rows."""

    def width(X: Any) -> Array:
        quantiles = case.quantiles(X)
        return np.asarray(quantiles[:, -1] - quantiles[:, 0])

    edges = np.unique(np.quantile(width(case.train.X), np.arange(1, 10) / 10))
    return _plain(ICQR, partition=GroupPartition(lambda X: np.searchsorted(edges, width(X))))(case)


def _notebook(case: Case) -> Outcome:
    """Take clusters and offsets as the authors' notebook does; quantiles are sorted, as for all methods here."""
    X, y = zip(case.train, case.calibration, case.test, strict=True)
    clusters = notebook.find_clusters(case.shared().fit(*case.train), X, y, case.seed)
    known, new = (case.quantiles(rows.X) for rows in (case.calibration, case.test))
    labels = clusters.calibration, clusters.validation
    return Outcome(notebook.icqr_bounds(known, case.calibration.y, new, case.level, *labels), n_groups=clusters.k)


def _more(case: Case) -> Outcome:
    """Give CQR's base model more trees (or epochs), the learning rate being what it was."""
    longer = case.shared(QuantileModel(case.base.with_more_effort().make(case.seed)))
    return fit_and_predict(case, CQR(longer, case.level, random_state=case.seed))


def _averaged(case: Case) -> Outcome:
    """Give CQR the mean of five base models."""
    mean = case.shared(FoldMean(case.base.make(case.seed), case.seed))
    return fit_and_predict(case, CQR(mean, case.level, random_state=case.seed))


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


# -- Other packages --------------------------------------------------------------------------------------------------
#
# A peer never sees the features: its "rows" are the three quantiles that the fitted model predicts, and its "models"
# give one of them. So every peer, whatever input it takes, works with the same predictions. A package that is not
# installed leaves a gap that the tables state. conformal-tights takes neither a fitted quantile model nor calibration
# rows of one's own: `benchmarks.against_conformal_tights` runs it on the same splits.


class Column(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted model that predicts a column of its rows: 0 the lower bound, 1 the median, 2 the upper bound."""

    fitted_ = True  # what MAPIE looks for

    def __init__(self, column: int) -> None:
        self.column = column

    def fit(self, X: Any, y: Any) -> Column:
        """Do nothing: it is fitted."""
        return self

    def predict(self, X: Any) -> Array:
        """Return the column."""
        return np.asarray(X, dtype=float)[:, self.column]


LOWER, MEDIAN, UPPER = Column(0), Column(1), Column(2)


def _widths(quantiles: Array) -> Array:
    """Return the raw bounds' widths, above 0: crepes divides by them."""
    width = quantiles[:, 2] - quantiles[:, 0]
    return np.asarray(np.maximum(width, 1e-3 * np.median(width)))


def promised(sizes: Sequence[int], level: float, symmetric: bool = True) -> float:
    """Return the mean coverage that split conformal prediction promises in groups of so many calibration rows.

    Examples
    --------
    >>> round(promised([9, 4], 0.9), 3)  # 9 / 10 of nine rows; four are too few, and everything is covered
    0.931
    """
    shares = [conformal_rank(n, level if symmetric else (1 + level) / 2) / (n + 1) for n in sizes]
    return float(np.average(shares if symmetric else [2 * share - 1 for share in shares], weights=sizes))


def _mapie(case: Case, symmetric: bool) -> Outcome:
    from mapie.regression import ConformalizedQuantileRegressor  # type: ignore[import-untyped]

    model = ConformalizedQuantileRegressor([LOWER, UPPER, MEDIAN], confidence_level=case.level, prefit=True)
    model.conformalize(case.quantiles(case.calibration.X), case.calibration.y)
    intervals = model.predict_interval(case.quantiles(case.test.X), symmetric_correction=symmetric)[1][:, :, 0]
    return Outcome(intervals, promised([len(case.calibration.y)], case.level, symmetric))


def _mapie_conditional(case: Case) -> Outcome:
    """Ask for coverage that holds under every shift of the rows that is linear in the raw bounds' width."""
    from mapie.conditional_conformal_prediction import (  # type: ignore[import-untyped]
        ConditionalSplitConformalRegressor,
    )

    unit = float(np.std(case.train.y))  # its tolerances are absolute
    model = ConditionalSplitConformalRegressor(
        lambda rows: np.column_stack([np.ones(len(rows)), rows[:, 2] - rows[:, 0]]), MEDIAN, confidence_level=case.level
    )
    model.conformalize(case.quantiles(case.calibration.X) / unit, case.calibration.y / unit)
    return Outcome(model.predict_interval(case.quantiles(case.test.X) / unit)[1][:, :, 0] * unit)


def _crepes_normalized(case: Case) -> Outcome:
    """Take residuals of the median over the raw bounds' width."""
    from crepes import ConformalRegressor  # type: ignore[import-untyped]

    known, new = case.quantiles(case.calibration.X), case.quantiles(case.test.X)
    model = ConformalRegressor().fit(case.calibration.y - known[:, 1], sigmas=_widths(known))
    intervals = model.predict_int(new[:, 1], sigmas=_widths(new), confidence=case.level)
    return Outcome(intervals, promised([len(case.calibration.y)], case.level))


def _crepes_mondrian(case: Case) -> Outcome:
    """Take residuals of the median, in ten bins of the raw bounds' width among the calibration rows."""
    from crepes import ConformalRegressor
    from crepes.extras import binning  # type: ignore[import-untyped]

    known, new = case.quantiles(case.calibration.X), case.quantiles(case.test.X)
    bins, edges = binning(_widths(known), bins=10, seed=case.seed)
    model = ConformalRegressor().fit(case.calibration.y - known[:, 1], bins=bins)
    new_bins = binning(_widths(new), bins=edges, seed=case.seed)
    intervals = model.predict_int(new[:, 1], bins=new_bins, confidence=case.level)
    return Outcome(intervals, promised(np.bincount(bins).tolist(), case.level), n_groups=len(edges) - 1)


def _puncc(case: Case) -> Outcome:
    root = logging.getLogger()
    level = root.level
    from deel.puncc import regression  # type: ignore[import-untyped]
    from deel.puncc.api.prediction import DualPredictor  # type: ignore[import-untyped]

    root.setLevel(level)  # its import makes every library's logger talk
    model = regression.CQR(DualPredictor([LOWER, UPPER], is_trained=[True, True]), train=False)
    model.fit(X_calib=case.quantiles(case.calibration.X), y_calib=case.calibration.y)
    _, lower, upper = model.predict(case.quantiles(case.test.X), alpha=1 - case.level)
    return Outcome(np.column_stack([lower, upper]), promised([len(case.calibration.y)], case.level))


#: Other packages' methods by name, in the order of the tables.
PEERS: dict[str, Method] = {
    "MAPIE symmetric": lambda case: _mapie(case, symmetric=True),
    "MAPIE": lambda case: _mapie(case, symmetric=False),
    "MAPIE conditional": _mapie_conditional,
    "crepes normalized": _crepes_normalized,
    "crepes Mondrian": _crepes_mondrian,
    "puncc CQR": _puncc,
}
