"""Mutated artifacts end in a clean refusal or a working model: never in executed code, a hang or another error.

Each runs in another process, with limits on time and memory. The readers of LightGBM, XGBoost and CatBoost are native
code, which may crash on a model file that was made to: docs/artifact.md says so. That is counted, and nothing else is
forgiven.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("fuzz_artifacts.py")
NATIVE = ("lightgbm", "xgboost", "catboost")
LIBRARIES = (*NATIVE, "hist", "groups", "network", "boosting", "linear", "forest", "naive")
SECONDS = 60  # without a word from the worker
SECONDS_TO_START = 600  # until libraries are imported and a model is fitted, on a busy machine


def said_by(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Give the lines of a process as they come; kill it when none comes for too long."""
    assert process.stdout is not None
    patience = SECONDS_TO_START
    while select.select([process.stdout], [], [], patience)[0]:
        line = process.stdout.readline()
        if not line:
            return
        patience = SECONDS
        yield line.decode().rstrip("\n")
    process.kill()
    yield "hang"


def outcomes(library: str, first: int, count: int) -> Iterator[tuple[int, str]]:
    """Give each mutation's number and what became of it, with a new process after one that ended before its time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    end = first + count
    while first < end:
        command = [sys.executable, str(WORKER), library, str(first), str(end - first)]
        number, last = None, ""
        # Without a buffer: `select` does not see lines that are in one.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=environment
        ) as process:
            for line in said_by(process):
                last, _, rest = line.partition(" ")
                if last == "start":
                    number = int(rest)
                elif last == "end":
                    yield int(rest.partition(" ")[0]), rest.partition(" ")[2].strip("'\"")
                elif last in ("hang", "executed"):
                    yield -1 if number is None else number, line
        if process.returncode == 0:
            return
        assert number is not None, f"the worker for {library} ended with {process.returncode} before it began"
        if last == "start":
            yield number, f"crashed with {signal.Signals(-process.returncode).name}"
        first = number + 1


def check(library: str, first: int, count: int) -> Counter[str]:
    found = Counter[str]()
    for number, said in outcomes(library, first, count):
        kind = said.partition(" ")[0]
        forgiven = kind == "crashed" and library in NATIVE
        assert kind in ("refused", "works") or forgiven, f"{library}, mutation {number}: {said}"
        found[kind] += 1
    assert sum(found.values()) == count
    return found


@pytest.mark.parametrize(
    "library", ["hist", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lightgbm", "boosting"))]
)
def test_mutated_artifacts_are_refused_or_work(library: str) -> None:
    assert check(library, 0, 100)["refused"] >= 50


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_ten_thousand_mutated_artifacts_are_refused_or_work(library: str) -> None:
    found = check(library, 1000, 1000)
    print(f"{library}: {dict(found)}")
    assert found["refused"] >= 500
    assert found["works"] >= 10  # some mutations leave a sound model; if none did, the worker would show nothing
