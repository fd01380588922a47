"""A user's table file as a DataFrame: CSV, Parquet, Feather or JSON lines, compressed or not, told apart by content."""

from __future__ import annotations

import bz2
import codecs
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

from icqr.cli.columns import as_series, as_written, is_written_index
from icqr.cli.dialect import find_dialect, note_thousands
from icqr.cli.wording import listed_names, need

#: More columns than this are taken for a mistake: a table on its side, or not a table.
MOST_COLUMNS = 10_000
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
    kept : DataFrame
        Columns as the file has them: an id keeps its leading zeros, and a date is a date.
    unused : list of str
        Names of other columns.
    """

    name: str
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    target: str | None = None
    kept: pd.DataFrame = field(default_factory=pd.DataFrame)
    unused: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns that the file has."""
        return [*map(str, self.frame.columns), *self.unused]


@dataclass(frozen=True)
class Wish:
    """What is wanted of a file's columns.

    Parameters
    ----------
    text : collection of str
        Columns to take as text even if all their values look like numbers.
    only : collection of str, optional
        Columns to read as numbers or text; of the others only the names are looked at. By default all.
    keep : collection of str
        Columns to give as the file has them, too.
    ignore : collection of str
        Columns of which only the names are looked at.
    """

    text: Collection[str] = ()
    only: Collection[str] | None = None
    keep: Collection[str] = ()
    ignore: Collection[str] = ()

    def reads(self, name: str) -> bool:
        """Tell whether a column is read as numbers or text."""
        return name not in self.ignore and (self.only is None or name in self.only)

    def needs(self, name: str) -> bool:
        """Tell whether a column is wanted in some way."""
        return self.reads(name) or name in self.keep


EVERYTHING = Wish()


def read_table(path: str, *, encoding: str | None = None, wish: Wish = EVERYTHING) -> Table:
    r"""Read a table.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input.
    encoding : str, optional
        Of text files; by default UTF-8, or UTF-16 if the file begins with its mark.
    wish : Wish
        What is wanted of its columns.

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
            notes: list[str] = []
            table, kept = _columns_in(stream, name, encoding, wish, notes)
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is compressed and damaged: {error}") from error
    return _as_table(table, kept, name, wish, notes)


def read_parquet_files(pattern: str, wish: Wish = EVERYTHING) -> Table:
    """Read the Parquet files of a pattern, in the order of their names, as one table."""
    need("pyarrow.parquet")
    from icqr._parquet import listed, pieces_of, schema_of

    files = listed(pattern)
    schema = schema_of(files)
    parts = [piece.read(schema) for piece in pieces_of(files)]
    table = need("pyarrow").concat_tables([schema.empty_table(), *parts])
    return _as_table(table, None, pattern, wish, [])


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


def _columns_in(
    stream: Any, name: str, encoding: str | None, wish: Wish, notes: list[str]
) -> tuple[Any, pd.DataFrame | None]:
    """Read a stream by what its first bytes say it is; of a CSV file give also the columns to keep."""
    head = stream.read(_HEAD)
    stream.seek(0)
    if not head.strip():
        raise ValueError(f"{name} is empty; a table with a line of column names is needed")
    kind = _kind(head, name)
    arrow = need("pyarrow")
    try:
        if kind == "csv":
            return _read_csv(stream, head, name, encoding, wish, notes)
        if kind == "parquet":
            table = need("pyarrow.parquet").read_table(io.BytesIO(stream.read()))
        elif kind == "feather":
            table = need("pyarrow.feather").read_table(io.BytesIO(stream.read()))
        else:
            reader = need("pyarrow.json")
            table = reader.read_json(stream, reader.ReadOptions(block_size=_BLOCK))
        return table, None
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


def _read_csv(
    stream: Any, head: bytes, name: str, encoding: str | None, wish: Wish, notes: list[str]
) -> tuple[Any, pd.DataFrame | None]:
    code = _encoding(encoding, head)
    sample = head.decode(code, errors="replace").removeprefix("\ufeff")
    separator, decimal = find_dialect(sample)
    columns = sample.split("\n", 1)[0].count(separator) + 1
    if columns > MOST_COLUMNS:
        raise ValueError(_too_many(name, columns if "\n" in sample else None))
    arrow, reader = need("pyarrow"), need("pyarrow.csv")
    parsing = reader.ParseOptions(delimiter=separator, newlines_in_values=True)
    missing = [*reader.ConvertOptions().null_values, *MISSING]
    conversion = reader.ConvertOptions(
        null_values=missing,
        strings_can_be_null=True,
        decimal_point=decimal,
        column_types=dict.fromkeys(wish.text, arrow.string()),
    )
    # With one thread an error says which row it is; and a small file is read no faster by several.
    options = reader.ReadOptions(encoding=code, block_size=_BLOCK, use_threads=len(head) == _HEAD)
    try:
        table = _read_rows(stream, options, parsing, conversion)
        table.column_names  # noqa: B018 (decoded here, which may fail)
    except UnicodeDecodeError as error:
        raise ValueError(_wrong_encoding(stream, name, code)) from error
    if any(arrow.types.is_binary(kind) for kind in table.schema.types):
        raise ValueError(_wrong_encoding(stream, name, code))
    notes += [text for name, text in note_thousands(sample, separator, decimal, missing) if wish.needs(name)]
    kept = {one: name for one, name in zip(table.column_names, _names(table), strict=True) if name in wish.keep}
    if not kept:
        return table, None
    stream.seek(0)
    as_text = reader.ConvertOptions(include_columns=list(kept), column_types=dict.fromkeys(kept, arrow.string()))
    texts = _read_rows(stream, options, parsing, as_text).to_pandas().set_axis(list(kept.values()), axis=1)
    return table, texts.apply(as_written, args=(decimal, missing))


def _read_rows(stream: Any, options: Any, *others: Any) -> Any:
    read_csv = need("pyarrow.csv").read_csv
    try:
        return read_csv(stream, options, *others)
    except need("pyarrow").ArrowInvalid:
        if not options.use_threads:
            raise
        options.use_threads = False
        stream.seek(0)
        return read_csv(stream, options, *others)


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


# -- Columns ---------------------------------------------------------------------------------------------


def _too_many(name: str, columns: int | None) -> str:
    count = "" if columns is None else f" ({columns:,})"
    return f"{name} has more than {MOST_COLUMNS:,} columns{count}; is it a table with a line for each row?"


def _names(table: Any) -> list[str]:
    return [str(one).strip() or f"column {place}" for place, one in enumerate(table.column_names, start=1)]


def _checked_names(table: Any, name: str, wish: Wish) -> list[str]:
    """Give the columns' names, stripped, or say what is wrong with them."""
    if table.num_columns > MOST_COLUMNS:
        raise ValueError(_too_many(name, table.num_columns))
    names = _names(table)
    twice = [one for one, count in Counter(names).items() if count > 1 and wish.needs(one)]
    if twice:
        raise ValueError(f"{name} has columns of the same name: {listed_names(twice)}; rename them")
    if not table.num_rows or not table.num_columns:
        raise ValueError(f"{name} has a header but no rows")
    return names


def _as_table(table: Any, kept: Any, name: str, wish: Wish, notes: list[str]) -> Table:
    table = table.drop_columns([one for one in table.column_names if is_written_index(one)])
    names = _checked_names(table, name, wish)
    read = {
        one: as_series(table.column(place), one, one in wish.text, notes)
        for place, one in enumerate(names)
        if wish.reads(one)
    }
    if kept is None:
        kept = table.select([names.index(one) for one in wish.keep if one in names]).to_pandas()
        kept = kept.set_axis([one for one in wish.keep if one in names], axis=1)
    unused = list(dict.fromkeys(one for one in names if one not in read))
    return Table(name, pd.DataFrame(read), notes, kept=kept, unused=unused)
