"""Parquet files larger than memory, without a cluster: calibrated and predicted block by block.

Memory stays flat however many rows there are: a block of rows is read, worked on and let go. Scores go to a temporary
file (8 bytes a row), so that the rows are read once; see `icqr._order_statistics` for how offsets come from there.
Files are read a row group at a time: the largest row group sets the least memory that is needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from sklearn.utils.validation import check_is_fitted

from icqr._files import replacing
from icqr._parquet import Files, listed, schema_of
from icqr._predicting import Coverages, IntervalRegressor, interval_columns, interval_names
from icqr._tables import IntArray
from icqr.calibration import COVERAGES, MOST_SCORES
from icqr.rows import RowBlocks, naming
from icqr.scored import (
    MOST_COMPARED,
    Scored,
    ScoredBlocks,
    Selected,
    score_block,
)

T = TypeVar("T")

#: Rows worked on at a time.
BLOCK_ROWS = 100_000
_MERGED_AT_ONCE = 16


def calibrate(
    model: IntervalRegressor,
    files: Files,
    target: str,
    *,
    coverages: Sequence[float] = COVERAGES,
    max_scores: int = MOST_SCORES,
    block_rows: int = BLOCK_ROWS,
) -> IntervalRegressor:
    """Replace a fitted model's calibration by fresh rows from Parquet files.

    Parameters
    ----------
    model : fitted estimator
        `Naive`, `CQR` or `ICQR`. It is changed and returned, as its own `calibrate` does.
    files : path, or list of paths
        A Parquet file, a folder of them, or a pattern such as ``"data/*.parquet"``.
    target : str
        The column of y. The model's columns are found by their names; for a model fitted on an array, they are all
        other columns, in their order.
    coverages : sequence of float
        With more than `max_scores` scores only those are kept that these coverages and the model's own need.
    max_scores : int, default=5_000_000
        So many scores are all kept, 8 bytes each; any coverage can then be asked for.
    block_rows : int, default=100_000
        Rows worked on at a time.

    Returns
    -------
    model

    Examples
    --------
    >>> from icqr import CQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(1500, random_state=0, return_X_y=True)
    >>> model = CQR(random_state=0).fit(X[:500], y[:500])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X[500:].assign(y=y[500:]).to_parquet(Path(folder, "fresh.parquet"))
    ...     int(calibrate(model, folder, target="y").groups_["n"].sum())
    1000
    """
    check_is_fitted(model)
    source = _Source.of(files, _columns(model, files, but=[target]), block_rows, [target])
    rows = _StreamedRows(source.example(), np.empty(0), np.empty(0, dtype=np.intp), source, coverages, max_scores)
    return model.calibrate(rows, None)


def predict_interval(
    model: IntervalRegressor,
    files: Files,
    out: str | os.PathLike[str],
    coverage: Coverages = None,
    *,
    keep: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
) -> Path:
    """Predict intervals of the rows in Parquet files into one Parquet file.

    Parameters
    ----------
    model : fitted estimator
        Its columns are found by their names.
    files : path, or list of paths
        A Parquet file, a folder of them, or a pattern.
    out : path
        The file to write, with a row for each row that is read, in their order: `lower` and `upper`, or for a list of
        coverages `lower_0.8`, `upper_0.8`, …. It is written whole or not at all.
    coverage : float or list of float, optional
        By default the estimator's own.
    keep : list of str
        Columns of the input to write too: a number that names the row, for example.
    block_rows : int, default=100_000
        Rows worked on at a time.

    Returns
    -------
    Path
        `out`.
    """
    names = interval_names(coverage)

    def predict(X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(interval_columns(model.predict_interval(X, coverage)), columns=names)

    return _write(model, files, Path(out), predict, keep, block_rows)


def explain(
    model: IntervalRegressor,
    files: Files,
    out: str | os.PathLike[str],
    coverage: float | None = None,
    *,
    keep: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
) -> Path:
    """Do what `predict_interval` does, with all columns of the model's `explain`."""
    return _write(model, files, Path(out), lambda X: model.explain(X, coverage), keep, block_rows)


# -- Files -----------------------------------------------------------------------------------------------------------


def _columns(model: IntervalRegressor, files: Files, but: Sequence[str]) -> list[Any]:
    names = getattr(model, "columns_", None)
    if names is not None:
        return list(names)
    return [name for name in schema_of(listed(files)).names if name not in but]


@dataclass(frozen=True)
class _Source:
    """Rows of Parquet files, a block at a time.

    A file's column names are text; `names` are those that the model knows the features by.
    """

    data: Any
    names: list[Any]
    features: list[str]
    others: list[str]
    block_rows: int

    @classmethod
    def of(cls, files: Files, names: list[Any], block_rows: int, others: Sequence[str]) -> _Source:
        """Open files; that they have the columns is checked before any work."""
        if not isinstance(block_rows, int | np.integer) or block_rows < 1:
            raise ValueError(f"block_rows must be a whole number, 1 or more, got {block_rows!r}")
        found, features = listed(files), [str(name) for name in names]
        schema = schema_of(found, dict.fromkeys([*features, *others]))
        data = pyarrow.dataset.dataset(found, schema=schema, format="parquet")
        return cls(data, names, features, list(others), block_rows)

    def example(self) -> pd.DataFrame:
        """Give a table of one made-up row that has the model's columns."""
        schema = self.data.schema
        examples = pd.DataFrame({name: _example(schema.field(name).type) for name in self.features})
        return examples.set_axis(self.names, axis=1)

    def blocks(self) -> Iterator[tuple[int, int, Any]]:
        """Give each block's number, the place of its first row, and its columns."""
        names = list(dict.fromkeys([*self.features, *self.others]))
        # No reading ahead: each batch ahead is memory.
        batches = self.data.to_batches(
            columns=names, batch_size=self.block_rows, batch_readahead=0, fragment_readahead=0, use_threads=False
        )
        start = 0
        for number, batch in enumerate(batch for batch in batches if batch.num_rows):
            yield number, start, batch
            start += batch.num_rows

    def table(self, batch: Any) -> pd.DataFrame:
        """Give the model's columns of a batch."""
        return pd.DataFrame(batch.select(self.features).to_pandas()).set_axis(self.names, axis=1)


def _example(kind: Any) -> pd.Series[Any]:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return pd.Series([0.0] if number or pa.types.is_boolean(kind) else ["text"])


# -- Calibration -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StreamedRows(RowBlocks):
    """Rows of files, as the estimators take them."""

    source: _Source
    coverages: Sequence[float]
    most_scores: int

    @property
    def total(self) -> int:
        """The number of rows in all files."""
        return int(self.source.data.count_rows())

    def scored(self, model: Any) -> Scored | Selected:
        """Score the rows block by block; their scores wait in a temporary file."""
        symmetric, total = model.conformity_.symmetric, self.total
        keeps_all = total * (1 if symmetric else 2) <= self.most_scores
        share = 1.0 if keeps_all else min(1.0, MOST_COMPARED / total)
        target = self.source.others[0]
        with tempfile.TemporaryDirectory(prefix="icqr-") as folder:
            blocks = _OnDisk(Path(folder))
            for number, start, batch in self.source.blocks():
                with naming(f"in the rows from {start} on"):
                    y = batch.column(target).to_pandas()
                    blocks.add(score_block(model, self.source.table(batch), y, number, share))
            asked = (*self.coverages, model.coverage, model.coverage_)
            return blocks.summed_up(total, symmetric, asked, self.most_scores)


class _OnDisk(ScoredBlocks):
    """Scored blocks whose scores are in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks: list[tuple[Path, IntArray, Scored]] = []

    def add(self, block: Scored) -> None:
        """Put a block's scores into a file."""
        file = self.folder / f"{len(self.blocks)}.npy"
        np.save(file, np.concatenate(block.scores))
        ends = np.cumsum([len(group) for group in block.scores])[:-1]
        self.blocks.append((file, ends, replace(block, scores=())))

    def reduce(self, function: Callable[[Scored], T], merge: Callable[[Sequence[T]], T]) -> T:
        """Apply the function to each block in turn."""
        results: list[T] = []
        for file, ends, block in self.blocks:
            results.append(function(replace(block, scores=tuple(np.split(np.load(file), ends)))))
            if len(results) == _MERGED_AT_ONCE:
                results = [merge(results)]
        return merge(results)


# -- Prediction ------------------------------------------------------------------------------------------------------


def _write(
    model: IntervalRegressor,
    files: Files,
    out: Path,
    predict: Callable[[pd.DataFrame], pd.DataFrame],
    keep: Sequence[str],
    block_rows: int,
) -> Path:
    check_is_fitted(model)
    source = _Source.of(files, _columns(model, files, but=keep), block_rows, keep)
    model._check_table(source.example())
    writer = None
    with replacing(out) as part:
        try:
            for _, start, batch in source.blocks():
                with naming(f"in the rows from {start} on"):
                    predicted = pa.Table.from_pandas(predict(source.table(batch)), preserve_index=False)
                table = _beside(batch, keep, predicted)
                if writer is None:
                    writer = pyarrow.parquet.ParquetWriter(part, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError("the files have no rows; at least one is needed")
    return out


def _beside(batch: Any, keep: Sequence[str], predicted: Any) -> Any:
    """Give kept columns of a batch beside predicted ones."""
    twice = set(keep) & set(predicted.column_names)
    if twice:
        raise ValueError(f"keep={list(keep)!r}: the result has columns of these names itself: {sorted(twice)}")
    kept = {name: batch.column(name) for name in keep}
    return pa.table({**kept, **{name: predicted.column(name) for name in predicted.column_names}})
