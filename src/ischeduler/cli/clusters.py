"""``isched clusters``: what is known of machines, limits and prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput, BatchUnavailable
from ischeduler.core.sizes import human_size
from ischeduler.helper.session import Session

app = typer.Typer(rich_markup_mode=None)


@app.command()
def clusters(
    what: Annotated[
        str | None, typer.Argument(metavar="[NAME|sync|edit|revert|export|import]", help="A cluster, or what to do.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]", help="The cluster, or the file to import.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--fact", metavar="PATH=VALUE", help="With edit: set one fact without an editor.")
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="NAME", help="With sync: prices and rules as on that cluster.")
    ] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each fact comes from.")] = False,
    as_json: Json = False,
) -> None:
    """List known clusters; show one; sync the live one (scontrol, sacctmgr); edit facts such as prices; export, import, revert."""
    here = session()
    if what == "sync":
        _sync(here, name, like, as_json)
    elif what in ("edit", "revert", "export", "import"):
        _change(here, what, name, sets or [], as_json)
    elif what is None:
        _list(here, as_json)
    else:
        _show(here, here.cluster(what), origin, as_json)


def _list(here: Session, as_json: bool) -> None:
    live, now = set(here.live), here.clock.now()
    known = here.clusters()
    if as_json:
        output.document("isched.clusters/1", {"clusters": [to_plain(c) for c in known]})
        return
    rows = [
        (
            c.name,
            c.centre or "-",
            "live" if c.name in live else "catalog",
            str(len(c.partitions)),
            str(sum(n.count or 0 for n in c.node_types) or "?"),
            _price(c),
            _age(c, now),
        )
        for c in known
    ]
    output.table(("CLUSTER", "CENTRE", "KIND", "PARTITIONS", "NODES", "PRICE", "FACTS FROM"), rows)
    for name in sorted(live - {c.name for c in known}):
        output.note(f"{name} is live but has not been read yet: isched clusters sync")


def _age(cluster: Cluster, now: float) -> str:
    """How old the newest fact is."""
    dates = [p.as_of for p in cluster.provenance.values()] + ([cluster.as_of] if cluster.as_of else [])
    return f"{human(max(0.0, now - max(dates)))} ago" if dates else "?"


def _show(here: Session, cluster: Cluster, origin: bool, as_json: bool) -> None:
    if as_json:
        output.document("isched.clusters/1", {"clusters": [to_plain(cluster)]})
        return
    known = f", accounts {', '.join(cluster.accounts)}" if cluster.accounts else ""
    output.line(
        f"{output.style(cluster.name, 'bold')}  {cluster.centre or ''} {cluster.batch} {cluster.version or ''}".rstrip() + known
    )
    output.line(f"charged by {cluster.charge.rule} in {cluster.charge.unit}, {_price(cluster)}")
    output.table(
        ("NODE TYPE", "NODES", "CORES", "MEMORY", "ACCELERATORS"), [_node_row(n) for n in cluster.node_types], indent="  "
    )
    header = ("PARTITION", "LIMIT", "NODES/JOB", "NODE TYPES", "CHAINING", "YOU", "NOTE")
    output.table(header, [_partition_row(p) for p in cluster.partitions], indent="  ")
    if origin:
        rows = [(path, p.source, p.confidence) for path, p in sorted(cluster.provenance.items())]
        output.table(("FACT", "SOURCE", "CONFIDENCE"), rows, indent="  ")
    for words in here.stale_words(cluster):
        output.note(f"Note: {words}")


def _node_row(n: NodeType) -> tuple[str, ...]:
    card = n.accelerator
    memory = human_size(card.memory_bytes) if card and card.memory_bytes else "memory unknown"
    cards = f"{n.accelerators_per_node} x {card.name} ({memory})" if card else "-"
    return (n.name, str(n.count or "?"), str(n.cores or "?"), human_size(n.memory_bytes) if n.memory_bytes else "?", cards)


def _partition_row(p: Partition) -> tuple[str, ...]:
    limit = human(p.max_walltime_s) if p.max_walltime_s is not None else "?"
    you = "?" if p.access is None else "accepted" if p.access.allowed else f"no: {p.access.reason}"
    state = "" if p.state == "UP" else f"{p.state} "
    return (
        p.name,
        limit,
        str(p.max_nodes or "any"),
        ", ".join(p.node_types),
        "yes" if p.chaining_allowed else "no",
        you,
        f"{state}{p.note}" or "-",
    )


def _price(c: Cluster) -> str:
    return (
        f"${c.charge.usd_per_unit:g} a {c.charge.unit}" if c.charge.usd_per_unit is not None else f"no price of a {c.charge.unit}"
    )


def _sync(here: Session, name: str | None, like: str | None, as_json: bool) -> None:
    names = [name] if name else list(here.services.batches)
    if not names:
        raise BatchUnavailable(f"no batch system answers here: {'; '.join(here.services.troubles) or 'none is configured'}.")
    found = [here.services.sync(n, like=like) for n in names]
    if as_json:
        output.document("isched.clusters/1", {"clusters": [to_plain(c) for c in found]})
        return
    for cluster in found:
        words = f"{cluster.name}: {len(cluster.partitions)} partitions, {len(cluster.node_types)} node types"
        output.line(f"{output.style('✓', 'green')} {words}")
        for partition in cluster.partitions:
            if partition.access and not partition.access.allowed:
                output.line(f"  {output.style('✗', 'red')} {partition.name}  {partition.access.reason}")


def _change(here: Session, what: str, name: str | None, sets: list[str], as_json: bool) -> None:
    if name is None:
        raise BadInput(f"say which: isched clusters {what} {'FILE' if what == 'import' else 'NAME'}.")
    if what == "export":
        output.text(here.services.cidb.export_yaml(here.services.cluster(name).name))
        return
    cluster, words = _changed(here, what, name, sets)
    if as_json:
        output.document("isched.clusters/1", {"clusters": [to_plain(cluster)]})
    else:
        output.line(f"{output.style('✓', 'green')} {cluster.name}: {words}")


def _changed(here: Session, what: str, name: str, sets: list[str]) -> tuple[Cluster, str]:
    from ischeduler.helper.cluster_edit import edit_in_editor, set_facts

    if what == "import":
        return here.services.cidb.import_yaml(Path(name).read_text(encoding="utf-8"), name), f"imported from {name}"
    if what == "revert":
        return here.services.cidb.revert(here.services.cluster(name).name), "your edits are undone"
    cluster, paths = set_facts(here, name, sets) if sets else edit_in_editor(here, name)
    return cluster, f"{', '.join(paths)} set by you" if paths else "nothing changed"
