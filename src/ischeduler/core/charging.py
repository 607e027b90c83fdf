"""Charging rules: pure arithmetic from a job's reservation and used time to a centre's units and dollars.

Centres differ in kind, so a rule is a function of :class:`Charged`; sites may add their own with :func:`charging_rule`, or as an
entry point of the group ``ischeduler.charging`` in any installed package: its name is the rule's, its object the function.
Sources: OSC (RU per core-hour and GPU-hour), TACC (SU per whole node on used time, 15-minute floor), NCSA Delta and Purdue
Anvil (reserved resources by the larger of core and memory share), SDSC Expanse and PSC likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points

from ischeduler.core.cluster import ChargePolicy, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import Resources
from ischeduler.core.sizes import GIB


@dataclass(frozen=True, slots=True)
class Charged:
    """One job to be charged: where, what it reserved, and how long it was used (seconds)."""

    partition: Partition
    node_type: NodeType
    resources: Resources
    used_s: float

    @property
    def hours(self) -> float:
        """Used hours."""
        return self.used_s / 3600.0


Rule = Callable[[Charged, Mapping[str, float]], float]
RULES: dict[str, Rule] = {}
PLUG_INS = "ischeduler.charging"


def charging_rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under a name that a ChargePolicy may use."""

    def add(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return add


def charge_units(policy: ChargePolicy, job: Charged) -> float:
    """The centre's units for a job; BadInput when the policy names an unknown rule."""
    return find_rule(policy.rule)(job, policy.params) * job.partition.charge_factor


def find_rule(name: str) -> Rule:
    """A built-in rule or one plugged in by another package; BadInput when there is none of that name or it does not load."""
    if name not in RULES:
        found = next(iter(entry_points(group=PLUG_INS, name=name)), None)
        if found is None:
            raise BadInput(f"charging rule '{name}' is unknown; expected one of {', '.join(sorted(RULES))}.")
        try:
            RULES[name] = found.load()
        except Exception as error:
            raise BadInput(
                f"charging rule '{name}' of {found.value} does not load ({error}); repair or remove its package."
            ) from error
    return RULES[name]


def charge_usd(policy: ChargePolicy, job: Charged) -> float | None:
    """US dollars where the centre publishes a price a unit, else None."""
    return None if policy.usd_per_unit is None else charge_units(policy, job) * policy.usd_per_unit


def _gpus(job: Charged) -> int:
    return job.resources.gpus_per_node


@charging_rule("free")
def free(job: Charged, params: Mapping[str, float]) -> float:
    """Node-hours, for counting only."""
    return job.hours * job.resources.nodes


@charging_rule("core-gpu-hours")
def core_gpu_hours(job: Charged, params: Mapping[str, float]) -> float:
    """OSC: hours x (effective cores + ``gpu_weight`` x GPUs) a node; effective cores = max(cores, memory / memory per core).

    Jobs on several nodes, or that ask for a node of their own, are charged whole nodes.
    """
    cores = float(job.resources.cpus_per_node)
    per_core = params.get("memory_per_core_bytes") or _memory_per_core(job.node_type)
    if job.resources.memory_bytes and per_core:
        cores = max(cores, job.resources.memory_bytes / per_core)
    if job.node_type.cores:
        whole = job.resources.nodes > 1 or _whole(job)
        cores = float(job.node_type.cores) if whole else min(cores, float(job.node_type.cores))
    return job.hours * job.resources.nodes * (cores + params.get("gpu_weight", 30.0) * _gpus(job))


@charging_rule("node-hours-used")
def node_hours_used(job: Charged, params: Mapping[str, float]) -> float:
    """TACC: whole nodes x used hours, at least ``floor_h`` (0.25) for a job that started."""
    return job.resources.nodes * max(job.hours, params.get("floor_h", 0.25)) if job.used_s > 0 else 0.0


@charging_rule("reserved-share")
def reserved_share(job: Charged, params: Mapping[str, float]) -> float:
    """Delta, Anvil, Expanse: reserved units x hours, by the largest share of cores, memory and GPUs.

    A CPU unit is one core with ``memory_per_core_gib``; on GPU nodes a unit is one GPU with ``cores_per_gpu`` cores and
    ``memory_per_gpu_gib``. Shared units are not rounded except GPUs, which are whole. A parameter followed by ``@`` and a node
    type's name is that type's own; ``factor`` (1) multiplies, for sites whose newer GPUs cost more within one partition.
    """
    memory_gib = (job.resources.memory_bytes or 0) / GIB
    if job.node_type.accelerators_per_node:
        cores_per_gpu, memory_per_gpu = _param(job, params, "cores_per_gpu"), _param(job, params, "memory_per_gpu_gib")
        by_cores = job.resources.cpus_per_node / cores_per_gpu if cores_per_gpu else 0.0
        by_memory = memory_gib / memory_per_gpu if memory_per_gpu else 0.0
        units = max(float(_gpus(job)), by_cores, by_memory)
        units = float(job.node_type.accelerators_per_node) if _whole(job) else units
    else:
        by_memory = memory_gib / (_param(job, params, "memory_per_core_gib") or 2.0)
        units = max(float(job.resources.cpus_per_node), by_memory)
        units = float(job.node_type.cores or units) if _whole(job) else units
    return job.hours * job.resources.nodes * units * (_param(job, params, "factor") or 1.0)


def _param(job: Charged, params: Mapping[str, float], name: str) -> float | None:
    return params.get(f"{name}@{job.node_type.name}", params.get(name))


def _whole(job: Charged) -> bool:
    return job.partition.whole_node or job.resources.whole_node


def _memory_per_core(node: NodeType) -> float | None:
    return node.memory_bytes / node.cores if node.memory_bytes and node.cores else None
