"""What the library says to its user: warnings that name the user's own line, and extras that are not installed."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType

_PACKAGE = str(Path(__file__).parent)


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
