"""Columns of a user's table as numbers or text. What can be read in two ways is an error that names the option."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
except ImportError as error:
    raise ImportError('reading tables needs pyarrow: pip install "icqr[cli]"') from error

from icqr.cli.console import did_you_mean, listed_names
from icqr.cli.notes import PLAIN_NUMBERS, notes_on_text
from icqr.cli.options import TextFormat

#: Texts that stand for a missing value in CSV files.
_MISSING = pa.array([*pyarrow.csv.ConvertOptions().null_values, "?", "None", "<NA>"])
_DAYS = "they are taken as days since 1970-01-01"
_NUMBER = r"[+-]?\d+(\.\d+)?"
#: Numbers with a comma, or with thousands parted by some sign.
_SIGNED_NUMBER = re.compile(r"[+-]?(\d+,\d+|\d{1,3}([,.' ])\d{3}(\2\d{3})*([.,]\d+)?)")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
#: Other dates are told apart from text by a year of four digits.
_OTHER_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{4})"
    r"([ T]\d{1,2}:\d{2}(:\d{2})?)?|\d{8}T\d{6}"
)


def is_text(kind: Any) -> bool:
    """Tell whether an Arrow type is one of text, or of categories that are text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# -- Texts of a CSV file ---------------------------------------------------------------------------------


def with_gaps(texts: Any) -> Any:
    """Return the texts of a CSV file, missing where they stand for a missing value."""
    return pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), _MISSING), None, texts)


def parsed(texts: Any, text_format: TextFormat) -> Any:
    """Return texts as what all of them are: whole numbers, numbers, true/false or times of day; else as they are.

    Examples
    --------
    >>> parsed(pa.chunked_array([["1.250", "-3,5", None]]), TextFormat(thousands=".")).to_pylist()
    [1250.0, -3.5, None]
    """
    values, kinds = pc.utf8_trim_whitespace(texts), [pa.int64(), pa.float64(), pa.bool_()]
    thousands, decimal = text_format.thousands, text_format.decimal_sign
    if thousands is not None or decimal != ".":
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
    try:
        return pc.binary_join_element_wise("1970-01-01 ", values, "").cast(pa.timestamp("us")).cast(pa.time64("us"))
    except pa.ArrowInvalid:
        return texts


def as_written(texts: Any, text_format: TextFormat) -> pd.Series[Any]:
    """Return a column of a CSV file as its text, or as numbers if that changes no more than how they are written.

    Leading zeros, and digits beyond the 15th, would be lost: an id that has them stays text.
    """
    values = with_gaps(texts)
    plain = pc.match_substring_regex(values, rf"^-?(0|[1-9]\d*)({re.escape(text_format.decimal_sign)}\d+)?$")
    if values.null_count < len(values) and pc.all(pc.and_(plain, pc.less_equal(pc.utf8_length(values), 15))).as_py():
        return pd.Series(parsed(values, text_format).to_pandas(integer_object_nulls=True))
    return pd.Series(pc.if_else(pc.equal(texts, ""), None, texts).to_pandas())


# -- Columns of any file ---------------------------------------------------------------------------------


def as_series(
    values: Any, name: str, text_format: TextFormat, notes: list[str], *, as_text: bool = False
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
        return _from_text(pd.Series(values.to_pandas()), name, text_format, notes)

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

    has_gaps = kinds.is_null(kind) or (kinds.is_boolean(kind) and values.null_count)
    if has_gaps or kinds.is_decimal(kind) or kinds.is_float16(kind):
        return pd.Series(values.cast(pa.float64()).to_pandas())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return pd.Series(values.to_pandas())
    raise ValueError(
        f"column {name!r} holds values of the kind {str(kind)[:60]}; columns must be numbers, text, dates or "
        "true/false. --ignore it, or turn it into such columns"
    )


def _from_text(column: pd.Series[Any], name: str, text_format: TextFormat, notes: list[str]) -> pd.Series[Any]:
    """Return text as it is, or dates as days; refuse what may be meant as numbers or dates of an unknown form."""
    distinct = pd.Series(column.dropna().unique(), dtype=object)
    if not len(distinct):
        return column
    if text_format.decimal is None and text_format.thousands is None:
        signed = distinct.str.fullmatch(_SIGNED_NUMBER)
        if signed.any() and (signed | distinct.str.fullmatch(_NUMBER)).all():
            raise ValueError(
                f"column {name!r} holds numbers like {distinct[signed].iloc[0]!r}; say --decimal , if a comma is the "
                "decimal sign, or which sign is between --thousands (--decimal . keeps them as text)"
            )

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
    notes += notes_on_text(name, column, distinct)
    return column


# -- Checks ----------------------------------------------------------------------------------------------


def check_column(known: Iterable[Any], name: str, option: str) -> None:
    """Raise if a name is not among the columns' names."""
    columns = [str(column) for column in known]
    if name in columns:
        return
    hint = did_you_mean(name, columns)
    if not hint and pd.to_numeric(pd.Series(columns, dtype=object), errors="coerce").notna().all():
        hint = "; if the first line of the file is a row and not the columns' names, say --no-header"
    raise ValueError(f"{option}: there is no column {name!r}; columns are {listed_names(columns)}{hint}")


def check_numbers(frame: pd.DataFrame, names: Mapping[str, str], drop_missing: bool) -> pd.DataFrame:
    """Return the rows in which these columns, after their options, are known numbers; refuse text and gaps."""
    for option, name in names.items():
        check_column(frame.columns, name, option)
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            known = column.dropna()
            wrong = known[pd.to_numeric(known.astype(object), errors="coerce").isna()]
            example = (
                f"{wrong.iloc[0]!r} in row {wrong.index[0]:,}, counted from 0" if len(wrong) else "numbers as text"
            )
            raise ValueError(
                f"{option}: column {name!r} must hold numbers, but {len(wrong):,} of {len(known):,} values are text, "
                f"for example {example}; numbers are read if {PLAIN_NUMBERS}"
            )
    missing = frame[list(names.values())].isna()
    rows = missing.any(axis=1)
    check_gaps(missing.sum(), int(rows.sum()), len(frame), drop_missing)
    return frame[~rows].reset_index(drop=True) if rows.any() else frame


def check_gaps(gaps: pd.Series[int], without: int, n_rows: int, drop_missing: bool) -> None:
    """Raise if columns have gaps that the user did not say to drop, or nothing else; `without` counts their rows."""
    if without and not drop_missing:
        first = gaps.index[gaps > 0][0]
        raise ValueError(
            f"column {first!r} is missing in {gaps[first]:,} of {n_rows:,} rows; --drop-missing would leave out "
            f"{without:,} rows and keep {n_rows - without:,}"
        )
    if without == n_rows:
        raise ValueError(f"columns {listed_names(gaps.index)} have no row without a missing value; nothing is left")
