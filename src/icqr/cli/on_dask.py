"""icqr fit, predict and audit with --engine dask: Parquet files larger than memory, here or on a cluster."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from distributed import KilledWorker, WorkerPlugin
from pyarrow.dataset import dataset, field

import icqr.dask
from icqr import AutoICQR, GroupPartition
from icqr._cluster import DASK_TWINS, DaskRows, collected, gathered
from icqr._libraries import class_names
from icqr._predicting import IntervalRegressor
from icqr.cli.columns import as_series, is_text, is_written_index
from icqr.cli.console import Show, listed_names, note
from icqr.cli.models import columns_to_read, features_of, load_model, predicted_columns, predicted_words
from icqr.cli.options import ModelName, TextFormat, TrainingRows
from icqr.cli.reading import UserTable, check_column, check_gaps, holds_text, target_of
from icqr.dask import LostWorkerError, connect, dashboard, on_dask, progress, write_parquet
from icqr.streaming import cut_files, list_files, open_files

#: Importances, groups and an audit's regions are learned from a sample of this many rows, and most models too.
_SAMPLE_ROWS = 200_000
_MOST_GROUPS = 20  # named


# -- The commands ----------------------------------------------------------------------------------------


def fit_on_dask(
    data: str,
    calibration: str | None,
    rows: TrainingRows,
    method: IntervalRegressor,
    model: ModelName,
    scheduler: str | None,
    show: Show,
) -> tuple[str, Any]:
    """Return what the rows are, in words, and the same method as `method`, fitted on them with Dask.

    `calibration` are the files of rows to calibrate with; if there are none, rows are drawn.
    """
    parameters = method.get_params(deep=False)
    # A model that can train on all rows, on the workers, does. AutoICQR fits many models on folds, and so on a sample.
    has_folds = isinstance(method, AutoICQR)
    twin = None if has_folds else DASK_TWINS.get(class_names(parameters["estimator"])[0])
    if twin is not None:
        module, _, name = twin.rpartition(".")
        parameters["estimator"] = getattr(importlib.import_module(module), name)()

    with _connected(scheduler, show):
        table, blocks, n_rows = _open_blocks(data, ignore=rows.ignore or ())
        target = target_of(table, rows)
        blocks, n_rows = _check_numbers(table, blocks, n_rows, {"--target": target}, rows.drop_missing)
        features = [name for name in table.frame.columns if name != target]
        if isinstance(parameters.get("partition"), GroupPartition):
            check_column(features, parameters["partition"].by, "--groups")

        note(*table.notes)
        if n_rows > _SAMPLE_ROWS and twin is None:
            sampled = f"is fitted on a random sample of {_SAMPLE_ROWS:,} rows"
            if has_folds:
                note(f"--method auto {sampled}; --method icqr with --model lightgbm or xgboost trains on all")
            else:
                note(f"--model {model} {sampled}; --model lightgbm and --model xgboost train on all")
        held_out: dict[str, Any] = {}
        if calibration is not None:
            fresh = _calibration_blocks(calibration, table.frame[features], target, rows.drop_missing)
            held_out = {"X_calibration": fresh[features], "y_calibration": fresh[target]}
        on_blocks = getattr(icqr.dask, type(method).__name__)(**parameters)
        fitted = on_blocks.fit(blocks[features], blocks[target], sample_rows=_SAMPLE_ROWS, **held_out).to_local()
    return f"{table.name} ({n_rows:,} rows, {len(features):,} columns, target {target!r})", fitted


def _calibration_blocks(data: str, X: pd.DataFrame, target: str, drop_missing: bool) -> Any:
    """Return the rows to calibrate with: the target, and columns of the names and kinds that `X` has."""
    try:
        table, blocks, n_rows = _open_blocks(
            data, as_text=[str(name) for name in X if holds_text(X[name])], only=[*X, target]
        )
        for name in (*X, target):
            check_column(table.names, name, f"{data} lacks columns that DATA has")
        return _check_numbers(table, blocks, n_rows, {"--target": target}, drop_missing)[0]
    except ValueError as error:
        raise ValueError(f"--calibration {data}: {error}") from error


def predict_on_dask(
    model_file: str,
    data: str,
    out: str,
    coverages: list[float | None],
    explain: bool,
    kept: list[str],
    scheduler: str | None,
    show: Show,
) -> str:
    """Write the intervals into a folder, a Parquet file for each block, and return what was written, in words."""
    if out == "-":
        raise ValueError("--out must be given with --engine dask: a new folder for Parquet files")
    if Path(out).exists():
        raise ValueError(f"--out: {out} exists; with --engine dask it is a new folder for Parquet files")
    model = load_model(model_file)

    with _connected(scheduler, show):
        as_text, only = columns_to_read(model)
        table, blocks, n_rows = _open_blocks(data, as_text=as_text, only=only)
        columns = list(features_of(model, table, kept, "--keep"))
        explained: list[Any] = [on_dask(model).explain(blocks[columns], level) for level in coverages]
        predicted = dd.map_partitions(
            lambda *parts: predicted_columns(parts, coverages, explain, kept),
            *explained,
            meta=predicted_columns([each._meta for each in explained], coverages, explain, kept),
            align_dataframes=False,
        )
        promised = [name for name in predicted.columns if name.startswith("promised")]
        if kept:
            # Beside the predictions as the files have them: a date is a date, not the number that the model takes.
            copied, copies, _ = _open_blocks(data, only=kept, as_is=True)
            predicted = dd.map_partitions(
                lambda *parts: pd.concat(parts, axis=1),
                copies[kept],
                predicted,
                meta=pd.concat([copied.frame[kept], predicted._meta], axis=1),
                align_dataframes=False,
            )
        folder = write_parquet(predicted, out)

    without = [dataset(folder).count_rows(filter=field(name) == 0) for name in promised]
    n_files = len(list(folder.iterdir()))
    words = predicted_words([*map(model.certificate, coverages)], n_rows, without, out)
    return f"{words} ({n_files:,} Parquet file{'' if n_files == 1 else 's'})"


def sample_intervals(
    data: str,
    columns: Mapping[str, str],
    groups: str | None,
    drop_missing: bool,
    scheduler: str | None,
    show: Show,
) -> tuple[str, pd.DataFrame, list[str]]:
    """Return what rows to audit are, in words, a sample of them, and sentences counted over all if these are more."""
    target, lower, upper = columns.values()
    with _connected(scheduler, show):
        table, blocks, n_rows = _open_blocks(data)
        blocks, n_rows = _check_numbers(table, blocks, n_rows, columns, drop_missing)
        if groups is not None:
            check_column(table.names, groups, "--groups")
        note(*table.notes)

        # Regions are looked for in a sample, which is all rows if they are few.
        drawn, _ = DaskRows.of(blocks.drop(columns=target), blocks[target]).split(_SAMPLE_ROWS)
        ((X, y),) = collected(drawn)
        rows = pd.DataFrame(X).assign(**{target: y})[table.names]
        if len(rows) == n_rows:
            return f"{table.name} ({n_rows:,} rows)", rows, []

        # The coverage of all rows and of each group is counted; the rest is said of the sample.
        covered = (blocks[lower] <= blocks[target]) & (blocks[target] <= blocks[upper])
        flags = blocks.assign(covered=covered, group=0 if groups is None else blocks[groups])[["group", "covered"]]
        (counts,) = gathered([flags.groupby("group", dropna=False)["covered"].agg(["size", "sum"])], "counting")

    counted = [f"Counted over all {n_rows:,} rows: {counts['sum'].sum() / n_rows:.2%} covered."]
    if groups is not None:
        counts["share"] = counts["sum"] / counts["size"]
        worst = counts.sort_values("share", kind="stable").head(_MOST_GROUPS)
        for group, n, _, share in worst.itertuples():
            counted.append(f"{groups} = {group}: {share:.2%} of {n:,} rows covered.")
    return f"{table.name} ({len(rows):,} of {n_rows:,} rows, drawn at random)", rows, counted


# -- Parquet files as blocks -----------------------------------------------------------------------------


def _open_blocks(
    data: str,
    as_text: Collection[str] = (),
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    as_is: bool = False,
) -> tuple[UserTable, Any, int]:
    """Return the columns of Parquet files as a table without a row, the rows as Dask's blocks, and their number.

    DATA is a file, a folder or a pattern; columns are chosen as in `read_data`, and converted unless `as_is`. No row is
    read yet.
    """
    files = [str(Path(file).absolute()) for file in list_files(data)]  # workers may be in another folder
    opened = open_files(files)
    columns = [column for column in opened.schema if not is_written_index(column.name)]
    n_rows = opened.count_rows()
    if not n_rows or not columns:
        raise ValueError(f"{data}: there is no row in {len(files):,} files")

    schema = pa.schema([c for c in columns if c.name not in ignore and (only is None or c.name in only)])
    # Text is text: whether it holds dates could be told only from all rows, and a block has some of them.
    texts = None if as_is else [column.name for column in schema if column.name in as_text or is_text(column.type)]
    notes: list[str] = []
    example = _converted(schema.empty_table(), texts, notes)
    options = {"schema": schema, "texts": texts, "meta": example, "label": "read-parquet"}
    with dask.config.set({"dataframe.convert-string": False}):  # text as the local engine has it
        blocks = dd.from_map(_read_block, list(cut_files(opened)), **options)
    unused = [column.name for column in columns if column.name not in schema.names]
    return UserTable(data, example, notes, unused=unused), blocks, n_rows


def _read_block(piece: Any, columns: Any = None, *, schema: Any, texts: Collection[str] | None) -> pd.DataFrame:
    """Read a piece of a file; Dask asks for the `columns` that are used."""
    names = schema.names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    read = piece.to_table(schema=pa.schema([schema.field(name) for name in names]), use_threads=False)
    return _converted(read, texts, [])


def _converted(table: Any, texts: Collection[str] | None, notes: list[str]) -> pd.DataFrame:
    """Return columns as numbers, or as text those that are `texts`; if these are None, all as they are."""
    if texts is None:
        return pd.DataFrame(table.to_pandas())
    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame(
        {name: as_series(values, name, TextFormat(), notes, as_text=name in texts) for name, values in columns}
    )


def _check_numbers(
    table: UserTable, blocks: Any, n_rows: int, names: Mapping[str, str], drop_missing: bool
) -> tuple[Any, int]:
    """Return the rows in which columns, after their options, are known numbers, and how many; refuse text and gaps."""
    for option, name in names.items():
        check_column(table.frame.columns, name, option)
        if not pd.api.types.is_numeric_dtype(table.frame[name].dtype):
            raise ValueError(f"{option}: column {name!r} must hold numbers, but it holds text")
    columns = list(names.values())
    missing = blocks[columns].isna()
    gaps, without = gathered([missing.sum(), missing.any(axis=1).sum()], "looking for gaps")
    check_gaps(gaps, int(without), n_rows, drop_missing)
    if not without:
        return blocks, n_rows
    table.notes.append(f"{without:,} of {n_rows:,} rows are left out: {listed_names(columns)} missing there")
    return blocks.dropna(subset=columns), n_rows - int(without)


# -- The cluster -----------------------------------------------------------------------------------------


@contextmanager
def _connected(scheduler: str | None, show: Show) -> Iterator[None]:
    """Work on the scheduler's cluster, or on one here, and show how far it is; say where its dashboard is."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as an error, in one line
    local: dict[str, Any] = {}
    if scheduler is None:
        local = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with connect(scheduler, **local) as client:
        if scheduler is None:
            client.register_plugin(_PrintsNothing())
        address = dashboard(client)
        if address is not None:
            note(f"Dask dashboard: {address}")
        try:
            with progress(show):
                yield
        except (LostWorkerError, KilledWorker) as error:
            raise ConnectionError(str(error)) from error


class _PrintsNothing(WorkerPlugin):
    """Standard output is for results: LightGBM prints there how it connects the workers, which share it with us."""

    def setup(self, worker: Any) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
