"""Events from run directories to the service, by an agent's hands: for clusters whose nodes cannot reach the service themselves.

The same body as the jobs' own push (``training/push.py``); the service drops what it knows by (token, sequence number), so nothing is
lost and nothing counts twice when both ways work or an agent starts again from an older offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ischeduler.training.files import write_atomic
from ischeduler.training.push import as_json
from ischeduler.training.spool import SpoolEvent, read_events

RECENT_S = 3 * 86400.0
_BATCH = 200
_LOOK_S = 2.0

Send = Callable[[str, Mapping[str, Any]], int]
"""Posts a run's body; the HTTP status. OSError when the service cannot be reached."""


AGAIN = (401, 403, 408, 429)
"""Answers that are about this agent or this moment (its token has run out, say), not about the run: the same is sent again later."""


@dataclass
class Relay:
    """Watches the run directories below ``runs_dir`` that were written lately. ``offsets_file`` remembers how far each was sent."""

    runs_dir: Path
    offsets_file: Path
    send: Send
    monotonic: Callable[[], float] = time.monotonic
    sent: int = 0
    _offsets: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _loaded: bool = False
    _next_s: float = float("-inf")

    def look(self) -> None:
        """Send what is new, at most once in two seconds. Never raises: the spools keep everything."""
        if self.monotonic() < self._next_s:
            return
        self._next_s = self.monotonic() + _LOOK_S
        self._load()
        before = json.dumps(self._offsets)
        try:
            for folder in self._recent():
                self._forward(folder)
        except OSError:
            self._next_s = self.monotonic() + 10 * _LOOK_S
        if json.dumps(self._offsets) != before:
            self._save()

    def _forward(self, folder: Path) -> None:
        """One run's news. A refused run (it is not this user's, or was deleted) is passed over from then on."""
        known = self._offsets.get(folder.name, {})
        events, offsets = read_events(folder, known)
        for first in range(0, len(events), _BATCH):
            status = self._post(folder.name, events[first : first + _BATCH])
            if status in AGAIN or status >= 500:
                raise OSError(f"HTTP {status}")
        self.sent += len(events)
        self._offsets[folder.name] = offsets

    def _post(self, run: str, events: list[SpoolEvent]) -> int:
        return self.send(run, {"run": run, "events": [as_json(e) for e in events]})

    def _recent(self) -> list[Path]:
        """Run directories whose spools were written in the last days, or since they were last read."""
        oldest = time.time() - RECENT_S
        if not self.runs_dir.is_dir():
            return []
        return [f for f in sorted(self.runs_dir.iterdir()) if (f / "events").is_dir() and _written_at(f / "events") >= oldest]

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        try:
            found = json.loads(self.offsets_file.read_text())
            self._offsets = {str(k): {str(n): int(o) for n, o in v.items()} for k, v in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            self._offsets = {}  # everything is sent again, and dropped there

    def _save(self) -> None:
        try:
            self.offsets_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(self.offsets_file, json.dumps(self._offsets).encode())
        except OSError:
            return  # only a memory: what is sent again is dropped there


def _written_at(events: Path) -> float:
    return max((f.stat().st_mtime for f in events.glob("*.jsonl")), default=0.0)
