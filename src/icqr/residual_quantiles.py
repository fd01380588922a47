"""Bounds in two stages: a cross-fitted centre, then the quantiles of the residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_method_params, check_is_fitted, validate_data

from icqr._libraries import (
    Encoder,
    Levels,
    copied,
    core_of,
    find_quantile_library,
    mean_copy,
    seeded,
    small_copy,
)
from icqr._tables import FloatArray, IntArray, Table, as_table, settle_kinds, take_rows, with_columns
from icqr.centres import CrossFitted, FittedOnce, Mixture, SmoothRidge
from icqr.quantiles import (
    MEDIAN,
    PointModel,
    QuantileModel,
    as_quantile_model,
    bare,
    check_levels,
    is_prefit,
    without_checkpoints,
)

#: The smooth models learn from one-hot columns, and step aside if there would be more of them than this.
MOST_COLUMNS = 500
#: At most this many training rows are held out to choose groups with, and at most so many of the others fitted anew.
MOST_HELD_OUT = MOST_KEPT = 10_000
#: The forest's trees draw at most this many rows each, which bounds its time and its size in a file.
MOST_FOREST_ROWS = 20_000
EFFORTS = ("quick", "thorough")


class ResidualQuantiles(RegressorMixin, BaseEstimator):
    """Quantiles in two stages: first a centre, then the quantiles of the residuals around it.

    1. Cut the rows into folds at random. Fit each model of the centre without each fold, and predict the fold.
       Mix the models with the weights that do best on these out-of-fold predictions. So each training row has a centre
       from models that have not seen it.
    2. Fit a small model of the quantiles to the residuals, ``y - centre``. It learns from the columns, the centre, and
       how far the centre's models are from it, if there are several: where they disagree, y is hard to predict.
    3. For a new row, add the residual's quantiles to the centre.

    A model's residuals on rows that it knows are too small. Here the spread is learned from residuals like those of new
    rows. And squared loss learns the centre from all rows, where an extreme quantile is learned from few.

    You can use it wherever you would use a quantile model: ``ICQR(ResidualQuantiles(LGBMRegressor()))``. `AutoICQR`
    does so for you. To transform the target, put a TransformedTargetRegressor around it, not inside, because residuals
    may be negative. Permutation importance is that of the centre: what a column does to the residuals alone doesn't
    count.

    Parameters
    ----------
    estimator : estimator, optional
        Anything that `QuantileModel` takes, or a `QuantileModel`. By default HistGradientBoostingRegressor. The
        residuals' quantiles are fitted by a smaller model of its library, if it is of trees.
    levels : sequence of float, default=(0.05, 0.5, 0.95)
        The levels to predict. Inside a method such as `ICQR`, the method sets them.
    centre : "stack", estimator, or list of estimators, default="stack"
        What predicts the centre. "stack" mixes the estimator with squared loss (or its median, if it has no mean), a
        smooth model and a linear one (`SmoothRidge`), and for skewed y a small model of the median; each steps aside
        where it can't work. Or give unfitted regressors of the mean of your own; several are mixed.
    effort : {"quick", "thorough"}, default="quick"
        "thorough" fits the estimator's mean in five folds instead of three, and adds to the stack a forest (ExtraTrees)
        and, whatever y is like, a small model of the median if the library has one. The smooth model learns from more
        rows, with more landmarks.
    random_state : int, RandomState or None
        Seed for the folds, and for models that have no seed of their own.
    n_jobs : int, optional
        Number of folds to fit at the same time. The result stays the same.

    Attributes
    ----------
    centre_ : Mixture
        The cross-fitted models of the centre and their weights.
    residuals_ : QuantileModel
        The model of the residuals' quantiles.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> ResidualQuantiles(random_state=0).fit(X, X.ravel()).predict_quantiles(X[:2]).shape
    (2, 3)
    """

    is_cross_fitted = True  # so that methods hand it their `n_jobs`, and look at the estimator inside

    def __init__(
        self,
        estimator: Any = None,
        levels: Levels = (0.05, 0.5, 0.95),
        *,
        centre: Any = "stack",
        effort: str = "quick",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.levels = levels
        self.centre = centre
        self.effort = effort
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Table, y: FloatArray, sample_weight: Any = None) -> Self:
        """Fit both stages; `sample_weight` is the only fit parameter that makes sense for both."""
        X, y = as_table(X), np.asarray(y, dtype=np.float64)
        check_levels(self.levels)
        validate_data(self, X, skip_check_array=True)
        fold_seed, seed = check_random_state(self.random_state).randint(2**31 - 1, size=2).tolist()
        model = without_checkpoints(as_quantile_model(self.estimator, seed))
        self._check_parameters(model, X)
        if core_of(model.estimator).prepares_rows:
            X = settle_kinds(X)
        params = {}
        if sample_weight is not None:
            # With a mean of 1, whatever their unit: limits of the models, such as rows in a leaf, count weights.
            weights = np.asarray(sample_weight, dtype=np.float64)
            params["sample_weight"] = weights / (weights.mean() or 1.0)

        # Stage 1: predict each row's centre by models that have not seen it.
        self.centre_ = Mixture(self._members(model, X, y, seed, params)).fit(X, y, fold_seed, params, self.n_jobs)

        # Stage 2: predict the residuals' quantiles, with the centre and its models' spread as more columns.
        centre, spread = self.centre_.out_of_fold_
        small = model
        if model.level_parameter is None:
            small = QuantileModel(small_copy(model.estimator, len(y)), n_jobs=self.n_jobs)
        self.residuals_ = clone(small).fit(self._second_stage(X, centre, spread), y - centre, self.levels, **params)
        return self

    def held_out(
        self, X: Table, y: FloatArray, seed: int, fit_params: Mapping[str, Any]
    ) -> tuple[IntArray, FloatArray]:
        """Return some training rows, and their (rows, levels) sorted quantiles by models that were fitted without them.

        The residuals' model is fitted once more for this, on other rows. One indirect trace of a row remains: other
        rows' residuals come from centres that have seen it.
        """
        centre, spread = self.centre_.out_of_fold_
        rows, residuals = self._second_stage(as_table(X), centre, spread), y - centre
        order = np.random.default_rng(seed).permutation(len(y))
        n_held = min(len(y) // 2, MOST_HELD_OUT)
        held, kept = np.sort(order[:n_held]), np.sort(order[n_held : n_held + MOST_KEPT])
        params = _check_method_params(X, dict(fit_params), indices=kept)
        model = clone(self.residuals_).fit(take_rows(rows, kept), residuals[kept], self.levels, **params)
        return held, np.sort(centre[held, None] + model.predict(take_rows(rows, held)), axis=1)

    def predict_quantiles(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Return (n, levels) quantiles, for all fitted levels or some of them."""
        if not hasattr(self, "residuals_"):  # `check_is_fitted` takes as long as a row
            check_is_fitted(self)
        X = as_table(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        centre, spread = self.centre_.predict(X)
        return np.asarray(centre[:, None] + self.residuals_.predict(self._second_stage(X, centre, spread), levels))

    def predict(self, X: Table) -> FloatArray:
        """Return the median."""
        return self.predict_quantiles(X, (MEDIAN,))[:, 0]

    @property
    def levels_(self) -> tuple[float, ...]:
        """The fitted levels."""
        return tuple(self.levels)

    def _members(
        self, model: QuantileModel, X: Table, y: FloatArray, seed: int, params: Mapping[str, Any]
    ) -> list[CrossFitted]:
        """Return the models of the centre, unfitted."""
        if not isinstance(self.centre, str):
            return [CrossFitted(PointModel(seeded(estimator, seed))) for estimator in self._own_centres()]

        core, is_thorough = core_of(model.estimator), self.effort == "thorough"
        mean = None if model.level_parameter is not None else mean_copy(model.estimator)
        members = [CrossFitted(model if mean is None else PointModel(mean), n_folds=5 if is_thorough else 3)]
        if mean is not None and core.library.small and (is_thorough or is_skewed(y, params.get("sample_weight"))):
            # A mean is a poor centre of a skewed target: where it is mostly 0, for example, the median is 0.
            members.append(CrossFitted(QuantileModel(small_copy(model.estimator, len(y)))))

        # The others learn from one-hot columns. Only a pipeline knows what it makes of its table.
        smooth = SmoothRidge(random_state=seed)
        features = Encoder(smooth, X).features if core.prepares_rows else None
        if features is not None and len(features.origins) <= MOST_COLUMNS:
            others = [smooth, SmoothRidge(n_landmarks=0, random_state=seed)]
            if is_thorough:
                smooth.set_params(n_landmarks=400, max_rows=5000)
                forest = ExtraTreesRegressor(30, min_samples_leaf=2, n_jobs=1, random_state=seed)
                forest.set_params(bootstrap=True, max_samples=min(len(y), MOST_FOREST_ROWS), oob_score=True)
                others.append(forest)
            members += [FittedOnce(PointModel(other)) for other in others]
        return members

    def _own_centres(self) -> list[Any]:
        """Return the user's own models of the centre."""
        return list(self.centre) if isinstance(self.centre, list | tuple) else [self.centre]

    def _second_stage(self, X: Table, centre: FloatArray, spread: FloatArray) -> Table:
        """Return the columns from which the residuals' quantiles are predicted."""
        added = {"predicted_centre": centre}
        if len(self.centre_.members_) > 1:
            added["models_spread"] = spread
        return with_columns(X, added)

    def _check_parameters(self, model: QuantileModel, X: Table) -> None:
        """Raise before any fit if a parameter is wrong, if the estimator can't be used here, or a column can't."""
        if self.effort not in EFFORTS:
            raise ValueError(f"effort must be one of {', '.join(map(repr, EFFORTS))}, got {self.effort!r}")
        own = self._own_centres()
        if self.centre != "stack" and not (own and all(map(_is_regressor, own))):
            raise ValueError(
                f"centre must be 'stack', a regressor or a list of regressors, got {self.centre!r}; for example "
                "centre=LinearRegression()"
            )
        if self.centre != "stack" and any(map(is_prefit, own)):
            raise ValueError(
                f"centre is fitted on folds, and can't be fitted already, got {self.centre!r}; give it unfitted"
            )
        if is_prefit(model.estimator):
            raise ValueError(
                "ResidualQuantiles fits its estimator on folds, and can't with one that is fitted already; give the "
                "estimator unfitted, or use the fitted one without ResidualQuantiles"
            )
        core = core_of(model.estimator)
        find_quantile_library(core.model, model.level_parameter)
        Encoder(model.estimator, X)
        if core.transforms_target:
            raise ValueError(
                "ResidualQuantiles(TransformedTargetRegressor(…)) would transform residuals, which may be negative; "
                "put it around: TransformedTargetRegressor(ResidualQuantiles(…), …)"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Any table is welcome: rows are encoded for each model.
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def is_skewed(y: FloatArray, sample_weight: FloatArray | None = None) -> bool:
    """Return whether the mean is far from the median: by more than a fifth of the mean distance from the median.

    A row counts as much as its `sample_weight`.

    Examples
    --------
    >>> is_skewed(np.array([1.0, 2.0, 3.0])), is_skewed(np.array([0.0, 0.0, 3.0]))
    (False, True)
    >>> is_skewed(np.array([1.0, 2.0, 3.0, 99.0]), np.array([1.0, 1.0, 1.0, 0.0]))
    False
    """
    if sample_weight is None:
        median = np.median(y)
    else:
        order = np.argsort(y)
        total = np.cumsum(sample_weight[order])
        median = y[order][np.searchsorted(total, total[-1] / 2)]
    distances = y - median if sample_weight is None else sample_weight * (y - median)
    return bool(abs(distances.mean()) > 0.2 * np.abs(distances).mean())


def small_of(estimator: Any) -> Any | None:
    """Return a small model of the same library, if it has one and takes any rows and targets; else None."""
    inner = bare(estimator)
    core = core_of(bare(inner.estimator) if isinstance(inner, ResidualQuantiles) else inner)
    return small_copy(core.model) if core.library.small and not core.prefix else None


def around(estimator: Any, bounds: ResidualQuantiles) -> Any:
    """Return `bounds` of this estimator, inside a transformation of the target if the estimator has one.

    Examples
    --------
    >>> from sklearn.linear_model import QuantileRegressor
    >>> logs = TransformedTargetRegressor(QuantileRegressor(), func=np.log, inverse_func=np.exp)
    >>> around(logs, ResidualQuantiles()).regressor
    ResidualQuantiles(estimator=QuantileRegressor())
    """
    if isinstance(estimator, TransformedTargetRegressor):
        return copied(estimator).set_params(regressor=around(estimator.regressor, bounds))
    # The default is named, so that it gets the same seed as if the user had passed it.
    return clone(bounds).set_params(estimator=bare(None) if estimator is None else estimator)


def _is_regressor(model: Any) -> bool:
    return not isinstance(model, type) and hasattr(model, "fit") and hasattr(model, "predict")
