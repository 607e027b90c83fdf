"""The fields of a service as people write them: ``service = true``, a table of its own, or flat (``ready_port = 0``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.service import Service
from ischeduler.helper.suggest import did_you_mean

FLAT = ("ready_file", "ready_port", "ready_url", "serve_for")
"""Workload fields that belong to the service; any of them makes one."""
_PARTS = ("ready_file", "ready_port", "ready_url", "for", "restarts", "linger", "drain", "replace_after")
_TIMES = {"for": "for_s", "linger": "linger_s", "drain": "drain_s", "replace_after": "replace_after_s"}


def read_service(value: Any) -> Service | None:
    """A table (``{ready_port = 0, for = "3d"}``), or true for one without a probe, or false for none. BadInput names the part."""
    if isinstance(value, Service) or value is None:
        return value
    if isinstance(value, bool):
        return Service() if value else None
    if not isinstance(value, Mapping):
        raise TypeError
    given: dict[str, Any] = {}
    for name, part in value.items():
        key = str(name).replace("-", "_")
        key = next((k for k, v in _TIMES.items() if v == key), key)
        if key not in _PARTS:
            raise BadInput(f"'{name}' is not a part of a service{did_you_mean(key, _PARTS)}.")
        if part is not None:
            given[_TIMES.get(key, key)] = _read(key, part)
    return Service(**given)


def _read(key: str, value: Any) -> Any:
    if key in _TIMES:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else parse_human(str(value))
    if key in ("ready_port", "restarts"):
        if isinstance(value, bool) or not str(value).isdigit():
            raise BadInput(f"{key} must be a whole number, not {value!r}.")
        return int(value)
    return str(value)


def with_service(arguments: dict[str, Any]) -> dict[str, Any]:
    """Workload arguments with the flat fields taken into ``service``."""
    flat = {name: arguments.pop(name) for name in FLAT if name in arguments}
    if not flat:
        return arguments
    own: Service = arguments.get("service") or Service()
    changes = {"for_s" if name == "serve_for" else name: value for name, value in flat.items()}
    return {**arguments, "service": replace(own, **changes)}
