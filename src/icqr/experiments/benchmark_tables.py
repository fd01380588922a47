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

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icqr._tables import FloatArray
from icqr.experiments.benchmark_rows import FLOOR
from icqr.experiments.benchmark_settings import AVERAGED, MORE, SYNTHETIC
from icqr.experiments.benchmark_statistics import Paired, corrected_error, holm, mean_over_sets, paired, ratio_of_sums
from icqr.experiments.tables import Table

#: Interval scores that differ by less count as equal.
MARGIN = 0.01
SIGNIFICANCE = 0.05
_SIDES = ["better", "worse"]
GRID = ["base", "level"]
#: Methods to compare with, and the name of the table.
REFERENCES = {
    "CQR": "summary",
    "MAPIE": "against_mapie",
    "MAPIE symmetric": "against_mapie_symmetric",
    MORE: "against_more_trees",
    AVERAGED: "against_five_averaged",
}
_MEASURES = ["coverage", "promised", "mean_width", "interval_score", "ert", "ert_under", "ert_over", "worst_slab"]
_MEASURES += ["size_stratified", "true_gap", "n_groups", "unpromised", "inverted", "infinite"]


def _groups(rows: pd.DataFrame, by: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Go through groups in the order of the rows."""
    for key, group in rows.groupby(by, sort=False):
        yield dict(zip(by, key, strict=True)), group


def with_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Say whether a data set is real or synthetic."""
    return rows.assign(kind=np.where(rows["data"].isin(list(SYNTHETIC)), "synthetic", "real"))


def beside(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Put the reference's measures of the same cell beside those of each method, with `_reference` behind the name."""
    cell = ["data", *GRID, "seed"]
    names = ["interval_score", "mean_width", "ert", "true_gap", "base_seconds", "own_seconds"]
    known = rows.loc[rows["method"] == reference, [*cell, *names]].dropna(subset="interval_score")
    return rows.merge(known, on=cell, suffixes=("", "_reference"))


def share_of_test_rows(group: pd.DataFrame) -> float:
    """Give the test rows over the rows learned from; 0 where each seed has rows of its own."""
    first = group.iloc[0]
    return 0.0 if first["drawn"] else float(first["n_test"] / (first["n_train"] + first["n_calibration"]))


# -- On each data set ------------------------------------------------------------------------------------------------


def measures_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the measures over seeds."""
    table = [
        {**key, "seeds": len(group), **{name: group[name].mean() for name in _MEASURES}}
        for key, group in _groups(rows[rows["ert"].notna()], [*GRID, "data", "method"])
    ]
    return pd.DataFrame(table)


def sets_table(rows: pd.DataFrame, reference: str = "CQR") -> pd.DataFrame:
    """Compare each method with the reference on each data set."""
    both = with_kind(beside(rows[rows["interval_score"].notna()], reference))
    found = [
        {**key, **_compared(group)}
        for key, group in _groups(both[both["method"] != reference], [*GRID, "kind", "method", "data"])
    ]
    table = pd.DataFrame(found)
    if not len(table):
        return table
    for measure in ("", "ert_"):
        tests = [f"p_{measure}{side}" for side in _SIDES]
        table[tests] = table.groupby([*GRID, "kind", "method"])[tests].transform(holm)
        table[f"{measure}verdict"] = np.select([table[test] < SIGNIFICANCE for test in tests], _SIDES, "–")
    return table


def _compared(group: pd.DataFrame) -> dict[str, Any]:
    share = share_of_test_rows(group)
    score = paired(_logs(group, "interval_score"), share, np.log1p(MARGIN))
    width, ert = paired(_logs(group, "mean_width"), share), paired(group["ert"] - group["ert_reference"], share)
    return {
        "seeds": len(group),
        **_as_ratio("score", score),
        "p_better": score.p_below,
        "p_worse": score.p_above,
        "width": float(np.exp(width.mean)),
        "ert_difference": ert.mean,
        "ert_low": ert.low,
        "ert_high": ert.high,
        "p_ert_better": ert.p_below,
        "p_ert_worse": ert.p_above,
    }


def _logs(group: pd.DataFrame, measure: str) -> FloatArray:
    return np.asarray(np.log(group[measure] / group[f"{measure}_reference"]), dtype=np.float64)


def _as_ratio(name: str, logs: Paired) -> dict[str, float]:
    ends = {"": logs.mean, "_low": logs.low, "_high": logs.high}
    return {name + end: float(np.exp(value)) for end, value in ends.items()}


def coverage_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare coverage with the mean of what was promised, in standard errors.

    Errors need no correction here: given a data set's rows, splits are drawn independently, and over all of them mean
    coverage is what was promised (or more, where rows are tied).
    """
    known = rows[rows["promised"].notna() & rows["coverage"].notna()]
    found = []
    for key, group in _groups(known, [*GRID, "data", "method"]):
        difference = group["coverage"] - group["promised"]
        error = corrected_error(difference, test_share=0)
        found.append({**key, "coverage": group["coverage"].mean(), "promised": group["promised"].mean()})
        found[-1] |= {"difference": difference.mean(), "standard_error": error}
    table = pd.DataFrame(found)
    table["in_errors"] = table["difference"] / table["standard_error"].where(table["standard_error"] > 0)
    return table


# -- Over data sets --------------------------------------------------------------------------------------------------


def summary_table(rows: pd.DataFrame, reference: str = "CQR") -> pd.DataFrame:
    """Compare each method with the reference over all data sets, real and synthetic ones apart."""
    both = with_kind(beside(rows, reference))
    if both.empty:
        return pd.DataFrame()
    by = [*GRID, "kind", "method"]
    verdicts = sets_table(rows, reference)
    coverage = with_kind(coverage_table(both))
    table = []
    for key, group in _groups(both[both["ert"].notna()], by):
        if key["method"] == reference and reference != "CQR":
            continue
        of_sets = [of_set for _, of_set in group.groupby("data", sort=False)]
        found = {**key, "sets": len(of_sets), "seeds": max(map(len, of_sets)), **_ert(of_sets)}
        found |= {name: _mean_over(of_sets, name) for name in ("worst_slab", "size_stratified")}
        if key["method"] != FLOOR:
            found |= (
                _scores(of_sets) | _verdicts(chosen(verdicts, key)) | _promise(chosen(coverage, key)) | _seconds(group)
            )
        table.append(found)
    return pd.DataFrame(table)


def chosen(table: pd.DataFrame, key: Mapping[str, Any]) -> pd.DataFrame:
    """Give the rows of a table that have these values."""
    for name, value in key.items():
        table = table[table[name] == value] if len(table) else table
    return table


def _mean_over(of_sets: list[pd.DataFrame], measure: str) -> float:
    return float(np.mean([of_set[measure].mean() for of_set in of_sets]))


def _scores(of_sets: list[pd.DataFrame]) -> dict[str, float]:
    score = np.exp(mean_over_sets([_logs(of_set, "interval_score") for of_set in of_sets]))
    width = np.exp(np.mean([_logs(of_set, "mean_width").mean() for of_set in of_sets]))
    return {**dict(zip(("score", "score_low", "score_high"), score.tolist(), strict=True)), "width": float(width)}


def _ert(of_sets: list[pd.DataFrame]) -> dict[str, float]:
    over, under = ([of_set[name].to_numpy() for of_set in of_sets] for name in ("ert", "ert_reference"))
    found = dict(zip(("ert", "ert_low", "ert_high"), ratio_of_sums(over, under), strict=True))
    reference = _mean_over(of_sets, "ert_reference")
    return found | {name: _mean_over(of_sets, name) / reference for name in ("ert_under", "ert_over")}


def _verdicts(found: pd.DataFrame) -> dict[str, int]:
    return {
        measure + side: int((found[f"{measure}verdict"] == side).sum()) if len(found) else 0
        for measure in ("", "ert_")
        for side in _SIDES
    }


def _promise(found: pd.DataFrame) -> dict[str, float]:
    """Give the mean over data sets of coverage minus promise, and that in standard errors; one seed has no error."""
    found = found[found["standard_error"].notna()] if len(found) else found
    difference = float(found["difference"].mean()) if len(found) else np.nan
    error = float(np.linalg.norm(found["standard_error"])) / len(found) if len(found) else 0.0
    return {"coverage_minus_promise": difference, "in_errors": difference / error if error > 0 else np.nan}


def _seconds(group: pd.DataFrame) -> dict[str, float]:
    """Give the seconds of fitting and predicting over all cells, and as a multiple of the reference's."""
    own, reference = (
        float(np.sum(group[[f"base_seconds{which}", f"own_seconds{which}"]].to_numpy())) for which in ("", "_reference")
    )
    return {"seconds": own, "times": own / reference}


def truth_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare the mean distance of the true conditional coverage from the one asked for, on synthetic data."""
    both = beside(rows, "CQR")
    found = []
    for key, group in _groups(both[both["true_gap"].notna()], [*GRID, "data", "method"]):
        gap, of_cqr = group["true_gap"].mean(), group["true_gap_reference"].mean()
        found.append({**key, "true_gap": gap, "of_cqr": of_cqr, "ratio": gap / of_cqr})
    return pd.DataFrame(found)


def gaps_table(rows: pd.DataFrame) -> pd.DataFrame:
    """List the methods that gave no result, how often and why."""
    missing = rows[rows["ert"].isna()]
    return missing.groupby(["method", "notes"], sort=False).size().rename("cells").reset_index()


def hours_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Add up the time of the cells, with all methods and measures."""
    cells = rows.drop_duplicates(["data", *GRID, "seed"])
    table = cells.groupby(["base", "data"], sort=False)["cell_seconds"].agg(["size", "sum"])
    return table["sum"].div(3600).rename("hours").to_frame().assign(cells=table["size"]).reset_index()


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Give the summary in fewer columns, for readers."""

    def text(form: str, *names: str) -> list[str]:
        rows = summary[list(names)].itertuples(index=False)
        return ["–" if np.isnan(row[0]) else "∞" if np.isinf(row[0]) else form.format(*row) for row in rows]

    return pd.DataFrame(
        {
            **{name: summary[name] for name in (*GRID, "kind", "method", "sets", "seeds")},
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
        }
    )


# -- Files -----------------------------------------------------------------------------------------------------------


def write_tables(rows: pd.DataFrame, folder: Path) -> None:
    """Write all tables as CSV, Markdown and LaTeX."""
    for table in _tables(rows):
        if len(table.numbers):
            table.write(folder)


def _tables(rows: pd.DataFrame) -> Iterator[Table]:
    for reference, name in REFERENCES.items():
        numbers = summary_table(rows, reference)
        yield Table(name, _SUMMARY.format(reference), numbers, readable(numbers) if len(numbers) else None)
    yield Table("sets", _SETS, sets_table(rows))
    yield Table("measures", "Means over seeds.", measures_table(rows))
    yield Table("coverage", "Coverage against the mean of what was promised.", coverage_table(rows))
    yield Table("truth", "Mean distance of the true conditional coverage from the one asked for.", truth_table(rows))
    yield Table("gaps", "Methods without a result.", gaps_table(rows))
    yield Table("hours", "Hours of one core, measuring included.", hours_table(rows))


_SUMMARY = (
    "Over data sets, relative to {}: interval score and mean width, geometric means of the ratios; ERT, the sum over "
    f"the reference's sum (the row '{FLOOR}' is its noise floor), and its parts from rows that are covered too seldom "
    "(under) and too often (over); 95 % bootstrap intervals over sets and seeds; "
    "means of worst-slab and of size-stratified coverage; better and worse, the number of sets on which the interval "
    f"score differs by more than {100 * MARGIN:g} % (one-sided level {100 * SIGNIFICANCE:g} %, Nadeau–Bengio, Holm "
    "over sets), and in ERT, those on which it differs at all; coverage minus the mean of what was promised, and that "
    "in standard errors; seconds of fitting and predicting, as a multiple of the reference's."
)
_SETS = (
    "On each data set, relative to CQR: score, ratio of the interval scores with its 95 % confidence interval "
    f"(Nadeau–Bengio), p-values of being better or worse by more than {100 * MARGIN:g} % (Holm over the sets); width, "
    "ratio of the mean widths; ERT minus CQR's, with the same for any difference."
)
