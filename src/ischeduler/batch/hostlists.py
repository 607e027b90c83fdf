"""Slurm's hostlists (``g[01-03,07]``) as names and back, by ClusterShell; Slurm's words for nothing are the empty tuple."""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.core.errors import BadInput

_NOTHING = frozenset({"", "(null)", "None assigned", "N/A", "None", "n/a"})


def expand(text: str) -> tuple[str, ...]:
    """All names in order. BadInput when it is no hostlist."""
    if text.strip() in _NOTHING:
        return ()
    if text.isascii() and not any(c in text for c in "[]@!&^%, \t"):
        return (text.strip(),)
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(str(name) for name in NodeSet(text, resolver=None))
    except NodeSetException as error:
        raise BadInput(f"'{text}' is not a hostlist ({error}); expected e.g. g[01-03,07].") from None


def fold(names: Iterable[str]) -> str:
    """The shortest hostlist of the names; '' for none."""
    items = tuple(names)
    if len(items) < 2:
        return "".join(items)
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(list(items), resolver=None))
