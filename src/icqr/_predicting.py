"""What the four methods share: check the rows, split them, calibrate, predict, explain."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _check_method_params, check_is_fitted, validate_data

from icqr._libraries import Encoder, core_of, prepares_rows
from icqr._rules import describe_groups
from icqr._tables import (
    FloatArray,
    IntArray,
    Table,
    align,
    as_table,
    blocks,
    settle_kinds,
    take_rows,
    warn_about_text,
)
from icqr.calibration import (
    CONFORMITIES,
    SIDES,
    SMALL_GROUPS,
    Calibration,
    Certificate,
    Conformity,
    bounds_from_quantiles,
    check_coverage,
    rows_needed,
    sort_by_group,
    too_few_rows,
)
from icqr.metrics import interval_score, pinball_loss
from icqr.novelty import GroupShift, Novelty, group_shift
from icqr.partition import WholePartition
from icqr.quantiles import ResidualQuantiles, bare, is_prefit
from icqr.rows import RowBlocks, Rows, check_target, check_weights, naming
from icqr.scored import Scored

_TEXT = pd.Series(["text"]).dtype  # as this pandas has it
#: What `explain` gives, and of which type.
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

Coverages = float | Sequence[float] | FloatArray | None


class Seeds(NamedTuple):
    """Seeds of split, model, importance, and all that groups are made by; drawn up front: no draw shifts another's."""

    split: int
    model: int
    importance: int
    partition: int


class IntervalRegressor(RegressorMixin, BaseEstimator):
    """What the four methods share: check, split, calibrate, predict."""

    # Settings that not every method has; where it is a parameter, `__init__` hides these.
    conformity = "cqr"
    symmetric = True
    small_groups = "error"
    calibration_size: float = 1 / 3
    # What an estimator must have, one of these.
    _asks: tuple[str, ...] = ("predict", "predict_quantiles")

    estimator: Any
    coverage: float
    side: str
    y_min: float | None
    y_max: float | None
    random_state: Any
    n_jobs: int | None
    model_: Any
    columns_: pd.Index[Any] | None
    partition_: Any
    n_groups_: int
    described_: pd.DataFrame | Callable[[], pd.DataFrame]
    calibration_: Calibration
    novelty_: Novelty | None

    def fit(self, X: Any, y: Any, X_calibration: Any = None, y_calibration: Any = None, **fit_params: Any) -> Self:
        """Fit the model, learn the groups and calibrate.

        Parameters
        ----------
        X, y : table and array
            Rows to train on. Unless calibration rows are given, `calibration_size` of these, drawn at random, are set
            aside for calibration. A random draw is right only if rows are exchangeable: with rows in time order give
            the latest ones as calibration rows; with several rows per customer or site give whole customers or sites.
        X_calibration, y_calibration : table and array, optional
            Calibration rows, which the model must not have seen.
        **fit_params : optional
            For the estimator's own fit: `sample_weight`, evaluation sets, callbacks. Arrays with a value per row are
            split with the rows; calibration never uses weights. Where scikit-learn's metadata routing is enabled, they
            go where they are requested.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._forget()
        # Bounds are those of the coverage and side that were fitted; `set_params(coverage=…)` later asks for another
        # coverage of them, as `predict_interval(X, coverage=…)` does.
        self.coverage_ = self.coverage
        self.conformity_ = Conformity(self.conformity, self.symmetric, self.side, 1.0, *self._y_limits())
        self.n_crossed_: dict[str, int] = {}
        given = self._check_rows(X, y, reset=True)
        rows = self._settled(given)
        seeds = Seeds(*check_random_state(self.random_state).randint(2**31 - 1, size=len(Seeds._fields)).tolist())
        train, held_out = self._split(rows, X_calibration, y_calibration, seeds.split)
        self._check_columns(rows, train, held_out)
        check_weights(fit_params, len(rows))
        params = _check_method_params(rows.X, self._routed(fit_params), indices=train.index)
        warn_about_text(given.X)
        self.n_train_ = 0 if is_prefit(self.estimator) else len(train)
        drawn = None
        if X_calibration is None and held_out is not rows and not isinstance(rows, RowBlocks):
            # Taken again when they are needed: a copy of theirs need not wait in memory while the model is fitted.
            drawn, held_out = held_out.index, rows
        self._fit_model(train, seeds.model, params)
        held_out = held_out if drawn is None else rows.take(drawn)
        self._fit_groups(train, held_out, seeds, params)
        return self._calibrate(held_out, self._guarantee())

    def calibrate(self, X: Any, y: Any) -> Self:
        """Replace the calibration by fresh rows; model, groups and y's limits stay as they are.

        Parameters
        ----------
        X, y : table and array
            Rows that neither the model nor the groups were learned from.

        Returns
        -------
        self
        """
        self._check_fitted()
        self._check_parameters()
        return self._calibrate(self._check_rows(X, y), self._fresh_guarantee())

    def predict(self, X: Any) -> FloatArray:
        """Predict the median (`Naive`: the regressor's own prediction), within y's limits if they are given."""
        self._check_fitted()
        X = self._check_table(X)
        return np.concatenate([self._clip(self._bounds(take_rows(X, block))[0][:, 1]) for block in blocks(len(X))])

    def predict_interval(self, X: Any, coverage: Coverages = None) -> FloatArray:
        """Predict intervals.

        Parameters
        ----------
        X : table
            Rows to predict.
        coverage : float or list of float, optional
            Any coverage: the calibration scores are kept. By default the estimator's own.

        Returns
        -------
        array of shape (n, 2), or (n, 2, number of coverages) for a list
            Lower and upper bounds, lower ≤ upper.
        """
        self._check_fitted()
        levels = self._levels(coverage)
        X = self._check_table(X)
        labels = self._assign(X)
        offsets = []
        for level in levels:  # a comprehension would be one more step away from the user's line, which warnings name
            offsets.append(self._offsets(labels, level))  # noqa: PERF401
        intervals = np.empty((len(levels), len(X), 2))
        for block in blocks(len(X)):
            bounds, _ = self._bounds(take_rows(X, block))
            for level, table in enumerate(offsets):
                intervals[level, block] = self.conformity_.intervals(bounds, table[labels[block]])
        return np.moveaxis(intervals, 0, 2) if is_list(coverage) else intervals[0]

    def predict_quantiles(self, X: Any) -> FloatArray:
        """Return (n, 3) raw bounds: lower, median, upper, as they are before calibration.

        A side that is not asked for is infinite; `Naive` has its prediction three times.
        """
        self._check_fitted()
        X = self._check_table(X)
        return np.concatenate([self._bounds(take_rows(X, block))[0] for block in blocks(len(X))])

    def assign(self, X: Any) -> IntArray:
        """Return the group of each row; -1 for rows of no known group."""
        self._check_fitted()
        return self._assign(self._check_table(X))

    def conformity_scores(self, X: Any, y: Any) -> tuple[IntArray, FloatArray]:
        """Return each labelled row's group, and its (n, 1) scores: (n, 2) with one offset per side.

        `Calibration.from_scores` makes a calibration of them, and `with_calibration` puts it in place.
        """
        self._check_fitted()
        rows = self._check_rows(X, y)
        parts = [self._score(take_rows(rows.X, block), rows.y[block])[0] for block in blocks(len(rows))]
        return self._assign(rows.X), np.concatenate(parts)

    def with_calibration(self, calibration: Calibration) -> Self:
        """Put a calibration made of fresh rows in place, and return the model itself, as `calibrate` does."""
        self._check_fitted()
        self.calibration_ = replace(calibration, small_groups=self.small_groups, guarantee=self._fresh_guarantee())
        self.novelty_ = calibration.novelty
        self.n_crossed_ = {where: n for where, n in self.n_crossed_.items() if where != "calibration"}  # not known
        return self

    def explain(self, X: Any, coverage: float | None = None) -> pd.DataFrame:
        """Say for each row how its interval came about and what is promised.

        Parameters
        ----------
        X : table
            Rows to explain.
        coverage : float, optional
            By default the estimator's own.

        Returns
        -------
        DataFrame
            With X's index. `group`; its calibration rows `n`; the `rank` of the score that gave `offset_lower` and
            `offset_upper`; the coverage that is `promised`, with the kind of `guarantee` (0 where there is none);
            `novelty`, a p-value that is small for rows unlike their group's calibration rows (of K-means clusters;
            other groups have no distances, and NaN); `lower`, `median`, `upper`; `crossed`, the model's quantiles had
            to be sorted; `collapsed`, the bounds met at the centre (their midpoint, from which a median of skewed y may
            be so far that it lies outside of an interval of low coverage); the 90 % band (`band_lower`, `band_upper`)
            of the coverage that a calibration set of this size gives.
        """
        self._check_fitted()
        coverage = self._asked(coverage)
        index = X.index if isinstance(X, pd.DataFrame) else None
        X = self._check_table(X)
        bounds, crossed = self._bounds(X)
        labels = self._assign(X)
        offsets = self._offsets(labels, coverage)[labels]
        intervals = self.conformity_.intervals(bounds, offsets)
        table = self.certificate(coverage).groups.iloc[labels].reset_index(drop=True)
        bands = {name: table.pop(name) for name in ("band_lower", "band_upper")}
        table["novelty"] = self._novelty(X, labels)
        table["lower"] = intervals[:, 0]
        table["median"] = self._clip(bounds[:, 1])
        table["upper"] = intervals[:, 1]
        table["crossed"] = crossed
        table["collapsed"] = self.conformity_.collapsed(bounds, offsets)
        table = table.assign(**bands)
        return table if index is None else table.set_axis(index, axis=0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the negative mean interval score (larger is better); for one side, the negative pinball loss."""
        intervals = self.predict_interval(X)
        target = check_target(y, len(intervals), (-math.inf, math.inf))
        side, coverage = self.conformity_.side, self.coverage
        if side == "both":
            return -interval_score(target, intervals, coverage=coverage, sample_weight=sample_weight)
        column, level = (0, 1 - coverage) if side == "lower" else (1, coverage)
        return -pinball_loss(target, intervals[:, [column]], [level], sample_weight=sample_weight)

    def certificate(self, coverage: float | None = None) -> Certificate:
        """Say what is promised at a coverage: for each group, and for all rows together."""
        self._check_fitted()
        return self.calibration_.certificate(self._asked(coverage))

    @property
    def groups_(self) -> pd.DataFrame:
        """A row per group: size, share, offsets, what is promised, and what the group is in words."""
        self._check_fitted()
        table = self.certificate().groups.iloc[:-1]
        table.insert(2, "share", table["n"] / max(self.calibration_.sizes.sum(), 1))
        return pd.concat([table, self.descriptions_], axis=1)

    @property
    def descriptions_(self) -> pd.DataFrame:
        """What each group is, in words: put into words when it is first asked for."""
        if callable(self.described_):
            self.described_ = self.described_()
        return self.described_

    def group_shift(self, X: Any) -> GroupShift:
        """Compare the groups' shares among new rows with those among the calibration rows."""
        self._check_fitted()
        return group_shift(self.calibration_.sizes, self._assign(self._check_table(X)))

    # -- Input -------------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibration_")  # calibration is the last step of fit

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # before scikit-learn's own check, which asks for the model's tags first
            check_is_fitted(self)

    def __getstate__(self) -> Any:
        if hasattr(self, "described_"):
            self.descriptions_  # noqa: B018 - until they are in words, groups hold rows, which no copy should carry away
        return super().__getstate__()

    def _forget(self) -> None:
        """Drop all that an earlier fit learned."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _check_parameters(self) -> None:
        check_coverage(self.coverage)
        for name, allowed in (
            ("conformity", CONFORMITIES),
            ("symmetric", (True, False)),
            ("side", SIDES),
            ("small_groups", SMALL_GROUPS),
        ):
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {listed}, got {getattr(self, name)!r}")
        if not self.symmetric and self.side != "both":
            raise ValueError(f"symmetric=False needs two bounds, but side={self.side!r} has one; use symmetric=True")
        limits: tuple[Any, ...] = self._y_limits()
        if not (all(isinstance(limit, Real) for limit in limits) and limits[0] < limits[1]):
            raise ValueError(
                "y_min and y_max must be numbers or None, y_min the smaller, "
                f"got y_min={self.y_min!r} and y_max={self.y_max!r}"
            )
        self._check_estimator()

    def _check_estimator(self) -> None:
        inner = self._inner()
        if isinstance(inner, type):
            raise ValueError(f"estimator must be an instance, got the class {inner.__name__}; pass {inner.__name__}()")
        if not any(hasattr(inner, name) for name in self._asks):
            raise ValueError(
                f"estimator must be a regressor, for example HistGradientBoostingRegressor(), got {inner!r}"
            )

    def _y_limits(self) -> tuple[float, float]:
        return -math.inf if self.y_min is None else self.y_min, math.inf if self.y_max is None else self.y_max

    def _clip(self, median: FloatArray) -> FloatArray:
        return np.clip(median, self.conformity_.y_min, self.conformity_.y_max)

    def _check_table(self, X: Any, reset: bool = False) -> Table:
        table = as_table(X)
        if not reset and self._has_known_columns(table):
            return table
        validate_data(self, table, reset=reset, skip_check_array=True)
        if reset:
            self.columns_ = table.columns if isinstance(table, pd.DataFrame) else None
        return align(table, self.columns_)

    def _has_known_columns(self, table: Table) -> bool:
        if isinstance(table, pd.DataFrame):
            return self.columns_ is not None and table.columns.equals(self.columns_)
        return self.columns_ is None and table.shape[1] == self.n_features_in_

    def _check_rows(self, X: Any, y: Any, reset: bool = False) -> Rows:
        limits = self.conformity_.y_min, self.conformity_.y_max
        if isinstance(X, RowBlocks):
            return replace(X, X=self._check_table(X.X, reset), y=check_target(X.y, len(X.y), limits))
        X = self._check_table(X, reset)
        # Half the memory of the usual whole numbers, where they can count the rows.
        index: Any = np.arange(len(X), dtype=np.int32 if len(X) < 2**31 else np.intp)
        return Rows(X, check_target(y, len(X), limits), index)

    def _settled(self, rows: Rows) -> Rows:
        """Decide the kinds of columns on all rows; a model that gets them as they came decides for itself."""
        model, core = self._inner(), core_of(self._inner())[1]
        if isinstance(core, ResidualQuantiles):
            model = bare(core.estimator)
        if isinstance(rows, RowBlocks) or not prepares_rows(model):
            return rows
        return replace(rows, X=settle_kinds(rows.X))

    def _check_columns(self, rows: Rows, train: Rows, held_out: Rows) -> None:
        """Raise before the model is fitted what encoding the rows would raise after: text among numbers, infinity."""
        Encoder(self._inner(), rows.X)  # all rows as they came, so that an error names the right one
        if held_out is not train:
            with naming("calibration rows"):
                Encoder(self._inner(), train.X).encode(held_out.X)

    def _asked(self, coverage: float | None) -> float:
        asked = self.coverage if coverage is None else coverage
        check_coverage(asked)
        return asked

    def _levels(self, coverage: Any) -> list[float]:
        """Give the coverages asked for, one or several."""
        levels = [self._asked(level) for level in (coverage if is_list(coverage) else [coverage])]
        if not levels:
            raise ValueError(
                "coverage must be a number or a list of numbers, got an empty list; pass 0.9 or [0.8, 0.9]"
            )
        return levels

    def _split(self, rows: Rows, X_calibration: Any, y_calibration: Any, seed: int) -> tuple[Rows, Rows]:
        """Give the rows to train on and to calibrate with; that these are enough is checked before any work."""
        if (X_calibration is None) != (y_calibration is None):
            given = "y_calibration" if X_calibration is None else "X_calibration"
            raise ValueError(f"X_calibration and y_calibration go together, got {given} alone; give both or neither")
        if X_calibration is not None:
            with naming("calibration rows"):
                train, held_out = rows, self._check_rows(X_calibration, y_calibration)
            _warn_of_known_rows(train, held_out)
        elif not self._learns():
            train, held_out = rows, rows
        else:
            train, held_out = rows.split(self.calibration_size, seed)
        self._check_enough(held_out)
        return train, held_out

    def _check_enough(self, held_out: Rows) -> None:
        symmetric = self.conformity_.symmetric
        if held_out.total < rows_needed(self.coverage, symmetric):
            raise ValueError(too_few_rows(held_out.total, self.coverage, symmetric))

    def _learns(self) -> bool:
        """Tell whether anything is learned from rows other than the calibration rows."""
        return not is_prefit(self.estimator) or self.conformity != "cqr"

    def _routed(self, fit_params: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in fit_params.items() if value is not None}
        if (
            not given
            or not get_config()["enable_metadata_routing"]
            or not hasattr(self._inner(), "get_metadata_routing")
        ):
            return given
        return dict(process_routing(self, "fit", **given).estimator.fit)

    def get_metadata_routing(self) -> MetadataRouter:
        """Route fit parameters to the estimator."""
        router = MetadataRouter(owner=self).add_self_request(self)
        if hasattr(self._inner(), "get_metadata_routing"):
            router.add(estimator=self._inner(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return router

    def _inner(self) -> Any:
        """Give the estimator that is fitted."""
        return bare(self.estimator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self._inner()
        if hasattr(inner, "__sklearn_tags__") and not isinstance(inner, type):
            tags.input_tags.allow_nan = get_tags(inner).input_tags.allow_nan
            tags.non_deterministic = get_tags(inner).non_deterministic
        tags.input_tags.categorical = True
        tags.regressor_tags.poor_score = True  # `score` is not R²
        return tags

    # -- Steps -------------------------------------------------------------------------------------------------------

    def _fit_model(self, train: Rows, seed: int, params: dict[str, Any]) -> None:
        raise TypeError(f"{type(self).__name__} is not a method of its own; use Naive, QR, CQR or ICQR")

    def _train(self, model: Any, train: Rows, *levels: Any, **params: Any) -> Any:
        """Fit a quantile model, or a model of the mean, to training rows."""
        return model.fit(train.X, train.y, *levels, **params)

    def _bounds(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Give (n, 3) lower, median and upper, and which rows' quantiles had to be sorted."""
        quantiles, crossed = self.model_.predict_sorted(X)
        return bounds_from_quantiles(quantiles, self.coverage_, self.conformity_.side), crossed

    def _fit_groups(self, train: Rows, held_out: Rows, seeds: Seeds, params: dict[str, Any]) -> None:
        self.partition_ = WholePartition().fit(train.X, train.y, np.empty((0, 0)))
        self.n_groups_ = 1
        self.described_ = describe_groups(train.X, np.zeros(len(train), dtype=np.intp), 1)

    def _guarantee(self) -> str:
        return self._fresh_guarantee()

    def _fresh_guarantee(self) -> str:
        return MARGINAL

    def _calibrate(self, held_out: Rows, guarantee: str) -> Self:
        self._check_enough(held_out)
        scored = held_out.scored(self)
        calibration = scored.calibration(self.conformity_, self.small_groups, guarantee)
        calibration.offset_table(self.coverage, np.arange(self.n_groups_))  # answers for groups that are too small
        self.n_crossed_ = {**self.n_crossed_, "calibration": scored.n_crossed}
        self.novelty_ = scored.novelty
        self.calibration_ = calibration
        return self

    def _scored(self, rows: Rows, compared: IntArray | None = None) -> Scored:
        """Score rows; new rows will be compared with these, or with the `compared` ones of them (see `Novelty`)."""
        scored = [self._score(take_rows(rows.X, block), rows.y[block]) for block in blocks(len(rows))]
        scores, crossed = (np.concatenate(part) for part in zip(*scored, strict=True))
        labels = self._assign(rows.X)
        novelty = None
        if hasattr(self.partition_, "distance"):
            some, groups = (rows, labels) if compared is None else (rows.take(compared), labels[compared])
            parts = [self.partition_.distance(take_rows(some.X, block)) for block in blocks(len(some))]
            distances = np.concatenate([np.empty(0), *parts])
            novelty = Novelty.of(distances, groups, self.n_groups_)
        return Scored(sort_by_group(scores, labels, self.n_groups_), int(crossed.sum()), novelty)

    def _score(self, X: Table, y: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        bounds, crossed = self._bounds(X)
        return self.conformity_.scores(bounds, y), crossed

    def _assign(self, X: Table) -> IntArray:
        """Give each row its group; labels that fit did not know are -1."""
        parts = [self.partition_.assign(take_rows(X, block)) for block in blocks(len(X))]
        labels = check_labels(parts[0] if len(parts) == 1 else np.concatenate(parts), len(X))
        return np.where(labels < self.n_groups_, labels, -1)

    def _offsets(self, labels: IntArray, coverage: float) -> FloatArray:
        """Give (groups + 1, 2) offsets, of which only those of these rows' groups are filled in; the last is for -1."""
        return self.calibration_.offset_table(coverage, labels)

    def _novelty(self, X: Table, labels: IntArray) -> FloatArray:
        if self.novelty_ is None:
            return np.full(len(labels), np.nan)
        return self.novelty_.p_values(self.partition_.distance(X), labels)


def check_labels(given: Any, n_rows: int) -> IntArray:
    """Give a partition's labels as whole numbers, or say what is wrong with them."""
    labels = np.asarray(given)
    if labels.shape != (n_rows,) or labels.dtype.kind not in "iu" or labels.min(initial=0) < -1:
        raise ValueError(
            f"a partition's assign must give {n_rows} whole numbers, 0 or more (-1: no known group), "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    return labels.astype(np.intp, copy=False)


def is_list(coverage: Any) -> bool:
    """Tell whether several coverages are asked for."""
    return np.ndim(coverage) > 0


def interval_names(coverage: Any) -> list[str]:
    """Name the columns of a table of intervals, for one coverage or several.

    Examples
    --------
    >>> interval_names(0.9), interval_names([0.8, 0.95])
    (['lower', 'upper'], ['lower_0.8', 'upper_0.8', 'lower_0.95', 'upper_0.95'])
    """
    if not is_list(coverage):
        return ["lower", "upper"]
    return [f"{end}_{float(level):g}" for level in coverage for end in ("lower", "upper")]


def interval_columns(intervals: FloatArray) -> FloatArray:
    """Give (n, 2) or (n, 2, levels) intervals as (n, columns) in the order of `interval_names`."""
    return intervals if intervals.ndim == 2 else np.swapaxes(intervals, 1, 2).reshape(len(intervals), -1)


def _warn_of_known_rows(train: Rows, held_out: Rows) -> None:
    """Warn if the rows to calibrate with are those that train: the scores of known rows are too small."""
    if len(held_out) > 1 and np.array_equal(train.y, held_out.y) and _same(train.X, held_out.X):
        warnings.warn(
            "the calibration rows are the training rows, so that intervals will be too narrow and nothing is promised; "
            "give X_calibration rows that the model has not seen, or leave them out: fit then sets some aside",
            UserWarning,
            stacklevel=4,
        )


def _same(one: Table, other: Table) -> bool:
    if isinstance(one, pd.DataFrame) and isinstance(other, pd.DataFrame):
        return one.reset_index(drop=True).equals(other.reset_index(drop=True))
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=True)
