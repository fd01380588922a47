"""The same methods on Dask collections: rows that one machine can't hold.

`AutoICQR`, `ICQR`, `CQR`, `QR` and `Naive` have the parameters and methods of the local classes and take Dask
DataFrames and Arrays besides tables. They need a client: `connect` returns one, of a cluster on this machine or
elsewhere. The result is an ordinary fitted model (`to_local`), and any fitted model works on Dask collections
(`on_dask`).
"""

from __future__ import annotations

import copy
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

try:
    import dask
    import dask.array as da
    import dask.dataframe as dd
except ImportError as error:
    raise ImportError('icqr.dask needs dask: pip install "icqr[dask]"') from error

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from icqr import regressors
from icqr._blocks import calibration_in_blocks, refuse_random_ties, score_block
from icqr._cluster import (
    DASK_TWINS,
    Collection,
    DaskRows,
    LostWorkerError,
    Pair,
    as_pair,
    check_table,
    collected,
    computed,
    connect,
    dashboard,
    delayed_blocks,
    gathered,
    is_collection,
    is_dask_estimator,
    joined,
    local_twin,
    on_each,
    progress,
    reduced,
    train_on_cluster,
)
from icqr._files import replacing
from icqr._libraries import class_names
from icqr._messages import warn
from icqr._predicting import (
    EXPLAINED,
    Coverages,
    IntervalRegressor,
    interval_columns,
    interval_names,
    is_list,
)
from icqr._rows import Order, check_pair, held_out_size, naming
from icqr._tables import FloatArray, Table, align, take_rows
from icqr.calibration import COVERAGES, Calibration, reduced_to, rows_needed
from icqr.partition import GroupPartition
from icqr.quantiles import bare

__all__ = [
    "CQR",
    "ICQR",
    "QR",
    "AutoICQR",
    "LostWorkerError",
    "Naive",
    "connect",
    "dashboard",
    "on_dask",
    "progress",
    "write_parquet",
]

M = TypeVar("M", bound=IntervalRegressor)
T = TypeVar("T")

#: Importance, groups and models without a Dask estimator are learned from a sample of this many rows.
SAMPLE_ROWS = 200_000


# -- The methods -----------------------------------------------------------------------------------------------------


class _OnDask(IntervalRegressor):
    """What a method needs to take Dask collections; tables go to the local class."""

    _local_class: ClassVar[type[IntervalRegressor]]

    def fit(
        self,
        X: Collection | Table,
        y: Collection | ArrayLike,
        X_calibration: Collection | Table | None = None,
        y_calibration: Collection | ArrayLike | None = None,
        *,
        order: Order | None = None,
        sample_rows: int = SAMPLE_ROWS,
        coverages: Sequence[float] = COVERAGES,
        **fit_params: Any,
    ) -> Self:
        """Fit the model, learn the groups and calibrate.

        Parameters
        ----------
        X, y : Dask DataFrame and Series, or Dask Arrays
            Rows to train on; unless calibration rows are given, `calibration_size` of every block is set aside for
            calibration. Tables are fitted here, as the local class does it.
        X_calibration, y_calibration : optional
            Calibration rows, which the model must not have seen.
        order : str or array, optional
            For tables only; see `icqr.ICQR.fit`. With Dask collections, give the newest rows as calibration rows.
        sample_rows : int, default=200_000
            Importance and groups are learned from this many random rows, and the model too unless it is
            `lightgbm.DaskLGBMRegressor` or `xgboost.dask.DaskXGBRegressor`: these train on all rows, on the cluster.
        coverages : sequence of float
            See `calibrate`.
        **fit_params : optional
            For the estimator's own fit, if it is fitted on the sample; none with a value per row.

        Returns
        -------
        self
        """
        has_fresh = X_calibration is not None or y_calibration is not None
        if not is_collection(X) or (has_fresh and isinstance(self, regressors.QR)):  # which refuses calibration rows
            super().fit(X, y, X_calibration=X_calibration, y_calibration=y_calibration, order=order, **fit_params)
            return self
        if order is not None:
            raise ValueError(
                "order is not possible with Dask collections; split them in time yourself, for example at a date, and "
                "give the newest rows as X_calibration and y_calibration"
            )
        self._check_parameters()
        refuse_random_ties(self.ties)
        if self.calibration == "cross":
            raise ValueError(
                "calibration='cross' is not possible with Dask collections: it is for few rows, and fits a model for "
                "each of ten folds; use calibration='split', or give fit a table"
            )
        on_cluster = is_dask_estimator(bare(self.estimator))
        check_pair(X_calibration, y_calibration)
        _check_fit(fit_params, sample_rows, on_cluster)
        split_seed, model_seed = check_random_state(self.random_state).randint(2**31 - 1, size=2).tolist()

        # Rows to train on and to calibrate with stay where they are; a bounded sample of both comes here.
        rows = DaskRows.of(X, y, split_seed)
        fresh = DaskRows.of(X_calibration, y_calibration, split_seed) if has_fresh else None
        train, held_out, (X_train, y_train), calibration = _split(self, rows, fresh, int(sample_rows), on_cluster)

        # Part 1: a Dask estimator is trained on the cluster; any other is fitted to the sample, with parts 2 and 3.
        params = self.get_params(deep=False)
        if on_cluster:
            model = train_on_cluster(self, train, X_train, y_train, model_seed)
            params["estimator"] = FrozenEstimator(model)
        elif (
            not isinstance(self, AutoICQR)
            and (twin := DASK_TWINS.get(class_names(self.estimator)[0]))
            and len(X_train) < train.total
        ):
            warn(
                f"{type(self.estimator).__name__} is fitted on a sample of {len(X_train)} of {train.total} training "
                f"rows; {twin} trains on all of them, on the cluster."
            )

        # Parts 2 and 3: importance and groups, by the local class from the sample.
        if "small_groups" in params:
            params["small_groups"] = "infinite"  # groups may be small in the sample, and large enough in all rows
        local = self._local_class(**params).fit(X_train, y_train, *calibration, **fit_params)
        local.set_params(**self.to_local().get_params(deep=False))
        if on_cluster:
            local.model_.set_params(estimator=model.estimator)
            local.n_train_ = train.total

        # Part 4: one offset per group, from all calibration rows.
        if held_out is not None:
            # With the promise of fit: `with_calibration` would take the rows for fresh ones.
            local.calibration_ = _calibration(local, held_out, coverages)
            local.n_crossed_.pop("calibration", None)
        _with_state(self, local)
        return self

    def calibrate(
        self, X: Collection | Table, y: Collection | ArrayLike, *, coverages: Sequence[float] = COVERAGES
    ) -> Self:
        """Replace the calibration by fresh rows; model and groups stay as they are.

        Parameters
        ----------
        X, y : Dask DataFrame and Series, or Dask Arrays
            Rows that neither the model nor the groups were learned from. Offsets are those that the local class finds
            for the same rows, to the bit.
        coverages : sequence of float
            Up to 5,000,000 scores are all kept, 8 bytes each, and you can ask for any coverage. Of more scores only
            those are kept that these coverages and the model's own need, and you can ask for no other. By default 0.1,
            0.2, …, 0.8, 0.85, 0.9, 0.95, 0.98 and 0.99.

        Returns
        -------
        self
        """
        if not is_collection(X) or isinstance(self, regressors.QR):  # which refuses
            return super().calibrate(X, y)
        X = _check_columns(self, X)
        refuse_random_ties(self.conformity_.ties)
        return self.with_calibration(_calibration(self.to_local(), DaskRows.of(X, y), coverages))

    def predict(self, X: Collection | Table) -> Collection | FloatArray:
        """Predict the median (`Naive`: the regressor's own prediction).

        Of a Dask DataFrame lazily as a Series with its index, of a Dask Array as an Array.
        """
        if not is_collection(X):
            return super().predict(X)
        return _mapped(self, "predict", X, pd.Series(dtype=np.float64, name="prediction"))

    def predict_interval(self, X: Collection | Table, coverage: Coverages = None) -> Collection | FloatArray:
        """Predict intervals.

        Parameters
        ----------
        X : Dask DataFrame or Array, or a table
            Rows to predict.
        coverage : float or list of float, optional
            By default the estimator's own.

        Returns
        -------
        Dask DataFrame or Array
            Nothing is computed yet. For a DataFrame one with its index and the columns lower and upper (for a list of
            coverages lower_0.8, upper_0.8, …); for an Array one of shape (n, 2), or (n, 2, number of coverages) for a
            list. For a table, what the local class returns.
        """
        if not is_collection(X):
            return super().predict_interval(X, coverage)
        like = pd.DataFrame(columns=interval_names(coverage), dtype=np.float64)
        return _mapped(self, "predict_interval", X, like, self.coverage if coverage is None else coverage)

    def explain(self, X: Collection | Table, coverage: float | None = None) -> dd.DataFrame | pd.DataFrame:
        """Say for each row how its interval came about and what is promised.

        Of Dask collections lazily as a DataFrame, with X's index if X is a DataFrame.
        """
        if not is_collection(X):
            return super().explain(X, coverage)
        like = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in EXPLAINED.items()})
        return _mapped(self, "explain", X, like, self.coverage if coverage is None else coverage)

    def to_local(self) -> IntervalRegressor:
        """Return the same model as an object of the local class, which needs no Dask."""
        params = {**self.get_params(deep=False), "estimator": local_twin(self.estimator)}
        return _with_state(self._local_class(**params), self)


class Naive(_OnDask, regressors.Naive):
    """`icqr.Naive` for Dask collections: the same parameters, methods and results. See `ICQR` here."""

    _local_class = regressors.Naive


class QR(_OnDask, regressors.QR):
    """`icqr.QR` for Dask collections: the same parameters, methods and results. See `ICQR` here."""

    _local_class = regressors.QR


class CQR(_OnDask, regressors.CQR):
    """`icqr.CQR` for Dask collections: the same parameters, methods and results. See `ICQR` here."""

    _local_class = regressors.CQR


class ICQR(_OnDask, regressors.ICQR):
    """`icqr.ICQR` for Dask collections: the same parameters, methods and results.

    `fit` and `calibrate` need a client (`icqr.dask.connect`); predictions are lazy, and any scheduler computes them.

    1. The model: `lightgbm.DaskLGBMRegressor` and `xgboost.dask.DaskXGBRegressor` train on all training rows, on the
       cluster; every other estimator on a sample of them, here.
    2. Importance and groups: from the sample. A user's own groups (`GroupPartition`) are looked for in all rows. Groups
       by difficulty (`ScorePartition`, "auto") need rows that the model has not seen: training on the cluster leaves
       the sample out, at most a fifth of the training rows.
    3. Scores: where the rows are, by the local class.
    4. Offsets: exact order statistics of all scores, merged on the workers.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = ICQR(random_state=0).fit(X, y)  # a table, and so fitted here; Dask collections on the cluster
    >>> intervals = model.predict_interval(dd.from_pandas(X, npartitions=4))
    >>> intervals.compute(scheduler="synchronous").shape
    (500, 2)
    """

    _local_class = regressors.ICQR


class AutoICQR(_OnDask, regressors.AutoICQR):
    """`icqr.AutoICQR` for Dask collections: the same parameters, methods and results.

    It fits many models on folds, and does so here, on a sample of the training rows (`sample_rows` of `fit`). It always
    sets rows of a Dask collection aside to calibrate with: ``calibration="auto"`` means "split". All calibration rows
    are scored where they are, so the offsets are exact. `ICQR` with a Dask estimator trains on all rows.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = AutoICQR(random_state=0).fit(X, y)  # a table, and so fitted here; Dask collections on the cluster
    >>> intervals = model.predict_interval(dd.from_pandas(X, npartitions=4))
    >>> intervals.compute(scheduler="synchronous").shape
    (500, 2)
    """

    _local_class = regressors.AutoICQR

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if is_dask_estimator(bare(self.estimator)):
            name = type(bare(self.estimator)).__name__
            raise ValueError(
                f"estimator: AutoICQR fits its models on a sample, here, and takes no {name}; give it "
                f"{name.removeprefix('Dask')}, or use ICQR({name}()), which trains on all rows"
            )


def on_dask(model: IntervalRegressor) -> _OnDask:
    """Return a local model, fitted here or loaded from a file, as one that takes Dask collections.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> local = regressors.CQR(random_state=0).fit(X, y)
    >>> on_dask(local).predict_interval(dd.from_pandas(X, npartitions=4)).columns.tolist()
    ['lower', 'upper']
    """
    if isinstance(model, _OnDask):
        return model
    for kind in (Naive, QR, CQR, AutoICQR, ICQR):  # AutoICQR first: it is an ICQR too
        if isinstance(model, kind._local_class):
            return _with_state(kind(**model.get_params(deep=False)), model)
    raise TypeError(f"model must be Naive, QR, CQR, ICQR or AutoICQR, got {type(model).__name__}")


def _with_state(model: M, other: IntervalRegressor) -> M:
    """Return a model with all that another has learned, in place of what it has learned itself."""
    settings = {name: value for name, value in vars(model).items() if not name.endswith("_")}
    learned = {name: value for name, value in vars(other).items() if name.endswith("_")}
    model.__dict__ = {**settings, **learned}
    return model


def _for_workers(
    model: IntervalRegressor, coverages: Sequence[float] = (), with_novelty: bool = False
) -> IntervalRegressor:
    """Return the local model as workers use it: each task with one thread, without the scores that they don't need.

    Up to 5,000,000 scores and distances are kept: more than the rest of the model, and each worker gets a copy.
    """
    light = copy.copy(model)
    calibration = reduced_to(model.calibration_, coverages)
    light.calibration_ = calibration if with_novelty else replace(calibration, novelty=None)
    # Dask's workers set OMP_NUM_THREADS=1. LightGBM alone takes all cores unless its own parameter says otherwise.
    if any(_lightgbm_models(model.model_)):
        light.model_ = copy.deepcopy(model.model_)
        for fitted in _lightgbm_models(light.model_):
            fitted.set_params(n_jobs=1)
    return light


def _lightgbm_models(part: Any) -> Iterator[Any]:
    """Yield the LightGBM models that a quantile or point model is made of."""
    if "lightgbm.LGBMModel" in class_names(part):
        yield part
    elif isinstance(part, list | tuple):
        for item in part:
            yield from _lightgbm_models(item)
    elif isinstance(part, BaseEstimator):
        yield from _lightgbm_models(list(vars(part).values()))


# -- Fitting ---------------------------------------------------------------------------------------------------------


def _check_fit(fit_params: dict[str, Any], sample_rows: Any, on_cluster: bool) -> None:
    if not isinstance(sample_rows, int | np.integer) or sample_rows < 1:
        raise ValueError(f"sample_rows must be a whole number, 1 or more, got {sample_rows!r}")
    if on_cluster and fit_params:
        names = ", ".join(fit_params)
        raise ValueError(
            f"fit parameters ({names}) are not handed to Dask estimators; set them on the estimator itself"
        )
    for name, value in fit_params.items():
        if is_collection(value):
            raise ValueError(f"{name} is a Dask collection; fit parameters with a value per row are not taken here")


def _split(
    model: _OnDask, rows: DaskRows, fresh: DaskRows | None, sample_rows: int, on_cluster: bool
) -> tuple[DaskRows, DaskRows | None, Pair, Pair | tuple[()]]:
    """Return the rows to train on and to calibrate with, and a sample of each; QR calibrates nothing."""
    # The rows to calibrate with are those given, or a share of every block.
    train, held_out = rows, fresh
    if fresh is None and not isinstance(model, regressors.QR):
        held_out, train = rows.split(held_out_size(model.calibration_size, rows.total))

    # Groups by difficulty are learned from scores of rows that the model has not seen.
    partition = getattr(model, "partition", None)
    size = math.ceil(sample_rows * train.total / rows.total)
    if on_cluster and (isinstance(partition, str) or getattr(partition, "needs_scores", False)):
        learned_from, train = train.split(max(min(size, train.total // 5), 1))
    else:
        learned_from, _ = train.split(size)
    if held_out is None:
        return train, None, collected(learned_from)[0], ()

    # As many as the local class needs for its own calibration on the sample, which is replaced afterwards.
    size = sample_rows if fresh else math.ceil(sample_rows * held_out.total / rows.total)
    compared, _ = held_out.split(max(size, rows_needed(model.coverage, model.symmetric)))
    training, calibration = collected(learned_from, compared)
    if isinstance(partition, GroupPartition):
        # A user's own groups are looked for in all rows: the sample may lack some.
        calibration = joined([calibration, *(_first_of_groups(part, partition) for part in (rows, fresh) if part)])
    return train, held_out, training, calibration


def _first_of_groups(rows: DaskRows, partition: GroupPartition) -> Pair:
    """Find all groups on the cluster, and return a row of each."""

    def first(parts: Sequence[Pair]) -> Pair:
        X, y = joined(parts)
        groups = clone(partition).fit(X, y, np.empty((len(X), 0))).assign(X)
        places = np.unique(groups, return_index=True)[1]
        return take_rows(X, places), y[places]

    return reduced(on_each(first, [[part] for part in rows.map(as_pair)]), first, "finding groups")


# -- Calibration -----------------------------------------------------------------------------------------------------


def _calibration(model: IntervalRegressor, rows: DaskRows, coverages: Sequence[float]) -> Calibration:
    """Return a model's calibration by all rows: scored where they are, offsets from order statistics on the workers."""
    scored = computed(rows.map(score_block, model=_for_workers(model), total=rows.total), "scoring")

    def reduce(function: Callable[[Calibration], T], merge: Callable[[Sequence[T]], T]) -> T:
        return reduced(on_each(function, scored), merge, "merging")

    return calibration_in_blocks(model, reduce, coverages)


# -- Prediction ------------------------------------------------------------------------------------------------------


def _check_columns(model: IntervalRegressor, X: Collection) -> Collection:
    """Check X as `check_table` does, and return it with the columns of a fitted model: before any row is read."""
    check_is_fitted(model)
    X = check_table(X)
    if isinstance(X, dd.DataFrame) and model.columns_ is not None:
        align(pd.DataFrame(X._meta_nonempty), model.columns_)  # raises if there are other columns
        used = [name for name in X.columns if name in model.columns_]
        return X[used] if 0 < len(used) < X.shape[1] else X
    example = pd.DataFrame(X._meta_nonempty) if isinstance(X, dd.DataFrame) else np.zeros((1, X.shape[1]))
    validate_data(model, example, reset=False, skip_check_array=True)
    return X


def _mapped(model: _OnDask, method: str, X: Collection, like: Any, *coverage: Any) -> Collection:
    """Return lazily what a method of the model returns for each block of X; `like` shows the columns of a table."""
    X = _check_columns(model, X)
    if method != "predict":
        refuse_random_ties(model.conformity_.ties)

    # Raise now, not at the first block, if a coverage's scores were not kept, or are too few.
    levels = list(np.ravel(np.asarray(coverage, dtype=object)))
    for level in levels or coverage:  # an empty list is refused, as it is
        model.certificate(level)
        model.calibration_.check_enough(level)

    light = _for_workers(model.to_local(), levels, with_novelty=method == "explain")
    common = dask.delayed(light, traverse=False, pure=False), method, coverage  # the model goes to each worker once
    if isinstance(X, dd.DataFrame) or method == "explain":
        frame = X if isinstance(X, dd.DataFrame) else dd.from_dask_array(X)
        return frame.map_partitions(_predicted, *common, like, meta=like)
    ends = () if method == "predict" else (2, len(levels)) if is_list(coverage[0]) else (2,)
    chunks, new_axes = (X.chunks[0], *((end,) for end in ends)), list(range(1, 1 + len(ends)))
    options = {"dtype": np.float64, "drop_axis": 1, "new_axis": new_axes, "chunks": chunks}
    return da.map_blocks(_predicted, X, *common, np.empty((0, *ends)), **options)


def _predicted(
    block: Any, model: Any, method: str, coverage: Any, like: Any, block_id: Any = None, partition_info: Any = None
) -> Any:
    if len(block) == 0:
        return like
    number = block_id[0] if block_id else partition_info["number"]
    with naming(f"block {number}"):
        values = getattr(model, method)(block, *coverage)
    if isinstance(like, pd.Series):
        return pd.Series(values, block.index, name=like.name)
    if isinstance(like, pd.DataFrame) and method != "explain":
        return pd.DataFrame(interval_columns(values), block.index, like.columns)
    return values


# -- Results ---------------------------------------------------------------------------------------------------------


def write_parquet(frame: dd.DataFrame, folder: str | os.PathLike[str]) -> Path:
    """Compute a Dask DataFrame and write it as Parquet, a file per block: ``part.00000.parquet``, ….

    The folder gets its name when all files are written. After an error, Ctrl-C or a lost cluster it is not there, and
    a folder of that name is as it was.

    Parameters
    ----------
    frame : Dask DataFrame
        For example what `explain` returns. Its index is written too.
    folder : path
        On a disk that this machine and all workers share. It must not exist.

    Returns
    -------
    Path
        The folder.
    """
    target = Path(folder).absolute()
    if target.exists():
        raise FileExistsError(f"{target} exists; give another folder, or remove it first")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(parents=True)
    try:
        blocks = delayed_blocks(frame)
        files = [part / f"part.{number:05d}.parquet" for number in range(len(blocks))]
        gathered(on_each(_write, blocks, files), "writing")
        part.rename(target)
    except BaseException:  # also Ctrl-C: nothing half-written stays behind
        # Under another name, so that blocks that are still being written can't add to the folder while it is removed.
        shutil.rmtree(part.rename(f"{part}.failed"), ignore_errors=True)
        raise
    return target


def _write(block: pd.DataFrame, path: Path) -> None:
    # A worker that is lost half-way leaves no file of this name, and the block is written again.
    with replacing(path) as unfinished:
        block.to_parquet(unfinished, engine="pyarrow")
