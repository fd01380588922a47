"""The file: a zip of named parts with their hashes. Nothing is used before it is checked."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

FORMAT = "icqr-model"
VERSION = 1
MANIFEST = "manifest.json"

#: Unpacked, a file may be so many times as large as it is packed, and always this large: a bomb is much larger.
LARGEST_RATIO = 100
ALWAYS_ALLOWED = 64 * 2**20
LARGEST_MANIFEST = 64 * 2**20

_NAME = re.compile(r"[a-z0-9_]+([./-][a-z0-9_]+)*")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that equal models give equal bytes
_CHUNK = 2**20


class ArtifactError(ValueError):
    """A file that is not a model of icqr, or not a sound one; or a model that can't be stored."""


@dataclass(frozen=True)
class Part:
    """The bytes of a part, and what the manifest says about them: an array's type and shape, or a model's format."""

    data: bytes
    about: dict[str, Any] = field(default_factory=dict)


# -- Writing ---------------------------------------------------------------------------------------------------------


def pack(manifest: Mapping[str, Any], parts: Mapping[str, Part]) -> bytes:
    """Give the bytes of a file; equal contents give equal bytes."""
    listed = {
        name: {"bytes": len(part.data), "sha256": hashlib.sha256(part.data).hexdigest(), **part.about}
        for name, part in parts.items()
    }
    whole = {"format": FORMAT, "version": VERSION, **manifest, "parts": listed}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1).encode()
    if len(text) > LARGEST_MANIFEST:
        raise ArtifactError(
            f"the model's description takes {len(text)} bytes, more than the {LARGEST_MANIFEST} that a file may hold; "
            "columns or groups with fewer different values make it smaller"
        )
    members = {MANIFEST: text, **{name: part.data for name, part in parts.items()}}
    data = _zipped(members, zipfile.ZIP_DEFLATED)
    # What packs too well would be taken for a bomb.
    too_well = _is_bomb(sum(map(len, members.values())), len(data))
    return _zipped(members, zipfile.ZIP_STORED) if too_well else data


def _zipped(members: Mapping[str, bytes], method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.create_system = 3  # Unix, wherever it is written
            archive.writestr(info, data, method)
    return buffer.getvalue()


def _is_bomb(unpacked: int, packed: int) -> bool:
    return unpacked > max(ALWAYS_ALLOWED, LARGEST_RATIO * packed)


# -- Reading ---------------------------------------------------------------------------------------------------------


def read(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Part]]:
    """Give the manifest and the parts of a file, or refuse it by name."""
    with refusing_damage():
        return _read(stream)


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Turn what reading a damaged zip raises into a refusal."""
    try:
        yield
    except ArtifactError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OverflowError, ValueError) as error:
        raise ArtifactError(f"the file is damaged: cut off, or overwritten in places ({error})") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of a position before the file's start
            raise
        raise ArtifactError("the file is damaged: its list of parts leads out of it") from error


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Part]]:
    _check_start(stream.read(4))
    with zipfile.ZipFile(stream) as archive:
        members = check_members(archive, stream.seek(0, os.SEEK_END))
        if MANIFEST not in members:
            raise ArtifactError(f"not a model of icqr: a zip archive without {MANIFEST}")
        if members[MANIFEST].file_size > LARGEST_MANIFEST:
            raise ArtifactError(f"{MANIFEST} is larger than {LARGEST_MANIFEST} bytes")
        manifest = _parse(_content(archive, members.pop(MANIFEST)))
        listed = manifest.pop("parts")
        if set(listed) != set(members):
            odd = sorted(set(listed) ^ set(members))
            raise ArtifactError(f"the parts in the file and those its manifest lists differ: {', '.join(odd[:5])}")
        return manifest, {name: _part(archive, members[name], listed[name]) for name in listed}


def _check_start(start: bytes) -> None:
    if start == b"PK\x03\x04":
        return
    if start[:1] == b"\x80":
        raise ArtifactError("not a model of icqr but a pickle, which can run any code when it is read; it was not read")
    raise ArtifactError("not a model of icqr: not a zip archive, or its start is cut off")


def check_members(archive: zipfile.ZipFile, packed: int) -> dict[str, zipfile.ZipInfo]:
    """Give the members of an archive of so many bytes by name, or refuse names and sizes that no sound file has."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        # `orig_filename` is the name as it is in the file: `filename` ends at a NUL.
        _check_member(info, info.orig_filename)
        if info.filename in members:
            raise ArtifactError(f"two parts have the name {info.filename}")
        members[info.filename] = info
    unpacked = sum(info.file_size for info in members.values())
    if _is_bomb(unpacked, packed):
        raise ArtifactError(
            f"a zip bomb: {packed} bytes claim to unpack to {unpacked}, more than {LARGEST_RATIO} times as many"
        )
    return members


def _check_member(info: zipfile.ZipInfo, name: str) -> None:
    if name.lower().endswith(_PICKLES):
        raise ArtifactError(f"the file holds a pickle, {name!r}, which can run any code when it is read; it was not")
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":":
        raise ArtifactError(f"the name of a part leads out of the file: {name!r}")
    if not _NAME.fullmatch(name):
        raise ArtifactError(f"the name of a part has characters that no part of icqr has: {name!r}")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ArtifactError(f"{name} is not a plain file but a link or a folder")
    if info.flag_bits & 0x1:
        raise ArtifactError(f"{name} is encrypted; icqr writes no such file")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArtifactError(f"{name} is packed by method {info.compress_type}; only stored and deflated parts are read")


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack a member in pieces, and stop as soon as there is more than it claims."""
    pieces = []
    size = 0
    with archive.open(info) as stream:
        while piece := stream.read(_CHUNK):
            size += len(piece)
            if size > info.file_size:
                raise ArtifactError(f"{info.filename} unpacks to more than the {info.file_size} bytes it claims")
            pieces.append(piece)
    if size != info.file_size:
        raise ArtifactError(f"{info.filename} unpacks to {size} bytes, but claims {info.file_size}")
    return b"".join(pieces)


def _part(archive: zipfile.ZipFile, info: zipfile.ZipInfo, listed: Any) -> Part:
    name = info.filename
    if not isinstance(listed, dict) or not {"bytes", "sha256"} <= listed.keys():
        raise ArtifactError(f"the manifest must give bytes and sha256 of {name}")
    about = dict(listed)
    size, digest = about.pop("bytes"), about.pop("sha256")
    if size != info.file_size:
        raise ArtifactError(f"{name} has {info.file_size} bytes, but the manifest says {size!r}")
    data = _content(archive, info)
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ArtifactError(f"{name} was changed after the file was written: its sha256 is {found}, not {digest!r}")
    return Part(data, about)


def parse_json(data: bytes, what: str) -> Any:
    """Read JSON strictly: no NaN, no name twice, and not too deep."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ArtifactError(f"{what} is nested too deeply") from error
    except ValueError as error:
        raise ArtifactError(f"{what} is not valid JSON: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _parse(data: bytes) -> dict[str, Any]:
    manifest = parse_json(data, MANIFEST)
    if not isinstance(manifest, dict) or manifest.pop("format", None) != FORMAT:
        raise ArtifactError(f'not a model of icqr: {MANIFEST} does not say "format": "{FORMAT}"')
    version = manifest.pop("version", None)
    if type(version) is not int or version < 1:
        raise ArtifactError(f"the version of the format must be a whole number, 1 or more, got {version!r}")
    if version > VERSION:
        raise ArtifactError(
            f"the file has version {version} of the format, and this icqr reads up to version {VERSION}; update icqr"
        )
    if not isinstance(manifest.get("parts"), dict):
        raise ArtifactError(f"{MANIFEST} lists no parts")
    return manifest
