"""The paper's feed-forward quantile network; many independent networks are trained as one compiled program."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import lru_cache, partial, reduce
from itertools import repeat
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Self, TypeAlias
from zipfile import BadZipFile

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

try:
    import jax
    import jax.numpy as jnp
    import optax  # type: ignore[import-untyped]
except ImportError:  # reported when a network is fitted: importing the library must not need the extra
    _HAS_JAX = False
else:
    _HAS_JAX = True

FloatArray: TypeAlias = NDArray[np.float64]
Layer: TypeAlias = tuple[Any, Any]  # the weights (networks, out, in) and biases (networks, out) of all networks

_ROWS_PER_BLOCK = 2048  # one block's activations (2048 × 100 doubles) stay in the processor's cache
_EPOCHS_PER_CALL = 20  # between two calls of the compiled program progress is shown and the checkpoint written
_MOST_ORDERS = 10_000_000  # row numbers drawn for one call; fewer epochs are trained in it if they were more
_LARGEST_Y = 1e30  # of a loss of 1000 rows nothing overflows in single precision


class _Settings(NamedTuple):
    """What the compiled program depends on, besides the shapes of its arguments."""

    sizes: tuple[int, ...]
    levels: tuple[float, ...]
    batch_size: int
    share_batches: bool
    patience: int  # 0 without early stopping


class _Rates(NamedTuple):
    """Numbers that the compiled program takes as arguments, so that a search over them compiles once."""

    learning_rate: float
    weight_decay: float


class _Rows(NamedTuple):
    """Training rows, and the rows set aside for early stopping (none of them: it trains for all epochs)."""

    X: Any
    y: Any
    X_validation: Any
    y_validation: Any


class _State(NamedTuple):
    """All that a stopped run needs to go on: arrays with one entry per network, and the number of epochs done."""

    epoch: Any
    layers: list[Layer]
    optimizer: Any
    best_layers: list[Layer]  # at the epoch of the lowest validation loss; empty without early stopping
    best_loss: Any
    best_epoch: Any


# The network and its loss: one network at a time -------------------------------------------------------------------


def _first(weights: Any, X: Any) -> Any:
    """Multiply rows by first-layer weights (..., out, in); units come before rows, so that nothing is transposed."""
    return jnp.einsum("...oi,bi->...ob", weights, X)


def _loss(first: Any, bias: Any, others: Sequence[Layer], y: Any, levels: Sequence[float]) -> Any:
    """Give the sum over the levels of the mean pinball loss, from the first layer's product on."""
    values = first + bias[:, None]
    for weights, bias in others:
        values = weights @ jax.nn.relu(values) + bias[:, None]
    tau = jnp.array(levels, dtype=y.dtype)[:, None]
    error = y - values
    return jnp.maximum(tau * error, (tau - 1) * error).mean(axis=1).sum()


def _losses(layers: Sequence[Layer], X: Any, y: Any, levels: Sequence[float]) -> Any:
    """Give each network's loss on the same rows."""
    return jax.lax.map(lambda one: _loss(_first(one[0][0], X), one[0][1], one[1:], y, levels), list(layers))


def _shared_gradients(layers: Sequence[Layer], X: Any, y: Any, levels: Sequence[float]) -> list[Layer]:
    """Give each network's gradient on the same rows: one large product for the first layers of all networks.

    The upper layers go network by network: their activations then stay in the processor's cache, which on a CPU is
    worth more than larger products.
    """
    (weights, bias), *others = layers
    first, pull_back = jax.vjp(lambda w: _first(w, X), weights)
    upper = jax.grad(_loss, argnums=(0, 1, 2))
    d_first, d_bias, d_others = jax.lax.map(lambda one: upper(*one, y, levels), (first, bias, others))
    return [(pull_back(d_first)[0], d_bias), *d_others]


def _own_gradients(layers: Sequence[Layer], X: Any, y: Any, index: Any, levels: Sequence[float]) -> list[Layer]:
    """Give each network's gradient on its own rows, index (networks, rows)."""

    def one(network: tuple[list[Layer], Any]) -> Any:
        rows = X[network[1]], y[network[1]]
        return jax.grad(lambda own: _loss(_first(own[0][0], rows[0]), own[0][1], own[1:], rows[1], levels))(network[0])

    return jax.lax.map(one, (list(layers), index))  # type: ignore[no-any-return]


# Training ----------------------------------------------------------------------------------------------------------


def _optimizer(rates: _Rates, depth: int) -> Any:
    """Adam with the constants of Keras, on the loss plus weight_decay × the sum of squared weights."""
    penalized = [(True, False)] * depth  # weights, not biases
    return optax.chain(
        optax.add_decayed_weights(2 * rates.weight_decay, penalized),
        optax.adam(rates.learning_rate, b1=0.9, b2=0.999, eps=1e-7),
    )


def _start(settings: _Settings, seed: Any, members: Any) -> _State:
    """Draw Glorot-uniform weights and zero biases; a network's depend on the seed and its index alone."""
    glorot = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=-2)

    def one(index: Any) -> list[Layer]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), len(settings.sizes) - 1)
        shapes = zip(settings.sizes[1:], settings.sizes, strict=False)
        return [(glorot(k, shape, jnp.float32), jnp.zeros(shape[0])) for k, shape in zip(keys, shapes, strict=True)]

    layers = jax.vmap(one)(members)
    count = len(members) if settings.patience else 0
    best = jax.tree.map(jnp.copy, layers) if settings.patience else []
    optimizer = _optimizer(_Rates(0.0, 0.0), len(layers)).init(layers)
    return _State(jnp.int32(0), layers, optimizer, best, jnp.full(count, jnp.inf), jnp.zeros(count, jnp.int32))


def _orders(settings: _Settings, seed: int, members: range, epoch: int, n: int) -> NDArray[np.int32] | None:
    """Draw the order of the n rows in the coming epochs, for each network or one for all: (epochs, networks or 1, n).

    Drawn here and not in the compiled program, where sorting random numbers took up to half of the time. Numbers
    depend on the seed, the network and the epoch alone, so that a stopped run finds the same ones again.
    """
    if n <= settings.batch_size:
        return None
    whose = [[]] if settings.share_batches else [[index] for index in members]
    epochs = range(epoch, epoch + max(1, min(_EPOCHS_PER_CALL, _MOST_ORDERS // (len(whose) * n))))
    orders = [[np.random.default_rng([seed, e, *own]).permutation(n) for own in whose] for e in epochs]
    return np.array(orders, dtype=np.int32)


def _train_epoch(settings: _Settings, rates: _Rates, rows: _Rows, order: Any, state: _State) -> _State:
    """Take one Adam step for each batch; the last batch is smaller if the rows don't divide, as in Keras."""
    adam = _optimizer(rates, len(state.layers))

    def step(carry: Any, index: Any) -> Any:
        layers, optimizer = carry
        if index is None:
            slopes = _shared_gradients(layers, rows.X, rows.y, settings.levels)
        elif settings.share_batches:
            slopes = _shared_gradients(layers, rows.X[index[0]], rows.y[index[0]], settings.levels)
        else:
            slopes = _own_gradients(layers, rows.X, rows.y, index, settings.levels)
        updates, optimizer = adam.update(slopes, optimizer, layers)
        return (optax.apply_updates(layers, updates), optimizer), None

    carry = state.layers, state.optimizer
    if order is None:  # one batch holds all rows, whose order changes nothing but rounding
        carry, _ = step(carry, None)
    else:
        size, whole = settings.batch_size, order.shape[1] // settings.batch_size * settings.batch_size
        batches = order[:, :whole].reshape(len(order), -1, size).swapaxes(0, 1)
        carry, _ = jax.lax.scan(step, carry, batches)
        if whole < order.shape[1]:
            carry, _ = step(carry, order[:, whole:])
    return state._replace(epoch=state.epoch + 1, layers=carry[0], optimizer=carry[1])


def _patient(settings: _Settings, state: _State) -> Any:
    return state.epoch - state.best_epoch < settings.patience


def _keep_best(settings: _Settings, rows: _Rows, state: _State) -> _State:
    """Keep the weights of each network's best epoch; one that lost its patience before stays as it was."""
    loss = _losses(state.layers, rows.X_validation, rows.y_validation, settings.levels)
    better = _patient(settings, state._replace(epoch=state.epoch - 1)) & (loss < state.best_loss)

    def pick(new: Any, old: Any) -> Any:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return state._replace(
        best_layers=jax.tree.map(pick, state.layers, state.best_layers),
        best_loss=jnp.where(better, loss, state.best_loss),
        best_epoch=jnp.where(better, state.epoch, state.best_epoch),
    )


@lru_cache(maxsize=32)
def _programs(settings: _Settings) -> tuple[Callable[..., _State], Callable[..., _State]]:
    """Compile the start and the loop over epochs once for equal settings (and, inside jax, equal shapes)."""

    def run(state: _State, first: Any, until: Any, orders: Any, rows: _Rows, rates: _Rates) -> _State:
        def epoch(state: _State) -> _State:
            order = None if orders is None else orders[state.epoch - first]
            state = _train_epoch(settings, rates, rows, order, state)
            return _keep_best(settings, rows, state) if settings.patience else state

        def goes_on(state: _State) -> Any:
            left = state.epoch < until
            return left & _patient(settings, state).any() if settings.patience else left

        return jax.lax.while_loop(goes_on, epoch, state)

    # Drawing random numbers is short work whose compilation is not: it is left without optimization.
    start = jax.jit(partial(_start, settings), compiler_options={"xla_backend_optimization_level": 0})
    return start, jax.jit(run, donate_argnums=0)


class _Task(NamedTuple):
    """What all chunks of one fit have in common."""

    settings: _Settings
    rates: _Rates
    rows: _Rows
    seed: int
    epochs: int

    def start(self, members: range) -> _State:
        return _programs(self.settings)[0](self.seed, np.array(members))

    def run(self, state: _State, members: range, epochs: int) -> _State:
        """Train on until that epoch, or for as many epochs as orders of rows are drawn at a time."""
        first = int(state.epoch)
        orders = _orders(self.settings, self.seed, members, first, len(self.rows.X))
        until = min(epochs, first + (_EPOCHS_PER_CALL if orders is None else len(orders)))
        return _programs(self.settings)[1](state, first, until, orders, self.rows, self.rates)

    def train(self, members: range, file: Path | None, advance: Callable[[int], None]) -> _State:
        """Train the networks with the given indices together, going on from the file if it is there."""
        state = self.start(members)
        if file is not None and file.exists():
            state = _read(file, state)
        epoch = -1
        advance(int(state.epoch))
        while epoch < int(state.epoch) < self.epochs:  # no epoch done: all networks have lost their patience
            epoch = int(state.epoch)
            state = self.run(state, members, self.epochs)
            if file is not None:
                _write(file, state)
            advance(int(state.epoch) - epoch)
        advance(self.epochs - int(state.epoch))
        return state

    def train_all(
        self, chunks: Sequence[range], files: Sequence[Path | None], n_jobs: int | None, show: Callable[[int], None]
    ) -> list[_State]:
        """Train the chunks in threads: products this small don't make use of a second core by themselves."""
        self.run(self.start(chunks[0]), chunks[0], epochs=0)  # compiles, before all threads do at the same time
        stopped = Event()

        def advance(done: int) -> None:
            if stopped.is_set():
                raise CancelledError
            show(done)

        with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            try:
                return list(pool.map(self.train, chunks, files, repeat(advance)))
            except BaseException:  # also Ctrl-C: the other threads stop after their present call
                stopped.set()
                raise


@contextmanager
def _progress(total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left on a terminal; elsewhere, or without rich, nothing."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Training networks", total=total)
        yield lambda done: bar.advance(task, done)


# Checkpoints -----------------------------------------------------------------------------------------------------


def _write(file: Path, state: _State) -> None:
    """Write the state so that a reader finds the old one or the new one, never a part."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    temporary = file.with_suffix(".part")
    with temporary.open("wb") as stream:
        np.savez(stream, *leaves)
    temporary.replace(file)


def _read(file: Path, like: _State) -> _State:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            leaves = [jnp.asarray(stored[name]) for name in stored.files]
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
        raise ValueError(f"the checkpoint {file} is damaged; delete this file and fit again") from error
    return jax.tree.unflatten(jax.tree.structure(like), leaves)  # type: ignore[no-any-return]


def _open_checkpoint(folder: Path, identity: dict[str, Any]) -> None:
    """Take a new or matching folder; refuse one that belongs to other data or settings, and say which."""
    file = folder / "fingerprint.json"
    if file.exists():
        stored = json.loads(file.read_text(encoding="utf-8"))
        differing = [name for name in identity if stored.get(name) != identity[name]]
        if differing:
            raise ValueError(
                f"checkpoint must be a folder of the same data and settings, but {folder} was written with another "
                f"{', '.join(differing)}; give another folder, or delete this one"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps(identity, indent=1), encoding="utf-8")
    temporary.replace(file)


def _digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(repr((array.shape, array.dtype.str)).encode() + array.tobytes()).hexdigest()


# Prediction: plain numpy in double precision, so that a row's prediction doesn't depend on the rows beside it ----


def _raise_up(layers: Sequence[Layer], first: FloatArray) -> FloatArray:
    """Give one network's quantiles (rows, levels) from its first layer before the ReLU, overwriting that."""
    values = first
    for weights, bias in layers[1:]:
        values = np.maximum(values, 0.0, out=values) @ weights.T
        values += bias
    return values


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS_PER_BLOCK) for start in range(0, n, _ROWS_PER_BLOCK))


class Replacer:
    """Predictions of a fitted `QuantileNetwork` on fixed rows when one column's values are replaced.

    Made by `QuantileNetwork.replacer`. Replacing column j changes the first layer by the outer product of the change
    in x_j and the column's weights, and rows whose value stays the same don't change at all; so only the upper layers
    are computed anew, and only for rows that changed.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = QuantileNetwork(hidden=(8,), epochs=5, random_state=0).fit(X, X[:, 0])
    >>> replacer = model.replacer(X)
    >>> replacer.replace(1, np.stack([X[::-1, 1], X[:, 1]])).shape
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

    @staticmethod
    def _upper(layers: Sequence[Layer], first: FloatArray) -> FloatArray:
        return np.concatenate([_raise_up(layers, first[block].copy()) for block in _blocks(len(first))])

    def replace(self, column: int, values: ArrayLike) -> FloatArray:
        """Predict as if the column held other values, all other columns unchanged.

        Parameters
        ----------
        column : int
            The column's position.
        values : array-like of shape (R, n)
            R times the values of the column, for the n rows in order.

        Returns
        -------
        ndarray of shape (R, n, levels)
            The quantiles, unsorted; with several networks their mean.
        """
        new = np.asarray(values, dtype=np.float64)
        if new.ndim != 2 or new.shape[1] != len(self._X):
            raise ValueError(f"values must have the shape (R, {len(self._X)}), got {new.shape}; give one row a repeat")
        shift = (new - self._X[:, column]) / self._model.x_range_[column]
        repeat, row = np.nonzero(shift)
        quantiles = np.repeat(self._base.mean(axis=0)[None], len(new), axis=0)
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
            [_raise_up(layers, first[row[b]] + np.multiply.outer(shift[b], weights)) for b in _blocks(len(row))]
        )


# The estimator ---------------------------------------------------------------------------------------------------


class QuantileNetwork(RegressorMixin, BaseEstimator):
    """Feed-forward network with one linear head per quantile level, trained by the pinball loss.

    The defaults are the settings of the paper's authors. `fit` does the following.

    1. Columns are scaled to [0, 1] by the training rows' minimum and maximum; y is not scaled.
    2. Weights are drawn Glorot-uniform, biases start at zero.
    3. In each epoch the rows are shuffled and cut into batches, the last one smaller if they don't divide.
    4. Each batch gives one Adam step on the sum over the levels of the mean pinball loss, plus the penalty
       ``weight_decay`` × the sum of all squared weights (the paper's Ω; biases are free).

    With ``n_networks=T`` this is done for T independent networks at once, as one compiled program. Needs jax and
    optax: ``pip install "icqr[neural]"``; predicting doesn't.

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
    validation_size : float, default=0.0
        Share of the rows set aside for early stopping, the same rows for all networks; 0 trains for all epochs.
    patience : int, default=50
        With early stopping, a network stops after so many epochs without a lower validation loss, and keeps the
        weights of its best epoch.
    scale_y : bool, default=False
        Train on y minus its mean over its standard deviation; for targets far from the scale of 1 to 100.
    n_networks : int, default=1
        T. Predictions are the mean over the networks; `predict_networks` gives each one's own.
    share_batches : bool, default=False
        All networks see the rows in the same order. Faster, as the first layer of all networks is then one product;
        the networks differ by their initial weights alone.
    chunk_size : int, default=10
        At most so many networks are trained together, which bounds memory. Networks are spread evenly over the
        chunks. It changes results by rounding only.
    n_jobs : int or None, default=-1
        Threads that train chunks side by side, -1 for one per core. It doesn't change results.
    checkpoint : path, optional
        A folder where the state of training is kept. A stopped fit goes on from there and gives the same weights, to
        the bit, as one that was never stopped. Needs an integer `random_state`.
    random_state : int, RandomState or None
        Network i depends on this and i alone, whatever `n_networks` and `chunk_size`.
    verbose : bool, default=True
        Show a progress bar if stderr is a terminal and rich is installed.

    Attributes
    ----------
    weights_, biases_ : lists of ndarrays (networks, out, in) and (networks, out), one per layer
    x_min_, x_range_ : ndarrays of shape (columns,)
    y_mean_, y_scale_ : float
        0 and 1 without `scale_y`.
    n_epochs_ : ndarray of shape (networks,)
        The epochs that each network's weights come from.
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
        validation_size: float = 0.0,
        patience: int = 50,
        scale_y: bool = False,
        n_networks: int = 1,
        share_batches: bool = False,
        chunk_size: int = 10,
        n_jobs: int | None = -1,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = True,
    ) -> None:
        self.levels = levels
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_size = validation_size
        self.patience = patience
        self.scale_y = scale_y
        self.n_networks = n_networks
        self.share_batches = share_batches
        self.chunk_size = chunk_size
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like of shape (n, columns)
            Numbers, none missing.
        y : array-like of shape (n,)
        """
        if not _HAS_JAX:
            raise ImportError('QuantileNetwork needs jax and optax: pip install "icqr[neural]"')
        self._check_parameters()
        inputs, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        training, validation = self._set_aside(len(target), seed)
        self._fit_scales(inputs[training], target[training])
        inputs = self._scaled(inputs).astype(np.float32)
        target = ((target - self.y_mean_) / self.y_scale_).astype(np.float32)
        parts = inputs[training], target[training], inputs[validation], target[validation]
        rates = _Rates(float(self.learning_rate), float(self.weight_decay))
        rows = _Rows(*map(jnp.asarray, parts))
        self._store(self._train(_Task(self._settings(), rates, rows, seed, int(self.epochs))))
        return self

    def _check_parameters(self) -> None:
        levels = np.asarray(self.levels, dtype=np.float64)
        if levels.ndim != 1 or not len(levels) or (np.diff([0.0, *levels, 1.0]) <= 0).any():
            raise ValueError(
                f"levels must be increasing numbers strictly between 0 and 1, got {self.levels!r}; "
                "for a 90 % interval and the median give (0.05, 0.5, 0.95)"
            )
        counts = {
            name: getattr(self, name) for name in ("epochs", "batch_size", "patience", "n_networks", "chunk_size")
        }
        for name, value in [*counts.items(), *(("hidden", units) for units in self.hidden)]:
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer of 1 or more, got {value!r}; give a positive integer")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ValueError(
                "learning_rate must be positive and weight_decay 0 or more, got "
                f"{self.learning_rate!r} and {self.weight_decay!r}; the authors used 0.001 and 0"
            )
        if not 0 <= self.validation_size < 1:
            raise ValueError(
                f"validation_size must be a share, 0 or more and below 1, got {self.validation_size!r}; "
                "give 0 to train for all epochs without early stopping"
            )
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(
                f"random_state must be an integer when a checkpoint is kept, got {self.random_state!r}: "
                "a stopped run must draw the same numbers again; give for example random_state=0"
            )

    def _set_aside(self, n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give the training rows and, for early stopping, the validation rows."""
        if self.validation_size == 0:
            return np.arange(n), np.arange(0)
        size = max(1, round(n * self.validation_size))
        if size >= n:
            raise ValueError(
                f"validation_size must leave rows to train on, got {self.validation_size} of n_samples={n}; "
                "give more rows, or validation_size=0"
            )
        order = np.random.default_rng(seed).permutation(n)
        return np.sort(order[size:]), np.sort(order[:size])

    def _fit_scales(self, X: FloatArray, y: FloatArray) -> None:
        self.x_min_ = X.min(axis=0)
        spread = X.max(axis=0) - self.x_min_
        self.x_range_ = np.where(spread > 0, spread, 1.0)
        self.y_mean_, self.y_scale_ = (float(y.mean()), float(y.std()) or 1.0) if self.scale_y else (0.0, 1.0)
        largest = float(np.abs((y - self.y_mean_) / self.y_scale_).max())
        if largest > _LARGEST_Y:
            raise ValueError(
                f"y must lie within ±{_LARGEST_Y:g}, as training is in single precision, got a value of size "
                f"{largest:g}; set scale_y=True, or divide y by a constant"
            )

    def _settings(self) -> _Settings:
        levels = tuple(float(level) for level in self.levels)
        return _Settings(
            sizes=(self.n_features_in_, *(int(units) for units in self.hidden), len(levels)),
            levels=levels,
            batch_size=int(self.batch_size),
            share_batches=bool(self.share_batches),
            patience=int(self.patience) if self.validation_size else 0,
        )

    def _train(self, task: _Task) -> list[_State]:
        """Train chunk by chunk; the last one is padded with networks that are then dropped, so that all are alike."""
        n_chunks = -(-self.n_networks // self.chunk_size)
        size = -(-self.n_networks // n_chunks)
        chunks = [range(start, start + size) for start in range(0, n_chunks * size, size)]
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        if folder is not None:
            _open_checkpoint(folder, self._identity(task))
        files = [folder and folder / f"networks-{chunk[0]:05d}.npz" for chunk in chunks]
        with _progress(n_chunks * task.epochs, self.verbose) as show:
            return task.train_all(chunks, files, self.n_jobs, show)

    def _identity(self, task: _Task) -> dict[str, Any]:
        own = {"epochs": task.epochs, "n_networks": self.n_networks, "chunk_size": self.chunk_size}
        data = {name: _digest(np.asarray(array)) for name, array in task.rows._asdict().items()}
        identity = task.settings._asdict() | task.rates._asdict() | own | {"random_state": task.seed} | data
        return json.loads(json.dumps(identity, default=int))  # type: ignore[no-any-return]

    def _store(self, states: list[_State]) -> None:
        """Keep the networks as plain arrays, without the padding."""
        chosen = [state.best_layers or state.layers for state in states]
        together = jax.tree.map(lambda *parts: np.concatenate(parts)[: self.n_networks], *chosen)
        self.weights_ = [weights for weights, _ in together]
        self.biases_ = [bias for _, bias in together]
        if not all(np.isfinite(array).all() for array in self.weights_ + self.biases_):
            raise ValueError(
                f"learning_rate must be small enough for training to converge, got {self.learning_rate} and weights "
                "that are not finite; lower it, or set scale_y=True"
            )
        epochs = np.full(self.n_networks, int(self.epochs))
        best = np.concatenate([state.best_epoch for state in states])[: self.n_networks]
        self.n_epochs_ = best if self.validation_size else epochs
        self.levels_ = tuple(float(level) for level in self.levels)

    def _scaled(self, X: FloatArray) -> FloatArray:
        scaled: FloatArray = (X - self.x_min_) / self.x_range_
        return scaled

    def _unscaled(self, quantiles: FloatArray) -> FloatArray:
        return quantiles * self.y_scale_ + self.y_mean_

    def _networks(self) -> Iterator[list[Layer]]:
        """Give each network's layers in double precision."""
        for t in range(len(self.weights_[0])):
            yield [
                (w[t].astype(np.float64), b[t].astype(np.float64))
                for w, b in zip(self.weights_, self.biases_, strict=True)
            ]

    def _each_network(self, X: ArrayLike) -> Iterator[FloatArray]:
        check_is_fitted(self)
        scaled = self._scaled(validate_data(self, X, dtype=np.float64, reset=False))
        for layers in self._networks():
            weights, bias = layers[0]
            parts = [_raise_up(layers, scaled[block] @ weights.T + bias) for block in _blocks(len(scaled))]
            yield self._unscaled(np.concatenate(parts))

    def predict_networks(self, X: ArrayLike) -> FloatArray:
        """Give each network's own quantiles (networks, n, levels); they may cross and are not sorted."""
        return np.stack(list(self._each_network(X)))

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float] | None = None) -> FloatArray:
        """Give the mean over the networks of each quantile.

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
        columns = [self._position(level) for level in (self.levels_ if levels is None else levels)]
        total = reduce(np.add, self._each_network(X))
        mean: FloatArray = total / len(self.weights_[0])
        return mean[:, columns]

    def _position(self, level: float) -> int:
        near = np.isclose(self.levels_, level, rtol=0, atol=1e-9)  # (1 - 0.9) / 2 is meant to be 0.05
        if not near.any():
            raise ValueError(
                f"levels must be among the fitted ones, {self.levels_}, got {level!r}; "
                f"fit with levels={tuple(sorted({*self.levels_, level}))} to have it"
            )
        return int(near.argmax())

    def predict(self, X: ArrayLike) -> FloatArray:
        """Give the median; 0.5 must be among the levels."""
        return self.predict_quantiles(X, [0.5])[:, 0]

    def network(self, index: int) -> Self:
        """Give one of the networks as a fitted model of its own.

        Examples
        --------
        >>> X = np.linspace(0, 1, 50).reshape(-1, 1)
        >>> model = QuantileNetwork(hidden=(4,), epochs=2, n_networks=3, random_state=0).fit(X, X.ravel())
        >>> bool((model.network(2).predict_quantiles(X) == model.predict_networks(X)[2]).all())
        True
        """
        check_is_fitted(self)
        one = copy(self)
        one.weights_ = [weights[[index]] for weights in self.weights_]
        one.biases_ = [bias[[index]] for bias in self.biases_]
        one.n_epochs_ = self.n_epochs_[[index]]
        return one

    def replacer(self, X: ArrayLike) -> Replacer:
        """Prepare predictions for X with one column replaced; holds networks × n × first-layer units doubles."""
        check_is_fitted(self)
        return Replacer(self, validate_data(self, X, dtype=np.float64, reset=False))
