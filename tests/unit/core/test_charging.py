"""Charging rules: the paper's two figures, one worked example a site, and what must hold for any job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core import charging
from ischeduler.core.charging import RULES, Charged, charge_units, charge_usd
from ischeduler.core.cluster import Accelerator, ChargePolicy, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import Resources
from ischeduler.core.sizes import GIB

HOUR_S = 3600.0
CARD = Accelerator("card", 32 * GIB)
OSC = ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0})
TACC = ChargePolicy("node-hours-used", "SU", None, {"floor_h": 0.25})
DELTA = ChargePolicy(
    "reserved-share",
    "SU",
    None,
    {"memory_per_core_gib": 2.0, "cores_per_gpu": 16.0, "memory_per_gpu_gib": 62.5, "memory_per_gpu_gib@a100x8": 250.0},
)
ANVIL = ChargePolicy("reserved-share", "SU", None, {"memory_per_core_gib": 2.0, "memory_per_gpu_gib": 120.0})
EXPANSE = ChargePolicy("reserved-share", "SU", None, {"memory_per_core_gib": 2.0, "cores_per_gpu": 10.0})
BRIDGES2 = ChargePolicy("reserved-share", "SU", None, {"memory_per_core_gib": 2.0, "factor@h100": 2.0})


def job(
    hours: float,
    *,
    cores: int = 1,
    gpus: int = 0,
    nodes: int = 1,
    memory_gib: float | None = None,
    node: NodeType | None = None,
    factor: float = 1.0,
    whole: bool = False,
) -> Charged:
    resources = Resources(
        nodes=nodes, cpus_per_node=cores, gpus_per_node=gpus, memory_bytes=None if memory_gib is None else round(memory_gib * GIB)
    )
    partition = Partition("p", ("n",), charge_factor=factor, whole_node=whole)
    return Charged(partition, node or NodeType("n"), resources, hours * HOUR_S)


def gpu_node(name: str, cores: int, memory_gib: int, cards: int) -> NodeType:
    return NodeType(name, cores, memory_gib * GIB, CARD, cards)


class TestOsc:
    """RU = hours x (effective cores + 30 x GPUs); 1 RU = $0.003."""

    def test_the_papers_cpu_run(self):
        assert charge_usd(OSC, job(9, cores=28)) == pytest.approx(0.756)

    def test_the_papers_gpu_run(self):
        assert charge_usd(OSC, job(2, cores=28, gpus=1)) == pytest.approx(0.348)

    def test_memory_beyond_the_cores_share_counts_as_cores(self):
        node = NodeType("cpu-40c", 40, 160 * GIB)
        assert charge_units(OSC, job(1, cores=2, memory_gib=32, node=node)) == pytest.approx(8)
        assert charge_units(OSC, job(1, cores=10, memory_gib=32, node=node)) == pytest.approx(10)
        assert charge_units(OSC, job(1, cores=2, memory_gib=999, node=node)) == pytest.approx(40)

    def test_several_nodes_are_charged_whole(self):
        node = NodeType("cpu-40c", 40, 160 * GIB)
        assert charge_units(OSC, job(3, cores=4, nodes=2, node=node)) == pytest.approx(3 * 2 * 40)
        assert charge_units(OSC, job(3, cores=4, node=node, whole=True)) == pytest.approx(3 * 40)


class TestTacc:
    """SU = nodes x used hours, at least a quarter of an hour, times the queue's rate."""

    def test_lonestar6_a100(self):
        assert charge_units(TACC, job(2, nodes=2, cores=128, gpus=3, factor=3)) == pytest.approx(12)

    def test_a_short_job_pays_15_minutes(self):
        assert charge_units(TACC, job(1 / 60, nodes=4)) == pytest.approx(1.0)
        assert charge_units(TACC, job(0.25, nodes=4)) == pytest.approx(1.0)

    def test_a_job_that_never_started_pays_nothing(self):
        assert charge_units(TACC, job(0, nodes=4)) == 0

    def test_no_price_is_not_a_price_of_zero(self):
        assert charge_usd(TACC, job(1)) is None


class TestDelta:
    """Reserved: core-hours with 2 GB each; GPU-hours with 16 cores and 62.5 GB (250 GB on eight-way nodes)."""

    A100X4, A100X8 = gpu_node("a100x4", 64, 256, 4), gpu_node("a100x8", 128, 2048, 8)

    def test_cores_or_memory_whichever_is_more(self):
        node = NodeType("milan", 128, 256 * GIB)
        assert charge_units(DELTA, job(1, cores=16, memory_gib=16, node=node)) == pytest.approx(16)
        assert charge_units(DELTA, job(1, cores=16, memory_gib=64, node=node)) == pytest.approx(32)

    def test_one_a100_for_ten_hours(self):
        assert charge_units(DELTA, job(10, cores=16, gpus=1, memory_gib=60, node=self.A100X4)) == pytest.approx(10)

    def test_one_gpu_with_two_gpus_worth_of_cores_or_memory(self):
        assert charge_units(DELTA, job(1, cores=32, gpus=1, node=self.A100X4)) == pytest.approx(2)
        assert charge_units(DELTA, job(1, cores=1, gpus=1, memory_gib=125, node=self.A100X4)) == pytest.approx(2)

    def test_eight_way_nodes_have_more_memory_a_gpu_and_their_own_factor(self):
        eight = job(1, cores=16, gpus=1, memory_gib=250, node=self.A100X8, factor=1.5)
        assert charge_units(DELTA, eight) == pytest.approx(1.5)

    def test_interactive_costs_double_and_preemptible_half(self):
        assert charge_units(DELTA, job(1, cores=16, gpus=1, node=self.A100X4, factor=2)) == pytest.approx(2)
        assert charge_units(DELTA, job(1, cores=16, gpus=1, node=self.A100X4, factor=0.5)) == pytest.approx(0.5)


class TestAnvil:
    """Reserved: core-hours with about 2 GB, GPU-hours with about 120 GB; whole-node queues tie up all 128 cores."""

    def test_a_whole_node_is_128_core_hours(self):
        node = NodeType("milan", 128, 256 * GIB)
        assert charge_units(ANVIL, job(1, cores=4, node=node, whole=True)) == pytest.approx(128)
        assert charge_units(ANVIL, job(1, cores=4, node=node)) == pytest.approx(4)

    def test_highmem_costs_four_times(self):
        node = NodeType("highmem", 128, 1024 * GIB)
        assert charge_units(ANVIL, job(1, cores=8, node=node, factor=4)) == pytest.approx(32)

    def test_two_gpus_for_three_hours(self):
        assert charge_units(ANVIL, job(3, cores=32, gpus=2, memory_gib=200, node=gpu_node("a100", 128, 512, 4))) == pytest.approx(
            6
        )


class TestExpanse:
    """Reserved: a shared node by the larger share, a GPU with its quarter of the cores, preempt at 0.8."""

    def test_a_quarter_of_a_shared_node(self):
        assert charge_units(EXPANSE, job(2, cores=16, memory_gib=64, node=NodeType("rome", 128, 256 * GIB))) == pytest.approx(64)

    def test_gpus_whole_and_shared(self):
        node = gpu_node("v100", 40, 384, 4)
        assert charge_units(EXPANSE, job(1, cores=10, gpus=1, node=node)) == pytest.approx(1)
        assert charge_units(EXPANSE, job(1, cores=20, gpus=1, node=node)) == pytest.approx(2)
        assert charge_units(EXPANSE, job(1, cores=1, gpus=1, node=node, whole=True)) == pytest.approx(4)
        assert charge_units(EXPANSE, job(10, cores=10, gpus=1, node=node, factor=0.8)) == pytest.approx(8)


class TestBridges2:
    """One SU a core-hour or GPU-hour, two an H100-hour."""

    def test_an_h100_costs_twice_a_v100_in_the_same_queue(self):
        assert charge_units(BRIDGES2, job(5, gpus=2, node=gpu_node("h100", 0, 0, 8))) == pytest.approx(20)
        assert charge_units(BRIDGES2, job(5, gpus=2, node=gpu_node("v100", 0, 0, 8))) == pytest.approx(10)

    def test_rm_is_always_128_cores(self):
        node = NodeType("rm", 128, 256 * GIB)
        assert charge_units(BRIDGES2, job(1, cores=1, nodes=2, node=node, whole=True)) == pytest.approx(256)


class TestPlugIns:
    """Rules of other packages, by entry point."""

    def test_a_packages_rule_is_found_by_name(self, monkeypatch: pytest.MonkeyPatch):
        def flat(charged: Charged, params: Any) -> float:
            return params["fee"]

        self.plug(monkeypatch, "flat-fee", lambda: flat)
        assert charge_usd(ChargePolicy("flat-fee", "jobs", 2.0, {"fee": 3.0}), job(1, factor=0.5)) == pytest.approx(3.0)

    def test_a_rule_that_does_not_load_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch):
        def broken() -> None:
            raise ImportError("no module named centre")

        self.plug(monkeypatch, "broken", broken)
        with pytest.raises(BadInput, match="'broken' of somewhere:rule does not load"):
            charge_units(ChargePolicy("broken"), job(1))

    def test_an_unknown_rule_names_the_known(self):
        with pytest.raises(BadInput, match=r"'magic' is unknown; expected one of .*node-hours-used"):
            charge_units(ChargePolicy("magic"), job(1))

    def plug(self, monkeypatch: pytest.MonkeyPatch, name: str, load: Any) -> None:
        class Point:
            value = "somewhere:rule"

            def load(self) -> Any:
                return load()

        def points(**wanted: str) -> tuple[Any, ...]:
            assert wanted == {"group": "ischeduler.charging", "name": name}
            return (Point(),)

        monkeypatch.setattr(charging, "RULES", dict(RULES))
        monkeypatch.setattr(charging, "entry_points", points)


@given(
    policy=st.sampled_from([OSC, TACC, DELTA, ANVIL, EXPANSE, BRIDGES2, ChargePolicy()]),
    hours=st.floats(0.5, 100),
    cores=st.integers(1, 128),
    gpus=st.integers(0, 4),
    nodes=st.integers(1, 8),
    memory=st.none() | st.floats(1, 500),
    cards=st.sampled_from([0, 4]),
)
def test_a_charge_grows_with_time_nodes_and_size(
    policy: ChargePolicy, hours: float, cores: int, gpus: int, nodes: int, memory: float | None, cards: int
):
    node = NodeType("n", 128, 512 * GIB, CARD if cards else None, cards)
    size: dict[str, Any] = {"cores": cores, "gpus": min(gpus, cards), "nodes": nodes, "memory_gib": memory, "node": node}
    units = charge_units(policy, job(hours, **size))
    assert units > 0 or (cards and not size["gpus"])
    assert charge_units(policy, job(hours * 2, **size)) == pytest.approx(units * 2)
    assert charge_units(policy, job(hours, **{**size, "nodes": nodes * 2})) >= units
    assert charge_units(policy, job(hours, **{**size, "cores": cores + 1})) >= units
    if memory is not None:
        assert charge_units(policy, job(hours, **{**size, "memory_gib": memory * 2})) >= units
