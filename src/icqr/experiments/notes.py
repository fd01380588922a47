"""Warnings of the library as notes: in experiments they are results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_warnings(notes: list[str]) -> Iterator[None]:
    """Keep the library's warnings as text: small groups and a leak are results here. Others are raised again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if warning.category is not UserWarning:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) not in notes:
            notes.append(str(warning.message))
