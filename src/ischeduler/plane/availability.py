"""How much of its time a service was up, from its jobs' own events. Pure.

An incarnation is up from ``ready`` until it leaves, fails or does not answer; the service is up while any is. Times are the jobs'
hosts' clocks. What dies without a word (a node) is down from its last word on, heartbeats included; what stopped answering, from the
first probe that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.plane.attempts import alive

_DOWN = {"leaving": "its job ended", "unready": "it did not answer", "restarting": "it failed and was started again", "exit": "it ended"}


@dataclass(frozen=True, slots=True)
class Interruption:
    """A time in which nobody served: when it began (epoch seconds), how long it was, and why."""

    at: float
    length_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Availability:
    """Of a service since it was first ready: seconds up and in all, share of time up, what interrupted it, and who serves now.

    ``waited_s``: from delegation to the first readiness (None before); ``handovers``: successors that were ready before their
    predecessor left; ``restarts``: processes started again within a job. Length and number of interruptions count one that lasts still.
    """

    endpoint: str = ""
    up_s: float = 0.0
    span_s: float = 0.0
    waited_s: float | None = None
    handovers: int = 0
    restarts: int = 0
    interruptions: tuple[Interruption, ...] = ()

    @property
    def up_share(self) -> float | None:
        """Up time by all time since it was first ready; None before."""
        return self.up_s / self.span_s if self.span_s > 0 else None

    @property
    def interrupted_s(self) -> float:
        """Length of all interruptions."""
        return sum(i.length_s for i in self.interruptions)


@dataclass(frozen=True, slots=True)
class _Span:
    """One incarnation up: from, until, and why it ended ('' while it serves)."""

    start: float
    end: float
    why: str


def availability(run: Run, events: Iterable[Event], now: float) -> Availability:
    """Measure it. ``events`` are the run's log in any order; ``now`` counts for what still serves or is still down."""
    told: dict[str, list[Event]] = {}
    for event in events:
        if event.source == "job":
            told.setdefault(event.token, []).append(event)
    living = {f"{a.number}.{a.restarts}" for a in run.attempts if alive(a)}
    spans = sorted((s for token, own in told.items() for s in _spans(own, now if token in living else None)), key=lambda s: s.start)
    serving = next((a.endpoint for a in reversed(run.attempts) if a.serving and alive(a)), "") if not run.state.ended else ""
    if not spans:
        return Availability(endpoint=serving)
    up_s, gaps, handovers, last = _walk(spans)
    end = last.end
    if not run.state.ended and last.why and now > last.end:
        gaps.append(Interruption(last.end, now - last.end, last.why))
        end = now
    restarts = sum(e.kind == "restarting" for own in told.values() for e in own)
    begin = spans[0].start
    return Availability(serving, up_s, end - begin, max(0.0, begin - run.created_at), handovers, restarts, tuple(gaps))


def _spans(events: list[Event], now: float | None) -> list[_Span]:
    """The times one incarnation was up; ``now`` when its job lives."""
    events = sorted(events, key=lambda e: e.seq)
    found: list[_Span] = []
    since: float | None = None
    for event in events:
        if event.kind == "ready" and since is None:
            since = event.at
        elif event.kind in _DOWN and since is not None:
            found.append(_Span(since, max(since, _when(event)), _DOWN[event.kind] + _code(event.data)))
            since = None
    if since is not None:
        last = max(e.at for e in events)
        found.append(_Span(since, last, "its job died without a word") if now is None else _Span(since, max(last, now), ""))
    return found


def _when(event: Event) -> float:
    since = event.data.get("since")
    return float(since) if event.kind == "unready" and isinstance(since, (int, float)) else event.at


def _code(data: Mapping[str, object]) -> str:
    return f" (exit code {data['code']})" if isinstance(data.get("code"), int) else ""


def _walk(spans: list[_Span]) -> tuple[float, list[Interruption], int, _Span]:
    """Seconds up, gaps between, hand-overs without a gap, and the span that ends last. ``spans`` by their start."""
    last, up_s, handovers = spans[0], spans[0].end - spans[0].start, 0
    gaps: list[Interruption] = []
    for span in spans[1:]:
        if span.start > last.end:
            gaps.append(Interruption(last.end, span.start - last.end, last.why))
        else:
            handovers += 1
        up_s += max(0.0, span.end - max(span.start, last.end))
        last = span if span.end >= last.end else last
    return up_s, gaps, handovers, last
