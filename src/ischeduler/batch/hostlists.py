"""Slurm's host lists (``g[01-03],c1``) to names and back, by ClusterShell's NodeSet."""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.core.errors import BadInput

_NOBODY = {"", "(null)", "none assigned", "n/a", "none", "unknown"}


def expand_hosts(text: str | None) -> tuple[str, ...]:
    """Node names in order; none for what Slurm prints where there are none (``(null)``, ``None assigned``)."""
    word = (text or "").strip()
    if word.lower() in _NOBODY:
        return ()
    if "[" not in word and "," not in word and word.replace("-", "").replace(".", "").replace("_", "").isalnum():
        return (word,)
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(word, resolver=_no_groups()))
    except NodeSetException as problem:
        raise BadInput(f"'{text}' is not a Slurm host list; expected e.g. node[01-04],gpu1 ({problem}).") from None


def fold_hosts(names: Iterable[str]) -> str:
    """The short spelling: ``g[01-03]``; empty for no names."""
    listed = [n for n in names if n]
    if not listed:
        return ""
    from ClusterShell.NodeSet import NodeSet

    nodes = NodeSet(resolver=_no_groups())
    for name in listed:
        nodes.add(name)
    return str(nodes)


def _no_groups() -> object:
    """ClusterShell's own groups (``@all``) come from site files; a batch system's names must not depend on them."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP

    return RESOLVER_NOGROUP
