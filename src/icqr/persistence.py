"""Models that last: `save` and `load` without pickle.

A file is a zip: `manifest.json` with the size and hash of every other part, `schema.json` and arrays that skops reads,
and `signature` if the file was saved with a key. docs/howto/files.md describes the format.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import platform
import re
import sys
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config
from sklearn.tree._tree import Tree
from sklearn.utils import Bunch

from icqr import _file_checks as checks
from icqr._file_checks import ModelFileError, refusing
from icqr._files import replacing
from icqr._messages import imported
from icqr._predicting import IntervalRegressor, check_is_calibrated
from icqr._tables import Features, FloatArray
from icqr.cross import FoldModels
from icqr.quantiles import PointModel

__all__ = ["ModelFileError", "load", "save"]

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that equal models give equal bytes
#: Libraries that a file may need beside our own dependencies.
_LIBRARIES = {"catboost", "lightgbm", "quantile_forest", "xgboost"}
#: Learned attributes of use in fitting alone, as large as the training rows. They are None in a loaded model.
_LEFT_OUT = ("clusterer_", "fold_of_", "out_of_fold_")
#: What can be done about something that can't be stored, by a pattern of its place in the model.
_ADVICE = {
    r"(estimator|model_)\b": (
        "save(model, path, with_estimator=False) stores everything else, and load(path, estimator=fitted) takes the "
        "fitted model: one with predict_quantiles(X, levels), or prefit(lower=…, median=…, upper=…, levels=…); for "
        "Naive one with predict(X)."
    ),
    r".*clusterer$": "KMeans and MiniBatchKMeans can: a new row belongs to their nearest centroid.",
    r"partition_?\b": (
        "Make the labels of your groups a column of X, at fit as at predict, and use GroupPartition('that column')."
    ),
    r"": "The fitted model does not need it any more: model.set_params({parameter}=None) leaves it out.",
}
#: What columns, categories and groups may be called.
_LABELS = (bool, int, float, str, bytes, tuple, type(None), np.generic, pd.Interval)
#: What columns of numbers hold in the made-up rows of the check; none that a logarithm or a root refuses.
_NUMBERS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
#: And what columns of dates hold.
_DATES = tuple(pd.date_range("2000-01-01", periods=len(_NUMBERS), freq="1234567min"))
#: Relative to the largest prediction: the last bits may differ from machine to machine.
_TOLERANCE = 1e-6


def save(
    model: IntervalRegressor,
    path: str | os.PathLike[str],
    key: bytes | str | None = None,
    *,
    with_estimator: bool = True,
) -> None:
    """Store a fitted model in a file that can be kept: `load` reads it without running code from it.

    The file is read back before it takes the place of an older one; after an error, or on a full disk, that one is as
    it was.

    Parameters
    ----------
    model : Naive, QR, CQR, ICQR or AutoICQR
        Fitted. Its quantile model may be of scikit-learn, LightGBM, XGBoost, CatBoost or quantile-forest, a
        QuantileNetwork, these in pipelines and target transformers, or `prefit`.
    path : path
        The file, by custom ``….icqr``.
    key : bytes or str, optional
        Signs the file: `load` with the same key then refuses whatever anybody without the key has written or changed.
        Without a key, hashes show accidental damage only.
    with_estimator : bool, default=True
        False leaves the fitted quantile model out, for one whose type can't be stored; it is then given to `load`.

    Raises
    ------
    ModelFileError
        (A ValueError.) Something in the model can't be stored. The message names it and says what to do; nothing is
        written.

    Examples
    --------
    >>> import tempfile
    >>> from icqr import CQR, load, save
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(500, random_state=0, return_X_y=True)
    >>> model = CQR(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.icqr", key="our secret")
    ...     again = load(f"{folder}/model.icqr", key="our secret")
    >>> bool((again.predict_interval(X) == model.predict_interval(X)).all())
    True
    """
    secret = _key_bytes(key)
    if hasattr(model, "to_local"):  # a model of icqr.dask
        model = model.to_local()
    if not isinstance(model, IntervalRegressor) or not checks.public_name(type(model)):
        name = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ModelFileError(
            f"model must be a fitted {checks.METHODS}, got {name}; the code of a class of your own can't be stored"
        )
    check_is_calibrated(model)
    if isinstance(model.model_, FoldModels) and not with_estimator:
        raise ModelFileError(
            f"with_estimator=False leaves out one fitted model, and this one holds {len(model.model_.models_)} "
            "(calibration='cross'); store it whole, or fit it with calibration='split'"
        )
    try:
        predicted = _predicted(model)
    except Exception:  # a pipeline may refuse rows that nobody would give it, in any way
        predicted = None

    if not with_estimator:
        model = copy.copy(model)
        model.model_ = copy.copy(model.model_)
        _put_in(model, None)
    root = {"model": _plain(model, ""), "with_estimator": with_estimator, "predicted": predicted}
    data = _packed(_dumped(root), secret)

    # What can't be read back is not written.
    again = _read(data, secret)
    if with_estimator:
        _check_predictions(again["model"], again["predicted"])
    with replacing(path) as part:
        part.write_bytes(data)


def load(path: str | os.PathLike[str], key: bytes | str | None = None, *, estimator: Any = None) -> Any:
    """Read a model that `save` stored. No code in the file is run, whoever wrote it.

    Parameters
    ----------
    path : path
        The file.
    key : bytes or str, optional
        The key that the file was saved with. The signature is checked before anything else is read, and a file with
        none is refused. A file from a stranger can still promise a coverage that it does not have, or hold a LightGBM,
        XGBoost or CatBoost model that crashes the process; a signed file shows who wrote it.
    estimator : fitted model, optional
        Only for a file that was saved without it: an object with ``predict_quantiles(X, levels)``, as `prefit` makes
        it; for `Naive` one with ``predict(X)``. It gets rows in the form that the saved one got them, and must predict
        the same for some made-up rows.

    Returns
    -------
    Naive, QR, CQR, ICQR or AutoICQR
        Fitted: it predicts what the saved one predicted, to the bit, and can be calibrated again. Numbers of jobs or
        threads that are larger than this machine's number of processors are lowered to it.

    Raises
    ------
    ModelFileError
        (A ValueError.) The file is no model, damaged, changed, of another version, not signed with this key, or
        unsafe; the message says which.

    Examples
    --------
    See `save`.

    >>> import tempfile
    >>> from icqr import load
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     load(file.name)
    Traceback (most recent call last):
    icqr._file_checks.ModelFileError: not a model of icqr: not a zip archive, or cut off
    """
    root = _read(Path(path).expanduser().read_bytes(), _key_bytes(key))
    model = root["model"]
    if not root["with_estimator"]:
        needed = "predict" if isinstance(model.model_, PointModel) else "predict_quantiles"
        if not hasattr(estimator, needed):
            got = "nothing" if estimator is None else f"a {type(estimator).__qualname__}"
            raise ModelFileError(
                f"the file was saved without its fitted model: give it as load(path, estimator=fitted), with {needed}, "
                f"got {got}. prefit(lower=…, median=…, upper=…, levels=…) makes one from fitted models of each level."
            )
        _put_in(model, estimator)
    elif estimator is not None:
        raise ModelFileError("the file holds its fitted model; leave estimator out, as load(path)")
    _check_predictions(model, root["predicted"])
    return model


def _key_bytes(key: bytes | str | None) -> bytes | None:
    if isinstance(key, str):
        key = key.encode()
    if key is not None and (not isinstance(key, bytes) or not key):
        raise ValueError(f"key must be bytes or text that is not empty, got {type(key).__name__}; None is no signature")
    return key


def _put_in(model: IntervalRegressor, fitted: Any) -> None:
    """Put another fitted estimator, or none, in the place of the model's own."""
    inner = model.model_
    model.estimator = inner.estimator = fitted
    if isinstance(inner, PointModel):
        inner.model_ = fitted
    else:
        inner.models_ = [fitted]


# -- Writing ---------------------------------------------------------------------------------------------------------


def _plain(value: Any, place: str) -> Any:
    """Return a copy of a value that skops stores safely; refuse what can't be stored, by its place in the model."""
    kind = type(value)

    # Containers, with plain copies of what they hold.
    if kind in (list, tuple, set):
        return kind(_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    if kind in (dict, Bunch, OrderedDict, defaultdict):
        items = {name: _plain(item, f"{place}[{name!r}]") for name, item in value.items()}
        return Bunch(**items) if kind is Bunch else items
    if kind is np.ndarray and value.dtype == object:
        fresh = np.empty(value.shape, dtype=object)
        for i, item in enumerate(value.flat):
            fresh.flat[i] = _plain(item, f"{place}[{i}]")
        return fresh

    # What stays as it is.
    if (
        value is None
        or kind in (bool, int, float, str, bytes, bytearray, slice)
        or f"numpy.{kind.__name__}" in checks.ALLOWED["NdArrayNode"]
        or isinstance(value, type | np.dtype)  # which are checked with everything else that a file names
        or checks.public_name(value)  # a trusted function
    ):
        return value
    if kind is partial:
        _plain([value.func, value.args, value.keywords], place)
        return value

    # What something else takes the place of.
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, np.random.RandomState | np.random.Generator) and "." in place:
        return None  # of no use after fitting, and the code that restores one trusts what it is given
    return _stand_in(value, place) or _plain_object(value, place)


def _stand_in(value: Any, place: str) -> Any:
    """Return the call that makes something which skops does not store, or not safely; None for everything else."""
    match value:
        case Fraction():
            return _call(checks.make_fraction, value.numerator, value.denominator)
        case pd.Index():
            labels = value.tolist()
            if not all(isinstance(label, _LABELS) for label in labels):
                raise ModelFileError(
                    f"{place} has labels of the type {value.dtype}, which can't be stored without pickle. Text and "
                    "numbers can: turn them into text before the model is fitted, for example by astype(str)."
                )
            # Types that are not NumPy's (text, intervals, categories) are told by the labels.
            dtype = str(value.dtype) if isinstance(value.dtype, np.dtype) else None
            return _call(pd.Index, _plain(labels, place), dtype)
        case pd.DataFrame():
            columns = [_plain(pd.Index(column), f"{place}[{name!r}]") for name, column in value.items()]
            return _call(checks.make_frame, _plain(value.columns, place), columns)
        case Tree():
            state = value.__getstate__()
            # Without the gaps between a node's numbers: they hold memory that nobody has written to.
            nodes = state["nodes"].astype(checks.PACKED_NODE)
            return _call(checks.make_tree, int(value.n_features), nodes, state["values"])
    if type(value).__module__.startswith("quantile_forest.") and type(value).__name__ == "QuantileForest":
        rows = (value.y_train, value.y_train_leaves, value.y_bound_leaves)
        return _call(checks.make_forest, *map(np.asarray, rows))
    return None


def _call(maker: Callable[..., Any], *arguments: Any) -> Any:
    """Return an object that skops stores as a call of a trusted maker: it takes it for an object of that name."""

    class Call:
        def __reduce__(self) -> Any:
            return Call, arguments

    Call.__module__, _, Call.__name__ = checks.public_name(maker).rpartition(".")
    return Call()


def _plain_object(value: Any, place: str) -> Any:
    """Return a copy of an object of a trusted class, its attributes plain."""
    kind, name = type(value), checks.public_name(type(value))
    if not name:
        advice = next(advice for pattern, advice in _ADVICE.items() if re.match(pattern, place))
        raise ModelFileError(
            f"{place} is of type {kind.__module__}.{kind.__qualname__}, which can't be stored without pickle. "
            + advice.replace("{parameter}", place.replace(".", "__"))
        )
    if name in checks.SEALED:
        if hasattr(value, "get_params"):
            _plain(value.get_params(), place)
        return value
    fresh = object.__new__(kind)
    for attribute, item in (value.__getstate__() or {}).items():
        inner = f"{place}.{attribute}" if place else attribute
        vars(fresh)[attribute] = None if attribute in _LEFT_OUT else _plain(item, inner)
    return fresh


def _dumped(root: Any) -> dict[str, bytes]:
    """Return the parts of a file: what skops makes of an object, without what differs from run to run.

    skops names parts and objects by their addresses in memory. Classes and functions get the public names by which we
    trust them.
    """
    skops = imported("skops.io", "storing models needs", "icqr[files]")
    with refusing("the model can't be stored"):
        archive = zipfile.ZipFile(io.BytesIO(skops.dumps(root)))
    schema = json.loads(archive.read("schema.json"))
    names: dict[bytes, str] = {}  # equal parts, such as the empty ones of many trees, are stored once
    for node in checks.nodes_of(schema):
        del node["__id__"]
        node.pop("is_json", None)
        if "file" in node:
            ending = "npy" if node["__loader__"] == "NdArrayNode" else "bin"
            node["file"] = names.setdefault(archive.read(node["file"]), f"{len(names)}.{ending}")
        if node["__loader__"] in ("ConstructorFromReduceNode", "DictNode", "FunctionNode", "ObjectNode"):
            public = checks.public_name(getattr(import_module(node["__module__"]), node["__class__"]))
            node["__module__"] = public.rpartition(".")[0] or node["__module__"]
        if node["__loader__"] == "SetNode":
            node["content"].sort(key=lambda item: str(item.get("content")))

    text = json.dumps(schema, separators=(",", ":")).encode()
    return {"schema.json": text, **{name: content for content, name in names.items()}}


def _packed(files: Mapping[str, bytes], key: bytes | None) -> bytes:
    """Return the bytes of a file; equal contents give equal bytes."""
    packages = {"icqr", "numpy", "pandas", "skops", *re.findall(r'"__module__":"(\w+)', files["schema.json"].decode())}
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in sorted(packages)}
    manifest = {
        "format": checks.FORMAT,
        "version": checks.VERSION,
        "written_by": {"python": platform.python_version()} | {name: text for name, text in versions.items() if text},
        "parts": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
        },
    }
    members = {"manifest.json": json.dumps(manifest, indent=1).encode(), **files}
    if key is not None:
        members["signature"] = checks.signature_of(members["manifest.json"], key)

    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o644 << 16  # readable by whoever unpacks it
                archive.writestr(info, content, method)
        if not checks.is_bomb(sum(map(len, members.values())), len(buffer.getvalue())):
            break  # what packs too well would be taken for a bomb, and is stored as it is
    return buffer.getvalue()


# -- Reading ---------------------------------------------------------------------------------------------------------


def _read(data: bytes, key: bytes | None) -> dict[str, Any]:
    """Return what a file holds, every check of it passed but that of its predictions."""
    # What can be seen before any object is made.
    types = checks.check_file(data, key)
    skops = imported("skops.io", "reading models needs", "icqr[files]")
    for package in _LIBRARIES & {name.partition(".")[0] for name in types}:
        imported(package, "the file holds a model that needs", package.replace("_", "-"))

    # The objects, before any of them is used.
    with refusing("the model can't be read"):
        root = skops.loads(data, trusted=sorted(types))
        checks.check_model(root["model"])
        return {name: root[name] for name in ("model", "with_estimator", "predicted")}


# -- Made-up rows, for which the model that is read must predict the same -------------------------------------------


def _predicted(model: IntervalRegressor) -> FloatArray:
    """Return the raw bounds of made-up rows: each column's categories in turn, dates, or numbers.

    A library whose new version reads its old models otherwise is noticed by them, and another estimator than was
    fitted. Explaining the rows uses everything else that was learned. Its intervals are not what is compared: limits of
    y and infinite offsets would hide bounds that differ.
    """
    values_of: dict[Any, Sequence[Any]] = {}
    for held in checks.held_by(model):
        if isinstance(held, Features) and held.n_columns == model.n_features_in_:
            values_of |= {name: list(values) for name, values in held.categories.items()}
            values_of |= dict.fromkeys(held.dates, _DATES)
    names = pd.RangeIndex(model.n_features_in_) if model.columns_ is None else model.columns_
    columns = {}
    for j, name in enumerate(names):
        values = values_of.get(name) or _NUMBERS
        columns[j] = [values[(i + j) % len(values)] for i in range(len(_NUMBERS))]
    frame = pd.DataFrame(columns).set_axis(names, axis=1)
    rows = frame.to_numpy() if model.columns_ is None else frame

    with warnings.catch_warnings(), parallel_config(backend="sequential"):
        warnings.simplefilter("ignore")  # made-up rows are unlike any that were seen
        model.explain(rows)
        return model.predict_quantiles(rows)


def _check_predictions(model: IntervalRegressor, stored: Any) -> None:
    """Refuse a model that predicts other values than its file says for the made-up rows."""
    if stored is None:
        return
    with refusing("the model does not work"):
        predicted = _predicted(model)
    if not isinstance(stored, np.ndarray) or stored.shape != predicted.shape or stored.dtype != np.float64:
        raise ModelFileError(f"the check of the model must have {predicted.shape} predictions")
    scale = np.abs(stored[np.isfinite(stored)]).max(initial=0.0)
    if not np.isclose(predicted, stored, rtol=0, atol=_TOLERANCE * scale).all():
        raise ModelFileError(
            "the model predicts other values for the rows of the file's check than it did when it was saved: it is "
            "another model, or another version of its library reads it otherwise (`written_by` in the file's manifest "
            "names the versions)"
        )
