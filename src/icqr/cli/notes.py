"""All notes: what a user might not expect of a table, of its columns and rows, and of rows to predict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from icqr.cli.console import listed_names

PLAIN_NUMBERS = "written without unit, currency sign and separated thousands"
#: A column of fewer different values may be of categories.
_FEWEST_VALUES = 20
#: A larger share of rows that are copies is worth a note.
_MOST_COPIES = 0.01
#: Of rows like the calibration rows, this share has a novelty of no more: it is a p-value.
_NOVEL = 0.05
_ROW_NUMBER_NAMES = ("id", "index", "instant", "row", "rownames", "unnamed: 0", "column 1")
_FIRST_NUMBER = re.compile(r"\d[\d.,']*")
_NUMBER_WITH_UNIT = re.compile(rf"[€$£]? ?-?{_FIRST_NUMBER.pattern} ?([€$£%]|[A-Za-z]{{1,6}}[23²³]?)?")
_MAYBE_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3}[ -](\d{4}|\d{2})|"
    r"[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}\.? [A-Za-z]{4,9} \d{4})([ T]\d{1,2}:\d{2}(:\d{2})?)?"
)


# -- A column of text ------------------------------------------------------------------------------------


def notes_on_text(name: str, column: pd.Series[Any], distinct: pd.Series[Any]) -> Iterator[str]:
    """Yield why a column of text, with these `distinct` values, may be meant as numbers or dates, if it may."""
    taken = f"column {name!r} is taken as text"
    other = distinct[pd.to_numeric(distinct, errors="coerce").isna()].tolist()
    numbers = 1 - column.dropna().isin(other).mean()
    head = distinct[:1000]
    dates = head.str.fullmatch(_MAYBE_DATE)
    if numbers > 0.5:
        values = ", ".join(repr(value) for value in other[:3]) + (" …" if len(other) > 3 else "")
        yield f"{taken}: {numbers:.0%} of its values are numbers{f', but not {values}' if other else ''}"
    elif dates.mean() > 0.5 and not dates.all():
        yield f"{taken}: most of its values are dates, but not {head[~dates].iloc[0]!r}"
    elif len(distinct) >= _FEWEST_VALUES and dates.all():
        example = f"for example {distinct[0]!r}; say how they are written with --dates"
        yield f"{taken}, but its values look like dates, {example}"
    elif len(distinct) >= _FEWEST_VALUES and head.str.fullmatch(_NUMBER_WITH_UNIT).mean() > 0.9:
        units = head.str.replace(_FIRST_NUMBER, "", n=1, regex=True)
        if (units == units.mode()[0]).mean() > 0.9:
            example = f"for example {distinct[0]!r}; numbers are read if {PLAIN_NUMBERS}"
            yield f"{taken}, but its values look like numbers, {example}"


def notes_on_points(name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield a note if the decimal points in a column's first texts all have three digits behind them, or are not there.

    Examples
    --------
    >>> [text] = notes_on_points("price", ["6.139", "906", "1.506", "12.000"])
    >>> text.partition(". ")[0]
    "column 'price': '6.139' is read as 6.139, and '906' as 906"
    """
    pointed = [text for text in texts if "." in text]
    whole = [text for text in texts if "." not in text]
    if len(pointed) < 3 or not whole:
        return
    is_parted = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) for text in pointed)
    if is_parted and all(re.fullmatch(r"[+-]?\d{1,3}", text) for text in whole):
        example = f"{pointed[0]!r} is read as {pointed[0]}, and {whole[0]!r} as {whole[0]}"
        yield f"column {name!r}: {example}. If the point separates thousands, say --thousands ."


# -- Rows to learn from ----------------------------------------------------------------------------------


def notes_on_rows(frame: pd.DataFrame, X: pd.DataFrame) -> Iterator[str]:
    """Yield notes on columns that say nothing, and on rows that a split at random may not be right for."""
    empty = [name for name in X if X[name].isna().all()]
    constant = [name for name in X if X[name].nunique(dropna=False) == 1 and name not in empty and len(X) > 1]
    numbering = [name for name in X if _numbers_rows(X[name])]
    for what, names in (
        ("without any value, which say nothing", empty),
        ("with the same value in all rows, which say nothing", constant),
        ("that seem to number the rows; if so, --ignore them", numbering),
    ):
        if names:
            yield f"columns {what}: {listed_names(names)}"

    copies = int(frame.duplicated().sum())
    if copies > _MOST_COPIES * len(frame):
        yield (
            f"{copies:,} of {len(frame):,} rows are copies of other rows, the target included; if they are the same "
            "case twice, take them out of the file: what trains must not calibrate, or intervals are too narrow"
        )
    ordered = []
    for name in X.select_dtypes("number").columns.difference(numbering, sort=False):
        known = X[name].dropna()
        is_sorted = known.is_monotonic_increasing or known.is_monotonic_decreasing
        if is_sorted and known.nunique() >= _FEWEST_VALUES:
            ordered.append(name)
    if ordered:
        yield (
            f"the rows are in the order of {listed_names(ordered)}; if that is time, a split at random promises too "
            "much: fit on the older rows, and icqr recalibrate with the latest"
        )


def _numbers_rows(column: pd.Series[Any]) -> bool:
    """Tell whether a column may only number the rows: whole numbers, none twice, in steps of one or named as an id."""
    if not pd.api.types.is_integer_dtype(column.dtype) or len(column) < 10 or not column.is_unique:
        return False
    name = str(column.name).lower()
    is_named = name in _ROW_NUMBER_NAMES or name.endswith(("_id", " id"))
    return is_named or bool((column.diff().iloc[1:] == 1).all())


# -- Rows to predict -------------------------------------------------------------------------------------


def notes_on_categories(X: pd.DataFrame, categories: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a note for each column with values that are not among the model's `categories`."""
    for name, known in categories.items():
        values = X[name].dropna()
        new = values[~values.isin(known)]
        if len(new):
            yield (
                f"column {name!r}: {len(new):,} of {len(X):,} values are not among the categories that the model "
                f"knows ({listed_names(new.unique()[:3])}); they count as missing"
            )


def notes_on_novelty(novelty: pd.Series[Any], n_calibration: int) -> Iterator[str]:
    """Yield a note if more rows are far from their group's centre than chance (four standard errors) explains."""
    n, novel = len(novelty), int((novelty <= _NOVEL).sum())
    error = math.sqrt(_NOVEL * (1 - _NOVEL) * (1 / n + 1 / max(n_calibration, 1)))
    if novel > (_NOVEL + 4 * error) * n:
        yield (
            f"{novel:,} of {n:,} rows are unlike those that the model was calibrated with (novelty {_NOVEL:g} or less, "
            f"see --explain; {_NOVEL:.0%} of them would be by chance); what is promised is for rows like those"
        )
