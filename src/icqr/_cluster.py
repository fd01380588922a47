"""The cluster: its client, rows in blocks and work on them, training that survives lost workers.

Blocks that a lost worker held are computed again by Dask itself. What Dask leaves open is answered here: a block that
ends every worker, a cluster on which no worker can work, and training by libraries whose workers wait for each other.
"""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from signal import SIG_IGN, SIGINT, signal
from threading import Event, current_thread, main_thread
from typing import Any, TypeAlias, TypeVar

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, Future, KilledWorker, WorkerPlugin, get_client, worker_client
from sklearn.base import clone

from icqr._libraries import class_names, seeded
from icqr._messages import warn
from icqr._rows import check_target, naming
from icqr._tables import FloatArray, IntArray, Table, take_rows
from icqr.calibration import quantile_levels
from icqr.quantiles import PointModel, QuantileModel, bare
from icqr.regressors import Naive

Collection: TypeAlias = dd.DataFrame | dd.Series | da.Array
Pair: TypeAlias = tuple[Table, FloatArray]  # rows and their targets
Progress: TypeAlias = Callable[[str, int, int], None]
T = TypeVar("T")

#: Local estimators for which their library has one that trains on a cluster.
DASK_TWINS = {
    "lightgbm.LGBMRegressor": "lightgbm.DaskLGBMRegressor",
    "xgboost.XGBRegressor": "xgboost.dask.DaskXGBRegressor",
}

#: Seconds without a worker that can work, after which we give up.
PATIENCE = 120.0
#: Training is started this often when workers are lost.
ATTEMPTS = 3
#: Results of this many blocks are merged by one task.
_FAN_IN = 16
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

    Examples
    --------
    >>> with connect(n_workers=1, processes=False, dashboard_address=None) as client:
    ...     client.submit(sum, [1, 2]).result()
    3
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
    """Return the client in use, or say how to get one."""
    try:
        return get_client()
    except ValueError as error:
        raise RuntimeError(
            "Dask collections are fitted and calibrated on a cluster, and there is no client of one. "
            "`client = icqr.dask.connect()` starts a cluster on this machine, `connect('tcp://…:8786')` uses another. "
            "For Parquet files and no cluster, see icqr.streaming."
        ) from error


def dashboard(client: Client) -> str | None:
    """Return the address of the cluster's dashboard, if it has one: a scheduler without bokeh has none."""
    has_bokeh = client.run_on_scheduler(lambda: find_spec("bokeh") is not None)
    return client.dashboard_link if has_bokeh else None


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


# -- Work on blocks --------------------------------------------------------------------------------------------------


def on_each(function: Callable[..., Any], *columns: Sequence[Any], **common: Any) -> list[Any]:
    """Return ``function(*items, **common)`` for the items of each row of the columns, delayed.

    What is common is a node of the task graph: it is sent to each worker once, not once with each task.
    """
    nodes = {name: dask.delayed(thing, traverse=False, pure=False) for name, thing in common.items()}
    work = dask.delayed(function, pure=False)
    return [work(*items, **nodes) for items in zip(*columns, strict=True)]


def computed(parts: Sequence[Any], step: str) -> list[Future]:
    """Compute delayed parts, leave them on the workers, and report progress.

    What a lost worker held is computed again, by Dask itself. Raises the first error, and if no worker can work for too
    long.
    """
    client, report = current_client(), _progress.get()
    # A model with many trees is large, and goes to each worker once: no reason for Dask to warn.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}):
        futures: list[Future] = client.compute(list(parts))
    finished: SimpleQueue[Future] = SimpleQueue()
    for future in futures:
        future.add_done_callback(finished.put)

    for count in range(1, len(futures) + 1):
        future = _next_finished(finished, client)
        if future.status != "finished":
            try:
                future.result()  # raises what the block raised
            except KilledWorker as error:
                raise LostWorkerError(
                    f"workers ended again and again at the same block ({error}). Most often a block is too large for "
                    f"a worker's memory. {_ADVICE}"
                ) from error
        if report is not None:
            report(step, count, len(futures))
    return futures


def _next_finished(finished: SimpleQueue[Future], client: Client) -> Future:
    """Wait for the next part, however long it takes, while there is a worker that can work."""
    seconds_idle, workers = 0, {}
    while seconds_idle <= PATIENCE:
        try:
            return finished.get(timeout=1.0)
        except Empty:
            # A scheduler's own `no-workers-timeout` is off by default, and leaves out tasks of paused workers.
            workers = client.scheduler_info(n_workers=-1)["workers"]
            is_idle = all(worker["status"] != "running" for worker in workers.values())
            seconds_idle = seconds_idle + 1 if is_idle else 0
    if not workers:
        raise LostWorkerError(f"the cluster has had no worker for {PATIENCE:g} s; start some")
    raise LostWorkerError(
        f"the memory of all {len(workers)} workers has been too full to go on for {PATIENCE:g} s, so that Dask has "
        f"paused them. {_ADVICE}"
    )


def gathered(parts: Sequence[Any], step: str) -> list[Any]:
    """Compute delayed parts and bring them here."""
    return list(current_client().gather(computed(parts, step)))


def reduced(parts: Sequence[Any], merge: Callable[[Sequence[T]], T], step: str) -> T:
    """Merge delayed parts on the workers, a few at a time, and bring only the last result here."""
    while len(parts) > 1:
        parts = on_each(merge, [parts[start : start + _FAN_IN] for start in range(0, len(parts), _FAN_IN)])
    return gathered(parts, step)[0]  # type: ignore[no-any-return]


# -- Rows in blocks --------------------------------------------------------------------------------------------------


def is_collection(X: Any) -> bool:
    """Tell whether X is a Dask DataFrame, Series or Array."""
    return isinstance(X, Collection)


def check_table(X: Collection) -> Collection:
    """Return a Dask DataFrame or a two-dimensional Dask Array of whole rows, or say what is wrong with it."""
    if not is_collection(X) or X.ndim != 2:
        raise TypeError(
            f"X must be a Dask DataFrame or a two-dimensional Dask Array, got {type(X).__name__}"
            f"{f' of {X.ndim} dimensions' if hasattr(X, 'ndim') else ''}"
        )
    return X if isinstance(X, dd.DataFrame) or X.numblocks[1] == 1 else X.rechunk({1: -1})


def delayed_blocks(collection: Collection) -> list[Any]:
    """Return the blocks of a collection, one below the other, as delayed objects.

    Of files only the columns are read that are used. Dask's full optimization would do more: join blocks of a DataFrame
    that uses few of its columns, so that X and y had different blocks.
    """
    if isinstance(collection, da.Array):
        return list(np.ravel(collection.to_delayed()))
    return list(collection.simplify().to_delayed(optimize_graph=False))


@dataclass(frozen=True)
class DaskRows:
    """Some rows of a cluster with their targets: of each block a range of its rows, taken in a random order.

    The order comes from the seed and the block's number, so that a block that a lost worker held is cut the same when
    it is read again. Ranges that follow each other, as `split` makes them, have no row in common.
    """

    X: list[Any]
    y: list[Any]
    lengths: IntArray
    seed: int
    starts: IntArray
    stops: IntArray

    @classmethod
    def of(cls, X: Collection, y: Collection, seed: int = 0) -> DaskRows:
        """Pair the blocks of two collections; lengths that Dask does not know are counted, by reading y alone."""
        X = check_table(X)
        if not is_collection(y) or y.ndim != 1:
            raise TypeError(
                "with X on a cluster, y must be a Dask Series or a one-dimensional Dask Array, got "
                f"{type(y).__name__}; for a column of the same DataFrame pass y=frame['name']"
            )

        tables, targets = delayed_blocks(X), delayed_blocks(y)
        if len(tables) != len(targets):
            raise ValueError(
                f"X and y must be cut into the same blocks, got {len(tables)} and {len(targets)}; make both from one "
                "DataFrame, or bring them into line by repartition (DataFrames) or rechunk (Arrays)"
            )

        known = isinstance(y, da.Array) and not np.isnan(y.chunks[0]).any()
        counts = y.chunks[0] if known else gathered(on_each(len, targets), "counting rows")
        lengths = np.array(counts, dtype=np.intp)
        if not lengths.any():
            raise ValueError("X has 0 rows in all its blocks; at least one is needed")

        # A block without targets is not read again: that X has no rows in it either is checked now.
        empty = np.flatnonzero(lengths == 0).tolist()
        counts = gathered(on_each(len, [tables[number] for number in empty]), "counting rows") if empty else []
        for number, n_rows in zip(empty, counts, strict=True):
            if n_rows:
                raise ValueError(
                    f"block {number}: X and y must have the same rows; X has {n_rows} and y has 0. Make both from one "
                    "DataFrame."
                )
        return cls(tables, targets, lengths, seed, np.zeros_like(lengths), lengths)

    @property
    def total(self) -> int:
        """Number of rows in all blocks."""
        return int((self.stops - self.starts).sum())

    def split(self, size: int) -> tuple[DaskRows, DaskRows]:
        """Return random rows, the same share of every block and at most as many as there are, and the others."""
        # In whole numbers of Python, which have no limit: a size times a number of rows may pass 64 bits.
        ends = [min(size, self.total) * int(end) // max(self.total, 1) for end in np.cumsum(self.stops - self.starts)]
        middles = self.starts + np.diff(ends, prepend=0)
        return replace(self, stops=middles), replace(self, starts=middles)

    def map(self, function: Callable[..., Any], **common: Any) -> list[Any]:
        """Return ``function(X, y, number, **common)`` of each block that has rows, delayed."""
        numbers = np.flatnonzero(self.stops > self.starts).tolist()
        X, y = [self.X[number] for number in numbers], [self.y[number] for number in numbers]
        places = [(number, self.lengths[number], self.starts[number], self.stops[number]) for number in numbers]
        return on_each(partial(_on_block, function, self.seed), X, y, places, **common)


def _on_block(
    function: Callable[..., T], seed: int, X: Any, y: Any, place: tuple[int, int, int, int], **common: Any
) -> T:
    """Apply a function to the range of a block that the rows take of it."""
    number, length, start, stop = place
    with naming(f"block {number}"):
        if not len(X) == len(y) == length:
            raise ValueError(
                f"X and y must have the same rows each time they are read; {length} were counted, and now X has "
                f"{len(X)} and y has {len(y)}"
            )
        if stop - start < length:
            rows = np.sort(np.random.default_rng([seed, number]).permutation(length)[start:stop])
            X, y = take_rows(X, rows), y.iloc[rows] if isinstance(y, pd.Series) else y[rows]
        return function(X, y, number, **common)


def collected(*samples: DaskRows) -> list[Pair]:
    """Bring rows here; each block is read once, however many of the samples it is in."""
    parts = [rows.map(as_pair) for rows in samples]
    pairs = iter(gathered([part for blocks in parts for part in blocks], "sampling"))
    return [joined([next(pairs) for _ in blocks]) for blocks in parts]


def as_pair(X: Table, y: Any, number: int) -> Pair:
    """Return a block's rows with their targets as numbers."""
    return X, check_target(y, len(X))


def joined(parts: Sequence[Pair]) -> Pair:
    """Put tables and targets one below the other."""
    tables, targets = zip(*parts, strict=True)
    is_frame = isinstance(tables[0], pd.DataFrame)
    X = pd.concat(tables, ignore_index=True) if is_frame else np.concatenate(tables)
    return X, np.concatenate(targets)


# -- Training --------------------------------------------------------------------------------------------------------


def is_dask_estimator(estimator: Any) -> bool:
    """Tell whether an estimator trains on a cluster."""
    return not {"lightgbm.DaskLGBMRegressor", "xgboost.DaskXGBRegressor"}.isdisjoint(class_names(estimator))


def local_twin(estimator: Any) -> Any:
    """Return the local estimator with a Dask estimator's parameters; any other as it is."""
    if isinstance(estimator, QuantileModel) and is_dask_estimator(estimator.estimator):
        return clone(estimator).set_params(estimator=local_twin(estimator.estimator))
    if not is_dask_estimator(estimator):
        return estimator
    package = importlib.import_module(type(estimator).__module__.partition(".")[0])
    params = {key: value for key, value in estimator.get_params().items() if key not in ("client", "coll_cfg")}
    return getattr(package, type(estimator).__name__.removeprefix("Dask"))().set_params(**params)


def train_on_cluster(model: Any, rows: DaskRows, X: Table, y: FloatArray, seed: int) -> Any:
    """Return a fitted `QuantileModel` (for `Naive` a `PointModel`), trained by a Dask estimator on all rows.

    How they are encoded is learned from the sample `X`, `y`.
    """
    estimator = bare(model.estimator)
    twin = seeded(local_twin(estimator), seed)
    if isinstance(model, Naive):
        fitted: Any = PointModel(twin)
        tasks = [fitted.prepare(X, y)]
    else:
        fitted = clone(model.estimator) if isinstance(model.estimator, QuantileModel) else QuantileModel()
        tasks = fitted.set_params(estimator=twin).prepare(X, y, quantile_levels(model.coverage, model.side))

    limits = (-math.inf if model.y_min is None else model.y_min, math.inf if model.y_max is None else model.y_max)
    coding = {"encoder": fitted.encoder_, "scale": fitted.scale_, "limits": limits}
    pairs = rows.map(_encoded, **coding)
    example = _encoded(X[:1], y[:1], 0, **coding)

    params = {**estimator.get_params(), **twin.get_params()}
    trainers = [type(estimator)(**{**params, **settings}) for settings in tasks]
    models = _trained(trainers, [pair[0] for pair in pairs], [pair[1] for pair in pairs], example)
    if isinstance(fitted, PointModel):
        fitted.model_ = models[0]
    else:
        fitted.models_ = models
    return fitted


def _encoded(X: Table, y: Any, number: int, encoder: Any, scale: Any, limits: tuple[float, float]) -> tuple[Any, Any]:
    """Return a block's rows and targets as the models take them."""
    return encoder.encode(X), scale.scaled(check_target(y, len(X), limits))


def _trained(trainers: list[Any], tables: list[Any], targets: list[Any], example: tuple[Any, Any]) -> list[Any]:
    """Return the local models that Dask estimators learn; if a worker is lost, start anew, and give up by name.

    LightGBM's workers talk to each other, and one that waits for another that is gone waits for ever. Nothing but its
    end stops it. So training is one task of the cluster, and if any worker goes meanwhile, the task is withdrawn and
    the other workers are restarted.
    """
    client, lost = current_client(), set[str]()
    for _ in range(ATTEMPTS):
        # Held by the workers, so that each estimator is trained without reading the rows again.
        held = computed([*tables, *targets], "encoding")
        keys, workers, is_over = [future.key for future in held], _processes(client), Event()

        training = client.submit(_train, trainers, keys[: len(tables)], keys[len(tables) :], example, pure=False)
        training.add_done_callback(lambda _, is_over=is_over: is_over.set())
        try:
            # Until it is over, look every second whether all workers are still there.
            while not is_over.wait(timeout=1.0) and workers <= _processes(client):
                pass
            if training.status == "finished":
                return list(training.result())
            time.sleep(1.0)  # a library may notice the loss before Dask does
            lost = {address for address, _ in workers - _processes(client)}
            if not lost:
                training.result()  # raises what the library raised
        finally:
            training.cancel()

        warn(f"A worker was lost while training ({', '.join(lost)}).")
        client.restart_workers(list(client.nthreads()), raise_for_error=False)
    raise LostWorkerError(
        f"training was started {ATTEMPTS} times, and each time a worker was lost ({', '.join(lost)}). Most often its "
        "memory is too small for the rows it must hold: give the workers more memory, use more of them, or train on "
        "fewer rows."
    )


def _processes(client: Client) -> set[tuple[str, str]]:
    """Return each worker's address and folder: a process that takes a lost one's address has another folder."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {(address, worker["local_directory"]) for address, worker in workers.items()}


def _train(trainers: list[Any], tables: list[str], targets: list[str], example: tuple[Any, Any]) -> list[Any]:
    """Train Dask estimators on blocks that the workers hold under these keys, and return local models like them."""
    with worker_client() as client, warnings.catch_warnings():
        # LightGBM says so whether n_jobs was set or not: a worker's threads are Dask's.
        warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored", UserWarning)
        X = _as_collection([Future(key, client) for key in tables], example[0])
        y = _as_collection([Future(key, client) for key in targets], example[1])
        models = []
        for trainer in trainers:
            trainer.set_params(client=client).fit(X, y)
            if hasattr(trainer, "to_local"):  # LightGBM
                models.append(trainer.to_local())
            else:
                models.append(local_twin(trainer))
                models[-1].load_model(trainer.get_booster().save_raw("ubj"))
    return models


def _as_collection(blocks: Sequence[Future], example: Any) -> Collection:
    """Return blocks that the workers hold as a Dask DataFrame or Array; the example is a block of one row."""
    if isinstance(example, pd.DataFrame):
        return dd.from_delayed(blocks, meta=example[:0], verify_meta=False)
    shape = (math.nan, *example.shape[1:])
    return da.concatenate([da.from_delayed(block, shape, float) for block in blocks], allow_unknown_chunksizes=True)
