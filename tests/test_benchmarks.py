"""The quality benchmark: its statistics by hand, its cells on few rows, and its tables from rows that are made up."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy import stats

pytest.importorskip("pyarrow", reason="the benchmark needs pip install -e .[benchmark]")
pytest.importorskip("matplotlib", reason="the benchmark needs pip install -e .[benchmark]")

from benchmarks.quality import methods, run, tables
from benchmarks.quality.grid import BASES, MORE, PLANS, Base, Cell, Settings, cells
from benchmarks.quality.methods import METHODS, ON_REQUEST, PEERS, Outcome, split
from benchmarks.quality.models import Fits, FoldMean, Shared
from benchmarks.quality.run import ALL, drawn_covered, make_case, measures, methods_of, run_cell
from benchmarks.quality.statistics import corrected_error, holm, mean_over_sets, paired, ratio_of_sums
from benchmarks.quality.tables import FLOOR
from icqr import CQR, ICQR, AutoICQR, QuantileModel, ScorePartition
from paper.results import read_rows

SMALL = Base(
    "sklearn.ensemble",
    "HistGradientBoostingRegressor",
    {"max_iter": 5, "min_samples_leaf": 10},
    effort="max_iter",
    times=3,
)
TINY = Settings(bases={"histgb": SMALL}, synthetic_rows=480, first_seeds={"ICQR printed": 1, "ICQR notebook": 1})
CELLS = [Cell("sine_spread", "histgb", 0.9, seed) for seed in (0, 1)]
SECONDS = ["base_seconds", "own_seconds", "cell_seconds"]
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("benchmark")
    run.run(CELLS, out, TINY)
    return out


@pytest.fixture(scope="module")
def rows(tiny: Path) -> pd.DataFrame:
    return run.read_rows(tiny / "rows.parquet")


def of(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    return rows[rows["method"] == method].reset_index(drop=True)


def same_results(out: Path, rows: pd.DataFrame) -> None:
    again = run.read_rows(out / "rows.parquet")
    pd.testing.assert_frame_equal(again.drop(columns=SECONDS), rows.drop(columns=SECONDS))


# -- Statistics ------------------------------------------------------------------------------------------------------


def test_the_corrected_error_adds_the_share_of_test_rows() -> None:
    values = [1.0, 2.0, 4.0, 5.0]  # mean 3, squares 4 + 1 + 1 + 4 = 10, variance 10/3
    assert corrected_error(values, 0.0) == pytest.approx(np.sqrt(10 / 3 / 4))
    assert corrected_error(values, 0.5) == pytest.approx(np.sqrt((1 / 4 + 1 / 2) * 10 / 3))
    assert np.isnan(corrected_error([1.0], 0.5))


def test_without_correction_it_is_the_t_test() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.1])
    found = paired(values, 0.0)
    known = stats.ttest_1samp(values, 0, alternative="greater")
    assert found.p_above == pytest.approx(known.pvalue)
    assert found.p_below == pytest.approx(1 - known.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(stats.ttest_1samp(values, 0).confidence_interval(0.95)))


def test_a_margin_asks_for_more() -> None:
    # Variance 0.0001, corrected error 0.01 √(1/3 + 1/3); t = (-0.03 + 0.01) / that, with 2 degrees of freedom.
    found = paired([-0.02, -0.03, -0.04], 1 / 3, margin=0.01)
    assert found.p_below == pytest.approx(stats.t(2).cdf(-0.02 / (0.01 * np.sqrt(2 / 3))))
    assert found.p_below > paired([-0.02, -0.03, -0.04], 1 / 3).p_below


def test_equal_one_and_infinite_results_are_told_apart() -> None:
    same = paired([0.0, 0.0, 0.0], 1 / 3, margin=0.01)
    assert (same.mean, same.low, same.high, same.p_below, same.p_above) == (0, 0, 0, 1, 1)
    better = paired([-0.5, -0.5], 1 / 3, margin=0.01)
    assert (better.p_below, better.p_above) == (0, 1)
    single = paired([-0.5], 1 / 3)
    assert single.mean == -0.5
    assert np.isnan([single.low, single.high, single.p_below, single.p_above]).all()
    endless = paired([0.1, np.inf], 1 / 3)
    assert (endless.mean, endless.p_below, endless.p_above) == (np.inf, 1, 0)


def test_holm_by_hand() -> None:
    # Sorted: 0.005 · 4, 0.01 · 3, 0.03 · 2, 0.04 · 1 = 0.02, 0.03, 0.06, 0.04 → never below the one before.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.9]), [0.04, np.nan, 0.9])
    np.testing.assert_allclose(holm([0.8, 0.9]), [1.0, 1.0])


def test_the_ratio_of_sums_weighs_sets_by_their_means_whatever_the_number_of_seeds() -> None:
    over = [np.array([1.0, 3.0]), np.array([4.0])]  # means 2 and 4
    under = [np.array([1.0, 1.0]), np.array([5.0])]
    ratio, low, high = ratio_of_sums(over, under)
    assert ratio == 1.0
    # Twice the second set (4 / 5) is drawn in 1/4 of the cases. Twice the first, with the seeds 3, 3, 3, 3, gives 3 in
    # 1/64, less than 2.5 %; with a 1 among them it gives 2.5, in 1/16.
    assert (low, high) == (0.8, 2.5)


def test_the_bootstrap_interval_of_one_set_is_that_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(2, 1, size=400)
    ratio, low, high = ratio_of_sums([values], [np.full(400, 2.0)], n_resamples=5000)
    half = 1.96 * values.std() / np.sqrt(400) / 2
    assert ratio == pytest.approx(values.mean() / 2)
    assert (low, high) == pytest.approx((ratio - half, ratio + half), abs=0.1 * half)


def test_a_mean_over_sets_weighs_them_equally_and_its_interval_holds_sets_and_seeds() -> None:
    rng = np.random.default_rng(0)
    values = [
        centre + 0.5 * rng.normal(size=size) for centre, size in zip(rng.normal(size=30), [4, 20] * 15, strict=True)
    ]
    mean, low, high = mean_over_sets(values, n_resamples=5000)
    means = [of_set.mean() for of_set in values]
    assert mean == pytest.approx(np.mean(means))
    # Drawing seeds again adds their part of the variance to that of the sets' means.
    error = np.sqrt(np.var(means) + np.mean([of_set.var() / len(of_set) for of_set in values])) / np.sqrt(30)
    assert [low, high] == pytest.approx([mean - 1.96 * error, mean + 1.96 * error], abs=0.1 * error)
    infinite = mean_over_sets([np.array([np.inf, 0.0]), np.array([1.0])])
    assert infinite[0] == np.inf
    assert np.isnan(infinite[1:]).all()


def test_negative_sums_are_not_clipped() -> None:
    assert ratio_of_sums([np.array([-1.0, -1.0])], [np.array([2.0, 2.0])]) == (-0.5, -0.5, -0.5)


# -- The grid --------------------------------------------------------------------------------------------------------


def test_the_grid_is_what_was_planned() -> None:
    everything = cells()
    assert len(everything) == len(set(everything)) == 14 * 2 * (20 + 5 + 5) + 3 * 5 + 4 * 20
    assert [cell.seed for cell in everything] == sorted(cell.seed for cell in everything)
    assert {cell.base for cell in everything if cell.data == "star"} == {"histgb", "lightgbm"}
    assert len(cells(["bike"], bases=["network"])) == 5
    assert cells(["bike"], levels=[0.95], seeds=2, bases=["lightgbm"]) == [
        Cell("bike", "lightgbm", 0.95, 0),
        Cell("bike", "lightgbm", 0.95, 1),
    ]
    settings = Settings()
    assert {*settings.first_seeds, *settings.most_rows, *tables.REFERENCES} <= {*ALL}
    assert {base for plan in PLANS for base in plan.bases} == set(settings.bases)


def test_every_base_model_can_be_made_for_a_seed() -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("jax")
    for name, base in BASES.items():
        made = base.make(7)
        assert made.get_params().get("random_state", 7) == 7, name
        if base.effort is not None:
            more = base.with_more_effort().make(7).get_params()[base.effort]
            assert more == base.times * made.get_params()[base.effort], name


# -- One fitted model for all ----------------------------------------------------------------------------------------


def test_a_shared_model_gives_what_its_own_fit_gives() -> None:
    case = make_case(CELLS[0], TINY)
    fits, plain = Fits(len(case.train.y)), SMALL.make(0)
    for partition in (None, ScorePartition(2), "auto"):
        intervals = [
            ICQR(bounds, 0.8, partition=partition, random_state=3)
            .fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)
            .predict_interval(case.test.X)
            for bounds in (Shared(QuantileModel(plain), fits), plain)
        ]
        np.testing.assert_array_equal(*intervals)


def test_auto_is_the_class_with_its_own_fit_on_the_same_rows() -> None:
    case = make_case(CELLS[0], TINY)
    for name, effort in (("AutoICQR", "quick"), ("AutoICQR, thorough", "thorough")):
        model = AutoICQR(SMALL.make(0), 0.9, effort=effort, random_state=0)
        model.fit(*case.train, X_calibration=case.calibration.X, y_calibration=case.calibration.y)
        np.testing.assert_array_equal(METHODS[name](case).intervals, model.predict_interval(case.test.X))
    assert not case.fits.known


def test_cross_fitting_peers_get_all_rows_but_the_test_rows_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    regression = pytest.importorskip("mapie.regression")
    case = make_case(CELLS[0], TINY)
    X, y = case.known
    assert (len(X), len(y)) == (360, 360)
    assert not set(X.index) & set(case.test.X.index)
    model = regression.CrossConformalRegressor(SMALL.make(0), confidence_level=0.9, cv=5, random_state=0)
    expected = model.fit_conformalize(X, y).predict_interval(case.test.X)[1][:, :, 0]
    monkeypatch.setattr(methods, "BLOCK", 50)
    outcome = PEERS["MAPIE CV+"](case)
    np.testing.assert_array_equal(outcome.intervals, expected)
    assert outcome.promised == pytest.approx(0.8)


def test_models_are_fitted_once_and_their_seconds_are_owed() -> None:
    case = make_case(CELLS[0], TINY)
    fits, (X, y), model = Fits(len(case.train.y)), case.train, QuantileModel(SMALL.make(0))
    fitted = Shared(model, fits).fit(X, y).model_
    first = fits.whole
    assert first > 0
    assert fits.saved == 0
    fits.start()
    again = Shared(model, fits).fit(X, y)
    assert again.model_ is fitted
    assert fits.saved == fits.whole == first
    again.fit(X, y)
    assert fits.saved == first  # a method pays once
    fits.start()
    assert Shared(QuantileModel(SMALL.make(1)), fits).fit(X, y).model_ is not fitted
    assert Shared(model, fits, (0.1, 0.5, 0.9)).fit(X, y).model_ is not fitted
    assert Shared(model, fits).fit(X[:90], y[:90]).model_ is not fitted
    assert fits.saved == 0


def test_the_mean_of_five_is_their_mean() -> None:
    case = make_case(CELLS[0], TINY)
    mean = FoldMean(SMALL.make(0), seed=0).fit(*case.train, levels=(0.1, 0.5, 0.9))
    assert len(mean.models_) == 5
    expected = np.mean([model.predict(case.test.X) for model in mean.models_], axis=0)
    np.testing.assert_allclose(mean.predict(case.test.X), expected)
    shared = Shared(FoldMean(SMALL.make(0), seed=0), Fits(240))
    model = CQR(shared, 0.8, random_state=0).fit(*case.train, case.calibration.X, case.calibration.y)
    np.testing.assert_allclose(model.predict_quantiles(case.test.X), expected)
    np.testing.assert_allclose(model.predict(case.test.X), expected[:, 1])


def test_rows_are_split_in_a_half_and_two_quarters() -> None:
    parts = split(pd.DataFrame({"x": np.arange(100)}), np.arange(100.0), seed=1)
    assert [len(part.y) for part in parts] == [50, 25, 25]
    assert sorted(np.concatenate([part.y for part in parts])) == list(range(100))
    assert not np.array_equal(parts[0].y, split(np.zeros((100, 1)), np.arange(100.0), seed=2)[0].y)


# -- A run -----------------------------------------------------------------------------------------------------------


def test_every_method_has_a_row_with_all_measures(rows: pd.DataFrame) -> None:
    assert list(rows.columns) == list(run.COLUMNS)
    assert not rows.duplicated(run.KEY).any()
    seeds = rows.groupby("method")["seed"].apply(list).to_dict()
    once = {"ICQR printed", "ICQR notebook"}
    assert seeds == {name: [0] if name in once else [0, 1] for name in (*METHODS, *PEERS, FLOOR)}
    assert rows.loc[rows["ert"].isna(), "notes"].tolist() == []
    measured = rows[rows["method"] != FLOOR]
    assert measured[["coverage", "mean_width", "interval_score", "true_gap", *SECONDS]].notna().all(axis=None)
    assert measured["coverage"].between(0.3, 1).all()
    np.testing.assert_allclose(rows["ert"], rows["ert_under"] + rows["ert_over"])
    assert (rows[["n_train", "n_calibration", "n_test", "drawn"]] == [240, 120, 120, 1]).all(axis=None)


def test_packages_agree_where_they_do_the_same(rows: pd.DataFrame) -> None:
    cqr, names = of(rows, "CQR"), ["coverage", "mean_width", "interval_score", "ert", "worst_slab"]
    for peer in ("MAPIE symmetric", "puncc CQR"):
        np.testing.assert_allclose(of(rows, peer)[names], cqr[names], rtol=1e-9)
    one_offset = ("CQR", "MAPIE symmetric", "puncc CQR", "crepes normalized")
    np.testing.assert_allclose(rows.loc[rows["method"].isin(one_offset), "promised"], 109 / 121)  # ceil(121 · 0.9)
    np.testing.assert_allclose(of(rows, "MAPIE")["promised"], 2 * 115 / 121 - 1)  # ceil(121 · 0.95), each side
    np.testing.assert_allclose(of(rows, "crepes Mondrian")["promised"], 12 / 13)  # ten bins of 12 rows
    assert of(rows, "QR")["promised"].isna().all()


def test_methods_on_the_same_model_owe_the_same_fit(rows: pd.DataFrame) -> None:
    alone = rows["method"].isin(["AutoICQR", "AutoICQR, thorough", "MAPIE CV+", "MAPIE cross CQR"])
    assert rows.loc[alone, "base_seconds"].eq(0).all()
    others = rows[~alone & ~rows["method"].isin([MORE, "CQR, five averaged", FLOOR])]
    assert others.groupby("seed")["base_seconds"].nunique().eq(1).all()
    assert (rows["own_seconds"].dropna() > 0).all()


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_jobs_don_t_matter(tiny: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "cells"  # as if the run had been stopped after the first cell
    folder.mkdir()
    for name in ("settings.json", f"{CELLS[0].name}.parquet"):
        shutil.copy(tiny / "cells" / name, folder)
    done = folder / f"{CELLS[0].name}.parquet"
    kept = done.stat().st_mtime_ns
    run.run(CELLS, tmp_path, TINY, n_jobs=2)
    assert done.stat().st_mtime_ns == kept
    same_results(tmp_path, rows)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow
def test_cells_run_on_a_cluster_with_the_same_results(rows: pd.DataFrame, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason='a cluster needs pip install "icqr[dask]"')
    with (
        distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"),
        parallel_config(backend="dask"),
    ):
        run.run(CELLS, tmp_path, TINY)
    same_results(tmp_path, rows)


def test_rows_alone_are_enough_to_go_on(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(tiny / "rows.parquet", tmp_path)
    with pytest.raises(ValueError, match="synthetic_rows = 480, not 500"):
        run.run(CELLS, tmp_path, dataclasses.replace(TINY, synthetic_rows=500))
    monkeypatch.setattr(run, "run_cell", None)  # no cell may run again
    run.run(CELLS, tmp_path, TINY)
    assert (tmp_path / "rows.parquet").read_bytes() == (tiny / "rows.parquet").read_bytes()


def test_the_stored_rows_are_the_grid_with_its_settings() -> None:
    rows, about = read_rows(DOCS / "benchmark" / "rows.parquet")
    names = set(about["methods"])
    assert set(rows["method"]) == {*names, FLOOR}
    now = json.loads(json.dumps(dataclasses.asdict(Settings())))
    for limits in ("first_seeds", "most_rows"):
        now[limits] = {name: limit for name, limit in now[limits].items() if name in names}
    assert about == now | {"methods": about["methods"]}
    assert names <= {*ALL}  # no row is of a method that is gone
    assert set(rows[list(Cell._fields)].itertuples(index=False, name=None)) == set(cells())


def test_tables_and_figures_come_from_rows_alone(tiny: Path, tmp_path: Path) -> None:
    names = sorted(file.name for file in (tiny / "tables").iterdir())
    stems = [*tables.REFERENCES.values(), "sets", "measures", "coverage", "truth", "hours"]
    assert names == sorted(f"{stem}.{kind}" for stem in stems for kind in ("csv", "md", "tex"))
    shutil.copy(tiny / "rows.parquet", tmp_path)
    assert run.main(["--out", str(tmp_path), "--tables-only"]) == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "tables").iterdir()} == {
        name: (tiny / "tables" / name).read_bytes() for name in names
    }
    figures = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert figures == ["captions.md", "synthetic-histgb-0.9.png", "synthetic-histgb-0.9.svg"]


def test_a_missing_package_is_a_stated_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("crepes", "crepes.extras"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    monkeypatch.setattr(run, "METHODS", {"CQR": METHODS["CQR"]})
    # What MAPIE's conditional method stands on draws from the global generator.
    monkeypatch.setattr(run, "PEERS", {name: peer for name, peer in PEERS.items() if name != "MAPIE conditional"})
    rows = pd.DataFrame(run_cell(CELLS[0], TINY)[1])
    gaps = tables.gaps_table(rows)
    assert gaps["method"].tolist() == ["crepes normalized", "crepes Mondrian"]
    assert gaps["notes"].str.contains("no result: .*crepes").all()
    assert rows.loc[rows["method"] == "MAPIE", "coverage"].notna().all()


def test_an_error_of_our_own_method_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Any) -> Outcome:
        raise ValueError("of our own")

    monkeypatch.setattr(run, "METHODS", {"CQR": broken})
    with pytest.raises(ValueError, match="of our own"):
        run_cell(CELLS[0], TINY)


@pytest.mark.slow
@pytest.mark.draws_globally  # other packages' methods do, and have no seed of their own
def test_text_and_missing_values_reach_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(size=400), "city": rng.choice(["Bern", "Genf"], 400), "z": rng.normal(size=400)})
    X.loc[::7, "z"] = np.nan
    y = X["x"] * rng.normal(size=400) + (X["city"] == "Bern")
    monkeypatch.setattr(run, "load", lambda *_: (X, y, None))
    rows = pd.DataFrame(run_cell(Cell("concrete", "histgb", 0.8, 0), TINY)[1])
    assert rows["ert"].notna().all()
    assert rows["drawn"].eq(0).all()


def test_chosen_methods_run_alone_in_a_folder_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sine_spread", "--bases", "lightgbm", "--levels", "0.9", "--seeds", "1", "--out", str(tmp_path)]
    assert run.main([*arguments, "--methods", "QR"]) == 0
    rows, about = read_rows(tmp_path / "rows.parquet")
    assert rows["method"].tolist() == ["QR", "CQR", FLOOR]  # CQR is what all are compared with
    assert about["methods"] == ["QR", "CQR"]
    summary = pd.read_csv(tmp_path / "tables" / "summary.csv")
    assert summary["method"].tolist() == ["QR", "CQR", FLOOR]
    assert run.main([*arguments, "--methods", "Naive"]) == 1
    assert "methods = ['QR', 'CQR'], not ['Naive', 'CQR']; give another folder" in capsys.readouterr().err


def test_a_method_on_request_runs_only_if_it_is_asked_for() -> None:
    case = make_case(CELLS[0], TINY)
    assert not {*ON_REQUEST} & {*methods_of(CELLS[0], case)}
    asked = dataclasses.replace(TINY, methods=("CQR", "AutoGluon"))
    assert methods_of(CELLS[0], make_case(CELLS[0], asked)) == ["CQR", "AutoGluon"]


def test_a_method_is_left_out_where_it_takes_too_long() -> None:
    limited = Settings(bases={"histgb": SMALL}, synthetic_rows=480, most_rows={"MAPIE conditional": 100})
    assert "MAPIE conditional" not in methods_of(CELLS[0], make_case(CELLS[0], limited))
    other = CELLS[0]._replace(level=0.8)
    assert "ICQR printed" not in methods_of(other, make_case(other, TINY))
    linear = Settings(bases={"linear": BASES["linear"]}, synthetic_rows=480)
    assert MORE not in methods_of(CELLS[0], make_case(CELLS[0]._replace(base="linear"), linear))


# -- Measures --------------------------------------------------------------------------------------------------------


def test_inverted_and_infinite_intervals_are_counted() -> None:
    case = make_case(CELLS[0], TINY)
    bounds = np.column_stack([case.test.y - 1, case.test.y + 1])
    bounds[:30] = bounds[:30, ::-1]
    bounds[30:36, 0] = -np.inf
    with pytest.warns(UserWarning, match="6 of 120 intervals are infinite"):
        row = measures(case, Outcome(bounds))
    assert (row["inverted"], row["infinite"], row["coverage"]) == (30 / 120, 6 / 120, 1.0)
    assert row["mean_width"] == np.inf


def test_the_oracle_s_gap_is_zero_and_a_draw_of_its_own_holds_as_requested() -> None:
    cell = Cell("sine_spread", "histgb", 0.9, 0)
    case = make_case(cell, Settings(bases={"histgb": SMALL}, synthetic_rows=8000))
    assert case.truth is not None
    oracle = measures(case, Outcome(case.truth.quantile(case.test.X, [0.05, 0.95])))
    assert oracle["true_gap"] == pytest.approx(0, abs=1e-9)
    assert abs(oracle["coverage"] - 0.9) < 4 * np.sqrt(0.09 / 2000)
    drawn = drawn_covered(case, cell)
    floor = measures(case, Outcome(drawn))
    assert abs(floor["coverage"] - 0.9) < 4 * np.sqrt(0.09 / 2000)
    assert abs(floor["ert"]) < 0.02
    other = drawn_covered(case, cell._replace(data="radial_spread"))
    assert np.isclose((drawn == other).all(axis=1).mean(), 0.82, atol=0.05)  # 0.9² + 0.1²: drawn apart


# -- Tables ----------------------------------------------------------------------------------------------------------


def made_up(scores: dict[str, dict[str, list[float]]], **columns: Any) -> pd.DataFrame:
    """Give rows with these interval scores by method and data set; ERT is a tenth of the score."""
    plain = {"base": "histgb", "level": 0.9, "n_train": 50, "n_calibration": 25, "n_test": 25, "drawn": 0}
    plain |= {"coverage": 0.91, "promised": 0.9, "mean_width": 1.0, "base_seconds": 1.0, "own_seconds": 1.0}
    plain |= {"cell_seconds": 1800.0, "notes": "", **columns}
    found = [
        {**plain, "data": data, "method": method, "seed": seed, "interval_score": score, "ert": score / 10}
        for method, sets in scores.items()
        for data, values in sets.items()
        for seed, score in enumerate(values)
    ]
    return pd.DataFrame(found).reindex(columns=list(run.COLUMNS))


TWO_SETS = made_up(
    {
        "CQR": {"bike": [10.0, 10.0, 10.0], "star": [1.0, 1.0, 1.0]},
        "half": {"bike": [5.0, 5.05, 4.95], "star": [0.5, 0.505, 0.495]},
        "same": {"bike": [10.05, 9.95, 10.0], "star": [1.005, 0.995, 1.0]},
        "double": {"bike": [20.0, 20.2, 19.8], "star": [2.0, 2.02, 1.98]},
    }
)


def test_wins_losses_and_ratios_by_hand() -> None:
    summary = tables.summary_table(TWO_SETS).set_index("method")
    assert summary["score"].to_dict() == pytest.approx({"CQR": 1, "half": 0.5, "same": 1, "double": 2}, rel=1e-3)
    assert summary["ert"].to_dict() == pytest.approx({"CQR": 1, "half": 0.5, "same": 1, "double": 2}, rel=1e-3)
    assert (summary["score_low"] <= summary["score"]).all()
    assert (summary["score"] <= summary["score_high"]).all()
    parts = tables.summary_table(TWO_SETS.assign(ert_under=0.3 * TWO_SETS["ert"], ert_over=0.1))
    assert parts.set_index("method").loc["half", "ert_under"] == pytest.approx(0.15, rel=1e-3)
    assert parts.set_index("method").loc["half", "ert_over"] == pytest.approx(0.1 / 0.55)  # CQR has (1 + 0.1) / 2
    assert summary["better"].to_dict() == {"CQR": 0, "half": 2, "same": 0, "double": 0}
    assert summary["worse"].to_dict() == {"CQR": 0, "half": 0, "same": 0, "double": 2}
    assert summary["ert_better"].to_dict() == {"CQR": 0, "half": 2, "same": 0, "double": 0}
    assert summary["ert_worse"].to_dict() == {"CQR": 0, "half": 0, "same": 0, "double": 2}
    assert summary["times"].eq(1).all()
    assert summary["seconds"].eq(12).all()
    assert summary["coverage_minus_promise"].to_numpy() == pytest.approx(0.01)


def test_a_set_s_interval_and_p_value_by_hand() -> None:
    table = tables.sets_table(TWO_SETS)
    found = table[(table["method"] == "half") & (table["data"] == "bike")].iloc[0]
    logs = np.log([0.5, 0.505, 0.495])
    error = np.sqrt((1 / 3 + 25 / 75) * logs.var(ddof=1))
    half = stats.t(2).ppf(0.975) * error
    assert found["score_low"] == pytest.approx(np.exp(logs.mean() - half))
    assert found["score_high"] == pytest.approx(np.exp(logs.mean() + half))
    single = stats.t(2).cdf((logs.mean() + np.log(1.01)) / error)
    assert found["p_better"] == pytest.approx(2 * single, rel=1e-3)  # Holm over two sets with nearly equal p-values
    assert found["ert_difference"] == pytest.approx(-0.5)
    assert found["p_ert_worse"] == pytest.approx(1)


def test_seeds_with_rows_of_their_own_need_no_correction() -> None:
    found = tables.sets_table(TWO_SETS.assign(drawn=1)).query("method == 'half' and data == 'bike'").iloc[0]
    assert found["kind"] == "synthetic"
    logs = np.log([0.5, 0.505, 0.495])
    half = stats.t(2).ppf(0.975) * logs.std(ddof=1) / np.sqrt(3)
    assert found["score_low"] == pytest.approx(np.exp(logs.mean() - half))


def test_methods_are_compared_on_the_seeds_they_have() -> None:
    few = made_up({"CQR": {"bike": [10.0, 20.0, 40.0]}, "slow": {"bike": [5.0]}})
    summary = tables.summary_table(few).set_index("method")
    assert summary.loc["slow", "score"] == pytest.approx(0.5)
    assert tables.summary_table(few, "MAPIE").empty
    found = tables.summary_table(few, "slow").set_index("method").loc["CQR"]
    assert found["seeds"] == 1
    assert np.isnan(found["coverage_minus_promise"])  # one seed has no error, and the other two are not compared


def test_coverage_in_standard_errors() -> None:
    rows = made_up({"CQR": {"bike": [1.0, 1.0, 1.0]}}).assign(coverage=[0.9, 0.92, 0.94])
    found = tables.coverage_table(rows).iloc[0]
    error = 0.02 / np.sqrt(3)  # splits are drawn independently
    assert found[["difference", "standard_error", "in_errors"]].tolist() == pytest.approx([0.02, error, 0.02 / error])


def test_hours_count_each_cell_once() -> None:
    assert tables.hours_table(TWO_SETS)["hours"].tolist() == [1.5, 1.5]  # three seeds of half an hour


@pytest.mark.slow
def test_the_page_s_numbers_are_those_of_its_rows() -> None:
    rows = run.read_rows(DOCS / "benchmark" / "rows.parquet")
    page = (DOCS / "understand" / "benchmark-details.md").read_text(encoding="utf-8")
    for base, level in (("lightgbm", 0.9), ("histgb", 0.9)):
        here = rows[(rows["base"] == base) & (rows["level"] == level) & (rows["drawn"] == 0)]
        shown = tables.readable(tables.summary_table(here)).drop(columns=["base", "level", "kind", "true distance"])
        for row in shown.astype(str).to_numpy().tolist():
            assert f"| {' | '.join(row)} |\n" in page


# -- The command -----------------------------------------------------------------------------------------------------


def test_the_command_explains_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        run.main(["--help"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    for word in ("--out", "--seeds", "--levels", "--methods", "--jobs", "--tables-only", "grid.py", "kc_house"):
        assert word in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--tables-only"], "has no finished cells"), (["star", "--levels", "0.5"], "there are no such cells")],
)
def test_what_can_t_be_done_is_said_in_a_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([*arguments, "--out", str(tmp_path)]) == 1
    assert words in capsys.readouterr().err
