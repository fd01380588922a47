"""The parts that a file is made of; and its fields and arrays, each checked when it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from icqr.artifact.container import ArtifactError, Part
from icqr.artifact.values import LARGEST_INTEGER, decode, decode_labels, sizes_of

T = TypeVar("T")

#: Types of arrays, all little-endian and in C order.
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ("float64", "float32", "int64", "uint32", "uint8")}


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn whatever a library says about a part into a refusal that names it."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:  # parsers of other libraries raise anything; all of it means that the part is unsound
        raise ArtifactError(f"{what} can't be read: {type(error).__name__}: {error}") from error


# -- Writing ---------------------------------------------------------------------------------------------------------


class Parts:
    """The parts of a file that is being made."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}

    def array(self, name: str, values: Any, dtype: str) -> str:
        """Add an array, and give its name."""
        array = np.asarray(values, dtype=DTYPES[dtype])
        return self.add(name, array.tobytes(), dtype=dtype, shape=list(array.shape))

    def add(self, name: str, data: bytes, **about: Any) -> str:
        """Add a part, and give its name."""
        if name in self.parts:
            raise KeyError(f"a part {name} is there already")
        self.parts[name] = Part(data, about)
        return name


# -- Reading ---------------------------------------------------------------------------------------------------------


class Unread:
    """The parts of a file, and which of them have not been used yet."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = dict(parts)

    def take(self, name: Any, place: str, keys: set[str]) -> Part:
        """Give a part whose description has these keys; each part is used once."""
        part = self._parts.pop(name, None) if isinstance(name, str) else None
        if part is None:
            raise ArtifactError(f"{place} names the part {str(name)[:80]!r}, which is not there or used twice")
        if part.about.keys() != keys:
            raise ArtifactError(f"the manifest must give {', '.join(sorted(keys))} of {name}, and nothing else")
        return part

    def check_all_used(self) -> None:
        """Raise if there is a part that nothing uses."""
        for name in self._parts:
            raise ArtifactError(f"the file holds a part that its model does not use: {name}")


class Record:
    """A JSON object of a file. Its fields are checked as they are read; one that is wrong is named with its place.

    Examples
    --------
    >>> Record({"k": 3}, "partition", Unread({})).integer("k", 1, 50)
    3
    """

    def __init__(self, fields: Any, place: str, parts: Unread) -> None:
        if not isinstance(fields, dict):
            raise ArtifactError(f"{place} must be an object, got {type(fields).__name__}")
        self._fields = dict(fields)
        self.place = place
        self.parts = parts

    def check_all_read(self) -> None:
        """Raise if there is a field that nobody asked for."""
        for name in self._fields:
            raise ArtifactError(f"{self.place} has a field that icqr does not know: {name[:80]!r}")

    def has(self, name: str) -> bool:
        """Tell whether there is a field of this name that was not read yet."""
        return name in self._fields

    def is_none(self, name: str) -> bool:
        """Tell whether a field is None, and take it if so."""
        return name in self._fields and self._fields[name] is None and self.raw(name) is None

    def is_text(self, name: str) -> bool:
        """Tell whether a field is a text."""
        return isinstance(self._fields.get(name), str)

    def raw(self, name: str) -> Any:
        """Take a field as it is."""
        if name not in self._fields:
            raise ArtifactError(f"{self.place} must have a field {name!r}")
        return self._fields.pop(name)

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.raw(name)
        if type(value) is not kind:
            raise ArtifactError(f"{self.place}.{name} must be of type {kind.__name__}, got {str(value)[:80]!r}")
        return value

    def text(self, name: str, allowed: Sequence[str] | None = None) -> str:
        """Take a text, one of some if these are given."""
        value = self._typed(name, str)
        if allowed is not None and value not in allowed:
            raise ArtifactError(f"{self.place}.{name} must be one of {', '.join(allowed)}, got {value[:80]!r}")
        return value

    def flag(self, name: str) -> bool:
        """Take True or False."""
        return self._typed(name, bool)

    def integer(self, name: str, least: int, most: int = LARGEST_INTEGER) -> int:
        """Take a whole number within limits."""
        value = self._typed(name, int)
        if not least <= value <= most:
            raise ArtifactError(f"{self.place}.{name} must be from {least} to {most}, got {str(value)[:80]}")
        return value

    def number(self, name: str) -> float:
        """Take a number; infinite ones are allowed, NaN is not."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise ArtifactError(f"{self.place}.{name} must be a number, got {str(value)[:80]!r}")
        return float(value)

    def finite(self, name: str) -> float:
        """Take a finite number."""
        value = self.number(name)
        if math.isinf(value):
            raise ArtifactError(f"{self.place}.{name} must be finite")
        return value

    def levels(self, name: str) -> tuple[float, ...]:
        """Take quantile levels: growing numbers strictly between 0 and 1."""
        found = tuple(self.items(name))
        if not found or not all(type(one) is float for one in found):
            raise ArtifactError(f"{self.place}.{name} must be a list of numbers")
        if any(low >= high for low, high in pairwise((0.0, *found, 1.0))):
            raise ArtifactError(f"{self.place}.{name} must grow, strictly between 0 and 1")
        return found

    def items(self, name: str) -> list[Any]:
        """Take a list as it is."""
        return self._typed(name, list)

    def value(self, name: str) -> Any:
        """Take a value that `encode` wrote."""
        return decode(self.raw(name), f"{self.place}.{name}")

    def values(self, name: str) -> dict[str, Any]:
        """Take an object whose fields are values that `encode` wrote, as a library's parameters are."""
        record = self.record(name)
        return {field: record.value(field) for field in list(record._fields)}

    def known(self, names: Iterable[str]) -> dict[str, Any]:
        """Take those of these fields that are there: a parameter that is newer than the file has its default."""
        return {name: self.value(name) for name in names if self.has(name)}

    def record(self, name: str) -> Record:
        """Take an object."""
        return Record(self.raw(name), f"{self.place}.{name}", self.parts)

    def records(self, name: str) -> list[Record]:
        """Take a list of objects."""
        return [Record(one, f"{self.place}.{name}[{i}]", self.parts) for i, one in enumerate(self.items(name))]

    def optional(self, name: str) -> Record | None:
        """Take an object, or None."""
        return None if self.is_none(name) else self.record(name)

    def labels(self, name: str) -> pd.Index[Any]:
        """Take what `encode_labels` wrote."""
        record = self.record(name)
        dtype, values = record.text("dtype"), record.value("values")
        record.check_all_read()
        return decode_labels(dtype, values, record.place)

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...], finite: bool = True) -> NDArray[Any]:
        """Take an array of this type and shape (None: any length), with finite numbers or at least no NaN."""
        place = f"{self.place}.{name}"
        part = self.parts.take(self.raw(name), place, {"dtype", "shape"})
        if part.about["dtype"] != dtype:
            raise ArtifactError(f"{place} must be an array of {dtype}, got {str(part.about['dtype'])[:80]!r}")
        sizes = sizes_of(part.about["shape"], place)
        if len(sizes) != len(shape) or any(asked not in (None, size) for asked, size in zip(shape, sizes, strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise ArtifactError(f"{place} must have the shape ({wanted}), got {sizes}")
        if math.prod(sizes) * DTYPES[dtype].itemsize != len(part.data):
            raise ArtifactError(f"{place} has {len(part.data)} bytes, which is not the shape {sizes} of {dtype}")
        array = np.frombuffer(part.data, dtype=DTYPES[dtype]).reshape(sizes).astype(dtype)
        if dtype.startswith("float") and not (np.isfinite(array) if finite else ~np.isnan(array)).all():
            raise ArtifactError(f"{place} must hold {'finite numbers' if finite else 'no NaN'}")
        return array

    def blob(self, name: str, kind: str) -> bytes:
        """Take a part in another library's format."""
        place = f"{self.place}.{name}"
        part = self.parts.take(self.raw(name), place, {"format"})
        if part.about["format"] != kind:
            raise ArtifactError(f"{place} must be in the format {kind}, got {str(part.about['format'])[:80]!r}")
        return part.data
