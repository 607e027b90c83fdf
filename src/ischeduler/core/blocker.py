"""One reason why an option is refused, and what would fix it."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "gpu_memory", "host_memory", "cores", "gres", "nodes", "walltime", "account", "qos", "user_limit", "chaining",
    "availability", "budget", "deadline", "estimate", "partition_state",
)


@dataclass(frozen=True, slots=True)
class Blocker:
    """``kind`` is one of :data:`KINDS`; ``have``, ``need`` and ``fix`` are words for people, units included."""

    kind: str
    have: str
    need: str
    fix: str

    def sentence(self) -> str:
        """``needs 41 GB, card has 32 GB: batch 48 fits, or gradient accumulation 2``."""
        body = f"needs {self.need}, {self.have}" if self.need else self.have
        return f"{body}: {self.fix}" if self.fix else body
