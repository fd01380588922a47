"""What all methods share: checks before fit, calibration (part 4 of Algorithm 3), and predicting (part 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _check_method_params, check_is_fitted, validate_data

from icqr._libraries import Encoder, core_of
from icqr._messages import warn
from icqr._notebook import promises, sentences, shown
from icqr._rows import Order, Rows, check_pair, check_target, check_weights, naming
from icqr._tables import (
    FloatArray,
    IntArray,
    Table,
    align,
    as_table,
    blocks,
    settle_kinds,
    warn_about_text,
)
from icqr.calibration import (
    SMALL_GROUPS,
    Calibration,
    Certificate,
    bounds_from_quantiles,
    check_coverage,
    just_below,
    quantile_levels,
    rows_needed,
    too_few_rows,
)
from icqr.collapse import find_collapse
from icqr.conformity import CONFORMITIES, SIDES, SMALLEST, TIES, Conformity, SignedScores, width_floor
from icqr.cross import CrossCalibration, FoldModels, models_of
from icqr.distribution import PredictiveDistribution
from icqr.metrics import interval_score, pinball_loss
from icqr.novelty import GroupShift, Novelty, group_shift
from icqr.quantiles import PointModel, QuantileModel, bare, fit_quantiles, is_prefit
from icqr.residual_quantiles import ResidualQuantiles

_TEXT = pd.Series(["text"]).dtype  # depends on the version of pandas
#: The columns that `explain` returns, and their types.
EXPLAINED = {
    "group": np.int64,
    "n": np.int64,
    "rank": np.int64,
    "offset_lower": np.float64,
    "offset_upper": np.float64,
    "promised": np.float64,
    "guarantee": _TEXT,
    "novelty": np.float64,
    "lower": np.float64,
    "median": np.float64,
    "upper": np.float64,
    "crossed": np.bool_,
    "collapsed": np.bool_,
    "band_lower": np.float64,
    "band_upper": np.float64,
}
GROUPWISE = "group-wise"
MARGINAL = "marginal"
APPROXIMATE = "approximate (groups learned from calibration rows)"
NOT_CALIBRATED = "none (not calibrated)"
#: Below this many rows, cross-calibration is the default of `AutoICQR`. It fits ten models, and asks all of them for
#: each prediction: with 300 rows, one row took 29 ms, and `CQR` 2.4 ms.
FEW_ROWS = 1000

Coverages = float | Sequence[float] | FloatArray | None


class Seeds(NamedTuple):
    """Seeds drawn once, so that changing one step does not change another's randomness."""

    split: int
    model: int
    importance: int
    partition: int
    ties: int


class Prepared(NamedTuple):
    """What `fit` starts from: checked and split rows, fit parameters for the training rows, and seeds."""

    train: Rows
    calibration: Rows
    fit_params: dict[str, Any]
    seeds: Seeds
    crosses: bool  # all rows train and calibrate, by cross-calibration


class IntervalRegressor(RegressorMixin, BaseEstimator):
    """What all methods share: they predict, explain, say what they promise, and can be calibrated again."""

    # Values for methods, and for models in older files, that don't have these parameters. Where a method has one,
    # `__init__` overrides it.
    conformity = "cqr"
    symmetric = True
    ties = "covered"
    small_groups = "error"
    calibration = "split"
    calibration_size: float = 1 / 3
    verbose = False
    _calibrations: tuple[str, ...] = ("split", "cross")  # what the parameter may be
    _takes_quantiles = True  # the estimator may predict quantiles instead of a mean

    estimator: Any
    coverage: float
    side: str
    y_min: float | None
    y_max: float | None
    random_state: Any
    n_jobs: int | None
    model_: PointModel | QuantileModel | FoldModels
    conformity_: Conformity
    columns_: pd.Index[Any] | None
    partition_: Any
    n_groups_: int
    n_crossed_: dict[str, int]
    collapse_: str | None = None  # what the warning of a collapse said
    ties_seed_: int
    described_: pd.DataFrame | Callable[[], pd.DataFrame]
    calibration_: Calibration

    # -- Predicting --------------------------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the median (`Naive`: the regressor's own prediction), clipped to y's limits if you set them."""
        return np.clip(self.predict_quantiles(X)[:, 1], self.conformity_.y_min, self.conformity_.y_max)

    def predict_interval(self, X: ArrayLike, coverage: Coverages = None) -> FloatArray:
        """Predict intervals.

        Parameters
        ----------
        X : table
            Rows to predict.
        coverage : float or list of float, optional
            Any coverage works, because the calibration scores are kept. By default the model's own.

        Returns
        -------
        array of shape (n, 2), or (n, 2, number of coverages) for a list
            Lower and upper bounds, lower ≤ upper.

        Notes
        -----
        With ``ties="random"``, the k-th row of every table gets the k-th draw. So the same table always gets the same
        intervals, and intervals of a higher coverage contain those of a lower one. Predict many rows in one call: rows
        predicted one by one all get the first draw, and then it alone decides whether they contain what ties.

        An interval still contains its centre (see `explain`) and is never empty. Where y often equals the centre,
        coverage can stay above the promise: with one offset per side and with "cqr-m", where it equals the median.
        """
        coverages, X = self._coverages(coverage), self._check_table(X)

        # Part 5: find each row's group and the group's offset, and move the row's bounds by it.
        groups = self._groups_of(X)
        if isinstance(self.calibration_, CrossCalibration):
            each, _ = self._bounds_by_fold(X)
            intervals = np.stack([self.calibration_.intervals(each, groups, level) for level in coverages])
            return np.moveaxis(intervals, 0, 2) if is_list(coverage) else intervals[0]
        tables = [self.calibration_.offset_table(level, groups) for level in coverages]
        is_random = self.conformity_.ties == "random"
        is_open = [self._leave_ties_out(level, groups) for level in coverages] if is_random else []
        bounds, _ = self._bounds(X)
        intervals = np.empty((len(coverages), len(X), 2))
        for block in blocks(len(X)):  # small enough for the processor's cache
            for place, table in enumerate(tables):
                offsets = table[groups[block]]
                if is_random:
                    offsets = just_below(offsets, is_open[place][block])
                intervals[place, block] = self.conformity_.intervals(bounds[block], offsets)
        return np.moveaxis(intervals, 0, 2) if is_list(coverage) else intervals[0]

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the whole distribution of y in each row, calibrated in the row's group.

        Parameters
        ----------
        X : table
            Rows to predict.

        Returns
        -------
        PredictiveDistribution
            One object for all rows: `sf(limit)`, `cdf(y)`, `ppf(levels)`, `interval(coverage)`, `sample(n)` and more.

        Examples
        --------
        >>> from icqr import CQR
        >>> from icqr.datasets import make_heteroscedastic
        >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
        >>> CQR(random_state=0).fit(X, y).predict_distribution(X[:3]).sf(2.0).round(2)
        array([0.02, 0.37, 0.09])
        """
        check_is_calibrated(self)
        calibration, index = self.calibration_, X.index if isinstance(X, pd.DataFrame) else None
        if calibration.signed is None:
            raise ValueError(
                "this calibration has no signed scores, of which distributions are made: it comes from blocks, from "
                "scores of your own, or from an older file; call calibrate(X, y) with fresh rows, which keeps them"
            )
        X = self._check_table(X)
        groups = self._groups_of(X)
        small = calibration.check_small(self.coverage, groups)
        each = self._bounds_by_fold(X)[0] if isinstance(calibration, CrossCalibration) else self._bounds(X)[0][None]
        scores = calibration.signed.for_small(small, self.small_groups)
        return PredictiveDistribution(self.conformity_, scores, each, groups, index)

    def explain(self, X: ArrayLike, coverage: float | None = None) -> pd.DataFrame:
        """Explain for each row how its interval came about and what is promised.

        Parameters
        ----------
        X : table
            Rows to explain.
        coverage : float, optional
            By default the model's own.

        Returns
        -------
        DataFrame
            With X's index. `group`; `n`, its number of calibration rows; `rank`, that of the score that gave
            `offset_lower` and `offset_upper` (with ``ties="random"``, they are that score, or the next smaller number
            in rows whose interval leaves it out; after cross-calibration, they are how far the interval's ends are from
            the bounds of `predict_quantiles`); `promised`, the coverage (0 if nothing is promised), and the kind of
            `guarantee`; `novelty`, a p-value that is small for rows unlike their group's calibration rows (NaN unless
            groups are K-means clusters); `lower`, `median`, `upper`; `crossed`, the model's quantiles had to be sorted;
            `collapsed`, the bounds met at their centre; `band_lower` and `band_upper`, the 90 % band of the coverage
            that a calibration set of this size gives. The centre is the midpoint of the raw bounds (for "cqr-m" and one
            offset per side the median): if y is skewed, the median may lie outside an interval of low coverage.
        """
        (level,) = self._coverages(None if coverage is None else [coverage])
        index = X.index if isinstance(X, pd.DataFrame) else None
        X = self._check_table(X)

        # Make each row's interval as `predict_interval` does.
        groups = self._groups_of(X)
        if isinstance(self.calibration_, CrossCalibration):
            # There is no one offset: what is shown is how far the interval's ends are from the mean bounds.
            each, crossed = self._bounds_by_fold(X)
            bounds = each.mean(axis=0)
            lower, upper = self.calibration_.intervals(each, groups, level).T
            with np.errstate(invalid="ignore"):  # a missing bound is infinite
                offsets = np.column_stack([bounds[:, 0] - lower, upper - bounds[:, 2]])
            offsets[~np.isfinite(bounds[:, ::2])] = np.nan
            collapsed = lower == upper
        else:
            bounds, crossed = self._bounds(X)
            offsets = self.calibration_.offset_table(level, groups)[groups]
            if self.conformity_.ties == "random":
                offsets = just_below(offsets, self._leave_ties_out(level, groups))
            lower, upper = self.conformity_.intervals(bounds, offsets).T
            collapsed = self.conformity_.collapsed(bounds, offsets)
        columns: dict[str, Any] = {
            "lower": lower,
            "median": np.clip(bounds[:, 1], self.conformity_.y_min, self.conformity_.y_max),
            "upper": upper,
            "crossed": crossed,
            "collapsed": collapsed,
            "novelty": np.full(len(X), np.nan),
        }
        if self.calibration_.novelty is not None:
            columns["novelty"] = self.calibration_.novelty.p_values(self.partition_.distance(X), groups)
        # Each row gets its group's promise. Rows of no known group (-1) get the certificate's last row.
        promises = self.certificate(level).groups
        for name, values in promises.iloc[groups].items():
            columns[str(name)] = values.array
        # After cross-calibration, and with random ties, offsets are the row's own; NaN stays where there is no bound.
        if isinstance(self.calibration_, CrossCalibration):
            columns["offset_lower"], columns["offset_upper"] = offsets.T
        elif self.conformity_.ties == "random":
            for name, own in zip(("offset_lower", "offset_upper"), offsets.T, strict=True):
                columns[name] = np.where(promises[name].isna().iloc[groups], np.nan, own)
        return pd.DataFrame({name: columns[name] for name in EXPLAINED}, index=index)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the negative mean interval score (larger is better); for one side, the negative pinball loss."""
        intervals = self.predict_interval(X)
        target = check_target(y, len(intervals))
        side, coverage = self.conformity_.side, self.coverage
        if side == "both":
            return -interval_score(target, intervals, coverage=coverage, sample_weight=sample_weight)
        column, level = (0, 1 - coverage) if side == "lower" else (1, coverage)
        return -pinball_loss(target, intervals[:, [column]], [level], sample_weight=sample_weight)

    def certificate(self, coverage: float | None = None) -> Certificate:
        """Return what is promised at a coverage: for each group, and for all rows together."""
        (level,) = self._coverages(None if coverage is None else [coverage])
        return self.calibration_.certificate(level)

    @property
    def groups_(self) -> pd.DataFrame:
        """A row per group: size, share, offsets, what is promised, and what the group is in words."""
        table = self.certificate().groups.iloc[:-1]
        table.insert(2, "share", table["n"] / max(self.calibration_.sizes.sum(), 1))
        return pd.concat([table, self.descriptions_], axis=1)

    @property
    def categories_(self) -> pd.DataFrame:
        """A row per column of categories: how many the training rows have, how the estimator gets them, and why.

        No category is dropped. Where a column has more than the estimator takes, each becomes two numbers: the mean of
        the target, and the mean distance from it. Both are learned from training rows. The table is empty for an
        estimator that prepares the rows itself, such as a pipeline.

        Examples
        --------
        >>> from icqr import CQR
        >>> rng = np.random.default_rng(0)
        >>> shop = rng.integers(400, size=3000)
        >>> X = pd.DataFrame({"shop": shop.astype(str)})
        >>> table = CQR(random_state=0).fit(X, shop + rng.normal(size=3000)).categories_
        >>> table.loc[0, ["column", "encoding", "reason"]].tolist()
        ['shop', 'mean and spread of the target', 'more than the 255 that HistGradientBoostingRegressor takes']
        """
        rows: dict[Any, tuple[set[Any], str, str]] = {}
        for encoder in encoders_of(self):  # the models of several folds may each lack some categories
            for name, values in encoder.features.categories.items() if encoder.features is not None else ():
                categories, how, why = rows.get(name, (set(), "one-hot" if encoder.is_one_hot else "categories", ""))
                if name in encoder.means:
                    how, why = "mean and spread of the target", encoder.why_means
                rows[name] = categories.union(values), how, why
        table = [[name, len(categories), how, why] for name, (categories, how, why) in rows.items()]
        return pd.DataFrame(table, columns=["column", "categories", "encoding", "reason"])

    @property
    def descriptions_(self) -> pd.DataFrame:
        """What each group is, in words. The words are made when you first ask for them."""
        if callable(self.described_):
            self.described_ = self.described_()
        return self.described_

    def group_shift(self, X: ArrayLike) -> GroupShift:
        """Compare each group's share of the new rows with its share of the calibration rows."""
        groups = self.assign(X)
        return group_shift(self.calibration_.sizes, groups)

    # -- The three doors, and calibration through them ---------------------------------------------------------------

    def predict_quantiles(self, X: ArrayLike) -> FloatArray:
        """Return (n, 3) raw bounds, before calibration: lower, median, upper.

        With one `side`, the other bound is infinite. `Naive` returns its prediction in place of each quantile.
        """
        check_is_calibrated(self)
        return self._bounds(self._check_table(X))[0]

    def assign(self, X: ArrayLike) -> IntArray:
        """Return the group of each row; -1 for rows of no known group."""
        check_is_calibrated(self)
        return self._groups_of(self._check_table(X))

    def conformity_scores(self, X: ArrayLike, y: ArrayLike) -> tuple[IntArray, FloatArray]:
        """Return each labelled row's group and scores; scores are (n, 1), or (n, 2) with one offset per side.

        `Calibration.from_scores` makes a calibration of them, and `with_calibration` puts it in place.
        """
        check_is_calibrated(self)
        rows = self._check_rows(X, y)
        bounds, _ = self._bounds(rows.X)
        return self._groups_of(rows.X), self.conformity_.scores(bounds, rows.y)

    def with_calibration(self, calibration: Calibration) -> Self:
        """Replace the calibration by one made from fresh rows, and return the model itself, as `calibrate` does."""
        check_is_calibrated(self)
        self.calibration_ = replace(calibration, small_groups=self.small_groups, guarantee=self._fresh_guarantee)
        self.n_crossed_ = {where: n for where, n in self.n_crossed_.items() if where != "calibration"}  # unknown now
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate again, with fresh rows; the model, the groups and y's limits stay as they are.

        Parameters
        ----------
        X, y : table and array
            Rows that neither the model nor the groups were learned from.

        Returns
        -------
        self
        """
        check_is_calibrated(self)
        self._check_parameters()
        return self._calibrate(self._check_rows(X, y), self._fresh_guarantee)

    def _count_crossings_and_set_floor(self, train: Rows) -> FloatArray:
        """Count the training rows whose quantiles had to be sorted, and learn the floor of the scores' divisors.

        Return the rows' (n, 3) bounds. In cross-calibration these rows calibrate too, but the floor is so small that it
        counts only where bounds nearly meet.
        """
        bounds, crossed = self._bounds(train.X)
        self.n_crossed_["train"] = int(crossed.sum())
        # A fitted model may have no training rows at all. The floor must not be learned from calibration rows, so it is
        # then as small as can be.
        has_none = self.conformity == "cqr" and is_prefit(self.estimator)
        floor = SMALLEST if has_none else width_floor(self.conformity_.widths(bounds))
        self.conformity_ = replace(self.conformity_, floor=floor)
        return bounds

    def _notice_collapse(self, train: Rows, bounds: FloatArray, seed: int, params: Mapping[str, Any]) -> None:
        """Warn if the quantile model predicts the same for nearly all rows, and replace it if it is the default model.

        Training rows alone decide this, so the promise holds. In cross-calibration they calibrate too, and so the
        model is not replaced there.
        """
        collapse = self._collapse_of(train, bounds, seed)
        if collapse is None or isinstance(self.model_, PointModel):
            return
        advice = "Try AutoICQR, whose centre is learned by squared loss, or another quantile model."
        if isinstance(core_of(models_of(self.model_)[0].models_[0]).model, ResidualQuantiles):
            advice = "Give it more rows, columns that say more about y, or another estimator."
        elif self.estimator is None and isinstance(self.model_, QuantileModel):
            default, weights = self.model_, {name: params[name] for name in params if name == "sample_weight"}
            self.model_ = fit_quantiles(ResidualQuantiles(), train, default.levels_, seed, self.n_jobs, weights)
            if self._collapse_of(train, self._bounds(train.X)[0], seed) is None:
                self._count_crossings_and_set_floor(train)
                advice = (
                    "So ResidualQuantiles() takes the place of the default model: bounds in two stages, around a "
                    "centre learned by squared loss."
                )
            else:
                self.model_ = default
                advice = (
                    "ResidualQuantiles() collapses as well. Give more rows, columns that say more about y, or another "
                    "coverage."
                )
        self.collapse_ = f"{collapse} {advice}"
        warn(self.collapse_)

    def _collapse_of(self, train: Rows, bounds: FloatArray, seed: int) -> str | None:
        # With one side, the other bound is infinite, and the bound may be the median or on its other side.
        levels, asked = quantile_levels(self.coverage_, self.conformity_.side), np.isfinite(bounds).all(axis=0)
        quantiles = np.sort(bounds[:, asked], axis=1)[:, : len(levels)]
        return find_collapse(train.X, train.y, quantiles, levels, seed)

    def _calibrate(self, rows: Rows, guarantee: str) -> Self:
        """Score the calibration rows, and keep the scores of each group (part 4 of Algorithm 3)."""
        self._check_enough(rows)
        groups, (bounds, crossed) = self._groups_of(rows.X), self._bounds(rows.X)
        scores = self.conformity_.scores(bounds, rows.y)
        novelty = None
        if hasattr(self.partition_, "distance"):
            novelty = Novelty.of(self.partition_.distance(rows.X), groups, self.n_groups_)
        calibration = Calibration.from_scores(
            self.conformity_,
            scores,
            groups,
            self.n_groups_,
            self.small_groups,
            guarantee,
            novelty,
            SignedScores.of(self.conformity_.signed_scores(bounds, rows.y), groups, self.n_groups_),
        )
        calibration.offset_table(self.coverage, np.arange(self.n_groups_))  # warn or raise now if groups are too small
        self.n_crossed_ = {**self.n_crossed_, "calibration": int(crossed.sum())}
        self.calibration_ = calibration
        return self

    def _calibrate_across(self, rows: Rows, guarantee: str) -> Self:
        """Score each row by the model that has not seen it, and keep the scores of each group with their folds."""
        assert isinstance(self.model_, FoldModels)
        bounds = bounds_from_quantiles(self.model_.out_of_fold_, self.coverage_, self.conformity_.side)
        groups, scores = self._groups_of(rows.X), self.conformity_.scores(bounds, rows.y)
        novelty = None
        if hasattr(self.partition_, "distance"):
            novelty = Novelty.of(self.partition_.distance(rows.X), groups, self.n_groups_)
        self.calibration_ = CrossCalibration.of(
            self.conformity_,
            scores,
            groups,
            self.model_.fold_of_,
            self.n_groups_,
            self.small_groups,
            guarantee,
            novelty,
            SignedScores.of(
                self.conformity_.signed_scores(bounds, rows.y), groups, self.n_groups_, self.model_.fold_of_
            ),
        )
        self.calibration_.check_small(self.coverage, np.arange(self.n_groups_))
        return self

    @property
    def _fresh_guarantee(self) -> str:
        """What is promised after calibration with fresh rows, from which nothing was learned."""
        return GROUPWISE if hasattr(self, "partition") else MARGINAL

    # -- Steps of predicting -----------------------------------------------------------------------------------------

    def _bounds(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return (n, 3) lower, median and upper bounds, and which rows' quantiles had to be sorted."""
        side = self.conformity_.side
        if not isinstance(self.model_, PointModel):
            quantiles, crossed = self.model_.predict_sorted(X)
        else:
            # Naive: lower = median = upper = f(x), so that max(lower - y, y - upper) is |y - f(x)|.
            point = self.model_.predict(X)
            quantiles = np.repeat(point[:, None], len(quantile_levels(self.coverage_, side)), axis=1)
            crossed = np.zeros(len(point), dtype=np.bool_)
        return bounds_from_quantiles(quantiles, self.coverage_, side), crossed

    def _bounds_by_fold(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return (folds, n, 3) bounds, by the model of each fold, and which rows' quantiles had to be sorted."""
        assert isinstance(self.model_, FoldModels)
        each, crossed = self.model_.predict_each(X)
        side = self.conformity_.side
        return np.stack([bounds_from_quantiles(quantiles, self.coverage_, side) for quantiles in each]), crossed

    def _groups_of(self, X: Table) -> IntArray:
        """Return each row's group; a label that fit did not know becomes -1."""
        labels = check_labels(self.partition_.assign(X), len(X))
        return np.where(labels < self.n_groups_, labels, -1)

    def _leave_ties_out(self, coverage: float, groups: IntArray) -> NDArray[np.bool_]:
        """Return (n, 2): which rows' lower and upper offsets are to lie just below the score that they tie with."""
        # One draw per row for all coverages, so that intervals nest; with one offset per side, one for each side.
        n_draws = 1 if self.conformity_.symmetric else 2
        draws = np.random.default_rng(self.ties_seed_).uniform(size=(len(groups), n_draws))
        return np.asarray(draws >= self.calibration_.closed_shares(coverage)[groups])

    # -- What fit begins with ----------------------------------------------------------------------------------------

    def _prepare(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_calibration: ArrayLike | None,
        y_calibration: ArrayLike | None,
        fit_params: dict[str, Any],
        calibration: str | None = None,
        order: Order | None = None,
    ) -> Prepared:
        """Check every parameter and row before any work starts, and split the rows.

        `calibration` is the method's parameter of this name: "split", "cross", or "auto", which is "cross" below
        `FEW_ROWS` rows where that can be, and else "split". Or it is "all", if the model needs no training rows, so
        that all rows calibrate; or "none". With `order`, the oldest rows train and the newest calibrate.
        """
        self._check_parameters()
        if getattr(X, "ndim", None) == 1 and getattr(y, "ndim", None) == 2:
            raise ValueError(
                f"X and y look swapped: X has the shape {np.shape(X)} and y {np.shape(y)}; write fit(X, y), with a "
                "table X and one number per row in y"
            )
        self._forget()
        seeds = Seeds(*check_random_state(self.random_state).randint(2**31 - 1, size=len(Seeds._fields)).tolist())
        if self.ties == "random":
            self.ties_seed_ = seeds.ties  # kept, so that one fitted model always gives the same intervals

        rows = self._check_rows(X, y, reset=True)
        warn_about_text(rows.X)
        # Decide the kinds of columns before the split, on all rows. Models that prepare rows decide for themselves.
        core = core_of(bare(self.estimator))
        if getattr(core.model, "is_cross_fitted", False):
            core = core_of(bare(core.model.estimator))
        if core.prepares_rows:
            rows = replace(rows, X=settle_kinds(rows.X))

        check_pair(X_calibration, y_calibration)
        how = self._how_to_calibrate(calibration or self.calibration, len(rows), X_calibration, order)
        train = scored = rows
        if X_calibration is not None:
            with naming("calibration rows"):
                scored = self._check_rows(X_calibration, y_calibration)
            _warn_of_known_rows(train, scored)
        elif how == "split":
            size = self.calibration_size
            train, scored = rows.split(size, seeds.split) if order is None else rows.split_in_order(size, order)
        if how != "none":
            self._check_enough(scored)

        # Find bad values now (text among numbers, infinity), not after the model is fitted. Rows are still in the order
        # in which they came, so that an error names the right one.
        encoder = Encoder(bare(self.estimator), rows.X)
        if X_calibration is not None:
            with naming("calibration rows"):
                encoder.encode(scored.X)
        params = self._route(fit_params, len(rows))
        self.n_train_ = 0 if is_prefit(self.estimator) else len(train)
        params = _check_method_params(rows.X, params, indices=train.index)
        return Prepared(train, scored, params, seeds, crosses=how == "cross")

    def _forget(self) -> None:
        """Forget what an earlier fit learned, and note what a fitted model keeps of its parameters."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        # The bounds stay those of the fitted coverage. A later `set_params(coverage=…)` only asks for another coverage
        # of the same bounds, as `predict_interval(X, coverage=…)` does.
        self.coverage_ = self.coverage
        self.conformity_ = Conformity(
            self.conformity,
            self.symmetric,
            self.side,
            y_min=-math.inf if self.y_min is None else self.y_min,
            y_max=math.inf if self.y_max is None else self.y_max,
            ties=self.ties,
        )
        self.n_crossed_ = {}

    def _how_to_calibrate(self, how: str, n_rows: int, X_calibration: object, order: object) -> str:
        """Return "split", "cross", "all" or "none", see `_prepare`, or raise if what was asked for can't be."""
        if order is not None and X_calibration is not None:
            raise ValueError(
                "order says which rows of X calibrate, but X_calibration is given, whose rows do; give one of them"
            )
        if order is not None and how == "all":
            raise ValueError(
                "order says which rows train and which calibrate, but the estimator is fitted already, so that all "
                "rows calibrate; leave order out, and give fit the newest rows alone"
            )
        why_not_cross = self._why_not_cross(X_calibration, order)
        if how == "cross" and why_not_cross is not None:
            raise ValueError(why_not_cross)
        if how == "auto":
            return "cross" if why_not_cross is None and n_rows < FEW_ROWS else "split"
        return how

    def _check_parameters(self) -> None:
        check_coverage(self.coverage)
        for name, allowed in (
            ("conformity", CONFORMITIES),
            ("symmetric", (True, False)),
            ("side", SIDES),
            ("ties", TIES),
            ("small_groups", SMALL_GROUPS),
            ("calibration", self._calibrations),
            ("verbose", (True, False)),
        ):
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {listed}, got {getattr(self, name)!r}")
        if not self.symmetric and self.side != "both":
            raise ValueError(f"symmetric=False needs two bounds, but side={self.side!r} has one; use symmetric=True")
        limits = (-math.inf if self.y_min is None else self.y_min, math.inf if self.y_max is None else self.y_max)
        if not all(isinstance(limit, Real) for limit in limits) or not limits[0] < limits[1]:
            raise ValueError(
                "y_min and y_max must be numbers or None, y_min the smaller, "
                f"got y_min={self.y_min!r} and y_max={self.y_max!r}"
            )
        inner = bare(self.estimator)
        if isinstance(inner, type):
            raise ValueError(f"estimator must be an instance, got the class {inner.__name__}; pass {inner.__name__}()")
        if not (hasattr(inner, "predict") or (self._takes_quantiles and hasattr(inner, "predict_quantiles"))):
            raise ValueError(
                f"estimator must be a regressor, for example HistGradientBoostingRegressor(), got {inner!r}"
            )

    def _why_not_cross(self, X_calibration: object, order: object) -> str | None:
        """Return why the rows can't be cross-calibrated; None if they can."""
        if order is not None:
            return (
                "order lets the newest rows calibrate, but calibration='cross' calibrates with all rows; use "
                "calibration='split', or leave order out"
            )
        if X_calibration is not None:
            return (
                "calibration='cross' calibrates with the training rows, but X_calibration is given; leave it out, or "
                "use calibration='split'"
            )
        if self.ties == "random":
            return (
                "ties='random' makes coverage exact, but calibration='cross' promises only a lower bound; use "
                "calibration='split', or ties='covered'"
            )
        if is_prefit(self.estimator):
            return (
                "calibration='cross' fits the estimator on folds, and can't with one that is fitted already; give it "
                "unfitted, or use calibration='split'"
            )
        return None

    def _check_table(self, X: ArrayLike, reset: bool = False) -> Table:
        """Return a table as `as_table` does; of new rows the training rows' columns, in their order."""
        table = as_table(X)
        if not reset:
            if self.columns_ is not None and isinstance(table, pd.DataFrame):
                columns: pd.Index[Any] = table.columns
                if columns.equals(self.columns_):
                    return table
                # scikit-learn's own check would refuse columns in another order, and others beside them.
                if not isinstance(columns, pd.RangeIndex):  # which has no names
                    return align(table, self.columns_)
            if self.columns_ is None and isinstance(table, np.ndarray) and table.shape[1] == self.n_features_in_:
                return table
        validate_data(self, table, reset=reset, skip_check_array=True)
        if reset:
            self.columns_ = table.columns if isinstance(table, pd.DataFrame) else None
        return align(table, self.columns_)

    def _check_rows(self, X: ArrayLike, y: ArrayLike | None, reset: bool = False) -> Rows:
        X = self._check_table(X, reset)
        target = check_target(y, len(X), (self.conformity_.y_min, self.conformity_.y_max))
        return Rows(X, target, np.arange(len(X)))

    def _check_enough(self, calibration: Rows) -> None:
        if len(calibration) < rows_needed(self.coverage, self.symmetric):
            raise ValueError(too_few_rows(len(calibration), self.coverage, self.symmetric))

    def _coverages(self, coverage: Coverages) -> list[float]:
        """Check and return the requested coverages, as a list; by default the model's own."""
        check_is_calibrated(self)
        coverages: list[Any] = (
            [self.coverage] if coverage is None else list(np.atleast_1d(np.asarray(coverage, object)))
        )
        if not coverages:
            raise ValueError(
                "coverage must be a number or a list of numbers, got an empty list; pass 0.9 or [0.8, 0.9]"
            )
        for level in coverages:
            check_coverage(level)
        return coverages

    # -- In a notebook -----------------------------------------------------------------------------------------------

    @property
    def _repr_html_(self) -> Any:
        diagram = super()._repr_html_  # there is none after sklearn.set_config(display="text")
        return self._html if hasattr(self, "calibration_") else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return (
            {**bundle, "text/html": self._html()} if "text/html" in bundle and hasattr(self, "calibration_") else bundle
        )

    def _html(self) -> str:
        """Return what a fitted model promises, its groups, and a picture of them."""
        n_calibration = self.calibration_.sizes.sum()
        rows = f"{self.n_train_:,} rows to train on" + f", {n_calibration:,} to calibrate with" * bool(n_calibration)
        head = f"<p><code>{escape(repr(self))}</code><br>{rows}, {self.n_features_in_:,} columns.</p>"
        try:
            certificate = self.certificate()
        except ValueError as error:  # `set_params` asked for a coverage that this calibration can't give
            return shown(head, sentences([str(error)]))
        rules = self.descriptions_["rule"]
        return shown(head, promises(str(certificate), certificate.groups, certificate.coverage, rules))

    # -- scikit-learn ------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibration_")  # calibration is the last step of fit

    def __getstate__(self) -> Any:
        if hasattr(self, "described_"):
            self.descriptions_  # noqa: B018 - put groups into words now, so that a copy does not carry their rows
        return super().__getstate__()

    def _route(self, fit_params: dict[str, Any], n_rows: int) -> dict[str, Any]:
        """Check the fit parameters, and return those that go to the estimator."""
        check_weights(fit_params, n_rows)
        params = {name: value for name, value in fit_params.items() if value is not None}
        if params and get_config()["enable_metadata_routing"] and hasattr(bare(self.estimator), "get_metadata_routing"):
            return dict(process_routing(self, "fit", **params).estimator.fit)
        return params

    def get_metadata_routing(self) -> MetadataRouter:
        """Route fit parameters to the estimator."""
        router = MetadataRouter(owner=self).add_self_request(self)
        inner = bare(self.estimator)
        if hasattr(inner, "get_metadata_routing"):
            router.add(estimator=inner, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = bare(self.estimator)
        if hasattr(inner, "__sklearn_tags__") and not isinstance(inner, type):
            tags.input_tags.allow_nan = get_tags(inner).input_tags.allow_nan
            tags.non_deterministic = get_tags(inner).non_deterministic
        tags.input_tags.categorical = True
        tags.regressor_tags.poor_score = True  # `score` is not R²
        return tags


def check_is_calibrated(model: IntervalRegressor) -> None:
    """Raise scikit-learn's NotFittedError unless the model is fitted and calibrated."""
    if not hasattr(model, "calibration_"):  # quicker than scikit-learn's check, which reads the model's tags first
        check_is_fitted(model)


def encoders_of(model: IntervalRegressor) -> list[Encoder]:
    """Return how rows are encoded for the model's estimator: once, or after cross-calibration for each fold."""
    encoders = []
    for part in models_of(model.model_):
        fitted = getattr(part, "models_", [part])[0]
        if isinstance(fitted, TransformedTargetRegressor):
            fitted = getattr(fitted, "regressor_", None)
        encoders.append((fitted.residuals_ if isinstance(fitted, ResidualQuantiles) else part).encoder_)
    return encoders


def check_labels(assigned: Any, n_rows: int) -> IntArray:
    """Check a partition's labels and return them as whole numbers."""
    labels: NDArray[Any] = np.asarray(assigned)
    if labels.shape != (n_rows,) or labels.dtype.kind not in "iu" or labels.min(initial=0) < -1:
        raise ValueError(
            f"a partition's assign must give {n_rows} whole numbers, 0 or more (-1: no known group), "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    return np.asarray(labels, dtype=np.intp)


def is_list(coverage: Any) -> bool:
    """Return whether `coverage` is a list rather than a number."""
    return np.ndim(coverage) > 0


def interval_names(coverage: Any) -> list[str]:
    """Return the names of a table's interval columns, for one coverage or several.

    Examples
    --------
    >>> interval_names(0.9), interval_names([0.8, 0.95])
    (['lower', 'upper'], ['lower_0.8', 'upper_0.8', 'lower_0.95', 'upper_0.95'])
    """
    if not is_list(coverage):
        return ["lower", "upper"]
    return [f"{end}_{float(level):g}" for level in coverage for end in ("lower", "upper")]


def interval_columns(intervals: FloatArray) -> FloatArray:
    """Reshape (n, 2) or (n, 2, levels) intervals to (n, columns), in the order of `interval_names`."""
    return intervals if intervals.ndim == 2 else np.swapaxes(intervals, 1, 2).reshape(len(intervals), -1)


def _warn_of_known_rows(train: Rows, calibration: Rows) -> None:
    """Warn if the calibration rows are the training rows: scores of rows that the model knows are too small."""
    if len(calibration) <= 1 or not np.array_equal(train.y, calibration.y):
        return
    if isinstance(train.X, pd.DataFrame) and isinstance(calibration.X, pd.DataFrame):
        same = train.X.reset_index(drop=True).equals(calibration.X.reset_index(drop=True))
    else:
        same = np.array_equal(np.asarray(train.X), np.asarray(calibration.X), equal_nan=True)
    if same:
        warn(
            "the calibration rows are the training rows, so that intervals will be too narrow and nothing is promised; "
            "give X_calibration rows that the model has not seen, or leave them out: fit then sets some aside"
        )
