"""Training on the cluster, by LightGBM's and XGBoost's own Dask estimators; what results is an ordinary model."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, Future, futures_of

from icqr._libraries import Encoder, class_names
from icqr.distributed.blocks import DaskRows
from icqr.distributed.cluster import LOOK_SECONDS, PATIENCE, LostWorkerError, current_client, no_work, persisted
from icqr.quantiles import PointModel
from icqr.rows import check_target

#: Training starts anew when a worker was lost, so often.
ATTEMPTS = 3


class _Library(NamedTuple):
    """A library with a Dask estimator: where that is, and what makes a local estimator of one that is fitted."""

    dask_module: str
    dask_class: str
    local_class: str
    to_local: Callable[[Any, Any], Any]


def _lightgbm_to_local(fitted: Any, local: Any) -> Any:
    return fitted.to_local()


def _xgboost_to_local(fitted: Any, local: Any) -> Any:
    local.load_model(fitted.get_booster().save_raw("ubj"))
    return local


_LIBRARIES = (
    _Library("lightgbm", "lightgbm.DaskLGBMRegressor", "lightgbm.LGBMRegressor", _lightgbm_to_local),
    _Library("xgboost.dask", "xgboost.DaskXGBRegressor", "xgboost.XGBRegressor", _xgboost_to_local),
)


def _library_of(estimator: Any) -> _Library | None:
    names = class_names(estimator)
    return next((library for library in _LIBRARIES if library.dask_class in names), None)


def is_dask_estimator(estimator: Any) -> bool:
    """Tell whether an estimator trains on a cluster."""
    return _library_of(estimator) is not None


def local_twin(estimator: Any) -> Any:
    """Give the local estimator with a Dask estimator's parameters; any other estimator as it is."""
    library = _library_of(estimator)
    if library is None:
        return estimator
    package, name = library.local_class.split(".")
    twin = getattr(importlib.import_module(package), name)()
    given = {key: value for key, value in estimator.get_params().items() if key not in ("client", "coll_cfg")}
    return twin.set_params(**given)


def _library_of_local(estimator: Any) -> _Library | None:
    names = class_names(estimator)
    return next((one for one in _LIBRARIES if one.local_class in names and one.dask_class not in names), None)


def dask_twin_name(estimator: Any) -> str | None:
    """Give the name of the Dask estimator for a local one of LightGBM or XGBoost."""
    library = _library_of_local(estimator)
    return None if library is None else library.dask_class


def dask_twin(estimator: Any) -> Any:
    """Give the Dask estimator with the parameters of a local one of LightGBM or XGBoost; any other as it is."""
    library = _library_of_local(estimator)
    if library is None:
        return estimator
    kind = getattr(importlib.import_module(library.dask_module), library.dask_class.partition(".")[2])
    return kind(**estimator.get_params())


# -- Training --------------------------------------------------------------------------------------------------------


def train_on_cluster(model: Any, given: Any, train: DaskRows, limits: tuple[float, float], *levels: Any) -> Any:
    """Fit the models of a `QuantileModel` or `PointModel` on all rows of the cluster.

    Parameters
    ----------
    model : QuantileModel or PointModel
        With the local twin of the Dask estimator.
    given : Dask estimator
        Its class does the training.
    train : DaskRows
        Rows to train on; how they are encoded is learned from their sample.
    limits : (float, float)
        Limits of y.
    *levels : optional
        The levels of a `QuantileModel`.
    """
    settings = model.prepare(train.X, train.y, *levels)
    tasks = [settings] if isinstance(model, PointModel) else settings
    encoded = _Encoded.of(train, model.encoder_, limits)
    fitted = watched(lambda client: [_fit(given, model.estimator, task, encoded, client) for task in tasks])
    if isinstance(model, PointModel):
        model.model_ = fitted[0]
    else:
        model.models_ = fitted
    return model


def _fit(given: Any, twin: Any, settings: dict[str, Any], encoded: _Encoded, client: Client) -> Any:
    library = _library_of(given)
    assert library is not None
    local = type(twin)(**{**twin.get_params(), **settings})
    fitted = type(given)(**local.get_params())
    fitted.client = client
    return library.to_local(fitted.fit(*encoded.collections(client)), local)


class _Encoded(NamedTuple):
    """Training rows as the model takes them, held by the workers: blocks of rows and of targets."""

    rows: list[Any]
    targets: list[Any]
    lengths: list[int]
    example: Any

    @classmethod
    def of(cls, train: DaskRows, encoder: Encoder, limits: tuple[float, float]) -> _Encoded:
        """Encode the blocks; those without rows are left out."""
        sizes = train.blocks.sizes
        parts = [part for part, n in zip(train.blocks.map(_encode, encoder, limits), sizes, strict=True) if n]
        item = dask.delayed(_item, pure=False)
        both = persisted([item(part, place) for place in (0, 1) for part in parts], "encoding")
        lengths = [int(n) for n in sizes if n]
        return cls(both[: len(parts)], both[len(parts) :], lengths, encoder.encode(train.X[:1]))

    def collections(self, client: Client) -> tuple[Any, Any]:
        """Give the rows and targets as collections of another client."""
        rows, targets = (
            [Future(future.key, client) for future in futures_of(parts)] for parts in (self.rows, self.targets)
        )
        y = _array(targets, [(n,) for n in self.lengths])
        if isinstance(self.example, pd.DataFrame):
            return dd.from_delayed(rows, meta=self.example.iloc[:0], verify_meta=False), y
        return _array(rows, [(n, self.example.shape[1]) for n in self.lengths]), y


def _array(blocks: list[Any], shapes: list[tuple[int, ...]]) -> Any:
    parts = [da.from_delayed(block, shape, dtype=np.float64) for block, shape in zip(blocks, shapes, strict=True)]
    return da.concatenate(parts)


def _encode(X: Any, y: Any, number: int, encoder: Encoder, limits: tuple[float, float]) -> tuple[Any, Any]:
    return encoder.encode(X), check_target(y, len(X), limits)


def _item(pair: tuple[Any, Any], place: int) -> Any:
    return pair[place]


# -- Lost workers ----------------------------------------------------------------------------------------------------


def watched(work: Callable[[Client], Any]) -> Any:
    """Do work that does not survive the loss of a worker; if one is lost, start anew, and give up by name.

    LightGBM's workers talk to each other, and one that waits for another that is gone waits for ever. So the workers
    are looked at meanwhile. If one is lost, all that was asked for is withdrawn by closing the client that asked, and
    the other workers are restarted: there is no other way to stop them.
    """
    client, lost = current_client(), ""
    for _ in range(ATTEMPTS):
        _wait_for_workers(client)
        asking = Client(client.scheduler.address, security=client.security, set_as_default=False)
        try:
            return _until_lost(partial(_as_current, work, asking), client)
        except _GoneError as gone:
            lost = str(gone)
            warnings.warn(f"A worker was lost while training ({lost}).", UserWarning, stacklevel=2)
        finally:
            asking.close()
        client.restart_workers(list(client.nthreads()), raise_for_error=False)
    raise LostWorkerError(
        f"training was started {ATTEMPTS} times, and each time a worker was lost ({lost}). Most often its memory is "
        "too small for the rows it must hold: give the workers more memory, use more of them, or train on fewer rows."
    )


def _wait_for_workers(client: Client) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise LostWorkerError(no_work(0)) from error


def _as_current(work: Callable[[Client], Any], asking: Client) -> Any:
    with asking.as_current():
        return work(asking)


class _GoneError(Exception):
    pass


def _until_lost(work: Callable[[], Any], client: Client) -> Any:
    workers = set(client.nthreads())
    future: ThreadFuture[Any] = ThreadFuture()
    with _lightgbm_quiet():
        # A thread that nobody waits for when the program ends: it may hang.
        Thread(target=_settle, args=(future, work), name="icqr training", daemon=True).start()
        while not wait([future], LOOK_SECONDS).done:
            _check_workers(workers, client)
    if future.exception() is not None:
        _check_workers(workers, client)  # XGBoost raises by itself
    return future.result()


def _settle(future: ThreadFuture[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # handed on to the thread that waits
        future.set_exception(error)


def _check_workers(workers: set[str], client: Client) -> None:
    lost = workers - set(client.nthreads())
    if lost:
        raise _GoneError(", ".join(sorted(lost)))


@contextmanager
def _lightgbm_quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # Said of every Dask estimator, whether n_jobs was set or not: a worker's threads are Dask's.
        warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored", UserWarning)
        yield
