"""Loading, copying and computing overlap; several devices add what does not hide behind the backward pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.estimators.steptime import collective
from ischeduler.estimators.steptime.pipeline import Input, Stages, stages

DATA = Input(stored_bytes=1e5, device_bytes=6e5, decode_s=8e-3, workers=4)
SECONDS = st.floats(0.0, 1.0)


@given(SECONDS, SECONDS, SECONDS)
def test_the_slowest_stage_sets_the_pace(load: float, copy: float, compute: float) -> None:
    pipe = Stages(load, copy, compute, workers=2)
    assert pipe.step_s == max(load, copy, compute)
    assert pipe.first_s >= load + copy + compute - 1e-12
    assert pipe.epoch_s(10) == pytest.approx(pipe.first_s + 9 * pipe.step_s)
    assert Stages(load, copy, compute).step_s == pytest.approx(load + max(copy, compute))
    assert replace(pipe, pinned=False).step_s == max(load, copy + compute)


def test_few_workers_starve_a_fast_card_and_more_feed_it() -> None:
    slow, fast = stages(DATA, 32, 0.04), stages(replace(DATA, workers=8), 32, 0.04)
    assert (slow.bottleneck, slow.step_s) == ("loading", pytest.approx(32 * 8e-3 / 4))
    assert (fast.bottleneck, fast.step_s) == ("computing" if 32 * 8e-3 / 8 < 0.04 else "loading", pytest.approx(0.04))
    assert stages(replace(DATA, workers=64), 32, 0.04, cores=4) == stages(DATA, 32, 0.04, cores=4)


def test_a_slow_file_system_is_felt_whatever_the_workers() -> None:
    assert stages(replace(DATA, storage_bytes_s=1e7, workers=64), 32, 0.04).step_s == pytest.approx(32 * 1e5 / 1e7)


def test_options_describe_loading_or_say_nothing() -> None:
    assert Input.of_options({"momentum": "0.9"}, 6e5) is None
    found = Input.of_options({"loader_workers": "8", "decode_s": "0.01", "pin_memory": "false"}, 6e5)
    assert found == Input(stored_bytes=6e5, device_bytes=6e5, decode_s=0.01, workers=8, pinned=False)
    with pytest.raises(BadInput, match="decode_s cannot be 'often'"):
        Input.of_options({"decode_s": "often"}, 6e5)
    with pytest.raises(BadInput, match="impossible"):
        stages(DATA, 0, 1.0)


def test_one_device_communicates_nothing() -> None:
    assert collective.exposed_s(1e9, 1, 1, collective.links_of("ampere"), 0.1) == 0.0


@given(st.integers(2, 8), st.integers(1, 16), st.floats(1e6, 4e9), st.floats(0.0, 2.0))
def test_hiding_never_hides_all_nor_adds(per_node: int, nodes: int, volume: float, backward: float) -> None:
    links = collective.links_of("volta")
    whole = collective.all_reduce_s(volume, per_node, nodes, links)
    shown = collective.exposed_s(volume, per_node, nodes, links, backward)
    assert shown > 0
    hidden_none = collective.exposed_s(volume, per_node, nodes, links, 0.0)
    assert shown <= hidden_none
    assert hidden_none >= whole * 0.999


def test_faster_links_scale_better() -> None:
    shown = {
        name: collective.exposed_s(4e8, 4, 1, collective.links_of("", inside=name), 0.01) for name in ("pcie3", "nvlink2", "nvlink4")
    }
    assert shown["pcie3"] > shown["nvlink2"] > shown["nvlink4"]
    assert 0.0 < collective.efficiency(0.1, shown["pcie3"]) < collective.efficiency(0.1, shown["nvlink4"]) < 1.0


def test_links_by_card() -> None:
    assert collective.links_of("ampere", "a100-40g").inside.name == "nvlink3"
    assert collective.links_of("ampere", "NVIDIA_A100-PCIE-40GB").inside.name == "pcie4"
    assert collective.links_of("kepler").inside.name == "pcie3"
    assert collective.links_of("hopper", between="ethernet-100g") == collective.Links(
        collective.LINKS["nvlink4"], collective.LINKS["ethernet-100g"], True
    )
