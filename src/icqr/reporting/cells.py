"""What tables are made of: cells with a text to read and a value to sort by, columns, rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from icqr.auditing.findings import shown
from icqr.auditing.verdicts import HOLDS, OVER, UNDER, UNKNOWN

_SIGNS = {UNDER: "▼", OVER: "▲", HOLDS: "✓", UNKNOWN: "?"}


class Cell(NamedTuple):
    """A cell: what is read, what it is sorted by (None: last), and a word for its look."""

    text: str
    value: float | str | None = None
    look: str = ""
    sign: str = ""


class Column(NamedTuple):
    """A column's head: a label, whether it holds numbers, and what it means."""

    label: str
    numeric: bool = True
    help: str = ""


class Row(NamedTuple):
    """Cells, the first of which names the row; and the number of the group that it is about."""

    cells: Sequence[Cell]
    group: int | None = None


@dataclass(frozen=True)
class Table:
    """A table with a caption."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""


def text(value: Any) -> Cell:
    """Give a cell of words."""
    return Cell("–" if value is None else str(value), None if value is None else str(value))


def number(value: Any) -> Cell:
    """Give a cell with a number, to four significant digits.

    Examples
    --------
    >>> number(1234.5).text, number(None).text, number(float("inf")).text
    ('1,234', '–', '∞')
    """
    return Cell(shown(value).replace("-", "−"), None if value is None else float(value))


def aligned(values: Iterable[Any]) -> list[Cell]:
    """Give a column's numbers with the same number of decimals: four digits of the largest, two of the middle one.

    Examples
    --------
    >>> [cell.text for cell in aligned([206.81, 195.0, None, 3.14159])]
    ['206.8', '195.0', '–', '3.1']
    """
    given = [None if value is None else float(value) for value in values]
    sizes = sorted(abs(value) for value in given if value and math.isfinite(value))
    if not sizes or not 1e-4 < sizes[-1] < 1e15:
        return [number(value) for value in given]
    digits = max(_decimals(sizes[-1], 4), _decimals(sizes[len(sizes) // 2], 2))
    return [number(value) if value is None or math.isinf(value) else _rounded(value, digits) for value in given]


def _decimals(size: float, digits: int) -> int:
    """Give how many decimals show so many digits of a number."""
    return min(max(digits - 1 - math.floor(math.log10(size)), 0), 6)


def _rounded(value: float, decimals: int) -> Cell:
    near = round(value, decimals) + 0.0  # −0 is 0
    return Cell(f"{near:,.{decimals}f}".replace("-", "−"), value)


def share(value: Any) -> Cell:
    r"""Give a cell with a percentage.

    Examples
    --------
    >>> share(0.90125).text
    '90.1\xa0%'
    """
    return Cell("–") if value is None else Cell(f"{100 * value:.1f}\u00a0%".replace("-", "−"), float(value))


def span(low: Any, high: Any) -> Cell:
    r"""Give a cell with two percentages, sorted by the first.

    Examples
    --------
    >>> span(0.881, 0.924).text
    '88.1–92.4\xa0%'
    """
    return Cell("–") if low is None or high is None else Cell(f"{100 * low:.1f}–{100 * high:.1f}\u00a0%", float(low))


def verdict(value: str) -> Cell:
    """Give a cell with a verdict: a sign and the word, so that no colour is needed."""
    look = {UNDER: "under", OVER: "over", HOLDS: "holds"}.get(value, "unknown")
    return Cell("too few rows" if value == UNKNOWN else value, list(_SIGNS).index(value), look, _SIGNS[value])
