"""The built wheel, installed into an environment of its own, works without the source tree."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_needs_nothing_but_its_core_dependencies(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("icqr-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    where = run(python, "-c", "import icqr; print(icqr.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
    table = run(python, ROOT / "examples" / "quickstart.py", cwd=tmp_path)
    assert all(method in table for method in ("Naive", "QR", "CQR", "ICQR"))
    files = run(python, "-m", "pip", "show", "-f", "icqr", cwd=tmp_path)
    assert "icqr/py.typed" in files
    assert "icqr/experiments/paper_values.csv" in files
    assert "icqr/reporting/template.html" in files
