"""How figures are written on pages: amounts with their unit, ages, shares. Pure."""

from __future__ import annotations

import math
import time

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import human_size
from ischeduler.planning.cost import cost_words

NOT_KNOWN = "–"


def ago(then: float | None, now: float) -> str:
    """``5m ago``, ``just now`` within ten seconds (or in the future, by another clock); a dash where there is no date."""
    if then is None:
        return NOT_KNOWN
    seconds = now - then
    return "just now" if seconds < 10 else f"{human(seconds)} ago"


def amount(value: float, unit: str) -> str:
    """A figure in its unit: ``2h11``, ``23.1 GB``, ``$0.348``, ``12 SU``."""
    if unit == "s":
        return "never" if math.isinf(value) else human(value)
    if unit == "bytes":
        return human_size(value)
    return cost_words(value, unit).rstrip()


def interval(estimate: Estimate) -> str:
    """``2h00–2h30`` of p10 and p90, one figure where both are written alike."""
    low, high = amount(estimate.p10, estimate.unit), amount(estimate.p90, estimate.unit)
    return low if low == high else f"{low}–{high}"


def percent(share: float) -> str:
    """``54 %``."""
    return f"{share:.0%}".replace("%", "\u202f%")


def signed(share: float) -> str:
    """``+4 %``, ``−4 %``."""
    return f"{share:+.0%}".replace("-", "−").replace("%", "\u202f%")


def clock(at: float) -> str:
    """``2026-11-21 18:04 UTC``: pages are read in many time zones, so the zone is written."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def machine_time(at: float) -> str:
    """What ``<time datetime>`` wants."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def plural(count: int, noun: str) -> str:
    """``1 job``, ``3 jobs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
