"""A Cluster from a live Slurm: partitions, node types, GRES, limits, QOS, the user's accounts, and which partitions take them.

Works with accounting off: accounts and QOS limits are then unknown. Asks the controller a fixed number of questions, plus one
``sbatch --test-only`` a partition where access is not known from the last hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ischeduler.cidb import scontrol, slurm_json
from ischeduler.cidb.access import RunCommand, with_access
from ischeduler.cidb.hardware import node_types
from ischeduler.cidb.provenance import LIVE, WHOLE
from ischeduler.cidb.queues import qos_limits, read_partition, smallest
from ischeduler.cidb.scontrol import Record
from ischeduler.core.cluster import Cluster, NodeType, Partition, Provenance
from ischeduler.core.errors import BatchUnavailable

_ASSOCIATION = ("Account", "Partition", "DefaultQOS", "QOS", "MaxJobs", "MaxSubmit")
_QOS = ("Name", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU")
_FROM_QOS = {
    "max_walltime_s": "MaxWall",
    "max_jobs_user": "MaxJobsPU",
    "max_submit_user": "MaxSubmitPU",
    "max_gpus_user": "MaxTRESPU",
}
_JSON_SINCE = (23, 2)
"""The first Slurm whose scontrol has --json."""


@dataclass(frozen=True, slots=True)
class _Accounting:
    """What sacctmgr says of a user; all empty where accounting is off."""

    associations: Sequence[Record] = ()
    qos: Mapping[str, Record] | None = None
    default_account: str | None = None

    @property
    def accounts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row["Account"] for row in self.associations))

    @property
    def of_default(self) -> Sequence[Record]:
        """The associations of the default account, or all where there is none."""
        mine = [row for row in self.associations if row["Account"] == self.default_account]
        return mine or self.associations

    @property
    def default_qos(self) -> str | None:
        """The QOS that the user's jobs get: the association's default, its only one, or Slurm's own ``normal``."""
        for row in self.of_default:
            allowed = scontrol.names(row.get("QOS"))
            named = scontrol.value_or_none(row.get("DefaultQOS")) or (allowed[0] if len(allowed) == 1 else None)
            if named is not None:
                return named
        return "normal" if self.associations else None


def discover(
    run_command: RunCommand,
    user: str,
    now: float,
    *,
    known: Cluster | None = None,
    probe: bool = True,
    account: str | None = None,
) -> Cluster:
    """The cluster as ``user`` sees it at ``now`` (epoch seconds).

    ``run_command`` runs an argument list on a login node as that user. ``known`` is what was found before: answers about access
    younger than an hour are taken from it. ``account`` replaces the user's default account. Raises BatchUnavailable when the
    controller does not answer.
    """
    config = read_config(run_command)
    partition_rows = _partitions(run_command, config)
    types, of_partition, doubts = node_types(_nodes(run_command, config))
    accounting = _accounting(run_command, user, config)
    chosen = account or accounting.default_account
    partitions: list[Partition] = []
    from_qos: dict[str, list[str]] = {}
    for row in partition_rows:
        limits = qos_limits(row, accounting.qos or {}, accounting.default_qos)
        partitions.append(read_partition(row, partition_rows, of_partition.get(row["PartitionName"], ()), limits, config))
        said = {key for record in limits for key in record if scontrol.value_or_none(record[key]) is not None}
        from_qos[row["PartitionName"]] = [field for field, key in _FROM_QOS.items() if key in said]
    cluster = Cluster(
        name=config.get("ClusterName", "slurm").strip("\"'"),
        batch="slurm",
        version=config.get("SLURM_VERSION"),
        partitions=tuple(partitions),
        node_types=types,
        accounts=accounting.accounts,
        default_account=chosen or (accounting.accounts[0] if accounting.accounts else None),
        user_max_submit=smallest(row["MaxSubmit"] for row in accounting.of_default),
        provenance=_provenance(config, partitions, from_qos, types, doubts, now),
        as_of=now,
    )
    return with_access(run_command, cluster, now, known) if probe else cluster


def read_config(run_command: RunCommand) -> dict[str, str]:
    """``scontrol show config`` as key to value; BatchUnavailable when the controller does not answer."""
    return scontrol.config_values(_ask(run_command, ["scontrol", "show", "config"]))


def _partitions(run_command: RunCommand, config: Record) -> list[dict[str, str]]:
    """The text, which alone says what is hidden, exclusive or preempted, with the JSON's typed limits over it where there are any."""
    rows = scontrol.one_line_records(_ask(run_command, ["scontrol", "-a", "-o", "show", "partition"]))
    typed = {row.get("PartitionName"): row for row in _json(run_command, config, "partitions") or ()}
    return [{**row, **typed.get(row["PartitionName"], {})} for row in rows if "PartitionName" in row]


def _nodes(run_command: RunCommand, config: Record) -> list[dict[str, str]]:
    typed = _json(run_command, config, "nodes")
    if typed is not None:
        return typed
    return scontrol.one_line_records(_ask(run_command, ["scontrol", "-a", "-o", "show", "node"]))


def _json(run_command: RunCommand, config: Record, what: str) -> list[dict[str, str]] | None:
    """The JSON's records; None where this Slurm has no JSON, or one of a shape we do not know: then the text serves."""
    if scontrol.version_of(config) < _JSON_SINCE:
        return None
    done = run_command(["scontrol", "-a", "--json", "show", what])
    if done.returncode != 0:
        return None
    return slurm_json.nodes(done.stdout) if what == "nodes" else slurm_json.partitions(done.stdout)


def _accounting(run_command: RunCommand, user: str, config: Record) -> _Accounting:
    if config.get("AccountingStorageType", "").removeprefix("accounting_storage/") in ("none", "(null)", ""):
        return _Accounting()
    cluster = config.get("ClusterName", "").strip("\"'")
    associations = _rows(run_command, ["show", "assoc", "where", f"user={user}", f"cluster={cluster}"], _ASSOCIATION)
    qos = _rows(run_command, ["show", "qos"], _QOS)
    account = _rows(run_command, ["show", "user", "where", f"name={user}"], ("DefaultAccount",)) or []
    return _Accounting(
        associations=associations or (),
        qos=None if qos is None else {row["Name"]: row for row in qos},
        default_account=scontrol.value_or_none(account[0]["DefaultAccount"]) if account else None,
    )


def _rows(run_command: RunCommand, question: Sequence[str], columns: Sequence[str]) -> list[dict[str, str]] | None:
    """sacctmgr's answer; None where it is missing or its database does not answer."""
    try:
        done = run_command(["sacctmgr", "-nP", *question, f"format={','.join(columns)}"])
    except (FileNotFoundError, BatchUnavailable):
        return None
    return scontrol.parsable_rows(done.stdout, columns) if done.returncode == 0 else None


def _ask(run_command: RunCommand, argv: Sequence[str]) -> str:
    try:
        done = run_command(argv)
    except FileNotFoundError:
        raise BatchUnavailable(
            f"'{argv[0]}' is not there; run this on a login node of the cluster, or load its Slurm module."
        ) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BatchUnavailable(f"'{' '.join(argv)}' failed ({lines[-1]}); is this a login node, and is the controller up?")
    return done.stdout


def _provenance(
    config: Record,
    partitions: Sequence[Partition],
    from_qos: Mapping[str, Sequence[str]],
    types: Sequence[NodeType],
    doubts: Mapping[str, str],
    now: float,
) -> dict[str, Provenance]:
    version = config.get("SLURM_VERSION", "?")
    facts = {WHOLE: Provenance(f"scontrol (Slurm {version})", now, LIVE)}
    for p in partitions:
        for name in from_qos[p.name]:
            if getattr(p, name) is not None:
                facts[f"partitions.{p.name}.{name}"] = Provenance(f"scontrol and sacctmgr show qos (Slurm {version})", now, LIVE)
        if p.debug:
            facts[f"partitions.{p.name}.debug"] = Provenance("the partition's name", now, LIVE)
    for node in types:
        if node.accelerator is not None:
            doubt = doubts.get(node.name, "")
            facts[f"node_types.{node.name}.accelerator"] = Provenance("GRES and the datasheet table", now, doubt or LIVE)
    return facts
