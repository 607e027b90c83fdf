"""A glance as plain lines, for ``isched top --once`` and for the live screen. What users wrote is shown without control characters."""

from __future__ import annotations

from collections.abc import Sequence

from ischeduler.cli.watch import bar, spark
from ischeduler.core.durations import human
from ischeduler.helper.top import Glance
from ischeduler.planning.cost import cost_words
from ischeduler.service.dashboard.views.clusters import ClusterCard
from ischeduler.service.dashboard.views.run import RunPage
from ischeduler.service.dashboard.views.runs import RunRow
from ischeduler.service.dashboard.words import plural

HEADER = ("RUN", "NAME", "STATE", "PROGRESS", "LEFT", "COST", "WHERE")
"""The first six fit 80 columns."""


def plain(text: str, most: int = 200) -> str:
    """One line without control characters: a run's name must not steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)[:most]


def cut(text: str, most: int) -> str:
    """At most so many characters; a cut is shown."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cells(row: RunRow, width: int = 6) -> tuple[str, ...]:
    """A run's cells under :data:`HEADER`."""
    left = human(row.left_s) if row.left_s is not None else row.left.removeprefix("took ")
    spent = cost_words(row.money.spent, row.money.unit)
    return (row.id, cut(plain(row.name), 20), row.state, f"{bar(row.share, width)} {row.share:4.0%}", left, spent, plain(row.where, 40))


def title(glance: Glance) -> str:
    """``alice: 3 runs under way, 17 ended``."""
    return f"{plain(glance.owner, 40)}: {plural(len(glance.going), 'run')} under way, {len(glance.ended)} ended"


def cluster_line(card: ClusterCard) -> str:
    """``pitzer  v100-32g 6/64 idle · a100-80g 0/32 idle · 143 waiting · queue 40s ago``."""
    if not card.seen:
        return f"{card.name}  {plain(card.problem.partition(': ')[2] or 'its queue cannot be seen')}"
    idle = [f"{c.name} {c.idle}/{c.total} idle" for c in card.cards]
    nodes = [p for p in card.partitions if p.unit == "node" and p.total > 0]
    if not idle and nodes:
        idle = [f"{p.name} {p.idle}/{plural(p.total, 'node')} idle" for p in nodes[:3]]
    waiting = sum(max(0, p.waiting) for p in card.partitions)
    return f"{card.name}  " + " · ".join([*idle, f"{waiting} waiting", f"queue {card.looked}"])


def detail_lines(page: RunPage) -> list[str]:
    """One run: its loss as little columns, facts, and why."""
    row = page.row
    loss = f"loss {spark(list(page.losses), 24)} {page.losses[-1]:.4g}" if page.losses else ""
    facts = " · ".join(f"{name.lower()} {words}" for name, words in page.facts if name not in ("Loss", "Made"))
    spent = f"spent {row.money.words}"
    return [plain(line) for line in (f"{row.id}  {row.name}", " · ".join(x for x in (row.progress, loss) if x), facts, spent, *page.why) if line]


def once(glance: Glance) -> list[str]:
    """The whole glance as aligned lines."""
    rows = [HEADER, *(cells(r) for r in (*glance.going, *glance.ended[:10]))]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEADER))]
    lines = [title(glance)]
    if len(rows) > 1:
        lines += ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return [*lines, *_clusters(glance.clusters), *(f"Note: {plain(t)}" for t in glance.troubles if not _told(t, glance))]


def _clusters(cards: Sequence[ClusterCard]) -> list[str]:
    return [cluster_line(c) for c in cards]


def _told(trouble: str, glance: Glance) -> bool:
    """A cluster's own line says it already."""
    return any(trouble == c.problem for c in glance.clusters)
