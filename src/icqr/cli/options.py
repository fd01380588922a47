"""What makes a command, and the options that commands share. Nothing here imports more than typer: help must be quick.

A dataclass is a bundle of options: a command that takes one has all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, get_type_hints

import typer

from icqr._messages import imported
from icqr.cli.console import did_you_mean

MODELS = ("hist", "lightgbm", "xgboost", "catboost", "forest", "network")
SMALL_GROUPS = ("pooled", "infinite", "error")


def command(app: typer.Typer, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command: its docstring is the help, and a bundle of options stands for each of them."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(function, include_extras=True)
        bundles: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
        parameters = []
        for parameter in signature(function).parameters.values():
            bundle = bundles.get(parameter.name)
            flat = [parameter] if bundle is None else signature(bundle).parameters.values()
            hints = kinds if bundle is None else get_type_hints(bundle, include_extras=True)
            parameters += [part.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[part.name]) for part in flat]

        def bundled(**values: Any) -> None:
            for name, bundle in bundles.items():
                values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
            function(**values)

        bundled.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        bundled.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
        app.command(function.__name__, help=text, epilog=epilog)(bundled)
        return function

    return register


def option(metavar: str, text: str, **more: Any) -> Any:
    """Return an option that takes a value; `text` is its help."""
    return typer.Option(metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """Return an option that is given or not; `text` is its help."""
    return typer.Option(name, help=text)


def _choice(allowed: Sequence[str], text: str) -> Any:
    """Return an option with a choice; typer's own has no "did you mean"."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            signs = ", ".join(allowed) if len(max(allowed)) > 1 else " ".join(map(repr, allowed))
            raise typer.BadParameter(f"must be one of {signs}, got {value!r}{did_you_mean(value, allowed)}")
        return value

    def complete(incomplete: str) -> list[str]:
        return [value for value in allowed if value.startswith(incomplete)]

    return option("NAME", text, callback=check, autocompletion=complete)


def _check_coverage(value: float | None) -> float | None:
    if value is not None and not 0 < value < 1:
        from icqr import calibration  # only now: completion in the shell comes here too and must be quick

        try:
            calibration.check_coverage(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return value


def _check_jobs(jobs: int | None) -> int | None:
    if jobs == 0:
        raise typer.BadParameter("must be 1 or more, or -1 for one per core, got 0")
    return jobs


def _check_dates(dates: str | None) -> str | None:
    if dates is not None and "%" not in dates:
        raise typer.BadParameter(f"must be a format such as %d.%m.%Y, for 31.12.2024, got {dates!r}")
    return dates


_DATA_HELP = (
    "A CSV, Parquet, Feather or JSON lines file, compressed or not; - for standard input; a pattern of Parquet files "
    "in quotation marks; or the name of a data set (see: icqr datasets). A file of that name comes first."
)
DataOrNothing = Annotated[str | None, typer.Argument(metavar="DATA", help=_DATA_HELP)]
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA_HELP)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model's file, written by icqr fit.")]
Target = Annotated[str | None, option("COL", "The column to predict. A known data set has its own.")]
Coverage = Annotated[float, option("SHARE", "How often an interval should hold.", callback=_check_coverage)]
Seed = Annotated[int, option("N", "Of everything random.", min=0)]
DropMissing = Annotated[bool, flag("--drop-missing", "Leave out the rows whose target is missing.")]
AsJson = Annotated[bool, flag("--json", "Print one JSON document instead of tables and sentences.")]


@dataclass(frozen=True)
class TextFormat:
    """How a CSV file is written, as far as the user says."""

    encoding: Annotated[str | None, option("NAME", "Of a CSV file that is not UTF-8, for example latin-1.")] = None
    decimal: Annotated[str | None, _choice(".,", "The decimal sign in a CSV file: a point, or a comma.")] = None
    thousands: Annotated[
        str | None, _choice(",.' ", "The sign between thousands in a CSV file, as the comma in 1,250.")
    ] = None
    dates: Annotated[
        str | None,
        option(
            "FORMAT",
            "How dates are written, for example %d.%m.%Y; those like 2024-12-31 need no format.",
            callback=_check_dates,
        ),
    ] = None
    no_header: Annotated[
        bool, flag("--no-header", "The first line of a CSV file is a row; its columns are 'column 1' and so on.")
    ] = False

    def __post_init__(self) -> None:
        if self.thousands is not None and self.thousands == self.decimal:
            raise typer.BadParameter(f"--decimal and --thousands can't both be {self.decimal!r}")

    @property
    def decimal_sign(self) -> str:
        """The decimal sign: as the user says, else the point, or the comma if points separate thousands."""
        return self.decimal or ("," if self.thousands == "." else ".")


@dataclass(frozen=True)
class Source:
    """Which rows and columns to learn from."""

    target: Target = None
    drop_missing: DropMissing = False
    ignore: Annotated[list[str] | None, option("COL", "Leave a column out, for example an id; may be repeated.")] = None

    def __post_init__(self) -> None:
        if self.target in (self.ignore or ()):
            raise typer.BadParameter(f"--ignore and --target can't both be {self.target!r}")


@dataclass(frozen=True)
class Setting:
    """Which intervals: the options on model, groups and calibration."""

    coverage: Coverage = 0.9
    model: Annotated[str, _choice(MODELS, f"The quantile model: {', '.join(MODELS)}.")] = "hist"
    groups: Annotated[str | None, option("COL", "Groups of your own: a column whose values they are (Mondrian).")] = (
        None
    )
    partition: Annotated[
        str | None,
        _choice(("kmeans", "whole"), "Clusters of similar rows (kmeans, the default), or one group (whole)."),
    ] = None
    small_groups: Annotated[
        str,
        _choice(
            SMALL_GROUPS,
            "What a group with too few calibration rows gets: the correction of all rows (or its own largest error), "
            "without a promise (pooled); an endless interval, which keeps it (infinite); or an error.",
        ),
    ] = "pooled"
    y_min: Annotated[
        float | None,
        option("NUMBER", "The target is never less, for example 0 for prices; intervals are cut there."),
    ] = None
    y_max: Annotated[float | None, option("NUMBER", "The target is never more; intervals are cut there.")] = None
    seed: Seed = 0
    jobs: Annotated[
        int | None, option("N", "Tasks run at the same time, -1 for one per core.", callback=_check_jobs)
    ] = None

    def __post_init__(self) -> None:
        low, high = self.y_limits
        if not low < high:
            raise typer.BadParameter(f"--y-min must be less than --y-max, got {low:g} and {high:g}")
        if self.groups is not None and self.partition is not None:
            raise typer.BadParameter(
                "--groups and --partition can't both be given: groups of your own are the partition"
            )

    @property
    def y_limits(self) -> tuple[float, float]:
        """Between which the target lies."""
        return -math.inf if self.y_min is None else self.y_min, math.inf if self.y_max is None else self.y_max


@dataclass(frozen=True)
class PredictOptions:
    """Which intervals to predict, where to write them, and which columns beside them."""

    out: Annotated[
        str,
        option(
            "FILE",
            "The intervals; .parquet, .feather, .csv, .csv.gz or .jsonl. - is standard output, as CSV. "
            "With --engine dask: a new folder, of Parquet files.",
        ),
    ] = "-"
    coverage: Annotated[
        float | None, option("SHARE", "Another coverage than the model's own.", callback=_check_coverage)
    ] = None
    explain: Annotated[
        bool, flag("--explain", "Add calibration rows, rank, offsets, kind of guarantee, novelty and more.")
    ] = False
    keep: Annotated[list[str] | None, option("COL", "Copy a column of DATA, for example an id; may be repeated.")] = (
        None
    )

    @property
    def kept(self) -> list[str]:
        """The columns to copy."""
        return self.keep or []


@dataclass(frozen=True)
class AuditOptions:
    """Which intervals a file has, what they promise, and where to say how they hold."""

    target: Annotated[str, option("COL", "The column of what happened.")]
    lower: Annotated[str, option("COL", "The column of lower bounds.")]
    upper: Annotated[str, option("COL", "The column of upper bounds.")]
    coverage: Annotated[float, option("SHARE", "What the intervals promise.", callback=_check_coverage)]
    groups: Annotated[str | None, option("COL", "Judge each value of this column.")] = None
    report: Annotated[str | None, option("FILE", "Write a report, HTML.")] = None
    json: AsJson = False
    seed: Seed = 0
    drop_missing: DropMissing = False

    @property
    def columns(self) -> dict[str, str]:
        """The columns of numbers, each after the option that names it."""
        return {"--target": self.target, "--lower": self.lower, "--upper": self.upper}


@dataclass(frozen=True)
class Engine:
    """What does the work."""

    engine: Annotated[
        str,
        _choice(
            ("local", "dask"),
            "What does the work: local, or dask for Parquet files larger than memory, DATA then being a pattern in "
            "quotation marks or a folder.",
        ),
    ] = "local"
    scheduler: Annotated[
        str | None,
        option(
            "ADDRESS",
            "Of a Dask cluster, for example tcp://10.0.0.5:8786. Without this option: one worker per core, here.",
        ),
    ] = None

    def is_dask(self, text_format: TextFormat) -> bool:
        """Tell whether Dask does the work; options that then mean nothing are a wrong use of the command."""
        if self.engine != "dask":
            if self.scheduler is not None:
                raise typer.BadParameter("--scheduler is for --engine dask")
            return False
        if text_format != TextFormat():
            raise typer.BadParameter(
                "--encoding, --decimal, --thousands, --dates and --no-header are for CSV; --engine dask reads Parquet"
            )
        for module in ("dask.dataframe", "distributed"):
            imported(module, "--engine dask needs", "icqr[dask]")
        return True
