"""The figures of the benchmark, made from its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icqr.experiments.benchmark_rows import FLOOR
from icqr.experiments.benchmark_tables import GRID, sets_table, summary_table
from icqr.experiments.drawing import INK, Album, new_figure, style
from icqr.plots.style import METHOD_COLORS


def write_figures(rows: pd.DataFrame, folder: Path) -> None:
    """Draw, for each base model and coverage, interval scores and ERT of all methods relative to CQR."""
    album = Album(folder)
    summary, sets = summary_table(rows), sets_table(rows)
    if not len(sets):
        return
    with style():
        for key, found in summary[summary["method"] != "CQR"].groupby([*GRID, "kind"], sort=False):
            base, level, kind = key
            of_sets = sets[(sets["base"] == base) & (sets["level"] == level) & (sets["kind"] == kind)]
            what = f"{base}, coverage {level:g}, {kind} data"
            album.add(f"{kind}-{base}-{level:g}", _draw(found, of_sets, what), _CAPTION.format(what))
        album.write_captions()


_CAPTION = (
    "{}: relative to CQR on the same fitted models; left of 1 is better. Left: interval score, a dot for each data "
    "set, a bar for the geometric mean. Right: ERT, sum over data sets, with its bootstrap interval; the dotted line "
    f"is the noise floor, '{FLOOR}'."
)


def _draw(summary: pd.DataFrame, sets: pd.DataFrame, title: str) -> Any:
    methods = [method for method in summary["method"] if method != FLOOR]
    place = {method: len(methods) - i for i, method in enumerate(methods)}
    figure, (scores, risks) = new_figure(10, 1.2 + 0.3 * len(methods), 2, sharey=True)
    dots = sets[np.isfinite(sets["score"])]
    scores.plot(dots["score"], dots["method"].map(place), "o", color=METHOD_COLORS["ICQR"], alpha=0.4, markersize=4)
    indexed = summary.set_index("method")
    for method, y in place.items():
        row = indexed.loc[method]
        scores.plot([row["score"]] * 2, [y - 0.35, y + 0.35], color=INK)
        risks.plot([row["ert_low"], row["ert_high"]], [y, y], color=INK)
        risks.plot([row["ert"]], [y], "o", color=INK)
    for axes, label in ((scores, "interval score / CQR's"), (risks, "ERT / CQR's")):
        axes.axvline(1, color=METHOD_COLORS["CQR"])
        axes.set_xlabel(label)
    for floor in summary.loc[summary["method"] == FLOOR, "ert"]:
        risks.axvline(floor, color=INK, linestyle=":")
    # What is far worse would leave no room for the others.
    scores.set_xlim(right=min(scores.get_xlim()[1], 1.5))
    risks.set_xlim(max(risks.get_xlim()[0], -0.5), min(risks.get_xlim()[1], 2.5))
    scores.set_yticks(list(place.values()), list(place))
    scores.set_title(title)
    return figure
