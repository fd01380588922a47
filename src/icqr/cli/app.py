"""The commands of `icqr`: what can be typed, with help, and the steps of each. Libraries are imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

import icqr
from icqr.cli import options
from icqr.cli.console import note, progress, say, say_json, say_sheet, tell, warnings_as_lines
from icqr.cli.options import AuditOptions, Engine, PredictOptions, Setting, Source, TextFormat, command, flag, option

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


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code; an error that the user can mend is one line."""
    try:
        with warnings_as_lines():
            app(arguments, prog_name="icqr")
    except (ValueError, OSError, ImportError, MemoryError) as error:
        text = str(error)
        if isinstance(error, MemoryError):
            text = "not enough memory; give fewer rows or columns"
        elif isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
        tell("error", text, "bold red")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == 130:
            tell("error", "interrupted", "bold red")
        raise


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


# -- The commands ----------------------------------------------------------------------------------------


@command(
    app,
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
        str | None, option("FILE", "The report, HTML. Without this option: report.html; with --json, none.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Compare Naive, QR, CQR, ICQR and the recommended setting of ICQR on your data, and write a report.

    Half of the rows train one quantile model, which the first four share; a quarter calibrates; on the last quarter the
    methods are compared (the paper's split, drawn at random). The recommended setting (see icqr fit --recommended) has
    the same rows and fits its own model, which takes several times as long. Without DATA, built-in data are used.
    """
    from icqr.cli.judging import compare_methods

    report = "report.html" if report is None and not json else report
    compare_methods(data, source, text_format, setting, report, json)


@command(
    app,
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
    out: Annotated[str, option("FILE", "The model's file; its name ends in .icqr.")],
    setting: Setting,
    text_format: TextFormat,
    engine: Engine,
    recommended: Annotated[
        bool,
        flag(
            "--recommended",
            "The recommended setting: bounds in two stages, groups chosen from the training rows. Takes several "
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
    from icqr.cli import models
    from icqr.cli.data import read_rows

    models.check_destination(out, "--out", models.MODEL_ENDINGS)
    estimator = models.make_model(setting.model)
    with progress(3) as begin:
        begin("Reading the data")
        described, X, y = read_rows(data, source, text_format)
        parameters = models.make_parameters(setting, estimator, X.columns, recommended)
        models.check_no_gaps(setting.model, estimator, X)
        begin(f"Fitting and calibrating ({setting.model})", own_bar=setting.model == "network")
        model = icqr.ICQR(**parameters).fit(X, y)
        begin("Writing the model")
        icqr.save(model, out)
    models.say_fitted(described, model, out)


@command(
    app,
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
    from icqr.cli import models
    from icqr.cli.data import read_data

    if wanted.out != "-":
        models.check_destination(wanted.out, "--out", models.TABLE_ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        fitted = models.load_model(model)
        as_text, only = models.columns_to_read(fitted)
        table = read_data(data, text_format, as_text=as_text, only=only, keep=wanted.kept)
        X = models.features_of(fitted, table, wanted.kept, "--keep")

        begin(f"Predicting {len(X):,} rows")
        explained = fitted.explain(X, wanted.coverage)
        predicted = models.chosen_columns(explained, wanted)
        models.note_novel_rows(explained["novelty"], int(fitted.calibration_.sizes.sum()))

        begin("Writing the intervals")
        models.write_table([table.kept[wanted.kept], predicted], wanted.out)
    if wanted.out != "-":
        say(models.predicted_words(fitted, wanted, len(X), int((explained["promised"] == 0).sum())))


@command(
    app,
    "icqr recalibrate sales.icqr october.csv --target price",
    "icqr recalibrate sales.icqr october.csv --target price --out october.icqr",
)
def recalibrate(
    model: options.ModelFile,
    data: options.Data,
    text_format: TextFormat,
    target: options.Target = None,
    out: Annotated[str | None, option("FILE", "Another file. Without this option MODEL is replaced.")] = None,
    drop_missing: options.DropMissing = False,
) -> None:
    """Calibrate a model with fresh rows; its quantile model and groups stay as they are.

    DATA must hold rows that the model was not fitted on, with the target.
    """
    from icqr.cli import models
    from icqr.cli.data import check_column, check_numbers, read_data

    out = model if out is None else out
    models.check_destination(out, "--out", models.MODEL_ENDINGS)
    with progress(3) as begin:
        begin("Reading the model and the data")
        fitted = models.load_model(model)
        as_text, only = models.columns_to_read(fitted)
        wanted = None if only is None else [*only, *filter(None, [target])]
        table = read_data(data, text_format, as_text=as_text, only=wanted)
        target = table.target if target is None else target
        if target is None:
            raise ValueError("--target must be given: the column that holds what happened")
        if only is not None and target in only:
            raise ValueError(
                f"--target {target}: the model was trained on this column, so it can't be what it predicts"
            )
        check_column(table.names, target, "--target")
        rows = check_numbers(table.frame, {"--target": target}, drop_missing)
        X = models.features_of(fitted, replace(table, frame=rows), [target], "--target")

        begin(f"Calibrating with {len(X):,} rows")
        fitted.calibrate(X, rows[target])
        begin("Writing the model")
        icqr.save(fitted, out)
    models.say_model(fitted)
    say(f"Model: {out}, calibrated with {len(X):,} rows of {table.name}")


@command(
    app,
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
    from icqr.cli.data import check_numbers, read_data
    from icqr.cli.judging import check_report, judge, say_audit

    check_report(wanted.report)
    with progress(2) as begin:
        begin("Reading the data")
        table = read_data(data, text_format)
        for text in table.notes:
            note(text)
        rows = check_numbers(table.frame, wanted.columns, wanted.drop_missing)
        begin(f"Checking {len(rows):,} intervals")
        result, summary = judge(rows, wanted, f"{table.name} ({len(rows):,} rows)")
    say_audit(result, summary, wanted)


@command(app, "icqr inspect sales.icqr", "icqr inspect sales.icqr --json")
def inspect(model: options.ModelFile, json: options.AsJson = False) -> None:
    """Say what is in a model's file: what is promised, its groups, its columns. Nothing in the file is run."""
    from icqr.auditing.findings import as_json
    from icqr.cli import models
    from icqr.reporting import summarize

    fitted = models.load_model(model)
    kinds = models.kinds_of_columns(fitted)
    if json:
        say_json(as_json(summarize(fitted) | {"columns": kinds}))
        return
    models.say_model(fitted)
    words = [f"{name!r} ({kind})" for name, kind in kinds.items()]
    say(f"Columns: {', '.join(words[:50])}{f' and {len(words) - 50} more' if len(words) > 50 else ''}.")


@command(app, "icqr plan --rows 1000 --n-groups 5", "icqr plan --precision 0.02 --coverage 0.95")
def plan(
    rows: Annotated[int | None, option("N", "Calibration rows in all.", min=0)] = None,
    coverage: options.Coverage = 0.9,
    n_groups: Annotated[int, option("N", "Groups, equally large.", min=1)] = 1,
    precision: Annotated[float | None, option("SHARE", "How far off it may be: 0.02 is two points.")] = None,
    confidence: Annotated[float, option("SHARE", "The share of calibrations that this is for.")] = 0.9,
    json: options.AsJson = False,
) -> None:
    """Say how many calibration rows are needed, and how near to the promise a number of them comes."""
    from icqr._sheet import Column, Sheet, cell, share, span
    from icqr.auditing.findings import promise

    planned = icqr.plan(rows, coverage, n_groups, precision=precision, confidence=confidence)
    if json:
        say_json(planned.to_json())
        return
    say(planned.sentence, "bold")
    say()
    columns = [Column("Rows in a group"), Column("Rank"), Column("Promised"), Column("True coverage between")]
    cells = [
        [cell(n["rows"]), cell(n["rank"]), share(n["promised"]), span(n["band_lower"], n["band_upper"])]
        for n in planned.to_dict()["table"]
    ]
    caption = f"Calibration rows in a group, and the coverage that {promise(confidence)} of all calibrations give"
    say_sheet(Sheet(columns, cells, caption))


@command(app, "icqr datasets", "icqr datasets --json")
def datasets(json: options.AsJson = False) -> None:
    """List the data sets that can stand for DATA."""
    from icqr._sheet import Sheet
    from icqr.auditing.findings import as_json
    from icqr.datasets import list_datasets

    known = list_datasets()
    if json:
        say_json(as_json(known))
        return
    named = known[["name", "rows", "columns", "target", "available"]]
    sheet = Sheet.from_frame(
        named.set_axis(["Name", "Rows", "Columns", "Target", "Here"], axis=1), "Data sets that can stand for DATA"
    )
    where = (
        "Files are looked up in the folder that ICQR_DATA_HOME names and in the user's cache; where a public address "
        "with the same bytes is known, they are downloaded when they are used."
    )
    say_sheet(replace(sheet, note=where))
