"""Systems and apps that a tenant needs for us, made from the CI database. Pure. Fields: Tapis Systems and Apps APIs."""

from __future__ import annotations

import math
import re
from typing import Any

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import MIB

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
RUNNER = '#!/bin/bash\nexec bash "${_tapisExecSystemInputDir}/isched_job.sh"\n'
"""``tapisjob_app.sh`` of the training app: the whole app."""


def system_definition(
    cluster: Cluster, system_id: str, *, host: str, work_dir: str, profile: str = "", user: str = "${apiUserId}"
) -> dict[str, Any]:
    """The body of ``POST /v3/systems`` for a cluster: one logical queue for each partition that is open."""
    queues = [logical_queue(cluster, p) for p in cluster.partitions]
    if not queues:
        raise BadInput(f"cluster '{cluster.name}' has no partitions; read it first: isched clusters sync {cluster.name}")
    made: dict[str, Any] = {
        "id": checked_id(system_id), "description": f"{cluster.name}, from iScheduler's CI database"[:2048], "systemType": "LINUX", "host": host,
        "effectiveUserId": user, "defaultAuthnMethod": "PKI_KEYS", "rootDir": "/", "canExec": True, "canRunBatch": True,
        "jobRuntimes": [{"runtimeType": "ZIP"}, {"runtimeType": "SINGULARITY"}], "jobWorkingDir": work_dir, "batchScheduler": "SLURM",
        "batchLogicalQueues": queues, "batchDefaultLogicalQueue": queues[0]["name"], "tags": ["ischeduler"],
    }  # fmt: skip
    return {**made, "batchSchedulerProfile": profile} if profile else made


def logical_queue(cluster: Cluster, partition: Partition) -> dict[str, Any]:
    """The limits of a partition as Tapis keeps them; what is not known is left out."""
    types = [cluster.node_type(name) for name in partition.node_types]
    limits = {
        "maxJobs": None, "maxJobsPerUser": partition.max_submit_user or partition.max_jobs_user, "minNodeCount": partition.min_nodes,
        "maxNodeCount": partition.max_nodes, "minCoresPerNode": 1, "maxCoresPerNode": max((t.cores for t in types if t.cores), default=None),
        "minMemoryMB": 1, "maxMemoryMB": max((_memory_mb(t) for t in types if t.memory_bytes), default=None), "minMinutes": 1,
        "maxMinutes": None if partition.max_walltime_s is None or math.isinf(partition.max_walltime_s) else int(partition.max_walltime_s // 60),
    }  # fmt: skip
    known = {k: int(v) for k, v in limits.items() if v is not None and not math.isinf(v)}
    return {"name": partition.name, "hpcQueueName": partition.name, **known}


def training_app(app_id: str, version: str, archive_url: str, system_id: str) -> dict[str, Any]:
    """The body of ``POST /v3/apps`` for trainings: a ZIP whose one script runs the job's input file."""
    return {
        "id": checked_id(app_id), "version": version, "description": "Runs a training under iScheduler", "runtime": "ZIP",
        "containerImage": archive_url, "jobType": "BATCH", "strictFileInputs": False,
        "jobAttributes": {"execSystemId": system_id, "archiveOnAppError": True}, "tags": ["ischeduler"],
    }  # fmt: skip


def estimator_app(app_id: str, version: str, image: str, system_id: str) -> dict[str, Any]:
    """The body of ``POST /v3/apps`` for an estimator's image: request in, answer out, as its runtime calls it."""
    arguments = [{"name": n, "inputMode": "INCLUDE_ON_DEMAND"} for n in ("request", "answer")]
    return {
        "id": checked_id(app_id), "version": version, "description": "An estimator of iScheduler", "runtime": "SINGULARITY",
        "runtimeOptions": ["SINGULARITY_RUN"], "containerImage": image, "jobType": "FORK", "strictFileInputs": False,
        "jobAttributes": {"execSystemId": system_id, "parameterSet": {"appArgs": arguments}}, "tags": ["ischeduler", "estimator"],
    }  # fmt: skip


def checked_id(name: str) -> str:
    """The id, where Tapis takes it. BadInput otherwise."""
    if not _ID.fullmatch(name):
        raise BadInput(f"'{name}' is not an id for Tapis; expected up to 80 letters, digits, '.', '_' and '-'.")
    return name


def _memory_mb(node: NodeType) -> int:
    return int((node.memory_bytes or 0) // MIB)
