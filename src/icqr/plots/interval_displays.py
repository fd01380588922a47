"""Intervals with the targets they cover and miss: against a feature or the prediction, and against the error."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr._predicting import IntervalRegressor
from icqr._rows import target_name
from icqr._tables import FloatArray, IntArray
from icqr.metrics.marginal import check_rows, check_share
from icqr.plots.axes import (
    LOG_SCALE,
    AxisColumn,
    find_column,
    heading,
    in_units,
    ink,
    percent,
    plain,
    sample_note,
    sample_rows,
    suits_log,
)
from icqr.plots.displays import GREY, WHITE, Display, Options, group_gid, group_numbers, method_look, named_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

#: Up to this many rows, each has a line; more are drawn as a band.
MOST_LINES = 100


@dataclass(eq=False, repr=False)
class IntervalDisplay(Display):
    """Intervals against a feature or the prediction, with the targets that they cover and miss.

    Up to 100 rows have a line each. More are drawn as a band: the medians of the lower and of the upper bounds in bins
    of x (of equally many rows, at least 20; or one for each of at most `n_bins` values). Targets are points; of more
    than `max_points` a random sample, and the heading says how many. Where values of x are few, points are moved
    sideways; where a few are far beyond all others, the axis ends earlier, and the heading says how many are beyond.
    Triangles at the edge mark infinite bounds. A positive target that is skewed to the right, such as a price, has a
    log axis; there triangles mark all bounds below a third of the smallest target that is drawn.

    Attributes
    ----------
    rows : DataFrame
        A row per target: x (its place on the axis), y, lower, upper, covered, centre (the prediction), group.
    bins : DataFrame
        A row per bin of x: left, right, n, and the medians of lower, upper and centre.
    drawn : array
        Which rows are drawn as points.
    column : AxisColumn
        Name, values and categories of x.
    method, y_name : str
        Names.
    predicted : bool
        Whether centre is a prediction, and not the middle of the interval.
    log : bool
        Whether the target's axis is logarithmic.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> display = IntervalDisplay.from_predictions([1, 2, 3], [[0, 2], [0, 1], [2, 4]], x=[5, 6, 7], ax=blank_axes())
    >>> display.rows["covered"].tolist(), display.ax_.get_ylabel()
    ([True, False, True], 'y')
    """

    rows: pd.DataFrame
    bins: pd.DataFrame
    drawn: IntArray
    column: AxisColumn
    method: str
    y_name: str
    predicted: bool
    log: bool

    @classmethod
    def from_estimator(
        cls,
        model: IntervalRegressor,
        X: ArrayLike,
        y: ArrayLike,
        *,
        feature: Hashable = None,
        coverage: float | None = None,
        **options: Any,
    ) -> Self:
        """Draw a model's intervals.

        Parameters
        ----------
        model : fitted Naive, QR, CQR, ICQR or AutoICQR
        X, y : table and array
            Rows that the model has not seen.
        feature : column name or position, optional
            What x is; by default the prediction.
        coverage : float, optional
            By default the model's own.
        **options
            Of :meth:`from_predictions`: `n_bins`, `max_points`, `ax`.
        """
        x = None if feature is None else find_column(X, feature)
        return cls.from_predictions(y, x=x, **_predictions(model, X, coverage), **options)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        intervals: ArrayLike,
        *,
        x: ArrayLike | None = None,
        prediction: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        method: str = "intervals",
        n_bins: int = 30,
        max_points: int = 1000,
        ax: Axes | None = None,
    ) -> Self:
        """Draw intervals from anywhere.

        Parameters
        ----------
        y, intervals : arrays of shape (n,) and (n, 2)
            Bounds may be infinite. A pandas or polars column gives its name to the axis.
        x : (n,) array, optional
            Numbers, dates or categories, with its name like y; by default the prediction.
        prediction : (n,) array, optional
            By default the middle of the interval, or its finite bound.
        groups : (n,) array, optional
            Only names the points, for highlighting.
        method : str
            Name and colour.
        n_bins, max_points : int
            Number of bins for the band; how many targets are drawn at most.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        rows = _row_table(y, intervals, prediction, groups)
        log = suits_log(rows["y"].to_numpy())
        if x is None:
            x = rows["centre"].rename("middle of the interval" if prediction is None else "prediction")
            column = AxisColumn.from_values(x, log and bool((x > 0).all()))
        else:
            column = AxisColumn.from_values(x)
        if len(column.values) != len(rows):
            raise ValueError(f"x must have {len(rows)} values, one per row of y; got {len(column.values)}")
        rows.insert(0, "x", column.values)

        codes, edges = column.bins(n_bins, least=20)
        bins = pd.DataFrame({"left": edges[:-1], "right": edges[1:]})
        bins["n"] = np.bincount(codes[codes >= 0], minlength=len(bins))
        bins = bins.join(rows.groupby(codes)[["lower", "upper", "centre"]].median())  # NaN in a bin without rows

        drawn, name = sample_rows(len(rows), max_points), target_name(y) or "y"
        return cls(rows, bins, drawn, column, method, name, prediction is not None, log).plot(ax)

    def _draw(self, ax: Axes) -> None:
        each, shown = len(self.rows) <= MOST_LINES, self.rows.iloc[self.drawn]
        bounds = (self.rows if each else self.bins)[["lower", "upper"]].to_numpy()

        limits = self._limits(bounds, shown["y"].to_numpy())
        if self.log:
            ax.set_yscale("log")

        # Intervals: a line each, or a band; bounds beyond the axis end at the edge of the picture, with a triangle.
        low, high = np.clip(bounds, *limits).T
        if each:
            x, places = self.rows["x"].to_numpy(), shown["x"].to_numpy()
            lines: Options = {"color": method_look(self.method).color, "alpha": 0.6, "linewidth": 1.6}
            ax.vlines(x, low, high, label="interval", **lines)
        else:
            x = (self.bins["left"] + self.bins["right"]).to_numpy() / 2
            places = self.column.spread(self.drawn, np.random.default_rng(0))
            self._draw_band(ax, low, high)
        edges = ax.get_xaxis_transform()
        below = "lower bound below the axis" if self.log else "infinite lower bound"
        _mark_infinite(ax, x[bounds[:, 0] < limits[0]], 0.0, "v", below, edges)
        _mark_infinite(ax, x[np.isinf(bounds[:, 1])], 1.0, "^", "infinite upper bound", edges)
        _draw_points(ax, places, shown["y"].to_numpy(), shown, self.rows)

        self.column.label(ax.xaxis)
        ax.set(xlim=self.column.ends, ylim=limits, ylabel=plain(self.y_name) + LOG_SCALE * self.log)
        missing = int(self.rows["x"].isna().sum())
        heading(
            ax,
            "Intervals" if self.method == "intervals" else f"{plain(self.method)} intervals",
            "" if each else f"medians in {len(self.bins)} bins",
            f"{missing:,} rows without {plain(self.column.name, 20)} left out" if missing else "",
            sample_note(self.drawn, len(self.rows), self.column),
        )

    def _limits(self, bounds: FloatArray, y: FloatArray) -> tuple[float, float]:
        """Return where the target's axis ends: it holds all that is drawn and finite, and a little more."""
        values = np.append(bounds, y)
        finite = values[np.isfinite(values)]
        if not self.log:
            margin = 0.05 * np.ptp(finite) or 1.0
            return float(finite.min() - margin), float(finite.max() + margin)
        # A lower bound near 0 or below would squeeze all else.
        low, high = max(finite.min(), y.min() / 3), finite.max()
        margin = (high / low) ** 0.05
        return float(low / margin), float(high * margin)

    def _draw_band(self, ax: Axes, low: FloatArray, high: FloatArray) -> None:
        """Draw the medians of the bounds in each bin, and of the prediction."""
        edges, color = np.append(self.bins["left"], self.bins["right"].iloc[-1]), method_look(self.method).color
        area: Options = {"fill": True, "color": color, "alpha": 0.22, "linewidth": 0}
        ax.stairs(high, edges, baseline=low, label="median interval", **area)
        for bound in (low, high):
            ax.stairs(bound, edges, baseline=None, color=color, linewidth=1.5, zorder=2.5)
        if self.predicted:
            dashes: Options = {"color": ink(ax), "linewidth": 1, "linestyle": (0, (2, 1)), "zorder": 2.5}
            ax.stairs(self.bins["centre"], edges, baseline=None, **dashes)
            ax.plot([], [], label="prediction", **dashes)  # in the legend a line, not a box


@dataclass(eq=False, repr=False)
class WidthResidualDisplay(Display):
    """Absolute residuals against widths.

    The dotted line is half the width. The line with marks is the `coverage` quantile of the absolute residuals in bins
    of the width (of equally many rows, at least 50). Where intervals adapt to the error it runs along the dotted line;
    where it is above, they are too narrow. Infinite widths are at the right edge. Of more than `max_points` rows a
    random sample is drawn, and the heading says how many.

    Attributes
    ----------
    rows : DataFrame
        A row per target: width, residual (absolute), and y, lower, upper, covered, centre (the prediction), group.
    bins : DataFrame
        A row per bin of the finite widths: n, their mean as width, and the quantile of residual.
    drawn : array
        Which rows are drawn as points.
    coverage : float
        The promise.
    method, y_name : str
        Names.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> y, intervals = [1, 2, 3], [[0, 2], [2, 3], [2, 8]]
    >>> display = WidthResidualDisplay.from_predictions(y, intervals, coverage=0.9, ax=blank_axes())
    >>> display.rows["width"].tolist(), display.rows["residual"].tolist()
    ([2.0, 1.0, 6.0], [0.0, 0.5, 2.0])
    """

    rows: pd.DataFrame
    bins: pd.DataFrame
    drawn: IntArray
    coverage: float
    method: str
    y_name: str | None

    @classmethod
    def from_estimator(
        cls, model: IntervalRegressor, X: ArrayLike, y: ArrayLike, *, coverage: float | None = None, **options: Any
    ) -> Self:
        """Draw a model's widths; residuals are distances from its prediction.

        Parameters
        ----------
        model, X, y, coverage
            As in :meth:`IntervalDisplay.from_estimator`.
        **options
            Of :meth:`from_predictions`: `n_bins`, `max_points`, `ax`.
        """
        predictions = _predictions(model, X, coverage)
        coverage = model.coverage if coverage is None else coverage
        return cls.from_predictions(y, coverage=coverage, **predictions, **options)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        intervals: ArrayLike,
        *,
        coverage: float,
        prediction: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        method: str = "intervals",
        n_bins: int = 10,
        max_points: int = 1000,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the widths of intervals from anywhere.

        Parameters
        ----------
        y, intervals : arrays of shape (n,) and (n, 2)
            Bounds may be infinite.
        coverage : float
            What the intervals promise.
        prediction : (n,) array, optional
            What residuals are distances from; by default the middle of the interval, or its finite bound.
        groups, method, n_bins, max_points, ax : optional
            As in :meth:`IntervalDisplay.from_predictions`.
        """
        rows = _row_table(y, intervals, prediction, groups)
        rows.insert(0, "width", rows["upper"] - rows["lower"])
        rows.insert(1, "residual", (rows["y"] - rows["centre"]).abs())

        # In bins of the finite widths, the quantile that half the width should be.
        finite = rows[np.isfinite(rows["width"])]
        parts = finite.groupby(AxisColumn.from_values(finite["width"]).bins(n_bins, least=50)[0])
        quantile = parts["residual"].quantile(check_share("coverage", coverage))
        table = {"n": parts.size(), "width": parts["width"].mean(), "residual": quantile}
        bins = pd.DataFrame(table).reset_index(drop=True)
        drawn = sample_rows(len(rows), max_points)
        return cls(rows, bins, drawn, coverage, method, target_name(y)).plot(ax)

    def _draw(self, ax: Axes) -> None:
        shown, look = self.rows.iloc[self.drawn], method_look(self.method)
        width, residual = shown["width"].to_numpy(), shown["residual"].to_numpy()
        finite = np.isfinite(width)
        _draw_points(ax, width[finite], residual[finite], shown[finite], self.rows)
        _mark_infinite(ax, 1.0, residual[~finite], ">", "infinite width", ax.get_yaxis_transform())

        end = max([*width[finite], *self.bins["width"], 0.0]) or 1.0
        half: Options = {"color": ink(ax), "linestyle": ":", "linewidth": 1.5, "zorder": 2.5}
        ax.plot([0, end], [0, end / 2], label="half the width", **half)
        if len(self.bins):
            curve: Options = {"color": look.color, "linewidth": 2, "zorder": 2.6, "marker": look.marker}
            curve |= {"markersize": 6, "markeredgecolor": WHITE, "markeredgewidth": 0.8}
            label = f"{percent(self.coverage)} quantile"
            ax.plot(self.bins["width"], self.bins["residual"], label=label, **curve)

        ax.set_xlim(left=0)
        ax.set_ylim(0, 1.05 * (residual.max() or 1.0))
        ax.set(xlabel=in_units("width of the interval", self.y_name), ylabel=in_units("absolute error", self.y_name))
        heading(ax, f"{plain(self.method)}: width and error", sample_note(self.drawn, len(self.rows)))


# -- Rows with their intervals ---------------------------------------------------------------------------------


def _predictions(model: IntervalRegressor, X: ArrayLike, coverage: float | None) -> dict[str, Any]:
    """Return what `from_predictions` needs from a model: intervals, prediction, groups, and its name."""
    ((method, fitted),) = named_models([model]).items()
    table = fitted.explain(X, coverage)
    return {
        "intervals": table[["lower", "upper"]].to_numpy(),
        "prediction": table["median"].to_numpy(),
        "groups": table["group"].to_numpy(),
        "method": method,
    }


def _row_table(
    y: ArrayLike, intervals: ArrayLike, prediction: ArrayLike | None, groups: ArrayLike | None
) -> pd.DataFrame:
    """Return a row per target: y, lower, upper, covered, centre (the prediction, if there is one), group."""
    rows = check_rows(y, intervals)
    table = pd.DataFrame({"y": rows.y, "lower": rows.lower, "upper": rows.upper, "covered": rows.covered})
    for name, values in (("prediction", prediction), ("groups", groups)):
        if values is not None and np.shape(values) != (len(table),):
            wanted = f"({len(table)},), one value per row of y"
            raise ValueError(f"{name} must have the shape {wanted}; got {np.shape(values)}")

    if prediction is None:  # the middle of the interval, or its one finite bound
        with np.errstate(invalid="ignore"):
            middle = rows.lower / 2 + rows.upper / 2
        prediction = np.where(np.isfinite(middle), middle, np.where(np.isfinite(rows.lower), rows.lower, rows.upper))
        if not np.isfinite(prediction).all():
            row = int((~np.isfinite(prediction)).argmax())
            raise ValueError(f"prediction is needed where both bounds are infinite, as in row {row}; give prediction=")
    table["centre"] = np.asarray(prediction)
    table["group"] = 0 if groups is None else np.asarray(groups)
    return table


def _draw_points(ax: Axes, x: FloatArray, y: FloatArray, drawn: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Draw covered rows as grey dots and missed ones as crosses; the labels say their shares of all rows.

    Each group's points carry its name.
    """
    group, covered = drawn["group"].map(group_numbers(drawn["group"])).to_numpy(), drawn["covered"].to_numpy()
    hits = float(rows["covered"].mean())
    dots: Options = {"s": 10, "marker": "o", "color": GREY, "alpha": 0.6, "linewidth": 0, "zorder": 2.2}
    crosses: Options = {"s": 20, "marker": "x", "color": ink(ax), "linewidth": 1.1, "zorder": 2.4}
    for hit, look, word, share in ((True, dots, "covered", hits), (False, crosses, "missed", 1 - hits)):
        ax.scatter([], [], label=f"{word}: {percent(share)}", **look)
        for number in sorted(set(group[covered == hit])):
            chosen = (group == number) & (covered == hit)
            ax.scatter(x[chosen], y[chosen], gid=group_gid(number), **look)


def _mark_infinite(ax: Axes, x: ArrayLike, y: ArrayLike, marker: str, label: str, transform: Transform) -> None:
    """Mark infinite bounds, if there are any, by triangles at an edge of the picture."""
    across, along = np.broadcast_arrays(x, y)
    if across.size:
        look: Options = {"facecolor": WHITE, "edgecolor": ink(ax), "s": 26, "linewidth": 1, "zorder": 3}
        ax.scatter(across, along, marker=marker, label=label, transform=transform, clip_on=False, **look)
