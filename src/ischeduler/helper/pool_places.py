"""What a pool's pilots ask for: ``v100=pitzer/gpu,count=2,gpus=2`` and what the CI database knows of that place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ischeduler.core.cluster import Cluster, NodeType
from ischeduler.core.durations import human, parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec, Resources
from ischeduler.core.pool import ANY, PoolPlace
from ischeduler.core.sizes import parse_size
from ischeduler.helper.suggest import did_you_mean
from ischeduler.ports import BatchSystem

FORM = "TYPE=CLUSTER/PARTITION[,count=N][,gpus=N][,cpus=N][,memory=SIZE][,walltime=TIME][,gres=NAME]"
DEFAULT_WALLTIME_S = 4 * 3600.0
MOST = 10_000


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST:
        raise ValueError(f"a whole number from 1 to {MOST}")
    return int(text)


def _price(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("a price of zero or more")
    return value


_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "count": ("count", _count), "gpus": ("gpus_per_node", _count), "cpus": ("cpus_per_node", _count), "memory": ("memory_bytes", parse_size),
    "walltime": ("walltime_s", parse_human), "gres": ("gres", str), "features": ("features", lambda t: tuple(t.split("+"))), "account": ("account", str),
    "qos": ("qos", str), "price": ("price_per_h", _price), "node-type": ("node_type", str),
}  # fmt: skip


def parse_place(text: str, cluster_of: Callable[[str], Cluster], live: Sequence[str]) -> PoolPlace:
    """One ``--pilot``. What is not said is taken from the node type of that name in the partition. BadInput shows the form."""
    head, *rest = [part.strip() for part in text.split(",")]
    kind, sign, where = head.partition("=")
    cluster, slash, partition = where.partition("/")
    if not slash:
        cluster, partition = (live[0] if len(live) == 1 else ""), where
    if not (kind and sign and cluster and partition) or kind == ANY or not all(c.isalnum() or c in "-_." for c in kind):
        raise BadInput(f"--pilot {text}: write it as {FORM}, e.g. v100=pitzer/gpu,count=2,walltime=4h.")
    if cluster not in live:
        reached = ", ".join(live) or "no cluster"
        raise BadInput(f"--pilot {text}: no pilot can be had on {cluster}, which cannot be reached from here (only {reached}).")
    given = _given(text, rest)
    return _checked(_filled(PoolPlace(kind, cluster, partition), given, cluster_of(cluster)), text)


def _given(text: str, parts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if key not in _KEYS or not sign or not value:
            raise BadInput(f"--pilot {text}: '{part}' is not KEY=VALUE{did_you_mean(key, _KEYS)}; keys are {', '.join(_KEYS)}.")
        name, read = _KEYS[key]
        try:
            found[name] = read(value)
        except ValueError as error:
            raise BadInput(f"--pilot {text}: {key}={value} is wrong, expected {error}.") from None
    return found


def _filled(place: PoolPlace, given: dict[str, Any], cluster: Cluster) -> PoolPlace:
    """What was said, and for the rest the whole node of the type that fits."""
    try:
        partition = cluster.partition(place.partition)
    except KeyError:
        names = [p.name for p in cluster.partitions]
        raise BadInput(f"{place.cluster} has no partition '{place.partition}'{did_you_mean(place.partition, names)}; it has {', '.join(names)}.") from None
    nodes = [n for n in cluster.node_types if n.name in partition.node_types]
    node = _node_of(place.type, nodes, given.get("node_type", ""))
    limit_s = partition.max_walltime_s or float("inf")
    known: dict[str, Any] = {"walltime_s": min(DEFAULT_WALLTIME_S, limit_s)}
    if node is not None:
        card = node.accelerator
        known |= {"node_type": node.name, "gpus_per_node": max(1, node.accelerators_per_node), "cpus_per_node": node.cores or 1,
                  "memory_bytes": node.memory_bytes, "gres": (card.gres if card is not None else "")}  # fmt: skip
    made = replace(place, **{**known, **given})
    if made.walltime_s > limit_s:
        where = f"{place.cluster}/{place.partition}"
        raise BadInput(f"A pilot of {human(made.walltime_s)} is over the limit of {where}, {human(limit_s)}; give a shorter walltime.")
    return made


def _node_of(kind: str, nodes: Sequence[NodeType], named: str) -> NodeType | None:
    """The node type named, else the one whose accelerator is called so, else the only one."""
    if named:
        found = [n for n in nodes if n.name == named]
        if not found:
            raise BadInput(f"The partition has no node type '{named}'; it has {', '.join(n.name for n in nodes)}.")
        return found[0]
    fits = [n for n in nodes if n.accelerator is not None and kind.lower() in ((n.accelerator.gres or "").lower(), n.accelerator.name.lower())]
    return fits[0] if fits else nodes[0] if len(nodes) == 1 else None


def _checked(place: PoolPlace, text: str) -> PoolPlace:
    if place.walltime_s < 60:
        raise BadInput(f"--pilot {text}: a pilot of {human(place.walltime_s)} is too short to hold anything; give at least a minute.")
    return place


def probe_place(place: PoolPlace, batch: BatchSystem) -> str:
    """Why the batch system would not take such a pilot, '' when it would. BatchUnavailable when it does not answer."""
    gpus = 0 if place.gres == "" else place.gpus_per_node
    resources = Resources(
        cpus_per_node=place.cpus_per_node, memory_bytes=place.memory_bytes, gpus_per_node=gpus, gres=place.gres, features=place.features,
        walltime_s=place.walltime_s,
    )  # fmt: skip
    job = JobSpec("probe", "probe", place.partition, resources, ("true",), "/", "/dev/null", account=place.account, qos=place.qos)
    answer = batch.probe(job)
    return "" if answer.accepted else answer.reason
