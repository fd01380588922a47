"""The cluster: a client for it, work on blocks with named failures, and progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from signal import SIG_IGN, SIGINT, signal
from threading import current_thread, main_thread
from typing import Any, TypeAlias, TypeVar

import dask
from distributed import Client, Future, WorkerPlugin, futures_of, get_client
from distributed.scheduler import KilledWorker

Progress: TypeAlias = Callable[[str, int, int], None]
T = TypeVar("T")

#: Results of so many blocks are merged by one task.
_FAN_IN = 16
LOOK_SECONDS = 1.0  # between looks at the workers
PATIENCE = 120.0  # seconds in which no worker can work
_ADVICE = (
    "Make blocks smaller (X.repartition(partition_size='32MB'), X.rechunk((100_000, -1)), or Parquet files with "
    "smaller row groups), or give each worker more memory: a worker needs about 300 MB and ten times a block."
)
_progress: ContextVar[Progress | None] = ContextVar("icqr_progress", default=None)


class LostWorkerError(RuntimeError):
    """Workers of the cluster are gone, ended too often at the same work, or have no memory left to go on."""


# -- The client ------------------------------------------------------------------------------------------------------


def connect(address: str | None = None, timeout: float = 10.0, **local: Any) -> Client:
    """Connect to a Dask scheduler, or start a cluster on this machine.

    Parameters
    ----------
    address : str, optional
        The scheduler's address, for example ``"tcp://10.0.0.5:8786"``. By default a cluster of processes is started
        here: one worker per core, each with its share of the memory.
    timeout : float, default=10
        Seconds to wait for the scheduler.
    **local : optional
        For the cluster on this machine: `n_workers`, `memory_limit` and what else Dask's `LocalCluster` takes.

    Returns
    -------
    distributed.Client
        Close it when done, or use it in a ``with`` block. `dashboard_link` is the dashboard's address.
    """
    if address is None:
        # On a busy machine a killed worker's successor may need longer than Dask's 15 s, and would be turned away.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"})
        client = Client(**{"processes": True, "threads_per_worker": 1, **local})
        client.register_plugin(_LeavesInterrupts(), name="icqr-interrupts")
        return client
    try:
        return Client(address, timeout=timeout)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r} within {timeout:g} s ({error}). Check the address, start one by "
            "`dask scheduler`, or leave the address out for a cluster on this machine."
        ) from error


class _LeavesInterrupts(WorkerPlugin):
    """Ctrl-C in a terminal reaches all its processes; it is the client's to answer, which then ends the workers."""

    def setup(self, worker: Any) -> None:
        if current_thread() is main_thread():  # of a process of its own
            signal(SIGINT, SIG_IGN)


def current_client() -> Client:
    """Give the client in use, or say how to get one."""
    try:
        return get_client()
    except ValueError as error:
        raise RuntimeError(
            "Dask collections are fitted and calibrated on a cluster, and there is no client of one. "
            "`client = icqr.distributed.connect()` starts a cluster on this machine, `connect('tcp://…:8786')` uses "
            "another. For Parquet files and no cluster, see icqr.streaming."
        ) from error


def dashboard(client: Client) -> str | None:
    """Give the address of the cluster's dashboard, if it has one: a scheduler without bokeh has none."""
    return client.dashboard_link if client.run_on_scheduler(_has_bokeh) else None


def _has_bokeh() -> bool:
    return find_spec("bokeh") is not None


# -- Work on blocks --------------------------------------------------------------------------------------------------


@contextmanager
def progress(report: Progress) -> Iterator[None]:
    """Have ``report(step, done, total)`` called as blocks are finished, for what runs in the ``with`` block.

    Examples
    --------
    >>> with progress(lambda step, done, total: print(f"{step}: {done} of {total}")):
    ...     pass  # model.fit(X, y)
    """
    token = _progress.set(report)
    try:
        yield
    finally:
        _progress.reset(token)


@contextmanager
def named_failures() -> Iterator[None]:
    """Say what a killed worker most often means."""
    try:
        yield
    except KilledWorker as error:
        raise LostWorkerError(
            f"workers ended again and again at the same block ({error}). Most often a block is too large for a "
            f"worker's memory. {_ADVICE}"
        ) from error


def one(thing: Any) -> Any:
    """Give an object as one node of the task graph: sent to each worker once, not once with each task."""
    return dask.delayed(thing, traverse=False, pure=False)


def on_each(function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
    """Give ``function(part, *shared)`` of each delayed part, delayed."""
    work, given = dask.delayed(function, pure=False), [one(thing) for thing in shared]
    return [work(part, *given) for part in parts]


@contextmanager
def _large_models() -> Iterator[None]:
    with warnings.catch_warnings():
        # A model with millions of scores is large, and goes to each worker once.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


def persisted(parts: Sequence[Any], step: str) -> list[Any]:
    """Compute delayed parts and leave them on the workers; what a lost worker held is computed again."""
    with _large_models():
        kept = list(current_client().persist(list(parts)))
    _finish(futures_of(kept), step)
    return kept


def gathered(parts: Sequence[Any], step: str) -> list[Any]:
    """Compute delayed parts and bring them here."""
    client = current_client()
    with _large_models():
        futures = client.compute(list(parts))
    _finish(futures, step)
    with named_failures():
        return list(client.gather(futures))


def reduced(parts: Sequence[Any], merge: Callable[[Sequence[T]], T], step: str) -> T:
    """Merge delayed parts on the workers, a few at a time, and bring only the last result here."""
    merging = dask.delayed(merge, pure=False)
    level = list(parts)
    while True:
        level = [merging(level[start : start + _FAN_IN]) for start in range(0, len(level), _FAN_IN)]
        if len(level) == 1:
            return gathered(level, step)[0]  # type: ignore[no-any-return]


def _finish(futures: Sequence[Future], step: str) -> None:
    """Wait for futures, report progress, and raise the first error."""
    report = _progress.get()
    done: SimpleQueue[Future] = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)
    with named_failures():
        for count in range(1, len(futures) + 1):
            future = _next(done, current_client())
            if future.status in ("error", "cancelled"):
                future.result()
            if report is not None:
                report(step, count, len(futures))


def _next(done: SimpleQueue[Future], client: Client) -> Future:
    """Give the next future that is done; raise if no worker can work for so long that none ever will."""
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_SECONDS)
        except Empty:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            if any(worker["status"] == "running" for worker in workers):
                since = time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise LostWorkerError(no_work(len(workers))) from None


def no_work(n_workers: int) -> str:
    """Say that no worker has been able to work for too long: there is none, or all are paused."""
    if not n_workers:
        return f"the cluster has had no worker for {PATIENCE:g} s; start some"
    return (
        f"the memory of all {n_workers} workers has been too full to go on for {PATIENCE:g} s, so that Dask has "
        f"paused them. {_ADVICE}"
    )
