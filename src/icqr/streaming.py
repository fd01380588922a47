"""Parquet files larger than memory, without a cluster: calibrated and predicted block by block.

Memory stays flat however many rows there are: a block of rows is read, worked on and let go. Scores go to temporary
files (8 bytes a row), so that the rows are read once; `icqr._blocks` says how exact offsets come from there. Files are
read a row group at a time: the largest row group sets the least memory that is needed.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

try:
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.parquet
except ImportError as error:
    raise ImportError("Parquet files are read by pyarrow: pip install pyarrow") from error

import joblib
import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from icqr._blocks import calibration_in_blocks, refuse_random_ties, score_block
from icqr._files import replacing
from icqr._predicting import Coverages, IntervalRegressor, interval_columns, interval_names
from icqr._rows import naming
from icqr.calibration import COVERAGES, Calibration
from icqr.regressors import QR

__all__ = ["calibrate", "explain", "predict_interval"]

Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
T = TypeVar("T")

#: Rows worked on at a time.
BLOCK_ROWS = 100_000
#: Row groups of a file are read together up to about this many bytes, unpacked.
PIECE_BYTES = 64_000_000
_MERGED_AT_ONCE = 16


def calibrate(
    model: IntervalRegressor,
    files: Files,
    target: str,
    *,
    coverages: Sequence[float] = COVERAGES,
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
        Up to 5,000,000 scores are all kept, 8 bytes each, and you can ask for any coverage. Of more scores only those
        are kept that these coverages and the model's own need. More coverages cost more time.
    block_rows : int, default=100_000
        Rows worked on at a time: more of them need more memory, and a little less time.

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
    if isinstance(model, QR):
        return model.calibrate(None, None)  # refuses
    total, blocks = _opened(model, files, [target], block_rows)
    with tempfile.TemporaryDirectory(prefix="icqr-") as folder:
        scored = []
        for number, (where, X, batch) in enumerate(blocks):
            with naming(where):
                block = score_block(X, batch.column(target).to_pandas(), number, model, total)
            scored += joblib.dump(block, Path(folder, str(number)))

        def reduce(function: Callable[[Calibration], T], merge: Callable[[Sequence[T]], T]) -> T:
            results: list[T] = []
            for file in scored:
                results.append(function(joblib.load(file)))
                if len(results) == _MERGED_AT_ONCE:
                    results = [merge(results)]
            return merge(results)

        calibration = calibration_in_blocks(model, reduce, coverages)
    return model.with_calibration(calibration)


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
        Columns of the input to write too, for example a number that names the row.
    block_rows : int, default=100_000
        Rows worked on at a time.

    Returns
    -------
    Path
        `out`.

    Examples
    --------
    >>> from icqr import CQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = CQR(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X.to_parquet(Path(folder, "new.parquet"))
    ...     out = predict_interval(model, Path(folder, "new.parquet"), Path(folder, "intervals.parquet"))
    ...     pd.read_parquet(out).columns.tolist()
    ['lower', 'upper']
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
    """Write what the model's `explain` says about the rows in Parquet files; parameters as in `predict_interval`."""
    return _write(model, files, Path(out), lambda X: model.explain(X, coverage), keep, block_rows)


# -- Parquet files that are one table --------------------------------------------------------------------------------


def list_files(files: Files) -> list[str]:
    """Return the files that a path, a folder, a pattern or a list of them stands for, sorted within each."""
    if not isinstance(files, str | os.PathLike):
        return [path for item in files for path in list_files(item)]
    path = os.fspath(files)
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**", "*.parquet")
    elif os.path.exists(path):
        return [path]
    paths = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not paths:
        raise FileNotFoundError(f"there is no Parquet file at {os.fspath(files)}")
    return paths


def open_files(files: Sequence[str], columns: Iterable[str] | None = None) -> Any:
    """Return Parquet files as one dataset, whose schema has for each column a type that holds its values in all files.

    Parameters
    ----------
    files : list of str
        Parquet files.
    columns : iterable of str, optional
        The columns to read, which every file must have; by default all, and no file may have others.

    Returns
    -------
    pyarrow.dataset.Dataset
    """
    schemas = {}
    for file in files:
        try:
            schemas[file] = pyarrow.parquet.read_schema(file).remove_metadata()
        except pa.ArrowInvalid as error:
            raise ValueError(f"{file} is not a Parquet file, or is damaged") from error

    names = [name for schema in schemas.values() for name in schema.names] if columns is None else columns
    names = list(dict.fromkeys(names))
    for file, schema in schemas.items():
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise ValueError(f"{file} has no column {missing[0]!r}; its columns are {schema.names}")

    selected = [pa.schema([schema.field(name) for name in names]) for schema in schemas.values()]
    if len({*selected}) > 1:
        # Categories become their values: a column may be categorical in one file and text in another.
        for place, schema in enumerate(selected):
            kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
            selected[place] = pa.schema(list(zip(names, kinds, strict=True)))
    try:
        schema = pa.unify_schemas(selected, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"the files do not fit together: {error}. A column must be a number, or text, in all of them."
        ) from error
    return pyarrow.dataset.dataset(files, schema=schema, format="parquet")


def cut_files(data: Any) -> Iterator[Any]:
    """Yield pieces of a dataset that can be read alone: row groups of a file, up to about `PIECE_BYTES` of them."""
    for fragment in data.get_fragments():
        places = np.cumsum([group.total_byte_size for group in fragment.row_groups]) // PIECE_BYTES
        for place in np.unique(places):
            yield fragment.subset(row_group_ids=np.flatnonzero(places == place).tolist())


def _opened(
    model: IntervalRegressor, files: Files, others: Sequence[str], block_rows: int
) -> tuple[int, Iterator[tuple[str, pd.DataFrame, Any]]]:
    """Return the number of rows, and for each block where it is in words, its rows for the model, and all its columns.

    That the files have the model's columns and the others is checked before any work.
    """
    check_is_fitted(model)
    refuse_random_ties(model.conformity_.ties)
    if not isinstance(block_rows, int | np.integer) or block_rows < 1:
        raise ValueError(f"block_rows must be a whole number, 1 or more, got {block_rows!r}")
    paths = list_files(files)
    # A model fitted on an array takes all columns but the others, in their order.
    known = getattr(model, "columns_", None)
    names = [name for name in open_files(paths).schema.names if name not in others] if known is None else list(known)
    data = open_files(paths, [*map(str, names), *others])
    n_rows = int(data.count_rows())
    if not n_rows:
        raise ValueError("the files have no rows; at least one is needed")

    def blocks() -> Iterator[tuple[str, pd.DataFrame, Any]]:
        start = 0
        # No reading ahead: each batch ahead is memory.
        for batch in data.to_batches(batch_size=block_rows, batch_readahead=0, fragment_readahead=0, use_threads=False):
            if batch.num_rows:
                # A file's column names are text; the model may know them as numbers.
                X = batch.select([str(name) for name in names]).to_pandas(date_as_object=False).set_axis(names, axis=1)
                yield f"in the rows from {start} on", X, batch
                start += batch.num_rows

    return n_rows, blocks()


# -- Results ---------------------------------------------------------------------------------------------------------


def _write(
    model: IntervalRegressor,
    files: Files,
    out: Path,
    predict: Callable[[pd.DataFrame], pd.DataFrame],
    keep: Sequence[str],
    block_rows: int,
) -> Path:
    """Write the predictions of each block, beside the columns to keep."""
    _, blocks = _opened(model, files, keep, block_rows)
    with replacing(out) as part, ExitStack() as stack:
        writer = None
        for where, X, batch in blocks:
            with naming(where):
                predicted = pa.Table.from_pandas(predict(X), preserve_index=False)
            twice = set(keep) & set(predicted.column_names)
            if twice:
                raise ValueError(f"keep={list(keep)!r}: the result has columns of these names itself: {sorted(twice)}")
            kept = {name: batch.column(name) for name in keep}
            table = pa.table({**kept, **{name: predicted.column(name) for name in predicted.column_names}})
            writer = writer or stack.enter_context(pyarrow.parquet.ParquetWriter(part, table.schema))
            writer.write_table(table)
    return out
