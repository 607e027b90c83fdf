"""``--goal``: soonest, cheapest, fewest-interruptions, ``deadline=...``, ``budget=...``."""

from __future__ import annotations

import datetime
import re

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.plan import GOALS
from ischeduler.helper.suggest import did_you_mean
from ischeduler.planning.goals import Goal


def parse_goal(text: str, now: float) -> Goal:
    """A goal of its text. A deadline is a duration from now (``deadline=12h``) or a time (``deadline=2026-05-01T09:00``)."""
    name, _, value = text.strip().partition("=")
    if name not in GOALS:
        raise BadInput(f"goal '{name}' is unknown{did_you_mean(name, GOALS)}.")
    if name == "deadline":
        return Goal(name, deadline=parse_time(value, now))
    if name == "budget":
        return _budget(value)
    if value:
        raise BadInput(f"goal '{name}' takes no value; write just {name}.")
    return Goal(name)


def parse_time(value: str, now: float) -> float:
    """Epoch seconds of a duration from now (``12h``) or a time (``2026-05-01T09:00``, local)."""
    if not value:
        raise BadInput("goal deadline needs a time: deadline=12h or deadline=2026-05-01T09:00.")
    try:
        return datetime.datetime.fromisoformat(value).timestamp() if "-" in value and "T" in value else now + parse_human(value)
    except (BadInput, ValueError, OverflowError):
        raise BadInput(f"deadline '{value}' is neither a duration (12h) nor a time (2026-05-01T09:00).") from None


def _budget(value: str) -> Goal:
    """``2.50`` and ``$2.50`` are dollars, ``40SU`` a centre's own units."""
    match = re.fullmatch(r"\$?(\d+(?:\.\d+)?)\s*([A-Za-z][\w-]*)?", value)
    if match is None:
        raise BadInput(f"budget '{value}' is not an amount; write budget=2.50 (dollars) or budget=40SU.")
    unit = match[2] or "usd"
    return Goal("budget", budget=float(match[1]), unit="usd" if unit.lower() == "usd" else unit)
