"""What the command prints: results on standard output; notes, progress and errors on standard error."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from icqr.cli.wording import in_options

if TYPE_CHECKING:
    from icqr._sheet import Sheet

#: Called with the name of a step, and where it is known how many of its parts are done, and of how many.
Show: TypeAlias = Callable[..., None]
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


def say_sheet(sheet: Sheet, most: int | None = None) -> None:
    """Print a table, or its first rows, with its caption and note."""
    say(sheet.caption, "bold")
    _out().print((sheet if most is None else sheet.head(most)).to_rich())
    if most is not None and len(sheet.rows) > most:
        say(f"And {len(sheet.rows) - most:,} more.")
    if sheet.note:
        say(sheet.note)
    say()


# -- Notes and errors ------------------------------------------------------------------------------------


def tell(kind: str, text: str, style: str) -> None:
    """Write a line on standard error: a note, a warning or an error."""
    _ERR.print(Text.assemble((f"{kind}: ", style), _safe(text)), soft_wrap=True)


def note(*texts: str) -> None:
    """Tell the user what they might not expect."""
    for text in texts:
        tell("note", text, "bold cyan")


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as lines, each once; those of other libraries to their developers not at all."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = in_options(str(message))
        if text not in printed:
            printed.add(text)
            tell("warning", text, "bold yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def progress() -> Iterator[Show]:
    """Show on a terminal which step is under way and how far it is; elsewhere nothing."""
    if not _ERR.is_terminal or _ERR.is_dumb_terminal:
        yield lambda step, done=0, total=None: None
        return
    parts = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*parts, console=_ERR, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: str, done: int = 0, total: int | None = None) -> None:
            # Each step is shown, however short it is; the bar then moves by itself.
            is_new = step != bar.tasks[task].description
            bar.update(task, description=step, completed=done, total=total, refresh=is_new)

        yield show


# -- Names in sentences ----------------------------------------------------------------------------------


def listed_names(names: Iterable[object]) -> str:
    """Return names as they can be read, not more than a dozen.

    Examples
    --------
    >>> listed_names(["a", "b"]), listed_names(range(14))
    ("'a', 'b'", "'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11' and 2 more")
    """
    all_names = [repr(str(name)) for name in names]
    rest = len(all_names) - _MOST_NAMES
    return ", ".join(all_names[:_MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")
