"""How time and memory grow with rows, columns, groups and repeats.

    python -m benchmarks.growth --out docs/images/growth.png [--most 10000000]

Each case is a process of its own: it makes synthetic rows, fits ICQR (HistGradientBoosting, 20 trees a level),
calibrates on as many fresh rows, and predicts all rows. Memory is the peak resident memory
in each step above what it held before the step, over the size of X.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks import measuring
from icqr import ICQR
from icqr.importance import PermutationImportance
from icqr.partition import KMeansPartition

BASE = {"rows": 100_000, "columns": 10, "groups": 10, "repeats": 5}
VARIED = {"columns": (10, 30, 100, 300, 1000), "groups": (2, 5, 10, 20, 50), "repeats": (1, 2, 5, 10, 20)}
ROWS_OF_WIDE = 20_000  # 1000 columns of more rows would measure the quantile model alone
STEPS = ("levels", "importance", "grouping", "calibrate", "predict")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the picture")
    parser.add_argument("--most", type=int, default=10_000_000, help="the largest number of rows")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(**json.loads(options.case))))
        return
    cases = {"rows": [{**BASE, "rows": n} for n in (10**i for i in range(4, 9)) if n <= options.most]}
    for name, values in VARIED.items():
        rows = {"rows": ROWS_OF_WIDE} if name == "columns" else {}
        cases[name] = [{**BASE, **rows, name: value} for value in values]
    measuring.print_head([*BASE, *(f"{step}, s" for step in STEPS), "memory: fit", "calibrate", "predict"])
    results = {name: [in_a_process(case) for case in several] for name, several in cases.items()}
    if options.out:
        draw(results, options.out)


def in_a_process(case: dict[str, int]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--case", json.dumps(case)]
    result = {**case, **json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)}
    measuring.print_row(result.values())
    return result


def measure(rows: int, columns: int, groups: int, repeats: int) -> dict[str, float]:
    """Return each step's seconds, and the memory of fit, calibrate and predict over the size of X."""
    warnings.simplefilter("ignore")
    X, y = measuring.synthetic(rows, columns)
    fresh = measuring.synthetic(rows, columns, seed=1)
    method = ICQR(
        HistGradientBoostingRegressor(max_iter=20),
        partition=KMeansPartition(choose=groups),
        importance=PermutationImportance(repeats),
        random_state=0,
    )
    memory = {}
    with measuring.clocked(measuring.STEPS) as seconds:
        for step, job in (
            ("fit", lambda: method.fit(X, y)),
            ("calibrate", lambda: method.calibrate(*fresh)),
            ("predict", lambda: method.predict_interval(X)),
        ):
            before, start = reset_peak(), time.process_time()
            job()
            seconds[step] = time.process_time() - start
            memory[f"memory of {step}"] = (peak() - before) / X.nbytes
    parts = [seconds[step] for step in (*measuring.STEPS, "calibrate", "predict")]
    return {**dict(zip(STEPS, parts, strict=True)), **memory}


def reset_peak() -> float:
    """Let Linux forget the peak of resident memory, and return what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def draw(results: dict[str, list[dict[str, float]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(4 * len(results), 4), layout="constrained")
    for axis, (name, cases) in zip(axes, results.items(), strict=True):
        for step in STEPS:
            axis.plot([case[name] for case in cases], [case[step] for case in cases], "o-", label=step)
        axis.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds")
        values = [int(case[name]) for case in cases]
        axis.set_xticks(values, [f"{value:,}" for value in values])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
