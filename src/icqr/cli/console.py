"""What the command prints: results on standard output; notes, progress and errors on standard error."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from icqr._sheet import Sheet

#: Called with the name of the step that begins; with ``own_bar=True`` the step shows how far it is by itself.
Begin: TypeAlias = Callable[..., None]
#: Width of tables where there is no terminal.
_WIDTH = 120
_MOST_NAMES = 12

# One for all lines and the bar: rich then puts lines above the bar. No markup: what comes from data is shown as it is.
_ERR = Console(stderr=True, markup=False, highlight=False, emoji=False)


def _out() -> Console:
    """Return a console for standard output as it is now."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def _safe(text: str, style: str = "") -> Text:
    from icqr._sheet import printable  # imports pandas, for which help must not wait

    return Text(printable(text), style)


# -- Results ---------------------------------------------------------------------------------------------


def say(text: str = "", style: str = "") -> None:
    """Print a sentence: wrapped between words on a terminal, on one line elsewhere."""
    out = _out()
    out.print(_safe(text, style), soft_wrap=not out.is_terminal)


def say_all(sentences: Iterable[str]) -> None:
    """Print sentences as a list."""
    out = _out()
    if not out.is_terminal:
        for sentence in sentences:
            say(f"- {sentence}")
        return
    items = Table.grid(padding=(0, 1))
    for sentence in sentences:
        items.add_row("-", _safe(sentence))
    out.print(items)


def say_sheet(sheet: Sheet, most: int | None = None) -> None:
    """Print a table, or its first rows, with its caption and note."""
    say(sheet.caption, "bold")
    _out().print((sheet if most is None else sheet.head(most)).to_rich())
    if most is not None and len(sheet.rows) > most:
        say(f"And {len(sheet.rows) - most:,} more.")
    if sheet.note:
        say(sheet.note)
    say()


def say_json(document: str) -> None:
    """Print JSON as it is."""
    sys.stdout.write(f"{document}\n")


# -- Notes and errors ------------------------------------------------------------------------------------


def tell(kind: str, text: str, style: str) -> None:
    """Write a line on standard error: a note, a warning or an error."""
    _ERR.print(Text.assemble((f"{kind}: ", style), _safe(text)), soft_wrap=True)


def note(text: str) -> None:
    """Tell the user what they might not expect."""
    tell("note", text, "bold cyan")


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as lines, each once; those of other libraries to their developers not at all."""
    told: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = str(message)
        if text not in told:
            told.add(text)
            tell("warning", text, "bold yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


# -- Names in sentences ----------------------------------------------------------------------------------


def listed_names(names: Iterable[str]) -> str:
    """Return names as they can be read, not more than a dozen.

    Examples
    --------
    >>> listed_names(["a", "b"]), listed_names(str(n) for n in range(14))
    ("'a', 'b'", "'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11' and 2 more")
    """
    all_names = [repr(name) for name in names]
    rest = len(all_names) - _MOST_NAMES
    return ", ".join(all_names[:_MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a name, if one is near.

    Examples
    --------
    >>> closest("prize", ["price", "size"]), closest("PRICE", ["price"]), closest("?", ["price"])
    ('price', 'price', None)
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that refuses a name.

    Examples
    --------
    >>> did_you_mean("prize", ["price", "size"]), did_you_mean("?", ["price"])
    ("; did you mean 'price'?", '')
    """
    near = closest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


# -- Progress --------------------------------------------------------------------------------------------


def _shows_bars() -> bool:
    return _ERR.is_terminal and not _ERR.is_dumb_terminal


@contextmanager
def progress(steps: int) -> Iterator[Begin]:
    """Show a bar on a terminal, and nothing elsewhere."""
    if not _shows_bars():
        yield lambda what, own_bar=False: None
        return
    parts = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*parts, console=_ERR, transient=True) as bar:
        task = bar.add_task("Starting", total=steps)
        begun = False

        def begin(what: str, own_bar: bool = False) -> None:
            nonlocal begun
            bar.update(task, description=_safe(what).plain, advance=int(begun))
            begun = True
            if own_bar:
                bar.stop()
            else:
                bar.start()

        yield begin


@contextmanager
def block_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show on a terminal how many blocks of a step are done."""
    if not _shows_bars():
        yield lambda step, done, total: None
        return
    text = TextColumn("{task.description}", markup=False)
    with Progress(SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), console=_ERR, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)
