"""What all displays share: axes, colours and shapes, models, columns on axes, words around a picture, and SVG."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from icqr._messages import imported
from icqr._predicting import IntervalRegressor
from icqr._rows import target_name
from icqr._tables import FloatArray, IntArray, as_table, draw_rows
from icqr.auditing.comparison import named_methods

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

#: Keyword arguments of a matplotlib function.
Options: TypeAlias = dict[str, Any]

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is too faint on white.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, WHITE = "#E69F00", "#56B4E9", "#767676", "#ffffff"

#: The colour of each method, the same in every picture; :func:`method_color` answers for other names.
METHOD_COLORS: Mapping[str, str] = MappingProxyType({"Naive": GREY, "QR": ORANGE, "CQR": BLUE, "ICQR": VERMILION})

_SHAPES = {"Naive": ("s", ":"), "QR": ("^", "-."), "CQR": ("D", "--"), "ICQR": ("o", "-")}
_OTHER_COLORS, _OTHER_MARKERS, _OTHER_LINES = (GREEN, PURPLE, SKY), "v<>p", ("-", "--", "-.", ":")
# 7 and 8 have no common factor: the first 56 groups all differ.
_GROUP_COLORS, _GROUP_MARKERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY), "os^DvPX*"


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

        # 200 k where matplotlib would write 2.0, and 1e5 where the legend is.
        ticker = need("matplotlib.ticker")
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            if isinstance(axis.get_major_formatter(), ticker.ScalarFormatter) and max(map(abs, limits)) >= 10_000:
                axis.set_major_formatter(ticker.EngFormatter())
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
    if name in METHOD_COLORS:
        return Look(METHOD_COLORS[name], *_SHAPES[name])
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
    own = all(isinstance(label, Integral) and int(label) >= -1 for label in distinct)
    return {label: int(label) if own else place for place, label in enumerate(distinct)}


def group_gid(number: int) -> str:
    """Return the name that all of a group's artists carry, in every picture."""
    return f"group-{number}" if number >= 0 else "group-none"


# -- What displays read --------------------------------------------------------------------------------------


def named_models(models: Any) -> dict[str, IntervalRegressor]:
    """Return models by name: one model, a list (by the names of their classes), or a mapping from names to models."""
    named = named_methods(models if isinstance(models, Mapping | list) else [models])
    for name, model in named.items():
        if not isinstance(model, IntervalRegressor):
            hint = "for intervals of other libraries use from_predictions"
            raise TypeError(f"model must be a fitted Naive, QR, CQR or ICQR, got {name} ({type(model)}); {hint}")
    return named


def predicted_intervals(
    models: Mapping[str, IntervalRegressor], X: Any, coverage: float | None
) -> tuple[dict[str, FloatArray], float]:
    """Return intervals by name and their coverage: by default the models' own, which must then be one."""
    coverages = {float(model.coverage) for model in models.values()} if coverage is None else {float(coverage)}
    if len(coverages) > 1:
        raise ValueError(f"models were fitted for several coverages, {sorted(coverages)}; say which with coverage=")
    (level,) = coverages
    return {name: model.predict_interval(X, level) for name, model in models.items()}, level


def named_intervals(intervals: Any) -> dict[str, Any]:
    """Return intervals by method: one array, or a mapping from methods to arrays."""
    named = {str(k): v for k, v in intervals.items()} if isinstance(intervals, Mapping) else {"intervals": intervals}
    if not named:
        raise ValueError("intervals must hold at least one method, got none")
    return named


# -- A column on an axis ---------------------------------------------------------------------------------------

#: Up to this many rows, each is drawn by itself, wherever it lies.
MOST_LINES = 100
#: Around up to this many distinct values points are spread sideways.
MOST_VALUES = 30
#: The most frequent categories of a column that are shown; all others are one.
MOST_CATEGORIES = 12


def find_column(X: Any, name: Any) -> pd.Series[Any]:
    """Return a column by its name or, where none has this name, by its position; an array has x0, x1 and so on."""
    table = as_table(X)
    if not isinstance(table, pd.DataFrame):
        table = pd.DataFrame(table).add_prefix("x")
    if name in table.columns:
        name = table.columns.get_loc(name)
    if isinstance(name, int | np.integer) and 0 <= name < table.shape[1]:
        return table.iloc[:, int(name)]
    shown = ", ".join(repr(column) for column in table.columns[:20]) + (", …" if table.shape[1] > 20 else "")
    raise ValueError(f"feature must be one of X's columns ({shown}) or a position, got {name!r}")


def place_column(column: Any) -> Placed:
    """Place numbers and dates as they are, anything else by category: the frequent ones in order, then all others."""
    name = target_name(column) or "x"
    series = column if isinstance(column, pd.Series) else pd.Series(np.asarray(column))
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        days = (pd.to_datetime(series, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        return Placed(name, np.asarray(days, dtype=np.float64), dates=True)
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        numbers = series.to_numpy(dtype=float, na_value=np.nan)
        return Placed(name, np.where(np.isfinite(numbers), numbers, np.nan))

    text = series.astype(object).map(str, na_action="ignore")
    ordered = series.cat.categories.map(str) if hasattr(series, "cat") else sorted(text.dropna().unique())
    frequent = set(text.value_counts().index[:MOST_CATEGORIES])
    names = [value for value in ordered if value in frequent]
    places = text.map({value: place for place, value in enumerate(names)}).fillna(len(names)).where(text.notna())
    others = ["all others"] if (places == len(names)).any() else []
    return Placed(name, places.to_numpy(dtype=float), (*names, *others))


@dataclass(frozen=True, eq=False)
class Placed:
    """Where each row's value is on an axis; NaN where it is missing."""

    name: str
    values: FloatArray
    categories: tuple[str, ...] = ()
    dates: bool = False

    @cached_property
    def distinct(self) -> FloatArray:
        """The distinct values, in order."""
        return np.unique(self.values[~np.isnan(self.values)])

    @cached_property
    def ends(self) -> tuple[float, float] | None:
        """Where the axis should end if a few of many values are far beyond all others, else None."""
        if len(self.distinct) <= MOST_LINES:
            return None
        low, high = np.nanquantile(self.values, [0.005, 0.995])
        first, last = self.distinct[[0, -1]]
        margin = 0.1 * (high - low)
        return (max(low - margin, first), min(high + margin, last)) if last - first > 20 * margin > 0 else None

    def spread(self, rows: IntArray, rng: np.random.Generator) -> FloatArray:
        """Return places of rows; where values are few, moved sideways so that points don't hide each other."""
        places = self.values[rows]
        if len(self.distinct) > MOST_VALUES:
            return places
        gap = np.diff(self.distinct).min() if len(self.distinct) > 1 else 1.0
        return np.asarray(places + rng.uniform(-0.3, 0.3, size=len(rows)) * gap)

    def bins(self, n_bins: int, least: int) -> tuple[IntArray, FloatArray]:
        """Return each row's bin (-1: missing) and the bins' edges.

        At most `n_bins` distinct values have a bin each. More are put into bins of equally many rows, at least `least`.
        """
        if n_bins < 1:
            raise ValueError(f"n_bins must be at least 1, got {n_bins}")
        known = ~np.isnan(self.values)
        if len(self.distinct) > n_bins:
            shares = np.linspace(0, 1, max(min(n_bins, known.sum() // least), 1) + 1)
            edges = np.unique(np.quantile(self.values[known], shares, method="nearest"))
        else:  # edges halfway between values
            values = self.distinct if known.any() else np.zeros(1)
            gaps = np.diff(values) if len(values) > 1 else np.ones(1)
            edges = np.append(values[0] - gaps[0] / 2, values + np.append(gaps, gaps[-1])[-len(values) :] / 2)
        codes = np.searchsorted(edges, self.values, side="right") - 1
        return np.where(known, np.clip(codes, 0, len(edges) - 2), -1), edges

    def label(self, axis: Axis) -> None:
        """Write name and categories, dates or few values on an axis."""
        axis.set_label_text(plain(self.name))
        if self.categories:
            slanted = axis is axis.axes.xaxis and sum(map(len, self.categories)) > 30
            look: Options = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
            axis.set_ticks(range(len(self.categories)), [plain(text, 16) for text in self.categories], **look)
        elif self.dates:
            dates = need("matplotlib.dates")
            locator = dates.AutoDateLocator(minticks=3, maxticks=6)
            axis.set_major_locator(locator)
            axis.set_major_formatter(dates.ConciseDateFormatter(locator))
        elif len(self.distinct) <= 10:
            axis.set_ticks(self.distinct)


def sample_rows(n: int, max_points: int) -> IntArray:
    """Return all row numbers or, if they are too many, a sample of them in which all rows are alike."""
    if max_points < 1:
        raise ValueError(f"max_points must be at least 1, got {max_points}")
    return draw_rows(n, max_points, np.random.default_rng(0))


def sample_note(drawn: IntArray, n: int, *columns: Placed) -> str:
    """Say that only a sample of the rows is drawn as points, and how many rows the axes do not show, if so."""
    notes = [f"{len(drawn):,} of {n:,} points drawn"] if len(drawn) < n else []
    outside = [(column.values < column.ends[0]) | (column.values > column.ends[1]) for column in columns if column.ends]
    if n_beyond := int(np.any(outside, axis=0).sum()):
        notes.append(f"{n_beyond:,} {'row' if n_beyond == 1 else 'rows'} beyond the axis")
    return ", ".join(notes)


# -- Words around a picture ----------------------------------------------------------------------------------


def heading(ax: Axes, title: str, *notes: str) -> None:
    """Write a title and, between it and the picture, where they hide nothing, notes and the legend of all labels."""
    handles, labels = ax.get_legend_handles_labels()
    note, pad = ", ".join(filter(None, notes)), None
    if labels or note:
        look: Options = {"fontsize": "small", "title_fontsize": "small", "alignment": "left", "frameon": False}
        look |= {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0, "borderpad": 0.2}
        look |= {"labelspacing": 0.3, "columnspacing": 1.5, "handlelength": 1.8}
        look["title"] = textwrap.fill(note, max(20, int(16 * ax.bbox.width / ax.figure.dpi))) or None
        # As many entries side by side as the picture is wide.
        for columns in range(min(len(labels), 12) or 1, 0, -1):
            box = ax.legend(handles, labels, ncols=columns, **look)
            if box.get_window_extent().width <= ax.bbox.width:
                break
        # The title keeps the height free; a wide legend must not make the picture narrow.
        box.set_in_layout(False)
        pad = 6 + 72 / ax.figure.dpi * box.get_window_extent().height
    ax.set_title(title, loc="left", pad=pad)


def ink(ax: Axes) -> Any:
    """Return the colour that text has in this picture: black, or what the user's style says."""
    return ax.xaxis.label.get_color()


def row_labels(ax: Axes, names: Sequence[str]) -> None:
    """Write a name at each row 0, 1, … of the vertical axis, without marks and lines."""
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def in_units(quantity: str, y_name: str | None) -> str:
    """Name a quantity that has the target's units."""
    return quantity if y_name in (None, "y") else f"{quantity}, in units of {plain(y_name, 30)}"


def plain(text: Any, longest: int = 40) -> str:
    r"""Return any text so that matplotlib shows it as it is, on one line: no mathematics, no control characters.

    Of long text the middle is left out: names often differ at the end.

    Examples
    --------
    >>> print(plain("price in $ or $/m"))
    price in \$ or \$/m
    """
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    short = words if len(words) <= longest else words[: longest // 2] + "…" + words[-((longest - 1) // 2) :]
    # A legend leaves out labels that begin with "_".
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent; whole percents without a decimal.

    Examples
    --------
    >>> percent(0.9), percent(0.8123)
    ('90 %', '81.2 %')
    """
    return f"{100 * share:.{digits}f}".removesuffix("." + "0" * digits).replace("-", "−") + " %"


# -- SVG -----------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"(?:url\(|^)#([^)]+)")
_OWN_ID = re.compile(r"_\d+$")  # matplotlib's own names: patch_3, axes_1
_FONTS = re.compile(r"font-family: [^;]*;? ?")
_FAMILY = "'DejaVu Sans', Verdana, Arial, sans-serif"  # the second is as wide as the first, in which text is laid out


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
    # These two settings of matplotlib have no other way in; they are put back at once.
    buffer, no_metadata = io.BytesIO(), dict.fromkeys(["Creator", "Date", "Format", "Type"])
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": ascii(title)}), warnings.catch_warnings():
        # The browser, not matplotlib, needs a font with these letters.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.canvas.figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)

    root = ElementTree.fromstring(buffer.getvalue())
    values = (value for element in root.iter() for value in element.attrib.values())
    referred = {name for value in values for name in _REFERENCE.findall(value)}
    for element in root.iter():
        _make_plain(element, referred)
    for definitions in root.findall("defs"):  # a style sheet would be the whole page's
        for style in definitions.findall("style"):
            definitions.remove(style)

    size = {key: root.attrib[key] for key in ("viewBox", "width", "height")}
    look = {"fill": "currentColor", "stroke-linejoin": "round", "font-family": _FAMILY}
    root.attrib = {**size, "xmlns": "http://www.w3.org/2000/svg", "role": "img", **look}
    words = ElementTree.Element("title")
    words.text = title
    root.insert(0, words)
    return ElementTree.tostring(root, encoding="unicode")


def _make_plain(element: ElementTree.Element, referred: set[str]) -> None:
    """Drop name spaces and identifiers that nothing refers to; leave black and the font to the page."""
    element.tag = element.tag.rpartition("}")[2]
    element.text, element.tail = (element.text if element.tag in ("text", "tspan") else None), None
    element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for key in element.attrib.keys() & {"style", "fill", "stroke"}:
        element.set(key, _FONTS.sub("", element.attrib[key].replace("#000000", "currentColor")))
    name = element.get("id", "")
    if name not in referred:
        element.attrib.pop("id", None)
        if name and not _OWN_ID.search(name):  # an artist's gid
            element.set("class", name)
