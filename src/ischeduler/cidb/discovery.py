"""A Cluster from a live Slurm: partitions, node types, GRES, limits, QOS, the user's accounts, and which partitions take them.

Works with accounting off (then accounts and QOS are unknown, not empty by decree). Asks the controller a fixed number of
questions, plus one ``sbatch --test-only`` a partition when access is probed (about 0.1 s each, serialised by the controller: the
caller keeps the answers and shows their age).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ischeduler.cidb import scontrol
from ischeduler.core import durations, sizes
from ischeduler.core.cluster import Accelerator, Access, Cluster, NodeType, Partition, Provenance
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.naming import gpus_of_gres, node_type_name

_ASSOCIATION = ("Account", "Partition", "QOS", "MaxJobs", "MaxSubmit")
_QOS = ("Name", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU")
_DEBUG = re.compile(r"debug|dev(el|elop|elopment)?$|-dev$|short|interactive|test", re.IGNORECASE)
_UP = "UP"


class Finished(Protocol):
    """A command that ended."""

    @property
    def returncode(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


RunCommand = Callable[[Sequence[str]], Finished]


def discover(
    run_command: RunCommand,
    user: str,
    now: float,
    *,
    accelerators: Mapping[str, Accelerator] | None = None,
    probe: bool = True,
) -> Cluster:
    """The cluster as ``user`` sees it. Raises BatchUnavailable when the controller does not answer."""
    config = scontrol.config_values(_ask(run_command, ["scontrol", "show", "config"]))
    partition_rows = scontrol.one_line_records(_ask(run_command, ["scontrol", "-o", "show", "partition"]))
    node_rows = scontrol.one_line_records(_ask(run_command, ["scontrol", "-o", "show", "node"]))
    associations = _rows(run_command, ["show", "assoc", "where", f"user={user}"], _ASSOCIATION)
    qos = {row["Name"]: row for row in _rows(run_command, ["show", "qos"], _QOS) or ()}
    default_account = _default_account(run_command, user)
    types, of_partition = node_types(node_rows, accelerators or {})
    accounts = tuple(dict.fromkeys(row["Account"] for row in associations or ()))
    partitions = tuple(read_partition(row, of_partition.get(row["PartitionName"], ()), qos) for row in partition_rows)
    cluster = Cluster(
        name=config.get("ClusterName", "slurm").strip("\"'"),
        batch="slurm",
        version=config.get("SLURM_VERSION"),
        partitions=partitions,
        node_types=types,
        accounts=accounts,
        default_account=default_account or (accounts[0] if accounts else None),
        user_max_submit=_smallest(row["MaxSubmit"] for row in associations or ()),
        provenance={"*": Provenance("scontrol, sacctmgr", now, "live")},
        as_of=now,
    )
    return with_access(run_command, cluster, now) if probe else cluster


def with_access(run_command: RunCommand, cluster: Cluster, now: float) -> Cluster:
    """The cluster with each partition's answer to "would you take a small job of mine?"."""
    return replace(
        cluster, partitions=tuple(replace(p, access=_access(run_command, cluster, p, now)) for p in cluster.partitions)
    )


def node_types(
    rows: Sequence[Mapping[str, str]],
    accelerators: Mapping[str, Accelerator],
) -> tuple[tuple[NodeType, ...], dict[str, tuple[str, ...]]]:
    """Hardware types, grouped by cores, memory, GRES and features, and the types of each partition, commonest first."""
    found: dict[str, NodeType] = {}
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        node = _node_type(row, accelerators)
        known = found.get(node.name)
        found[node.name] = node if known is None else replace(known, count=(known.count or 0) + 1)
        for partition in scontrol.names(row.get("Partitions")):
            of = counts.setdefault(partition, {})
            of[node.name] = of.get(node.name, 0) + 1
    ordered = {p: tuple(sorted(of, key=lambda n: (-of[n], n))) for p, of in counts.items()}
    return tuple(found.values()), ordered


def _node_type(row: Mapping[str, str], accelerators: Mapping[str, Accelerator]) -> NodeType:
    cpus, memory_mb = int(row.get("CPUEfctv") or row.get("CPUTot") or 1), int(row.get("RealMemory") or 0)
    features = scontrol.names(row.get("AvailableFeatures"))
    gres = row.get("Gres", "")
    cards = gpus_of_gres(gres)
    kind = next(iter(cards), None)
    return NodeType(
        name=node_type_name(cpus, memory_mb, gres, features),
        cores=cpus,
        memory_bytes=memory_mb * sizes.MIB or None,
        accelerator=None if kind is None else accelerator_of(kind, features, accelerators),
        accelerators_per_node=sum(cards.values()),
        count=1,
        features=features,
    )


def accelerator_of(kind: str, features: Sequence[str], accelerators: Mapping[str, Accelerator]) -> Accelerator:
    """The known card that a GRES type (or a feature, where untyped) names; the smallest memory where several share a name.

    An unknown card keeps its name with memory 0: unknown, so that nothing is promised to fit.
    """
    words = [kind, *features] if kind else list(features)
    for word in words:
        fitting = [a for a in accelerators.values() if _names(a, word)]
        if fitting:
            chosen = min(fitting, key=lambda a: a.memory_bytes)
            return replace(chosen, gres=kind or None)
    return Accelerator(name=kind or "gpu", memory_bytes=0, gres=kind or None)


def _names(card: Accelerator, word: str) -> bool:
    bare = re.sub(r"[^a-z0-9]", "", word.lower()).removeprefix("nvidia").removeprefix("tesla")
    name = re.sub(r"[^a-z0-9]", "", card.name.lower())
    return bool(bare) and (
        name == bare or re.sub(r"\d+g$", "", re.sub(r"[^a-z0-9-]", "", card.name.lower())).strip("-").replace("-", "") == bare
    )


def read_partition(row: Mapping[str, str], types: tuple[str, ...], qos: Mapping[str, Mapping[str, str]]) -> Partition:
    """One partition of scontrol's text, with the limits of its partition QOS where it has one."""
    name = row["PartitionName"]
    limit = qos.get(row.get("QoS", ""), {})
    walls = [w for w in (_duration(row.get("MaxTime")), _duration(limit.get("MaxWall"))) if w is not None]
    gpus = scontrol.tres(limit.get("MaxTRESPU")).get("gres/gpu")
    memory = scontrol.value_or_none(row.get("MaxMemPerNode"))
    return Partition(
        name=name,
        node_types=types,
        max_walltime_s=min(walls) if walls else durations.UNLIMITED,
        default_walltime_s=_duration(row.get("DefaultTime")),
        min_nodes=max(1, _number(row.get("MinNodes")) or 1),
        max_nodes=_number(row.get("MaxNodes")),
        max_cores_per_node=_number(row.get("MaxCPUsPerNode")),
        max_memory_bytes=int(memory) * sizes.MIB if memory and memory.isdigit() else None,
        max_jobs_user=_number(limit.get("MaxJobsPU")),
        max_submit_user=_number(limit.get("MaxSubmitPU")),
        max_gpus_user=_number(gpus),
        preemptible=row.get("PreemptMode", "OFF") not in ("OFF", "") and "preempt" in name.lower(),
        debug=bool(_DEBUG.search(name)),
        restricted=row.get("RootOnly") == "YES",
        whole_node=row.get("OverSubscribe", "").startswith("EXCLUSIVE"),
        state=row.get("State", _UP),
        allow_accounts=scontrol.names(row.get("AllowAccounts")),
        allow_qos=scontrol.names(row.get("AllowQos")),
    )


def _access(run_command: RunCommand, cluster: Cluster, partition: Partition, now: float) -> Access:
    """``sbatch --test-only`` with the least a partition takes; submits nothing."""
    if partition.state != _UP:
        return Access(False, f"partition is {partition.state.lower()}", now)
    minutes = 1 if partition.default_walltime_s is None else None
    argv = ["sbatch", "--test-only", f"--partition={partition.name}", f"--nodes={partition.min_nodes}"]
    argv += [f"--time={minutes}"] if minutes else []
    argv += [f"--account={cluster.default_account}"] if cluster.default_account else []
    if partition.node_types and cluster.node_type(partition.node_types[0]).accelerators_per_node:
        argv.append("--gres=gpu:1")
    done = run_command([*argv, "--wrap=true"])
    words = (done.stderr or done.stdout).strip()
    if done.returncode == 0:
        return Access(True, words.removeprefix("sbatch: "), now)
    if "nable to contact" in words:
        raise BatchUnavailable(f"The Slurm controller did not answer ({words}); try again in a minute.")
    return Access(False, refusal_words(words), now)


def refusal_words(text: str) -> str:
    """Slurm's own refusal without its prefixes: the last line that says something."""
    lines = [
        re.sub(r"^(sbatch: )?(error: )?((Batch job submission|allocation) failure?d?: )?", "", line).strip()
        for line in text.splitlines()
    ]
    return next((line for line in reversed(lines) if line), "refused without a word")


def _default_account(run_command: RunCommand, user: str) -> str | None:
    rows = _rows(run_command, ["show", "user", user], ("DefaultAccount",)) or []
    return scontrol.value_or_none(rows[0]["DefaultAccount"]) if rows else None


def _rows(run_command: RunCommand, question: Sequence[str], columns: Sequence[str]) -> list[dict[str, str]] | None:
    """sacctmgr's answer; None where accounting is off or does not answer."""
    try:
        done = run_command(["sacctmgr", "-nP", *question, f"format={','.join(columns)}"])
    except (FileNotFoundError, BatchUnavailable):
        return None
    return scontrol.parsable_rows(done.stdout, columns) if done.returncode == 0 else None


def _ask(run_command: RunCommand, argv: Sequence[str]) -> str:
    done = run_command(argv)
    if done.returncode:
        raise BatchUnavailable(
            f"'{' '.join(argv)}' failed ({done.stderr.strip() or done.returncode}); is this a Slurm login node?"
        )
    return done.stdout


def _duration(text: str | None) -> float | None:
    word = (text or "").strip()
    if not word or word in ("NONE", "(null)", "N/A"):
        return None
    seconds = durations.parse_slurm(word)
    return None if seconds == durations.UNLIMITED else seconds


def _number(text: str | None) -> int | None:
    value = scontrol.value_or_none(text)
    return int(value) if value and value.isdigit() else None


def _smallest(texts: object) -> int | None:
    found = [n for t in texts if (n := _number(t)) is not None]  # type: ignore[attr-defined]
    return min(found) if found else None
