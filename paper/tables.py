"""The reproduction's tables, made from ``rows.parquet`` alone, beside the paper's own numbers (``values.csv``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paper.results import read_rows, shown, write_table, write_text

STATISTICS = ("min", "max", "mean", "std", "Q1", "median", "Q3", "IQR")
CELL = ["data", "variant", "method"]
COVERAGE = 0.9


def write_tables(out: Path) -> None:
    """Write width.csv and coverage.csv beside the rows, and all tables into the folder `tables`."""
    everything, _ = read_rows(out / "rows.parquet")
    rows = main_variants(everything)
    width = by_cell(rows, lambda group: summary(pooled(group)))
    coverage = by_cell(rows, lambda group: summary(group["coverage"]))
    write_text(out / "width.csv", width.to_csv(index=False))
    write_text(out / "coverage.csv", coverage.to_csv(index=False))
    for name, caption, table, text in all_tables(everything, rows, width, coverage):
        if len(table):
            write_table(out / "tables", name, caption, table, text)


def all_tables(
    everything: pd.DataFrame, rows: pd.DataFrame, width: pd.DataFrame, coverage: pd.DataFrame
) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame | None]]:
    """Go through name, caption, numbers and, where it is not those, what readers see."""
    for name, what, table in (
        ("width", "Interval width", width),
        ("coverage", "Coverage over the networks", coverage),
    ):
        yield name, f"{what}: statistics as in the paper's tables.", table, None
        both = beside_paper(table, name)
        text = f"{what}: ours / the paper's (relative difference)."
        yield f"{name}_beside_paper", text, both, three_in_one(both)
    caption = "Coverage where it is hard to have, mean over the networks; the last column: over how many the last two."
    yield "conditional", caption, conditional_table(rows), None
    yield "groups", "Clusters that ICQR chose (k) and kept (n_groups), over the networks.", groups_table(rows), None
    yield "claims", "The paper's claims: in its own tables, and in each variant here.", claims(rows), None
    truth = by_cell(rows[rows["iou"].notna()], means("true_coverage", "true_gap", "true_low", "iou", "mean_width"))
    yield "truth", "Synthetic data: true conditional coverage, and overlap with the oracle.", truth, None
    yield "seconds", "Seconds of each method, per network.", by_cell(rows, means("seconds")), None
    yield "changes", "The printed algorithm with one thing changed.", changes_table(everything), None


def main_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out the printed algorithm with one change."""
    return rows[~rows["variant"].str.contains(",")]


def pooled(rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the widths of all intervals of all these rows."""
    return np.concatenate([np.asarray(widths, dtype=float) for widths in rows["widths"]])


def summary(values: Any) -> dict[str, float]:
    """Return the paper's eight statistics; `std` divides by n - 1, quantiles are interpolated.

    Examples
    --------
    >>> summary([1.0, 2.0, 3.0, 6.0])["IQR"]
    2.0
    """
    array = np.asarray(values, dtype=float)
    low, middle, high = np.quantile(array, [0.25, 0.5, 0.75])
    std = array.std(ddof=1) if len(array) > 1 else np.nan
    numbers = (array.min(), array.max(), array.mean(), std, low, middle, high, high - low)
    return dict(zip(STATISTICS, map(float, numbers), strict=True))


def by_cell(rows: pd.DataFrame, describe: Callable[[pd.DataFrame], Mapping[str, Any]]) -> pd.DataFrame:
    """Describe each (data, variant, method), in the order of the rows."""
    groups = rows.groupby(CELL, sort=False)
    return pd.DataFrame([{**dict(zip(CELL, key, strict=True)), **describe(group)} for key, group in groups])


def means(*names: str) -> Callable[[pd.DataFrame], dict[str, float]]:
    """Return a function that averages these columns over the networks."""
    return lambda group: {name: float(group[name].mean()) for name in names}


# -- Beside the paper ------------------------------------------------------------------------------------------------


def paper_values(measure: str) -> pd.DataFrame:
    """Return the paper's own table of "width" or "coverage"; its bike sharing has the leak.

    Examples
    --------
    >>> paper_values("coverage").loc[("boston", "QR"), "mean"].item()
    0.837795
    """
    table = pd.read_csv(Path(__file__).with_name("values.csv"))
    return table[table["measure"] == measure].drop(columns="measure").set_index(["data", "method"])


def beside_paper(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Put the paper's value and the relative difference beside each statistic; data the paper has not are left out."""
    paper = paper_values(measure)
    known = table[table["data"].isin(paper.index.get_level_values("data"))].reset_index(drop=True)
    theirs = paper.reindex(pd.MultiIndex.from_frame(known[["data", "method"]])).reset_index(drop=True)
    result = known[CELL].copy()
    for name in STATISTICS:
        result[name] = known[name]
        result[f"{name}_paper"] = theirs[name]
        result[f"{name}_difference"] = known[name] / theirs[name] - 1
    return result


def three_in_one(table: pd.DataFrame) -> pd.DataFrame:
    """Write value, paper's value and difference into one cell, for readers."""
    text = table[CELL].copy()
    for name in STATISTICS:
        triples = zip(table[name], table[f"{name}_paper"], table[f"{name}_difference"], strict=True)
        text[name] = [f"{shown(ours)} / {shown(paper)} ({change:+.1%})" for ours, paper, change in triples]
    return text


# -- Other tables ----------------------------------------------------------------------------------------------------


def conditional_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over networks what the paper argues for but does not measure: coverage where it is hard to have."""
    average = means("coverage", "coverage_easy", "coverage_hard", "worst_slab", "excess_risk")
    return by_cell(rows, lambda group: {**average(group), "networks": int(group["worst_slab"].count())})


def groups_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Show how many clusters ICQR chose and kept over the networks, and the share of rows without a promise."""

    def describe(group: pd.DataFrame) -> dict[str, float]:
        counts = {
            f"{name}_{how}": group[name].agg(how) for name in ("k", "n_groups") for how in ("min", "median", "max")
        }
        return {**counts, "unpromised": float(group["unpromised"].mean())}

    return by_cell(rows[rows["method"] == "ICQR"], describe)


def changes_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Show what each change of the printed algorithm does to the widths, the coverage and the clusters."""
    average = means("coverage", "k", "n_groups", "unpromised")

    def describe(group: pd.DataFrame) -> dict[str, float]:
        width = summary(pooled(group))
        return {f"width_{name}": width[name] for name in ("mean", "std", "median", "IQR")} | average(group)

    changed = rows.loc[rows["variant"].str.contains(","), "data"].unique()
    return by_cell(rows[rows["data"].isin(changed) & rows["variant"].str.startswith("printed")], describe)


# -- The paper's claims ----------------------------------------------------------------------------------------------

#: For each variant of ICQR, the variant of the methods it is compared with.
PARTNERS = {"printed": "exact", "ours": "exact", "notebook": "notebook"}
SMALL, BIKE, PAIR = ("blog", "boston"), ("bike-leak", "bike"), ("CQR", "ICQR")


class Claim(NamedTuple):
    """A sentence of the paper, its data sets and methods, and by how much it holds, from each method's `numbers`."""

    text: str
    data: tuple[str, ...]
    methods: tuple[str, ...]
    margin: Callable[..., float]


CLAIMS = (
    Claim("ICQR's widths have a larger std than CQR's", SMALL, PAIR, lambda cqr, icqr: icqr["std"] - cqr["std"]),
    Claim("ICQR's widths have a larger IQR than CQR's", SMALL, PAIR, lambda cqr, icqr: icqr["IQR"] - cqr["IQR"]),
    Claim("ICQR's median width is smaller than CQR's", SMALL, PAIR, lambda cqr, icqr: cqr["median"] - icqr["median"]),
    Claim(
        "ICQR's mean coverage is within 0.01 of CQR's",
        SMALL,
        PAIR,
        lambda cqr, icqr: 0.01 - abs(icqr["mean_coverage"] - cqr["mean_coverage"]),
    ),
    Claim(
        "ICQR < CQR < QR in mean width",
        BIKE,
        ("QR", *PAIR),
        lambda qr, cqr, icqr: min(qr["mean"] - cqr["mean"], cqr["mean"] - icqr["mean"]),
    ),
    Claim("QR undercovers", SMALL, ("QR",), lambda qr: COVERAGE - qr["median_coverage"]),
    Claim("QR overcovers", BIKE, ("QR",), lambda qr: qr["median_coverage"] - COVERAGE),
    Claim("Naive overcovers easy rows", SMALL + BIKE, ("Naive",), lambda naive: naive["easy"] - COVERAGE),
    Claim("Naive undercovers hard rows", SMALL + BIKE, ("Naive",), lambda naive: COVERAGE - naive["hard"]),
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
    result = []
    for claim in CLAIMS:
        for data in claim.data:
            here = rows[(rows["data"] == data) & rows["method"].isin(claim.methods)]
            for variant, chosen in _variants(here, claim):
                margin = claim.margin(*numbers(chosen, claim.methods))
                single = [claim.margin(*numbers(group, claim.methods)) > 0 for _, group in chosen.groupby("network")]
                row: dict[str, Any] = {
                    "data": data,
                    "claim": claim.text,
                    "variant": variant,
                    "paper": in_paper(claim, data),
                }
                row |= {"holds": "yes" if margin > 0 else "no", "margin": margin, "networks": float(np.mean(single))}
                result.append(row)
    return pd.DataFrame(result)


def _variants(rows: pd.DataFrame, claim: Claim) -> Iterator[tuple[str, pd.DataFrame]]:
    """Go through the variants with their rows; those of ICQR come with their partners' rows of the other methods."""
    if "ICQR" not in claim.methods:
        yield from ((str(variant), group) for variant, group in rows.groupby("variant", sort=False))
        return
    is_icqr = rows["method"] == "ICQR"
    for variant, partner in PARTNERS.items():
        chosen = rows[rows["variant"] == np.where(is_icqr, variant, partner)]
        if set(chosen["method"]) == set(claim.methods):
            yield variant, chosen


def numbers(rows: pd.DataFrame, methods: tuple[str, ...]) -> Iterator[dict[str, float]]:
    """Go through what claims are about: each method's widths all together, and its coverages over the networks."""
    for method in methods:
        group = rows[rows["method"] == method]
        averages = {"mean_coverage": "coverage", "easy": "coverage_easy", "hard": "coverage_hard"}
        yield (
            summary(pooled(group))
            | {"median_coverage": float(group["coverage"].median())}
            | {name: float(group[column].mean()) for name, column in averages.items()}
        )


def in_paper(claim: Claim, data: str) -> str:
    """Return what the paper's own tables say of a claim: yes, no, or not measured."""
    width, coverage = paper_values("width").to_dict("index"), paper_values("coverage").to_dict("index")
    if (data, "QR") not in width:
        return "not measured"
    printed = [
        width[data, method]
        | {f"{name}_coverage": coverage[data, method][name] for name in ("mean", "median")}
        | {"easy": np.nan, "hard": np.nan}
        for method in claim.methods
    ]
    margin = claim.margin(*printed)
    return "not measured" if np.isnan(margin) else "yes" if margin > 0 else "no"
