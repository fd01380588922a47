"""How far a run is, how long it will still take, and how it ended: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_SECONDS_BETWEEN_LINES = 30.0


class PlainLines:
    """Lines on stderr, at most one in a while, with the time left.

    Parameters
    ----------
    label : str
        What is going on.
    total : int
        Number of steps.
    done : int
        Steps already done; they don't count for the speed.
    """

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self.label, self.total, self.first = label, total, done
        self.start = self.last = time.monotonic()

    def show(self, done: int) -> None:
        """Write a line, unless there was one a moment ago and work is left."""
        now = time.monotonic()
        if done < self.total and now - self.last < _SECONDS_BETWEEN_LINES:
            return
        self.last = now
        print(f"{self.label}: {done} of {self.total}{self._left(done, now)}", file=sys.stderr, flush=True)

    def _left(self, done: int, now: float) -> str:
        if done <= self.first or done >= self.total:
            return f", {in_words(now - self.start)}"
        return f", about {in_words((now - self.start) / (done - self.first) * (self.total - done))} left"


def in_words(seconds: float) -> str:
    """Give a time as people say it.

    Examples
    --------
    >>> in_words(8.4), in_words(150), in_words(7320)
    ('8 s', '2.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@contextmanager
def steps(label: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """Show progress over steps; the function given back is called after each."""
    if sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total, completed=done)
            yield lambda: bar.advance(task)
        return
    lines = PlainLines(label, total, done)
    count = done

    def advance() -> None:
        nonlocal count
        count += 1
        lines.show(count)

    yield advance


def lines_or_bar(label: str) -> bool | Callable[[int, int], None]:
    """Give the `verbose` of a `QuantileNetwork`: its own bar on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        return True
    lines: list[PlainLines] = []  # made at the first call, which tells how many epochs a stopped run had done

    def show(done: int, total: int) -> None:
        if not lines:
            lines.append(PlainLines(label, total, done))
        lines[0].show(done)

    return show


def run_command(job: Callable[[], Path], out: Path) -> int:
    """Run a command that leaves a file; errors that the user can mend are said in one line. Give its exit code."""
    start = time.monotonic()
    try:
        file = job()
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on where it was ({out})", file=sys.stderr)
        return 130
    print(f"{file} ({in_words(time.monotonic() - start)})")
    return 0
