"""Verdicts on many regions at once, with a stated chance of any false alarm; findings as sentences and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from icqr._notebook import foldable, sentences, shown
from icqr._sheet import Sheet, markdown
from icqr._tables import FloatArray
from icqr.auditing.regions import SLAB
from icqr.metrics import binomial_interval

#: Chance of any false alarm, "undercovers" or "overcovers", in one audit.
ERROR_RATE = 0.05
#: Confidence of each region's exact interval, by itself.
CONFIDENCE = 0.95
UNDER, OVER, HOLDS, UNKNOWN = "undercovers", "overcovers", "holds", "too few rows to tell"
#: How a verdict on all rows is put in a sentence.
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
    HOLDS: ("holds", "hold"),
    UNKNOWN: ("has too few rows to tell", "have too few rows to tell"),
}

# -- Verdicts --------------------------------------------------------------------------------------------


def tolerance(coverage: float) -> float:
    """Return the shortfall up to which a promise counts as kept: 5 points, but at most half the promised misses."""
    return min(0.05, (1 - coverage) / 2)


def holm(p_values: ArrayLike) -> FloatArray:
    """Return Holm's adjusted p-values: rejecting those ≤ α keeps the chance of any false rejection ≤ α.

    No independence is needed.

    References
    ----------
    Holm (1979), *Scandinavian Journal of Statistics* 6, 65–70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.asarray(np.minimum(adjusted, 1.0))


def judge(regions: pd.DataFrame, coverage: float) -> pd.DataFrame:
    """Judge regions, a row each with `kind`, `n`, `covered` (a count), `basis` and a band, and put the worst first.

    Regions with the same `basis` are one family: those given beforehand, judged on all rows, and those found on one
    half of the rows, judged on the other. Holm's adjustment is made within each family, and each gets an equal share of
    `ERROR_RATE`. (One Holm step over both would not be exact: how many regions are found depends on rows that also
    judge the given ones.)
    """
    covered, n = regions["covered"].to_numpy(), regions["n"].to_numpy()
    share = regions["covered"] / regions["n"].replace(0, np.nan)
    low, high = binomial_interval(covered, n, confidence=CONFIDENCE)

    # "The true coverage is the promised one": twice the smaller tail.
    tails = np.minimum(stats.binom.cdf(covered, n, coverage), stats.binom.sf(covered - 1, n, coverage))
    raw = pd.Series(np.minimum(2 * tails, 1.0), index=regions.index).groupby(regions["basis"])
    p_value = np.minimum(raw.transform(holm) * raw.ngroups, 1.0)
    alarm, kept = p_value <= ERROR_RATE, (low >= coverage - tolerance(coverage)) & (high >= coverage)
    verdict = np.select([alarm & (share < coverage), alarm, kept], [UNDER, OVER, HOLDS], default=UNKNOWN)

    # Whether the exact interval meets the band of what calibration can give; None where there is no band.
    band_low, band_high = regions["band_lower"].astype(float), regions["band_upper"].astype(float)
    meets = pd.Series((low <= band_high) & (high >= band_low), dtype=object)
    judged = regions.assign(coverage=share, coverage_lower=low, coverage_upper=high, p_value=p_value, verdict=verdict)
    judged["within_band"] = meets.where(band_low.notna(), None)

    # The worst verdict first; then the region that is at least furthest from the promise, by its interval's nearer
    # end. A slab, which is hard to read, comes after the regions with the same verdict.
    severity = pd.Series(verdict).map({UNDER: 0, OVER: 1, UNKNOWN: 2, HOLDS: 3})
    nearer = np.where(verdict == OVER, -low, high)
    order = np.lexsort((share.fillna(1.0), nearer, regions["kind"] == "worst slab", severity))
    return judged.iloc[order].reset_index(drop=True)


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
        f"promised; the true value is very likely between {percent(region['coverage_lower'])} and "
        f"{percent(region['coverage_upper'])}{_explanation(region)}."
    )


def _explanation(region: dict[str, Any]) -> str:
    """Return whether the number of calibration rows explains the distance, or that nothing was promised."""
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
    """Return how it is on average, and in how many of the regions looked at."""
    whole = regions["kind"] == "all rows"
    (row,) = records(regions[whole])
    average = (
        f"Over all {row['n']:,} rows {percent(row['coverage'])} are covered, {promise(coverage)} promised, and the "
        f"true value is very likely between {percent(row['coverage_lower'])} and {percent(row['coverage_upper'])}: "
        f"{OVERALL[row['verdict']]}{_explanation(row) if row['verdict'] in (UNDER, OVER) else ''}."
    )

    counts = regions.loc[~whole, "verdict"].value_counts()
    total = f"the {counts.sum():,} regions looked at"
    parts = [f"{counts[key]:,} {words[int(counts[key] > 1)]}" for key, words in COUNTED.items() if key in counts]
    if not len(counts):
        rest = "No regions were looked at."
    elif counts.sum() == 1:
        rest = f"The one region looked at {COUNTED[counts.index[0]][0]}."
    elif UNDER in counts or OVER in counts:
        rest = f"Of {total}, {listed(parts)}."
    else:
        rest = f"In none of {total} is the promise shown to be broken: {listed(parts)}."
    return f"{average} {rest}"


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
