"""Notes to the user: what about columns and rows may not be as they think."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from icqr.cli.console import listed_names

PLAIN_NUMBERS = "written without unit, currency sign and separated thousands"
#: Of rows like the calibration rows, this share has a novelty of no more: it is a p-value.
_NOVEL = 0.05
#: A larger share of rows that are copies is worth a note; a column of fewer different values may be of categories.
_MOST_COPIES, _FEWEST_VALUES = 0.01, 20
_ROW_NUMBER_NAMES = ("id", "index", "instant", "row", "rownames", "unnamed: 0", "column 1")
_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -](\d{4}|\d{2})|"
    r"[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}\.? [A-Za-z]{4,9} \d{4})([ T]\d{1,2}:\d{2}(:\d{2})?)?"
)
_FIRST_NUMBER = re.compile(r"\d[\d.,']*")
_NUMBER_WITH_UNIT = re.compile(rf"[€$£]? ?-?{_FIRST_NUMBER.pattern} ?([€$£%]|[A-Za-z]{{1,6}}[23²³]?)?")


# -- Text ------------------------------------------------------------------------------------------------


def doubtful_text(column: pd.Series[Any], distinct: pd.Series[Any], name: str) -> list[str]:
    """Return notes on a column of text that may be meant as numbers or dates."""
    known = column.dropna()
    other = distinct[pd.to_numeric(distinct, errors="coerce").isna()].tolist()
    numbers = 1 - known.isin(other).mean()
    if numbers > 0.5:
        values = ", ".join(repr(value) for value in other[:3]) + (" …" if len(other) > 3 else "")
        return [f"column {name!r} is taken as text: {numbers:.0%} of its values are numbers, but not {values}"]

    head = distinct[:1000]
    dates = head.str.fullmatch(_DATE)
    enough = len(distinct) >= _FEWEST_VALUES
    if dates.all() and enough:
        return [
            f"column {name!r} is taken as text, but its values look like dates, for example {distinct[0]!r}; say how "
            "they are written with --dates"
        ]
    if dates.mean() > 0.5 and not dates.all():
        odd = head[~dates].iloc[0]
        return [f"column {name!r} is taken as text: most of its values are dates, but not {odd!r}"]

    units = head.str.replace(_FIRST_NUMBER, "", n=1, regex=True)
    alike = head.str.fullmatch(_NUMBER_WITH_UNIT).mean() > 0.9 and (units == units.mode()[0]).mean() > 0.9
    if alike and enough:
        return [
            f"column {name!r} is taken as text, but its values look like numbers, for example {distinct[0]!r}; "
            f"numbers are read if {PLAIN_NUMBERS}"
        ]
    return []


def maybe_thousands(sample: Sequence[Sequence[str]], missing: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield columns, and notes on them, whose decimal points all have three digits behind them, or are not there.

    Examples
    --------
    >>> [(name, text)] = maybe_thousands([["price"], ["6.139"], ["906"], ["1.506"], ["12.000"]], [""])
    >>> text.partition(". ")[0]
    "column 'price': '6.139' is read as 6.139, and '906' as 906"
    """
    header, *rows = sample or [[]]
    for place, name in enumerate(column.strip() for column in header):
        values = [row[place].strip() for row in rows if len(row) > place and row[place].strip() not in missing]
        pointed = [value for value in values if "." in value]
        whole = [value for value in values if "." not in value]
        if len(pointed) < 3 or not whole:
            continue
        is_parted = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", value) for value in pointed)
        if is_parted and all(re.fullmatch(r"[+-]?\d{1,3}", value) for value in whole):
            example = f"{pointed[0]!r} is read as {pointed[0]}, and {whole[0]!r} as {whole[0]}"
            yield name, f"column {name!r}: {example}. If the point separates thousands, say --thousands ."


# -- Columns and rows ------------------------------------------------------------------------------------


def odd_columns(X: pd.DataFrame) -> list[str]:
    """Return notes on columns that say nothing, or that may only number the rows."""
    empty = [str(name) for name in X.columns if X[name].isna().all()]
    constant = [str(name) for name in X.columns if X[name].nunique(dropna=False) == 1 and name not in empty]
    numbering = [str(name) for name in X.columns if _numbers_rows(X[name])]
    found = []
    if empty:
        found.append(f"columns without any value, which say nothing: {listed_names(empty)}")
    if constant and len(X) > 1:
        found.append(f"columns with the same value in all rows, which say nothing: {listed_names(constant)}")
    if numbering:
        found.append(f"columns that seem to number the rows; if so, --ignore them: {listed_names(numbering)}")
    return found


def _numbers_rows(column: pd.Series[Any]) -> bool:
    if not pd.api.types.is_integer_dtype(column.dtype) or len(column) < 10 or not column.is_unique:
        return False
    consecutive = bool((column.diff().iloc[1:] == 1).all())
    name = str(column.name).lower()
    return consecutive or name in _ROW_NUMBER_NAMES or name.endswith(("_id", " id"))


def odd_rows(frame: pd.DataFrame, target: str) -> list[str]:
    """Return notes on rows that a split at random may not be right for: copies of each other, and rows in an order."""
    found, copies = [], int(frame.duplicated().sum())
    if copies > _MOST_COPIES * len(frame):
        found.append(
            f"{copies:,} of {len(frame):,} rows are copies of other rows, the target included; if they are the same "
            "case twice, take them out of the file: what trains must not calibrate, or intervals are too narrow"
        )
    ordered = [str(name) for name in frame.columns if name != target and _orders_rows(frame[name])]
    if ordered:
        found.append(
            f"the rows are in the order of {listed_names(ordered)}; if that is time, a split at random promises too "
            "much: fit on the older rows, and icqr recalibrate with the latest"
        )
    return found


def _orders_rows(column: pd.Series[Any]) -> bool:
    if not pd.api.types.is_numeric_dtype(column.dtype) or column.nunique() < _FEWEST_VALUES or _numbers_rows(column):
        return False
    known = column.dropna()
    return bool(known.is_monotonic_increasing or known.is_monotonic_decreasing)


# -- Rows to predict -------------------------------------------------------------------------------------


def new_categories(categories: Mapping[Any, Collection[Any]], X: pd.DataFrame) -> list[str]:
    """Return notes on columns with values that a model does not know: their rows may be unlike the calibration rows."""
    found = []
    for name, known in categories.items():
        values = X[str(name)].dropna()
        new = values[~values.isin(known)]
        if len(new):
            found.append(
                f"column {str(name)!r}: {len(new):,} of {len(X):,} values are not among the categories that the model "
                f"knows ({listed_names(map(str, new.unique()[:3]))}); they count as missing"
            )
    return found


def novel_rows(novelty: pd.Series[Any], n_calibration: int) -> list[str]:
    """Return a note if more rows are far from their group's centre than chance (four standard errors) explains."""
    n, novel = len(novelty), int((novelty <= _NOVEL).sum())
    error = math.sqrt(_NOVEL * (1 - _NOVEL) * (1 / n + 1 / max(n_calibration, 1)))
    if novel <= (_NOVEL + 4 * error) * n:
        return []
    return [
        f"{novel:,} of {n:,} rows are unlike those that the model was calibrated with (novelty {_NOVEL:g} or less, "
        f"see --explain; {_NOVEL:.0%} of them would be by chance); what is promised is for rows like those"
    ]
