"""What a sandbox looks like: nodes, partitions, accounts, QOS and the switches of its Slurm. Data only, no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ischeduler.core.errors import BadInput

_SANDBOX_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")
_USER_NAME = re.compile(r"[a-z][a-z0-9]{0,9}")
_SLURM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_GRES = re.compile(r"gpu:[A-Za-z0-9_.-]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class SandboxNode:
    """A pretended node. ``gres`` is empty or ``gpu:TYPE:COUNT``; cores and memory may exceed the host's."""

    name: str
    cpus: int = 4
    memory_mb: int = 4000
    gres: str = ""
    features: tuple[str, ...] = ()

    @property
    def gpu_type(self) -> str:
        """``v100`` of ``gpu:v100:2``; empty without GPUs."""
        return self.gres.split(":")[1] if self.gres else ""

    @property
    def gpus(self) -> int:
        """How many GPUs the node pretends to have."""
        return int(self.gres.split(":")[2]) if self.gres else 0


@dataclass(frozen=True, slots=True)
class SandboxPartition:
    """A queue. Limits are in whole minutes, Slurm's own unit. ``preempt_mode`` is empty, OFF, CANCEL or REQUEUE."""

    name: str
    nodes: tuple[str, ...]
    max_time_min: int
    default_time_min: int | None = None
    default: bool = False
    max_nodes: int | None = None
    priority_tier: int = 1
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    qos: str = ""
    preempt_mode: str = ""
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class SandboxQos:
    """A quality of service: ``preempt`` names the QOS whose jobs it may push out; limits are per user."""

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""
    max_wall_min: int | None = None
    max_jobs_per_user: int | None = None
    max_submit_per_user: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxAccount:
    """A project that is charged. ``members`` are short user names; empty means every user."""

    name: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A whole sandbox. ``users`` are short names; the operating system sees ``isb-alice-NAME``.

    ``accounting`` off means no slurmdbd, no MariaDB and no sacct. ``memory_kill`` ends a job that exceeds its request
    (polled every ``sample_s`` seconds). ``requeue_delay_s`` is how long a requeued job waits before it may start again.
    ``enforce_part_limits``: ALL refuses a job beyond a partition's limits at submission (as most centres do, and only
    then does ``sbatch --test-only`` refuse it too); NO lets it wait with the reason PartitionTimeLimit.
    ``cli_filter`` is the Lua text of a filter that every sbatch, salloc and srun asks first (empty: none).
    """

    cluster_name: str
    nodes: tuple[SandboxNode, ...]
    partitions: tuple[SandboxPartition, ...]
    users: tuple[str, ...] = ("alice", "bob", "carol")
    accounts: tuple[SandboxAccount, ...] = (SandboxAccount("research"),)
    qos: tuple[SandboxQos, ...] = ()
    accounting: bool = True
    rest: bool = True
    memory_kill: bool = True
    preempt: bool = False
    enforce_part_limits: str = "ALL"
    cli_filter: str = ""
    sample_s: int = 1
    slurmd_timeout_s: int = 10
    kill_wait_s: int = 5
    min_job_age_s: int = 30
    requeue_delay_s: int = 10
    scheduler_parameters: tuple[str, ...] = (
        "sched_interval=1",
        "bf_interval=1",
        "bf_resolution=1",
        "bf_continue",
        "batch_sched_delay=0",
        "bf_window=1440",
    )

    def node(self, name: str) -> SandboxNode:
        """The node of that name; BadInput when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(n.name for n in self.nodes)
        raise BadInput(f"the sandbox has no node '{name}'; expected one of {known}.")


def check_sandbox_name(name: str) -> str:
    """The name itself; BadInput unless it is 1 to 16 lower-case letters, digits and dashes, starting with a letter."""
    if not _SANDBOX_NAME.fullmatch(name):
        raise BadInput(f"'{name}' is not a sandbox name; expected up to 16 of a-z, 0-9 and '-', starting with a letter.")
    return name


def validate(spec: SandboxSpec) -> SandboxSpec:
    """The spec itself, or BadInput with the first thing that is wrong with it."""
    for problem in _problems(spec):
        raise BadInput(f"sandbox '{spec.cluster_name}': {problem}.")
    return spec


def _problems(spec: SandboxSpec) -> list[str]:
    nodes = [n.name for n in spec.nodes]
    found = _name_problems(spec)
    found += [f"node '{n}' is given twice" for n in set(nodes) if nodes.count(n) > 1]
    queues = [p.name for p in spec.partitions]
    found += [f"partition '{q}' is given twice" for q in set(queues) if queues.count(q) > 1]
    for node in spec.nodes:
        if node.gres and not _GRES.fullmatch(node.gres):
            found.append(f"node '{node.name}' has gres '{node.gres}', expected gpu:TYPE:COUNT")
        if node.cpus < 1 or node.memory_mb < 1:
            found.append(f"node '{node.name}' needs at least one CPU and 1 MB of memory")
    for partition in spec.partitions:
        found += _partition_problems(partition, nodes)
    for account in spec.accounts:
        found += [f"account '{account.name}' has the unknown member '{m}'" for m in account.members if m not in spec.users]
    if spec.enforce_part_limits not in ("ALL", "ANY", "NO"):
        found.append(f"enforce_part_limits is '{spec.enforce_part_limits}', expected ALL, ANY or NO")
    if spec.accounting and not (spec.accounts and spec.users):
        found.append("accounting needs at least one account and one user")
    if spec.qos and not spec.accounting:
        found.append("QOS need accounting, which is off")
    if sum(p.default for p in spec.partitions) > 1:
        found.append("more than one partition is the default")
    return found


def _name_problems(spec: SandboxSpec) -> list[str]:
    if not spec.nodes or not spec.partitions:
        return ["it needs at least one node and one partition"]
    named = [spec.cluster_name, *(n.name for n in spec.nodes), *(p.name for p in spec.partitions)]
    named += [a.name for a in spec.accounts] + [q.name for q in spec.qos]
    named += [f for n in spec.nodes for f in n.features]
    found = [f"'{n}' is not a name Slurm takes (letters, digits, '_', '.', '-')" for n in named if not _SLURM_NAME.fullmatch(n)]
    bad_users = [u for u in spec.users if not _USER_NAME.fullmatch(u)]
    return found + [f"user '{u}' must be up to 10 of a-z and 0-9" for u in bad_users]


def _partition_problems(partition: SandboxPartition, nodes: list[str]) -> list[str]:
    found = [f"partition '{partition.name}' names the unknown node '{n}'" for n in partition.nodes if n not in nodes]
    if not partition.nodes:
        found.append(f"partition '{partition.name}' has no nodes")
    if partition.max_time_min < 1:
        found.append(f"partition '{partition.name}' has a limit below one minute, the least Slurm knows")
    return found
