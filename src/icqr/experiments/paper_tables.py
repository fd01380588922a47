"""The tables of the reproduction, made from `rows.parquet` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.experiments.paper_claims import claims
from icqr.experiments.paper_rows import main_variants, pooled, read_rows
from icqr.experiments.paper_values import STATISTICS, paper_values
from icqr.experiments.tables import Table, shown
from icqr.experiments.tidy_rows import write_text

CELL = ["data", "variant", "method"]


def summary(values: ArrayLike) -> dict[str, float]:
    """Give the paper's eight statistics; `std` divides by n - 1, quantiles are interpolated.

    Examples
    --------
    >>> summary([1.0, 2.0, 3.0, 6.0])["IQR"]
    2.0
    """
    array = np.asarray(values, dtype=np.float64)
    low, middle, high = np.quantile(array, [0.25, 0.5, 0.75])
    std = array.std(ddof=1) if len(array) > 1 else np.nan
    numbers = (array.min(), array.max(), array.mean(), std, low, middle, high, high - low)
    return dict(zip(STATISTICS, map(float, numbers), strict=True))


# -- What each table shows -------------------------------------------------------------------------------------------


def _cells(rows: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Go through (data, variant, method) in the order of the rows."""
    for key, group in rows.groupby(CELL, sort=False):
        yield dict(zip(CELL, map(str, key), strict=True)), group


def _table(rows: pd.DataFrame, describe: Callable[[pd.DataFrame], dict[str, float]]) -> pd.DataFrame:
    return pd.DataFrame([{**cell, **describe(group)} for cell, group in _cells(rows)])


def width_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarize the widths of all networks' intervals together, as the paper does."""
    return _table(rows, lambda group: summary(pooled(group)))


def coverage_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarize the networks' coverages."""
    return _table(rows, lambda group: summary(group["coverage"]))


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


def conditional_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over networks what the paper argues for but does not measure: coverage where it is hard to have."""

    def describe(group: pd.DataFrame) -> dict[str, float]:
        names = ("coverage", "coverage_easy", "coverage_hard", "worst_slab", "excess_risk")
        return {**{name: float(group[name].mean()) for name in names}, "networks": int(group["worst_slab"].count())}

    return _table(rows, describe)


def truth_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the true conditional coverage and the overlap with the oracle, on synthetic data."""
    names = ["true_coverage", "true_gap", "true_low", "iou", "mean_width"]
    known = rows[rows["iou"].notna()]
    return _table(known, lambda group: {name: float(group[name].mean()) for name in names})


def groups_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Show how many clusters ICQR chose and kept over the networks, and the share of rows without a promise."""

    def describe(group: pd.DataFrame) -> dict[str, float]:
        counts = {
            f"{name}_{how}": group[name].agg(how) for name in ("k", "n_groups") for how in ("min", "median", "max")
        }
        return {**counts, "unpromised": float(group["unpromised"].mean())}

    return _table(rows[rows["method"] == "ICQR"], describe)


def changes_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Show what each change of the printed algorithm does to the widths, the coverage and the clusters."""

    def describe(group: pd.DataFrame) -> dict[str, float]:
        width = {f"width_{name}": value for name, value in summary(pooled(group)).items()}
        chosen = {name: width[name] for name in ("width_mean", "width_std", "width_median", "width_IQR")}
        means = {name: float(group[name].mean()) for name in ("coverage", "k", "n_groups", "unpromised")}
        return chosen | means

    changed = rows.loc[rows["variant"].str.contains(","), "data"].unique()
    return _table(rows[rows["data"].isin(changed) & rows["variant"].str.startswith("printed")], describe)


def time_table(rows: pd.DataFrame, settings: dict[str, Any]) -> pd.DataFrame:
    """Average the seconds of each method, per network, and of training where it was done in one go."""
    table = _table(rows, lambda group: {"seconds": float(group["seconds"].mean())})
    training = [
        {"data": data, "variant": "", "method": "training", "seconds": about["training_seconds"] / about["networks"]}
        for data, about in settings.items()
        if "training_seconds" in about
    ]
    return pd.concat([table, pd.DataFrame(training)], ignore_index=True)


# -- Files -----------------------------------------------------------------------------------------------------------


def _three_in_one(table: pd.DataFrame) -> pd.DataFrame:
    """Write value, paper's value and difference into one cell, for readers."""
    text = table[CELL].copy()
    for name in STATISTICS:
        triples = zip(table[name], table[f"{name}_paper"], table[f"{name}_difference"], strict=True)
        text[name] = [f"{shown(a)} / {shown(b)} ({c:+.1%})" for a, b, c in triples]
    return text


def write_tables(rows_file: Path, out: Path) -> None:
    """Write all tables: width.csv and coverage.csv beside the rows, and the folder `tables`."""
    everything, settings = read_rows(rows_file)
    rows = main_variants(everything)
    width, coverage = width_table(rows), coverage_table(rows)
    write_text(out / "width.csv", width.to_csv(index=False))
    write_text(out / "coverage.csv", coverage.to_csv(index=False))
    seconds = Table("seconds", "Seconds per network, of training and of each method.", time_table(rows, settings))
    changes = Table("changes", "The printed algorithm with one thing changed.", changes_table(everything))
    for table in [*_all_tables(rows, width, coverage), seconds, *([changes] if len(changes.numbers) else [])]:
        table.write(out / "tables")


def _all_tables(rows: pd.DataFrame, width: pd.DataFrame, coverage: pd.DataFrame) -> Iterator[Table]:
    for name, table in (("width", width), ("coverage", coverage)):
        what = f"Interval {name}" if name == "width" else "Coverage over the networks"
        yield Table(name, f"{what}: statistics as in the paper's tables.", table)
        both = beside_paper(table, name)
        if len(both):
            caption = f"{what}: ours / the paper's (relative difference)."
            yield Table(f"{name}_beside_paper", caption, both, _three_in_one(both))
    caption = (
        "Coverage where it is hard to have, mean over the networks; the last column says over how many the last two."
    )
    yield Table("conditional", caption, conditional_table(rows))
    yield Table("groups", "Clusters that ICQR chose (k) and kept (n_groups), over the networks.", groups_table(rows))
    found = claims(rows)
    if len(found):
        yield Table("claims", "The paper's claims: in its own tables, and in each variant here.", found)
    if rows["iou"].notna().any():
        yield Table(
            "truth", "Synthetic data: true conditional coverage, and overlap with the oracle.", truth_table(rows)
        )
