"""The methods of the benchmark, on one fitted quantile model, the same rows to calibrate with and the same to judge."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import train_test_split

from benchmarks.quality.grid import AVERAGED, MORE, Base, Settings
from benchmarks.quality.models import Fits, FoldMean, Shared
from icqr import CQR, ICQR, QR, AutoICQR, GroupPartition, Naive, QuantileModel, ScorePartition
from icqr._libraries import Encoder, find_quantile_library
from icqr.calibration import conformal_quantile, conformal_rank, quantile_levels
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

    @property
    def known(self) -> Rows:
        """The rows that train and those that calibrate, for methods that need no split."""
        X = [rows.X for rows in (self.train, self.calibration)]
        both = pd.concat(X) if isinstance(X[0], pd.DataFrame) else np.concatenate(X)
        return Rows(both, np.concatenate([self.train.y, self.calibration.y]))

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
        Mean coverage that is promised; by default the requested one. NaN: nothing is.
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
        return Outcome(method.fit(*case.train).predict_interval(case.test.X), promised=np.nan)
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


def _auto(effort: str) -> Method:
    """Run `AutoICQR` on the unfitted base model: its bounds are its own, from the same training rows."""
    return lambda case: fit_and_predict(
        case, AutoICQR(case.base.make(case.seed), case.level, effort=effort, random_state=case.seed)
    )


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


#: The library's methods by name, in the order of the tables.
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
    "AutoICQR": _auto("quick"),
    "AutoICQR, thorough": _auto("thorough"),
    MORE: _more,
    AVERAGED: _averaged,
}


# -- Other packages --------------------------------------------------------------------------------------------------
#
# Most peers never see the features: their "rows" are the three quantiles that the fitted model predicts, and their
# "models" give one of them. So every such peer, whatever input it takes, works with the same predictions. Peers that
# cross-fit get the base model unfitted, and all rows but the test rows. A package that is not installed leaves a gap
# that the tables state. conformal-tights takes neither a fitted quantile model nor calibration rows of one's own:
# `benchmarks.against_conformal_tights` runs it on the same splits.


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


#: New rows that CV+ predicts at once. It makes a table of known rows × new rows, which for the larger sets would take
#: many gigabytes; no interval depends on other new rows. In blocks, 13,500 new rows with 40,000 known ones take 16 s
#: and 1 GB (LightGBM, 300 trees, ten columns).
BLOCK = 500


def _mapie_cross(case: Case, kind: str, **parameters: Any) -> Outcome:
    """Run CV+ in five folds on all rows but the test rows."""
    from mapie import regression  # type: ignore[import-untyped]

    estimator, known = case.base.make(case.seed).set_params(**parameters), case.known
    encoder = Encoder(estimator, known.X)  # MAPIE hands rows to the model as they come
    model = getattr(regression, kind)(estimator, confidence_level=case.level, cv=5, random_state=case.seed)
    model.fit_conformalize(encoder.encode(known.X), known.y)
    new = encoder.encode(case.test.X)
    parts = [model.predict_interval(new[i : i + BLOCK])[1][:, :, 0] for i in range(0, len(new), BLOCK)]
    # For CV+ MAPIE's documentation states a coverage of 1 - 2 alpha at least, and about 1 - alpha in practice.
    return Outcome(np.concatenate(parts), promised=2 * case.level - 1)


def _mapie_cross_quantiles(case: Case) -> Outcome:
    """Run CV+ on quantiles. MAPIE sets the levels itself, but wants a model that has quantile loss already."""
    settings = find_quantile_library(case.base.make(case.seed)).levels
    assert settings is not None
    return _mapie_cross(case, "CrossConformalizedQuantileRegressor", **settings((0.5,)))


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
    "MAPIE CV+": lambda case: _mapie_cross(case, "CrossConformalRegressor"),
    "MAPIE cross CQR": _mapie_cross_quantiles,
    "crepes normalized": _crepes_normalized,
    "crepes Mondrian": _crepes_mondrian,
    "puncc CQR": _puncc,
}


# -- On request ------------------------------------------------------------------------------------------------------

#: Seconds that AutoGluon gets for each fit, on one processor.
BUDGET = 60


def _autogluon(case: Case, known: Rows, *others: Any) -> list[Array]:
    """Fit AutoGluon in quantile mode, and return its quantiles of the other rows."""
    from autogluon.tabular import TabularPredictor  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor("_y", "quantile", path=folder, verbosity=0, quantile_levels=list(case.levels))
        model.fit(known.X.assign(_y=known.y), time_limit=BUDGET, num_cpus=1)
        return [np.sort(model.predict(X), axis=1) for X in others]


def _autogluon_alone(case: Case) -> Outcome:
    """Let AutoGluon hold out rows and calibrate as it does by default, which is not at all with less than 1,000."""
    (new,) = _autogluon(case, case.known, case.test.X)
    return Outcome(new[:, [0, 2]], promised=np.nan)


def _autogluon_cqr(case: Case) -> Outcome:
    """Calibrate AutoGluon's quantiles by CQR."""
    known, new = _autogluon(case, case.train, case.calibration.X, case.test.X)
    y = case.calibration.y
    offset = conformal_quantile(np.maximum(known[:, 0] - y, y - known[:, 2]), case.level)
    return Outcome(new[:, [0, 2]] + [-offset, offset], promised([len(y)], case.level))


#: Methods that run only if they are asked for: their package wants other versions than the rest.
ON_REQUEST: dict[str, Method] = {"AutoGluon": _autogluon_alone, "AutoGluon, CQR": _autogluon_cqr}
