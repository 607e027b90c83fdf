"""What this training process is: which run, which incarnation, which rank; read once from the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token

LOCAL_TOKEN = Token(0, 0)


@dataclass(frozen=True, slots=True)
class Context:
    """`run_dir` is None outside `isched exec`. `deadline_s` is on this host's monotonic clock, `grace_s` in seconds.

    `checkpoint_every_s` is what the workload asked for; None leaves it to the script. `batch_size` is an elastic training's, 0 where unknown.
    """

    run_id: str
    run_dir: RunDir | None
    token: Token
    spool: Path | None
    deadline_s: float | None
    grace_s: float | None
    rank: int
    checkpoint_every_s: float | None = None
    batch_size: int = 0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Context:
        """Inside a job when `isched exec` left its token, local otherwise."""
        env = os.environ if environ is None else environ
        token = Token.try_parse(env.get("ISCHED_TOKEN", ""))
        run_dir = env.get("ISCHED_RUN_DIR")
        rank = own_rank(env)
        if token is None or not run_dir:
            return cls("local", None, LOCAL_TOKEN, None, None, None, rank)
        spool = env.get("ISCHED_SPOOL")
        deadline = number(env, "ISCHED_DEADLINE")
        return cls(
            run_id=env.get("ISCHED_RUN_ID") or Path(run_dir).name,
            run_dir=RunDir(Path(run_dir)),
            token=token,
            spool=Path(spool) if spool else None,
            deadline_s=None if deadline is None else time.monotonic() + (deadline - time.time()),
            grace_s=number(env, "ISCHED_GRACE_S"),
            rank=rank,
            checkpoint_every_s=number(env, "ISCHED_CHECKPOINT_EVERY_S") or None,
            batch_size=int(number(env, "ISCHED_BATCH_SIZE") or 0),
        )


def own_rank(env: Mapping[str, str]) -> int:
    """The process's rank: torchrun's RANK, else a LOCAL_RANK above 0 (Lightning's launcher), else SLURM_PROCID, else 0."""
    for key in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        text = env.get(key, "")
        if text.isdigit() and (int(text) > 0 or key != "LOCAL_RANK"):
            return int(text)
    return 0


def number(env: Mapping[str, str], key: str) -> float | None:
    """A non-negative number from the environment; None when unset or not a number."""
    try:
        value = float(env[key])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < float("inf") else None
