"""What the library says: warnings at the user's own line, names that were meant, extras to install, and progress."""

from __future__ import annotations

import difflib
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE = str(Path(__file__).parent)
#: A bar shows another part of the same step only after so many seconds: a notebook keeps each line.
_LEAST_PAUSE = 0.2


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside the package that led here, however many functions lie between.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("too few rows")
    >>> str(caught[0].message)
    'too few rows'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that refuses a name: the known name that is nearest to it, if one is near.

    Examples
    --------
    >>> did_you_mean("PRIZE", ["price", "size"]), did_you_mean("?", ["price"])
    ("; did you mean 'price'?", '')
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def imported(module: str, who_needs: str, install: str) -> ModuleType:
    """Import a library that is not a core dependency, or say who needs it and how to install it.

    Examples
    --------
    >>> imported("json", "saving needs", "json").dumps([1])
    '[1]'
    >>> imported("icqr_no_such_module", "pictures need", "icqr[plot]")
    Traceback (most recent call last):
    ...
    ImportError: pictures need icqr_no_such_module: pip install "icqr[plot]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{who_needs} {module.partition(".")[0]}: pip install "{install}"') from error


# -- Progress --------------------------------------------------------------------------------------------------------


class _Bar:
    """One line by tqdm: the work, its step, and which part of the step is done now."""

    def __init__(self, title: str, n_steps: int, line: Any) -> None:
        self.title = title
        self.n_steps = n_steps
        self.line = line
        self.begun = 0
        self.step = ""
        self.counts = False  # parts are counted now; parts of these parts are not
        self.shown_at = 0.0

    def begin(self, step: str) -> None:
        self.step, self.line.n = step, self.begun
        self.begun += 1
        self.show(f"{self.title}: {step}")
        self.shown_at = 0.0

    def count(self, name: str, place: int, of: int) -> None:
        if time.monotonic() - self.shown_at >= _LEAST_PAUSE:
            self.show(f"{self.title}: {self.step}, {name} {place} of {of}")

    def end(self) -> None:
        self.line.n = self.n_steps
        self.show(self.title)

    def show(self, text: str) -> None:
        self.shown_at = time.monotonic()
        self.line.set_description_str(text)


#: The bar of the work that this thread does; None unless its caller asked for one.
_BAR: ContextVar[_Bar | None] = ContextVar("bar", default=None)


@contextmanager
def progress(verbose: bool, title: str, n_steps: int) -> Iterator[None]:
    """Show by tqdm how far the work inside is, if `verbose`.

    No object holds the bar, only the thread that works. So it is in no copy, file, or worker of joblib.

    Examples
    --------
    >>> with progress(False, "ICQR", n_steps=2):
    ...     step("quantiles")  # says nothing
    """
    line: Any = nullcontext()
    if verbose:
        tqdm = imported("tqdm", "verbose=True needs", "icqr[progress]").tqdm
        # Jupyter would show what goes to stderr as if it were an error.
        file = sys.stdout if type(sys.stdout).__module__.startswith("ipykernel") else sys.stderr
        line = tqdm(total=n_steps, desc=title, file=file, bar_format="{desc} |{bar}| {n}/{total} [{elapsed}]")
    with line:
        bar = _Bar(title, n_steps, line) if verbose else None
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)
        if bar is not None:
            bar.end()


def with_progress(n_steps: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method that takes so many steps: it shows `progress` if its object's `verbose` is True.

    Examples
    --------
    >>> class Model:
    ...     verbose = False
    ...     @with_progress(n_steps=2)
    ...     def fit(self):
    ...         step("quantiles")
    ...         return self
    >>> model = Model().fit()
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def shown(*args: P.args, **kwargs: P.kwargs) -> T:
            model: Any = args[0]
            with progress(model.verbose, type(model).__name__, n_steps):
                return method(*args, **kwargs)

        return shown

    return decorate


def step(name: str) -> None:
    """Show that the next step begins, if somebody asked for `progress`.

    Examples
    --------
    >>> step("quantiles")
    """
    bar = _BAR.get()
    if bar is not None:
        bar.begin(name)


def counted(parts: Sequence[T], name: str) -> Iterator[T]:
    """Yield the parts of a step, and show which one it is: "fold 2 of 10".

    Examples
    --------
    >>> list(counted(["a", "b"], "fold"))
    ['a', 'b']
    """
    bar = _BAR.get()
    if bar is None or bar.counts or len(parts) == 1:
        yield from parts
        return
    bar.counts = True
    try:
        for place, part in enumerate(parts, start=1):
            bar.count(name, place, len(parts))
            yield part
    finally:
        bar.counts = False
