"""What all displays share: axes to draw on, a heading with a legend above the picture, and the way to SVG."""

from __future__ import annotations

import copy
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from icqr._messages import imported
from icqr.metrics.checks import Floats
from icqr.plots.export import figure_to_svg
from icqr.plots.style import GREY, percent, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


def need(module: str) -> Any:
    """Import a module of matplotlib, or say how to install it."""
    return imported(module, "pictures need", "icqr[plot]")


def blank_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Make axes on a figure of their own (sizes in inches) that pyplot does not know, so that nobody must close it.

    Examples
    --------
    >>> blank_axes(4, 3).figure.get_size_inches().tolist()
    [4.0, 3.0]
    """
    figure = need("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes: Axes = figure.add_subplot()
    return axes


class Display(ABC):
    """A picture with its data.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was last drawn.
    """

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches of a figure that is made for this picture."""
        return 6.4, 4.2

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure of pyplot.

        Returns
        -------
        self
        """
        if ax is None:
            ax = need("matplotlib.pyplot").subplots(figsize=self.size, layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.7)
        ax.set_axisbelow(True)
        self._draw(ax)
        _set_thousands_apart(ax)
        return self

    def to_svg(self, title: str | None = None) -> str:
        """Draw on a figure of its own and give that as SVG text; see :func:`icqr.plots.figure_to_svg`."""
        return figure_to_svg(copy.copy(self).plot(blank_axes(*self.size)).figure_, title=title)

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw on dressed axes."""


def ink(ax: Axes) -> Any:
    """Give the colour that text has in this picture: black, or what the user's style says."""
    return ax.xaxis.label.get_color()


def heading(ax: Axes, title: str, legend: Sequence[tuple[Artist, str]] = (), note: str = "") -> None:
    """Write a title and, between it and the picture, a note and a legend.

    Above the axes they hide nothing. The space they take is what the title keeps free.
    """
    if not legend and not note:
        ax.set_title(title, loc="left")
        return
    size, width = small_print(ax), points_of(ax)[0]
    note = textwrap.fill(note, max(20, int(width / (0.55 * size))))
    # matplotlib leaves out what starts with an underscore
    labels = [" " + text if text.startswith("_") else text for _, text in legend]
    columns = max(1, min(len(labels), int(width / (size * (0.5 * max(map(len, labels), default=0) + 4)))))
    box = ax.legend(
        [artist for artist, _ in legend],
        labels,
        title=note or None,
        alignment="left",
        ncols=columns,
        fontsize=size,
        title_fontsize=size,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        frameon=False,
        borderaxespad=0,
        borderpad=0.2,
        labelspacing=0.3,
        handlelength=1.8,
        columnspacing=1.5,
    )
    box.set_in_layout(False)  # the title reserves the height; a wide legend must not make the picture narrow
    lines = math.ceil(len(labels) / columns) + note.count("\n") + bool(note)
    ax.set_title(title, loc="left", pad=6 + 1.55 * size * lines)


def _inches(ax: Axes) -> tuple[float, float]:
    """Give width and height of the axes, as far as they are known before the layout."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def points_of(ax: Axes) -> Floats:
    """Give width and height of the axes in points, as far as they are known before the layout."""
    return 72 * np.array(_inches(ax))


def small_print(ax: Axes) -> float:
    """Give the size of small print, in points: smaller in small axes."""
    width, height = _inches(ax)
    return float(ax.title.get_fontsize()) * (0.7 if width > 3.2 and height > 1.2 else 0.58)


def percent_axis(ax: Axes, name: str, beside: int = 0) -> None:
    """Write shares on the "x" or "y" axis as percents, few enough to be read side by side.

    Names of rows, of at most `beside` letters, take some of the width when the picture is laid out.
    """
    axis, room = (ax.xaxis, 1.5 * (_inches(ax)[0] - 0.06 * beside)) if name == "x" else (ax.yaxis, 2 * _inches(ax)[1])
    ticker = need("matplotlib.ticker")
    axis.set_major_formatter(ticker.FuncFormatter(lambda share, _: percent(share)))
    axis.set_major_locator(ticker.MaxNLocator(nbins=max(2, min(6, int(room))), steps=[1, 2, 5, 10]))


def _set_thousands_apart(ax: Axes) -> None:
    """Write large numbers out: matplotlib would write a factor such as 1e6 where the legend is."""
    ticker = need("matplotlib.ticker")
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if isinstance(axis.get_major_formatter(), ticker.ScalarFormatter) and 1000 <= max(map(abs, limits)) < 1e9:
            axis.set_major_formatter(ticker.StrMethodFormatter("{x:,.10g}"))
            if axis is ax.xaxis:
                number_axis(ax)


def number_axis(ax: Axes) -> None:
    """Write numbers on the horizontal axis, few enough to be read side by side."""
    ticker, largest = need("matplotlib.ticker"), max(map(abs, ax.get_xlim()))
    room = int(_inches(ax)[0] / (0.2 + 0.09 * max(5, len(f"{largest:,.0f}"))))
    ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=max(2, min(8, room)), steps=[1, 2, 2.5, 5, 10]))


def row_labels(ax: Axes, names: Sequence[str]) -> None:
    """Write a name at each row 0, 1, … of the vertical axis, as large as fits, without marks and lines."""
    usual, room = float(ax.xaxis.label.get_fontsize()), 72 * (_inches(ax)[1] - 0.3) / len(names)
    ax.set_yticks(range(len(names)), names, fontsize=max(4.5, min(usual, 0.9 * room)))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def in_units(what: str, y_name: str | None) -> str:
    """Name a quantity that has the target's units."""
    return what if y_name in (None, "y") else f"{what}, in units of {plain(y_name, 30)}"
