from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.batch.hostlists import expand_hosts, fold_hosts
from ischeduler.core.errors import BadInput

hosts = st.builds("{}{:0{}d}".format, st.sampled_from(["g", "node-", "cpu.a", "x1y"]), st.integers(0, 999), st.integers(1, 4))


@given(st.lists(hosts, unique=True, max_size=12))
def test_folding_and_expanding_gives_the_same_nodes(names: list[str]) -> None:
    assert sorted(expand_hosts(fold_hosts(names))) == sorted(names)


@pytest.mark.parametrize("text", ["", None, "(null)", "None assigned", "N/A", "  "])
def test_no_nodes(text: str | None) -> None:
    assert expand_hosts(text) == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("g[01-03]", ("g01", "g02", "g03")),
        ("c1", ("c1",)),
        ("a1,b2", ("a1", "b2")),
        ("p[0101-0102,0110]", ("p0101", "p0102", "p0110")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_slurm_spellings(text: str, names: tuple[str, ...]) -> None:
    assert expand_hosts(text) == names


@pytest.mark.parametrize("text", ["g[01-", "g[2-1]"])
def test_a_broken_list_is_said(text: str) -> None:
    with pytest.raises(BadInput, match="not a Slurm host list"):
        expand_hosts(text)


def test_groups_of_the_site_are_not_looked_up() -> None:
    assert fold_hosts(["c02", "c01", ""]) == "c[01-02]"
