"""What happened to a run: the input of every decision and the log a person can replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One fact about a run. ``source`` is 'plane', 'job', 'batch' or 'user'.

    Events of one (run, source, token, seq) are the same event however often they arrive; ``token`` is the in-job token
    (``3.0``) or '' outside a job. ``at`` is epoch seconds by the source's clock.
    """

    run_id: str
    kind: str
    at: float
    source: str = "plane"
    token: str = ""
    seq: int = 0
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
