"""Columns of a user's table as numbers or text: decimal signs, thousands and dates, with notes on what is in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

try:
    import pyarrow as pa
    import pyarrow.csv
except ImportError as error:
    raise ImportError('reading tables needs pyarrow: pip install "icqr[cli]"') from error

from icqr.cli.options import TextFormat

#: Texts that stand for a missing value in CSV files.
MISSING = (*pyarrow.csv.ConvertOptions().null_values, "?", "None", "<NA>")
PLAIN_NUMBERS = "written without unit, currency sign and separated thousands"
#: A column of fewer different values may be of categories.
FEWEST_VALUES = 20
_DAYS = "they are taken as days since 1970-01-01"
_NUMBER = r"[+-]?\d+(\.\d+)?"
#: Numbers with a comma, or with thousands parted by some sign.
_SIGNED_NUMBER = re.compile(r"[+-]?(\d+,\d+|\d{1,3}([,.' ])\d{3}(\2\d{3})*([.,]\d+)?)")
_FIRST_NUMBER = re.compile(r"\d[\d.,']*")
_NUMBER_WITH_UNIT = re.compile(rf"[€$£]? ?-?{_FIRST_NUMBER.pattern} ?([€$£%]|[A-Za-z]{{1,6}}[23²³]?)?")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_TIME = r"([ T]\d{1,2}:\d{2}(:\d{2})?)?"
#: Other dates are told apart from text by a year of four digits.
_OTHER_DATE = re.compile(
    rf"(\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{4}}|\d{{4}}[./-]\d{{1,2}}[./-]\d{{1,2}}|\d{{1,2}}[ -][A-Za-z]{{3}}[ -]\d{{4}})"
    rf"{_TIME}|\d{{8}}T\d{{6}}"
)
#: What may be a date, and is only noted.
_MAYBE_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -](\d{4}|\d{2})|"
    rf"[A-Za-z]{{3,9}}\.? \d{{1,2}},? \d{{4}}|\d{{1,2}}\.? [A-Za-z]{{4,9}} \d{{4}}){_TIME}"
)


def is_written_index(name: str) -> bool:
    """Tell whether pandas gave this name, to an index without one, when it wrote Parquet: no column of the user's."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def is_text(kind: Any) -> bool:
    """Tell whether an Arrow type is one of text, or of categories that are text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_series(values: Any, name: str, as_text: bool, text_format: TextFormat, notes: list[str]) -> pd.Series[Any]:
    """Return an Arrow column as numbers or text, dates as days, and add to `notes` what was done to it.

    Examples
    --------
    >>> notes = []
    >>> dates = pa.chunked_array([["2024-03-01", None]]).cast(pa.timestamp("s"))
    >>> as_series(dates, "day", False, TextFormat(), notes).tolist()
    [19783.0, nan]
    >>> notes
    ["column 'day' holds dates: they are taken as days since 1970-01-01"]
    """
    kinds = pa.types
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if as_text and not kinds.is_nested(kind):
        return pd.Series(values.cast(pa.string()).to_pandas())
    if is_text(kind):
        return _from_text(pd.Series(values.to_pandas()), name, text_format, notes)
    if kinds.is_null(kind):
        return pd.Series(np.full(len(values), np.nan))

    in_microseconds = None
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        what, in_microseconds = f"dates: {_DAYS}", pa.timestamp("us", getattr(kind, "tz", None))
    elif kinds.is_time(kind):
        what, in_microseconds = "times of day: they are taken as days (0.5 is 12 hours)", pa.time64("us")
    elif kinds.is_duration(kind):
        what, in_microseconds = "durations: they are taken as days (0.5 is 12 hours)", pa.duration("us")
    if in_microseconds is not None:
        notes.append(f"column {name!r} holds {what}")
        numbers = values.cast(in_microseconds, safe=False).cast(pa.int64()).to_pandas()
        return pd.Series(numbers.to_numpy(dtype=np.float64, na_value=np.nan) / 86_400_000_000)

    if kinds.is_decimal(kind) or kinds.is_float16(kind) or (kinds.is_boolean(kind) and values.null_count):
        return pd.Series(values.cast(pa.float64()).to_pandas())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return pd.Series(values.to_pandas())
    raise ValueError(
        f"column {name!r} holds values of the kind {str(kind)[:60]}; columns must be numbers, text, dates or "
        "true/false. --ignore it, or turn it into such columns"
    )


def as_written(column: pd.Series[Any], decimal: str) -> pd.Series[Any]:
    """Return a column of a CSV file as its text, or as numbers if that changes no more than how they are written.

    Leading zeros, and digits beyond the 15th, would be lost: an id that has them stays text.
    """
    known = column[~column.isin(["", *MISSING])]
    plain = known.str.fullmatch(rf"-?(0|[1-9]\d*)({re.escape(decimal)}\d+)?") & (known.str.count(r"\d") <= 15)
    if not len(known) or not plain.all():
        return column.astype(object).where(column != "", None)
    numbers = pd.to_numeric(known.str.replace(decimal, ".", regex=False))
    return (numbers.astype("Int64") if numbers.dtype.kind == "i" else numbers).reindex(column.index)


# -- Text ------------------------------------------------------------------------------------------------


def _from_text(column: pd.Series[Any], name: str, text_format: TextFormat, notes: list[str]) -> pd.Series[Any]:
    """Return text as it is, or as the numbers or dates that it is the written form of; refuse what is in doubt."""
    distinct = pd.Series(column.dropna().unique(), dtype=object)
    if not len(distinct):
        return column

    if text_format.thousands is not None:
        thousands, decimal = re.escape(text_format.thousands), re.escape(text_format.decimal_sign)
        written = rf"[+-]?(\d{{1,3}}({thousands}\d{{3}})+|\d+)({decimal}\d+)?"
        if distinct.str.fullmatch(written).all():
            plain = distinct.str.replace(text_format.thousands, "", regex=False)
            numbers = plain.str.replace(text_format.decimal_sign, ".", regex=False).astype(float)
            return column.map(dict(zip(distinct, numbers, strict=True))).astype(float)

    elif text_format.decimal is None:
        signed = distinct.str.fullmatch(_SIGNED_NUMBER)
        if signed.any() and (signed | distinct.str.fullmatch(_NUMBER)).all():
            raise ValueError(
                f"column {name!r} holds numbers like {distinct[signed].iloc[0]!r}; say --decimal , if a comma is the "
                "decimal sign, or which sign is between --thousands (--decimal . keeps them as text)"
            )

    days = _days_of(distinct, name, text_format.dates)
    if days is not None:
        how = "" if text_format.dates is None else f" ({text_format.dates})"
        notes.append(f"column {name!r} holds dates{how}: {_DAYS}")
        return column.map(dict(zip(distinct, days, strict=True))).astype(float)
    doubt = _doubt(column, distinct)
    if doubt is not None:
        notes.append(f"column {name!r} is taken as text{doubt}")
    return column


def _days_of(distinct: pd.Series[Any], name: str, date_format: str | None) -> pd.Series[Any] | None:
    """Return the days since 1970 that texts stand for; None if they are no dates."""
    is_iso = bool(distinct.str.fullmatch(_ISO_DATE).all())
    if is_iso or date_format is not None:
        parsed = pd.to_datetime(distinct, format="ISO8601" if is_iso else date_format, errors="coerce", utc=True)
        if parsed.notna().all():
            return (parsed - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        if is_iso or parsed.notna().mean() > 0.5:
            odd = distinct[parsed.isna()].iloc[0]
            how = "as 2024-03-31" if is_iso else f"as --dates {date_format} says"
            raise ValueError(
                f"column {name!r} holds dates, but {odd!r} can't be read {how}; mend it, or --ignore {name}"
            )
    if distinct.str.fullmatch(_OTHER_DATE).all():
        raise ValueError(
            f"column {name!r} holds dates like {distinct.iloc[0]!r}; say how they are written, for example --dates "
            f"%d.%m.%Y for 31.12.2024, or --ignore {name}"
        )
    return None


def _doubt(column: pd.Series[Any], distinct: pd.Series[Any]) -> str | None:
    """Return why a column of text may be meant as numbers or dates, if it may: the end of a sentence."""
    other = distinct[pd.to_numeric(distinct, errors="coerce").isna()].tolist()
    numbers = 1 - column.dropna().isin(other).mean()
    if numbers > 0.5:
        values = ", ".join(repr(value) for value in other[:3]) + (" …" if len(other) > 3 else "")
        return f": {numbers:.0%} of its values are numbers, but not {values}"

    head = distinct[:1000]
    dates = head.str.fullmatch(_MAYBE_DATE)
    if dates.mean() > 0.5 and not dates.all():
        return f": most of its values are dates, but not {head[~dates].iloc[0]!r}"
    if len(distinct) < FEWEST_VALUES:
        return None
    if dates.all():
        return f", but its values look like dates, for example {distinct[0]!r}; say how they are written with --dates"

    units = head.str.replace(_FIRST_NUMBER, "", n=1, regex=True)
    if head.str.fullmatch(_NUMBER_WITH_UNIT).mean() > 0.9 and (units == units.mode()[0]).mean() > 0.9:
        return f", but its values look like numbers, for example {distinct[0]!r}; numbers are read if {PLAIN_NUMBERS}"
    return None


def maybe_thousands(sample: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield columns, and notes on them, whose decimal points all have three digits behind them, or are not there.

    Examples
    --------
    >>> [(name, text)] = maybe_thousands([["price"], ["6.139"], ["906"], ["1.506"], ["12.000"]])
    >>> text.partition(". ")[0]
    "column 'price': '6.139' is read as 6.139, and '906' as 906"
    """
    header, *rows = sample or [[]]
    for place, name in enumerate(column.strip() for column in header):
        values = [row[place].strip() for row in rows if len(row) > place and row[place].strip() not in MISSING]
        pointed = [value for value in values if "." in value]
        whole = [value for value in values if "." not in value]
        if len(pointed) < 3 or not whole:
            continue
        is_parted = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", value) for value in pointed)
        if is_parted and all(re.fullmatch(r"[+-]?\d{1,3}", value) for value in whole):
            example = f"{pointed[0]!r} is read as {pointed[0]}, and {whole[0]!r} as {whole[0]}"
            yield name, f"column {name!r}: {example}. If the point separates thousands, say --thousands ."
