"""``isched doctor``: everything iScheduler stands on, looked at one by one, each with its fix."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.durations import human
from ischeduler.core.errors import IschedError
from ischeduler.core.sizes import GIB, human_size

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

SLURM_COMMANDS = ("sinfo", "squeue", "sbatch", "scancel", "scontrol")
OLDEST_SLURM = (20, 11)
LEAST_DISK_BYTES = GIB
MIN_JOB_AGE_S = 60.0
SKEW_S = 5.0
STALE_CLUSTER_S = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. ``level`` is 'ok', 'warn' (works, but) or 'bad'; ``fix`` is what to do, '' where nothing."""

    name: str
    level: str
    text: str
    fix: str = ""


def examine(session: Session) -> list[Check]:
    """Every check, in order. A check that cannot be made is itself a finding, never an exception."""
    found: list[Check] = []
    steps: tuple[tuple[str, Callable[[Session], Iterator[Check]]], ...] = (
        ("configuration", _configuration),
        ("folders", _folders),
        ("database", _database),
        ("batch system", _batch),
        ("clusters", _clusters),
        ("plane", _plane),
        ("estimators", _estimators),
    )
    for name, step in steps:
        try:
            found += step(session)
        except (IschedError, OSError) as error:
            found.append(Check(name, "bad", str(error)))
    return found


def _configuration(session: Session) -> Iterator[Check]:
    origins = {v.origin for v in session.config.values.values()} - {"default"}
    yield Check("configuration", "ok", f"read from {', '.join(sorted(origins)) or 'defaults alone'}")


def _folders(session: Session) -> Iterator[Check]:
    for name, folder in (("state folder", session.config.state_dir), ("run folder", session.config.data_dir)):
        key = "paths.state" if name == "state folder" else "paths.data"
        yield _writable(name, folder, key)
        free = shutil.disk_usage(existing(folder)).free
        level = "ok" if free > LEAST_DISK_BYTES else "warn"
        fix = "" if level == "ok" else f"free some space, or choose another folder with {key}"
        yield Check(f"{name}: space", level, f"{human_size(free)} free at {folder}", fix)


def _writable(name: str, folder: Path, key: str) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            os.fsync(file.fileno())
    except OSError as error:
        return Check(
            name, "bad", f"{folder} cannot be written: {error.strerror}", f"choose another folder: {key} in ischeduler.toml"
        )
    return Check(name, "ok", f"{folder} can be written")


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(p for p in (folder, *folder.parents) if p.exists())


def _database(session: Session) -> Iterator[Check]:
    from ischeduler.store.engine import engine_notes, open_engine
    from ischeduler.store.migrate import HEAD, prepare, revision

    engine = open_engine(session.config.database_url)
    prepare(engine)
    shown = engine.url.render_as_string(hide_password=True)
    yield Check("database", "ok", f"{shown} answers, version {revision(engine)} of {HEAD}")
    for words in engine_notes(engine):
        yield Check("database", "warn", words)


def _batch(session: Session) -> Iterator[Check]:
    if session.services.batch_kind == "local":
        missing = [c for c in SLURM_COMMANDS if shutil.which(c) is None]
        yield Check(
            "batch system", "ok", "this machine alone (local)" + (f"; Slurm's {', '.join(missing)} not found" if missing else "")
        )
        return
    missing = [c for c in SLURM_COMMANDS if shutil.which(c) is None]
    if missing:
        fix = "log in to a node of the cluster, or load its Slurm module"
        yield Check("Slurm commands", "bad", f"{', '.join(missing)} not found", fix)
        return
    yield Check("Slurm commands", "ok", "all there")
    yield from _slurm(session)


def _slurm(session: Session) -> Iterator[Check]:
    config = slurm_config(session)
    version = config.get("SLURM_VERSION", "unknown")
    old = _version(version) is not None and (_version(version) or OLDEST_SLURM) < OLDEST_SLURM
    yield Check("Slurm version", "warn" if old else "ok", version, "20.11 or newer is what this was tested with" if old else "")
    age_s = _seconds(config.get("MinJobAge", ""))
    if age_s is not None and age_s < MIN_JOB_AGE_S:
        yield Check(
            "MinJobAge",
            "warn",
            f"{age_s:.0f} s: ended jobs vanish from squeue before the plane may look",
            "keep sacct working, or ask the site for MinJobAge of 300",
        )
    elif age_s is not None:
        yield Check("MinJobAge", "ok", f"{age_s:.0f} s")
    accounting = config.get("AccountingStorageType", "")
    on = "none" not in accounting
    answers = on and session.services.ask(["sacct", "-n", "-X", "-S", "now-1minutes"]).returncode == 0
    fix = "" if answers else "ended jobs are then known from squeue and the jobs' own events alone; keep the plane running"
    yield Check(
        "accounting (sacct)", "ok" if answers else "warn", "answers" if answers else ("does not answer" if on else "is off"), fix
    )
    yield from _skew(session)


def slurm_config(session: Session) -> dict[str, str]:
    """``scontrol show config`` as a table. BatchUnavailable when the controller does not answer."""
    from ischeduler.core.errors import BatchUnavailable

    done = session.services.ask(["scontrol", "show", "config"])
    if done.returncode != 0:
        raise BatchUnavailable(f"slurmctld does not answer: {(done.stderr.strip() or done.stdout.strip())[:200]}.")
    pairs = (re.fullmatch(r"(\S+)\s*=\s*(.*)", line.strip()) for line in done.stdout.splitlines())
    return {m[1]: m[2] for m in pairs if m} | {"#": done.stdout.splitlines()[0] if done.stdout else ""}


def _skew(session: Session) -> Iterator[Check]:
    """The controller prints its own time in the first line of ``scontrol show config``."""
    import datetime

    before = session.clock.now()
    match = re.search(r"as of (\S+)", slurm_config(session)["#"])
    after = session.clock.now()
    if not match:
        return
    theirs = datetime.datetime.fromisoformat(match[1]).timestamp()
    skew = max(0.0, before - 1.0 - theirs, theirs - after)
    level = "warn" if skew > SKEW_S else "ok"
    fix = "waits and limits will look wrong by that much; tell the site" if level == "warn" else ""
    yield Check("clock", level, f"{skew:.0f} s away from the controller's", fix)


def _clusters(session: Session) -> Iterator[Check]:
    now = session.clock.now()
    for name in session.services.batches:
        try:
            cluster = session.services.cluster(name, learn=False)
        except IschedError:
            yield Check(f"cluster {name}", "warn", "has not been read yet", "isched clusters sync")
            continue
        age_s = now - cluster.as_of if cluster.as_of else None
        stale = age_s is not None and age_s > STALE_CLUSTER_S
        said = f"{len(cluster.partitions)} partitions" + (f", read {human(age_s)} ago" if age_s is not None else "")
        yield Check(f"cluster {name}", "warn" if stale else "ok", said, "isched clusters sync" if stale else "")


def _plane(session: Session) -> Iterator[Check]:
    from ischeduler.helper import daemon
    from ischeduler.plane.transitions import LIVE

    alive = daemon.alive(session.config.state_dir)
    live = len(session.services.store.list_runs(owner=session.owner, states=LIVE))
    if alive:
        yield Check("plane", "ok", f"alive (pid {alive.pid}), {live} run(s) under way")
    elif live:
        yield Check(
            "plane",
            "warn",
            f"not alive while {live} run(s) are under way",
            "isched plane run &, or cron: * * * * * isched plane tick",
        )
    else:
        yield Check("plane", "ok", "not needed now: no run is under way")


def _estimators(session: Session) -> Iterator[Check]:
    registry = session.services.estimators().registry
    yield Check("estimators", "ok", ", ".join(f"{e.info.name}@{e.info.version}" for e in registry))
    for problem in registry.problems:
        yield Check("estimators", "warn", problem, "isched estimator check NAME says what it breaks")


def _version(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _seconds(text: str) -> float | None:
    match = re.match(r"(\d+)", text)
    return float(match[1]) if match else None
