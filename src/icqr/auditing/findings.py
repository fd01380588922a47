"""Verdicts in plain sentences and in tables that are safe to show."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from icqr.auditing.verdicts import HOLDS, OVER, UNDER, UNKNOWN

#: How the name of a slab across many columns begins.
SLAB = "a slab across "
OVERALL = {
    HOLDS: "the promise holds on average",
    UNDER: "the promise is broken on average",
    OVER: "on average the intervals cover more than promised",
    UNKNOWN: "too few rows to tell whether the promise holds on average",
}
COUNTED = {
    UNDER: ("undercovers", "undercover"),
    OVER: ("overcovers", "overcover"),
    HOLDS: ("holds", "hold"),
    UNKNOWN: ("has too few rows to tell", "have too few rows to tell"),
}


def percent(share: float, digits: int = 1) -> str:
    """Give a share as a percentage.

    Examples
    --------
    >>> percent(0.8119), percent(float("nan"))
    ('81.2 %', 'unknown')
    """
    return "unknown" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def promise(coverage: float) -> str:
    """Give a promised coverage with no more digits than it has.

    Examples
    --------
    >>> promise(0.9), promise(0.995)
    ('90 %', '99.5 %')
    """
    return f"{100 * coverage:.6g} %"


def region_sentence(region: dict[str, Any], coverage: float) -> str:
    """Say how often intervals hold in a region, with what is very likely the true value, and what may explain it."""
    name = rows_of(region)
    subject = name[:1].upper() + name[1:]
    said = f"{subject}: {percent(region['coverage'])} of {region['n']:,} covered, {promise(coverage)} promised"
    likely = f"{percent(region['coverage_lower'])} and {percent(region['coverage_upper'])}"
    return f"{said}; the true value is very likely between {likely}{_explanation(region)}."


def rows_of(region: dict[str, Any]) -> str:
    """Name a region's rows.

    Examples
    --------
    >>> rows_of({"kind": "feature bin", "region": "hr ≤ 6"})
    'rows with hr ≤ 6'
    >>> rows_of({"kind": "model group", "region": "group 3 (hr ≤ 6)"})
    'group 3 (hr ≤ 6)'
    """
    name = str(region["region"])
    if region["kind"] in ("all rows", "model group"):
        return name
    return f"rows in {name}" if name.startswith(SLAB) else f"rows with {name}"


def _explanation(region: dict[Any, Any]) -> str:
    """Say whether the number of calibration rows explains the distance, or that nothing was promised."""
    if str(region["guarantee"]).startswith("none"):
        return f"; the model promises nothing here {str(region['guarantee']).removeprefix('none ')}"
    if region["within_band"] is None:
        return ""
    band = f"{percent(region['band_lower'])} to {percent(region['band_upper'])} in nine of ten calibrations"
    rows = f"{int(region['calibration_rows']):,} calibration rows"
    if region["within_band"]:
        return f", which {rows} can give ({band})"
    return f", which the luck of {rows} does not explain ({band})"


def overall_sentence(regions: pd.DataFrame, coverage: float) -> str:
    """Say how it is on average, and in how many of the regions looked at."""
    whole = regions["kind"] == "all rows"
    row = regions[whole].iloc[0]
    likely = f"{percent(row['coverage_lower'])} and {percent(row['coverage_upper'])}"
    average = (
        f"Over all {row['n']:,} rows {percent(row['coverage'])} are covered, {promise(coverage)} promised, and the "
        f"true value is very likely between {likely}: {OVERALL[row['verdict']]}"
        f"{_explanation(row.to_dict()) if row['verdict'] in (UNDER, OVER) else ''}."
    )
    counts = regions.loc[~whole, "verdict"].value_counts()
    if not len(counts):
        return f"{average} No regions were looked at."
    return f"{average} {_count_sentence(counts)}"


def _count_sentence(counts: pd.Series[int]) -> str:
    if counts.sum() == 1:
        return f"The one region looked at {COUNTED[counts.index[0]][0]}."
    total = f"the {counts.sum():,} regions looked at"
    parts = [f"{counts[key]:,} {words[int(counts[key] > 1)]}" for key, words in COUNTED.items() if key in counts]
    if UNDER in counts or OVER in counts:
        return f"Of {total}, {listed(parts)}."
    return f"In none of {total} is the promise shown to be broken: {listed(parts)}."


def listed(parts: list[str]) -> str:
    """Join parts of a sentence.

    Examples
    --------
    >>> listed(["one"]), listed(["one", "two", "three"])
    ('one', 'one, two and three')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# -- Safe to show ----------------------------------------------------------------------------------------


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Give a dict per row; pandas' mark for a missing whole number becomes None."""
    rows = table.to_dict("records")
    return [{str(name): None if value is pd.NA else value for name, value in row.items()} for row in rows]


def plain(value: Any) -> Any:
    """Give plain Python values: NumPy's numbers as Python's, NaN as None; tables as lists of dicts."""
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in records(value)]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def as_json(value: Any) -> str:
    """Give JSON; it has no infinity, so the texts "Infinity" and "-Infinity" stand for it.

    Examples
    --------
    >>> as_json({"width": float("inf"), "gap": float("nan")})
    '{"width": "Infinity", "gap": null}'
    """
    return json.dumps(_named_infinity(plain(value)), ensure_ascii=False, allow_nan=False)


def _named_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named_infinity(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def markdown(text: str) -> str:
    r"""Escape what Markdown or HTML would read as markup.

    Examples
    --------
    >>> print(markdown("a|b <script>"))
    a\|b \<script\>
    """
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", re.sub(r"\s+", " ", text))


def markdown_list(sentences: Iterable[str]) -> str:
    """Give a list, an item per sentence."""
    return "\n".join(f"- {markdown(sentence)}" for sentence in sentences)


def markdown_table(table: pd.DataFrame) -> str:
    """Give a table with a row per row; numbers with four significant digits."""
    head = [f"| {' | '.join(markdown(str(name)) for name in table.columns)} |", "| --- " * table.shape[1] + "|"]
    rows = [f"| {' | '.join(markdown(shown(v)) for v in row)} |" for row in table.itertuples(index=False, name=None)]
    return "\n".join([*head, *rows])


def html_table(table: pd.DataFrame) -> str:
    """Give an HTML table with everything escaped."""
    text = table.map(shown).rename(columns=str)
    return str(text.to_html(index=False, escape=True, border=0))


def html_page(title: str, summary: str, findings: Iterable[str], *tables: pd.DataFrame) -> str:
    """Give a heading, the summary, a list of findings and tables, with everything from data escaped."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings)
    body = "".join(html_table(table) for table in tables)
    return f"<h3>{escape(title)}</h3><p><strong>{escape(summary)}</strong></p><ul>{items}</ul>{body}"


def shown(value: Any) -> str:
    """Give a cell of a table as text: four significant digits, and a dash for what is not known.

    Examples
    --------
    >>> shown(0.123456), shown(1204), shown(float("nan")), shown(float("inf"))
    ('0.1235', '1,204', '–', '∞')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value)
