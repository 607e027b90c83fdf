"""One segment of a member as a job step inside a pilot: started with srun, asked to leave, signalled, ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ischeduler.training.files import say
from ischeduler.training.pilot_files import StepFolder
from ischeduler.training.rundir import RunDir
from ischeduler.training.spool import last_exit
from ischeduler.training.token import Token

ROUND_OVER = "its round in the pool was over"
"""The plane knows this reason (ischeduler.core.pilots): neither a limit nor a failure."""
KILL_WAIT_S = 10.0
ASK_AGAIN_S = 10.0
_PILOTS_OWN = ("SLURM_JOB_END_TIME", "SLURM_JOB_START_TIME", "SLURM_RESTART_COUNT")
"""Of the pilot's job, not of the segment: its limit is told by ISCHED_WALLTIME_S, and it was not restarted."""
_NOT_A_STEPS = ("SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_MEM_PER_NODE",
                "SLURM_MEM_PER_CPU", "SLURM_GRES", "SLURM_GPUS", "SLURM_GPUS_PER_NODE")  # fmt: skip
"""Options of the pilot's batch job that srun would take for its own."""


class Held(Protocol):
    """What a pilot holds, as far as steps need it."""

    @property
    def type(self) -> str: ...
    @property
    def gpus(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def memory_mb(self) -> int: ...
    @property
    def gres(self) -> str: ...


class Step:
    """A running segment."""

    def __init__(self, folder: StepFolder, process: subprocess.Popen[bytes] | None, limit_s: float, now: float) -> None:
        self.folder, self._process = folder, process
        self._ends_at = now + limit_s
        self._warn_at = None if folder.lead_s is None else self._ends_at - folder.lead_s
        self._why = ""
        self._told_at: float | None = None
        self._struck_at: float | None = None
        self._asked_at: float | None = None

    def leave(self, now: float) -> None:
        """Ask it to save and leave; asked again from time to time, as it may still be importing."""
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_S:
            return
        self._asked_at = now
        member = self._member()
        if member is not None:
            run_dir, token = member
            run_dir.write_control(token, "stop")  # the wrapper looks every other second; the signal wakes it
        self._warn()

    def _warn(self) -> bool:
        """SIGUSR2, to the wrapper alone once it has spoken: srun would signal everybody, and kill what is still starting.

        False while there is nobody to hear it.
        """
        member = self._member()
        claim = member[0].read_claim(member[1]) if member is not None else None
        if member is not None and claim is None:
            return False
        if claim is None or claim.host != os.uname().nodename:
            self._send(signal.SIGUSR2)
            return True
        with suppress(OSError):
            os.kill(claim.pid, signal.SIGUSR2)
        return True

    def _member(self) -> tuple[RunDir, Token] | None:
        """Where a member's wrapper speaks and listens; None for what is no member's training."""
        place, attempt = self.folder.variables.get("ISCHED_RUN_DIR"), self.folder.variables.get("ISCHED_ATTEMPT", "")
        return (RunDir(Path(place)), Token(int(attempt), 0)) if place and attempt.isdigit() else None

    def attend(self, now: float, *, hurry: bool) -> None:
        """Pass on signals and cancels, and keep the limit."""
        for name in self.folder.signals():
            number = getattr(signal, f"SIG{name}", None)
            if number is signal.SIGUSR2:
                self._warn()
            elif isinstance(number, signal.Signals):
                self._send(number)
        if self._warn_at is not None and now >= self._warn_at and self._warn():
            self._warn_at = None
        why = "cancelled" if self.folder.cancelled() else "timeout" if now >= self._ends_at or hurry else ""
        if why and not self._why:
            self._why, self._told_at = why, now
            self._send(signal.SIGTERM)
        elif self._told_at is not None and now - self._told_at >= KILL_WAIT_S:
            self._strike(now)

    def _strike(self, now: float) -> None:
        """srun ends its step at once on two SIGINT within a second; what it leaves undone is Slurm's."""
        if self._struck_at is None:
            self._struck_at = now
            for _ in range(2):
                self._send(signal.SIGINT)
        elif now - self._struck_at >= KILL_WAIT_S / 2:
            self._send(signal.SIGKILL)

    def ended(self, now: float) -> bool:
        """Whether it is over; the first time, how it ended is written down."""
        code = 127 if self._process is None else self._process.poll()
        if code is None:
            return False
        self.folder.end(*self._ending(code if code >= 0 else 128 - code), now)
        return True

    def _ending(self, code: int) -> tuple[str, int, str]:
        """(state, exit code, reason). srun may say 0 or 1 of a step whose node was taken from it: the wrapper's own word counts, and where it
        could not speak it, the segment is lost with its node."""
        if self._why:
            return self._why, 0 if code > 128 else code, {"timeout": "TimeLimit"}.get(self._why, self._why)
        spool = self._spool()
        if spool is not None:
            word = last_exit(spool)
            if word is None and code in (0, 1):
                return "node_fail", code, "the step ended without the training's word"
            code = code if word is None else word
        if code == 0:
            return "completed", 0, ""
        return "failed", code, ROUND_OVER if self._asked_at is not None else "NonZeroExitCode"

    def _spool(self) -> Path | None:
        """Where the wrapper speaks, once it has claimed the attempt; None for what is no member's training."""
        member = self._member()
        return None if member is None else member[0].spool(member[1])

    def _send(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class StepRunner:
    """Starts segments: with srun inside an allocation of Slurm, else as plain processes of this machine."""

    def __init__(self, *, srun: bool, environ: Mapping[str, str]) -> None:
        self._srun = srun
        self._environ = {
            k: v for k, v in environ.items() if not k.startswith("ISCHED_") and k not in _PILOTS_OWN and not (srun and k in _NOT_A_STEPS)
        }  # fmt: skip

    def start(self, folder: StepFolder, held: Held, limit_s: float, now: float) -> Step:
        """A step that has begun; one that cannot be started has ended already."""
        environment = {**self._environ, "ISCHED_WALLTIME_S": f"{max(1.0, limit_s):.0f}", "ISCHED_ACCELERATOR": held.type, "ISCHED_NODE": held.node}
        argv = [*(self._step_words(folder, held) if self._srun else ()), "bash", str(folder.script)]
        try:
            with open(folder.output, "ab") as output:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment,
                    cwd=folder.directory if Path(folder.directory).is_dir() else "/",
                )  # fmt: skip
        except OSError as error:
            say(f"segment {folder.key} cannot be started ({error.strerror}: {error.filename})")
            process = None
        return Step(folder, process, limit_s, now)

    @staticmethod
    def _step_words(folder: StepFolder, held: Held) -> list[str]:
        """One task on this node with the segment's own cores, accelerators and memory, shared with no other step."""
        memory_mb = -(-folder.memory_bytes // 2**20) if folder.memory_bytes else held.memory_mb * folder.gpus // max(1, held.gpus)
        gres = [f"--gres={held.gres}:{folder.gpus}"] if held.gres else []
        return [
            "srun", "--exact", "--nodes=1", "--ntasks=1", f"--nodelist={held.node}", f"--cpus-per-task={folder.cpus}", f"--mem={memory_mb}M", *gres,
            f"--job-name={folder.key}", "--export=ALL", "--unbuffered",
        ]  # fmt: skip
