"""What ``import ischeduler as isc`` offers: plan, estimate, submit, follow.

>>> plans = isc.plan(isc.Workload(model="timm:resnet50", samples=20_000, epochs=50, batch_size=[32, 64]))
>>> run = plans["soonest"].submit()
>>> run.wait(); run.result()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput
from ischeduler.helper.config import load_config
from ischeduler.helper.handle import RunHandle
from ischeduler.helper.options import EstimateRow
from ischeduler.helper.plans import Option, Plans
from ischeduler.helper.session import Session, open_session

__all__ = ["Option", "Plans", "RunHandle", "Session", "clusters", "estimate", "plan", "run", "runs", "session"]


def plan(
    workload: Any = None,
    *,
    goal: str | None = None,
    clusters: str | Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    account: str | None = None,
    qos: str | None = None,
    assume: str | Path | None = None,
    **fields: Any,
) -> Plans:
    """Options for a training, best for the goal first. Submits nothing.

    ``workload`` is a Workload, a script's path, a model reference, a ``torch.nn.Module`` or a function that builds one;
    ``fields`` are the Workload's (``epochs=50``, ``batch_size=[32, 64]``). ``clusters`` are names, 'all', or None for the live
    one. ``assume`` is a file of declared figures. Raises BadInput with one sentence.
    """
    here = session()
    request = here.request(
        here.workload(workload, fields),
        goal=goal,
        clusters=_names(clusters),
        partitions=partitions,
        account=account,
        qos=qos,
        assume=assume,
    )
    return here.plan(request)


def estimate(
    workload: Any = None,
    *,
    clusters: str | Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    assume: str | Path | None = None,
    **fields: Any,
) -> list[EstimateRow]:
    """What a training will need, place by place: memory, step time, run time, queue wait, each an Estimate or None."""
    here = session()
    request = here.request(here.workload(workload, fields), clusters=_names(clusters), partitions=partitions, assume=assume)
    return here.estimates(request)


def run(run_id: str) -> RunHandle:
    """One of your runs, by its id or an unambiguous beginning of it. NotFound otherwise."""
    return session().run(run_id)


def runs() -> Sequence[RunHandle]:
    """Your runs, newest first."""
    return session().runs()


def clusters() -> Mapping[str, Cluster]:
    """Every known cluster by name."""
    return {c.name: c for c in session().clusters()}


def session() -> Session:
    """The session of the current folder: its configuration and, once used, its services."""
    return _session(Path.cwd())


@lru_cache(maxsize=4)
def _session(directory: Path) -> Session:
    return open_session(load_config(directory=directory))


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = tuple(given.split(",")) if isinstance(given, str) else tuple(given)
    if any(not isinstance(n, str) for n in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput("clusters must be names, e.g. clusters=['pitzer'].")
    return tuple(n.strip() for n in names if n.strip())
