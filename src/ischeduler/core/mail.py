"""What is asked of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Mail:
    """One request. It may be begun for ``ttl_s`` seconds from when it was handed out, and not later."""

    id: int
    kind: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ttl_s: float = 0.0
