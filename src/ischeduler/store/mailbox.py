"""The agents' mailbox: what is asked of a user's agent and what it answered. Every method is one short transaction.

A request goes waiting -> taken -> answered, or waiting -> withdrawn; each step happens once, whoever tries it how often. What was
taken is never given out again: an agent that dies with a request in its hands leaves it open, and its asker looks what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update

from ischeduler.core.mail import Mail
from ischeduler.store.engine import WRITE
from ischeduler.store.mailbox_tables import AGENT_REQUESTS, AGENTS
from ischeduler.store.tables import RUNS

KEPT_S = 86400.0
_AT_ONCE = 20


class Mailbox:
    """Over the service's database. ``clock`` is the service's."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine, self._clock = engine, clock
        self._writing = engine.execution_options(**WRITE)
        self._purged_at = 0.0

    def post(self, owner: str, cluster: str, kind: str, body: Mapping[str, Any], ttl_s: float) -> int:
        """Leave a request; its number. Nobody may begin it after ``ttl_s``."""
        now = self._clock()
        row = {
            "owner": owner, "cluster": cluster, "kind": kind, "body": dict(body), "state": "waiting", "agent": "", "created_at": now,
            "expires_at": now + ttl_s, "answer": {},
        }  # fmt: skip
        with self._writing.begin() as connection:
            if now - self._purged_at > KEPT_S / 24:
                self._purged_at = now
                connection.execute(delete(AGENT_REQUESTS).where(AGENT_REQUESTS.c.expires_at < now - KEPT_S))
            found = connection.execute(insert(AGENT_REQUESTS).values(row)).inserted_primary_key
        assert found is not None
        return int(found[0])

    def answer(self, number: int) -> Mapping[str, Any] | None:
        """The answer to a request, None while there is none."""
        query = select(AGENT_REQUESTS.c.answer).where(AGENT_REQUESTS.c.id == number, AGENT_REQUESTS.c.state == "answered")
        with self._engine.connect() as connection:
            return connection.execute(query).scalar()

    def withdraw(self, number: int) -> bool:
        """Take a request back. False when an agent has it already."""
        mine = (AGENT_REQUESTS.c.id == number) & (AGENT_REQUESTS.c.state == "waiting")
        with self._writing.begin() as connection:
            return bool(connection.execute(update(AGENT_REQUESTS).where(mine).values(state="withdrawn")).rowcount)

    def alive(self, owner: str, cluster: str) -> bool:
        """Whether the owner's agent has been there lately."""
        query = select(AGENTS.c.expires_at).where(AGENTS.c.owner == owner, AGENTS.c.cluster == cluster)
        with self._engine.connect() as connection:
            expires_at = connection.execute(query).scalar()
        return expires_at is not None and expires_at > self._clock()

    def agents(self) -> Sequence[Mapping[str, Any]]:
        """All agents ever seen, for administrators."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(select(AGENTS).order_by(AGENTS.c.owner)).mappings()]

    def arrive(self, owner: str, cluster: str, name: str, next_s: float, instead_of: str = "") -> str:
        """Note that an agent is there and will come again within ``next_s``. The name of the one at work: another's when that is
        still expected, and then this one must not act. ``instead_of`` names one that is known to be dead."""
        now = self._clock()
        mine = (AGENTS.c.owner == owner) & (AGENTS.c.cluster == cluster)
        with self._writing.begin() as connection:
            old = connection.execute(select(AGENTS).where(mine).with_for_update()).mappings().first()
            if old is not None and old["name"] not in (name, instead_of) and old["expires_at"] > now:
                return str(old["name"])
            values = {"name": name, "seen_at": now, "expires_at": now + next_s}
            if old is None:
                connection.execute(insert(AGENTS).values(owner=owner, cluster=cluster, **values))
            else:
                connection.execute(update(AGENTS).where(mine).values(**values))
        return name

    def leave(self, owner: str, cluster: str, name: str) -> None:
        """An agent says good-bye: its place is free at once."""
        mine = (AGENTS.c.owner == owner) & (AGENTS.c.cluster == cluster) & (AGENTS.c.name == name)
        with self._writing.begin() as connection:
            connection.execute(update(AGENTS).where(mine).values(expires_at=0.0))

    def take(self, owner: str, cluster: str, name: str) -> Sequence[Mail]:
        """Requests that nobody has begun, oldest first; from now on they are this agent's."""
        now, box = self._clock(), AGENT_REQUESTS.c
        waiting = (box.owner == owner) & (box.cluster == cluster) & (box.state == "waiting") & (box.expires_at > now)
        with self._engine.connect() as connection:
            if connection.execute(select(box.id).where(waiting).limit(1)).first() is None:
                return ()
        with self._writing.begin() as connection:
            rows = (
                connection.execute(select(AGENT_REQUESTS).where(waiting).order_by(box.id).limit(_AT_ONCE).with_for_update())
                .mappings()
                .all()
            )
            chosen = (box.id.in_([r["id"] for r in rows])) & (box.state == "waiting")
            connection.execute(update(AGENT_REQUESTS).where(chosen).values(state="taken", agent=name))
        return [Mail(r["id"], r["kind"], r["body"], max(0.0, r["expires_at"] - now)) for r in rows]

    def settle(self, owner: str, cluster: str, number: int, answer: Mapping[str, Any]) -> bool:
        """Keep an answer to a request of that owner which was taken. A second one to the same request changes nothing."""
        box = AGENT_REQUESTS.c
        mine = (box.id == number) & (box.owner == owner) & (box.cluster == cluster) & (box.state == "taken")
        with self._writing.begin() as connection:
            return bool(
                connection.execute(update(AGENT_REQUESTS).where(mine).values(state="answered", answer=dict(answer))).rowcount
            )

    def owners(self, run_ids: Collection[str]) -> Mapping[str, str]:
        """Whose runs these are."""
        wanted = list(run_ids)
        found: dict[str, str] = {}
        with self._engine.connect() as connection:
            for first in range(0, len(wanted), 500):
                some = select(RUNS.c.id, RUNS.c.owner).where(RUNS.c.id.in_(wanted[first : first + 500]))
                found.update({str(r.id): str(r.owner) for r in connection.execute(some)})
        return found
