"""icqr compare: Naive, QR, CQR and ICQR on one fitted quantile model, and the recommended setting of ICQR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pandas as pd
from sklearn.model_selection import train_test_split

from icqr._libraries import seeded
from icqr._predicting import IntervalRegressor
from icqr._sheet import Column, Sheet, cell, share, span
from icqr._tables import FloatArray
from icqr.auditing import compare
from icqr.auditing.findings import as_json, promise
from icqr.calibration import quantile_levels
from icqr.cli.building import (
    check_gaps,
    make_model,
    make_partition,
    need_report,
    recommended,
    shared_parameters,
    version_of,
)
from icqr.cli.console import progress, say, say_all, say_json, say_table
from icqr.cli.data import read_rows
from icqr.cli.options import Setting, Source
from icqr.families import Levels
from icqr.importance import column_replacer
from icqr.quantiles import QuantileModel
from icqr.regressors import CQR, ICQR, QR, Naive
from icqr.reporting import report, summarize
from icqr.reporting.report_tables import OTHER_GROUPS, tables_of, verdict_cell
from icqr.rows import check_target

RECOMMENDED = "Recommended ICQR"
_MOST_GROUPS = 15
_SHORT_IN = "Short in: regions that are shown to cover less than promised, of those looked at."


class SharedBounds:
    """A fitted quantile model that several methods use as it is; `predict` gives its median."""

    def __init__(self, model: QuantileModel) -> None:
        self.model = model
        self.levels_ = model.levels_

    def replacer(self, X: Any) -> Any:
        """Prepare predictions with one column replaced, as importance needs them."""
        return column_replacer(self.model, X)

    def predict_quantiles(self, X: Any, levels: Levels) -> FloatArray:
        """Give (n, levels) quantiles."""
        return self.model.predict(X, levels)

    def predict(self, X: Any) -> FloatArray:
        """Give the median."""
        return self.model.predict(X, [0.5])[:, 0]

    def __sklearn_clone__(self) -> SharedBounds:
        return self

    def __repr__(self) -> str:
        return repr(self.model.estimator)


@dataclass(frozen=True)
class Split:
    """Rows to train on, to calibrate with and to compare on: 50, 25 and 25 %, as in the paper."""

    X: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
    y: tuple[Any, Any, Any]
    seed: int

    @classmethod
    def of(cls, X: pd.DataFrame, y: Any, seed: int) -> Split:
        """Draw the rows at random."""
        X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.5, random_state=seed)
        X_cal, X_test, y_cal, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=seed)
        return cls((X_train, X_cal, X_test), (y_train, y_cal, y_test), seed)

    def __str__(self) -> str:
        train, calibration, test = (f"{len(part):,}" for part in self.y)
        return (
            f"{train} rows to train, {calibration} to calibrate and {test} to compare on (50, 25 and 25 %, as in the "
            f"paper), drawn at random with seed {self.seed}"
        )


def compare_methods(source: Source, setting: Setting, report_path: str | None, json: bool) -> None:
    """Do what `icqr compare` says."""
    estimator = seeded(make_model(setting.model), setting.seed)
    need_report(report_path)
    with progress(6) as begin:
        begin("Reading the data")
        described, X, y = read_rows(source)
        check_target(y, len(y), setting.y_limits)
        partition = make_partition(setting, X)
        check_gaps(setting.model, estimator, X)
        split = Split.of(X, y, setting.seed)
        own_bar = setting.model == "network"
        begin(f"Fitting the quantile model ({setting.model})", own_bar)
        start = perf_counter()
        bounds = QuantileModel(estimator, n_jobs=setting.jobs)
        bounds.fit(split.X[0], split.y[0], quantile_levels(setting.coverage, "both"))
        shared = perf_counter() - start
        begin("Finding groups and calibrating")
        methods = _methods(setting, SharedBounds(bounds), partition)
        seconds = {name: shared + _fit(method, split) for name, method in methods.items()}
        begin(f"Fitting the recommended setting ({setting.model})", own_bar)
        methods[RECOMMENDED] = ICQR(
            **recommended(estimator), small_groups=setting.small_groups, **shared_parameters(setting)
        )
        seconds[RECOMMENDED] = _fit(methods[RECOMMENDED], split)
        begin("Checking the five methods")
        X_test, y_test = split.X[2], split.y[2]
        found = compare(methods, X_test, y_test, groups=setting.groups, random_state=setting.seed)
        begin("Putting the results together")
        told: dict[str, Any] = {"methods": methods, "about": _about(described, split, setting), "seconds": seconds}
        summary = summarize(found, X_test, y_test, **told)
        if report_path is not None:
            report(found, report_path, X_test, y_test, **told)
    if json:
        say_json(as_json(summary))
    else:
        _say(summary, found.findings, report_path)


def _methods(setting: Setting, bounds: SharedBounds, partition: Any) -> dict[str, IntervalRegressor]:
    """Give the four methods, which have the same quantile model."""
    common = {"estimator": bounds, **shared_parameters(setting)}
    icqr = ICQR(**common, partition=partition, small_groups=setting.small_groups)
    return {"Naive": Naive(**common), "QR": QR(**common), "CQR": CQR(**common), "ICQR": icqr}


def _fit(method: IntervalRegressor, split: Split) -> float:
    """Fit and calibrate a method, and give the seconds that it took."""
    (X, X_cal, _), (y, y_cal, _) = split.X, split.y
    held_out = {} if isinstance(method, QR) else {"X_calibration": X_cal, "y_calibration": y_cal}
    start = perf_counter()
    method.fit(X, y, **held_out)
    return perf_counter() - start


def _about(described: str, split: Split, setting: Setting) -> dict[str, Any]:
    shared = (
        "fitted once on the training rows; QR, CQR and ICQR use its bounds, Naive its median, and "
        f"{RECOMMENDED} fits its own on the same rows"
    )
    return {
        "data": described,
        "split": str(split),
        "quantile model": f"--model {setting.model} ({version_of(setting.model)}), {shared}",
    }


def _say(summary: dict[str, Any], findings: Sequence[str], report_path: str | None) -> None:
    about = summary["computed"]["about"]
    say(f"Data: {about['data']}.")
    say(f"Split: {about['split']}.")
    say()
    say(summary["verdict"]["sentence"], "bold")
    say()
    say_table(_numbers(summary))
    for one in [*summary["remarks"], _cost(summary["seconds"])]:
        say(one)
    say()
    if "groups" in summary:
        say_table(_groups(summary))
    say("Findings", "bold")
    say_all(findings)
    if report_path is not None:
        say()
        say(f"Report: {report_path} (open it in a browser)")


def _cost(seconds: dict[str, float]) -> str:
    """Say how long the methods took to fit.

    Examples
    --------
    >>> _cost({"CQR": 0.51, "ICQR": 0.77, RECOMMENDED: 3.0})
    'Seconds to fit: CQR 0.5, ICQR 0.8 (the model that these share is counted in each), Recommended ICQR 3.0.'
    """
    *sharing, own = (f"{name} {value:,.1f}" for name, value in seconds.items())
    return f"Seconds to fit: {', '.join(sharing)} (the model that these share is counted in each), {own}."


def _numbers(summary: dict[str, Any]) -> Sheet:
    """Give the main numbers of each method, as many as a terminal has room for; the report has more."""
    columns = [Column("Method", numeric=False), Column("On average", numeric=False), Column("Covered")]
    columns += [Column("95 % interval"), Column("Short in"), Column("Mean width"), Column("Interval score")]
    rows = [
        [
            cell(one["method"]),
            verdict_cell(one["verdict"]),
            share(one["coverage"]),
            span(one["coverage_lower"], one["coverage_upper"]),
            cell(f"{one['undercovers']} of {one['regions']}"),
            cell(one["mean_width"]),
            cell(one["interval_score"]),
        ]
        for one in summary["methods"]
    ]
    caption = (
        f"{promise(summary['promised'])} promised, {int(summary['methods'][0]['n']):,} rows that no model has seen"
    )
    return Sheet(columns, rows, caption, _SHORT_IN)


def _groups(summary: dict[str, Any]) -> Sheet:
    """Give what each method covers in the groups of the one shown in detail, with the groups' rules."""
    shown = tables_of(summary)["groups"]
    rules = {group: row[1] for group, row in zip(shown.groups or (), shown.rows, strict=True)}
    entries = [one for one in summary["coverage_by_group"] if one["kind"] == "model group"]
    names = [one["method"] for one in summary["methods"]]
    columns = [Column("Group"), Column("Rows"), *map(Column, names), Column("Rule", numeric=False)]
    rows = [
        [
            cell(one["group"]),
            cell(one["n"]),
            *(share(one["methods"][name]["coverage"]) for name in names),
            rules.get(one["group"], cell(one["name"])),
        ]
        for one in entries[:_MOST_GROUPS]
    ]
    rest = len(entries) - _MOST_GROUPS
    left_out = f" {rest} more groups are in the report." if rest > 0 else ""
    caption = f"What each method covers in the groups of {summary['in_detail']}"
    return Sheet(columns, rows, caption, OTHER_GROUPS + left_out)
