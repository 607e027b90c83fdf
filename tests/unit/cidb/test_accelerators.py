"""GRES types become cards of the datasheet table, with the doubt said where a name leaves one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.cidb.accelerators import accelerators, by_gres
from ischeduler.core.sizes import GIB


@pytest.mark.parametrize(
    ("gres", "features", "name"),
    [
        ("v100-32g", (), "v100-32g"),
        ("tesla_v100-sxm2-32gb", (), "v100-32g"),
        ("nvidia_a100_80gb_pcie", (), "a100-80g"),
        ("nvidia_h100_80gb_hbm3", (), "h100-80g"),
        ("nvidia_h200", (), "h200-141g"),
        ("a40", (), "a40"),
        ("l40s", (), "l40s"),
        ("tesla_t4", (), "t4"),
        ("quadro_rtx_5000", (), "rtx5000"),
        ("gh200", (), "gh200-96g"),
        ("mi100", (), "mi100-32g"),
        ("a100", ("a100-80g", "rack2"), "a100-80g"),
        ("", ("ib", "a100-40g"), "a100-40g"),
        ("a100_3g.20gb", (), "a100-mig-3g.20gb"),
        ("nvidia_h100_80gb_hbm3_1g.10gb", (), "h100-mig-1g.10gb"),
    ],
)
def test_a_name_that_leaves_no_doubt(gres: str, features: tuple[str, ...], name: str):
    card, doubt = by_gres(gres, features)
    assert (card.name, doubt) == (name, "")
    assert card.gres == (gres or None)


@pytest.mark.parametrize(("gres", "smallest"), [("v100", "v100-16g"), ("a100", "a100-40g"), ("h100", "h100-80g")])
def test_of_several_sizes_the_smallest_is_assumed_and_said(gres: str, smallest: str):
    card, doubt = by_gres(gres)
    assert card.name == smallest
    assert "smallest is assumed" in doubt


def test_a_slice_has_its_own_memory_and_no_peak():
    card, _ = by_gres("a100_3g.20gb")
    assert card.memory_bytes == 20 * GIB
    assert card.fp32_flops is None


@pytest.mark.parametrize("gres", ["", "quantum9000", "gpu"])
def test_an_unknown_card_has_unknown_memory(gres: str):
    card, doubt = by_gres(gres)
    assert card.memory_bytes == 0
    assert "not known" in doubt


def test_the_table_is_sane():
    for name, card in accelerators().items():
        assert card.name == name
        assert 8 * GIB < card.memory_bytes < 256 * GIB
        assert card.fp32_flops is not None
        peaks = [p for p in (card.tf32_flops, card.bf16_flops, card.fp16_flops) if p is not None]
        assert all(p > card.fp32_flops for p in peaks)
        assert card.bandwidth_bytes_s is None or 2e11 < card.bandwidth_bytes_s < 1e13


@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=3))
def test_any_text_gives_a_card(gres: str, features: list[str]):
    card, doubt = by_gres(gres, tuple(features))
    assert card.memory_bytes > 0 or doubt
