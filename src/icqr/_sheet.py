"""One small table for everything that is read: cells with a text and a value, shown by rich, as HTML or as Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from icqr._messages import imported

if TYPE_CHECKING:
    from rich.table import Table

#: What stands where nothing is known.
MISSING = "–"
#: A cell's tone: a sign, so that no colour is needed to read it, and its colour in a terminal.
TONES = {
    **{"under": ("▼", "red"), "over": ("▲", "yellow"), "luck": ("≈", "dim")},
    **{"holds": ("✓", "green"), "unknown": ("?", "dim")},
}


class Cell(NamedTuple):
    """A cell: the text to read, the value to sort by (None: last), and a tone of `TONES` ("" for none)."""

    text: str
    value: float | str | None = None
    tone: str = ""

    def __str__(self) -> str:
        """Return the text with its tone's sign."""
        return f"{TONES[self.tone][0]} {self.text}" if self.tone else self.text

    def __html__(self) -> str:
        """Return the escaped text; Jinja's templates and MarkupSafe call this."""
        if not self.tone:
            return escape(self.text)
        sign = f'<span class="sign" aria-hidden="true">{TONES[self.tone][0]}</span>'
        return f'<span class="verdict {self.tone}">{sign} {escape(self.text)}</span>'


class Column(NamedTuple):
    """A column's head: its label, whether it holds numbers (aligned right), and what it means."""

    label: str
    numeric: bool = True
    help: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table that can be shown anywhere; everything that comes from data is escaped.

    Parameters
    ----------
    columns : sequence of Column
        The heads.
    rows : sequence of sequences of Cell
        The first cell of a row names it.
    caption, note : str
        A line above and a line below.
    name : str
        Goes into the ids of the HTML elements.
    groups : sequence of int, optional
        The number of the group that each row is about, for scripts on a page.

    Examples
    --------
    >>> sheet = Sheet([Column("Method", numeric=False), Column("Covered")], [[cell("CQR"), share(0.90125)]])
    >>> print(sheet.to_markdown())
    | Method | Covered |
    | --- | ---: |
    | CQR | 90.1 % |
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    note: str = ""
    name: str = ""
    groups: Sequence[int] | None = None

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, caption: str = "") -> Sheet:
        r"""Return a DataFrame's columns as a sheet (without its index), with numbers to four significant digits.

        Examples
        --------
        >>> print(Sheet.from_frame(pd.DataFrame({"rule": ["a|b"], "n": [1204]})).to_markdown())
        | rule | n |
        | --- | ---: |
        | a\|b | 1,204 |
        """
        numeric = (
            pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes
        )
        columns = [Column(str(name), number) for name, number in zip(frame.columns, numeric, strict=True)]
        rows = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
        return cls(columns, rows, caption)

    def select(self, labels: Iterable[str]) -> Sheet:
        """Return the columns with these labels, in the order of the sheet."""
        kept = set(labels)
        places = [j for j, column in enumerate(self.columns) if column.label in kept]
        rows = [[row[j] for j in places] for row in self.rows]
        return replace(self, columns=[self.columns[j] for j in places], rows=rows)

    def known(self) -> Sheet:
        """Return the sheet without the columns in which nothing is known; the first one stays."""
        filled = (any(row[j].text not in (MISSING, "") for row in self.rows) for j in range(len(self.columns)))
        kept = [column.label for column, some in zip(self.columns, filled, strict=True) if some]
        return self.select([self.columns[0].label, *kept]) if self.rows else self

    def head(self, n: int) -> Sheet:
        """Return the first n rows."""
        return replace(self, rows=self.rows[:n], groups=None if self.groups is None else self.groups[:n])

    def to_markdown(self) -> str:
        """Return a Markdown table; caption and note are left to the caller."""
        lines = [
            [markdown(column.label) for column in self.columns],
            ["---:" if column.numeric else "---" for column in self.columns],
            *([markdown(str(entry)) for entry in row] for row in self.rows),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_html(self) -> str:
        """Return an HTML table with its caption.

        Each cell carries the value to sort by as ``data-value``, and each row its group as ``data-group``.
        """
        heads = [
            f'<th scope="col"{" class=number" * column.numeric}>{escape(column.label)}</th>' for column in self.columns
        ]
        lines = ["<thead>", "<tr>", *heads, "</tr>", "</thead>", "<tbody>"]
        for place, row in enumerate(self.rows):
            group = None if self.groups is None else self.groups[place]
            lines.append("<tr>" if group is None else f'<tr data-group="{group if group >= 0 else "none"}">')
            for j, (column, entry) in enumerate(zip(self.columns, row, strict=True)):
                tag = "td" if j else 'th scope="row"'  # the first cell names the row
                look = " class=number" if column.numeric else " class=long" if len(entry.text) > 24 else ""
                value = "" if entry.value is None else escape(str(entry.value))
                lines.append(f'<{tag}{look} data-value="{value}">{entry.__html__()}</{tag[:2]}>')
            lines.append("</tr>")
        table, words = (f' id="{part}-{escape(self.name)}"' if self.name else "" for part in ("table", "caption"))
        caption = f"<caption><span{words}>{escape(unbroken(self.caption))}</span></caption>" if self.caption else ""
        return "\n".join([f"<table{table}>", caption, *lines, "</tbody>", "</table>"])

    __html__ = _repr_html_ = to_html

    def to_rich(self) -> Table:
        """Return a table for a terminal: texts are wrapped, numbers never; caption and note are left to the caller."""
        box, text, table = (
            imported(f"rich.{part}", "tables in a terminal need", "icqr[cli]") for part in ("box", "text", "table")
        )
        shown: Table = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for label, numeric, _ in self.columns:
            # A head of two lines where a column of numbers would be wide only for its head.
            head = "\n".join(label.rsplit(" ", 1)) if numeric and len(label) > 8 else label
            lines = text.Text("\n".join(map(printable, head.split("\n"))))
            shown.add_column(lines, justify="right" if numeric else "left", no_wrap=numeric)
        for row in self.rows:
            styles = (TONES[entry.tone][1] if entry.tone else "" for entry in row)
            shown.add_row(*(text.Text(printable(str(entry)), style) for entry, style in zip(row, styles, strict=True)))
        return shown


# -- Cells -----------------------------------------------------------------------------------------------


def cell(value: object) -> Cell:
    """Return a cell: a number to four significant digits, yes or no, or the value's text; a dash for what is missing.

    Examples
    --------
    >>> [cell(value).text for value in (0.123456, 1234.5, -3, float("-inf"), True, "a rule", None)]
    ['0.1235', '1,234', '−3', '−∞', 'yes', 'a rule', '–']
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return Cell(MISSING)
    if isinstance(value, bool):
        return Cell("yes", "yes") if value else Cell("no", "no")
    if not isinstance(value, int | float):
        return Cell(str(value), str(value))

    if isinstance(value, int):
        text = f"{value:,}"
    elif math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    else:
        text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return Cell(text.replace("-", "−"), value)


def aligned(values: Iterable[float | None]) -> list[Cell]:
    """Return a column's numbers with equally many decimals: four digits of the largest, two of the middle one.

    Examples
    --------
    >>> [cell.text for cell in aligned([206.81, 195.0, None, 3.14159])]
    ['206.8', '195.0', '–', '3.1']
    """
    numbers = [None if value is None else float(value) for value in values]
    sizes = sorted(abs(value) for value in numbers if value and math.isfinite(value))
    if not sizes or not 1e-4 < sizes[-1] < 1e15:
        return [cell(value) for value in numbers]

    digits_of_sizes = ((sizes[-1], 4), (sizes[len(sizes) // 2], 2))
    decimals = max(min(max(digits - 1 - math.floor(math.log10(size)), 0), 6) for size, digits in digits_of_sizes)
    return [
        cell(value)
        if value is None or not math.isfinite(value)
        else Cell(f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−"), value)  # + 0.0 makes −0 a 0
        for value in numbers
    ]


def share(value: float | None) -> Cell:
    r"""Return a cell with a percentage.

    Examples
    --------
    >>> share(0.90125).text
    '90.1\xa0%'
    """
    return Cell(MISSING) if value is None else Cell(f"{100 * value:.1f}\u00a0%".replace("-", "−"), float(value))


def span(low: float | None, high: float | None) -> Cell:
    r"""Return a cell with two percentages, sorted by the first.

    Examples
    --------
    >>> span(0.881, 0.924).text
    '88.1–92.4\xa0%'
    """
    if low is None or high is None:
        return Cell(MISSING)
    return Cell(f"{100 * low:.1f}–{100 * high:.1f}\u00a0%", float(low))


# -- Text that is safe where it is shown -------------------------------------------------------------------


def markdown(text: str) -> str:
    r"""Return text on one line, with what Markdown or HTML would read as markup escaped.

    Examples
    --------
    >>> print(markdown("a|b <script>"))
    a\|b \<script\>
    """
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", re.sub(r"\s+", " ", text))


def printable(text: str) -> str:
    r"""Return text on one line, with control characters (a terminal would obey them) as escapes.

    Examples
    --------
    >>> printable("two\nlines \x1b[31m")
    'two lines \\x1b[31m'
    """
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def unbroken(text: str) -> str:
    """Return text in which a number and its percent sign stay on one line."""
    return text.replace(" %", "\u00a0%")
