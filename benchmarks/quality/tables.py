"""The tables of the benchmark, made from its rows alone.

Methods are compared with a reference, CQR unless said otherwise, on the same seeds. On each data set:

- interval score and width by the logarithm of their ratio, whose mean over seeds gives a geometric mean; ERT by its
  difference, since it may be 0 or below;
- 95 % confidence intervals and p-values by Student's t with Nadeau and Bengio's correction for splits that share rows
  (none for synthetic sets, drawn anew for each seed);
- better (worse) means: the interval score is lower (higher) by more than 1 %, at a one-sided level of 5 % after Holm's
  correction over the data sets; in ERT, that it is lower (higher) at all.

Over data sets: the geometric mean of the ratios, and for ERT the sum of the method's over the sum of the reference's
(`ratio_of_sums`), beside the same of "independent of X", intervals that hold whatever the features are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.quality.grid import AVERAGED, MORE
from benchmarks.quality.statistics import corrected_error, holm, mean_over_sets, paired, ratio_of_sums
from paper.notebook import Array
from paper.results import write_table

#: Intervals that hold with the requested coverage whatever the features are: what ERT gives where there is nothing to
#: find, 0 but for chance. Each test row is covered or not by a draw of its own, so there is no width.
FLOOR = "independent of X"
#: Interval scores that differ by less count as equal.
MARGIN = 0.01
SIGNIFICANCE = 0.05
SIDES = ["better", "worse"]
GRID = ["base", "level"]
#: Methods to compare with, and the name of the table.
REFERENCES = {"CQR": "summary", "MAPIE": "against_mapie", MORE: "against_more_trees", AVERAGED: "against_five_averaged"}
_MEASURES = ["coverage", "promised", "mean_width", "interval_score", "ert", "ert_under", "ert_over", "worst_slab"]
_MEASURES += ["size_stratified", "true_gap", "n_groups", "unpromised", "inverted", "infinite"]


def write_tables(rows: pd.DataFrame, folder: Path) -> None:
    """Write all tables that have rows as CSV, Markdown and LaTeX."""
    for reference, name in REFERENCES.items():
        numbers = summary_table(rows, reference)
        if len(numbers):
            write_table(folder, name, _SUMMARY.format(reference), numbers, readable(numbers))
    for name, caption, table in (
        ("sets", _SETS, sets_table(rows)),
        ("measures", "Means over seeds.", measures_table(rows)),
        ("coverage", "Coverage against the mean of what was promised.", coverage_table(rows)),
        ("truth", "Mean distance of the true conditional coverage from the requested one.", truth_table(rows)),
        ("gaps", "Methods without a result.", gaps_table(rows)),
        ("hours", "Hours of one core, measuring included.", hours_table(rows)),
    ):
        if len(table):
            write_table(folder, name, caption, table)


def groups(rows: pd.DataFrame, by: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Go through groups in the order of the rows."""
    for key, group in rows.groupby(by, sort=False):
        yield dict(zip(by, key, strict=True)), group


def beside(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Put the reference's measures of the same cell beside those of each method, with `_reference` behind the name."""
    cell = ["data", *GRID, "seed"]
    names = ["interval_score", "mean_width", "ert", "true_gap", "base_seconds", "own_seconds"]
    known = rows.loc[rows["method"] == reference, [*cell, *names]].dropna(subset="interval_score")
    kind = np.where(rows["drawn"] == 1, "synthetic", "real")
    return rows.assign(kind=kind).merge(known, on=cell, suffixes=("", "_reference"))


def log_ratios(group: pd.DataFrame, measure: str) -> Array:
    """Return the logarithms of a measure over the reference's."""
    return np.asarray(np.log(group[measure] / group[f"{measure}_reference"]), dtype=float)


# -- On each data set ------------------------------------------------------------------------------------------------


def measures_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the measures over seeds."""
    return pd.DataFrame(
        {**key, "seeds": len(group), **{name: group[name].mean() for name in _MEASURES}}
        for key, group in groups(rows[rows["ert"].notna()], [*GRID, "data", "method"])
    )


def sets_table(rows: pd.DataFrame, reference: str = "CQR") -> pd.DataFrame:
    """Compare each method with the reference on each data set."""
    both = beside(rows[rows["interval_score"].notna()], reference)
    result = []
    for key, group in groups(both[both["method"] != reference], [*GRID, "kind", "method", "data"]):
        first = group.iloc[0]
        # Seeds of a real set split the same rows; those of a synthetic one have rows of their own.
        share = 0.0 if first["drawn"] else first["n_test"] / (first["n_train"] + first["n_calibration"])
        score = paired(log_ratios(group, "interval_score"), share, np.log1p(MARGIN))
        width, ert = (
            paired(log_ratios(group, "mean_width"), share),
            paired(group["ert"] - group["ert_reference"], share),
        )
        ratios = dict(
            zip(("score", "score_low", "score_high"), np.exp([score.mean, score.low, score.high]), strict=True)
        )
        result.append({**key, "seeds": len(group), **ratios, "p_better": score.p_below, "p_worse": score.p_above})
        result[-1] |= {"width": np.exp(width.mean), "ert_difference": ert.mean, "ert_low": ert.low}
        result[-1] |= {"ert_high": ert.high, "p_ert_better": ert.p_below, "p_ert_worse": ert.p_above}

    table = pd.DataFrame(result)
    if len(table):
        for measure in ("", "ert_"):
            tests = [f"p_{measure}{side}" for side in SIDES]
            table[tests] = table.groupby([*GRID, "kind", "method"])[tests].transform(holm)
            table[f"{measure}verdict"] = np.select([table[test] < SIGNIFICANCE for test in tests], SIDES, "–")
    return table


def coverage_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare coverage with the mean of what was promised, in standard errors.

    Errors need no correction here: given a data set's rows, splits are drawn independently, and over all of them mean
    coverage is what was promised (or more, where rows are tied).
    """
    known = rows[rows["promised"].notna() & rows["coverage"].notna()]
    result = []
    for key, group in groups(known, [*GRID, "data", "method"]):
        difference = group["coverage"] - group["promised"]
        error = corrected_error(difference, test_share=0)
        result.append({**key, "coverage": group["coverage"].mean(), "promised": group["promised"].mean()})
        in_errors = difference.mean() / error if error > 0 else np.nan
        result[-1] |= {"difference": difference.mean(), "standard_error": error, "in_errors": in_errors}
    return pd.DataFrame(result)


def truth_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare the mean distance of the true conditional coverage from the requested one, on synthetic data."""
    both = beside(rows[rows["true_gap"].notna()], "CQR")
    table = both.groupby([*GRID, "data", "method"], sort=False)[["true_gap", "true_gap_reference"]].mean()
    table = table.rename(columns={"true_gap_reference": "of_cqr"}).reset_index()
    return table.assign(ratio=table["true_gap"] / table["of_cqr"])


def gaps_table(rows: pd.DataFrame) -> pd.DataFrame:
    """List the methods that gave no result, how often and why."""
    missing = rows[rows["ert"].isna()]
    return missing.groupby(["method", "notes"], sort=False).size().rename("cells").reset_index()


def hours_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Add up the time of the cells, with all methods and measures."""
    cells = rows.drop_duplicates(["data", *GRID, "seed"])
    table = cells.groupby(["base", "data"], sort=False)["cell_seconds"].agg(hours="sum", cells="size").reset_index()
    return table.assign(hours=table["hours"] / 3600)


# -- Over data sets --------------------------------------------------------------------------------------------------


def summary_table(rows: pd.DataFrame, reference: str = "CQR") -> pd.DataFrame:
    """Compare each method with the reference over all data sets, real and synthetic ones apart."""
    both = beside(rows, reference)
    both = both[both["ert"].notna() & ((both["method"] != reference) | (reference == "CQR"))]
    verdicts, result = sets_table(rows, reference), []
    for key, group in groups(both, [*GRID, "kind", "method"]):
        sets = [by_seed for _, by_seed in group.groupby("data", sort=False)]
        row = {**key, "sets": len(sets), "seeds": max(map(len, sets)), **_ert(sets)}
        row |= {name: _mean(sets, name) for name in ("worst_slab", "size_stratified")}
        if key["method"] != FLOOR:
            row |= _scores(sets) | _verdicts(verdicts, key) | _promise(group)
            own, other = (
                group[[f"base_seconds{which}", f"own_seconds{which}"]].to_numpy().sum() for which in ("", "_reference")
            )
            row |= {"seconds": own, "times": own / other}
            row["true_gap"] = _mean(sets, "true_gap") / _mean(sets, "true_gap_reference")
        result.append(row)
    return pd.DataFrame(result)


def _mean(sets: list[pd.DataFrame], measure: str) -> float:
    """Return the mean over data sets of the means over seeds."""
    return float(np.mean([by_seed[measure].mean() for by_seed in sets]))


def _ert(sets: list[pd.DataFrame]) -> dict[str, float]:
    own, reference = ([by_seed[name].to_numpy() for by_seed in sets] for name in ("ert", "ert_reference"))
    row = dict(zip(("ert", "ert_low", "ert_high"), ratio_of_sums(own, reference), strict=True))
    return row | {name: _mean(sets, name) / _mean(sets, "ert_reference") for name in ("ert_under", "ert_over")}


def _scores(sets: list[pd.DataFrame]) -> dict[str, float]:
    score = np.exp(mean_over_sets([log_ratios(by_seed, "interval_score") for by_seed in sets]))
    width = np.exp(np.mean([log_ratios(by_seed, "mean_width").mean() for by_seed in sets]))
    return {**dict(zip(("score", "score_low", "score_high"), score.tolist(), strict=True)), "width": float(width)}


def _verdicts(verdicts: pd.DataFrame, key: dict[str, Any]) -> dict[str, int]:
    """Count the data sets on which the method is better, and worse."""
    for name, value in key.items():
        verdicts = verdicts[verdicts[name] == value] if len(verdicts) else verdicts
    names = [(f"{measure}verdict", measure, side) for measure in ("", "ert_") for side in SIDES]
    return {
        measure + side: int((verdicts[name] == side).sum()) if len(verdicts) else 0 for name, measure, side in names
    }


def _promise(group: pd.DataFrame) -> dict[str, float]:
    """Return the mean over data sets of coverage minus promise, and that in standard errors; one seed has no error."""
    table = coverage_table(group)
    table = table[table["standard_error"].notna()] if len(table) else table
    if table.empty:
        return {"coverage_minus_promise": np.nan, "in_errors": np.nan}
    difference = float(table["difference"].mean())
    error = float(np.linalg.norm(table["standard_error"])) / len(table)
    return {"coverage_minus_promise": difference, "in_errors": difference / error if error > 0 else np.nan}


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary in fewer columns, for readers."""

    def text(form: str, *names: str) -> list[str]:
        rows = summary.reindex(columns=names).itertuples(index=False)
        return ["–" if np.isnan(row[0]) else "∞" if np.isinf(row[0]) else form.format(*row) for row in rows]

    columns = {name: summary[name] for name in (*GRID, "kind", "method", "sets", "seeds")} | {
        "interval score": text("{:.3f} ({:.3f} to {:.3f})", "score", "score_low", "score_high"),
        "width": text("{:.3f}", "width"),
        "ERT": text("{:.2f} ({:.2f} to {:.2f})", "ert", "ert_low", "ert_high"),
        "under + over": text("{:.2f} + {:.2f}", "ert_under", "ert_over"),
        "worst slab": text("{:.3f}", "worst_slab"),
        "by size": text("{:.3f}", "size_stratified"),
        "better, worse": text("{:.0f}, {:.0f}", "better", "worse"),
        "in ERT": text("{:.0f}, {:.0f}", "ert_better", "ert_worse"),
        "coverage − promise": text("{:+.4f} ({:+.1f})", "coverage_minus_promise", "in_errors"),
        "seconds": text("× {:.1f}", "times"),
        "true distance": text("{:.2f}", "true_gap"),
    }
    return pd.DataFrame(columns)


_SUMMARY = (
    "Over data sets, relative to {}: interval score and mean width, geometric means of the ratios; ERT, the sum over "
    f"the reference's sum (the row '{FLOOR}' is its noise floor), and its parts from rows that are covered too seldom "
    "(under) and too often (over); 95 % bootstrap intervals over sets and seeds; "
    "means of worst-slab and of size-stratified coverage; better and worse, the number of sets on which the interval "
    f"score differs by more than {100 * MARGIN:g} % (one-sided level {100 * SIGNIFICANCE:g} %, Nadeau–Bengio, Holm "
    "over sets), and in ERT, those on which it differs at all; coverage minus the mean of what was promised, and that "
    "in standard errors; seconds of fitting and predicting, as a multiple of the reference's; on synthetic data, the "
    "true distance from the requested coverage, the sum over the reference's sum."
)
_SETS = (
    "On each data set, relative to CQR: score, ratio of the interval scores with its 95 % confidence interval "
    f"(Nadeau–Bengio), p-values of being better or worse by more than {100 * MARGIN:g} % (Holm over the sets); width, "
    "ratio of the mean widths; ERT minus CQR's, with the same for any difference."
)
