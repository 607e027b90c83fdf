"""Tokens compare as pairs; the fence only goes up, whoever writes last."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.training.rundir import Claim, RunDir
from ischeduler.training.token import Token, raise_fence, read_fence, restart_count

tokens = st.builds(Token, st.integers(1, 999), st.integers(0, 99))


@given(tokens, tokens)
def test_order_is_by_attempt_then_restart(a: Token, b: Token) -> None:
    assert (a < b) == ((a.attempt, a.restart) < (b.attempt, b.restart))
    assert Token.parse(str(a)) == a


def test_ten_is_newer_than_nine() -> None:
    assert Token.parse("10.0") > Token.parse("9.9")


@pytest.mark.parametrize("text", ["", "3", "3.", "a.b", "3.0.1", "-1.0", "3.0x"])
def test_foreign_text_is_no_token(text: str) -> None:
    assert Token.try_parse(text) is None
    with pytest.raises(ValueError, match="not a token"):
        Token.parse(text)


def test_restart_count_comes_from_slurm() -> None:
    assert restart_count({"SLURM_RESTART_COUNT": "2"}) == 2
    assert restart_count({}) == 0
    assert restart_count({"SLURM_RESTART_COUNT": "(null)"}) == 0


def test_fence_only_goes_up(tmp_path: Path) -> None:
    assert read_fence(tmp_path) is None
    assert raise_fence(tmp_path, Token(2)) == Token(2)
    assert raise_fence(tmp_path, Token(1, 5)) == Token(2)
    assert raise_fence(tmp_path, Token(2, 1)) == Token(2, 1)
    assert read_fence(tmp_path) == Token(2, 1)
    assert (tmp_path / "fence").read_text() == "2.1\n"


def test_a_lost_update_of_the_file_does_not_lower_the_fence(tmp_path: Path) -> None:
    """Two wrappers read 'no fence', and the older one renames last: the newer one's claim still counts."""
    run_dir = RunDir(tmp_path)
    run_dir.claim(Token(4), Claim.mine("44"))
    (tmp_path / "fence").write_text("3.0\n")
    assert read_fence(tmp_path) == Token(4)


@pytest.mark.parametrize("content", [b"", b"3.", b"\xff\xfe", b"garbage\n"])
def test_a_torn_fence_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "fence").write_bytes(content)
    assert read_fence(tmp_path) is None
    assert raise_fence(tmp_path, Token(1)) == Token(1)


def test_raising_leaves_no_litter(tmp_path: Path) -> None:
    raise_fence(tmp_path, Token(1))
    assert [path.name for path in tmp_path.iterdir()] == ["fence"]
