"""Calibration on all rows: each row is scored by a model that has not seen it (CV+, Barber et al. 2021).

Setting rows aside is simple, and exact in every group, but with few rows it hurts twice: the model learns from fewer,
and the offset is a guess from fewer. Here the rows are cut into folds, a model is fitted without each fold, and scores
that fold. A new row's interval takes its bounds from the model of each fold, widened by each score of that fold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from icqr._tables import FloatArray, IntArray, Table
from icqr.calibration import Calibration, Certificate, conformal_rank, offset_level
from icqr.conformity import Conformity, SignedScores
from icqr.novelty import Novelty
from icqr.quantiles import PointModel, QuantileModel, cross_fit

#: Cross-calibration cuts the rows into this many folds.
FOLDS = 10
#: What cross-calibration promises: where groups were not learned from the same rows, and where they were.
CROSS = "cross-validated (CV+)"
CROSS_APPROXIMATE = "approximate (CV+, groups learned from the same rows)"
#: A block of rows and scores holds at most about this many pairs: few enough for the processor's cache.
MOST_PAIRS = 2**14


class FoldModels(BaseEstimator):
    """Quantile models, each fitted without one fold of the rows.

    Parameters
    ----------
    model : QuantileModel
        The model to fit on each part of the rows.
    n_folds : int, default=10
        Number of folds.

    Attributes
    ----------
    models_ : list of QuantileModel
        The fitted models.
    fold_of_ : array
        The fold of each training row, which is the place of the model that has not seen it.
    out_of_fold_ : array of shape (n, levels)
        Each training row's quantiles, by the model that has not seen it.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> folds = FoldModels(QuantileModel(), n_folds=5).fit(X, X.ravel(), (0.05, 0.5, 0.95), seed=0)
    >>> folds.out_of_fold_.shape, folds.predict_each(X[:3])[0].shape
    ((100, 3), (5, 3, 3))
    """

    def __init__(self, model: QuantileModel, n_folds: int = FOLDS) -> None:
        self.model = model
        self.n_folds = n_folds

    def fit(
        self,
        X: Table,
        y: FloatArray,
        levels: tuple[float, ...],
        seed: int,
        fit_params: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Fit a model without each fold."""
        self.models_, self.out_of_fold_, folds = cross_fit(
            self.model, X, y, levels, seed, fit_params, n_jobs, n_folds=self.n_folds
        )
        self.levels_ = self.models_[0].levels_
        self.fold_of_ = np.empty(len(y), dtype=np.intp)
        for place, fold in enumerate(folds):
            self.fold_of_[fold] = place
        return self

    def predict_each(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return (folds, n, levels) quantiles, sorted in each row, and in which rows a model's had to be sorted."""
        quantiles, crossed = zip(*(model.predict_sorted(X) for model in self.models_), strict=True)
        return np.stack(quantiles), np.any(crossed, axis=0)

    def predict_sorted(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the mean of the folds' quantiles, and in which rows a model's had to be sorted."""
        each, crossed = self.predict_each(X)
        return np.asarray(each.mean(axis=0)), crossed

    def predict(self, X: Table) -> FloatArray:
        """Return the mean of the folds' quantiles."""
        return self.predict_sorted(X)[0]


def models_of(model: PointModel | QuantileModel | FoldModels) -> list[Any]:
    """Return the models that a method's bounds come from: one, or after cross-calibration one for each fold."""
    return list(model.models_) if isinstance(model, FoldModels) else [model]


@dataclass(frozen=True, kw_only=True, repr=False)
class CrossCalibration(Calibration):
    """The scores of each group, and the fold of each score.

    The interval of a new row: each score widens the bounds that the model of its fold predicts for this row. The lower
    end is the k-th largest of these lower bounds, the upper end the k-th smallest of the upper ones, where k is the
    conformal rank. Coverage is at least ``1 - 2 (1 - coverage)`` less a little (`least_coverage`), and in practice
    about `coverage`. A group has no one offset, because a row's interval comes from the bounds of several models.

    Parameters
    ----------
    folds : tuple of arrays
        The fold of each score, in the shape of `scores`.

    Examples
    --------
    >>> calibration = CrossCalibration.of(
    ...     Conformity(), np.arange(20.0)[:, None], np.zeros(20, dtype=int), np.arange(20) % 2, n_groups=1
    ... )
    >>> each = np.tile([-1.0, 0.0, 1.0], (2, 1, 1))  # both folds' models predict the same for a new row
    >>> calibration.intervals(each, np.array([0]), coverage=0.9)
    array([[-19.,  19.]])
    """

    folds: tuple[IntArray, ...]

    @classmethod
    def of(
        cls,
        conformity: Conformity,
        scores: FloatArray,
        labels: IntArray,
        fold_of: IntArray,
        n_groups: int,
        small_groups: str = "error",
        guarantee: str = CROSS,
        novelty: Novelty | None = None,
        signed: SignedScores | None = None,
    ) -> CrossCalibration:
        """Sort (n, sides) scores by group, with their folds; the last group is that of rows of no known group."""
        places = np.where((labels >= 0) & (labels < n_groups), labels, n_groups)
        sorted_scores, folds = [], []
        for group in range(n_groups + 1):
            rows = np.flatnonzero(places == group)
            order = np.argsort(scores[rows], axis=0, kind="stable")
            sorted_scores.append(np.take_along_axis(scores[rows], order, axis=0))
            folds.append(fold_of[rows][order])
        return cls(conformity, tuple(sorted_scores), small_groups, guarantee, novelty, signed, folds=tuple(folds))

    def intervals(self, each: FloatArray, labels: IntArray, coverage: float | Fraction) -> FloatArray:
        """Return (n, 2) intervals from (folds, n, 3) bounds and the rows' groups."""
        small = self.check_small(coverage, labels)
        intervals = np.empty((each.shape[1], 2))
        for group in np.unique(labels).tolist():
            rows = np.flatnonzero(labels == group)
            own = self._ends(each[:, rows], self.scores[group], self.folds[group], None if small[group] else coverage)
            if small[group] and self.small_groups == "infinite":
                own = np.tile([-math.inf, math.inf], (len(rows), 1))
            elif small[group]:
                # No promise: the wider of what all rows' scores ask for and of the group's own widest.
                pooled = self._ends(each[:, rows], np.concatenate(self.scores), np.concatenate(self.folds), coverage)
                own = np.column_stack([np.minimum(own[:, 0], pooled[:, 0]), np.maximum(own[:, 1], pooled[:, 1])])
            intervals[rows] = own
        if self.conformity.side == "both":
            # In theory the two ends may pass each other; the mean of the folds' medians stays inside. With one side,
            # the other end is infinite, and a bound of low coverage belongs on the far side of the median.
            median = each[:, :, 1].mean(axis=0)
            intervals = np.column_stack([np.minimum(intervals[:, 0], median), np.maximum(intervals[:, 1], median)])
        return np.clip(intervals, self.conformity.y_min, self.conformity.y_max)

    def offset_table(self, coverage: float | Fraction, labels: IntArray) -> FloatArray:
        """Raise an error: there is no one offset for a group."""
        raise ValueError(
            "after cross-calibration a group has no one offset: each row's interval comes from the bounds of several "
            "models; use predict_interval or explain, or calibrate(X, y) with fresh rows, which gives offsets"
        )

    def _ends(
        self, each: FloatArray, scores: FloatArray, folds: IntArray, coverage: float | Fraction | None
    ) -> FloatArray:
        """Return the ends of rank k among those that each score gives; None: of the largest rank."""
        n_rows, n_scores = each.shape[1], len(scores)
        if n_scores == 0:
            return np.tile(np.array([math.inf, -math.inf]), (n_rows, 1))
        level = None if coverage is None else offset_level(coverage, self.conformity.symmetric)
        rank = n_scores if level is None else conformal_rank(n_scores, level)
        ends, step = np.empty((n_rows, 2)), max(1, MOST_PAIRS // n_scores)
        for start in range(0, n_rows, step):
            block = slice(start, min(start + step, n_rows))
            for end in range(2):
                side = end if scores.shape[1] == 2 else 0  # one offset per side: each end by its own scores
                if end == 0 or side == 1:
                    bounds = each[folds[:, side], block]  # (scores, rows, 3)
                    offsets = np.repeat(scores[:, [side, side]], bounds.shape[1], axis=0)
                    widened = self.conformity.intervals(bounds.reshape(-1, 3), offsets).reshape(*bounds.shape[:2], 2)
                outwards = -widened[:, :, 0] if end == 0 else widened[:, :, 1]
                chosen = np.partition(outwards, rank - 1, axis=0)[rank - 1]
                ends[block, end] = -chosen if end == 0 else chosen
        return ends

    def certificate(self, coverage: float | Fraction) -> Certificate:
        """Return what is promised at this coverage: the theorem's bound, in each group and for all rows together."""
        small, sizes, n_groups = self.too_small(coverage), self.sizes, len(self.sizes) - 1
        keeps_promise, share = self.small_groups == "infinite", sizes / sizes.sum()
        is_alone = int((sizes > 0).sum()) == 1  # one group has all rows
        bounds = np.array([self._least_coverage(folds, coverage, is_alone) for folds in self.folds])
        promised = np.where(small, float(keeps_promise), bounds)
        table = pd.DataFrame(
            {
                "group": [*range(n_groups), -1],
                "n": np.append(sizes[:-1], 0),
                "rank": self.ranks(coverage),
                "offset_lower": np.nan,
                "offset_upper": np.nan,
                "promised": promised,
                "guarantee": np.where(small, self.guarantee_of_small(coverage), self.guarantee),
                "band_lower": np.nan,
                "band_upper": np.nan,
            }
        )
        unpromised = 0.0 if keeps_promise else float(share[small].sum())
        return CrossCertificate(float(coverage), self.guarantee, table, unpromised, marginal=float(share @ promised))

    def _least_coverage(self, folds: IntArray, coverage: float | Fraction, is_alone: bool) -> float:
        """Return what is promised in a group whose scores are of these folds."""
        sizes = np.bincount(folds[:, 0])
        if self.conformity.symmetric:
            return least_coverage(sizes, coverage, is_alone)
        # Each bound may miss on its own.
        return max(2 * least_coverage(sizes, offset_level(coverage, symmetric=False), is_alone) - 1, 0.0)


class CrossCertificate(Certificate):
    """What cross-calibration promises at one coverage; see `Certificate`.

    `marginal` is the coverage that the theorem promises for all rows together, if groups stay as frequent. In practice
    it is about the coverage asked for.
    """

    def __str__(self) -> str:
        about = f"Coverage about {self.coverage:g} in practice, {self.guarantee}"
        if self.marginal == 0:
            return f"{about}; in theory nothing is promised."
        sentence = (
            f"{about}; at least {self.marginal:.1%} is promised, if new rows come from where these rows came from."
        )
        if self.unpromised == 0:
            return sentence
        return (
            f"{sentence} Nothing is promised in groups that are too small; {self.unpromised:.1%} of the rows are in "
            "one."
        )


def least_coverage(fold_sizes: IntArray, coverage: float | Fraction, is_alone: bool = True) -> float:
    """Return the coverage that CV+ promises with these numbers of rows in the folds (Barber et al. 2021, theorem 4).

    The theorem has two bounds. The first needs no folds of one size, and holds in a group as well: its proof averages
    the p-values of split conformal prediction with each fold. The second is better with few rows. It needs folds of one
    size and all rows in one group (`is_alone`).

    Examples
    --------
    >>> round(least_coverage(np.full(10, 10), 0.9), 3), round(least_coverage(np.full(10, 10), 0.9, is_alone=False), 3)
    (0.718, 0.636)
    """
    sizes = fold_sizes[fold_sizes > 0]
    n_folds, n = len(sizes), int(sizes.sum())
    if n == 0:
        return 0.0
    excess = 2 * (1 - 1 / n_folds) / (n / n_folds + 1)
    if is_alone and (sizes == sizes[0]).all():
        excess = min(excess, (1 - n_folds / n) / (n_folds + 1))
    return max(1 - 2 * (1 - float(coverage)) - excess, 0.0)
