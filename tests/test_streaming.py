"""Parquet files in blocks, without a cluster: the same results as from one table, in flat memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import icqr
from icqr import streaming
from icqr.calibration import SelectedCalibration


@pytest.fixture
def files(tmp_path: Path, rows: Any) -> Path:
    """The 600 rows in four files, one of them empty."""
    whole = rows[0].assign(target=rows[1], number=np.arange(600))
    for i, part in enumerate((slice(0, 250), slice(250, 250), slice(250, 251), slice(251, 600))):
        whole[part].to_parquet(tmp_path / f"{i}.parquet")
    return tmp_path


def copied(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("most_scores", [5_000_000, 10], ids=["all scores", "some scores"])
@pytest.mark.parametrize("name", ["Naive", "CQR", "ICQR"])
def test_calibration_equals_that_of_one_table_to_the_bit(
    name: str, most_scores: int, files: Path, models: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", most_scores)
    local = copied(models[name]).calibrate(*rows)
    ours = streaming.calibrate(copied(models[name]), files, "target", block_rows=90)
    assert isinstance(ours.calibration_, SelectedCalibration) == (most_scores == 10)
    for coverage in (0.5, 0.8, 0.99):
        asked = np.arange(local.n_groups_)
        np.testing.assert_array_equal(
            ours.calibration_.offsets(coverage, asked), local.calibration_.offsets(coverage, asked)
        )
    pd.testing.assert_frame_equal(ours.groups_, local.groups_)
    if name == "ICQR" and most_scores > 10:
        pd.testing.assert_frame_equal(ours.explain(rows[0]), local.explain(rows[0]))


def test_predictions_have_a_row_for_each_row_in_order(files: Path, models: Any, rows: Any, tmp_path: Path) -> None:
    model, out = models["ICQR"], tmp_path / "out" / "predicted.parquet"
    out.parent.mkdir()
    pattern = str(files / "*.parquet")
    assert streaming.predict_interval(model, pattern, out, keep=["number"], block_rows=90) == out
    written = pd.read_parquet(out)
    assert written.columns.tolist() == ["number", "lower", "upper"]
    np.testing.assert_array_equal(written["number"], np.arange(600))
    np.testing.assert_array_equal(written[["lower", "upper"]], model.predict_interval(rows[0]))
    streaming.predict_interval(model, pattern, out, [0.5, 0.9])
    np.testing.assert_array_equal(pd.read_parquet(out)["upper_0.9"], model.predict_interval(rows[0], 0.9)[:, 1])
    streaming.explain(model, sorted(files.glob("*.parquet")), out, keep=["number"], block_rows=200)
    explained = pd.read_parquet(out)
    np.testing.assert_array_equal(explained.pop("number"), np.arange(600))
    pd.testing.assert_frame_equal(explained, model.explain(rows[0]))


def test_a_model_of_an_array_takes_all_other_columns(tmp_path: Path, rows: Any) -> None:
    X, y = rows[0].to_numpy(), rows[1].to_numpy()
    model = icqr.CQR(random_state=0).fit(X[:300], y[:300])
    pd.DataFrame(X[300:], columns=list("abc")).assign(y=y[300:]).to_parquet(tmp_path / "fresh.parquet")
    with pytest.warns(UserWarning, match="X has feature names"):
        ours = streaming.calibrate(copied(model), tmp_path, "y")
    np.testing.assert_array_equal(ours.calibration_.scores[0], model.calibrate(X[300:], y[300:]).calibration_.scores[0])


def test_a_model_of_numbered_columns_finds_them_by_their_numbers(tmp_path: Path, rows: Any) -> None:
    X, y = rows[0].set_axis([2, 0, 1], axis=1), rows[1].to_numpy()
    model = icqr.CQR(random_state=0).fit(X[:300], y[:300])
    X[300:][[0, 1, 2]].assign(y=y[300:]).set_axis(["0", "1", "2", "y"], axis=1).to_parquet(tmp_path / "fresh.parquet")
    ours = streaming.calibrate(copied(model), tmp_path, "y")
    np.testing.assert_array_equal(ours.calibration_.scores[0], model.calibrate(X[300:], y[300:]).calibration_.scores[0])
    out = streaming.predict_interval(model, tmp_path, tmp_path / "intervals.parquet", [Fraction(9, 10)])
    np.testing.assert_array_equal(pd.read_parquet(out)["lower_0.9"], model.predict_interval(X[300:])[:, 0])


def test_whole_numbers_in_one_file_and_fractions_in_another_are_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = pd.DataFrame({"size": np.arange(400.0), "city": rng.choice(["a", "b"], 400)})
    whole["y"] = whole["size"] + rng.normal(size=400)
    model = icqr.CQR(random_state=0).fit(whole[["size", "city"]][:200], whole["y"][:200])
    whole[200:300].astype({"size": np.int32}).to_parquet(tmp_path / "0.parquet")
    whole[300:].astype({"city": "category"}).to_parquet(tmp_path / "1.parquet")
    ours = streaming.calibrate(copied(model), tmp_path, "y")
    model.calibrate(whole[["size", "city"]][200:], whole["y"][200:])
    np.testing.assert_array_equal(ours.calibration_.scores[0], model.calibration_.scores[0])
    whole[:100].assign(size="large").to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"the files do not fit together: .*size"):
        streaming.calibrate(model, tmp_path, "y")


def test_a_failure_leaves_the_old_file_and_names_the_rows(files: Path, models: Any, rows: Any, tmp_path: Path) -> None:
    out = tmp_path / "out" / "predicted.parquet"
    out.parent.mkdir()
    out.write_text("old")
    bad = rows[0].assign(target=rows[1], number=600)
    bad.loc[7, "x1"] = np.inf
    bad.to_parquet(files / "9.parquet")
    with pytest.raises(ValueError, match=r"in the rows from 600 on: Column 'x1' is infinite in row 7"):
        streaming.predict_interval(models["CQR"], sorted(files.glob("*.parquet")), out)
    assert [file.name for file in out.parent.iterdir()] == ["predicted.parquet"]
    assert out.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"files": "no/such/*.parquet"}, FileNotFoundError, r"there is no Parquet file at no/such/\*\.parquet"),
        ({"target": "price"}, ValueError, r"0\.parquet has no column 'price'; its columns are \['x1'"),
        ({"block_rows": 0}, ValueError, "block_rows must be a whole number, 1 or more, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, kind: Any, message: str, files: Path, models: Any) -> None:
    with pytest.raises(kind, match=message):
        streaming.calibrate(models["CQR"], **{"files": files, "target": "target", **arguments})


def test_what_can_not_be_calibrated_is_refused(files: Path, models: Any) -> None:
    with pytest.raises(ValueError, match="QR has no calibration"):
        streaming.calibrate(models["QR"], files, "target")
    with pytest.raises(ValueError, match=r"coverage=0\.8 needs at least 4 calibration rows .* got n_samples=1"):
        streaming.calibrate(models["ICQR"], files / "2.parquet", "target")


def test_columns_to_keep_must_not_be_those_of_the_result(files: Path, models: Any, tmp_path: Path) -> None:
    for file in files.glob("*.parquet"):
        pd.read_parquet(file).assign(lower=0).to_parquet(file)
    with pytest.raises(ValueError, match=r"keep=\['lower'\]: the result has columns of these names itself"):
        streaming.predict_interval(models["CQR"], files, tmp_path / "out.pq", keep=["lower"])


MEASURE = """
import resource, sys
import numpy as np, pandas as pd
from sklearn.linear_model import QuantileRegressor
from icqr import CQR, _blocks, streaming

_blocks.MOST_SCORES = 1000
folder, out = sys.argv[1:]
X = pd.DataFrame(np.random.default_rng(0).uniform(size=(200, 10)), columns=[f"x{i}" for i in range(10)])
model = CQR(QuantileRegressor(), random_state=0).fit(X, X["x0"])
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
streaming.calibrate(model, folder, "y")
streaming.predict_interval(model, folder, out)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""


@pytest.mark.slow
def test_memory_is_flat_however_many_rows_there_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grown = []
    for n_files in (3, 12):  # 60 and 240 MB of numbers
        folder = tmp_path / str(n_files)
        folder.mkdir()
        for i in range(n_files):
            X = pd.DataFrame(rng.uniform(size=(250_000, 10)), columns=[f"x{j}" for j in range(10)])
            X.assign(y=rng.uniform(size=len(X))).to_parquet(folder / f"{i:02}.parquet", row_group_size=100_000)
        command = [sys.executable, "-c", MEASURE, str(folder), str(tmp_path / "out.parquet")]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        grown.append(int(run.stdout) / 1024)
    assert grown[1] < grown[0] + 30  # MB
    assert grown[1] < 200
