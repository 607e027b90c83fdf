"""A long-lived process in place of a training."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.errors import BadInput

PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Service:
    """An inference server or a notebook: it never finishes by itself, and is kept up from job to job until it is ended.

    Ready is what the probe says: ``ready_url`` answers 2xx (``/path`` on the service's own port, or a whole URL), else
    ``ready_port`` takes a connection, else ``ready_file`` appears or is written anew; without a probe it is ready once it runs.
    ``ready_port`` 0 lets each job pick a free port, told as ``ISCHED_PORT`` and for ``{port}`` in the command. ``for_s``: ended
    that many seconds after it was ready for the first time. After ``restarts`` failures in a row within one job the job gives up.
    ``linger_s``: how long a predecessor goes on serving once its successor is ready. ``drain_s``: from SIGTERM to SIGKILL.
    ``replace_after_s``: one that was ready and has not answered its probe for so long, though it lives, gets a successor (0: never).
    """

    ready_file: str = ""
    ready_port: int | None = None
    ready_url: str = ""
    for_s: float | None = None
    restarts: int = 5
    linger_s: float = 5.0
    drain_s: float = 10.0
    replace_after_s: float = 120.0

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise BadInput(problem)


def _problem(s: Service) -> str:
    if s.ready_port is not None and not 0 <= s.ready_port <= PORT_MAX:
        return f"ready_port {s.ready_port} is no port; give 0 (any free one) to {PORT_MAX}."
    if s.ready_url and not s.ready_url.startswith(("/", "http://", "https://")):
        return f"ready_url '{s.ready_url[:60]}' must begin with / (a path on the service's own port), http:// or https://."
    if s.ready_url.startswith("/") and s.ready_port is None:
        return "a ready_url that is only a path needs the port: give ready_port too (0: any free one)."
    if s.for_s is not None and not s.for_s > 0:
        return f"a service for {s.for_s:g} s is none; give a time above zero."
    if s.restarts < 0 or s.linger_s < 0 or not s.drain_s > 0:
        return "restarts and linger cannot be negative, and drain must be above zero seconds."
    if not 0 <= s.replace_after_s < float("inf"):
        return f"replace_after of {s.replace_after_s:g} s is none; give a time, or 0 to leave a service that does not answer alone."
    return ""
