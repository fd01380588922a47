"""How long `import icqr`, all its names, and `icqr --help` take, beside the core dependencies alone.

The yardstick is a process that imports the modules of numpy, scipy, scikit-learn (with joblib and threadpoolctl) and
pandas which the modules behind icqr's public names import themselves: no user of these names can have less. The lines
are found in the source, so that the yardstick is neither shortened nor padded. Processes run one by one, in turns:

    python -m benchmarks.import_time --runs 20
"""

from __future__ import annotations

import argparse
import ast
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CORE = {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "pandas"}
BARE = "pass"
NAMES = "from icqr import *"
COMMAND = [str(Path(sys.executable).parent / "icqr"), "--help"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each, in turns (default: 20)")
    runs = parser.parse_args().runs
    yardstick = core_imports()
    commands = {
        "python alone": python(BARE),
        "core dependencies": python(yardstick),
        "import icqr": python("import icqr"),
        NAMES: python(NAMES),
        "icqr --help": COMMAND,
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            seconds[name].append(timed(command))
    print(yardstick.replace("; ", "\n"), end="\n\n")
    print(f"| {runs} runs in turns | median, s | least, s | median over core's |\n| --- | --- | --- | --- |")
    for name, all_times in seconds.items():
        times = all_times[1:]  # the first fills the disk's cache
        ratio = statistics.median(own / core for own, core in zip(times, seconds["core dependencies"][1:], strict=True))
        print(f"| {name} | {statistics.median(times):.3f} | {min(times):.3f} | {ratio:.3f} |")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def core_imports() -> str:
    """Return the import lines, for core dependencies, of the modules that icqr's names bring in."""
    exec(NAMES, {})
    names = [name for name in sys.modules if name == "icqr" or name.startswith("icqr.")]
    lines = {line for name in names for line in imports_of(Path(str(importlib.import_module(name).__file__)))}
    return "; ".join(sorted(lines))


def imports_of(file: Path) -> Iterator[str]:
    """Yield what a module imports when it is imported itself: not what its functions import, nor what types need."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name.partition(".")[0] in CORE)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in CORE:
            yield from (f"from {node.module} import {alias.name}" for alias in node.names)


if __name__ == "__main__":
    main()
