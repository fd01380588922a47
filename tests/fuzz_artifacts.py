"""Mutated artifacts: each must be refused by its own error, or give a model that works. Run by test_artifact_fuzz.py.

    python tests/fuzz_artifacts.py LIBRARY FIRST COUNT [FILE]

prints a line before and after each mutation, so that one that crashes or hangs is known to who reads them; the last
one stays in FILE. Odd mutations are of the file as it is; even ones of what is in it, with the manifest's hashes made
right again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icqr import CQR, ICQR, GroupPartition, KMeansPartition, Naive, load, save
from icqr.artifact import ArtifactError

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
SAID = os.dup(1)  # libraries write to what is then the standard output, in the middle of a line
EXTREMES: list[Any] = [None, True, False, -1, 0, 1, 2, 2**31, 2**40, 10**30, 1e308, 0.5, "", "x", "../x", [], [[]], {}]


def rows() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(300, 3)), columns=["a", "b", "c"])
    y = 5 + X["a"].to_numpy() + (0.1 + X["b"].to_numpy()) * rng.normal(size=300)
    return X, y


def with_categories() -> tuple[pd.DataFrame, Any]:
    X, y = rows()
    X["city"] = np.random.default_rng(1).choice(["Bern", "Genf", "Rom"], len(X))
    X.loc[::7, "a"] = np.nan
    X.loc[::11, "city"] = None
    return X, y


def _hist() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return ICQR(HistGradientBoostingRegressor(max_iter=4), partition=KMeansPartition(choose=3), random_state=0)


def _groups() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=2)
    return ICQR(model, partition=GroupPartition(["city"]), symmetric=False, small_groups="infinite", random_state=0)


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return ICQR(LGBMRegressor(n_estimators=3), partition=KMeansPartition(choose=3), random_state=0)


def _xgboost() -> Any:
    from xgboost import XGBRegressor

    return CQR(XGBRegressor(n_estimators=3), random_state=0)


def _catboost() -> Any:
    from catboost import CatBoostRegressor

    return CQR(CatBoostRegressor(iterations=3), random_state=0)


def _network() -> Any:
    from icqr.neural import QuantileNetwork

    return CQR(QuantileNetwork(hidden=(4,), epochs=2, verbose=False), random_state=0)


def _boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return CQR(GradientBoostingRegressor(n_estimators=3), random_state=0)


def _linear() -> Any:
    from sklearn.linear_model import QuantileRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return CQR(make_pipeline(StandardScaler(), QuantileRegressor(alpha=0)), random_state=0)


def _forest() -> Any:
    from quantile_forest import RandomForestQuantileRegressor

    return CQR(RandomForestQuantileRegressor(n_estimators=3), random_state=0)


def _naive() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return Naive(RandomForestRegressor(n_estimators=3), random_state=0)


LIBRARIES: dict[str, tuple[Callable[[], Any], Callable[[], tuple[pd.DataFrame, Any]]]] = {
    "hist": (_hist, with_categories),
    "groups": (_groups, with_categories),
    "lightgbm": (_lightgbm, with_categories),
    "xgboost": (_xgboost, with_categories),
    "catboost": (_catboost, with_categories),
    "network": (_network, rows),
    "boosting": (_boosting, rows),
    "linear": (_linear, rows),
    "forest": (_forest, rows),
    "naive": (_naive, rows),
}


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
    else:
        holder[key] = EXTREMES[rng.integers(len(EXTREMES))]
    return value


def _places(value: Any) -> Any:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in list(entries):
        yield value, key
        yield from _places(one)


def mutate_array(data: bytes, dtype: str, rng: np.random.Generator) -> bytes:
    """Set a few entries to the numbers that hurt most."""
    values = np.frombuffer(data, dtype=dtype).copy()
    if not len(values):
        return data
    extremes = [0, 1, 2, 255, 2**31 - 1]
    if dtype.startswith("float"):
        extremes = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 5e-324]
    for place in rng.integers(len(values), size=rng.integers(1, 4)):
        with np.errstate(over="ignore"):
            values[place] = np.array(extremes[rng.integers(len(extremes))]).astype(dtype)
    return values.tobytes()


def mutate_skops(data: bytes, rng: np.random.Generator) -> bytes:
    """Change the description or an array in a file of skops."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = list(files)[rng.integers(len(files))] if rng.integers(3) == 0 else "schema.json"
    if name == "schema.json" and rng.integers(4):
        files[name] = json.dumps(mutate_json(json.loads(files[name]), rng)).encode()
    else:
        files[name] = mutate_bytes(files[name], rng)
    return zipped(files)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def mutate_content(data: bytes, rng: np.random.Generator) -> bytes:
    """Change the manifest or a part, and make the manifest's hashes right again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    how = rng.integers(5)
    if how <= 1:
        manifest = mutate_json(manifest, rng)
    else:
        name = list(files)[rng.integers(len(files))]
        about = manifest["parts"][name]
        if "dtype" in about and how == 2:
            files[name] = mutate_array(files[name], about["dtype"], rng)
        elif about.get("format") == "skops":
            files[name] = mutate_skops(files[name], rng)
        elif how == 3:
            files[name] = files[list(files)[rng.integers(len(files))]]
        else:
            files[name] = mutate_bytes(files[name], rng)
    for name, about in (manifest.get("parts") or {}).items() if isinstance(manifest.get("parts"), dict) else ():
        if name in files and isinstance(about, dict):
            about["bytes"], about["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    return zipped({"manifest.json": json.dumps(manifest).encode(), **files}, zipfile.ZIP_DEFLATED)


# -- What becomes of them --------------------------------------------------------------------------------------------


def outcome(file: str, X: pd.DataFrame, y: Any) -> str:
    """Load a file, and use the model in every way."""
    try:
        model = load(file)
    except ArtifactError:
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


def say(line: str) -> None:
    os.write(SAID, f"{line[:500]}\n".encode())


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """End the process if code is run, or a file written, that loading a model has no business with."""
    if event.startswith(FORBIDDEN) or (event == "exec" and arguments[0].co_filename.startswith("<")):
        say(f"executed {event} {arguments}")
        os._exit(86)


def main(library: str, first: int, count: int, keep: str | None = None) -> None:
    make, data = LIBRARIES[library]
    X, y = data()
    warnings.simplefilter("ignore")
    model = make().fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.icqr")
        save(model, file)
        sound = Path(file).read_bytes()
        assert outcome(file, X, y) == "works"
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        sys.addaudithook(watch)
        say("ready")
        for number in range(first, first + count):
            rng = np.random.default_rng([number, *library.encode()])
            mutated = mutate_bytes(sound, rng) if number % 2 else mutate_content(sound, rng)
            Path(file).write_bytes(mutated)
            if keep is not None:
                Path(keep).write_bytes(mutated)
            say(f"start {number}")
            try:
                said = outcome(file, X, y)
            except Exception as error:  # the finding that is looked for
                said = f"failed with {type(error).__name__}: {error}"
            say(f"end {number} {said!r}")


if __name__ == "__main__":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
