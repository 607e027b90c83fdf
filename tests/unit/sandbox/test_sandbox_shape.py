"""Specs: checked before anything starts, and shaped after CI-database entries."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput
from ischeduler.sandbox.shape import demo_spec, spec_from_cluster
from ischeduler.sandbox.spec import SandboxAccount, SandboxNode, SandboxQos, SandboxSpec, check_sandbox_name, validate

V100 = Accelerator("v100-32g", 32 * 2**30, gres="v100")


def pitzer() -> Cluster:
    gpu = NodeType("gpu-48core", 48, 373 * 2**30, V100, 2, 42)
    cpu = NodeType("cpu-40core", 40, 177 * 2**30, count=224)
    huge = NodeType("hugemem", 80, 2989 * 2**30, count=1)
    idle = NodeType("unused", 8, 2**30, count=5)
    return Cluster(
        "pitzer",
        partitions=(
            Partition("debug-gpu", ("gpu-48core",), 3600, max_nodes=2, debug=True, max_jobs_user=1, max_submit_user=4),
            Partition("gpu", ("gpu-48core",), 7 * 86400.0),
            Partition("cpu", ("cpu-40core",), 4 * 86400.0, default_walltime_s=3600),
            Partition("mixed/all", ("cpu-40core", "hugemem"), 1.0, allow_accounts=("PAS99",), whole_node=True),
            Partition("backfill", ("cpu-40core",), None, preemptible=True),
        ),
        node_types=(gpu, cpu, huge, idle),
        accounts=("PAS0001",),
    )


def test_the_shape_keeps_what_a_job_sees() -> None:
    spec = spec_from_cluster(pitzer(), minutes_per_hour=1)
    by_name = {p.name: p for p in spec.partitions}
    assert {n: p.max_time_min for n, p in by_name.items()} == {
        "debug-gpu": 1, "gpu": 168, "cpu": 96, "mixed-all": 1, "backfill": 24,
    }  # fmt: skip
    assert by_name["cpu"].default_time_min == 1
    assert [len(by_name[p].nodes) for p in ("gpu", "cpu", "mixed-all")] == [3, 3, 4]
    assert by_name["debug-gpu"].nodes == by_name["gpu"].nodes, "one hardware, two queues"
    gpu = spec.node(by_name["gpu"].nodes[0])
    assert (gpu.cpus, gpu.memory_mb, gpu.gres, gpu.gpus, gpu.gpu_type) == (48, 373 * 1024, "gpu:v100:2", 2, "v100")
    assert gpu.features == ("gpu-48core",)
    assert [p.name for p in spec.partitions if p.default] == ["gpu"]
    assert by_name["mixed-all"].exclusive
    assert by_name["mixed-all"].allow_accounts == ("PAS99",)
    assert spec.accounts == (SandboxAccount("PAS0001"), SandboxAccount("PAS99", ("carol",)))
    assert spec.qos == (SandboxQos("part-debug-gpu", max_jobs_per_user=1, max_submit_per_user=4),)
    assert by_name["debug-gpu"].qos == "part-debug-gpu"
    assert by_name["backfill"].preempt_mode == "REQUEUE"
    assert by_name["backfill"].priority_tier < by_name["cpu"].priority_tier
    assert spec.preempt
    assert not [n for n in spec.nodes if "unused" in n.features]


def test_unknown_facts_get_a_stated_filling() -> None:
    spec = spec_from_cluster(Cluster("new", partitions=(Partition("p", ("t",)),), node_types=(NodeType("t"),)))
    assert spec.nodes == (SandboxNode("t-001", 4, 4096, "", ("t",)),)
    assert spec.partitions[0].max_time_min == 24


def test_a_cluster_without_node_types_is_refused() -> None:
    with pytest.raises(BadInput, match="no partition with known node types"):
        spec_from_cluster(Cluster("empty", partitions=(Partition("p", ("t",)),)))


@example(walltime_s=None, count=None, name="_", minutes_per_hour=1.0)
@given(
    walltime_s=st.one_of(st.none(), st.just(math.inf), st.floats(1, 1e8)),
    count=st.one_of(st.none(), st.integers(0, 10_000)),
    name=st.text(min_size=1, max_size=20),
    minutes_per_hour=st.floats(0.01, 60),
)
def test_any_entry_gives_a_valid_spec_that_survives_json(
    walltime_s: float | None, count: int | None, name: str, minutes_per_hour: float
) -> None:
    cluster = Cluster(name, partitions=(Partition(name, (name,), walltime_s),), node_types=(NodeType(name, count=count),))
    spec = spec_from_cluster(cluster, minutes_per_hour=minutes_per_hour)
    assert validate(spec) == spec
    assert 1 <= len(spec.nodes) <= 3
    assert spec.partitions[0].max_time_min >= 1
    assert from_plain(SandboxSpec, to_plain(spec)) == spec


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partitions": ()}, "at least one node and one partition"),
        ({"cluster_name": "a b"}, "not a name Slurm takes"),
        ({"users": ("Alice",)}, "user 'Alice'"),
        ({"users": ()}, "at least one account and one user"),
        ({"nodes": (*demo_spec().nodes, SandboxNode("g01"))}, "given twice"),
        ({"partitions": demo_spec().partitions * 2}, "is given twice"),
        ({"nodes": (*demo_spec().nodes, SandboxNode("z", gres="gpu:2"))}, "expected gpu:TYPE:COUNT"),
        ({"nodes": (*demo_spec().nodes, SandboxNode("z", cpus=0))}, "at least one CPU"),
        ({"nodes": demo_spec().nodes[1:]}, "unknown node 'd01'"),
        ({"partitions": (replace(demo_spec().partitions[0], max_time_min=0),)}, "below one minute"),
        ({"partitions": (replace(demo_spec().partitions[0], nodes=()),)}, "has no nodes"),
        ({"partitions": tuple(replace(p, default=True) for p in demo_spec().partitions)}, "more than one partition"),
        ({"accounts": (SandboxAccount("a", ("dave",)),)}, "unknown member 'dave'"),
        ({"qos": (SandboxQos("q"),), "accounting": False}, "QOS need accounting"),
        ({"enforce_part_limits": "YES"}, "expected ALL, ANY or NO"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said_in_one_sentence(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput) as refused:
        validate(replace(demo_spec(), **change))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_demo_is_valid_with_any_limits() -> None:
    spec = validate(demo_spec(debug_min=2, gpu_min=4, cpu_min=6))
    assert [p.max_time_min for p in spec.partitions] == [2, 4, 6]
    with pytest.raises(BadInput, match="no node 'x'"):
        spec.node("x")


@pytest.mark.parametrize("name", ["", "Default", "1st", "a/b", "..", "x" * 17, "a b", "a\n"])
def test_a_sandbox_name_never_leaves_its_directory(name: str) -> None:
    with pytest.raises(BadInput):
        check_sandbox_name(name)
