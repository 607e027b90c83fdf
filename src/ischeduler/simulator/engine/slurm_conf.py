"""slurm.conf to a machine and its scheduling options: what a live cluster is configured with is what is simulated.

Source: slurm.conf(5) of Slurm 22.05. Lines that say nothing about scheduling are passed over. QOS and accounts live in the accounting
database and are given beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ischeduler.core.durations import parse_slurm
from ischeduler.core.errors import BadInput
from ischeduler.core.naming import gpus_of_gres
from ischeduler.simulator.engine.machine import INFINITE_S, Account, Machine, SimNode, SimPartition, SimQos
from ischeduler.simulator.engine.options import PriorityOptions, SchedulerOptions

_WORD = re.compile(r"(\w+)=(\S+)")
Words = Mapping[str, str]


def read_slurm_conf(
    text: str, *, qos: Sequence[SimQos] = (), accounts: Sequence[Account] = (), expand: Callable[[str], Iterable[str]] | None = None
) -> tuple[Machine, SchedulerOptions]:
    """The machine and the options of a whole slurm.conf. BadInput when it names no node or partition, or a value cannot be read.

    ``expand`` makes names of a host list such as ``c[01-04]`` (commas are enough without it).
    """
    keys, nodes, partitions, defaults = _sorted_out(text)
    names = expand or (lambda hosts: hosts.split(","))
    made = [_node(name, {**defaults.get("NodeName", {}), **words}) for words in nodes for name in names(words["NodeName"])]
    everyone = tuple(n.name for n in made)
    try:
        queues = tuple(_partition({**defaults.get("PartitionName", {}), **words}, names, everyone) for words in partitions)
        options = _options(keys)
    except ValueError as error:
        raise BadInput(f"slurm.conf has a value that is not a number ({error}); expected the words of slurm.conf(5).") from None
    return Machine(keys.get("ClusterName", "cluster"), tuple(made), queues, tuple(qos), tuple(accounts)), options


def read_options(text: str) -> SchedulerOptions:
    """The scheduling options alone, also of a slurm.conf that keeps its nodes elsewhere. BadInput when it is none or cannot be read."""
    keys = _sorted_out(text)[0]
    if "ClusterName" not in keys:
        raise BadInput("it has no line ClusterName=...; expected the text of a slurm.conf.")
    try:
        return _options(keys)
    except ValueError as error:
        raise BadInput(f"it has a value that is not a number ({error}); expected the words of slurm.conf(5).") from None


def _sorted_out(text: str) -> tuple[dict[str, str], list[Words], list[Words], dict[str, Words]]:
    keys: dict[str, str] = {}
    lists: dict[str, list[Words]] = {"NodeName": [], "PartitionName": []}
    defaults: dict[str, Words] = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = dict(_WORD.findall(line.split("#")[0]))
        kind = next((k for k in lists if k in words), "")
        if not kind:
            keys.update(words)
        elif words[kind].upper() == "DEFAULT":
            defaults[kind] = {k: v for k, v in words.items() if k != kind}
        else:
            lists[kind].append(words)
    return keys, lists["NodeName"], lists["PartitionName"], defaults


def _node(name: str, words: Words) -> SimNode:
    cores = words.get("CPUs") or str(int(words.get("Sockets", "1")) * int(words.get("CoresPerSocket", "1")))
    features = tuple(filter(None, words.get("Feature", words.get("Features", "")).split(",")))
    gpus = gpus_of_gres(words.get("Gres", ""))
    return SimNode(name, int(cores), int(words.get("RealMemory", "0")), gpus, features, int(words.get("Weight", "1")))


def _partition(words: Words, names: Callable[[str], Iterable[str]], everyone: tuple[str, ...]) -> SimPartition:
    nodes = everyone if words.get("Nodes", "ALL").upper() == "ALL" else tuple(names(words["Nodes"]))
    largest = words.get("MaxNodes", "UNLIMITED")
    default = words.get("DefaultTime")
    return SimPartition(
        words["PartitionName"], nodes, parse_slurm(words.get("MaxTime", "UNLIMITED")), parse_slurm(default) if default else None,
        None if largest.upper() in ("UNLIMITED", "INFINITE") else int(largest), int(words.get("PriorityTier", "1")),
        int(words.get("PriorityJobFactor", "1")), _mode(words.get("PreemptMode", "")),
        words.get("OverSubscribe", "NO").upper() == "EXCLUSIVE", _given(words, "AllowAccounts"), _given(words, "AllowQos"),
    )  # fmt: skip


def _mode(text: str) -> str:
    words = text.upper().split(",")
    return next((m for m in ("REQUEUE", "CANCEL", "OFF") if m in words), "")


def _given(words: Words, key: str) -> tuple[str, ...]:
    value = words.get(key, "ALL")
    return () if value.upper() == "ALL" else tuple(value.split(","))


def _options(keys: Words) -> SchedulerOptions:
    parameters, info = _listed(keys.get("SchedulerParameters", "")), _listed(keys.get("AuthInfo", ""))
    preempt = keys.get("PreemptType", "preempt/none").removeprefix("preempt/")
    number: dict[str, Any] = {}
    for name, (option, unit) in _PARAMETERS.items():
        if name in parameters:
            number[option] = type(unit)(int(parameters[name]) * unit)
    return SchedulerOptions(
        priority=_priority(keys), backfill=keys.get("SchedulerType", "sched/backfill") == "sched/backfill",
        preempt="" if preempt == "none" else preempt, preempt_mode=_mode(keys.get("PreemptMode", "OFF")) or "OFF",
        preempt_exempt_s=_seconds(keys.get("PreemptExemptTime", "0")), requeue=keys.get("JobRequeue", "1") == "1",
        requeue_delay_s=float(info.get("cred_expire", "120")) + 1.0, kill_wait_s=float(keys.get("KillWait", "30")),
        enforce_part_limits=keys.get("EnforcePartLimits", "NO").upper() in ("ALL", "ANY", "YES"), timeout_poll_s=30.0, **number,
    )  # fmt: skip


def _listed(text: str) -> dict[str, str]:
    """``a=1,b`` as a mapping."""
    words = (word.partition("=") for word in text.split(",") if word)
    return {key: value for key, _, value in words}


_PARAMETERS: Mapping[str, tuple[str, int | float]] = {
    "sched_interval": ("sched_interval_s", 1.0),
    "default_queue_depth": ("default_queue_depth", 1),
    "bf_interval": ("bf_interval_s", 1.0),
    "bf_window": ("bf_window_s", 60.0),
    "bf_resolution": ("bf_resolution_s", 1.0),
    "bf_max_job_test": ("bf_max_job_test", 1),
    "bf_max_job_user": ("bf_max_job_user", 1),
    "bf_max_job_part": ("bf_max_job_part", 1),
    "bf_max_job_start": ("bf_max_job_start", 1),
    "bf_min_age_reserve": ("bf_min_age_reserve_s", 1.0),
    "bf_window_linear": ("bf_window_scale_s", 1.0),
}
"""SchedulerParameters that are simulated: the option each sets, and its unit."""


def _priority(keys: Words) -> PriorityOptions:
    flags = keys.get("PriorityFlags", "").upper()
    weight = {name: int(keys.get(f"PriorityWeight{name}", "0")) for name in ("Age", "Fairshare", "JobSize", "Partition", "QOS")}
    return PriorityOptions(
        keys.get("PriorityType", "priority/multifactor") == "priority/basic", weight["Age"], weight["Fairshare"], weight["JobSize"],
        weight["Partition"], weight["QOS"], _seconds(keys.get("PriorityMaxAge", "7-0")), _seconds(keys.get("PriorityDecayHalfLife", "7-0")),
        _seconds(keys.get("PriorityCalcPeriod", "5")), keys.get("PriorityFavorSmall", "NO").upper() == "YES", "SMALL_RELATIVE_TO_TIME" in flags,
        "ACCRUE_ALWAYS" in flags, "NO_FAIR_TREE" not in flags, float(keys.get("FairShareDampeningFactor", "1")),
    )  # fmt: skip


def _seconds(text: str) -> float:
    seconds = parse_slurm(text)
    return 0.0 if seconds == INFINITE_S else seconds
