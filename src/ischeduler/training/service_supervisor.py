"""The wrapper of a service: started again where it fails, handed over to a successor that is ready, ended before its limit.

It differs from a training's in what it yields to. A newer *claim* does not end it, for its successor starts beside it; the `fence`
file does, which the successor raises once it is ready. SIGUSR2 (the limit is near) does not end it either: it serves on until its
own time to leave.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ischeduler.training.files import say
from ischeduler.training.identity import Identity
from ischeduler.training.incarnation import EXIT_CHECKPOINTED
from ischeduler.training.service import Prober, Settings, free_port, probe_of, write_endpoint
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.supervisor import Supervisor
from ischeduler.training.ticker import Ticker
from ischeduler.training.token import raise_fence, written_fence

STEADY_S = 60.0
"""A service that was ready for so long has begun well: failures before it do not count any more."""
BACKOFF_FIRST_S, BACKOFF_MOST_S = 1.0, 60.0
_LOOK_S = 0.2
_SLOW_S = 2.0
_LIMIT_MARGIN_S = 2.0


class ServiceSupervisor(Supervisor):
    """Runs a service until it is to leave (exit 85) or has failed too often (its own code). `deadline`: epoch seconds."""

    def __init__(
        self, identity: Identity, spool: SpoolWriter | None, settings: Settings, deadline: float | None, ticker: Ticker | None = None,
    ) -> None:  # fmt: skip
        super().__init__(replace(identity, kill_after_s=settings.drain_s), spool, ticker)
        self._settings, self._tick_every_s = settings, _LOOK_S
        lead_s = settings.drain_s + _LIMIT_MARGIN_S
        self._leave_at_s = None if deadline is None else time.monotonic() + (deadline - time.time()) - lead_s
        self._why_leave = "limit"
        self._leaving = False
        self._slow_s = 0.0
        self._port: int | None = None
        self._prober: Prober | None = None
        self._was_ready, self._ready_since_s = False, 0.0
        self._silent_since: float | None = None
        self._failures = 0
        self._resume_s = 0.0

    # The process, again and again

    def _carry(self, env: Mapping[str, str], wake_out: int) -> int:
        while True:
            problem = self._start(self._prepared(env))
            if problem is not None:
                return self._not_started(problem)
            self._attend(wake_out)
            code = self._ended(self._child.returncode)
            if code is not None:
                return code
            self._pause(wake_out)
            if self._leaving:
                return self._left()

    def _prepared(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of the next process, with its port; the probe starts with it."""
        settings, own = self._settings, dict(env)
        self._port = free_port() if settings.port == 0 else settings.port
        own_file = self._identity.run_dir.attempt(self._identity.token) / "ready"
        file = Path(settings.ready_file) if settings.ready_file else own_file
        if self._port is not None:
            own["ISCHED_PORT"] = str(self._port)
        own["ISCHED_READY_FILE"] = os.fspath(file)
        self._command = tuple(word.replace("{port}", str(self._port or "")) for word in self._identity.command)
        self._pending.clear()
        self._kill_plan, self._oom, self._was_ready = [], False, False
        self._silent_since = None
        self._prober = Prober(probe_of(settings, self._port, file if settings.ready_file else None))
        return own

    def _ended(self, returncode: int) -> int | None:
        """The exit code of the wrapper when it is to end too; None when the service is to be started again."""
        assert self._prober is not None
        self._prober.stop()
        if not self._leaving and self._leave_at_s is not None and time.monotonic() >= self._leave_at_s:
            self._leave()
        if self._leaving:
            return self._left()
        steady = self._was_ready and time.monotonic() - self._ready_since_s >= STEADY_S
        self._was_ready = False
        self._failures = 1 if steady else self._failures + 1
        code = returncode if returncode >= 0 else 128 - returncode
        if self._failures > self._settings.restarts:
            return self._gave_up(code)
        wait_s = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2.0 ** (self._failures - 1))
        self._emit("restarting", code=code, failures=self._failures, of=self._settings.restarts, wait_s=wait_s)
        say(f"the service ended with code {code}; it is started again in {wait_s:g} s")
        self._resume_s = time.monotonic() + wait_s
        return None

    def _pause(self, wake_out: int) -> None:
        """Wait out the back-off, still listening to signals, control and fence."""
        while not self._leaving and (left_s := self._resume_s - time.monotonic()) > 0:
            while self._inbox:
                self._take_signal(self._inbox.popleft())
            self._watch(time.monotonic())
            self._sleep(wake_out, min(left_s, _LOOK_S))

    def _left(self) -> int:
        return self._last_word(EXIT_CHECKPOINTED, "left")

    def _gave_up(self, code: int) -> int:
        reason = "oom" if self._oom else "signal" if code > 128 and code - 128 in set(signal.Signals) else "error"
        return self._last_word(code or 1, reason)

    def _last_word(self, code: int, reason: str) -> int:
        self._emit("exit", code=code, reason=reason)
        if self._spool is not None and not self._spool.flush():
            say(f"{self._spool.waiting} events could not be written")
        return code

    # While it runs

    def _forward(self, number: int) -> None:
        """Signals are about the job, and the service hears of them as SIGTERM when its time has come."""
        self._take_signal(number)

    def _take_signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._leave_by(time.monotonic(), "signal")

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._note_readiness(now_s)
        if now_s >= self._slow_s:
            self._slow_s = now_s + _SLOW_S
            self._usage.sample()
            self._report_finds()
            if self._ticker is not None:
                self._ticker.look()
        self._watch(now_s)

    def _watch(self, now_s: float) -> None:
        self._yield_to_successor(now_s)
        self._obey_control()
        if self._leave_at_s is not None and now_s >= self._leave_at_s and not self._leaving:
            self._leave()

    def _check_fence(self) -> None:
        return  # see _yield_to_successor, which looks more often

    def _yield_to_successor(self, now_s: float) -> None:
        if self._why_leave == "handed_over":
            return
        try:
            fence = written_fence(self._identity.run_dir.path)
        except OSError:
            return  # an unreachable file system is no reason to stop
        if fence is not None and fence > self._identity.token:
            say(f"attempt {fence} is ready: {self._identity.token} serves {self._settings.linger_s:g} s more and leaves")
            self._leave_by(now_s + self._settings.linger_s, "handed_over")

    def _obey_control(self) -> None:
        if not self._identity.leads or self._control_done is not None:
            return
        try:
            word = self._identity.run_dir.read_control(self._identity.token)
        except OSError:
            return
        if word in ("stop", "move"):
            self._control_done = word
            self._leave_by(time.monotonic(), "asked")

    def _leave_by(self, at_s: float, why: str) -> None:
        """Leave then, unless it is to leave earlier for another reason."""
        if self._leave_at_s is None or at_s < self._leave_at_s:
            self._leave_at_s, self._why_leave = at_s, why

    def _leave(self) -> None:
        """Ask the service to end; what does not is killed after the time to drain."""
        self._leaving = True
        self._emit("leaving", why=self._why_leave)
        child = getattr(self, "_child", None)
        if child is not None and child.poll() is None:
            super()._forward(signal.SIGTERM)

    def _note_readiness(self, now_s: float) -> None:
        if self._prober is not None and not self._leaving and self._silent_since is not None:
            self._say_again()
        if self._prober is None or self._prober.ready == self._was_ready or self._leaving:
            return
        if not self._prober.ready:
            self._was_ready, self._silent_since = False, self._prober.missed_since
            self._emit("unready", since=round(self._prober.missed_since, 3))
        elif self._publish():
            self._was_ready, self._ready_since_s, self._silent_since = True, now_s, None

    def _say_again(self) -> None:
        """Once more when it is time for another to take its place: the plane need not wait for the next heartbeat."""
        assert self._silent_since is not None
        if self._prober is None or self._prober.ready or time.time() < self._silent_since + self._settings.replace_after_s + _LOOK_S:
            return
        self._emit("unready", since=round(self._silent_since, 3))
        self._silent_since = None

    def _publish(self) -> bool:
        """Become the one that clients find; False where a newer one is ready already, or nothing can be written now."""
        identity = self._identity
        if not identity.leads:
            return True
        try:
            fence = written_fence(identity.run_dir.path)
            if fence is not None and fence > identity.token:
                return False
            raise_fence(identity.run_dir.path, identity.token)
            place = write_endpoint(
                identity.run_dir.path, identity.token, port=self._port, url=self._settings.ready_url, job_id=identity.job_id,
            )  # fmt: skip
        except OSError:
            return False
        self._emit("ready", host=place["host"], port=place["port"])
        return True
