"""The configuration files are pure functions of the spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.render import cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from ischeduler.sandbox.shape import demo_spec
from ischeduler.sandbox.spec import SandboxPartition, SandboxQos, SandboxSpec

LAYOUT = Layout(Path("/srv/box"))


def ports_of(spec: SandboxSpec) -> Ports:
    return Ports(20001, 20002, 20003, {n.name: 20010 + i for i, n in enumerate(spec.nodes)})


def rendered(spec: SandboxSpec) -> str:
    return slurm_conf(spec, LAYOUT, ports_of(spec), hostname="host")


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith(("NodeName", "PartitionName"))]
    keys = [line.partition("=")[0] for line in lines]
    assert len(keys) == len(set(keys)), "a setting given twice"
    return {k: line.partition("=")[2] for k, line in zip(keys, lines, strict=True)}


def test_every_path_lies_in_the_sandbox_and_every_address_is_local() -> None:
    spec = demo_spec()
    text = rendered(spec) + gres_conf(spec, LAYOUT) + slurmdbd_conf(spec, LAYOUT, ports_of(spec))
    assert "/etc/slurm" not in text
    words = [w for w in text.replace("=", " ").replace(",", " ").split() if w.startswith("/")]
    assert len(words) > 10
    assert {w for w in words if not w.startswith("/srv/box/")} == {"/bin/true"}
    assert "SlurmctldHost=host(127.0.0.1)" in text
    assert "0.0.0.0" not in text


def test_nodes_have_their_own_port_and_the_pretended_size() -> None:
    lines = [line for line in rendered(demo_spec()).splitlines() if line.startswith("NodeName=")]
    assert lines[0] == (
        "NodeName=d01 NodeHostname=localhost NodeAddr=127.0.0.1 Port=20010 CPUs=8 RealMemory=16000 Gres=gpu:v100:2 "
        "Feature=v100 State=UNKNOWN"
    )
    assert "Gres" not in lines[-1]
    assert len({line.split("Port=")[1].split()[0] for line in lines}) == 5


def test_partitions_carry_their_limits() -> None:
    spec = demo_spec(debug_min=3)
    assert (
        "PartitionName=gpudebug Nodes=d01 MaxTime=3 Default=NO PriorityTier=1 MaxNodes=1 OverSubscribe=NO State=UP"
        in rendered(spec).splitlines()
    )
    full = SandboxPartition("x", ("d01",), 5, 2, True, 1, 7, ("a", "b"), ("q",), "pq", "REQUEUE", True)
    assert (
        "PartitionName=x Nodes=d01 MaxTime=5 Default=YES PriorityTier=7 DefaultTime=2 MaxNodes=1 AllowAccounts=a,b "
        "AllowQos=q QOS=pq PreemptMode=REQUEUE OverSubscribe=EXCLUSIVE State=UP"
    ) in rendered(replace(spec, partitions=(full,))).splitlines()


def test_gres_files_are_numbered() -> None:
    spec = demo_spec()
    one = replace(spec.nodes[0], name="one", gres="gpu:a100:1")
    text = gres_conf(replace(spec, nodes=(one, spec.nodes[1], spec.nodes[-1])), LAYOUT)
    assert text.splitlines() == [
        "AutoDetect=off",
        "NodeName=one Name=gpu Type=a100 File=/srv/box/gres/one-gpu0",
        "NodeName=g01 Name=gpu Type=v100 File=/srv/box/gres/g01-gpu[0-1]",
    ]


def test_accounting_off_names_no_slurmdbd_and_no_fair_share() -> None:
    on, off = settings(rendered(demo_spec())), settings(rendered(demo_spec(accounting=False)))
    assert on["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert on["AccountingStorageEnforce"] == "associations,limits,qos"
    assert off["AccountingStorageType"] == "accounting_storage/none"
    assert off["PriorityType"] == "priority/basic"
    assert not [k for k in off if k.startswith(("AccountingStorageHost", "AccountingStorageEnforce", "AccountingStorageTRES"))]


def test_switches() -> None:
    spec = demo_spec()
    assert settings(rendered(spec))["JobAcctGatherParams"] == "OverMemoryKill"
    assert "JobAcctGatherParams" not in settings(rendered(replace(spec, memory_kill=False)))
    assert "PreemptType" not in settings(rendered(spec))
    assert settings(rendered(replace(spec, preempt=True)))["PreemptType"] == "preempt/partition_prio"
    by_qos = replace(spec, preempt=True, qos=(SandboxQos("low"), SandboxQos("high", preempt=("low",))))
    assert settings(rendered(by_qos))["PreemptType"] == "preempt/qos"
    quick = settings(rendered(replace(spec, slurmd_timeout_s=77, kill_wait_s=9, min_job_age_s=33, requeue_delay_s=4)))
    assert (quick["SlurmdTimeout"], quick["KillWait"], quick["MinJobAge"]) == ("77", "9", "33")
    assert quick["AuthInfo"] == "socket=/srv/box/munge/socket,cred_expire=4"
    without_rest = replace(spec, rest=False)
    assert "jwt" in rendered(spec)
    assert "jwt" not in rendered(without_rest) + slurmdbd_conf(without_rest, LAYOUT, ports_of(spec))


@pytest.mark.parametrize(
    ("version", "says"), [((21, 8), "#"), ((22, 5), "CgroupPlugin=cgroup/v1"), ((23, 11), "CgroupPlugin=disabled")]
)
def test_slurmd_is_kept_from_looking_for_cgroups(version: tuple[int, int], says: str) -> None:
    assert cgroup_conf(version).startswith(says)
