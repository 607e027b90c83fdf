"""The loop around the training process: signals in, signals out, heartbeats, control, fence, end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from types import FrameType
from typing import Any

from ischeduler.training import processes
from ischeduler.training.files import say
from ischeduler.training.identity import Identity
from ischeduler.training.incarnation import EXIT_CHECKPOINTED, EXIT_SUPERSEDED
from ischeduler.training.metrics import GpuMeter, UsageMeter, oom_kills
from ischeduler.training.oom import OomText
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.tee import Tee
from ischeduler.training.ticker import Ticker
from ischeduler.training.token import raise_fence, read_fence

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGCONT)
_TICK_S = 2.0
_FLAG_WAIT_S = 10.0
_OUTPUT_WAIT_S = 5.0
_LAST_WORDS_S = 1.0


class Supervisor:
    """Runs one training process from start to end; `run` returns the exit code of `isched exec`.

    `spool` is None for the wrappers of other nodes, which only forward signals and watch the fence. `ticker` calls the plane.
    """

    def __init__(self, identity: Identity, spool: SpoolWriter | None, ticker: Ticker | None = None) -> None:
        self._identity, self._spool, self._ticker = identity, spool, ticker
        self._pending: set[int] = set()
        self._inbox: deque[int] = deque()
        self._finds: deque[OomText] = deque()
        self._oom = False
        self._superseded = False
        self._control_done: str | None = None
        self._kill_plan: list[tuple[float, int]] = []
        self._next_beat_s = self._next_tick_s = 0.0
        self._command = identity.command
        self._tick_every_s = min(_TICK_S, identity.heartbeat_s)
        self._kills_before = 0
        self._gpus: GpuMeter
        self._usage: UsageMeter
        self._child: subprocess.Popen[bytes]

    def run(self, env: Mapping[str, str]) -> int:
        """Start the command, look after it, and return the code to exit with."""
        wake_out, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        previous = self._catch(wake_in)
        self._kills_before = oom_kills()
        self._gpus = GpuMeter(self._identity.heartbeat_s)
        try:
            self._gpus.start()
            return self._carry(env, wake_out)
        finally:
            self._gpus.stop()
            signal.set_wakeup_fd(-1)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(wake_out)
            os.close(wake_in)

    def _carry(self, env: Mapping[str, str], wake_out: int) -> int:
        """One process from its start to its end."""
        problem = self._start(env)
        if problem is not None:
            return self._not_started(problem)
        self._attend(wake_out)
        return self._verdict(self._child.returncode)

    def _start(self, env: Mapping[str, str]) -> OSError | None:
        try:
            self._child = subprocess.Popen(
                self._command,
                env=dict(env),
                process_group=0,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            return error
        self._usage = UsageMeter(self._child.pid)
        return None

    def _attend(self, wake_out: int) -> None:
        """Look after the process until it has ended, its last output is through and its finds are told."""
        tees = self._pipe_through()
        self._look_after(wake_out)
        self._end_output(tees)
        if oom_kills() > self._kills_before:
            self._finds.append(OomText("host", "the kernel killed a process of this job for memory"))
        self._report_finds()

    # Signals

    def _catch(self, wake_in: int) -> dict[int, Any]:
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        previous: dict[int, Any] = {number: signal.signal(number, self._on_signal) for number in FORWARDED}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake the loop
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return previous

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._inbox.append(number)

    def _forward(self, number: int) -> None:
        """Give a signal to those who handle it. Who does not would be killed by SIGUSR1/2: it is kept for later instead."""
        if number == signal.SIGCONT:
            processes.send_group(self._child.pid, number)
            return
        takers = [pid for pid in processes.handlers_of(self._child.pid, number) if processes.send(pid, number)]
        self._pending.discard(number)
        if not takers and number in (signal.SIGUSR1, signal.SIGUSR2):
            self._pending.add(number)  # perhaps the training is still importing
        elif not takers:
            processes.send_group(self._child.pid, number)
        if number == signal.SIGTERM:
            self._plan_kill((self._identity.kill_after_s, signal.SIGKILL))

    def _plan_kill(self, *steps: tuple[float, int]) -> None:
        if not self._kill_plan:
            now_s = time.monotonic()
            self._kill_plan = [(now_s + after_s, number) for after_s, number in steps]

    # The loop

    def _look_after(self, wake_out: int) -> None:
        while self._child.poll() is None:
            self._deliver()
            now_s = time.monotonic()
            self._follow_kill_plan(now_s)
            if now_s >= self._next_tick_s:
                self._next_tick_s = now_s + self._tick_every_s
                self._tick()
            if now_s >= self._next_beat_s:
                self._next_beat_s = now_s + self._identity.heartbeat_s
                self._beat()
            due_s = min([self._next_tick_s, self._next_beat_s, *(at_s for at_s, _ in self._kill_plan)])
            self._sleep(wake_out, max(0.0, due_s - time.monotonic()))
        self._deliver()

    @staticmethod
    def _sleep(wake_out: int, timeout_s: float) -> None:
        ready, _, _ = select.select([wake_out], [], [], timeout_s)
        if ready:
            os.read(wake_out, 4096)

    def _deliver(self) -> None:
        while self._inbox:
            number = self._inbox.popleft()
            if number != signal.SIGCONT:
                self._emit("signal", name=signal.Signals(number).name)
            self._forward(number)

    def _follow_kill_plan(self, now_s: float) -> None:
        while self._kill_plan and self._kill_plan[0][0] <= now_s:
            _, number = self._kill_plan.pop(0)
            say(f"the training has not stopped: {signal.Signals(number).name}")
            self._strike(number)

    def _strike(self, number: int) -> None:
        for pid in processes.family(self._child.pid):
            processes.send(pid, number)

    def _tick(self) -> None:
        self._usage.sample()
        self._report_finds()
        for number in sorted(self._pending):
            self._forward(number)
        self._obey_control()
        if self._ticker is not None:
            self._ticker.look()

    def _beat(self) -> None:
        self._check_fence()
        self._emit("heartbeat", **self._usage.take(), gpu=self._gpus.latest)

    def _check_fence(self) -> None:
        identity = self._identity
        try:
            fence = read_fence(identity.run_dir.path)
            if identity.leads and (fence is None or fence < identity.token):
                fence = raise_fence(identity.run_dir.path, identity.token)  # the disk was full at the start
        except OSError:
            return  # an unreachable file system is no reason to stop
        if fence is not None and fence > identity.token and not self._superseded:
            self._superseded = True
            say(f"attempt {identity.token} is superseded by {fence}: stopping")
            self._forward(signal.SIGUSR2)
            self._kill_plan = []
            self._plan_kill((_FLAG_WAIT_S, signal.SIGTERM), (2 * _FLAG_WAIT_S, signal.SIGKILL))

    def _obey_control(self) -> None:
        """`stop` and `move` reach any training as SIGUSR2, else SIGTERM; `checkpoint` is read by the training API itself."""
        if not self._identity.leads or self._control_done is not None:
            return
        try:
            word = self._identity.run_dir.read_control(self._identity.token)
        except OSError:
            return
        if word not in ("stop", "move"):
            return
        self._control_done = word
        if processes.handlers_of(self._child.pid, signal.SIGUSR2):
            self._forward(signal.SIGUSR2)
        else:
            self._forward(signal.SIGTERM)

    # Reporting and the end

    def _emit(self, kind: str, **data: Any) -> None:
        if self._spool is not None:
            self._spool.emit(kind, **data)

    def _report_finds(self) -> None:
        while self._finds:
            find = self._finds.popleft()
            self._oom = True
            self._emit("oom", where=find.where, text=find.text)

    def _pipe_through(self) -> list[Tee]:
        out, err = self._child.stdout, self._child.stderr
        assert out is not None
        assert err is not None
        pairs = ((out, 1), (err, 2))
        tees = [Tee(os.dup(pipe.fileno()), sink, self._finds.append) for pipe, sink in pairs]
        for tee, (pipe, _) in zip(tees, pairs, strict=True):
            pipe.close()
            tee.start()
        return tees

    def _end_output(self, tees: list[Tee]) -> None:
        """Let the last output through, then end what the training left running in its process group."""
        end_s = time.monotonic() + _OUTPUT_WAIT_S
        for tee in tees:
            tee.join(max(0.0, end_s - time.monotonic()))
        processes.send_group(self._child.pid, signal.SIGKILL)
        drained = [tee.join(_LAST_WORDS_S) for tee in tees]
        if not all(drained):
            say("a process that the training left behind still holds its output; it is not waited for")
        lost = sum(tee.lost_bytes for tee in tees)
        if lost:
            say(f"{lost} bytes of output could not be written")

    def _not_started(self, error: OSError) -> int:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        say(f"'{self._identity.command[0]}' cannot be started ({error.strerror}); check the command after --")
        self._emit("exit", code=code, reason="error")
        return code

    def _verdict(self, returncode: int) -> int:
        code, reason = self._judge(returncode)
        self._emit("exit", code=code, reason=reason)
        if self._spool is not None and not self._spool.flush():
            say(f"{self._spool.waiting} events could not be written")
        return code

    def _judge(self, returncode: int) -> tuple[int, str]:
        code = returncode if returncode >= 0 else 128 - returncode
        if self._superseded or code == EXIT_SUPERSEDED:
            return EXIT_SUPERSEDED, "superseded"
        if code == 0:
            return 0, "completed"
        if code == EXIT_CHECKPOINTED or self._left_word() == EXIT_CHECKPOINTED:
            return EXIT_CHECKPOINTED, "checkpointed"
        if self._oom:
            return code, "oom"
        return code, "signal" if code > 128 and code - 128 in set(signal.Signals) else "error"

    def _left_word(self) -> int | None:
        try:
            return self._identity.run_dir.read_stopped(self._identity.token)
        except OSError:
            return None
