"""What one job would ask for at each place."""

from __future__ import annotations

from dataclasses import replace

from planning_scenes import A100, CPU_NODE, GPU_NODE, HOUR, NOW, RESNET, pitzer

from ischeduler.core.cluster import Access, Cluster, NodeType, Partition
from ischeduler.core.sizes import GIB
from ischeduler.core.workload import Workload
from ischeduler.planning.candidates import Candidate, candidates

PLAIN = Workload(batch_size=32)


def one(workload: Workload, partition: Partition, *nodes: NodeType, **cluster: object) -> Candidate:
    """The only candidate of a cluster with one partition."""
    (found,) = candidates(workload, [Cluster("c", partitions=(partition,), node_types=nodes, **cluster)])  # type: ignore[arg-type]
    return found


def test_every_batch_size_at_every_partition_and_node_type() -> None:
    two = replace(pitzer(), partitions=(Partition("any", ("cpu", "v100x2")),))
    found = candidates(replace(PLAIN, batch_size=(32, 64)), [two, replace(pitzer(), name="owens")])
    assert len(found) == 2 * (2 + 3)
    assert len({c.key for c in found}) == len(found)
    assert list(found) == sorted(found, key=lambda c: c.key)


def test_one_gpu_by_default_and_as_many_as_asked() -> None:
    gpu = Partition("gpu", ("v100x2",))
    default = one(PLAIN, gpu, GPU_NODE).resources
    assert (default.gpus_per_node, default.gres, default.cpus_per_node) == (1, "v100", 24)
    both = one(replace(PLAIN, gpus=2), gpu, GPU_NODE).resources
    assert (both.gpus_per_node, both.cpus_per_node) == (2, 48)


def test_cpu_nodes_get_no_gpu_and_all_cores_the_partition_allows() -> None:
    found = one(PLAIN, Partition("cpu", ("cpu",), max_cores_per_node=38), CPU_NODE).resources
    assert (found.gpus_per_node, found.gres, found.cpus_per_node) == (0, None, 38)


def test_whole_nodes_are_taken_whole() -> None:
    whole = one(replace(PLAIN, cpus=4), Partition("normal", ("cpu",), whole_node=True), CPU_NODE).resources
    assert (whole.whole_node, whole.cpus_per_node) == (True, 40)
    several = one(replace(PLAIN, cpus=4), Partition("large", ("cpu",), min_nodes=4), CPU_NODE).resources
    assert (several.nodes, several.whole_node, several.cpus_per_node) == (4, True, 40)


def test_more_nodes_than_the_least_are_kept() -> None:
    assert one(replace(PLAIN, nodes=6), Partition("large", ("cpu",), min_nodes=4), CPU_NODE).resources.nodes == 6


def test_unknown_cores_are_not_guessed_from_nothing() -> None:
    assert one(replace(PLAIN, workers=3), Partition("p", ("mystery",))).resources.cpus_per_node == 4


def test_the_longest_job_is_the_partitions() -> None:
    assert one(PLAIN, Partition("p", ("cpu",), max_walltime_s=2 * HOUR), CPU_NODE).resources.walltime_s == 2 * HOUR


def test_memory_is_the_smaller_of_node_and_partition() -> None:
    assert one(PLAIN, Partition("p", ("cpu",), max_memory_bytes=100 * GIB), CPU_NODE).node_memory_bytes == 100 * GIB
    assert one(PLAIN, Partition("p", ("cpu",)), CPU_NODE).node_memory_bytes == 192 * GIB
    assert one(PLAIN, Partition("p", ("mystery",))).node_memory_bytes is None


def test_node_types_of_one_partition_are_told_apart_by_gres_or_feature() -> None:
    old, new = replace(CPU_NODE, name="old", features=("cpu", "c40")), replace(CPU_NODE, name="new", features=("cpu", "c48"))
    mixed = Cluster("c", partitions=(Partition("p", ("old", "new", "v100x2")),), node_types=(old, new, GPU_NODE))
    asked = {c.node_type.name: c.resources.features for c in candidates(PLAIN, [mixed])}
    assert asked == {"old": ("c40",), "new": ("c48",), "v100x2": ()}


def test_cards_of_different_type_need_no_feature() -> None:
    a100 = NodeType("a100x4", cores=64, accelerator=A100, accelerators_per_node=4, features=("a100",))
    both = Cluster("c", partitions=(Partition("gpu", ("v100x2", "a100x4")),), node_types=(GPU_NODE, a100))
    assert {c.resources.gres: c.resources.features for c in candidates(PLAIN, [both])} == {"v100": (), "a100": ()}


def test_an_account_that_the_partition_takes_is_chosen() -> None:
    partition = Partition("p", ("cpu",), allow_accounts=("lab2",))
    found = one(PLAIN, partition, CPU_NODE, accounts=("lab1", "lab2"), default_account="lab1")
    assert (found.account, found.account_given) == ("lab2", False)
    everyone = one(PLAIN, replace(partition, allow_accounts=("ALL",)), CPU_NODE, accounts=("lab1", "lab2"), default_account="lab1")
    assert everyone.account == "lab1"


def test_a_named_account_or_qos_is_taken_as_it_is() -> None:
    (found, *_) = candidates(RESNET, [pitzer()], accounts={"pitzer": "mine"}, qos={"pitzer": "high"})
    assert (found.account, found.account_given, found.qos) == ("mine", True, "high")


def test_a_partition_that_demands_a_qos_gets_one_of_its_own() -> None:
    assert one(PLAIN, Partition("p", ("cpu",), allow_qos=("debug",)), CPU_NODE).qos == "debug"
    assert one(PLAIN, Partition("p", ("cpu",), allow_qos=("debug", "long")), CPU_NODE).qos is None
    accepted = Partition("p", ("cpu",), allow_qos=("debug",), access=Access(True, "", NOW))
    assert one(PLAIN, accepted, CPU_NODE).qos is None


def test_access_is_no_part_of_the_key() -> None:
    open_to_me = Partition("p", ("cpu",), access=Access(True, "", NOW))
    assert one(PLAIN, open_to_me, CPU_NODE).key == ("c", "p", "cpu", 32)
