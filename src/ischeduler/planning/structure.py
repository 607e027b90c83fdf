"""Blockers that need no estimate: the place is closed, not open to this user, or has not what one job asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ischeduler.core.blocker import Blocker
from ischeduler.core.sizes import human_size
from ischeduler.core.snapshot import NodeCounts
from ischeduler.planning.candidates import NO_NODES, Candidate, allowed_cores, open_to
from ischeduler.planning.live import Live
from ischeduler.planning.offers import Offers

STATES = {
    "DOWN": "takes jobs but starts none",
    "DRAIN": "starts what is queued but takes no new jobs",
    "INACTIVE": "neither takes nor starts jobs",
}


def structural_blockers(candidate: Candidate, live: Live | None, offers: Offers) -> tuple[Blocker, ...]:
    """Everything that forbids this place before memory and time are looked at. What is unknown does not block."""
    return tuple(blocker for check in CHECKS for blocker in check(candidate, live, offers))


def count_of(number: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _or_elsewhere(advice: str, where: str) -> str:
    return f"{advice}, or {where}" if where else advice


def _state(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    state = c.partition.state.upper()
    if state == "UP":
        return
    words = STATES.get(state, "is not up")
    where = offers.name(c, lambda o: True)
    fix = f"use {where}" if where else f"wait until {c.cluster.centre or c.cluster.name} brings it up"
    yield Blocker("partition_state", f"partition is {state} ({words})", "", fix)


def _access(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    access = c.partition.access
    where = offers.name(c, lambda o: True)
    if access is not None and not access.allowed:
        kind = "qos" if "qos" in access.reason.lower() else "account"
        ask = f"ask {c.cluster.centre or 'the centre'} for access to {c.partition.name}"
        yield Blocker(kind, f"{c.cluster.name} says: {access.reason}", "", _or_elsewhere(ask, where))
    elif access is None and c.partition.restricted:
        fix = f"ask the batch system with: isched clusters sync {c.cluster.name}"
        yield Blocker("account", "partition is restricted and it is not known that it accepts you", "", _or_elsewhere(fix, where))


def _account(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    allowed = c.partition.allow_accounts
    proven = c.partition.access is not None and c.partition.access.allowed and not c.account_given
    if c.account_given and c.cluster.accounts and c.account not in c.cluster.accounts:
        yield Blocker("account", f"you have no account {c.account} on {c.cluster.name}", "", f"--account {c.cluster.accounts[0]}")
    elif c.account is not None and not proven and not open_to(c.partition, c.account):
        own = [a for a in c.cluster.accounts if open_to(c.partition, a)]
        fix = f"--account {own[0]}" if own else f"ask the owner of {allowed[0]} to add you"
        where = "" if own else offers.name(c, lambda o: o.account == c.account)
        words, need = f"account {c.account} is not among them", f"one of {', '.join(allowed)}"
        yield Blocker("account", words, need, _or_elsewhere(fix, where))


def _qos(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    allowed = c.partition.allow_qos
    if c.qos and allowed and "ALL" not in allowed and c.qos not in allowed:
        yield Blocker("qos", f"{c.qos} is not among them", f"QOS {' or '.join(allowed)}", f"--qos {allowed[0]}")


def _nodes(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    need, most, count = c.resources.nodes, c.partition.max_nodes, c.node_type.count
    have = min((n for n in (most, count) if n is not None), default=None)
    if have is None or need <= have:
        return
    words = f"partition allows {count_of(have, 'node')}" if have == most else f"there are {have} of {c.node_type.name}"
    where = offers.name(c, lambda o: True)
    fix = f"--nodes {have}" if have >= c.partition.min_nodes and have > 0 else "another partition"
    yield Blocker("nodes", words, count_of(need, "node"), _or_elsewhere(fix, where))


def _cores(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    need, have = c.resources.cpus_per_node, allowed_cores(c.partition, c.node_type)
    if have is None or need <= have:
        return
    where = offers.name(c, lambda o: o.resources.cpus_per_node >= need)
    yield Blocker("cores", f"a job may have {have}", f"{need} cores a node", _or_elsewhere(f"--cpus {have}", where))


def _gres(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    wanted, have = c.workload.gpus, c.node_type.accelerators_per_node
    if wanted == 0 and have:
        fix = _or_elsewhere("leave --gpus out", offers.name(c, lambda o: True))
        yield Blocker("gres", "these are GPU nodes and the workload asks for none", "", fix)
    elif wanted and wanted > have:
        where = offers.name(c, lambda o: o.node_type.accelerators_per_node >= wanted)
        own = f"--gpus {have} --nodes {-(-c.resources.nodes * wanted // have)}" if have else "--gpus 0 to train on CPU"
        words = f"a node has {have}" if have else "nodes have none"
        yield Blocker("gres", words, f"{count_of(wanted, 'GPU')} a node", f"{where}, or {own}" if where else own)


def _asked_memory(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    need, have = c.workload.memory_bytes, c.node_memory_bytes
    if need is None or have is None or need <= have:
        return
    where = offers.name(c, lambda o: (o.node_memory_bytes or 0) >= need, lambda o: float(o.node_memory_bytes or 0))
    fix = _or_elsewhere(f"--memory {have // 2**20}M", where)
    yield Blocker("host_memory", f"a job may have {human_size(have)}", f"{human_size(need)} a node as asked", fix)


def _user_limits(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    most_gpus = c.partition.max_gpus_user
    if most_gpus is not None and c.gpus > most_gpus:
        where = offers.name(c, lambda o: o.gpus > 0)
        fix = f"--gpus {most_gpus}" if c.resources.nodes == 1 and most_gpus else "fewer nodes"
        yield Blocker("user_limit", f"one user may have {most_gpus}", count_of(c.gpus, "GPU"), _or_elsewhere(fix, where))
    if c.partition.max_jobs_user == 0:
        fix = f"use {w}" if (w := offers.name(c, lambda o: True)) else f"ask {c.cluster.centre or 'the centre'} for a job limit"
        yield Blocker("user_limit", "one user may run no job here", "1 job", fix)
    yield from _submit_limits(c, live, offers)


def _submit_limits(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    if live is None:
        return
    here = sum(j.partition == c.partition.name for j in live.mine)
    for most, have, place in (
        (c.partition.max_submit_user, here, c.partition.name), (c.cluster.user_max_submit, len(live.mine), c.cluster.name),
    ):
        if most is not None and have >= most:
            where = offers.name(c, lambda o: o.partition.name != c.partition.name)
            fix = _or_elsewhere("wait for one of them to end, or isched cancel one", where)
            yield Blocker("user_limit", f"you have {have} of at most {most} jobs in {place}", "1 more", fix)


def _availability(c: Candidate, live: Live | None, offers: Offers) -> Iterator[Blocker]:
    if c.node_type.name == NO_NODES:
        yield Blocker("availability", "no node is known in this partition", "", f"isched clusters sync {c.cluster.name}")
        return
    usable = live.usable(c.partition.name, c.node_type.name) if live else None
    if live is None or usable is None or usable >= c.resources.nodes:
        return
    if live.all_down:
        elsewhere = offers.name(c, lambda o: o.cluster.name != c.cluster.name)
        fix = f"use {elsewhere}" if elsewhere else f"wait until {c.cluster.centre or c.cluster.name} brings it up"
        yield Blocker("availability", f"every node of {c.cluster.name} is down or drained", "", fix)
        return
    where = offers.name(c, lambda o: True)
    fix = f"use {where}" if where else "wait until nodes come back"
    down = down_words(live.counts(c.partition.name, c.node_type.name))
    yield Blocker("availability", f"{usable} usable ({down})", count_of(c.resources.nodes, "node"), fix)


def down_words(counts: tuple[NodeCounts, ...]) -> str:
    """``3 down, 1 drained``."""
    parts = [(sum(n.down for n in counts), "down"), (sum(n.drained for n in counts), "drained")]
    return ", ".join(f"{n} {word}" for n, word in parts if n) or "none more"


Check = Callable[[Candidate, Live | None, Offers], Iterator[Blocker]]
CHECKS: tuple[Check, ...] = (
    _state, _access, _account, _qos, _nodes, _cores, _gres, _asked_memory, _user_limits, _availability,
)
