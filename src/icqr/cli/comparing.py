"""icqr compare: Naive, QR, CQR and ICQR on one fitted quantile model, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sklearn.model_selection import train_test_split

from icqr.auditing import compare
from icqr.auditing.findings import as_json, promise
from icqr.calibration import quantile_levels
from icqr.cli.building import check_gaps, make_model, make_partition, need_report, version_of
from icqr.cli.console import progress, say, say_all, say_json, say_table
from icqr.cli.data import read_rows
from icqr.cli.options import Setting, Source
from icqr.families import Levels
from icqr.features import FloatArray
from icqr.libraries import seeded
from icqr.quantiles import QuantileModel
from icqr.regressors import CQR, ICQR, QR, Naive
from icqr.reporting import report, summarize
from icqr.reporting.tables import Cell, Column, Row, Table, number, share, span, tables_of, text, verdict

_METHODS = ("Naive", "QR", "CQR", "ICQR")
_MOST_GROUPS = 15
_SHORT_IN = "Short in: regions that are shown to cover less than promised, of those looked at."


class SharedBounds:
    """A fitted quantile model that several methods use as it is; `predict` gives its median."""

    def __init__(self, model: QuantileModel) -> None:
        self.model = model
        self.levels_ = model.levels_

    def replacer(self, X: Any) -> Any:
        """Prepare predictions with one column replaced, as importance needs them."""
        return self.model.replacer(X)

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
    with progress(5) as begin:
        begin("Reading the data")
        described, X, y = read_rows(source)
        partition = make_partition(setting, X)
        check_gaps(setting.model, estimator, X)
        split = Split.of(X, y, setting.seed)
        begin(f"Fitting the quantile model ({setting.model})", own_bar=setting.model == "network")
        bounds = QuantileModel(estimator, n_jobs=setting.jobs)
        bounds.fit(split.X[0], split.y[0], quantile_levels(setting.coverage, "both"))
        begin("Finding groups and calibrating")
        methods = _fitted(SharedBounds(bounds), split, setting, partition)
        begin("Checking the four methods")
        X_test, y_test = split.X[2], split.y[2]
        found = compare(methods, X_test, y_test, random_state=setting.seed)  # groups are those of ICQR
        begin("Putting the results together")
        about = _about(described, split, setting)
        summary = summarize(found, X_test, y_test, methods=methods, about=about)
        if report_path is not None:
            report(found, report_path, X_test, y_test, methods=methods, about=about)
    if json:
        say_json(as_json(summary))
    else:
        _say(summary, found.findings, report_path)


def _fitted(bounds: SharedBounds, split: Split, setting: Setting, partition: Any) -> dict[str, Any]:
    """Fit what comes after the quantile model: all four methods have the same one."""
    (X, X_cal, _), (y, y_cal, _) = split.X, split.y
    common: dict[str, Any] = {
        "estimator": bounds,
        "coverage": setting.coverage,
        "random_state": setting.seed,
        "n_jobs": setting.jobs,
    }
    calibrated = [Naive(**common), CQR(**common), ICQR(**common, partition=partition)]
    naive, cqr, icqr = (one.fit(X, y, X_calibration=X_cal, y_calibration=y_cal) for one in calibrated)
    return {"Naive": naive, "QR": QR(**common).fit(X, y), "CQR": cqr, "ICQR": icqr}


def _about(described: str, split: Split, setting: Setting) -> dict[str, Any]:
    shared = "fitted once on the training rows; QR, CQR and ICQR use its bounds, Naive its median"
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
    say_table(_methods(summary))
    if "groups" in summary:
        say_table(_groups(summary))
    say("Findings", "bold")
    say_all(findings)
    if report_path is not None:
        say()
        say(f"Report: {report_path} (open it in a browser)")


def _methods(summary: dict[str, Any]) -> Table:
    """Give the main numbers of each method, as many as a terminal has room for; the report has more."""
    columns = [Column("Method", numeric=False), Column("On average", numeric=False), Column("Covered")]
    columns += [Column("95 % interval"), Column("Short in"), Column("Mean width"), Column("Interval score")]
    rows = [
        Row(
            [
                text(one["method"]),
                verdict(one["verdict"]),
                share(one["coverage"]),
                span(one["coverage_lower"], one["coverage_upper"]),
                text(f"{one['undercovers']} of {one['regions']}"),
                number(one["mean_width"]),
                number(one["interval_score"]),
            ]
        )
        for one in summary["methods"]
    ]
    caption = (
        f"{promise(summary['promised'])} promised, {int(summary['methods'][0]['n']):,} rows that no model has seen"
    )
    return Table("methods", caption, columns, rows, _SHORT_IN)


def _groups(summary: dict[str, Any]) -> Table:
    """Give what each method covers in the groups of ICQR, with the groups' rules."""
    rules = {row.group: row.cells[1] for row in tables_of(summary)["groups"].rows}
    entries = [one for one in summary["coverage_by_group"] if one["kind"] == "model group"]
    columns = [Column("Group"), Column("Rows"), *map(Column, _METHODS), Column("Rule", numeric=False)]
    rows = [
        Row(
            [
                Cell(str(one["group"])),
                number(one["n"]),
                *(share(one["methods"][name]["coverage"]) for name in _METHODS),
                rules.get(one["group"], text(one["name"])),
            ]
        )
        for one in entries[:_MOST_GROUPS]
    ]
    rest = len(entries) - _MOST_GROUPS
    left_out = f"{rest} more groups are in the report." if rest > 0 else ""
    return Table("groups", "What each method covers in the groups of ICQR", columns, rows, left_out)
