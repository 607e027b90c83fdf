"""Three layers make a cluster: what the catalog says, what the live system says over it, and the user's edits over all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ischeduler.cidb.edits import Override, apply_overrides
from ischeduler.cidb.provenance import LIVE, WHOLE, origin
from ischeduler.core.cluster import Cluster, NodeType, Partition, Provenance

_FROM_CATALOG = ("charge_factor", "chaining_allowed", "preemptible", "debug", "restricted", "whole_node")
"""Facts that a batch system cannot tell, or tells only when they are on: the catalog's word counts where it has one."""
_LIMITS = (
    "max_walltime_s",
    "default_walltime_s",
    "max_nodes",
    "max_cores_per_node",
    "max_memory_bytes",
    "max_jobs_user",
    "max_submit_user",
    "max_gpus_user",
)


def combine(catalog: Cluster | None, live: Cluster | None, overrides: Sequence[Override] = ()) -> Cluster:
    """The cluster its user sees. At least one of ``catalog`` and ``live`` must be there.

    The live system decides which partitions and node types exist and what their limits are; prices, charge factors and
    site rules stay the catalog's, since Slurm does not know them. Edits that name something that is gone are left out.
    """
    if live is None:
        if catalog is None:
            raise ValueError("nothing to combine")
        return apply_overrides(catalog, overrides)
    return apply_overrides(live if catalog is None else _over(catalog, live), overrides)


def _over(catalog: Cluster, live: Cluster) -> Cluster:
    facts: dict[str, Provenance] = {WHOLE: live.provenance[WHOLE]} if WHOLE in live.provenance else {}
    facts |= live.provenance
    partitions = tuple(_partition(catalog, p, facts) for p in live.partitions)
    nodes = tuple(_node_type(catalog, n, facts) for n in live.node_types)
    if "charge" not in live.provenance:
        facts |= _below(catalog, "charge")
    return replace(
        live,
        name=catalog.name,
        centre=catalog.centre or live.centre,
        partitions=partitions,
        node_types=nodes,
        charge=live.charge if "charge" in live.provenance else catalog.charge,
        provenance=facts,
    )


def _partition(catalog: Cluster, live: Partition, facts: dict[str, Provenance]) -> Partition:
    try:
        old = catalog.partition(live.name)
    except KeyError:
        return live
    kept: dict[str, object] = {}
    for name in _FROM_CATALOG:
        here, there = getattr(live, name), getattr(old, name)
        neutral = Partition.__dataclass_fields__[name].default
        if here == neutral and there != neutral:
            kept[name] = there
    for name in _LIMITS:
        if getattr(live, name) is None and getattr(old, name) is not None:
            kept[name] = getattr(old, name)
    if old.note and old.note not in live.note:
        kept["note"] = f"{old.note} {live.note}".strip()
    for name in kept:
        _keep(catalog, f"partitions.{live.name}.{name}", facts)
    return replace(live, **kept)  # pyright: ignore[reportArgumentType]


def _node_type(catalog: Cluster, live: NodeType, facts: dict[str, Provenance]) -> NodeType:
    """The catalog knows which card a bare ``gpu:v100`` is: by the type's name, or as the only one of that GRES and core count."""
    path = f"node_types.{live.name}.accelerator"
    if live.accelerator is None or facts.get(path, Provenance("", 0.0)).confidence == LIVE:
        return live
    gres = live.accelerator.gres
    same = [
        n
        for n in catalog.node_types
        if n.accelerator is not None and n.accelerators_per_node and gres in (None, n.accelerator.gres)
    ]
    exact = [n for n in same if (n.cores, n.accelerators_per_node) == (live.cores, live.accelerators_per_node)]
    cards = {n.accelerator: n for n in (exact or same)}
    if len(cards) != 1:
        return live
    card, node = next(iter(cards.items()))
    assert card is not None
    _keep(catalog, f"node_types.{node.name}.accelerator", facts, as_path=path)
    return replace(live, accelerator=replace(card, gres=gres))


def _keep(catalog: Cluster, path: str, facts: dict[str, Provenance], *, as_path: str = "") -> None:
    found = origin(catalog, path)
    if found is not None:
        facts[as_path or path] = found


def _below(cluster: Cluster, path: str) -> Mapping[str, Provenance]:
    facts = {p: v for p, v in cluster.provenance.items() if p == path or p.startswith(path + ".")}
    inherited = origin(cluster, path)
    return ({path: inherited} if inherited is not None else {}) | facts


def without_user(cluster: Cluster) -> Cluster:
    """The cluster without what belongs to one user: accounts and probed access."""
    partitions = tuple(replace(p, access=None) for p in cluster.partitions)
    return replace(cluster, partitions=partitions, accounts=(), default_account=None, user_max_submit=None)


def same_facts(one: Cluster, other: Cluster) -> bool:
    """Whether two states of a cluster say the same, dates aside."""
    return _undated(one) == _undated(other)


def _undated(cluster: Cluster) -> Cluster:
    facts = {path: replace(p, as_of=0.0) for path, p in cluster.provenance.items()}
    return replace(cluster, provenance=facts, as_of=None)
