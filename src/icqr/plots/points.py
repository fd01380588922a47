"""Points that are covered or missed, drawn apart, and bounds that are infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icqr.metrics.checks import Floats, Integers
from icqr.plots.display import ink, need
from icqr.plots.style import GREY, group_gid, group_numbers, percent

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_COVERED: dict[str, Any] = {"s": 10, "marker": "o", "color": GREY, "alpha": 0.6, "linewidth": 0, "zorder": 2.2}
_MISSED: dict[str, Any] = {"s": 20, "marker": "x", "linewidth": 1.1, "zorder": 2.4}


def draw_points(ax: Axes, x: Floats, y: Floats, rows: pd.DataFrame) -> None:
    """Draw covered rows as grey dots and missed ones as crosses; each group's points carry its name."""
    numbers = group_numbers(rows["group"])
    group, covered = rows["group"].map(numbers).to_numpy(), rows["covered"].to_numpy()
    for number in sorted(set(numbers.values())):
        for hit, look in ((True, _COVERED), (False, {**_MISSED, "color": ink(ax)})):
            chosen = (group == number) & (covered == hit)
            if chosen.any():
                ax.scatter(x[chosen], y[chosen], gid=group_gid(number), **look)


def point_legend(ax: Axes, rows: pd.DataFrame) -> list[tuple[Artist, str]]:
    """Say what dots and crosses are, and which share of all rows is covered and missed."""
    line, hits = need("matplotlib.lines").Line2D, float(rows["covered"].mean())
    dot = line([], [], linestyle="none", marker="o", markersize=4, color=GREY)
    cross = line([], [], linestyle="none", marker="x", markersize=5, color=ink(ax))
    return [(dot, f"covered: {percent(hits)}"), (cross, f"missed: {percent(1 - hits)}")]


def sample_note(drawn: Integers, n: int) -> str:
    """Say that only some rows are drawn as points, if so."""
    return f"{len(drawn):,} of {n:,} points drawn" if len(drawn) < n else ""


def beyond_note(n: int) -> str:
    """Say how many rows the axis does not show, if any."""
    return f"{n:,} {'row' if n == 1 else 'rows'} beyond the axis" if n else ""


def mark_infinite(ax: Axes, x: Floats, where: str) -> list[tuple[Artist, str]]:
    """Mark infinite bounds by triangles at an edge of the picture ("top", "bottom", "right"); give the legend's row."""
    if not len(x):
        return []
    marker, place = {"top": ("^", 1.0), "bottom": ("v", 0.0), "right": (">", 1.0)}[where]
    at = np.full(len(x), place)
    across, along = (at, x) if where == "right" else (x, at)
    transform = ax.get_yaxis_transform() if where == "right" else ax.get_xaxis_transform()
    look = {"marker": marker, "facecolor": "#ffffff", "edgecolor": ink(ax), "s": 26, "linewidth": 1, "zorder": 3}
    ax.scatter(across, along, transform=transform, clip_on=False, **look)
    shown = need("matplotlib.lines").Line2D(
        [], [], linestyle="none", marker=marker, markersize=5, markerfacecolor="#ffffff", markeredgecolor=ink(ax)
    )
    return [(shown, "infinite " + {"top": "upper bound", "bottom": "lower bound", "right": "width"}[where])]
