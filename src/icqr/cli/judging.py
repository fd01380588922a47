"""The steps of icqr compare and icqr audit: methods fitted on the same rows, and what is said of their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from icqr import QuantileModel
from icqr._libraries import seeded
from icqr._messages import imported
from icqr._predicting import IntervalRegressor
from icqr._rows import Rows, check_target
from icqr._sheet import Column, Sheet
from icqr.auditing import Audit, Comparison, audit, compare
from icqr.auditing.verdicts import SURE
from icqr.calibration import quantile_levels
from icqr.cli.console import Show, listed_names, note, say, say_sheet
from icqr.cli.models import METHODS, check_destination, make_method, written_by_predict
from icqr.cli.options import MethodName, Settings
from icqr.cli.reading import check_column
from icqr.reporting import report, summarize
from icqr.reporting.report_tables import OTHER_GROUPS, tables_of

#: The methods to compare, in the order of the tables: the first is what the others are compared with. Some share one
#: quantile model; the others fit models of their own.
_COMPARED: tuple[MethodName, ...] = ("naive", "qr", "cqr", "icqr", "auto")
_SHARING: tuple[MethodName, ...] = ("qr", "cqr", "icqr")
_MOST_GROUPS = 15
_MAIN_NUMBERS = ("Method", "On average", "Covered", "95 % interval", "Falls short in", "Mean width", "Interval score")


def check_report(path: str | None) -> None:
    """Say before any work is done why a report can't be written."""
    if path is None:
        return
    check_destination(path, "--report", (".html", ".htm"))
    for module in ("jinja2", "matplotlib"):
        imported(module, "the report needs", "icqr[report]")


# -- Compare ---------------------------------------------------------------------------------------------


class _SharedModel(FrozenEstimator):
    """A fitted quantile model that several methods use as it is, and that is shown as the estimator it was made of."""

    def __repr__(self) -> str:
        return repr(self.estimator.estimator)


def compare_methods(
    estimator: Any,
    settings: Settings,
    X: pd.DataFrame,
    y: pd.Series[Any],
    described: str,
    report_path: str | None,
    show: Show,
    order_by: str | None = None,
) -> tuple[Comparison, dict[str, Any]]:
    """Fit the five methods on the same rows, compare them on others and write the report; return a summary, too."""
    # The target is checked before the split, so that an error names the user's row.
    lowest = -math.inf if settings.y_min is None else settings.y_min
    check_target(y, len(y), (lowest, math.inf if settings.y_max is None else settings.y_max))

    # Half of the rows train, a quarter calibrates, and on the last quarter methods are compared, as in the paper.
    seed = settings.seed
    X_train, X_rest, y_train, y_rest = _halves(X, y, seed, order_by)
    X_cal, X_test, y_cal, y_test = _halves(X_rest, y_rest, seed, order_by)
    how = f"drawn at random with seed {seed}"
    if order_by is not None:
        how = f"in the order of {order_by!r}: the oldest rows train, and the newest are compared on"
    estimator = seeded(estimator, seed)  # the methods that share its bounds don't seed it
    methods, seconds = _fit_methods(estimator, settings, X_train, y_train, X_cal, y_cal, show)
    show("Checking the five methods")
    comparison = compare(y_test, methods, X_test, groups=settings.groups, random_state=seed)

    show("Putting the results together")
    about = {
        "data": described,
        "split": f"{len(y_train):,} rows to train, {len(y_cal):,} to calibrate and {len(y_test):,} to compare on "
        f"(50, 25 and 25 %, as in the paper), {how}",
        "quantile model": f"--model {settings.model}, fitted once on the training rows; QR, CQR and ICQR use its "
        "bounds, Naive fits a model of the mean, and AutoICQR its own bounds, on the same rows",
    }
    details: dict[str, Any] = {"methods": methods, "about": about, "seconds": seconds}
    if report_path is not None:
        report(comparison, report_path, y_test, X_test, **details)
    return comparison, summarize(comparison, y_test, X_test, **details)


def _halves(X: pd.DataFrame, y: pd.Series[Any], seed: int, order_by: str | None) -> list[Any]:
    """Return X and y in two halves, drawn at random, or the older and the newer rows."""
    if order_by is None:
        return list(train_test_split(X, y, test_size=0.5, random_state=seed))
    older, newer = Rows(X, y.to_numpy(), np.arange(len(y))).split_in_order(0.5, order_by)
    return [X.iloc[older.index], X.iloc[newer.index], y.iloc[older.index], y.iloc[newer.index]]


def _fit_methods(
    estimator: Any, settings: Settings, X: pd.DataFrame, y: Any, X_cal: pd.DataFrame, y_cal: Any, show: Show
) -> tuple[dict[str, IntervalRegressor], dict[str, float]]:
    """Return the fitted methods, and the seconds that each took; QR, CQR and ICQR share one quantile model."""
    # The time that the shared model takes is counted in each method that uses it.
    show("Fitting the quantile model")
    start = perf_counter()
    levels = quantile_levels(settings.coverage, "both")
    bounds = QuantileModel(estimator, n_jobs=settings.jobs).fit(X, y, levels)
    shared_seconds = perf_counter() - start

    methods: dict[str, IntervalRegressor] = {}
    seconds: dict[str, float] = {}
    for name in _COMPARED:
        title, shares = METHODS[name].__name__, name in _SHARING
        show(f"Fitting {title}")
        held_out = {} if name == "qr" else {"X_calibration": X_cal, "y_calibration": y_cal}
        start = perf_counter()
        method = make_method(name, _SharedModel(bounds) if shares else estimator, settings)
        methods[title] = method.fit(X, y, **held_out)
        seconds[title] = perf_counter() - start + (shared_seconds if shares else 0.0)
    return methods, seconds


def say_comparison(summary: dict[str, Any], findings: Sequence[str], report_path: str | None) -> None:
    """Print what a comparison says."""
    about = summary["computed"]["about"]
    say(f"Data: {about['data']}.")
    say(f"Split: {about['split']}.")
    say()
    say(summary["verdict"]["sentence"], "bold")
    say()
    # As many columns as a terminal has room for; the report has more.
    numbers = tables_of(summary)["methods"].select(_MAIN_NUMBERS)
    say_sheet(replace(numbers, note=_notes(summary)))
    for remark in summary["remarks"]:
        say(remark)
    seconds = ", ".join(f"{name} {value:,.1f}" for name, value in summary["seconds"].items())
    say(f"Seconds to fit: {seconds} (the model that QR, CQR and ICQR share is counted in each).")
    say()
    if "coverage_by_group" in summary:
        say_sheet(_coverage_by_group(summary), most=_MOST_GROUPS)
    say("Findings", "bold")
    for sentence in findings:
        say(f"- {sentence}")
    say()
    say(summary["answer"], "bold")
    if report_path is not None:
        say()
        say(f"Report: {report_path} (open it in a browser)")


def _notes(summary: dict[str, Any]) -> str:
    """Say what the columns of the table of methods mean, and each verdict that is in it."""
    verdicts = {method["verdict"] for method in summary["methods"]}
    meanings = [f"{name.capitalize()}: {text}" for name, text in summary["verdicts"].items() if name in verdicts]
    interval = f"95 % interval: the true coverage, {SURE}."
    return " ".join(
        [*meanings, interval, "Falls short in: regions that undercover; all methods are judged in the same."]
    )


def _coverage_by_group(summary: dict[str, Any]) -> Sheet:
    """Return what each method covers in the groups of the one shown in detail, with the groups' rules."""
    sheets = tables_of(summary)
    rules = {row[0].text: row[1] for row in sheets["groups"].rows} if "groups" in sheets else {}
    names = [method["method"] for method in summary["methods"]]
    coverage = sheets["coverage_by_group"].select(["Group", "Rows", *names])
    columns, rows = [*coverage.columns], coverage.rows
    if any(row[0].text in rules for row in rows):  # groups of the user's own are named by their rules already
        columns.append(Column("Rule", numeric=False))
        rows = [[*row, rules[row[0].text]] for row in rows if row[0].text in rules]
    caption = f"What each method covers in the groups of {summary['in_detail']}"
    return replace(coverage, columns=columns, rows=rows, caption=caption, note=OTHER_GROUPS)


# -- Audit -----------------------------------------------------------------------------------------------


def judge(
    rows: pd.DataFrame,
    columns: Mapping[str, str],
    groups: str | None,
    coverage: float,
    seed: int,
    described: str,
    report_path: str | None,
) -> tuple[Audit, dict[str, Any]]:
    """Audit rows and write the report; return the audit, and a summary for machines.

    `columns` are those of target, lower and upper bounds, after the options that name them.
    """
    if groups is not None:
        check_column(rows.columns, groups, "--groups")
    target, lower, upper = columns.values()
    y, intervals = rows[target], rows[[lower, upper]].to_numpy(dtype=float)
    crossed = int((intervals[:, 0] > intervals[:, 1]).sum())
    if crossed:
        raise ValueError(
            f"--lower {lower} is above --upper {upper} in {crossed:,} of {len(rows):,} rows; are the two swapped?"
        )

    # No regions are looked for in the groups, which are judged anyway, and in what `icqr predict` wrote.
    written = written_by_predict(rows.columns) - {target, lower, upper, "median", groups}
    if written:
        note(f"regions are not looked for in columns that icqr predict wrote: {listed_names(sorted(written))}")
    left_out = {target, lower, upper, groups, *written}
    features = rows[[name for name in rows.columns if name not in left_out]]
    X = features if features.shape[1] else None

    labels = None if groups is None else rows[groups]
    result = audit(y, intervals, X, labels, coverage=coverage, random_state=seed)
    about = {"data": described, "intervals": f"columns {lower!r} and {upper!r}"}
    if report_path is not None:
        report(result, report_path, y, X, methods=intervals, about=about)
    return result, summarize(result, y, X, methods=intervals, about=about)


def say_audit(result: Audit, summary: dict[str, Any], counted: Sequence[str], report_path: str | None) -> None:
    """Print what an audit says; `counted` are sentences on all rows, where the audit is of a sample."""
    say(result.summary, "bold")
    say()
    sentences = [*counted, *result.findings[:-1]]
    for sentence in sentences:
        say(f"- {sentence}")
    if sentences:
        say()
    if not counted and "coverage_by_group" in summary:
        say_sheet(replace(tables_of(summary)["coverage_by_group"], note=""), most=_MOST_GROUPS)
    if report_path is not None:
        say(f"Report: {report_path} (open it in a browser)")
