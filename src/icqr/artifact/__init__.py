"""Models that last: `save` and `load` without pickle. Version 1 of the format is written down in docs/artifact.md."""

from __future__ import annotations

import io
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from sklearn.utils.validation import check_is_fitted

from icqr._files import replacing
from icqr._libraries import core_of
from icqr._predicting import IntervalRegressor
from icqr.artifact.checking import known_features
from icqr.artifact.container import ArtifactError, pack, read
from icqr.artifact.methods import METHODS, restore_method, store_method
from icqr.artifact.records import Parts, Record, Unread
from icqr.artifact.values import encode

__all__ = ["ArtifactError", "load", "save"]


def save(model: IntervalRegressor, path: str | os.PathLike[str], *, with_estimator: bool = True) -> None:
    """Store a fitted model in a file that can be kept: `load` reads it without running code from it.

    The file is read back before it takes the place of an older one; after an error, or on a full disk, that one is as
    it was.

    Parameters
    ----------
    model : Naive, QR, CQR or ICQR
        Fitted. Its quantile model may be of scikit-learn, LightGBM, XGBoost, CatBoost or quantile-forest, a
        QuantileNetwork, these in pipelines and target transformers, or `prefit`. HistGradientBoostingRegressor, the
        default, needs nothing else; other models of scikit-learn need skops: ``pip install "icqr[artifact]"``.
    path : path
        The file, by custom ``….icqr``.
    with_estimator : bool, default=True
        False leaves the fitted quantile model out, for one whose type can't be stored; it is then given to `load`.

    Raises
    ------
    ArtifactError
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
    ...     save(model, f"{folder}/model.icqr")
    ...     again = load(f"{folder}/model.icqr")
    >>> bool((again.predict_interval(X) == model.predict_interval(X)).all())
    True
    """
    data = _to_bytes(model, with_estimator)
    if with_estimator:
        _from_stream(io.BytesIO(data), None)
    with replacing(path) as part:
        part.write_bytes(data)


def load(path: str | os.PathLike[str], *, estimator: Any = None) -> Any:
    """Read a model that `save` stored. No code in the file is run, whoever wrote it.

    Parameters
    ----------
    path : path
        The file.
    estimator : fitted model, optional
        Only for a file that was saved without it: an object with ``predict_quantiles(X, levels)``, as `prefit` gives
        it; for `Naive` one with ``predict(X)``. It gets rows in the form that the saved one got them, and must predict
        the same for some made-up rows that the file keeps.

    Returns
    -------
    Naive, QR, CQR or ICQR
        Fitted: it predicts what the saved one predicted, to the bit, and can be calibrated again.

    Raises
    ------
    ArtifactError
        (A ValueError.) The file is no model, damaged, changed, of a newer version, or unsafe; the message says which.

    Examples
    --------
    See `save`.

    >>> import tempfile
    >>> from icqr import load
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     load(file.name)
    Traceback (most recent call last):
    icqr.artifact.container.ArtifactError: not a model of icqr: not a zip archive, or its start is cut off
    """
    with Path(path).expanduser().open("rb") as stream:
        return _from_stream(stream, estimator)


def _to_bytes(model: Any, with_estimator: bool) -> bytes:
    if hasattr(model, "to_local"):  # a model of icqr.dask
        model = model.to_local()
    if type(model) not in METHODS.values():
        raise ArtifactError(
            f"model must be a fitted {', '.join(METHODS)}, got {type(model).__module__}.{type(model).__qualname__}; "
            "the code of a class of your own can't be stored"
        )
    check_is_fitted(model)
    parts = Parts()
    record = store_method(model, parts, with_estimator)
    return pack({"written_by": _versions(model), "summary": _summary(model), **record}, parts.parts)


def _from_stream(stream: IO[bytes], estimator: Any) -> IntervalRegressor:
    manifest, parts = read(stream)
    # For people and programs that look into the file: the model is not made from these.
    for name in ("written_by", "summary"):
        manifest.pop(name, None)
    unread = Unread(parts)
    try:
        model = restore_method(Record(manifest, "manifest", unread), estimator)
    except RecursionError as error:
        raise ArtifactError("the manifest is nested too deeply") from error
    unread.check_all_used()
    return model


def _versions(model: IntervalRegressor) -> dict[str, str]:
    """Give the versions of what made the model."""
    package = type(core_of(model._inner())[1]).__module__.partition(".")[0]
    own = getattr(sys.modules[package], "__version__", "unknown")
    core = {name: metadata.version(name) for name in ("icqr", "numpy", "pandas", "scikit-learn")}
    return {"python": platform.python_version(), **core, **({} if package == "sklearn" else {package: own})}


def _summary(model: IntervalRegressor) -> dict[str, Any]:
    """Give what a reader of the file wants to know first."""
    known = known_features(model)
    names = range(model.n_features_in_) if model.columns_ is None else list(model.columns_)
    kinds = "number" if known is not None or model.columns_ is None else "as the model takes it"
    return {
        "method": type(model).__name__,
        "coverage": float(model.coverage),
        "guarantee": model.calibration_.guarantee,
        "training_rows": int(model.n_train_),
        "calibration_rows": int(model.calibration_.sizes.sum()),
        "groups": model.n_groups_,
        "columns": [
            {"name": encode(name, "columns"), "type": "category" if known and name in known.categories else kinds}
            for name in names
        ],
    }
