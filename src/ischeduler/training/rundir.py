"""The run's directory: where things lie, the claim, the base and the control line."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ischeduler.training.files import fsync_dir, write_atomic
from ischeduler.training.lineage import CheckpointName
from ischeduler.training.token import Token

CONTROL_WORDS = ("checkpoint", "stop", "move")
STANDBY_WORDS = ("stay", "return")
"""For a job that has not started: whether it stays when it does, or gives its allocation back while its predecessor runs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who runs an incarnation. `job_id` is None outside a batch system; such claims are never shared."""

    job_id: str | None
    host: str
    pid: int
    started_at: float

    @classmethod
    def mine(cls, job_id: str | None) -> Claim:
        """The claim of the calling process, stamped with the local clock."""
        return cls(job_id, os.uname().nodename, os.getpid(), time.time())


class DoubledSubmission(Exception):
    """Another job, or another live process of this job, holds the claim of the same incarnation."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths and small files of one run's directory on the shared file system. All methods may raise OSError."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def events(self) -> Path:
        return self.path / "events"

    def attempt(self, token: Token) -> Path:
        """The folder of one incarnation: claim, base.json, control, stopped."""
        return self.path / "attempts" / str(token)

    def spool(self, token: Token) -> Path:
        """The event file of one incarnation."""
        return self.events / f"{token}.jsonl"

    def control(self, token: Token) -> Path:
        """The one-line file by which the plane speaks to a running incarnation."""
        return self.attempt(token) / "control"

    def prepare(self, token: Token | None = None) -> None:
        """Create the folders that are missing; the run's directory itself gets mode 700."""
        if not self.path.is_dir():
            self.path.mkdir(parents=True, mode=0o700, exist_ok=True)
        for folder in (self.events, self.checkpoints, self.path / "logs"):
            folder.mkdir(exist_ok=True)
        if token is not None:
            self.attempt(token).mkdir(parents=True, exist_ok=True)

    def tokens(self) -> list[Token]:
        """All incarnations that left a folder, oldest first."""
        try:
            names = os.listdir(self.path / "attempts")
        except FileNotFoundError:
            return []
        return sorted(token for token in map(Token.try_parse, names) if token is not None)

    def claim(self, token: Token, claim: Claim) -> None:
        """Take the incarnation for this process. Raises DoubledSubmission when it is taken, OSError when it cannot be written.

        A claim of the same job whose process is gone from this host is taken over: one job script may call
        `isched exec` twice in a row.
        """
        self.attempt(token).mkdir(parents=True, exist_ok=True)
        path = self.attempt(token) / "claim"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            self._take_over(token, claim)
            return
        with open(descriptor, "wb") as file:
            file.write(_json_line(asdict(claim)))
            file.flush()
            os.fsync(file.fileno())
        fsync_dir(path.parent)

    def _take_over(self, token: Token, claim: Claim) -> None:
        holder = self.read_claim(token)
        same_job = holder is not None and claim.job_id is not None and holder.job_id == claim.job_id
        if holder is None or not same_job or not _gone(holder, claim):
            who = "an unreadable claim" if holder is None else f"job {holder.job_id}, process {holder.pid} on {holder.host}"
            raise DoubledSubmission(f"Attempt {token} is already running ({who}): this submission is a double and stops.")
        write_atomic(self.attempt(token) / "claim", _json_line(asdict(claim)))

    def read_claim(self, token: Token) -> Claim | None:
        """The claim of an incarnation; None where there is none or it is torn."""
        value = _read_json(self.attempt(token) / "claim")
        if not isinstance(value, dict):
            return None
        try:
            job_id = value["job_id"]
            return Claim(
                None if job_id is None else str(job_id), str(value["host"]), int(value["pid"]), float(value["started_at"])
            )
        except (KeyError, TypeError, ValueError):
            return None

    def write_base(self, token: Token, name: CheckpointName | None) -> None:
        """Settle what this incarnation resumed from; must be written before its first step."""
        self.attempt(token).mkdir(parents=True, exist_ok=True)
        write_atomic(self.attempt(token) / "base.json", _json_line({"checkpoint": None if name is None else str(name)}))

    def bases(self) -> dict[Token, CheckpointName | None]:
        """What each incarnation resumed from; those without a readable base.json are left out."""
        found: dict[Token, CheckpointName | None] = {}
        for token in self.tokens():
            value = _read_json(self.attempt(token) / "base.json")
            if not isinstance(value, dict) or "checkpoint" not in value:
                continue
            text = value["checkpoint"]
            name = None if text is None else CheckpointName.try_parse(str(text))
            if text is None or name is not None:
                found[token] = name
        return found

    def read_control(self, token: Token) -> str | None:
        """The word the plane left for this incarnation, None when there is none (or one this version does not know)."""
        return self._word(token, CONTROL_WORDS)

    def read_standby(self, token: Token) -> str | None:
        """`stay` or `return`, as the plane last told this incarnation before it started; None when it did not."""
        return self._word(token, STANDBY_WORDS)

    def _word(self, token: Token, known: tuple[str, ...]) -> str | None:
        try:
            word = self.control(token).read_text("ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        return word if word in known else None

    def write_control(self, token: Token, word: str) -> None:
        """Ask a running incarnation to `checkpoint`, `stop` or `move`, or tell a waiting one to `stay` or `return`. Raises ValueError on another word."""
        if word not in (*CONTROL_WORDS, *STANDBY_WORDS):
            raise ValueError(f"'{word}' is not a control word; use one of {', '.join((*CONTROL_WORDS, *STANDBY_WORDS))}.")
        self.attempt(token).mkdir(parents=True, exist_ok=True)
        write_atomic(self.control(token), f"{word}\n".encode())

    def mark_stopped(self, token: Token, code: int) -> None:
        """Tell the wrapper the training's own verdict: launchers such as torchrun turn exit code 85 into 1."""
        write_atomic(self.attempt(token) / "stopped", _json_line({"code": code}))

    def read_stopped(self, token: Token) -> int | None:
        """The verdict left by `mark_stopped`, None when there is none."""
        value = _read_json(self.attempt(token) / "stopped")
        code = value.get("code") if isinstance(value, dict) else None
        return code if isinstance(code, int) else None

    def clear_stopped(self, token: Token) -> None:
        """Forget an earlier verdict of the same incarnation."""
        (self.attempt(token) / "stopped").unlink(missing_ok=True)


def _gone(holder: Claim, claim: Claim) -> bool:
    return holder.host == claim.host and not Path(f"/proc/{holder.pid}").exists()


def _json_line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value) + "\n").encode()


def _read_json(path: Path) -> Any:
    """The file's JSON; None where the file is missing or torn (its writer died: as if it had not been written)."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
