"""The pictures in the pages, drawn when the site is built. Each public function draws one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from example_files import DISTRICTS, make_flats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from icqr import AutoICQR, GroupPartition, Naive
from icqr.datasets import make_sine_spread
from icqr.metrics import coverage_by_group, coverage_score
from icqr.plots import IntervalDisplay, method_color

OURS, MISSED, GREY = method_color("AutoICQR"), "#D55E00", "#767676"


def one_width_or_many() -> Figure:
    """Draw intervals of Naive and of AutoICQR on the same rows, whose spread grows from left to right."""
    data, new = make_sine_spread(6000, random_state=0), make_sine_spread(4000, random_state=1)
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, method in zip(panels, (Naive, AutoICQR), strict=True):
        model = method(coverage=0.9, random_state=0).fit(data.X, data.y)
        IntervalDisplay.from_estimator(model, new.X, new.y, feature="x1", max_points=500, ax=panel)
        thirds = [new.X["x1"] < 1 / 3, new.X["x1"] > 2 / 3]
        easy, hard = (coverage_score(new.y[rows], model.predict_interval(new.X[rows])) for rows in thirds)
        panel.get_legend().remove()
        panel.set_title(f"{method.__name__}: covers {easy:.0%} on the left, {hard:.0%} on the right", loc="left")
    panels[1].set_ylabel("")
    return figure


def ten_flats() -> Figure:
    """Draw ten flats of a group with their intervals, of which one is missed."""
    model, X, y = _flats()
    intervals, group = model.predict_interval(X), model.assign(X)
    covered = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    of_group = np.flatnonzero((group == 1) & (intervals[:, 1] < 600_000))
    rows = np.concatenate([of_group[covered[of_group]][:9], of_group[~covered[of_group]][:1]])
    rows = rows[np.argsort(intervals[rows].mean(axis=1))]
    figure, axes = _axes(3.6)
    for place, row in enumerate(rows):
        colour = OURS if covered[row] else MISSED
        axes.plot(intervals[row], [place, place], color=colour, linewidth=6, alpha=0.45, solid_capstyle="butt")
        axes.plot(y[row], place, marker="o" if covered[row] else "X", color=colour, markersize=7)
    axes.set(xlabel="price", yticks=[], ylabel="ten flats of one group")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def on_average_or_where_you_look() -> Figure:
    """Draw what three methods cover in each district: all hold on average."""
    model, X, y = _flats()
    old = make_flats(4000, seed=0)
    X_old, y_old = old.drop(columns="price"), old["price"]
    naive = Naive(coverage=0.9, random_state=0).fit(X_old, y_old)
    own = AutoICQR(coverage=0.9, partition=GroupPartition("district"), random_state=0).fit(X_old, y_old)
    colours = {"Naive": GREY, "AutoICQR": OURS, "AutoICQR, districts as groups": MISSED}
    figure, axes = _axes(3.6)
    for shift, method, (name, colour) in zip((-0.2, 0, 0.2), (naive, model, own), colours.items(), strict=True):
        intervals = method.predict_interval(X)
        share = coverage_by_group(y, intervals, X["district"])["coverage"][list(DISTRICTS)]
        average = f"{name}, {coverage_score(y, intervals):.0%} on average"
        axes.plot(np.arange(5) + shift, share, "o", color=colour, markersize=9, label=average)
    axes.axhline(0.9, color=GREY, linestyle="--", linewidth=1)
    axes.set(xticks=range(5), xticklabels=list(DISTRICTS), ylabel="share of flats covered")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False)
    return figure


def rank_of_scores() -> Figure:
    """Draw the sorted scores of 19 calibration rows, and the one that becomes the offset."""
    scores = np.sort(np.random.default_rng(3).normal(0, 10, 19)).round()
    figure, axes = _axes(2.6)
    axes.bar(range(1, 20), scores, color=[GREY] * 17 + [OURS] + [GREY], alpha=0.8)
    axes.annotate(
        f"rank ceil(20 × 0.9) = 18:\nthe offset is {scores[17]:.0f}",
        (18, scores[17]),
        (9.5, scores[17] * 0.8),
        arrowprops={"arrowstyle": "->", "color": "black"},
        va="center",
    )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="19 calibration rows of a group, sorted", ylabel="y outside by …", xticks=[1, 5, 10, 15, 18])
    return figure


def luck_of_calibration() -> Figure:
    """Draw how far the coverage of a single calibration set may be from what is promised on average."""
    figure, axes = _axes(3.0)
    share = np.linspace(0.75, 1, 500)
    for n, style in ((50, ":"), (300, "--"), (1500, "-")):
        rank = int(np.ceil((n + 1) * 0.9))
        density = stats.beta(rank, n + 1 - rank).pdf(share)
        axes.plot(share, density, style, color=OURS, label=f"{n:,} calibration rows")
    axes.set(xlabel="coverage that one calibration set gives", yticks=[], ylabel="how often")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False)
    return figure


def interval_score() -> Figure:
    """Draw what the interval score charges: the width, and each miss by how far it is off."""
    figure, axes = _axes(2.4)
    for place, (y, label) in enumerate([(62, "width 40"), (108, "width 40 + 20 × 8 outside = 200")]):
        axes.plot([60, 100], [place, place], color=OURS, linewidth=8, alpha=0.45, solid_capstyle="butt")
        axes.plot(y, place, marker="o" if y < 100 else "X", color=OURS if y < 100 else MISSED, markersize=8)
        axes.annotate(label, (112, place), va="center")
    axes.set(xlim=(55, 150), ylim=(-0.6, 1.6), yticks=[], xlabel="y")
    return figure


@cache
def _flats() -> tuple[Any, pd.DataFrame, pd.Series]:
    old, new = make_flats(4000, seed=0), make_flats(4000, seed=5)
    model = AutoICQR(coverage=0.9, random_state=0).fit(old.drop(columns="price"), old["price"])
    return model, new.drop(columns="price"), new["price"]


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
