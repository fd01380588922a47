"""What all displays share: axes, colours and shapes, the models and intervals they are given, and SVG."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from xml.etree import ElementTree

from icqr._messages import imported
from icqr._predicting import IntervalRegressor
from icqr.auditing.comparison import named_methods

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

#: Keyword arguments of a matplotlib function.
Options: TypeAlias = dict[str, Any]
#: One fitted model, a list (named by their classes), or a mapping from names to models.
Models: TypeAlias = IntervalRegressor | list[IntervalRegressor] | Mapping[str, IntervalRegressor]

#: How many letters of an axis label fit into an inch.
LETTERS_PER_INCH = 11
#: Who needs matplotlib, and what installs it.
_NEEDED = "pictures need", "icqr[plot]"

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is too faint on white.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, WHITE = "#E69F00", "#56B4E9", "#767676", "#ffffff"


def blank_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Return axes on a figure of their own (sizes in inches) that pyplot does not know, so that nobody must close it.

    Examples
    --------
    >>> blank_axes(4, 3).figure.get_size_inches().tolist()
    [4.0, 3.0]
    """
    figure = imported("matplotlib.figure", *_NEEDED).Figure(figsize=(width, height), layout="constrained")
    axes: Axes = figure.add_subplot()
    return axes


class Display(ABC):
    """A picture with its data.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was last drawn.
    """

    def __repr__(self) -> str:
        title = self.ax_.get_title(loc="left") if hasattr(self, "ax_") else "not drawn yet: call plot()"
        return f"<{type(self).__name__}: {title}>"

    def _repr_png_(self) -> bytes | None:
        """Return the picture for a notebook, unless pyplot shows it anyway, as it does at the end of a cell."""
        if not hasattr(self, "ax_"):
            return None
        from matplotlib._pylab_helpers import Gcf

        figure = self.figure_.canvas.figure
        if any(manager.canvas.figure is figure for manager in Gcf.get_all_fig_managers()):
            return None
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        return buffer.getvalue()

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
            ax = imported("matplotlib.pyplot", *_NEEDED).subplots(figsize=self.size, layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.7)
        ax.set_axisbelow(True)
        self._draw(ax)

        # A label that is longer than its axis is broken, but not within a word: a "\$" must stay whole.
        for axis, length in ((ax.xaxis, ax.bbox.width), (ax.yaxis, ax.bbox.height)):
            room = max(12, int(LETTERS_PER_INCH * length / ax.figure.dpi))
            axis.set_label_text(textwrap.fill(axis.get_label_text(), room, break_long_words=False))

        # 200 k where matplotlib would write 2.0, and 1e5 where the legend is.
        from matplotlib.ticker import EngFormatter, LogLocator, NullLocator, ScalarFormatter

        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            large = max(map(abs, limits)) >= 10_000
            if axis.get_scale() == "log":  # 1, 2, 5, 10, …; over many decades the powers of ten alone
                narrow = limits[1] < 1000 * limits[0]
                axis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter(EngFormatter() if large else "{x:g}")
            elif large and isinstance(axis.get_major_formatter(), ScalarFormatter):
                axis.set_major_formatter(EngFormatter())
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw on dressed axes."""


# -- How methods and groups look -----------------------------------------------------------------------------


class Look(NamedTuple):
    """How a method or a group is drawn."""

    color: str
    marker: str
    line: str = "-"


_METHODS = {
    "Naive": Look(GREY, "s", ":"),
    "QR": Look(ORANGE, "^", "-."),
    "CQR": Look(BLUE, "D", "--"),
    "ICQR": Look(VERMILION, "o", "-"),
}
_OTHER_COLORS, _OTHER_MARKERS, _OTHER_LINES = (GREEN, PURPLE, SKY), "v<>p", ("-", "--", "-.", ":")
# 7 and 8 have no common factor: the first 56 groups all differ.
_GROUP_COLORS, _GROUP_MARKERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY), "os^DvPX*"

#: The colour of each method, the same in every picture; :func:`method_color` answers for other names.
METHOD_COLORS: Mapping[str, str] = MappingProxyType({name: look.color for name, look in _METHODS.items()})


def method_color(name: str) -> str:
    """Return a method's colour: that of `METHOD_COLORS`, and for any other name one that depends on the name alone.

    So a method has the same colour in every picture and in every run, whatever it is shown with. Two other names may
    share one of three colours; their markers and dashes come from the name too.

    Examples
    --------
    >>> method_color("ICQR"), method_color("my method")
    ('#D55E00', '#009E73')
    """
    return method_look(name).color


def method_look(name: str) -> Look:
    """Return colour, marker and dashes of a method."""
    if name in _METHODS:
        return _METHODS[name]
    code = zlib.crc32(name.encode())  # Python's own hash differs from run to run
    code, color = divmod(code, len(_OTHER_COLORS))
    code, marker = divmod(code, len(_OTHER_MARKERS))
    return Look(_OTHER_COLORS[color], _OTHER_MARKERS[marker], _OTHER_LINES[code % len(_OTHER_LINES)])


def group_look(number: int) -> Look:
    """Return colour and marker of a group; rows of no known group (-1) are small grey dots."""
    if number < 0:
        return Look(GREY, ".")
    return Look(_GROUP_COLORS[number % len(_GROUP_COLORS)], _GROUP_MARKERS[number % len(_GROUP_MARKERS)])


def group_numbers(labels: Iterable[Any]) -> dict[Any, int]:
    """Return each group's number: whole numbers are their own, other labels are counted in the order given."""
    distinct = list(dict.fromkeys(labels))
    whole = [int(label) for label in distinct if isinstance(label, Integral) and int(label) >= -1]
    return dict(zip(distinct, whole if len(whole) == len(distinct) else range(len(distinct)), strict=True))


def group_gid(number: int) -> str:
    """Return the name that all of a group's artists carry, in every picture."""
    return f"group-{number}" if number >= 0 else "group-none"


# -- What displays are given ---------------------------------------------------------------------------------


def named_models(models: Models) -> dict[str, IntervalRegressor]:
    """Return models by name; anything but a model of ours is refused."""
    named = named_methods(models if isinstance(models, Mapping | list) else [models])
    for name, model in named.items():
        if not isinstance(model, IntervalRegressor):
            hint = "for intervals of other libraries use from_predictions"
            raise TypeError(
                f"model must be a fitted Naive, QR, CQR, ICQR or AutoICQR, got {name} ({type(model)}); {hint}"
            )
    return named


# -- SVG -----------------------------------------------------------------------------------------------------


def figure_to_svg(figure: Figure | SubFigure, title: str | None = None) -> str:
    """Return a figure as one ``<svg>`` element that can be put into a web page.

    - The same figure gives the same text, and nothing in it refers to another file.
    - Text stays text: it can be searched, copied and read aloud, and keeps the file small. It is laid out for DejaVu
      Sans; Verdana, which is as wide, is the next choice.
    - Identifiers are only kept where something refers to them, and are hashes of the title and of what they name, so
      that several pictures fit into one page. An artist's ``gid`` becomes a class instead: all that belongs to group
      3, in whatever picture, is ``.group-3``.
    - The background is transparent, and black becomes ``currentColor``: the picture follows a page from light to dark.

    Parameters
    ----------
    figure : matplotlib Figure
        Is not changed.
    title : str, optional
        What a screen reader says; by default the titles in the figure.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> figure_to_svg(blank_axes(2, 1).figure, title="Nothing <yet>")[:53]
    '<svg viewBox="0 0 144 72" width="144pt" height="72pt"'
    """
    import matplotlib as mpl

    if title is None:
        titles = (axes.get_title(loc) for axes in figure.axes for loc in ("left", "center", "right"))
        title = "; ".join(text.replace(r"\$", "$") for text in titles if text)
    # These settings of matplotlib have no other way in; they are put back at once.
    fonts = ["DejaVu Sans", "Verdana", "Arial"]
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": ascii(title), "font.sans-serif": fonts}
    buffer, no_metadata = io.BytesIO(), dict.fromkeys(["Creator", "Date", "Format", "Type"])
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The browser, not matplotlib, needs a font with these letters.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.canvas.figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)

    # Plain elements without name spaces, and nothing in them that could touch the rest of a page.
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text if element.tag in ("text", "tspan") else None), None
        element.attrib = {
            key.rpartition("}")[2]: value.replace("#000000", "currentColor") for key, value in element.attrib.items()
        }
        # A group of elements is named by its artist's gid, or else by matplotlib: patch_3, axes_1.
        name = element.attrib.pop("id", "") if element.tag == "g" else ""
        if name and not re.search(r"_\d+$", name):
            element.set("class", name)
    for definitions in root.findall("defs"):  # a style sheet would be the whole page's
        for style in definitions.findall("style"):
            definitions.remove(style)

    size = {key: root.attrib[key] for key in ("viewBox", "width", "height")}
    look = {"fill": "currentColor", "stroke-linejoin": "round"}
    root.attrib = {**size, "xmlns": "http://www.w3.org/2000/svg", "role": "img", **look}
    words = ElementTree.Element("title")
    words.text = title
    root.insert(0, words)
    return ElementTree.tostring(root, encoding="unicode")
