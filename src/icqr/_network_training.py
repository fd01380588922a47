"""Training of `icqr.neural.QuantileNetwork`: one compiled program, run for several networks in threads.

Needs jax and optax.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeAlias
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
Layer: TypeAlias = tuple[Array, Array]  # weights (out, in) and biases (out,)
State: TypeAlias = tuple[list[Layer], Any]  # a network's layers, and Adam's moments

_EPOCHS_PER_CALL = 20  # between two calls of the compiled program progress is told
_MOST_ORDERS = 10_000_000  # row numbers drawn for one call; above it, a call trains fewer epochs

# -- The compiled program: one network ---------------------------------------------------------------------------------


# Drawing random numbers is short work whose compilation is not: it is left without optimization.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def _start(sizes: tuple[int, ...], seed: Array, index: Array) -> State:
    """Draw Glorot-uniform weights and zero biases; they depend on the seed and the network's index alone."""
    glorot = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=-2)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), len(sizes) - 1)
    shapes = zip(sizes[1:], sizes, strict=False)
    layers = [(glorot(k, shape, jnp.float32), jnp.zeros(shape[0])) for k, shape in zip(keys, shapes, strict=True)]
    return layers, _optimizer(0.0, 0.0, len(layers)).init(layers)


def _optimizer(learning_rate: Array, weight_decay: Array, depth: int) -> Any:
    """Return Adam with the constants of Keras, on the loss plus weight_decay × the sum of squared weights."""
    penalized = [(True, False)] * depth  # weights, not biases
    return optax.chain(
        optax.add_decayed_weights(2 * weight_decay, penalized),
        optax.adam(learning_rate, b1=0.9, b2=0.999, eps=1e-7),
    )


def _loss(layers: Sequence[Layer], X: Array, y: Array, levels: Array) -> Array:
    """Return the sum over the levels of the mean pinball loss."""
    values = X.T  # units come before rows, so that nothing else is transposed
    for depth, (weights, biases) in enumerate(layers):
        values = weights @ (jax.nn.relu(values) if depth else values) + biases[:, None]
    tau, error = levels[:, None], y - values
    return jnp.maximum(tau * error, (tau - 1) * error).mean(axis=1).sum()


@partial(jax.jit, static_argnames="batch_size", donate_argnums=0)
def _train(
    state: State,
    n_epochs: Array,
    orders: Array,
    X: Array,
    y: Array,
    levels: Array,
    learning_rate: Array,
    weight_decay: Array,
    *,
    batch_size: int,
) -> State:
    """Train for some epochs, each with its own order of the rows: one Adam step per batch."""
    adam = _optimizer(learning_rate, weight_decay, len(state[0]))

    def step(state: State, rows: Array) -> tuple[State, None]:
        layers, moments = state
        slopes = jax.grad(_loss)(layers, X[rows], y[rows], levels)
        updates, moments = adam.update(slopes, moments, layers)
        return (optax.apply_updates(layers, updates), moments), None

    def epoch(place: Array, state: State) -> State:
        # The last batch is smaller if the rows don't divide, as in Keras.
        order, whole = orders[place], len(X) // batch_size * batch_size
        state, _ = jax.lax.scan(step, state, order[:whole].reshape(-1, batch_size))
        return state if whole == len(X) else step(state, order[whole:])[0]

    trained: State = jax.lax.fori_loop(0, n_epochs, epoch, state)
    return trained


# -- All networks, in threads ------------------------------------------------------------------------------------------


class Training:
    """The training of a model's networks on scaled rows; network i depends on these, the parameters and i alone."""

    def __init__(self, model: QuantileNetwork, X: NDArray[np.float32], y: NDArray[np.float32], seed: int) -> None:
        self.model, self.seed, self.n = model, seed, len(X)
        levels = tuple(float(level) for level in model.levels)
        self.sizes = (X.shape[1], *(int(units) for units in model.hidden), len(levels))
        self.epochs_per_call = max(1, min(_EPOCHS_PER_CALL, _MOST_ORDERS // len(X)))
        self.batch_size = min(int(model.batch_size), len(X))
        numbers = levels, float(model.learning_rate), float(model.weight_decay)
        self.arguments = [jnp.asarray(array, dtype=jnp.float32) for array in (X, y, *numbers)]

        # Files of finished networks are named after all that these depend on.
        settings = repr((numbers, self.sizes, int(model.epochs), self.batch_size, seed, X.shape))
        self.key = hashlib.sha256(settings.encode() + X.tobytes() + y.tobytes()).hexdigest()[:16]

    def train(self) -> list[list[NDArray[np.float32]]]:
        """Return each network's arrays: weights and biases of the first layer, of the second, and so on.

        Networks are trained in threads: products this small don't make use of a second core by themselves.
        """
        self._train_epochs(_start(self.sizes, self.seed, 0), 0, 0, 0)  # compiles, before all threads do at once
        lock, stopped, done, total = Lock(), Event(), 0, self.model.n_networks * self.model.epochs

        def advance(epochs: int) -> None:
            nonlocal done
            with lock:
                if stopped.is_set():
                    raise CancelledError
                done += epochs
                if self.model.progress is not None:
                    self.model.progress(done, total)

        with ThreadPoolExecutor(effective_n_jobs(self.model.n_jobs)) as pool:
            try:
                return list(pool.map(lambda index: self._network(index, advance), range(self.model.n_networks)))
            except BaseException:  # also Ctrl-C: the other threads stop after their present call
                stopped.set()
                raise

    def _network(self, index: int, advance: Callable[[int], None]) -> list[NDArray[np.float32]]:
        """Train one network, or read it from its file if it was finished before."""
        file = None
        if self.model.checkpoint is not None:
            file = Path(self.model.checkpoint) / f"{self.key}-{index:05d}.npz"
            if file.exists():
                arrays = _read(file)
                advance(self.model.epochs)
                return arrays

        state = _start(self.sizes, self.seed, index)
        for first in range(0, self.model.epochs, self.epochs_per_call):
            n_epochs = min(self.epochs_per_call, self.model.epochs - first)
            state = self._train_epochs(state, index, first, n_epochs)
            state[0][0][0].block_until_ready()  # calls return before their work is done
            advance(n_epochs)
        arrays = [np.asarray(array) for layer in state[0] for array in layer]
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as part, part.open("wb") as stream:
                np.savez(stream, *arrays)
        return arrays

    def _train_epochs(self, state: State, index: int, first: int, n_epochs: int) -> State:
        # Orders are drawn here and not in the compiled program, where sorting random numbers took up to half the time.
        epochs = range(first, first + self.epochs_per_call)
        orders = [np.random.default_rng([self.seed, epoch, index]).permutation(self.n) for epoch in epochs]
        rows = np.array(orders, dtype=np.int32)
        trained: State = _train(state, n_epochs, rows, *self.arguments, batch_size=self.batch_size)
        return trained


def _read(file: Path) -> list[NDArray[np.float32]]:
    try:
        with file.open("rb") as packed, np.load(packed, allow_pickle=False) as stored:
            return [stored[name] for name in stored.files]
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
        raise ValueError(f"the checkpoint {file} is damaged; delete this file and fit again") from error
