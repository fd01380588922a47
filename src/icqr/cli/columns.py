"""A column of an Arrow table as numbers or text; dates become days since 1970."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from icqr.cli.wording import need

_DAY = 86_400_000_000  # in microseconds
_DAYS = "days since 1970-01-01"
#: Dates that are told apart from other text by a year of four digits.
_LIKE_A_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{4})"
    r"([ T]\d{1,2}:\d{2}(:\d{2})?)?|\d{8}T\d{6}"
)
#: Dates that are not read, and numbers with a unit, a currency or separated thousands: worth a note.
_OTHER_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-]\d{2}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{2}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|"
    r"\d{1,2}\.? [A-Za-z]{4,9} \d{4})([ T]\d{1,2}:\d{2}(:\d{2})?)?"
)
_FIRST_NUMBER = re.compile(r"\d[\d.,']*")
_OTHER_NUMBER = re.compile(rf"[€$£]? ?-?{_FIRST_NUMBER.pattern} ?([€$£%]|[A-Za-z]{{1,6}}[23²³]?)?")
PLAIN_NUMBERS = "written without unit, currency sign and separated thousands"
#: With fewer different values a column of such text may be meant as categories.
_FEWEST_VALUES = 20
_ORDERS = ["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"]
_ORDERS += ["%d-%b-%Y", "%d %b %Y"]
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S")
_DATE_FORMATS = (*(order + time for order in _ORDERS for time in _TIMES), "%Y%m%dT%H%M%S")


def is_written_index(name: str) -> bool:
    """Tell whether pandas gave this name, to an index without one, when it wrote Parquet: no column of the user's."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def as_series(values: Any, name: str, as_text: bool, notes: list[str]) -> pd.Series[Any]:
    """Give an Arrow column as numbers or text, and add to `notes` what was done to it.

    Parameters
    ----------
    values : pyarrow.ChunkedArray
        The column.
    name : str
        Its name, for messages.
    as_text : bool
        Take it as text, whatever it looks like.
    notes : list of str
        Is extended.

    Examples
    --------
    >>> import pyarrow as pa
    >>> said = []
    >>> as_series(pa.chunked_array([["2024-03-01", None]]).cast(pa.timestamp("s")), "day", False, said).tolist()
    [19783.0, nan]
    >>> said
    ["column 'day' holds dates: they are taken as days since 1970-01-01"]
    """
    pa, kinds = need("pyarrow"), need("pyarrow.types")
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if as_text and not kinds.is_nested(kind):
        return pd.Series(values.cast(pa.string()).to_pandas())
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return _text(pd.Series(values.to_pandas()), name, notes)
    if kinds.is_null(kind):
        return pd.Series(np.full(len(values), np.nan))
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        notes.append(f"column {name!r} holds dates: they are taken as {_DAYS}")
        return _days(values.cast(pa.timestamp("us", getattr(kind, "tz", None))))
    if kinds.is_time(kind) or kinds.is_duration(kind):
        what = "times of day" if kinds.is_time(kind) else "durations"
        notes.append(f"column {name!r} holds {what}: they are taken as days (0.5 is 12 hours)")
        return _days(values.cast(pa.time64("us") if kinds.is_time(kind) else pa.duration("us")))
    if kinds.is_decimal(kind) or kinds.is_float16(kind) or (kinds.is_boolean(kind) and values.null_count):
        return pd.Series(values.cast(pa.float64()).to_pandas())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return pd.Series(values.to_pandas())
    raise ValueError(
        f"column {name!r} holds values of the kind {kind}; columns must be numbers, text, dates or true/false. "
        "Take it out of the file, or turn it into such columns"
    )


def as_written(column: pd.Series[Any], decimal: str, missing: Collection[str]) -> pd.Series[Any]:
    """Give a column of a CSV file as its text, or as numbers if that changes no more than how they are written.

    Leading zeros, and digits beyond the 15th, would be lost: an id that has them stays text.

    Parameters
    ----------
    column : Series of str
        The text.
    decimal : str
        The decimal sign.
    missing : collection of str
        Texts that stand for a missing number.

    Examples
    --------
    >>> as_written(pd.Series(["7,50", "", "12"]), ",", []).tolist(), as_written(pd.Series(["007"]), ".", []).tolist()
    ([7.5, nan, 12.0], ['007'])
    """
    known = column[~column.isin(["", *missing])]
    plain = known.str.fullmatch(rf"-?(0|[1-9]\d*)({re.escape(decimal)}\d+)?") & (known.str.count(r"\d") <= 15)
    if not len(known) or not plain.all():
        return column.astype(object).where(column != "", None)
    numbers = pd.to_numeric(known.str.replace(decimal, ".", regex=False))
    return (numbers.astype("Int64") if numbers.dtype.kind == "i" else numbers).reindex(column.index)


def _days(values: Any) -> pd.Series[Any]:
    numbers = values.cast(need("pyarrow").int64()).to_pandas()
    return pd.Series(numbers.to_numpy(dtype=np.float64, na_value=np.nan) / _DAY)


# -- Text ------------------------------------------------------------------------------------------------


def _text(column: pd.Series[Any], name: str, notes: list[str]) -> pd.Series[Any]:
    """Give text as it is, or the dates that it holds as days."""
    known = column.dropna()
    if len(known) and _looks_like_dates(known):
        date_format, days = _parsed(known, name)
        notes.append(f"column {name!r} holds dates ({_in_words(date_format)}): they are taken as {_DAYS}")
        return days.reindex(column.index)
    _note_numbers(known, name, notes)
    _note_dates(known, name, notes)
    _note_other_forms(known, name, notes)
    return column


def _looks_like_dates(known: pd.Series[Any]) -> bool:
    return bool(_LIKE_A_DATE.fullmatch(known.iloc[0])) and bool(known.str.fullmatch(_LIKE_A_DATE).all())


def _parsed(known: pd.Series[Any], name: str) -> tuple[str, pd.Series[Any]]:
    """Give the one format that all dates have, and the days; or say that there is none, or that there are two."""
    first = known.iloc[:1000]
    fitting = {}
    odd = known.iloc[0]  # a value that keeps the formats of others from fitting
    for date_format in _DATE_FORMATS:
        if pd.to_datetime(first, format=date_format, errors="coerce").notna().any():
            parsed = pd.to_datetime(known, format=date_format, errors="coerce")
            if parsed.notna().all():
                fitting[date_format] = (parsed - pd.Timestamp(0)) / pd.Timedelta(days=1)
            elif parsed.notna().mean() > 0.5:
                odd = known[parsed.isna()].iloc[0]
    advice = "Write them as 2024-03-31, or take the column out of the file"
    if not fitting:
        raise ValueError(f"column {name!r} holds dates like {odd!r} that can't be read. {advice}")
    (date_format, days), *others = fitting.items()
    if any(not days.equals(other) for _, other in others):
        raise ValueError(
            f"column {name!r} holds dates like {known.iloc[0]!r} that can be read as "
            f"{' or as '.join(map(_in_words, fitting))}. "
            f"{advice}"
        )
    return date_format, days


def _in_words(date_format: str) -> str:
    """Give a format without its time of day.

    Examples
    --------
    >>> _in_words("%d.%m.%Y %H:%M")
    'day.month.year'
    """
    words = {"%d": "day", "%m": "month", "%b": "month", "%Y": "year", "T%H%M%S": ""}
    for sign, word in words.items():
        date_format = date_format.replace(sign, word)
    return date_format.partition(" %H")[0].partition("T%H")[0]


def _note_dates(known: pd.Series[Any], name: str, notes: list[str]) -> None:
    """Tell of a column that would be dates but for a few values."""
    distinct = pd.Series(known.unique())
    dates = distinct.str.fullmatch(_LIKE_A_DATE)
    if dates.mean() > 0.5:
        notes.append(
            f"column {name!r} is taken as text: most of its values are dates, but not {distinct[~dates].iloc[0]!r}"
        )


def _note_numbers(known: pd.Series[Any], name: str, notes: list[str]) -> None:
    """Tell of a column that would be numbers but for a few values."""
    distinct = pd.Series(known.unique())
    other = distinct[pd.to_numeric(distinct.astype(object), errors="coerce").isna()].tolist()
    share = 1 - known.isin(other).mean() if len(known) else 0.0
    if share > 0.5 and other:
        notes.append(
            f"column {name!r} is taken as text: {share:.0%} of its values are numbers, but not "
            f"{', '.join(repr(value) for value in other[:3])}{' …' if len(other) > 3 else ''}"
        )


def _note_other_forms(known: pd.Series[Any], name: str, notes: list[str]) -> None:
    """Tell of a column of dates or numbers in a form that is not read."""
    distinct = pd.Series(known.unique()[:1000], dtype=object)
    plain = pd.to_numeric(distinct, errors="coerce").notna()
    if len(distinct) < _FEWEST_VALUES or plain.mean() > 0.5:
        return
    said = f"column {name!r} is taken as text, but its values look like"
    if distinct.str.fullmatch(_OTHER_DATE).mean() > 0.9:
        notes.append(f"{said} dates, for example {distinct[0]!r}; dates are read if written as 2024-03-31")
    units = distinct.str.replace(_FIRST_NUMBER, "", n=1, regex=True)
    if distinct.str.fullmatch(_OTHER_NUMBER).mean() > 0.9 and (units == units.mode()[0]).mean() > 0.9:
        notes.append(f"{said} numbers, for example {distinct[0]!r}; numbers are read if {PLAIN_NUMBERS}")
