"""Tolerant readers of Slurm's JSON, data parsers v0.0.38 to v0.0.42: the same records as from scontrol's text. Pure functions.

Shapes differ by data parser: numbers are bare or ``{"set": true, "infinite": false, "number": 5}``, states and features are
texts or lists, and a partition's limits are flat (v0.0.38) or nested. So fields are found by shape and not by version. What a
reader does not find is left out of the record: unknown, not zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def nodes(text: str) -> list[dict[str, str]] | None:
    """Records of ``scontrol --json show nodes``; None where this is no such answer."""
    return _records(text, "nodes", _node)


def partitions(text: str) -> list[dict[str, str]] | None:
    """Records of ``scontrol --json show partitions``; None where this is no such answer."""
    return _records(text, "partitions", _partition)


def _load(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _records(text: str, key: str, read: Any) -> list[dict[str, str]] | None:
    data = _load(text)
    rows = data.get(key)
    if not isinstance(rows, list) or (data.get("errors") and not rows):
        return None
    return [{k: v for k, v in read(row).items() if v is not None} for row in rows if isinstance(row, dict)]


def _node(row: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        "NodeName": _text(row.get("name")),
        "CPUTot": _number(row.get("cpus")),
        "CPUEfctv": _number(row.get("effective_cpus")),
        "RealMemory": _number(row.get("real_memory")),
        "MemSpecLimit": _number(row.get("specialized_memory")),
        "AvailableFeatures": _list(row.get("features")),
        "Gres": _text(row.get("gres")),
        "Partitions": _list(row.get("partitions")),
        "State": _list(row.get("state"), "+"),
        "Version": _text(row.get("version")),
    }


def _partition(row: Mapping[str, Any]) -> dict[str, str | None]:
    most, least = _at(row, "maximums"), _at(row, "minimums")
    state = _at(row, "partition").get("state", row.get("state"))
    flags = row.get("flags") or []
    return {
        "PartitionName": _text(row.get("name")),
        "MaxTime": _minutes(most.get("time", row.get("max_time_limit"))),
        "DefaultTime": _minutes(_at(row, "defaults").get("time", row.get("default_time_limit"))),
        "MinNodes": _number(least.get("nodes", row.get("min_nodes_per_job"))),
        "MaxNodes": _number(most.get("nodes", row.get("maximum_nodes_per_job"))),
        "MaxCPUsPerNode": _number(most.get("cpus_per_node", row.get("maximum_cpus_per_node"))),
        "MaxMemPerNode": _number(most.get("partition_memory_per_node", row.get("maximum_memory_per_node"))),
        "MaxMemPerCPU": _number(most.get("partition_memory_per_cpu")),
        "State": _list(state, "+"),
        "QoS": _text(_at(row, "qos").get("assigned")),
        "AllowAccounts": _allowed(row, "accounts", "allowed_accounts"),
        "AllowQos": _allowed(row, "qos", "allowed_qos"),
        "AllowGroups": _allowed(row, "groups", "allowed_groups"),
        "DenyAccounts": _text(_at(row, "accounts").get("deny", row.get("denied_accounts"))),
        "PriorityTier": _number(_at(row, "priority").get("tier", row.get("priority_tier"))),
        "Hidden": "YES" if "HIDDEN" in {str(f).upper() for f in flags} else None,
    }


def _at(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, Mapping) else {}


def _allowed(row: Mapping[str, Any], key: str, flat: str) -> str | None:
    """An empty text means everyone, as ``ALL`` does in scontrol's text."""
    value = _at(row, key).get("allowed", row.get(flat))
    return None if value is None else _list(value) or "ALL"


def _number(value: Any) -> str | None:
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, str) and value.isdigit() else None
    # v0.0.38 prints Slurm's INFINITE and NO_VAL bare.
    return None if value < 0 or int(value) in (0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE) else _finite(int(value))


def _finite(value: int) -> str:
    return "UNLIMITED" if value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else str(value)


def _minutes(value: Any) -> str | None:
    """Limits are in minutes, which is how Slurm reads a bare number too."""
    return _number(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any, separator: str = ",") -> str | None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return separator.join(str(v) for v in value)
    return _text(value)
