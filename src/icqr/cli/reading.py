"""A user's file as an Arrow table: CSV, Parquet, Feather or JSON lines, compressed or not, told apart by content."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet

from icqr.cli.columns import MISSING
from icqr.cli.console import listed_names
from icqr.cli.options import TextFormat

#: More columns than this are taken for a mistake: a table on its side, or not a table.
MOST_COLUMNS = 10_000
#: A file that unpacks to more bytes than this, and to more than so many times its size, is no table.
MOST_UNPACKED, MOST_TIMES = 1 << 28, 100
#: JSON lines with more brackets are tried by Python's parser first, which survives any depth.
_MOST_BRACKETS = 500
_WIDE_CODES = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
_HEAD = 1 << 20
_BLOCK = 1 << 23
_FORMATS = {b"PAR1": "Parquet", b"ARROW1": "Feather", b"FEA1": "Feather"}
_NOT_TABLES = {
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as CSV",
    b"\x80\x04\x95": "a Python pickle, which is not read here because it can run code; save the table as Parquet",
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile, NotImplementedError)


class RawTable(NamedTuple):
    """A table that was read, and of a CSV file the columns to keep as text, and its first rows as they are written."""

    columns: Any
    texts: Any = None
    sample: Sequence[Sequence[str]] = ()


def read_file(path: str, text_format: TextFormat, as_text: Collection[str], keep: Collection[str]) -> RawTable:
    """Read a file, or standard input ("-"), by what its first bytes say it is.

    Of a CSV file, the columns `as_text` are text even if all their values look like numbers, and those to `keep` are
    returned as they are written, too.
    """
    name = "standard input" if path == "-" else path
    with _opened(path, name) as stream:
        head = stream.read(_HEAD)
        stream.seek(0)
        if not head.strip():
            raise ValueError(f"{name} is empty; a table with a line of column names is needed")
        file_format = _format(head, name, text_format)
        try:
            if file_format == "CSV":
                return _read_csv(stream, head, name, text_format, as_text, keep)
            if file_format == "Parquet":
                # A small file may claim billions of values.
                about = pyarrow.parquet.ParquetFile(stream).metadata
                _check_size(8 * about.num_rows * about.num_columns, stream.seek(0, io.SEEK_END), name)
                return RawTable(pyarrow.parquet.read_table(stream))
            if file_format == "Feather":
                return RawTable(pyarrow.feather.read_table(stream))
            _check_depth(stream, name)
            return RawTable(pyarrow.json.read_json(stream, pyarrow.json.ReadOptions(block_size=_BLOCK)))
        except (pa.ArrowException, OSError) as error:
            words = " ".join(str(error).split()).removeprefix(f"{file_format.partition(' ')[0]} parse error: ")
            raise ValueError(f"{name} can't be read as {file_format}: {words[:300]}") from error


# -- Files -----------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str, name: str) -> Iterator[IO[bytes]]:
    """Open a file, unpacked into a temporary one if its first bytes say that it is compressed; stop at a bomb."""
    if path != "-" and Path(path).is_dir():
        inside = sorted(file.name for file in Path(path).iterdir() if file.is_file())
        hint = f", which has {listed_names(inside)}" if inside else ""
        raise ValueError(f"{path} is a folder{hint}; give a file")
    with ExitStack() as stack:
        stream: IO[bytes] = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        if path == "-" or not stream.seekable():  # what can't be rewound is read at once
            stream = io.BytesIO(stream.read())

        openers = {
            b"\x1f\x8b": gzip.open,
            b"BZh": bz2.open,
            b"\xfd7zXZ\x00": lzma.open,
            b"\x28\xb5\x2f\xfd": lambda packed: pa.CompressedInputStream(packed, "zstd"),
            b"PK\x03\x04": lambda packed: _open_zip(packed, name),
        }
        head = stream.read(8)
        stream.seek(0)
        opener: Any = next((opener for magic, opener in openers.items() if head.startswith(magic)), None)
        if opener is None:
            yield stream
            return

        unpacked = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 26))
        try:
            with opener(stream) as packed:
                while block := packed.read(_HEAD):
                    unpacked.write(block)
                    _check_size(unpacked.tell(), stream.tell(), name)
        except (*_DAMAGED, OSError) as error:
            raise ValueError(f"{name} is compressed and damaged: {error}") from error
        unpacked.seek(0)
        yield cast("IO[bytes]", unpacked)


def _check_size(unpacked: int, packed: int, name: str) -> None:
    if unpacked > max(MOST_UNPACKED, MOST_TIMES * packed):
        raise ValueError(
            f"{name} is refused: {packed:,} bytes of it unpack to more than {MOST_TIMES} times as many, which no "
            "table of use does. If you trust it, unpack it first"
        )


def _open_zip(stream: IO[bytes], name: str) -> IO[bytes]:
    archive = zipfile.ZipFile(stream)
    files = [member for member in archive.infolist() if not member.is_dir()]
    names = [member.filename for member in files]
    if "[Content_Types].xml" in names:
        raise ValueError(f"{name} is an Excel workbook; save it as CSV")
    if len(files) != 1:
        raise ValueError(f"{name} must hold one file, but has {len(files)}: {listed_names(names)}; unpack it first")
    if files[0].flag_bits & 1:
        raise ValueError(f"{name} is encrypted; unpack it first")
    return archive.open(files[0])


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
    if b"\x00" in head and _encoding(text_format.encoding, head, name) not in _WIDE_CODES:
        raise ValueError(f"{name} is not text, Parquet or Feather; give a CSV, Parquet, Feather or JSON lines file")
    return "CSV"


def _check_depth(stream: IO[bytes], name: str) -> None:
    """Refuse JSON lines nested so deep that Arrow's parser, which calls itself, would end the process."""
    for number, line in enumerate(iter(lambda: stream.readline(_BLOCK), b""), start=1):
        if len(line) == _BLOCK:
            raise ValueError(f"{name} can't be read as JSON lines: line {number} is longer than {_BLOCK >> 20} MB")
        if line.count(b"[") + line.count(b"{") > _MOST_BRACKETS:
            try:
                json.loads(line)
            except RecursionError as error:
                raise ValueError(f"{name} can't be read as JSON lines: line {number} is nested too deep") from error
            except ValueError:
                break  # Arrow says better what is wrong
    stream.seek(0)


# -- CSV -------------------------------------------------------------------------------------------------


def _read_csv(
    stream: IO[bytes], head: bytes, name: str, text_format: TextFormat, as_text: Collection[str], keep: Collection[str]
) -> RawTable:
    code = _encoding(text_format.encoding, head, name)
    separator, sample = find_separator(head.decode(code, errors="replace").removeprefix("\ufeff"))
    width = len(sample[0]) if sample else 1
    check_width(width, name)
    if len(sample) < 2 and len(head) < _HEAD and not text_format.no_header:
        raise ValueError(f"{name} has a header but no rows")
    names = None if not text_format.no_header else [f"column {place}" for place in range(1, width + 1)]

    def read(**options: Any) -> Any:
        stream.seek(0)
        table = pyarrow.csv.read_csv(
            stream,
            # With one thread an error says which row it is.
            pyarrow.csv.ReadOptions(encoding=code, block_size=_BLOCK, use_threads=False, column_names=names),
            pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(**options),
        )
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise UnicodeError("text in another encoding")
        table.column_names  # noqa: B018 (decoded here, which may fail)
        return table

    try:
        table = read(
            null_values=MISSING,
            strings_can_be_null=True,
            decimal_point=text_format.decimal_sign,
            column_types=dict.fromkeys(as_text, pa.string()),
        )
        # Ids keep their leading zeros, and dates the form they have: columns to keep are read again, as text.
        kept = [column for column in table.column_names if column.strip() in keep]
        texts = read(include_columns=kept, column_types=dict.fromkeys(kept, pa.string())) if kept else None
    except (UnicodeError, pa.ArrowInvalid) as error:
        if isinstance(error, UnicodeError) or "UTF8" in str(error):
            raise _decoding_error(stream, name, code) from error
        raise
    return RawTable(table, texts, sample if names is None else [names, *sample])


def find_separator(sample: str) -> tuple[str, list[list[str]]]:
    r"""Return the separator that cuts most lines into as many fields as the first, and the first rows, cut there.

    Examples
    --------
    >>> find_separator("size;price\n12,5;3\n20;4,5\n")
    (';', [['size', 'price'], ['12,5', '3'], ['20', '4,5']])
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
            rows = [row for row in csv.reader(io.StringIO(lines), delimiter=separator) if row]
        except csv.Error:  # an open quotation mark, or a field that is too large
            rows = []
        width = len(rows[0]) if rows else 0
        agreement = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        cut.append((agreement, width if width > 1 else 0, separator, rows))
    _, _, best, rows = max(cut, key=lambda fit: fit[:2])
    return best, rows


def check_width(width: int, name: str) -> None:
    """Refuse tables with more columns than anybody means."""
    if width > MOST_COLUMNS:
        raise ValueError(
            f"{name} has more than {MOST_COLUMNS:,} columns ({width:,}); is it a table with a line for each row?"
        )


def _encoding(encoding: str | None, head: bytes, name: str) -> str:
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


def _decoding_error(stream: IO[bytes], name: str, code: str) -> ValueError:
    """Return an error that says where the first bytes are that are not in the encoding."""
    advice = "say what it is, for example --encoding latin-1 or --encoding cp1252"
    stream.seek(0)
    for number, line in enumerate(() if code in _WIDE_CODES else stream, start=1):
        try:
            line.decode(code)
        except UnicodeDecodeError as error:
            return ValueError(f"{name} is not {code.upper()} (line {number}, byte 0x{line[error.start]:02x}); {advice}")
    return ValueError(f"{name} is not {code.upper()}; {advice}")
