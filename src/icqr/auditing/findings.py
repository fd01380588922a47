"""Findings as sentences, and the written forms: JSON, Markdown, HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from icqr._notebook import foldable, sentences, shown
from icqr._sheet import Sheet, markdown
from icqr.auditing.regions import SLAB
from icqr.auditing.verdicts import HOLDS, LUCK, OVER, UNDER, UNKNOWN, digits, looked_at

#: How a verdict on all rows is put in a sentence; what calibration luck explains has words of its own.
OVERALL = {
    HOLDS: "the promise holds on average",
    UNDER: "the promise is broken on average",
    OVER: "on average the intervals cover more than promised",
    UNKNOWN: "too few rows to tell whether the promise holds on average",
}
#: How a verdict is put that one region has, or several.
COUNTED = {
    UNDER: ("undercovers", "undercover"),
    OVER: ("overcovers", "overcover"),
    LUCK: ("is within calibration luck", "are within calibration luck"),
    HOLDS: ("holds", "hold"),
    UNKNOWN: ("has too few rows to tell", "have too few rows to tell"),
}

# -- Sentences -------------------------------------------------------------------------------------------


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return "unknown" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def promise(coverage: float) -> str:
    """Return a promised coverage with no more digits than it has: 90 %, 99.5 %."""
    return f"{100 * coverage:.6g} %"


def listed(parts: list[str]) -> str:
    """Return parts of a sentence, joined: "one", "one, two and three"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def rows_of(region: dict[str, Any]) -> str:
    """Return what a region's rows are called: "rows with hr ≤ 6", "group 3 (hr ≤ 6)"."""
    name = str(region["region"])
    if region["kind"] in ("all rows", "model group"):
        return name
    return f"rows in {name}" if name.startswith(SLAB) else f"rows with {name}"


def region_sentence(region: dict[str, Any], coverage: float) -> str:
    """Return how often intervals hold in a region, what is very likely the true value, and what may explain it."""
    name = rows_of(region)
    return (
        f"{name[:1].upper()}{name[1:]}: {percent(region['coverage'])} of {region['n']:,} covered, {promise(coverage)} "
        f"promised; the true value is very likely {between(region, coverage)}{_explanation(region, coverage)}."
    )


def between(region: dict[str, Any], coverage: float, what: str = "coverage") -> str:
    """Return an interval in words, with the digits that it is judged by: "between 87.9 % and 89.3 %"."""
    low, high = (percent(region[f"{what}_{end}"], digits(coverage)) for end in ("lower", "upper"))
    return f"between {low} and {high}"


def _explanation(region: dict[str, Any], coverage: float) -> str:
    """Return whether the number of calibration rows explains a miss, if it is known, or that nothing was promised."""
    if region["verdict"] not in (UNDER, OVER, LUCK):
        return ""
    if str(region["guarantee"]).startswith("none"):
        return f"; the model promises nothing here {str(region['guarantee']).removeprefix('none ')}"
    if region["within_band"] is None:
        return ""
    rows = int(region["calibration_rows"])
    given = f"with {rows:,} calibration rows nine of ten calibrations give {between(region, coverage, 'band')}"
    luck = "this is within calibration luck" if region["verdict"] == LUCK else "calibration luck does not explain it"
    return f"; {given}, so {luck}"


def overall_sentence(regions: pd.DataFrame, coverage: float) -> str:
    """Return how it is on average, and in how many of the regions looked at."""
    whole, own = regions["kind"] == "all rows", regions["kind"] == "model group"
    (row,) = records(regions[whole])
    start = (
        f"Over all {row['n']:,} rows {percent(row['coverage'])} are covered, {promise(coverage)} promised, and the "
        f"true value is very likely {between(row, coverage)}"
    )
    said = f": {OVERALL[row['verdict']]}" if row["verdict"] in OVERALL else ""
    average = f"{start}{said}{_explanation(row, coverage)}."

    # The model's own groups are counted by themselves: in a comparison the other regions are the same for all.
    parts = [
        _counts_sentence(looked_at(regions)["verdict"], "region looked at"),
        _counts_sentence(regions.loc[own, "verdict"], "group of the model"),
    ]
    return " ".join([average, *filter(None, parts)]) if any(parts) else f"{average} No regions were looked at."


def _counts_sentence(verdicts: pd.Series[Any], name: str) -> str:
    """Return how many regions of a kind have which verdict; nothing, if there are none."""
    counts, n = verdicts.value_counts(), len(verdicts)
    parts = [f"{counts[key]:,} {words[int(counts[key] > 1)]}" for key, words in COUNTED.items() if key in counts]
    several = name.replace("region", "regions").replace("group", "groups")
    if not n:
        return ""
    if n == 1:
        return f"The one {name} {COUNTED[counts.index[0]][0]}."
    if UNDER in counts or OVER in counts:
        return f"Of the {n:,} {several}, {listed(parts)}."
    return f"In none of the {n:,} {several} is the promise shown to be broken: {listed(parts)}."


# -- Written forms ---------------------------------------------------------------------------------------


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a dict per row; pandas' mark for a missing whole number becomes None."""
    rows = table.to_dict("records")
    return [{str(name): None if value is pd.NA else value for name, value in row.items()} for row in rows]


def plain(value: Any, *, name_infinity: bool = False) -> Any:
    """Return plain Python values: NumPy's numbers as Python's, NaN as None, tables as lists of dicts.

    With `name_infinity` the texts "Infinity" and "-Infinity" stand for what JSON does not have.
    """
    if isinstance(value, pd.DataFrame):
        value = records(value)
    if isinstance(value, dict):
        return {str(key): plain(item, name_infinity=name_infinity) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name_infinity=name_infinity) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and name_infinity and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None if isinstance(value, float) and math.isnan(value) else value


def as_json(value: Any) -> str:
    """Return JSON; it has no infinity, so the texts "Infinity" and "-Infinity" stand for it.

    Examples
    --------
    >>> as_json({"width": float("inf"), "gap": float("nan")})
    '{"width": "Infinity", "gap": null}'
    """
    return json.dumps(plain(value, name_infinity=True), ensure_ascii=False, allow_nan=False)


class Written:
    """The written forms that what `audit`, `compare` and `plan` return have in common."""

    findings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; NaN becomes None."""
        raise NotImplementedError

    def _contents(self) -> tuple[str, str, Sequence[str], dict[str, pd.DataFrame], str]:
        """Return what there is to read: title, summary, findings, tables, and a note that notebooks leave out."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.findings)

    def __repr__(self) -> str:
        return str(self)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON; infinity is the text "Infinity"."""
        return as_json(self.to_dict())

    def to_markdown(self) -> str:
        """Return summary, findings and tables as Markdown, with everything from data escaped."""
        _, summary, findings, tables, note = self._contents()
        parts = [f"**{markdown(summary)}**", "\n".join(f"- {markdown(text)}" for text in findings)]
        parts += [Sheet.from_frame(table).to_markdown() for table in tables.values() if len(table)]
        return "\n\n".join(part for part in [*parts, markdown(note)] if part)

    def _repr_html_(self) -> str:
        title, summary, findings, tables, _ = self._contents()
        folded = [foldable(name, Sheet.from_frame(table)) for name, table in tables.items() if len(table)]
        head = f"<h3>{escape(title)}</h3><p><strong>{escape(summary)}</strong></p>"
        return shown(head, sentences(findings), *folded)
