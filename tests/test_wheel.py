"""The built wheel, installed into an environment of its own, works without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
FORMATS = ("csv", "csv.gz", "parquet", "feather", "jsonl", "-")
FIT_ALL = """
from icqr import CQR, ICQR, QR, AutoICQR, Naive
from icqr.datasets import make_heteroscedastic

X, y = make_heteroscedastic(1000, random_state=0, return_X_y=True)
for method in (Naive, QR, CQR, ICQR, AutoICQR):
    model = method(coverage=0.9, random_state=0).fit(X, y)
    if model.predict_interval(X).shape == (1000, 2):
        print(method.__name__)
"""
Terminal = Callable[..., tuple[int, str]]


def run(*command: object, cwd: Path, stdin: bytes | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, input=stdin, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder)
    (built,) = folder.glob("icqr-*.whl")
    return built


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Make an environment with the wheel, and give the folder of its programs."""
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    run(*pip, f"{wheel}{extra}", cwd=folder)
    where = run(programs / "python", "-c", "import icqr; print(icqr.__file__)", cwd=folder)
    assert str(folder) in where
    return programs


@pytest.mark.slow
def test_the_wheel_needs_nothing_but_its_core_dependencies(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path) / "python"
    assert run(python, "-c", FIT_ALL, cwd=tmp_path).split() == ["Naive", "QR", "CQR", "ICQR", "AutoICQR"]
    files = run(python, "-m", "pip", "show", "-f", "icqr", cwd=tmp_path)
    assert "icqr/py.typed" in files
    assert "paper/" not in files  # the paper and the benchmarks are run from a clone
    assert "benchmarks/" not in files
    assert "icqr/reporting/template.html" in files
    without = subprocess.run([tmp_path / "env/bin/icqr"], capture_output=True, text=True, check=False)
    assert without.returncode == 1
    assert without.stderr == 'error: the icqr command needs typer and rich: pip install "icqr[cli]"\n'


# -- The command from the wheel ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("cli"), "[cli]")


def write(frame: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)


@pytest.mark.slow
@pytest.mark.parametrize("ending", FORMATS)
def test_every_command_in_a_pipe(programs: Path, ending: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 200, 300).round(1), "region": rng.choice(["n", "s"], 300)})
    frame["price"] = (5 * frame["size"] + rng.normal(scale=frame["size"] / 2)).round(2)
    file, rows = ("-", frame.to_csv(index=False).encode()) if ending == "-" else (f"sales.{ending}", None)
    if rows is None:
        write(frame, tmp_path / file)

    def icqr(*arguments: str, stdin: bytes | None = None) -> str:
        return run(programs / "icqr", *arguments, cwd=tmp_path, stdin=stdin)

    assert "Report: report.html" in icqr("compare", file, "--target", "price", stdin=rows)
    assert "Model: model.icqr" in icqr("fit", file, "--target", "price", "--out", "model.icqr", stdin=rows)
    # 300 rows, which all train and calibrate: theory promises 1 - 2 * 0.1 less 1.8 / 31.
    promise = "about 90 % in practice, at least 74.2 % promised (approximate)"
    assert f"AutoICQR: {promise}" in icqr("inspect", "model.icqr")
    out = "out.csv" if ending == "-" else f"out.{ending}"
    said = icqr("predict", "model.icqr", file, "--keep", "price", "--keep", "region", "--out", out, stdin=rows)
    assert said == f"300 intervals, {promise}: {out}\n"
    assert "300 rows of" in icqr("recalibrate", "model.icqr", file, "--target", "price", stdin=rows)
    bounds = ["--target", "price", "--lower", "lower", "--upper", "upper", "--coverage", "0.9", "--groups", "region"]
    assert icqr("audit", out, *bounds, "--report", "audit.html").startswith("Over all 300 rows")
    left = {"report.html", "model.icqr", out, "audit.html", *([file] if rows is None else [])}
    assert set(os.listdir(tmp_path)) == left


@pytest.mark.slow
def test_every_command_in_a_terminal(programs: Path, in_terminal: Terminal, tmp_path: Path) -> None:
    command = str(programs / "icqr")
    for arguments, said in (
        (["--help"], "Exit codes"),
        (["compare", "--seed", "1"], "Report: report.html"),
        (["fit", "sine_spread", "--out", "model.icqr"], "Model: model.icqr"),
        (["inspect", "model.icqr"], "Columns: 'x1' (numbers), 'x2' (numbers)."),
        (["predict", "model.icqr", "sine_spread", "--keep", "y", "--out", "out.parquet"], "1,000 intervals"),
        (["recalibrate", "model.icqr", "sine_spread"], "1,000 rows of sine_spread"),
        (
            ["audit", "out.parquet", "--target", "y", "--lower", "lower", "--upper", "upper", "--coverage", "0.9"],
            "Over all 1,000 rows",
        ),
        (["plan", "--rows", "500"], "500 calibration rows"),
        (["datasets"], "heteroscedastic"),
    ):
        code, shown = in_terminal(command, *arguments, cwd=tmp_path)
        assert code == 0, shown
        assert said in shown
