"""Distributions of widths, method by method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from icqr.auditing.findings import shown
from icqr.metrics import width_summary
from icqr.metrics.checks import Floats, check_rows
from icqr.plots.display import Display, heading, in_units, ink, number_axis, row_labels, small_print
from icqr.plots.predictions import name_of, named_intervals, named_models, shared_coverage
from icqr.plots.style import Options, method_color, percent, plain

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

    widths: dict[str, Floats]
    summary: pd.DataFrame
    y_name: str | None

    @classmethod
    def from_estimator(
        cls, models: Any, X: Any, y: Any, *, coverage: float | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the widths of one or several models.

        Parameters
        ----------
        models : fitted Naive, QR, CQR or ICQR; a list, or a mapping from names to such models
        X, y : table and array
            Rows to predict; y only gives its name.
        coverage : float, optional
            By default the models' own.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        named = named_models(models)
        asked = shared_coverage(named, coverage)
        return cls.from_predictions(y, {name: model.predict_interval(X, asked) for name, model in named.items()}, ax=ax)

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
        return cls(widths, summary, name_of(y, y_name)).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more methods."""
        return 6.4, 1.3 + 0.85 * len(self.widths)

    def _draw(self, ax: Axes) -> None:
        end = _end([width[np.isfinite(width)] for width in self.widths.values()])
        for height, (method, width) in enumerate(reversed(self.widths.items())):
            finite = width[np.isfinite(width)]
            if len(finite):
                _ridge(ax, height, finite[finite <= end], end, method)
                self._box(ax, height, finite, method)
            _numbers(ax, height, width, end)
        row_labels(ax, [plain(method, 20) for method in reversed(self.widths)])
        ax.set_xlim(0, end * 1.03)
        ax.set_ylim(-0.45, len(self.widths) - 0.2)
        number_axis(ax)
        ax.set_xlabel(in_units("width of the interval", self.y_name))
        heading(ax, "Widths of the intervals", note="box: middle half, gap: median, line: 5 to 95 %, ◇: mean")

    def _box(self, ax: Axes, height: int, finite: Floats, method: str) -> None:
        y, color = height - 0.2, method_color(method)
        low, first, middle, third, high = np.quantile(finite, [0.05, 0.25, 0.5, 0.75, 0.95])
        ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt")
        ax.plot([first, third], [y, y], color=color, linewidth=8, solid_capstyle="butt")
        ax.plot(middle, y, marker="|", markersize=9, markeredgewidth=2, color="#ffffff")
        ax.plot(finite.mean(), y, marker="D", markersize=5, color="#ffffff", markeredgecolor=ink(ax), zorder=3)


def _end(finite: list[Floats]) -> float:
    """Give where the axis ends: at the largest width, unless that is far beyond nearly all widths of every method."""
    parts = [width for width in finite if len(width)]
    if not parts:
        return 1.0
    largest = max(float(width.max()) for width in parts)
    usual = max(float(np.quantile(width, 0.99)) for width in parts)
    return (1.25 * usual if largest > 2 * usual else largest) or 1.0


def _ridge(ax: Axes, height: int, shown: Floats, end: float, method: str) -> None:
    counts, edges = np.histogram(shown, bins=60, range=(0, end))
    tops = height + 0.55 * counts / counts.max()
    color = method_color(method)
    ax.stairs(tops, edges, baseline=height, fill=True, color=color, alpha=0.35, linewidth=0)
    ax.stairs(tops, edges, baseline=height, color=color, linewidth=1)


def _numbers(ax: Axes, height: int, width: Floats, end: float) -> None:
    """Write the mean at the right edge, and what the axis does not show."""
    finite = np.isfinite(width)
    shares = {"beyond ▶": (finite & (width > end)).mean(), "infinite ▶": 1 - finite.mean()}
    notes = [f"{percent(share, 2)} {what}" for what, share in shares.items() if share]
    mean = [f"mean {shown(float(width[finite].mean()))}"] if finite.any() else []
    look: Options = {"ha": "right", "va": "bottom", "fontsize": small_print(ax)}
    ax.text(0.995, height + 0.57, ", ".join(mean + notes), transform=ax.get_yaxis_transform(), **look)
