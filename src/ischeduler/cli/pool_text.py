"""A live pool's status as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ischeduler.cli import output
from ischeduler.core.durations import human

DOES = {"amend": "steer in the queue", "move": "save and move", "yield": "save and queue anew"}

if TYPE_CHECKING:
    from ischeduler.helper.pool_status import MemberRow, PoolStatus
    from ischeduler.plane.pools.steer import QueueChange


def show_status(pool: PoolStatus) -> None:
    """Head, types, members, pilots, remarks."""
    turn = "no rounds now" if pool.next_round_s is None else f"round {pool.round}, the next in {human(pool.next_round_s)}"
    output.line(f"{output.style(pool.name, 'bold')}  {pool.state.upper()}  {pool.policy}  {turn} (every {human(pool.round_s)})")
    output.line(f"  {pool.rule}")
    rows = [(t.type, t.where, f"{t.pilots}/{t.most}", str(t.waiting), str(t.held), str(t.idle)) for t in pool.types]
    output.table(("TYPE", "WHERE", "PILOTS", "QUEUED", "HELD", "IDLE"), rows, right=(2, 3, 4, 5), indent="  ")
    if pool.members:
        header = ("MEMBER", "NAME", "STATE", "ON", "NODE", "WEIGHT", "PROMISED", "GOT", "STEPS/S", "STARTS")
        output.table(header, [_member(m) for m in pool.members], right=(5, 9), indent="  ")
    if pool.pilots:
        rows = [(p.run_id, p.type, p.state, p.node or "-", _span(p.remaining_s), _span(p.idle_s)) for p in pool.pilots]
        output.table(("PILOT", "TYPE", "STATE", "NODE", "LASTS", "IDLE FOR"), rows, indent="  ")
    for words in pool.remarks:
        output.line(f"  {words}")
    for member in pool.members:
        for words in member.remarks:
            if "kept" not in words:
                output.line(f"  {member.run_id} {words}")


def show_changes(changes: Sequence[QueueChange], *, dry_run: bool) -> None:
    """What is (or would be) changed in the queue, and why."""
    if not changes:
        output.line("Nothing is to be changed.")
        return
    rows = [(c.run_id, c.job_id, DOES[c.kind], f"{c.here} → {c.to}" if c.to != c.here else c.here, _exactly(c), c.why) for c in changes]
    output.table(("MEMBER", "JOB", "WHAT", "TYPE", "EXACTLY", "WHY"), rows, indent="  ")
    if dry_run:
        output.note("dry run: nothing was changed.")


def _exactly(c: QueueChange) -> str:
    if c.change is None:
        return f"to {c.plan.where} at a checkpoint" if c.plan is not None else "-"
    given = {name: getattr(c.change, name) for name in ("partition", "features", "gres", "nice", "site_factor", "walltime_s")}
    return " ".join(f"{name}={_value(value)}" for name, value in given.items() if value is not None)


def _value(value: object) -> str:
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _member(m: MemberRow) -> tuple[str, ...]:
    rates = " ".join(f"{t}={x:.3g}" for t, x in m.rates.items() if x > 0)
    on = f"{m.type} x{m.gpus}" if m.gpus > 1 else m.type or "-"
    return (m.run_id, m.name or "-", m.state, on, m.node or "-", f"{m.weight:g}", _shares(m.promised), _shares(m.received), rates, str(m.starts))


def _shares(shares: Mapping[str, float]) -> str:
    return " ".join(f"{t}={x:.0%}" for t, x in shares.items() if x >= 0.005) or "-"


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else human(seconds)
