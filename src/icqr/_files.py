"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Open a path beside a file to write to; when the block ends without an error, it takes the file's place.

    After an error, Ctrl-C or a full disk the file is as it was, and nothing is left beside it. That its folder is there
    is checked at once.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "numbers.csv")) as part:
    ...         size = part.write_text("1,2")
    ...     Path(folder, "numbers.csv").read_text()
    '1,2'
    """
    real = Path(path).expanduser().resolve()  # of a link, the file that it leads to
    if not real.parent.is_dir():
        raise FileNotFoundError(f"can't write {real.name} to {real.parent}: there is no such folder; make it first")
    part = real.with_name(f".{real.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        if real.exists():
            shutil.copymode(real, part)
        os.replace(part, real)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
