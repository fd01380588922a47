"""What several test files share: how hypothesis runs, no unseeded draw, fitted models with new rows, a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr import CQR, ICQR, QR, KMeansPartition, Naive
from icqr.datasets import make_heteroscedastic

# The same examples on every run, and no limit on their time: machines differ.
settings.register_profile("icqr", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("icqr")


@pytest.fixture(autouse=True)
def no_global_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that draws from numpy's global generator: every fit and every draw has a seed of its own.

    Exempt, by a mark with the reason, are tests of other packages' code that draws from it.
    """
    if request.node.get_closest_marker("draws_globally"):
        yield
        return
    had_jax = "jax" in sys.modules
    before = np.random.get_state()[1:3]  # noqa: NPY002
    yield
    after = np.random.get_state()[1:3]  # noqa: NPY002
    imported_jax = not had_jax and "jax" in sys.modules  # importing it draws once
    assert imported_jax or (before[1] == after[1] and np.array_equal(before[0], after[0])), "a fit or draw has no seed"


@pytest.fixture(scope="session")
def models() -> dict[str, Any]:
    """The four methods by name, for a coverage of 0.8; ICQR has three groups."""
    X, y = make_heteroscedastic(900, n_features=3, random_state=0, return_X_y=True)
    small = HistGradientBoostingRegressor(max_iter=15)
    options: dict[str, Any] = {"coverage": 0.8, "random_state": 0}
    fitted: list[Any] = [method(small, **options).fit(X, y) for method in (Naive, QR, CQR)]
    fitted.append(ICQR(small, partition=KMeansPartition(choose=3), **options).fit(X, y))
    return {type(model).__name__: model for model in fitted}


@pytest.fixture(scope="session")
def rows() -> tuple[pd.DataFrame, pd.Series[float]]:
    """600 rows that those models have not seen."""
    return make_heteroscedastic(600, n_features=3, random_state=1, return_X_y=True)


@pytest.fixture(scope="session")
def scheduler() -> Iterator[str]:
    """The address of a Dask cluster of two processes."""
    distributed = pytest.importorskip("distributed", reason='a cluster needs pip install "icqr[dask]"')
    import dask

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}),  # as `icqr.dask.connect` does
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture
def in_terminal() -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command in a terminal, and returns its exit code and what the screen showed."""

    def run(*command: str, width: int = 80, cwd: Path, stop_at: str = "", **variables: str) -> tuple[int, str]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        environment.pop("COLUMNS", None)
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment)
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that all who wrote to it are gone
            while part := os.read(master, 65536):
                shown += part
                if stop_at and stop_at.encode() in shown:
                    stop_at = ""
                    process.send_signal(signal.SIGINT)  # Ctrl-C
        os.close(master)
        text = re.sub(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]", "", shown.decode())  # colours (m) stay
        return process.wait(), text.replace("\r\n", "\n")

    return run
