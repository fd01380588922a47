"""The `icqr` command (extra ``cli``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `icqr` command; `arguments` are those of the shell by default."""
    try:
        from icqr.cli.app import run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit('error: the icqr command needs typer and rich: pip install "icqr[cli]"')
    run(arguments)
