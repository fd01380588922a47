"""The paper's feed-forward quantile network, and ensembles of it.

`QuantileNetwork` is the estimator, `_compiled_program` the network's loss and Adam step on jax, `_Training` the loop
over epochs, batches and networks, `NetworkReplacer` the quick way to permutation importance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from copy import copy
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from zipfile import BadZipFile

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from icqr._files import replacing
from icqr._messages import imported
from icqr._tables import FloatArray, IntArray

if TYPE_CHECKING:
    from jax import Array

__all__ = ["QuantileNetwork"]

Layers: TypeAlias = list[tuple[FloatArray, FloatArray]]  # weights (out, in) and biases (out,) of one network
TrainedArrays: TypeAlias = list[NDArray[np.float32]]  # the same as training leaves them, layer after layer
State: TypeAlias = "tuple[list[tuple[Array, Array]], Any]"  # a network's layers while it trains, and Adam's moments

_ROWS_PER_BLOCK = 2048  # one block's activations (2048 × 100 doubles) stay in the processor's cache


class QuantileNetwork(RegressorMixin, BaseEstimator):
    """Feed-forward network with one linear head per quantile level, trained by the pinball loss.

    The defaults are the settings of the paper's authors. `fit` does the following.

    1. Columns are scaled to [0, 1] by the training rows' minimum and maximum; y is not scaled.
    2. Weights are drawn Glorot-uniform, biases start at zero.
    3. In each epoch the rows are shuffled and cut into batches, the last one smaller if they don't divide.
    4. Each batch gives one Adam step on the sum over the levels of the mean pinball loss, plus the penalty
       ``weight_decay`` × the sum of all squared weights (the paper's Ω; biases are free).

    With ``n_networks=T`` this is done for T independent networks, several at a time. Needs jax and optax:
    ``pip install "icqr[neural]"``; predicting doesn't.

    Parameters
    ----------
    levels : tuple of float, default=(0.05, 0.5, 0.95)
        Quantile levels, increasing; ``(0.05, 0.95)`` is the two-headed network of the paper's text.
    hidden : tuple of int, default=(100, 50, 25)
        Units of the hidden layers, all with ReLU; ``()`` is linear quantile regression.
    epochs, batch_size : int, default=1000
        Passes over the training rows, and rows per step.
    learning_rate : float, default=1e-3
        Adam's step size; its other constants are those of Keras (0.9, 0.999, 1e-7).
    weight_decay : float, default=0.0
        Factor of the penalty in step 4.
    n_networks : int, default=1
        T. Predictions are the mean over the networks; `network` returns one of them.
    n_jobs : int or None, default=-1
        Threads that train networks side by side, -1 for one per core. It doesn't change results.
    checkpoint : path, optional
        A folder where finished networks are kept. A fit that was stopped and starts again takes them from there. Files
        carry a fingerprint of rows and parameters, so that those of another fit are never taken. Needs an integer
        `random_state`.
    random_state : int, RandomState or None
        Network i depends on this and i alone, whatever `n_networks`.
    progress : callable, optional
        Called after each epoch with the epochs done and the epochs in all, both summed over the networks.

    Attributes
    ----------
    weights_, biases_ : lists of ndarrays (networks, out, in) and (networks, out), one per layer
    x_min_, x_range_ : ndarrays of shape (columns,)
    levels_ : tuple of float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = X[:, 0] + rng.normal(scale=0.1, size=500)
    >>> model = QuantileNetwork(hidden=(20,), epochs=300, learning_rate=0.01, random_state=0).fit(X, y)
    >>> model.predict_quantiles([[0.5]]).round(1)
    array([[0.3, 0.5, 0.7]])
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    def __init__(
        self,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        hidden: Sequence[int] = (100, 50, 25),
        epochs: int = 1000,
        batch_size: int = 1000,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        n_networks: int = 1,
        n_jobs: int | None = -1,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.levels = levels
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_networks = n_networks
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like of shape (n, columns)
            Numbers, none missing.
        y : array-like of shape (n,)
        """
        for library in ("jax", "optax"):
            imported(library, "training a QuantileNetwork needs", "icqr[neural]")
        self._check_parameters()
        inputs, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        largest = float(np.abs(target).max())
        if largest > float(np.finfo(np.float32).max):
            raise ValueError(
                f"y must lie within ±3.4e38, as training is in single precision, got a value of size {largest:g}; "
                "divide y by a constant"
            )

        # The training rows span [0, 1] in every column; a constant column becomes 0.
        self.x_min_ = inputs.min(axis=0)
        spread = inputs.max(axis=0) - self.x_min_
        self.x_range_ = np.where(spread > 0, spread, 1.0)
        rows = self._scaled(inputs).astype(np.float32), target.astype(np.float32)
        networks = _Training(self, *rows, seed).run()

        # One array for each layer's weights and one for its biases, with all networks in it.
        arrays = [np.stack(parts) for parts in zip(*networks, strict=True)]
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError(
                f"learning_rate must be small enough for training to converge, got {self.learning_rate} and weights "
                "that are not finite; lower it, or divide y by a constant"
            )
        self.weights_, self.biases_ = arrays[::2], arrays[1::2]
        self.levels_ = tuple(float(level) for level in self.levels)
        return self

    def _check_parameters(self) -> None:
        levels = np.asarray(self.levels, dtype=np.float64)
        if levels.ndim != 1 or not len(levels) or (np.diff([0.0, *levels, 1.0]) <= 0).any():
            raise ValueError(
                f"levels must be increasing numbers strictly between 0 and 1, got {self.levels!r}; "
                "for a 90 % interval and the median give (0.05, 0.5, 0.95)"
            )
        counts = [(name, getattr(self, name)) for name in ("epochs", "batch_size", "n_networks")]
        for name, value in [*counts, *(("hidden", units) for units in self.hidden)]:
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer of 1 or more, got {value!r}; give a positive integer")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ValueError(
                "learning_rate must be positive and weight_decay 0 or more, got "
                f"{self.learning_rate!r} and {self.weight_decay!r}; the authors used 0.001 and 0"
            )
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(
                f"random_state must be an integer when a checkpoint is kept, got {self.random_state!r}: "
                "a stopped run must draw the same numbers again; give for example random_state=0"
            )

    # -- Predicting: plain numpy in double precision, so that a prediction doesn't depend on the rows beside it --------

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float] | None = None) -> FloatArray:
        """Return the mean over the networks of each quantile.

        Parameters
        ----------
        X : array-like of shape (n, columns)
        levels : sequence of float, optional
            Some of the fitted levels; all of them by default.

        Returns
        -------
        ndarray of shape (n, levels)
            They may cross and are not sorted.
        """
        check_is_fitted(self)
        columns = []
        for level in self.levels_ if levels is None else levels:
            near = np.isclose(self.levels_, level, rtol=0, atol=1e-9)  # (1 - 0.9) / 2 is meant to be 0.05
            if not near.any():
                raise ValueError(
                    f"levels must be among the fitted ones, {self.levels_}, got {level!r}; "
                    f"fit with levels={tuple(sorted({*self.levels_, level}))} to have it"
                )
            columns.append(int(near.argmax()))

        scaled = self._scaled(validate_data(self, X, dtype=np.float64, reset=False))
        total = np.zeros((len(scaled), len(self.levels_)))
        for layers in self._networks():
            weights, biases = layers[0]
            for rows in _blocks(len(scaled)):
                total[rows] += _upper_layers(layers, scaled[rows] @ weights.T + biases)
        return np.asarray(total / len(self.weights_[0]))[:, columns]

    def predict(self, X: ArrayLike) -> FloatArray:
        """Return the median; 0.5 must be among the levels."""
        return self.predict_quantiles(X, [0.5])[:, 0]

    def network(self, index: int) -> Self:
        """Return one of the networks as a fitted model of its own.

        Examples
        --------
        >>> X = np.linspace(0, 1, 50).reshape(-1, 1)
        >>> model = QuantileNetwork(hidden=(4,), epochs=2, n_networks=3, random_state=0).fit(X, X.ravel())
        >>> each = [model.network(index).predict_quantiles(X) for index in range(3)]
        >>> np.allclose(model.predict_quantiles(X), np.mean(each, axis=0))
        True
        """
        check_is_fitted(self)
        single = copy(self)
        single.weights_ = [weights[[index]] for weights in self.weights_]
        single.biases_ = [biases[[index]] for biases in self.biases_]
        return single

    def replacer(self, X: ArrayLike) -> NetworkReplacer:
        """Prepare predictions for X with one column replaced; holds networks × n × first-layer units doubles."""
        return NetworkReplacer(self, X)

    def _networks(self) -> Iterator[Layers]:
        """Yield each network's layers in double precision."""
        for t in range(len(self.weights_[0])):
            pairs = zip(self.weights_, self.biases_, strict=True)
            yield [(weights[t].astype(np.float64), biases[t].astype(np.float64)) for weights, biases in pairs]

    def _scaled(self, X: FloatArray) -> FloatArray:
        scaled: FloatArray = (X - self.x_min_) / self.x_range_
        return scaled


# -- Training ----------------------------------------------------------------------------------------------------------


@cache
def _compiled_program() -> tuple[Callable[..., State], Callable[..., State]]:
    """Return two compiled functions: a network's start, and one epoch of its training."""
    # Imported here, because predicting doesn't need them.
    import jax
    import jax.numpy as jnp
    import optax  # type: ignore[import-untyped]

    def adam(learning_rate: Array | float) -> Any:
        return optax.adam(learning_rate, b1=0.9, b2=0.999, eps=1e-7)  # the constants of Keras

    def start(sizes: tuple[int, ...], seed: Array, index: Array) -> State:
        """Draw Glorot-uniform weights; biases start at zero."""
        glorot = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=-2)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), len(sizes) - 1)
        shapes = zip(sizes[1:], sizes, strict=False)
        layers = [(glorot(k, shape, jnp.float32), jnp.zeros(shape[0])) for k, shape in zip(keys, shapes, strict=True)]
        return layers, adam(0.0).init(layers)

    def loss(layers: list[tuple[Array, Array]], X: Array, y: Array, levels: Array, weight_decay: Array) -> Array:
        """Return the mean pinball loss, summed over the levels, plus the penalty on the weights."""
        values = X.T  # units come before rows, so that nothing else is transposed
        for depth, (weights, biases) in enumerate(layers):
            values = weights @ (jax.nn.relu(values) if depth else values) + biases[:, None]
        tau, error = levels[:, None], y - values
        pinball = jnp.maximum(tau * error, (tau - 1) * error).mean(axis=1).sum()
        return pinball + weight_decay * sum(jnp.square(weights).sum() for weights, _ in layers)

    def epoch(
        state: State, batches: Array, rest: Array, X: Array, y: Array, levels: Array, rate: Array, weight_decay: Array
    ) -> State:
        """Take an Adam step on each batch of rows, the last one smaller if the rows don't divide."""

        def step(state: State, rows: Array) -> tuple[State, None]:
            layers, moments = state
            slopes = jax.grad(loss)(layers, X[rows], y[rows], levels, weight_decay)
            updates, moments = adam(rate).update(slopes, moments)
            return (optax.apply_updates(layers, updates), moments), None

        state, _ = jax.lax.scan(step, state, batches)
        return step(state, rest)[0] if len(rest) else state

    # Drawing random numbers is short work whose compilation is not: it is left without optimization.
    start_options = {"xla_backend_optimization_level": 0}
    return jax.jit(start, static_argnums=0, compiler_options=start_options), jax.jit(epoch, donate_argnums=0)


class _Training:
    """The training of a model's networks on scaled rows; network i depends on these, the parameters and i alone."""

    def __init__(self, model: QuantileNetwork, X: NDArray[np.float32], y: NDArray[np.float32], seed: int) -> None:
        import jax.numpy as jnp

        self.model, self.seed, self.n = model, seed, len(X)
        self.start, self.train_epoch = _compiled_program()
        levels = tuple(float(level) for level in model.levels)
        self.sizes = (X.shape[1], *(int(units) for units in model.hidden), len(levels))
        numbers = levels, float(model.learning_rate), float(model.weight_decay)
        self.arguments = [jnp.asarray(array, dtype=jnp.float32) for array in (X, y, *numbers)]
        self.lock, self.stopped, self.done = Lock(), Event(), 0

        # Files of finished networks are named after all that these depend on.
        settings = repr((numbers, self.sizes, int(model.epochs), int(model.batch_size), seed, X.shape))
        self.key = hashlib.sha256(settings.encode() + X.tobytes() + y.tobytes()).hexdigest()[:16]

    def run(self) -> list[TrainedArrays]:
        """Train all networks, in threads: products this small don't make use of a second core by themselves."""
        with ThreadPoolExecutor(effective_n_jobs(self.model.n_jobs)) as pool:
            try:
                return list(pool.map(self._train_or_read, range(self.model.n_networks)))
            except BaseException:  # also Ctrl-C: the other threads stop after their present epoch
                self.stopped.set()
                raise

    def _train_or_read(self, index: int) -> TrainedArrays:
        """Train one network, or read it from its file if it was finished before."""
        if self.model.checkpoint is None:
            return self._train(index)
        file = Path(self.model.checkpoint) / f"{self.key}-{index:05d}.npz"
        if not file.exists():
            arrays = self._train(index)
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as part, part.open("wb") as stream:
                np.savez(stream, *arrays)
            return arrays

        try:
            with file.open("rb") as packed, np.load(packed, allow_pickle=False) as stored:
                arrays = [stored[name] for name in stored.files]
        except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
            raise ValueError(f"the checkpoint {file} is damaged; delete this file and fit again") from error
        self._advance(self.model.epochs)
        return arrays

    def _train(self, index: int) -> TrainedArrays:
        """Train one network: each epoch has an order of the rows of its own, cut into batches."""
        state = self.start(self.sizes, self.seed, index)
        batch_size = min(int(self.model.batch_size), self.n)
        whole = self.n // batch_size * batch_size
        for epoch in range(self.model.epochs):
            order = np.random.default_rng([self.seed, epoch, index]).permutation(self.n)
            state = self.train_epoch(state, order[:whole].reshape(-1, batch_size), order[whole:], *self.arguments)
            self._advance(1)
        return [np.asarray(array) for layer in state[0] for array in layer]

    def _advance(self, epochs: int) -> None:
        """Count finished epochs and tell the user's callable; stop here if another thread has failed."""
        with self.lock:
            if self.stopped.is_set():
                raise CancelledError
            self.done += epochs
            if self.model.progress is not None:
                self.model.progress(self.done, self.model.n_networks * self.model.epochs)


# -- Predicting with replaced columns ----------------------------------------------------------------------------------


def _upper_layers(layers: Layers, first: FloatArray) -> FloatArray:
    """Return one network's (rows, levels) quantiles from its first layer's values before the ReLU, overwriting them."""
    values = first
    for weights, biases in layers[1:]:
        values = np.maximum(values, 0.0, out=values) @ weights.T
        values += biases
    return values


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS_PER_BLOCK) for start in range(0, n, _ROWS_PER_BLOCK))


class NetworkReplacer:
    """Predictions of a fitted network on fixed rows when one column's values are replaced, for permutation importance.

    Replacing column j changes the first layer by the outer product of the change in x_j and the column's weights. So
    only the layers above are computed anew, and only for rows whose value changes.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = QuantileNetwork(hidden=(8,), epochs=5, random_state=0).fit(X, X[:, 0])
    >>> replacer = model.replacer(X)
    >>> replacer.replace(1, np.stack([np.arange(200)[::-1], np.arange(200)])).shape
    (2, 200, 3)
    """

    def __init__(self, model: QuantileNetwork, X: ArrayLike) -> None:
        self.predicted = model.predict_quantiles(X)
        self._X = validate_data(model, X, dtype=np.float64, reset=False)
        self._x_range = model.x_range_
        scaled = model._scaled(self._X)
        self._networks = [(layers, scaled @ layers[0][0].T + layers[0][1]) for layers in model._networks()]

    def uses(self, column: int) -> bool:
        """Return whether the column has different values to be replaced by."""
        return bool(self._X[:, column].min() < self._X[:, column].max())

    def replace(self, column: int, orders: IntArray) -> FloatArray:
        """Return (R, n, levels) predictions, not sorted, with the column's values taken in the orders (R, n)."""
        values = self._X[:, column]
        shift = (values[orders] - values) / self._x_range[column]
        repeat, row = np.nonzero(shift)
        quantiles = np.repeat(self.predicted[None], len(orders), axis=0)
        for block in _blocks(len(row)):
            # Of each network, the first layer moved by the change of the column, and the layers above it.
            repeats, rows = repeat[block], row[block]
            moved = [
                _upper_layers(layers, first[rows] + np.multiply.outer(shift[repeats, rows], layers[0][0][:, column]))
                for layers, first in self._networks
            ]
            quantiles[repeats, rows] = np.mean(moved, axis=0)
        return quantiles
