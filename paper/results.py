"""What a long run leaves and says: rows as Parquet, tables as CSV, Markdown and LaTeX, its settings, its progress."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from icqr._files import replacing

#: Type and meaning of each column.
Columns = Mapping[str, tuple[str, str]]

_KINDS = {
    "string": pa.string(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "list<float32>": pa.list_(pa.float32()),
    "list<float64>": pa.list_(pa.float64()),
}


# -- Rows ------------------------------------------------------------------------------------------------------------


def schema(columns: Columns, about: Mapping[str, Any] | None = None) -> pa.Schema:
    """Return the Arrow schema of rows; `about` is stored in its metadata, under the key `icqr`."""
    fields = [pa.field(name, _KINDS[kind], metadata={"meaning": text}) for name, (kind, text) in columns.items()]
    return pa.schema(fields, metadata={"icqr": json.dumps(about or {})})


def as_table(rows: Iterable[Mapping[str, Any]], columns: Columns) -> pa.Table:
    """Return rows as an Arrow table; what a row lacks is missing."""
    return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema=schema(columns))


def write_rows(file: Path, table: pa.Table) -> None:
    """Write an Arrow table as Parquet; the file is whole or not there."""
    with replacing(file) as part:
        pq.write_table(table, part, compression="zstd")


def gather_rows(file: Path, parts: Iterable[Path], columns: Columns, about: Mapping[str, Any]) -> None:
    """Write the rows of all parts into one file."""
    tables = [pq.read_table(part, schema=schema(columns)) for part in parts]
    write_rows(file, pa.concat_tables([schema(columns).empty_table(), *tables]).cast(schema(columns, about)))


def read_rows(file: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the rows of a file, and what its metadata says about them."""
    table = pq.read_table(file)
    return table.to_pandas(), json.loads(table.schema.metadata[b"icqr"])


# -- Settings --------------------------------------------------------------------------------------------------------


def keep_settings(file: Path, settings: Mapping[str, Any], name: str) -> None:
    """Write the settings of a run beside its results; refuse to go on with results of other settings."""
    settings = json.loads(json.dumps(settings))
    if not file.exists():
        write_text(file, json.dumps(settings, indent=1))
        return

    stored = json.loads(file.read_text(encoding="utf-8"))
    differing = [
        f"{key} = {stored.get(key)!r}, not {value!r}" for key, value in settings.items() if stored.get(key) != value
    ]
    if differing:
        raise ValueError(
            f"out must be a folder without results of {name}, or with results of the same settings, but "
            f"{file.parent} was written with {'; '.join(differing)}; give another folder, or delete this one"
        )


# -- Tables ----------------------------------------------------------------------------------------------------------


def write_text(file: Path, text: str) -> None:
    """Write a text file that is whole or not there; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as part:
        part.write_text(text, encoding="utf-8")


def write_table(folder: Path, name: str, caption: str, numbers: pd.DataFrame, text: pd.DataFrame | None = None) -> None:
    """Write a table as CSV with all digits, and as Markdown and LaTeX for readers: `text`, or four digits."""
    shown_table = numbers if text is None else text
    names = [str(column) for column in shown_table]
    cells = [[shown(value) for value in row] for row in shown_table.itertuples(index=False)]
    write_text(folder / f"{name}.csv", numbers.to_csv(index=False))
    write_text(folder / f"{name}.md", f"{caption}\n\n{as_markdown(names, cells)}")
    write_text(folder / f"{name}.tex", as_latex(names, cells, caption, f"tab:{name}"))


def shown(value: object) -> str:
    """Return a value as readers see it: numbers with four digits, a dash for what is missing."""
    if isinstance(value, float | np.floating):
        return "–" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def as_markdown(names: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    r"""Return a Markdown table.

    Examples
    --------
    >>> print(as_markdown(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\|y |
    <BLANKLINE>
    """
    lines = [names, ["---"] * len(names), *([cell.replace("|", r"\|") for cell in row] for row in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(names: Sequence[str], cells: Iterable[Sequence[str]], caption: str, label: str) -> str:
    r"""Return a LaTeX table in the style of booktabs.

    Examples
    --------
    >>> print(as_latex(["a_1"], [["5 %"]], "A caption.", "tab:a").splitlines()[4])
    a\_1 \\
    """
    signs = {"\\": r"\textbackslash{}", "–": "--", "−": r"$-$", "≥": r"$\geq$", "≤": r"$\leq$", "×": r"$\times$"}
    escapes = str.maketrans(signs | {sign: f"\\{sign}" for sign in "&%$#_{}"})
    lines = [" & ".join(cell.translate(escapes) for cell in row) + r" \\" for row in [names, *cells]]
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    return (
        f"\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{{'l' * len(names)}}}\n{body}\n\\end{{tabular}}\n"
        f"\\caption{{{caption.translate(escapes)}}}\n\\label{{{label}}}\n\\end{{table}}\n"
    )


# -- While it runs ---------------------------------------------------------------------------------------------------


class Progress:
    """How far a run is and how long it will still take: on a terminal one line that changes, else a line now and then.

    Call it with the steps done and their total. Steps done at the first call don't count for the speed.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show a line, unless there was one a moment ago and work is left."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if self.first is None:
            self.first, self.start, self.last = done, now, now
        if done < total and now - self.last < (1 if terminal else 30):
            return

        self.last, seconds = now, now - self.start
        if self.first < done < total:
            left = f"about {in_words(seconds / (done - self.first) * (total - done))} left"
        else:
            left = in_words(seconds)
        line = f"{self.label}: {done} of {total}, {left}"
        print(f"\r{line:<78}" if terminal else line, end="" if terminal and done < total else "\n", file=sys.stderr)


def in_words(seconds: float) -> str:
    """Return a time as people say it.

    Examples
    --------
    >>> in_words(8.4), in_words(150), in_words(7320)
    ('8 s', '2.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@contextmanager
def kept_warnings(notes: list[str]) -> Iterator[None]:
    """Keep the library's warnings as text: small groups and a leak are results here. Others are raised again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if warning.category is not UserWarning:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) not in notes:
            notes.append(str(warning.message))


def run_command(job: Callable[[], Path], out: Path) -> int:
    """Run a job that leaves a file and return the exit code; errors that the user can mend are said in one line."""
    start = time.monotonic()
    try:
        file = job()
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on where it was ({out})", file=sys.stderr)
        return 130
    print(f"{file} ({in_words(time.monotonic() - start)})")
    return 0
