"""What a pool's pilots ask for, and what a member may ask of them: one sentence for whatever is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.pool import Pool, PoolPlace
from ischeduler.core.workload import Workload
from ischeduler.helper.live_pools import member_plan
from ischeduler.helper.pool_places import parse_place

GIB = 2**30
NODES = (
    NodeType("v100x2", cores=40, memory_bytes=380 * GIB, accelerator=Accelerator("v100-16g", 16 * GIB, gres="v100"), accelerators_per_node=2),
    NodeType("v100x4", cores=48, memory_bytes=760 * GIB, accelerator=Accelerator("v100-32g", 32 * GIB, gres="v100-32"), accelerators_per_node=4),
)
PITZER = Cluster("pitzer", partitions=(Partition("gpu", ("v100x2", "v100x4"), max_walltime_s=2 * 3600.0),), node_types=NODES)


def parse(text: str, live: tuple[str, ...] = ("pitzer",)) -> PoolPlace:
    return parse_place(text, lambda name: PITZER, live)


def test_what_is_not_said_is_the_node_whose_accelerator_is_called_so():
    place = parse("v100=pitzer/gpu")
    assert (place.node_type, place.gpus_per_node, place.cpus_per_node, place.memory_bytes) == ("v100x2", 2, 40, 380 * GIB)
    assert (place.gres, place.walltime_s, place.count) == ("v100", 7200.0, 1)
    assert parse("V100-32g=gpu").node_type == "v100x4"


def test_what_is_said_counts():
    place = parse("v100=pitzer/gpu,count=3,gpus=1,cpus=4,memory=8G,walltime=30m,gres=v100,account=lab,price=1.5,features=a+b")
    assert (place.count, place.gpus_per_node, place.memory_bytes, place.walltime_s) == (3, 1, 8 * GIB, 1800.0)
    assert (place.account, place.price_per_h, place.features) == ("lab", 1.5, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v100", "write it as TYPE=CLUSTER/PARTITION"),
        ("any=pitzer/gpu", "write it as TYPE=CLUSTER/PARTITION"),
        ("v100=elsewhere/gpu", "no pilot can be had on elsewhere, which cannot be reached"),
        ("v100=pitzer/gpuu", "has no partition 'gpuu'"),
        ("v100=pitzer/gpu,cuont=2", "'cuont=2' is not KEY=VALUE"),
        ("v100=pitzer/gpu,count=0", "count=0 is wrong, expected a whole number from 1"),
        ("v100=pitzer/gpu,price=-1", "price=-1 is wrong"),
        ("v100=pitzer/gpu,walltime=9h", "over the limit of pitzer/gpu"),
        ("v100=pitzer/gpu,walltime=10s", "too short to hold anything"),
        ("v100=pitzer/gpu,node-type=k80", "no node type 'k80'"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, words: str):
    with pytest.raises(BadInput, match=words):
        parse(text)


POOL = Pool("lab", "me", "fifo", (PoolPlace("v100", "c", "gpu", gpus_per_node=2, cpus_per_node=8), PoolPlace("k80", "c", "old", gpus_per_node=4, cpus_per_node=8)), "/d", 0.0)
TRAINING = Workload(name="t", command=("python", "train.py"), gpus=1)


def test_a_member_asks_for_its_share_of_the_smallest_node_it_fits_on():
    assert member_plan(POOL, TRAINING).resources.cpus_per_node == 2
    plan = member_plan(POOL, TRAINING, "v100")
    assert (plan.cluster, plan.partition, plan.resources.cpus_per_node) == ("pool-lab", "v100", 4)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (replace(TRAINING, gpus=8), "asks for 8 accelerators and the largest pilot of lab has 4"),
        (replace(TRAINING, nodes=2), "asks for 2 nodes"),
        (replace(TRAINING, cpus=99), "asks for 99 cores and no pilot of lab has as many"),
        (replace(TRAINING, command=()), "has no command to run"),
    ],
)
def test_a_member_that_fits_no_pilot_is_refused(workload: Workload, words: str):
    with pytest.raises(BadInput, match=words):
        member_plan(POOL, workload)
