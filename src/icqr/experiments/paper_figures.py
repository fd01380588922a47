"""The reproduction's figures, made from `rows.parquet` alone (and three pictures of ideas)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icqr._tables import FloatArray
from icqr.experiments.drawing import INK, VARIANT_COLORS, VARIANT_LINES, Album, new_figure, style
from icqr.experiments.illustrations import draw_illustrations
from icqr.experiments.paper_rows import main_variants, pooled, read_rows
from icqr.experiments.theory import write_theory
from icqr.plots.style import METHOD_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_BARS = 15
_THRESHOLD = 0.9  # of explained variance
_FIRST = ("notebook", "printed", "ours")
TITLES = {
    "boston": "Boston house prices",
    "bike": "Bike sharing (without the leak)",
    "bike-leak": "Bike sharing (with the leak, as in the paper)",
    "blog": "BlogFeedback",
}


def write_figures(rows_file: Path, folder: Path) -> None:
    """Draw all figures into a folder, with captions."""
    everything, settings = read_rows(rows_file)
    rows = main_variants(everything)
    album = Album(folder)
    with style():
        draw_illustrations(album)
        write_theory(folder, album)
        for data, group in rows.groupby("data", sort=False):
            draw_groups(album, str(data), group, settings[str(data)]["features"])
            draw_widths(album, str(data), group, settings[str(data)])
    album.write_captions()


def _title(data: str) -> str:
    return TITLES.get(data, data.replace("_", " ").capitalize() + " (synthetic)")


# -- Importance and the choice of k ----------------------------------------------------------------------------------


def draw_groups(album: Album, data: str, rows: pd.DataFrame, features: list[str]) -> None:
    """Draw the importance of columns and the explained variance against k, both of the first network."""
    first = rows[(rows["method"] == "ICQR") & (rows["network"] == 0)].set_index("variant")
    shares = pd.DataFrame({variant: first.at[variant, "importance"] for variant in _FIRST}, index=features)
    shown = shares.sort_values("notebook", ascending=False).head(_MOST_BARS)
    figure, (left, right) = new_figure(10, 1.6 + 0.27 * max(len(shown), 8), 2)
    _bars(left, shown)
    chosen = {variant: np.asarray(first.at[variant, "explained"]) for variant in _FIRST}
    _explained(right, chosen)
    figure.suptitle(_title(data), x=0.01, ha="left", fontweight="bold")
    top = f" The {len(shown)} largest of {len(features)} columns." if len(shown) < len(features) else ""
    ks = ", ".join(f"{len(path)} ({variant})" for variant, path in chosen.items())
    album.add(
        f"groups_{data}",
        figure,
        f"{_title(data)}. Left: importance of each column as a share of the total, for the first network: bars as the "
        "notebook computes it (absolute error of the median, resampled columns), marks for the printed algorithm and "
        f"for ours (pinball loss, training rows).{top} Right: variance explained by k clusters of the weighted "
        f"columns; the first k above {_THRESHOLD:g} is taken: {ks}.",
    )


def _bars(panel: Axes, shares: pd.DataFrame) -> None:
    place = np.arange(len(shares))
    panel.barh(place, shares["notebook"], color=VARIANT_COLORS["notebook"], height=0.62, label="notebook")
    for variant, marker in (("printed", "D"), ("ours", "o")):
        panel.plot(
            shares[variant],
            place,
            marker,
            color=VARIANT_COLORS[variant],
            markersize=5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            label=variant,
        )
    panel.set_yticks(place, shares.index)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
    panel.set_xlim(left=0)
    panel.set_xlabel("share of importance")
    panel.set_title("Permutation importance")
    panel.legend(loc="lower right")


def _explained(panel: Axes, paths: dict[str, FloatArray]) -> None:
    for variant, path in paths.items():
        k = np.arange(1, len(path) + 1)
        line = {"color": VARIANT_COLORS[variant], "linestyle": VARIANT_LINES[variant]}
        panel.plot(k, path, linewidth=1.8, label=f"{variant}: k = {len(path)}", **line)
        panel.plot(k[-1], path[-1], "o", color=VARIANT_COLORS[variant], markersize=8)
    panel.axhline(_THRESHOLD, color=INK, linewidth=1, linestyle=":")
    panel.text(0.01, _THRESHOLD + 0.01, "σ = 0.9", transform=panel.get_yaxis_transform(), va="bottom")
    panel.set(xlabel="number of clusters k", ylabel="explained variance σₖ", ylim=(0, 1.03))
    panel.locator_params(axis="x", integer=True)
    panel.set_title("Choice of k")
    panel.legend(loc="lower right")


# -- Widths ----------------------------------------------------------------------------------------------------------


def draw_widths(album: Album, data: str, rows: pd.DataFrame, settings: dict[str, Any]) -> None:
    """Draw the quantiles of the widths of each method, all networks together."""
    levels = np.linspace(0.005, 0.995, 199)
    figure, (panel,) = new_figure(8.6, 4.6)
    curves = []
    for (variant, method), group in rows.groupby(["variant", "method"], sort=False):
        if method == "ICQR" or variant == "exact":
            curves.append(_curve(panel, str(variant), str(method), np.quantile(pooled(group), levels), levels))
    smallest, largest = min(c.min() for c in curves), max(c.max() for c in curves)
    if largest > 30 * np.median(curves):
        panel.set_yscale("log")
        panel.set_ylim(bottom=max(smallest, np.median(curves) / 1000) * 0.8)
    else:
        panel.set_ylim(bottom=0)
    panel.set(xlabel="share of intervals that are narrower", ylabel=f"interval width ({settings['unit']})", xlim=(0, 1))
    panel.set_title(_title(data))
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    networks, n = settings["networks"], settings["n_validation"]
    album.add(
        f"widths_{data}",
        figure,
        f"{_title(data)}. Quantiles of the interval width of each method, over {networks} networks × {n:,} validation "
        "rows together (0.5 % to 99.5 %). A flat curve is one width for all; a steep one adapts to the row.",
    )


def _curve(panel: Axes, variant: str, method: str, widths: FloatArray, levels: FloatArray) -> FloatArray:
    label = method if variant == "exact" else f"{method}, {variant}"
    line = VARIANT_LINES[variant]
    panel.plot(levels, widths, color=METHOD_COLORS[method], linestyle=line, linewidth=2, label=label)
    return widths
