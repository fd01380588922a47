"""How objects show themselves in a notebook: sentences first, long tables folded, and a small picture of promises.

Everything from data is escaped. Pictures take the colour of the page's text, so that they fit a light and a dark page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from html import escape

import numpy as np
import pandas as pd

from icqr._sheet import MISSING, Cell, Column, Sheet, cell, share, span

#: A table with more rows is folded.
MOST_OPEN = 10
#: Of a model's groups at most this many are shown, and of a rule at most this many characters.
MOST_GROUPS, LONGEST_RULE = 10, 150
NONE = Cell("none", 0.0)
# In a `div`, so that these rules come before a notebook's own and touch nothing else on the page.
_STYLE = (
    "<style>div.icqr-shown table{border-collapse:collapse;margin:.4em 0}"
    "div.icqr-shown td,div.icqr-shown th{padding:.15em .7em;text-align:left;vertical-align:top}"
    "div.icqr-shown .number{text-align:right}div.icqr-shown summary{cursor:pointer}</style>"
)
#: The picture's sizes: of its names, of the band's whole range, of a row.
_NAMES, _RANGE, _ROW = 70, 330, 18


def shown(*parts: str) -> str:
    """Return parts of HTML as one element with the look that all objects share.

    Examples
    --------
    >>> shown("<p>90 %</p>")[-17:]
    '<p>90 %</p></div>'
    """
    return f'{_STYLE}<div class="icqr-shown">{"".join(parts)}</div>'


def sentences(texts: Iterable[str]) -> str:
    """Return a list of escaped sentences; nothing for none.

    Examples
    --------
    >>> sentences(["a < b"])
    '<ul><li>a &lt; b</li></ul>'
    """
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def foldable(title: str, sheet: Sheet) -> str:
    """Return a table under its title, folded if it has more than `MOST_OPEN` rows.

    Examples
    --------
    >>> foldable("Regions", Sheet([Column("n")], [[cell(3)]]))[:47]
    '<details open><summary>Regions (1 row)</summary'
    """
    n = len(sheet.rows)
    state = "" if n > MOST_OPEN else " open"
    head = f"{escape(title)} ({n:,} row{'' if n == 1 else 's'})"
    return f"<details{state}><summary>{head}</summary>{sheet.to_html()}</details>"


def promises(sentence: str, groups: pd.DataFrame, coverage: float, rules: Iterable[str] | None = None) -> str:
    """Return what is promised: a sentence, a table of groups and a picture of them.

    Parameters
    ----------
    sentence : str
        The certificate in words.
    groups : DataFrame
        The groups of a `Certificate`; the last row is that of rows of no known group.
    coverage : float
        What was asked for.
    rules : iterable of str, optional
        What each group is, in words.

    Examples
    --------
    >>> groups = pd.DataFrame({"group": [0, -1], "n": [50, 0], "promised": [0.902, 0.0]})
    >>> "90.2" in promises("Coverage 0.9.", groups.assign(band_lower=0.82, band_upper=0.96), 0.9)
    True
    """
    words = f"<p><strong>{escape(sentence)}</strong></p>"
    own = groups.iloc[:-1]
    if not own["n"].any():
        return "<p><strong>Nothing is promised: these bounds are not calibrated.</strong></p>"

    few = own.head(MOST_GROUPS)
    heads = [Column("group"), Column("calibration rows"), Column("promised"), Column("in nine of ten calibrations")]
    rows = []
    for row in few.to_dict("records"):
        band = Cell(MISSING) if math.isnan(row["band_lower"]) else span(row["band_lower"], row["band_upper"])
        rows.append([cell(row["group"]), cell(row["n"]), share(row["promised"]) if row["promised"] else NONE, band])
    if rules is not None:
        heads.insert(1, Column("rule", numeric=False))
        for cells, rule in zip(rows, rules, strict=False):
            cells.insert(1, cell(textwrap.shorten(rule, LONGEST_RULE, placeholder=" …")))
    rest = len(own) - len(few)
    more = f"<p>And {rest:,} more group{'' if rest == 1 else 's'}: see <code>groups_</code>.</p>" if rest else ""
    return f"{words}{Sheet(heads, rows).known().to_html()}{more}{_picture(few, coverage)}"


def _picture(groups: pd.DataFrame, coverage: float) -> str:
    """Return an SVG: a dot for the coverage promised in each group, and a bar for its band, under the one asked for."""
    kept = groups[groups["promised"] > 0]
    if kept.empty:
        return ""
    # The range is in whole percents, wide enough for all that is drawn.
    values = [coverage, *kept[["promised", "band_lower", "band_upper"]].to_numpy(dtype=float).ravel()]
    low, high = math.floor(100 * np.nanmin(values)) / 100, min(math.ceil(100 * np.nanmax(values)) / 100, 1.0)
    low = min(low, high - 0.01)

    def x(value: float) -> str:
        return f"{_NAMES + _RANGE * (value - low) / (high - low):.1f}"

    bottom = 20 + _ROW * len(kept)
    parts = [f'<path d="M{x(coverage)} 18V{bottom}" stroke="currentColor" stroke-dasharray="3 3"/>']
    for place, row in enumerate(kept.to_dict("records")):
        y = 20 + _ROW * (place + 0.5)
        parts.append(f'<text x="{_NAMES - 10}" y="{y + 4:g}" text-anchor="end">group {row["group"]}</text>')
        if not math.isnan(row["band_lower"]):
            path = f"M{x(row['band_lower'])} {y:g}H{x(row['band_upper'])}"
            parts.append(f'<path d="{path}" stroke="currentColor" stroke-width="7" opacity=".35"/>')
        parts.append(f'<circle cx="{x(row["promised"])}" cy="{y:g}" r="4" fill="#D55E00"/>')

    # The ends of the range are named below, and the coverage asked for above its line.
    parts += [
        f'<text x="{x(value)}" y="{y:g}" text-anchor="middle">{100 * value:.4g} %</text>'
        for value, y in ((low, bottom + 14), (high, bottom + 14), (coverage, 13))
    ]
    has_bands = kept["band_lower"].notna().any()
    bar = "Bar: coverage in nine of ten calibrations. " * bool(has_bands)
    words = f"Dot: promised in the group. {bar}Dashed: asked for."
    width, height = _NAMES + _RANGE + 30, bottom + 20
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg {size} role="img" style="max-width:100%;font-size:12px" fill="currentColor"><title>{words}</title>'
        f"{''.join(parts)}</svg><p><small>{words}</small></p>"
    )
