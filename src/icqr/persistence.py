"""Models that last: `save` and `load` without pickle.

A file is a zip: `manifest.json` with the size and hash of every other part, `schema.json` and arrays that skops reads,
and `signature` if the file was saved with a key. docs/files.md describes the format.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import hmac
import io
import json
import os
import platform
import re
import stat
import sys
import warnings
import zipfile
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config
from sklearn.tree._tree import Tree
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from icqr import _file_checks as checks
from icqr._file_checks import ModelFileError
from icqr._files import replacing
from icqr._messages import imported
from icqr._predicting import IntervalRegressor
from icqr._tables import Features, FloatArray, Table

__all__ = ["ModelFileError", "load", "save"]

FORMAT = "icqr-model"
VERSION = 2
METHODS = ("Naive", "QR", "CQR", "ICQR")

#: Unpacked, a file may be so many times as large as it is packed, and always this large: a bomb is much larger.
LARGEST_RATIO, ALWAYS_ALLOWED = 100, 64 * 2**20
#: Brackets and commas in a text of a file: each may be an object in memory.
MOST_ITEMS = 5_000_000

_NAMES = re.compile(r"[a-z0-9_]+([./-][a-z0-9_]+)*")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that equal models give equal bytes
#: Learned attributes of use in fitting alone, as large as the training rows. They are None in a loaded model.
_LEFT_OUT = ("clusterer_", "out_of_fold_")
_LABELS = re.compile(r"object|str|string|bool|u?int(8|16|32|64)|float(32|64)|interval\[(int64|float64), \w+\]")
#: What columns of numbers hold in the made-up rows of the check; none that a logarithm or a root refuses.
_NUMBERS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
#: Relative to the largest prediction: the last bits may differ from machine to machine.
_TOLERANCE = 1e-6


class StandIn:
    """What stands in a file for something that skops does not store, or not safely: its kind and plain contents."""

    def __init__(self, kind: str, *content: Any) -> None:
        self.kind = kind
        self.content = list(content)


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
    model : Naive, QR, CQR or ICQR
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
    if hasattr(model, "to_local"):  # a model of icqr.dask
        model = model.to_local()
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    if checks.public_name(type(model)) not in {f"icqr.regressors.{method}" for method in METHODS}:
        raise ModelFileError(
            f"model must be a fitted {', '.join(METHODS)}, got {name}; the code of a class of your own can't be stored"
        )
    check_is_fitted(model)
    rows, predicted = _checked_rows(model)
    stored = model if with_estimator else _without_estimator(model)
    files = _dumped({"model": _plain(stored, ""), "rows": _plain(rows, "rows"), "predicted": predicted})
    data = _packed(files, _about(model, files), _bytes_of(key))
    if with_estimator:
        _loaded(data, _bytes_of(key), None)
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
        the same for some made-up rows that the file keeps.

    Returns
    -------
    Naive, QR, CQR or ICQR
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
    icqr._file_checks.ModelFileError: not a model of icqr: not a zip archive, or its start is cut off
    """
    return _loaded(Path(path).expanduser().read_bytes(), _bytes_of(key), estimator)


def _loaded(data: bytes, key: bytes | None, estimator: Any) -> Any:
    _check_members(data)
    types = _check_parts(data, key)
    for package in {name.partition(".")[0] for name in types} - {"builtins", "icqr", "numpy", "sklearn"}:
        imported(package, "the file holds a model that needs", package.replace("_", "-"))

    with _refusing("the model"), warnings.catch_warnings():
        # A library tells of every object that another version of it has written; the rows below tell if it matters.
        warnings.filterwarnings("once", message="Trying to unpickle estimator")
        root = _skops().loads(data, trusted=sorted(types))
        model, rows, predicted = (root[name] for name in ("model", "rows", "predicted"))
        if type(model).__name__ not in METHODS:
            raise ModelFileError(f"the file must hold one of {', '.join(METHODS)}, got {type(model).__name__}")
    _check_given(model, estimator)
    with _refusing("the model"):
        model, rows = _real(model, estimator), _real(rows, None)
        checks.check_objects(model)
        _check_groups(model)
    if predicted is not None:
        _check_predictions(model, rows, predicted)
    return model


def _skops() -> Any:
    return imported("skops.io", "storing and reading models needs", "icqr[files]")


def _bytes_of(key: bytes | str | None) -> bytes | None:
    if isinstance(key, str):
        key = key.encode()
    if key is not None and (not isinstance(key, bytes) or not key):
        raise ValueError(f"key must be bytes or text that is not empty, got {type(key).__name__}; None is no signature")
    return key


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn whatever a library says about a part into a refusal that names it."""
    try:
        yield
    except (ModelFileError, ImportError):
        raise
    except Exception as error:  # parsers of other libraries raise anything; all of it means that the part is unsound
        raise ModelFileError(f"{what} can't be read: {type(error).__name__}: {error}") from error


# -- From objects to what skops stores, and back ---------------------------------------------------------------------


def _plain(value: Any, place: str) -> Any:
    """Return a copy of a value in which everything is trusted or a stand-in; refuse what can't be, by its place."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes, bytearray, slice):
        return value
    if kind in (list, tuple):
        return kind(_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    if kind in (dict, Bunch, OrderedDict, defaultdict):
        items = {name: _plain(item, f"{place}[{name!r}]") for name, item in value.items()}
        if all(type(name) is str for name in items):
            return Bunch(**items) if kind is Bunch else items
        return StandIn("dict", _plain(list(items), place), list(items.values()))
    if kind in _STAND_INS:
        return StandIn(*_STAND_INS[kind](value, place))
    if isinstance(value, pd.Index):
        return StandIn(*_plain_index(value, place))
    if isinstance(value, os.PathLike):
        return str(value)
    if kind is np.ndarray and value.dtype == object:
        fresh = np.empty(value.shape, dtype=object)
        fresh.ravel()[:] = [_plain(item, f"{place}[{i}]") for i, item in enumerate(value.ravel())]
        return fresh
    if kind is np.ndarray or f"numpy.{kind.__name__}" in checks.ALLOWED["NdArrayNode"]:
        return value
    if isinstance(value, type | np.dtype):
        return value  # what skops would make of it is checked with everything else
    if isinstance(value, np.random.RandomState | np.random.Generator) and "." in place:
        return None  # of no use after fitting, and the code that restores one trusts what it is given
    for name, function in checks.trusted_functions().items():
        if value is function:
            return StandIn("function", name)
    return _plain_object(value, place)


def _plain_object(value: Any, place: str) -> Any:
    kind = type(value)
    if kind.__module__.startswith("quantile_forest.") and kind.__name__ == "QuantileForest":
        return StandIn("forest", *map(np.asarray, (value.y_train, value.y_train_leaves, value.y_bound_leaves)))
    name = checks.public_name(kind)
    if not name:
        raise ModelFileError(_refusal(kind, place))
    if name in checks.SEALED or name in checks.ALLOWED["LossNode"]:
        if hasattr(value, "get_params"):
            _plain(value.get_params(), place)
        return value
    fresh = object.__new__(kind)
    for attribute, item in (value.__getstate__() or {}).items():
        inner = f"{place}.{attribute}" if place else attribute
        vars(fresh)[attribute] = None if attribute in _LEFT_OUT else _plain(item, inner)
    return fresh


def _refusal(kind: type, place: str) -> str:
    """Say what can't be stored, and what to do about it."""
    message = f"{place} is of type {kind.__module__}.{kind.__qualname__}, which can't be stored without pickle."
    first = re.split(r"[.\[]", place)[0]
    if first in ("estimator", "model_"):
        return (
            f"{message} save(model, path, with_estimator=False) stores everything else, and "
            "load(path, estimator=fitted) takes the fitted model: one with predict_quantiles(X, levels), or "
            "prefit(lower=…, median=…, upper=…, levels=…); for Naive one with predict(X)."
        )
    if place.endswith("clusterer"):
        return f"{message} KMeans and MiniBatchKMeans can: a new row belongs to their nearest centroid."
    if first in ("partition", "partition_"):
        return (
            f"{message} Make the labels of your groups a column of X, at fit as at predict, and use "
            "GroupPartition('that column')."
        )
    path = place.replace(".", "__")
    return f"{message} The fitted model does not need it any more: model.set_params({path}=None) leaves it out."


def _plain_index(index: pd.Index[Any], place: str) -> tuple[Any, ...]:
    """Return column names, categories or group keys, which must be text or numbers, perhaps intervals of numbers."""
    if isinstance(index, pd.MultiIndex):
        levels = [_plain(index.get_level_values(j), place) for j in range(index.nlevels)]
        return "multi-index", levels
    if not _LABELS.fullmatch(str(index.dtype)):  # of pyarrow, nullable, categories: as their values are
        index = pd.Index(index.tolist())
    if not _LABELS.fullmatch(str(index.dtype)):
        raise ModelFileError(
            f"{place} has labels of the type {index.dtype}, which can't be stored without pickle. Text and numbers "
            "can: turn them into text before the model is fitted, for example by astype(str)."
        )
    # How text is kept depends on the version of pandas, and is told by the values.
    dtype = "text" if str(index.dtype) in ("str", "string") else str(index.dtype)
    return "index", dtype, _plain(index.tolist(), place)


def _plain_frame(frame: pd.DataFrame, place: str) -> tuple[Any, ...]:
    columns = [
        frame.iloc[:, j].to_numpy() if dtype.kind in "biuf" else _plain(pd.Index(frame.iloc[:, j]), place)
        for j, dtype in enumerate(frame.dtypes)
    ]
    return "frame", _plain(frame.columns, place), columns


def _plain_partial(value: partial[Any], place: str) -> tuple[Any, ...]:
    function = _plain(value.func, place)
    if value.args or not isinstance(function, StandIn):
        raise ModelFileError(_refusal(partial, place))
    return "function", *function.content, _plain(value.keywords, place)


def _plain_tree(tree: Tree, place: str) -> tuple[Any, ...]:
    state = tree.__getstate__()
    return "tree", int(tree.n_features), state["nodes"], state["values"]


#: What stands in for objects of these types.
_STAND_INS: dict[type, Callable[[Any, str], tuple[Any, ...]]] = {
    Fraction: lambda value, place: ("fraction", value.numerator, value.denominator),
    Tree: _plain_tree,
    partial: _plain_partial,
    pd.DataFrame: _plain_frame,
    pd.Interval: lambda value, place: ("interval", value.left, value.right, value.closed),
    set: lambda value, place: ("set", _plain(sorted(value, key=repr), place)),
}


def _real(value: Any, given: Any) -> Any:
    """Return a value with the real things in place of their stand-ins; objects are changed, not copied."""
    if isinstance(value, StandIn):
        return given if value.kind == "given" else _MAKERS[value.kind](*_real(value.content, given))
    if isinstance(value, list):
        value[:] = [_real(item, given) for item in value]
    elif isinstance(value, tuple):
        return tuple(_real(item, given) for item in value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        value.ravel()[:] = [_real(item, given) for item in value.ravel()]
    elif not isinstance(value, type):
        items = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        for name, item in items.items():
            items[name] = _real(item, given)
    return value


def _real_function(name: str, keywords: Any = None) -> Any:
    function = checks.trusted_functions()[name]
    return function if keywords is None else partial(function, **keywords)


#: What is made of a stand-in of each kind.
_MAKERS: dict[str, Callable[..., Any]] = {
    "dict": lambda names, items: dict(zip(names, items, strict=True)),
    "forest": checks.make_forest,
    "fraction": Fraction,
    "frame": lambda names, columns: pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1),
    "function": _real_function,
    "index": lambda dtype, values: pd.Index(values, dtype=None if dtype == "text" else dtype),
    "interval": pd.Interval,
    "multi-index": pd.MultiIndex.from_arrays,
    "set": set,
    "tree": checks.make_tree,
}


# -- Writing ---------------------------------------------------------------------------------------------------------


def _without_estimator(model: IntervalRegressor) -> IntervalRegressor:
    """Return the model with a stand-in where its estimator was."""
    given = StandIn("given")
    outer, inner = copy.copy(model), copy.copy(model.model_)
    outer.estimator = inner.estimator = given
    outer.model_ = inner
    if hasattr(inner, "models_"):
        inner.models_ = [given]
    else:
        inner.model_ = given
    return outer


def _dumped(root: Any) -> dict[str, bytes]:
    """Return the parts of a file: what skops makes of an object, without what differs from run to run.

    skops names parts and objects by their addresses in memory. Classes get the public names by which we trust them.
    """
    data = io.BytesIO()
    skops = _skops()
    with _refusing("the model"):
        skops.dump(root, data)
    names: dict[bytes, str] = {}  # equal parts, such as the empty ones of many trees, are stored once
    with zipfile.ZipFile(data) as archive:
        schema = _canonical(json.loads(archive.read("schema.json")), archive, names)
    files = {name: content for content, name in names.items()}
    checks.check_schema(schema, {name: len(content) for name, content in files.items()})
    return {"schema.json": json.dumps(schema, separators=(",", ":")).encode(), **files}


def _canonical(node: Any, archive: zipfile.ZipFile, names: dict[bytes, str]) -> Any:
    if isinstance(node, list):
        return [_canonical(item, archive, names) for item in node]
    if not isinstance(node, dict):
        return node
    fresh = {key: _canonical(item, archive, names) for key, item in node.items() if key not in ("__id__", "is_json")}
    if "file" in fresh:
        ending = "npy" if fresh["__loader__"] == "NdArrayNode" else "bin"
        fresh["file"] = names.setdefault(archive.read(fresh["file"]), f"{len(names)}.{ending}")
    if fresh.get("__loader__") in ("ObjectNode", "DictNode"):
        kind = getattr(import_module(fresh["__module__"]), fresh["__class__"])
        public = "sklearn.utils.Bunch" if kind is Bunch else checks.public_name(kind)
        if public:
            fresh["__module__"] = public.rpartition(".")[0]
    return fresh


def _about(model: IntervalRegressor, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what a reader of the file wants to know first. `load` makes nothing from it."""
    modules = set(re.findall(rb'"__module__":"(\w+)', files["schema.json"])) - {b"builtins", b"sklearn"}
    versions = {name: metadata.version(name) for name in ("icqr", "numpy", "pandas", "scikit-learn", "skops")}
    for package in sorted(name.decode() for name in modules):
        versions.setdefault(package, getattr(sys.modules[package], "__version__", "unknown"))
    return {
        "written_by": {"python": platform.python_version(), **versions},
        "summary": {
            "method": type(model).__name__,
            "coverage": float(model.coverage),
            "guarantee": model.calibration_.guarantee,
            "training_rows": int(model.n_train_),
            "calibration_rows": int(model.calibration_.sizes.sum()),
            "groups": int(model.n_groups_),
            "columns": model.n_features_in_ if model.columns_ is None else [str(name) for name in model.columns_],
        },
    }


def _packed(files: Mapping[str, bytes], about: Mapping[str, Any], key: bytes | None) -> bytes:
    """Return the bytes of a file; equal contents give equal bytes."""
    parts = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    manifest = {"format": FORMAT, "version": VERSION, **about, "parts": parts}
    members = {"manifest.json": json.dumps(manifest, ensure_ascii=False, indent=1).encode(), **files}
    if key is not None:
        members["signature"] = _signature(members["manifest.json"], key)
    for name in ("manifest.json", "schema.json"):
        _check_text(members[name], name)
    data = b""
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.create_system = 3  # Unix, wherever it is written
                archive.writestr(info, content, method)
        data = buffer.getvalue()
        if not _is_bomb(sum(map(len, members.values())), len(data)):  # what packs too well would be taken for one
            break
    return data


def _signature(manifest: bytes, key: bytes) -> bytes:
    return hmac.new(key, manifest, hashlib.sha256).hexdigest().encode()


def _is_bomb(unpacked: int, packed: int) -> bool:
    return unpacked > max(ALWAYS_ALLOWED, LARGEST_RATIO * packed)


# -- Reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(data: bytes) -> Iterator[zipfile.ZipFile]:
    """Open a zip; turn what reading a damaged one raises into a refusal."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive
    except ModelFileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OverflowError, ValueError) as error:
        raise ModelFileError(f"the file is damaged: cut off, or overwritten in places ({error})") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of a position before the file's start
            raise
        raise ModelFileError("the file is damaged: its list of parts leads out of it") from error


def _check_members(data: bytes) -> None:
    """Refuse what is no zip, and names and sizes that no model has; nothing is unpacked yet."""
    if data[:1] == b"\x80":
        raise ModelFileError(
            "not a model of icqr but a pickle, which can run any code when it is read; it was not read"
        )
    if data[:4] != b"PK\x03\x04":
        raise ModelFileError("not a model of icqr: not a zip archive, or its start is cut off")
    with _opened(data) as archive:
        members = archive.infolist()
    names = set()
    for info in members:
        name = info.orig_filename  # as it is in the file: `filename` ends at a NUL
        _check_name(name)
        if name in names:
            raise ModelFileError(f"two parts have the name {name}")
        names.add(name)
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ModelFileError(f"{name} is not a plain file but a link or a folder")
        if info.flag_bits & 0x1:
            raise ModelFileError(f"{name} is encrypted; icqr writes no such file")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ModelFileError(f"{name} is packed by method {info.compress_type}; parts may be stored or deflated")
    unpacked = sum(info.file_size for info in members)
    if _is_bomb(unpacked, len(data)):
        raise ModelFileError(
            f"a zip bomb: {len(data)} bytes claim to unpack to {unpacked}, more than {LARGEST_RATIO} times as many"
        )


def _check_name(name: str) -> None:
    if name.lower().endswith(_PICKLES):
        raise ModelFileError(f"the file holds a pickle, {name!r}, which can run any code when it is read; it was not")
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":":
        raise ModelFileError(f"the name of a part leads out of the file: {name!r}")
    if not _NAMES.fullmatch(name):
        raise ModelFileError(f"the name of a part has characters that no part of icqr has: {name!r}")


def _check_parts(data: bytes, key: bytes | None) -> set[str]:
    """Check the signature, then the hash of every part, then what the parts ask skops for: return these types."""
    with _opened(data) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if "manifest.json" not in sizes:
            raise ModelFileError("not a model of icqr: a zip archive without manifest.json")
        text = archive.read("manifest.json")
        _check_signature(text, archive.read("signature") if sizes.pop("signature", None) else None, key)
        parts = _parsed_manifest(text)["parts"]
        del sizes["manifest.json"]
        if not isinstance(parts, dict) or "schema.json" not in sizes:
            raise ModelFileError("manifest.json lists no parts, or the file has no schema.json")
        if parts.keys() != sizes.keys():
            odd = sorted(parts.keys() ^ sizes.keys())
            raise ModelFileError(f"the parts in the file and those its manifest lists differ: {', '.join(odd[:5])}")
        for name, size in sizes.items():
            content = archive.read(name)
            digest = hashlib.sha256(content).hexdigest()
            if parts[name] != {"bytes": size, "sha256": digest} or len(content) != size:
                raise ModelFileError(
                    f"{name} was changed after the file was written: it has {len(content)} bytes and the sha256 "
                    f"{digest}, but the manifest says {str(parts[name])[:200]}"
                )
            if name.endswith(".npy"):
                checks.check_npy(content, name)
        types, needed = checks.check_schema(_parsed(archive.read("schema.json"), "schema.json"), sizes)
    if _is_bomb(needed, len(data)):
        raise ModelFileError(f"a zip bomb: the model would take {needed} bytes from {len(data)}")
    return types


def _check_signature(manifest: bytes, signature: bytes | None, key: bytes | None) -> None:
    if signature is None and key is not None:
        raise ModelFileError(
            "the file is not signed, so the key can't show who wrote it; load(path) without a key reads it, if you "
            "trust where it comes from"
        )
    if signature is not None and key is None:
        raise ModelFileError("the file is signed: give the key that it was saved with, as load(path, key=…)")
    if signature is not None and key is not None and not hmac.compare_digest(signature, _signature(manifest, key)):
        raise ModelFileError(
            "the signature is wrong: the file was saved with another key, or changed by somebody without it"
        )


def _parsed_manifest(text: bytes) -> dict[str, Any]:
    manifest = _parsed(text, "manifest.json")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f'not a model of icqr: manifest.json does not say "format": "{FORMAT}"')
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"the version of the format must be a whole number, 1 or more, got {version!r}")
    if version != VERSION:
        advice = "update icqr" if version > VERSION else "fit the model again, or load it with the icqr that wrote it"
        raise ModelFileError(f"the file has version {version} of the format, and this icqr reads {VERSION}; {advice}")
    if manifest.keys() != {"format", "version", "written_by", "summary", "parts"}:
        raise ModelFileError("manifest.json must have format, version, written_by, summary and parts, and nothing else")
    return manifest


def _check_text(data: bytes, name: str) -> None:
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > MOST_ITEMS:
        raise ModelFileError(
            f"{name} has more than {MOST_ITEMS} entries; models with fewer trees, and columns and groups with fewer "
            "different values, make it smaller"
        )


def _parsed(data: bytes, name: str) -> Any:
    """Read JSON strictly: no NaN, no name twice, not too much and not too deep."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON number")

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("an object has the same name twice")
        return dict(pairs)

    _check_text(data, name)
    try:
        return json.loads(data, parse_constant=refuse, object_pairs_hook=without_doubles)
    except RecursionError as error:
        raise ModelFileError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise ModelFileError(f"{name} is not valid JSON: {error}") from error


def _check_given(model: Any, estimator: Any) -> None:
    if not isinstance(vars(model).get("estimator"), StandIn):
        if estimator is not None:
            raise ValueError("the file holds its fitted model; leave estimator out, as load(path)")
        return
    needed = "predict" if type(model).__name__ == "Naive" else "predict_quantiles"
    if not hasattr(estimator, needed):
        got = "nothing" if estimator is None else f"a {type(estimator).__qualname__}"
        raise ValueError(
            f"the file was saved without its fitted model: give it as load(path, estimator=fitted), with {needed}, "
            f"got {got}. prefit(lower=…, median=…, upper=…, levels=…) makes one from fitted models of each level."
        )


def _check_groups(model: IntervalRegressor) -> None:
    check_is_fitted(model)
    model.get_params(deep=True)  # which raises if one is missing
    numbers = {model.n_groups_, int(model.partition_.n_groups_), len(model.calibration_.scores) - 1}
    if len(numbers) > 1:
        raise ModelFileError(f"the numbers of groups don't fit together: {sorted(numbers)}")


# -- Made-up rows and their predictions ------------------------------------------------------------------------------


def _checked_rows(model: IntervalRegressor) -> tuple[Table | None, FloatArray | None]:
    """Return rows and the intervals that the model gives them, or None if it can't take made-up rows.

    The model that is read must predict the same: so a library whose new version reads its old models otherwise is
    noticed, and another estimator than was fitted.
    """
    categories: dict[Any, pd.Index[Any]] = {}
    for holder in checks.held_by(model):
        if isinstance(holder, Features) and holder.n_columns == model.n_features_in_:
            categories = holder.categories
    names = range(model.n_features_in_) if model.columns_ is None else model.columns_
    columns = []
    for j, name in enumerate(names):
        values = list(categories.get(name, _NUMBERS))
        columns.append([values[(i + j) % len(values)] for i in range(len(_NUMBERS))])
    rows: Table = np.array(columns, dtype=np.float64).T if model.columns_ is None else pd.DataFrame()
    if model.columns_ is not None:
        rows = pd.DataFrame(dict(enumerate(columns))).set_axis(model.columns_, axis=1)
    try:
        return rows, _predicted(model, rows)
    except ModelFileError:  # a pipeline may refuse rows that nobody would give it
        return None, None


def _predicted(model: IntervalRegressor, rows: Any) -> FloatArray:
    """Return each row's group, lower bound, median and upper bound."""
    with _refusing("the model"), warnings.catch_warnings(), parallel_config(backend="sequential"):
        warnings.simplefilter("ignore")  # made-up rows are unlike any that were seen
        table = model.explain(rows)
        return table[["group", "lower", "median", "upper"]].to_numpy(dtype=np.float64)


def _check_predictions(model: IntervalRegressor, rows: Any, stored: Any) -> None:
    """Refuse a model that predicts other values than the file says for the rows that it keeps."""
    found = _predicted(model, rows)
    if not isinstance(stored, np.ndarray) or stored.shape != found.shape or stored.dtype != np.float64:
        raise ModelFileError(
            f"the rows that the file keeps as a check must have predictions of the shape {found.shape}"
        )
    # A row between two groups may fall to either, by the last bits: then only the median must agree.
    compared = np.repeat(found[:, :1] == stored[:, :1], 4, axis=1) | (np.arange(4) == 2)
    scale = np.abs(stored, where=np.isfinite(stored), out=np.zeros_like(stored)).max(initial=0.0)
    close = np.isclose(found, stored, rtol=0, atol=_TOLERANCE * scale, equal_nan=True)
    if not (close | ~compared).all():
        raise ModelFileError(
            "the model predicts other values for the rows that the file keeps as a check than it did when it was "
            "saved: it is another model, or another version of its library reads it otherwise (`written_by` in the "
            "file's manifest names the versions)"
        )
