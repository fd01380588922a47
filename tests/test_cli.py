"""The `icqr` command in this process: what it prints and writes, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.model_selection import train_test_split

from icqr import CQR, ICQR, QR, AutoICQR, GroupPartition, KMeansPartition, Naive, calibration
from icqr.auditing.findings import percent
from icqr.cli import main
from icqr.cli.models import LIBRARIES, make_model
from icqr.cli.options import ModelName, SmallGroups
from icqr.cross import CrossCalibration
from icqr.metrics import coverage_score, mean_width
from icqr.persistence import load, save

FORMATS = ("csv", "csv.gz", "parquet", "feather", "jsonl")


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def make_sales(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.uniform(20, 200, n).round(1), "region": rng.choice(["north", "south"], n)})
    frame["price"] = (5 * frame["size"] + rng.normal(scale=frame["size"] / 2)).round(2)
    return frame


#: Where the model is not what a test is about.
QUICK = ("--model", "lightgbm", "--method", "cqr")
METHODS = ["Naive", "QR", "CQR", "ICQR", "AutoICQR"]
SALES, NEW = make_sales(240, 0), make_sales(60, 1)


def write(frame: pd.DataFrame, path: Path) -> str:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def read(path: str) -> pd.DataFrame:
    if path.endswith(".parquet"):
        return pd.read_parquet(path)
    if path.endswith(".feather"):
        return pd.read_feather(path)
    if path.endswith(".jsonl"):
        return pd.read_json(path, orient="records", lines=True)
    return pd.read_csv(path)


@pytest.fixture
def icqr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    write(SALES, folder / "sales.csv")
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(folder / "sales.csv"), "--target", "price", "--out", str(folder / "sales.icqr")])
    assert not ended.value.code
    return str(folder / "sales.icqr")


# -- Help ------------------------------------------------------------------------------------------------

COMMANDS = ("compare", "fit", "predict", "recalibrate", "watch", "audit", "inspect", "plan", "datasets")


def test_help_lists_the_commands_and_the_exit_codes(icqr: Run) -> None:
    code, out, err = icqr("--help")
    assert (code, err) == (0, "")
    assert re.findall(r"^│ (\w+)  ", out, flags=re.MULTILINE)[-len(COMMANDS) :] == list(COMMANDS)
    for said in ("Exit codes: 0 done; 1", "2 wrong", "130"):
        assert said in " ".join(out.split())
    without = icqr()
    assert without.code == 2
    assert "Usage: icqr" in without.out
    assert icqr("--version").out.startswith("icqr ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(icqr: Run, command: str) -> None:
    code, out, _ = icqr(command, "-h")
    assert code == 0
    assert f"Examples: icqr {command}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compar"], "No such command 'compar'. Did you mean 'compare'?"),
        (["compare", "--taget", "y"], "No such option: --taget (Possible options: --target)"),
        (["compare", "--model", "lightgm"], "'lightgm' is not one of 'hist', 'lightgbm', 'xgboost'"),
        (["compare", "--method", "cqr"], "No such option: --method"),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "cpr"],
            "'cpr' is not one of 'auto', 'icqr', 'cqr', 'qr', 'naive'",
        ),
        (["compare", "--coverage", "90"], "strictly between 0 and 1, got 90.0; did you mean 0.9?"),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "icqr", "--effort", "quick"],
            "--effort is for --method auto, got --method icqr",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "cqr", "--groups", "a"],
            "--groups is for --method auto and --method icqr, got --method cqr, which has one group for all rows",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "naive", "--small-groups", "error"],
            "--small-groups is for --method auto and --method icqr, got --method naive",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "naive", "--calibration", "cross"],
            "--calibration cross is for --method auto, --method icqr and --method cqr, got --method naive",
        ),
        (["compare", "--calibration", "cross"], "No such option: --calibration"),
        (["fit", "x", "--out", "m.icqr", "--method", "qr", "--calibration", "y"], "which trains on all rows"),
        (
            ["fit", "x", "--out", "m.icqr", "--method", "qr", "--order-by", "day"],
            "--order-by means nothing to --method qr",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--order-by", "day", "--calibration", "new.csv"],
            "--order-by calibrates with the newest rows, and --calibration new.csv with those of the file; leave",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--order-by", "day", "--calibration", "cross"],
            "--order-by calibrates with the newest rows, and --calibration cross with all rows; leave one out",
        ),
        (
            ["compare", "x", "--target", "y", "--order-by", "y"],
            "--order-by y: this column stays a feature, so it can be neither --target nor --ignore",
        ),
        (
            ["fit", "x", "--out", "m.icqr", "--coverage", "0.8", "--coverage", "0.9"],
            "Invalid value for '--coverage': it is given twice, and one is enough: icqr predict gives any other",
        ),
        (["compare", "--target", "a", "--target", "b"], "'--target': it is given twice, and one is enough"),
        (["compare", "--jobs", "0"], "must be 1 or more, or -1 for one per core, got 0"),
        (["compare", "--seed", "-1"], "Invalid value for '--seed'"),
        (["compare", "--small-groups", "infinte"], "'infinte' is not one of 'pooled', 'infinite', 'error'"),
        (["compare", "--y-min", "2", "--y-max", "1"], "--y-min must be less than --y-max, got 2 and 1"),
        (["fit", "sales.csv", "--target", "price"], "Missing option '--out'"),
        (["audit", "x.csv", "--target", "y", "--lower", "l", "--upper", "u"], "Missing option '--coverage'"),
    ],
)
def test_wrong_use_ends_with_2(icqr: Run, arguments: list[str], said: str) -> None:
    code, out, err = icqr(*arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.replace("│", " ").split())


def test_choices_are_the_librarys() -> None:
    assert tuple(LIBRARIES) == get_args(ModelName)
    assert set(get_args(SmallGroups)) == set(calibration.SMALL_GROUPS)


# -- Compare ---------------------------------------------------------------------------------------------


def test_compare(icqr: Run) -> None:
    write(SALES, Path("sales.csv"))
    code, out, err = icqr("compare", "sales.csv", "--target", "price", "--model", "lightgbm", "--report", "sales.html")
    assert code == 0, err
    assert err == ""
    assert "Data: sales.csv (240 rows, 2 columns, target 'price')." in out
    assert "120 rows to train, 60 to calibrate and 60 to compare on (50, 25 and 25 %, as in the paper)" in out
    assert re.findall(r"^(\S.*?)  .* \d+ of \d+ ", out, flags=re.MULTILINE) == METHODS
    assert (
        "AutoICQR fits bounds of its own in two stages (a centre, then the quantiles of the residuals) and chooses "
        "its groups from training rows, here one group for all rows: coverage is promised over all rows together.\n"
    ) in out
    cost = r"^Seconds to fit: Naive [\d.]+, .* AutoICQR [\d.]+ \(the model that QR, CQR and ICQR share .* each\)\.$"
    assert re.search(cost, out, flags=re.MULTILINE)
    for name in METHODS[1:]:
        assert f"- {name} compared with Naive: mean width" in out
    answer, report = out.rstrip("\n").split("\n\n")[-2:]  # the answer comes last
    assert answer.startswith("Use ")
    assert report == "Report: sales.html (open it in a browser)"
    assert "\x1b" not in out
    page = Path("sales.html").read_text(encoding="utf-8")
    assert "fitted once on the training rows; QR, CQR and ICQR use its bounds" in page
    methods = page.partition('<table id="table-methods">')[2]
    assert re.findall(r'<tr>\n<th scope="row"[^>]*>([^<]*)</th>', methods)[:5] == METHODS
    assert "Seconds to fit" in page
    assert "no other partition would leave about 100 calibration rows" in page
    assert sorted(os.listdir()) == ["sales.csv", "sales.html"]


def same_as_the_librarys(shown: list[dict[str, Any]], sales: pd.DataFrame, groups: Any = None, **given: Any) -> None:
    """Check that methods fitted one by one on the same rows come out as those of the command, shared bounds or not."""
    X, X_rest, y, y_rest = train_test_split(sales[["size", "region"]], sales["price"], test_size=0.5, random_state=3)
    X_cal, X_test, y_cal, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=3)
    base, given = LGBMRegressor(random_state=3), {"random_state": 3, **given}
    models = [
        Naive(base, **given),
        QR(base, **given),
        CQR(base, **given),
        ICQR(base, partition=groups, small_groups="infinite", **given),
        AutoICQR(base, partition=groups or "auto", small_groups="infinite", **given),
    ]
    for one, model in zip(shown, models, strict=True):
        held_out = {} if isinstance(model, QR) else {"X_calibration": X_cal, "y_calibration": y_cal}
        intervals = model.fit(X, y, **held_out).predict_interval(X_test)
        assert one["coverage"] == coverage_score(y_test, intervals)
        assert one["mean_width"] == pytest.approx(mean_width(y_test, intervals), rel=1e-12)


def test_compare_as_json(icqr: Run) -> None:
    write(SALES[:120], Path("sales.csv"))
    options = ["--target", "price", "--groups", "region", "--coverage", "0.8", "--seed", "3", "--model", "lightgbm"]
    options += ["--small-groups", "infinite", "--y-min", "98", "--json"]
    code, out, err = icqr("compare", "sales.csv", *options)
    assert (code, err) == (0, "")
    found = json.loads(out)
    same_as_the_librarys(found["methods"], SALES[:120], GroupPartition("region"), coverage=0.8, y_min=98)
    assert [one["method"] for one in found["methods"]] == METHODS
    assert list(found["seconds"]) == METHODS
    assert all(seconds > 0 for seconds in found["seconds"].values())
    assert "selection" not in found  # AutoICQR has the user's groups too
    assert found["promised"] == 0.8
    assert found["answer"].startswith(f"Use {found['in_detail']}: ")
    assert list(found["coverage_by_group"][0]["methods"]) == METHODS
    assert [one["rule"] for one in found["groups"]] == ["region = north", "region = south"]
    for name, calibrated in [("CQR", False), ("ICQR", True), ("AutoICQR", True)]:
        groups = [one for one in found["audits"][name]["regions"] if "group" in one["kind"]]
        assert [one["kind"] for one in groups] == ["group", "group"]
        assert [one["calibration_rows"] is not None for one in groups] == [calibrated, calibrated]
    assert os.listdir() == ["sales.csv"]


def test_compare_shows_groups_of_ones_own(icqr: Run) -> None:
    write(SALES, Path("sales.csv"))
    done = icqr("compare", "sales.csv", "--target", "price", "--groups", "region", *QUICK[:2], "--report", "sales.html")
    assert done.code == 0, done.err
    shares = r"( +\d+\.\d %){5}"
    for region in ("north", "south"):
        assert re.search(rf"^region = {region} +\d+{shares}$", done.out, flags=re.MULTILINE), done.out


@pytest.mark.slow
def test_compare_gives_the_same_numbers_again(icqr: Run) -> None:
    write(SALES, Path("sales.csv"))
    options = ["--target", "price", "--groups", "region", "--seed", "3", "--model", "lightgbm", "--json"]
    one, other = (json.loads(icqr("compare", "sales.csv", *options).out)["methods"] for _ in range(2))
    assert one == other


def test_compare_is_what_the_library_gives(icqr: Run) -> None:
    """With clusters, whose importances come from the shared bounds."""
    write(SALES, Path("sales.csv"))
    done = icqr("compare", "sales.csv", "--target", "price", "--model", "lightgbm", "--seed", "3", "--json")
    same_as_the_librarys(json.loads(done.out)["methods"], SALES)


def test_compare_without_data_uses_built_in_data(icqr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icqr.cli.app._BUILT_IN", 400)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = icqr("compare", "--model", "lightgbm")
    assert code == 0
    assert "…" not in out  # tables fit into a terminal
    assert "Data: built-in data whose spread grows along x1 (400 rows)." in out
    assert Path("report.html").stat().st_size > 50_000


# -- Each command on each format -------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
def test_predict_from_and_to_each_format(icqr: Run, ending: str, model_file: str) -> None:
    file = write(NEW, Path(f"new.{ending}"))
    out = f"intervals.{ending}"
    done = icqr("predict", model_file, file, "--keep", "price", "--keep", "size", "--out", out)
    assert done == (0, f"60 intervals, about 90 % in practice, at least 72.8 % promised (approximate): {out}\n", "")
    written = read(out)
    assert list(written) == ["price", "size", "lower", "median", "upper", "group", "promised"]
    expected = load(model_file).explain(NEW[["size", "region"]])
    np.testing.assert_allclose(written["lower"], expected["lower"], rtol=1e-9)
    np.testing.assert_allclose(written["upper"], expected["upper"], rtol=1e-9)
    assert written["group"].tolist() == expected["group"].tolist()


@pytest.mark.slow
def test_commands_on_a_compressed_file(icqr: Run, model_file: str) -> None:
    """What each command makes of other formats is the reader's, which has tests of its own."""
    file = write(NEW, Path("new.csv.gz"))
    done = icqr("fit", file, "--target", "price", *QUICK, "--out", "small.icqr")
    assert "Data: new.csv.gz (60 rows" in done.out
    assert icqr("predict", model_file, file, "--keep", "price", "--out", "out.csv.gz").code == 0
    done = icqr("audit", "out.csv.gz", "--target", "price", "--lower", "lower", "--upper", "upper", "--coverage", "0.9")
    assert done.code == 0
    assert done.out.startswith("Over all 60 rows")
    done = icqr("recalibrate", model_file, file, "--target", "price", "--out", "fresh.icqr")
    assert done.code == 0
    assert "calibrated with 60 rows of new." in done.out
    assert load("fresh.icqr").calibration_.sizes.sum() == 60


def test_standard_input_and_output(icqr: Run, model_file: str) -> None:
    rows = NEW.drop(columns="price").to_csv(index=False).encode()
    code, out, err = icqr("predict", model_file, "-", stdin=rows)
    assert (code, err) == (0, "")
    assert list(pd.read_csv(io.StringIO(out))) == ["lower", "median", "upper", "group", "promised"]
    assert len(out.splitlines()) == 61
    code, again, _ = icqr("predict", model_file, "-", stdin=NEW.drop(columns="price").to_parquet())
    assert again == out


# -- Models ----------------------------------------------------------------------------------------------


def test_fit_and_inspect(icqr: Run, model_file: str) -> None:
    code, out, err = icqr("inspect", model_file)
    assert (code, err) == (0, "")
    assert out.startswith(
        "AutoICQR: about 90 % in practice, at least 72.8 % promised (approximate), 240 training rows, 240 calibration "
        "rows, 1 group.\n"
    )
    assert "Estimator: ResidualQuantiles(HistGradientBoostingRegressor()).\nBounds: in two stages: a centre (" in out
    assert "What is promised: Approximate: about the coverage asked for in practice." in out  # one group was chosen
    assert "Columns: 'size' (numbers), 'region' (2 categories)." in out
    found = json.loads(icqr("inspect", model_file, "--json").out)
    assert found["columns"] == {"size": "numbers", "region": "2 categories"}
    assert found["promised"] == 0.9
    expected = AutoICQR(make_model("hist"), random_state=0).fit(SALES[["size", "region"]], SALES["price"])
    again = load(model_file).predict_interval(NEW[["size", "region"]])
    np.testing.assert_array_equal(again, expected.predict_interval(NEW[["size", "region"]]))


@pytest.mark.parametrize("method", ["auto", "cqr"])
@pytest.mark.parametrize("calibration", ["split", "cross"])
def test_fit_sets_rows_aside_or_not(icqr: Run, method: str, calibration: str) -> None:
    write(SALES, Path("sales.csv"))
    given = ("sales.csv", "--target", "price", "--model", "lightgbm", "--method", method, "--calibration", calibration)
    fit = icqr("fit", *given, "--out", "model.icqr")
    assert fit.code == 0, fit.err
    assert "Traceback" not in fit.err
    # With groups that were chosen on the same rows, less is promised the more there are.
    least = r"\d\d\.\d % promised \(approximate\)" if method == "auto" else r"72\.8 % promised"
    promised = {"split": ": 90 % promised, 160 ", "cross": f": about 90 % in practice, at least {least}, 240 "}
    assert re.search(f"{promised[calibration]}training rows", fit.out)
    assert isinstance(load("model.icqr").calibration_, CrossCalibration) == (calibration == "cross")
    # Fresh rows make the promise exact.
    write(NEW, Path("new.csv"))
    fresh = icqr("recalibrate", "model.icqr", "new.csv", "--target", "price")
    assert ": 90 % promised, " in fresh.out


IN_TIME = (
    "note: with rows in time no promise is sure to last: icqr compare --order-by shows how the methods do on the "
    "newest rows, and icqr recalibrate takes fresh ones\n"
)


@pytest.mark.parametrize("method", ["auto", "cqr"])
def test_rows_in_time(icqr: Run, method: str) -> None:
    """The oldest train and the newest calibrate, as `fit(…, order=…)` does; the column stays a feature."""
    shuffled = make_sales(240, 0).assign(year=np.arange(240) / 100).sample(frac=1, random_state=0)
    write(shuffled, Path("sales.csv"))
    given = ("sales.csv", "--target", "price", "--model", "lightgbm", "--method", method, "--out", "model.icqr")
    fit = icqr("fit", *given, "--order-by", "year")
    assert (fit.code, fit.err) == (0, IN_TIME)
    assert "Split: the oldest 160 rows train, the newest 80 calibrate ('year').\n" in fit.out
    table = pd.read_csv("sales.csv")
    estimator = {"auto": AutoICQR, "cqr": CQR}[method](LGBMRegressor(), random_state=0)
    expected = estimator.fit(table[["size", "region", "year"]], table["price"], order="year")
    rows = NEW.assign(year=2.4)[["size", "region", "year"]]
    np.testing.assert_array_equal(load("model.icqr").predict_interval(rows), expected.predict_interval(rows))
    for wrong, said in (
        (
            "yaer",
            "--order-by: there is no column 'yaer'; columns are 'size', 'region', 'price', 'year'; did you mean 'y",
        ),
        ("region", "--order-by: column 'region' must hold dates or numbers, but it holds text, for example '"),
    ):
        assert said in icqr("fit", *given, "--order-by", wrong).err


def test_rows_whose_time_is_missing(icqr: Run) -> None:
    write(SALES.assign(year=np.where(SALES.index < 6, np.nan, SALES.index / 100)), Path("sales.csv"))
    given = ("sales.csv", "--target", "price", *QUICK, "--order-by", "year", "--out", "model.icqr")
    said = "column 'year' is missing in 6 of 240 rows; --drop-missing would leave out 6 rows and keep 234"
    assert said in icqr("fit", *given).err
    done = icqr("fit", *given, "--drop-missing")
    said = "note: 6 of 240 rows are left out: their target or 'year' is missing\n"
    assert (done.code, done.err) == (0, said + IN_TIME)


def test_compare_rows_in_time(icqr: Run) -> None:
    """The oldest half trains, the newest quarter is compared on."""
    sales = make_sales(240, 0).assign(year=np.arange(240))
    sales.loc[sales["year"] >= 180, "price"] += 10_000  # only there
    write(sales.sample(frac=1, random_state=0), Path("sales.csv"))
    given = ("compare", "sales.csv", "--target", "price", "--model", "lightgbm", "--json")
    done = icqr(*given, "--order-by", "year")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {one["coverage"] for one in found["methods"]} == {0.0}
    split = found["computed"]["about"]["split"]
    assert split.startswith(
        "120 rows to train, 60 to calibrate and 60 to compare on (50, 25 and 25 %, as in the paper)"
    )
    assert split.endswith("in the order of 'year': the oldest rows train, and the newest are compared on")


@pytest.mark.parametrize("method", ["auto", "naive"])
def test_rows_to_calibrate_with(icqr: Run, method: str) -> None:
    """From a file of their own: columns in another order, codes that all look like numbers, and more of them."""
    old, fresh = (sales.assign(code=["007", "8", "x"] * 20) for sales in (make_sales(60, 0), make_sales(60, 1)))
    fresh = fresh[fresh["code"] != "x"]
    write(old, Path("old.csv"))
    write(fresh.assign(id=1)[["price", "id", "code", "region", "size"]], Path("fresh.parquet"))
    write(fresh[["code", "region", "price", "size"]], Path("fresh.csv"))
    given = ("old.csv", "--target", "price", "--model", "lightgbm", "--method", method, "--out", "model.icqr")
    estimator = {"auto": AutoICQR, "naive": Naive}[method](LGBMRegressor(), random_state=0)
    names = ["size", "region", "code"]
    expected = estimator.fit(
        old[names], old["price"], X_calibration=fresh[names], y_calibration=fresh["price"]
    ).predict_interval(fresh[names])
    for name in ("fresh.csv", "fresh.parquet"):
        done = icqr("fit", *given, "--calibration", name)
        assert done.code == 0, done.err
        assert f"\nCalibration: {name} (40 rows).\n" in done.out
        np.testing.assert_allclose(load("model.icqr").predict_interval(fresh[names]), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        (None, "--calibration fresh.csv: there is no file 'fresh.csv', and no data set of that name"),
        (NEW.drop(columns="size"), "fresh.csv lacks columns that DATA has: there is no column 'size'"),
        (
            NEW.assign(size="big"),
            "fresh.csv: column 'size' must hold numbers, as in DATA, but 60 of 60 values are text",
        ),
        (NEW.assign(price=np.nan), "--drop-missing would leave out 60 rows and keep 0"),
        (NEW[:3], "a coverage of 0.9 needs at least 9 calibration rows for a finite interval, got 3."),
    ],
)
def test_rows_to_calibrate_with_that_do_not_fit(icqr: Run, fresh: pd.DataFrame | None, said: str) -> None:
    write(SALES, Path("sales.csv"))
    if fresh is not None:
        write(fresh, Path("fresh.csv"))
    given = ("sales.csv", "--target", "price", *QUICK, "--out", "model.icqr")
    done = icqr("fit", *given, "--calibration", "fresh.csv")
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not Path("model.icqr").exists()
    assert "did you mean 'split'?" in icqr("fit", *given, "--calibration", "spilt").err


@pytest.mark.parametrize(("name", "method"), [("icqr", ICQR), ("cqr", CQR), ("qr", QR), ("naive", Naive)])
def test_fit_with_another_method(icqr: Run, name: str, method: Any) -> None:
    write(SALES, Path("sales.csv"))
    given = ("sales.csv", "--target", "price", "--model", "lightgbm", "--coverage", "0.8", "--seed", "3")
    fit = icqr("fit", *given, "--method", name, "--out", "model.icqr")
    assert (fit.code, fit.err) == (0, "")
    assert f"\n{method.__name__}: 80 % promised, " in fit.out
    assert "\nEstimator: LGBMRegressor().\n" in fit.out
    write(NEW, Path("new.csv"))
    assert icqr("predict", "model.icqr", "new.csv", "--out", "out.csv").code == 0
    expected = method(LGBMRegressor(), coverage=0.8, random_state=3).fit(SALES[["size", "region"]], SALES["price"])
    found = pd.read_csv("out.csv")[["lower", "upper"]]
    np.testing.assert_allclose(found, expected.predict_interval(NEW[["size", "region"]]), rtol=1e-9)
    fresh = icqr("recalibrate", "model.icqr", "new.csv", "--target", "price")
    assert fresh.code == (name == "qr")
    assert ("error: QR has no calibration" in fresh.err) == (name == "qr")


@pytest.mark.parametrize("model", ["forest", pytest.param("network", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.slow), "naive"])
def test_models_without_a_mean_of_their_own_fit_too(icqr: Run, method: str, model: str) -> None:
    """Forests and networks predict the median: AutoICQR takes it as centre, and Naive as what it predicts."""
    pytest.importorskip(LIBRARIES[model][0])  # type: ignore[index]
    write(SALES, Path("sales.csv"))
    fit = icqr("fit", "sales.csv", "--target", "price", "--model", model, "--method", method, "--out", "model.icqr")
    assert fit.code == 0, fit.err
    features = NEW[["size", "region"]]
    assert 0.75 < coverage_score(NEW["price"], load("model.icqr").predict_interval(features)) <= 1


@pytest.mark.parametrize(
    ("unfitted", "promised", "shown"),
    [
        (CQR(random_state=0), "Over all rows together at least the promised share", "group 0  all rows  "),
        (ICQR(partition=GroupPartition("region"), random_state=0), "In each group at least the promised", "south  "),
        (
            ICQR(partition=KMeansPartition(data="calibration"), random_state=0),
            "Approximate: the groups were learned from the calibration rows",
            "approximate",
        ),
        (QR(random_state=0), "None: the quantile model's own bounds", "group 0  all rows  "),
    ],
    ids=["CQR", "groups", "as printed", "QR"],
)
def test_inspect_says_what_is_promised(icqr: Run, unfitted: Any, promised: str, shown: str) -> None:
    save(unfitted.fit(SALES[["size", "region"]], SALES["price"]), "model.icqr")
    code, out, err = icqr("inspect", "model.icqr")
    assert (code, err) == (0, "")
    assert f"What is promised: {promised}" in out
    assert (shown in out) != (shown == "approximate")  # what holds for all groups is not said of each


def test_inspect_names_the_groups_without_a_promise(icqr: Run) -> None:
    sales = SALES.assign(region=np.where(SALES.index < 9, "west", SALES["region"]))
    model = ICQR(LGBMRegressor(), partition=GroupPartition("region"), side="upper", random_state=0)
    with pytest.warns(UserWarning, match="group 2 has 3"):
        save(model.fit(sales[["size", "region"]], sales["price"]), "model.icqr")
    out = icqr("inspect", "model.icqr").out
    unpromised = percent(model.certificate().unpromised)
    assert f"{unpromised} of the calibration rows are in groups too small for a promise; over all rows at least" in out
    assert re.search(r"^group 2  region = west +\S+ +none  none \(pooled offset\) +\d$", out, flags=re.MULTILINE)
    assert "Lower offset" not in out


def test_fit_with_groups_of_ones_own(icqr: Run) -> None:
    write(SALES, Path("sales.csv"))
    done = icqr("fit", "sales.csv", "--target", "price", "--groups", "region", *QUICK[:2], "--out", "model.icqr")
    assert done.code == 0, done.err
    model = load("model.icqr")
    assert isinstance(model.partition_, GroupPartition)
    assert "region = north" in done.out
    write(NEW.assign(region=np.where(NEW.index < 20, "west", NEW["region"])), Path("new.csv"))
    done = icqr("predict", "model.icqr", "new.csv", "--out", "out.csv")
    promised = f"about 90 % in practice, at least {percent(model.certificate().marginal)} promised"
    assert done.out == f"60 intervals, {promised} for 40 of them, none for 20: out.csv\n"


def test_groups_too_small_and_limits_of_the_target(icqr: Run) -> None:
    """Endless intervals where a group has too few calibration rows, cut at the limits that the target has."""
    write(SALES.assign(region=np.where(SALES.index < 8, "west", SALES["region"])), Path("sales.csv"))
    given = ["sales.csv", "--target", "price", "--groups", "region", "--small-groups", "infinite", *QUICK[:2]]
    limits = ["--y-min", "0", "--y-max", "2000"]
    done = icqr("fit", *given, *limits, "--out", "model.icqr")
    assert done.code == 0, done.err
    write(pd.DataFrame({"size": [20.0, 20.0], "region": ["west", "north"]}), Path("new.csv"))
    assert icqr("predict", "model.icqr", "new.csv", "--out", "out.csv").code == 0
    found = pd.read_csv("out.csv")
    assert found.loc[0, ["lower", "upper", "promised"]].tolist() == [0, 2000, 1]
    assert found.loc[1, "lower"] >= 0
    assert found.loc[1, "upper"] < 2000
    for command in (["fit", "--out", "model.icqr"], ["compare"]):
        wrong = icqr(*command, *given, "--y-min", "500")
        assert wrong.code == 1
        assert "the target must lie between 500 and inf (--y-min, --y-max); row 1 is 312.83" in wrong.err


@pytest.mark.slow
def test_auto_in_a_file(icqr: Run) -> None:
    """Fit, inspect, predict, audit and recalibrate: what was chosen is kept, and codes that are text stay text."""
    sales = make_sales(630, 0).assign(code=np.tile(["007", "8", "x"], 210))
    write(sales.assign(price=sales["price"] + 100 * (sales["code"] == "007")), Path("sales.csv"))
    given = ("sales.csv", "--target", "price", "--model", "lightgbm", "--effort", "thorough")
    fit = icqr("fit", *given, "--out", "model.icqr")
    assert (fit.code, fit.err.count("\n")) == (0, 1)
    assert fit.err.startswith("note: column 'code' is taken as text")
    model = load("model.icqr")
    assert isinstance(model, AutoICQR)
    assert (model.effort, model.partition) == ("thorough", "auto")
    assert {"one group", "difficulty"} <= set(model.selection_["partition"])
    assert "\nEstimator: ResidualQuantiles(LGBMRegressor()).\nBounds: in two stages: a centre (" in fit.out
    choice = f"Choice of groups: Of {len(model.selection_)} partitions that were tried on the training rows, "
    assert choice in fit.out
    inspected = icqr("inspect", "model.icqr").out
    assert "Columns: 'size' (numbers), 'region' (2 categories), 'code' (3 categories).\n" in inspected
    found = json.loads(icqr("inspect", "model.icqr", "--json").out)
    assert [one["loss"] for one in found["selection"][0]["candidates"]] == model.selection_["loss"].tolist()
    assert "lightgbm" in found["computed"]["versions"]

    new = make_sales(60, 1).assign(code=np.tile(["007", "8"], 30))
    write(new, Path("new.csv"))  # all codes look like numbers
    assert icqr("predict", "model.icqr", "new.csv", "--keep", "price", "--out", "intervals.csv").code == 0
    expected = model.predict_interval(new[["size", "region", "code"]])
    np.testing.assert_allclose(pd.read_csv("intervals.csv")[["lower", "upper"]], expected, rtol=1e-9)
    columns = ("--target", "price", "--lower", "lower", "--upper", "upper", "--coverage", "0.9")
    assert icqr("audit", "intervals.csv", *columns).out.startswith("Over all 60 rows")
    fresh = icqr("recalibrate", "model.icqr", "new.csv", "--target", "price")
    assert fresh.code == 0
    assert choice in fresh.out


def test_predict_explains_and_takes_another_coverage(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    assert icqr("predict", model_file, "new.csv", "--explain", "--coverage", "0.5", "--out", "all.csv").code == 0
    expected = load(model_file).explain(NEW[["size", "region"]], coverage=0.5)
    pd.testing.assert_frame_equal(pd.read_csv("all.csv"), expected, check_dtype=False)
    write(NEW.assign(group=1), Path("new.csv"))
    assert "there would be two columns 'group'" in icqr("predict", model_file, "new.csv", "--keep", "group").err


def test_predict_at_several_coverages(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    asked = ("--coverage", "0.8", "--coverage", "0.95", "--coverage", "0.8")
    done = icqr("predict", model_file, "new.csv", *asked, "--keep", "price", "--out", "out.csv")
    assert done.code == 0, done.err
    assert done.out.startswith(
        "60 intervals at each of 2 coverages, about 80 % in practice, at least 52.8 % promised (approximate); about 95"
    )
    written, X = pd.read_csv("out.csv"), NEW[["size", "region"]]
    ends = ["lower_0.8", "upper_0.8", "promised_0.8", "lower_0.95", "upper_0.95", "promised_0.95"]
    assert list(written) == ["price", "median", "group", *ends]
    expected = load(model_file).predict_interval(X, coverage=[0.8, 0.95])
    for place, level in enumerate(("0.8", "0.95")):
        found = written[[f"lower_{level}", f"upper_{level}"]]
        np.testing.assert_allclose(found, expected[:, :, place], rtol=1e-9)
    # The audit of one of them takes the others for what they are.
    ends = ("--lower", "lower_0.8", "--upper", "upper_0.8", "--coverage", "0.8")
    audited = icqr("audit", "out.csv", "--target", "price", *ends)
    assert audited.code == 0
    assert "icqr predict wrote: 'group', 'lower_0.95', 'promised_0.8', 'promised_0.95', 'upper_0.95'\n" in audited.err
    explained = icqr("predict", model_file, "new.csv", *asked, "--explain").out.splitlines()[0]
    assert explained.startswith("group,n,novelty,median,crossed,rank_0.8,offset_lower_0.8,")
    wrong = icqr("predict", model_file, "new.csv", "--coverage", "0.8", "--coverage", "95")
    assert (wrong.code, wrong.out) == (2, "")


def test_predict_ignores_other_columns_and_names_missing_ones(icqr: Run, model_file: str) -> None:
    write(NEW.assign(id=range(60)), Path("new.csv"))
    code, _, err = icqr("predict", model_file, "new.csv")
    assert code == 0
    assert err == "note: columns that the model does not use: 'price', 'id'\n"
    write(NEW.rename(columns={"size": "sizes"}), Path("new.csv"))
    code, out, err = icqr("predict", model_file, "new.csv")
    assert (code, out) == (1, "")
    assert (
        "new.csv lacks columns that the model was trained on: there is no column 'size'; columns are 'region'," in err
    )
    assert err.endswith("; did you mean 'sizes'?\n")
    assert "there is no column 'idd'" in icqr("predict", model_file, "new.csv", "--keep", "idd").err


def test_predict_copies_columns_as_they_are(icqr: Run, model_file: str) -> None:
    ids = [f"{number:05}" for number in range(60)]
    write(NEW.assign(id=ids, day="05/06/2023"), Path("new.csv"))
    done = icqr("predict", model_file, "new.csv", "--keep", "id", "--keep", "day", "--out", "intervals.csv")
    assert (done.code, done.err) == (0, "note: columns that the model does not use: 'price'\n")
    written = pd.read_csv("intervals.csv", dtype={"id": str})
    assert written["id"].tolist() == ids
    assert set(written["day"]) == {"05/06/2023"}


def test_categories_that_the_model_does_not_know_are_named(icqr: Run, model_file: str) -> None:
    write(NEW.assign(region="Atlantis"), Path("new.csv"))
    said = "note: column 'region': 60 of 60 values are categories that no training row had ('Atlantis')"
    assert said in icqr("predict", model_file, "new.csv").err
    assert said in icqr("recalibrate", model_file, "new.csv", "--target", "price", "--out", "fresh.icqr").err


def test_predict_adds_quantiles_and_probabilities(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    asked = ("--quantiles", "0.1,0.5,0.9", "--above", "350", "--below", "99.5")
    assert icqr("predict", model_file, "new.csv", *asked, "--coverage", "0.5", "--out", "all.csv").code == 0
    written, distribution = pd.read_csv("all.csv"), load(model_file).predict_distribution(NEW[["size", "region"]])
    assert written.columns[-5:].tolist() == ["quantile_0.1", "quantile_0.5", "quantile_0.9", "above_350", "below_99.5"]
    np.testing.assert_allclose(written.iloc[:, -5:-2], distribution.ppf([0.1, 0.5, 0.9]))
    np.testing.assert_allclose(written["above_350"], distribution.sf(350))
    np.testing.assert_allclose(written["below_99.5"], distribution.cdf(99.5))


@pytest.mark.parametrize("levels", ["10", "0.1;0.5", "", "nan"])
def test_quantile_levels_that_are_none_are_refused(icqr: Run, model_file: str, levels: str) -> None:
    result = icqr("predict", model_file, "new.csv", "--quantiles", levels)
    assert result.code == 2
    assert "levels must be numbers between 0 and 1" in result.err


def test_many_categories_are_explained_and_rare_ones_are_known(icqr: Run) -> None:
    rng = np.random.default_rng(0)
    shops = pd.DataFrame({"shop": [f"s{j}" for j in [*range(600), *rng.integers(600, size=900)]]})
    write(shops.assign(size=rng.uniform(size=1500), price=rng.normal(size=1500)), Path("shops.csv"))
    fit = icqr("fit", "shops.csv", "--target", "price", "--method", "cqr", "--out", "model.icqr", "--seed", "0")
    assert fit.code == 0
    known = load("model.icqr").model_.encoder_.features.categories["shop"].tolist()
    assert 400 < len(known) < 600  # those of the training rows
    assert fit.err.count("categories") == 1
    assert (
        f"note: column 'shop': {len(known)} categories, more than the 255 that HistGradientBoostingRegressor takes; "
        "none is dropped: each is encoded by the mean and spread of the target\n" in fit.err
    )
    words = f"{len(known)} categories, as the mean and spread of the target"
    assert f"Columns: 'shop' ({words}), 'size' (numbers).\n" in icqr("inspect", "model.icqr").out
    assert json.loads(icqr("inspect", "model.icqr", "--json").out)["columns"] == {"shop": words, "size": "numbers"}

    # All categories of training rows are known, however rare.
    new = pd.DataFrame({"shop": [*known, *["nowhere"] * 3], "size": 0.5})
    write(new, Path("new.csv"))
    assert icqr("predict", "model.icqr", "new.csv", "--out", "intervals.csv").err == (
        f"note: column 'shop': 3 of {len(new)} values are categories that no training row had ('nowhere'); they count "
        "as missing\n"
    )


def test_text_among_numbers_and_dates_of_the_training_rows_is_refused(icqr: Run) -> None:
    day = pd.date_range("2024-01-01", periods=240).strftime("%Y-%m-%d")
    write(SALES.assign(day=day), Path("sales.csv"))
    assert icqr("fit", "sales.csv", "--target", "price", *QUICK, "--out", "m.icqr").code == 0
    new = NEW.assign(day=day[:60])
    write(new.assign(size=["unknown", *new["size"][1:]]), Path("new.csv"))
    refused = icqr("predict", "m.icqr", "new.csv")
    said = "error: column 'size': the model was trained on numbers, but 1 of 60 values are text, for example 'unk"
    assert (refused.code, refused.out) == (1, "")
    assert said in refused.err
    assert icqr("predict", "m.icqr", "new.csv", "--missing", "unknown").code == 0
    write(new.assign(day=["unknown", *new["day"][1:]]), Path("new.csv"))
    refused = icqr("predict", "m.icqr", "new.csv")
    assert "but not 'unknown'. If that means a missing value, say --missing unknown\n" in refused.err
    assert "error: column 'day': the model was trained on dates, but here the column holds text\n" in refused.err
    assert icqr("predict", "m.icqr", "new.csv", "--missing", "unknown").code == 0


def test_rows_unlike_the_calibration_rows_are_counted(icqr: Run) -> None:
    """With K-means clusters, whose centres rows may be far from."""
    write(SALES, Path("sales.csv"))
    assert (
        icqr("fit", "sales.csv", "--target", "price", *QUICK[:2], "--method", "icqr", "--out", "model.icqr").code == 0
    )
    write(NEW.assign(size=NEW["size"] + 1000 * (NEW.index < 20)), Path("new.csv"))
    said = "note: 20 of 60 rows are unlike those that the model was calibrated with (novelty 0.05 or less, see"
    assert said in icqr("predict", "model.icqr", "new.csv").err
    write(NEW, Path("new.csv"))
    assert "unlike" not in icqr("predict", "model.icqr", "new.csv").err


def test_clusters_that_explain_too_little_are_noted(icqr: Run) -> None:
    """One line that says that nothing is wrong; nothing if the clusters are not what was chosen."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((400, 8)), columns=list("abcdefgh"))
    write(X.assign(price=X.sum(axis=1) + rng.normal(size=400)), Path("sales.csv"))
    given = ("fit", "sales.csv", "--target", "price", *QUICK[:2], "--out", "model.icqr")
    done = icqr(*given, "--method", "icqr")
    assert (done.code, done.err.count("\n")) == (0, 1)
    said = (
        r"note: K-means stopped at 50 clusters, which explain [78]\d % of the variance and not 90 %\. What is promised"
    )
    assert re.match(said, done.err)
    assert icqr(*given).err == ""


def test_of_many_groups_the_first_are_shown(icqr: Run) -> None:
    write(SALES.assign(shop=[f"shop {n:03d}" for n in range(120)] * 2), Path("sales.csv"))
    code, out, _ = icqr("fit", "sales.csv", "--target", "price", "--groups", "shop", *QUICK[:2], "--out", "model.icqr")
    assert code == 0
    assert "shop 049" in out
    assert "shop 050" not in out
    assert "And 70 more." in out


def test_a_target_that_is_not_there_is_looked_for_among_all_columns(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    err = icqr("recalibrate", model_file, "new.csv", "--target", "prices").err
    assert "there is no column 'prices'; columns are 'size', 'region', 'price'; did you mean 'price'?" in err


def test_a_column_that_the_model_was_trained_on_is_no_target(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    before = Path(model_file).read_bytes()
    done = icqr("recalibrate", model_file, "new.csv", "--target", "size")
    assert done.code == 1
    assert "--target size: the model was trained on this column" in done.err
    assert Path(model_file).read_bytes() == before


def test_predict_reads_columns_as_training_did(icqr: Run) -> None:
    """Codes that were text in training stay text in a file where all of them look like numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.choice(["007", "8", "x"], 200), "size": rng.random(200)})
    frame["price"] = frame["code"].map({"007": 0.0, "8": 10.0, "x": 20.0}) + rng.random(200)
    write(frame, Path("train.csv"))
    assert icqr("fit", "train.csv", "--target", "price", *QUICK, "--out", "m.icqr").code == 0
    write(pd.DataFrame({"code": ["007", "8"], "size": [0.5, 0.5]}), Path("new.csv"))
    median = pd.read_csv(io.StringIO(icqr("predict", "m.icqr", "new.csv").out))["median"]
    assert median.round(-1).tolist() == [0.0, 10.0]


def test_a_known_data_set_has_its_target(icqr: Run) -> None:
    assert icqr("fit", "sine_spread", *QUICK, "--out", "sine.icqr").code == 0
    done = icqr("recalibrate", "sine.icqr", "sine_spread")
    assert (done.code, done.err) == (0, "")
    assert "calibrated with 1,000 rows of sine_spread" in done.out


@pytest.mark.slow
def test_recalibrate_replaces_the_model_only_when_all_went_well(icqr: Run, model_file: str) -> None:
    Path("sales.icqr").write_bytes(Path(model_file).read_bytes())
    before = Path("sales.icqr").read_bytes()
    write(NEW.assign(price=np.nan), Path("new.csv"))
    assert icqr("recalibrate", "sales.icqr", "new.csv", "--target", "price").code == 1
    assert Path("sales.icqr").read_bytes() == before
    write(NEW, Path("new.csv"))
    assert icqr("recalibrate", "sales.icqr", "new.csv").code == 1
    assert icqr("recalibrate", "sales.icqr", "new.csv", "--target", "price").code == 0
    assert load("sales.icqr").calibration_.sizes.sum() == 60
    assert sorted(os.listdir()) == ["new.csv", "sales.icqr"]


def test_a_file_that_is_no_model(icqr: Run) -> None:
    write(NEW, Path("new.csv"))
    for arguments in (["predict", "new.csv", "new.csv"], ["inspect", "new.csv"]):
        code, out, err = icqr(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("error: new.csv: not a model of icqr")
        assert err.count("\n") == 1
    assert icqr("inspect", "none.icqr").err == "error: none.icqr: No such file or directory\n"


# -- Audit, plan, datasets -------------------------------------------------------------------------------


def test_audit(icqr: Run) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"hour": rng.integers(0, 24, 1200), "zone": rng.choice(["a", "b"], 1200), "lo": -1.645})
    frame = frame.assign(hi=1.645, y=rng.normal(scale=np.where(frame["hour"] <= 6, 2.0, 1.0)))
    write(frame, Path("intervals.csv"))
    columns = ["--target", "y", "--lower", "lo", "--upper", "hi", "--coverage", "0.9"]
    code, out, err = icqr("audit", "intervals.csv", *columns, "--groups", "zone", "--report", "audit.html")
    assert (code, err) == (0, "")
    assert "- Rows with hour ≤ 6: " in out
    assert re.search(r"^zone = a +\d+ +\d\d\.\d % ", out, flags=re.MULTILINE)
    assert Path("audit.html").exists()
    found = json.loads(icqr("audit", "intervals.csv", *columns, "--json").out)
    assert found["verdict"]["status"] == "broken"
    mistyped = ["--lower", "lo_", *columns[:2], *columns[4:]]
    assert "did you mean 'lo'?" in icqr("audit", "intervals.csv", *mistyped).err
    swapped = ["--target", "y", "--lower", "hi", "--upper", "lo", "--coverage", "0.9"]
    assert re.search(
        r"--lower hi is above --upper lo in (\d,?)+ of .* rows; are", icqr("audit", "intervals.csv", *swapped).err
    )
    write(frame[["y", "lo", "hi"]], Path("bare.csv"))
    assert icqr("audit", "bare.csv", *columns).code == 0


def test_audit_looks_for_no_regions_in_what_predict_wrote(icqr: Run, model_file: str) -> None:
    write(NEW, Path("new.csv"))
    columns = ["--target", "price", "--lower", "lower", "--upper", "upper", "--coverage", "0.9", "--groups", "group"]
    kept = ("--keep", "price", "--keep", "size", "--out", "intervals.csv")
    for more, others in (([], ""), (["--explain"], "'band_lower', 'band_upper', 'collapsed', ")):
        assert icqr("predict", model_file, "new.csv", *kept, *more).code == 0
        code, out, err = icqr("audit", "intervals.csv", *columns, "--json")
        assert code == 0
        assert f"note: regions are not looked for in columns that icqr predict wrote: {others}" in err
        regions = [one["region"] for one in json.loads(out)["audits"]["intervals"]["regions"]]
        assert all(name.startswith(("all rows", "size", "median", "interval width", "group = ")) for name in regions)


def test_plan(icqr: Run) -> None:
    code, out, err = icqr("plan", "--rows", "1000", "--n-groups", "5", "--precision", "0.02")
    assert (code, err) == (0, "")
    assert out.startswith("Each of 5 groups with 200 calibration rows: 90 % promised")
    assert re.search(r"^ *200 +181 +90\.0 % +86\.4–93\.3 %$", out, flags=re.MULTILINE)
    assert "and the coverage that 90 % of all calibrations give" in out
    assert json.loads(icqr("plan", "--precision", "0.02", "--json").out)["rows_needed"] == 650


def test_datasets(icqr: Run) -> None:
    assert re.search(r"^bike +17,379 +12 +cnt ", icqr("datasets").out, flags=re.MULTILINE)
    assert "sine_spread" in [one["name"] for one in json.loads(icqr("datasets", "--json").out)]


def test_a_known_name_and_a_file_of_that_name(icqr: Run) -> None:
    code, out, _ = icqr("fit", "sine_spread", *QUICK, "--out", "known.icqr")
    assert code == 0
    assert "Data: sine_spread (1,000 rows, 2 columns, target 'y')." in out
    Path("linear_spread").mkdir()
    assert "1,000 rows" in icqr("fit", "linear_spread", *QUICK, "--out", "known.icqr").out
    SALES.to_csv("sine_spread", index=False)
    assert "--target must be given with a file" in icqr("fit", "sine_spread", "--out", "file.icqr").err
    done = icqr("fit", "sine_spread", "--target", "price", *QUICK, "--out", "file.icqr")
    assert "Data: sine_spread (240 rows" in done.out


# -- Advice names options ----------------------------------------------------------------------------------

FEW, SAME = SALES.assign(region=np.where(SALES.index < 6, "west", SALES["region"])), SALES.assign(price=7.0)
ADVICE: dict[str, tuple[pd.DataFrame, list[str], str]] = {
    "a small group": (
        FEW,
        ["--groups", "region"],
        "warning: a coverage of 0.9 needs 9 .*; icqr fit --small-groups infinite k",
    ),
    "a small group, refused": (
        FEW,
        ["--groups", "region", "--small-groups", "error"],
        "error: a coverage of 0.9 needs 9 .* fit with --small-groups pooled or --small-groups infinite",
    ),
    "few rows": (
        SALES[:8],
        [],
        "error: a coverage of 0.9 needs at least 9 calibration rows for a finite interval, got 8",
    ),
    "one row": (SALES[:1], ["--method", "cqr"], "error: 1 rows are too few to train and to calibrate with"),
    "limits": (SALES, ["--y-min", "200"], r"error: the target must lie between 200 and inf \(--y-min, --y-max\); row"),
    "an infinite target": (
        SALES.assign(price=SALES["price"].where(SALES.index > 0, np.inf)),
        [],
        "error: the target must be finite; 1 of 240 values are not, the first in row 0. Take them out of the file",
    ),
    "text that says little": (
        SALES.assign(name=[f"shop {n * n}" for n in range(240)]),
        ["--method", "cqr"],
        "warning: Column 'name' holds text .* Leave it out with --ignore, or turn it into numbers or fewer categories",
    ),
    "numbers among text": (
        SALES.assign(size=SALES["size"].astype(str).where(SALES.index % 9 > 0, "unknown")),
        ["--method", "cqr"],
        "note: .*, say --missing unknown\nwarning: Column 'size' .* Most of its values are numbers, as a note says",
    ),
    "a leak": (
        make_sales(3000, 0).assign(paid=lambda sales: sales["price"]),
        ["--method", "icqr"],
        "warning: Columns? 'paid'.* may leak the target: .* Leave out with --ignore what is not known when you predict",
    ),
    "columns that say nothing": (
        SALES.assign(size=1, region="x"),
        ["--method", "icqr"],
        "though the target varies.* nothing about the target, .* Try --method auto, .*, or another --model.\n"
        "warning: One group only, .* predicts the same for every row; then try another --model",
    ),
    "columns that say nothing to AutoICQR": (
        SALES.assign(size=1, region="x"),
        ["--calibration", "split"],
        "say more about the target, or another --model|nothing about the target",
    ),
    "the rows themselves": (
        SALES,
        ["--method", "cqr", "--calibration", "sales.csv"],
        "warning: the calibration rows are the training rows, .*; give --calibration a file of other rows, or leave",
    ),
    "one time": (
        SALES.assign(year=2024),
        ["--order-by", "year"],
        "error: --order-by must leave older rows to train on, .*; take a column that tells the rows apart",
    ),
    "a library's own error": (
        SAME,
        ["--method", "cqr", "--model", "catboost"],
        "error: catboost can't learn from these rows: All train targets are equal",
    ),
}


@pytest.mark.parametrize("what", ADVICE)
def test_advice_names_options_of_the_command(icqr: Run, what: str) -> None:
    sales, more, said = ADVICE[what]
    write(sales, Path("sales.csv"))
    model = () if "--model" in more else QUICK[:2]
    _, _, err = icqr("fit", "sales.csv", "--target", "price", *model, "--out", "model.icqr", *more)
    assert re.search(said, err), err
    python = r"\w=['\"\d(]|\w\(\w*\)|_calibration|pd\.|AutoICQR, |estimator|n_samples"
    assert not re.search(python, err), err


def test_advice_about_qr_names_options(icqr: Run) -> None:
    write(SALES, Path("sales.csv"))
    assert icqr("fit", "sales.csv", "--target", "price", *QUICK[:2], "--method", "qr", "--out", "qr.icqr").code == 0
    said = "error: QR predicts the coverage it was fitted for, 0.9, and not 0.8. Fit it with --coverage 0.8, or fit --m"
    assert said in icqr("predict", "qr.icqr", "sales.csv", "--coverage", "0.8").err
    said = "error: QR has no calibration; fit --method cqr or --method icqr with the same --model\n"
    assert said == icqr("recalibrate", "qr.icqr", "sales.csv", "--target", "price").err


# -- Bad data: one line, no traceback, nothing written -----------------------------------------------------

BAD = {  # more of them in test_cli_reading.py
    "no file": (None, "there is no file 'data.csv', and no data set of that name"),
    "ragged": ("size,price\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
    "text": ("size,price\n1,high\n2,3\n", "column 'price' must hold numbers, but 1 of 2 values are text, for example"),
    "gaps": (
        "size,price\n1,2\n2,\n3,4\n",
        "is missing in 1 of 3 rows; --drop-missing would leave out 1 rows and keep 2",
    ),
    "all gaps": ("size,price\n1,\n2,\n", "--drop-missing would leave out 2 rows and keep 0"),
    "a typo": ("size,prize\n1,2\n", "there is no column 'price'; columns are 'size', 'prize'; did you mean 'prize'?"),
    "few rows": ("size,price\n" + "1,2\n2,3\n" * 4, "9 calibration rows for a finite interval, got "),
}


@pytest.mark.parametrize("command", ["compare", "fit"])
@pytest.mark.parametrize("what", BAD)
def test_bad_data(icqr: Run, what: str, command: str) -> None:
    content, said = BAD[what]
    if content is not None:
        Path("data.csv").write_text(content, encoding="utf-8")
    rest = ["--out", "model.icqr"] if command == "fit" else []
    code, out, err = icqr(command, "data.csv", "--target", "price", *rest)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert all(line.startswith(("note: ", "warning: ", "error: ")) for line in err.splitlines())
    assert said in err
    assert sorted(os.listdir()) == ([] if content is None else ["data.csv"])


def test_missing_targets_are_dropped_if_asked(icqr: Run) -> None:
    write(SALES.assign(price=SALES["price"].where(SALES.index % 10 > 0)), Path("sales.csv"))
    options = ["--target", "price", *QUICK, "--out", "model.icqr"]
    assert "--drop-missing would leave out 24 rows and keep 216" in icqr("fit", "sales.csv", *options).err
    code, out, err = icqr("fit", "sales.csv", *options, "--drop-missing")
    assert code == 0
    assert err == "note: 24 of 240 rows are left out: their target is missing\n"
    assert "144 training rows, 72 calibration rows" in out


def test_odd_columns_are_noted(icqr: Run) -> None:
    day = pd.date_range("2024-01-01", periods=240)
    write(SALES.assign(id=range(240), nothing=np.nan, same=1, day=day), Path("sales.csv"))
    code, _, err = icqr("fit", "sales.csv", "--target", "price", *QUICK, "--out", "model.icqr")
    assert code == 0
    assert err.splitlines() == [
        "note: column 'day' holds dates",
        "note: columns without any value, which say nothing: 'nothing'",
        "note: columns with the same value in all rows, which say nothing: 'same'",
        "note: columns that seem to number the rows; if so, --ignore them: 'id'",
        "note: the rows are in the order of 'day'; if that is time, a split at random promises too much: --order-by "
        "day trains on the oldest rows and calibrates with the newest",
    ]
    given = ("fit", "sales.csv", "--target", "price", *QUICK, "--out", "model.icqr")
    for split in (("--order-by", "day"), ("--calibration", "sales.csv")):
        assert "the rows are in the order of" not in icqr(*given, *split).err


def test_ignored_columns_are_not_read(icqr: Run) -> None:
    write(SALES.assign(id=range(240), day="01/02/2024"), Path("sales.csv"))  # a date that can be read in two ways
    options = ["--target", "price", *QUICK, "--out", "model.icqr"]
    assert "say how they are written, for example --date-format" in icqr("fit", "sales.csv", *options).err
    code, _, err = icqr("fit", "sales.csv", *options, "--ignore", "id", "--ignore", "day")
    assert (code, err) == (0, "")
    assert set(load("model.icqr").columns_) == set(SALES.columns) - {"price"}
    assert (
        "--ignore: there is no column 'dya'"
        in icqr("fit", "sales.csv", *options, "--ignore", "day", "--ignore", "dya").err
    )
    code, _, err = icqr("fit", "sales.csv", *options, "--ignore", "price")
    assert code == 2
    assert "--ignore and --target can't both be 'price'" in " ".join(err.split())


def test_rows_that_are_there_twice_are_noted(icqr: Run) -> None:
    write(pd.concat([SALES, SALES[:10]]), Path("sales.csv"))
    code, _, err = icqr("fit", "sales.csv", "--target", "price", *QUICK, "--out", "model.icqr")
    assert code == 0
    assert err.startswith("note: 10 of 250 rows are copies of other rows, the target included; if a case")


@pytest.mark.parametrize("model", ["forest", "network"])
def test_models_that_take_no_gaps_say_so(icqr: Run, model: str) -> None:
    write(SALES.assign(rooms=np.where(SALES.index < 3, np.nan, 2)), Path("sales.csv"))
    code, _, err = icqr("fit", "sales.csv", "--target", "price", "--model", model, "--out", "model.icqr")
    assert code == 1
    assert f"--model {model} takes no missing values, and column 'rooms' has 3; use --model hist" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "--out", "model.pkl"], "--out: the file's name must end in .icqr, got 'model.pkl'"),
        (["fit", "--out", "none/model.icqr"], "--out: there is no folder 'none'; make it first"),
        (["compare", "--report", "report.pdf"], "--report: the file's name must end in .html or .htm"),
        (["compare", "--report", "folder.html"], "--report: folder.html is a folder; give the name of a file"),
    ],
)
def test_where_nothing_can_be_written(icqr: Run, arguments: list[str], said: str) -> None:
    Path("folder.html").mkdir()
    command, *options = arguments
    code, out, err = icqr(command, "sine_spread", *options)
    assert (code, out) == (1, "")
    assert said in err
    assert os.listdir() == ["folder.html"]


def test_names_in_data_can_not_command_the_terminal(icqr: Run) -> None:
    write(SALES.rename(columns={"size": "size\x1b[31m[bold red]"}), Path("sales.csv"))
    code, _, err = icqr("fit", "sales.csv", "--target", "pric", "--out", "model.icqr")
    assert code == 1
    assert "\x1b" not in err
    assert "[bold red]" in err
