"""What ``isched top`` looks at: the dashboard's own rows of runs and clusters, of this folder's session or of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ischeduler.core.errors import IschedError
from ischeduler.core.event import Event
from ischeduler.service.dashboard.views.clusters import ClusterCard, cluster_card
from ischeduler.service.dashboard.views.run import RunPage, run_page
from ischeduler.service.dashboard.views.runs import RunRow, run_rows

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

QUEUE_EVERY_S = 30.0
"""A controller is not asked oftener for a picture."""
NEWEST, KEPT_LOGS = 50, 8


@dataclass(frozen=True, slots=True)
class Glance:
    """Everything at one instant. ``ended`` are the newest ones; ``troubles`` say what could not be seen."""

    at: float
    owner: str
    going: tuple[RunRow, ...]
    ended: tuple[RunRow, ...]
    clusters: tuple[ClusterCard, ...]
    troubles: tuple[str, ...]


class Lookout:
    """Looks again and again through one session; queues are remembered for a while."""

    def __init__(self, here: Session) -> None:
        self.here = here
        self._cards: Mapping[str, ClusterCard] = {}
        self._looked_at: float | None = None
        self._logs: dict[str, tuple[list[Event], int]] = {}

    def glance(self) -> Glance:
        """One look. The plane takes one, too, where nobody else does."""
        here = self.here
        here.tick_if_free()
        now = here.clock.now()
        going, ended = run_rows(here.all_runs(), now)
        if self._looked_at is None or not 0 <= now - self._looked_at < QUEUE_EVERY_S:
            self._cards, self._looked_at = {name: self._card(name, now) for name in here.live}, now
        cards = tuple(self._cards.values())
        troubles = (*dict.fromkeys(here.troubles), *(c.problem for c in cards if c.problem))
        return Glance(now, here.owner, going, ended[:NEWEST], cards, troubles)

    def _card(self, name: str, now: float) -> ClusterCard:
        """A controller that does not answer leaves a card that says so."""
        snapshot, problem = None, ""
        cluster = self.here.cluster(name)
        try:
            snapshot = self.here.queue(name)
        except IschedError as error:
            problem = f"{name}: {error}"
        return cluster_card(cluster, snapshot, (), now, problem=problem)

    def detail(self, run_id: str) -> RunPage:
        """One run with its curves and why it is where it is. NotFound when it is gone."""
        here = self.here
        run = here.owned_run(run_id)
        return run_page(run, self._log(run.id), None, here.explain(run), here.clock.now())

    def _log(self, run_id: str) -> list[Event]:
        """The run's events; only what is new is read again. The least recently seen run's are forgotten."""
        known, row = self._logs.pop(run_id, ([], 0))
        news, row = self.here.events_since(run_id, row)
        known += news
        self._logs[run_id] = known, row
        if len(self._logs) > KEPT_LOGS:
            del self._logs[next(iter(self._logs))]
        return known
