"""Dask collections on a real cluster of two processes: the same results as the local classes, to the bit."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import icqr
from icqr._predicting import EXPLAINED, interval_columns
from icqr.calibration import COVERAGES, Calibration, SelectedCalibration
from icqr.cross import CrossCalibration
from icqr.dask import CQR, ICQR, QR, AutoICQR, Naive, connect, on_dask, progress, write_parquet

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

SMALL = HistGradientBoostingRegressor(max_iter=15, random_state=0)
THREE = icqr.KMeansPartition(choose=3)


@pytest.fixture(scope="module")
def client(scheduler: str) -> Iterator[Any]:
    with connect(scheduler) as client:
        yield client


@pytest.fixture
def frames(rows: tuple[pd.DataFrame, Any]) -> tuple[Any, Any]:
    """The 600 rows as a Dask DataFrame and Series of 5 blocks."""
    whole = dd.from_pandas(rows[0].assign(target=rows[1]), npartitions=5)
    return whole[list(rows[0])], whole["target"]


def in_form(form: str, X: Any, y: Any) -> tuple[Any, Any]:
    if form == "frame":
        return X, y
    if form == "unknown divisions":
        return X.clear_divisions(), y.clear_divisions()
    if form == "unknown chunks":
        return X.to_dask_array(), y.to_dask_array()
    lengths = tuple(X.map_partitions(len).compute(scheduler="synchronous"))
    X, y = X.to_dask_array(lengths=lengths), y.to_dask_array(lengths=lengths)
    return (X.rechunk({1: 1}) if form == "cut columns" else X), y


@pytest.fixture
def few_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have more than 10 scores count as too many to keep them all."""
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", 10)


def copied(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def all_offsets(model: Any, coverage: float) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # groups that are too small
        return model.calibration_.offsets(coverage, np.arange(model.n_groups_))


# -- Calibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "unknown divisions", "array", "cut columns", "unknown chunks"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # arrays, for a model of named columns
def test_calibration_equals_the_local_one_to_the_bit(
    form: str, client: Any, models: Any, rows: Any, frames: Any
) -> None:
    local = copied(models["ICQR"]).calibrate(*rows)
    ours = on_dask(models["ICQR"]).calibrate(*in_form(form, *frames))
    for mine, other in zip(ours.calibration_.scores, local.calibration_.scores, strict=True):
        np.testing.assert_array_equal(mine, other)
    pd.testing.assert_frame_equal(ours.explain(rows[0]), local.explain(rows[0]))
    pd.testing.assert_frame_equal(ours.groups_, local.groups_)


@pytest.mark.parametrize(
    "method",
    [
        icqr.Naive(SMALL),
        icqr.CQR(SMALL, symmetric=False),
        icqr.CQR(SMALL, side="upper"),
        icqr.ICQR(SMALL, conformity="cqr-r", partition=THREE),
        icqr.ICQR(SMALL, partition=icqr.GroupPartition(lambda X: (X.iloc[:, 0] > 0.6).astype(int))),
    ],
    ids=["naive", "a side each", "upper", "cqr-r", "own groups"],
)
def test_order_statistics_of_the_blocks_equal_the_local_ones_to_the_bit(
    method: Any, client: Any, rows: Any, frames: Any, few_scores: None
) -> None:
    X, y = rows
    local = method.set_params(random_state=0).fit(X[:300], y[:300])
    ours = on_dask(local).calibrate(*frames, coverages=COVERAGES)
    local.calibrate(X, y)
    assert isinstance(ours.calibration_, SelectedCalibration)
    for coverage in COVERAGES:
        np.testing.assert_array_equal(all_offsets(ours, coverage), all_offsets(local, coverage))
    assert ours.certificate().groups.equals(local.certificate().groups)
    assert ours.explain(X).drop(columns="novelty").equals(local.explain(X).drop(columns="novelty"))


def test_coverages_that_were_not_kept_are_refused_before_any_work(
    client: Any, models: Any, frames: Any, few_scores: None
) -> None:
    model = on_dask(models["CQR"]).calibrate(*frames, coverages=[0.5])
    assert model.predict_interval(frames[0], 0.5).npartitions == 5
    for method in (model.predict_interval, model.explain):
        with pytest.raises(ValueError, match=r"only those for coverage=0\.5.*, 0\.8.* calibrate again"):
            method(frames[0], 0.7)


def test_coverages_that_need_more_rows_are_refused_before_any_work(client: Any, models: Any, frames: Any) -> None:
    model = on_dask(models["CQR"])
    for method in (model.predict_interval, model.explain):
        with pytest.raises(ValueError, match=r"coverage=0\.99999 needs at least 99999 calibration rows"):
            method(frames[0], 0.99999)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_blocks_without_rows_and_without_a_group_change_nothing(client: Any, models: Any, rows: Any) -> None:
    X, y = rows
    groups = models["ICQR"].partition_.assign(X)
    parts = [groups == 0, groups < 0, groups == 1, groups == 2]  # one group each; the second has no row
    order = np.concatenate([np.flatnonzero(part) for part in parts])
    frame = dd.from_delayed(
        [delayed_frame(X[part].assign(target=y[part])) for part in parts], meta=X[:0].assign(target=y[:0])
    )
    ours = on_dask(models["ICQR"]).calibrate(frame[list(X)], frame["target"])
    local = copied(models["ICQR"]).calibrate(X.iloc[order], y.iloc[order])
    np.testing.assert_array_equal(all_offsets(ours, 0.8), all_offsets(local, 0.8))
    predicted = ours.explain(frame[list(X)]).compute()
    pd.testing.assert_frame_equal(predicted, local.explain(X.iloc[order]))
    assert len(ours.predict_interval(frame[list(X)].to_dask_array()).compute()) == len(X)


def delayed_frame(frame: pd.DataFrame) -> Any:
    import dask

    return dask.delayed(frame)


def test_types_and_categories_may_differ_between_blocks(client: Any) -> None:
    rng = np.random.default_rng(0)
    n = 900
    whole = pd.DataFrame({"size": rng.integers(0, 9, n).astype(float), "city": rng.choice(["a", "b", "c"], n)})
    whole["y"] = whole["size"] + (whole["city"] == "b") * 3 + rng.normal(size=n)
    whole.loc[:299, "city"] = "a"  # so that the first block's categories are others than the second's
    parts = [
        whole[:300].astype({"size": np.int64, "city": "category"}),
        whole[300:600].astype({"size": np.float32, "city": "category"}),
        whole[600:].astype({"city": object}),
    ]
    frame = dd.from_delayed([delayed_frame(part) for part in parts], meta=whole[:0], verify_meta=False)
    model = ICQR(SMALL, partition=icqr.GroupPartition("city"), random_state=0).fit(frame[["size", "city"]], frame["y"])
    assert model.groups_["rule"].tolist() == ["city = a", "city = b", "city = c"]
    local = model.to_local().calibrate(whole[["size", "city"]], whole["y"])
    model.calibrate(frame[["size", "city"]], frame["y"])
    np.testing.assert_array_equal(all_offsets(model, 0.9), all_offsets(local, 0.9))


# -- Prediction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Naive", "QR", "ICQR", pytest.param("CQR", marks=pytest.mark.slow)])
def test_predictions_are_lazy_and_equal_the_local_ones(
    name: str, client: Any, models: Any, rows: Any, frames: Any
) -> None:
    local, (X, _), (lazy, _) = models[name], rows, frames
    model = on_dask(local)
    intervals, explained, points = model.predict_interval(lazy), model.explain(lazy), model.predict(lazy)
    assert intervals.columns.tolist() == ["lower", "upper"]
    assert intervals.divisions == lazy.divisions
    pd.testing.assert_index_equal(intervals.compute().index, X.index)
    np.testing.assert_array_equal(intervals.compute(), local.predict_interval(X))
    pd.testing.assert_frame_equal(explained.compute(), local.explain(X))
    np.testing.assert_array_equal(points.compute(), local.predict(X))
    assert explained.dtypes.to_dict() == local.explain(X).dtypes.to_dict()
    np.testing.assert_array_equal(model.predict_interval(X), local.predict_interval(X))  # a table: here and now


@pytest.mark.parametrize("form", ["unknown chunks"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_arrays_give_arrays(form: str, client: Any, models: Any, rows: Any, frames: Any) -> None:
    local, X = models["ICQR"], rows[0]
    lazy, model = in_form(form, *frames)[0], on_dask(models["ICQR"])
    one, several, points = model.predict_interval(lazy), model.predict_interval(lazy, [0.5, 0.9]), model.predict(lazy)
    assert (one.ndim, several.ndim, points.ndim) == (2, 3, 1)
    np.testing.assert_array_equal(one.compute(), local.predict_interval(X))
    np.testing.assert_array_equal(several.compute(), local.predict_interval(X, [0.5, 0.9]))
    np.testing.assert_array_equal(points.compute(), local.predict(X))
    np.testing.assert_array_equal(model.explain(lazy).compute()["lower"], local.explain(X)["lower"])


def test_workers_get_no_more_scores_than_they_need(models: Any, rows: Any, frames: Any) -> None:
    model = on_dask(copied(models["CQR"]))
    scores = np.random.default_rng(0).normal(size=(1_000_000, 1))
    calibration = Calibration.from_scores(model.conformity_, scores, np.zeros(len(scores), dtype=np.intp), 1)
    lazy = model.with_calibration(calibration).predict_interval(frames[0], [0.8, 0.9])
    assert len(cloudpickle.dumps(dict(lazy.dask))) < 1_000_000  # the scores alone are 8 MB
    np.testing.assert_array_equal(
        lazy.compute(scheduler="synchronous")[["lower_0.9", "upper_0.9"]], model.predict_interval(rows[0], 0.9)
    )


def test_several_coverages_have_a_column_for_each_bound(models: Any, rows: Any, frames: Any) -> None:
    twice = on_dask(models["CQR"]).predict_interval(frames[0], [0.9, 0.9]).compute(scheduler="synchronous")
    assert list(twice.columns) == ["lower_0.9", "upper_0.9"] * 2
    predicted = on_dask(models["CQR"]).predict_interval(frames[0], [0.5, 0.9]).compute(scheduler="synchronous")
    wanted = models["CQR"].predict_interval(rows[0], [0.5, 0.9])
    assert predicted.columns.tolist() == ["lower_0.5", "upper_0.5", "lower_0.9", "upper_0.9"]
    np.testing.assert_array_equal(predicted[["lower_0.9", "upper_0.9"]], wanted[:, :, 1])


def test_explained_columns_are_those_of_the_local_class(models: Any, rows: Any) -> None:
    assert list(EXPLAINED) == models["ICQR"].explain(rows[0]).columns.tolist()


# -- Fitting ---------------------------------------------------------------------------------------------------------


def test_a_model_of_scikit_learn_is_fitted_on_a_sample_and_calibrated_on_all(
    client: Any, rows: Any, frames: Any
) -> None:
    model = ICQR(SMALL, coverage=0.8, partition=THREE, random_state=0).fit(*frames, sample_rows=300)
    assert 150 < model.n_train_ < 250  # about two thirds of the sample
    assert model.calibration_.sizes.sum() == 200  # a third of all rows
    again = ICQR(SMALL, coverage=0.8, partition=THREE, random_state=0).fit(*frames, sample_rows=300)
    np.testing.assert_array_equal(all_offsets(model, 0.8), all_offsets(again, 0.8))
    local = model.to_local()
    assert type(local) is icqr.ICQR
    np.testing.assert_array_equal(local.predict_interval(rows[0]), model.predict_interval(rows[0]))
    pd.testing.assert_frame_equal(local.groups_, model.groups_)


def test_calibration_rows_may_be_given(client: Any, rows: Any, frames: Any) -> None:
    X, y = frames
    train, fresh = (X.partitions[:3], y.partitions[:3]), (X.partitions[3:], y.partitions[3:])
    model = CQR(SMALL, random_state=0).fit(*train, *fresh)
    n = len(fresh[1])
    assert model.n_train_ == 600 - n
    assert model.calibration_.sizes.sum() == n
    local = model.to_local().calibrate(rows[0][-n:], rows[1][-n:])
    np.testing.assert_array_equal(model.calibration_.scores[0], local.calibration_.scores[0])


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosters_train_on_the_cluster_and_become_local_models(
    library: str, client: Any, rows: Any, frames: Any, few_scores: None
) -> None:
    X, y = rows
    if library == "lightgbm":
        estimator = pytest.importorskip("lightgbm").DaskLGBMRegressor(n_estimators=10)
        kind = "LGBMRegressor"
    else:
        estimator = pytest.importorskip("xgboost.dask").DaskXGBRegressor(n_estimators=10)
        kind = "XGBRegressor"
    lazy = frames[0].assign(city=(frames[0].iloc[:, 0] > 0.5).map({True: "Bern", False: "Genf"}, meta=("city", object)))
    X = X.assign(city=(X.iloc[:, 0] > 0.5).map({True: "Bern", False: "Genf"}))
    model = ICQR(estimator, coverage=0.8, partition=THREE, random_state=0).fit(lazy, frames[1], sample_rows=300)
    assert model.n_train_ == 400  # all training rows, not those of the sample
    local = model.to_local()
    assert type(local.estimator).__name__ == kind
    assert {type(fitted).__name__ for fitted in local.model_.models_} == {kind}
    model.calibrate(lazy, frames[1])
    local.calibrate(X, y)
    np.testing.assert_array_equal(all_offsets(model, 0.8), all_offsets(local, 0.8))
    np.testing.assert_array_equal(model.predict_interval(lazy).compute(), local.predict_interval(X))
    covered = (local.predict_interval(X)[:, 0] <= y) & (y <= local.predict_interval(X)[:, 1])
    assert 0.75 < covered.mean() < 0.95


def test_the_other_methods_fit_too(client: Any, frames: Any) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    naive = Naive(lightgbm.DaskLGBMRegressor(n_estimators=5), random_state=0).fit(*frames)
    assert type(naive.model_.model_) is lightgbm.LGBMRegressor
    plain = QR(SMALL, random_state=0).fit(*frames)
    assert plain.n_train_ == 600
    with pytest.raises(ValueError, match="QR has no calibration"):
        plain.calibrate(*frames)
    with pytest.raises(ValueError, match="QR has no calibration"):
        QR(SMALL).fit(*frames, *frames)


def test_auto_is_fitted_on_a_sample_and_calibrated_on_all(client: Any, rows: Any, frames: Any) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    light = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1)
    model = AutoICQR(light, coverage=0.8, random_state=0).fit(*frames, sample_rows=300)
    assert 150 < model.n_train_ < 250  # about two thirds of the sample
    assert model.calibration_.sizes.sum() == 200  # a third of all rows
    local = model.to_local()
    assert type(local) is icqr.AutoICQR
    np.testing.assert_array_equal(local.predict_interval(rows[0]), model.predict_interval(frames[0]).compute())
    assert type(on_dask(local)) is AutoICQR
    with pytest.raises(ValueError, match="takes no DaskLGBMRegressor; give it LGBMRegressor, or use ICQR"):
        AutoICQR(lightgbm.DaskLGBMRegressor()).fit(*frames)


def test_a_users_groups_are_found_in_all_rows(client: Any, rows: Any) -> None:
    X, y = rows
    rare = X.assign(shop=["big"] * 599 + ["rare"], target=y)
    lazy = dd.from_pandas(rare, npartitions=4)
    model = ICQR(SMALL, partition=icqr.GroupPartition("shop"), small_groups="infinite", random_state=0)
    with pytest.warns(UserWarning, match="predicts the same"):  # a sample of so few rows leaves trees without a split
        model.fit(lazy.drop(columns="target"), lazy["target"], sample_rows=50)
    assert model.groups_["rule"].tolist() == ["shop = big", "shop = rare"]


def test_models_of_lightgbm_get_one_thread_on_workers_and_keep_theirs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 1))
    y = X * (3 + rng.uniform(size=(300, 1)))
    light = lightgbm.LGBMRegressor(n_estimators=1, n_jobs=2, verbose=-1, random_state=0)
    predict, threads = lightgbm.Booster.predict, list[int]()

    def recorded(booster: Any, *arguments: Any, **options: Any) -> Any:
        threads.append(options["num_threads"])
        return predict(booster, *arguments, **options)

    for estimator in (icqr.ResidualQuantiles(light), make_pipeline(StandardScaler(), light)):
        model = CQR(estimator, random_state=0).fit(X, y[:, 0])
        threads.clear()
        with monkeypatch.context() as patch:
            patch.setattr(lightgbm.Booster, "predict", recorded)
            lazy = model.predict_interval(da.from_array(X)).compute(scheduler="synchronous")
            on_workers = len(threads)
            assert on_workers >= 3
            assert threads == [1] * on_workers
            np.testing.assert_array_equal(model.predict_interval(X), lazy)
            assert threads[on_workers:] == [2] * on_workers


@pytest.mark.slow
def test_cross_calibration_is_for_tables(client: Any, frames: Any) -> None:
    """Rows of a Dask collection are set aside, however few they are; few rows of a table are cross-calibrated."""
    with pytest.raises(ValueError, match="calibration='cross' is not possible with Dask collections"):
        CQR(SMALL, calibration="cross", random_state=0).fit(*frames)
    model = AutoICQR(SMALL, random_state=0).fit(*frames)
    assert type(model.calibration_) is Calibration
    assert model.calibration_.sizes.sum() == 200
    X, y = (rows.compute() for rows in frames)
    model, local = (kind(SMALL, random_state=0).fit(X, y) for kind in (AutoICQR, icqr.AutoICQR))
    assert isinstance(local.calibration_, CrossCalibration)
    expected = local.predict_interval(X, [0.8, 0.9])
    np.testing.assert_array_equal(model.predict_interval(frames[0], [0.8, 0.9]).compute(), interval_columns(expected))
    pd.testing.assert_frame_equal(model.explain(frames[0]).compute(), local.explain(X), check_dtype=False)
    model.calibrate(*frames)
    assert model.certificate().guarantee == "group-wise"


def test_rows_in_time_are_split_in_tables_alone(client: Any, rows: Any, frames: Any) -> None:
    X, y = rows
    with pytest.raises(ValueError, match="order is not possible with Dask collections; split them in time yourself"):
        CQR(SMALL, random_state=0).fit(*frames, order="x1")
    model, local = (kind(SMALL, random_state=0).fit(X, y, order="x1") for kind in (CQR, icqr.CQR))
    np.testing.assert_array_equal(model.predict_interval(X), local.predict_interval(X))
    with pytest.raises(ValueError, match="QR has no calibration"):
        QR(SMALL, random_state=0).fit(X, y, order="x1")


def test_a_local_booster_is_told_that_it_sees_a_sample(client: Any, frames: Any) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    with pytest.warns(
        UserWarning, match=r"sample of \d+ of 400 training rows; lightgbm\.DaskLGBMRegressor trains on all"
    ):
        CQR(lightgbm.LGBMRegressor(n_estimators=3), random_state=0).fit(*frames, sample_rows=100)


def test_tables_go_to_the_local_class(rows: Any) -> None:
    ours = ICQR(SMALL, random_state=0).fit(*rows)
    local = icqr.ICQR(SMALL, random_state=0).fit(*rows)
    np.testing.assert_array_equal(ours.predict_interval(rows[0]), local.predict_interval(rows[0]))
    assert ours.get_params().keys() == local.get_params().keys()


def test_a_saved_model_predicts_on_a_cluster(
    tmp_path: Path, client: Any, models: Any, rows: Any, frames: Any, few_scores: None
) -> None:
    persistence = pytest.importorskip("icqr.persistence")
    pytest.importorskip("skops")
    model = on_dask(models["ICQR"]).calibrate(*frames)
    persistence.save(model.to_local(), tmp_path / "model.icqr")
    loaded = on_dask(persistence.load(tmp_path / "model.icqr"))
    np.testing.assert_array_equal(loaded.predict_interval(frames[0]).compute(), model.predict_interval(rows[0]))


# -- Samples and splits ----------------------------------------------------------------------------------------------


class Remembers(RegressorMixin, BaseEstimator):
    """Knows the rows that it was fitted to, and predicts 0: so a row's score is its y, by which we know it again."""

    def fit(self, X: Any, y: Any) -> Remembers:
        self.seen_ = np.asarray(X["place"])
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.zeros((len(X), len(levels)))


def test_rows_train_or_calibrate_never_both(client: Any, frames: Any) -> None:
    X = frames[0].assign(place=frames[0].index.to_series())
    places = X["place"].astype(float)
    settings = [(0, 600), (0, 200), (0, 200), (1, 200)]
    with pytest.warns(UserWarning, match="predicts the same"):
        fits = [CQR(Remembers(), random_state=seed).fit(X, places, sample_rows=size) for seed, size in settings]
    held_out = [set(model.calibration_.scores[0].ravel()) for model in fits]
    seen = [set(model.model_.models_[0].seen_) for model in fits]
    assert [len(places) for places in held_out] == [200] * 4
    assert [len(places) for places in seen] == [400, 134, 134, 134]
    assert held_out[0].isdisjoint(seen[0])
    assert [sum(120 * block <= place < 120 * (block + 1) for place in held_out[0]) for block in range(5)] == [40] * 5
    assert held_out[0] == held_out[1] == held_out[2] != held_out[3]
    assert seen[1] == seen[2] != seen[3]


@pytest.mark.parametrize("partition", [pytest.param("auto", marks=pytest.mark.slow), icqr.ScorePartition(n_groups=2)])
def test_groups_by_difficulty_come_from_rows_that_the_model_has_not_seen(
    partition: Any, client: Any, frames: Any
) -> None:
    """A model that knows its rows by heart makes no errors there, and would find no group that is harder."""
    lightgbm = pytest.importorskip("lightgbm")
    estimator = lightgbm.DaskLGBMRegressor(n_estimators=10, learning_rate=0.9, min_child_samples=1, num_leaves=100)
    X, y = (rows.repartition(npartitions=1) for rows in frames)  # the trees depend on which worker has which blocks
    model = ICQR(estimator, coverage=0.8, partition=partition, random_state=0).fit(X, y)
    assert model.n_train_ == 320  # a fifth of 400 was left out
    assert model.calibration_.sizes.sum() == 200
    if partition != "auto":
        easier, harder = np.sort(model.groups_["offset_upper"])
        assert harder > 1.5 * easier


# -- Named errors ----------------------------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_answer_is_named() -> None:
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9' within 0\.5 s"):
        connect("tcp://127.0.0.1:9", timeout=0.5)


def test_local_classes_refuse_collections_and_name_ours(frames: Any, models: Any) -> None:
    for work in (lambda: icqr.ICQR(random_state=0).fit(*frames), lambda: models["CQR"].predict_interval(frames[0])):
        with pytest.raises(TypeError, match=r"icqr\.dask\.AutoICQR .* takes it"):
            work()


def test_errors_about_rows_name_the_block(client: Any, models: Any, rows: Any, frames: Any) -> None:
    X, y = frames
    model = on_dask(models["CQR"])
    with pytest.raises(ValueError, match=r"block 4: y must be finite; 1 of 120 values"):
        model.calibrate(X, y.where(y != rows[1].iloc[-1]))
    text = X.map_partitions(with_text, meta=X._meta)
    with pytest.raises(ValueError, match=r"block 3: Column 'x1' held numbers in training and now holds something else"):
        model.predict_interval(text).compute()
    assert model.calibration_ is models["CQR"].calibration_  # a calibration that failed changes nothing


def with_text(block: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
    return block.assign(x1="much") if partition_info and partition_info["number"] == 3 else block


def without_last_block(block: pd.Series, partition_info: Any = None) -> pd.Series:
    return block[:0] if partition_info and partition_info["number"] == 4 else block


def test_rows_that_do_not_fit_together_are_refused(client: Any, models: Any, rows: Any, frames: Any) -> None:
    X, y = frames
    model = on_dask(models["CQR"])
    with pytest.raises(ValueError, match=r"cut into the same blocks, got 5 and 3"):
        model.calibrate(X, y.repartition(npartitions=3))
    with pytest.raises(ValueError, match=r"block 0: .* 119 were counted, and now X has 120 and y has 119"):
        model.calibrate(X, y.loc[1:])
    with pytest.raises(ValueError, match=r"block 4: X and y must have the same rows; X has \d+ and y has 0"):
        model.calibrate(X, y.map_partitions(without_last_block))
    with pytest.raises(TypeError, match=r"y must be a Dask Series or a one-dimensional Dask Array, got Series"):
        model.calibrate(X, rows[1])
    with pytest.raises(ValueError, match=r"X lacks columns that it had in fit: 'x1'"):
        model.predict_interval(X.drop(columns="x1"))
    with pytest.raises(ValueError, match=r"0 rows in all its blocks"):
        CQR(random_state=0).fit(X.partitions[:1].loc[:-1], y.partitions[:1].loc[:-1])
    with pytest.raises(ValueError, match=r"sample_rows must be a whole number"):
        CQR(random_state=0).fit(X, y, sample_rows=0.5)
    with pytest.raises(ValueError, match=r"sample_weight is a Dask collection"):
        CQR(random_state=0).fit(X, y, sample_weight=y)
    with pytest.raises(ValueError, match=r"X_calibration and y_calibration go together"):
        CQR(random_state=0).fit(X, y, X)
    with pytest.raises(TypeError, match=r"model must be Naive, QR, CQR, ICQR or AutoICQR, got HistG"):
        on_dask(SMALL)


# -- Files and progress ----------------------------------------------------------------------------------------------


def test_a_folder_of_predictions_is_complete_or_not_there(
    tmp_path: Path, client: Any, models: Any, rows: Any, frames: Any
) -> None:
    model, folder = on_dask(models["ICQR"]), tmp_path / "out"
    text = frames[0].map_partitions(with_text, meta=frames[0]._meta)
    with pytest.raises(ValueError, match="block 3"):
        write_parquet(model.explain(text), folder)
    assert list(tmp_path.iterdir()) == []
    write_parquet(model.explain(frames[0]), folder)
    assert [file.name for file in sorted(folder.iterdir())] == [f"part.0000{i}.parquet" for i in range(5)]
    pd.testing.assert_frame_equal(pd.read_parquet(folder), models["ICQR"].explain(rows[0]))
    with pytest.raises(FileExistsError, match="give another folder"):
        write_parquet(model.explain(frames[0]), folder)


def test_progress_is_told_block_by_block(client: Any, models: Any, frames: Any) -> None:
    told: list[tuple[str, int, int]] = []
    with progress(lambda *step: told.append(step)):
        on_dask(models["CQR"]).calibrate(*frames)
    assert [step for step in told if step[0] == "scoring"] == [("scoring", i, 5) for i in range(1, 6)]


def test_blocks_of_files_stay_as_they_are_when_few_columns_are_read(
    tmp_path: Path, client: Any, models: Any, rows: Any
) -> None:
    """Dask joins blocks of files of which it reads few columns; X and y must have the same ones all the same."""
    whole = rows[0].assign(target=rows[1], **{f"other{i}": 1.0 for i in range(30)})
    for number in range(12):
        whole[number * 50 : (number + 1) * 50].to_parquet(tmp_path / f"{number:02}.parquet")
    lazy = dd.read_parquet(tmp_path)
    ours = on_dask(models["ICQR"]).calibrate(lazy[list(rows[0])], lazy["target"])
    local = copied(models["ICQR"]).calibrate(*rows)
    np.testing.assert_array_equal(all_offsets(ours, 0.8), all_offsets(local, 0.8))
    folder = write_parquet(ours.predict_interval(lazy[list(rows[0])]), tmp_path / "out")
    assert len(list(folder.iterdir())) == 12
    np.testing.assert_array_equal(pd.read_parquet(folder), local.predict_interval(rows[0]))
