"""How pictures look: colours and shapes of methods and groups, and text that matplotlib shows as it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

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
    return short.replace("$", r"\$")


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent; whole percents without a decimal.

    Examples
    --------
    >>> percent(0.9), percent(0.8123)
    ('90 %', '81.2 %')
    """
    return f"{100 * share:.{digits}f}".removesuffix("." + "0" * digits).replace("-", "−") + " %"
