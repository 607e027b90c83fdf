"""A real multi-node Slurm (slurmctld, slurmds, slurmdbd, slurmrestd) on one host, for tests, demos and rehearsals."""

from ischeduler.sandbox.errors import SandboxCommandFailed, SandboxError, SandboxUnavailable
from ischeduler.sandbox.sandbox import DaemonStatus, Sandbox, SandboxStatus, down, list_sandboxes, status, up
from ischeduler.sandbox.shape import demo_spec, spec_from_cluster
from ischeduler.sandbox.spec import SandboxAccount, SandboxNode, SandboxPartition, SandboxQos, SandboxSpec

__all__ = [
    "DaemonStatus",
    "Sandbox",
    "SandboxAccount",
    "SandboxCommandFailed",
    "SandboxError",
    "SandboxNode",
    "SandboxPartition",
    "SandboxQos",
    "SandboxSpec",
    "SandboxStatus",
    "SandboxUnavailable",
    "demo_spec",
    "down",
    "list_sandboxes",
    "spec_from_cluster",
    "status",
    "up",
]
