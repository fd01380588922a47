"""One column of a user's table as numbers or text. What can be read in two ways is an error that names the option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
except ImportError as error:
    raise ImportError('reading tables needs pyarrow: pip install "icqr[cli]"') from error

from icqr.cli.options import TextFormat

PLAIN_NUMBERS = "written without unit, currency sign and separated thousands"
#: Texts that stand for a missing value in CSV files.
_MISSING = pa.array([*pyarrow.csv.ConvertOptions().null_values, "?", "None", "<NA>"])
#: A text column of fewer different values may be of categories, whatever they look like.
_FEWEST_VALUES = 20
_DAYS = "they are taken as days since 1970-01-01"

_NUMBER = r"[+-]?\d+(\.\d+)?"
#: Numbers with a comma, or with thousands parted by some sign.
_SIGNED_NUMBER = re.compile(r"[+-]?(\d+,\d+|\d{1,3}([,.' ])\d{3}(\2\d{3})*([.,]\d+)?)")
_FIRST_NUMBER = re.compile(r"\d[\d.,']*")
_NUMBER_WITH_UNIT = re.compile(rf"[€$£]? ?-?{_FIRST_NUMBER.pattern} ?([€$£%]|[A-Za-z]{{1,6}}[23²³]?)?")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
#: Other dates are surely dates if they have a year of four digits.
_WITH_YEAR = r"\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{4}"
_WITHOUT_YEAR = r"\d{1,2}[./-]\d{1,2}[./-]\d{2}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{2}"
_WITH_MONTH = r"[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}\.? [A-Za-z]{4,9} \d{4}"
_HOUR = r"([ T]\d{1,2}:\d{2}(:\d{2})?)?"
_OTHER_DATE = re.compile(rf"({_WITH_YEAR}){_HOUR}|\d{{8}}T\d{{6}}")
_MAYBE_DATE = re.compile(rf"({_WITH_YEAR}|{_WITHOUT_YEAR}|{_WITH_MONTH}){_HOUR}")


# -- The texts of a CSV file -----------------------------------------------------------------------------


def csv_values(
    texts: pa.ChunkedArray, name: str, text_format: TextFormat, notes: list[str], *, as_text: bool = False
) -> pa.ChunkedArray:
    """Return texts as what all of them are: whole numbers, numbers, true/false or times of day; else as they are.

    Those that stand for a missing value are missing.

    Examples
    --------
    >>> texts = pa.chunked_array([["1.250", "-3,5", "NA"]])
    >>> csv_values(texts, "price", TextFormat(thousands="."), []).to_pylist()
    [1250.0, -3.5, None]
    """
    texts = pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), _MISSING), None, texts)
    if as_text:
        return texts
    values, kinds = pc.utf8_trim_whitespace(texts), [pa.int64(), pa.float64(), pa.bool_()]

    # Numbers become those that Arrow reads, with a point and nothing else, if all texts are as the options say.
    thousands = text_format.thousands
    decimal = text_format.decimal or ("," if thousands == "." else ".")
    if thousands is None and text_format.decimal is None:
        notes += _note_on_points(name, texts.slice(0, 1000).drop_null().to_pylist())
    else:
        parted = "" if thousands is None else rf"\d{{1,3}}({re.escape(thousands)}\d{{3}})+|"
        form = rf"^[+-]?({parted}\d+)({re.escape(decimal)}\d+)?([eE][+-]?\d+)?$"
        if pc.all(pc.match_substring_regex(values, form)).as_py() is not False:
            values = values if thousands is None else pc.replace_substring(values, thousands, "")
            values = pc.replace_substring(values, decimal, ".")
        elif decimal != ".":
            kinds = [pa.bool_()]

    for kind in kinds:
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            continue
    try:  # a time of day is read with a date before it
        return pc.binary_join_element_wise("1970-01-01 ", values, "").cast(pa.timestamp("us")).cast(pa.time64("us"))
    except pa.ArrowInvalid:
        return texts


def as_written(texts: pa.ChunkedArray, text_format: TextFormat) -> pd.Series[Any]:
    """Return a column of a CSV file as its text, or as numbers if that changes no more than how they are written.

    Leading zeros, and digits beyond the 15th, would be lost: an id that has them stays text.
    """
    values = csv_values(texts, "", text_format, [])
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        known = texts.filter(values.is_valid())
        plain = pc.match_substring_regex(known, r"^-?(0|[1-9]\d*)([.,]\d+)?$")
        if pc.all(pc.and_(plain, pc.less_equal(pc.utf8_length(known), 15)), min_count=1).as_py():
            return pd.Series(values.to_pandas(integer_object_nulls=True))
    return pd.Series(pc.if_else(pc.equal(texts, ""), None, texts).to_pandas())


def _note_on_points(name: str, texts: list[str]) -> list[str]:
    """Note if the decimal points in a column's first texts all have three digits behind them, or are not there."""
    pointed = [text for text in texts if "." in text]
    whole = [text for text in texts if "." not in text]
    is_parted = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) for text in pointed)
    if len(pointed) < 3 or not whole or not is_parted or not all(re.fullmatch(r"[+-]?\d{1,3}", text) for text in whole):
        return []
    example = f"{pointed[0]!r} is read as {pointed[0]}, and {whole[0]!r} as {whole[0]}"
    return [f"column {name!r}: {example}. If the point separates thousands, say --thousands ."]


# -- Columns of any file ---------------------------------------------------------------------------------


def is_written_index(name: str) -> bool:
    """Tell whether pandas gave this name, to an index without one, when it wrote Parquet: no column of the user's."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def is_text(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one of text, or of categories that are text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_series(
    values: pa.ChunkedArray, name: str, text_format: TextFormat, notes: list[str], *, as_text: bool = False
) -> pd.Series[Any]:
    """Return an Arrow column as numbers or text, dates as days, and add to `notes` what was done to it.

    Examples
    --------
    >>> notes = []
    >>> dates = pa.chunked_array([["2024-03-01", None]]).cast(pa.timestamp("s"))
    >>> as_series(dates, "day", TextFormat(), notes).tolist()
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
        return _text_or_days(pd.Series(values.to_pandas()), name, text_format, notes)

    # Dates and times are days.
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

    # Numbers stay as they are, unless pandas would make objects of them.
    has_gaps = kinds.is_null(kind) or (kinds.is_boolean(kind) and values.null_count)
    if has_gaps or kinds.is_decimal(kind) or kinds.is_float16(kind):
        return pd.Series(values.cast(pa.float64()).to_pandas())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return pd.Series(values.to_pandas())
    raise ValueError(
        f"column {name!r} holds values of the kind {str(kind)[:60]}; columns must be numbers, text, dates or "
        "true/false. --ignore it, or turn it into such columns"
    )


def _text_or_days(column: pd.Series[Any], name: str, text_format: TextFormat, notes: list[str]) -> pd.Series[Any]:
    """Return text as it is, or dates as days; refuse what may be meant as numbers or dates of an unknown form."""
    distinct = pd.Series(column.dropna().unique(), dtype=object)
    if not len(distinct):
        return column

    # Numbers with signs that nobody has said the meaning of.
    if text_format.decimal is None and text_format.thousands is None:
        signed = distinct.str.fullmatch(_SIGNED_NUMBER)
        if signed.any() and (signed | distinct.str.fullmatch(_NUMBER)).all():
            raise ValueError(
                f"column {name!r} holds numbers like {distinct[signed].iloc[0]!r}; say --decimal , if a comma is the "
                "decimal sign, or which sign is between --thousands (--decimal . keeps them as text)"
            )

    # Dates: like 2024-03-31, or as --dates says. A few that can't be read among them are a mistake in the file.
    is_iso = bool(distinct.str.fullmatch(_ISO_DATE).all())
    date_format = "ISO8601" if is_iso else text_format.dates
    if date_format is not None:
        dates = pd.to_datetime(distinct, format=date_format, errors="coerce", utc=True)
        if dates.notna().all():
            notes.append(f"column {name!r} holds dates{'' if is_iso else f' ({date_format})'}: {_DAYS}")
            days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
            return column.map(dict(zip(distinct, days, strict=True))).astype(float)
        if is_iso or dates.notna().mean() > 0.5:
            how = "as 2024-03-31" if is_iso else f"as --dates {date_format} says"
            raise ValueError(
                f"column {name!r} holds dates, but {distinct[dates.isna()].iloc[0]!r} can't be read {how}; mend it, or "
                f"--ignore {name}"
            )
    if distinct.str.fullmatch(_OTHER_DATE).all():
        raise ValueError(
            f"column {name!r} holds dates like {distinct.iloc[0]!r}; say how they are written, for example --dates "
            f"%d.%m.%Y for 31.12.2024, or --ignore {name}"
        )
    notes += _notes_on_text(name, column, distinct)
    return column


def _notes_on_text(name: str, column: pd.Series[Any], distinct: pd.Series[Any]) -> Iterator[str]:
    """Yield why a column of text, with these `distinct` values, may be meant as numbers or dates, if it may."""
    taken = f"column {name!r} is taken as text"
    other = distinct[pd.to_numeric(distinct, errors="coerce").isna()].tolist()
    numbers = 1 - column.dropna().isin(other).mean()
    head, has_many_values = distinct[:1000], len(distinct) >= _FEWEST_VALUES
    dates = head.str.fullmatch(_MAYBE_DATE)
    if numbers > 0.5:
        values = ", ".join(repr(value) for value in other[:3]) + (" …" if len(other) > 3 else "")
        yield f"{taken}: {numbers:.0%} of its values are numbers{f', but not {values}' if other else ''}"
    elif dates.mean() > 0.5 and not dates.all():
        yield f"{taken}: most of its values are dates, but not {head[~dates].iloc[0]!r}"
    elif has_many_values and dates.all():
        example = f"for example {distinct[0]!r}; say how they are written with --dates"
        yield f"{taken}, but its values look like dates, {example}"
    elif has_many_values and head.str.fullmatch(_NUMBER_WITH_UNIT).mean() > 0.9:
        units = head.str.replace(_FIRST_NUMBER, "", n=1, regex=True)
        if (units == units.mode()[0]).mean() > 0.9:
            example = f"for example {distinct[0]!r}; numbers are read if {PLAIN_NUMBERS}"
            yield f"{taken}, but its values look like numbers, {example}"
