"""The tables of docs/benchmark.md, made from its rows: ``python -m icqr.experiments.benchmark_page docs/benchmark.md``.

The page has a line ``<!-- table: NAME -->`` above each of these tables, which are written anew from
``benchmark/rows.parquet`` beside the page. The text is left as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from icqr.experiments.benchmark import read_rows
from icqr.experiments.benchmark_rows import FLOOR
from icqr.experiments.benchmark_settings import MORE, SYNTHETIC
from icqr.experiments.benchmark_tables import (
    GRID,
    beside,
    chosen,
    coverage_table,
    measures_table,
    readable,
    sets_table,
    summary_table,
    truth_table,
)
from icqr.experiments.progress import run_command
from icqr.experiments.tables import as_markdown
from icqr.experiments.tidy_rows import write_text

AUTO, PLAIN_RESIDUAL, RESIDUAL = "ICQR, auto", "CQR, residual", "ICQR, residual, auto"
OURS = ("ICQR", AUTO, RESIDUAL)
#: Methods as the columns of a table name them.
SHORT = {"ICQR": "ICQR", AUTO: "auto", RESIDUAL: "residual, auto", "MAPIE": "MAPIE"}
_MARKED = re.compile(r"(<!-- table: (\S+) -->\n\n?)(?:\|.*\n)*")


def fill(page: str, rows: pd.DataFrame) -> str:
    r"""Give the page with its tables written anew.

    Examples
    --------
    >>> rows = pd.DataFrame({"data": ["bike"], "base": "histgb", "level": 0.9, "seed": 0})
    >>> print(fill("<!-- table: seeds -->\n| old |\n\nText.", rows))
    <!-- table: seeds -->
    | data | histgb |
    | --- | --- |
    | bike | 1 |
    <BLANKLINE>
    Text.
    """

    def table(found: re.Match[str]) -> str:
        if found[2] not in TABLES:
            raise ValueError(f"there is no table {found[2]!r}; tables are {', '.join(TABLES)}")
        cells = TABLES[found[2]](rows)
        return found[1] + as_markdown(list(cells.columns), cells.to_numpy().tolist())

    return _MARKED.sub(table, page)


def _only(rows: pd.DataFrame, base: str, level: float = 0.9, drawn: int = 0) -> pd.DataFrame:
    """Give the rows of a base model and a coverage, on real or on synthetic data."""
    return chosen(rows, {"base": base, "level": level, "drawn": drawn})


def _shown(values: pd.Series[float], form: str = "{:.3f}") -> pd.Series[str]:
    return values.map(lambda value: "–" if pd.isna(value) else form.format(value))


# -- The tables, each as text in the page's columns ------------------------------------------------------------------


def _seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Count seeds at coverage 0.9."""
    at = chosen(rows, {"level": 0.9})
    counts = at.groupby(["data", "base"], sort=False)["seed"].nunique().unstack(sort=False)
    return _shown_index(counts.apply(lambda column: _shown(column, "{:.0f}")))


def _shown_index(table: pd.DataFrame) -> pd.DataFrame:
    table.columns.name = None
    return table.reset_index()


def _in_short(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare auto and residual quantiles with MAPIE, with CQR of more trees and with CQR."""
    found = []
    for base in ("histgb", "lightgbm"):
        some = _only(rows, base)
        against = {
            name: summary_table(some[some["method"].isin([AUTO, PLAIN_RESIDUAL, RESIDUAL, name])], name)
            for name in ("MAPIE", MORE, "CQR")
        }
        for method in (AUTO, PLAIN_RESIDUAL, RESIDUAL):
            mapie, more, cqr = (chosen(table, {"method": method}).iloc[0] for table in against.values())
            found.append(
                {
                    "base model": base,
                    "method": method,
                    "ERT / MAPIE's": _with_ends(mapie, "ert", 2),
                    "interval score / MAPIE's": _with_ends(mapie, "score", 3),
                    "score / CQR's with more trees": _with_ends(more, "score", 3),
                    "seconds / CQR's with more trees": f"{more['times']:.2f}",
                    "sets better, worse than CQR": f"{cqr['better']:.0f}, {cqr['worse']:.0f}",
                    "in ERT": f"{cqr['ert_better']:.0f}, {cqr['ert_worse']:.0f}",
                }
            )
    return pd.DataFrame(found)


def _with_ends(row: pd.Series[float], name: str, digits: int) -> str:
    return "{:.{n}f} ({:.{n}f} to {:.{n}f})".format(*(row[name + end] for end in ("", "_low", "_high")), n=digits)


def _methods(base: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Compare all methods with CQR."""
    return lambda rows: readable(summary_table(_only(rows, base))).drop(columns=[*GRID, "kind"]).astype(str)


def _sets(base: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Compare methods with CQR on each data set, and show ERT."""
    more = "CQR, more epochs" if base == "network" else MORE

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        some = _only(rows, base)
        order = list(some["data"].unique())
        compared, measured = (
            {method: of_method.set_index("data") for method, of_method in table.groupby("method")}
            for table in (sets_table(some), measures_table(some))
        )
        found = pd.DataFrame({"data": order, "seeds": measured["CQR"].loc[order, "seeds"].astype(str)}, index=order)
        for method, name in {**SHORT, MORE: more}.items():
            found[name] = _shown(compared[method]["score"])
            if method in OURS and base != "network":
                ends = compared[method].loc[order, ["score_low", "score_high"]]
                found[name] += [f" ({low:.3f} to {high:.3f})" for low, high in ends.to_numpy()]
        if base != "network":
            found["time"] = _shown(_seconds_beside_more(some), "{:.1f}")
        columns = {"CQR": "ERT of CQR", **{method: f"of {name}" for method, name in SHORT.items()}, FLOOR: "noise"}
        for method, name in columns.items():
            found[name] = _shown(measured[method]["ert"])
        return found

    return table


def _seconds_beside_more(rows: pd.DataFrame) -> pd.Series[float]:
    """Give the mean ratio, on each data set, of the seconds of residual quantiles and of CQR with more trees."""
    both = chosen(beside(rows, MORE), {"method": RESIDUAL})
    own, more = (both[f"base_seconds{which}"] + both[f"own_seconds{which}"] for which in ("", "_reference"))
    return (own / more).groupby(both["data"]).mean()


def _coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """Give coverage minus promise on each data set, in standard errors too."""
    columns = {"CQR": "CQR", **SHORT}
    found = []
    for base in ("lightgbm", "histgb"):
        some = coverage_table(_only(rows, base))
        texts = some.assign(
            text=[f"{mean:+.4f} ({errors:+.1f})" for mean, errors in some[["difference", "in_errors"]].to_numpy()]
        )
        wide = texts.pivot(index="data", columns="method", values="text").loc[some["data"].unique(), list(columns)]
        wide.insert(0, "base model", base)
        found.append(wide.rename(columns=columns).reset_index())
    table = pd.concat(found)
    return table[["base model", "data", *columns.values()]]


def _levels(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare some methods with CQR at other coverages."""
    found = []
    for base in ("histgb", "lightgbm"):
        for level in (0.8, 0.95):
            some = _only(rows, base, level)
            table = readable(summary_table(some[some["method"].isin(["CQR", *SHORT, "crepes Mondrian"])]))
            found.append(table[table["method"] != "CQR"])
    names = {"level": "coverage", "base": "base model", "method": "method", "sets": "sets", "seeds": "seeds at most"}
    names |= {name: name for name in ("interval score", "ERT", "coverage − promise")}
    return pd.concat(found)[list(names)].rename(columns=names).astype(str)


def _truth(base: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Give the distance of the true conditional coverage from the one asked for."""
    methods = ["CQR", "ICQR printed", "ICQR", "ICQR, score bins", AUTO, RESIDUAL, "MAPIE", "crepes Mondrian"]

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        found = truth_table(_only(rows, base, drawn=1))
        wide = found.pivot(index="data", columns="method", values="true_gap").loc[list(SYNTHETIC), methods]
        return _shown_index(wide.apply(lambda column: _shown(column, "{:.4f}")))

    return table


def _truth_and_ert(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the true distance beside ERT, both summed over the synthetic sets and relative to CQR's on the same seeds."""
    found: dict[str, pd.Series[str]] = {}
    for base in ("lightgbm", "histgb"):
        both = beside(_only(rows, base, drawn=1).dropna(subset="true_gap"), "CQR")
        for measure, name in {"true_gap": "true distance", "ert": "ERT"}.items():
            columns = [measure, f"{measure}_reference"]
            sums = both.groupby(["method", "data"], sort=False)[columns].mean().groupby("method", sort=False).sum()
            found[f"{base}: {name}"] = _shown(sums[columns[0]] / sums[columns[1]], "{:.2f}")
    return _shown_index(pd.DataFrame(found).drop("CQR"))


TABLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "seeds": _seeds,
    "in-short": _in_short,
    "methods-lightgbm": _methods("lightgbm"),
    "methods-histgb": _methods("histgb"),
    "sets-lightgbm": _sets("lightgbm"),
    "sets-histgb": _sets("histgb"),
    "coverage": _coverage,
    "sets-network": _sets("network"),
    "levels": _levels,
    "truth-lightgbm": _truth("lightgbm"),
    "truth-histgb": _truth("histgb"),
    "truth-and-ert": _truth_and_ert,
    "truth-linear": _truth("linear"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m icqr.experiments.benchmark_page", description="Write the tables of the benchmark's page anew."
    )
    parser.add_argument("page", type=Path, help="docs/benchmark.md; its rows are in benchmark/rows.parquet beside it")
    page: Path = parser.parse_args(arguments).page

    def job() -> Path:
        rows = read_rows(page.parent / "benchmark" / "rows.parquet")
        write_text(page, fill(page.read_text(encoding="utf-8"), rows))
        return page

    return run_command(job, page)


if __name__ == "__main__":
    sys.exit(main())
