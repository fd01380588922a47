"""icqr fit, predict, recalibrate and inspect: a model and its file."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils import get_tags

from icqr import ICQR, GroupPartition, KMeansPartition, ResidualQuantiles, WholePartition, load, save
from icqr._files import replacing
from icqr._messages import imported
from icqr._predicting import IntervalRegressor
from icqr.auditing.findings import as_json, promise, records
from icqr.cli import notes
from icqr.cli.console import closest, listed_names, note, progress, say, say_json, say_sheet
from icqr.cli.data import UserTable, check_column, check_numbers, read_data, read_rows
from icqr.cli.options import PredictOptions, Setting, Source, TextFormat
from icqr.reporting import summarize
from icqr.reporting.origins import two_stages
from icqr.reporting.report_tables import tables_of

#: Of each name of --model: the library it needs, its class and parameters, and what installs it.
LIBRARIES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "hist": ("sklearn", "sklearn.ensemble.HistGradientBoostingRegressor", {}, "scikit-learn"),
    "lightgbm": ("lightgbm", "lightgbm.LGBMRegressor", {}, "lightgbm"),
    "xgboost": ("xgboost", "xgboost.XGBRegressor", {}, "xgboost"),
    "catboost": ("catboost", "catboost.CatBoostRegressor", {}, "catboost"),
    "forest": ("quantile_forest", "quantile_forest.RandomForestQuantileRegressor", {}, "quantile-forest"),
    # Targets come in any scale; the network's own default is the paper's, for y of about 1 to 100.
    "network": ("jax", "icqr.neural.QuantileNetwork", {"scale_y": True}, "icqr[neural]"),
}
MODEL_ENDINGS = (".icqr",)
#: How the name of a table of intervals may end; that says what it is written as.
TABLE_ENDINGS = (".parquet", ".feather", ".csv", ".csv.gz", ".jsonl")
PREDICTED = ["lower", "median", "upper", "group", "promised"]
_GROUP_COLUMNS = ("Group", "Rule", "Offset", "Promised", "Exception", "Calibration rows")
_MOST_GROUPS = 50  # as many as K-means makes


# -- The commands ----------------------------------------------------------------------------------------


def fit_model(
    data: str, source: Source, text_format: TextFormat, setting: Setting, recommended: bool, out: str
) -> None:
    """Do what `icqr fit` says."""
    check_destination(out, "--out", MODEL_ENDINGS)
    estimator = make_model(setting.model)
    with progress(3) as begin:
        begin("Reading the data")
        described, X, y, remarks = read_rows(data, source, text_format)
        parameters = make_parameters(setting, estimator, X.columns, recommended)
        for text in remarks:
            note(text)
        check_no_gaps(setting.model, estimator, X)
        begin(f"Fitting and calibrating ({setting.model})", own_bar=setting.model == "network")
        model = ICQR(**parameters).fit(X, y)
        begin("Writing the model")
        save(model, out)
    say_fitted(described, model, out)


def predict_rows(model_file: str, data: str, text_format: TextFormat, wanted: PredictOptions) -> None:
    """Do what `icqr predict` says."""
    if wanted.out != "-":
        check_destination(wanted.out, "--out", TABLE_ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        model = load_model(model_file)
        as_text, only = columns_to_read(model)
        table = read_data(data, text_format, as_text=as_text, only=only, keep=wanted.kept)
        X = features_of(model, table, wanted.kept, "--keep")

        begin(f"Predicting {len(X):,} rows")
        explained = model.explain(X, wanted.coverage)
        predicted = chosen_columns(explained, wanted)
        for text in notes.novel_rows(explained["novelty"], int(model.calibration_.sizes.sum())):
            note(text)

        begin("Writing the intervals")
        _write_table(pd.concat([table.kept[wanted.kept], predicted], axis=1), wanted.out)
    if wanted.out != "-":
        say(predicted_words(model, wanted, len(X), int((explained["promised"] == 0).sum())))


def recalibrate_model(
    model_file: str, data: str, text_format: TextFormat, target: str | None, drop_missing: bool, out: str | None
) -> None:
    """Do what `icqr recalibrate` says."""
    destination = model_file if out is None else out
    check_destination(destination, "--out", MODEL_ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        model = load_model(model_file)
        as_text, only = columns_to_read(model)
        wanted = None if only is None else [*only, *filter(None, [target])]
        table = read_data(data, text_format, as_text=as_text, only=wanted)
        target = table.target if target is None else target
        if target is None:
            raise ValueError("--target must be given: the column that holds what happened")
        if only is not None and target in only:
            raise ValueError(
                f"--target {target}: the model was trained on this column, so it can't be what it predicts"
            )
        check_column(table.names, target, "--target")
        rows = check_numbers(table.frame, {"--target": target}, drop_missing)
        X = features_of(model, replace(table, frame=rows), [target], "--target")

        begin(f"Calibrating with {len(X):,} rows")
        model.calibrate(X, rows[target])
        begin("Writing the model")
        save(model, destination)
    _say_model(model, summarize(model))
    say(f"Model: {destination}, calibrated with {len(X):,} rows of {table.name}")


def inspect_model(model_file: str, json: bool) -> None:
    """Do what `icqr inspect` says."""
    model = load_model(model_file)
    categories = {str(name): len(known) for name, known in _categories(model).items()}
    names = map(str, range(model.n_features_in_) if model.columns_ is None else model.columns_)
    kinds = {
        name: f"{categories[name]} categor{'y' if categories[name] == 1 else 'ies'}"
        if name in categories
        else "numbers"
        for name in names
    }
    summary = summarize(model) | {"columns": kinds}
    if json:
        say_json(as_json(summary))
        return
    _say_model(model, summary)
    words = [f"{name!r} ({kind})" for name, kind in kinds.items()]
    say(f"Columns: {', '.join(words[:50])}{f' and {len(words) - 50} more' if len(words) > 50 else ''}.")


# -- What options ask for --------------------------------------------------------------------------------


def make_model(name: str) -> Any:
    """Return the estimator that --model names, unfitted, or say what must be installed for it.

    Examples
    --------
    >>> make_model("hist")
    HistGradientBoostingRegressor()
    """
    library, path, parameters, install = LIBRARIES[name]
    imported(library, f"--model {name} needs", install)
    module, _, class_name = path.rpartition(".")
    return getattr(importlib.import_module(module), class_name)(**parameters)


def make_partition(setting: Setting, columns: Iterable[Any]) -> Any:
    """Return the partition that --groups or --partition asks for."""
    if setting.groups is None:
        return WholePartition() if setting.partition == "whole" else KMeansPartition()
    check_column(columns, setting.groups, "--groups")
    return GroupPartition(setting.groups)


def shared_parameters(setting: Setting) -> dict[str, Any]:
    """Return what options say about every method, as parameters of `Naive`, `QR`, `CQR` and `ICQR`."""
    return {
        "coverage": setting.coverage,
        "y_min": setting.y_min,
        "y_max": setting.y_max,
        "random_state": setting.seed,
        "n_jobs": setting.jobs,
    }


def make_parameters(setting: Setting, estimator: Any, columns: Iterable[Any], recommended: bool) -> dict[str, Any]:
    """Return all that options say, as parameters of `ICQR`."""
    if recommended:
        parts = {"estimator": ResidualQuantiles(estimator), "partition": "auto"}
    else:
        parts = {"estimator": estimator, "partition": make_partition(setting, columns)}
    return {**parts, "small_groups": setting.small_groups, **shared_parameters(setting)}


def check_no_gaps(name: str, estimator: Any, X: pd.DataFrame) -> None:
    """Raise if numbers are missing and the model takes no missing ones."""
    # Of a column without any value the library makes zeros.
    gaps = X.select_dtypes(include=["number"]).dropna(axis=1, how="all").isna().sum()
    if gaps.any() and not get_tags(estimator).input_tags.allow_nan:
        column = gaps.index[gaps > 0][0]
        raise ValueError(
            f"--model {name} takes no missing values, and column {column!r} has {gaps[column]:,}; use --model hist, "
            "which does, or fill them in"
        )


def check_destination(path: str, option: str, endings: Sequence[str]) -> None:
    """Say before any work is done why a file can't be written there.

    Examples
    --------
    >>> check_destination("intervals.xls", "--out", [".csv", ".parquet"])
    Traceback (most recent call last):
    ...
    ValueError: --out: the file's name must end in .csv or .parquet, got 'intervals.xls'
    """
    file = Path(path).expanduser()
    if not path.lower().endswith(tuple(endings)):
        allowed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise ValueError(f"{option}: the file's name must end in {allowed}, got {path!r}")
    if file.is_dir():
        raise ValueError(f"{option}: {path} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise ValueError(f"{option}: there is no folder {str(file.parent)!r}; make it first")
    if not os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ValueError(f"{option}: nothing may be written in the folder {str(file.parent)!r}; give another one")


def _write_table(frame: pd.DataFrame, path: str) -> None:
    """Write a table in the format that the end of its name says; to "-" as CSV on standard output."""
    if path == "-":
        frame.to_csv(sys.stdout, index=False)
        return
    ending = Path(path).suffix.lower()
    with replacing(path) as part:
        if ending == ".parquet":
            frame.to_parquet(part, index=False)
        elif ending == ".feather":
            frame.to_feather(part)
        elif ending == ".jsonl":
            part.write_text("".join(f"{as_json(row)}\n" for row in records(frame)), encoding="utf-8")
        else:
            frame.to_csv(part, index=False, compression="gzip" if ending == ".gz" else None)


# -- A model and the columns of a table ------------------------------------------------------------------


def load_model(model_file: str) -> IntervalRegressor:
    """Load a model; an error names its file."""
    try:
        model: IntervalRegressor = load(model_file)
    except ValueError as error:
        raise ValueError(f"{model_file}: {error}") from error
    return model


def _categories(model: IntervalRegressor) -> dict[Any, list[Any]]:
    """Return the categories of the columns that were text in training; of a model with its own pipeline, nothing."""
    residual = two_stages(model)
    known: dict[Any, list[Any]] = {}
    for part in [model.model_] if residual is None else residual.medians_:  # a fold may lack a category
        features = part.encoder_.features
        for name, values in {} if features is None else features.categories.items():
            known[name] = list(dict.fromkeys([*known.get(name, []), *values]))
    return known


def columns_to_read(model: IntervalRegressor) -> tuple[list[str], list[str] | None]:
    """Return the columns that a model needs as text, and all that it needs (None: it knows no names)."""
    as_text = [
        str(name) for name, known in _categories(model).items() if all(isinstance(value, str) for value in known)
    ]
    return as_text, None if model.columns_ is None else [str(name) for name in model.columns_]


def features_of(model: IntervalRegressor, table: UserTable, used: Sequence[str], option: str) -> pd.DataFrame:
    """Return the columns that the model was trained on, with notes; `option` names those `used` in another way."""
    for name in used:
        check_column(table.names, name, option)
    for text in table.notes:
        note(text)
    wanted = columns_to_read(model)[1] or table.names
    others = [name for name in table.names if name not in wanted and name not in used]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        near = closest(missing[0], others)
        hint = "" if near is None else f"; is its column {near!r} meant to be {missing[0]!r}?"
        raise ValueError(f"{table.name} lacks columns that the model was trained on: {listed_names(missing)}{hint}")
    if others:
        note(f"columns that the model does not use: {listed_names(others)}")
    X = table.frame[wanted]
    for text in notes.new_categories(_categories(model), X):
        note(text)
    return X


def chosen_columns(explained: Any, wanted: PredictOptions) -> Any:
    """Return the columns of `explain` to write, or say why columns of the data can't be kept beside them."""
    predicted = explained if wanted.explain else explained[PREDICTED]
    twice = [name for name in wanted.kept if name in predicted.columns or wanted.kept.count(name) > 1]
    if twice:
        raise ValueError(f"--keep: there would be two columns {twice[0]!r}; rename yours, or leave it out")
    return predicted


# -- Words -----------------------------------------------------------------------------------------------


def predicted_words(model: IntervalRegressor, wanted: PredictOptions, n_rows: int, without: int) -> str:
    """Return how many intervals were written where, and for how many of them (`without`) nothing is promised."""
    words = f"{promise(model.coverage if wanted.coverage is None else wanted.coverage)} promised"
    if without:
        words = "nothing promised" if without == n_rows else f"{words} for {n_rows - without:,} of them"
    return f"{n_rows:,} interval{'' if n_rows == 1 else 's'}, {words}: {wanted.out}"


def say_fitted(described: str, model: IntervalRegressor, out: str) -> None:
    """Print what a model was fitted on, what it promises, and where it is."""
    say(f"Data: {described}.")
    _say_model(model, summarize(model))
    say(f"Model: {out} ({Path(out).stat().st_size / 1000:,.0f} kB)")


def _say_model(model: IntervalRegressor, summary: dict[str, Any]) -> None:
    (about,) = summary["computed"]["models"]
    rows = [f"{about[name]:,} {name}" for name in ("training rows", "calibration rows") if name in about]
    groups = "1 group" if about["groups"] == 1 else f"{about['groups']} groups"
    say(f"{about['method']}: {promise(summary['promised'])} promised, {', '.join(rows)}, {groups}.", "bold")
    say(f"Quantile model: {about['model']}.")
    say(f"What is promised: {about['guarantee']}")
    if "exception" in about:
        say(about["exception"])
    for choice in summary.get("selection", []):
        say(f"Choice of groups: {choice['sentence']}")
    say()
    if "groups" in summary:
        say_sheet(tables_of(summary)["groups"].select(_GROUP_COLUMNS), most=_MOST_GROUPS)
    else:
        say(f"In all rows both bounds are moved outwards by {model.groups_['offset_lower'][0]:.4g}.")
