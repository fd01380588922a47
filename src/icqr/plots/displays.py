"""What all displays share: what they read from models, axes to draw on, a heading above the picture, the way to SVG."""

from __future__ import annotations

import copy
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from icqr._messages import imported
from icqr.plots.export import figure_to_svg
from icqr.plots.style import GREY, percent, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


def need(module: str) -> Any:
    """Import a module of matplotlib, or say how to install it."""
    return imported(module, "pictures need", "icqr[plot]")


def blank_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Return axes on a figure of their own (sizes in inches) that pyplot does not know, so that nobody must close it.

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
        _write_large_numbers_out(ax)
        return self

    def to_svg(self, title: str | None = None) -> str:
        """Draw on a figure of its own and return that as SVG text; see :func:`icqr.plots.figure_to_svg`."""
        return figure_to_svg(copy.copy(self).plot(blank_axes(*self.size)).figure_, title=title)

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw on dressed axes."""


# -- What displays read --------------------------------------------------------------------------------------


def named_models(models: Any) -> dict[str, Any]:
    """Return models by name: one model, a list (by the names of their classes), or a mapping from names to models."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        several = list(models) if isinstance(models, list | tuple) else [models]
        kinds = [type(model).__name__ for model in several]
        names = [f"{kind} {place + 1}" if kinds.count(kind) > 1 else kind for place, kind in enumerate(kinds)]
        named = dict(zip(names, several, strict=True))
    for name, model in named.items():
        if not hasattr(model, "explain"):
            hint = "for intervals of other libraries use from_predictions"
            raise TypeError(f"model must be a fitted Naive, QR, CQR or ICQR, got {name} ({type(model)}); {hint}")
    return named


def named_intervals(intervals: Any, method: str) -> dict[str, Any]:
    """Return intervals by method: one array, or a mapping from methods to arrays."""
    named = {str(k): v for k, v in intervals.items()} if isinstance(intervals, Mapping) else {method: intervals}
    if not named:
        raise ValueError("intervals must hold at least one method, got none")
    return named


def shared_coverage(models: Mapping[str, Any], coverage: float | None) -> float:
    """Return the coverage that is asked for: by default the models' own, which must then be one."""
    if coverage is not None:
        return float(coverage)
    own = {float(model.coverage) for model in models.values()}
    if len(own) > 1:
        raise ValueError(f"models were fitted for several coverages, {sorted(own)}; say which with coverage=")
    return own.pop()


def target_name(y: Any, y_name: str | None) -> str | None:
    """Return the target's name: the one that was given, or that of a pandas or polars column."""
    name = getattr(y, "name", None) if y_name is None else y_name
    return None if name is None else str(name)


# -- Words around a picture ----------------------------------------------------------------------------------


def heading(ax: Axes, title: str, legend: Sequence[tuple[Artist, str]] = (), note: str = "") -> None:
    """Write a title and, between it and the picture, where they hide nothing, a note and a legend."""
    if not legend and not note:
        ax.set_title(title, loc="left")
        return

    size, dpi = small_print(ax), ax.figure.dpi
    note = textwrap.fill(note, max(20, int(72 * inches(ax)[0] / (0.55 * size))))
    handles = [artist for artist, _ in legend]
    labels = [" " + text if text.startswith("_") else text for _, text in legend]  # matplotlib leaves out "_…"
    look: dict[str, Any] = {"alignment": "left", "fontsize": size, "title_fontsize": size, "frameon": False}
    look |= {"borderaxespad": 0, "borderpad": 0.2, "labelspacing": 0.3, "handlelength": 1.8, "columnspacing": 1.5}
    for columns in range(max(len(labels), 1), 0, -1):  # as many side by side as the picture is wide
        options = {"title": note or None, "ncols": columns, "loc": "lower left", "bbox_to_anchor": (0, 1), **look}
        box = ax.legend(handles, labels, **options)
        if box.get_window_extent().width <= ax.bbox.width:
            break
    # The title keeps the height free; a wide legend must not make the picture narrow.
    box.set_in_layout(False)
    ax.set_title(title, loc="left", pad=6 + 72 / dpi * box.get_window_extent().height)


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes, as far as they are known before the layout."""
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def small_print(ax: Axes) -> float:
    """Return the size of small print, in points: smaller in small axes."""
    width, height = inches(ax)
    return float(ax.title.get_fontsize()) * (0.7 if width > 3.2 and height > 1.2 else 0.58)


def ink(ax: Axes) -> Any:
    """Return the colour that text has in this picture: black, or what the user's style says."""
    return ax.xaxis.label.get_color()


def percent_axis(axis: Axis) -> None:
    """Write shares as percents."""
    ticker = need("matplotlib.ticker")
    axis.set_major_formatter(ticker.FuncFormatter(lambda share, _: percent(share)))
    axis.set_major_locator(ticker.MaxNLocator("auto", steps=[1, 2, 5, 10]))


def _write_large_numbers_out(ax: Axes) -> None:
    """Write 2,000,000 where matplotlib would write 2, and 1e6 where the legend is."""
    ticker = need("matplotlib.ticker")
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        largest = max(map(abs, limits))
        if not isinstance(axis.get_major_formatter(), ticker.ScalarFormatter) or not 1000 <= largest < 1e9:
            continue
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:,.10g}"))
        if axis is ax.xaxis:  # few enough to be read side by side
            room = int(inches(ax)[0] / (0.2 + 0.09 * len(f"{largest:,.0f}")))
            axis.set_major_locator(ticker.MaxNLocator(max(2, min(8, room)), steps=[1, 2, 2.5, 5, 10]))


def row_labels(ax: Axes, names: Sequence[str]) -> None:
    """Write a name at each row 0, 1, … of the vertical axis, as large as fits, without marks and lines."""
    usual, room = float(ax.xaxis.label.get_fontsize()), 72 * (inches(ax)[1] - 0.3) / len(names)
    ax.set_yticks(range(len(names)), names, fontsize=max(4.5, min(usual, 0.9 * room)))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def in_units(quantity: str, y_name: str | None) -> str:
    """Name a quantity that has the target's units."""
    return quantity if y_name in (None, "y") else f"{quantity}, in units of {plain(y_name, 30)}"
