"""The options that several commands share, and how a function becomes a command.

Only typer is imported here: help must be quick.

Options that go together are the fields of a bundle: a new one is a field, and every command with the bundle has it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from icqr._messages import imported

MethodName: TypeAlias = Literal["auto", "icqr", "cqr", "qr", "naive"]
ModelName: TypeAlias = Literal["hist", "lightgbm", "xgboost", "catboost", "forest", "network"]
Effort: TypeAlias = Literal["quick", "thorough"]
Coverages = TypeVar("Coverages", float, list[float] | None)
SmallGroups: TypeAlias = Literal["pooled", "infinite", "error"]


def option(metavar: str, text: str, **more: Any) -> Any:
    """Return an option that takes a value; `text` is its help."""
    return typer.Option(metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """Return an option without a value; `text` is its help."""
    return typer.Option(name, metavar="", help=text)


def check_coverage(coverage: Coverages) -> Coverages:
    """Refuse coverages that are none, in the library's words."""
    for level in coverage if isinstance(coverage, list) else [0.5 if coverage is None else coverage]:
        if not 0 < level < 1:
            from icqr import calibration  # only now: completion in the shell comes here too and must be quick

            try:
                calibration.check_coverage(level)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from error
    return coverage


def check_levels(levels: str | None) -> str | None:
    """Refuse quantile levels that are none."""
    for level in [] if levels is None else levels.split(","):
        try:
            is_level = 0 < float(level) < 1
        except ValueError:
            is_level = False
        if not is_level:
            raise typer.BadParameter(
                f"levels must be numbers between 0 and 1 with commas between them, got {levels!r}; pass 0.1,0.5,0.9"
            )
    return levels


_METHOD = "Method"  # a panel of the help
_DATA_HELP = (
    "A CSV, Parquet, Feather or JSON lines file, which may be packed by gzip; - for standard input; several Parquet "
    'files as a pattern in quotation marks, "sales/*.parquet"; or the name of a data set, which icqr datasets lists.'
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA_HELP)]
DataOrNothing = Annotated[str | None, typer.Argument(metavar="DATA", help=_DATA_HELP)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model, as icqr fit wrote it.")]
AsJson = Annotated[bool, flag("--json", "Print one JSON document instead of tables and sentences.")]

Quantiles = Annotated[
    str | None,
    option(
        "LEVELS", "Add quantiles, for example 0.1,0.5,0.9, as columns quantile_0.1 and so on.", callback=check_levels
    ),
]
Target = Annotated[str | None, option("COL", "The column to predict. A data set from icqr datasets has its own.")]
DropMissing = Annotated[bool, flag("--drop-missing", "Leave out the rows whose target is missing.")]
Coverage = Annotated[
    float, option("SHARE", "How often an interval should hold the true value.", callback=check_coverage)
]
Seed = Annotated[int, option("N", "The seed of everything random: the same seed gives the same result.", min=0)]
ChosenMethod = Annotated[
    MethodName,
    option(
        "NAME",
        "auto (AutoICQR, the best bounds we have); icqr, the paper's method; or cqr, qr or naive, which have one group "
        "for all rows.",
        rich_help_panel=_METHOD,
    ),
]
CALIBRATIONS = ("split", "cross")
ChosenCalibration = Annotated[
    str | None,
    option(
        "HOW",
        "split sets a third of the rows aside to calibrate with. cross trains and calibrates with all rows, each "
        "scored by a model that has not seen it: better with few rows, but slower, and the promise is weaker. Or give "
        "a file of rows to calibrate with; all rows of DATA then train.",
        show_default="split; with --method auto cross below 1,000 rows",
        rich_help_panel=_METHOD,
    ),
]

# -- Bundles: options that go together, and are one parameter of a command -----------------------------------


@dataclass(frozen=True)
class TrainingRows:
    """Which rows and columns of DATA to learn from."""

    panel: ClassVar[str] = "Rows and columns"
    target: Target = None
    drop_missing: DropMissing = False
    ignore: Annotated[
        list[str] | None, option("COL", "Leave this column out, for example an id. Repeat it for more.")
    ] = None
    order_by: Annotated[
        str | None,
        option(
            "COL",
            "The column that says when a row happened. The oldest rows train, the newest calibrate; icqr compare "
            "judges on the newest of all.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.target is not None and self.target in (self.ignore or []):
            raise typer.BadParameter(f"--ignore and --target can't both be {self.target!r}")
        if self.order_by is not None and self.order_by in (self.target, *(self.ignore or [])):
            raise typer.BadParameter(
                f"--order-by {self.order_by}: this column stays a feature, so it can be neither --target nor --ignore"
            )

    def check_calibration(self, calibration: str | None, method: MethodName) -> None:
        """Refuse ways to calibrate that don't go together, or that the method has no use for."""
        if calibration in CALIBRATIONS and method in ("qr", "naive"):
            raise typer.BadParameter(
                f"--calibration {calibration} is for --method auto, --method icqr and --method cqr, got --method "
                f"{method}"
            )
        for name, value in (("--calibration", calibration), ("--order-by", self.order_by)):
            if value is not None and method == "qr":
                raise typer.BadParameter(f"{name} means nothing to --method qr, which trains on all rows")
        if self.order_by is not None and calibration not in (None, "split"):
            others = "all rows" if calibration == "cross" else "those of the file"
            raise typer.BadParameter(
                f"--order-by calibrates with the newest rows, and --calibration {calibration} with {others}; leave one "
                "out"
            )


@dataclass(frozen=True)
class Settings:
    """What a method is made with. `None` is as by default, which each method knows."""

    panel: ClassVar[str] = _METHOD
    coverage: Coverage = 0.9
    model: Annotated[
        ModelName,
        option(
            "NAME",
            "The library that learns the bounds: hist (scikit-learn), lightgbm, xgboost, catboost, forest or network.",
        ),
    ] = "hist"
    effort: Annotated[
        Effort | None,
        option(
            "HOW",
            "With --method auto: quick takes a few models, thorough takes more and longer.",
            show_default="quick",
        ),
    ] = None
    groups: Annotated[
        str | None,
        option(
            "COL",
            "With --method auto or icqr: each value of this column is a group, in which coverage is promised.",
        ),
    ] = None
    small_groups: Annotated[
        SmallGroups | None,
        option(
            "HOW",
            "What a group with too few calibration rows gets: pooled, the correction of all rows, without a promise; "
            "infinite, intervals without an end, which keep the promise; or error.",
            show_default="pooled",
        ),
    ] = None
    y_min: Annotated[
        float | None,
        option("NUMBER", "The target is never less than this, for example 0 for prices: intervals end there."),
    ] = None
    y_max: Annotated[float | None, option("NUMBER", "The target is never more than this: intervals end there.")] = None
    seed: Seed = 0
    jobs: Annotated[int | None, option("N", "How many tasks run at the same time; -1 is one per core.")] = None

    def __post_init__(self) -> None:
        if self.y_min is not None and self.y_max is not None and not self.y_min < self.y_max:
            raise typer.BadParameter(f"--y-min must be less than --y-max, got {self.y_min:g} and {self.y_max:g}")
        if self.jobs == 0:
            raise typer.BadParameter("--jobs must be 1 or more, or -1 for one per core, got 0")

    def check_for(self, method: MethodName) -> None:
        """Refuse options that mean nothing to a method."""
        if self.effort is not None and method != "auto":
            raise typer.BadParameter(f"--effort is for --method auto, got --method {method}")
        for name, value in (("--groups", self.groups), ("--small-groups", self.small_groups)):
            if value is not None and method not in ("auto", "icqr"):
                raise typer.BadParameter(
                    f"{name} is for --method auto and --method icqr, got --method {method}, which has one group for "
                    "all rows"
                )


@dataclass(frozen=True)
class TextFormat:
    """How a CSV file is written, as far as the user says; `None` is as by default."""

    panel: ClassVar[str] = "CSV files (the separator is found)"
    encoding: Annotated[str | None, option("NAME", "The encoding, if it is not UTF-8, for example latin-1.")] = None
    decimal: Annotated[
        Literal[".", ","] | None, option("SIGN", "The decimal sign: a point, or a comma as in 12,5.")
    ] = None
    thousands: Annotated[
        Literal[",", ".", "'", " "] | None, option("SIGN", "The sign between thousands, as the comma in 1,250.")
    ] = None
    date_format: Annotated[
        str | None,
        option("FORMAT", "How dates are written: %d.%m.%Y is 31.12.2024. Dates like 2024-12-31 need no format."),
    ] = None
    missing: Annotated[
        list[str] | None,
        option("TEXT", "A text that means a missing value, for example unknown or -999. Repeat it for more."),
    ] = None
    no_header: Annotated[
        bool, flag("--no-header", "The first line is a row. The columns are then called 'column 1', 'column 2', …")
    ] = False

    def __post_init__(self) -> None:
        if self.thousands is not None and self.thousands == self.decimal:
            raise typer.BadParameter(f"--decimal and --thousands can't both be {self.decimal!r}")
        if self.date_format is not None and "%" not in self.date_format:
            raise typer.BadParameter(
                f"--date-format must be a format such as %d.%m.%Y, for 31.12.2024, got {self.date_format!r}"
            )


@dataclass(frozen=True)
class Engine:
    """What does the work."""

    panel: ClassVar[str] = "Files larger than memory"
    engine: Annotated[
        Literal["local", "dask"],
        option("NAME", "local, or dask for Parquet files larger than memory: DATA is then a pattern or a folder."),
    ] = "local"
    scheduler: Annotated[
        str | None,
        option(
            "ADDRESS",
            "A Dask cluster, for example tcp://10.0.0.5:8786. Without it, one worker per core of this machine.",
        ),
    ] = None

    def is_dask(self, text_format: TextFormat) -> bool:
        """Tell whether Dask does the work; options that then mean nothing are a wrong use of the command."""
        if self.engine == "local":
            if self.scheduler is not None:
                raise typer.BadParameter("--scheduler is for --engine dask")
            return False
        if text_format != TextFormat():
            raise typer.BadParameter(
                "--encoding, --decimal, --thousands, --date-format, --missing and --no-header are for CSV; "
                "--engine dask reads Parquet"
            )
        for module in ("dask.dataframe", "distributed"):
            imported(module, "--engine dask needs", "icqr[dask]")
        return True


# -- From a function to a command --------------------------------------------------------------------------


class _Command(TyperCommand):
    """A command that refuses an option given twice, of which typer would take the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = self.make_parser(ctx).parse_args(args=[*args])[2]
        for parameter in given:
            is_once = not (getattr(parameter, "multiple", True) or getattr(parameter, "is_flag", True))
            if is_once and given.count(parameter) > 1:
                is_coverage = self.name == "fit" and parameter.name == "coverage"
                hint = ": icqr predict gives any other coverage from the same model" if is_coverage else ""
                text = f"it is given twice, and one is enough{hint}"
                raise typer.BadParameter(text, ctx, param_hint=repr(parameter.opts[0]))
        return super().parse_args(ctx, args)


def command(app: typer.Typer, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of `app`: its docstring is the help, examples follow, its parameters are the options.

    Of a bundle typer sees the fields, each an option; the function gets the bundle.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        bundles: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
        parameters: list[Parameter] = []
        for name, parameter in signature(function).parameters.items():
            options = signature(bundles[name]).parameters.values() if name in bundles else [parameter]
            kinds = get_type_hints(bundles.get(name, function), include_extras=True)
            for part in options if name in bundles else ():
                kind, (info,) = kinds[part.name].__origin__, kinds[part.name].__metadata__
                shown = copy(info)  # an option of several bundles has a panel in each
                shown.rich_help_panel = bundles[name].panel
                kinds[part.name] = Annotated[kind, shown]
            parameters += [part.replace(annotation=kinds[part.name], kind=Parameter.KEYWORD_ONLY) for part in options]

        def run(**values: Any) -> None:
            for name, bundle in bundles.items():
                values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
            function(**values)

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        # Each paragraph of the help is one line, which rich then wraps.
        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
        app.command(function.__name__, cls=_Command, help=text, epilog=epilog)(run)
        return function

    return register
