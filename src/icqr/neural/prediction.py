"""Prediction: plain numpy in double precision, so that a row's prediction doesn't depend on the rows beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from icqr._tables import FloatArray, IntArray

if TYPE_CHECKING:
    from icqr.neural.estimator import QuantileNetwork

Layer: TypeAlias = tuple[Any, Any]  # the weights (networks, out, in) and biases (networks, out) of all networks

_ROWS_PER_BLOCK = 2048  # one block's activations (2048 × 100 doubles) stay in the processor's cache


def raise_up(layers: Sequence[Layer], first: FloatArray) -> FloatArray:
    """Give one network's quantiles (rows, levels) from its first layer before the ReLU, overwriting that."""
    values = first
    for weights, bias in layers[1:]:
        values = np.maximum(values, 0.0, out=values) @ weights.T
        values += bias
    return values


def blocks(n: int) -> Iterator[slice]:
    """Cut n rows into blocks."""
    return (slice(start, start + _ROWS_PER_BLOCK) for start in range(0, n, _ROWS_PER_BLOCK))


class Replacer:
    """Predictions of a fitted `QuantileNetwork` on fixed rows when one column's values are replaced.

    Made by `QuantileNetwork.replacer`. Replacing column j changes the first layer by the outer product of the change
    in x_j and the column's weights, and rows whose value stays the same don't change at all; so only the upper layers
    are computed anew, and only for rows that changed.

    Examples
    --------
    >>> from icqr.neural import QuantileNetwork
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = QuantileNetwork(hidden=(8,), epochs=5, random_state=0).fit(X, X[:, 0])
    >>> replacer = model.replacer(X)
    >>> replacer.replace(1, np.stack([np.arange(200)[::-1], np.arange(200)])).shape
    (2, 200, 3)
    """

    def __init__(self, model: QuantileNetwork, X: FloatArray) -> None:
        self._model = model
        self._X = X
        scaled = model._scaled(X)
        self._first = [scaled @ layers[0][0].T + layers[0][1] for layers in model._networks()]
        self._base = np.stack(
            [self._upper(layers, first) for layers, first in zip(model._networks(), self._first, strict=True)]
        )

    @property
    def predicted(self) -> FloatArray:
        """The quantiles of the rows as they are, unsorted; with several networks their mean."""
        return self._model._unscaled(self._base.mean(axis=0))

    @staticmethod
    def _upper(layers: Sequence[Layer], first: FloatArray) -> FloatArray:
        return np.concatenate([raise_up(layers, first[block].copy()) for block in blocks(len(first))])

    def uses(self, column: int) -> bool:
        """Tell whether the column has different values to be replaced by."""
        return bool(self._X[:, column].min() < self._X[:, column].max())

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Predict as if the column held other rows' values, all other columns unchanged.

        Parameters
        ----------
        column : int
            The column's position.
        orders : array of shape (R, n)
            R times the rows from which the n rows take the column's value.

        Returns
        -------
        ndarray of shape (R, n, levels)
            The quantiles, unsorted; with several networks their mean.
        """
        values = self._X[:, column]
        shift = (values[orders] - values) / self._model.x_range_[column]
        repeat, row = np.nonzero(shift)
        quantiles = np.repeat(self._base.mean(axis=0)[None], len(orders), axis=0)
        if len(row):
            changed = [
                self._changed(layers, first, column, row, shift[repeat, row])
                for layers, first in zip(self._model._networks(), self._first, strict=True)
            ]
            quantiles[repeat, row] = np.mean(changed, axis=0)
        return self._model._unscaled(quantiles)

    @staticmethod
    def _changed(
        layers: Sequence[Layer], first: FloatArray, column: int, row: NDArray[np.intp], shift: FloatArray
    ) -> FloatArray:
        weights = layers[0][0][:, column]
        return np.concatenate(
            [raise_up(layers, first[row[b]] + np.multiply.outer(shift[b], weights)) for b in blocks(len(row))]
        )
