"""Widths against absolute residuals: whether intervals are wide where the model is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.metrics.checks import Floats, Integers, check_share
from icqr.plots.columns import Placed, sample_rows
from icqr.plots.display import Display, heading, in_units, ink, number_axis
from icqr.plots.points import draw_points, mark_infinite, point_legend, sample_note
from icqr.plots.predictions import name_of, named_models, predictions_of, row_table, shared_coverage
from icqr.plots.style import Options, method_look, percent, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


@dataclass(eq=False)
class WidthResidualDisplay(Display):
    """Absolute residuals against widths.

    The dotted line is half the width. The line with marks is the `coverage` quantile of the absolute residuals in bins
    of the width (equally wide, at least 50 rows). Where intervals adapt to the error it runs along the dotted line;
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
    drawn: Integers
    coverage: float
    method: str
    y_name: str | None

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        *,
        coverage: float | None = None,
        n_bins: int = 10,
        max_points: int = 1000,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a model's widths; residuals are distances from its prediction.

        Parameters
        ----------
        model : fitted Naive, QR, CQR or ICQR
        X, y : table and array
            Rows that the model has not seen.
        coverage : float, optional
            By default the model's own.
        n_bins, max_points, random_state : int
            Number of bins of the width; how many rows are drawn at most; seed of their choice.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        promise = shared_coverage(named_models(model), coverage)
        options: Options = {"n_bins": n_bins, "max_points": max_points, "random_state": random_state, "ax": ax}
        return cls.from_predictions(y, coverage=promise, **predictions_of(model, X, promise), **options)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        intervals: ArrayLike,
        *,
        coverage: float,
        prediction: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        y_name: str | None = None,
        method: str = "intervals",
        n_bins: int = 10,
        max_points: int = 1000,
        random_state: int = 0,
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
        groups, y_name, method, n_bins, max_points, random_state, ax : optional
            As in :meth:`IntervalDisplay.from_predictions`.
        """
        rows = row_table(y, intervals, prediction, groups)
        rows.insert(0, "width", rows["upper"] - rows["lower"])
        rows.insert(1, "residual", (rows["y"] - rows["centre"]).abs())
        bins = _binned(rows, check_share("coverage", coverage), n_bins)
        drawn = sample_rows(len(rows), max_points, np.random.default_rng(random_state))
        return cls(rows, bins, drawn, coverage, method, name_of(y, y_name)).plot(ax)

    def _draw(self, ax: Axes) -> None:
        shown = self.rows.iloc[self.drawn]
        width, residual = shown["width"].to_numpy(), shown["residual"].to_numpy()
        finite = np.isfinite(width)
        draw_points(ax, width[finite], residual[finite], shown[finite])
        legend = [*point_legend(ax, self.rows), *self._lines(ax, width[finite])]
        legend += mark_infinite(ax, residual[~finite], "right")
        ax.set_xlim(left=0)
        ax.set_ylim(0, 1.05 * (residual.max() or 1.0))
        number_axis(ax)
        ax.set_xlabel(in_units("width of the interval", self.y_name))
        ax.set_ylabel(in_units("absolute error", self.y_name))
        heading(ax, f"{plain(self.method)}: width and error", legend, sample_note(self.drawn, len(self.rows)))

    def _lines(self, ax: Axes, width: Floats) -> list[tuple[Artist, str]]:
        end = max([*width, *self.bins["width"], 0.0]) or 1.0
        (half,) = ax.plot([0, end], [0, end / 2], color=ink(ax), linestyle=":", linewidth=1.5, zorder=2.5)
        entries: list[tuple[Artist, str]] = [(half, "half the width")]
        if len(self.bins):
            look = method_look(self.method)
            marks: Options = {
                "marker": look.marker,
                "markersize": 6,
                "markeredgecolor": "#ffffff",
                "markeredgewidth": 0.8,
            }
            (line,) = ax.plot(
                self.bins["width"], self.bins["residual"], color=look.color, linewidth=2, zorder=2.6, **marks
            )
            entries.append((line, f"{percent(self.coverage)} quantile"))
        return entries


def _binned(rows: pd.DataFrame, coverage: float, n_bins: int) -> pd.DataFrame:
    finite = rows[np.isfinite(rows["width"])]
    parts = finite.groupby(Placed.of(finite["width"]).bins(n_bins, least=50)[0])
    quantile = parts["residual"].quantile(coverage)
    return pd.DataFrame({"n": parts.size(), "width": parts["width"].mean(), "residual": quantile}).reset_index(
        drop=True
    )
