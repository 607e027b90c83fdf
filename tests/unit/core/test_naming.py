from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.naming import gpus_of_gres, node_type_name


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:v100:2(S:0-1)", {"v100": 2}), ("gpu:2", {"": 2}), ("gpu", {"": 1}), ("gpu:h100", {"h100": 1}), ("(null)", {}), ("", {}),
        ("gpu:a100_3g.20gb:2,nvme:1", {"a100_3g.20gb": 2}), ("nvme:1,gpu:h100:4(S:0,2)", {"h100": 4}), ("vgpu:3", {}),
        ("gpu:v100:0(IDX:N/A)", {}), ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)", {"a100": 2, "v100": 1}),
        ("gpu:nvidia_a100-pcie-40gb:4", {"nvidia_a100-pcie-40gb": 4}),
    ],
)  # fmt: skip
def test_gpus_of_a_gres_text(gres: str, gpus: dict[str, int]) -> None:
    assert gpus_of_gres(gres) == gpus


@pytest.mark.parametrize(
    ("cpus", "memory_mb", "gres", "features", "name"),
    [
        (48, 393216, "gpu:v100:2", (), "v100x2-48c-384g"),
        (48, 196608, "(null)", ("v100",), "cpu-48c-192g"),
        (64, 515072, "gpu:4", ("ib", "a100"), "a100x4-64c-503g"),
        (64, 515072, "gpu:4", ("ib",), "gpux4-64c-503g"),
        (8, 16000, "gpu:A100_3g.20gb:1", (), "a100_3g.20gbx1-8c-16g"),
    ],
)
def test_names(cpus: int, memory_mb: int, gres: str, features: tuple[str, ...], name: str) -> None:
    assert node_type_name(cpus, memory_mb, gres, features) == name


@given(st.text(max_size=60), st.lists(st.text(max_size=10), max_size=3))
def test_any_text_gives_a_name_without_spaces(gres: str, features: list[str]) -> None:
    name = node_type_name(4, 4096, gres, tuple(features))
    assert name.endswith("-4c-4g")
    assert not any(c.isspace() or c in "/:," for c in name)
