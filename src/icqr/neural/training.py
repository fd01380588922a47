"""T networks trained as one compiled program: the loss, its gradients, the epochs, and chunks in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from joblib import effective_n_jobs
from numpy.typing import NDArray

from icqr.neural.checkpoints import read, write
from icqr.neural.prediction import Layer

_EPOCHS_PER_CALL = 20  # between two calls of the compiled program progress is shown and the checkpoint written
_MOST_ORDERS = 10_000_000  # row numbers drawn for one call; fewer epochs are trained in it if they were more


class Settings(NamedTuple):
    """What the compiled program depends on, besides the shapes of its arguments."""

    sizes: tuple[int, ...]
    levels: tuple[float, ...]
    batch_size: int
    share_batches: bool
    patience: int  # 0 without early stopping


class Rates(NamedTuple):
    """Numbers that the compiled program takes as arguments, so that a search over them compiles once."""

    learning_rate: float
    weight_decay: float


class Rows(NamedTuple):
    """Training rows, and the rows set aside for early stopping (none of them: it trains for all epochs)."""

    X: Any
    y: Any
    X_validation: Any
    y_validation: Any


def rows(*parts: NDArray[np.float32]) -> Rows:
    """Give `Rows` of plain arrays."""
    return Rows(*map(jnp.asarray, parts))


class State(NamedTuple):
    """All that a stopped run needs to go on: arrays with one entry per network, and the number of epochs done."""

    epoch: Any
    layers: list[Layer]
    optimizer: Any
    best_layers: list[Layer]  # at the epoch of the lowest validation loss; empty without early stopping
    best_loss: Any
    best_epoch: Any


# -- The network and its loss, one network at a time -------------------------------------------------------------------


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


# -- Training ----------------------------------------------------------------------------------------------------------


def _optimizer(rates: Rates, depth: int) -> Any:
    """Adam with the constants of Keras, on the loss plus weight_decay × the sum of squared weights."""
    penalized = [(True, False)] * depth  # weights, not biases
    return optax.chain(
        optax.add_decayed_weights(2 * rates.weight_decay, penalized),
        optax.adam(rates.learning_rate, b1=0.9, b2=0.999, eps=1e-7),
    )


def _start(settings: Settings, seed: Any, members: Any) -> State:
    """Draw Glorot-uniform weights and zero biases; a network's depend on the seed and its index alone."""
    glorot = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=-2)

    def one(index: Any) -> list[Layer]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), len(settings.sizes) - 1)
        shapes = zip(settings.sizes[1:], settings.sizes, strict=False)
        return [(glorot(k, shape, jnp.float32), jnp.zeros(shape[0])) for k, shape in zip(keys, shapes, strict=True)]

    layers = jax.vmap(one)(members)
    count = len(members) if settings.patience else 0
    best = jax.tree.map(jnp.copy, layers) if settings.patience else []
    optimizer = _optimizer(Rates(0.0, 0.0), len(layers)).init(layers)
    return State(jnp.int32(0), layers, optimizer, best, jnp.full(count, jnp.inf), jnp.zeros(count, jnp.int32))


def _orders(settings: Settings, seed: int, members: range, epoch: int, n: int) -> NDArray[np.int32] | None:
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


def _train_epoch(settings: Settings, rates: Rates, rows: Rows, order: Any, state: State) -> State:
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


def _patient(settings: Settings, state: State) -> Any:
    return state.epoch - state.best_epoch < settings.patience


def _keep_best(settings: Settings, rows: Rows, state: State) -> State:
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
def _programs(settings: Settings) -> tuple[Callable[..., State], Callable[..., State]]:
    """Compile the start and the loop over epochs once for equal settings (and, inside jax, equal shapes)."""

    def run(state: State, first: Any, until: Any, orders: Any, rows: Rows, rates: Rates) -> State:
        def epoch(state: State) -> State:
            order = None if orders is None else orders[state.epoch - first]
            state = _train_epoch(settings, rates, rows, order, state)
            return _keep_best(settings, rows, state) if settings.patience else state

        def goes_on(state: State) -> Any:
            left = state.epoch < until
            return left & _patient(settings, state).any() if settings.patience else left

        return jax.lax.while_loop(goes_on, epoch, state)

    # Drawing random numbers is short work whose compilation is not: it is left without optimization.
    start = jax.jit(partial(_start, settings), compiler_options={"xla_backend_optimization_level": 0})
    return start, jax.jit(run, donate_argnums=0)


class Task(NamedTuple):
    """What all chunks of one fit have in common."""

    settings: Settings
    rates: Rates
    rows: Rows
    seed: int
    epochs: int

    def start(self, members: range) -> State:
        """Draw the initial weights of the networks with the given indices."""
        return _programs(self.settings)[0](self.seed, np.array(members))

    def run(self, state: State, members: range, epochs: int) -> State:
        """Train on until that epoch, or for as many epochs as orders of rows are drawn at a time."""
        first = int(state.epoch)
        orders = _orders(self.settings, self.seed, members, first, len(self.rows.X))
        until = min(epochs, first + (_EPOCHS_PER_CALL if orders is None else len(orders)))
        return _programs(self.settings)[1](state, first, until, orders, self.rows, self.rates)

    def train(self, members: range, file: Path | None, advance: Callable[[int], None]) -> State:
        """Train the networks with the given indices together, going on from the file if it is there."""
        state = self.start(members)
        if file is not None and file.exists():
            state = jax.tree.unflatten(jax.tree.structure(state), map(jnp.asarray, read(file)))
        epoch = -1
        advance(int(state.epoch))
        while epoch < int(state.epoch) < self.epochs:  # no epoch done: all networks have lost their patience
            epoch = int(state.epoch)
            state = self.run(state, members, self.epochs)
            if file is not None:
                write(file, map(np.asarray, jax.tree.leaves(state)))
            advance(int(state.epoch) - epoch)
        if int(state.epoch) < self.epochs:  # stopped early
            advance(self.epochs - int(state.epoch))
        return state

    def train_all(
        self, chunks: Sequence[range], files: Sequence[Path | None], n_jobs: int | None, show: Callable[[int], None]
    ) -> list[State]:
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
