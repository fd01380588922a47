"""Mutated model files end in a clean refusal or a working model: never in executed code, a hang or a crash.

Each runs in another process, with limits on time and memory: this file, called as

    python tests/test_persistence_fuzz.py LIBRARY FIRST COUNT [FILE]

It prints a line before and after each mutation, so that one that crashes or hangs is known to who reads them; the last
one stays in FILE. Odd mutations are of the file as it is; even ones of what is in it, with the manifest's hashes made
right again. The readers of LightGBM, XGBoost and CatBoost are native code, which may crash on a model that was made
to: docs/howto/files.md says so. That is counted, and nothing else is forgiven.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icqr import CQR, ICQR, GroupPartition, KMeansPartition, Naive, load, save
from icqr.persistence import ModelFileError

NATIVE = ("lightgbm", "xgboost", "catboost")
SECONDS = 60  # without a word from the worker
SECONDS_TO_START = 600  # until libraries are imported and a model is fitted, on a busy machine
MEMORY = 3 * 2**30  # bytes that a worker may take besides what it has when it starts
FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "subprocess.Popen",
    "socket.connect",
    "pickle.find_class",
)
EXTREMES: list[Any] = [None, True, False, -1, 0, 1, 2, 2**31, 2**40, 10**30, 1e308, 0.5, "", "x", "../x", [], [[]], {}]
KMEANS = {"partition": KMeansPartition(choose=3), "random_state": 0}
GROUPS = {"partition": GroupPartition(["city"]), "symmetric": False, "small_groups": "infinite", "random_state": 0}
#: For each library: the method and its parameters, where the estimator is and its parameters, whether X has categories.
LIBRARIES: dict[str, tuple[type, dict[str, Any], str, dict[str, Any], bool]] = {
    "hist": (ICQR, KMEANS, "sklearn.ensemble.HistGradientBoostingRegressor", {"max_iter": 4}, True),
    "groups": (ICQR, GROUPS, "sklearn.ensemble.HistGradientBoostingRegressor", {"max_iter": 2}, True),
    "lightgbm": (ICQR, KMEANS, "lightgbm.LGBMRegressor", {"n_estimators": 3}, True),
    "xgboost": (CQR, {"random_state": 0}, "xgboost.XGBRegressor", {"n_estimators": 3}, True),
    "catboost": (CQR, {"random_state": 0}, "catboost.CatBoostRegressor", {"iterations": 3}, True),
    "network": (
        CQR,
        {"random_state": 0},
        "icqr.neural.QuantileNetwork",
        {"hidden": (4,), "epochs": 2},
        False,
    ),
    "boosting": (CQR, {"random_state": 0}, "sklearn.ensemble.GradientBoostingRegressor", {"n_estimators": 3}, False),
    "linear": (CQR, {"random_state": 0}, "sklearn.linear_model.QuantileRegressor", {"alpha": 0}, False),
    "forest": (CQR, {"random_state": 0}, "quantile_forest.RandomForestQuantileRegressor", {"n_estimators": 3}, False),
    "naive": (Naive, {"random_state": 0}, "sklearn.ensemble.RandomForestRegressor", {"n_estimators": 3}, False),
}


# -- The tests -------------------------------------------------------------------------------------------------------


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of a process as they come; kill it when none comes for too long."""
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
    """Yield each mutation's number and what became of it, with a new process after one that ended before its time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    end = first + count
    while first < end:
        command = [sys.executable, __file__, library, str(first), str(end - first)]
        number, last = None, ""
        # Without a buffer: `select` does not see lines that are in one.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=environment
        ) as process:
            for line in lines_of(process):
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
    counts = Counter[str]()
    for number, outcome in outcomes(library, first, count):
        kind = outcome.partition(" ")[0]
        forgiven = kind == "crashed" and library in NATIVE
        assert kind in ("refused", "works") or forgiven, f"{library}, mutation {number}: {outcome}"
        counts[kind] += 1
    assert sum(counts.values()) == count
    return counts


@pytest.mark.parametrize(
    "library", ["hist", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lightgbm", "boosting"))]
)
def test_mutated_files_are_refused_or_work(library: str) -> None:
    assert check(library, 0, 100)["refused"] >= 50


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_ten_thousand_mutated_files_are_refused_or_work(library: str) -> None:
    counts = check(library, 1000, 1000)
    print(f"{library}: {dict(counts)}")
    assert counts["refused"] >= 500
    assert counts["works"] >= 10  # some mutations leave a sound model; if none did, the worker would show nothing


# -- Mutations -------------------------------------------------------------------------------------------------------


def mutate_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits; or cut, repeat, drop, overwrite or append a piece."""
    values = bytearray(data)
    if not values:
        return b"x"
    how = rng.integers(6)
    start = int(rng.integers(len(values)))
    size = int(rng.integers(1, min(len(values), 64) + 1))
    if how <= 1:
        for place in rng.integers(len(values), size=rng.integers(1, 9)):
            values[place] ^= 1 << int(rng.integers(8))
    elif how == 2:
        del values[start:]
    elif how == 3:
        del values[start : start + size]
    elif how == 4:
        values[start:start] = values[start : start + size]
    else:
        values[start : start + size] = rng.bytes(size)
    return bytes(values)


def mutate_json(value: Any, rng: np.random.Generator) -> Any:
    """Replace, drop, repeat or swap something somewhere in it."""
    places = list(_places(value))
    holder, key = places[rng.integers(len(places))]
    how = rng.integers(5)
    if how == 0:
        del holder[key]
    elif how == 1:
        other, its_key = places[rng.integers(len(places))]
        holder[key] = json.loads(json.dumps(other[its_key]))
    elif how == 2 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] + (1 if rng.integers(2) else -1)
    elif how == 3 and isinstance(holder[key], str) and holder[key]:
        holder[key] = mutate_bytes(holder[key].encode(), rng).decode(errors="replace")
    elif isinstance(holder, dict) and key == "content" and isinstance(holder[key], str):
        holder[key] = json.dumps(EXTREMES[rng.integers(len(EXTREMES))])  # a plain value, as skops writes it
    else:
        holder[key] = EXTREMES[rng.integers(len(EXTREMES))]
    return value


def _places(value: Any) -> Any:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(entries):
        yield value, key
        yield from _places(item)


def mutate_array(data: bytes, rng: np.random.Generator) -> bytes:
    """Set a few numbers to those that hurt most."""
    array = np.load(io.BytesIO(data)).copy()
    if not array.size:
        return data
    name = None if array.dtype.names is None else array.dtype.names[rng.integers(len(array.dtype.names))]
    values = (array if name is None else array[name]).reshape(-1)
    extremes = [0, 1, 2, 255, 2**31 - 1]
    if values.dtype.kind == "f":
        extremes = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 5e-324]
    for place in rng.integers(len(values), size=rng.integers(1, 4)):
        with np.errstate(over="ignore"):
            values[place] = np.array(extremes[rng.integers(len(extremes))]).astype(values.dtype)
    if name is not None:
        array[name] = values.reshape(array.shape)
    buffer = io.BytesIO()
    np.save(buffer, array if name is not None else values.reshape(array.shape))
    return buffer.getvalue()


def mutate_content(data: bytes, rng: np.random.Generator) -> bytes:
    """Change the manifest or a part, and make the manifest's hashes right again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    how = rng.integers(8)
    name = list(files)[rng.integers(len(files))]
    if how == 0:
        manifest = mutate_json(manifest, rng)
    elif how <= 3:
        files["schema.json"] = json.dumps(mutate_json(json.loads(files["schema.json"]), rng)).encode()
    elif how <= 5 and name.endswith(".npy"):
        files[name] = mutate_array(files[name], rng)
    elif how == 6:
        files[name] = files[list(files)[rng.integers(len(files))]]
    else:
        files[name] = mutate_bytes(files[name], rng)
    parts = manifest.get("parts")
    for name, about in parts.items() if isinstance(parts, dict) else ():
        if name in files and isinstance(about, dict):
            about["bytes"], about["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


# -- What becomes of them, in another process ------------------------------------------------------------------------


def fitted(library: str) -> tuple[Any, pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(300, 3)), columns=["a", "b", "c"])
    y = 5 + X["a"].to_numpy() + (0.1 + X["b"].to_numpy()) * rng.normal(size=300)
    method, parameters, name, settings, with_categories = LIBRARIES[library]
    if with_categories:
        X["city"] = rng.choice(["Bern", "Genf", "Rom"], len(X))
        X.loc[::7, "a"] = np.nan
        X.loc[::11, "city"] = None
    module, _, kind = name.rpartition(".")
    estimator = getattr(import_module(module), kind)(**settings)
    if library == "linear":
        estimator = make_pipeline(StandardScaler(), estimator)
    return method(estimator, **parameters).fit(X, y), X, y


def outcome(file: str, X: pd.DataFrame, y: Any) -> str:
    """Load a file, and use the model in every way."""
    try:
        model = load(file)
    except ModelFileError:
        return "refused"
    try:
        coverages = [model.coverage, 0.5]
        assert model.predict_interval(X, coverages).shape == (len(X), 2, 2)
        assert model.predict(X).shape == (len(X),)
        assert len(model.explain(X)) == len(X)
        assert len(model.groups_) == model.n_groups_
        assert repr(model)
        assert str(model.certificate())
        model.calibrate(X, y)
    except ValueError as error:
        return f"refused when used: {error}"
    return "works"


def worker(library: str, first: int, count: int, keep: str | None = None) -> None:
    said = os.dup(1)  # libraries write to the standard output, in the middle of a line
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(line: str) -> None:
        os.write(said, f"{line[:500]}\n".encode())

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        """End the process if code is run that loading a model has no business with."""
        if event.startswith(FORBIDDEN) or (event == "exec" and arguments[0].co_filename.startswith("<")):
            say(f"executed {event} {arguments}")
            os._exit(86)

    warnings.simplefilter("ignore")
    model, X, y = fitted(library)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.icqr")
        save(model, file)
        sound = Path(file).read_bytes()
        assert outcome(file, X, y) == "works"
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        sys.addaudithook(watch)
        for number in range(first, first + count):
            rng = np.random.default_rng([number, *library.encode()])
            mutated = mutate_bytes(sound, rng) if number % 2 else mutate_content(sound, rng)
            Path(file).write_bytes(mutated)
            if keep is not None:
                Path(keep).write_bytes(mutated)
            say(f"start {number}")
            try:
                result = outcome(file, X, y)
            except Exception as error:  # the finding that is looked for
                result = f"failed with {type(error).__name__}: {error}"
            say(f"end {number} {result!r}")


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
