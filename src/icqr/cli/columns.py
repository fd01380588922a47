"""One column of a user's table as numbers, text or dates. What can be read in two ways is an error with the option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote
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

_NO_UNITS = "numbers are read without unit and currency sign"
_SIGNS = "--decimal and --thousands say which signs are in numbers"
#: Texts that stand for a missing value in CSV files.
_MISSING = (*pyarrow.csv.ConvertOptions().null_values, "?", "None", "<NA>")
#: A text column of fewer different values may be of categories, whatever they look like.
_FEWEST_VALUES = 20
#: More texts among numbers than these are no words for a missing value.
_MOST_ABSENT = 5

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
_HOUR = r"([ T]\d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?)?"
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
    missing = pa.array([*_MISSING, *(text_format.missing or ())], pa.string())
    texts = pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), missing), None, texts)
    if as_text:
        return texts
    values, kinds = pc.utf8_trim_whitespace(texts), [pa.int64(), pa.float64(), pa.bool_()]

    # Numbers become those that Arrow reads, with a point and nothing else, if all texts are as the options say.
    thousands, decimal = text_format.thousands, _decimal_sign(text_format)
    if thousands is None and text_format.decimal is None:
        notes += _note_on_points(name, texts.slice(0, 1000).drop_null().to_pylist())
    elif pc.all(pc.match_substring_regex(values, f"^{_number_form(text_format)}$")).as_py() is not False:
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


def _decimal_sign(text_format: TextFormat) -> str:
    return text_format.decimal or ("," if text_format.thousands == "." else ".")


def _number_form(text_format: TextFormat) -> str:
    """Return the regular expression of numbers as the options say that they are written."""
    thousands = text_format.thousands
    parted = "" if thousands is None else rf"\d{{1,3}}({re.escape(thousands)}\d{{3}})+|"
    return rf"[+-]?({parted}\d+)({re.escape(_decimal_sign(text_format))}\d+)?([eE][+-]?\d+)?"


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
    """Return an Arrow column as numbers, text or dates (in UTC), and add to `notes` what was done to it.

    Examples
    --------
    >>> notes = []
    >>> dates = pa.chunked_array([["2024-03-01", None]]).cast(pa.timestamp("s"))
    >>> as_series(dates, "day", TextFormat(), notes).tolist()
    [Timestamp('2024-03-01 00:00:00'), NaT]
    >>> notes
    ["column 'day' holds dates"]
    """
    kinds = pa.types
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if as_text and not kinds.is_nested(kind):
        return pd.Series(values.cast(pa.string()).to_pandas())
    if is_text(kind):
        return _text_or_dates(pd.Series(values.to_pandas()), name, text_format, notes)

    # Dates are dates, in UTC; times and durations are days.
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        notes.append(f"column {name!r} holds dates")
        in_utc = values.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.timestamp("us"))
        return pd.Series(in_utc.to_pandas())
    in_microseconds = None
    if kinds.is_time(kind):
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


def _text_or_dates(column: pd.Series[Any], name: str, text_format: TextFormat, notes: list[str]) -> pd.Series[Any]:
    """Return text as it is, or as dates; refuse what may be meant as numbers or dates of an unknown form."""
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

    # Dates: like 2024-03-31, or as --date-format says. A few that can't be read among them are a mistake in the file.
    is_iso = bool(distinct.str.fullmatch(_ISO_DATE).all())
    date_format = "ISO8601" if is_iso else text_format.date_format
    if date_format is not None:
        dates = pd.to_datetime(distinct, format=date_format, errors="coerce", utc=True)
        if dates.notna().all():
            notes.append(f"column {name!r} holds dates{'' if is_iso else f' ({date_format})'}")
            read = dates.dt.tz_localize(None).astype("datetime64[us]")
            return column.map(dict(zip(distinct, read, strict=True))).astype("datetime64[us]")
        if is_iso or dates.notna().mean() > 0.5:
            wrong = str(distinct[dates.isna()].iloc[0])
            how = "as 2024-03-31" if is_iso else f"as --date-format {date_format} says"
            raise ValueError(
                f"column {name!r} holds dates, but {wrong!r} can't be read {how}; mend it, say --missing "
                f"{quote(wrong)} if it means that the date is missing, or --ignore {quote(name)}"
            )
    if distinct.str.fullmatch(_OTHER_DATE).all():
        raise ValueError(
            f"column {name!r} holds dates like {distinct.iloc[0]!r}; say how they are written, for example "
            f"--date-format %d.%m.%Y for 31.12.2024, or --ignore {quote(name)}"
        )
    notes += _notes_on_text(name, column, distinct, text_format)
    return column


def _notes_on_text(
    name: str, column: pd.Series[Any], distinct: pd.Series[Any], text_format: TextFormat
) -> Iterator[str]:
    """Yield why a column of text, with these `distinct` values, may be meant as numbers or dates, if it may."""
    taken, n = f"column {name!r} is taken as text", column.count()
    is_number, is_written = are_numbers(distinct, text_format), distinct.str.fullmatch(_NUMBER)
    signed = distinct.str.fullmatch(_SIGNED_NUMBER)
    numbers, others = column.isin(distinct[is_number]).sum(), column.isin(distinct[is_written | signed]).sum()
    head, has_many_values = distinct[:1000], len(distinct) >= _FEWEST_VALUES
    is_date, has_unit = head.str.fullmatch(_MAYBE_DATE), head.str.fullmatch(_NUMBER_WITH_UNIT)
    if numbers > 0.5 * n:
        yield f"{taken}: {numbers:,} of its {n:,} values are numbers{_exceptions(distinct[~is_number])}"
    elif others > 0.5 * n:
        example = distinct[(is_written | signed) & ~is_number].iloc[0]
        except_for = _exceptions(distinct[~(is_written | signed)])
        yield f"{taken}: {others:,} of its {n:,} values may be numbers, like {example!r}{except_for}. {_SIGNS}"
    elif is_date.mean() > 0.5 and not is_date.all():
        yield f"{taken}: most of its values are dates{_exceptions(head[~is_date])}"
    elif has_many_values and is_date.all():
        yield f"{taken}, but its values look like dates, for example {head[0]!r}; say --date-format if they are"
    elif has_many_values and has_unit.mean() > 0.9:
        units = head[has_unit].str.replace(_FIRST_NUMBER, "", n=1, regex=True)
        if (units == units.mode()[0]).mean() > 0.9:
            yield f"{taken}, but its values look like numbers, for example {head[has_unit].iloc[0]!r}; {_NO_UNITS}"


def _exceptions(others: pd.Series[Any]) -> str:
    """Return the end of a sentence on values of one kind: which are of another, and how to read them as missing."""
    if others.empty:
        return ""
    values = ", ".join(repr(value) for value in others[:3]) + (" …" if len(others) > 3 else "")
    absent = [value for value in others if not re.search(r"\d", value)]
    options = " ".join(f"--missing {quote(value)}" for value in absent)
    if not 0 < len(absent) <= _MOST_ABSENT:
        return f", but not {values}"
    return f", but not {values}. If {'that means' if len(absent) == 1 else 'those mean'} a missing value, say {options}"


def are_numbers(texts: pd.Series[Any], text_format: TextFormat) -> pd.Series[Any]:
    """Tell which texts are numbers as the options say that they are written."""
    if text_format.decimal is None and text_format.thousands is None:
        return pd.to_numeric(texts, errors="coerce").notna()
    return texts.str.strip().str.fullmatch(_number_form(text_format))


def advice_on(text: str) -> str:
    """Return how a text of a CSV file is read as a number, or as a missing value.

    Examples
    --------
    >>> advice_on("unknown"), advice_on("12 kg")
    ('say --missing unknown if it means a missing value', 'numbers are read without unit and currency sign')
    """
    if not re.search(r"\d", text):
        return f"say --missing {quote(text)} if it means a missing value"
    return _SIGNS if _SIGNED_NUMBER.fullmatch(text) or re.fullmatch(_NUMBER, text) else _NO_UNITS
