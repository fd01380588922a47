"""icqr fit, predict, recalibrate and inspect: a model and its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from icqr._predicting import IntervalRegressor
from icqr.auditing.findings import as_json, promise
from icqr.cli.building import check_gaps, make_model, make_parameters
from icqr.cli.console import note, progress, say, say_json, say_table
from icqr.cli.data import check_column, check_numbers, read_data, read_rows
from icqr.cli.options import Setting, Source, Wanted
from icqr.cli.reading import Table, Wish
from icqr.cli.wording import closest, listed_names
from icqr.cli.writing import ENDINGS, check_destination, write_table
from icqr.persistence import ModelFileError, load, save
from icqr.regressors import ICQR
from icqr.reporting import summarize
from icqr.reporting.origins import two_stages
from icqr.reporting.report_tables import tables_of

MODEL_ENDINGS = (".icqr",)
_GROUP_COLUMNS = ("Group", "Rule", "Offset", "Promised", "Exception", "Calibration rows")
_MOST_GROUPS = 50  # as many as K-means makes
#: Of rows like the calibration rows, this share has a novelty of no more: it is a p-value.
_NOVEL = 0.05
PREDICTED = ["lower", "median", "upper", "group", "promised"]


def fit_model(source: Source, setting: Setting, out: str) -> None:
    """Do what `icqr fit` says."""
    check_destination(out, "--out", MODEL_ENDINGS)
    estimator = make_model(setting.model)
    with progress(3) as begin:
        begin("Reading the data")
        described, X, y = read_rows(source)
        parameters = make_parameters(setting, estimator, X)
        check_gaps(setting.model, estimator, X)
        begin(f"Fitting and calibrating ({setting.model})", own_bar=setting.model == "network")
        model = ICQR(**parameters).fit(X, y)
        begin("Writing the model")
        save(model, out)
    say_fitted(described, model, out)


def say_fitted(described: str, model: IntervalRegressor, out: str) -> None:
    """Print what a model was fitted on, what it promises, and where it is."""
    say(f"Data: {described}.")
    say_model(model, summarize(model))
    say(f"Model: {out} ({Path(out).stat().st_size / 1000:,.0f} kB)")


def predict_rows(model_file: str, data: str, out: str, wanted: Wanted, encoding: str | None) -> None:
    """Do what `icqr predict` says."""
    if out != "-":
        check_destination(out, "--out", ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        model = load_model(model_file)
        table = read_data(data, encoding, replace(wish_of(model), keep=wanted.keep))
        check_kept(wanted, table.names)
        X = columns_of(model, table, wanted.keep)
        note_new_categories(model, X)
        begin(f"Predicting {len(X):,} rows")
        explained = model.explain(X, wanted.coverage)
        predicted = wanted_columns(explained, wanted)
        _note_novel_rows(explained["novelty"], int(model.calibration_.sizes.sum()))
        begin("Writing the intervals")
        write_table(pd.concat([table.kept[wanted.keep], predicted], axis=1), out)
    if out != "-":
        say(predicted_words(model, len(X), wanted, out, int((explained["promised"] == 0).sum())))


def load_model(model_file: str) -> IntervalRegressor:
    """Load a model; an error names its file."""
    try:
        model: IntervalRegressor = load(model_file)
    except ModelFileError as error:
        raise ModelFileError(f"{model_file}: {error}") from error
    return model


def wish_of(model: IntervalRegressor) -> Wish:
    """Say what a model needs of the data's columns."""
    return Wish(_text_columns(model), _names(model))


def check_kept(wanted: Wanted, names: Iterable[str]) -> None:
    """Raise if the data lack a column that is to be copied."""
    for name in wanted.keep:
        check_column(names, name, "--keep")


def wanted_columns(explained: Any, wanted: Wanted) -> Any:
    """Give the columns of `explain` that are wanted, or say why columns of the data can't be kept beside them."""
    predicted = explained if wanted.explain else explained[PREDICTED]
    twice = [name for name in wanted.keep if name in predicted.columns or wanted.keep.count(name) > 1]
    if twice:
        raise ValueError(f"--keep: there would be two columns {twice[0]!r}; rename yours, or leave it out")
    return predicted


def predicted_words(model: IntervalRegressor, n_rows: int, wanted: Wanted, out: str, without: int) -> str:
    """Say how many intervals were written where, and for how many of them nothing is promised."""
    words = f"{promise(model.coverage if wanted.coverage is None else wanted.coverage)} promised"
    if without:
        words = "nothing promised" if without == n_rows else f"{words} for {n_rows - without:,} of them"
    return f"{n_rows:,} interval{'' if n_rows == 1 else 's'}, {words}: {out}"


def recalibrate_model(model_file: str, source: Source, out: str | None) -> None:
    """Do what `icqr recalibrate` says."""
    destination = model_file if out is None else out
    check_destination(destination, "--out", MODEL_ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        model = load_model(model_file)
        wish = wish_of(model)
        if wish.only is not None and source.target is not None:
            wish = replace(wish, only=[*wish.only, source.target])
        table = read_data(str(source.data), source.encoding, wish)
        target = table.target if source.target is None else source.target
        if target is None:
            raise ValueError("--target must be given: the column that holds what happened")
        check_column(table.names, target, "--target")
        if target in (_names(model) or ()):
            raise ValueError(
                f"--target {target}: the model was trained on this column, so it can't be what it predicts"
            )
        rows = check_numbers(table.frame, [target], ["--target"], source.drop_missing)
        X = columns_of(model, replace(table, frame=rows), [target])
        note_new_categories(model, X)
        begin(f"Calibrating with {len(X):,} rows")
        model.calibrate(X, rows[target])
        begin("Writing the model")
        save(model, destination)
    say_model(model, summarize(model))
    say(f"Model: {destination}, calibrated with {len(X):,} rows of {table.name}")


def inspect_model(model_file: str, json: bool) -> None:
    """Do what `icqr inspect` says."""
    model = load_model(model_file)
    summary = summarize(model) | {"columns": _kinds(model)}
    if json:
        say_json(as_json(summary))
        return
    say_model(model, summary)
    kinds = [f"{name!r} ({kind})" for name, kind in summary["columns"].items()]
    say(f"Columns: {', '.join(kinds[:50])}{f' and {len(kinds) - 50} more' if len(kinds) > 50 else ''}.")


# -- Columns ---------------------------------------------------------------------------------------------


def _categories(model: IntervalRegressor) -> dict[Any, Any]:
    """Give the categories of the columns that were text in training; of a model with its own pipeline, nothing."""
    residual = two_stages(model)
    models = [model.model_] if residual is None else residual.medians_  # a fold may lack a category
    found: dict[Any, Any] = {}
    for one in models:
        features = one.encoder_.features
        for name, known in {} if features is None else features.categories.items():
            found[name] = list(dict.fromkeys([*found.get(name, []), *known]))
    return found


def _text_columns(model: IntervalRegressor) -> list[str]:
    """Give the columns that held text in training."""
    found = _categories(model).items()
    return [str(name) for name, known in found if all(isinstance(value, str) for value in known)]


def _kinds(model: IntervalRegressor) -> dict[str, str]:
    categories = _categories(model)
    names = range(model.n_features_in_) if model.columns_ is None else model.columns_
    return {str(name): _counted(categories[name]) if name in categories else "numbers" for name in names}


def _counted(categories: Sized) -> str:
    return f"{len(categories)} categor{'y' if len(categories) == 1 else 'ies'}"


def _names(model: IntervalRegressor) -> list[str] | None:
    """Give the names of the columns that the model was trained on, if it knows them."""
    return None if model.columns_ is None else [str(name) for name in model.columns_]


def note_new_categories(model: IntervalRegressor, X: pd.DataFrame) -> None:
    """Say which columns hold values that the model does not know: their rows may be unlike the calibration rows."""
    for name, known in _categories(model).items():
        values = X[str(name)].dropna()
        new = values[~values.isin(known)]
        if len(new):
            note(
                f"column {str(name)!r}: {len(new):,} of {len(X):,} values are not among the categories that the model "
                f"knows ({listed_names(map(str, new.unique()[:3]))}); they count as missing"
            )


def _note_novel_rows(novelty: pd.Series[Any], n_calibration: int) -> None:
    """Say if more rows are far from their group's centre than chance, four standard errors of it, explains."""
    n, found = len(novelty), int((novelty <= _NOVEL).sum())
    error = math.sqrt(_NOVEL * (1 - _NOVEL) * (1 / n + 1 / max(n_calibration, 1)))
    if found > (_NOVEL + 4 * error) * n:
        note(
            f"{found:,} of {n:,} rows are unlike those that the model was calibrated with (novelty {_NOVEL:g} or less, "
            f"see --explain; {_NOVEL:.0%} of them would be by chance); what is promised is for rows like those"
        )


def columns_of(model: IntervalRegressor, table: Table, used: list[str]) -> pd.DataFrame:
    """Give the columns that the model was trained on; say which are left out, those `used` otherwise excepted."""
    for text in table.notes:
        note(text)
    known = _names(model)
    wanted = table.names if known is None else known
    others = [name for name in table.names if name not in wanted and name not in used]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        near = closest(missing[0], others)
        hint = "" if near is None else f"; is its column {near!r} meant to be {missing[0]!r}?"
        raise ValueError(f"{table.name} lacks columns that the model was trained on: {listed_names(missing)}{hint}")
    if others:
        note(f"columns that the model does not use: {listed_names(others)}")
    return table.frame[wanted]


# -- Words -----------------------------------------------------------------------------------------------


def say_model(model: IntervalRegressor, summary: dict[str, Any]) -> None:
    """Print what a model promises, and its groups."""
    (about,) = summary["computed"]["models"]
    rows = [f"{about[name]:,} {name}" for name in ("training rows", "calibration rows") if name in about]
    groups = "1 group" if about["groups"] == 1 else f"{about['groups']} groups"
    say(f"{about['method']}: {promise(summary['promised'])} promised, {', '.join(rows)}, {groups}.", "bold")
    say(f"Quantile model: {about['model']}.")
    say(f"What is promised: {about['guarantee']}")
    if "exception" in about:
        say(about["exception"])
    for one in summary.get("selection", []):
        say(f"Choice of groups: {one['sentence']}")
    say()
    if "groups" in summary:
        say_table(tables_of(summary)["groups"].select(_GROUP_COLUMNS), most=_MOST_GROUPS)
    else:
        say(f"In all rows both bounds are moved outwards by {model.groups_['offset_lower'][0]:.4g}.")
