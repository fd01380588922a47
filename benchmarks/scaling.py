"""Rows that are never all in memory: calibrated and predicted on Dask with 1 and 2 workers, and by streaming.

    python -m benchmarks.scaling --folder DIR [--rows 20000000]

Synthetic Parquet files are written under DIR and removed at the end. Each way runs in a process of its own, whose peak
memory is measured by the system (its high-water mark), and all must give the same offsets and intervals, to the bit.
Seconds on a machine that others use too say little; CPU seconds say more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped]
import pyarrow.dataset
from lightgbm import LGBMRegressor

import icqr
from icqr import streaming
from icqr.dask import connect, on_dask, write_parquet

FILE_ROWS, GROUP_ROWS, SAMPLE_ROWS = 1_000_000, 250_000, 100_000
WAYS = {"Dask, 1 worker": 1, "Dask, 2 workers": 2, "streaming": 0}


# -- Data and model --------------------------------------------------------------------------------------------------


def make_rows(n: int, columns: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.uniform(size=(n, columns)), columns=[f"x{i}" for i in range(columns)])
    return rows.assign(y=np.sin(6 * rows["x0"]) + rows["x1"] + rng.normal(scale=0.1 + rows["x2"]))


def write_rows(folder: Path, n: int, columns: int) -> None:
    folder.mkdir()
    for number, start in enumerate(range(0, n, FILE_ROWS)):
        rows = make_rows(min(FILE_ROWS, n - start), columns, seed=number + 1)
        rows.to_parquet(folder / f"{number:04}.parquet", row_group_size=GROUP_ROWS)


def fit_model(file: Path, columns: int) -> None:
    rows = make_rows(SAMPLE_ROWS, columns, seed=0)
    estimator = LGBMRegressor(n_estimators=10, n_jobs=1)
    model = icqr.ICQR(estimator, partition=icqr.KMeansPartition(choose=5), random_state=0)
    icqr.save(model.fit(rows.drop(columns="y"), rows["y"]), file)


# -- One way, in a process of its own ----------------------------------------------------------------------------------


def measure(workers: int, data: Path, model_file: Path, out: Path) -> dict[str, Any]:
    model = icqr.load(model_file)
    result = on_workers(workers, model, data, out) if workers else in_blocks(model, data, out)
    offsets = result.pop("calibration").offsets(0.9, np.arange(model.n_groups_))
    result["client MB"] = peak_memory()
    return {**result, "offsets": [float(value).hex() for value in offsets.ravel()]}


def on_workers(workers: int, model: Any, data: Path, out: Path) -> dict[str, Any]:
    import dask.dataframe as dd

    with connect(n_workers=workers, dashboard_address=":0") as client:
        frame = dd.read_parquet(data, split_row_groups=1)
        X, y = frame[list(model.columns_)], frame["y"]
        ours = on_dask(model)
        calibrated = timed(lambda: ours.calibrate(X, y))
        predicted = timed(lambda: write_parquet(ours.predict_interval(X), out))
        peaks, seconds = client.run(peak_memory), client.run(cpu_seconds)
        used = {"worker MB": max(peaks.values()), "CPU s of workers": sum(seconds.values())}
        return {**steps(calibrated, predicted), **used, "calibration": ours.calibration_}


def in_blocks(model: Any, data: Path, out: Path) -> dict[str, Any]:
    out.mkdir()
    calibrated = timed(lambda: streaming.calibrate(model, data, "y"))
    predicted = timed(lambda: streaming.predict_interval(model, data, out / "all.parquet"))
    return {**steps(calibrated, predicted), "CPU s of workers": cpu_seconds(), "calibration": model.calibration_}


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that work takes, and the MB that pass this machine's loopback interface meanwhile."""
    sent, start = loopback(), time.perf_counter()
    work()
    return time.perf_counter() - start, (loopback() - sent) / 1e6


def loopback() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def steps(calibrated: tuple[float, float], predicted: tuple[float, float]) -> dict[str, float]:
    return {
        "calibrate s": calibrated[0],
        "calibrate network MB": calibrated[1],
        "predict s": predicted[0],
        "predict network MB": predicted[1],
    }


# -- All ways ----------------------------------------------------------------------------------------------------------


def run_way(way: str, folder: Path) -> dict[str, Any]:
    out = folder / "out"
    arguments = ["--measure", str(WAYS[way]), str(folder / "data"), str(folder / "model.icqr"), str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["intervals"] = fingerprint(out)
    shutil.rmtree(out)
    return result


def fingerprint(folder: Path) -> str:
    """Return a hash of all bounds in the order of the rows."""
    files = [str(file) for file in sorted(folder.glob("*.parquet"))]
    hashes = {name: hashlib.sha256() for name in ("lower", "upper")}
    for batch in pyarrow.dataset.dataset(files).to_batches(columns=list(hashes)):
        for name, hashed in hashes.items():
            hashed.update(batch.column(name).to_numpy().tobytes())
    return "".join(hashed.hexdigest() for hashed in hashes.values())


def compare(rows: int, columns: int, ways: list[str], folder: Path) -> pd.DataFrame:
    start = time.perf_counter()
    write_rows(folder / "data", rows, columns)
    fit_model(folder / "model.icqr", columns)
    size = sum(file.stat().st_size for file in (folder / "data").iterdir())
    print(f"{rows:,} rows, {size / 1e9:.2f} GB of Parquet, made in {time.perf_counter() - start:.0f} s", flush=True)
    results = {}
    for way in ways:
        results[way] = run_way(way, folder)
        print(f"{way}: done", flush=True)
    table = pd.DataFrame(results).T
    assert table["offsets"].map(tuple).nunique() == 1, "offsets differ"
    assert table["intervals"].nunique() == 1, "intervals differ"
    return table.drop(columns=["offsets", "intervals"]).astype(float).round(1)


def as_markdown(table: pd.DataFrame) -> str:
    lines = [["", *table.columns], ["---"] * (len(table.columns) + 1)]
    lines += [[way, *("–" if pd.isna(value) else f"{value:,.1f}" for value in row)] for way, *row in table.itertuples()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="of temporary files; they are removed at the end")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        workers, *paths = options.measure
        print(json.dumps(measure(int(workers), *map(Path, paths))))
        return
    with tempfile.TemporaryDirectory(prefix="icqr-", dir=options.folder) as folder:
        print(f"\n{as_markdown(compare(options.rows, options.columns, options.ways, Path(folder)))}")


if __name__ == "__main__":
    main()
