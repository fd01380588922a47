"""The commands of `icqr`: what can be typed, with help, and the steps of each. Libraries are imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import icqr
from icqr.cli import options
from icqr.cli.console import note, progress, say, say_sheet, tell, warnings_as_lines
from icqr.cli.options import command, option
from icqr.cli.wording import in_options

app = typer.Typer(
    name="icqr",
    help="Prediction intervals for tabular regression that hold where you look, not only on average.",
    epilog="Exit codes: 0 done; 1 something is wrong with the data, the model or a file, and a line on standard error "
    "says what; 2 wrong use of the command; 3 icqr watch has raised an alarm; 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: Rows of the built-in data.
_BUILT_IN = 8000


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code; an error that the user can mend is one line."""
    try:
        with warnings_as_lines():
            app(arguments, prog_name="icqr")
    except (ValueError, OSError, ImportError, MemoryError) as error:
        text = in_options(str(error))
        if isinstance(error, MemoryError):
            text = "not enough memory; give fewer rows or columns"
        elif isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
        tell("error", text, "bold red")
        sys.exit(1)
    except Exception as error:
        # A model library may have errors of its own kind.
        library = type(error).__module__.partition(".")[0].lstrip("_")
        if library not in ("catboost", "lightgbm", "xgboost"):
            raise
        tell("error", f"{library} can't learn from these rows: {str(error).rpartition(': ')[2]}", "bold red")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == 130:
            tell("error", "interrupted", "bold red")
        raise


@app.callback(invoke_without_command=True)
def _show_version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"icqr {icqr.__version__}")
        raise typer.Exit


# -- The commands ----------------------------------------------------------------------------------------


@command(
    app,
    "icqr compare",
    "icqr compare bike",
    "icqr compare sales.csv --target price --coverage 0.8 --report sales.html",
    "icqr compare sales.parquet --target price --groups region --model lightgbm",
    "icqr compare sales.csv --target price --order-by date",
    "icqr compare sales.csv.gz --target price --json > sales.json",
)
def compare(
    data: options.DataOrNothing = None,
    *,
    rows: options.TrainingRows,
    settings: options.Settings,
    text_format: options.TextFormat,
    report: Annotated[
        str | None,
        option("FILE", "The report, an HTML file. Without this option it is report.html; with --json there is none."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Compare AutoICQR with Naive, QR, CQR and ICQR on your data, and write a report.

    Half of the rows train and a quarter calibrates; on the last quarter the methods are compared, as in the paper. Rows
    are drawn at random, or taken in the order of --order-by. QR, CQR and ICQR share one quantile model; Naive and
    AutoICQR have the same rows and fit their own. Without DATA, built-in data are used.
    """
    from icqr.auditing.findings import as_json
    from icqr.cli import judging, models
    from icqr.cli.reading import read_rows

    report = "report.html" if report is None and not json else report
    estimator = models.make_model(settings.model)
    judging.check_report(report)
    with progress() as show:
        show("Reading the data")
        if data is None:
            from icqr.datasets import make_heteroscedastic

            X, y = make_heteroscedastic(_BUILT_IN, random_state=0, return_X_y=True)
            described = f"built-in data whose spread grows along x1 ({_BUILT_IN:,} rows)"
        else:
            described, X, y = read_rows(data, rows, text_format)
        models.check_features(X, settings, estimator)
        comparison, summary = judging.compare_methods(estimator, settings, X, y, described, report, show, rows.order_by)
    if json:
        typer.echo(as_json(summary))
    else:
        judging.say_comparison(summary, comparison.findings, report)


@command(
    app,
    "icqr fit sales.csv --target price --out sales.icqr",
    "icqr fit sales.csv --target price --effort thorough --model lightgbm --out sales.icqr",
    "icqr fit sales.csv --target price --method cqr --out sales.icqr",
    "icqr fit sales.csv --target price --groups region --model catboost --out sales.icqr",
    "icqr fit sales.csv --target price --y-min 0 --ignore id --out sales.icqr",
    "icqr fit sales.csv --target price --order-by date --out sales.icqr",
    "icqr fit sales.csv --target price --calibration october.csv --out sales.icqr",
    "icqr fit verkauf.csv --target preis --decimal , --date-format %d.%m.%Y --missing unbekannt --out verkauf.icqr",
    "icqr fit bike --out bike.icqr",
    'icqr fit "sales/*.parquet" --target price --model lightgbm --engine dask --out sales.icqr',
)
def fit(
    data: options.Data,
    out: Annotated[str, option("FILE", "The model's file; its name ends in .icqr.")],
    *,
    rows: options.TrainingRows,
    method: options.ChosenMethod = "auto",
    calibration: options.ChosenCalibration = None,
    settings: options.Settings,
    text_format: options.TextFormat,
    engine: options.Engine,
) -> None:
    """Fit AutoICQR, or another method, and keep it in a file.

    A third of the rows is set aside for calibration: drawn at random, or with --order-by the newest. AutoICQR with
    fewer than 1,000 rows sets none aside: all rows train, and each calibrates by a model that has not seen it. QR is
    not calibrated, and trains on all rows.
    """
    settings.check_for(method)
    rows.check_calibration(calibration, method)
    on_dask = engine.is_dask(text_format)
    if on_dask and rows.order_by is not None:
        raise typer.BadParameter(
            "--order-by is for --engine local; with --engine dask fit the older files, and give the newest by "
            "--calibration"
        )
    fresh = None if calibration in (None, *options.CALIBRATIONS) else calibration
    from icqr.cli import models

    models.check_destination(out, "--out", [".icqr"])
    estimator = models.make_model(settings.model)
    unfitted = models.make_method(method, estimator, settings, calibration)
    with progress() as show:
        if on_dask:
            from icqr.cli.on_dask import fit_on_dask

            described, fitted = fit_on_dask(data, fresh, rows, unfitted, settings.model, engine.scheduler, show)
        else:
            from icqr.cli.reading import read_calibration, read_rows

            show("Reading the data")
            described, X, y = read_rows(data, rows, text_format, drawn=fresh is None and method != "qr")
            models.check_features(X, settings, estimator)
            how: dict[str, Any] = {} if rows.order_by is None else {"order": rows.order_by}
            if fresh is not None:
                X_fresh, y_fresh = read_calibration(fresh, X, y, text_format, rows.drop_missing)
                models.check_features(X_fresh, settings, estimator)
                how = {"X_calibration": X_fresh, "y_calibration": y_fresh}
            show(f"Fitting and calibrating ({settings.model})")
            fitted = unfitted.fit(X, y, **how)
        show("Writing the model")
        icqr.save(fitted, out)
    models.note_many_categories(fitted)
    say(f"Data: {described}.")
    if rows.order_by is not None:
        n_newest = int(fitted.calibration_.sizes.sum())
        say(f"Split: the oldest {fitted.n_train_:,} rows train, the newest {n_newest:,} calibrate ({rows.order_by!r}).")
        note(
            "with rows in time no promise is sure to last: icqr compare --order-by shows how the methods do on the "
            "newest rows, and icqr recalibrate takes fresh ones"
        )
    elif fresh is not None:
        say(f"Calibration: {fresh} ({int(fitted.calibration_.sizes.sum()):,} rows).")
    models.say_model(fitted)
    models.note_groups(fitted)
    say(f"Model: {out} ({Path(out).stat().st_size / 1000:,.0f} kB)")


@command(
    app,
    "icqr predict sales.icqr new.csv --out intervals.parquet",
    "icqr predict sales.icqr new.csv --keep id --out intervals.csv",
    "icqr predict sales.icqr new.csv --coverage 0.8 --coverage 0.95 --out intervals.csv",
    "cat new.csv | icqr predict sales.icqr - | head",
    'icqr predict sales.icqr "new/*.parquet" --engine dask --out intervals',
)
def predict(
    model: options.ModelFile,
    data: options.Data,
    out: Annotated[
        str,
        option(
            "FILE",
            "The file of intervals: .parquet, .feather, .csv, .csv.gz or .jsonl. - is CSV on standard output. "
            "With --engine dask, a new folder of Parquet files.",
        ),
    ] = "-",
    coverage: Annotated[
        list[float] | None,
        option(
            "SHARE",
            "Another coverage than the model's own. Repeat it for more: columns are then lower_0.8, upper_0.8, …",
            callback=options.check_coverage,
        ),
    ] = None,
    explain: Annotated[
        bool,
        options.flag("--explain", "Add calibration rows, rank, offsets, kind of guarantee, novelty and more."),
    ] = False,
    quantiles: options.Quantiles = None,
    above: Annotated[
        float | None, option("LIMIT", "Add the probability of more than this, as a column above_LIMIT.")
    ] = None,
    below: Annotated[
        float | None, option("LIMIT", "Add the probability of this or less, as a column below_LIMIT.")
    ] = None,
    keep: Annotated[
        list[str] | None, option("COL", "Copy this column of DATA, for example an id. Repeat it for more.")
    ] = None,
    *,
    text_format: options.TextFormat,
    engine: options.Engine,
) -> None:
    """Predict an interval for each row of DATA, in its order: lower, median, upper, group and promised coverage.

    Columns that the model does not use are ignored, the target among them.
    """
    kept = keep or []
    coverages: list[float | None] = [None] if not coverage else [*dict.fromkeys(coverage)]
    has_probabilities = quantiles is not None or above is not None or below is not None
    if engine.is_dask(text_format):
        if has_probabilities:
            raise ValueError("--quantiles, --above and --below are not possible with --engine dask; use --engine local")
        from icqr.cli.on_dask import predict_on_dask

        with progress() as show:
            words = predict_on_dask(model, data, out, coverages, explain, kept, engine.scheduler, show)
        say(words)
        return
    import pandas as pd

    from icqr.cli import models
    from icqr.cli.reading import read_data

    if out != "-":
        models.check_destination(out, "--out", models.TABLE_ENDINGS)
    with progress() as show:
        show("Reading the model and the data")
        fitted = models.load_model(model)
        as_text, only = models.columns_to_read(fitted)
        table = read_data(data, text_format, as_text=as_text, only=only, keep=kept)
        X = models.features_of(fitted, table, kept, "--keep")
        show(f"Predicting {len(X):,} rows")
        explained = [fitted.explain(X, level) for level in coverages]
        probabilities = models.probabilities(fitted, X, quantiles, above, below) if has_probabilities else None
        predicted = models.predicted_columns(explained, coverages, explain, kept, probabilities)
        models.note_novelty(explained[0]["novelty"], int(fitted.calibration_.sizes.sum()))
        show("Writing the intervals")
        models.write_table(pd.concat([table.kept[kept], predicted], axis=1), out)
    if out != "-":
        without = [int((each["promised"] == 0).sum()) for each in explained]
        say(models.predicted_words([*map(fitted.certificate, coverages)], len(X), without, out))


@command(
    app,
    "icqr recalibrate sales.icqr october.csv --target price",
    "icqr recalibrate sales.icqr october.csv --target price --out october.icqr",
)
def recalibrate(
    model: options.ModelFile,
    data: options.Data,
    target: options.Target = None,
    out: Annotated[str | None, option("FILE", "The file to write. Without this option, MODEL is replaced.")] = None,
    drop_missing: options.DropMissing = False,
    *,
    text_format: options.TextFormat,
) -> None:
    """Calibrate a model again, with fresh rows. Its bounds and groups stay as they are.

    DATA needs the target, and rows that the model was not fitted on.
    """
    from icqr.cli import models

    out = model if out is None else out
    models.check_destination(out, "--out", [".icqr"])
    with progress() as show:
        show("Reading the model and the data")
        fitted = models.load_model(model)
        table, X, y, _ = models.read_labelled(fitted, data, target, text_format, drop_missing)
        show(f"Calibrating with {len(X):,} rows")
        fitted.calibrate(X, y)
        show("Writing the model")
        icqr.save(fitted, out)
    models.say_model(fitted)
    say(f"Model: {out}, calibrated with {len(X):,} rows of {table.name}")


@command(
    app,
    "icqr watch sales.icqr november.csv --target price --state november.json",
    "icqr watch sales.icqr today.csv --target price --id order --state sales.json --json",
)
def watch(
    model: options.ModelFile,
    data: options.Data,
    state: Annotated[
        str, option("FILE", "What was counted so far, a file that ends in .json. It is made the first time.")
    ],
    target: options.Target = None,
    name_column: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="COL", help="A column that names each row. Rows that were counted before are left out."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        option("SHARE", "The coverage to watch, if not the model's own.", callback=options.check_coverage),
    ] = None,
    error_rate: Annotated[
        float | None, option("SHARE", "The chance of any false alarm, ever.", show_default="0.05")
    ] = None,
    json: options.AsJson = False,
    drop_missing: options.DropMissing = False,
    *,
    text_format: options.TextFormat,
) -> None:
    """Say whether a model's intervals still hold, as labels come in: each day's file, or each month's.

    DATA holds new rows with what happened. They are one batch, and are added to what --state has counted. Exit code 3
    means that there is an alarm, in this batch or an earlier one. Look as often as you like: the chance that there is
    ever a false alarm stays below --error-rate.
    """
    from icqr.cli import models, watching

    models.check_destination(state, "--state", [".json"])
    with progress() as show:
        show("Reading the model and the data")
        fitted = models.load_model(model)
        monitor = watching.open_monitor(state, fitted, coverage, error_rate)
        table, X, y, ids = models.read_labelled(fitted, data, target, text_format, drop_missing, name_column)
        show(f"Checking {len(X):,} intervals")
        monitor.update(X, y, ids)
        monitor.save(state)
    watching.say_monitor(monitor, table.name, json)
    if monitor.alarms:
        raise typer.Exit(3)


@command(
    app,
    "icqr audit intervals.csv --target y --lower lo --upper hi --coverage 0.9",
    "icqr audit intervals.parquet --target y --lower lo --upper hi --coverage 0.9 --groups region --report audit.html",
    'icqr audit "intervals/*.parquet" --target y --lower lower --upper upper --coverage 0.9 --engine dask',
)
def audit(
    data: options.Data,
    target: Annotated[str, option("COL", "The column of the true values.")],
    lower: Annotated[str, option("COL", "The column of lower bounds.")],
    upper: Annotated[str, option("COL", "The column of upper bounds.")],
    coverage: Annotated[
        float, option("SHARE", "What the intervals promise, for example 0.9.", callback=options.check_coverage)
    ],
    groups: Annotated[str | None, option("COL", "Judge each value of this column.")] = None,
    report: Annotated[str | None, option("FILE", "Write a report to this HTML file.")] = None,
    json: options.AsJson = False,
    seed: options.Seed = 0,
    drop_missing: options.DropMissing = False,
    *,
    text_format: options.TextFormat,
    engine: options.Engine,
) -> None:
    """Say where intervals hold and where they don't, whatever library made them.

    The other columns of DATA are searched for regions in which the promise fails. The model that made the intervals
    must not have seen these rows.
    """
    on_dask = engine.is_dask(text_format)
    from icqr.auditing.findings import as_json
    from icqr.cli import judging

    judging.check_report(report)
    columns = {"--target": target, "--lower": lower, "--upper": upper}
    counted: list[str] = []
    with progress() as show:
        if on_dask:
            from icqr.cli.on_dask import sample_intervals

            described, rows, counted = sample_intervals(data, columns, groups, drop_missing, engine.scheduler, show)
        else:
            from icqr.cli.reading import check_numbers, read_data

            show("Reading the data")
            table = read_data(data, text_format)
            note(*table.notes)
            rows = check_numbers(table, columns, drop_missing)
            described = f"{table.name} ({len(rows):,} rows)"
        show(f"Checking {len(rows):,} intervals")
        result, summary = judging.judge(rows, columns, groups, coverage, seed, described, report)
    if json:
        typer.echo(as_json(summary | ({"all_rows": counted} if counted else {})))
    else:
        judging.say_audit(result, summary, counted, report)


@command(app, "icqr inspect sales.icqr", "icqr inspect sales.icqr --json")
def inspect(model: options.ModelFile, json: options.AsJson = False) -> None:
    """Show what a model promises, its groups and its columns. Nothing in the file is run."""
    from icqr.cli import models

    fitted = models.load_model(model)
    kinds = models.kinds_of(fitted)
    if json:
        from icqr.auditing.findings import as_json
        from icqr.reporting import summarize

        typer.echo(as_json(summarize(fitted) | {"columns": kinds}))
        return
    models.say_model(fitted)
    words = [f"{name!r} ({kind})" for name, kind in kinds.items()]
    say(f"Columns: {', '.join(words[:50])}{f' and {len(words) - 50} more' if len(words) > 50 else ''}.")


@command(app, "icqr plan --rows 1000 --n-groups 5", "icqr plan --precision 0.02 --coverage 0.95")
def plan(
    rows: Annotated[int | None, option("N", "How many calibration rows you have.", min=0)] = None,
    coverage: options.Coverage = 0.9,
    n_groups: Annotated[int, option("N", "How many groups share them, equally.", min=1)] = 1,
    precision: Annotated[
        float | None, option("SHARE", "How far from the promise you may be: 0.02 is two points.")
    ] = None,
    confidence: Annotated[float, option("SHARE", "The share of calibrations for which that holds.")] = 0.9,
    json: options.AsJson = False,
) -> None:
    """Say how many calibration rows you need, or how near to the promise those that you have come."""
    from icqr._sheet import Column, Sheet, cell, share, span
    from icqr.auditing.findings import promise

    planned = icqr.plan(rows, coverage, n_groups, precision=precision, confidence=confidence)
    if json:
        typer.echo(planned.to_json())
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
        typer.echo(as_json(known))
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
