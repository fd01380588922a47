"""Other packages' methods on the same fitted quantile model.

A peer never sees the features: its "rows" are the three quantiles that the fitted model predicts, and its "models" give
one of them. So every peer, whatever input it takes, works with the same predictions. A package that is not installed
leaves a gap that the tables state.

conformal-tights is not here: it takes neither a fitted quantile model nor calibration rows of one's own.
``benchmarks/against_conformal_tights.py`` runs it on the same splits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from icqr._tables import FloatArray
from icqr.calibration import conformal_rank, offset_level
from icqr.experiments.benchmark_methods import Case, Method, Outcome
from icqr.experiments.extras import need


class _Column(RegressorMixin, BaseEstimator):
    """A fitted model that predicts a column of its rows: 0 the lower bound, 1 the median, 2 the upper bound."""

    fitted_ = True  # what MAPIE looks for

    def __init__(self, column: int) -> None:
        self.column = column

    def fit(self, X: Any, y: Any) -> _Column:
        """Do nothing: it is fitted."""
        return self

    def predict(self, X: Any) -> FloatArray:
        """Give the column."""
        return np.asarray(X, dtype=np.float64)[:, self.column]


_LOWER, _MEDIAN, _UPPER = _Column(0), _Column(1), _Column(2)


def _widths(quantiles: FloatArray) -> FloatArray:
    """Give the raw bounds' widths; crepes divides by them."""
    width = quantiles[:, 2] - quantiles[:, 0]
    return np.asarray(np.maximum(width, 1e-3 * np.median(width)))


def promised(sizes: Sequence[int], level: float, symmetric: bool = True) -> float:
    """Give the mean coverage that split conformal prediction promises in groups of so many calibration rows.

    Examples
    --------
    >>> round(promised([9, 4], 0.9), 3)  # 9 / 10 of nine rows; four are too few, and everything is covered
    0.931
    """
    ranks = [conformal_rank(n, offset_level(level, symmetric)) for n in sizes]
    shares = [rank / (n + 1) for rank, n in zip(ranks, sizes, strict=True)]
    return float(np.average(shares if symmetric else [2 * share - 1 for share in shares], weights=sizes))


def _outcome(case: Case, intervals: FloatArray, symmetric: bool = True) -> Outcome:
    """Give intervals with one offset, or one a side, for all rows."""
    return Outcome(intervals, promised([len(case.calibration)], case.level, symmetric))


def _mapie(symmetric: bool) -> Method:
    def run(case: Case) -> Outcome:
        model = need("mapie.regression", "benchmark").ConformalizedQuantileRegressor(
            [_LOWER, _UPPER, _MEDIAN], confidence_level=case.level, prefit=True
        )
        model.conformalize(case.quantiles(case.calibration.X), case.calibration.y)
        found = model.predict_interval(case.quantiles(case.test.X), symmetric_correction=symmetric)[1][:, :, 0]
        return _outcome(case, found, symmetric)

    return run


def _mapie_conditional(case: Case) -> Outcome:
    """Ask for coverage that holds under every shift of the rows that is linear in the raw bounds' width."""
    conditional = need("mapie.conditional_conformal_prediction", "benchmark")
    unit = float(np.std(case.train.y))  # its tolerances are absolute
    model = conditional.ConditionalSplitConformalRegressor(
        lambda rows: np.column_stack([np.ones(len(rows)), rows[:, 2] - rows[:, 0]]),
        _MEDIAN,
        confidence_level=case.level,
    )
    model.conformalize(case.quantiles(case.calibration.X) / unit, case.calibration.y / unit)
    return Outcome(model.predict_interval(case.quantiles(case.test.X) / unit)[1][:, :, 0] * unit)


def _crepes_normalized(case: Case) -> Outcome:
    """Take residuals of the median over the raw bounds' width."""
    known, new = case.quantiles(case.calibration.X), case.quantiles(case.test.X)
    model = need("crepes", "benchmark").ConformalRegressor()
    model.fit(case.calibration.y - known[:, 1], sigmas=_widths(known))
    return _outcome(case, model.predict_int(new[:, 1], sigmas=_widths(new), confidence=case.level))


def _crepes_mondrian(case: Case) -> Outcome:
    """Take residuals of the median, in ten bins of the raw bounds' width among the calibration rows."""
    known, new = case.quantiles(case.calibration.X), case.quantiles(case.test.X)
    binning = need("crepes.extras", "benchmark").binning
    bins, edges = binning(_widths(known), bins=10, seed=case.seed)
    model = need("crepes", "benchmark").ConformalRegressor().fit(case.calibration.y - known[:, 1], bins=bins)
    new_bins = binning(_widths(new), bins=edges, seed=case.seed)
    found = model.predict_int(new[:, 1], bins=new_bins, confidence=case.level)
    return Outcome(found, promised(np.bincount(bins).tolist(), case.level), n_groups=len(edges) - 1)


def _puncc(case: Case) -> Outcome:
    root = logging.getLogger()
    level = root.level
    prediction, regression = (need(f"deel.puncc.{name}", "benchmark") for name in ("api.prediction", "regression"))
    root.setLevel(level)  # its import makes every library's logger talk
    model = regression.CQR(prediction.DualPredictor([_LOWER, _UPPER], is_trained=[True, True]), train=False)
    model.fit(X_calib=case.quantiles(case.calibration.X), y_calib=case.calibration.y)
    _, lower, upper = model.predict(case.quantiles(case.test.X), alpha=1 - case.level)
    return _outcome(case, np.column_stack([lower, upper]))


#: Other packages' methods by name, in the order of the tables.
PEERS: dict[str, Method] = {
    "MAPIE symmetric": _mapie(symmetric=True),
    "MAPIE": _mapie(symmetric=False),
    "MAPIE conditional": _mapie_conditional,
    "crepes normalized": _crepes_normalized,
    "crepes Mondrian": _crepes_mondrian,
    "puncc CQR": _puncc,
}
