"""What the speed benchmarks share: the data, jobs timed in turns, tables.

Seconds are the processor's, those of all threads together: on a machine that others use too they say more than the
clock on the wall. With one thread (OMP_NUM_THREADS=1) the two are the same on a quiet machine.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from icqr.datasets import load_dataset
from icqr.importance import PermutationImportance
from icqr.partition import KMeansPartition
from icqr.quantiles import QuantileModel

Job = Callable[[], Any]
Split = tuple[Any, Any, Any, Any]


def load(name: str, test_size: float = 0.25) -> Split:
    """Return training and test rows of a data set, or of `ROWSxCOLUMNS` synthetic ones: "1000000x20"."""
    if name[0].isdigit():
        rows, columns = name.split("x")
        data: tuple[Any, Any] = synthetic(int(rows), int(columns))
    else:
        data = load_dataset(name)
    X, X_test, y, y_test = train_test_split(*data, test_size=test_size, random_state=0)
    return X, X_test, y, y_test


def synthetic(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows whose mean and spread depend on the first columns, each on less than the one before."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, columns))
    weights = 0.7 ** np.arange(columns)
    spread = 0.1 + X[:, 0] * X[:, 1]
    return X, np.sin(6 * X[:, 0]) + X @ weights + spread * rng.normal(size=rows)


def model(name: str) -> Any:
    """Make a base model: "default", or "lightgbm"."""
    if name == "default":
        return None
    from lightgbm import LGBMRegressor

    return LGBMRegressor(verbose=-1, n_jobs=1)


def in_turns(jobs: dict[str, Job], runs: int, tidy: bool = True) -> dict[str, list[float]]:
    """Run the jobs in turns and return each one's seconds; a round before the clock starts warms everything up.

    Memory is tidied up before each job, unless that would take much longer than the job.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for round_ in range(runs + 1):
            for name, job in jobs.items():
                if tidy:
                    gc.collect()
                start = time.process_time()
                job()
                if round_:
                    seconds[name].append(time.process_time() - start)
    return seconds


@contextmanager
def clocked(steps: Mapping[str, tuple[type, str]]) -> Iterator[dict[str, float]]:
    """Put a clock around methods of classes, by name, while the block runs."""
    seconds = dict.fromkeys(steps, 0.0)

    def with_clock(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            result = method(*arguments, **options)
            seconds[name] += time.process_time() - start
            return result

        return run

    with ExitStack() as patches:
        for name, (owner, method) in steps.items():
            patches.enter_context(patch.object(owner, method, with_clock(name, getattr(owner, method))))
        yield seconds


#: The steps of ICQR's fit that have a price of their own.
STEPS: dict[str, tuple[type, str]] = {
    "levels": (QuantileModel, "fit"),
    "importance": (PermutationImportance, "compute"),
    "groups": (KMeansPartition, "fit"),
}


def ratio(seconds: dict[str, list[float]], one: str, other: str) -> float:
    """Return the median over the rounds of one job's time over another's."""
    return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))


def median(seconds: dict[str, list[float]], name: str) -> float:
    """Return a job's median time."""
    return statistics.median(seconds[name])


def rank_correlation(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Return the rank correlation of two importances, each column weighted by its share in the second."""
    share = np.asarray(list(theirs), dtype=float)
    ranks = [pd.Series(np.asarray(list(values), dtype=float)).rank().to_numpy() for values in (ours, share)]
    a, b = (values - np.average(values, weights=share) for values in ranks)
    scale = np.sqrt(np.average(a**2, weights=share) * np.average(b**2, weights=share))
    return float(np.average(a * b, weights=share) / scale) if scale > 0 else 1.0


def print_head(columns: Sequence[str]) -> None:
    """Print the head of a Markdown table."""
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)


def print_row(cells: Iterable[Any]) -> None:
    """Print a row; numbers with three digits."""
    print(f"| {' | '.join(f'{cell:.3g}' if isinstance(cell, float) else str(cell) for cell in cells)} |", flush=True)
