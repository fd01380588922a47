"""Speed of `QuantileNetwork`: against a loop over Keras networks, the matrix-multiplication peak, and plain permuting.

    ICQR_DATA_HOME=DATA python -m benchmarks.networks --keras-python PYTHON [boston] [bike] [blog]

PYTHON is an interpreter that has tensorflow, best in an environment of its own: `python -m venv keras &&
keras/bin/pip install tensorflow-cpu`. Without it the Keras column is left out. Both sides train the same network
(100-50-25, three heads, Adam, batches of 1000) on the same rows, one after the other; leave the machine alone
meanwhile. Epochs are a sample, and seconds per network are scaled linearly to 1000 epochs. Compiling (jax) and tracing
(Keras) happen before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the interpreter that runs Keras has neither icqr nor what it needs
    from paper.methods import Split

EPOCHS = {"boston": (1000, 100), "bike": (20, 20), "blog": (4, 4)}  # the sample: ours, Keras
WANTED = {"boston": 100, "bike": 10, "blog": 5}  # times faster than Keras
LEVELS = (0.05, 0.5, 0.95)
HIDDEN = (100, 50, 25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="boston, bike, blog; all by default")
    parser.add_argument("--networks", type=int, default=100, help="T")
    parser.add_argument("--keras-python", help="an interpreter that has tensorflow")
    parser.add_argument("--keras-side", nargs=2, metavar=("ROWS", "EPOCHS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keras_side:
        print(json.dumps(keras_seconds(*options.keras_side)))
        return
    names = options.names or list(EPOCHS)
    if options.keras_python is None:
        print("Keras is left out: give --keras-python, an interpreter after `pip install tensorflow-cpu`")
    for name in names:
        compare_training(name, options.networks, options.keras_python)
    if "blog" in names:
        compare_permuting()


def split(name: str) -> Split:
    """Return the rows of a data set, split as the paper's authors did."""
    from icqr.datasets import load_dataset
    from paper.methods import split_rows

    X, y = load_dataset("bike-leak" if name == "bike" else name)
    return split_rows(X.to_numpy(dtype=float), y.to_numpy(dtype=float))


# Training


def compare_training(name: str, networks: int, keras_python: str | None) -> None:
    rows = split(name)
    X, y = rows.X[0], rows.y[0]
    print(f"\n{name}: {len(X)} training rows, {X.shape[1]} columns, T = {networks}; seconds per network of 1000 epochs")
    ours, theirs = EPOCHS[name]
    keras = None if keras_python is None else keras_per_network(keras_python, X, y, theirs)
    if keras is not None:
        print(f"  Keras, one by one {keras[0]:9.3f} s, {keras[1]:9.3f} s of processor time (from {theirs} epochs)")
    work = flops_per_row(X.shape[1]) * len(X) * 1000
    peak = matmul_peak()
    seconds, processor = our_seconds(X, y, networks, ours)
    peak = max(peak, matmul_peak())
    print(
        f"  ours              {seconds:9.3f} s, {processor:9.3f} s of processor time (from {ours} epochs); "
        f"{work / seconds / 1e9:.1f} GFLOP/s, {work / seconds / peak:.0%} of the peak of {peak / 1e9:.0f}"
    )
    if keras is not None:
        print(
            f"{'':21}{keras[0] / seconds:8.1f} × Keras in time (wanted {WANTED[name]} ×), "
            f"{keras[1] / processor:.1f} × in processor time",
            flush=True,
        )


def flops_per_row(columns: int) -> int:
    """Forward and backward; the first layer needs no gradient of its input."""
    sizes = (columns, *HIDDEN, len(LEVELS))
    products = [a * b for a, b in pairwise(sizes)]
    return 2 * (2 * products[0] + 3 * sum(products[1:]))


def matmul_peak() -> float:
    """Floating-point operations per second of a large single-precision product, the best of numpy and jax."""
    import jax

    a = np.random.default_rng(0).random((2500, 2500), dtype=np.float32)
    b = jax.numpy.asarray(a)
    product = jax.jit(lambda x: x @ x)
    seconds = [min(clock(lambda: a @ a), clock(lambda: product(b).block_until_ready())) for _ in range(6)]
    return 2 * 2500**3 / min(seconds)


def clock(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def clock_both(call: Callable[[], object]) -> tuple[float, float]:
    """Time in seconds, and in seconds of processor time over all cores: steadier when others use the machine."""
    start = time.process_time()
    seconds = clock(call)
    return seconds, time.process_time() - start


def our_seconds(X: np.ndarray, y: np.ndarray, networks: int, epochs: int) -> tuple[float, float]:
    from icqr.neural import QuantileNetwork

    model = QuantileNetwork(n_networks=networks, random_state=0)
    model.set_params(epochs=1).fit(X, y)  # compiles
    seconds, processor = clock_both(lambda: model.set_params(epochs=epochs).fit(X, y))
    return seconds / networks / epochs * 1000, processor / networks / epochs * 1000


def keras_per_network(python: str, X: np.ndarray, y: np.ndarray, epochs: int) -> tuple[float, float]:
    low = X.min(axis=0)
    spread = X.max(axis=0) - low
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, X=((X - low) / np.where(spread > 0, spread, 1)).astype("f"), y=y.astype("f"))
        command = [python, str(Path(__file__).resolve()), "--keras-side", str(rows), str(epochs)]
        quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        answer = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(
            f"{python} can't run Keras; install it there with `pip install tensorflow-cpu`\n{answer.stderr[-800:]}"
        )
    seconds, processor = json.loads(answer.stdout.splitlines()[-1])
    return seconds / epochs * 1000, processor / epochs * 1000


def keras_seconds(rows: str, epochs: str) -> tuple[float, float]:
    """Time one network of the notebook's loop; runs in the other interpreter."""
    import keras  # type: ignore[import-not-found, unused-ignore]

    data = np.load(rows)
    inputs = keras.Input((data["X"].shape[1],))
    values = inputs
    for units in HIDDEN:
        values = keras.layers.Dense(units, activation="relu")(values)
    heads = [keras.layers.Dense(1)(values) for _ in LEVELS]
    model = keras.Model(inputs, heads)

    def pinball(level: float) -> Callable[[Any, Any], Any]:
        def loss(y: Any, quantile: Any) -> Any:
            error = y - quantile
            return keras.ops.mean(keras.ops.maximum(level * error, (level - 1) * error))

        return loss

    model.compile(optimizer="adam", loss=[pinball(level) for level in LEVELS])
    target = [data["y"][:, None]] * len(LEVELS)
    model.fit(data["X"], target, epochs=1, batch_size=1000, verbose=0)  # traces
    return clock_both(lambda: model.fit(data["X"], target, epochs=int(epochs), batch_size=1000, verbose=0))


# Permutation importance


def compare_permuting(repeats: int = 5, sample: int = 28) -> None:
    """All columns by the replacer; every tenth the plain way, scaled to all."""
    from icqr.neural import QuantileNetwork

    rows = split("blog")
    X_cal = rows.X[1]
    model = QuantileNetwork(epochs=2, random_state=0).fit(rows.X[0], rows.y[0])
    rng = np.random.default_rng(0)
    orders = np.stack([rng.permutation(len(X_cal)) for _ in range(repeats)])
    columns = X_cal.shape[1]
    chosen = range(0, columns, columns // sample)

    def plain(column: int) -> np.ndarray:
        changed = X_cal.copy()
        results = []
        for order in orders:
            changed[:, column] = X_cal[order, column]
            results.append(model.predict_quantiles(changed))
        return np.stack(results)

    def fast(columns: range) -> list[np.ndarray]:
        replacer = model.replacer(X_cal)
        return [replacer.replace(column, orders) for column in columns]

    expected = [plain(column) for column in chosen]
    farthest = max(np.abs(a - b).max() for a, b in zip(expected, fast(chosen), strict=True))
    slow = min(clock(lambda: [plain(column) for column in chosen]) for _ in range(2)) / len(chosen) * columns
    quick = min(clock(lambda: fast(range(columns))) for _ in range(2))
    print(
        f"\nPermuting {columns} columns of {len(X_cal)} rows {repeats} times: plain {slow:.1f} s "
        f"(from {len(chosen)} columns), replacer {quick:.2f} s: {slow / quick:.1f} × (wanted 5 ×); "
        f"largest difference {farthest:.1e}"
    )


if __name__ == "__main__":
    main()
