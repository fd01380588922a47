"""icqr fit, predict and audit with --engine dask: Parquet files larger than memory, here or on a cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd

from icqr.cli.building import make_model, make_parameters, need_report
from icqr.cli.checking import OPTIONS, interval_columns, judged, say_audit
from icqr.cli.console import block_progress, note, say
from icqr.cli.data import check_column
from icqr.cli.models import (
    MODEL_ENDINGS,
    check_kept,
    columns_of,
    load_model,
    predicted_words,
    say_fitted,
    wanted_columns,
    wish_of,
)
from icqr.cli.options import Bounds, Setting, Source, Wanted
from icqr.cli.reading import Table, Wish
from icqr.cli.wording import listed_names, need
from icqr.cli.writing import check_destination
from icqr.persistence import save

_SEARCHED_ROWS = 200_000  # regions are searched in a sample of so many
_MOST_GROUPS = 20  # named


def fit_on_dask(source: Source, setting: Setting, out: str, scheduler: str | None) -> None:
    """Do what `icqr fit` says, on Dask."""
    check_destination(out, "--out", MODEL_ENDINGS)
    estimator = make_model(setting.model)
    with _cluster(scheduler):
        from icqr._cluster import dask_twin, is_dask_estimator
        from icqr.cli.blocks import check_block_numbers, open_blocks
        from icqr.dask import ICQR, SAMPLE_ROWS

        table = open_blocks(str(source.data), Wish(ignore=source.ignore))
        for name in source.ignore:
            check_column([*table.example.columns, *table.unused], name, "--ignore")
        if source.target is None:
            columns = listed_names(map(str, table.example.columns))
            raise ValueError(f"--target must be given: the column to predict, one of {columns}")
        frame, n_rows = check_block_numbers(table, [source.target], ["--target"], source.drop_missing)
        features = [name for name in table.example.columns if name != source.target]
        parameters = make_parameters(setting, estimator, table.example[features])
        if n_rows > SAMPLE_ROWS and not is_dask_estimator(dask_twin(parameters["estimator"])):
            what = "--recommended" if setting.recommended else f"--model {setting.model}"
            others = "without it, --model lightgbm" if setting.recommended else "--model lightgbm"
            table.notes.append(
                f"{what} is fitted on a random sample of {SAMPLE_ROWS:,} rows; {others} and --model xgboost train on "
                "all"
            )
        for text in table.notes:
            note(text)
        parameters["estimator"] = dask_twin(parameters["estimator"])
        model = ICQR(**parameters).fit(frame[features], frame[source.target])
        local = model.to_local()
        save(local, out)
    described = f"{table.name} ({n_rows:,} rows, {len(features):,} columns, target {source.target!r})"
    say_fitted(described, local, out)


def predict_on_dask(model_file: str, data: str, out: str, wanted: Wanted, scheduler: str | None) -> None:
    """Do what `icqr predict` says, on Dask: a folder with a Parquet file for each block."""
    if out == "-":
        raise ValueError("--out must be given with --engine dask: a new folder for Parquet files")
    if Path(out).exists():
        raise ValueError(f"--out: {out} exists; with --engine dask it is a new folder for Parquet files")
    model = load_model(model_file)
    with _cluster(scheduler):
        import dask.dataframe as dd
        from pyarrow.dataset import dataset, field

        from icqr.cli.blocks import open_blocks
        from icqr.dask import on_dask, write_parquet

        table = open_blocks(data, wish_of(model))
        opened = Table(data, table.example, table.notes, unused=table.unused)
        check_kept(wanted, opened.names)
        columns = list(columns_of(model, opened, wanted.keep))
        explained = on_dask(model).explain(table.frame[columns], wanted.coverage)
        predicted = wanted_columns(explained, wanted)
        if wanted.keep:
            kept = open_blocks(data, Wish(only=(), keep=wanted.keep))  # as the files have them
            meta = pd.concat([kept.example[wanted.keep], predicted._meta], axis=1)
            given = (kept.frame[wanted.keep], predicted)
            predicted = dd.map_partitions(_beside, *given, meta=meta, align_dataframes=False)
        folder = write_parquet(predicted, out)
    without = dataset(folder).count_rows(filter=field("promised") == 0)
    said = predicted_words(model, table.n_rows, wanted, out, without)
    n_files = len(list(folder.iterdir()))
    say(f"{said} ({n_files:,} Parquet file{'' if n_files == 1 else 's'})")


def _beside(kept: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([kept, predicted], axis=1)


def audit_on_dask(
    source: Source, bounds: Bounds, seed: int, report_path: str | None, json: bool, scheduler: str | None
) -> None:
    """Do what `icqr audit` says, on Dask: coverage is counted over all rows, regions are searched in a sample."""
    need_report(report_path)
    with _cluster(scheduler):
        from icqr.cli.blocks import check_block_numbers, open_blocks
        from icqr.dask import sample

        table = open_blocks(str(source.data))
        names = interval_columns(source, bounds)
        frame, n_rows = check_block_numbers(table, names, OPTIONS, source.drop_missing)
        if bounds.groups is not None:
            check_column(table.example.columns, bounds.groups, "--groups")
        for text in table.notes:
            note(text)
        X, y = sample(frame.drop(columns=names[0]), frame[names[0]], _SEARCHED_ROWS)
        rows = pd.DataFrame(X).assign(**{names[0]: y})[list(table.example.columns)]
        described, counted = f"{table.name} ({n_rows:,} rows)", []
        if len(rows) < n_rows:
            described = f"{table.name} ({len(rows):,} of {n_rows:,} rows, drawn at random)"
            counted = _counted(frame, names, bounds)
    found, summary = judged(rows, names, bounds, seed, report_path, described)
    if counted:
        summary["all_rows"] = counted
    say_audit(found, summary, report_path, json, counted)


def _counted(frame: Any, names: list[str], bounds: Bounds) -> list[str]:
    """Say how often the intervals of all rows hold, and those of each group, worst first."""
    from icqr.dask import coverage_counts

    y, lower, upper = names
    whole = coverage_counts(frame, y, lower, upper)
    said = [f"Counted over all {whole['n'].item():,} rows: {whole['coverage'].item():.2%} covered."]
    if bounds.groups is not None:
        counts = coverage_counts(frame, y, lower, upper, bounds.groups).sort_values("coverage", kind="stable")
        said += [
            f"{bounds.groups} = {group}: {row['coverage']:.2%} of {int(row['n']):,} rows covered."
            for group, row in counts.head(_MOST_GROUPS).iterrows()
        ]
    return said


@contextmanager
def _cluster(scheduler: str | None) -> Iterator[Any]:
    """Give a client of the scheduler or of a cluster here, with progress; say where its dashboard is."""
    for module in ("dask.dataframe", "distributed"):
        need(module, "--engine dask", "icqr[dask]")
    from icqr.dask import LostWorkerError, connect, dashboard, progress

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as an error, in one line
    local: dict[str, Any] = (
        {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL} if scheduler is None else {}
    )
    with _nothing_printed(), connect(scheduler, **local) as client:
        address = dashboard(client)
        if address is not None:
            note(f"Dask dashboard: {address}")
        try:
            with block_progress() as report, progress(report):
                yield client
        except LostWorkerError as error:
            raise ConnectionError(str(error)) from error


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Keep standard output for results: LightGBM prints there how it connects its workers, and these inherit it."""
    sys.stdout.flush()
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        kept = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
