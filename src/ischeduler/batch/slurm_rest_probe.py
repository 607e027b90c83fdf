"""Whether a partition would take a job, judged from what slurmrestd tells of partitions and nodes. Pure.

slurmrestd has no ``--test-only``: this looks at what that would refuse, and at the limits that it would not see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ischeduler.batch.header import gres_request
from ischeduler.batch.slurm_json import as_words, number
from ischeduler.core.jobs import JobSpec
from ischeduler.core.naming import gpus_of_gres
from ischeduler.core.sizes import MIB


def refusal_of(spec: JobSpec, partitions: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Why the job would not be taken; '' when nothing speaks against it."""
    found = [p for p in partitions if p.get("name") == spec.partition]
    if not found:
        return (
            f"there is no partition '{spec.partition}'; there are {', '.join(str(p.get('name')) for p in partitions) or 'none'}."
        )
    return _limits(spec, found[0]) or _room(spec, nodes)


def _limits(spec: JobSpec, partition: Mapping[str, Any]) -> str:
    most, resources = partition.get("maximums") or {}, spec.resources
    state = as_words((partition.get("partition") or {}).get("state") or partition.get("state") or "UP")
    if not {"UP", "DRAIN"} & set(state) or "DRAIN" in state:
        return f"partition '{spec.partition}' takes no jobs now ({'+'.join(state)})."
    limit_min = number(most.get("time", partition.get("max_time_limit")))
    if limit_min is not None and resources.walltime_s > limit_min * 60:
        return f"the walltime of {resources.walltime_s / 60:.0f} min is beyond the {limit_min:.0f} min of partition '{spec.partition}'."
    limit_nodes = number(most.get("nodes", partition.get("max_nodes_per_job")))
    if limit_nodes is not None and math.isfinite(limit_nodes) and resources.nodes > limit_nodes:
        return f"{resources.nodes} nodes are more than the {limit_nodes:.0f} that partition '{spec.partition}' gives one job."
    return ""


def _room(spec: JobSpec, nodes: Sequence[Mapping[str, Any]]) -> str:
    mine = [n for n in nodes if spec.partition in _words(n.get("partitions")) and str(n.get("name")) not in spec.exclude_nodes]
    fit = [n for n in mine if _fits(spec, n)]
    if len(fit) >= spec.resources.nodes:
        return ""
    wish = f"{spec.resources.cpus_per_node} cores" + (f", {gres_request(spec.resources)}" if spec.resources.gpus_per_node else "")
    have = f"{len(fit)} of the {len(mine)} nodes of partition '{spec.partition}' have {wish}"
    return f"the requested nodes are not there: {have}, {spec.resources.nodes} are asked for."


def _fits(spec: JobSpec, node: Mapping[str, Any]) -> bool:
    resources = spec.resources
    memory = number(node.get("real_memory")) or 0
    cards = gpus_of_gres(str(node.get("gres") or ""))
    kind = (resources.gres or "").removeprefix("gpu:").removeprefix("gpu")
    held = cards.get(kind, 0) if kind else sum(cards.values())
    features = set(_words(node.get("active_features") or node.get("features")))
    return (
        (number(node.get("cpus")) or 0) >= resources.cpus_per_node
        and (resources.memory_bytes or 0) <= memory * MIB
        and held >= resources.gpus_per_node
        and features.issuperset(resources.features)
    )


def _words(value: Any) -> list[str]:
    return [part for word in as_words(value) for part in word.split(",") if part]
