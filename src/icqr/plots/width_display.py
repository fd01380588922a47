"""Distributions of widths, method by method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from icqr._sheet import cell
from icqr._tables import FloatArray
from icqr.metrics import width_summary
from icqr.metrics.checks import check_rows
from icqr.plots.displays import (
    Display,
    heading,
    in_units,
    ink,
    named_intervals,
    named_models,
    row_labels,
    shared_coverage,
    small_print,
    target_name,
)
from icqr.plots.style import WHITE, Options, method_color, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class WidthDisplay(Display):
    """Distribution of the widths of each method's intervals.

    For each method a histogram of the finite widths, as high as there is room, and below it a box from the first to the
    third quartile, whiskers from the 5th to the 95th percentile, the median as a gap and the mean as a diamond. If a
    few widths are far beyond all others, the axis ends earlier; how many are beyond, and how many are infinite, is
    written at the right edge, after the mean.

    Attributes
    ----------
    widths : dict of arrays
        The widths by method.
    summary : DataFrame
        A row per method: the statistics of :func:`icqr.metrics.width_summary`.
    y_name : str or None
        Name of the target.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> display = WidthDisplay.from_predictions([0, 0], {"CQR": [[0, 1], [0, 3]]}, ax=blank_axes())
    >>> display.summary.loc["CQR", "mean"]
    np.float64(2.0)
    """

    widths: dict[str, FloatArray]
    summary: pd.DataFrame
    y_name: str | None

    @classmethod
    def from_estimator(cls, models: Any, X: Any, y: Any, *, coverage: float | None = None, **options: Any) -> Self:
        """Draw the widths of one or several models.

        Parameters
        ----------
        models : fitted Naive, QR, CQR or ICQR; a list, or a mapping from names to such models
        X, y : table and array
            Rows to predict; y only gives its name.
        coverage : float, optional
            By default the models' own.
        **options
            Of :meth:`from_predictions`: `y_name`, `ax`.
        """
        named = named_models(models)
        level = shared_coverage(named, coverage)
        intervals = {name: model.predict_interval(X, level) for name, model in named.items()}
        return cls.from_predictions(y, intervals, **options)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        intervals: Any,
        *,
        y_name: str | None = None,
        method: str = "intervals",
        ax: Axes | None = None,
    ) -> Self:
        """Draw the widths of intervals from anywhere.

        Parameters
        ----------
        y : (n,) array
            Only checked, and asked for its name.
        intervals : (n, 2) array, or a mapping from methods to such arrays
            Bounds may be infinite.
        y_name : str, optional
            By default the name of a pandas column.
        method : str
            Name and colour, if `intervals` is one array.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        named = named_intervals(intervals, method)
        widths = {name: check_rows(y, bounds).width for name, bounds in named.items()}
        summary = pd.DataFrame({name: width_summary(y, bounds) for name, bounds in named.items()}).T
        return cls(widths, summary, target_name(y, y_name)).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more methods."""
        return 6.4, 1.3 + 0.85 * len(self.widths)

    def _draw(self, ax: Axes) -> None:
        finite = {method: width[np.isfinite(width)] for method, width in self.widths.items()}
        end = _axis_end([width for width in finite.values() if len(width)])
        for height, (method, width) in enumerate(reversed(self.widths.items())):
            if len(finite[method]):
                _draw_ridge(ax, height, finite[method], end, method_color(method))
            # The mean at the right edge, and what the axis does not show.
            shares = {"beyond ▶": np.isfinite(width) & (width > end), "infinite ▶": ~np.isfinite(width)}
            notes = [f"{percent(rows.mean(), 2)} {place}" for place, rows in shares.items() if rows.any()]
            mean = [f"mean {cell(float(finite[method].mean())).text}"] if len(finite[method]) else []
            look: Options = {"ha": "right", "va": "bottom", "fontsize": small_print(ax)}
            ax.text(0.995, height + 0.57, ", ".join(mean + notes), transform=ax.get_yaxis_transform(), **look)

        row_labels(ax, [plain(method, 20) for method in reversed(self.widths)])
        ax.set_xlim(0, end * 1.03)
        ax.set_ylim(-0.45, len(self.widths) - 0.2)
        ax.set_xlabel(in_units("width of the interval", self.y_name))
        heading(ax, "Widths of the intervals", note="box: middle half, gap: median, line: 5 to 95 %, ◇: mean")


def _axis_end(widths: list[FloatArray]) -> float:
    """Return where the axis ends: at the largest width, unless that is far beyond nearly all widths of every method."""
    largest = max((float(width.max()) for width in widths), default=1.0)
    usual = max((float(np.quantile(width, 0.99)) for width in widths), default=1.0)
    return (1.25 * usual if largest > 2 * usual else largest) or 1.0


def _draw_ridge(ax: Axes, height: int, finite: FloatArray, end: float, color: str) -> None:
    """Draw a method's histogram and, below it, box, whiskers, median and mean."""
    counts, edges = np.histogram(finite[finite <= end], bins=60, range=(0, end))
    tops, y = height + 0.55 * counts / counts.max(), height - 0.2
    ax.stairs(tops, edges, baseline=height, fill=True, color=color, alpha=0.35, linewidth=0)
    ax.stairs(tops, edges, baseline=height, color=color, linewidth=1)

    low, first, middle, third, high = np.quantile(finite, [0.05, 0.25, 0.5, 0.75, 0.95])
    ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt")
    ax.plot([first, third], [y, y], color=color, linewidth=8, solid_capstyle="butt")
    ax.plot(middle, y, marker="|", markersize=9, markeredgewidth=2, color=WHITE)
    ax.plot(finite.mean(), y, marker="D", markersize=5, color=WHITE, markeredgecolor=ink(ax), zorder=3)
