"""A job as ``sbatch`` would submit it: the fields that Slurm's command-line filter shows, read with tolerance. Pure.

Names and spellings are sbatch(1)'s long options. A field that cannot be read is as good as not given: a guard never refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ischeduler.core.durations import parse_slurm
from ischeduler.core.errors import BadInput

_GPU = re.compile(r"(?:gres:)?gpu(?::(?P<type>[A-Za-z][A-Za-z0-9_.-]*))?(?::(?P<count>\d{1,5}))?$")
_TYPED = re.compile(r"(?:(?P<type>[A-Za-z][A-Za-z0-9_.-]*):)?(?P<count>\d{1,5})$")
_FIRST_NUMBER = re.compile(r"(\d{1,7})")


@dataclass(frozen=True, slots=True)
class AskedJob:
    """What a job asks for. None: not said (the partition's default holds). ``gpus`` is a node's; ``partition`` the first named."""

    cluster: str = ""
    partition: str | None = None
    walltime_s: float | None = None
    nodes: int = 1
    cpus_per_node: int = 1
    gpus: int = 0
    gpu_type: str = ""
    account: str | None = None
    qos: str | None = None
    name: str = ""


def read_job(fields: Mapping[str, str], cluster: str = "") -> AskedJob:
    """The job of the filter's fields."""
    nodes = max(1, _number(fields.get("nodes"), 1))
    gpu_type, gpus = _gpus(fields, nodes)
    tasks = max(1, _number(fields.get("ntasks"), 1))
    per_node = _number(fields.get("ntasks-per-node"), 0) or -(-tasks // nodes)
    partition = (fields.get("partition") or "").split(",")[0].strip()
    return AskedJob(
        cluster=cluster,
        partition=partition or None,
        walltime_s=_seconds(fields.get("time")),
        nodes=nodes,
        cpus_per_node=per_node * max(1, _number(fields.get("cpus-per-task"), 1)),
        gpus=gpus,
        gpu_type=gpu_type,
        account=fields.get("account") or None,
        qos=fields.get("qos") or None,
        name=fields.get("job-name", ""),
    )


def _gpus(fields: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Type and number of a node's GPUs, by whichever option asks for them."""
    found = [m for word in fields.get("gres", "").split(",") if (m := _GPU.match(word.strip()))]
    if found:
        return next((m["type"] for m in found if m["type"]), ""), sum(int(m["count"] or 1) for m in found)
    per_node, total = (_TYPED.match(fields.get(key, "").split(",")[0].strip()) for key in ("gpus-per-node", "gpus"))
    if per_node:
        return per_node["type"] or "", int(per_node["count"])
    if total:
        return total["type"] or "", -(-int(total["count"]) // nodes)
    per_task = _TYPED.match(fields.get("gpus-per-task", "").split(",")[0].strip())
    if per_task:
        tasks = max(1, _number(fields.get("ntasks"), 1))
        return per_task["type"] or "", -(-int(per_task["count"]) * tasks // nodes)
    return "", 0


def _seconds(text: str | None) -> float | None:
    try:
        return parse_slurm(text) if text else None
    except BadInput:
        return None


def _number(text: str | None, otherwise: int) -> int:
    """The first number: nodes are shown as ``2-4``, unset counts as ``0`` or in words."""
    match = _FIRST_NUMBER.match(text or "")
    return int(match[1]) if match else otherwise
