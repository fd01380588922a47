"""`icqr fit`, `predict` and `audit` with --engine dask, on a real cluster of two processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed", reason='a cluster needs pip install "icqr[dask]"')

from icqr.cli import main
from icqr.persistence import load

COMMAND = str(Path(sys.executable).parent / "icqr")
AUDIT = ("--target", "price", "--lower", "lower", "--upper", "upper", "--coverage", "0.9", "--groups", "region")


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def make_sales(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.uniform(20, 200, n).round(1), "region": rng.choice(["north", "south"], n)})
    frame["day"] = pd.date_range("2024-01-01", periods=n, freq="h")
    frame["price"] = (5 * frame["size"] + rng.normal(scale=frame["size"] / 2)).round(2)
    return frame


def write_sales(folder: Path, n: int = 900, seed: int = 0) -> pd.DataFrame:
    """Three files: of other types each, one of them in several row groups, and a fourth without a row."""
    folder.mkdir()
    sales = make_sales(n, seed)
    third = n // 3
    sales[:third].to_parquet(folder / "a.parquet", row_group_size=100)
    sales[third : 2 * third].astype({"size": "float32", "region": "category"}).to_parquet(folder / "b.parquet")
    sales[2 * third :].to_parquet(folder / "c.parquet")
    sales[:0].to_parquet(folder / "d.parquet")
    return pd.concat([sales[:third], sales[third : 2 * third].astype({"size": "float32"}), sales[2 * third :]])


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


@pytest.fixture
def icqr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int | None)
        return Result(ended.value.code or 0, *capfd.readouterr())

    return run


# -- The commands ----------------------------------------------------------------------------------------


def test_fit_predict_and_audit_as_the_local_engine(icqr: Run, scheduler: str) -> None:
    sales = write_sales(Path("sales"))
    dask = ("--engine", "dask", "--scheduler", scheduler)
    boosted = ("--method", "icqr", "--model", "lightgbm")
    fitted = icqr("fit", "sales/*.parquet", "--target", "price", *boosted, "--out", "sales.icqr", *dask)
    assert fitted.code == 0, fitted.err
    assert fitted.err == "note: column 'day' holds dates\n"
    assert fitted.out.startswith("Data: sales/*.parquet (900 rows, 3 columns, target 'price').\nICQR: 90 % promised, ")
    assert load("sales.icqr").calibration_.sizes.sum() == 300

    keep = ("--keep", "price", "--keep", "region", "--keep", "day")
    there = icqr("predict", "sales.icqr", "sales/*.parquet", *keep, "--out", "intervals", *dask)
    assert there.out == "900 intervals, 90 % promised: intervals (4 Parquet files)\n"
    assert icqr("predict", "sales.icqr", "sales/*.parquet", *keep, "--out", "intervals.parquet").code == 0
    predicted = pd.read_parquet("intervals")
    assert predicted["price"].tolist() == sales["price"].tolist()
    assert predicted["day"].tolist() == sales["day"].tolist(), "dates, not days since 1970"
    pd.testing.assert_frame_equal(predicted.reset_index(drop=True), pd.read_parquet("intervals.parquet"))

    several = ("--coverage", "0.8", "--coverage", "0.9", "--explain")
    there = icqr("predict", "sales.icqr", "sales/*.parquet", *several, "--out", "several", *dask)
    assert (
        there.out == "900 intervals at each of 2 coverages, 80 % promised; 90 % promised: several (4 Parquet files)\n"
    )
    assert icqr("predict", "sales.icqr", "sales/*.parquet", *several, "--out", "several.parquet").code == 0
    predicted = pd.read_parquet("several").reset_index(drop=True)
    pd.testing.assert_frame_equal(predicted, pd.read_parquet("several.parquet"))

    sales[["price"]].to_parquet("prices.parquet")
    without = icqr("predict", "sales.icqr", "prices.parquet", "--out", "none", *dask)
    assert "lacks columns that the model was trained on" in without.err

    ours = icqr("audit", "intervals", *AUDIT, *dask)
    assert ours.code == 0, ours.err
    assert ours.out == icqr("audit", "intervals.parquet", *AUDIT).out


def test_fit_with_groups_and_gaps(icqr: Run, scheduler: str) -> None:
    write_sales(Path("sales"), 300)
    gaps = make_sales(90, 1)
    gaps.assign(price=gaps["price"].where(gaps.index >= 9)).to_parquet("sales/e.parquet")
    given = ("fit", "sales", "--target", "price", "--groups", "region", "--out", "sales.icqr")
    dask = ("--engine", "dask", "--scheduler", scheduler)
    refused = icqr(*given, *dask)
    assert refused.code == 1
    assert (
        "column 'price' is missing in 9 of 390 rows; --drop-missing would leave out 9 rows and keep 381" in refused.err
    )
    assert not Path("sales.icqr").exists()
    fitted = icqr(*given, "--drop-missing", *dask)
    assert fitted.code == 0, fitted.err
    assert "note: 9 of 390 rows are left out: 'price' missing there" in fitted.err
    assert load("sales.icqr").groups_["rule"].tolist() == ["region = north", "region = south"]
    make_sales(60, 2).assign(region=["west"] * 20 + ["north"] * 40).to_parquet("new.parquet")
    predicted = icqr("predict", "sales.icqr", "new.parquet", "--out", "new", *dask)
    assert predicted.out == "60 intervals, 90 % promised for 40 of them, none for 20: new (1 Parquet file)\n"


def test_fit_calibrated_with_other_files(icqr: Run, scheduler: str) -> None:
    write_sales(Path("old"), 300)
    fresh = make_sales(90, 1)
    fresh[["price", "day", "region", "size"]].to_parquet("fresh.parquet")
    given = ("fit", "old/*.parquet", "--target", "price", "--method", "cqr", "--model", "lightgbm", "--out", "m.icqr")
    dask = ("--engine", "dask", "--scheduler", scheduler)
    fitted = icqr(*given, "--calibration", "fresh.parquet", *dask)
    assert fitted.code == 0, fitted.err
    assert "Calibration: fresh.parquet (90 rows).\nCQR: 90 % promised, 300 training rows, 90 calibration" in fitted.out
    model = load("m.icqr")
    X = fresh[["size", "region", "day"]]
    again = model.predict_interval(X).copy()
    np.testing.assert_allclose(model.calibrate(X, fresh["price"]).predict_interval(X), again, rtol=1e-12)
    crossed = icqr(*given, "--calibration", "cross", *dask)
    assert "error: --calibration cross is not possible with --engine dask: " in crossed.err
    assert "; use --calibration split, or --engine local\n" in crossed.err
    fresh.drop(columns="size").to_parquet("less.parquet")
    refused = icqr(*given, "--calibration", "less.parquet", *dask)
    assert (refused.code, refused.out) == (1, "")
    assert "less.parquet lacks columns that DATA has: there is no column 'size'" in refused.err


@pytest.mark.slow
def test_auto_is_fitted_on_a_sample(icqr: Run, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models are fitted here, on a sample if there are more rows, which a note says; all else is on the cluster."""
    monkeypatch.setattr("icqr.cli.on_dask._SAMPLE_ROWS", 100)
    sales = make_sales(300, 0)
    sales.to_parquet("sales.parquet", row_group_size=100)
    dask = ("--engine", "dask", "--scheduler", scheduler)
    given = ("fit", "sales.parquet", "--target", "price", "--model", "lightgbm", "--out", "sales.icqr", *dask)
    fitted = icqr(*given)
    assert fitted.code == 0, fitted.err
    assert fitted.err.splitlines() == [
        "note: column 'day' holds dates",
        "note: --method auto is fitted on a random sample of 100 rows; --method icqr with --model lightgbm or xgboost "
        "trains on all",
    ]
    assert "Choice of groups: All rows are one group" in fitted.out
    model = load("sales.icqr")
    assert type(model).__name__ == "AutoICQR"
    assert (model.partition, model.calibration_.sizes.sum()) == ("auto", 100)
    assert icqr("predict", "sales.icqr", "sales.parquet", "--keep", "price", "--out", "intervals", *dask).code == 0
    assert icqr("predict", "sales.icqr", "sales.parquet", "--keep", "price", "--out", "intervals.parquet").code == 0
    there = pd.read_parquet("intervals").reset_index(drop=True)
    pd.testing.assert_frame_equal(there, pd.read_parquet("intervals.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cqr", "qr", "naive"])
def test_the_other_methods(icqr: Run, scheduler: str, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr("icqr.cli.on_dask._SAMPLE_ROWS", 100)
    make_sales(300, 0).drop(columns="day").to_parquet("sales.parquet", row_group_size=100)
    given = ("fit", "sales.parquet", "--target", "price", "--method", method, "--out", "sales.icqr")
    fitted = icqr(*given, "--engine", "dask", "--scheduler", scheduler)
    assert fitted.code == 0, fitted.err
    assert fitted.err == (
        "note: --model hist is fitted on a random sample of 100 rows; --model lightgbm and --model xgboost train on "
        "all\n"
    )
    assert type(load("sales.icqr")).__name__.lower() == method
    trained = icqr(*given, "--model", "lightgbm", "--engine", "dask", "--scheduler", scheduler)
    assert (trained.code, trained.err) == (0, "")
    assert load("sales.icqr").n_train_ == (300 if method == "qr" else 200)


def test_an_audit_of_more_rows_than_are_searched_counts_all(
    icqr: Run, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_sales(1200, 0).assign(lower=0.0, upper=lambda sales: 6 * sales["size"])
    rows.loc[::7, "region"] = None
    Path("checked").mkdir()
    for number in range(4):
        rows[number * 300 : (number + 1) * 300].to_parquet(f"checked/{number}.parquet")
    rows[:0].to_parquet("checked/empty.parquet")
    monkeypatch.setattr("icqr.cli.on_dask._SAMPLE_ROWS", 400)
    done = icqr("audit", "checked/*.parquet", *AUDIT, "--engine", "dask", "--scheduler", scheduler)
    assert done.code == 0, done.err
    held = rows["price"] <= rows["upper"]
    assert "Over all 400 rows" in done.out
    assert f"- Counted over all 1,200 rows: {held.mean():.2%} covered.\n" in done.out
    groups = held.groupby(rows["region"], dropna=False)
    assert len(groups) == 3
    for region, some in groups:
        assert f"- region = {region}: {some.mean():.2%} of {len(some):,} rows covered.\n" in done.out
    json_out = icqr("audit", "checked", *AUDIT, "--json", "--engine", "dask", "--scheduler", scheduler).out
    assert len(json.loads(json_out)["all_rows"]) == 4


@pytest.mark.slow
def test_the_pages_commands_run_in_processes_of_their_own(tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "howto" / "command.md"
    (block,) = re.findall(r"```shell\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    write_sales(tmp_path / "sales")
    write_sales(tmp_path / "new", seed=1)
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "icqr"
        command = [COMMAND, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "LightGBM" not in done.stdout + done.stderr
        assert all(text.startswith(("note: ", "warning: ")) for text in done.stderr.splitlines())
    assert len(pd.read_parquet(tmp_path / "intervals")) == 900


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_ctrl_c_leaves_nothing(
    tmp_path: Path, scheduler: str, in_terminal: Callable[..., tuple[int, str]]
) -> None:
    write_sales(tmp_path / "sales")
    command = [COMMAND, "fit", "sales/*.parquet", "--target", "price", "--out", "sales.icqr", "--engine", "dask"]
    code, shown = in_terminal(*command, "--scheduler", scheduler, cwd=tmp_path)
    assert code == 0, shown
    assert "scoring ━" in plain(shown)
    (tmp_path / "sales.icqr").unlink()
    code, shown = in_terminal(*command, cwd=tmp_path, stop_at="starting")  # of a cluster of its own
    assert code == 130, shown
    assert plain(shown).rstrip().endswith("error: interrupted")
    assert os.listdir(tmp_path) == ["sales"]


# -- Patterns without Dask -------------------------------------------------------------------------------


def test_a_pattern_is_one_table_for_the_local_engine_too(icqr: Run) -> None:
    write_sales(Path("sales"), 300)
    options = ("--target", "price", "--method", "cqr", "--out", "sales.icqr")
    done = icqr("fit", "sales/*.parquet", *options)
    assert "Data: sales/*.parquet (300 rows, 3 columns, target 'price')." in done.out
    make_sales(9, 0).to_csv("sales/x.csv", index=False)
    refused = icqr("fit", "sales/*", *options)
    assert (refused.code, refused.err) == (1, "error: sales/x.csv is not a Parquet file, or is damaged\n")
    nothing = icqr("fit", "none/*.parquet", *options)
    assert (nothing.code, nothing.err) == (1, "error: there is no Parquet file at none/*.parquet\n")


# -- Wrong use: one line, nothing written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fit", "x.parquet", "--out", "m.icqr", "--scheduler", "tcp://a:1"], 2, "--scheduler is for --engine dask"),
        (["fit", "x.parquet", "--out", "m.icqr", "--engine", "dsak"], 2, "'dsak' is not one of 'local', 'dask'"),
        (
            ["fit", "x", "--out", "m.icqr", "--engine", "dask", "--encoding", "latin-1"],
            2,
            "--engine dask reads Parquet",
        ),
        (
            ["fit", "x.parquet", "--out", "m.icqr", "--engine", "dask", "--order-by", "day"],
            2,
            "--order-by is for --engine local; with --engine dask fit the older files",
        ),
        (["compare", "x.parquet", "--target", "price", "--engine", "dask"], 2, "No such option: --engine"),
        (["inspect", "m.icqr", "--engine", "dask"], 2, "No such option: --engine"),
        (
            ["predict", "m.icqr", "x.parquet", "--engine", "dask"],
            1,
            "--out must be given with --engine dask: a new folder",
        ),
        (
            ["predict", "m.icqr", "x", "--engine", "dask", "--out", "."],
            1,
            "--out: . exists; with --engine dask it is a new",
        ),
    ],
)
def test_wrong_use_is_said(icqr: Run, arguments: list[str], code: int, said: str) -> None:
    done = icqr(*arguments)
    assert (done.code, done.out) == (code, "")
    assert said in " ".join(done.err.replace("│", " ").split())


def test_bad_data_is_said_in_one_line(icqr: Run, scheduler: str) -> None:
    write_sales(Path("sales"))
    make_sales(9, 0).to_csv("sales.csv", index=False)
    make_sales(9, 0).assign(price="much").to_parquet("text.parquet")
    make_sales(9, 0).drop(columns="size").to_parquet("sales/less.parquet")
    dask = ("--out", "m.icqr", "--engine", "dask", "--scheduler", scheduler)
    for data, target, said in (
        ("sales.csv", "price", r"\S+/sales\.csv is not a Parquet file, or is damaged"),
        ("none/*.parquet", "price", r"there is no Parquet file at none/\*\.parquet"),
        ("sales/*.parquet", "price", r"\S+/less\.parquet has no column 'size'; its columns are \['region', .*\]"),
        ("sales/d.parquet", "price", "sales/d.parquet: there is no row in 1 files"),
        ("text.parquet", "price", "--target: column 'price' must hold numbers, but it holds text"),
        ("sales/a.parquet", "prize", "--target: there is no column 'prize'; .* did you mean 'price'\\?"),
    ):
        done = icqr("fit", data, "--target", target, *dask)
        assert (done.code, done.out) == (1, "")
        assert re.fullmatch(f"error: {said}\n", done.err), done.err
    assert not Path("m.icqr").exists()


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer(icqr: Run) -> None:
    write_sales(Path("sales"))
    done = icqr(
        *("fit", "sales/*.parquet", "--target", "price", "--out", "m.icqr"),
        *("--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"),
    )
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: no Dask scheduler answers at 'tcp://127.0.0.1:9' within 10 s")
    assert len(done.err.splitlines()) == 1


def test_without_dask_the_error_says_how_to_install_it(icqr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dask", "dask.dataframe"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    done = icqr("fit", "x.parquet", "--target", "y", "--out", "m.icqr", "--engine", "dask")
    assert done == (1, "", 'error: --engine dask needs dask: pip install "icqr[dask]"\n')
    assert os.listdir() == []
