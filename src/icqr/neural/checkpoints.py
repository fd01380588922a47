"""The state of training as files, so that a stopped run goes on where it was; no pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray


def write(file: Path, arrays: Iterable[NDArray[Any]]) -> None:
    """Write arrays so that a reader finds the old ones or the new ones, never a part."""
    temporary = file.with_suffix(".part")
    with temporary.open("wb") as stream:
        np.savez(stream, *arrays)
    temporary.replace(file)


def read(file: Path) -> list[NDArray[Any]]:
    """Read what `write` wrote, in its order."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return [stored[name] for name in stored.files]
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
        raise ValueError(f"the checkpoint {file} is damaged; delete this file and fit again") from error


def open_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Take a new or matching folder; refuse one that belongs to other data or settings, and say which."""
    file = folder / "fingerprint.json"
    if file.exists():
        stored = json.loads(file.read_text(encoding="utf-8"))
        differing = [name for name in identity if stored.get(name) != identity[name]]
        if differing:
            raise ValueError(
                f"checkpoint must be a folder of the same data and settings, but {folder} was written with another "
                f"{', '.join(differing)}; give another folder, or delete this one"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps(identity, indent=1), encoding="utf-8")
    temporary.replace(file)


def digest(array: NDArray[Any]) -> str:
    """Give a fingerprint of an array: two that differ have different ones."""
    return hashlib.sha256(repr((array.shape, array.dtype.str)).encode() + array.tobytes()).hexdigest()
