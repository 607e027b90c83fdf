"""What belongs to one user of a cluster: accounts, submit limit, and which partitions took a probe of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, insert, select

from ischeduler.cidb.tables import ACCESS, USER_FACTS
from ischeduler.core.cluster import Access, Cluster


def write_user(connection: Connection, user: str, cluster: Cluster, now: float) -> None:
    """Replace the user's facts on a cluster by those the discovered cluster carries."""
    mine = (USER_FACTS.c.cluster == cluster.name) & (USER_FACTS.c.user == user)
    connection.execute(delete(USER_FACTS).where(mine))
    row = {
        "cluster": cluster.name,
        "user": user,
        "accounts": list(cluster.accounts),
        "default_account": cluster.default_account,
        "max_submit": cluster.user_max_submit,
        "as_of": cluster.as_of or now,
    }
    connection.execute(insert(USER_FACTS).values(row))
    connection.execute(delete(ACCESS).where(ACCESS.c.cluster == cluster.name, ACCESS.c.user == user))
    account = cluster.default_account or ""
    probes = [
        {
            "cluster": cluster.name,
            "partition": p.name,
            "user": user,
            "account": account,
            "allowed": p.access.allowed,
            "reason": p.access.reason,
            "as_of": p.access.as_of,
        }
        for p in cluster.partitions
        if p.access is not None
    ]
    if probes:
        connection.execute(insert(ACCESS), probes)


def read_user(connection: Connection, user: str, clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters with the user's own facts put in."""
    names = [c.name for c in clusters]
    query = select(USER_FACTS).where(USER_FACTS.c.user == user, USER_FACTS.c.cluster.in_(names))
    facts = {row.cluster: row for row in connection.execute(query)}
    probes: dict[tuple[str, str], Access] = {}
    seen = select(ACCESS).where(ACCESS.c.user == user, ACCESS.c.cluster.in_(names)).order_by(ACCESS.c.as_of)
    for row in connection.execute(seen):
        probes[row.cluster, row.partition] = Access(row.allowed, row.reason, row.as_of)
    found: list[Cluster] = []
    for cluster in clusters:
        partitions = tuple(replace(p, access=probes.get((cluster.name, p.name))) for p in cluster.partitions)
        mine = facts.get(cluster.name)
        if mine is not None:
            cluster = replace(
                cluster, accounts=tuple(mine.accounts), default_account=mine.default_account, user_max_submit=mine.max_submit
            )
        found.append(replace(cluster, partitions=partitions))
    return found
