"""What the paper says of its results, as numbers that are positive where it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from icqr.experiments.paper_rows import pooled
from icqr.experiments.paper_values import paper_values

#: For each variant of ICQR, the variant of the methods it is compared with.
PARTNERS = {"printed": "exact", "ours": "exact", "notebook": "notebook"}
COVERAGE = 0.9


@dataclass(frozen=True)
class Numbers:
    """What a claim is about: a method's widths and coverages, of one network or of all together."""

    std: float
    IQR: float
    width_median: float
    width_mean: float
    coverage: float  # the median over networks
    coverage_mean: float
    easy: float = np.nan
    hard: float = np.nan

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Numbers:
        """Compute them from rows of one method."""
        widths = pooled(rows)
        low, middle, high = np.quantile(widths, [0.25, 0.5, 0.75])
        means = [float(rows[name].mean()) for name in ("coverage", "coverage_easy", "coverage_hard")]
        coverage = float(rows["coverage"].median())
        return cls(float(widths.std()), high - low, middle, float(widths.mean()), coverage, *means)

    @classmethod
    def printed(cls, width: Mapping[Any, Any], coverage: Mapping[Any, Any]) -> Numbers:
        """Take them from a row of the paper's tables."""
        widths = (width["std"], width["IQR"], width["median"], width["mean"])
        return cls(*map(float, (*widths, coverage["median"], coverage["mean"])))


Margin = Callable[[Mapping[str, Numbers]], float]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper.

    Parameters
    ----------
    text : str
        The claim.
    data : tuple of str
        The data sets it is about.
    needs : tuple of str
        The methods it is about; without ICQR it has nothing to do with ICQR's variants.
    margin : callable
        By how much it holds, from each method's numbers.
    """

    text: str
    data: tuple[str, ...]
    needs: tuple[str, ...]
    margin: Margin


_PAIR = ("CQR", "ICQR")
_FIRST_TWO = ("blog", "boston")
_ALL = ("blog", "boston", "bike-leak", "bike")
CLAIMS = (
    Claim("ICQR's widths have a larger std than CQR's", _FIRST_TWO, _PAIR, lambda m: m["ICQR"].std - m["CQR"].std),
    Claim("ICQR's widths have a larger IQR than CQR's", _FIRST_TWO, _PAIR, lambda m: m["ICQR"].IQR - m["CQR"].IQR),
    Claim(
        "ICQR's median width is smaller than CQR's",
        _FIRST_TWO,
        _PAIR,
        lambda m: m["CQR"].width_median - m["ICQR"].width_median,
    ),
    Claim(
        "ICQR's mean coverage is within 0.01 of CQR's",
        _FIRST_TWO,
        _PAIR,
        lambda m: 0.01 - abs(m["ICQR"].coverage_mean - m["CQR"].coverage_mean),
    ),
    Claim(
        "ICQR < CQR < QR in mean width",
        ("bike-leak", "bike"),
        ("QR", "CQR", "ICQR"),
        lambda m: min(m["QR"].width_mean - m["CQR"].width_mean, m["CQR"].width_mean - m["ICQR"].width_mean),
    ),
    Claim("QR undercovers", _FIRST_TWO, ("QR",), lambda m: COVERAGE - m["QR"].coverage),
    Claim("QR overcovers", ("bike-leak", "bike"), ("QR",), lambda m: m["QR"].coverage - COVERAGE),
    Claim("Naive overcovers easy rows", _ALL, ("Naive",), lambda m: m["Naive"].easy - COVERAGE),
    Claim("Naive undercovers hard rows", _ALL, ("Naive",), lambda m: COVERAGE - m["Naive"].hard),
)


def claims(rows: pd.DataFrame) -> pd.DataFrame:
    """Check each claim in each variant.

    Returns
    -------
    DataFrame
        `data`, `claim`, `variant`; `paper` (what the paper's own tables say: yes, no, or not measured); `holds` (yes or
        no, all networks' intervals together); `margin`, by how much; `networks`, the share of single networks in which
        it holds.
    """
    found = []
    for claim in CLAIMS:
        for data in (name for name in claim.data if (rows["data"] == name).any()):
            here = rows[rows["data"] == data]
            paper = _in_paper(claim, data)
            for variant, chosen in _choices(claim, here):
                found.append(
                    {"data": data, "claim": claim.text, "variant": variant, "paper": paper} | _check(claim, chosen)
                )
    return pd.DataFrame(found)


def _choices(claim: Claim, rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Give each variant's rows of the methods that the claim is about."""
    needed = rows[rows["method"].isin(claim.needs)]
    if "ICQR" not in claim.needs:
        return [(str(variant), group) for variant, group in needed.groupby("variant", sort=False)]
    is_icqr = needed["method"] == "ICQR"
    choices = [
        (variant, needed[(is_icqr & (needed["variant"] == variant)) | (~is_icqr & (needed["variant"] == partner))])
        for variant, partner in PARTNERS.items()
    ]
    return [(variant, chosen) for variant, chosen in choices if set(chosen["method"]) == set(claim.needs)]


def _check(claim: Claim, rows: pd.DataFrame) -> dict[str, Any]:
    margin = claim.margin(_numbers(rows))
    single = [claim.margin(_numbers(group)) > 0 for _, group in rows.groupby("network")]
    return {"holds": _yes(margin > 0), "margin": margin, "networks": float(np.mean(single))}


def _numbers(rows: pd.DataFrame) -> dict[str, Numbers]:
    return {str(method): Numbers.of(group) for method, group in rows.groupby("method", sort=False)}


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _in_paper(claim: Claim, data: str) -> str:
    width, coverage = (paper_values(measure).to_dict("index") for measure in ("width", "coverage"))
    if (data, "QR") not in width:
        return "not measured"
    numbers = {method: Numbers.printed(width[data, method], coverage[data, method]) for method in claim.needs}
    margin = claim.margin(numbers)
    return "not measured" if np.isnan(margin) else _yes(margin > 0)
