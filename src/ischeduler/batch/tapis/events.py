"""What Tapis tells by itself: notifications of jobs, in whatever order they arrive, each taken once. Pure.

A notification resembles a CloudEvent: ``type`` jobs.CATEGORY.DETAIL, ``subject`` the job, ``seriesSeqCount`` its place among those of
the job, ``data`` a JSON text. Delivery may be late, doubled, out of order, or fail: it only makes the plane look sooner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ischeduler.batch.tapis.schema import EVENT_DATA
from ischeduler.core.errors import BadInput

DETAIL = "isched"
MINUTES_DEFAULT, MINUTES_MOST = 7 * 24 * 60, 4 * 7 * 24 * 60
"""How long a subscription lives when nothing is said, and at most."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification. ``status`` is '' unless the job's status changed; ``text`` is what the job itself said (sendEvent)."""

    job: str
    seq: int
    kind: str
    status: str = ""
    condition: str = ""
    text: str = ""


def read_notice(body: Any) -> Notice:
    """The notification of a webhook's body. BadInput in one sentence for anything else."""
    event = body.get("event", body) if isinstance(body, Mapping) else None
    if not isinstance(event, Mapping):
        raise BadInput("a Tapis notification is a JSON object with type, subject and seriesSeqCount.")
    words = str(event.get("type", "")).split(".")
    subject, seq = event.get("subject"), event.get("seriesSeqCount")
    if len(words) < 2 or words[0] != "jobs" or not isinstance(subject, str) or not 0 < len(subject) <= 200:
        raise BadInput("that is no notification of a Tapis job: its type or subject is missing.")
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq < 2**53:
        raise BadInput("that Tapis notification has no seriesSeqCount.")
    data = _data(event.get("data"))
    changed = words[1] == "JOB_NEW_STATUS"
    return Notice(
        subject, seq, words[1], str(data.get("newJobStatus") or (words[2] if changed and len(words) > 2 else "")) if changed else "",
        str(data.get("condition") or ""), str(data.get("eventData") or data.get("message") or "") if words[1] == "JOB_USER_EVENT" else "",
    )  # fmt: skip


@dataclass
class Series:
    """The notifications of one job: the newest status wins, whatever the order; each is taken once."""

    newest: int = -1
    status: str = ""
    condition: str = ""
    taken: set[int] = field(default_factory=set[int])

    def take(self, notice: Notice) -> bool:
        """Whether this one is news."""
        if notice.seq in self.taken:
            return False
        self.taken.add(notice.seq)
        if notice.status and notice.seq > self.newest:
            self.newest, self.status, self.condition = notice.seq, notice.status, notice.condition
        return True


def pack_events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Bodies of ``sendEvent`` that carry events of the in-job protocol, each within Tapis' limit; one that is too long is left out."""
    bodies: list[dict[str, str]] = []
    batch: list[str] = []
    for text in (json.dumps(e, separators=(",", ":")) for e in events):
        if len(text) + 4 > EVENT_DATA:
            continue
        if batch and sum(len(t) + 1 for t in batch) + len(text) + 2 > EVENT_DATA:
            bodies.append({"eventData": f"[{','.join(batch)}]", "eventDetail": DETAIL})
            batch = []
        batch.append(text)
    return [*bodies, *([{"eventData": f"[{','.join(batch)}]", "eventDetail": DETAIL}] if batch else [])]


def unpack_events(text: str) -> list[dict[str, Any]]:
    """The events of a job's own notification; none where it was somebody else's text."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []


def subscription(url: str, category: str = "ALL") -> dict[str, Any]:
    """A subscription by webhook. Its life is left out: the API's two descriptions spell that field differently, and one forbids extras."""
    return {"eventCategoryFilter": category, "deliveryTargets": [{"deliveryMethod": "WEBHOOK", "deliveryAddress": url}]}


def due_for_renewal(made_at: float, now: float) -> bool:
    """Whether a subscription should be made anew: at half its life, so that one that fails can be tried again for days."""
    return now - made_at >= MINUTES_DEFAULT * 60 / 2


def _data(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    try:
        found = json.loads(value) if isinstance(value, str) else {}
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}
