"""``--goal``: soonest, cheapest, fewest-interruptions, ``deadline=...``, ``budget=...``."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.plan import GOALS
from ischeduler.helper.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Goal:
    """``deadline`` is epoch seconds, ``budget`` the plan's cost unit."""

    name: str
    deadline: float | None = None
    budget: float | None = None


def parse_goal(text: str, now: float) -> Goal:
    """A goal of its text. A deadline is a duration from now (``deadline=12h``) or a time (``deadline=2026-05-01T09:00``)."""
    name, _, value = text.strip().partition("=")
    if name not in GOALS:
        raise BadInput(f"goal '{name}' is unknown{did_you_mean(name, GOALS)}.")
    if name == "deadline":
        return Goal(name, deadline=_time(value, now))
    if name == "budget":
        return Goal(name, budget=_money(value))
    if value:
        raise BadInput(f"goal '{name}' takes no value; write just {name}.")
    return Goal(name)


def _time(value: str, now: float) -> float:
    if not value:
        raise BadInput("goal deadline needs a time: deadline=12h or deadline=2026-05-01T09:00.")
    try:
        return datetime.datetime.fromisoformat(value).timestamp() if "-" in value and "T" in value else now + parse_human(value)
    except (BadInput, ValueError):
        raise BadInput(f"deadline '{value}' is neither a duration (12h) nor a time (2026-05-01T09:00).") from None


def _money(value: str) -> float:
    try:
        amount = float(value.lstrip("$"))
    except ValueError:
        raise BadInput(f"budget '{value}' is not an amount; write budget=2.50.") from None
    if amount <= 0:
        raise BadInput("budget must be more than zero.")
    return amount
