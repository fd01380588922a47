"""The options that several commands share, with their help. Only typer is imported here: help must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import typer

from icqr._messages import imported

ModelName: TypeAlias = Literal["hist", "lightgbm", "xgboost", "catboost", "forest", "network"]
SmallGroups: TypeAlias = Literal["pooled", "infinite", "error"]


def option(metavar: str, text: str, **more: Any) -> Any:
    """Return an option that takes a value; `text` is its help."""
    return typer.Option(metavar=metavar, help=text, **more)


def check_coverage(coverage: float | None) -> float | None:
    """Refuse a coverage that is none, in the library's words."""
    if coverage is not None and not 0 < coverage < 1:
        from icqr import calibration  # only now: completion in the shell comes here too and must be quick

        try:
            calibration.check_coverage(coverage)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return coverage


def _check_ignored(context: typer.Context, ignore: list[str] | None) -> list[str] | None:
    target = context.params["target"]  # eager options are read first
    if target is not None and target in (ignore or []):
        raise typer.BadParameter(f"--ignore and --target can't both be {target!r}")
    return ignore


def _check_limits(context: typer.Context, y_max: float | None) -> float | None:
    y_min = context.params["y_min"]
    if y_min is not None and y_max is not None and not y_min < y_max:
        raise typer.BadParameter(f"--y-min must be less than --y-max, got {y_min:g} and {y_max:g}")
    return y_max


def _check_jobs(jobs: int | None) -> int | None:
    if jobs == 0:
        raise typer.BadParameter("must be 1 or more, or -1 for one per core, got 0")
    return jobs


_DATA_HELP = (
    "A CSV, Parquet, Feather or JSON lines file, also packed by gzip; - for standard input; a pattern of Parquet files "
    "in quotation marks; or the name of a data set (see: icqr datasets). A file of that name comes first."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA_HELP)]
DataOrNothing = Annotated[str | None, typer.Argument(metavar="DATA", help=_DATA_HELP)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model's file, written by icqr fit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables and sentences.")]

# -- Which rows and columns --------------------------------------------------------------------------------

Target = Annotated[str | None, option("COL", "The column to predict. A known data set has its own.", is_eager=True)]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out the rows whose target is missing.")]
Ignore = Annotated[
    list[str] | None,
    option("COL", "Leave a column out, for example an id; may be repeated.", callback=_check_ignored),
]

# -- Which intervals ---------------------------------------------------------------------------------------

Coverage = Annotated[float, option("SHARE", "How often an interval should hold.", callback=check_coverage)]
Model = Annotated[ModelName, typer.Option(help="The quantile model.")]
Groups = Annotated[str | None, option("COL", "Groups of your own: a column whose values they are (Mondrian).")]
Partition = Annotated[
    Literal["kmeans", "whole"] | None,
    typer.Option(help="Clusters of similar rows (kmeans, the default), or one group (whole)."),
]
SmallGroupsPolicy = Annotated[
    SmallGroups,
    typer.Option(
        help="What a group with too few calibration rows gets: the correction of all rows (or its own largest error), "
        "without a promise (pooled); an endless interval, which keeps it (infinite); or an error."
    ),
]
YMin = Annotated[
    float | None,
    option("NUMBER", "The target is never less, for example 0 for prices; intervals are cut there.", is_eager=True),
]
YMax = Annotated[
    float | None, option("NUMBER", "The target is never more; intervals are cut there.", callback=_check_limits)
]
Seed = Annotated[int, option("N", "Of everything random.", min=0)]
Jobs = Annotated[
    int | None,
    option("N", "Tasks run at the same time, -1 for one per core.", callback=_check_jobs),
]

# -- How a CSV file is written -----------------------------------------------------------------------------

Encoding = Annotated[str | None, option("NAME", "Of a CSV file that is not UTF-8, for example latin-1.")]
Decimal = Annotated[Literal[".", ","] | None, typer.Option(help="The decimal sign in a CSV file: a point, or a comma.")]
Thousands = Annotated[
    Literal[",", ".", "'", " "] | None,
    typer.Option(help="The sign between thousands in a CSV file, as the comma in 1,250."),
]
Dates = Annotated[
    str | None,
    option("FORMAT", "How dates are written, for example %d.%m.%Y; those like 2024-12-31 need no format."),
]
NoHeader = Annotated[
    bool,
    typer.Option("--no-header", help="The first line of a CSV file is a row; its columns are 'column 1' and so on."),
]


@dataclass(frozen=True)
class TextFormat:
    """How a CSV file is written, as far as the user says; `None` is as by default."""

    encoding: str | None = None
    decimal: Literal[".", ","] | None = None
    thousands: Literal[",", ".", "'", " "] | None = None
    dates: str | None = None
    no_header: bool = False

    def __post_init__(self) -> None:
        if self.thousands is not None and self.thousands == self.decimal:
            raise typer.BadParameter(f"--decimal and --thousands can't both be {self.decimal!r}")
        if self.dates is not None and "%" not in self.dates:
            raise typer.BadParameter(f"--dates must be a format such as %d.%m.%Y, for 31.12.2024, got {self.dates!r}")

    @property
    def decimal_sign(self) -> str:
        """The decimal sign: as the user says, else the point, or the comma if points separate thousands."""
        return self.decimal or ("," if self.thousands == "." else ".")


# -- What does the work ------------------------------------------------------------------------------------

Engine = Annotated[
    Literal["local", "dask"],
    typer.Option(
        help="What does the work: local, or dask for Parquet files larger than memory, DATA then being a pattern in "
        "quotation marks or a folder."
    ),
]
Scheduler = Annotated[
    str | None,
    option(
        "ADDRESS",
        "Of a Dask cluster, for example tcp://10.0.0.5:8786. Without this option: one worker per core, here.",
    ),
]


def is_dask(engine: str, scheduler: str | None, text_format: TextFormat) -> bool:
    """Tell whether Dask does the work; options that then mean nothing are a wrong use of the command."""
    if engine != "dask":
        if scheduler is not None:
            raise typer.BadParameter("--scheduler is for --engine dask")
        return False
    if text_format != TextFormat():
        raise typer.BadParameter(
            "--encoding, --decimal, --thousands, --dates and --no-header are for CSV; --engine dask reads Parquet"
        )
    for module in ("dask.dataframe", "distributed"):
        imported(module, "--engine dask needs", "icqr[dask]")
    return True
