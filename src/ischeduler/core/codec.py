"""Dataclasses to plain JSON values and back, by their own type hints. One codec for the store, ``--json`` and the wire."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, booleans and None; infinity and NaN become 'inf', '-inf', 'nan' (JSON has none)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def dumps(value: Any) -> str:
    """JSON text of a plain value; anything JSON cannot hold is an error and not a silent ``NaN``."""
    return json.dumps(to_plain(value), separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Any:
    """A plain value from :func:`dumps`'s text."""
    return json.loads(text)


def from_plain(kind: type[T], data: Any) -> T:
    """The dataclass of that type from :func:`to_plain`'s output.

    Unknown keys are ignored: an older reader may meet a newer writer.
    """
    return _build(kind, data)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _build(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return _build_union(get_args(kind), data)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build_dataclass(kind, data)
    if origin is tuple:
        return _build_tuple(get_args(kind), data)
    if origin is frozenset:
        return frozenset(_build(get_args(kind)[0], v) for v in data)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner = get_args(kind)[1]
        return {k: _build(inner, v) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float:
        return float(data)
    return data


def _build_dataclass(kind: type, data: Any) -> Any:
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.init]
    return kind(**{n: _build(hints[n], data[n]) for n in names if n in data})


def _build_tuple(args: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_build(args[0], v) for v in data)
    return tuple(_build(a, v) for a, v in zip(args, data, strict=True))


def _build_union(args: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return None
    choices = [a for a in args if a is not type(None)]
    if isinstance(data, list):
        choices = [a for a in choices if get_origin(a) is tuple] or choices
    elif isinstance(data, dict):
        choices = [a for a in choices if dataclasses.is_dataclass(a) or get_origin(a) is not tuple] or choices
    else:
        choices = [a for a in choices if get_origin(a) is not tuple] or choices
    return _build(choices[0], data)
