"""Training of `icqr.neural.QuantileNetwork`: many networks as one compiled program. Needs jax and optax."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from joblib import effective_n_jobs
from numpy.typing import NDArray

from icqr._files import replacing

if TYPE_CHECKING:
    from icqr.neural import QuantileNetwork

Array: TypeAlias = Any  # of jax or numpy: compiled functions take both
Layer: TypeAlias = tuple[Array, Array]  # weights (networks, out, in) and biases (networks, out) of all networks

_EPOCHS_PER_CALL = 20  # between two calls of the compiled program progress is shown and the checkpoint written
_MOST_ORDERS = 10_000_000  # row numbers drawn for one call; above it, a call trains fewer epochs


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
    """Training rows, and the rows set aside for early stopping (none without it)."""

    X: Array
    y: Array
    X_validation: Array
    y_validation: Array


class State(NamedTuple):
    """All that a stopped run needs to go on: arrays with one entry per network, and the number of epochs done."""

    epoch: Array
    layers: list[Layer]
    optimizer: Any
    best_layers: list[Layer]  # at the epoch of the lowest validation loss; empty without early stopping
    best_loss: Array
    best_epoch: Array


# -- The loss and its gradient, one network at a time ------------------------------------------------------------------


def _first_product(weights: Array, X: Array) -> Array:
    """Multiply rows by first-layer weights (..., out, in); units come before rows, so that nothing is transposed."""
    return jnp.einsum("...oi,bi->...ob", weights, X)


def _loss_above(first: Array, bias: Array, upper: Sequence[Layer], y: Array, levels: Sequence[float]) -> Array:
    """Return the sum over the levels of the mean pinball loss, from the first layer's product on."""
    values = first + bias[:, None]
    for weights, bias in upper:
        values = weights @ jax.nn.relu(values) + bias[:, None]
    tau = jnp.array(levels, dtype=y.dtype)[:, None]
    error = y - values
    return jnp.maximum(tau * error, (tau - 1) * error).mean(axis=1).sum()


def _loss(layers: Sequence[Layer], X: Array, y: Array, levels: Sequence[float]) -> Array:
    (weights, bias), *upper = layers
    return _loss_above(_first_product(weights, X), bias, upper, y, levels)


def _shared_gradients(layers: Sequence[Layer], X: Array, y: Array, levels: Sequence[float]) -> list[Layer]:
    """Return each network's gradient on the same rows: one large product for the first layers of all networks.

    The upper layers go network by network: their activations then stay in the processor's cache, which on a CPU is
    worth more than larger products.
    """
    (weights, bias), *upper = layers
    first, pull_back = jax.vjp(lambda w: _first_product(w, X), weights)
    gradient = jax.grad(_loss_above, argnums=(0, 1, 2))
    d_first, d_bias, d_upper = jax.lax.map(lambda network: gradient(*network, y, levels), (first, bias, upper))
    return [(pull_back(d_first)[0], d_bias), *d_upper]


# -- The compiled program ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _programs(settings: Settings) -> tuple[Callable[..., State], Callable[..., State]]:
    """Compile the start and the loop over epochs once for equal settings (and, inside jax, equal shapes)."""

    def run(state: State, first: Array, until: Array, orders: Array, rows: Rows, rates: Rates) -> State:
        def epoch(state: State) -> State:
            order = None if orders is None else orders[state.epoch - first]
            state = _train_epoch(settings, rates, rows, order, state)
            return _keep_best(settings, rows, state) if settings.patience else state

        def goes_on(state: State) -> Array:
            is_patient = state.epoch - state.best_epoch < settings.patience
            return (state.epoch < until) & (is_patient.any() if settings.patience else True)

        return jax.lax.while_loop(goes_on, epoch, state)

    # Drawing random numbers is short work whose compilation is not: it is left without optimization.
    start = jax.jit(partial(_start, settings), compiler_options={"xla_backend_optimization_level": 0})
    return start, jax.jit(run, donate_argnums=0)


def _start(settings: Settings, seed: Array, members: Array) -> State:
    """Draw Glorot-uniform weights and zero biases; a network's depend on the seed and its index alone."""
    glorot = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=-2)

    def draw(index: Array) -> list[Layer]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), len(settings.sizes) - 1)
        shapes = zip(settings.sizes[1:], settings.sizes, strict=False)
        return [(glorot(k, shape, jnp.float32), jnp.zeros(shape[0])) for k, shape in zip(keys, shapes, strict=True)]

    layers = jax.vmap(draw)(members)
    count = len(members) if settings.patience else 0
    best = jax.tree.map(jnp.copy, layers) if settings.patience else []
    optimizer = _optimizer(Rates(0.0, 0.0), len(layers)).init(layers)
    return State(jnp.int32(0), layers, optimizer, best, jnp.full(count, jnp.inf), jnp.zeros(count, jnp.int32))


def _optimizer(rates: Rates, depth: int) -> Any:
    """Adam with the constants of Keras, on the loss plus weight_decay × the sum of squared weights."""
    penalized = [(True, False)] * depth  # weights, not biases
    return optax.chain(
        optax.add_decayed_weights(2 * rates.weight_decay, penalized),
        optax.adam(rates.learning_rate, b1=0.9, b2=0.999, eps=1e-7),
    )


def _train_epoch(settings: Settings, rates: Rates, rows: Rows, order: Array, state: State) -> State:
    """Take one Adam step for each batch; the last batch is smaller if the rows don't divide, as in Keras."""
    adam = _optimizer(rates, len(state.layers))

    def own_gradient(network: tuple[list[Layer], Array]) -> Array:
        layers, own = network
        return jax.grad(_loss)(layers, rows.X[own], rows.y[own], settings.levels)

    def step(carry: Any, index: Array) -> Any:
        layers, optimizer = carry
        if index is None:
            slopes = _shared_gradients(layers, rows.X, rows.y, settings.levels)
        elif settings.share_batches:
            slopes = _shared_gradients(layers, rows.X[index[0]], rows.y[index[0]], settings.levels)
        else:
            slopes = jax.lax.map(own_gradient, (layers, index))
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


def _keep_best(settings: Settings, rows: Rows, state: State) -> State:
    """Keep the weights of each network's best epoch; one that lost its patience before stays as it was."""
    loss = jax.lax.map(
        lambda layers: _loss(layers, rows.X_validation, rows.y_validation, settings.levels), state.layers
    )
    better = (state.epoch - 1 - state.best_epoch < settings.patience) & (loss < state.best_loss)

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return state._replace(
        best_layers=jax.tree.map(pick, state.layers, state.best_layers),
        best_loss=jnp.where(better, loss, state.best_loss),
        best_epoch=jnp.where(better, state.epoch, state.best_epoch),
    )


# -- Chunks of networks, in threads ------------------------------------------------------------------------------------


def train_networks(
    model: QuantileNetwork, parts: Sequence[NDArray[np.float32]], seed: int
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]], NDArray[np.integer]]:
    """Train a model's networks; return their weights and biases layer by layer, and the epochs they come from.

    `parts` are the scaled rows: X, y, X_validation, y_validation.
    """
    # The last chunk is padded with networks that are dropped at the end, so that one program serves all chunks.
    n_chunks = -(-model.n_networks // model.chunk_size)
    size = -(-model.n_networks // n_chunks)
    chunks = [range(start, start + size) for start in range(0, n_chunks * size, size)]

    levels = tuple(float(level) for level in model.levels)
    settings = Settings(
        sizes=(parts[0].shape[1], *(int(units) for units in model.hidden), len(levels)),
        levels=levels,
        batch_size=int(model.batch_size),
        share_batches=bool(model.share_batches),
        patience=int(model.patience) if model.validation_size else 0,
    )
    rates = Rates(float(model.learning_rate), float(model.weight_decay))
    task = _Task(settings, rates, Rows(*map(jnp.asarray, parts)), seed, int(model.epochs))
    folder = None if model.checkpoint is None else Path(model.checkpoint)
    if folder is not None:
        _claim_folder(folder, task, {"n_networks": model.n_networks, "chunk_size": model.chunk_size})

    with _progress(n_chunks * task.epochs, model.verbose) as show:
        states = task.train(chunks, folder, model.n_jobs, show)

    # Plain arrays, without the padding.
    layers = zip(*(state.best_layers or state.layers for state in states), strict=True)
    joined = [[np.concatenate(arrays)[: model.n_networks] for arrays in zip(*layer, strict=True)] for layer in layers]
    best_epoch = np.concatenate([state.best_epoch for state in states])[: model.n_networks]
    n_epochs = best_epoch if settings.patience else np.full(model.n_networks, task.epochs)
    return [weights for weights, _ in joined], [biases for _, biases in joined], n_epochs


class _Task(NamedTuple):
    """What all chunks of one fit have in common."""

    settings: Settings
    rates: Rates
    rows: Rows
    seed: int
    epochs: int

    def train(
        self, chunks: Sequence[range], folder: Path | None, n_jobs: int | None, show: Callable[[int], None]
    ) -> list[State]:
        """Train the chunks in threads: products this small don't make use of a second core by themselves."""
        self.run(self.start(chunks[0]), chunks[0], epochs=0)  # compiles, before all threads do at the same time
        stopped = Event()

        def advance(epochs: int) -> None:
            if stopped.is_set():
                raise CancelledError
            show(epochs)

        with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            try:
                return list(pool.map(lambda members: self.train_chunk(members, folder, advance), chunks))
            except BaseException:  # also Ctrl-C: the other threads stop after their present call
                stopped.set()
                raise

    def train_chunk(self, members: range, folder: Path | None, advance: Callable[[int], None]) -> State:
        """Train the networks with these indices together, going on from their checkpoint if there is one."""
        state = self.start(members)
        file = None if folder is None else folder / f"networks-{members[0]:05d}.npz"
        if file is not None and file.exists():
            try:
                with file.open("rb") as packed, np.load(packed, allow_pickle=False) as stored:
                    arrays = [jnp.asarray(stored[name]) for name in stored.files]
            except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
                raise ValueError(f"the checkpoint {file} is damaged; delete this file and fit again") from error
            state = jax.tree.unflatten(jax.tree.structure(state), arrays)

        epoch = -1
        advance(int(state.epoch))
        while epoch < int(state.epoch) < self.epochs:  # a call without an epoch: all networks have lost their patience
            epoch = int(state.epoch)
            state = self.run(state, members, self.epochs)
            if file is not None:
                with replacing(file) as part, part.open("wb") as stream:
                    np.savez(stream, *map(np.asarray, jax.tree.leaves(state)))
            advance(int(state.epoch) - epoch)
        if int(state.epoch) < self.epochs:  # stopped early
            advance(self.epochs - int(state.epoch))
        return state

    def start(self, members: range) -> State:
        """Draw the initial weights of the networks with these indices."""
        return _programs(self.settings)[0](self.seed, np.array(members))

    def run(self, state: State, members: range, epochs: int) -> State:
        """Train on until that epoch, or for as many epochs as orders of rows are drawn at a time."""
        first = int(state.epoch)
        orders = self.orders(members, first)
        until = min(epochs, first + (_EPOCHS_PER_CALL if orders is None else len(orders)))
        return _programs(self.settings)[1](state, first, until, orders, self.rows, self.rates)

    def orders(self, members: range, epoch: int) -> NDArray[np.int32] | None:
        """Draw the order of the rows in the coming epochs, for each network or one for all: (epochs, networks or 1, n).

        Drawn here and not in the compiled program, where sorting random numbers took up to half of the time. Numbers
        depend on the seed, the network and the epoch alone, so that a stopped run finds the same ones again.
        """
        n = len(self.rows.X)
        if n <= self.settings.batch_size:
            return None
        streams = [[]] if self.settings.share_batches else [[index] for index in members]
        epochs = range(epoch, epoch + max(1, min(_EPOCHS_PER_CALL, _MOST_ORDERS // (len(streams) * n))))
        orders = [[np.random.default_rng([self.seed, e, *own]).permutation(n) for own in streams] for e in epochs]
        return np.array(orders, dtype=np.int32)


# -- Checkpoints and progress ------------------------------------------------------------------------------------------


def _claim_folder(folder: Path, task: _Task, sizes: dict[str, int]) -> None:
    """Take a new or matching folder; refuse one that belongs to other data or settings, and say which."""
    data = {
        name: hashlib.sha256(repr((array.shape, array.dtype.str)).encode() + array.tobytes()).hexdigest()
        for name, array in zip(Rows._fields, map(np.asarray, task.rows), strict=True)
    }
    own = {"epochs": task.epochs, "random_state": task.seed} | sizes
    identity = json.dumps(task.settings._asdict() | task.rates._asdict() | own | data, indent=1, default=int)

    file = folder / "fingerprint.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as part:
            part.write_text(identity, encoding="utf-8")
        return
    stored = json.loads(file.read_text(encoding="utf-8"))
    differing = [name for name, value in json.loads(identity).items() if stored.get(name) != value]
    if differing:
        raise ValueError(
            f"checkpoint must be a folder of the same data and settings, but {folder} was written with another "
            f"{', '.join(differing)}; give another folder, or delete this one"
        )


@contextmanager
def _progress(total: int, verbose: bool | Callable[[int, int], None]) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with epochs just done: it tells `verbose`, or moves a bar if stderr is a terminal."""
    if callable(verbose):
        lock, done = Lock(), 0  # chunks are trained in threads

        def advance(epochs: int) -> None:
            nonlocal done
            with lock:
                done += epochs
                verbose(done, total)

        yield advance
    elif verbose and sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("Training networks", total=total)
            yield lambda epochs: bar.advance(task, epochs)
    else:
        yield lambda epochs: None
