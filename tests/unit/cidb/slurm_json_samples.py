"""Small answers in the shapes of Slurm's data parsers v0.0.38 to v0.0.42, each saying the same two nodes and one partition."""

from __future__ import annotations

import json
from typing import Any


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


INFINITE = {"set": False, "infinite": True, "number": 0}
UNSET = {"set": False, "infinite": False, "number": 0}


def _meta(parser: str) -> dict[str, Any]:
    if parser == "v0.0.38":
        return {"plugin": {"type": "openapi/v0.0.38", "name": "Slurm OpenAPI v0.0.38"}, "Slurm": {"release": "22.05.8"}}
    if parser == "v0.0.39":
        return {"plugin": {"type": "openapi/v0.0.39", "name": "Slurm OpenAPI v0.0.39", "data_parser": "v0.0.39"}}
    plugin = {"type": "", "name": "", "data_parser": f"data_parser/{parser}", "accounting_storage": "accounting_storage/slurmdbd"}
    return {"plugin": plugin, "client": {"source": "/dev/pts/0"}, "command": ["show", "nodes"], "slurm": {"release": "24.05.4"}}


def nodes(parser: str) -> str:
    """``scontrol --json show nodes`` (v0.0.38: ``sinfo --json``, the shape slurmrestd has too)."""
    old = parser == "v0.0.38"

    def node(name: str, gres: str, partitions: list[str]) -> dict[str, Any]:
        row: dict[str, Any] = {
            "architecture": "x86_64",
            "name": name,
            "cpus": 48,
            "real_memory": 373000,
            "gres": gres,
            "gres_used": "gpu:v100:0(IDX:N/A)",
            "partitions": partitions,
            "reason": "Gres=gpu:9 seen",
            "owner": None if old else "",
            "features": "v100,ib" if old else ["v100", "ib"],
            "active_features": "v100,ib" if old else ["v100", "ib"],
            "state": "idle" if old else ["IDLE", "PLANNED"],
            "free_memory": 1000 if old else (UNSET if parser == "v0.0.39" else _set(1000)),
        }
        if parser in ("v0.0.40", "v0.0.41", "v0.0.42"):
            row |= {"effective_cpus": 46, "specialized_memory": 2000, "version": "24.05.4"}
        return row

    rows = [node("g01", "gpu:v100:2(S:0-1)", ["gpu", "debug"]), node("g02", "gpu:v100:2(S:0-1)", ["gpu"])]
    return json.dumps({"meta": _meta(parser), "nodes": rows, "errors": [], "warnings": []})


def partitions(parser: str) -> str:
    """``scontrol --json show partitions`` (v0.0.38: slurmrestd's)."""
    if parser == "v0.0.38":
        row: dict[str, Any] = {
            "flags": ["default", "HIDDEN"],
            "allowed_accounts": "",
            "allowed_qos": "normal,high",
            "allowed_groups": "",
            "denied_accounts": "trial",
            "default_time_limit": 30,
            "max_time_limit": 2880,
            "maximum_nodes_per_job": 4,
            "min_nodes_per_job": 2,
            "maximum_cpus_per_node": 0xFFFFFFFF,
            "maximum_memory_per_node": 0,
            "name": "gpu",
            "nodes": "g[01-02]",
            "priority_tier": 3,
            "state": "UP",
        }
    else:
        row = {
            "nodes": {"allowed_allocation": "", "configured": "g[01-02]", "total": 2},
            "accounts": {"allowed": "", "deny": "trial"},
            "groups": {"allowed": ""},
            "qos": {"allowed": "normal,high", "deny": "", "assigned": "part_limits"},
            "tres": {"billing_weights": "", "configured": "cpu=96,mem=746000M,node=2,gres/gpu=4"},
            "cpus": {"task_binding": 0, "total": 96},
            "defaults": {"memory_per_cpu": 0, "partition_memory_per_cpu": UNSET, "time": _set(30), "job": ""},
            "grace_time": 0,
            "maximums": {
                "cpus_per_node": INFINITE,
                "memory_per_cpu": 0,
                "partition_memory_per_node": UNSET,
                "nodes": _set(4),
                "shares": 1,
                "oversubscribe": {"jobs": 1, "flags": []},
                "time": _set(2880),
            },
            "minimums": {"nodes": 2},
            "name": "gpu",
            "node_sets": "",
            "priority": {"job_factor": 1, "tier": 3},
            "partition": {"state": ["UP"]},
        }
        if parser == "v0.0.41":
            row["select_type"] = ["CPU"]
    return json.dumps({"meta": _meta(parser), "partitions": [row], "errors": [], "warnings": [], "last_update": _set(1)})


PARSERS = ("v0.0.38", "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42")
