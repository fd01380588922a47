"""A column on an axis: numbers, dates or categories; bins of it; a sample of rows that stays readable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icqr._rows import target_name
from icqr._tables import FloatArray, IntArray, as_table, draw_rows
from icqr.plots.displays import Options, need, plain

if TYPE_CHECKING:
    from matplotlib.axis import Axis

#: Up to this many rows, each is drawn by itself, wherever it lies.
MOST_LINES = 100
#: Around up to this many distinct values points are spread sideways.
MOST_VALUES = 30
#: The most frequent categories of a column that are shown; all others are one.
MOST_CATEGORIES = 12


def find_column(X: Any, name: Any) -> pd.Series[Any]:
    """Return a column by its name or, where none has this name, by its position; an array has x0, x1 and so on."""
    table = as_table(X)
    if isinstance(table, pd.DataFrame):
        frame = table
    else:
        frame = pd.DataFrame(table, columns=[f"x{j}" for j in range(table.shape[1])])
    if name in frame.columns:
        name = frame.columns.get_loc(name)
    if isinstance(name, int | np.integer) and 0 <= name < frame.shape[1]:
        return frame.iloc[:, int(name)]
    shown = ", ".join(repr(column) for column in frame.columns[:20]) + (", …" if frame.shape[1] > 20 else "")
    raise ValueError(f"feature must be one of X's columns ({shown}) or a position, got {name!r}")


def place_column(column: Any) -> Placed:
    """Place numbers and dates as they are, anything else by category: the frequent ones in order, then all others."""
    name = target_name(column) or "x"
    series = pd.Series(column.to_numpy() if hasattr(column, "to_numpy") else column)
    ordered = None
    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        ordered = list(column.dtype.categories)
    elif pd.api.types.is_datetime64_any_dtype(series.dtype):
        days = (pd.to_datetime(series, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        return Placed(name, np.asarray(days, dtype=np.float64), dates=True)
    elif pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        numbers = series.to_numpy(dtype=float, na_value=np.nan)
        return Placed(name, np.where(np.isfinite(numbers), numbers, np.nan))

    values = series.astype(object)
    frequent = set(values.value_counts().index[:MOST_CATEGORIES])
    names = [value for value in ordered or sorted(set(values.dropna()), key=str) if value in frequent]
    places = pd.Index(names, dtype=object).get_indexer(pd.Index(values)).astype(float)
    places[values.isna()] = np.nan
    rare = places < 0
    places[rare] = len(names)
    return Placed(name, places, (*map(str, names), *(["all others"] if rare.any() else [])))


@dataclass(frozen=True, eq=False)
class Placed:
    """Where each row's value is on an axis; NaN where it is missing."""

    name: str
    values: FloatArray
    categories: tuple[str, ...] = ()
    dates: bool = False

    @cached_property
    def few(self) -> FloatArray | None:
        """The distinct values if they are few, else None."""
        values = np.unique(self.values[~np.isnan(self.values)])
        return values if len(values) <= MOST_VALUES else None

    @cached_property
    def ends(self) -> tuple[float, float] | None:
        """Where the axis should end if a few of many values are far beyond all others, else None."""
        known = self.values[~np.isnan(self.values)]
        if self.few is not None or len(known) <= MOST_LINES:
            return None
        low, high = np.quantile(known, [0.005, 0.995])
        if not np.ptp(known) > 2 * (high - low) > 0:
            return None
        margin = 0.1 * (high - low)
        return max(low - margin, float(known.min())), min(high + margin, float(known.max()))

    def spread(self, rows: IntArray, rng: np.random.Generator) -> FloatArray:
        """Return places of rows; where values are few, moved sideways so that points don't hide each other."""
        places = self.values[rows]
        if self.few is None:
            return places
        gap = np.diff(self.few).min() if len(self.few) > 1 else 1.0
        return np.asarray(places + rng.uniform(-0.3, 0.3, size=len(rows)) * gap)

    def bins(self, n_bins: int, least: int) -> tuple[IntArray, FloatArray]:
        """Return each row's bin (-1: missing) and the bins' edges.

        At most `n_bins` distinct values have a bin each. More are put into equally wide bins; one that holds less than
        `least` rows is joined with the next. Values beyond the ends belong to the first and the last bin.
        """
        if n_bins < 1:
            raise ValueError(f"n_bins must be at least 1, got {n_bins}")
        values = self.values if self.ends is None else np.clip(self.values, *self.ends)
        known = ~np.isnan(values)
        distinct = np.unique(values[known]) if known.any() else np.zeros(1)
        if len(distinct) <= n_bins:  # edges halfway between values
            gaps = np.diff(distinct) if len(distinct) > 1 else np.ones(1)
            padded = np.concatenate([distinct[:1] - gaps[0], distinct, distinct[-1:] + gaps[-1]])
            edges = padded[1:] / 2 + padded[:-1] / 2
        else:
            counts, equal = np.histogram(values[known], bins=n_bins)
            kept, held = [equal[0]], 0
            for count, right in zip(counts, equal[1:], strict=True):
                held += count
                if held >= least:
                    kept, held = [*kept, right], 0
            # What is left over belongs to the last bin.
            edges = np.array([*kept[: max(len(kept) - 1, 1)], equal[-1]])
        places = np.searchsorted(edges, values, side="right") - 1
        return np.where(known, np.clip(places, 0, len(edges) - 2), -1), edges

    def label(self, axis: Axis) -> None:
        """Write name and categories, dates or few values on an axis."""
        axis.set_label_text(plain(self.name))
        if self.categories:
            slanted = axis is axis.axes.xaxis and sum(map(len, self.categories)) > 30
            look: Options = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
            names = [plain(text, 16) for text in self.categories]
            axis.set_ticks(range(len(names)), names, fontsize="small", **look)
        elif self.dates:
            dates = need("matplotlib.dates")
            locator = dates.AutoDateLocator(minticks=3, maxticks=6)
            axis.axis_date()
            axis.set_major_locator(locator)
            axis.set_major_formatter(dates.ConciseDateFormatter(locator))
        elif self.few is not None and len(self.few) <= 10:
            axis.set_ticks(self.few)


def sample_rows(n: int, max_points: int) -> IntArray:
    """Return all row numbers or, if they are too many, a sample of them in which all rows are alike."""
    if max_points < 1:
        raise ValueError(f"max_points must be at least 1, got {max_points}")
    return draw_rows(n, max_points, np.random.default_rng(0))


def sample_note(drawn: IntArray, n: int, *columns: Placed) -> str:
    """Say that only a sample of the rows is drawn as points, and how many rows the axes do not show, if so."""
    notes = [f"{len(drawn):,} of {n:,} points drawn"] if len(drawn) < n else []
    outside = [(each.values < each.ends[0]) | (each.values > each.ends[1]) for each in columns if each.ends]
    if n_beyond := int(np.any(outside, axis=0).sum()):
        notes.append(f"{n_beyond:,} {'row' if n_beyond == 1 else 'rows'} beyond the axis")
    return ", ".join(notes)
