"""Intervals against a feature or against the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.metrics.checks import Floats, Integers
from icqr.plots.columns import Placed, find_column, sample_rows
from icqr.plots.display import Display, heading, ink, need
from icqr.plots.points import beyond_note, draw_points, mark_infinite, point_legend, sample_note
from icqr.plots.predictions import name_of, predictions_of, row_table
from icqr.plots.style import Options, method_color, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Up to so many rows, each interval is drawn.
MOST_LINES = 100


@dataclass(eq=False)
class IntervalDisplay(Display):
    """Intervals against a feature or the prediction, with the targets that they cover and miss.

    Up to 100 rows have a line each. More are drawn as a band: the medians of the lower and of the upper bounds in bins
    of x (equally wide, joined where they hold less than 20 rows; or one for each of at most `n_bins` values). Targets
    are points; of more than `max_points` a random sample, and the heading says how many. Where values of x are few,
    points are moved sideways; where a few are far beyond all others, the axis ends earlier, and the heading says how
    many are beyond. Triangles at the edge mark infinite bounds.

    Attributes
    ----------
    rows : DataFrame
        A row per target: x (its place on the axis), y, lower, upper, covered, centre (the prediction), group.
    bins : DataFrame
        A row per bin of x: left, right, n, and the medians of lower, upper and centre.
    drawn : array
        Which rows are drawn as points.
    column : Placed
        Name, values and categories of x.
    method, y_name : str
        Names.
    places : array
        Where the drawn points are on the axis.
    predicted : bool
        Whether centre is a prediction, and not the middle of the interval.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> display = IntervalDisplay.from_predictions([1, 2, 3], [[0, 2], [0, 1], [2, 4]], x=[5, 6, 7], ax=blank_axes())
    >>> display.rows["covered"].tolist(), display.ax_.get_ylabel()
    ([True, False, True], 'y')
    """

    rows: pd.DataFrame
    bins: pd.DataFrame
    drawn: Integers
    column: Placed
    method: str
    y_name: str
    places: Floats
    predicted: bool

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        *,
        feature: Any = None,
        coverage: float | None = None,
        n_bins: int = 30,
        max_points: int = 1000,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a model's intervals.

        Parameters
        ----------
        model : fitted Naive, QR, CQR or ICQR
        X, y : table and array
            Rows that the model has not seen.
        feature : column name or position, optional
            What x is; by default the prediction.
        coverage : float, optional
            By default the model's own.
        n_bins, max_points, random_state : int
            Number of bins for the band; how many targets are drawn at most; seed of their choice.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        x = None if feature is None else find_column(X, feature)
        options: Options = {"n_bins": n_bins, "max_points": max_points, "random_state": random_state, "ax": ax}
        return cls.from_predictions(y, x=x, **predictions_of(model, X, coverage), **options)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        intervals: ArrayLike,
        *,
        x: Any = None,
        prediction: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        x_name: str | None = None,
        y_name: str | None = None,
        method: str = "intervals",
        n_bins: int = 30,
        max_points: int = 1000,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw intervals from anywhere.

        Parameters
        ----------
        y, intervals : arrays of shape (n,) and (n, 2)
            Bounds may be infinite.
        x : (n,) array, optional
            Numbers, dates or categories; by default the prediction.
        prediction : (n,) array, optional
            By default the middle of the interval, or its finite bound.
        groups : (n,) array, optional
            Only names the points, for highlighting.
        x_name, y_name : str, optional
            By default the names of pandas columns.
        method : str
            Name and colour.
        n_bins, max_points, random_state, ax : optional
            As in `from_estimator`.
        """
        rows = row_table(y, intervals, prediction, groups)
        default = "middle of the interval" if prediction is None else "prediction"
        placed = Placed.of(rows["centre"], x_name or default) if x is None else Placed.of(x, x_name)
        if len(placed.values) != len(rows):
            raise ValueError(f"x must have {len(rows)} values, one per row of y; got {len(placed.values)}")
        rows.insert(0, "x", placed.values)
        rng = np.random.default_rng(random_state)
        drawn = sample_rows(len(rows), max_points, rng)
        bins, places, target = _binned(rows, placed, n_bins), placed.spread(drawn, rng), name_of(y, y_name) or "y"
        return cls(rows, bins, drawn, placed, method, target, places, prediction is not None).plot(ax)

    def _draw(self, ax: Axes) -> None:
        each = len(self.rows) <= MOST_LINES
        shown = self.rows.iloc[self.drawn]
        places = shown["x"].to_numpy() if each else self.places
        limits = _limits(self.rows if each else self.bins, shown["y"].to_numpy())
        legend = self._lines(ax, limits) if each else self._band(ax, limits)
        draw_points(ax, places, shown["y"].to_numpy(), shown)
        ax.set_ylim(*limits)
        self.column.label(ax.xaxis)
        ends = None if each else self.column.ends()
        if ends is not None:
            ax.set_xlim(*ends)
        ax.set_ylabel(plain(self.y_name))
        note = self._note(self.column.n_beyond(ends))
        title = "Intervals" if self.method == "intervals" else f"{plain(self.method)} intervals"
        heading(ax, title, [*point_legend(ax, self.rows), *legend], note)

    def _note(self, beyond: int) -> str:
        missing = self.column.n_missing
        left_out = f"{missing:,} rows without {plain(self.column.name, 20)} left out" if missing else ""
        medians = f"medians in {len(self.bins)} bins" if len(self.rows) > MOST_LINES else ""
        parts = [medians, sample_note(self.drawn, len(self.rows)), left_out, beyond_note(beyond)]
        return ", ".join(filter(None, parts))

    def _lines(self, ax: Axes, limits: tuple[float, float]) -> list[tuple[Artist, str]]:
        x, lower, upper = (self.rows[name].to_numpy() for name in ("x", "lower", "upper"))
        color = method_color(self.method)
        lines = ax.vlines(x, np.clip(lower, *limits), np.clip(upper, *limits), color=color, alpha=0.6, linewidth=1.6)
        infinite = mark_infinite(ax, x[np.isinf(upper)], "top") + mark_infinite(ax, x[np.isinf(lower)], "bottom")
        return [(lines, "interval"), *infinite]

    def _band(self, ax: Axes, limits: tuple[float, float]) -> list[tuple[Artist, str]]:
        edges = np.append(self.bins["left"], self.bins["right"].iloc[-1])
        lower, upper = self.bins["lower"].to_numpy(), self.bins["upper"].to_numpy()
        low, high, color = np.clip(lower, *limits), np.clip(upper, *limits), method_color(self.method)
        band = ax.stairs(high, edges, baseline=low, fill=True, color=color, alpha=0.22, linewidth=0)
        for bound in (low, high):
            ax.stairs(bound, edges, baseline=None, color=color, linewidth=1.5, zorder=2.5)
        middle = (edges[1:] + edges[:-1]) / 2
        infinite = mark_infinite(ax, middle[np.isposinf(upper)], "top")
        infinite += mark_infinite(ax, middle[np.isneginf(lower)], "bottom")
        return [(band, "median interval"), *self._prediction(ax, edges), *infinite]

    def _prediction(self, ax: Axes, edges: Floats) -> list[tuple[Artist, str]]:
        if not self.predicted:
            return []
        dashes: Options = {"color": ink(ax), "linewidth": 1, "linestyle": (0, (2, 1))}
        ax.stairs(self.bins["centre"], edges, baseline=None, zorder=2.5, **dashes)
        return [(need("matplotlib.lines").Line2D([], [], **dashes), "prediction")]


def _binned(rows: pd.DataFrame, x: Placed, n_bins: int) -> pd.DataFrame:
    """Give a row per bin, NaN in one without rows."""
    codes, edges = x.bins(n_bins, ends=x.ends())
    members = [np.flatnonzero(codes == code) for code in range(len(edges) - 1)]
    table = pd.DataFrame({"left": edges[:-1], "right": edges[1:], "n": [len(rows_of) for rows_of in members]})
    for name in ("lower", "upper", "centre"):
        values = rows[name].to_numpy()
        table[name] = [np.median(values[rows_of]) if len(rows_of) else np.nan for rows_of in members]
    return table


def _limits(bounds: pd.DataFrame, y: Floats) -> tuple[float, float]:
    """Give the lowest and highest finite value that is drawn, and a little more."""
    values = np.concatenate([bounds["lower"], bounds["upper"], y])
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin
