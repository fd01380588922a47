"""The experiments' own dependencies, imported only when they are used."""

from __future__ import annotations

from typing import Any

from icqr._messages import imported


def need(module: str, extra: str = "paper") -> Any:
    """Import a module of an extra, or say how to install it."""
    return imported(module, "the experiments need", f"icqr[{extra}]")
