"""The paper's experiment through joblib: the same results on one core, on several and on a Dask cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from joblib import parallel_config

pytest.importorskip("jax", reason='the experiments need pip install "icqr[paper]"')
pytest.importorskip("distributed", reason='a cluster needs pip install "icqr[dask]"')

from icqr.dask import connect
from icqr.experiments import paper
from icqr.experiments.paper_rows import KEY, read_rows

TINY = paper.Settings(networks=3, epochs=3, seed=1, conditional=1, hidden=(8,))


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "_SYNTHETIC_ROWS", 300)


def run(out: Path) -> pd.DataFrame:
    rows, _ = read_rows(paper.run(["sine_spread"], out, TINY, figures=False))
    return rows.drop(columns="seconds").sort_values(KEY, ignore_index=True)


@pytest.mark.slow
def test_networks_run_on_a_cluster_with_the_same_results(tmp_path: Path) -> None:
    here = run(tmp_path / "here")
    with connect(n_workers=2, dashboard_address=":0") as client, parallel_config(backend="dask"):
        pd.testing.assert_frame_equal(run(tmp_path / "there"), here)
        assert any("run_network" in name for name in client.run_on_scheduler(worked_on))
    parts = tmp_path / "there" / "parts" / "sine_spread"
    (parts / "network-0001.parquet").unlink()  # as if the run had been stopped before it
    kept = (parts / "network-0000.parquet").stat().st_mtime_ns
    with parallel_config(n_jobs=2):
        pd.testing.assert_frame_equal(run(tmp_path / "there"), here)
    assert (parts / "network-0000.parquet").stat().st_mtime_ns == kept


def worked_on(dask_scheduler: Any) -> set[str]:
    return set(dask_scheduler.task_prefixes)
