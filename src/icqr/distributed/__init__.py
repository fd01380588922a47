"""The same methods on Dask collections: rows that one machine can't hold.

`ICQR`, `CQR`, `QR` and `Naive` have the parameters and methods of the local classes and take Dask DataFrames and Arrays
besides tables. They need a client: `connect` gives one, of a cluster on this machine or elsewhere. What results is an
ordinary fitted model (`to_local`), and any fitted model works on Dask collections (`on_dask`).
"""

try:
    import dask.dataframe  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError('icqr.distributed needs dask: pip install "icqr[dask]"') from error

from icqr.distributed.auditing import coverage_counts
from icqr.distributed.blocks import sample
from icqr.distributed.cluster import LostWorkerError, connect, dashboard, progress
from icqr.distributed.estimators import CQR, ICQR, QR, Naive, on_dask
from icqr.distributed.writing import write_parquet

__all__ = [
    "CQR",
    "ICQR",
    "QR",
    "LostWorkerError",
    "Naive",
    "connect",
    "coverage_counts",
    "dashboard",
    "on_dask",
    "progress",
    "sample",
    "write_parquet",
]
