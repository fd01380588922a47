"""A model of the command: what options make of it, the columns it reads, its files, and what is said about it."""

from __future__ import annotations

import importlib
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils import get_tags

from icqr import CQR, ICQR, QR, AutoICQR, GroupPartition, KMeansPartition, Naive, load
from icqr._files import replacing
from icqr._messages import imported
from icqr._predicting import EXPLAINED, IntervalRegressor, encoders_of
from icqr.auditing.findings import as_json, records
from icqr.calibration import Certificate
from icqr.cli.console import listed_names, note, say, say_sheet
from icqr.cli.options import CALIBRATIONS, MethodName, ModelName, Settings, TextFormat
from icqr.cli.reading import UserTable, check_column, check_is_numbers, check_numbers, holds_text, read_data
from icqr.reporting.origins import model_facts, promised_words, selections
from icqr.reporting.report_tables import tables_of

METHODS: dict[MethodName, type[AutoICQR | ICQR | CQR | QR | Naive]] = {
    "auto": AutoICQR,
    "icqr": ICQR,
    "cqr": CQR,
    "qr": QR,
    "naive": Naive,
}
#: Of each name of --model: the library it needs, its class and what installs it.
LIBRARIES: dict[ModelName, tuple[str, str, str]] = {
    "hist": ("sklearn", "sklearn.ensemble.HistGradientBoostingRegressor", "scikit-learn"),
    "lightgbm": ("lightgbm", "lightgbm.LGBMRegressor", "lightgbm"),
    "xgboost": ("xgboost", "xgboost.XGBRegressor", "xgboost"),
    "catboost": ("catboost", "catboost.CatBoostRegressor", "catboost"),
    "forest": ("quantile_forest", "quantile_forest.RandomForestQuantileRegressor", "quantile-forest"),
    "network": ("jax", "icqr.neural.QuantileNetwork", "icqr[neural]"),
}
#: How the name of a table of intervals may end; that says what it is written as.
TABLE_ENDINGS = (".parquet", ".feather", ".csv", ".csv.gz", ".jsonl")
PREDICTED = ["lower", "median", "upper", "group", "promised"]
_AT_ANY_COVERAGE = ("group", "n", "novelty", "median", "crossed")
#: The columns of --quantiles, --above and --below.
_PROBABILITY = re.compile(r"(quantile|above|below)_-?[\d.]+(e[+-]\d+)?")
#: Of rows like the calibration rows, this share has a novelty of no more: it is a p-value.
_NOVEL = 0.05
_MOST_GROUPS = 50  # as many as K-means makes
_GROUP_COLUMNS = (
    *("Group", "Rule", "Offset", "Lower offset", "Upper offset", "Promised", "Exception", "Calibration rows"),
)


# -- What options ask for --------------------------------------------------------------------------------


def make_model(name: ModelName) -> Any:
    """Return the estimator that --model names, unfitted, or say what must be installed for it."""
    library, path, install = LIBRARIES[name]
    imported(library, f"--model {name} needs", install)
    module, _, class_name = path.rpartition(".")
    return getattr(importlib.import_module(module), class_name)()


def make_method(
    name: MethodName, estimator: Any, settings: Settings, calibration: str | None = None
) -> IntervalRegressor:
    """Return a method, unfitted; of the settings it gets those that it has."""
    method = METHODS[name]
    given: dict[str, Any] = {
        "coverage": settings.coverage,
        "effort": settings.effort,
        "partition": None if settings.groups is None else GroupPartition(settings.groups),
        "small_groups": settings.small_groups,
        "calibration": calibration if calibration in CALIBRATIONS else None,
        "y_min": settings.y_min,
        "y_max": settings.y_max,
        "random_state": settings.seed,
        "n_jobs": settings.jobs,
    }
    known = signature(method).parameters
    return method(estimator, **{key: value for key, value in given.items() if key in known and value is not None})


def check_features(X: pd.DataFrame, settings: Settings, estimator: Any) -> None:
    """Raise if the column of the groups is not there, or if numbers are missing that the model needs."""
    if settings.groups is not None:
        check_column(X.columns, settings.groups, "--groups")
    # Of a column without any value the library makes zeros.
    gaps = X.select_dtypes(include=["number", "datetime"]).dropna(axis=1, how="all").isna().sum()
    # The forest's tag is scikit-learn's, and wrong: it takes no missing values.
    takes_gaps = settings.model != "forest" and get_tags(estimator).input_tags.allow_nan
    if gaps.any() and not takes_gaps:
        column = gaps.index[gaps > 0][0]
        raise ValueError(
            f"--model {settings.model} takes no missing values, and column {column!r} has {gaps[column]:,}; use "
            "--model hist, which does, or fill them in"
        )


# -- Files -----------------------------------------------------------------------------------------------


def check_destination(path: str, option: str, endings: Sequence[str]) -> None:
    """Say before any work is done why a file can't be written there."""
    file = Path(path).expanduser()
    if not path.lower().endswith(tuple(endings)):
        allowed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise ValueError(f"{option}: the file's name must end in {allowed}, got {path!r}")
    if file.is_dir():
        raise ValueError(f"{option}: {path} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise ValueError(f"{option}: there is no folder {str(file.parent)!r}; make it first")
    if not os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ValueError(f"{option}: you may not write in the folder {str(file.parent)!r}; give another one")


def write_table(frame: pd.DataFrame, path: str) -> None:
    """Write a table in the format that the end of the name says; to "-" as CSV on standard output."""
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


def load_model(model_file: str) -> IntervalRegressor:
    """Load a model; an error names its file."""
    try:
        model: IntervalRegressor = load(model_file)
    except ValueError as error:
        raise ValueError(f"{model_file}: {error}") from error
    return model


# -- A model and the columns of a table ------------------------------------------------------------------


def categories_of(model: IntervalRegressor) -> dict[str, list[Any]]:
    """Return the categories of the columns that were text in training; of a model with its own pipeline, nothing."""
    categories: dict[str, dict[Any, None]] = {}  # the models of several folds may each lack some
    for encoder in encoders_of(model):
        for name, values in encoder.features.categories.items() if encoder.features is not None else ():
            categories.setdefault(str(name), {}).update(dict.fromkeys(values))
    return {name: list(values) for name, values in categories.items()}


def kinds_of(model: IntervalRegressor) -> dict[str, str]:
    """Return what each column holds, in words; of categories how many, and how the model gets them."""
    names = range(model.n_features_in_) if model.columns_ is None else model.columns_
    kinds = dict.fromkeys(map(str, names), "numbers")
    for name, n, how, why in model.categories_.itertuples(index=False):
        kinds[str(name)] = f"{n:,} categor{'y' if n == 1 else 'ies'}{f', as the {how}' if why else ''}"
    features = [encoder.features for encoder in encoders_of(model) if encoder.features is not None]
    return kinds | {str(name): "dates" for known in features for name in known.dates}


def note_many_categories(model: IntervalRegressor) -> None:
    """Tell the user which columns have more categories than the estimator takes, and what becomes of them."""
    for name, n, how, why in model.categories_.itertuples(index=False):
        if why:
            note(f"column {str(name)!r}: {n:,} categories, {why}; none is dropped: each is encoded by the {how}")


def columns_to_read(model: IntervalRegressor) -> tuple[list[str], list[str] | None]:
    """Return the columns that a model needs as text, and all that it needs (None: it knows no names)."""
    categories = categories_of(model).items()
    as_text = [name for name, known in categories if all(isinstance(value, str) for value in known)]
    return as_text, None if model.columns_ is None else [str(name) for name in model.columns_]


def features_of(model: IntervalRegressor, table: UserTable, used: Sequence[str], option: str) -> pd.DataFrame:
    """Return the columns that the model was trained on, with notes; `option` names those `used` in another way."""
    for name in used:
        check_column(table.names, name, option)
    features = table.names if model.columns_ is None else [str(name) for name in model.columns_]
    for name in features:
        check_column(table.names, name, f"{table.name} lacks columns that the model was trained on")
    X = table.frame[features]

    note(*table.notes)
    # The library refuses text among numbers or dates, too, but doesn't know the options that read it.
    if (known := encoders_of(model)[0].features) is not None:
        for name in X.columns.difference([*known.categories, *known.dates, *known.empty], sort=False):
            check_is_numbers(table, name, f"column {name!r}: the model was trained on numbers")
        for name in known.dates:
            if len(X[str(name)].dropna()) and holds_text(X[str(name)]):  # Dask's example has no rows
                raise ValueError(f"column {name!r}: the model was trained on dates, but here the column holds text")

    others = [name for name in table.names if name not in features and name not in used]
    if others:
        note(f"columns that the model does not use: {listed_names(others)}")
    for name, categories in categories_of(model).items():
        values = X[name].dropna()
        new = values[~values.isin(categories)]
        if len(new):
            note(
                f"column {name!r}: {len(new):,} of {len(X):,} values are categories that no training row had "
                f"({listed_names(new.unique()[:3])}); they count as missing"
            )
    return X


def read_labelled(
    model: IntervalRegressor,
    data: str,
    target: str | None,
    text_format: TextFormat,
    drop_missing: bool,
    name_column: str | None = None,
) -> tuple[UserTable, pd.DataFrame, pd.Series[Any], pd.Series[Any] | None]:
    """Return a table that was read, the columns that the model was trained on, what happened, and the rows' names."""
    as_text, only = columns_to_read(model)
    wanted = None if only is None else [*only, *filter(None, [target])]
    kept = [] if name_column is None else [name_column]
    table = read_data(data, text_format, as_text=as_text, only=wanted, keep=kept)
    target = table.target if target is None else target
    if target is None:
        raise ValueError("--target must be given: the column of the true values")
    if only is not None and target in only:
        raise ValueError(f"--target {target}: the model was trained on this column, so it can't be what it predicts")
    check_column(table.names, target, "--target")
    for name in kept:
        check_column(table.names, name, "--id")
    is_known = table.frame[target].notna()
    table.frame = check_numbers(table, {"--target": target}, drop_missing)
    X = features_of(model, table, [target, *kept], "--target")
    return table, X, table.frame[target], None if name_column is None else table.kept.loc[is_known, name_column]


def note_groups(model: IntervalRegressor) -> None:
    """Tell the user if K-means stopped before its clusters explained what they should, and what else there is."""
    partition = getattr(model, "partition_", None)
    if not isinstance(partition, KMeansPartition) or partition.explained_variance_ > partition.explained_variance:
        return
    explained, wanted = 100 * partition.explained_variance_, 100 * partition.explained_variance
    note(
        f"K-means stopped at {partition.k_} clusters, which explain {explained:.0f} % of the variance and not "
        f"{wanted:.0f} %. What is promised holds all the same; --method auto also tries other groups, and --groups COL "
        "takes your own"
    )


def note_novelty(novelty: pd.Series[Any], n_calibration: int) -> None:
    """Tell the user if more rows are far from their group's centre than chance (four standard errors) explains."""
    n, novel = len(novelty), int((novelty <= _NOVEL).sum())
    error = math.sqrt(_NOVEL * (1 - _NOVEL) * (1 / n + 1 / max(n_calibration, 1)))
    if novel > (_NOVEL + 4 * error) * n:
        note(
            f"{novel:,} of {n:,} rows are unlike those that the model was calibrated with (novelty {_NOVEL:g} or less, "
            f"see --explain; {100 * _NOVEL:.0f} % of them would be by chance); what is promised is for rows like those"
        )


def predicted_columns(
    explained: Sequence[pd.DataFrame],
    coverages: Sequence[float | None],
    all_columns: bool,
    kept: Sequence[str],
    probabilities: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return what to write of what `explain` gives at each coverage, or say why columns can't be kept beside it."""
    parts = [each if all_columns else each[PREDICTED] for each in explained]
    if len(parts) > 1:
        # Names as `interval_names` makes them; what is the same at every coverage comes once, before the others.
        ends = [f"_{level:g}" for level in coverages]
        common = [name for name in parts[0] if name in _AT_ANY_COVERAGE]
        apart = [part.drop(columns=common).add_suffix(end) for part, end in zip(parts, ends, strict=True)]
        parts = [parts[0][common], *apart]
    predicted = pd.concat(parts if probabilities is None else [*parts, probabilities], axis=1)
    twice = [name for name in kept if name in predicted.columns or kept.count(name) > 1]
    if twice:
        raise ValueError(f"--keep: there would be two columns {twice[0]!r}; rename yours, or leave it out")
    return predicted


def probabilities(
    model: IntervalRegressor, X: Any, quantiles: str | None, above: float | None, below: float | None
) -> pd.DataFrame:
    """Return the columns that --quantiles, --above and --below ask for."""
    distribution = model.predict_distribution(X)
    table = distribution.to_frame([] if quantiles is None else [float(level) for level in quantiles.split(",")])
    if above is not None:
        table[f"above_{above:.15g}"] = distribution.sf(above)
    if below is not None:
        table[f"below_{below:.15g}"] = distribution.cdf(below)
    return table


def written_by_predict(columns: Iterable[str]) -> set[str]:
    """Return which columns `icqr predict` wrote, at one coverage or several."""
    stems = {name: re.sub(r"_0\.\d+$", "", name) for name in columns}
    known = next((known for known in (EXPLAINED, PREDICTED) if {*known} <= {*stems.values()}), ())
    return {name for name, stem in stems.items() if stem in known or (known and _PROBABILITY.fullmatch(name))}


# -- Words -----------------------------------------------------------------------------------------------


def say_model(model: IntervalRegressor) -> None:
    """Print what a model promises, and its groups."""
    method = type(model).__name__
    facts = model_facts(method, model)
    counts = "".join(f"{facts[name]:,} {name}, " for name in ("training rows", "calibration rows") if name in facts)
    n_groups = "1 group" if model.n_groups_ == 1 else f"{model.n_groups_} groups"
    say(f"{method}: {promised_words(model.certificate())}, {counts}{n_groups}.", "bold")
    say(f"Estimator: {facts['model']}.")
    if "bounds" in facts:
        say(f"Bounds: {facts['bounds']}.")
    say(f"What is promised: {facts['guarantee']}")
    if "exception" in facts:
        say(facts["exception"])
    for choice in selections({method: model}):
        say(f"Choice of groups: {choice['sentence']}")
    say()
    groups = tables_of({"groups": model.groups_.to_dict("records")})["groups"]
    say_sheet(groups.select(_GROUP_COLUMNS), most=_MOST_GROUPS)


def predicted_words(certificates: Sequence[Certificate], n_rows: int, without: Sequence[int], out: str) -> str:
    """Return how many intervals were written where, and for how many of them (`without`) nothing is promised.

    There is a certificate, and a number of rows without a promise, for each coverage.
    """
    sentences = []
    for certificate, none in zip(certificates, without, strict=True):
        words = promised_words(certificate)
        if none:
            words = (
                "nothing promised" if none == n_rows else f"{words} for {n_rows - none:,} of them, none for {none:,}"
            )
        sentences.append(words)
    each = f" at each of {len(sentences)} coverages" if len(sentences) > 1 else ""
    return f"{n_rows:,} interval{'' if n_rows == 1 else 's'}{each}, {'; '.join(sentences)}: {out}"
