"""The field ``elastic`` of a workload as people write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ischeduler.core.elastic import Elastic
from ischeduler.core.errors import BadInput
from ischeduler.helper.suggest import did_you_mean

_PARTS = ("world_sizes", "batch", "rate", "base")


def read_elastic(value: Any) -> Elastic | None:
    """A table (``{world_sizes = [1, 2, 4], batch = "scale", rate = "linear"}``). BadInput names the part."""
    if value is None or isinstance(value, Elastic):
        return value
    if not isinstance(value, Mapping):
        raise TypeError
    table = cast(Mapping[str, Any], value)
    for name in table:
        if name not in _PARTS:
            raise BadInput(f"'{name}' is not a part of elastic{did_you_mean(name, _PARTS)}.")
    sizes = tuple(int(n) for n in table.get("world_sizes", ()))
    base: Any = table.get("base")
    known = None if base is None else (int(base[0]), int(base[1]), int(base[2]))
    return Elastic(sizes, str(table.get("batch", "keep")), str(table.get("rate", "none")), known)
