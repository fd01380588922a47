"""The paper's pictures of ideas: residuals, the pinball loss, group-balanced prediction. Nothing here is a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from icqr._tables import FloatArray
from icqr.calibration import conformal_quantile
from icqr.experiments.drawing import INK, Album, new_figure
from icqr.plots.style import GREEN, METHOD_COLORS, PURPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COVERAGE = 0.9


def draw_illustrations(album: Album) -> None:
    """Draw all three."""
    _residuals(album)
    _pinball(album)
    _group_balanced(album)


def _residuals(album: Album) -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 600))
    noise = rng.normal(size=600)
    figure, panels = new_figure(9, 3.8, 2, sharey=True)
    shares = []
    for panel, residual, title in zip(
        panels, (noise, noise * (0.15 + 0.25 * x)), ("Equal variance", "Unequal variance"), strict=True
    ):
        shares.append(_naive_band(panel, x, residual))
        panel.set_title(title)
        panel.set_xlabel("x")
    panels[0].set(ylabel="residual y − f(x), units of y", ylim=(-9, 9))
    panels[0].legend(loc="upper left", ncols=2, handletextpad=0.3, columnspacing=1.2)
    easy, hard = shares[1]
    album.add(
        "residuals",
        figure,
        "Residuals with equal and with unequal variance, and the band of the naive method at coverage 0.9 over them. "
        f"Where variance is unequal, the same width covers {easy:.0%} of the easy third (small x) and {hard:.0%} of "
        "the hard third (large x).",
    )


def _naive_band(panel: Axes, x: FloatArray, residual: FloatArray) -> tuple[float, float]:
    """Draw residuals and the band; give the coverage of the first and of the last third."""
    offset = conformal_quantile(np.abs(residual), _COVERAGE)
    inside = np.abs(residual) <= offset
    panel.axhspan(-offset, offset, color=METHOD_COLORS["Naive"], alpha=0.18, linewidth=0, label="naive band, 90 %")
    panel.scatter(x[inside], residual[inside], s=9, color=METHOD_COLORS["CQR"], linewidth=0, label="inside")
    panel.scatter(
        x[~inside], residual[~inside], s=14, color=METHOD_COLORS["ICQR"], marker="x", linewidth=1, label="outside"
    )
    third = len(x) // 3
    return float(inside[:third].mean()), float(inside[-third:].mean())


def _pinball(album: Album) -> None:
    figure, (panel,) = new_figure(6, 3.8)
    error = np.linspace(-2, 2, 201)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    colors = (METHOD_COLORS["CQR"], GREEN, INK, PURPLE, METHOD_COLORS["ICQR"])
    for level, color in zip(levels, colors, strict=True):
        loss = np.maximum(level * error, (level - 1) * error)
        panel.plot(error, loss, color=color, linewidth=2, label=f"τ = {level:g}")
    panel.set_xlabel("y − q, units of y")
    panel.set_ylabel("pinball loss, units of y")
    panel.legend(loc="upper center", ncols=1)
    album.add(
        "pinball",
        figure,
        "Pinball loss of a predicted quantile q. At τ = 0.95 a prediction below y costs nineteen times as much as one "
        "above it by the same distance, so that the mean loss is smallest at the 95 % quantile; at τ = 0.5 both cost "
        "the same.",
    )


def _group_balanced(album: Album) -> None:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 9, 360))
    group = np.minimum(x // 3, 2).astype(int)
    y = np.array([0.35, 1.4, 0.7])[group] * rng.normal(size=len(x))
    score = np.abs(y)
    together = conformal_quantile(score, _COVERAGE)
    offsets = [conformal_quantile(score[group == g], _COVERAGE) for g in range(3)]
    figure, (panel,) = new_figure(8, 4)
    panel.scatter(x, y, s=9, color=INK, linewidth=0, alpha=0.7)
    for g, offset in enumerate(offsets):
        place = [3 * g, 3 * (g + 1)]
        label = "one offset per group" if g == 0 else None
        panel.fill_between(place, -offset, offset, color=METHOD_COLORS["ICQR"], alpha=0.2, linewidth=0, label=label)
        one = np.mean(score[group == g] <= together)
        own = np.mean(score[group == g] <= offset)
        panel.text(
            3 * g + 1.5, 5.9, f"group {g + 1}\nown offset {own:.0%}\none for all {one:.0%}", ha="center", va="top"
        )
    for sign in (-1, 1):
        label = "one offset for all" if sign == 1 else None
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
