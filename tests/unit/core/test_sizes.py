"""Memory sizes as Slurm and people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import GIB, KIB, MIB, TIB, format_slurm_size, human_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("4000", 4000 * MIB), ("16G", 16 * GIB), ("16GB", 16 * GIB), ("24 GiB", 24 * GIB), ("1.5T", 3 * TIB // 2), ("512K", 512 * KIB),
     ("512B", 512), ("1g", GIB), ("0", 0)],
)  # fmt: skip
def test_reads(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "1X", "1 G B", "1iB", "1e3", "٣G", "9" * 400])
def test_refuses(text: str) -> None:
    with pytest.raises(BadInput, match="is not a memory size; expected"):
        parse_size(text)


@given(st.integers(1, 2**50))
def test_a_request_never_shrinks_and_grows_by_less_than_a_mebibyte(size: int) -> None:
    asked = parse_size(format_slurm_size(size))
    assert size <= asked < size + MIB


@given(st.integers(20 * MIB, 2**48))
def test_the_short_spelling_is_within_five_percent(size: int) -> None:
    assert parse_size(human_size(size)) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    ("size", "words"), [(32 * GIB, "32 GB"), (int(23.1 * GIB), "23.1 GB"), (512 * MIB, "512 MB"), (3072 * GIB, "3072 GB"), (0, "0 MB")]
)
def test_short_spelling(size: int, words: str) -> None:
    assert human_size(size) == words


@given(st.text(max_size=10))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except BadInput:
        pass
