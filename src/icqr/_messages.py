"""Libraries that are no core dependencies, imported only when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def imported(module: str, who_needs: str, install: str) -> Any:
    """Import a module, or say who needs it and how to install it.

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
