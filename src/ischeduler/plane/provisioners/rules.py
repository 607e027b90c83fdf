"""The rules: how long before the running segment's end the successor is queued."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from ischeduler.core.jobs import JobState
from ischeduler.core.run import Run
from ischeduler.plane.attempts import alive_attempts
from ischeduler.plane.provisioners.forecast import Forecast
from ischeduler.plane.provisioners.prices import Prices


class Rule(Protocol):
    """A provisioner before it is told of the queue."""

    def lead_s(self, forecast: Forecast | None) -> float | None:
        """How long before the segment's end the successor is to be queued; None: not before it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Reactive:
    """Only when the running attempt has ended: never two jobs, at the price of one whole queue wait a segment."""

    def lead_s(self, forecast: Forecast | None) -> float | None:
        """Always None."""
        return None

    def submit_at(self, run: Run, now: float, forecast: Forecast | None = None) -> float | None:
        """Always None."""
        return None


REACTIVE = Reactive()
KEPT_LEAST_S = 900.0
"""A start that early is always kept."""
RETURNS_MAX = 3
"""Successors of one segment that give their allocation back at most; the next one stays whenever it starts."""


@dataclass(frozen=True, slots=True)
class Average:
    """As long before the end as jobs waited lately, on average (Mirage's heuristic: the last 100 starts)."""

    def lead_s(self, forecast: Forecast | None) -> float | None:
        """The mean of the recent waits."""
        return None if forecast is None else forecast.mean_s

    def submit_at(self, run: Run, now: float, forecast: Forecast | None = None) -> float | None:
        """See :func:`submit_at`."""
        return submit_at(self, run, now, forecast)


@dataclass(frozen=True, slots=True)
class Newsvendor:
    """When the remaining time has fallen to the c_i / (c_i + c_o) quantile of the predicted wait.

    With a calibrated forecast this minimises the expected cost of one irreversible submission: the newsvendor problem.
    ``tuned`` maps levels of price to levels of the forecast, ascending in both, as found on training episodes: a forecast that is
    asked again at every look crosses early, and one that is too sure of itself crosses late. Empty: the price's own level.
    ``margin_s`` is always added to the lead.

    ``kept`` maps levels of price to levels of the forecast in the same way, for the opposite question: a successor that starts while more
    time remains than that quantile of a new wait gives its allocation back, as it will surely get another in time, and is queued again
    (:meth:`keep_s`). From level 1 on, or empty: whatever starts stays.
    """

    prices: Prices = field(default_factory=Prices)
    tuned: tuple[tuple[float, float], ...] = ()
    margin_s: float = 0.0
    kept: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for table in (self.tuned, self.kept):
            for (price_a, value_a), (price_b, value_b) in pairwise(table):
                if price_b < price_a or value_b < value_a:
                    raise ValueError(f"tuned levels out of order: {table}")

    @property
    def level(self) -> float:
        """The level of the forecast that is asked."""
        found = _at_price(self.tuned, self.prices)
        return self.prices.level if found is None else found

    def keep_s(self, forecast: Forecast | None) -> float | None:
        """How long before its predecessor's end a successor may start now and stay; None: at any time."""
        level = _at_price(self.kept, self.prices)
        wait = None if level is None or level >= 1.0 or forecast is None else forecast.wait_s(level)
        return None if wait is None else max(KEPT_LEAST_S, wait)

    def lead_s(self, forecast: Forecast | None) -> float | None:
        """The wait at the level, plus the margin."""
        wait = None if forecast is None else forecast.wait_s(self.level)
        return None if wait is None else wait + self.margin_s

    def submit_at(self, run: Run, now: float, forecast: Forecast | None = None) -> float | None:
        """See :func:`submit_at`."""
        return submit_at(self, run, now, forecast)


def _at_price(table: tuple[tuple[float, float], ...], prices: Prices) -> float | None:
    """What the table says for these prices, straight between its own; None without any."""
    return Forecast(0.0, tuple(p for p, _ in table), tuple(v for _, v in table)).wait_s(prices.level)


class Twin(Newsvendor):
    """The newsvendor's rule on roll-outs of the live queue: the forecast's quantiles are those of simulated starts."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HandOver:
    """Another rule's lead, for runs whose predecessor checkpoints and ends as soon as the successor starts.

    An early start then costs one checkpoint instead of an overlap, so the level is high; but a lead as long as the segment would
    shred the run into short ones: it is never more than ``longest_share`` of the segment.
    """

    rule: Rule = field(default_factory=lambda: Newsvendor(Prices(19.0, 1.0)))
    longest_share: float = 1.0

    def lead_s(self, forecast: Forecast | None) -> float | None:
        """The inner rule's lead."""
        return self.rule.lead_s(forecast)

    def submit_at(self, run: Run, now: float, forecast: Forecast | None = None) -> float | None:
        """See :func:`submit_at`; not earlier than the longest share before the end."""
        at, lead = submit_at(self.rule, run, now, forecast), self.rule.lead_s(forecast)
        segment = None if lead is None else expected_segment(run, lead)
        if at is None or segment is None:
            return None
        start, end = segment
        return max(at, end - self.longest_share * (end - start))


@dataclass(frozen=True, slots=True)
class Informed:
    """A rule together with the newest forecast: the port's provisioner, which the plane asks without one."""

    rule: Rule
    forecast: Forecast | None = None

    @property
    def keep_s(self) -> float | None:
        """The rule's, where it has one: see :meth:`Newsvendor.keep_s`."""
        return self.rule.keep_s(self.forecast) if isinstance(self.rule, Newsvendor) else None

    def submit_at(self, run: Run, now: float) -> float | None:
        """When the successor should be queued."""
        if isinstance(self.rule, HandOver):
            return self.rule.submit_at(run, now, self.forecast)
        return submit_at(self.rule, run, now, self.forecast)


def submit_at(rule: Rule, run: Run, now: float, forecast: Forecast | None) -> float | None:
    """When the successor of the newest attempt should be queued (epoch seconds, never before ``now``).

    None without a forecast and where the rule is reactive. The rule is asked again as the
    forecast changes; a time that lies ahead binds nobody.
    """
    lead = rule.lead_s(forecast)
    segment = None if lead is None else expected_segment(run, lead)
    if segment is None or lead is None:
        return None
    return max(now, segment[1] - lead)


def segment_of(run: Run) -> tuple[float, float] | None:
    """Start and end at the limit of the newest attempt, while it runs."""
    alive = alive_attempts(run)
    if not alive or alive[-1].state is not JobState.RUNNING or alive[-1].started_at is None:
        return None
    start = alive[-1].started_at
    return start, start + alive[-1].resources.walltime_s


def expected_segment(run: Run, wait_s: float) -> tuple[float, float] | None:
    """The same of a newest attempt that may wait: it starts when it has waited that long and the one before it has ended."""
    start = end = -math.inf
    for attempt in alive_attempts(run):
        if attempt.state is JobState.RUNNING:
            start = attempt.started_at if attempt.started_at is not None else math.nan
        else:
            start = max(end, attempt.created_at + wait_s)
        end = start + attempt.resources.walltime_s
    return (start, end) if math.isfinite(end) else None
