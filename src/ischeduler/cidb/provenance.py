"""Where facts come from, and when they are too old to be trusted without a word."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.cluster import Cluster, Partition, Provenance
from ischeduler.core.durations import human

DAY_S = 86400.0
STALE_AFTER_S = {"catalog": 180 * DAY_S, "live": 7 * DAY_S, "probe": DAY_S, "snapshot": 300.0}
"""Seconds after which a fact of each kind deserves a warning. A user's edit does not age: only they know."""

LIVE, EDITED = "live", "edited by user"
"""Confidences that mark a layer; any other belongs to the catalog and says in words how sure it is."""
WHOLE = "cluster"
"""The path that stands for all facts of a cluster."""


@dataclass(frozen=True, slots=True)
class StaleWarning:
    """Facts of one source of a cluster that are older than their kind allows. ``paths`` are those concerned."""

    cluster: str
    kind: str
    source: str
    as_of: float
    age_s: float
    limit_s: float
    paths: tuple[str, ...]
    fix: str

    def __str__(self) -> str:
        counted = f"{len(self.paths)} facts" if len(self.paths) > 1 else "".join(self.paths)
        what = "facts" if WHOLE in self.paths else counted
        age, limit = _age(self.age_s), _age(self.limit_s)
        return f"{self.cluster}: {what} from {self.source}: {age} old (limit {limit}); {self.fix}"


def origin(cluster: Cluster, path: str) -> Provenance | None:
    """Where the fact at ``path`` (``partitions.gpu.max_walltime_s``) comes from: its own entry, or its nearest parent's."""
    while path:
        if path in cluster.provenance:
            return cluster.provenance[path]
        path = path.rpartition(".")[0]
    return cluster.provenance.get(WHOLE)


def kind_of(provenance: Provenance) -> str:
    """'edit', 'live' or 'catalog'."""
    return {EDITED: "edit", LIVE: "live"}.get(provenance.confidence, "catalog")


def is_stale(kind: str, as_of: float, now: float) -> bool:
    """Whether a fact of that kind ('catalog', 'live', 'probe', 'snapshot', 'edit') deserves a warning at ``now``."""
    return now - as_of > STALE_AFTER_S.get(kind, float("inf"))


def stale_warnings(cluster: Cluster, now: float) -> list[StaleWarning]:
    """One warning a source that is too old, oldest first."""
    groups: dict[tuple[str, str, float], list[str]] = {}
    for path, p in cluster.provenance.items():
        if is_stale(kind_of(p), p.as_of, now):
            groups.setdefault((kind_of(p), p.source, p.as_of), []).append(path)
    for partition in cluster.partitions:
        if partition.access is not None and is_stale("probe", partition.access.as_of, now):
            groups.setdefault(("probe", "sbatch --test-only", partition.access.as_of), []).append(_access_path(partition))
    found = [_warning(cluster.name, key, paths, now) for key, paths in groups.items()]
    return sorted(found, key=lambda w: w.as_of)


def _access_path(partition: Partition) -> str:
    return f"partitions.{partition.name}.access"


def _warning(cluster: str, key: tuple[str, str, float], paths: list[str], now: float) -> StaleWarning:
    kind, source, as_of = key
    fix = f"refresh with: isched clusters sync {cluster}"
    if kind == "catalog":
        fix = f"check them, then: isched clusters sync {cluster}, or isched clusters edit {cluster}"
    return StaleWarning(cluster, kind, source, as_of, now - as_of, STALE_AFTER_S[kind], tuple(paths), fix)


def _age(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days" if seconds >= 3 * DAY_S else human(seconds)
