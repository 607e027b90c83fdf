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
        return _writer(kind)(value)
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
_NUMBERS = frozenset({int, float, bool, type(None)})
Builder = Callable[[Any], Any]


@cache
def _writer(kind: Any) -> Builder:
    """What makes a value declared as that type plain; worked out once a type, since a service writes thousands of documents a minute."""
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_writer(kind)
    if kind in _PLAIN:
        return _as_it_is
    if kind is float:
        return _number
    if origin in (Union, types.UnionType):
        return _union_writer(args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        each = _writer(args[0])
        return list if each is _as_it_is else lambda value: [each(v) for v in value]
    return to_plain


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _union_writer(args: tuple[Any, ...]) -> Builder:
    if _PLAIN.issuperset(args):
        return _as_it_is
    if _NUMBERS.issuperset(args):
        return _number
    others = [a for a in args if a is not type(None)]
    if len(others) > 1:
        return to_plain
    write = _writer(others[0])
    return lambda value: None if value is None else write(value)


def _dataclass_writer(kind: type) -> Builder:
    made: Builder | None = None

    def write(value: Any) -> Any:
        nonlocal made
        if type(value) is not kind:
            return to_plain(value)  # declared as one kind, and another
        if made is None:  # not before the first value: a type may hold itself
            made = _compiled_writer(kind)
        return made(value)

    return write


def _compiled_writer(kind: type) -> Builder:
    """One expression over all fields, which is three times as fast as a loop over them. The names are the class's own identifiers."""
    hints, known = get_type_hints(kind), dict[str, Builder]()
    parts: list[str] = []
    for n, name in enumerate(f.name for f in dataclasses.fields(kind)):
        write = _writer(hints[name])
        parts.append(f"{name!r}: value.{name}" if write is _as_it_is else f"{name!r}: w{n}(value.{name})")
        known[f"w{n}"] = write
    return eval(f"lambda value: {{{', '.join(parts)}}}", known)


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
    whole: Builder | None = None

    def build(data: Any) -> Any:
        nonlocal fields, whole
        if fields is None or whole is None:  # not before the first value: a type may hold itself
            hints = get_type_hints(kind)
            fields = tuple((f.name, _builder(hints[f.name])) for f in dataclasses.fields(kind) if f.init)
            whole = _compiled_builder(kind, fields)
        try:
            return whole(data)
        except KeyError:  # an older writer's: what it did not know has its default
            return kind(**{name: make(data[name]) for name, make in fields if name in data})

    return build


def _compiled_builder(kind: type, fields: tuple[tuple[str, Builder], ...]) -> Builder:
    """One call with all fields by name, as :func:`_compiled_writer`."""
    known: dict[str, Any] = {"kind": kind} | {f"m{n}": make for n, (_, make) in enumerate(fields)}
    parts = [f"{name}=data[{name!r}]" if make is _as_it_is else f"{name}=m{n}(data[{name!r}])" for n, (name, make) in enumerate(fields)]
    return eval(f"lambda data: kind({', '.join(parts)})", known)


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
