"""The arguments and options that commands share. Nothing here imports more than typer: help must be quick."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from icqr.cli.wording import did_you_mean

MODELS = ("hist", "lightgbm", "xgboost", "catboost", "forest", "network")
PARTITIONS = ("kmeans", "whole")
SMALL_GROUPS = ("pooled", "infinite", "error")
ENGINES = ("local", "dask")


@dataclass(frozen=True)
class Source:
    """Which rows: DATA (None: built-in), and the options on reading it."""

    data: str | None
    target: str | None
    drop_missing: bool
    encoding: str | None
    ignore: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.target in self.ignore:
            raise typer.BadParameter(f"--ignore and --target can't both be {self.target!r}")


@dataclass(frozen=True)
class Bounds:
    """Which intervals, where a file has them: two columns, what they promise, and the column of groups to judge."""

    lower: str
    upper: str
    coverage: float
    groups: str | None


@dataclass(frozen=True)
class Wanted:
    """Which intervals to predict, and which columns beside them."""

    coverage: float | None
    explain: bool
    keep: list[str]


@dataclass(frozen=True)
class Setting:
    """Which intervals: the options on model, groups and calibration."""

    coverage: float
    model: str
    groups: str | None
    partition: str | None
    small_groups: str
    y_min: float | None
    y_max: float | None
    seed: int
    jobs: int | None
    recommended: bool = False

    def __post_init__(self) -> None:
        low, high = self.y_limits
        if not low < high:
            raise typer.BadParameter(f"--y-min must be less than --y-max, got {low:g} and {high:g}")
        if self.recommended and (self.groups is not None or self.partition is not None):
            given = "--partition" if self.groups is None else "--groups"
            raise typer.BadParameter(
                f"--recommended and {given} can't both be given: the recommended setting chooses the groups"
            )
        if self.groups is not None and self.partition is not None:
            raise typer.BadParameter(
                "--groups and --partition can't both be given: groups of your own are the partition"
            )

    @property
    def y_limits(self) -> tuple[float, float]:
        """Between which the target lies."""
        return -math.inf if self.y_min is None else self.y_min, math.inf if self.y_max is None else self.y_max


def _one_of(allowed: Sequence[str]) -> Callable[[str | None], str | None]:
    """Give a check that a value is one of these, with "did you mean"; typer's own has none."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise typer.BadParameter(
                f"must be one of {', '.join(allowed)}, got {value!r}{did_you_mean(value, allowed)}"
            )
        return value

    return check


def _completed_from(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [one for one in allowed if one.startswith(incomplete)]

    return complete


def check_coverage(value: float | None) -> float | None:
    """Say that a coverage is not allowed as a wrong use of the command."""
    if value is None or 0 < value < 1:
        return value  # without the import below: completion in the shell comes here too and must be quick
    from icqr import calibration

    try:
        calibration.check_coverage(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return value


def use_dask(engine: str, scheduler: str | None, encoding: str | None) -> bool:
    """Tell whether Dask does the work; options that then mean nothing are a wrong use of the command."""
    if engine == "dask" and encoding is not None:
        raise typer.BadParameter("--encoding is for text files; --engine dask reads Parquet")
    if engine != "dask" and scheduler is not None:
        raise typer.BadParameter("--scheduler is for --engine dask")
    return engine == "dask"


def _check_jobs(jobs: int | None) -> int | None:
    if jobs == 0:
        raise typer.BadParameter("must be 1 or more, or -1 for one per core, got 0")
    return jobs


def _choice(name: str, allowed: Sequence[str], text: str, show_default: bool = True) -> Any:
    return typer.Option(
        name,
        metavar="NAME",
        help=f"{text}: {', '.join(allowed)}.",
        show_default=show_default,
        callback=_one_of(allowed),
        autocompletion=_completed_from(allowed),
    )


DATA_HELP = (
    "A CSV, Parquet, Feather or JSON lines file, compressed or not; - for standard input; a pattern of Parquet files "
    "in quotation marks; or the name of a data set (see: icqr datasets). A file of that name comes first."
)
DataOrNothing = Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model's file, written by icqr fit.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="COL", help="The column to predict. A known data set has its own.", show_default=False
    ),
]
Coverage = Annotated[
    float,
    typer.Option("--coverage", metavar="SHARE", help="How often an interval should hold.", callback=check_coverage),
]
OtherCoverage = Annotated[
    float | None,
    typer.Option(
        "--coverage",
        metavar="SHARE",
        help="Another coverage than the model's own.",
        callback=check_coverage,
        show_default=False,
    ),
]
Model = Annotated[str, _choice("--model", MODELS, "The quantile model")]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="COL",
        help="Groups of your own: a column whose values they are (Mondrian).",
        show_default=False,
    ),
]
Partition = Annotated[
    str | None,
    _choice("--partition", PARTITIONS, "Clusters of similar rows (the default), or one group as in CQR", False),
]
SmallGroups = Annotated[
    str,
    _choice(
        "--small-groups",
        SMALL_GROUPS,
        "What a group with too few calibration rows gets: the correction of all rows (or its own largest error), "
        "without a promise; an endless interval, which keeps it; or an error",
    ),
]
YMin = Annotated[
    float | None,
    typer.Option(
        "--y-min",
        metavar="NUMBER",
        help="The target is never less, for example 0 for prices; intervals are cut there.",
        show_default=False,
    ),
]
YMax = Annotated[
    float | None,
    typer.Option(
        "--y-max", metavar="NUMBER", help="The target is never more; intervals are cut there.", show_default=False
    ),
]
Recommended = Annotated[
    bool,
    typer.Option(
        "--recommended",
        help="The recommended setting: bounds in two stages, groups chosen from the training rows. Takes several times "
        "as long.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Tasks run at the same time, -1 for one per core.",
        show_default=False,
        callback=_check_jobs,
    ),
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out the rows whose target is missing.")]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="COL",
        help="Leave a column out, for example an id; may be repeated.",
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding", metavar="NAME", help="Of a CSV file that is not UTF-8, for example latin-1.", show_default=False
    ),
]
Engine = Annotated[
    str,
    _choice(
        "--engine",
        ENGINES,
        "What does the work; dask is for Parquet files larger than memory, DATA then being "
        "a pattern in quotation marks or a folder",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Of a Dask cluster, for example tcp://10.0.0.5:8786. Without this option: one worker per core, here.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables and sentences.")]
