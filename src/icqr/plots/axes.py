"""What stands on and around axes: a heading, text from data, and a column of X with its bins and its labels."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr._dates import as_days, is_dates
from icqr._rows import target_name
from icqr._tables import FloatArray, IntArray, as_table, draw_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Up to this many distinct values are all shown, however far some are beyond the others.
MOST_SHOWN = 100
#: Around up to this many distinct values points are spread sideways.
MOST_VALUES = 30
#: The most frequent categories of a column that are shown; all others are one.
MOST_CATEGORIES = 12
#: Positive values that are skewed to the right by more than this have a log axis, if that makes them much less skewed.
MOST_SKEWED = 1.0


#: What the label of a log axis ends with.
LOG_SCALE = " (log scale)"


# -- Words around a picture -------------------------------------------------------------------------------------


def heading(ax: Axes, title: str, *notes: str) -> None:
    """Write a title and, between it and the picture, where they hide nothing, notes and the legend of all labels."""
    handles, labels = ax.get_legend_handles_labels()
    note = ", ".join(filter(None, notes))
    pad = None
    if labels or note:
        look: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "alignment": "left", "frameon": False}
        look |= {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0, "borderpad": 0.2}
        look |= {"labelspacing": 0.3, "columnspacing": 1.5, "handlelength": 1.8}
        if (layout := ax.figure.get_layout_engine()) is not None:
            with warnings.catch_warnings():  # a web page has fonts with all letters
                warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
                layout.execute(ax.figure.canvas.figure)  # names of rows make the picture narrower
        look["title"] = textwrap.fill(note, max(20, int(16 * ax.bbox.width / ax.figure.dpi))) or None

        # As many entries side by side as the picture is wide: matplotlib does not wrap a legend.
        for columns in range(min(len(labels), 12) or 1, 0, -1):
            box = ax.legend(handles, labels, ncols=columns, **look)
            if box.get_window_extent().width <= ax.bbox.width:
                break

        # The title keeps the height free; a wide legend must not make the picture narrow.
        box.set_in_layout(False)
        pad = 6 + 72 / ax.figure.dpi * box.get_window_extent().height
    longest = max(12, int(10 * ax.bbox.width / ax.figure.dpi))
    ax.set_title(textwrap.fill(title, longest, break_long_words=False), loc="left", pad=pad)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Write a name at each row 0, 1, … of the vertical axis, without marks and lines."""
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def ink(ax: Axes) -> Any:
    """Return the colour that text has in this picture: black, or what the user's style says."""
    return ax.xaxis.label.get_color()


def in_units(quantity: str, y_name: str | None) -> str:
    """Name a quantity that has the target's units."""
    return quantity if y_name in (None, "y") else f"{quantity}, in units of {plain(y_name, 30)}"


def suits_log(values: FloatArray) -> bool:
    """Say whether values need a log axis: all positive, skewed to the right, and their logarithms half as much or less.

    Examples
    --------
    >>> prices = np.exp(np.random.default_rng(0).normal(12, 0.5, 1000))
    >>> suits_log(prices), suits_log(prices - 100_000), suits_log(np.arange(1.0, 100.0))
    (True, False, False)
    """
    if not (values > 0).all():
        return False
    skewness, of_logarithms = pd.DataFrame({"values": values, "logarithms": np.log(values)}).skew().to_numpy()
    return bool(skewness > MOST_SKEWED and abs(of_logarithms) <= skewness / 2)


def plain(text: object, longest: int = 40) -> str:
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


# -- A column on an axis ----------------------------------------------------------------------------------------


def find_column(X: ArrayLike, name: Hashable) -> pd.Series[Any]:
    """Return a column by its name or, where none has this name, by its position; an array has x0, x1 and so on."""
    table = as_table(X)
    if not isinstance(table, pd.DataFrame):
        table = pd.DataFrame(table).add_prefix("x")
    place = table.columns.get_loc(name) if name in table.columns else name
    if isinstance(place, int | np.integer) and 0 <= place < table.shape[1]:
        return table.iloc[:, int(place)]
    shown = ", ".join(repr(column) for column in table.columns[:20]) + (", …" if table.shape[1] > 20 else "")
    raise ValueError(f"feature must be one of X's columns ({shown}) or a position, got {name!r}")


@dataclass(frozen=True, eq=False)
class AxisColumn:
    """Where each row's value is on an axis; NaN where it is missing.

    Attributes
    ----------
    name : str
        The column's name.
    values : array
        The places: numbers as they are, dates in days, categories by number.
    categories : tuple of str
        The names of the categories, if it holds any.
    dates : bool
        Whether it holds dates.
    log : bool
        Whether its axis is logarithmic.
    """

    name: str
    values: FloatArray
    categories: tuple[str, ...] = ()
    dates: bool = False
    log: bool = False

    @classmethod
    def from_values(cls, column: ArrayLike, log: bool = False) -> AxisColumn:
        """Place numbers and dates as they are, and anything else by category.

        Frequent categories come in their own order, all others together after them. `log` is for positive numbers.
        """
        name = target_name(column) or "x"
        series = column if isinstance(column, pd.Series) else pd.Series(np.asarray(column))
        if is_dates(series):
            return cls(name, as_days(series), dates=True)
        if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
            numbers = series.to_numpy(dtype=float, na_value=np.nan)
            return cls(name, np.where(np.isfinite(numbers), numbers, np.nan), log=log)

        text = series.astype(object).map(str, na_action="ignore")
        ordered = series.cat.categories.map(str) if hasattr(series, "cat") else sorted(text.dropna().unique())
        frequent = set(text.value_counts().index[:MOST_CATEGORIES])
        names = [value for value in ordered if value in frequent]
        places = text.map({value: place for place, value in enumerate(names)}).fillna(len(names)).where(text.notna())
        others = ["all others"] if (places == len(names)).any() else []
        return cls(name, places.to_numpy(dtype=float), (*names, *others))

    @cached_property
    def distinct(self) -> FloatArray:
        """The distinct values, in order."""
        return np.unique(self.values[~np.isnan(self.values)])

    @cached_property
    def ends(self) -> tuple[float, float] | None:
        """Where the axis should end if a few of many values are far beyond all others, else None."""
        if self.log or len(self.distinct) <= MOST_SHOWN:
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
        elif len(self.distinct) > 1:  # edges halfway between values, and as far beyond the first and the last
            halfway = (self.distinct[1:] + self.distinct[:-1]) / 2
            first, last = 2 * self.distinct[[0, -1]] - halfway[[0, -1]]
            edges = np.array([first, *halfway, last])
        else:
            edges = (self.distinct if len(self.distinct) else np.zeros(1)) + [-0.5, 0.5]
        codes = np.searchsorted(edges, self.values, side="right") - 1
        return np.where(known, np.clip(codes, 0, len(edges) - 2), -1), edges

    def label(self, axis: Axis) -> None:
        """Write name and categories, dates or few values on an axis."""
        axis.set_label_text(plain(self.name) + LOG_SCALE * self.log)
        if self.log:
            (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
        elif self.categories:
            slanted = axis is axis.axes.xaxis and sum(map(len, self.categories)) > 30
            look: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
            axis.set_ticks(range(len(self.categories)), [plain(text, 16) for text in self.categories], **look)
        elif self.dates:
            from matplotlib.dates import MONTHLY, AutoDateLocator, ConciseDateFormatter

            locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
            locator.intervald[MONTHLY] = [1, 2, 3, 4, 6, 12]  # by itself it has none for more than 30 months
            axis.set_major_locator(locator)
            axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        elif len(self.distinct) <= 10:
            axis.set_ticks(self.distinct)


# -- Samples ---------------------------------------------------------------------------------------------------


def sample_rows(n: int, max_points: int) -> IntArray:
    """Return all row numbers or, if they are too many, a sample of them in which all rows are alike."""
    if max_points < 1:
        raise ValueError(f"max_points must be at least 1, got {max_points}")
    return draw_rows(n, max_points, np.random.default_rng(0))


def sample_note(drawn: IntArray, n: int, *columns: AxisColumn) -> str:
    """Say that only a sample of the rows is drawn as points, and how many rows the axes do not show, if so."""
    notes = [f"{len(drawn):,} of {n:,} points drawn"] if len(drawn) < n else []
    outside = [(column.values < column.ends[0]) | (column.values > column.ends[1]) for column in columns if column.ends]
    if n_beyond := int(np.any(outside, axis=0).sum()):
        notes.append(f"{n_beyond:,} {'row' if n_beyond == 1 else 'rows'} beyond the axis")
    return ", ".join(notes)
