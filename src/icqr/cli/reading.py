"""What DATA stands for: a file told apart by its content, standard input, a pattern of files, or a known data set."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd

from icqr.cli.columns import as_series, as_written, check_column, check_numbers, parsed, with_gaps
from icqr.cli.console import did_you_mean, listed_names, note
from icqr.cli.notes import notes_on_points, notes_on_rows
from icqr.cli.options import TextFormat, TrainingRows

# After `columns`, which says how to install it.
import pyarrow as pa  # isort: skip
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet

#: More columns than this are taken for a mistake: a table on its side, or not a table.
_MOST_COLUMNS = 10_000
#: A file that unpacks to more bytes than this, and to more than so many times its size, is no table.
_MOST_UNPACKED, _MOST_TIMES = 1 << 28, 100
#: A JSON line with more brackets is no row of a table, and may be nested so deep that Arrow would end the process.
_MOST_BRACKETS = 500
_HEAD = 1 << 20
_BLOCK = 1 << 23
_FORMATS = {b"PAR1": "Parquet", b"ARROW1": "Feather", b"FEA1": "Feather"}
_NOT_TABLES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as CSV",
    b"BZh": "packed by bzip2; unpack it first, or pack it by gzip",
    b"\xfd7zXZ\x00": "packed by xz; unpack it first, or pack it by gzip",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it first, or pack it by gzip",
    b"\x80\x04\x95": "a Python pickle, which is not read here because it can run code; save the table as Parquet",
}


@dataclass
class UserTable:
    """A table that was read: columns of numbers and text, and what the user might not expect of them."""

    name: str
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    #: The column to predict, where it is known.
    target: str | None = None
    #: Columns as the file has them: an id keeps its leading zeros, and a date is a date.
    kept: pd.DataFrame = field(default_factory=pd.DataFrame)
    #: Names of columns that were not asked for.
    unused: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns that the file has."""
        return [*map(str, self.frame.columns), *self.unused]


def read_rows(data: str, rows: TrainingRows, text_format: TextFormat) -> tuple[str, pd.DataFrame, pd.Series[Any]]:
    """Return what the rows are, in words, their features and their target; tell the user what is odd about them."""
    table = read_data(data, text_format, ignore=rows.ignore or ())
    target = target_of(table, rows)
    frame = check_numbers(table.frame, {"--target": target}, rows.drop_missing)
    left_out = len(table.frame) - len(frame)
    if left_out:
        table.notes.append(f"{left_out:,} of {len(table.frame):,} rows are left out: their target is missing")
    X = frame.drop(columns=target)
    if not X.shape[1]:
        raise ValueError(f"{table.name} has no column beside the target {target!r}; there is nothing to predict from")
    note(*table.notes, *notes_on_rows(frame, X))
    described = f"{table.name} ({len(X):,} rows, {X.shape[1]:,} columns, target {target!r})"
    return described, X, frame[target].astype(float)


def target_of(table: UserTable, rows: TrainingRows) -> str:
    """Return the column to predict; refuse columns to ignore that are not there."""
    for name in rows.ignore or ():
        check_column(table.names, name, "--ignore")
    target = table.target if rows.target is None else rows.target
    if target is None:
        columns = listed_names(table.frame.columns)
        raise ValueError(f"--target must be given with a file: the column to predict, one of {columns}")
    return target


def read_data(
    data: str,
    text_format: TextFormat,
    *,
    as_text: Collection[str] = (),
    only: Collection[str] | None = None,
    keep: Sequence[str] = (),
    ignore: Collection[str] = (),
) -> UserTable:
    """Read a file, standard input ("-"), Parquet files of a pattern, or a known data set, which comes after files.

    Parameters
    ----------
    data : str
        As the user wrote it.
    text_format : TextFormat
        How a CSV file is written.
    as_text : collection of str
        Columns to take as text even if all their values look like numbers.
    only, ignore : collection of str
        Columns to read as numbers or text (by default all), and columns not to read; of the others only the names are
        looked at.
    keep : sequence of str
        Columns to return as the file has them, too.
    """
    table, is_csv, target = _open_data(data, text_format)
    table = table.drop_columns([column for column in table.column_names if is_written_index(column)])
    name = "standard input" if data == "-" else data
    _check_width(table.num_columns, name)
    columns = [str(column).strip() or f"column {place}" for place, column in enumerate(table.column_names, start=1)]
    # The target of a known data set is read anyway.
    read = {column for column in columns if only is None or column in only or column == target} - {*ignore}
    twice = [column for column, n in Counter(columns).items() if n > 1 and (column in read or column in keep)]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")

    frame: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    notes: list[str] = []
    for column, values in zip(columns, table.columns, strict=True):
        if column in keep:
            kept[column] = as_written(values, text_format) if is_csv else values.to_pandas()
        if column not in read:
            continue
        if is_csv:
            values = with_gaps(values)
        if is_csv and column not in as_text:
            if text_format.decimal is None and text_format.thousands is None:
                notes += notes_on_points(column, values.slice(0, 1000).drop_null().to_pylist())
            values = parsed(values, text_format)
        frame[column] = as_series(values, column, text_format, notes, as_text=column in as_text)
    copies = pd.DataFrame({column: kept[column] for column in keep if column in kept})
    unused = list(dict.fromkeys(column for column in columns if column not in frame))
    return UserTable(name, pd.DataFrame(frame), notes, target, copies, unused)


def is_written_index(name: str) -> bool:
    """Tell whether pandas gave this name, to an index without one, when it wrote Parquet: no column of the user's."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def _open_data(data: str, text_format: TextFormat) -> tuple[Any, bool, str | None]:
    """Return DATA as an Arrow table, whether it is of a CSV file, all text, and its target if that is known."""
    path = Path(data)
    if data == "-" or (path.exists() and not path.is_dir()):
        return *_read_file(data, text_format), None
    if any(sign in data for sign in "*?["):
        from icqr.streaming import list_files, open_files

        return open_files(list_files(data)).to_table(), False, None

    from icqr.datasets import list_datasets, load_dataset

    known = list_datasets()["name"].tolist()
    if data in known:
        X, y = load_dataset(data)
        return pa.Table.from_pandas(X.assign(**{str(y.name): y}), preserve_index=False), False, str(y.name)
    if path.is_dir():
        inside = sorted(file.name for file in path.iterdir() if file.is_file())
        raise ValueError(f"{data} is a folder{f', which has {listed_names(inside)}' if inside else ''}; give a file")
    beside = [str(file) for file in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = did_you_mean(data, [*known, *beside])
    raise ValueError(f"there is no file {data!r}, and no data set of that name{hint}")


# -- Files -----------------------------------------------------------------------------------------------


def _read_file(path: str, text_format: TextFormat) -> tuple[Any, bool]:
    """Return a file, or standard input, as an Arrow table by what its first bytes say it is; and whether it is CSV."""
    name = "standard input" if path == "-" else path
    with _opened(path, name) as stream:
        head = stream.read(_HEAD)
        stream.seek(0)
        if not head.strip():
            raise ValueError(f"{name} is empty; a table with a line of column names is needed")
        file_format = _format(head, name, text_format)
        try:
            if file_format == "CSV":
                return _read_csv(stream, head, name, text_format), True
            if file_format == "Parquet":
                # A small file may claim billions of values.
                about = pyarrow.parquet.ParquetFile(stream).metadata
                _check_size(8 * about.num_rows * about.num_columns, stream.seek(0, io.SEEK_END), name)
                return pyarrow.parquet.read_table(stream), False
            if file_format == "Feather":
                return pyarrow.feather.read_table(stream), False
            _check_json_lines(stream, name)
            return pyarrow.json.read_json(stream, pyarrow.json.ReadOptions(block_size=_BLOCK)), False
        except (pa.ArrowException, OSError) as error:
            words = " ".join(str(error).split()).removeprefix(f"{file_format.partition(' ')[0]} parse error: ")
            raise ValueError(f"{name} can't be read as {file_format}: {words[:300]}") from error


@contextmanager
def _opened(path: str, name: str) -> Iterator[IO[bytes]]:
    """Open a file, unpacked into a temporary one if its first bytes are gzip's; stop at a bomb."""
    with ExitStack() as stack:
        stream: IO[bytes] = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        if path == "-" or not stream.seekable():  # what can't be rewound is read at once
            stream = io.BytesIO(stream.read())
        is_packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        if not is_packed:
            yield stream
            return

        unpacked = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 26))
        try:
            with gzip.open(stream) as packed:
                while block := packed.read(_HEAD):
                    unpacked.write(block)
                    _check_size(unpacked.tell(), stream.tell(), name)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{name} is compressed and damaged: {error}") from error
        unpacked.seek(0)
        yield cast("IO[bytes]", unpacked)


def _check_size(unpacked: int, packed: int, name: str) -> None:
    if unpacked > max(_MOST_UNPACKED, _MOST_TIMES * packed):
        raise ValueError(
            f"{name} is refused: {packed:,} bytes of it unpack to more than {_MOST_TIMES} times as many, which no "
            "table of use does. If you trust it, unpack it first"
        )


def _format(head: bytes, name: str, text_format: TextFormat) -> str:
    """Return the format that the first bytes say, or refuse what is no table."""
    for magic, file_format in _FORMATS.items():
        if head.startswith(magic):
            return file_format
    for magic, what in _NOT_TABLES.items():
        if head.startswith(magic):
            raise ValueError(f"{name} is {what}")

    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:100].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise ValueError(f"{name} is a web page or XML, not a table; was the download refused?")
    if re.match(rb"\[\s*[{\[]", start):
        raise ValueError(f"{name} is a JSON list; JSON lines are read: one object per line (jq -c '.[]' makes them)")
    if re.match(rb'\{\s*"', start):
        return "JSON lines"
    if b"\x00" in head and not _encoding(text_format.encoding, head).startswith(("utf-16", "utf-32")):
        raise ValueError(f"{name} is not text, Parquet or Feather; give a CSV, Parquet, Feather or JSON lines file")
    return "CSV"


def _check_json_lines(stream: IO[bytes], name: str) -> None:
    """Refuse lines that are longer, or may be nested deeper, than Arrow's parser can take."""
    for number, line in enumerate(iter(lambda: stream.readline(_BLOCK), b""), start=1):
        if len(line) == _BLOCK:
            raise ValueError(f"{name} can't be read as JSON lines: line {number} is longer than {_BLOCK >> 20} MB")
        if line.count(b"[") + line.count(b"{") > _MOST_BRACKETS:
            brackets = f"it has more than {_MOST_BRACKETS} brackets"
            raise ValueError(f"{name} can't be read as JSON lines: line {number} is nested too deep: {brackets}")
    stream.seek(0)


# -- CSV -------------------------------------------------------------------------------------------------


def _read_csv(stream: IO[bytes], head: bytes, name: str, text_format: TextFormat) -> Any:
    """Return a CSV file as a table of texts, as they are written."""
    code = _encoding(text_format.encoding, head)
    separator, width, n_rows = find_separator(head.decode(code, errors="replace").removeprefix("\ufeff"))
    _check_width(width, name)
    if n_rows < 2 and len(head) < _HEAD and not text_format.no_header:
        raise ValueError(f"{name} has a header but no rows")
    try:
        table = pyarrow.csv.read_csv(
            stream,
            # With one thread an error says which row it is. The header is read as a row, so that every column is text.
            pyarrow.csv.ReadOptions(
                encoding=code, block_size=_BLOCK, use_threads=False, autogenerate_column_names=True
            ),
            pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types={f"f{place}": pa.string() for place in range(width)}),
        )
    except (UnicodeError, pa.ArrowInvalid) as error:
        row = re.search(r"Row #\d+", str(error))
        if not isinstance(error, UnicodeError) and "UTF8" not in str(error):
            raise
        where = "" if row is None else f" ({row[0].lower()})"
        raise ValueError(
            f"{name} is not {code.upper()}{where}; say what it is, for example --encoding latin-1 or --encoding cp1252"
        ) from error
    if text_format.no_header:
        return table.rename_columns([f"column {place}" for place in range(1, table.num_columns + 1)])
    return table.slice(1).rename_columns([column[0].as_py() for column in table.columns])


def find_separator(sample: str) -> tuple[str, int, int]:
    r"""Return the separator that cuts most lines into as many fields as the first, that number, and that of rows.

    Examples
    --------
    >>> find_separator("size;price\n12,5;3\n20;4,5\n")
    (';', 2, 3)
    >>> find_separator("name,note\nBern,a;b;c\n")[0]
    ','
    """
    first_line = sample.find("\n") + 1
    lines = sample[: max(1 << 16, first_line)] if first_line else sample
    if len(lines) < len(sample):
        lines = lines[: lines.rfind("\n") + 1]

    cut = []
    for separator in ",;\t|":
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(lines), delimiter=separator) if row]
        except csv.Error:  # an open quotation mark, or a field that is too large
            widths = []
        width = widths[0] if widths else 1
        agreement = widths.count(width) / len(widths) if width > 1 else 0.0
        cut.append((agreement, width, separator, len(widths)))
    _, width, separator, n_rows = max(cut, key=lambda fit: fit[:2])
    return separator, width, n_rows


def _check_width(width: int, name: str) -> None:
    if width > _MOST_COLUMNS:
        raise ValueError(
            f"{name} has more than {_MOST_COLUMNS:,} columns ({width:,}); is it a table with a line for each row?"
        )


def _encoding(encoding: str | None, head: bytes) -> str:
    """Return the encoding: as the user says, else as the file's mark says, else UTF-8."""
    if encoding is None:
        marks = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
        return next((code for mark, code in marks if head.startswith(mark)), "utf-8")
    try:
        code = codecs.lookup(encoding).name
        head[:4].decode(code, errors="replace")
    except LookupError as error:  # not known, or no encoding of text
        raise ValueError(f"--encoding {encoding!r} is not known; examples: utf-8, latin-1, cp1252, utf-16") from error
    return code
