"""A quantile model's predictions on fixed rows when one column's values are replaced: what importance asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from icqr._tables import FloatArray, IntArray

#: So many values are predicted in one call: a call has a price of its own, and a table its memory.
MOST_VALUES = 2**22


class Replacer:
    """Predictions on fixed rows with one column's values taken from other rows.

    Parameters
    ----------
    predict : callable
        Gives (n, levels) quantiles of rows.
    rows : DataFrame or array
        The rows.
    positions : callable
        Where in the rows a column's values are: a category has several columns when one-hot.
    quick : object with `replace`, optional
        A quicker way to predict with a single column replaced: ``replace(column, orders)`` gives (R, n, levels)
        predictions, not sorted.
    """

    def __init__(
        self, predict: Callable[[Any], FloatArray], rows: Any, positions: Callable[[int], IntArray], quick: Any = None
    ) -> None:
        self.predict = predict
        self.rows = rows
        self.positions = positions
        self.quick = quick

    @cached_property
    def predicted(self) -> FloatArray:
        """The (n, levels) predictions for the rows as they are."""
        return self.predict(self.rows) if self.quick is None else _sorted(self.quick.predicted.copy())

    def uses(self, column: int) -> bool:
        """Tell whether the column can change a prediction at all."""
        positions = self.positions(column)
        return self.quick is None or len(positions) != 1 or bool(self.quick.uses(int(positions[0])))

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Give (R, n, levels) predictions, the column's values in the orders (R, n)."""
        positions = self.positions(column)
        if self.quick is not None and len(positions) == 1:
            return _sorted(self.quick.replace(int(positions[0]), orders))
        copies = len(self._stacked) // len(self.rows)
        parts = [self._predict(positions, orders[i : i + copies]) for i in range(0, len(orders), copies)]
        return np.concatenate(parts)

    @cached_property
    def _stacked(self) -> Any:
        """The rows several times, one below the other."""
        copies = max(1, MOST_VALUES // self.rows.size)
        if isinstance(self.rows, pd.DataFrame):
            return pd.concat([self.rows] * copies, ignore_index=True)
        return np.concatenate([self.rows] * copies)

    def _predict(self, positions: IntArray, orders: IntArray) -> FloatArray:
        taken = orders.ravel()
        if isinstance(self.rows, pd.DataFrame):
            table = self._stacked.iloc[: len(taken)].copy(deep=False)
            for j in positions:
                table.isetitem(j, self.rows.iloc[:, j].array.take(taken))
        else:
            table = self._stacked[: len(taken)].copy()
            table[:, positions] = self.rows[np.ix_(taken, positions)]
        return self.predict(table).reshape(*orders.shape, -1)


class MovedMedian:
    """Predictions in two stages, of which the median follows a replaced column; the distances from it stay.

    To ask the second stage again would take long: the replaced median is one of its columns.

    Parameters
    ----------
    medians : list of Replacer
        Of the models whose mean is the median.
    predicted : array of shape (n, levels)
        The predictions for the rows as they are.
    """

    def __init__(self, medians: list[Replacer], predicted: FloatArray) -> None:
        self.medians = medians
        self.predicted = predicted

    def uses(self, column: int) -> bool:
        """Tell whether the column can change the median."""
        return any(median.uses(column) for median in self.medians)

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Give (R, n, levels) predictions, the column's values in the orders (R, n)."""
        moves = [median.replace(column, orders) - median.predicted for median in self.medians]
        return np.asarray(self.predicted + np.mean(moves, axis=0))


def _sorted(quantiles: FloatArray) -> FloatArray:
    """Sort quantiles along the last axis, in place; few are out of order, and only these take time."""
    crossed = (np.diff(quantiles, axis=-1) < 0).any(axis=-1)
    quantiles[crossed] = np.sort(quantiles[crossed], axis=-1)
    return quantiles
