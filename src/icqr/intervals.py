"""What the four methods share: check the rows, split them, calibrate, predict, explain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _check_method_params, check_is_fitted, validate_data

from icqr.calibration import (
    CONFORMITIES,
    SIDES,
    SMALL_GROUPS,
    Calibration,
    Certificate,
    bounds_from_quantiles,
    check_coverage,
    rows_needed,
    too_few_rows,
)
from icqr.descriptions import describe_groups
from icqr.features import FloatArray, IntArray, Table, as_table
from icqr.metrics import interval_score, pinball_loss
from icqr.novelty import GroupShift, Novelty, group_shift
from icqr.partition import WholePartition
from icqr.quantiles import QuantileModel, is_prefit
from icqr.rows import Rows, check_target, split_rows

GROUPWISE = "group-wise"
MARGINAL = "marginal"
APPROXIMATE = "approximate (groups learned from calibration rows)"
NOT_CALIBRATED = "none (not calibrated)"

Coverages = float | Sequence[float] | FloatArray | None


class Seeds(NamedTuple):
    """One seed for each random step, drawn up front so that no step's draws shift another's."""

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

    estimator: Any
    coverage: float
    side: str
    y_min: float | None
    y_max: float | None
    random_state: Any
    n_jobs: int | None
    model_: Any
    calibration_: Calibration
    conformity_: Conformity
    descriptions_: pd.DataFrame

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
        rows = self._check_rows(X, y, reset=True)
        seeds = Seeds(*check_random_state(self.random_state).randint(2**31 - 1, size=len(Seeds._fields)).tolist())
        train, held_out = self._split(rows, X_calibration, y_calibration, seeds.split)
        params = _check_method_params(rows.X, self._routed(fit_params), indices=train.index)
        self.n_crossed_: dict[str, int] = {}
        self._fit_model(train, seeds.model, params)
        self._fit_groups(train, held_out, seeds)
        return self._calibrate(held_out, self._guarantee())

    def calibrate(self, X: Any, y: Any) -> Self:
        """Replace the calibration by fresh rows; model and groups stay as they are.

        Parameters
        ----------
        X, y : table and array
            Rows that neither the model nor the groups were learned from.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        return self._calibrate(self._check_rows(X, y), self._fresh_guarantee())

    def predict(self, X: Any) -> FloatArray:
        """Predict the median (`Naive`: the regressor's own prediction), within y's limits if they are given."""
        check_is_fitted(self)
        return np.clip(self._bounds(self._check_table(X))[0][:, 1], *self._y_limits())

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
        check_is_fitted(self)
        X = self._check_table(X)
        bounds, _ = self._bounds(X)
        labels = self._assign(X)
        if np.ndim(self._asked(coverage)) == 0:
            return self._intervals(bounds, labels, self._asked(coverage))
        return np.stack([self._intervals(bounds, labels, c) for c in self._asked(coverage)], axis=-1)

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
            `offset_upper`; the coverage that is `promised`, with the kind of `guarantee` (0 where there is none); the
            90 % band (`band_lower`, `band_upper`) of the coverage that a calibration set of this size gives; `novelty`,
            a p-value that is small for rows unlike their group's calibration rows; `lower`, `median`, `upper`;
            `crossed`, the model's quantiles had to be sorted; `collapsed`, the bounds met at the centre.
        """
        check_is_fitted(self)
        index = X.index if isinstance(X, pd.DataFrame) else None
        X = self._check_table(X)
        bounds, crossed = self._bounds(X)
        labels = self._assign(X)
        coverage = self._asked(coverage)
        intervals = self._intervals(bounds, labels, coverage)
        table = self.certificate(coverage).groups.iloc[labels].reset_index(drop=True)
        table["novelty"] = self._novelty(X, labels)
        table["lower"] = intervals[:, 0]
        table["median"] = np.clip(bounds[:, 1], *self._y_limits())
        table["upper"] = intervals[:, 1]
        table["crossed"] = crossed
        table["collapsed"] = self.conformity_.collapsed(bounds, self._offsets(labels, coverage))
        return table if index is None else table.set_axis(index, axis=0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the negative mean interval score (larger is better); for one side, the negative pinball loss."""
        intervals = self.predict_interval(X)
        target = check_target(y, len(intervals), (-math.inf, math.inf))
        if self.side == "both":
            return -interval_score(target, intervals, coverage=self.coverage, sample_weight=sample_weight)
        column = 0 if self.side == "lower" else 1
        level = 1 - self.coverage if self.side == "lower" else self.coverage
        return -pinball_loss(target, intervals[:, [column]], [level], sample_weight=sample_weight)

    def certificate(self, coverage: float | None = None) -> Certificate:
        """Say what is promised at a coverage: for each group, and for all rows together."""
        check_is_fitted(self)
        return self.calibration_.certificate(self._asked(coverage))

    @property
    def groups_(self) -> pd.DataFrame:
        """A row per group: size, share, offsets, what is promised, and what the group is in words."""
        check_is_fitted(self)
        table = self.certificate().groups.iloc[:-1]
        table.insert(2, "share", table["n"] / max(table["n"].sum(), 1))
        return pd.concat([table, self.descriptions_], axis=1)

    def group_shift(self, X: Any) -> GroupShift:
        """Compare the groups' shares among new rows with those among the calibration rows."""
        check_is_fitted(self)
        return group_shift(self.calibration_.sizes, self._assign(self._check_table(X)))

    # -- Input -------------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_coverage(self.coverage)
        for name, allowed in (("conformity", CONFORMITIES), ("side", SIDES), ("small_groups", SMALL_GROUPS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if not self.symmetric and self.side != "both":
            raise ValueError(f"symmetric=False needs two bounds, but side={self.side!r} has one; use symmetric=True")
        low, high = self._y_limits()
        if not low < high:
            raise ValueError(f"y_min must be smaller than y_max, got y_min={self.y_min} and y_max={self.y_max}")

    def _y_limits(self) -> tuple[float, float]:
        return -math.inf if self.y_min is None else self.y_min, math.inf if self.y_max is None else self.y_max

    def _check_table(self, X: Any, reset: bool = False) -> Table:
        table = as_table(X)
        validate_data(self, table, reset=reset, skip_check_array=True)
        return table

    def _check_rows(self, X: Any, y: Any, reset: bool = False) -> Rows:
        X = self._check_table(X, reset)
        return Rows(X, check_target(y, len(X), self._y_limits()), np.arange(len(X)))

    def _asked(self, coverage: Any) -> Any:
        return self.coverage if coverage is None else coverage

    def _split(self, rows: Rows, X_calibration: Any, y_calibration: Any, seed: int) -> tuple[Rows, Rows]:
        """Give the rows to train on and to calibrate with; that these are enough is checked before any work."""
        if (X_calibration is None) != (y_calibration is None):
            raise ValueError("X_calibration and y_calibration go together: give both or neither")
        if X_calibration is not None:
            train, held_out = rows, self._check_rows(X_calibration, y_calibration)
        elif not self._learns():
            train, held_out = rows, rows
        else:
            train, held_out = split_rows(rows, self.calibration_size, seed)
        if len(held_out) < rows_needed(self.coverage, self.symmetric):
            raise ValueError(too_few_rows(len(held_out), self.coverage, self.symmetric))
        return train, held_out

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
        """Give the estimator that is fitted, with the default in its place if there is none."""
        inner = self.estimator.estimator if isinstance(self.estimator, QuantileModel) else self.estimator
        return HistGradientBoostingRegressor() if inner is None else inner

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self._inner()
        if hasattr(inner, "__sklearn_tags__"):
            tags.input_tags.allow_nan = get_tags(inner).input_tags.allow_nan
        tags.input_tags.categorical = True
        tags.regressor_tags.poor_score = True  # `score` is not R²
        return tags

    # -- Steps -------------------------------------------------------------------------------------------------------

    def _fit_model(self, train: Rows, seed: int, params: dict[str, Any]) -> None:
        raise TypeError(f"{type(self).__name__} is not a method of its own; use Naive, QR, CQR or ICQR")

    def _bounds(self, X: Table) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Give (n, 3) lower, median and upper, and which rows' quantiles had to be sorted."""
        quantiles, crossed = self.model_.predict_sorted(X)
        return bounds_from_quantiles(quantiles, self.coverage, self.side), crossed

    def _fit_groups(self, train: Rows, held_out: Rows, seeds: Seeds) -> None:
        self.partition_: Any = WholePartition().fit(train.X, train.y, np.empty((0, 0)))
        self.descriptions_ = describe_groups(train.X, np.zeros(len(train), dtype=np.intp), 1)

    def _guarantee(self) -> str:
        return self._fresh_guarantee()

    def _fresh_guarantee(self) -> str:
        return MARGINAL

    def _calibrate(self, held_out: Rows, guarantee: str) -> Self:
        if len(held_out) < rows_needed(self.coverage, self.symmetric):
            raise ValueError(too_few_rows(len(held_out), self.coverage, self.symmetric))
        bounds, crossed = self._bounds(held_out.X)
        scores = self.conformity_.scores(bounds, held_out.y)
        labels = _check_labels(self.partition_.assign(held_out.X), len(held_out))
        n_groups = getattr(self.partition_, "n_groups_", int(labels.max()) + 1)
        calibration = Calibration.from_scores(self.conformity_, scores, labels, n_groups, self.small_groups, guarantee)
        calibration.offsets(self.coverage, np.arange(n_groups))  # answers for groups that are too small
        self.calibration_ = calibration
        self.n_crossed_["calibration"] = int(crossed.sum())
        self.novelty_: Novelty | None = None
        if hasattr(self.partition_, "distance"):
            self.novelty_ = Novelty.of(self.partition_.distance(held_out.X), labels, n_groups)
        return self

    def _assign(self, X: Table) -> IntArray:
        labels = _check_labels(self.partition_.assign(X), len(X))
        n_groups = len(self.calibration_.scores) - 1
        return labels if labels.max(initial=-1) < n_groups else np.where(labels < n_groups, labels, -1)

    def _offsets(self, labels: IntArray, coverage: float) -> FloatArray:
        return self.calibration_.offsets(coverage, labels)

    def _intervals(self, bounds: FloatArray, labels: IntArray, coverage: float) -> FloatArray:
        return self.conformity_.intervals(bounds, self._offsets(labels, coverage))

    def _novelty(self, X: Table, labels: IntArray) -> FloatArray:
        if self.novelty_ is None:
            return np.full(len(labels), np.nan)
        return self.novelty_.p_values(self.partition_.distance(X), labels)


def _check_labels(given: Any, n_rows: int) -> IntArray:
    labels = np.asarray(given)
    if labels.shape != (n_rows,) or labels.dtype.kind not in "iu" or labels.min(initial=0) < -1:
        raise ValueError(
            f"a partition's assign must give {n_rows} whole numbers, 0 or more (-1: no known group), "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    return labels.astype(np.intp, copy=False)
