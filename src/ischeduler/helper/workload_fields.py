"""The fields of a workload as people write them: one reader each, shared by flags, headers, project files and Python."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import parse_size
from ischeduler.core.workload import EnvironmentSpec
from ischeduler.helper.elastic_fields import read_elastic
from ischeduler.helper.service_fields import read_service
from ischeduler.helper.suggest import did_you_mean


def read_fields(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Workload arguments of a table. BadInput names the field, where it stands and what was expected."""
    read: dict[str, Any] = {}
    for name, value in table.items():
        field = ALIASES.get(name, name).replace("-", "_")
        if field not in FIELDS:
            known = [*FIELDS, *ALIASES]
            raise BadInput(f"'{name}' in {origin} is not a field of a workload{did_you_mean(name, known)}.")
        reader, expected = FIELDS[field]
        try:
            read[field] = reader(value)
        except BadInput as error:
            raise BadInput(f"{name} in {origin}: {error}") from None
        except (ValueError, TypeError, AttributeError):
            raise BadInput(f"{name} in {origin} cannot be {value!r}; expected {expected}.") from None
    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
        raise ValueError
    return int(value.replace("_", "").replace(",", "")) if isinstance(value, str) else int(value)


def _wholes(value: Any) -> tuple[int, ...]:
    items = value.replace("x", ",").split(",") if isinstance(value, str) else value
    return tuple(_whole(item) for item in items)


def _batch(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    items: Any = value.split(",") if isinstance(value, str) else value
    sizes = tuple(_whole(item) for item in items)
    return sizes[0] if len(sizes) == 1 else sizes


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _size(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else parse_size(_text(value))


def _duration(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else parse_human(_text(value))


def _command(value: Any) -> tuple[str, ...]:
    return tuple(shlex.split(value)) if isinstance(value, str) else tuple(str(word) for word in value)


def _options(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    return dict(_pair(item) for item in ([value] if isinstance(value, str) else value))


def _pair(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals:
        raise BadInput(f"'{text}' is not NAME=VALUE.")
    return name.strip(), rest.strip()


def read_environment(value: Any) -> EnvironmentSpec:
    """Modules, conda, venv, image and variables of a table."""
    if isinstance(value, EnvironmentSpec):
        return value
    known = ("modules", "conda", "venv", "image", "variables")
    for name in value:
        if name not in known:
            raise BadInput(f"'{name}' is not a part of the environment{did_you_mean(name, known)}.")
    modules = value.get("modules", ())
    return EnvironmentSpec(
        modules=tuple(modules.split(",")) if isinstance(modules, str) else tuple(modules),
        conda=value.get("conda") or None,
        venv=value.get("venv") or None,
        image=value.get("image") or None,
        variables=_options(value.get("variables", {})),
    )


_WHOLE = (_whole, "a whole number")
_TEXT = (_text, "a text")

FIELDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "model": _TEXT,
    "samples": _WHOLE,
    "epochs": _WHOLE,
    "batch_size": (_batch, "a whole number or several, e.g. 32,64"),
    "name": _TEXT,
    "command": (_command, "an argument list, e.g. ['python', 'train.py']"),
    "directory": _TEXT,
    "input_shape": (_wholes, "one sample's shape, e.g. 3,224,224"),
    "classes": _WHOLE,
    "optimizer": _TEXT,
    "precision": _TEXT,
    "framework": _TEXT,
    "grad_accum": _WHOLE,
    "eval_samples": _WHOLE,
    "workers": _WHOLE,
    "nodes": _WHOLE,
    "gpus": _WHOLE,
    "cpus": _WHOLE,
    "memory": (_size, "a size, e.g. 26G"),
    "checkpoints": (_flag, "true or false"),
    "checkpoint_every": (_duration, "a duration, e.g. 10m"),
    "environment": (read_environment, "a table"),
    "options": (_options, "NAME=VALUE pairs"),
    "elastic": (read_elastic, "a table, e.g. {world_sizes = [1, 2, 4]}"),
    "service": (read_service, "true or a table, e.g. {ready_port = 0}"),
    "ready_file": _TEXT,
    "ready_port": _WHOLE,
    "ready_url": _TEXT,
    "serve_for": (_duration, "a duration, e.g. 3d"),
}
ALIASES = {
    "memory_bytes": "memory",
    "checkpoint_every_s": "checkpoint_every",
    "batch": "batch_size",
    "batch-size": "batch_size",
    "accumulation": "grad_accum",
}
ARGUMENTS = {"memory": "memory_bytes", "checkpoint_every": "checkpoint_every_s"}
"""Fields whose name in the Workload carries a unit."""
