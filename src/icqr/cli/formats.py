"""The bytes of a file as an Arrow table, told apart by content, whatever the name; what is not a table is refused."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet

from icqr.cli.options import TextFormat

#: More columns than this are taken for a mistake: a table on its side, or not a table.
_MOST_COLUMNS = 10_000
#: A file that unpacks to more bytes than this, and to more than so many times its size, is no table.
_MOST_UNPACKED, _MOST_TIMES = 1 << 28, 100
#: A JSON line with more brackets is no row of a table, and may be nested so deep that Arrow would end the process.
_MOST_BRACKETS = 500
#: The separator is found in so many lines.
_MOST_LINES = 1000
_HEAD = 1 << 20
#: Columns that are aligned by blanks: several between two fields, and no other separator beside them.
_ALIGNED = re.compile(r"[^\s,;|] {2,}[^\s,;|]")
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


def read_file(path: str, text_format: TextFormat) -> tuple[pa.Table, bool]:
    """Return a file, or standard input ("-"), as a table, and whether it is CSV, whose columns are all texts."""
    name = "standard input" if path == "-" else path
    with _unpacked(path, name) as stream:
        head = stream.read(_HEAD)
        stream.seek(0)
        if not head.strip():
            raise ValueError(f"{name} is empty; a table with a line of column names is needed")
        file_format = _format(head, name)
        try:
            if file_format == "CSV":
                table = _read_csv(stream, head, name, text_format)
            elif file_format == "JSON lines":
                table = _read_json_lines(stream, name)
            elif file_format == "Feather":
                table = pyarrow.feather.read_table(stream)
            else:
                # A small file may claim billions of values.
                about = pyarrow.parquet.ParquetFile(stream).metadata
                _check_size(8 * about.num_rows * about.num_columns, stream.seek(0, io.SEEK_END), name)
                table = pyarrow.parquet.read_table(stream)
        except (pa.ArrowException, csv.Error, OSError) as error:
            words = " ".join(str(error).split()).removeprefix(f"{file_format.partition(' ')[0]} parse error: ")
            raise ValueError(f"{name} can't be read as {file_format}: {words[:300]}") from error
    return table, file_format == "CSV"


@contextmanager
def _unpacked(path: str, name: str) -> Iterator[IO[bytes]]:
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


def _format(head: bytes, name: str) -> str:
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
    return "JSON lines" if re.match(rb'\{\s*"', start) else "CSV"


def _read_json_lines(stream: IO[bytes], name: str) -> pa.Table:
    """Return JSON lines as a table, unless lines are longer, or may be nested deeper, than Arrow's parser can take."""
    for number, line in enumerate(iter(lambda: stream.readline(_BLOCK), b""), start=1):
        if len(line) == _BLOCK:
            raise ValueError(f"{name} can't be read as JSON lines: line {number} is longer than {_BLOCK >> 20} MB")
        if line.count(b"[") + line.count(b"{") > _MOST_BRACKETS:
            brackets = f"it has more than {_MOST_BRACKETS} brackets"
            raise ValueError(f"{name} can't be read as JSON lines: line {number} is nested too deep: {brackets}")
    stream.seek(0)
    return pyarrow.json.read_json(stream, pyarrow.json.ReadOptions(block_size=_BLOCK))


def _check_size(unpacked: int, packed: int, name: str) -> None:
    if unpacked > max(_MOST_UNPACKED, _MOST_TIMES * packed):
        raise ValueError(
            f"{name} is refused: {packed:,} bytes of it unpack to more than {_MOST_TIMES} times as many, which a real "
            "table does not. If you trust it, unpack it first"
        )


def check_width(width: int, name: str) -> None:
    """Refuse more columns than a table of use has."""
    if width > _MOST_COLUMNS:
        raise ValueError(
            f"{name} has more than {_MOST_COLUMNS:,} columns ({width:,}); is it a table with a line for each row?"
        )


# -- CSV -------------------------------------------------------------------------------------------------


def _read_csv(stream: IO[bytes], head: bytes, name: str, text_format: TextFormat) -> pa.Table:
    """Return a CSV file as a table of texts, as they are written."""
    # The encoding is as the user says, else as the file's mark says, else UTF-8.
    marks = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    encoding = text_format.encoding or next((code for mark, code in marks if head.startswith(mark)), "utf-8")
    try:
        code = codecs.lookup(encoding).name
        sample = head.decode(code, errors="replace").removeprefix("\ufeff")
    except LookupError as error:  # not known, or no encoding of text
        raise ValueError(f"--encoding {encoding!r} is not known; examples: utf-8, latin-1, cp1252, utf-16") from error
    if b"\x00" in head and not code.startswith(("utf-16", "utf-32")):
        raise ValueError(f"{name} is not text, Parquet or Feather; give a CSV, Parquet, Feather or JSON lines file")

    separator, width = find_separator(sample)
    check_width(width, name)
    if len(sample.splitlines()) < 2 and len(head) < _HEAD and not text_format.no_header:  # which Arrow says less well
        raise ValueError(f"{name} has a header but no rows")

    # With one thread an error says which row it is. The header is read as a row, so that every column is text.
    try:
        if separator == " ":  # Arrow takes one sign between fields, not several blanks
            stream, code, separator = _with_commas(stream, code), "utf-8", ","
        table = pyarrow.csv.read_csv(
            stream,
            pyarrow.csv.ReadOptions(
                encoding=code, block_size=_BLOCK, use_threads=False, autogenerate_column_names=True
            ),
            pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types={f"f{place}": pa.string() for place in range(width)}),
        )
    except (UnicodeError, pa.ArrowInvalid) as error:
        if not isinstance(error, UnicodeError) and "UTF8" not in str(error):
            raise
        row = re.search(r"Row #\d+", str(error))
        where = "" if row is None else f" ({row[0].lower()})"
        raise ValueError(
            f"{name} is not {code.upper()}{where}; say what it is, for example --encoding latin-1 or --encoding cp1252"
        ) from error

    if text_format.no_header:
        return table.rename_columns([f"column {place}" for place in range(1, table.num_columns + 1)])
    return table.slice(1).rename_columns([column[0].as_py() for column in table.columns])


def _with_commas(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Return a file whose fields are parted by blanks, with commas between them instead."""
    text = stream.read().decode(encoding).removeprefix("\ufeff")
    written = io.StringIO(newline="")
    csv.writer(written).writerows(_rows(io.StringIO(text), " "))
    return io.BytesIO(written.getvalue().encode())


def _rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the fields of each line; blanks, which may be tabs, may be several, and may be around the fields."""
    if separator == " ":
        lines = (line.replace("\t", " ").strip() + "\n" for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=separator == " ")


def find_separator(sample: str) -> tuple[str, int]:
    r"""Return the sign between fields (one blank if blanks and tabs are), and how many fields the first line has.

    It is the sign that cuts most lines into as many fields as the first. A comma may also be the decimal sign, and a
    blank part of a text: they come last.

    Examples
    --------
    >>> find_separator("size;price\n12,5;3\n20;4,5\n")
    (';', 2)
    >>> find_separator("name,note\nBern,a;b;c\n")
    (',', 2)
    >>> find_separator(" size   price\n 12.5     3.0\n  7.25  10.0\n")
    (' ', 2)
    """
    lines = list(islice(io.StringIO(sample), _MOST_LINES))
    cut = [(*_agreement(lines, separator), separator) for separator in ";\t|,"]
    agreement, width, separator = max(cut, key=lambda fit: (fit[0], fit[2] != ",", fit[1]))
    blanks_agree, blanks_width = _agreement(lines, " ")
    are_aligned = sum(_ALIGNED.search(line) is not None for line in lines) > len(lines) / 2
    if blanks_agree >= 0.5 and (are_aligned or agreement < 0.5):
        return " ", blanks_width
    return (separator, width) if agreement else (",", 1)


def _agreement(lines: list[str], separator: str) -> tuple[float, int]:
    """Return the share of lines that have as many fields as the first, 0 if that has one, and this number."""
    try:
        widths = [len(row) for row in _rows(lines, separator) if row]
    except csv.Error:  # an open quotation mark, or a field that is too large
        widths = []
    width = widths[0] if widths else 1
    return (widths.count(width) / len(widths) if width > 1 else 0.0), width
