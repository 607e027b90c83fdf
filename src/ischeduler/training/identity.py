"""Who a wrapper is: its options, token, run directory and rank, from command line and environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ischeduler.training.context import number
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token, restart_count

DEFAULT_RUN_DIR = Path(".isched") / "run"
DEFAULT_HEARTBEAT_S = 30.0
DEFAULT_KILL_AFTER_S = 25.0  # Slurm's KillWait is 30 s: the last event should be written before


@dataclass(frozen=True, slots=True)
class Identity:
    """`leads`: this wrapper owns the claim and the spool (rank 0 of a multi-node job). `job_id` is None outside Slurm.

    `free_attempt`: no attempt was given, so the next free number may be taken.
    """

    command: tuple[str, ...]
    run_dir: RunDir
    run_id: str
    token: Token
    job_id: str | None
    leads: bool
    free_attempt: bool
    heartbeat_s: float
    kill_after_s: float


def parser() -> argparse.ArgumentParser:
    """The options of `isched exec`."""
    parse = argparse.ArgumentParser(
        prog="isched exec",
        usage="isched exec [--run-dir DIR] [--attempt N] [--heartbeat S] [--kill-after S] -- COMMAND...",
        description="Run a training under iScheduler: signals, heartbeats, events, fencing. Works with any script.",
    )
    parse.add_argument("--run-dir", type=Path, help="the run's directory (ISCHED_RUN_DIR, else ./.isched/run)")
    parse.add_argument("--attempt", type=int, help="which submission this is, from 1 (ISCHED_ATTEMPT, else the next free one)")
    parse.add_argument("--heartbeat", type=float, default=None, metavar="S", help="seconds between heartbeats (30)")
    parse.add_argument(
        "--kill-after", type=float, default=None, metavar="S", help="seconds from SIGTERM to SIGKILL (25, or the grace)"
    )
    parse.add_argument("command", nargs=argparse.REMAINDER, help="the training's command line")
    return parse


def identify(argv: Sequence[str], environ: Mapping[str, str]) -> Identity:
    """Parse the command line. Exits with code 2 and one sentence when it makes no sense."""
    parse = parser()
    options = parse.parse_args(list(argv))
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parse.error("no command given; write: isched exec -- python train.py ...")
    attempt = options.attempt if options.attempt is not None else _attempt(environ, parse)
    if attempt is not None and attempt < 1:
        parse.error(f"attempt {attempt} is not possible, attempts count from 1")
    heartbeat_s = options.heartbeat if options.heartbeat is not None else DEFAULT_HEARTBEAT_S
    if not 0 < heartbeat_s < float("inf"):
        parse.error("--heartbeat must be more than 0 seconds")
    path = (options.run_dir or Path(environ.get("ISCHED_RUN_DIR") or DEFAULT_RUN_DIR)).absolute()
    run_dir = RunDir(path)
    kill_after_s = options.kill_after
    if kill_after_s is None:
        kill_after_s = max(DEFAULT_KILL_AFTER_S, number(environ, "ISCHED_GRACE_S") or 0.0)
    return Identity(
        command=tuple(command),
        run_dir=run_dir,
        run_id=environ.get("ISCHED_RUN_ID") or path.name,
        token=Token(attempt if attempt is not None else next_attempt(run_dir), restart_count(environ)),
        job_id=environ.get("SLURM_JOB_ID") or environ.get("ISCHED_JOB_ID") or None,
        leads=_leads(environ),
        free_attempt=attempt is None,
        heartbeat_s=heartbeat_s,
        kill_after_s=kill_after_s,
    )


def next_attempt(run_dir: RunDir) -> int:
    """The number after the newest attempt in the run's directory; 1 when it cannot be read."""
    try:
        tokens = run_dir.tokens()
    except OSError:
        return 1
    return max((token.attempt for token in tokens), default=0) + 1


def child_environ(identity: Identity, environ: Mapping[str, str], deadline: float | None) -> dict[str, str]:
    """The training's environment: the wrapper's own plus what the protocol promises."""
    env = {key: value for key, value in environ.items() if key not in ("ISCHED_DEADLINE", "ISCHED_SPOOL")}
    env["ISCHED_TOKEN"] = str(identity.token)
    env["ISCHED_RUN_DIR"] = os.fspath(identity.run_dir.path)
    env["ISCHED_RUN_ID"] = identity.run_id
    env["ISCHED_ATTEMPT"] = str(identity.token.attempt)
    if deadline is not None:
        env["ISCHED_DEADLINE"] = f"{deadline:.3f}"
    if identity.leads:
        env["ISCHED_SPOOL"] = os.fspath(identity.run_dir.spool(identity.token))
    return env


def _attempt(environ: Mapping[str, str], parse: argparse.ArgumentParser) -> int | None:
    text = environ.get("ISCHED_ATTEMPT")
    if not text:
        return None
    if not text.isdigit():
        parse.error(f"ISCHED_ATTEMPT must be a whole number from 1, got '{text[:20]}'")
    return int(text)


def _leads(environ: Mapping[str, str]) -> bool:
    for key in ("SLURM_PROCID", "RANK"):
        text = environ.get(key, "")
        if text.isdigit():
            return int(text) == 0
    return True
