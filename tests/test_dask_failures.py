"""What goes wrong on clusters, on purpose: lost workers, too little memory, more rows than memory."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import icqr
from icqr.dask import CQR, LostWorkerError, connect, on_dask, progress, write_parquet

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture
def client() -> Iterator[Any]:
    with connect(n_workers=2, dashboard_address=":0") as client:
        yield client


def in_blocks(rows: tuple[pd.DataFrame, Any], before: Any = None) -> tuple[Any, Any]:
    """Rows as 8 blocks; `before` is done when a block is read."""
    X, y = rows
    whole = dd.from_pandas(X.assign(target=y), npartitions=8)
    if before is not None:
        whole = whole.map_partitions(before, meta=whole._meta)
    return whole[list(X)], whole["target"]


class DiesOnce:
    """The worker that reads block 5 ends, the first time: as if the machine had failed."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, block: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
        if partition_info and partition_info["number"] == 5 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block


def kill_a_worker(client: Any) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def test_without_a_client_the_error_says_how_to_get_one(models: Any, rows: Any) -> None:
    with pytest.raises(RuntimeError, match=r"there is no client of one\..*icqr\.dask\.connect\(\)"):
        on_dask(models["CQR"]).calibrate(*in_blocks(rows))


def test_a_worker_lost_in_calibration_or_prediction_changes_nothing(
    tmp_path: Path, scheduler: str, models: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icqr._blocks.MOST_SCORES", 10)  # so that the scores stay on the workers
    local = pickle.loads(pickle.dumps(models["ICQR"])).calibrate(*rows)
    killed = threading.Event()

    def kill_when_scored(step: str, done: int, total: int) -> None:
        if step == "merging" and not killed.is_set():
            killed.set()
            kill_a_worker(client)

    # Lost while it scores a block; and another one after all blocks are scored, with the scores that it held.
    X, y = in_blocks(rows, before=DiesOnce(tmp_path / "scoring"))
    with connect(scheduler) as client:
        with progress(kill_when_scored):
            model = on_dask(models["ICQR"]).calibrate(X, y)
        X, _ = in_blocks(rows, before=DiesOnce(tmp_path / "predicting"))
        folder = write_parquet(model.predict_interval(X), tmp_path / "out")
        client.wait_for_workers(2)  # for the tests that follow
    assert (tmp_path / "scoring").exists()
    assert killed.is_set()
    assert (tmp_path / "predicting").exists()
    groups = np.arange(3)
    np.testing.assert_array_equal(model.calibration_.offsets(0.8, groups), local.calibration_.offsets(0.8, groups))
    np.testing.assert_array_equal(pd.read_parquet(folder), local.predict_interval(rows[0]))


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_training_starts_anew_when_a_worker_is_lost(library: str, client: Any) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80_000, 5)), columns=list("abcde"))
    y = X["a"] + rng.normal(size=len(X))
    if library == "lightgbm":
        estimator: Any = pytest.importorskip("lightgbm").DaskLGBMRegressor(n_estimators=300)
    else:
        estimator = pytest.importorskip("xgboost.dask").DaskXGBRegressor(n_estimators=100)
    killer = threading.Thread(target=kill_trainer, args=(client,), daemon=True)
    killer.start()
    with pytest.warns(UserWarning, match=r"A worker was lost while training"):
        model = CQR(estimator, random_state=0).fit(*in_blocks((X[:60_000], y[:60_000])))
    killer.join()
    intervals, fresh = model.predict_interval(X[60_000:]), y[60_000:]
    share = np.mean((intervals[:, 0] <= fresh) & (fresh <= intervals[:, 1]))
    assert abs(share - 0.9) < 0.015  # five standard errors, with 20,000 rows that calibrate and as many that are fresh


def kill_trainer(client: Any) -> None:
    """Wait until workers train, and kill one of them."""
    while not any(str(key).startswith(("_train_part", "fn-")) for keys in client.processing().values() for key in keys):
        time.sleep(0.05)
    time.sleep(1.0)
    kill_a_worker(client)


@pytest.mark.slow
def test_training_that_never_survives_fails_by_name(client: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.setattr("icqr._cluster.ATTEMPTS", 1)
    estimator = lightgbm.DaskLGBMRegressor(n_estimators=100_000)
    threading.Thread(target=kill_trainer, args=(client,), daemon=True).start()
    model = CQR(estimator, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker was lost while training")
        with pytest.raises(LostWorkerError, match="training was started 1 times, and each time a worker was lost"):
            model.fit(*in_blocks(rows))
    assert not hasattr(model, "calibration_")  # not half fitted
    assert not hasattr(model, "model_")


class TooLarge:
    """A block that needs 600 MB."""

    def __call__(self, block: pd.DataFrame) -> pd.DataFrame:
        large = [np.ones(1_000_000) for _ in range(75)]
        time.sleep(5)  # long enough for the nanny to look
        return block.iloc[: len(large)] if len(large) < 75 else block


@pytest.mark.slow
def test_a_block_too_large_for_a_worker_is_named(models: Any, rows: Any) -> None:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        connect(n_workers=1, memory_limit="500MB", dashboard_address=":0"),
        pytest.raises(LostWorkerError, match=r"a block is too large for a worker's memory\. Make blocks smaller"),
    ):
        on_dask(models["CQR"]).calibrate(*in_blocks(rows, before=TooLarge()))


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        pytest.param(
            {"n_workers": 1, "memory_limit": "100MB"},
            r"the memory of all 1 workers has been too full .* paused them",
            marks=pytest.mark.slow,
        ),
        ({"n_workers": 0}, r"the cluster has had no worker for 2 s; start some"),
    ],
    ids=["too little memory", "no worker"],
)
def test_work_that_no_worker_can_do_ends(
    workers: Any, said: str, models: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icqr._cluster.PATIENCE", 2.0)
    # So little memory that Python itself fills it; Dask would end such a worker, and start it again, for ever.
    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        connect(dashboard_address=":0", **workers),
        pytest.raises(LostWorkerError, match=said),
    ):
        on_dask(models["CQR"]).calibrate(*in_blocks(rows))


@pytest.mark.slow
def test_more_rows_than_the_workers_can_hold(tmp_path: Path, models: Any) -> None:
    """1.5 GB of rows on two workers of 600 MB, of which 300 MB are Python and its libraries."""
    rng = np.random.default_rng(0)
    n_files, n_rows, names = 120, 25_000, [f"x{i}" for i in range(1, 61)]
    target = []
    for number in range(n_files):
        X = pd.DataFrame(rng.uniform(size=(n_rows, 60)), columns=names)
        target.append((X["x1"] + rng.normal(size=n_rows) * X["x2"]).to_numpy())
        X.assign(target=target[-1]).to_parquet(tmp_path / f"{number:03}.parquet")
    X = pd.read_parquet(tmp_path / "000.parquet", columns=names)
    local = icqr.ICQR(models["CQR"].estimator, coverage=0.8, partition=icqr.KMeansPartition(choose=3), random_state=0)
    local.fit(X[:3000], target[0][:3000])
    with connect(n_workers=2, memory_limit="600MB", dashboard_address=":0"):
        lazy = dd.read_parquet(tmp_path)
        model = on_dask(local).calibrate(lazy[names], lazy["target"])
        folder = write_parquet(model.predict_interval(lazy[names]), tmp_path / "out")
    assert model.calibration_.sizes.sum() == n_files * n_rows
    predicted = pd.read_parquet(folder).to_numpy()
    assert len(predicted) == n_files * n_rows
    np.testing.assert_array_equal(predicted[:n_rows], model.predict_interval(X))
    y = np.concatenate(target)
    covered = np.mean((predicted[:, 0] <= y) & (y <= predicted[:, 1]))
    assert abs(covered - 0.8) < 0.001  # they are the calibration rows themselves
