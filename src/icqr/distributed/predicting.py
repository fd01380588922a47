"""Prediction as a block map of the local methods: lazy, with the columns and types known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from icqr._predicting import EXPLAINED, interval_columns, interval_names, is_list
from icqr._tables import FloatArray
from icqr.distributed.blocks import check_table, delayed_blocks, is_frame
from icqr.distributed.cluster import one
from icqr.rows import naming


def lazy_points(model: Any, X: Any) -> Any:
    """Give `predict` of each block: a Series with X's index, or a one-dimensional Array."""
    X = check_table(X)
    if is_frame(X):
        meta = pd.Series(dtype=np.float64, name="prediction")
        return X.map_partitions(_points, one(model), meta=meta)
    return da.map_blocks(_values, X, one(model), "predict", (), dtype=np.float64, drop_axis=1)


def lazy_intervals(model: Any, X: Any, coverage: Any) -> Any:
    """Give `predict_interval` of each block: a DataFrame with X's index, or an Array."""
    X = check_table(X)
    if is_frame(X):
        names = interval_names(coverage)
        meta = pd.DataFrame(np.empty((0, len(names))), columns=pd.Index(names))
        return X.map_partitions(_intervals, one(model), coverage, names, meta=meta)
    given = (one(model), "predict_interval", (coverage,))
    if not is_list(coverage):
        return da.map_blocks(_values, X, *given, (2,), dtype=np.float64, chunks=(X.chunks[0], (2,)))
    ends = (2, len(coverage))
    chunks = (X.chunks[0], *((end,) for end in ends))
    return da.map_blocks(_values, X, *given, ends, dtype=np.float64, new_axis=2, chunks=chunks)


def lazy_explanations(model: Any, X: Any, coverage: float) -> Any:
    """Give `explain` of each block: a DataFrame, with X's index if X is one."""
    X = check_table(X)
    meta = _nothing_explained()
    if is_frame(X):
        return X.map_partitions(_explanations, one(model), coverage, meta=meta)
    work, shared = dask.delayed(_explanations, pure=False), one(model)
    parts = [work(block, shared, coverage, {"number": i}) for i, block in enumerate(delayed_blocks(X))]
    return dd.from_delayed(parts, meta=meta, verify_meta=False)


# -- On the workers --------------------------------------------------------------------------------------------------


def _points(block: pd.DataFrame, model: Any, partition_info: Any = None) -> pd.Series[Any]:
    values = _values(block, model, "predict", (), block_id=_block_id(partition_info))
    return pd.Series(values, block.index, name="prediction")


def _intervals(
    block: pd.DataFrame, model: Any, coverage: Any, names: list[str], partition_info: Any = None
) -> pd.DataFrame:
    values = _values(block, model, "predict_interval", (coverage,), (len(names),), _block_id(partition_info))
    return pd.DataFrame(interval_columns(values), columns=names, index=block.index)


def _explanations(block: Any, model: Any, coverage: float, partition_info: Any = None) -> pd.DataFrame:
    if len(block) == 0:
        return _nothing_explained()
    with naming(f"block {_block_id(partition_info)[0]}"):
        return pd.DataFrame(model.explain(block, coverage))


def _nothing_explained() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in EXPLAINED.items()})


def _values(
    block: Any, model: Any, method: str, given: Sequence[Any], ends: tuple[int, ...] = (), block_id: Any = (0,)
) -> FloatArray:
    """Give what a method of the model gives for a block; of an empty one, an array that ends in these dimensions."""
    if len(block) == 0:
        return np.empty((0, *ends))
    with naming(f"block {block_id[0]}"):
        return np.asarray(getattr(model, method)(block, *given))


def _block_id(partition_info: Any) -> tuple[Any]:
    return (partition_info["number"] if partition_info else "?",)
