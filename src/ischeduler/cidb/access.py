"""Which partitions take this user: the batch system's own answer to ``sbatch --test-only``, asked at most once an hour.

Each question costs the controller about 0.1 s and they are answered one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ischeduler.core.cluster import Access, Cluster, Partition
from ischeduler.core.errors import BatchUnavailable

PROBE_AGE_S = 3600.0
_PREFIX = re.compile(r"^(sbatch: )?(error: )?((Batch job submission|allocation) fail(ure|ed): )?")
_REFUSED = re.compile(
    r"account|qos|permission|permitted|access denied|not authorized|user's group|invalid partition|reservation|association",
    re.IGNORECASE,
)
_FOR_NOW = re.compile(r"violates accounting/QOS policy|limit", re.IGNORECASE)
"""A limit that is reached at this moment is not a right that is missing."""
_SILENT = re.compile(r"unable to contact|connection (refused|timed out|failure)|socket timed out|communication", re.IGNORECASE)


class Finished(Protocol):
    """A command that ended."""

    @property
    def returncode(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


RunCommand = Callable[[Sequence[str]], Finished]


def with_access(run_command: RunCommand, cluster: Cluster, now: float, known: Cluster | None = None) -> Cluster:
    """The cluster with each partition's answer. Answers of ``known`` that are younger than an hour are kept, not asked again."""
    old = {p.name: p.access for p in known.partitions} if known is not None and _same_account(known, cluster) else {}

    def answer(partition: Partition) -> Access | None:
        kept = old.get(partition.name)
        return kept if kept is not None and 0 <= now - kept.as_of < PROBE_AGE_S else probe(run_command, cluster, partition, now)

    return replace(cluster, partitions=tuple(replace(p, access=answer(p)) for p in cluster.partitions))


def _same_account(one: Cluster, other: Cluster) -> bool:
    return one.default_account == other.default_account


def probe(run_command: RunCommand, cluster: Cluster, partition: Partition, now: float) -> Access | None:
    """Ask for the least the partition gives; submits nothing. None when the answer is not about this user (nodes down, say).

    Raises BatchUnavailable when the controller does not answer: that says nothing about anyone's rights.
    """
    done = run_command(_question(cluster, partition))
    text = done.stderr.strip() or done.stdout.strip()
    if done.returncode == 0:
        return Access(True, "accepted by sbatch --test-only", now)
    if _SILENT.search(text):
        raise BatchUnavailable(f"the Slurm controller did not answer ({refusal_words(text)}); try again in a minute.")
    words = refusal_words(text)
    return Access(False, words, now) if _REFUSED.search(words) and not _FOR_NOW.search(words) else None


def _question(cluster: Cluster, partition: Partition) -> list[str]:
    argv = ["sbatch", "--test-only", f"--partition={partition.name}", f"--nodes={partition.min_nodes}", "--time=1"]
    if cluster.default_account:
        argv.append(f"--account={cluster.default_account}")
    if partition.node_types and cluster.node_type(partition.node_types[0]).accelerators_per_node:
        argv.append("--gres=gpu:1")
    return [*argv, "--output=/dev/null", "--wrap=true"]


def refusal_words(text: str) -> str:
    """Slurm's own refusal without its prefixes: the last line that says something."""
    lines = [_PREFIX.sub("", line.strip()).strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "refused without a word")
