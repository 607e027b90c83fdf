"""``isched pool create`` and the other verbs of live pools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.cli.workload_options import takes_workload
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human, parse_human
from ischeduler.core.pool import Pool

Name = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")]
Time = "TIME"
FACTOR_HELP = "Slurm's SiteFactor for waiting members whose turn it is (--mode steer); needs an operator's rights."
PILOT_HELP = "A type of accelerators and what a pilot of it asks for: count, gpus, cpus, memory, walltime, gres, account, qos."


def register(app: typer.Typer) -> None:
    """Add the verbs to ``isched pool``."""
    for verb in (create, add, status, steer, policy, remove, drain, resume, delete):
        app.command()(verb)
    app.command("list")(list_pools)


def create(
    name: Name,
    pilot: Annotated[list[str], typer.Option("--pilot", metavar="TYPE=CLUSTER/PARTITION[,KEY=VALUE]...", help=PILOT_HELP)],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="Who gets what; see isched pool simulate.")] = "max_min_fairness_perf",
    mode: Annotated[str, typer.Option("--mode", help="pilots, or steer: without allocations of its own, members' jobs are steered.")] = "pilots",
    round_: Annotated[str | None, typer.Option("--round", metavar=Time, help="Length of a round (6m; steer: 45m).", show_default=False)] = None,
    restart: Annotated[str, typer.Option("--restart", metavar=Time, help="What a move costs a member.")] = "30s",
    idle: Annotated[str, typer.Option("--idle", metavar=Time, help="Accelerators that nobody uses for so long go back.")] = "10m",
    directory: Annotated[Path | None, typer.Option("--directory", metavar="DIR", help="On the nodes' shared file system (the data folder).")] = None,
    site_factor: Annotated[int, typer.Option("--site-factor", metavar="N", help=FACTOR_HELP, show_default=False)] = 0,
    as_json: Json = False,
) -> None:
    """Make a pool: runs that share several types of accelerators by a policy, in allocations (pilots) of the pool's own."""
    from ischeduler.helper.live_pools import Shape
    from ischeduler.helper.live_pools import create as make

    span = round_ or ("45m" if mode == "steer" else "6m")
    times = {"round_s": parse_human(span), "restart_s": parse_human(restart), "idle_s": parse_human(idle)}
    shape = Shape(policy, pilot, mode, directory=directory, site_factor=site_factor, **times)
    _told(make(session(), name, shape), "made", as_json)


@takes_workload
def add(
    workload: dict[str, Any],
    pool: Name,
    source: Annotated[str | None, typer.Argument(metavar="[RUN|SCRIPT]", help="A run of yours, or a script for a new one.", show_default=False)] = None,
    weight: Annotated[float, typer.Option("--weight", metavar="W", help="Its weight in the policy.")] = 1.0,
    keep_place: Annotated[bool, typer.Option("--keep-place", help="Never interrupt it: it keeps its accelerators until it ends.")] = False,
    rate: Annotated[str, typer.Option("--rate", metavar="TYPE=STEPS,...", help="Its steps per second by type; 0: does not run there.")] = "",
    only: Annotated[str, typer.Option("--type", metavar="TYPE", help="Only ever on this type.")] = "any",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Its entity, for hierarchical policies.")] = "",
    as_json: Json = False,
) -> None:
    """Let a run be a member of a pool: one of yours, or a new one of a script."""
    from ischeduler.helper import live_pools
    from ischeduler.helper.pools import number_pairs

    here = session()
    joining = live_pools.Joining(weight, not keep_place, number_pairs(rate, "--rate") if rate else None, only, group)
    run = live_pools.add(here, pool, source, workload, joining, {})
    here.tick_if_free()
    here.ensure_plane()
    if as_json:
        output.document("isched.run/1", {"run": to_plain(here.run(run.id).status(look=False))})
        return
    output.line(f"{output.style('✓', 'green')} run {output.style(run.id, 'bold')} is a member of {pool}")
    output.hints([("status", f"isched pool status {pool}"), ("why", f"isched why {run.id}"), ("logs", f"isched logs -f {run.id}")])


DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be changed in the queue, and why; change nothing.")]


def steer(name: Name, dry_run: DryRun = False, as_json: Json = False) -> int:
    """Begin a round of a pool without pilots now: steer members that wait, move those that run at a checkpoint. Exit code 1 when a change failed."""
    from ischeduler.cli.pool_text import show_changes

    here, problems = session(), list[str]()
    here.tick_if_free()
    found = here.services.pools.steer(name, dry_run=dry_run, whole=True, problems=problems)
    here.ensure_plane()
    if as_json:
        body = {"pool": name, "dry_run": dry_run, "changes": to_plain(found.changes), "problems": problems, "trouble": found.pool.trouble}
        output.document("isched.pool-steer/1", body)
    else:
        show_changes(found.changes, dry_run=dry_run)
        for words in problems or ([found.pool.trouble] if found.pool.trouble else []):
            output.note(words)
    return 1 if problems else 0


def status(name: Name, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Where a pool stands: members, what each was promised and got, pilots, the next round."""
    if dry_run:
        steer(name, dry_run=True, as_json=as_json)
        return
    from ischeduler.cli.pool_text import show_status
    from ischeduler.helper.pool_status import pool_status

    here = session()
    here.tick_if_free()
    found = pool_status(here, name)
    if as_json:
        output.document("isched.pool-status/1", {"pool": to_plain(found)})
        return
    show_status(found)
    for trouble in here.troubles:
        output.note(trouble)


def policy(
    name: Name,
    which: Annotated[str, typer.Argument(metavar="POLICY", help="The new policy.")],
    round_: Annotated[str | None, typer.Option("--round", metavar=Time, help="Another length of rounds.", show_default=False)] = None,
    idle: Annotated[str | None, typer.Option("--idle", metavar=Time, help="Another limit of idle accelerators.", show_default=False)] = None,
    site_factor: Annotated[int | None, typer.Option("--site-factor", metavar="N", help="Another SiteFactor; 0: none.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Give a pool another policy: a new round begins, and promises begin anew."""
    from ischeduler.helper.live_pools import set_policy

    spans = {"round_s": parse_human(round_) if round_ else None, "idle_s": parse_human(idle) if idle else None}
    _told(set_policy(session(), name, which, **spans, site_factor=site_factor), "follows another policy", as_json)


def remove(name: Name, run: Annotated[str, typer.Argument(metavar="RUN", help="A member's run.")], as_json: Json = False) -> None:
    """Let a member leave: it saves and waits; isched move lets it go on elsewhere."""
    from ischeduler.helper.live_pools import remove as leave

    _told(leave(session(), name, run), f"is without {run}", as_json)


def drain(name: Name, as_json: Json = False) -> None:
    """End a pool's rounds: members save and leave, pilots go back. The runs can go on."""
    from ischeduler.helper import live_pools

    here = session()
    made = live_pools.drain(here, name)
    here.tick_if_free()
    here.ensure_plane()
    _told(made, "is being drained", as_json)


def resume(name: Name, as_json: Json = False) -> None:
    """Take a drained pool up again."""
    from ischeduler.helper import live_pools

    here = session()
    made = live_pools.resume(here, name)
    here.tick_if_free()
    here.ensure_plane()
    _told(made, "goes on", as_json)


def delete(name: Name, as_json: Json = False) -> None:
    """Forget a pool that was drained."""
    from ischeduler.helper import live_pools

    live_pools.delete(session(), name)
    if as_json:
        output.document("isched.pool-deleted/1", {"pool": name})
    else:
        output.line(f"{output.style('✓', 'green')} pool {name} is forgotten")


def list_pools(as_json: Json = False) -> None:
    """List your pools."""
    from ischeduler.helper.live_pools import pools_of

    found = pools_of(session())
    if as_json:
        output.document("isched.pools/1", {"pools": [to_plain(p) for p in found]})
        return
    if not found:
        output.line("No pools yet: isched pool create NAME --pilot TYPE=CLUSTER/PARTITION")
        return
    rows = [(p.name, p.state.value, p.policy, ",".join(p.types), str(len(p.members)), str(len(p.pilots)), human(p.round_s)) for p in found]
    output.table(("POOL", "STATE", "POLICY", "TYPES", "MEMBERS", "PILOTS", "ROUND"), rows, right=(4, 5, 6))


def _told(pool: Pool, words: str, as_json: bool) -> None:
    if as_json:
        output.document("isched.pool/1", {"pool": to_plain(pool)})
        return
    output.line(f"{output.style('✓', 'green')} pool {output.style(pool.name, 'bold')} {words}: {pool.policy} over {', '.join(pool.types)}")
    if not pool.members:
        output.hints([("add a run", f"isched pool add {pool.name} train.py")])


