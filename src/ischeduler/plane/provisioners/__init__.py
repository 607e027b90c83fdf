"""When a segment's successor is queued: reactive, by the average wait, by a quantile of the wait, with a hand-over.

All are pure rules behind the port :class:`ischeduler.ports.Provisioner`; what they know of the queue is passed as data
(:class:`Forecast`). The very same rules are judged in simulation and deployed on a live batch system.
"""

from ischeduler.plane.provisioners.forecast import Forecast, smoothed
from ischeduler.plane.provisioners.prices import Prices
from ischeduler.plane.provisioners.rules import (
    REACTIVE,
    RETURNS_MAX,
    Average,
    HandOver,
    Informed,
    Newsvendor,
    Reactive,
    Rule,
    Twin,
)

__all__ = [
    "REACTIVE", "RETURNS_MAX", "Average", "Forecast", "HandOver", "Informed", "Newsvendor", "Prices", "Reactive", "Rule", "Twin",
    "smoothed",
]  # fmt: skip
