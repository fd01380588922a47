"""Words that errors share: lists of names, "did you mean", and which extra is missing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from icqr._messages import imported

_MOST_NAMES = 12


def listed_names(names: Iterable[str]) -> str:
    """Give names as they can be read, not more than a dozen.

    Examples
    --------
    >>> listed_names(["a", "b"]), listed_names(str(n) for n in range(14))
    ("'a', 'b'", "'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11' and 2 more")
    """
    all_names = [repr(name) for name in names]
    rest = len(all_names) - _MOST_NAMES
    return ", ".join(all_names[:_MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that is nearest to a name, if one is near.

    Examples
    --------
    >>> closest("prize", ["price", "size"]), closest("PRICE", ["price"]), closest("?", ["price"])
    ('price', 'price', None)
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give the end of a sentence that refuses a name.

    Examples
    --------
    >>> did_you_mean("prize", ["price", "size"]), did_you_mean("?", ["price"])
    ("; did you mean 'price'?", '')
    """
    near = closest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def printable(text: str) -> str:
    r"""Give text on one line, with control characters (a terminal would obey them) as escapes.

    Examples
    --------
    >>> printable("two\nlines \x1b[31m")
    'two lines \\x1b[31m'
    """
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def need(module: str, what: str = "this", install: str = "icqr[cli]") -> Any:
    """Import a module that is not a core dependency, or say how to install it.

    Examples
    --------
    >>> need("icqr_no_such_module", "--model other", "other")
    Traceback (most recent call last):
    ...
    ImportError: --model other needs icqr_no_such_module: pip install "other"
    """
    return imported(module, f"{what} needs", install)
