"""What a service's wrapper knows: its settings, whether the service is ready, and where clients find it.

The plane hands the settings over as JSON in `ISCHED_SERVICE`; clients read `endpoint.json` in the run's directory.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.training.files import say, write_atomic
from ischeduler.training.token import Token

ENDPOINT = "endpoint.json"
PROBE_TIMEOUT_S = 2.0
_FIRST_S, _LATER_S, _DOUBT_S = 0.2, 5.0, 1.0
_MISSES = 3
"""Probes in a row that must fail before a service that was ready counts as down."""


@dataclass(frozen=True, slots=True)
class Settings:
    """See `ischeduler.core.service.Service`, whose fields these are; `port` None: the service has none that is known."""

    ready_file: str = ""
    port: int | None = None
    ready_url: str = ""
    restarts: int = 5
    linger_s: float = 5.0
    drain_s: float = 10.0
    replace_after_s: float = 120.0


def settings_from_environ(environ: Mapping[str, str]) -> Settings | None:
    """None where this job is no service, or (with a word) where its settings cannot be read: then it is run as a training is."""
    text = environ.get("ISCHED_SERVICE")
    if not text:
        return None
    try:
        given: dict[str, Any] = json.loads(text)
        port = given.get("ready_port")
        return Settings(
            ready_file=str(given.get("ready_file") or ""),
            port=None if port is None else int(port),
            ready_url=str(given.get("ready_url") or ""),
            restarts=int(given.get("restarts", 5)),
            linger_s=float(given.get("linger_s", 5.0)),
            drain_s=float(given.get("drain_s", 10.0)),
            replace_after_s=float(given.get("replace_after_s", 120.0)),
        )
    except (ValueError, TypeError, AttributeError) as error:
        say(f"ISCHED_SERVICE cannot be read ({error}): run without hand-over")
        return None


def free_port() -> int:
    """A TCP port that nobody on this host listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def write_endpoint(run_dir: Path, token: Token, *, port: int | None, url: str, job_id: str | None) -> dict[str, Any]:
    """Replace `endpoint.json` atomically by this incarnation's address and return it. Raises OSError."""
    place = {
        "v": 1, "host": os.uname().nodename, "port": port, "url": url, "since": round(time.time(), 3), "token": str(token),
        "job_id": job_id,
    }  # fmt: skip
    write_atomic(run_dir / ENDPOINT, (json.dumps(place) + "\n").encode())
    return place


def read_endpoint(run_dir: Path) -> dict[str, Any] | None:
    """What `endpoint.json` says; None where there is none yet, or it is torn."""
    try:
        value = json.loads((run_dir / ENDPOINT).read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def probe_of(settings: Settings, port: int | None, ready_file: Path | None) -> Callable[[], bool]:
    """The question whether the service is ready: the strongest that was asked for. A file must have changed since this call."""
    if settings.ready_url:
        url = _whole_url(settings.ready_url, port)
        return lambda: _answers(url)
    if port is not None:
        return lambda: _takes_connection(port)
    if ready_file is not None:
        before = _stamp(ready_file)
        return lambda: _stamp(ready_file) not in (None, before)
    return lambda: True


def _whole_url(url: str, port: int | None) -> str:
    url = url.replace("{port}", str(port or ""))
    return f"http://127.0.0.1:{port}{url}" if url.startswith("/") else url


def _answers(url: str) -> bool:
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the site does not know this host
    try:
        with opener.open(url, timeout=PROBE_TIMEOUT_S) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError, urllib.error.URLError):
        return False


def _takes_connection(port: int) -> bool:
    for host in ("127.0.0.1", os.uname().nodename):
        try:
            with socket.create_connection((host, port), PROBE_TIMEOUT_S):
                return True
        except OSError:
            continue
    return False


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class Prober:
    """Asks the probe in a thread of its own: a hanging service must not hold up signals.

    `ready` is the newest belief; `missed_since` (epoch seconds) when the first of the newest failures in a row was asked for.
    """

    def __init__(self, probe: Callable[[], bool]) -> None:
        self.ready = False
        self.missed_since = 0.0
        self._probe, self._stop = probe, threading.Event()
        self._thread = threading.Thread(target=self._loop, name="isched-ready", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; an answer under way is not waited for."""
        self._stop.set()

    def _loop(self) -> None:
        misses, began = 0, False
        while not self._stop.is_set():
            asked_at, good = time.time(), self._probe()
            if not good and not misses:
                self.missed_since = asked_at
            misses = 0 if good else misses + 1
            self.ready = good or (self.ready and misses < _MISSES)
            began = began or good
            self._stop.wait(_LATER_S if good else _DOUBT_S if began else _FIRST_S)
