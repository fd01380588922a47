"""Out-of-fold predictions: each row's from a model that has not seen it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils.validation import _check_method_params

from icqr._tables import FloatArray, IntArray, Table, take_rows

#: The rows are cut into so many folds.
FOLDS = 5


def cross_fit(
    model: Any,
    X: Table,
    y: FloatArray,
    levels: Sequence[float],
    seed: int | None,
    fit_params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> tuple[list[Any], FloatArray]:
    """Fit a quantile model without each of five random folds, and let it predict that fold.

    Parameters
    ----------
    model : quantile model
        With ``fit(X, y, levels)`` and ``predict(X)``, as `QuantileModel`; it is cloned.
    X, y : table and array
        Rows to fit and predict.
    levels : sequence of float
        The levels.
    seed : int
        Seed of the folds.
    fit_params : dict, optional
        For the model's fit; arrays with a value per row are split with the rows.
    n_jobs : int, optional
        Folds fitted at the same time; the result is the same.

    Returns
    -------
    models : list
        The fitted models, one for each fold.
    predictions : array of shape (n, levels)
        Each row's prediction by the model that was fitted without it.

    Examples
    --------
    >>> from icqr.quantiles import QuantileModel
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> models, median = cross_fit(QuantileModel(), X, X.ravel(), levels=(0.5,), seed=0)
    >>> len(models), median.shape
    (5, (200, 1))
    """
    folds = _cut(len(y), seed)
    tasks = (delayed(_fit_without)(_copy(model), X, y, levels, fold, fit_params or {}) for fold in folds)
    models = Parallel(n_jobs=n_jobs)(tasks)
    predictions = np.empty((len(y), len(levels)))
    for fitted, fold in zip(models, folds, strict=True):
        predictions[fold] = fitted.predict(take_rows(X, fold))
    return models, predictions


def _copy(model: Any) -> Any:
    """Clone a model without its checkpoint, which is for one set of rows."""
    copy = clone(model)
    kept = [name for name in copy.get_params(deep=True) if name.endswith("checkpoint")]
    return copy.set_params(**dict.fromkeys(kept)) if kept else copy


def _cut(n: int, seed: int | None) -> list[IntArray]:
    """Cut n rows into folds at random, each in the order in which the rows came."""
    if n < 2:
        raise ValueError(f"rows to train on must be at least 2 to be cut into folds, got n_samples={n}; give more rows")
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(fold) for fold in np.array_split(order, min(FOLDS, n))]


def _fit_without(
    model: Any, X: Table, y: FloatArray, levels: Sequence[float], fold: IntArray, fit_params: Mapping[str, Any]
) -> Any:
    rest = np.setdiff1d(np.arange(len(y)), fold, assume_unique=True)
    return model.fit(take_rows(X, rest), y[rest], levels, **_check_method_params(X, dict(fit_params), indices=rest))
