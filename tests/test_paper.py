"""The paper's experiments: runs on few rows, by the module's own functions and command, and tables by hand."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy import stats
from sklearn.model_selection import train_test_split

pytest.importorskip("jax", reason="the paper's experiments need pip install -e .[paper]")
pytest.importorskip("matplotlib", reason="the paper's experiments need pip install -e .[paper]")
pytest.importorskip("pyarrow", reason="the paper's experiments need pip install -e .[paper]")

import pyarrow.parquet as pq

from icqr.neural import QuantileNetwork
from paper import methods, notebook, run, tables, theory
from paper.methods import CELLS, CHANGED, Case, run_cell, split_rows
from paper.results import Progress, as_latex, kept_warnings

ROOT = Path(__file__).parents[1]
needs_data = pytest.mark.skipif(
    not os.environ.get("ICQR_DATA_HOME"), reason="set ICQR_DATA_HOME to the folder with the data files to run this"
)
HEADER = "data,variant,method,min,max,mean,std,Q1,median,Q3,IQR"
KEY = ["data", "variant", "method", "network"]
ROWS = 600
TINY = run.Settings(networks=3, epochs=5, seed=1, conditional=1, hidden=(8,), synthetic_rows=ROWS)


@pytest.fixture(autouse=True)
def one_synthetic_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.NAMES, "synthetic", ["sine_spread"])


def run_tiny(out: Path, settings: run.Settings = TINY) -> pd.DataFrame:
    run.run(["synthetic"], out, settings, draw=False)
    return read(out)


def read(out: Path) -> pd.DataFrame:
    return pq.read_table(out / "rows.parquet").to_pandas()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run.NAMES, "synthetic", ["sine_spread"])
        run_tiny(out)
    return out


def same_results(rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    frames = [frame.drop(columns="seconds").sort_values(KEY, ignore_index=True) for frame in (rows, expected)]
    pd.testing.assert_frame_equal(*frames)


# -- The run ---------------------------------------------------------------------------------------------------------


def test_rows_are_the_whole_grid(tiny: Path) -> None:
    rows = read(tiny)
    assert list(rows.columns) == list(run.COLUMNS)
    assert len(rows) == 3 * len(CELLS)
    assert not rows.duplicated(KEY).any()
    assert set(zip(rows["variant"], rows["method"], strict=True)) == set(CELLS)
    assert (rows["widths"].map(len) == ROWS // 4).all()
    assert rows["widths"].iloc[0].dtype == np.float32
    assert rows.groupby("network")["worst_slab"].count().tolist() == [9, 0, 0]
    assert rows.groupby("network")["excess_risk"].count().tolist() == [9, 0, 0]
    assert not list(tiny.rglob("*.part"))


def test_rows_agree_with_themselves(tiny: Path) -> None:
    rows = read(tiny)
    assert rows["coverage"].between(0, 1).all()
    widths = rows["widths"].map(lambda values: values.astype(float).mean())
    np.testing.assert_allclose(widths, rows["mean_width"], rtol=1e-6)
    thirds = rows[["coverage_easy", "coverage_hard"]].mean(axis=1)
    assert ((rows["coverage"] - thirds).abs() <= 1 / 3 + 0.01).all()
    naive = rows[(rows["variant"] == "exact") & (rows["method"] == "Naive")]
    assert (naive["widths"].map(np.ptp) < 1e-4).all()
    # The law is known: 450 rows from three networks, far more than five standard errors.
    assert rows[["true_coverage", "true_gap", "true_low", "iou"]].notna().all(axis=None)
    assert abs(rows["true_coverage"].mean() - rows["coverage"].mean()) < 0.1


def test_tables_agree_with_rows(tiny: Path) -> None:
    rows = read(tiny)
    for name in ("width", "coverage"):
        assert (tiny / f"{name}.csv").read_text().splitlines()[0] == HEADER
        table = pd.read_csv(tiny / f"{name}.csv").set_index(["data", "variant", "method"])
        assert len(table) == len(CELLS)
        for key, group in rows.groupby(["data", "variant", "method"]):
            values = np.concatenate(list(group["widths"])) if name == "width" else group["coverage"]
            described = pd.Series(values).astype(float).describe()[["min", "max", "mean", "std", "25%", "50%", "75%"]]
            np.testing.assert_allclose(table.loc[key].to_numpy()[:-1], described, rtol=1e-9)
            assert table.loc[key, "IQR"] == pytest.approx(described["75%"] - described["25%"])
    truth = pd.read_csv(tiny / "tables" / "truth.csv").set_index(["variant", "method"])
    naive = rows[(rows["variant"] == "exact") & (rows["method"] == "Naive")]
    assert truth.loc[("exact", "Naive"), "iou"] == pytest.approx(naive["iou"].mean())


def test_metadata_names_the_choices(tiny: Path) -> None:
    about = json.loads(pq.read_schema(tiny / "rows.parquet").metadata[b"icqr"])["sine_spread"]
    assert (about["networks"], about["share_groups"], about["features"]) == (3, False, ["x1", "x2"])
    assert (about["n_train"], about["n_calibration"], about["n_validation"]) == (300, 150, 150)


def goes_on_to(expected: pd.DataFrame, out: Path) -> None:
    """Check that a run which has left its first network alone is finished, with these rows."""
    first = out / "parts" / "sine_spread" / "network-0000.parquet"
    assert [part.name for part in first.parent.glob("*.parquet")] == [first.name]
    assert not (out / "rows.parquet").exists()
    before = first.stat().st_mtime_ns
    same_results(run_tiny(out), expected)
    assert first.stat().st_mtime_ns == before


def test_a_stopped_run_goes_on_where_it_was(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = run.write_rows

    def stop_at_the_second(file: Path, table: Any) -> None:
        if file.name == "network-0001.parquet":
            raise KeyboardInterrupt
        write(file, table)

    monkeypatch.setattr(run, "write_rows", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_tiny(tmp_path)
    monkeypatch.setattr(run, "write_rows", write)
    goes_on_to(read(tiny), tmp_path)
    monkeypatch.setattr(run, "write_rows", None)  # nothing is left to do
    same_results(run_tiny(tmp_path), read(tiny))


KILLED = """
import os, signal, sys
from paper import run

write = run.write_rows
def stop_at_the_second(file, table):
    if file.name == "network-0001.parquet":
        file.with_name(".network-0001.parquet.part").write_bytes(b"half a file")
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, table)

run.write_rows = stop_at_the_second
run.NAMES["synthetic"] = ["sine_spread"]
run.run(["synthetic"], sys.argv[1], run.Settings(3, 5, 1, 1, (8,), 600), draw=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that can't be caught")
def test_a_killed_run_goes_on_where_it_was(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    goes_on_to(read(tiny), tmp_path)


@pytest.mark.slow
def test_networks_run_on_a_cluster_with_the_same_results(tiny: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason='a cluster needs pip install "icqr[dask]"')
    with (
        distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client,
        parallel_config(backend="dask"),
    ):
        same_results(run_tiny(tmp_path), read(tiny))
        prefixes = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert any("run_network" in name for name in prefixes)


@pytest.mark.parametrize(
    ("change", "words"), [({"networks": 4}, "networks = 3, not 4"), ({"seed": 2}, "seed = 1, not 2")]
)
def test_a_folder_with_other_settings_is_refused(tiny: Path, change: dict[str, int], words: str) -> None:
    before = (tiny / "rows.parquet").read_bytes()
    with pytest.raises(ValueError, match=f"sine_spread.*{words}.*give another folder"):
        run_tiny(tiny, run.Settings(**{**vars(TINY), **change}))
    assert (tiny / "rows.parquet").read_bytes() == before


# -- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def boston(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("boston")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "REPEATS", 1000)
        assert run.main(["boston", "--networks", "1", "--epochs", "3", "--out", str(out), "--conditional", "0"]) == 0
    return out


@needs_data
def test_the_command_leaves_rows_tables_and_figures(boston: Path) -> None:
    import matplotlib as mpl

    assert mpl.rcParams["axes.spines.top"]  # figures leave no trace in matplotlib's settings
    assert {path.name for path in boston.iterdir()} >= {"rows.parquet", "width.csv", "coverage.csv"}
    names = ["width", "coverage", "width_beside_paper", "coverage_beside_paper", "conditional", "claims", "groups"]
    for name in [*names, "seconds", "changes"]:
        for kind in ("csv", "md", "tex"):
            assert (boston / "tables" / f"{name}.{kind}").stat().st_size > 0
    captions = (boston / "figures" / "captions.md").read_text(encoding="utf-8")
    for name in ("residuals", "pinball", "group_balanced", "theory", "groups_boston", "widths_boston"):
        assert (boston / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (boston / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert f"![{name}]({name}.png)" in captions
    assert pd.read_csv(boston / "figures" / "theory.csv")["n"].tolist() == list(theory.SIZES)


@needs_data
def test_the_command_refuses_in_one_line(boston: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["boston", "--networks", "1", "--epochs", "4", "--out", str(boston)]) == 1
    err = capsys.readouterr().err
    assert "boston was written with epochs = 3, not 4" in err
    assert err.count("\n") == 1
    with pytest.raises(SystemExit):
        run.main(["bosten", "--out", "unused"])
    assert "invalid choice: 'bosten'" in capsys.readouterr().err


def test_the_module_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paper.run", None)  # as if something that it imports were not installed
    with pytest.raises(SystemExit, match=r'error: .*pip install -e "\.\[paper\]"'):
        runpy.run_module("paper", run_name="__main__")


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("boston: methods")
    for done in (0, 1, 2, 3):
        progress(done, 3)
    assert capsys.readouterr().err.count("\n") == 1  # the others came a moment ago
    progress.last -= 1000
    progress.start -= 1000
    progress(2, 3)
    assert "2 of 3, about 8.3 min left" in capsys.readouterr().err
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    progress(3, 3)
    assert terminal.getvalue().startswith("\rboston: methods: 3 of 3")


# -- The methods on one network --------------------------------------------------------------------------------------


def test_split_is_the_notebooks() -> None:
    X, y = np.arange(101.0)[:, None], np.arange(101.0)
    first, rest = train_test_split(y, test_size=0.5, random_state=22)
    second, third = train_test_split(rest, test_size=0.5, random_state=22)
    for part, rows, expected in zip(*reversed(split_rows(X, y)), (first, second, third), strict=True):
        np.testing.assert_array_equal(part, expected)
        np.testing.assert_array_equal(rows[:, 0], expected)


def make_case(n: int) -> Case:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    y = X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=n)
    split = split_rows(X, y)
    network = QuantileNetwork(hidden=(8,), epochs=100, learning_rate=0.01, random_state=0).fit(split.X[0], split.y[0])
    return Case(split, network, notebook.find_clusters(network, split.X, split.y, 0), seed=0)


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case(400)


def test_shared_groups_give_what_the_first_network_learned(case: Case) -> None:
    row = run_cell(case, ("printed", "ICQR"), False, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about small clusters
        partition = CELLS["printed", "ICQR"](case).partition
    again = run_cell(Case(case.split, case.network, case.clusters, 0, partition), ("printed", "ICQR"), False, None)
    np.testing.assert_array_equal(row["widths"], again["widths"])
    assert (row["k"], row["n_groups"], row["unpromised"]) == (again["k"], again["n_groups"], again["unpromised"])
    assert row["importance"] is not None
    assert again["importance"] is None


def test_one_change_at_a_time() -> None:
    case = make_case(120)  # 30 calibration rows: small clusters
    printed = run_cell(case, ("printed", "ICQR"), False, None)
    rows = {cell[0].removeprefix("printed, "): run_cell(case, cell, False, None) for cell in CHANGED}
    theirs, merged = rows["offsets of the notebook"], rows["small clusters merged"]
    assert (theirs["k"], theirs["unpromised"]) == (printed["k"], printed["unpromised"])
    assert not np.array_equal(theirs["widths"], printed["widths"])
    assert merged["k"] == printed["k"] > merged["n_groups"]
    assert merged["unpromised"] == 0
    for name in ("importance from training rows", "importance by pinball loss", "columns resampled"):
        assert not np.array_equal(rows[name]["importance"], printed["importance"])
    assert not np.array_equal(rows["clusters of training rows"]["explained"], printed["explained"])
    table = tables.changes_table(
        pd.DataFrame(row | {"data": "boston", "network": 0} for row in [printed, *rows.values()])
    )
    assert table["width_mean"].tolist() == pytest.approx([row["mean_width"] for row in [printed, *rows.values()]])


def test_exact_and_notebook_cqr_differ_by_the_offset_alone(case: Case) -> None:
    rows = {cell: run_cell(case, cell, False, None) for cell in CELLS}
    difference = rows["notebook", "CQR"]["widths"].astype(float) - rows["exact", "CQR"]["widths"]
    assert np.ptp(difference) < 1e-4
    assert difference.min() > -1e-4  # interpolation never lies below the exact rank
    assert rows["ours", "ICQR"]["unpromised"] == 0
    assert rows["notebook", "ICQR"]["k"] == case.clusters.k


def test_a_crossed_row_is_not_covered_and_has_the_width_of_its_distance() -> None:
    bounds, raw = np.array([[1.0, -1.0], [-1.0, 1.0], [2.0, 3.0]]), np.array([[1.0, 0.0, -1.0]] * 3)
    row = methods.measures(bounds, np.zeros(3), raw)
    assert row["coverage"] == pytest.approx(1 / 3)
    assert row["widths"].tolist() == [2.0, 2.0, 1.0]
    assert row["crossed"] == 1.0


def test_the_librarys_warnings_are_kept_as_notes() -> None:
    notes: list[str] = []

    def warn() -> None:
        with kept_warnings(notes):
            for message, category in (("small", UserWarning), ("small", UserWarning), ("old", DeprecationWarning)):
                warnings.warn(message, category, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="old"):
        warn()
    assert notes == ["small"]


# -- The notebook ----------------------------------------------------------------------------------------------------


def test_interpolated_offset_by_hand() -> None:
    # n = 10: ceil(11 · 0.9) = 10, level 1: the largest. n = 20: ceil(18.9) = 19, level 0.95: place 18.05 of 0 … 19.
    assert notebook.interpolated_offset(np.arange(10.0), 0.9) == 9.0
    assert notebook.interpolated_offset(np.arange(20.0), 0.9) == pytest.approx(18.05)
    assert notebook.interpolated_offset(np.array([2.0, 1.0]), 0.9) == 2.0  # clipped
    assert notebook.interpolated_offset(np.array([]), 0.9) == 0.0


def test_notebook_bounds_by_hand() -> None:
    known, y, new = np.array([[0.0, 1.0, 2.0]] * 2), np.array([3.0, 1.5]), np.array([[1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(notebook.naive_bounds(known, y, new, 0.9), [[0.0, 4.0]])
    np.testing.assert_array_equal(notebook.cqr_bounds(known, y, new, 0.9), [[0.0, 5.0]])
    own = notebook.icqr_bounds(known, y, new, 0.9, np.array([0, 1]), np.array([1]))
    np.testing.assert_array_equal(own, [[1.5, 3.5]])  # the cluster's only score is -0.5
    empty = notebook.icqr_bounds(known, y, new, 0.9, np.array([0, 0]), np.array([1]))
    np.testing.assert_array_equal(empty, [[1.0, 4.0]])


def test_notebook_clusters_come_from_training_rows(case: Case) -> None:
    clusters = case.clusters
    assert clusters.explained[-1] > 0.9 >= clusters.explained[-2]
    assert clusters.importance.sum() == pytest.approx(1)
    assert set(clusters.calibration) <= set(range(clusters.k))
    X = [*case.split.X[:2], case.split.X[2][:5]]
    again = notebook.find_clusters(case.network, X, case.split.y, 0)
    assert again.validation.tolist() == clusters.validation[:5].tolist()


# -- Tables ----------------------------------------------------------------------------------------------------------


def a_row(method: str = "CQR", variant: str = "exact", network: int = 0, **values: Any) -> dict[str, Any]:
    row = dict.fromkeys(run.COLUMNS, np.nan) | {"data": "boston", "coverage": 0.9, "widths": (1.0, 2.0)}
    return row | {"variant": variant, "method": method, "network": network} | values


def test_statistics_by_hand() -> None:
    assert list(tables.summary([1, 2, 3, 6]).values()) == pytest.approx(
        [1, 6, 3, np.std([1, 2, 3, 6], ddof=1), 1.75, 2.5, 3.75, 2]
    )
    rows = pd.DataFrame([a_row(widths=(1, 2)), a_row(network=1, widths=(3, 6)), a_row(data="sine_spread")])
    table = tables.by_cell(rows, lambda group: tables.summary(tables.pooled(group)))
    assert table["mean"].tolist() == [3, 1.5]
    both = tables.beside_paper(table, "width")  # data that the paper has not are left out
    assert both["mean_paper"].item() == 10.921992
    assert both["mean_difference"].item() == pytest.approx(3 / 10.921992 - 1)
    assert tables.three_in_one(both)["mean"].item() == "3 / 10.92 (-72.5%)"


def test_paper_values() -> None:
    for measure in ("width", "coverage"):
        table = tables.paper_values(measure)
        assert len(table) == 12
        assert list(table.columns) == list(tables.STATISTICS)
        np.testing.assert_allclose(table["IQR"], table["Q3"] - table["Q1"], atol=2e-6)


def test_latex_is_escaped() -> None:
    tex = as_latex(["a_b"], [["x & y – 50 %"]], "50 % of it.", "tab:t")
    assert r"x \& y -- 50 \% \\" in tex
    assert r"\caption{50 \% of it.}" in tex


def claim(rows: list[dict[str, Any]], text: str, variant: str) -> pd.Series[Any]:
    table = tables.claims(pd.DataFrame(rows))
    return table[table["claim"].str.contains(text) & (table["variant"] == variant)].iloc[0]


def test_claims_compare_each_variant_with_its_partner() -> None:
    rows = [a_row("CQR", "exact", t, widths=(4, 5, 6)) for t in (0, 1)]
    rows += [a_row("CQR", "notebook", t, widths=(0, 5, 50)) for t in (0, 1)]
    for variant in tables.PARTNERS:
        rows += [a_row("ICQR", variant, 0, widths=(1, 4, 9)), a_row("ICQR", variant, 1, widths=(5, 5.5, 6))]
    printed = claim(rows, "larger std", "printed")
    assert (printed["holds"], printed["paper"], printed["networks"]) == ("yes", "yes", 0.5)
    together = np.std([1, 4, 9, 5, 5.5, 6], ddof=1) - np.std([4, 5, 6, 4, 5, 6], ddof=1)
    assert printed["margin"] == pytest.approx(together)
    assert claim(rows, "larger std", "notebook")["holds"] == "no"
    median = claim(rows, "median width", "ours")
    assert (median["holds"], median["networks"], median["margin"]) == ("no", 0.5, pytest.approx(5 - 5.25))


def test_claims_about_coverage() -> None:
    rows = [a_row("QR", network=t, coverage=c, data="bike-leak") for t, c in enumerate((0.1, 0.95, 0.99))]
    over = claim(rows, "QR overcovers", "exact")
    assert (over["holds"], over["paper"]) == ("yes", "yes")  # by the median: the paper's mean is 0.897
    assert over["networks"] == pytest.approx(2 / 3)
    rows = [a_row("Naive", network=t, coverage_easy=e, coverage_hard=0.8) for t, e in enumerate((0.99, 0.89))]
    easy = claim(rows, "Naive overcovers easy", "exact")
    assert (easy["holds"], easy["paper"], easy["networks"]) == ("yes", "not measured", 0.5)
    assert claim(rows, "Naive undercovers hard", "exact")["margin"] == pytest.approx(0.1)


def test_what_the_paper_says_of_its_own_tables_is_so() -> None:
    for statement in tables.CLAIMS:
        answers = {tables.in_paper(statement, data) for data in statement.data}
        assert answers <= {"yes", "not measured"}
        assert ("yes" in answers) == (statement.methods != ("Naive",))


# -- Theory ----------------------------------------------------------------------------------------------------------


def test_simulated_coverage_is_the_theorems() -> None:
    table = theory.simulate_coverage([9, 10, 19, 20, 37], repeats=20_000, seed=3)
    assert table["exact"].between(table["from"], table["to"]).all()
    assert table["exact"].between(table["lower"] - 1e-12, table["upper"]).all()
    assert (table["interpolated"] >= table["simulated"]).all()


def test_simulated_ranks_are_uniform() -> None:
    assert stats.chisquare(theory.simulate_ranks(10, 20_000, seed=4)).pvalue > 0.001
