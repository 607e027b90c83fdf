"""Discovery on the real Slurm sandbox: what it finds is what the sandbox was made of."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import integration_spec, sandbox_name
from ischeduler.batch.slurm_nodes import count_nodes, read_nodes
from ischeduler.cidb.access import PROBE_AGE_S
from ischeduler.cidb.ci_database import CIDatabase
from ischeduler.cidb.discovery import discover
from ischeduler.cidb.provenance import LIVE, origin
from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.sizes import MIB
from ischeduler.sandbox import Sandbox
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import prepare

pytestmark = pytest.mark.slurm
NOW = 1_800_000_000.0


class Shell:
    """Runs commands as a sandbox user and remembers them."""

    def __init__(self, slurm: Sandbox, user: str) -> None:
        self.slurm = slurm
        self.user = user
        self.asked: list[list[str]] = []

    @property
    def login(self) -> str:
        return self.slurm.system_user(self.user)

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.asked.append(list(argv))
        return self.slurm.run(list(argv), self.user, check=False)

    def discover(self, now: float = NOW, *, known: Cluster | None = None, probe: bool = True) -> Cluster:
        return discover(self, self.login, now, known=known, probe=probe)


@contextmanager
def changed(slurm: Sandbox, change: list[str], back: list[str]) -> Iterator[None]:
    slurm.run(change)
    try:
        yield
    finally:
        slurm.run(back)


def test_partitions_and_hardware_are_those_of_the_sandbox(slurm: Sandbox):
    spec = integration_spec()
    found = Shell(slurm, "alice").discover(probe=False)
    assert found.name == spec.cluster_name
    assert found.version is not None
    assert {p.name for p in found.partitions} == {p.name for p in spec.partitions}
    nodes = {n.name: n for n in spec.nodes}
    for partition in spec.partitions:
        seen = found.partition(partition.name)
        assert seen.max_walltime_s == partition.max_time_min * 60.0
        kinds = [found.node_type(n) for n in seen.node_types]
        assert {k.cores for k in kinds} == {nodes[n].cpus for n in partition.nodes}
        assert {k.memory_bytes for k in kinds} == {nodes[n].memory_mb * MIB for n in partition.nodes}
        assert {k.accelerators_per_node for k in kinds} == {nodes[n].gpus for n in partition.nodes}
    assert sum(n.count or 0 for n in found.node_types) == len(spec.nodes)
    assert found.partition("gpudebug").debug
    assert not found.partition("cpu").debug
    card = found.node_type(found.partition("gpu").node_types[0]).accelerator
    assert card is not None
    assert (card.gres, card.name) == ("v100", "v100-16g")


def test_node_types_are_named_as_in_the_queue_snapshot(slurm: Sandbox):
    found = Shell(slurm, "alice").discover(probe=False)
    counts = count_nodes(read_nodes(slurm.run(["scontrol", "-d", "-o", "show", "node"]).stdout))
    assert {(c.partition, c.node_type) for c in counts} == {(p.name, n) for p in found.partitions for n in p.node_types}


def test_accounts_and_access_are_the_users_own(slurm: Sandbox):
    alice, carol = Shell(slurm, "alice").discover(), Shell(slurm, "carol").discover()
    assert alice.accounts == ("research",)
    assert alice.default_account == "research"
    assert set(carol.accounts) >= {"restricted"}
    access = {p.name: p.access for p in alice.partitions}
    assert access["gpu"] is not None
    assert access["gpu"].allowed
    closed = access["closed"]
    assert closed is not None
    assert not closed.allowed
    assert "account" in closed.reason.lower()
    restricted = (
        discover(Shell(slurm, "carol"), Shell(slurm, "carol").login, NOW, account="restricted").partition("closed").access
    )
    assert restricted is not None
    assert restricted.allowed, restricted.reason


def test_access_is_asked_once_an_hour(slurm: Sandbox):
    shell = Shell(slurm, "alice")
    first = shell.discover()
    shell.asked.clear()
    again = shell.discover(NOW + PROBE_AGE_S - 1, known=first)
    assert not [a for a in shell.asked if a[0] == "sbatch"]
    assert [p.access for p in again.partitions] == [p.access for p in first.partitions]
    later = shell.discover(NOW + PROBE_AGE_S, known=first)
    assert {p.access.as_of for p in later.partitions if p.access} == {NOW + PROBE_AGE_S}


def test_limits_of_a_partition_qos_count(slurm: Sandbox):
    limits = ["MaxWall=1", "MaxTRESPerUser=gres/gpu=3", "MaxJobsPerUser=2", "MaxSubmitJobsPerUser=4"]
    none = ["MaxWall=-1", "MaxTRESPerUser=gres/gpu=-1", "MaxJobsPerUser=-1", "MaxSubmitJobsPerUser=-1"]
    modify = ["sacctmgr", "-i", "modify", "qos", "where", "name=low", "set"]
    of_gpu = ["scontrol", "update", "PartitionName=gpu"]
    with changed(slurm, [*modify, *limits], [*modify, *none]), changed(slurm, [*of_gpu, "QoS=low"], [*of_gpu, "QoS="]):
        found = Shell(slurm, "alice").discover(probe=False)
    gpu = found.partition("gpu")
    assert (gpu.max_walltime_s, gpu.max_gpus_user, gpu.max_jobs_user, gpu.max_submit_user) == (60.0, 3, 2, 4)
    assert found.partition("cpu").max_gpus_user is None
    source = origin(found, "partitions.gpu.max_gpus_user")
    assert source is not None
    assert "sacctmgr" in source.source


def test_a_drained_or_hidden_partition_shows_so(slurm: Sandbox):
    of_cpu = ["scontrol", "update", "PartitionName=cpu"]
    down, up = [*of_cpu, "State=DRAIN", "Hidden=YES"], [*of_cpu, "State=UP", "Hidden=NO"]
    with changed(slurm, down, up):
        cpu = Shell(slurm, "alice").discover(probe=False).partition("cpu")
    assert cpu.state == "DRAIN"
    assert cpu.note == "hidden"


def test_a_new_reading_makes_a_version_only_when_facts_changed(slurm: Sandbox, tmp_path: Path):
    engine = open_engine(tmp_path / "isched.db")
    prepare(engine)
    shell = Shell(slurm, "alice")
    database = CIDatabase(engine, user=shell.login)
    database.load_catalog()
    first = database.sync("testbed", shell.discover(), like="pitzer")
    assert first.charge.usd_per_unit == pytest.approx(0.003)
    assert first.accounts == ("research",)
    count = len(database.versions("testbed"))
    again = database.sync("testbed", shell.discover(NOW + 10))
    assert len(database.versions("testbed")) == count
    assert again.as_of == NOW + 10
    of_cpu = ["scontrol", "update", "PartitionName=cpu"]
    with changed(slurm, [*of_cpu, "MaxTime=7"], [*of_cpu, "MaxTime=10"]):
        third = database.sync("testbed", shell.discover(NOW + 20))
    assert third.partition("cpu").max_walltime_s == 420.0
    assert len(database.versions("testbed")) == count + 1
    assert database.get("testbed", count).partition("cpu").max_walltime_s == 600.0
    assert origin(third, "partitions.cpu.max_walltime_s") == third.provenance["cluster"]
    assert third.provenance["cluster"].confidence == LIVE
    engine.dispose()


def test_a_silent_controller_is_not_an_empty_cluster(slurm: Sandbox, tmp_path: Path):
    conf = tmp_path / "slurm.conf"
    nobody = ["ClusterName=testbed", "SlurmctldHost=localhost(127.0.0.1)", "SlurmctldPort=1", "MessageTimeout=2", "TCPTimeout=1"]
    conf.write_text("\n".join([*nobody, "NodeName=n1", "PartitionName=p Nodes=n1", ""]))

    def nowhere(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return slurm.run(list(argv), env={"SLURM_CONF": str(conf)}, check=False)

    with pytest.raises(BatchUnavailable, match=r"scontrol show config.*Unable to contact slurm controller"):
        discover(nowhere, "alice", NOW)


@pytest.fixture
def without_accounting(slurm_host: None) -> Iterator[Callable[[], Sandbox]]:
    made: list[Sandbox] = []

    def make() -> Sandbox:
        spec = replace(integration_spec(), cluster_name="plain", accounting=False, accounts=(), qos=(), preempt=False)
        spec = replace(spec, partitions=tuple(p for p in spec.partitions if not p.allow_accounts))
        made.append(Sandbox(spec, sandbox_name("n")))
        made[-1].up()
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.down()


def test_with_accounting_off_the_rest_is_still_there(without_accounting: Callable[[], Sandbox]):
    shell = Shell(without_accounting(), "alice")
    found = shell.discover()
    assert found.accounts == ()
    assert found.default_account is None
    assert {p.name for p in found.partitions} == {"gpudebug", "gpu", "cpu"}
    assert all(p.access is not None and p.access.allowed for p in found.partitions)
    assert not [a for a in shell.asked if a[0] == "sacctmgr"]
