"""A user's table file as a DataFrame: CSV, Parquet, Feather or JSON lines, compressed or not, told apart by content."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pandas as pd

from icqr.cli.columns import as_series
from icqr.cli.wording import listed_names, need

#: More columns than this are taken for a mistake: a table on its side, or not a table.
MOST_COLUMNS = 10_000
SEPARATORS = ",;\t|"
#: Texts that stand for a missing value in CSV files, beside those that pyarrow knows.
MISSING = ("?", "None", "<NA>")
_HEAD = 1 << 20
_BLOCK = 1 << 23
_BINARY = {b"PAR1": "parquet", b"ARROW1": "feather", b"FEA1": "feather"}
_KINDS = {"parquet": "Parquet", "feather": "Feather", "json": "JSON lines", "csv": "CSV"}
_NOT_TABLES = {
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as CSV",
    b"%PDF": "a PDF document",
    b"\x89HDF": "an HDF5 file; save the table as Parquet or CSV",
    b"SQLite format 3": "an SQLite database; save the table as CSV",
    b"\x80\x04\x95": "a Python pickle, which is not read here because it can run code; save the table as Parquet",
}


@dataclass
class Table:
    """A table that was read.

    Attributes
    ----------
    name : str
        The file's name.
    frame : DataFrame
        Columns of numbers and text.
    notes : list of str
        What was done to columns, and what the user might not expect.
    target : str or None
        The column to predict, where it is known.
    """

    name: str
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    target: str | None = None


def read_table(path: str, *, encoding: str | None = None, text: Collection[str] = ()) -> Table:
    r"""Read a table.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input.
    encoding : str, optional
        Of text files; by default UTF-8, or UTF-16 if the file begins with its mark.
    text : collection of str
        Columns to take as text even if all their values look like numbers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rooms.csv")
    ...     size = file.write_text("size;city\n12,5;Bern\n20;Genf\n", encoding="utf-8")
    ...     read_table(str(file)).frame
       size  city
    0  12.5  Bern
    1  20.0  Genf
    """
    name = "standard input" if path == "-" else path
    need("pyarrow", "reading tables", "icqr[cli]")
    try:
        with _opened(path) as packed, _unpacked(packed, name) as stream:
            table = _arrow_table(stream, name, encoding, text)
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is compressed and damaged: {error}") from error
    return _as_frame(table, name, text)


def read_parquet_files(pattern: str, text: Collection[str] = ()) -> Table:
    """Read the Parquet files of a pattern, in the order of their names, as one table."""
    need("pyarrow.parquet")
    from icqr.parquet import listed, pieces_of, schema_of

    files = listed(pattern)
    schema = schema_of(files)
    parts = [piece.read(schema) for piece in pieces_of(files)]
    return _as_frame(need("pyarrow").concat_tables([schema.empty_table(), *parts]), pattern, text)


# -- Files -----------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or say that it is a folder; what can't be rewound (standard input, a pipe) is read at once."""
    if path == "-":
        yield io.BytesIO(sys.stdin.buffer.read())
        return
    if Path(path).is_dir():
        inside = sorted(file.name for file in Path(path).iterdir() if file.is_file())
        hint = f", which has {listed_names(inside)}" if inside else ""
        raise ValueError(f"{path} is a folder{hint}; give a file")
    with Path(path).open("rb") as stream:
        yield stream if stream.seekable() else io.BytesIO(stream.read())


def _unpacked(stream: IO[bytes], name: str) -> Any:
    """Give the stream, decompressed if its first bytes say that it is compressed."""
    head = stream.read(8)
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(stream)
    if head.startswith(b"BZh"):
        return bz2.open(stream)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(stream)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(stream, name)
    if head.startswith(b"PK\x03\x04"):
        return _unzipped(stream, name)
    return stream


def _unzstd(stream: IO[bytes], name: str) -> IO[bytes]:
    try:
        return io.BytesIO(need("pyarrow").CompressedInputStream(stream, "zstd").read())
    except OSError as error:
        raise ValueError(f"{name} is compressed and damaged: {error}") from error


def _unzipped(stream: IO[bytes], name: str) -> IO[bytes]:
    archive = zipfile.ZipFile(stream)
    files = [member.filename for member in archive.infolist() if not member.is_dir()]
    if "[Content_Types].xml" in files:
        raise ValueError(f"{name} is an Excel workbook; save it as CSV")
    if len(files) != 1:
        raise ValueError(f"{name} must hold one file, but has {len(files)}: {listed_names(files)}; unpack it first")
    return archive.open(files[0])


# -- Formats ---------------------------------------------------------------------------------------------


def _arrow_table(stream: Any, name: str, encoding: str | None, text: Collection[str]) -> Any:
    """Read a stream by what its first bytes say it is."""
    head = stream.read(_HEAD)
    stream.seek(0)
    if not head.strip():
        raise ValueError(f"{name} is empty; a table with a line of column names is needed")
    kind = _kind(head, name)
    arrow = need("pyarrow")
    try:
        if kind == "parquet":
            return need("pyarrow.parquet").read_table(io.BytesIO(stream.read()))
        if kind == "feather":
            return need("pyarrow.feather").read_table(io.BytesIO(stream.read()))
        if kind == "json":
            reader = need("pyarrow.json")
            return reader.read_json(stream, reader.ReadOptions(block_size=_BLOCK))
        return _read_csv(stream, head, name, encoding, text)
    except (arrow.ArrowException, OSError) as error:
        said = " ".join(str(error).split()).removeprefix(f"{_KINDS[kind].partition(' ')[0]} parse error: ")
        raise ValueError(f"{name} can't be read as {_KINDS[kind]}: {said[:300]}") from error


def _kind(head: bytes, name: str) -> str:
    for magic, kind in _BINARY.items():
        if head.startswith(magic):
            return kind
    for magic, what in _NOT_TABLES.items():
        if head.startswith(magic):
            raise ValueError(f"{name} is {what}")
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:100].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        raise ValueError(f"{name} is a web page, not a table; was the download refused?")
    if re.match(rb"\[\s*[{\[]", start):
        raise ValueError(f"{name} is a JSON list; JSON lines are read: one object per line (jq -c '.[]' makes them)")
    if re.match(rb'\{\s*"', start):
        return "json"
    if b"\x00" in head and not _utf16(head):
        raise ValueError(f"{name} is not text, Parquet or Feather; give a CSV, Parquet, Feather or JSON lines file")
    return "csv"


def _utf16(head: bytes) -> bool:
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _read_csv(stream: Any, head: bytes, name: str, encoding: str | None, text: Collection[str]) -> Any:
    code = _encoding(encoding, head)
    sample = head.decode(code, errors="replace").removeprefix("\ufeff")
    separator, decimal = find_dialect(sample)
    columns = sample.split("\n", 1)[0].count(separator) + 1
    if columns > MOST_COLUMNS:
        raise ValueError(_too_many(name, columns if "\n" in sample else None))
    arrow, reader = need("pyarrow"), need("pyarrow.csv")
    parsing = reader.ParseOptions(delimiter=separator, newlines_in_values=True)
    conversion = reader.ConvertOptions(
        null_values=[*reader.ConvertOptions().null_values, *MISSING],
        strings_can_be_null=True,
        decimal_point=decimal,
        column_types=dict.fromkeys(text, arrow.string()),
    )
    options = {"encoding": code, "block_size": _BLOCK}
    try:
        table = reader.read_csv(stream, reader.ReadOptions(**options), parsing, conversion)
        table.column_names  # noqa: B018 (decoded here, which may fail)
    except arrow.ArrowInvalid:
        stream.seek(0)  # again with one thread: then the error says which row it is
        return reader.read_csv(stream, reader.ReadOptions(**options, use_threads=False), parsing, conversion)
    except UnicodeDecodeError as error:
        raise ValueError(_wrong_encoding(stream, name, code)) from error
    if any(arrow.types.is_binary(kind) for kind in table.schema.types):
        raise ValueError(_wrong_encoding(stream, name, code))
    return table


def _encoding(given: str | None, head: bytes) -> str:
    if given is None:
        return "utf-16" if _utf16(head) else "utf-8"
    try:
        return codecs.lookup(given).name
    except LookupError as error:
        raise ValueError(f"--encoding {given!r} is not known; examples: utf-8, latin-1, cp1252, utf-16") from error


def _wrong_encoding(stream: Any, name: str, code: str) -> str:
    """Say where the first bytes are that are not in the encoding."""
    stream.seek(0)
    for number, line in enumerate(stream, start=1):
        try:
            line.decode(code)
        except UnicodeDecodeError as error:
            byte = line[error.start]
            return (
                f"{name} is not {code.upper()} (line {number}, byte 0x{byte:02x}); say what it is, for example "
                "--encoding latin-1 or --encoding cp1252"
            )
    return f"{name} is not {code.upper()}; say what it is, for example --encoding latin-1"


def find_dialect(sample: str) -> tuple[str, str]:
    r"""Find the separator and the decimal sign from the beginning of a CSV file.

    The separator is the one that cuts most lines into as many fields as the first, and that into most. Decimal commas
    are looked for only if it is not the comma itself.

    Examples
    --------
    >>> find_dialect("size;price\n12,5;3\n20;4,5\n")
    (';', ',')
    >>> find_dialect("name,note\nBern,a;b;c\n")
    (',', '.')
    """
    lines = sample[: 1 << 16]
    if len(lines) < len(sample):
        lines = lines[: lines.rfind("\n") + 1] or lines
    tried = {separator: _fields(lines, separator) for separator in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: _agreement(tried[one]))
    if separator == ",":
        return separator, "."
    fields = [value.strip() for row in tried[separator][1:] for value in row]
    commas = sum(bool(re.fullmatch(r"[+-]?\d+,\d+", value)) for value in fields)
    points = sum(bool(re.fullmatch(r"[+-]?\d+\.\d+", value)) for value in fields)
    return separator, "," if commas > points else "."


def _fields(lines: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(lines), delimiter=separator) if row]
    except csv.Error:  # an open quotation mark, or a field that is too large
        return []


def _agreement(rows: list[list[str]]) -> tuple[float, int]:
    """Give the share of rows that have as many fields as the first, if that is more than one, and that number."""
    width = len(rows[0]) if rows else 0
    return (sum(len(row) == width for row in rows) / len(rows), width) if width > 1 else (0.0, 0)


# -- Columns ---------------------------------------------------------------------------------------------


def _too_many(name: str, columns: int | None) -> str:
    count = "" if columns is None else f" ({columns:,})"
    return f"{name} has more than {MOST_COLUMNS:,} columns{count}; is it a table with a line for each row?"


def _checked_names(table: Any, name: str) -> Any:
    """Give the table with stripped names, or say what is wrong with them."""
    if table.num_columns > MOST_COLUMNS:
        raise ValueError(_too_many(name, table.num_columns))
    names = [str(one).strip() or f"column {place}" for place, one in enumerate(table.column_names, start=1)]
    twice = [one for one, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")
    return table.rename_columns(names)


def _as_frame(table: Any, name: str, text: Collection[str]) -> Table:
    # What pandas calls an index without a name when it writes Parquet is not a column of the user's.
    index = [one for one in table.column_names if re.fullmatch(r"__index_level_\d+__", one)]
    table = _checked_names(table.drop_columns(index), name)
    notes: list[str] = []
    columns = {one: as_series(table[one], one, one in text, notes) for one in table.column_names}
    return Table(name, pd.DataFrame(columns), notes)
