"""The `icqr` command as a process: in a pipe and in a terminal, interrupted, without rights, without an extra."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from icqr import ICQR, WholePartition
from icqr._predicting import IntervalRegressor
from icqr.cli import main
from icqr.cli import models as _models  # noqa: F401 (imported while all rights are there)
from icqr.persistence import save

Terminal = Callable[..., tuple[int, str]]
COMMAND = str(Path(sys.executable).parent / "icqr")
# What `icqr --help` can do without: the core, the extras, and models that users bring.
HEAVY = {
    *("catboost", "dask", "jax", "jinja2", "joblib", "lightgbm", "matplotlib", "numpy", "optax", "pandas", "polars"),
    *("pooch", "pyarrow", "quantile_forest", "scipy", "skops", "sklearn", "xgboost"),
}
HELP = """
import contextlib, io, json, sys
from icqr.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
    main(sys.argv[1:])
print(json.dumps([len(shown.getvalue()), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def run(*arguments: str, before: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*before, COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def started(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


RNG = np.random.default_rng(0)
SALES = pd.DataFrame({"size": RNG.uniform(20, 200, 120).round(1), "id": range(120)})
SALES["price"] = 5 * SALES["size"] + RNG.normal(scale=20, size=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with sales.csv."""
    SALES.to_csv(tmp_path / "sales.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def model() -> IntervalRegressor:
    return ICQR(partition=WholePartition(), random_state=0).fit(SALES[["size", "id"]], SALES["price"])


# -- Imports ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        *(["compare", "--help"], ["predict", "--wrong"]),
        *(pytest.param([option], marks=pytest.mark.slow) for option in ("--help", "--version")),
    ],
    ids=" ".join,
)
def test_help_waits_for_no_library(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", HELP, *arguments], capture_output=True, text=True, check=True)
    _, imported = json.loads(done.stdout)
    assert HEAVY.isdisjoint(imported)


def test_completion_in_the_shell() -> None:
    words = {"_ICQR_COMPLETE": "complete_bash", "COMP_WORDS": "icqr compare --model ", "COMP_CWORD": "3"}
    assert run(env={**os.environ, **words}).stdout.split() == [
        *("hist", "lightgbm", "xgboost", "catboost", "forest", "network")
    ]
    code = "import sys; from icqr.cli import main\ntry: main()\nfinally: sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, **words}, check=False).returncode == 0
    words |= {"COMP_WORDS": "icqr rec", "COMP_CWORD": "1"}
    assert run(env={**os.environ, **words}).stdout.split() == ["recalibrate"]


# -- Pipes and terminals ---------------------------------------------------------------------------------


def test_a_pipe_gets_no_colour_and_no_bar(folder: Path) -> None:
    done = run("fit", "sales.csv", "--target", "price", "--method", "cqr", "--out", "model.icqr", cwd=folder)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == "note: columns that seem to number the rows; if so, --ignore them: 'id'\n"
    assert "CQR: 90 % promised" in done.stdout
    with (folder / "sales.csv").open() as stream:
        predicted = run("predict", "model.icqr", "-", "--keep", "id", stdin=stream, cwd=folder)
    assert "\x1b" not in predicted.stdout + predicted.stderr
    assert predicted.stdout.splitlines()[0] == "id,lower,median,upper,group,promised"
    assert len(predicted.stdout.splitlines()) == 121


@pytest.mark.parametrize("width", [120, pytest.param(80, marks=pytest.mark.slow)])
def test_a_terminal_gets_colours_and_a_bar(folder: Path, in_terminal: Terminal, width: int) -> None:
    arguments = ["fit", "sales.csv", "--target", "price", "--method", "cqr", "--out", "model.icqr"]
    code, shown = in_terminal(COMMAND, *arguments, width=width, cwd=folder)
    assert code == 0
    assert "\x1b[1m" in shown
    assert "Fitting and calibrating (hist) ━" in plain(shown)
    results = plain(shown).rpartition("\r")[2]
    assert "Model: model.icqr (" in results
    assert width - 15 < max(map(len, results.splitlines())) <= width


def test_errors_in_a_dumb_terminal(folder: Path, in_terminal: Terminal) -> None:
    arguments = ["fit", "sales.csv", "--target", "prize", "--out", "model.icqr"]
    code, shown = in_terminal(COMMAND, *arguments, cwd=folder, TERM="dumb", NO_COLOR="1")
    assert code == 1
    assert shown.startswith("error: --target: there is no column 'prize'")
    assert shown.endswith("did you mean 'price'?\n")
    assert "\x1b" not in shown


def test_a_reader_that_goes_away(folder: Path, model: IntervalRegressor) -> None:
    """As in `icqr predict … | head -1`, with more rows than a pipe holds."""
    save(model, folder / "model.icqr")
    pd.DataFrame({"size": np.linspace(20, 200, 5000), "id": 1}).to_csv(folder / "many.csv", index=False)
    with started("predict", "model.icqr", "many.csv", cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"lower,median,upper,group,promised\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


# -- Interrupted, full, forbidden ------------------------------------------------------------------------


@pytest.mark.slow
def test_interrupted_while_reading(folder: Path) -> None:
    """A named pipe can be opened for writing when the command has opened it: from then on it waits for rows."""
    os.mkfifo(folder / "slow.csv")
    arguments = ["compare", "slow.csv", "--target", "price"]
    with started(*arguments, cwd=folder) as process:
        rows = None
        while rows is None and process.poll() is None:
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                rows = os.open(folder / "slow.csv", os.O_WRONLY | os.O_NONBLOCK)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"error: interrupted\n")
    assert rows is not None
    os.close(rows)
    assert sorted(os.listdir(folder)) == ["sales.csv", "slow.csv"]


def test_interrupted_while_fitting(folder: Path, in_terminal: Terminal) -> None:
    """Ctrl-C when the bar says that the model is being fitted."""
    pd.DataFrame(np.random.default_rng(1).random((20_000, 8))).rename(columns=str).to_csv(
        folder / "large.csv", index=False
    )
    arguments = ["fit", "large.csv", "--target", "0", "--out", "model.icqr"]
    code, shown = in_terminal(COMMAND, *arguments, cwd=folder, stop_at="Fitting")
    assert code == 130
    assert plain(shown).rstrip().endswith("error: interrupted")
    assert "Traceback" not in shown
    assert sorted(os.listdir(folder)) == ["large.csv", "sales.csv"]


# A process of its own sets the limit: a fork of this one, which may have threads of JAX, would warn.
NEARLY_FULL = ("bash", "-c", 'ulimit -f 1 && exec "$@"', "bash")


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "model.icqr", "sales.csv", "--out", "intervals.csv"],
        pytest.param(["recalibrate", "model.icqr", "sales.csv", "--target", "price"], marks=pytest.mark.slow),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_leaves_the_old_file(folder: Path, model: IntervalRegressor, arguments: list[str]) -> None:
    save(model, folder / "model.icqr")
    (folder / "intervals.csv").write_text("old")
    before = (folder / "model.icqr").read_bytes()
    done = run(*arguments, before=NEARLY_FULL, cwd=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: [Errno 27] File too large"
    assert (folder / "intervals.csv").read_text() == "old"
    assert (folder / "model.icqr").read_bytes() == before
    assert sorted(os.listdir(folder)) == ["intervals.csv", "model.icqr", "sales.csv"]


@contextlib.contextmanager
def without_roots_rights() -> Iterator[None]:
    """Be somebody else for a while if this is root, who may read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_permission(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    (folder / "sales.csv").chmod(0)
    folder.chmod(0o777)
    for arguments, said in (
        (["sales.csv", "--target", "price", "--out", "model.icqr"], "sales.csv: Permission denied"),
        (["sine_spread", "--out", "/model.icqr"], "--out: you may not write in the folder '/'; give another one"),
    ):
        with without_roots_rights(), pytest.raises(SystemExit) as ended:
            main(["fit", *arguments])
        out, err = capsys.readouterr()
        assert (ended.value.code, out, err) == (1, "", f"error: {said}\n")
    assert os.listdir() == ["sales.csv"]


# -- A missing extra -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_cli_extra(module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from icqr.cli import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'error: the icqr command needs typer and rich: pip install "icqr[cli]"\n'


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        ("lightgbm", ["compare", "--model", "lightgbm"], '--model lightgbm needs lightgbm: pip install "lightgbm"'),
        ("jax", ["compare", "--model", "network"], '--model network needs jax: pip install "icqr[neural]"'),
        ("quantile_forest", ["compare", "--model", "forest"], 'needs quantile_forest: pip install "quantile-forest"'),
        ("jinja2", ["compare"], 'the report needs jinja2: pip install "icqr[report]"'),
        ("matplotlib", ["compare"], 'the report needs matplotlib: pip install "icqr[report]"'),
        (
            "pyarrow",
            ["compare", "sales.csv", "--target", "price"],
            'reading tables needs pyarrow: pip install "icqr[cli]"',
        ),
    ],
)
def test_without_another_extra(
    module: str,
    arguments: list[str],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, module, None)
    for name in ("columns", "formats", "reading", "models", "judging"):  # which import pyarrow
        monkeypatch.delitem(sys.modules, f"icqr.cli.{name}", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert os.listdir() == ["sales.csv"]
