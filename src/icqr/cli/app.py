"""The commands of `icqr`: what can be typed, with help. What a command does is imported only when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, get_type_hints

import typer

import icqr
from icqr.cli import console, options
from icqr.cli.options import AuditOptions, Engine, PredictOptions, Setting, Source, TextFormat

app = typer.Typer(
    name="icqr",
    help="Prediction intervals for tabular regression that hold where you look, not only on average.",
    epilog="Exit codes: 0 done; 1 the data, the model or a file is not as it must be, and a line on standard error "
    "says why; 2 wrong use of the command; 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(*examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command: its docstring is the help, and a bundle of options stands for each of them."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(function, include_extras=True)
        bundles: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
        parameters = []
        for parameter in signature(function).parameters.values():
            bundle = bundles.get(parameter.name)
            flat = [parameter] if bundle is None else signature(bundle).parameters.values()
            hints = kinds if bundle is None else get_type_hints(bundle, include_extras=True)
            parameters += [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in flat]

        def command(**values: Any) -> None:
            for name, bundle in bundles.items():
                values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
            function(**values)

        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
        app.command(function.__name__, help=text, epilog=epilog)(command)
        return function

    return register


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"icqr {icqr.__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


@_command(
    "icqr compare",
    "icqr compare bike",
    "icqr compare sales.csv --target price --coverage 0.8 --report sales.html",
    "icqr compare sales.parquet --target price --groups region --model lightgbm",
    "icqr compare sales.csv.gz --target price --json > sales.json",
)
def compare(
    source: Source,
    setting: Setting,
    text_format: TextFormat,
    data: options.DataOrNothing = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The report, HTML. Without this option: report.html; with --json, none."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Compare Naive, QR, CQR, ICQR and the recommended setting of ICQR on your data, and write a report.

    Half of the rows train one quantile model, which the first four share; a quarter calibrates; on the last quarter the
    methods are compared (the paper's split, drawn at random). The recommended setting (see icqr fit --recommended) has
    the same rows and fits its own model, which takes several times as long. Without DATA, built-in data are used.
    """
    from icqr.cli.judging import compare_methods

    destination = "report.html" if report is None and not json else report
    compare_methods(data, source, text_format, setting, destination, json)


@_command(
    "icqr fit sales.csv --target price --out sales.icqr",
    "icqr fit sales.csv --target price --recommended --out sales.icqr",
    "icqr fit sales.csv --target price --groups region --model catboost --out sales.icqr",
    "icqr fit sales.csv --target price --y-min 0 --ignore id --out sales.icqr",
    "icqr fit bike --out bike.icqr",
    'icqr fit "sales/*.parquet" --target price --model lightgbm --engine dask --out sales.icqr',
)
def fit(
    data: options.Data,
    source: Source,
    out: Annotated[str, typer.Option(metavar="FILE", help="The model's file; its name ends in .icqr.")],
    setting: Setting,
    text_format: TextFormat,
    engine: Engine,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended",
            help="The recommended setting: bounds in two stages, groups chosen from the training rows. Takes several "
            "times as long.",
        ),
    ] = False,
) -> None:
    """Fit ICQR and keep it in a file.

    A third of the rows, drawn at random, is set aside for calibration.
    """
    groups = "--groups" if setting.groups is not None else "--partition" if setting.partition is not None else None
    if recommended and groups is not None:
        raise typer.BadParameter(
            f"--recommended and {groups} can't both be given: the recommended setting chooses the groups"
        )
    if engine.is_dask(text_format):
        from icqr.cli.on_dask import fit_on_dask

        fit_on_dask(data, source, setting, recommended, out, engine.scheduler)
        return
    from icqr.cli.models import fit_model

    fit_model(data, source, text_format, setting, recommended, out)


@_command(
    "icqr predict sales.icqr new.csv --out intervals.parquet",
    "icqr predict sales.icqr new.csv --keep id --coverage 0.8 --out intervals.csv",
    "cat new.csv | icqr predict sales.icqr - | head",
    'icqr predict sales.icqr "new/*.parquet" --engine dask --out intervals',
)
def predict(
    model: options.ModelFile, data: options.Data, wanted: PredictOptions, text_format: TextFormat, engine: Engine
) -> None:
    """Predict intervals: lower, median, upper, group and promised coverage, a row for each row of DATA, in its order.

    Columns that the model does not use are ignored, the target among them.
    """
    if engine.is_dask(text_format):
        from icqr.cli.on_dask import predict_on_dask

        predict_on_dask(model, data, wanted, engine.scheduler)
        return
    from icqr.cli.models import predict_rows

    predict_rows(model, data, text_format, wanted)


@_command(
    "icqr recalibrate sales.icqr october.csv --target price",
    "icqr recalibrate sales.icqr october.csv --target price --out october.icqr",
)
def recalibrate(
    model: options.ModelFile,
    data: options.Data,
    text_format: TextFormat,
    target: options.Target = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Another file. Without this option MODEL is replaced.")
    ] = None,
    drop_missing: options.DropMissing = False,
) -> None:
    """Calibrate a model with fresh rows; its quantile model and groups stay as they are.

    DATA must hold rows that the model was not fitted on, with the target.
    """
    from icqr.cli.models import recalibrate_model

    recalibrate_model(model, data, text_format, target, drop_missing, out)


@_command(
    "icqr audit intervals.csv --target y --lower lo --upper hi --coverage 0.9",
    "icqr audit intervals.parquet --target y --lower lo --upper hi --coverage 0.9 --groups region --report audit.html",
    'icqr audit "intervals/*.parquet" --target y --lower lower --upper upper --coverage 0.9 --engine dask',
)
def audit(data: options.Data, wanted: AuditOptions, text_format: TextFormat, engine: Engine) -> None:
    """Say where the intervals of any library hold and where they do not.

    The other columns of DATA are searched for regions in which the promise fails; rows must be ones that the intervals'
    model has not seen.
    """
    if engine.is_dask(text_format):
        from icqr.cli.on_dask import audit_on_dask

        audit_on_dask(data, wanted, engine.scheduler)
        return
    from icqr.cli.judging import audit_intervals

    audit_intervals(data, text_format, wanted)


@_command("icqr inspect sales.icqr", "icqr inspect sales.icqr --json")
def inspect(model: options.ModelFile, json: options.AsJson = False) -> None:
    """Say what is in a model's file: what is promised, its groups, its columns. Nothing in the file is run."""
    from icqr.cli.models import inspect_model

    inspect_model(model, json)


@_command("icqr plan --rows 1000 --n-groups 5", "icqr plan --precision 0.02 --coverage 0.95")
def plan(
    rows: Annotated[int | None, typer.Option(metavar="N", min=0, help="Calibration rows in all.")] = None,
    coverage: options.Coverage = 0.9,
    n_groups: Annotated[int, typer.Option(metavar="N", min=1, help="Groups, equally large.")] = 1,
    precision: Annotated[
        float | None, typer.Option(metavar="SHARE", help="How far off it may be: 0.02 is two points.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of calibrations that this is for.")
    ] = 0.9,
    json: options.AsJson = False,
) -> None:
    """Say how many calibration rows are needed, and how near to the promise a number of them comes."""
    from icqr.cli.judging import say_plan

    say_plan(rows, coverage, n_groups, precision, confidence, json)


@_command("icqr datasets", "icqr datasets --json")
def datasets(json: options.AsJson = False) -> None:
    """List the data sets that can stand for DATA."""
    from icqr.cli.judging import say_datasets

    say_datasets(json)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code; an error that the user can mend is one line."""
    try:
        with console.warnings_as_lines():
            app(arguments, prog_name="icqr")
    except (ValueError, OSError, ImportError, MemoryError) as error:
        text = str(error)
        if isinstance(error, MemoryError):
            text = "not enough memory; give fewer rows or columns"
        elif isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
        console.tell("error", text, "bold red")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == 130:
            console.tell("error", "interrupted", "bold red")
        raise
