"""The few Slurm commands that discovery asks, answered by slurmrestd: one reader of live clusters serves both ways in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ischeduler.batch.slurm_rest import SlurmRest
from ischeduler.core.jobs import JobSpec, Resources

_WITH_JSON = "23.02"
"""What scontrol's first version with --json was called: discovery then takes the typed answers."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that "ended"."""

    returncode: int
    stdout: str
    stderr: str


class RestCommands:
    """Answers ``scontrol show config|node|partition`` and ``sbatch --test-only``; any other command is not there.

    BatchUnavailable when slurmrestd does not answer.
    """

    def __init__(self, batch: SlurmRest) -> None:
        self._batch = batch

    def __call__(self, argv: Sequence[str]) -> Finished:
        """The answer to one command."""
        words = tuple(w for w in argv if w != "-a")
        table: Mapping[tuple[str, ...], Callable[[], str]] = {
            ("scontrol", "show", "config"): self._config,
            ("scontrol", "-o", "show", "partition"): self._names,
            ("scontrol", "--json", "show", "partitions"): lambda: json.dumps(self._batch.show("partitions")),
            ("scontrol", "--json", "show", "nodes"): lambda: json.dumps(self._batch.show("nodes")),
        }
        if words in table:
            return Finished(0, table[words](), "")
        if words[:2] == ("sbatch", "--test-only"):
            return self._probe(words)
        return Finished(127, "", f"{words[0]} is not asked over HTTP")

    def _config(self) -> str:
        return f"ClusterName = {self._batch.name}\nSLURM_VERSION = {_WITH_JSON} (slurmrestd {self._batch.version})\n"

    def _names(self) -> str:
        rows = self._batch.show("partitions").get("partitions") or []
        return "\n".join(f"PartitionName={row.get('name')}" for row in rows)

    def _probe(self, words: Sequence[str]) -> Finished:
        given: dict[str, Any] = dict(w[2:].split("=", 1) for w in words[2:] if "=" in w)
        gpus = 1 if str(given.get("gres", "")).startswith("gpu") else 0
        resources = Resources(nodes=int(given.get("nodes", 1)), gpus_per_node=gpus, walltime_s=60.0)
        answer = self._batch.probe(
            JobSpec("probe", "probe", str(given.get("partition", "")), resources, ("true",), "/", "/dev/null")
        )
        return Finished(0, "", "") if answer.accepted else Finished(1, "", answer.reason)
