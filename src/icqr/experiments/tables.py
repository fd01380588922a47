"""Tables as files: CSV with all digits, Markdown and LaTeX for readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from icqr.experiments.tidy_rows import write_text


@dataclass(frozen=True)
class Table:
    """A table to be written: numbers for CSV, text for readers.

    Parameters
    ----------
    name : str
        Of the files.
    caption : str
        A sentence or two.
    numbers : DataFrame
        As in the CSV file.
    text : DataFrame, optional
        As people read it; by default the numbers with four digits.
    """

    name: str
    caption: str
    numbers: pd.DataFrame
    text: pd.DataFrame | None = None

    def write(self, folder: Path) -> None:
        """Write CSV, Markdown and LaTeX."""
        table = self.numbers if self.text is None else self.text
        cells = [[shown(value) for value in row] for row in table.itertuples(index=False)]
        names = [str(name) for name in table.columns]
        write_text(folder / f"{self.name}.csv", self.numbers.to_csv(index=False))
        write_text(folder / f"{self.name}.md", f"{self.caption}\n\n{as_markdown(names, cells)}")
        write_text(folder / f"{self.name}.tex", as_latex(names, cells, self.caption, f"tab:{self.name}"))


def shown(value: object) -> str:
    """Give a value as readers see it: numbers with four digits, a dash for what is missing."""
    if isinstance(value, float | np.floating):
        return "–" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def as_markdown(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    r"""Give a Markdown table.

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


_LATEX = {"\\": r"\textbackslash{}", "–": "--", "−": r"$-$", "≥": r"$\geq$", "≤": r"$\leq$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


def as_latex(names: Sequence[str], cells: Sequence[Sequence[str]], caption: str, label: str) -> str:
    r"""Give a LaTeX table in the style of booktabs.

    Examples
    --------
    >>> print(as_latex(["a_1"], [["5 %"]], "A caption.", "tab:a").splitlines()[4])
    a\_1 \\
    """
    lines = [" & ".join(_escaped(cell) for cell in row) + r" \\" for row in [names, *cells]]
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    columns = "l" * len(names)
    return (
        f"\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"
        f"\\caption{{{_escaped(caption)}}}\n\\label{{{label}}}\n\\end{{table}}\n"
    )


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
