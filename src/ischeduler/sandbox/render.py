"""slurm.conf, gres.conf and slurmdbd.conf from a spec. Pure: same input, same text.

Facts: slurm.conf(5), gres.conf(5), slurmdbd.conf(5) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.spec import SandboxNode, SandboxPartition, SandboxSpec

HOST_ADDRESS = "127.0.0.1"


def slurm_conf(spec: SandboxSpec, layout: Layout, ports: Ports, *, hostname: str) -> str:
    """The whole slurm.conf. ``hostname`` is the host's short name: slurmctld starts only where it finds its own."""
    sections = [
        _cluster(spec, layout, ports, hostname),
        _paths(layout),
        _timing(spec),
        _scheduling(spec),
        _accounting(spec, layout, ports),
        [_node(n, ports.slurmd[n.name]) for n in spec.nodes],
        [_partition(p) for p in spec.partitions],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def gres_conf(spec: SandboxSpec, layout: Layout) -> str:
    """The GPUs, each File a link to /dev/null: Slurm wants a device there to set CUDA_VISIBLE_DEVICES."""
    lines = ["AutoDetect=off"]
    for node in spec.nodes:
        if node.gpus:
            index = f"[0-{node.gpus - 1}]" if node.gpus > 1 else "0"
            lines.append(f"NodeName={node.name} Name=gpu Type={node.gpu_type} File={layout.gpu_prefix(node.name)}{index}")
    return "\n".join(lines) + "\n"


def slurmdbd_conf(spec: SandboxSpec, layout: Layout, ports: Ports) -> str:
    """slurmdbd.conf; the database's socket travels in the environment, its login is the slurm user's own uid."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        *_token_lines(spec, layout),
        f"DbdAddr={HOST_ADDRESS}",
        "DbdHost=localhost",
        f"DbdPort={ports.slurmdbd}",
        "SlurmUser=slurm",
        f"PidFile={layout.pids}/slurmdbd.pid",
        f"LogFile={layout.log}/slurmdbd.log",
        "DebugLevel=info",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=slurm",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"


def cgroup_conf(version: tuple[int, int]) -> str:
    """No plug-in here uses cgroups, yet slurmd looks for a mounted hierarchy unless told which kind it is.

    The v1 plug-in (22.05 to 23.02) touches nothing until it is used; from 23.11 on there is a word for none at all.
    """
    if version >= (23, 11):
        return "CgroupPlugin=disabled\n"
    return "CgroupPlugin=cgroup/v1\n" if version >= (22, 5) else "# cgroups are not used\n"


def _cluster(spec: SandboxSpec, layout: Layout, ports: Ports, hostname: str) -> list[str]:
    lines = [
        f"ClusterName={spec.cluster_name}",
        f"SlurmctldHost={hostname}({HOST_ADDRESS})",
        f"SlurmctldPort={ports.slurmctld}",
        "SlurmUser=slurm",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={layout.munge_socket},cred_expire={spec.requeue_delay_s}",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        "SlurmdParameters=config_overrides",
        "MpiDefault=none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "JobRequeue=1",
        "MailProg=/bin/true",
        "ReturnToService=2",
    ]
    lines += _token_lines(spec, layout)
    if any(n.gpus for n in spec.nodes):
        lines.append("GresTypes=gpu")
    if spec.cli_filter:
        lines.append("CliFilterPlugins=lua")
    return lines


def _token_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    """slurmrestd authenticates its clients by JSON web tokens."""
    return ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={layout.jwt_key}"] if spec.rest else []


def _paths(layout: Layout) -> list[str]:
    return [
        f"StateSaveLocation={layout.state}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.pids}/slurmctld.pid",
        f"SlurmdPidFile={layout.pids}/%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        f"PlugStackConfig={layout.etc}/plugstack.conf",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
    ]


def _timing(spec: SandboxSpec) -> list[str]:
    return [
        f"SlurmdTimeout={spec.slurmd_timeout_s}",
        "SlurmctldTimeout=30",
        "MessageTimeout=10",
        "BatchStartTimeout=10",
        "InactiveLimit=0",
        "CompleteWait=0",
        "OverTimeLimit=0",
        f"KillWait={spec.kill_wait_s}",
        f"MinJobAge={spec.min_job_age_s}",
    ]


def _scheduling(spec: SandboxSpec) -> list[str]:
    lines = [
        "SchedulerType=sched/backfill",
        f"EnforcePartLimits={spec.enforce_part_limits}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={min(n.memory_mb // n.cpus for n in spec.nodes) or 1}",
    ]
    if spec.scheduler_parameters:
        lines.append(f"SchedulerParameters={','.join(spec.scheduler_parameters)}")
    if spec.accounting:
        lines += ["PriorityType=priority/multifactor", "PriorityWeightAge=1000", "PriorityWeightQOS=10000"]
        lines += ["PriorityWeightPartition=1000", "PriorityCalcPeriod=1", "PriorityDecayHalfLife=1-0", "PriorityMaxAge=1-0"]
    else:
        lines.append("PriorityType=priority/basic")
    if spec.preempt:
        plugin = "qos" if any(q.preempt for q in spec.qos) else "partition_prio"
        lines += [f"PreemptType=preempt/{plugin}", "PreemptMode=REQUEUE", "PreemptExemptTime=00:00:00"]
    return lines


def _accounting(spec: SandboxSpec, layout: Layout, ports: Ports) -> list[str]:
    lines = ["JobAcctGatherType=jobacct_gather/linux", f"JobAcctGatherFrequency=task={spec.sample_s}"]
    if spec.memory_kill:
        lines.append("JobAcctGatherParams=OverMemoryKill")
    if not spec.accounting:
        return [*lines, "AccountingStorageType=accounting_storage/none"]
    lines += [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={HOST_ADDRESS}",
        f"AccountingStoragePort={ports.slurmdbd}",
        f"AccountingStoragePass={layout.munge_socket}",  # with munge this is the socket clients use towards slurmdbd
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStoreFlags=job_comment",
    ]
    if any(n.gpus for n in spec.nodes):
        lines.append("AccountingStorageTRES=gres/gpu")
    return lines


def _node(node: SandboxNode, port: int) -> str:
    words = [
        f"NodeName={node.name}",
        "NodeHostname=localhost",
        f"NodeAddr={HOST_ADDRESS}",
        f"Port={port}",
        f"CPUs={node.cpus}",
        f"RealMemory={node.memory_mb}",
    ]
    if node.gres:
        words.append(f"Gres={node.gres}")
    if node.features:
        words.append(f"Feature={','.join(node.features)}")
    return " ".join([*words, "State=UNKNOWN"])


def _partition(partition: SandboxPartition) -> str:
    words = [
        f"PartitionName={partition.name}",
        f"Nodes={','.join(partition.nodes)}",
        f"MaxTime={partition.max_time_min}",
        f"Default={'YES' if partition.default else 'NO'}",
        f"PriorityTier={partition.priority_tier}",
        *_optional("DefaultTime", partition.default_time_min),
        *_optional("MaxNodes", partition.max_nodes),
        *_listed("AllowAccounts", partition.allow_accounts),
        *_listed("AllowQos", partition.allow_qos),
        *_optional("QOS", partition.qos),
        *_optional("PreemptMode", partition.preempt_mode),
        "OverSubscribe=" + ("EXCLUSIVE" if partition.exclusive else "NO"),
        "State=UP",
    ]
    return " ".join(words)


def _optional(key: str, value: object) -> list[str]:
    return [] if value in (None, "") else [f"{key}={value}"]


def _listed(key: str, values: Iterable[str]) -> list[str]:
    joined = ",".join(values)
    return [f"{key}={joined}"] if joined else []
