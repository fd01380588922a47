"""Parameters and labels as JSON: numbers, text, None, and lists, tuples, dicts and arrays of these; and back."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from icqr.artifact.container import ArtifactError

#: Types of single numbers and of short arrays among parameters.
SCALARS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
LARGEST_INTEGER = 2**63
_LABEL_TYPES = re.compile(rf"object|str|string|{'|'.join(SCALARS)}|interval\[(int64|float64), \w+\]")
# How text is kept depends on the version of pandas.
_TEXT = ("str", "string", "object")
_TOLD_BY_VALUES = ("str", "string")


# -- Writing ---------------------------------------------------------------------------------------------------------


def encode(value: Any, place: str) -> Any:
    """Give a parameter or a label as JSON: numbers, text, None, and lists, tuples, dicts and arrays of these.

    Examples
    --------
    >>> encode((1, float("nan")), "levels")
    {'tuple': [1, {'float': 'nan'}]}
    """
    if value is None or type(value) is bool:
        return value
    if isinstance(value, str | os.PathLike):
        return str(value)
    if type(value) is int and abs(value) <= LARGEST_INTEGER:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is list:
        return [encode(one, f"{place}[{i}]") for i, one in enumerate(value)]
    encoded = _encode_tagged(value, place)
    if encoded is None:
        raise ArtifactError(
            f"{place} is of type {type(value).__module__}.{type(value).__qualname__}, which can't be stored without "
            "pickle. Numbers, text, lists, tuples, dicts and arrays of these can."
        )
    return encoded


def _encode_tagged(value: Any, place: str) -> dict[str, Any] | None:
    if type(value) is tuple:
        return {"tuple": encode(list(value), place)}
    if type(value) is dict:
        return {"dict": [[encode(key, place), encode(one, f"{place}[{key!r}]")] for key, one in value.items()]}
    if type(value) is Fraction:
        return {"fraction": [value.numerator, value.denominator]}
    if isinstance(value, pd.Interval):
        ends = [encode(end, place) for end in (value.left, value.right)]
        return {"interval": [*ends, value.closed]}
    if isinstance(value, np.generic) and value.dtype.name in SCALARS:
        return {"number": [value.dtype.name, encode(value.item(), place)]}
    if type(value) is np.ndarray and (value.dtype.name in SCALARS or value.dtype.kind == "U"):
        name = "str" if value.dtype.kind == "U" else value.dtype.name
        return {"array": [name, list(value.shape), encode(value.ravel().tolist(), place)]}
    return None


def encode_parameters(estimator: Any, place: str) -> dict[str, Any]:
    """Give the parameters of an estimator that holds no other estimators."""
    return {name: encode(value, f"{place}.{name}") for name, value in estimator.get_params(deep=False).items()}


def encode_labels(index: Iterable[Any], place: str) -> dict[str, Any]:
    """Give column names, categories or group keys as JSON, with the type of their pandas Index."""
    labels = pd.Index(index)
    if not _LABEL_TYPES.fullmatch(str(labels.dtype)):  # of pyarrow, nullable, categories: as their values are
        labels = pd.Index(labels.tolist())
    if not _LABEL_TYPES.fullmatch(str(labels.dtype)):
        raise ArtifactError(
            f"{place} has labels of the type {labels.dtype}, which can't be stored without pickle. Text and numbers "
            "can: turn them into text before the model is fitted, for example by astype(str)."
        )
    return {
        "dtype": "str" if str(labels.dtype) in _TOLD_BY_VALUES else str(labels.dtype),
        "values": encode(labels.tolist(), place),
    }


# -- Reading ---------------------------------------------------------------------------------------------------------


def decode(given: Any, place: str) -> Any:
    """Give the value that `encode` made JSON of."""
    if given is None or isinstance(given, bool | str):
        return given
    if isinstance(given, int | float):
        return _number(given, place)
    if isinstance(given, list):
        return [decode(one, f"{place}[{i}]") for i, one in enumerate(given)]
    tag, content = next(iter(given.items())) if len(given) == 1 else ("", None)
    if tag not in _DECODERS:
        raise ArtifactError(f"{place} is no value that icqr writes")
    try:
        return _DECODERS[tag](content, place)
    except ArtifactError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ArtifactError(f"{place} is no {tag} that icqr writes: {error}") from error


def _number(given: float, place: str) -> float:
    if isinstance(given, float) and not math.isfinite(given):
        raise ArtifactError(f"{place} is too large for a number")
    if isinstance(given, int) and abs(given) > LARGEST_INTEGER:
        raise ArtifactError(f"{place} is too large for a whole number")
    return given


def _decode_float(content: Any, place: str) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError(f"it must be nan, inf or -inf, got {content!r}")
    return float(content)


def _decode_dict(content: Any, place: str) -> dict[Any, Any]:
    pairs = [(decode(key, place), decode(one, place)) for key, one in _list_of(content, place)]
    return dict(pairs)


def _decode_fraction(content: Any, place: str) -> Fraction:
    above, below = (decode(one, place) for one in _list_of(content, place))
    return Fraction(above, below)


def _decode_interval(content: Any, place: str) -> Any:
    left, right, closed = (decode(one, place) for one in _list_of(content, place))
    return pd.Interval(left, right, closed)


def _decode_number(content: Any, place: str) -> Any:
    name, number = _list_of(content, place)
    if name not in SCALARS:
        raise ValueError(f"there is no type {name!r} of numbers")
    return _exact(decode(number, place), name)


def _exact(value: Any, name: str) -> Any:
    """Give a number, or a list of numbers, of a numpy type, if it holds them exactly."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and array.size:
        raise ValueError("it must hold numbers")
    typed = array.astype(name, casting="unsafe")
    if not np.array_equal(typed, array, equal_nan=True):
        raise ValueError(f"{name} does not hold it exactly")
    return typed if array.ndim else typed[()]


def _decode_array(content: Any, place: str) -> NDArray[Any]:
    name, shape, values = _list_of(content, place)
    flat = decode(_list_of(values, place), place)
    sizes = sizes_of(shape, place)
    if name == "str":
        if not all(isinstance(one, str) for one in flat):
            raise ValueError("it must hold text")
        return np.array(flat, dtype=np.str_).reshape(sizes)
    if name not in SCALARS:
        raise ValueError(f"there is no type {name!r} of arrays")
    return np.asarray(_exact(flat, name)).reshape(sizes)


_DECODERS: dict[str, Callable[[Any, str], Any]] = {
    "array": _decode_array,
    "dict": _decode_dict,
    "float": _decode_float,
    "fraction": _decode_fraction,
    "interval": _decode_interval,
    "number": _decode_number,
    "tuple": lambda content, place: tuple(decode(_list_of(content, place), place)),
}


def _list_of(content: Any, place: str) -> list[Any]:
    if not isinstance(content, list):
        raise ArtifactError(f"{place} must be a list")
    return content


def sizes_of(shape: Any, place: str) -> tuple[int, ...]:
    """Give the shape of an array, or refuse what is none."""
    sizes = tuple(_list_of(shape, place))
    if len(sizes) > 8 or not all(type(size) is int and 0 <= size < 2**40 for size in sizes):
        raise ArtifactError(f"{place} must have a shape of whole numbers, got {str(shape)[:80]}")
    return sizes


def decode_labels(dtype: str, values: Any, place: str) -> pd.Index[Any]:
    """Give back the labels that `encode_labels` made JSON of: each one different."""
    if not _LABEL_TYPES.fullmatch(dtype):
        raise ArtifactError(f"{place} has labels of a type that icqr does not write, {dtype[:80]!r}")
    try:
        labels: pd.Index[Any] = pd.Index(_list_of(values, place), dtype=None if dtype in _TOLD_BY_VALUES else dtype)
        sound = labels.is_unique and (str(labels.dtype) == dtype or dtype in _TEXT)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{place} is no list of labels of type {dtype[:80]!r}: {error}") from error
    if not sound:
        raise ArtifactError(f"{place} must be different labels of type {dtype[:80]!r}, got {str(values)[:80]}")
    return labels
