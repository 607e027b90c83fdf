"""Dataclasses to plain JSON values and back, by their own type hints. One codec for the store, ``--json`` and the wire."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, booleans and None; infinity and NaN become 'inf', '-inf', 'nan' (JSON has none)."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _PLAIN:
        return value
    if dataclasses.is_dataclass(kind):
        return {name: to_plain(getattr(value, name)) for name in _names(kind)}
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
    return _builder(kind)(data)


_PLAIN = frozenset({str, int, bool, type(None)})
Builder = Callable[[Any], Any]


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


@cache
def _builder(kind: Any) -> Builder:
    """What makes a value of that type; worked out once a type, since a store reads thousands of documents a second."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_builder(get_args(kind))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_builder(kind)
    if origin is tuple:
        return _tuple_builder(get_args(kind))
    if origin is frozenset:
        member = _builder(get_args(kind)[0])
        return lambda data: frozenset([member(v) for v in data])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _builder(get_args(kind)[1])
        return lambda data: {k: inner(v) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return float if kind is float else _as_it_is


def _as_it_is(data: Any) -> Any:
    return data


def _dataclass_builder(kind: type) -> Builder:
    fields: tuple[tuple[str, Builder], ...] | None = None

    def build(data: Any) -> Any:
        nonlocal fields
        if fields is None:  # not before the first value: a type may hold itself
            hints = get_type_hints(kind)
            fields = tuple((f.name, _builder(hints[f.name])) for f in dataclasses.fields(kind) if f.init)
        return kind(**{name: make(data[name]) for name, make in fields if name in data})

    return build


def _tuple_builder(args: tuple[Any, ...]) -> Builder:
    if len(args) == 2 and args[1] is Ellipsis:
        each = _builder(args[0])
        return lambda data: tuple([each(v) for v in data])
    makers = [_builder(a) for a in args]
    return lambda data: tuple(make(v) for make, v in zip(makers, data, strict=True))


def _union_builder(args: tuple[Any, ...]) -> Builder:
    """The first choice that a value of that shape can be: a list is a tuple, an object a dataclass."""
    choices = [a for a in args if a is not type(None)]
    tuples = [a for a in choices if get_origin(a) is tuple]
    objects = [a for a in choices if dataclasses.is_dataclass(a) or get_origin(a) is not tuple]
    others = [a for a in choices if get_origin(a) is not tuple]

    def build(data: Any) -> Any:
        if data is None:
            return None
        fit = tuples if isinstance(data, list) else objects if isinstance(data, dict) else others
        return _builder((fit or choices)[0])(data)

    return build
