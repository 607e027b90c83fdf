"""What goes wrong, on demand. Numbers count down: the next so many are hit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Faults:
    """``down``: nobody answers. ``fail``: answers 500. ``fail_after``: the request is carried out, and then answered with 500.

    ``refuse_tokens``: a good token is refused. News: ``lose`` and ``double`` are counts, ``hold`` keeps them back until released
    (``late``), ``reverse`` releases them in the opposite order.
    """

    down: bool = False
    fail: int = 0
    fail_after: int = 0
    refuse_tokens: int = 0
    lose: int = 0
    double: int = 0
    hold: bool = False
    reverse: bool = False
    late: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])

    def use(self, name: str) -> bool:
        """Whether this one is hit; one less to come."""
        left = getattr(self, name)
        if left:
            setattr(self, name, left - 1)
        return bool(left)
