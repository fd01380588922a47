"""How a CSV file is written: its separator, its decimal sign, and whether that may separate thousands."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection

SEPARATORS = ",;\t|"


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
    lines = _first_lines(sample)
    tried = {separator: _fields(lines, separator) for separator in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: _agreement(tried[one]))
    if separator == ",":
        return separator, "."
    fields = [value.strip() for row in tried[separator][1:] for value in row]
    commas = sum(bool(re.fullmatch(r"[+-]?\d+,\d+", value)) for value in fields)
    points = sum(bool(re.fullmatch(r"[+-]?\d+\.\d+", value)) for value in fields)
    return separator, "," if commas > points else "."


def _first_lines(sample: str) -> str:
    lines = sample[: 1 << 16]
    return lines if len(lines) == len(sample) else lines[: lines.rfind("\n") + 1] or lines


def _fields(lines: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(lines), delimiter=separator) if row]
    except csv.Error:  # an open quotation mark, or a field that is too large
        return []


def _agreement(rows: list[list[str]]) -> tuple[float, int]:
    """Give the share of rows that have as many fields as the first, if that is more than one, and that number."""
    width = len(rows[0]) if rows else 0
    return (sum(len(row) == width for row in rows) / len(rows), width) if width > 1 else (0.0, 0)


def note_thousands(sample: str, separator: str, decimal: str, missing: Collection[str]) -> list[tuple[str, str]]:
    r"""Tell of columns whose decimal sign may separate thousands: it has three digits behind it, or is not there.

    Examples
    --------
    >>> [(name, text)] = note_thousands("price\n6.139\n906\n1.506\n12.000\n", ";", ".", [""])
    >>> text.partition(". ")[0]
    "column 'price': '6.139' is read as 6.139, and '906' as 906"
    """
    header, *rows = _fields(_first_lines(sample), separator) or [[]]
    whole, parted = re.compile(r"[+-]?\d{1,3}"), re.compile(rf"[+-]?[1-9]\d{{0,2}}{re.escape(decimal)}\d{{3}}")
    notes = []
    for place, name in enumerate(one.strip() for one in header):
        values = [row[place].strip() for row in rows if len(row) > place and row[place].strip() not in missing]
        signed = [value for value in values if decimal in value]
        others = [value for value in values if decimal not in value]
        if len(signed) < 3 or not others:
            continue
        if all(map(parted.fullmatch, signed)) and all(map(whole.fullmatch, others)):
            read = signed[0].replace(",", ".")
            text = (
                f"column {name!r}: {signed[0]!r} is read as {read}, and {others[0]!r} as {others[0]}. If the sign "
                "separates thousands, take it out of the file"
            )
            notes.append((name, text))
    return notes
