"""The reproduction's figures: results from ``rows.parquet`` alone, and the paper's pictures of ideas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icqr._files import replacing
from icqr.calibration import conformal_quantile
from icqr.plots.displays import GREEN, METHOD_COLORS, PURPLE
from paper import theory
from paper.results import read_rows, write_text
from paper.tables import main_variants, pooled

INK = "#333333"
THRESHOLD = 0.9  # of explained variance
VARIANT_COLORS = {"notebook": PURPLE, "printed": GREEN, "ours": METHOD_COLORS["ICQR"]}
VARIANT_LINES: dict[str, Any] = {"exact": "-", "ours": "-", "printed": (0, (5, 2)), "notebook": (0, (1.5, 1.5))}
TITLES = {
    "boston": "Boston house prices",
    "bike": "Bike sharing (without the leak)",
    "bike-leak": "Bike sharing (with the leak, as in the paper)",
    "blog": "BlogFeedback",
}
#: How all figures look; used as a context, so that matplotlib's own settings stay as they are.
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "icqr",
}


def write_figures(out: Path) -> None:
    """Draw all figures of a run's rows into the folder `figures`, with captions."""
    everything, settings = read_rows(out / "rows.parquet")
    album = Album(out / "figures")
    with mpl.rc_context(STYLE):
        draw_residuals(album)
        draw_pinball(album)
        draw_group_balanced(album)
        draw_theory(album)
        for data, rows in main_variants(everything).groupby("data", sort=False):
            draw_groups(album, str(data), rows, settings[str(data)]["features"])
            draw_widths(album, str(data), rows, settings[str(data)])
    album.write_captions()


class Album:
    """A folder of figures, each as PNG and SVG, and one file with their captions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.captions: dict[str, str] = {}

    def add(self, name: str, figure: Figure, caption: str) -> None:
        """Save a figure."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            with replacing(self.folder / f"{name}.{kind}") as part:
                figure.savefig(part, format=kind, dpi=150, metadata=metadata)
        self.captions[name] = caption

    def write_captions(self) -> None:
        """Write captions.md."""
        parts = [f"![{name}]({name}.png)\n\n{caption}\n" for name, caption in self.captions.items()]
        write_text(self.folder / "captions.md", "# Figures\n\n" + "\n".join(parts))


def new_figure(width: float, height: float, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, side by side; sizes are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False, **options)[0])


# -- Results ---------------------------------------------------------------------------------------------------------


def title_of(data: str) -> str:
    """Return the title of a data set's figures."""
    return TITLES.get(data, data.replace("_", " ").capitalize() + " (synthetic)")


def draw_groups(album: Album, data: str, rows: pd.DataFrame, features: list[str]) -> None:
    """Draw the importance of columns and the explained variance against k, both of the first network."""
    first = rows[(rows["method"] == "ICQR") & (rows["network"] == 0)].set_index("variant")
    shares = pd.DataFrame({variant: first.at[variant, "importance"] for variant in VARIANT_COLORS}, index=features)
    largest = shares.sort_values("notebook", ascending=False).head(15)
    figure, (left, right) = new_figure(10, 1.6 + 0.27 * max(len(largest), 8), 2)
    figure.suptitle(title_of(data), x=0.01, ha="left", fontweight="bold")

    places = np.arange(len(largest))
    left.barh(places, largest["notebook"], color=VARIANT_COLORS["notebook"], height=0.62, label="notebook")
    for variant, marker in (("printed", "D"), ("ours", "o")):
        dots: dict[str, Any] = {
            "markersize": 5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
            "color": VARIANT_COLORS[variant],
        }
        left.plot(largest[variant], places, marker, label=variant, **dots)
    left.set_yticks(places, largest.index)
    left.invert_yaxis()
    left.grid(axis="y", visible=False)
    left.set_xlim(left=0)
    left.set(xlabel="share of importance", title="Permutation importance")
    left.legend(loc="lower right")

    paths = {variant: np.asarray(first.at[variant, "explained"]) for variant in VARIANT_COLORS}
    for variant, path in paths.items():
        color, k = VARIANT_COLORS[variant], np.arange(1, len(path) + 1)
        line: dict[str, Any] = {
            "linestyle": VARIANT_LINES[variant],
            "linewidth": 1.8,
            "label": f"{variant}: k = {len(path)}",
        }
        right.plot(k, path, color=color, **line)
        right.plot(k[-1], path[-1], "o", color=color, markersize=8)
    right.axhline(THRESHOLD, color=INK, linewidth=1, linestyle=":")
    right.text(0.01, THRESHOLD + 0.01, "σ = 0.9", transform=right.get_yaxis_transform(), va="bottom")
    right.set(xlabel="number of clusters k", ylabel="explained variance σₖ", ylim=(0, 1.03), title="Choice of k")
    right.locator_params(axis="x", integer=True)
    right.legend(loc="lower right")

    top = f" The {len(largest)} largest of {len(features)} columns." if len(largest) < len(features) else ""
    album.add(
        f"groups_{data}",
        figure,
        f"{title_of(data)}. Left: importance of each column as a share of the total, for the first network: bars as "
        "the notebook computes it (absolute error of the median, resampled columns), marks for the printed algorithm "
        f"and for ours (pinball loss, training rows).{top} Right: variance explained by k clusters of the weighted "
        f"columns; the first k above {THRESHOLD:g} is taken: "
        f"{', '.join(f'{len(path)} ({variant})' for variant, path in paths.items())}.",
    )


def draw_widths(album: Album, data: str, rows: pd.DataFrame, settings: dict[str, Any]) -> None:
    """Draw the quantiles of the widths of each method, all networks together."""
    levels = np.linspace(0.005, 0.995, 199)
    figure, (panel,) = new_figure(8.6, 4.6)
    curves = []
    for (variant, method), group in rows.groupby(["variant", "method"], sort=False):
        if method == "ICQR" or variant == "exact":
            curves.append(np.quantile(pooled(group), levels))
            label = method if variant == "exact" else f"{method}, {variant}"
            line: dict[str, Any] = {
                "color": METHOD_COLORS[str(method)],
                "linestyle": VARIANT_LINES[str(variant)],
                "linewidth": 2,
            }
            panel.plot(levels, curves[-1], label=label, **line)

    # Widths over several orders of magnitude need a logarithmic axis; the narrowest are cut off.
    middle = float(np.median(curves))
    if np.max(curves) > 30 * middle:
        panel.set_yscale("log")
        panel.set_ylim(bottom=max(np.min(curves), middle / 1000) * 0.8)
    else:
        panel.set_ylim(bottom=0)
    panel.set(xlabel="share of intervals that are narrower", ylabel=f"interval width ({settings['unit']})", xlim=(0, 1))
    panel.set_title(title_of(data))
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    networks, n = settings["networks"], settings["n_validation"]
    album.add(
        f"widths_{data}",
        figure,
        f"{title_of(data)}. Quantiles of the interval width of each method, over {networks} networks × {n:,} "
        "validation rows together (0.5 % to 99.5 %). A flat curve is one width for all; a steep one adapts to the row.",
    )


# -- Ideas -----------------------------------------------------------------------------------------------------------


def draw_residuals(album: Album) -> None:
    """Draw residuals with equal and with unequal variance, and the naive band over them."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 600))
    noise = rng.normal(size=600)
    figure, panels = new_figure(9, 3.8, 2, sharey=True)
    for panel, title, residual in zip(
        panels, ("Equal variance", "Unequal variance"), (noise, noise * (0.15 + 0.25 * x)), strict=True
    ):
        offset = conformal_quantile(np.abs(residual), 0.9)
        inside = np.abs(residual) <= offset
        panel.axhspan(-offset, offset, color=METHOD_COLORS["Naive"], alpha=0.18, linewidth=0, label="naive band, 90 %")
        panel.scatter(x[inside], residual[inside], s=9, color=METHOD_COLORS["CQR"], linewidth=0, label="inside")
        outside: dict[str, Any] = {
            "s": 14,
            "color": METHOD_COLORS["ICQR"],
            "marker": "x",
            "linewidth": 1,
            "label": "outside",
        }
        panel.scatter(x[~inside], residual[~inside], **outside)
        panel.set(title=title, xlabel="x")
    panels[0].set(ylabel="residual y − f(x), units of y", ylim=(-9, 9))
    panels[0].legend(loc="upper left", ncols=2, handletextpad=0.3, columnspacing=1.2)
    album.add(
        "residuals",
        figure,
        "Residuals with equal and with unequal variance, and the band of the naive method at coverage 0.9 over them. "
        f"Where variance is unequal, the same width covers {inside[:200].mean():.0%} of the easy third (small x) and "
        f"{inside[-200:].mean():.0%} of the hard third (large x).",
    )


def draw_pinball(album: Album) -> None:
    """Draw the pinball loss of several levels."""
    figure, (panel,) = new_figure(6, 3.8)
    error = np.linspace(-2, 2, 201)
    colors = (METHOD_COLORS["CQR"], GREEN, INK, PURPLE, METHOD_COLORS["ICQR"])
    for level, color in zip((0.05, 0.25, 0.5, 0.75, 0.95), colors, strict=True):
        loss = np.maximum(level * error, (level - 1) * error)
        panel.plot(error, loss, color=color, linewidth=2, label=f"τ = {level:g}")
    panel.set(xlabel="y − q, units of y", ylabel="pinball loss, units of y")
    panel.legend(loc="upper center")
    album.add(
        "pinball",
        figure,
        "Pinball loss of a predicted quantile q. At τ = 0.95 a prediction below y costs nineteen times as much as one "
        "above it by the same distance, so that the mean loss is smallest at the 95 % quantile; at τ = 0.5 both cost "
        "the same.",
    )


def draw_group_balanced(album: Album) -> None:
    """Draw three groups with an offset each, and one offset for all."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 9, 360))
    group = np.minimum(x // 3, 2).astype(int)
    y = np.array([0.35, 1.4, 0.7])[group] * rng.normal(size=len(x))
    score = np.abs(y)
    together = conformal_quantile(score, 0.9)
    figure, (panel,) = new_figure(8, 4)
    panel.scatter(x, y, s=9, color=INK, linewidth=0, alpha=0.7)
    for g in range(3):
        scores = score[group == g]
        offset = conformal_quantile(scores, 0.9)
        band: dict[str, Any] = {"color": METHOD_COLORS["ICQR"], "alpha": 0.2, "linewidth": 0}
        panel.fill_between([3 * g, 3 * g + 3], -offset, offset, label=None if g else "one offset per group", **band)
        shares = f"own offset {np.mean(scores <= offset):.0%}\none for all {np.mean(scores <= together):.0%}"
        panel.text(3 * g + 1.5, 5.9, f"group {g + 1}\n{shares}", ha="center", va="top")
    for sign, label in ((1, "one offset for all"), (-1, None)):
        panel.axhline(sign * together, color=METHOD_COLORS["CQR"], linestyle="--", linewidth=1.8, label=label)
    for edge in (3, 6):
        panel.axvline(edge, color=INK, linewidth=1)
    panel.set(xlim=(0, 9), ylim=(-4.6, 6), xlabel="x", ylabel="residual, units of y")
    figure.legend(loc="outside lower center", ncols=2)
    album.add(
        "group_balanced",
        figure,
        "Group-balanced conformal prediction at coverage 0.9: each group's offset comes from its own calibration "
        "scores (shaded), so each is covered alike; one offset for all (dashed) covers easy groups too often and the "
        "hard one too rarely. The percentages are shares of the rows shown.",
    )


def draw_theory(album: Album) -> None:
    """Simulate the paper's lemma and theorem, draw them, and write ``theory.csv``."""
    table, ranks = theory.simulate_coverage(), theory.simulate_ranks()
    write_text(album.folder / "theory.csv", table.to_csv(index=False))
    figure, (left, right) = new_figure(10, 4, 2, width_ratios=[1, 1.35])
    total, n = int(ranks.sum()), len(ranks)
    error = 3 * np.sqrt(1 / n * (1 - 1 / n) / total)
    left.bar(np.arange(1, n + 1), ranks / total, color=METHOD_COLORS["CQR"], width=0.8)
    band: dict[str, Any] = {
        "color": METHOD_COLORS["QR"],
        "alpha": 0.45,
        "linewidth": 0,
        "label": "1/n ± 3 standard errors",
    }
    left.axhspan(1 / n - error, 1 / n + error, **band)
    left.set(xlabel=f"rank of the last of n = {n} scores", ylabel="share of simulations", ylim=(0, 1.6 / n))
    left.set(title="Lemma: ranks are uniform", xticks=[1, *range(5, n + 1, 5)])
    left.legend(loc="upper center")

    n_rows, simulated = table["n"], table["simulated"]
    spread = [simulated - table["from"], table["to"] - simulated]
    band = {"color": METHOD_COLORS["Naive"], "alpha": 0.25, "linewidth": 0, "label": "bounds"}
    right.fill_between(n_rows, table["lower"], table["upper"], **band)
    right.axhline(table["lower"].iloc[0], color=GREEN, linewidth=1.2, label="1 − α")
    right.plot(n_rows, table["exact"], "_", color=INK, markersize=11, markeredgewidth=1.6, label="k/(n+1), exact")
    dots: dict[str, Any] = {"fmt": "o", "color": METHOD_COLORS["ICQR"], "markersize": 4, "label": "simulated, 99.9 %"}
    right.errorbar(n_rows, simulated, yerr=spread, **dots)
    right.plot(n_rows, table["interpolated"], "^", color=PURPLE, markersize=5, label="interpolated offset")
    right.set(xscale="log", xlabel="calibration rows n", ylabel="coverage of a new row")
    right.set_xticks([9, 20, 50, 100, 200], ["9", "20", "50", "100", "200"])
    right.minorticks_off()
    right.set_title("Theorem: 1 − α ≤ coverage ≤ 1 − α + 1/(n+1)")
    right.legend(loc="upper right")
    album.add(
        "theory",
        figure,
        f"Left: the rank of the last of n = {n} exchangeable scores, over {total:,} simulations. Right: the "
        f"coverage of split conformal prediction at 1 − α = 0.9 for calibration sets of n rows ({total:,} each), with "
        "the theorem's bounds and the exact value k/(n+1); the notebook's interpolated offset lies at or above the "
        "score of rank k and covers at least as much.",
    )
