"""The figures of the benchmark, made from its rows alone."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.quality.tables import FLOOR, GRID, sets_table, summary_table
from icqr.plots import METHOD_COLORS
from paper.figures import INK, STYLE, Album, new_figure

_CAPTION = (
    "{}: relative to CQR on the same fitted models; left of 1 is better. Left: interval score, a dot for each data "
    "set, a bar for the geometric mean. Right: ERT, sum over data sets, with its bootstrap interval; the dotted line "
    f"is the noise floor, '{FLOOR}'."
)


def write_figures(rows: pd.DataFrame, folder: Path) -> None:
    """Draw, for each base model and coverage, interval scores and ERT of all methods relative to CQR."""
    summary, sets = summary_table(rows), sets_table(rows)
    if not len(sets):
        return
    album = Album(folder)
    by = [*GRID, "kind"]
    with mpl.rc_context(STYLE):
        for key, methods in summary[summary["method"] != "CQR"].groupby(by, sort=False):
            base, level, kind = key
            title = f"{base}, coverage {level:g}, {kind} data"
            here = (sets[by] == list(key)).all(axis=1)
            album.add(f"{kind}-{base}-{level:g}", _draw(methods, sets[here], title), _CAPTION.format(title))
    album.write_captions()


def _draw(summary: pd.DataFrame, sets: pd.DataFrame, title: str) -> Figure:
    methods = summary[summary["method"] != FLOOR].reset_index(drop=True)
    figure, (scores, risks) = new_figure(10, 1.2 + 0.3 * len(methods), 2, sharey=True)
    places = dict(zip(methods["method"], range(len(methods), 0, -1), strict=True))
    dots = sets[np.isfinite(sets["score"])]
    scores.plot(dots["score"], dots["method"].map(places), "o", color=METHOD_COLORS["ICQR"], alpha=0.4, markersize=4)
    for _, row in methods.iterrows():
        place = places[row["method"]]
        scores.plot([row["score"]] * 2, [place - 0.35, place + 0.35], color=INK)
        risks.plot([row["ert_low"], row["ert_high"]], [place, place], color=INK)
        risks.plot([row["ert"]], [place], "o", color=INK)
    for panel, label in ((scores, "interval score / CQR's"), (risks, "ERT / CQR's")):
        panel.axvline(1, color=METHOD_COLORS["CQR"])
        panel.set_xlabel(label)
    for floor in summary.loc[summary["method"] == FLOOR, "ert"]:
        risks.axvline(floor, color=INK, linestyle=":")

    # What is far worse would leave no room for the others.
    scores.set_xlim(right=min(scores.get_xlim()[1], 1.5))
    risks.set_xlim(max(risks.get_xlim()[0], -0.5), min(risks.get_xlim()[1], 2.5))
    scores.set_yticks(list(places.values()), list(places))
    scores.set_title(title)
    return figure
