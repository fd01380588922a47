"""Permutation importance (Algorithm 2): how much worse the quantile model gets when one column is shuffled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator

from icqr._messages import counted, warn
from icqr._tables import FloatArray, IntArray, Table, as_table, draw_rows, take_rows
from icqr._trees import can_read, tree_replacer
from icqr.centres import CrossFitted
from icqr.metrics import pinball_loss
from icqr.quantiles import QuantileModel
from icqr.residual_quantiles import ResidualQuantiles

_MOST_PREPARED = 20_000  # rows for all repeats together (or for one, if it needs more); beyond it, repeats share rows
_MOST_VALUES = 2**22  # to predict in one call: each call takes time, and its table takes memory

#: A repeat permutes at least this many rows; with one of 50, shares are off by 4 to 8 % of all, with one of 30 by 10 %.
FEWEST_ROWS = 50
#: In place of a picture of importances.
ALL_ZERO = "All importances are zero: permuting a column changes no prediction's error."

ErrorMeasure: TypeAlias = Callable[[FloatArray, FloatArray, Sequence[float]], float]


class PredictsQuantiles(Protocol):
    """What importance needs from a quantile model."""

    @property
    def levels_(self) -> Sequence[float]:
        """The fitted levels."""

    def predict(self, X: Any) -> FloatArray:
        """Return (n, levels) quantiles."""


def median_absolute_error(y: FloatArray, quantiles: FloatArray, levels: Sequence[float]) -> float:
    """Return the mean absolute error of the median: the error that `ICQR.as_printed` uses (the paper names none).

    Examples
    --------
    >>> median_absolute_error(np.array([1.0, 4.0]), np.array([[0.0, 2.0, 3.0], [0.0, 2.0, 3.0]]), (0.05, 0.5, 0.95))
    1.5
    """
    return float(np.mean(np.abs(y - quantiles[:, list(levels).index(0.5)])))


class PermutationImportance(BaseEstimator):
    """Permutation importance of a fitted quantile model's columns (the paper's Algorithm 2).

    1. ``E_base`` is the model's error on the given rows.
    2. For each column j and repeat i, permute column j among the rows. The error is now ``E_permuted``.
    3. ``I_j`` is the mean over the repeats of ``|E_base - E_permuted|``.

    If there are many rows, each repeat has its own sample of them and its own ``E_base`` (`max_rows`).

    Parameters
    ----------
    n_repeats : int, default=5
        R, the number of permutations of each column.
    error : callable, optional
        ``error(y, quantiles, levels) -> float``. By default the mean pinball loss over the fitted levels, because they
        are what is calibrated. An error of the median alone makes every importance zero if the median is constant.
    replace : bool, default=False
        Draw the column's values with replacement instead of permuting them, as the authors' notebook does.
    data : {"train", "calibration"}, default="train"
        Which rows `ICQR` passes. With "calibration" (Algorithm 3 as printed), the calibration rows shape the groups
        that they then calibrate, and the promise is approximate.
    max_rows : int, None or "auto", default="auto"
        Permute at most this many rows in each repeat, drawn at random. Repeats get different rows if there are enough.
        More rows take time and hardly change the weights. None: all rows. "auto": 300, or 8 per column if that is more.

    Examples
    --------
    >>> from sklearn.linear_model import QuantileRegressor
    >>> from icqr.quantiles import QuantileModel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(scale=0.1, size=200)
    >>> model = QuantileModel(QuantileRegressor(alpha=0.0)).fit(X, y, levels=(0.05, 0.5, 0.95))
    >>> table = PermutationImportance().compute(model, X, y, random_state=0)
    >>> table["feature"][table["share"].idxmax()]
    'x0'
    """

    def __init__(
        self,
        n_repeats: int = 5,
        error: ErrorMeasure | None = None,
        replace: bool = False,
        data: str = "train",
        max_rows: int | str | None = "auto",
    ) -> None:
        self.n_repeats = n_repeats
        self.error = error
        self.replace = replace
        self.data = data
        self.max_rows = max_rows

    def compute(
        self,
        model: PredictsQuantiles,
        X: Table,
        y: FloatArray,
        random_state: int | None = None,
        n_jobs: int | None = None,
    ) -> pd.DataFrame:
        """Compute the importances.

        Parameters
        ----------
        model : fitted quantile model
            A `QuantileModel`, or anything with `levels_` and ``predict(X)`` that returns (n, levels) quantiles.
        X, y : table and array
            The rows on which columns are permuted.
        random_state : int, optional
            Seed for the samples and permutations.
        n_jobs : int, optional
            Number of columns to permute at the same time, in threads. The result stays the same.

        Returns
        -------
        DataFrame
            A row per column: `feature`; `mean`, I_j; `std` over the repeats; `share`, I_j over their sum, which is the
            column's weight in the partition (zero if every I_j is); and `error_ratio`, the permuted error over the base
            error (NaN if your own `error` is negative).
        """
        self.check_parameters()
        rng = np.random.default_rng(random_state)

        # Each repeat gets its own `size` rows. Only rows that some repeat gets are prepared.
        size = self._rows_per_repeat(X)
        rows = draw_rows(len(y), max(size, min(self.n_repeats * size, _MOST_PREPARED)), rng)
        X, y = take_rows(X, rows), y[rows]
        rounds = _deal_rows(len(y), size, self.n_repeats, rng)
        seeds = [int(rng.integers(2**63)) for _ in range(X.shape[1])]

        def errors(predictions: Iterable[FloatArray]) -> FloatArray:
            pairs = zip(predictions, rounds, strict=True)
            return np.array([self._error(y[part], q[part], model.levels_) for q, round_ in pairs for part in round_])

        # E_base: of all rows, and of the rows of each repeat.
        replacer = column_replacer(model, X)
        base = self._error(y, replacer.predicted, model.levels_)
        bases = errors([replacer.predicted] * len(rounds))

        # |E_base - E_permuted| of each column, in each repeat.
        def changes(column: int) -> FloatArray:
            # Constant columns are zero as well: some models' predictions differ in the last bits from call to call.
            values = X.iloc[:, column] if isinstance(X, pd.DataFrame) else pd.Series(X[:, column])
            if not replacer.uses(column) or values.nunique(dropna=False) <= 1:
                return np.zeros(self.n_repeats)
            orders = self._orders(len(y), rounds, seeds[column])
            return np.asarray(np.abs(bases - errors(replacer.replace(column, orders))))

        places = counted(range(X.shape[1]), "column")
        columns = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(changes)(j) for j in places)
        return _mean_over_repeats(np.array(columns), base, X)  # I_j is the mean of column j's changes

    def within(self, model: PredictsQuantiles, X: Table, most_predicted: int) -> Self | None:
        """Return the same with fewer rows and repeats, so that at most this many rows are predicted.

        A model that `column_replacer` has a quicker way for gets no limit. If less than 50 rows remain for each column,
        return None: so few say little.

        Examples
        --------
        >>> class Line:
        ...     levels_ = (0.5,)
        ...     predict = lambda self, X: X[:, :1]
        >>> PermutationImportance().within(Line(), np.zeros((1000, 3)), most_predicted=2000)
        PermutationImportance(max_rows=300, n_repeats=1)
        """
        if _has_quick_way(model):
            return self
        n_rows = min(most_predicted // (1 + X.shape[1]), len(X))  # of each column, and once as they are
        if n_rows < FEWEST_ROWS:
            return None
        # Few repeats of many rows say more than many of few rows, in which chance alone changes the error.
        size = min(self._rows_per_repeat(X), n_rows)
        limited: Self = clone(self).set_params(max_rows=size, n_repeats=min(self.n_repeats, n_rows // size))
        return limited

    def _rows_per_repeat(self, X: Table) -> int:
        most = max(300, 8 * X.shape[1]) if isinstance(self.max_rows, str) else self.max_rows
        return len(X) if most is None else min(most, len(X))

    def check_parameters(self) -> None:
        """Raise if a parameter is not allowed."""
        if not isinstance(self.n_repeats, int | np.integer) or self.n_repeats < 1:
            raise ValueError(f"n_repeats must be a whole number, 1 or more, got {self.n_repeats!r}")
        most = self.max_rows
        if most is not None and most != "auto" and (not isinstance(most, int | np.integer) or most < 1):
            raise ValueError(f"max_rows must be a whole number, 1 or more, None for all rows, or 'auto', got {most!r}")
        if self.error is not None and not callable(self.error):
            raise ValueError(f"error must be a function error(y, quantiles, levels) or None, got {self.error!r}")

    def _error(self, y: FloatArray, quantiles: FloatArray, levels: Sequence[float]) -> float:
        error = float((self.error or pinball_loss)(y, quantiles, levels))
        if not math.isfinite(error):
            raise ValueError(f"error must give a finite number, got {error}")
        return error

    def _orders(self, n: int, rounds: list[list[IntArray]], seed: int) -> IntArray:
        """Return (rounds, n) orders, in which rows change places only with rows of the same repeat."""
        rng = np.random.default_rng(seed)
        orders = np.tile(np.arange(n), (len(rounds), 1))
        for order, round_ in zip(orders, rounds, strict=True):
            for part in round_:
                m = len(part)
                order[part] = part[rng.integers(m, size=m) if self.replace else rng.permutation(m)]
        return orders


def _deal_rows(n: int, size: int, n_repeats: int, rng: np.random.Generator) -> list[list[IntArray]]:
    """Deal each repeat `size` of n rows. Repeats in a round have no row in common: one prediction serves them all."""
    rounds, at_once = [], n // size
    for remaining in range(n_repeats, 0, -at_once):
        shuffled = np.arange(n) if size == n else rng.permutation(n)
        rounds.append([np.sort(shuffled[i * size : (i + 1) * size]) for i in range(min(at_once, remaining))])
    return rounds


def _mean_over_repeats(changes: FloatArray, base: float, X: Table) -> pd.DataFrame:
    # Divide by a power of two near the largest change. This is exact, and squares and sums can't overflow or vanish.
    unit = np.ldexp(1.0, np.frexp(changes.max())[1] - 1)
    changes = changes / unit
    mean = changes.mean(axis=1)
    ratio = np.full_like(mean, np.nan)
    if base >= 0:
        with np.errstate(over="ignore", divide="ignore"):
            ratio = 1 + np.divide(mean * unit, base, out=np.zeros_like(mean), where=mean > 0)
    names = list(X.columns) if isinstance(X, pd.DataFrame) else [f"x{j}" for j in range(X.shape[1])]
    return pd.DataFrame(
        {
            "feature": pd.Series(names, dtype=object),
            "mean": mean * unit,
            "std": changes.std(axis=1) * unit,
            "share": mean / mean.sum() if mean.any() else mean,
            "error_ratio": ratio,
        }
    )


# -- Predicting with one column replaced -----------------------------------------------------------------------------


class Replacer(Protocol):
    """Predictions of a quantile model on fixed rows, with one column's values taken from other rows."""

    @property
    def predicted(self) -> FloatArray:
        """The (n, levels) predictions for the rows as they are."""

    def uses(self, column: int) -> bool:
        """Return whether the column can change a prediction at all."""

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Return (R, n, levels) predictions, with the column's values in each of the (R, n) orders."""


def column_replacer(model: Any, X: Table) -> Replacer:
    """Return a `Replacer`, which predicts these rows with one column's values taken from other rows.

    For trees and networks it has a quicker way than predicting again. A model may bring its own, by a method
    `replacer(X)` that returns a `Replacer`.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> model = QuantileModel().fit(X, X.ravel(), levels=(0.05, 0.5, 0.95))
    >>> column_replacer(model, X).replace(0, np.arange(100)[None, ::-1]).shape
    (1, 100, 3)
    """
    if isinstance(model, ResidualQuantiles):
        members = [_member_replacer(member, X) for member in model.centre_.members_]
        return _MovedCentre(members, model.centre_.weights_, np.sort(model.predict_quantiles(X), axis=1))
    if hasattr(model, "replacer"):
        replacer: Replacer = model.replacer(X)
        return replacer
    if not isinstance(model, QuantileModel):
        return _RowReplacer(model.predict, X, lambda column: np.array([column]))

    # Encode the rows only once: how a value is encoded depends on no other row.
    rows = model.encoder_.encode(as_table(X))
    first = model.models_[0]
    fitted = first.estimator if isinstance(first, FrozenEstimator) else first
    quick: Replacer | None
    if isinstance(fitted, ResidualQuantiles) or hasattr(fitted, "replacer"):
        quick = column_replacer(fitted, rows) if tuple(fitted.levels_) == model.levels_ else None
    else:
        quick = tree_replacer(model.models_, rows)
    return _RowReplacer(
        lambda replaced: model.predict_encoded(replaced)[0],
        rows,
        model.encoder_.positions,
        quick,
        model.scale_.unscaled,
    )


def _has_quick_way(model: Any) -> bool:
    """Return whether `column_replacer` need not predict whole rows again, as far as the model's class tells."""
    if isinstance(model, FrozenEstimator):
        return _has_quick_way(model.estimator)
    if isinstance(model, QuantileModel):
        return _has_quick_way(model.models_[0])
    return isinstance(model, ResidualQuantiles) or hasattr(model, "replacer") or can_read(model)


class _RowReplacer:
    """Predicts rows again with one column replaced, or takes a quicker way where there is one.

    `predict` returns sorted (n, levels) quantiles of rows. `positions` returns where a column is in the encoded rows; a
    one-hot column has several positions, and then the `quick` way can't be used. Its predictions need not be sorted or
    in y's unit: `unscaled` brings them there.
    """

    def __init__(
        self,
        predict: Callable[[Any], FloatArray],
        rows: Any,
        positions: Callable[[int], IntArray],
        quick: Replacer | None = None,
        unscaled: Callable[[FloatArray], FloatArray] = np.copy,
    ) -> None:
        self.predict = predict
        self.rows = rows
        self.positions = positions
        self.quick = quick
        self.unscaled = unscaled
        self._stacks: dict[int, Any] = {}

    @cached_property
    def predicted(self) -> FloatArray:
        return self.predict(self.rows) if self.quick is None else _sorted(self.unscaled(self.quick.predicted))

    def uses(self, column: int) -> bool:
        positions = self.positions(column)
        return self.quick is None or len(positions) != 1 or self.quick.uses(int(positions[0]))

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        positions = self.positions(column)
        if self.quick is not None and len(positions) == 1:
            return _sorted(self.unscaled(self.quick.replace(int(positions[0]), orders)))
        copies = min(len(orders), max(1, _MOST_VALUES // self.rows.size))
        stacked = self._stacked(copies)
        parts = []
        for i in range(0, len(orders), copies):
            taken = orders[i : i + copies].ravel()
            if isinstance(self.rows, pd.DataFrame):
                table = stacked.iloc[: len(taken)].copy(deep=False)
                for j in positions:
                    table.isetitem(j, self.rows.iloc[:, j].array.take(taken))
            else:
                table = stacked[: len(taken)].copy()
                table[:, positions] = self.rows[np.ix_(taken, positions)]
            parts.append(self.predict(table).reshape(-1, orders.shape[1], len(self.predicted[0])))
        return np.concatenate(parts)

    def _stacked(self, copies: int) -> Any:
        """Return the rows, several times over, as one table. It is the same for each column, and made once."""
        if copies not in self._stacks:
            is_frame = isinstance(self.rows, pd.DataFrame)
            rows = [self.rows] * copies
            self._stacks[copies] = pd.concat(rows, ignore_index=True) if is_frame else np.concatenate(rows)
        return self._stacks[copies]


def _member_replacer(member: CrossFitted, X: Table) -> Replacer:
    """Return a `Replacer` for one model of a centre: its predictions are (n, 1)."""
    encoder, scale = member.model_.encoder_, member.model_.scale_
    rows = encoder.encode(as_table(X))
    return _RowReplacer(
        lambda replaced: member.predict_encoded(replaced)[:, None],
        rows,
        encoder.positions,
        tree_replacer([member.fitted_], rows),
        scale.unscaled,
    )


class _MovedCentre:
    """Predictions of `ResidualQuantiles`: all levels follow the centre when a column is replaced.

    To predict the residuals again would take long, because the replaced centre is one of their columns.
    """

    def __init__(self, members: list[Replacer], weights: FloatArray, predicted: FloatArray) -> None:
        self.members = members
        self.weights = weights
        self.predicted = predicted

    def uses(self, column: int) -> bool:
        return any(member.uses(column) for member in self.members)

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        moved = self.predicted
        for member, weight in zip(self.members, self.weights, strict=True):
            if member.uses(column):
                moved = moved + weight * (member.replace(column, orders) - member.predicted)
        return np.asarray(np.broadcast_to(moved, (len(orders), *self.predicted.shape)))


def _sorted(quantiles: FloatArray) -> FloatArray:
    """Sort quantiles along the last axis, in place. To save time, sort only the few rows that are out of order."""
    crossed = (np.diff(quantiles, axis=-1) < 0).any(axis=-1)
    quantiles[crossed] = np.sort(quantiles[crossed], axis=-1)
    return quantiles


# -- The leak alarm --------------------------------------------------------------------------------------------------


def leak_alarm(importances: pd.DataFrame, y: FloatArray, median: FloatArray) -> None:
    """Warn if the model is too good to be true, because some columns seem to hold the answer itself.

    There are two signs. Either the median's error is below 2 % of y's mean absolute deviation. Or at most two columns
    hold 95 % of the importance, and permuting one of them multiplies the error by more than 20. A model that knows its
    training rows by heart shows the second sign too. So that sign counts only if the error on new rows is below 10 % of
    y's mean absolute deviation: permuting can't multiply a larger error by 20.

    Parameters
    ----------
    importances : DataFrame
        What `PermutationImportance.compute` returns.
    y, median : arrays
        The target and the predicted median of rows the model was not trained on.

    Examples
    --------
    >>> table = pd.DataFrame({"feature": ["paid", "age"], "share": [0.99, 0.01], "error_ratio": [50.0, 1.5]})
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     leak_alarm(table, np.array([1.0, 9.0]), np.array([1.1, 8.7]))
    >>> "'paid'" in str(caught[0].message)
    True
    """
    top = importances.sort_values("share", ascending=False, kind="stable").head(2)
    spread = float(np.mean(np.abs(y - np.mean(y))))
    error = float(np.mean(np.abs(y - median)))
    reasons = []
    if spread > 0 and error < 0.02 * spread:
        reasons.append(f"the median's error is {error / spread:.2%} of y's mean absolute deviation")
    ratio = float(top["error_ratio"].max())
    if top["share"].sum() >= 0.95 and ratio > 20 and error < 0.1 * spread:
        reasons.append(
            f"the most important columns hold {top['share'].sum():.1%} of the importance, and permuting one makes the "
            f"error {ratio:.0f} times as large"
        )
    if reasons:
        suspects = top[(top["share"] > 0.05) | (top["share"] == top["share"].max())]
        named = " and ".join(repr(name) for name in suspects["feature"])
        warn(
            f"{'Column' if len(suspects) == 1 else 'Columns'} {named} may leak the target: {'; '.join(reasons)}. Drop "
            "what is not known when you predict (a part of the target, or measured after it)."
        )
