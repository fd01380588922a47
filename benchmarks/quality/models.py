"""Quantile models that several methods of a cell share: fitted once on the same rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone

from icqr import QuantileModel
from icqr.importance import column_replacer


class Fits:
    """Models that were fitted already, by what they are and the rows they were fitted on.

    Each method owes the seconds that it would have taken alone. They are those of the processor, on which other jobs of
    the machine have little effect.

    Attributes
    ----------
    saved : float
        Seconds that repeated fits would have taken since `start`.
    whole : float
        Seconds, spent or saved, of models fitted on all `n_rows` rows since `start`; each counts once.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.known: dict[str, tuple[Any, float]] = {}
        self.start()

    def start(self) -> None:
        """Count seconds for another method."""
        self.saved = self.whole = 0.0
        self.asked: set[str] = set()

    def fitted(self, model: Any, X: Any, y: Any, *levels: Sequence[float]) -> Any:
        """Return the model fitted on these rows."""
        # All rows come from one table, so that its index tells which they are; hashing all columns would take time.
        rows = (X.index, X.columns) if isinstance(X, pd.DataFrame) else X
        key = joblib.hash((type(model).__name__, str(model.get_params()), levels, rows, y))
        is_new = key not in self.known
        if is_new:
            start = time.process_time()
            model.fit(X, y, *levels)
            self.known[key] = model, time.process_time() - start

        found, seconds = self.known[key]
        if key not in self.asked:  # a method owes a model once
            self.asked.add(key)
            self.saved += 0.0 if is_new else seconds
            self.whole += seconds if len(y) == self.n_rows else 0.0
        return found

    def __sklearn_clone__(self) -> Fits:
        return self  # what is shared can't be copied

    def __repr__(self) -> str:
        return "Fits()"


class Shared(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A quantile model that is fitted only on rows that it was not fitted on before.

    For a method it is an estimator like any other: out-of-fold predictions come from models that have not seen the
    rows, which those of a model that is given as fitted would not.

    Parameters
    ----------
    model : QuantileModel or FoldMean
        With ``fit(X, y, levels)`` and ``predict(X, levels)``.
    fits : Fits
        What was fitted before.
    levels : sequence of float
        The levels to predict; inside a method that method sets them.
    """

    def __init__(self, model: Any, fits: Fits, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> None:
        self.model = model
        self.fits = fits
        self.levels = levels

    def fit(self, X: Any, y: Any) -> Self:
        """Fit, or remember."""
        self.model_ = self.fits.fitted(clone(self.model), X, y, tuple(self.levels))
        self.levels_ = tuple(self.levels)
        return self

    def predict_quantiles(self, X: Any, levels: Sequence[float] | None = None) -> Any:
        """Return (n, levels) quantiles, sorted."""
        return self.model_.predict(X, self.levels_ if levels is None else levels)

    def predict(self, X: Any) -> Any:
        """Return the median."""
        return self.predict_quantiles(X, (0.5,))[:, 0]

    def replacer(self, X: Any) -> Any:
        """Prepare predictions with one column replaced, for permutation importance."""
        return column_replacer(self.model_, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows come as they are: `QuantileModel` encodes them for the estimator.
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


class FoldMean(BaseEstimator):  # type: ignore[misc]
    """The mean of five models, each fitted without one of five folds: what averaging alone does.

    Parameters
    ----------
    estimator : estimator
        What `QuantileModel` takes.
    seed : int
        Seed of the folds.
    """

    def __init__(self, estimator: Any, seed: int) -> None:
        self.estimator = estimator
        self.seed = seed

    def fit(self, X: Any, y: Any, levels: Sequence[float]) -> Self:
        """Fit five models."""
        order = np.random.default_rng(self.seed).permutation(len(y))
        self.models_ = []
        for fold in np.array_split(order, 5):
            kept = np.setdiff1d(np.arange(len(y)), fold)
            rows = X.iloc[kept] if isinstance(X, pd.DataFrame) else X[kept]
            self.models_.append(QuantileModel(clone(self.estimator)).fit(rows, y[kept], levels))
        return self

    def predict(self, X: Any, levels: Sequence[float] | None = None) -> Any:
        """Return (n, levels) quantiles."""
        return np.mean([model.predict(X, levels) for model in self.models_], axis=0)
