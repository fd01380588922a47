"""The displays' data against hand computation, what they draw and say, and what they leave alone."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib import pyplot as plt
from scipy.stats import beta
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr import CQR, ICQR, GroupPartition, KMeansPartition, Monitor, plots
from icqr.datasets import make_heteroscedastic
from icqr.plots import (
    METHOD_COLORS,
    ExplainedVarianceDisplay,
    GroupCoverageDisplay,
    GroupMapDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    MonitorDisplay,
    ReliabilityDisplay,
    WidthDisplay,
    WidthResidualDisplay,
    blank_axes,
    figure_to_svg,
    method_color,
)

INF = float("inf")
Y = np.array([1.0, 2.0, 3.0, 4.0])
INTERVALS = np.array([[0.0, 1.0], [2.5, 3.0], [2.0, 4.0], [0.0, 4.0]])  # the second misses; widths 1, 0.5, 2, 4
HOSTILE = ["_a$x_1$", "$", "<script>alert(1)</script> & \\frac{", "$\\undefined{$ ^_"]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No picture changes matplotlib's settings or opens a figure of pyplot's, unless it is asked for one."""
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    yield
    assert dict(mpl.rcParams) == settings
    assert plt.get_fignums() == figures


def draw_all(models: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
    icqr = models["ICQR"]
    return {
        "prediction": IntervalDisplay.from_estimator(icqr, X, y, ax=blank_axes()),
        "feature": IntervalDisplay.from_estimator(icqr, X, y, feature=0, max_points=50, ax=blank_axes()),
        "residuals": WidthResidualDisplay.from_estimator(icqr, X, y, ax=blank_axes()),
        "groups": GroupCoverageDisplay.from_estimator(icqr, X, y, ax=blank_axes()),
        "methods": GroupCoverageDisplay.from_estimator(models, X, y, ax=blank_axes()),
        "reliability": ReliabilityDisplay.from_estimator(models, X, y, ax=blank_axes()),
        "widths": WidthDisplay.from_estimator(models, X, y, ax=blank_axes()),
        "importance": ImportanceDisplay.from_estimator(icqr, ax=blank_axes()),
        "choice": ExplainedVarianceDisplay.from_estimator(icqr, ax=blank_axes()),
        "map": GroupMapDisplay.from_estimator(icqr, X, ax=blank_axes()),
    }


@pytest.fixture(scope="module")
def displays(models: dict[str, Any], rows: Any) -> dict[str, Any]:
    return draw_all(models, *rows)


def legend(display: Any) -> list[str]:
    box = display.ax_.get_legend()
    return [text.get_text() for text in (box.get_title(), *box.get_texts())]


def against(x: Any, **options: Any) -> IntervalDisplay:
    """Return a display of any intervals against a column."""
    n = len(x)
    return IntervalDisplay.from_predictions(np.zeros(n), np.tile([-1.0, 1.0], (n, 1)), x=x, ax=blank_axes(), **options)


def gids(display: Any) -> list[str]:
    return [artist.get_gid() for artist in display.ax_.get_children() if artist.get_gid()]


# -- All displays ------------------------------------------------------------------------------------------------------


def test_public_names_are_sorted_and_there() -> None:
    assert plots.__all__ == sorted(plots.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(plots, name) for name in plots.__all__)


def test_each_display_has_title_and_axis_labels(displays: dict[str, Any]) -> None:
    for name, display in displays.items():
        assert display.ax_.get_title("left"), name
        assert display.ax_.get_xlabel(), name
        assert display.figure_ is display.ax_.figure
        if name not in ("groups", "methods", "widths", "importance"):  # there each row has its name
            assert display.ax_.get_ylabel(), name
        display.figure_.draw_without_rendering()  # warnings are errors


def test_without_axes_one_figure_is_made_and_the_current_axes_are_not_used() -> None:
    before = plt.get_fignums()
    figure, axes = plt.subplots()
    display = WidthDisplay.from_predictions(Y, INTERVALS)
    assert len(plt.get_fignums()) == len(before) + 2
    assert display.ax_ is not axes
    assert not axes.lines
    assert np.allclose(display.figure_.get_size_inches(), display.size)
    plt.close(figure)
    plt.close(display.figure_)


@pytest.mark.parametrize("largest", [0.3, 95.0, 3_000.0, 260_000.0, 98_000_000.0, 3e12])
@pytest.mark.parametrize("inches", [2.5, 6.4])
def test_numbers_on_the_axis_of_widths_do_not_touch(largest: float, inches: float) -> None:
    figure = mpl.figure.Figure(figsize=(inches, 2))
    widths = np.linspace(0.1, 1, 50) * largest
    display = WidthDisplay.from_predictions(np.zeros(50), {"CQR": np.c_[0 * widths, widths]}, ax=figure.subplots())
    figure.draw_without_rendering()
    labels = [label for label in display.ax_.get_xticklabels() if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in labels))
    inside = [box for box in boxes if box[0] < display.ax_.bbox.x1]
    assert len(inside) > 1
    assert all(first[1] + 3 < second[0] for first, second in itertools.pairwise(inside))
    assert largest != 260_000 or "200 k" in [label.get_text() for label in labels]


def test_large_numbers_say_their_size_on_the_axis() -> None:
    y = np.linspace(1e5, 2e6, 50)
    display = IntervalDisplay.from_predictions(y, np.column_stack([0.8 * y, 1.2 * y]))
    display.figure_.draw_without_rendering()
    for axis in (display.ax_.xaxis, display.ax_.yaxis):
        assert axis.get_offset_text().get_text() == ""  # matplotlib's 1e6 would stand where the legend is
        assert "1 M" in [label.get_text() for label in axis.get_ticklabels()]
    at = [label.get_window_extent() for label in display.ax_.get_xticklabels()]
    assert not any(left.overlaps(right) for left, right in itertools.pairwise(at))
    plt.close(display.figure_)


def test_plot_draws_again_elsewhere(displays: dict[str, Any]) -> None:
    figure = mpl.figure.Figure()
    ax = figure.subplots(2, 2)[1, 1]
    display = ReliabilityDisplay(displays["reliability"].table)
    assert display.plot(ax) is display
    assert display.ax_ is ax
    assert display.figure_ is figure


def test_names_from_data_are_shown_as_they_are(rows: Any) -> None:
    X, y = rows
    names = dict(zip(X.columns, HOSTILE, strict=False))
    X, y = X[:150].rename(columns=names), y[:150].rename(HOSTILE[3])
    model = ICQR(
        HistGradientBoostingRegressor(max_iter=5, random_state=0),
        0.8,
        partition=KMeansPartition(choose=2),
        random_state=0,
    )
    model.fit(X, y)
    for name, display in draw_all({"ICQR": model}, X, y).items():
        svg = figure_to_svg(display.figure_)
        assert "<script" not in svg, name
        ElementTree.fromstring(svg)
    methods = dict.fromkeys(HOSTILE, INTERVALS)
    shown = GroupCoverageDisplay.from_predictions(Y, methods, HOSTILE, coverage=0.9, ax=blank_axes())
    drawn = figure_to_svg(shown.figure_)
    assert "_a$x_1$" in drawn
    assert "\\$" not in drawn
    assert len(legend(shown)) == 2 + len(HOSTILE)  # the note, the promise, and every method


def test_letters_that_the_font_lacks_are_left_to_the_browser() -> None:
    display = WidthDisplay.from_predictions(pd.Series(Y, name="価格"), INTERVALS, ax=blank_axes())
    assert "価格" in figure_to_svg(display.figure_)


def test_models_are_named_by_class_list_or_mapping(models: dict[str, Any], rows: Any) -> None:
    two = WidthDisplay.from_estimator([models["CQR"], models["CQR"]], *rows, ax=blank_axes())
    assert list(two.widths) == ["CQR", "CQR (2)"]  # as in comparisons and reports
    mine = WidthDisplay.from_estimator({"mine": models["CQR"]}, *rows, ax=blank_axes())
    assert list(mine.widths) == ["mine"]
    with pytest.raises(TypeError, match="from_predictions"):
        WidthDisplay.from_estimator(HistGradientBoostingRegressor(), *rows)


def test_models_of_several_coverages_need_one(models: dict[str, Any], rows: Any) -> None:
    other = CQR(HistGradientBoostingRegressor(max_iter=5, random_state=0), 0.9, random_state=0).fit(*rows)
    with pytest.raises(ValueError, match=r"several coverages, \[0\.8, 0\.9\]; say which with coverage="):
        WidthDisplay.from_estimator({"a": models["CQR"], "b": other}, *rows)


# -- Colours and text --------------------------------------------------------------------------------------------------


def test_a_method_has_one_colour_everywhere(displays: dict[str, Any]) -> None:
    assert list(METHOD_COLORS) == ["Naive", "QR", "CQR", "ICQR"]
    assert len(set(METHOD_COLORS.values())) == 4
    lines = {line.get_color() for line in displays["reliability"].ax_.lines[1:]}
    assert lines == set(METHOD_COLORS.values())
    assert displays["residuals"].ax_.lines[1].get_color() == METHOD_COLORS["ICQR"]
    assert method_color("MAPIE") == method_color("MAPIE") == "#009E73"  # of the name alone, in every run
    assert method_color("MAPIE") not in METHOD_COLORS.values()
    looks = {(line.get_marker(), line.get_linestyle()) for line in displays["reliability"].ax_.lines[1:]}
    assert len(looks) == 4  # and without colours


def test_groups_look_different_up_to_56() -> None:
    X = np.c_[np.arange(56.0), np.arange(56.0)]
    display = GroupMapDisplay.from_labels(X, np.arange(56), [0, 1], ax=blank_axes())
    points = [collection for collection in display.ax_.collections if collection.get_gid()]
    looks = {(tuple(group.get_facecolor()[0]), group.get_paths()[0].vertices.tobytes()) for group in points}
    assert len(looks) == len(points) == 56


@pytest.mark.parametrize(
    ("labels", "numbers"), [([3, -1, 3, 0], "0 3 none"), (["b", "a", "b", "b"], "0 1"), ([0.5, 1.5, 0.5, 0.5], "0 1")]
)
def test_whole_numbers_name_their_groups_and_other_labels_are_counted(labels: list[Any], numbers: str) -> None:
    display = IntervalDisplay.from_predictions(Y, INTERVALS, groups=labels, ax=blank_axes())
    assert set(gids(display)) == {f"group-{number}" for number in numbers.split()}


def test_a_legend_is_no_wider_than_a_narrow_picture() -> None:
    """Names of rows make axes narrower than the figure: what does not fit beside each other stands below."""
    methods = dict.fromkeys(("Naive", "ICQR", "another method"), INTERVALS)
    groups = ["a long name of a group", "b", "b", "b"]
    display = GroupCoverageDisplay.from_predictions(Y, methods, groups, coverage=0.9, ax=blank_axes(3.7))
    display.figure_.draw_without_rendering()
    assert display.ax_.get_legend().get_window_extent().x1 <= display.figure_.bbox.x1
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names[1] == "a long n…a group\u2002n = 1"  # and the picture has room left
    assert display.ax_.bbox.width > display.figure_.bbox.width / 3


def test_names_are_on_one_line_and_not_too_long() -> None:
    def label(name: str) -> str:
        return IntervalDisplay.from_predictions(pd.Series(Y, name=name), INTERVALS, ax=blank_axes()).ax_.get_ylabel()

    assert label("a\n\x00b\t c") == "a b c"
    assert label("begin" + "x" * 100 + "end") == "begin" + "x" * 15 + "…" + "x" * 16 + "end"
    assert not mpl.cbook.is_math_text(label("$x$ and $y$"))


# -- Columns on axes ---------------------------------------------------------------------------------------------------


def test_numbers_categories_and_dates_have_places() -> None:
    assert np.array_equal(against([1.0, INF, np.nan]).rows["x"], [1, np.nan, np.nan], equal_nan=True)
    text = against(pd.Series(["b", None, "a", "b"], name="t"))
    assert (text.column.name, text.column.categories) == ("t", ("a", "b"))
    assert np.array_equal(text.rows["x"], [1, np.nan, 0, 1], equal_nan=True)
    ordered = against(pd.Series(pd.Categorical(["low", "high"], categories=["low", "high", "unused"])))
    assert (ordered.column.categories, ordered.rows["x"].tolist()) == (("low", "high"), [0, 1])
    assert against([True, False]).column.categories == ("False", "True")
    dates = against(pd.Series(pd.to_datetime(["1970-01-02 00:00", "1970-01-01 12:00"])))
    assert dates.rows["x"].tolist() == [1, 0.5]


def test_rare_categories_are_one() -> None:
    display = against([letter for place, letter in enumerate("abcdefghijklmnop") for _ in range(20 - place)])
    assert display.column.categories == (*"abcdefghijkl", "all others")
    assert (display.rows["x"] == 12).sum() == sum(20 - place for place in range(12, 16))


def test_bins_around_few_values_and_of_equally_many_rows() -> None:
    few = against([1, 2, 4, 2, np.nan], n_bins=10)
    assert few.bins[["left", "right", "n"]].values.tolist() == [[0.5, 1.5, 1], [1.5, 3, 2], [3, 5, 1]]
    many = against(np.arange(101.0) ** 2, n_bins=10)
    assert many.bins["right"].tolist() == [400, 1600, 3600, 6400, 10000]  # ten would have less than 20 rows each
    assert many.bins["n"].tolist() == [20, 20, 20, 20, 21]
    tied = against(np.r_[np.zeros(60), np.arange(1, 41)], n_bins=10)
    assert tied.bins["n"].tolist() == [79, 21]
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        against([1, 2], n_bins=0)


def test_an_axis_ends_before_values_far_beyond_all_others() -> None:
    x = np.append(np.linspace(0, 10, 999), 1000.0)
    display = against(x)
    low, high = display.ax_.get_xlim()
    assert low == 0
    assert 10 < high < 12
    assert display.bins["n"].sum() == 1000  # what is beyond belongs to the last bin
    assert "1 row beyond the axis" in legend(display)[0].replace("\n", " ")
    for usual in (x[:-1], np.exp(np.linspace(0, 3, 500)), [0.0] * 999 + [1.0], ["a", "b"] * 60):
        assert "beyond" not in legend(against(usual))[0]


PRICES = np.exp(np.random.default_rng(0).normal(12, 0.7, 400))


@pytest.mark.parametrize("n", [400, 60])  # a band, or a line for each row
def test_a_skewed_positive_target_has_a_log_axis(n: int) -> None:
    y = pd.Series(PRICES[:n], name="price")
    bounds, age = np.c_[0.6 * y, 1.5 * y], pd.Series(np.arange(n), name="age")
    display = IntervalDisplay.from_predictions(y, bounds, x=age, ax=blank_axes())
    assert display.log
    assert (display.ax_.get_yscale(), display.ax_.get_ylabel()) == ("log", "price (log scale)")
    assert (display.ax_.get_xscale(), display.ax_.get_xlabel()) == ("linear", "age")  # not the target
    display.figure_.draw_without_rendering()
    low, high = display.ax_.get_ylim()
    shown = [label.get_text() for label in display.ax_.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert "200 k" in shown  # as people say it, not 2×10⁵

    against_prediction = IntervalDisplay.from_predictions(y, bounds, prediction=y * 1.01, ax=blank_axes())
    assert against_prediction.ax_.get_xscale() == "log"
    assert against_prediction.ax_.get_xlabel() == "prediction (log scale)"


def test_other_targets_have_a_plain_axis() -> None:
    """Zero or below has no logarithm; what is not skewed needs none; and of counts the logarithms are as skewed."""
    counts = np.arange(1.0, 41.0) ** 2
    for y in (PRICES - PRICES.min(), -PRICES, np.linspace(1, 2, 50), counts, np.ones(30)):
        display = IntervalDisplay.from_predictions(y, np.c_[y - 1, y + 1], ax=blank_axes())
        assert not display.log
        assert display.ax_.get_yscale() == "linear"
        assert "log" not in display.ax_.get_ylabel() + display.ax_.get_xlabel()


def test_bounds_that_a_log_axis_can_not_show_are_marked() -> None:
    y = PRICES[:60]
    bounds = np.c_[0.6 * y, 1.5 * y]
    bounds[0, 0], bounds[1, 0], bounds[2] = -5, 0, (-INF, INF)
    display = IntervalDisplay.from_predictions(y, bounds, x=np.arange(60), prediction=y, ax=blank_axes())
    assert display.ax_.get_ylim()[0] > y.min() / 4
    assert "lower bound below the axis" in legend(display)
    marks = {mark.get_label(): mark.get_offsets()[:, 0].tolist() for mark in display.ax_.collections}
    assert marks["lower bound below the axis"] == [0, 1, 2]
    assert marks["infinite upper bound"] == [2]


def test_columns_are_found_by_name_or_position() -> None:
    def second(X: Any, *features: Any) -> float:
        return float(GroupMapDisplay.from_labels(X, [0], features, ax=blank_axes()).rows["y"].item())

    assert second(pd.DataFrame({"a": [1], 0: [2]}), "a", 0) == 2
    assert second(pd.DataFrame({"a": [1], "b": [2]}), 0, 1) == 2
    assert second(np.array([[5.0, 6.0]]), "x0", "x1") == 6
    assert second(pl.DataFrame({"a": [7], "b": [8]}), "b", "a") == 7
    with pytest.raises(ValueError, match=r"one of X's columns \('a'\) or a position, got 'b'"):
        second(pd.DataFrame({"a": [1]}), "a", "b")


# -- Intervals and residuals -------------------------------------------------------------------------------------------


def test_few_intervals_have_a_line_each() -> None:
    display = IntervalDisplay.from_predictions(Y, INTERVALS, x=pd.Series([5, 6, 7, 8], name="age"), ax=blank_axes())
    assert display.rows["covered"].tolist() == [True, False, True, True]
    lines = display.ax_.collections[0].get_segments()
    assert [segment[:, 1].tolist() for segment in lines] == INTERVALS.tolist()
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("age", "y")
    assert legend(display) == ["", "interval", "covered: 75 %", "missed: 25 %"]
    points = [collection.get_offsets().tolist() for collection in display.ax_.collections if collection.get_gid()]
    assert points == [[[5, 1], [7, 3], [8, 4]], [[6, 2]]]


def test_many_intervals_are_a_band_of_medians() -> None:
    x = np.repeat([1.0, 2.0], 150)
    lower, upper = np.tile(np.arange(150.0), 2), np.r_[np.full(150, 200.0), np.full(150, INF)]
    y = np.full(300, 100.0)
    display = IntervalDisplay.from_predictions(y, np.c_[lower, upper], x=x, max_points=40, ax=blank_axes())
    expected = {"left": [0.5, 1.5], "right": [1.5, 2.5], "n": [150, 150], "lower": [74.5] * 2, "upper": [200, INF]}
    assert display.bins.drop(columns="centre").to_dict("list") == expected
    assert len(display.drawn) == 40
    drawn = [c.get_offsets() for c in display.ax_.collections if c.get_gid()]
    assert sum(map(len, drawn)) == 40
    sideways = np.concatenate(drawn)[:, 0]
    assert 0 < np.abs(sideways - sideways.round()).max() <= 0.3  # and not farther
    note, *entries = legend(display)
    assert note == "medians in 2 bins, 40 of 300 points drawn"
    assert entries == ["median interval", "infinite upper bound", "covered: 67.3 %", "missed: 32.7 %"]


def test_infinite_bounds_are_triangles_at_the_edge() -> None:
    intervals = [[0, INF], [-INF, 3], [-INF, INF], [0, 4]]
    display = IntervalDisplay.from_predictions(Y, intervals, x=[1, 2, 3, 4], prediction=Y, ax=blank_axes())
    assert legend(display)[2:4] == ["infinite lower bound", "infinite upper bound"]
    low, high = display.ax_.get_ylim()
    segments = [segment[:, 1].tolist() for segment in display.ax_.collections[0].get_segments()]
    assert segments == [[0, high], [low, 3], [low, high], [0, 4]]
    triangles = [c.get_offsets().tolist() for c in display.ax_.collections if not c.get_clip_on()]
    assert triangles == [[[2, 0], [3, 0]], [[1, 1], [3, 1]]]
    with pytest.raises(ValueError, match="both bounds are infinite, as in row 2; give prediction="):
        IntervalDisplay.from_predictions(Y, intervals)


def test_missing_x_is_left_out_and_said() -> None:
    age = pd.Series([1, np.nan, 2, 3], name="age")
    display = IntervalDisplay.from_predictions(Y, INTERVALS, x=age, ax=blank_axes())
    assert legend(display)[0] == "1 rows without age left out"


def test_dates_are_dates() -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=4), name="day")
    display = IntervalDisplay.from_predictions(Y, INTERVALS, x=days, ax=blank_axes())
    display.figure_.draw_without_rendering()
    assert "2024-Jan" in display.ax_.xaxis.get_major_formatter().get_offset()


@pytest.mark.parametrize("span", ["3h", "30h", "20D", "65D", "200D", "25W", "900D", "1000D", "1095D", "40W", "30000D"])
def test_every_span_of_dates_has_a_scale(span: str) -> None:
    """Matplotlib warns of spans for which it finds none, and warnings are errors here."""
    days = pd.Series(pd.Timestamp("2021-01-15") + pd.Timedelta(span) * np.linspace(0, 1, 4), name="day")
    display = IntervalDisplay.from_predictions(Y, INTERVALS, x=days, ax=blank_axes())
    display.figure_.draw_without_rendering()
    assert 2 <= len(display.ax_.get_xticks()) <= 9


def test_estimators_intervals_are_its_own(models: dict[str, Any], rows: Any) -> None:
    X, y = rows
    display = IntervalDisplay.from_estimator(models["ICQR"], X, y, feature="x2", coverage=0.5, ax=blank_axes())
    assert np.array_equal(display.rows[["lower", "upper"]], models["ICQR"].predict_interval(X, 0.5))
    assert np.array_equal(display.rows["centre"], models["ICQR"].predict(X))
    assert np.array_equal(display.rows["x"], X["x2"])
    assert set(gids(display)) == {f"group-{g}" for g in display.rows["group"]}


def test_width_residual_data() -> None:
    display = WidthResidualDisplay.from_predictions(
        Y, INTERVALS, coverage=0.5, prediction=[1, 1, 1, 1], ax=blank_axes()
    )
    assert display.rows["width"].tolist() == [1, 0.5, 2, 4]
    assert display.rows["residual"].tolist() == [0, 1, 2, 3]
    assert display.bins["width"].tolist() == [0.5, 1, 2, 4]
    assert display.bins["residual"].tolist() == [1, 0, 2, 3]
    assert legend(display) == ["", "covered: 75 %", "missed: 25 %", "half the width", "50 % quantile"]


def test_width_residual_quantile_lies_on_half_the_width_when_intervals_adapt() -> None:
    rng = np.random.default_rng(0)
    scale = rng.uniform(1, 3, 20_000)
    intervals = 1.6449 * scale[:, None] * [-1, 1]
    display = WidthResidualDisplay.from_predictions(
        rng.normal(size=20_000) * scale, intervals, coverage=0.9, ax=blank_axes()
    )
    assert display.bins["n"].min() >= 50
    assert np.allclose(display.bins["residual"], display.bins["width"] / 2, rtol=0.08)
    assert legend(display)[0] == "1,000 of 20,000 points drawn"


def test_infinite_widths_are_at_the_right_edge() -> None:
    display = WidthResidualDisplay.from_predictions(Y, [[0, INF]] * 4, coverage=0.9, ax=blank_axes())
    assert display.bins.empty
    assert display.rows["residual"].tolist() == [1, 2, 3, 4]
    (edge,) = (c for c in display.ax_.collections if not c.get_clip_on())
    assert edge.get_offsets().tolist() == [[1, 1], [1, 2], [1, 3], [1, 4]]
    assert legend(display)[-2:] == ["infinite width", "half the width"]


# -- Coverage ----------------------------------------------------------------------------------------------------------


def test_group_coverage_with_exact_intervals() -> None:
    display = GroupCoverageDisplay.from_predictions(Y, INTERVALS, ["a", "a", "a", "b"], coverage=0.9, ax=blank_axes())
    assert display.table["coverage"].to_list() == [2 / 3, 1]
    assert display.overall["coverage"].to_list() == [0.75]
    assert np.allclose(display.table.loc[0, ["coverage_lower", "coverage_upper"]].astype(float), [
        beta.ppf(0.025, 2, 2), beta.ppf(0.975, 3, 1),
    ])  # fmt: skip
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == ["all\u2002n = 4", "a\u2002n = 3", "b\u2002n = 1"]
    assert gids(display) == ["group-0"] * 2 + ["group-1"] * 2  # an interval and a mark each
    assert legend(display)[1] == "promised: 90 %"


def test_a_mark_is_open_where_the_promise_is_outside() -> None:
    y, intervals = np.arange(100.0), np.tile([0.0, 200.0], (100, 1))
    intervals[:30] += 300  # of the first 50 rows, 20 are covered
    display = GroupCoverageDisplay.from_predictions(y, intervals, np.arange(100) // 50, coverage=0.95, ax=blank_axes())
    marks = {line.get_gid(): line.get_markerfacecolor() for line in display.ax_.lines if line.get_marker() != "None"}
    assert marks["group-0"] == "#ffffff"
    assert marks["group-1"] == method_color("intervals")


def test_of_many_groups_the_least_covered_are_drawn() -> None:
    y, intervals = np.repeat([0.0, 5.0], 50), np.tile([-1.0, 1.0], (100, 1))
    display = GroupCoverageDisplay.from_predictions(
        y, intervals, np.arange(100) // 10, coverage=0.9, max_groups=4, ax=blank_axes()
    )
    assert len(display.table) == 10
    assert len(display.ax_.get_yticks()) == 1 + 4
    assert legend(display)[0].replace("\n", " ").startswith("the 4 least covered of 10 groups")
    assert set(gids(display)) == {"group-5", "group-6", "group-7", "group-8"}


def test_groups_are_those_of_the_finest_model_and_methods_apart(
    models: dict[str, Any], displays: dict[str, Any], rows: Any
) -> None:
    table = displays["methods"].table
    n_groups = models["ICQR"].partition_.n_groups_
    assert len(table) == 4 * n_groups
    groups = models["ICQR"].explain(rows[0])["group"].to_numpy()
    hit = (lambda i: (i[:, 0] <= rows[1]) & (rows[1] <= i[:, 1]))(models["CQR"].predict_interval(rows[0]))
    assert np.allclose(
        table.loc[table["method"] == "CQR", "coverage"], [hit[groups == g].mean() for g in range(n_groups)]
    )
    heights = {round(float(line.get_ydata()[0]), 6) for line in displays["methods"].ax_.lines if line.get_gid()}
    assert len(heights) == 4 * n_groups


def test_a_users_own_groups_have_their_names() -> None:
    X, y = make_heteroscedastic(400, n_features=2, random_state=0, return_X_y=True)
    X["city"] = np.where(X["x1"] > 0.5, "Bern", "Genf")
    model = ICQR(
        HistGradientBoostingRegressor(max_iter=5, random_state=0), 0.8, partition=GroupPartition("city"), random_state=0
    ).fit(X, y)
    display = GroupCoverageDisplay.from_estimator(model, X, y, ax=blank_axes())
    names = [label.get_text().partition("\u2002")[0] for label in display.ax_.get_yticklabels()]
    assert names == ["all", "city = Bern", "city = Genf"]
    with pytest.raises(ValueError, match="without importances_; for a map of groups name two columns with features="):
        GroupMapDisplay.from_estimator(model, X)
    with pytest.raises(ValueError, match="which tries several k; got a GroupPartition"):
        ExplainedVarianceDisplay.from_estimator(model)


def test_reliability_by_hand() -> None:
    intervals = np.stack([INTERVALS, np.tile([0.0, INF], (4, 1))], axis=-1)
    display = ReliabilityDisplay.from_predictions(Y, {"mine": intervals}, [0.5, 0.9], ax=blank_axes())
    assert display.table[["method", "asked", "observed", "n"]].values.tolist() == [
        ["mine", 0.5, 0.75, 4],
        ["mine", 0.9, 1, 4],
    ]
    assert np.allclose(display.table["lower"], [beta.ppf(0.025, 3, 2), beta.ppf(0.025, 4, 1)])
    assert display.ax_.lines[1].get_ydata().tolist() == [0.75, 1]
    # Both axes are alike and begin below all that is drawn: here the band at 50 %, from 19.4 %.
    assert display.ax_.get_xlim() == display.ax_.get_ylim() == pytest.approx((0.15, 1))
    with pytest.raises(ValueError, match=r"shape \(n, 2, 1\)"):
        ReliabilityDisplay.from_predictions(Y, intervals, [0.5])


def test_reliability_asks_what_the_models_can_answer(displays: dict[str, Any], models: dict[str, Any]) -> None:
    asked = displays["reliability"].table.groupby("method")["asked"].apply(list)
    assert asked["QR"] == [0.8]
    assert asked["CQR"][0] == 0.1
    smallest = models["ICQR"].calibration_.sizes[:-1].min()
    assert max(asked["ICQR"]) == 0.98  # needs 49 calibration rows in each group, and 0.99 needs 99
    assert 49 <= smallest < 99


# -- Widths ------------------------------------------------------------------------------------------------------------


def test_widths_and_their_summary() -> None:
    display = WidthDisplay.from_predictions(
        pd.Series(Y, name="kWh"), {"CQR": INTERVALS, "half": [[0, 1], [0, INF], [0, 3], [-INF, INF]]}, ax=blank_axes()
    )
    assert display.widths["CQR"].tolist() == [1, 0.5, 2, 4]
    assert display.summary.loc["CQR", ["mean", "median", "n_infinite"]].tolist() == [1.875, 1.5, 0]
    assert display.summary.loc["half", ["mean", "n_infinite"]].tolist() == [2, 2]
    assert display.ax_.get_xlabel() == "width of the interval, in units of kWh"
    assert [text.get_text() for text in display.ax_.texts] == ["mean 2, 50 % infinite ▶", "mean 1.875"]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["half", "CQR"]


def test_widths_far_beyond_are_counted_not_drawn() -> None:
    intervals = np.tile([0.0, 1.0], (1000, 1))
    intervals[0, 1] = 1e6
    display = WidthDisplay.from_predictions(np.zeros(1000), intervals, ax=blank_axes())
    assert display.ax_.get_xlim()[1] < 2
    assert display.ax_.texts[0].get_text() == "mean 1,001, 0.10 % beyond ▶"


@pytest.mark.parametrize("interval", [[-INF, INF], [0.0, 0.0]])
def test_widths_that_are_all_infinite_or_zero(interval: list[float]) -> None:
    display = WidthDisplay.from_predictions(np.zeros(5), [interval] * 5, ax=blank_axes())
    display.figure_.draw_without_rendering()
    with pytest.raises(ValueError, match="at least one method"):
        WidthDisplay.from_predictions(np.zeros(5), {})


# -- Importance and groups ---------------------------------------------------------------------------------------------


def test_importance_bars_are_sorted_and_the_rest_is_one() -> None:
    table = pd.DataFrame({"feature": list("abcd"), "mean": [1.0, 4, 2, 3], "std": [0.1, 0.2, 0.3, 0.4]})
    table["share"] = table["mean"] / 10
    display = ImportanceDisplay.from_importances(table, max_features=2, ax=blank_axes())
    assert display.table["feature"].tolist() == ["b", "d", "c", "a"]
    assert display.shown["feature"].tolist() == ["b", "d", "2 other columns"]
    assert np.allclose(display.shown["share"], [0.4, 0.3, 0.3])
    assert np.allclose(display.shown["spread"], [0.02, 0.04, np.nan], equal_nan=True)
    assert [bar.get_width() for bar in display.ax_.patches] == display.shown["share"].tolist()
    assert [text.get_text() for text in display.ax_.texts] == ["40 %", "30 %", "30 %"]


def test_columns_without_importance_have_no_bar() -> None:
    table = pd.DataFrame({"feature": list("abc"), "mean": [2.0, 0, 0], "std": [0.1, 0, 0], "share": [1.0, 0, 0]})
    display = ImportanceDisplay.from_importances(table, ax=blank_axes())
    assert display.shown["feature"].tolist() == ["a"]
    assert display.table["feature"].tolist() == ["a", "b", "c"]
    assert "2 columns without any left out" in legend(display)[0].replace("\n", " ")


def test_importance_of_all_zero_is_said_not_drawn() -> None:
    table = pd.DataFrame({"feature": ["a", "b"], "mean": [0.0, 0.0], "std": [0.0, 0.0], "share": [0.0, 0.0]})
    display = ImportanceDisplay.from_importances(table, max_features=1, ax=blank_axes())
    display.figure_.draw_without_rendering()
    assert display.shown.empty
    assert display.table.equals(table)
    assert not display.ax_.patches
    assert not display.ax_.axison
    (sentence,) = display.ax_.texts
    assert sentence.get_text() == "All importances are zero: permuting a column changes no prediction's error."
    with pytest.raises(ValueError, match="max_features must be at least 1, got 0"):
        ImportanceDisplay.from_importances(table, max_features=0)


def test_importance_is_the_models(displays: dict[str, Any], models: dict[str, Any]) -> None:
    shares = models["ICQR"].importances_.set_index("feature")["share"]
    assert displays["importance"].shown.set_index("feature")["share"].to_dict() == shares.to_dict()
    with pytest.raises(ValueError, match="got a CQR without importances_"):
        ImportanceDisplay.from_estimator(models["CQR"])


def test_explained_variance_marks_the_choice(displays: dict[str, Any], models: dict[str, Any]) -> None:
    display, partition = displays["choice"], models["ICQR"].partition_
    assert display.path.equals(partition.path_)
    assert display.k == partition.k_ == 3
    assert legend(display) == ["", "chosen: k = 3"]
    ring = display.ax_.lines[-1]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (3, partition.path_["explained_variance"].iloc[-1])


def test_explained_variance_says_threshold_merging_and_silhouette() -> None:
    path = pd.DataFrame({"k": [1, 2, 3], "explained_variance": [0, 0.8, 0.95], "silhouette": [np.nan, 0.5, -0.1]})
    display = ExplainedVarianceDisplay(path, k=3, n_groups=2, threshold=0.9).plot(blank_axes())
    words = ["explained variance", "silhouette", "needed: 90 %", "chosen: k = 3, merged to 2 groups"]
    assert legend(display)[1:] == words
    assert display.ax_.get_ylim()[0] == -0.1


def test_map_shows_the_two_most_important_columns(displays: dict[str, Any], models: dict[str, Any], rows: Any) -> None:
    display, model = displays["map"], models["ICQR"]
    top = model.importances_.nlargest(2, "share")["feature"].tolist()
    assert [display.ax_.get_xlabel(), display.ax_.get_ylabel()] == top
    assert np.array_equal(display.rows[["x", "y"]], rows[0][top])
    assert gids(display) == [f"group-{g}" for g in range(model.partition_.n_groups_)]
    assert legend(display)[1:] == ["0", "1", "2"]


def test_a_legend_of_many_groups_is_no_wider_than_the_map() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(3000, 2)), columns=["a", "b"])
    display = GroupMapDisplay.from_labels(X, np.arange(3000) % 50, ["a", "b"], ax=blank_axes())
    display.figure_.draw_without_rendering()
    assert legend(display)[1:] == [str(group) for group in range(50)]
    box = display.ax_.get_legend().get_window_extent()
    assert display.ax_.bbox.width / 2 < box.width <= display.ax_.bbox.width
    assert box.y0 >= display.ax_.bbox.y1 - 1


def test_a_copy_of_the_most_important_column_is_not_drawn_against_it() -> None:
    x = np.linspace(1, 2, 50)
    X = pd.DataFrame({"a": x, "copy": -(x**3), "kind": ["u", "v"] * 25, "same": 1.0})
    table = pd.DataFrame({"feature": list(X.columns), "share": [0.4, 0.3, 0.2, 0.1]})

    def drawn(importances: pd.DataFrame) -> list[str]:
        model = SimpleNamespace(importances_=importances, assign=lambda X: np.zeros(len(X), dtype=int))
        display = GroupMapDisplay.from_estimator(model, X, ax=blank_axes())
        return [display.ax_.get_xlabel(), display.ax_.get_ylabel()]

    assert drawn(table) == ["a", "kind"]
    assert drawn(table.drop(index=2)) == ["a", "same"]
    assert drawn(table[:2]) == ["a", "copy"]
    with pytest.raises(ValueError, match="features must be two columns"):
        drawn(table[:1])


def test_map_of_labels_checks_its_input() -> None:
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["u", "v", "u"]})
    display = GroupMapDisplay.from_labels(X, [0, 0, -1], ["a", "b"], max_points=2, ax=blank_axes())
    assert legend(display) == ["2 of 3 points drawn", "no known group", "0"]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["u", "v"]
    assert set(gids(display)) == {"group-0", "group-none"}
    with pytest.raises(ValueError, match="features must be two columns"):
        GroupMapDisplay.from_labels(X, [0, 0, 1], ["a"])
    with pytest.raises(ValueError, match="groups must have 3 labels"):
        GroupMapDisplay.from_labels(X, [0, 0], ["a", "b"])
    with pytest.raises(ValueError, match="max_points must be at least 1, got 0"):
        GroupMapDisplay.from_labels(X, [0, 0, 1], ["a", "b"], max_points=0)


# -- Export ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def svgs(displays: dict[str, Any]) -> dict[str, str]:
    return {name: figure_to_svg(displays[name].figure_) for name in ("groups", "map", "prediction", "residuals")}


def test_svg_is_the_same_each_time(svgs: dict[str, str], displays: dict[str, Any]) -> None:
    assert figure_to_svg(displays["groups"].figure_) == svgs["groups"]


def test_svg_refers_to_nothing_but_its_own_parts(svgs: dict[str, str]) -> None:
    for svg in svgs.values():
        assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
        known = [element.get("id") for element in ElementTree.fromstring(svg).iter() if element.get("id")]
        assert len(set(known)) == len(known)
        assert set(re.findall(r"(?:url\(|href=\")#([^\")]+)", svg)) == set(known)


def test_svgs_of_different_pictures_share_no_identifiers(svgs: dict[str, str]) -> None:
    known = [set(re.findall(r' id="([^"]+)"', svg)) for svg in svgs.values()]
    assert all(known)
    assert len(set.union(*known)) == sum(map(len, known))


def test_groups_are_classes_in_svg(svgs: dict[str, str]) -> None:
    for name, svg in svgs.items():
        assert set(re.findall(r'class="([^"]+)"', svg)) == {"group-0", "group-1", "group-2"}, name


def test_svg_follows_the_page_and_can_be_read_aloud(svgs: dict[str, str], displays: dict[str, Any]) -> None:
    assert "#000000" not in svgs["groups"]
    assert "currentColor" in svgs["groups"]
    assert 'role="img"' in svgs["groups"]
    assert ">Coverage by group</text>" in svgs["groups"]
    assert "<title>Coverage by group</title>" in svgs["groups"]
    named = figure_to_svg(displays["choice"].figure_, title="A <b>bold</b> claim")
    assert "<title>A &lt;b&gt;bold&lt;/b&gt; claim</title>" in named


def test_dark_styles_are_respected() -> None:
    with mpl.style.context("dark_background"):
        display = IntervalDisplay.from_predictions(Y, INTERVALS, ax=blank_axes())
    crosses = display.ax_.collections[-1].get_edgecolor()
    assert crosses[0].tolist() == [1, 1, 1, 1]


# -- Without matplotlib ------------------------------------------------------------------------------------------------

_BLOCKED = """
import sys, warnings
warnings.simplefilter("error")
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'")
sys.meta_path.insert(0, Block())
import icqr, icqr.plots
for use in (lambda: icqr.plots.WidthDisplay.from_predictions([0.0], [[0, 1]]), icqr.plots.blank_axes):
    try:
        use()
    except ImportError as error:
        print(error)
"""


def test_without_matplotlib_only_the_use_fails_and_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", _BLOCKED], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ['pictures need matplotlib: pip install "icqr[plot]"'] * 2, done.stderr


def test_no_warnings_for_a_constant_column() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        display = IntervalDisplay.from_predictions(np.zeros(200), np.tile([0.0, 0.0], (200, 1)), ax=blank_axes())
        display.figure_.draw_without_rendering()
    assert display.bins["n"].tolist() == [200]


def test_a_monitor_shows_the_groups_with_an_alarm() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=3000), "g": rng.integers(3, size=3000)})
    y = rng.normal(size=3000) * (1 + 2 * ((X["g"] == 1) & (X.index >= 2000)))
    model = ICQR(HistGradientBoostingRegressor(max_iter=10), partition=GroupPartition("g"), random_state=0)
    monitor = Monitor(model.fit(X[:1000], y[:1000]))
    with pytest.raises(ValueError, match="has counted no rows yet"):
        MonitorDisplay.from_monitor(monitor, ax=blank_axes())
    for start in range(1000, 2000, 100):
        monitor.update(X[start : start + 100], y[start : start + 100])
    assert len(MonitorDisplay.from_monitor(monitor, ax=blank_axes()).groups) == 1
    for start in range(2000, 3000, 100):
        monitor.update(X[start : start + 100], y[start : start + 100])
    display = MonitorDisplay.from_monitor(monitor, ax=blank_axes())
    assert display.groups[0] == "1"
    assert "group 1 (g = 1)" in figure_to_svg(display.figure_)
    assert MonitorDisplay.from_monitor(monitor, groups=[2, "all"], ax=blank_axes()).groups == ["2", "all"]
    with pytest.raises(ValueError, match="groups must be groups that had rows"):
        MonitorDisplay.from_monitor(monitor, groups=[7], ax=blank_axes())
