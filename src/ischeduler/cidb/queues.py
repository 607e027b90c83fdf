"""Partition and QOS records of a live Slurm as partitions with their limits. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ischeduler.cidb import scontrol
from ischeduler.cidb.scontrol import Record
from ischeduler.core import durations
from ischeduler.core.cluster import Partition
from ischeduler.core.sizes import MIB

_DEBUG = re.compile(r"debug|(^|[-_])dev(el|elop|elopment)?($|[-_])", re.IGNORECASE)


def read_partition(
    row: Record, rows: Sequence[Record], types: tuple[str, ...], qos: Sequence[Record], config: Record
) -> Partition:
    """One partition. ``rows`` are all of them; ``qos`` the QOS that limit a job here, the partition's own before the user's.

    As in Slurm, the first QOS that sets a limit decides it (sacctmgr(1), resource_limits.html); the partition's MaxTime caps
    the walltime in any case.
    """
    name = row["PartitionName"]
    walls = [w for w in (duration(row.get("MaxTime")), duration(_first(qos, "MaxWall"))) if w is not None]
    memory = scontrol.number(row.get("MaxMemPerNode"))
    return Partition(
        name=name,
        node_types=types,
        max_walltime_s=min(walls) if walls else None,
        default_walltime_s=duration(row.get("DefaultTime")),
        min_nodes=max(1, scontrol.number(row.get("MinNodes")) or 1),
        max_nodes=scontrol.number(row.get("MaxNodes")),
        max_cores_per_node=scontrol.number(row.get("MaxCPUsPerNode")),
        max_memory_bytes=memory * MIB if memory else None,
        max_jobs_user=scontrol.number(_first(qos, "MaxJobsPU")),
        max_submit_user=scontrol.number(_first(qos, "MaxSubmitPU")),
        max_gpus_user=_gpus(qos),
        preemptible=_preemptible(row, rows, config),
        debug=bool(_DEBUG.search(name)),
        restricted=row.get("RootOnly") == "YES" or row.get("ReqResv") == "YES",
        whole_node=row.get("OverSubscribe", "").startswith("EXCLUSIVE") or config.get("SelectType") == "select/linear",
        state=row.get("State", "UP"),
        allow_accounts=scontrol.names(row.get("AllowAccounts")),
        allow_qos=scontrol.names(row.get("AllowQos")),
        note=_note(row),
    )


def qos_limits(row: Record, all_qos: Mapping[str, Record], default_qos: str | None) -> list[Record]:
    """The QOS that limit a job of this partition: its own, then the one the user's jobs get."""
    own = scontrol.value_or_none(row.get("QoS"))
    allowed = scontrol.names(row.get("AllowQos"))
    mine = default_qos if default_qos and (not allowed or default_qos in allowed) else None
    return [all_qos[q] for q in (own, mine) if q is not None and q in all_qos]


def duration(text: str | None) -> float | None:
    """Seconds; infinity for UNLIMITED, None where nothing is said."""
    word = (text or "").strip()
    return None if not word or word in ("NONE", "(null)", "N/A") else durations.parse_slurm(word)


def smallest(texts: Iterable[str | None]) -> int | None:
    """The smallest number among texts, None when there is none."""
    return min((n for t in texts if (n := scontrol.number(t)) is not None), default=None)


def _first(qos: Sequence[Record], key: str) -> str | None:
    return next((v for q in qos if (v := scontrol.value_or_none(q.get(key))) is not None), None)


def _gpus(qos: Sequence[Record]) -> int | None:
    """GPUs of one user at once: of any type, or where only types are limited the sum of those (a bound, not more)."""
    for record in qos:
        limits = scontrol.tres(record.get("MaxTRESPU"))
        if "gres/gpu" in limits:
            return scontrol.number(limits["gres/gpu"])
        typed = [n for k, v in limits.items() if k.startswith("gres/gpu:") and (n := scontrol.number(v)) is not None]
        if typed:
            return sum(typed)
    return None


def _preemptible(row: Record, rows: Sequence[Record], config: Record) -> bool:
    """By partition priority: some other partition of a higher tier shares nodes. (By QOS: a job's QOS decides, not its queue.)"""
    if config.get("PreemptType") != "preempt/partition_prio" or row.get("PreemptMode", "OFF").upper() in ("OFF", "GANG", ""):
        return False
    tier, mine = _tier(row), _hosts(row)
    return any(_tier(other) > tier and mine & _hosts(other) for other in rows if other is not row)


def _tier(row: Record) -> float:
    return float(scontrol.number(row.get("PriorityTier")) or -math.inf)


def _hosts(row: Record) -> set[str]:
    text = scontrol.value_or_none(row.get("Nodes"))
    if text is None:
        return set()
    from ClusterShell.NodeSet import NodeSet

    return {str(node) for node in NodeSet(text)}


def _note(row: Record) -> str:
    words = ["hidden" if row.get("Hidden") == "YES" else ""]
    for key, name in (("DenyAccounts", "accounts"), ("DenyQos", "QOS")):
        denied = scontrol.names(row.get(key))
        words.append(f"denies {name} {', '.join(denied)}" if denied else "")
    groups = scontrol.names(row.get("AllowGroups"))
    words.append(f"groups {', '.join(groups)} only" if groups else "")
    return "; ".join(w for w in words if w)
