"""The quantile model and the groups that options ask for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from sklearn.utils import get_tags

from icqr.cli.data import check_column
from icqr.cli.options import Setting
from icqr.cli.wording import need
from icqr.cli.writing import check_destination
from icqr.partition import GroupPartition, KMeansPartition, WholePartition
from icqr.quantiles import ResidualQuantiles


@dataclass(frozen=True)
class _Known:
    """Where a model's class is, what it needs and how that is installed, and its parameters here."""

    module: str
    name: str
    needs: tuple[str, ...]
    install: str
    settings: dict[str, Any] = field(default_factory=dict)


_MODELS = {
    "hist": _Known("sklearn.ensemble", "HistGradientBoostingRegressor", (), "scikit-learn"),
    "lightgbm": _Known("lightgbm", "LGBMRegressor", ("lightgbm",), "lightgbm"),
    "xgboost": _Known("xgboost", "XGBRegressor", ("xgboost",), "xgboost"),
    "catboost": _Known("catboost", "CatBoostRegressor", ("catboost",), "catboost"),
    "forest": _Known("quantile_forest", "RandomForestQuantileRegressor", ("quantile_forest",), "quantile-forest"),
    # Targets come in any scale; the network's own default is the paper's, for y of about 1 to 100.
    "network": _Known("icqr.neural", "QuantileNetwork", ("jax", "optax"), "icqr[neural]", {"scale_y": True}),
}


def make_model(name: str) -> Any:
    """Give the estimator that --model names, unfitted, or say what must be installed for it.

    Examples
    --------
    >>> make_model("hist")
    HistGradientBoostingRegressor()
    """
    known = _MODELS[name]
    for module in known.needs:
        need(module, f"--model {name}", known.install)
    return getattr(importlib.import_module(known.module), known.name)(**known.settings)


def version_of(name: str) -> str:
    """Give the library of a model and its version.

    Examples
    --------
    >>> version_of("hist").split()[0]
    'sklearn'
    """
    library = next(iter(_MODELS[name].needs), "sklearn")
    return f"{library} {importlib.import_module(library).__version__}"


def check_gaps(name: str, estimator: Any, X: pd.DataFrame) -> None:
    """Raise if numbers are missing and the model takes no missing ones."""
    numbers = X.select_dtypes(include=["number"]).dropna(
        axis=1, how="all"
    )  # of an empty column the library makes zeros
    gaps = numbers.isna().sum()
    if gaps.any() and not get_tags(estimator).input_tags.allow_nan:
        column = gaps.index[gaps > 0][0]
        raise ValueError(
            f"--model {name} takes no missing values, and column {column!r} has {gaps[column]:,}; use --model hist, "
            "which does, or fill them in"
        )


def make_partition(setting: Setting, X: pd.DataFrame) -> Any:
    """Give the partition that --groups or --partition asks for."""
    if setting.groups is None:
        return WholePartition() if setting.partition == "whole" else KMeansPartition()
    check_column(X.columns, setting.groups, "--groups")
    return GroupPartition(setting.groups)


def recommended(estimator: Any) -> dict[str, Any]:
    """Give the recommended quantile model and partition, as parameters of `ICQR`.

    Examples
    --------
    >>> recommended(make_model("hist"))
    {'estimator': ResidualQuantiles(estimator=HistGradientBoostingRegressor()), 'partition': 'auto'}
    """
    return {"estimator": ResidualQuantiles(estimator), "partition": "auto"}


def shared_parameters(setting: Setting) -> dict[str, Any]:
    """Give what options say about every method, as parameters of `Naive`, `QR`, `CQR` and `ICQR`."""
    return {
        "coverage": setting.coverage,
        "y_min": setting.y_min,
        "y_max": setting.y_max,
        "random_state": setting.seed,
        "n_jobs": setting.jobs,
    }


def make_parameters(setting: Setting, estimator: Any, X: pd.DataFrame) -> dict[str, Any]:
    """Give all that options say, as parameters of `ICQR`."""
    own = {"estimator": estimator, "partition": make_partition(setting, X)}
    parts = recommended(estimator) if setting.recommended else own
    return {**parts, "small_groups": setting.small_groups, **shared_parameters(setting)}


def need_report(path: str | None) -> None:
    """Say before any work is done why a report can't be written."""
    if path is None:
        return
    check_destination(path, "--report", (".html", ".htm"))
    for module in ("jinja2", "matplotlib"):
        need(module, "the report", "icqr[report]")
