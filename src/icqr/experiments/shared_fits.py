"""Quantile models that several methods share: fitted, and asked about the same rows, once.

Each method owes the seconds that it would have taken alone. They are those of the processor, on which other jobs of the
machine have little effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin

from icqr._tables import FloatArray, Table
from icqr.cross_fitting import cross_fit
from icqr.families import Levels
from icqr.importance import column_replacer
from icqr.quantiles import MEDIAN, QuantileModel, ResidualQuantiles


class Fits:
    """Models that were fitted already, by what they are and the rows they were fitted on, and what they predicted.

    Attributes
    ----------
    saved : float
        Seconds that repeated fits and predictions would have taken since `start`.
    whole : float
        Seconds, spent or saved, of models fitted on all `n_rows` rows since `start`; each counts once.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self._kept: dict[str, tuple[Any, float]] = {}
        self._predicted: dict[str, tuple[FloatArray, float]] = {}
        self.start()

    def start(self) -> None:
        """Count seconds for another method."""
        self.saved = self.whole = 0.0
        self._asked: set[str] = set()

    def fitted(self, model: Any, X: Table, y: FloatArray, *levels: Levels) -> Any:
        """Give the model fitted on these rows."""
        # All rows come from one table, so that its index tells which they are; hashing all columns would take time.
        rows = (X.index, X.columns) if isinstance(X, pd.DataFrame) else X
        key = joblib.hash((type(model).__name__, str(model.get_params()), levels, rows, y))
        known = key in self._kept
        if not known:
            start = time.process_time()
            model.fit(X, y, *levels)
            self._kept[key] = model, time.process_time() - start
        found, seconds = self._kept[key]
        if key not in self._asked:  # a method asks again when it predicts
            self._asked.add(key)
            self.saved += seconds if known else 0.0
            self.whole += seconds if len(y) == self.n_rows else 0.0
        return found

    def predicted(self, predict: Callable[[Table], FloatArray], model: Any, X: Table, levels: Levels) -> FloatArray:
        """Give a fitted model's predictions for these rows."""
        key = joblib.hash((id(model), tuple(levels), X))
        if key in self._predicted:
            self.saved += self._predicted[key][1]
        else:
            start = time.process_time()
            found = predict(X)
            self._predicted[key] = found, time.process_time() - start
        return self._predicted[key][0].copy()

    def __sklearn_clone__(self) -> Fits:
        return self  # what is shared can't be copied

    def __repr__(self) -> str:
        return "Fits()"


class _Quantiles(RegressorMixin, BaseEstimator):
    """What quantile models here share."""

    def predict(self, X: Table) -> FloatArray:
        """Give the median."""
        return np.asarray(self.predict_quantiles(X, (MEDIAN,))[:, 0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows come as they are: `QuantileModel` encodes them for the estimator.
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


class Shared(_Quantiles):
    """An estimator's quantiles, fitted only on rows that it was not fitted on before.

    For a method it is an estimator like any other: out-of-fold predictions come from models that have not seen the
    rows, which those of a model that is given as fitted would not.

    Parameters
    ----------
    estimator : estimator
        What `QuantileModel` takes.
    fits : Fits
        What was fitted before.
    levels : sequence of float
        The levels to predict; inside a method that method sets them.
    """

    def __init__(self, estimator: Any, fits: Fits, levels: Levels = (0.05, 0.5, 0.95)) -> None:
        self.estimator = estimator
        self.fits = fits
        self.levels = levels

    def fit(self, X: Table, y: FloatArray) -> Self:
        """Fit, or remember."""
        self.model_ = self.fits.fitted(QuantileModel(self.estimator), X, y, tuple(self.levels))
        return self

    @property
    def levels_(self) -> tuple[float, ...]:
        """The fitted levels."""
        return tuple(self.model_.levels_)

    def predict_quantiles(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Give (n, levels) quantiles, sorted."""
        levels = self.levels_ if levels is None else levels
        return self.fits.predicted(lambda rows: self.model_.predict(rows, levels), self.model_, X, levels)

    def replacer(self, X: Table) -> Any:
        """Prepare predictions with one column replaced."""
        return column_replacer(self.model_, X)


class SharedResiduals(ResidualQuantiles):
    """`ResidualQuantiles`, fitted once.

    Parameters
    ----------
    estimator, levels, random_state, n_jobs
        As for `ResidualQuantiles`; folds are fitted one after the other.
    fits : Fits
        What was fitted before.
    """

    def __init__(
        self,
        estimator: Any,
        fits: Fits,
        levels: Levels = (0.05, 0.5, 0.95),
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(estimator, levels, random_state, n_jobs)
        self.fits = fits

    def fit(self, X: Table, y: FloatArray, sample_weight: Any = None) -> Self:
        """Fit, or remember."""
        self.fitted_ = self.fits.fitted(ResidualQuantiles(self.estimator, self.levels, self.random_state), X, y)
        self.__dict__.update({name: value for name, value in vars(self.fitted_).items() if name.endswith("_")})
        return self

    def predict_quantiles(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Give (n, levels) quantiles, not sorted."""
        levels = self.levels_ if levels is None else levels
        return self.fits.predicted(lambda rows: self.fitted_.predict_quantiles(rows, levels), self.fitted_, X, levels)


class FoldMean(_Quantiles):
    """The mean of five models, each fitted without one of five folds: what averaging alone does.

    It fits as many models on as many rows as `ResidualQuantiles`.

    Parameters
    ----------
    estimator : estimator
        What `QuantileModel` takes.
    fits : Fits
        Where its seconds are counted.
    levels : sequence of float
        The levels to predict; inside a method that method sets them.
    random_state : int
        Seed of the folds.
    """

    def __init__(
        self, estimator: Any, fits: Fits, levels: Levels = (0.05, 0.5, 0.95), random_state: int | None = None
    ) -> None:
        self.estimator = estimator
        self.fits = fits
        self.levels = levels
        self.random_state = random_state

    def fit(self, X: Table, y: FloatArray) -> Self:
        """Fit five models."""
        start = time.process_time()
        self.models_ = cross_fit(QuantileModel(self.estimator), X, y, self.levels, self.random_state)[0]
        self.fits.whole += time.process_time() - start
        return self

    def predict_quantiles(self, X: Table, levels: Levels | None = None) -> FloatArray:
        """Give (n, levels) quantiles."""
        return np.asarray(np.mean([model.predict(X, levels) for model in self.models_], axis=0))
