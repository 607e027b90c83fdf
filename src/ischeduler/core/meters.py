"""Counting and timing what happens, without knowing who listens.

Any room may count; nothing is kept and nothing costs more than a call until :func:`listen` names recorders, which the service's
telemetry does. Names and labels are registered in :mod:`ischeduler.service.telemetry.metrics`; a label never holds a secret, a
run's id or anything else of which there are ever more.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol


class Recorder(Protocol):
    """What takes the figures. No method raises."""

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Something happened ``amount`` times more."""
        ...

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """One more value of a distribution."""
        ...

    def gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """How it is now."""
        ...

    def timed(self, name: str, labels: Mapping[str, str]) -> AbstractContextManager[object]:
        """Around something whose duration counts."""
        ...


_recorders: list[Recorder] = []


def listen(*recorders: Recorder) -> None:
    """Send everything from now on to these, and to nobody else."""
    _recorders[:] = recorders


def count(name: str, amount: float = 1.0, **labels: str) -> None:
    """Something happened."""
    for recorder in _recorders:
        recorder.count(name, amount, labels)


def observe(name: str, value: float, **labels: str) -> None:
    """A value of a distribution, e.g. seconds."""
    for recorder in _recorders:
        recorder.observe(name, value, labels)


def gauge(name: str, value: float, **labels: str) -> None:
    """How it is now."""
    for recorder in _recorders:
        recorder.gauge(name, value, labels)


@contextmanager
def timed(name: str, **labels: str) -> Generator[None, None, None]:
    """Tells how long the block took, in seconds, however it ends."""
    with ExitStack() as stack:
        for recorder in tuple(_recorders):
            stack.enter_context(recorder.timed(name, labels))
        yield
