import io
import json
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.model_selection import train_test_split

from icqr.experiments import (
    drawing,
    extras,
    notebook,
    paper,
    paper_claims,
    paper_figures,
    paper_methods,
    paper_rows,
    paper_tables,
    progress,
    theory,
)
from icqr.experiments.notes import kept_warnings
from icqr.experiments.paper_values import STATISTICS, paper_values
from icqr.neural import QuantileNetwork

pytest.importorskip("jax", reason='the experiments need pip install "icqr[paper]"')
pytest.importorskip("matplotlib", reason='the experiments need pip install "icqr[paper]"')
pq = pytest.importorskip("pyarrow.parquet", reason='the experiments need pip install "icqr[paper]"')

needs_data = pytest.mark.skipif(
    not os.environ.get("ICQR_DATA_HOME"), reason="set ICQR_DATA_HOME to the folder with the data files to run this"
)
HEADER = "data,variant,method,min,max,mean,std,Q1,median,Q3,IQR"
TINY = paper.Settings(networks=3, epochs=5, seed=1, conditional=1, hidden=(8,))
ROWS = 600


def run_tiny(out, settings=TINY, figures=False):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "_SYNTHETIC_ROWS", ROWS)
        return paper.run(["sine_spread"], out, settings, figures=figures)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny")
    run_tiny(out)
    return out


def read(out):
    return pq.read_table(out / "rows.parquet").to_pandas()


def same_results(one, two):
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), two.drop(columns="seconds"))


# -- The run ---------------------------------------------------------------------------------------------------------


def test_rows_are_the_whole_grid(tiny):
    rows = read(tiny)
    assert list(rows.columns) == list(paper_rows.COLUMNS)
    assert len(rows) == 3 * len(paper_methods.CELLS)
    assert not rows.duplicated(paper_rows.KEY).any()
    assert set(zip(rows["variant"], rows["method"], strict=True)) == set(paper_methods.CELLS)
    assert (rows["widths"].map(len) == ROWS // 4).all()
    assert rows["widths"].iloc[0].dtype == np.float32
    assert rows.groupby("network")["worst_slab"].count().tolist() == [9, 0, 0]
    assert rows.groupby("network")["excess_risk"].count().tolist() == [9, 0, 0]
    assert not list(tiny.rglob("*.part"))


def test_rows_agree_with_themselves(tiny):
    rows = read(tiny)
    assert rows["coverage"].between(0, 1).all()
    means = rows["widths"].map(lambda widths: widths.astype(float).mean())
    np.testing.assert_allclose(means, rows["mean_width"], rtol=1e-6)
    thirds = rows[["coverage_easy", "coverage_hard"]].mean(axis=1)
    assert ((rows["coverage"] - thirds).abs() <= 1 / 3 + 0.01).all()
    exact = rows[(rows["variant"] == "exact") & (rows["method"] == "Naive")]
    assert (exact["widths"].map(np.ptp) < 1e-4).all()


def test_metadata_names_the_choices(tiny):
    about = json.loads(pq.read_schema(tiny / "rows.parquet").metadata[b"icqr"])["sine_spread"]
    assert about["networks"] == 3
    assert about["share_groups"] is False
    assert about["features"] == ["x1", "x2"]
    assert (about["n_train"], about["n_calibration"], about["n_validation"]) == (300, 150, 150)


def test_synthetic_rows_know_the_truth(tiny):
    rows = read(tiny)
    assert rows[["true_coverage", "true_gap", "true_low", "iou"]].notna().all(axis=None)
    # 450 rows from three networks: far more than five standard errors.
    assert abs(rows["true_coverage"].mean() - rows["coverage"].mean()) < 0.1
    table = pd.read_csv(tiny / "tables" / "truth.csv")
    naive = rows[(rows["variant"] == "exact") & (rows["method"] == "Naive")]
    assert table.query("variant == 'exact' and method == 'Naive'")["iou"].item() == pytest.approx(naive["iou"].mean())


def test_a_second_run_does_nothing(tiny):
    parts = sorted((tiny / "parts").rglob("network-*.parquet"))
    before = [part.stat().st_mtime_ns for part in parts]
    assert len(parts) == 3
    run_tiny(tiny)
    assert [part.stat().st_mtime_ns for part in parts] == before


KILLED = """
import os, signal, sys
from pathlib import Path
from icqr.experiments import paper, paper_rows

write = paper_rows.Parts.write
def stop_at_the_second(self, network, rows):
    if network == 1:
        (self.folder / "network-0001.part").write_bytes(b"half a file")
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, network, rows)

paper_rows.Parts.write = stop_at_the_second
paper._SYNTHETIC_ROWS = int(sys.argv[2])
paper.run(["sine_spread"], Path(sys.argv[1]), paper.Settings(3, 5, 1, 1, (8,)), figures=False)
"""


def goes_on_to(expected, out):
    """Check that a run which has left its first network alone is finished, with these rows."""
    first = out / "parts" / "sine_spread" / "network-0000.parquet"
    assert [part.name for part in (out / "parts" / "sine_spread").glob("*.parquet")] == [first.name]
    assert not (out / "rows.parquet").exists()
    before = first.stat().st_mtime_ns
    run_tiny(out)
    assert first.stat().st_mtime_ns == before
    same_results(read(out), expected)


def test_a_stopped_run_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    write = paper_rows.Parts.write

    def stop_at_the_second(self, network, rows):
        if network == 1:
            (self.folder / "network-0001.part").write_bytes(b"half a file")
            raise KeyboardInterrupt
        write(self, network, rows)

    monkeypatch.setattr(paper_rows.Parts, "write", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_tiny(tmp_path)
    monkeypatch.undo()
    goes_on_to(read(tiny), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that can't be caught")
def test_a_killed_run_goes_on_where_it_was(tiny, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(ROWS)], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    goes_on_to(read(tiny), tmp_path)


@pytest.mark.parametrize(
    ("change", "said"), [({"networks": 4}, "networks = 3, not 4"), ({"seed": 2}, "seed = 1, not 2")]
)
def test_a_folder_with_other_settings_is_refused(tiny, change, said):
    before = (tiny / "rows.parquet").read_bytes()
    with pytest.raises(ValueError, match=f"sine_spread.*{said}.*give another folder"):
        run_tiny(tiny, paper.Settings(**{**vars(TINY), **change}))
    assert (tiny / "rows.parquet").read_bytes() == before


def test_names(capsys):
    assert paper.data_sets(["all"]) == list(paper.DATA)
    assert paper.data_sets(["synthetic", "boston"])[0] == "boston"
    with pytest.raises(ValueError, match="boston, bike, bike-leak, blog, synthetic, all, got 'bosten'"):
        paper.data_sets(["bosten"])
    with pytest.raises(SystemExit):
        paper.main(["bosten", "--out", "unused"])
    assert "invalid choice" in capsys.readouterr().err


def test_missing_extra_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "icqr\[paper\]"'):
        paper.reproduce("boston", 1, tmp_path)
    assert not list(tmp_path.iterdir())
    assert extras.need("numpy") is np


def test_plain_progress(capsys):
    lines = progress.PlainLines("boston: methods", 3)
    for done in (1, 2, 3):
        lines.show(done)
    assert capsys.readouterr().err.count("\n") == 1
    lines.last -= 1000
    lines.start -= 1000
    lines.show(2)
    assert "2 of 3, about 8.3 min left" in capsys.readouterr().err


def test_progress_on_a_terminal(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.steps("boston: methods", 2) as advance:
        advance()
        advance()
    assert "boston: methods" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


# -- Boston, by the command ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def boston(tmp_path_factory):
    out = tmp_path_factory.mktemp("boston")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "REPEATS", 1000)
        assert paper.main(["boston", "--networks", "2", "--epochs", "3", "--out", str(out), "--conditional", "0"]) == 0
    return out


@needs_data
def test_the_command_leaves_rows_tables_and_figures(boston):
    for file in ("width.csv", "coverage.csv"):
        assert (boston / file).read_text().splitlines()[0] == HEADER
    names = ["width", "coverage", "width_beside_paper", "coverage_beside_paper", "conditional", "claims", "groups"]
    for name in [*names, "seconds"]:
        for kind in ("csv", "md", "tex"):
            assert (boston / "tables" / f"{name}.{kind}").stat().st_size > 0
    figures = ["residuals", "pinball", "group_balanced", "theory", "groups_boston", "widths_boston"]
    captions = (boston / "figures" / "captions.md").read_text(encoding="utf-8")
    for name in figures:
        assert (boston / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (boston / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert f"![{name}]({name}.png)" in captions


@needs_data
def test_figures_are_the_same_each_time_and_leave_no_trace(boston, tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    rows, settings = paper_rows.read_rows(boston / "rows.parquet")
    with drawing.style():
        paper_figures.draw_widths(drawing.Album(tmp_path), "boston", paper_rows.main_variants(rows), settings["boston"])
    assert dict(matplotlib.rcParams) == before
    file = "widths_boston.svg"
    assert (tmp_path / file).read_bytes() == (boston / "figures" / file).read_bytes()


@needs_data
def test_the_command_refuses_in_one_line(boston, capsys):
    assert paper.main(["boston", "--networks", "2", "--epochs", "4", "--out", str(boston)]) == 1
    assert "boston was written with epochs = 3, not 4" in capsys.readouterr().err


# -- The rows that methods see ---------------------------------------------------------------------------------------


def test_split_is_the_notebooks():
    X, y = np.arange(101.0)[:, None], np.arange(101.0)
    first, rest = train_test_split(y, test_size=0.5, random_state=22)
    second, third = train_test_split(rest, test_size=0.5, random_state=22)
    split = paper_methods.split_as_notebook(X, y)
    for part, rows, expected in zip(split.y, split.X, (first, second, third), strict=True):
        np.testing.assert_array_equal(part, expected)
        np.testing.assert_array_equal(rows[:, 0], expected)


def make_case(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    y = X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=n)
    split = paper_methods.split_as_notebook(X, y)
    network = QuantileNetwork(hidden=(8,), epochs=100, learning_rate=0.01, random_state=0).fit(split.X[0], split.y[0])
    return paper_methods.Case(split, network, notebook.find_clusters(network, split.X, split.y, 0), seed=0)


@pytest.fixture(scope="module")
def case():
    return make_case(400)


def test_shared_groups_give_what_the_first_network_learned(case):
    row, partition = paper_methods.run_cell(case, ("printed", "ICQR"), False, None)
    shared = paper_methods.Case(case.split, case.network, case.clusters, 0, partition)
    again, _ = paper_methods.run_cell(shared, ("printed", "ICQR"), False, None)
    np.testing.assert_array_equal(row["widths"], again["widths"])
    assert (row["k"], row["n_groups"], row["unpromised"]) == (again["k"], again["n_groups"], again["unpromised"])
    assert row["importance"] is not None
    assert again["importance"] is None


def test_one_change_at_a_time():
    case = make_case(120)  # 30 calibration rows: small clusters
    printed = paper_methods.run_cell(case, ("printed", "ICQR"), False, None)[0]
    rows = {cell[0]: paper_methods.run_cell(case, cell, False, None)[0] for cell in paper_methods.CHANGED}
    theirs = rows["printed, offsets of the notebook"]
    assert (theirs["k"], theirs["unpromised"]) == (printed["k"], printed["unpromised"])
    assert not np.array_equal(theirs["widths"], printed["widths"])
    merged = rows["printed, small clusters merged"]
    assert merged["k"] == printed["k"] > merged["n_groups"]
    assert merged["unpromised"] == 0
    for name in ("importance from training rows", "importance by pinball loss", "columns resampled"):
        assert not np.array_equal(rows[f"printed, {name}"]["importance"], printed["importance"])
    assert not np.array_equal(rows["printed, clusters of training rows"]["explained"], printed["explained"])
    table = [row | {"data": "boston", "network": 0} for row in [printed, *rows.values()]]
    shown = paper_tables.changes_table(pd.DataFrame(table))
    assert list(shown["variant"]) == ["printed", *rows]
    assert shown["width_mean"].tolist() == pytest.approx([row["mean_width"] for row in table], rel=1e-5)


def test_exact_and_notebook_cqr_differ_by_the_offset_alone(case):
    rows = {cell: paper_methods.run_cell(case, cell, False, None)[0] for cell in paper_methods.CELLS}
    exact, theirs = rows["exact", "CQR"]["widths"], rows["notebook", "CQR"]["widths"]
    difference = theirs.astype(float) - exact
    assert np.ptp(difference) < 1e-4
    assert difference.min() > -1e-4  # interpolation never lies below the exact rank
    assert rows["ours", "ICQR"]["unpromised"] == 0
    assert rows["notebook", "ICQR"]["k"] == case.clusters.k


def test_the_librarys_warnings_are_kept_as_notes():
    notes = []

    def warn():
        with kept_warnings(notes):
            for message, category in (("small", UserWarning), ("small", UserWarning), ("old", DeprecationWarning)):
                warnings.warn(message, category, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="old"):
        warn()
    assert notes == ["small"]


# -- The notebook ----------------------------------------------------------------------------------------------------


def test_interpolated_offset_by_hand():
    # n = 10: ceil(11 · 0.9) = 10, level 1: the largest. n = 20: ceil(18.9) = 19, level 0.95: place 18.05 of 0 … 19.
    assert notebook.interpolated_offset(np.arange(10.0), 0.9) == 9.0
    assert notebook.interpolated_offset(np.arange(20.0), 0.9) == pytest.approx(18.05)
    assert notebook.interpolated_offset(np.array([2.0, 1.0]), 0.9) == 2.0  # clipped
    assert notebook.interpolated_offset(np.array([]), 0.9) == 0.0


def test_notebook_bounds_by_hand():
    calibration = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    y, validation = np.array([3.0, 1.5]), np.array([[1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(notebook.naive_bounds(calibration, y, validation, 0.9), [[0.0, 4.0]])
    np.testing.assert_array_equal(notebook.cqr_bounds(calibration, y, validation, 0.9), [[0.0, 5.0]])
    labels = np.array([0, 1]), np.array([1])
    bounds = notebook.icqr_bounds(calibration, y, validation, 0.9, labels, 2)
    np.testing.assert_array_equal(bounds, [[1.5, 3.5]])  # the cluster's only score is -0.5
    empty = np.array([0, 0]), np.array([1])
    np.testing.assert_array_equal(notebook.icqr_bounds(calibration, y, validation, 0.9, empty, 2), [[1.0, 4.0]])


def test_a_crossed_row_is_not_covered_and_has_the_width_of_its_distance():
    split = paper_methods.Split((np.zeros((0, 1)),) * 2 + (np.zeros((3, 1)),), (np.zeros(0),) * 2 + (np.zeros(3),))
    case = object.__new__(paper_methods.Case)
    case.split, case.raw = split, (np.zeros((0, 3)), np.array([[1.0, 0.0, -1.0]] * 3))
    measures = paper_methods._measures(case, np.array([[1.0, -1.0], [-1.0, 1.0], [2.0, 3.0]]))
    assert measures["coverage"] == pytest.approx(1 / 3)
    assert measures["widths"].tolist() == [2.0, 2.0, 1.0]
    assert measures["crossed"] == 1.0


def test_notebook_clusters_come_from_training_rows_and_are_kept(case, tmp_path):
    clusters = case.clusters
    assert clusters.explained[-1] > 0.9 >= clusters.explained[-2]
    assert clusters.importance.sum() == pytest.approx(1)
    assert set(clusters.calibration) <= set(range(clusters.k))
    clusters.save(tmp_path / "clusters.npz")
    loaded = notebook.Clusters.load(tmp_path / "clusters.npz")
    for name, array in vars(clusters).items():
        np.testing.assert_array_equal(getattr(loaded, name), array)
    X, y = list(case.split.X), list(case.split.y)
    X[2] = X[2][:5]
    assert notebook.find_clusters(case.network, X, y, 0).validation.tolist() == clusters.validation[:5].tolist()


# -- Tables ----------------------------------------------------------------------------------------------------------


def a_row(method="CQR", variant="exact", network=0, widths=(1.0, 2.0), coverage=0.9, data="boston", **more):
    row = dict.fromkeys(paper_rows.COLUMNS, np.nan)
    row |= {"data": data, "variant": variant, "method": method, "network": network, "coverage": coverage}
    return {**row, "widths": np.array(widths, dtype=np.float32), **more}


def test_tables_by_hand():
    rows = pd.DataFrame([a_row(widths=(1, 2), coverage=0.8), a_row(network=1, widths=(3, 6), coverage=1.0)])
    width = paper_tables.width_table(rows)
    assert list(width.columns) == HEADER.split(",")
    expected = [1, 6, 3, np.std([1, 2, 3, 6], ddof=1), 1.75, 2.5, 3.75, 2]
    np.testing.assert_allclose(width.loc[0, list(STATISTICS)].to_numpy(float), expected)
    coverage = paper_tables.coverage_table(rows)
    expected = [0.8, 1.0, 0.9, np.sqrt(0.02), 0.85, 0.9, 0.95, 0.1]
    np.testing.assert_allclose(coverage.loc[0, list(STATISTICS)].to_numpy(float), expected)
    both = paper_tables.beside_paper(width, "width")
    assert both["mean_paper"].item() == 10.921992
    assert both["mean_difference"].item() == pytest.approx(3 / 10.921992 - 1)
    text = paper_tables._three_in_one(both)["mean"].item()
    assert text == "3 / 10.92 (-72.5%)"


def test_files_agree_with_rows(tiny):
    rows = read(tiny)
    for file, values in (("width", lambda group: np.concatenate(list(group["widths"]))), ("coverage", "coverage")):
        table = pd.read_csv(tiny / f"{file}.csv").set_index(["data", "variant", "method"])
        assert len(table) == len(paper_methods.CELLS)
        for key, group in rows.groupby(["data", "variant", "method"]):
            array = pd.Series(values(group) if callable(values) else group[values]).astype(float)
            described = array.describe()[["min", "max", "mean", "std", "25%", "50%", "75%"]]
            np.testing.assert_allclose(table.loc[key].to_numpy()[:-1], described, rtol=1e-9)
            assert table.loc[key, "IQR"] == pytest.approx(described["75%"] - described["25%"])


def test_data_that_the_paper_has_not_get_no_paper_values():
    table = paper_tables.width_table(pd.DataFrame([a_row(data="bike"), a_row(data="sine_spread")]))
    assert paper_tables.beside_paper(table, "width").empty


def test_paper_values():
    for measure in ("width", "coverage"):
        table = paper_values(measure)
        assert len(table) == 12
        assert list(table.columns) == list(STATISTICS)
        np.testing.assert_allclose(table["IQR"], table["Q3"] - table["Q1"], atol=2e-6)


def test_latex_and_markdown(tmp_path):
    frame = pd.DataFrame({"a_b": ["x & y"], "c": [0.123456], "d": [np.nan]})
    paper_tables.Table("t", "50 % of it.", frame).write(tmp_path)
    tex = (tmp_path / "t.tex").read_text()
    assert r"x \& y & 0.1235 & -- \\" in tex
    assert r"\caption{50 \% of it.}" in tex
    assert (tmp_path / "t.md").read_text().splitlines()[-1] == "| x & y | 0.1235 | – |"
    assert pd.read_csv(tmp_path / "t.csv")["c"].item() == 0.123456


# -- Claims ----------------------------------------------------------------------------------------------------------


def claim(rows, text, variant):
    table = paper_claims.claims(pd.DataFrame(rows))
    return table[table["claim"].str.contains(text) & (table["variant"] == variant)].iloc[0]


def test_claims_compare_each_variant_with_its_partner():
    rows = [
        a_row("CQR", "exact", 0, (4, 5, 6)),
        a_row("CQR", "exact", 1, (4, 5, 6)),
        a_row("CQR", "notebook", 0, (0, 5, 50)),
        a_row("CQR", "notebook", 1, (0, 5, 50)),
        *(a_row("ICQR", variant, 0, (1, 4, 9)) for variant in paper_claims.PARTNERS),
        *(a_row("ICQR", variant, 1, (5, 5.5, 6)) for variant in paper_claims.PARTNERS),
    ]
    printed = claim(rows, "larger std", "printed")
    assert (printed["holds"], printed["paper"], printed["networks"]) == ("yes", "yes", 0.5)
    pooled = np.std([1, 4, 9, 5, 5.5, 6]) - np.std([4, 5, 6, 4, 5, 6])
    assert printed["margin"] == pytest.approx(pooled)
    assert claim(rows, "larger std", "notebook")["holds"] == "no"
    median = claim(rows, "median width", "ours")
    assert median["margin"] == pytest.approx(5 - 5.25)
    assert (median["holds"], median["networks"]) == ("no", 0.5)


def test_claims_about_coverage():
    rows = [a_row("QR", "exact", t, coverage=c, data="bike-leak") for t, c in enumerate((0.1, 0.95, 0.99))]
    over = claim(rows, "QR overcovers", "exact")
    assert (over["holds"], over["paper"]) == ("yes", "yes")  # by the median: the paper's mean is 0.897
    assert over["networks"] == pytest.approx(2 / 3)
    rows = [a_row("Naive", "exact", t, coverage_easy=e, coverage_hard=0.8) for t, e in enumerate((0.99, 0.89))]
    easy = claim(rows, "Naive overcovers easy", "exact")
    assert (easy["holds"], easy["paper"], easy["networks"]) == ("yes", "not measured", 0.5)
    assert claim(rows, "Naive undercovers hard", "exact")["margin"] == pytest.approx(0.1)


def test_what_the_paper_says_of_its_own_tables_is_so():
    measured = {c.text: [paper_claims._in_paper(c, data) for data in c.data] for c in paper_claims.CLAIMS}
    assert measured.pop("Naive overcovers easy rows") == ["not measured"] * 4
    assert measured.pop("Naive undercovers hard rows") == ["not measured"] * 4
    assert all(set(answers) <= {"yes", "not measured"} for answers in measured.values())
    assert paper_claims._in_paper(paper_claims.CLAIMS[0], "blog") == "yes"


# -- Theory ----------------------------------------------------------------------------------------------------------


def test_simulated_coverage_is_the_theorems():
    table = theory.simulate_coverage([9, 10, 19, 20, 37], repeats=20_000, seed=3)
    assert (table["from"] <= table["exact"]).all()
    assert (table["exact"] <= table["to"]).all()
    assert (table["exact"] >= table["lower"] - 1e-12).all()
    assert (table["exact"] <= table["upper"]).all()
    assert (table["interpolated"] >= table["simulated"]).all()


def test_simulated_ranks_are_uniform():
    counts = theory.simulate_ranks(10, 20_000, seed=4)
    assert stats.chisquare(counts).pvalue > 0.001


def test_interpolated_offsets_of_many_rows_are_those_of_each():
    ordered = np.sort(theory.draw_scores(20, 5, np.random.default_rng(0)), axis=1)
    each = [notebook.interpolated_offset(row, 0.9) for row in ordered]
    np.testing.assert_allclose(theory._interpolated(ordered, 0.9), each)


def test_theory_file(tmp_path, monkeypatch):
    monkeypatch.setattr(theory, "REPEATS", 1000)
    theory.write_theory(tmp_path)
    table = pd.read_csv(tmp_path / "theory.csv")
    assert table["n"].tolist() == list(theory.SIZES)
