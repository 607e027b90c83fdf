"""The last plan made in a folder, so that ``isched submit 2`` knows what 2 was."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import NotFound
from ischeduler.core.plan import PlanSet
from ischeduler.core.workload import Workload


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked: enough to ask again. ``assume`` is the path of declared figures, '' when there are none; ``kept`` the id under
    which a service keeps the answer."""

    workload: Workload
    goal: str = "soonest"
    clusters: tuple[str, ...] = ()
    account: str | None = None
    qos: str | None = None
    assume: str = ""
    partitions: tuple[str, ...] = ()
    kept: str = ""


@dataclass(frozen=True, slots=True)
class CachedPlans:
    """A request and its answer."""

    request: PlanRequest
    plans: PlanSet


def remember(state_dir: Path, directory: Path, cached: CachedPlans) -> None:
    """Keep the plans made in ``directory``; the newest replaces the one before."""
    path = _path(state_dir, directory)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps(to_plain(cached)), encoding="utf-8")
    scratch.replace(path)


def recall(state_dir: Path, directory: Path) -> CachedPlans:
    """The last plans made in ``directory``. NotFound when there are none, or they were made by another version."""
    path = _path(state_dir, directory)
    try:
        return from_plain(CachedPlans, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFound(f"no plan was made in {directory} yet; make one first: isched plan train.py.") from None
    except (ValueError, KeyError, TypeError):
        raise NotFound(
            f"the plan remembered for {directory} cannot be read any more; make it again: isched plan train.py."
        ) from None


def _path(state_dir: Path, directory: Path) -> Path:
    name = hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    return state_dir / "plans" / f"{name}.json"
