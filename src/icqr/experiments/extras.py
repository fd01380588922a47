"""The experiments' own dependencies, imported only when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, extra: str = "paper") -> Any:
    """Import a module of an extra, or say how to install it.

    Examples
    --------
    >>> need("json").dumps([1])
    '[1]'
    >>> need("icqr_no_such_module")
    Traceback (most recent call last):
    ...
    ImportError: the experiments need icqr_no_such_module: pip install "icqr[paper]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'the experiments need {module.partition(".")[0]}: pip install "icqr[{extra}]"') from error
