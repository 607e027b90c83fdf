"""The only place that picks adapters from configuration. Everything is made when first used, so that a status loads no model."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BatchUnavailable, ConfigError, NotFound
from ischeduler.core.snapshot import FinishedJob
from ischeduler.ports import BatchSystem, Clock, EventSource, Foresight, Notifier, PoolStore, Replanner, RunFiles, SharedStore
from ischeduler.wiring.notices import LogNotifier
from ischeduler.wiring.private_json import read_json, write_json, write_private
from ischeduler.wiring.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ischeduler.batch.pilots import WithPools
    from ischeduler.batch.tapis.batch import TapisBatch
    from ischeduler.batch.tapis.estimator_jobs import EstimatorJobs
    from ischeduler.cidb.ci_database import CIDatabase
    from ischeduler.core.pool import Pool
    from ischeduler.estimators.facade import Estimators
    from ischeduler.estimators.queuewait.site import SiteWaits
    from ischeduler.plane.loop import Plane, TickReport
    from ischeduler.plane.pools.loop import Pools
    from ischeduler.store.mailbox import Mailbox

LIVE_NAME_AGE_S = 86400.0
COMMAND_TIMEOUT_S = 30.0
REACHED = ("slurmrest", "tapis", "agent")
"""Kinds of batch systems behind a network."""
LEASE_TTL_S = 60.0
FINISHED_SINCE_S, FINISHED_AGE_S = 7 * 86400.0, 6 * 3600.0
FINISHED_FEW, FINISHED_FEW_AGE_S = 1000, 900.0
"""While accounting tells of few jobs it is asked more often: a new site soon has enough to learn from, and the answer is short."""
POOL_UNKEPT_S = 20.0
"""A pool that nobody has looked at for so long, and a tenth of its round, has no keeper now."""
TICK_FROM_JOB_S = 300.0
"""Between two looks of a job that runs: the queue is asked seldom, the last look when it leaves is what counts."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    returncode: int
    stdout: str
    stderr: str


class Services:
    """The adapters of one user and one configuration. ``troubles`` collects what went wrong without stopping anything."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self.replanner: Replanner | None = None
        self.foresight: Foresight | None = None
        self.troubles: list[str] = []
        self._estimators: dict[str, Estimators] = {}
        self._tapis: dict[str, TapisBatch] = {}
        self.tapis_webhook: Callable[[str], str] = lambda owner: ""

    @cached_property
    def clock(self) -> Clock:
        """Time."""
        from ischeduler.batch.clocks import SystemClock

        return self._clock or SystemClock()

    @cached_property
    def owner(self) -> str:
        """The operating system's user: whose runs are seen."""
        return pwd.getpwuid(os.getuid()).pw_name

    @property
    def runs_dir(self) -> Path:
        """Parent of all run directories."""
        return self.settings.data_dir / "runs"

    @cached_property
    def engine(self) -> Engine:
        """The database, its tables up to date. StoreUnavailable or ConfigError with a sentence otherwise."""
        from ischeduler.store.engine import open_engine
        from ischeduler.store.migrate import prepare

        engine = open_engine(self.settings.database_url)
        prepare(engine)
        return engine

    @cached_property
    def store(self) -> SharedStore:
        """Runs, events, leases, history."""
        from ischeduler.store.sql_store import SqlStore

        return SqlStore(self.engine, clock=None if self._clock is None else self._clock.now)

    @cached_property
    def cidb(self) -> CIDatabase:
        """Clusters: the shipped catalog and what was discovered, as this user sees them."""
        from ischeduler.cidb.ci_database import CIDatabase

        database = CIDatabase(self.engine, user=self.owner, clock=self.clock.now)
        database.load_catalog()
        return database

    @property
    def batch_kind(self) -> str:
        """'slurm' or 'local' by what is here; 'slurmrest', 'tapis' or 'agent' where the configuration says so."""
        kind = str(self.settings["batch.kind"])
        if kind != "auto":
            return kind
        there = bool(shutil.which("squeue") and shutil.which("sbatch"))
        return "slurm" if there and self._slurm_configured() else "local"

    def _slurm_configured(self) -> bool:
        """Slurm's commands may be installed where no cluster is."""
        named = os.environ.get("SLURM_CONF")
        return bool(named) or any(
            Path(p).exists() for p in ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
        )

    @cached_property
    def batches(self) -> Mapping[str, BatchSystem]:
        """Batch systems that can be reached from here, by cluster name."""
        if self.batch_kind == "local":
            batch = self._local()
            return {batch.name: batch}
        if self.batch_kind in REACHED:
            return self._reached()
        try:
            name = self.live_name()
        except BatchUnavailable as error:
            self.troubles.append(str(error))
            return {}
        from ischeduler.batch.slurm_cli import SlurmCli

        return {name: SlurmCli(name, user=self.owner, clock=self.clock)}

    @property
    def pools_dir(self) -> Path:
        """Parent of all pools' directories, on the file system that the nodes share."""
        return self.settings.data_dir / "pools"

    @cached_property
    def with_pools(self) -> WithPools:
        """The batch systems, and this user's pools with pilots as more of them."""
        from ischeduler.batch.pilots import WithPools

        return WithPools(lambda: self.batches, self.pools_dir, self.clock)

    @cached_property
    def pool_store(self) -> PoolStore:
        """This user's pools."""
        from ischeduler.store.pools import SqlPools

        return SqlPools(self.engine, clock=self.clock.now)

    @cached_property
    def pools(self) -> Pools:
        """The keeper of this user's live pools."""
        from ischeduler.plane.pools.loop import Pools
        from ischeduler.plane.pools.steering import Steerer

        return Pools(
            self.pool_store, self.store, self.plane, self.with_pools.floor, self.clock, owner=self.owner,
            holder=f"{socket.gethostname()}:{os.getpid()}", python=sys.executable, runs_dir=str(self.runs_dir),
            fast_s=min(1.0, float(self.settings["plane.interval"])), lease_ttl_s=LEASE_TTL_S,
            steerer=Steerer(self.store, self.plane, lambda: self.batches),
        )  # fmt: skip

    def live_pools(self) -> Sequence[Pool]:
        """This user's pools that still do something. Costs nothing where there never was one."""
        from ischeduler.core.pool import PoolState

        if not self.pools_dir.is_dir():
            return ()
        return [p for p in self.pool_store.list(self.owner) if p.state is not PoolState.DRAINED]

    def tick(self, *, keeper: bool = False) -> TickReport:
        """One look of the plane, and at pools: as their ``keeper`` (a daemon) at all, else only where nobody has looked for a while, since
        a command that loads the policies while it holds a pool's lease would hold up the rounds of whoever keeps it.

        Raises what the store raises.
        """
        report = self.plane.tick()
        now = self.clock.now()
        if not report.held or not [p for p in self.live_pools() if keeper or now - (p.accounted_to or 0.0) > POOL_UNKEPT_S + p.round_s / 10]:
            return report
        done = self.pools.tick()
        sooner_s = report.next_tick_s if done.next_tick_s is None else min(report.next_tick_s, done.next_tick_s)
        return replace(report, actions=report.actions + done.actions, problems=(*report.problems, *done.problems), next_tick_s=sooner_s)

    def _reached(self) -> Mapping[str, BatchSystem]:
        """This user's batch system behind a network. ConfigError where the configuration is not enough."""
        from ischeduler.batch import reached

        if self.batch_kind == "slurmrest":
            batch = reached.rest_batch(self.settings, self.settings["slurmrest.user"] or self.owner, self.clock)
            return {batch.name: batch}
        if self.batch_kind == "tapis":
            batch = self.tapis_of(self.owner)
            return {batch.name: batch}
        if self.batch_kind == "agent":
            from ischeduler.batch.agent import AgentBatch

            name = reached.cluster_name(self.settings)
            return {name: AgentBatch(self.mailbox, str(self.settings["agent.observer"]) or self.owner, name, self.clock)}
        raise ConfigError(f"batch.kind = '{self.batch_kind}' is unknown.")

    def tapis_of(self, owner: str) -> TapisBatch:
        """Tapis as the user that ``owner`` is there; a service asks as each of its users. IschedError where it cannot."""
        from ischeduler.batch import reached

        if owner not in self._tapis:
            own = str(self.settings["tapis.user"]) if owner == self.owner else ""
            account = own or reached.account_of(self.settings, owner)
            self._tapis[owner] = reached.tapis_batch(self.settings, account, self.clock, webhook=self.tapis_webhook(owner))
        return self._tapis[owner]

    @cached_property
    def mailbox(self) -> Mailbox:
        """Where a service leaves what users' agents shall do."""
        from ischeduler.store.mailbox import Mailbox

        return Mailbox(self.engine, self.clock.now)

    def _local(self) -> BatchSystem:
        from ischeduler.batch.local import LocalBatch
        from ischeduler.cidb.accelerators import by_gres

        return LocalBatch(
            self.settings.data_dir / "local", self.clock, self.settings["local.partitions"], gpus=self.settings["local.gpus"],
            card_of=lambda product: by_gres(product)[0],
        )  # fmt: skip

    def live_name(self) -> str:
        """The live Slurm's cluster name: configured, remembered for a day, or asked for. BatchUnavailable when nobody answers."""
        if self.settings["batch.cluster"]:
            return str(self.settings["batch.cluster"])
        path = self.settings.state_dir / "live-cluster.json"
        conf = os.environ.get("SLURM_CONF", "")
        known: dict[str, Any] = read_json(path)
        entry = known.get(conf)
        if entry and self.clock.now() - entry["at"] < LIVE_NAME_AGE_S:
            return str(entry["name"])
        name = self._ask_name()
        write_json(path, {**known, conf: {"name": name, "at": self.clock.now()}})
        return name

    def _ask_name(self) -> str:
        done = self.ask(["scontrol", "show", "config"])
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "ClusterName":
                return value.strip()
        words = (done.stderr or done.stdout).strip().splitlines()
        raise BatchUnavailable(
            f"the Slurm controller does not answer ({words[0] if words else 'no output'}); try again later, or see isched doctor."
        )

    def ask(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Finished:
        """Run one of the batch system's commands."""
        from ischeduler.batch.commands import CommandMissing, CommandTimeout, LocalCommands

        try:
            answer = LocalCommands()(argv, timeout_s=timeout_s)
        except (CommandMissing, CommandTimeout) as error:
            raise BatchUnavailable(f"{error}; isched doctor says more.") from None
        return Finished(answer.code, answer.out, answer.err)

    @cached_property
    def events(self) -> EventSource:
        """What jobs say: their spools in the run directories, and what the ingest stored of them."""
        from ischeduler.batch.spool_events import SpoolEvents
        from ischeduler.batch.stored_events import EventsOfAll, StoredEvents
        from ischeduler.store.ingest_read import EventArchive

        return EventsOfAll(SpoolEvents(), StoredEvents(EventArchive(self.engine)))

    @cached_property
    def files(self) -> RunFiles:
        """The plane's hand in run directories."""
        if self.batch_kind == "slurmrest" and not self.settings["slurmrest.shared_files"]:
            from ischeduler.batch.slurm_rest_files import JobSideRunFiles

            return JobSideRunFiles()
        if self.batch_kind == "agent":
            from ischeduler.batch.agent import AgentRunFiles

            return AgentRunFiles(self.mailbox, self.clock)
        if self.batch_kind == "tapis":
            from ischeduler.batch.tapis.files import TapisRunFiles

            return TapisRunFiles(self.tapis_of)
        from ischeduler.batch.run_files import SharedRunFiles

        return SharedRunFiles()

    @cached_property
    def notifier(self) -> Notifier:
        """Tells the owner."""
        return LogNotifier(self.settings.state_dir / "notices.jsonl")

    @cached_property
    def plane(self) -> Plane:
        """The Intelligence Plane of this user."""
        from ischeduler.plane.cadence import Cadence
        from ischeduler.plane.loop import Plane
        from ischeduler.plane.policy import Policy
        from ischeduler.plane.renewal import PilotsRenewed

        from_jobs = bool(self.settings["plane.from_jobs"])
        holder = f"{socket.gethostname()}:{os.getpid()}"
        return Plane(
            self.store,
            self.with_pools,
            self.events,
            self.clock,
            self.notifier,
            self.files,
            owner=self.owner,
            holder=holder,
            replanner=self.replanner,
            foresight=PilotsRenewed(self.foresight),
            cadence=Cadence(fast_s=self.settings["plane.interval"]),
            lease_ttl_s=LEASE_TTL_S,
            policy=Policy(relay=from_jobs, pending_max=int(self.settings["plane.pending_successors"])),
            job_variables={"ISCHED_TICK_FILE": str(self._tick_file())} if from_jobs else None,
        )

    def _tick_file(self) -> Path:
        """How a job calls this plane, written where only this user reads it."""
        path = self.settings.state_dir / "tick.json"
        command = [sys.executable, "-m", "ischeduler.cli.main", "plane", "tick"]
        every_s = max(TICK_FROM_JOB_S, float(self.settings["plane.interval"]))
        content = {"command": command, "environment": dict(self.settings.as_environment()), "every_s": every_s}
        if read_json(path) != content:
            write_private(path, content)
        return path

    def estimators(self, assume: str = "") -> Estimators:
        """The estimators over this user's own history; with declared figures of a file, where one is named."""
        if assume not in self._estimators:
            from ischeduler.estimators.facade import Estimators
            from ischeduler.estimators.plugins.load import add_plugins

            found = Estimators(history=self._own_history, given=Path(assume) if assume else None, site=self._site_waits())
            add_plugins(found.registry, self.settings.data_dir / "estimators", tapis=self._tapis_jobs(), clock=self.clock)
            self._estimators[assume] = found
        return self._estimators[assume]

    def _tapis_jobs(self) -> Callable[[], EstimatorJobs] | None:
        """Where estimators that are Tapis apps run; None where no tenant is configured."""
        if not self.settings["tapis.url"]:
            return None

        def connect() -> EstimatorJobs:
            from ischeduler.batch import reached

            account = str(self.settings["tapis.user"]) or reached.account_of(self.settings, self.owner)
            return reached.tapis_estimators(self.settings, account, self.clock)

        return connect

    def _site_waits(self) -> SiteWaits | None:
        """Queue waits learned from what accounting tells of live clusters; None unless the user allows it: a week of a large centre's
        jobs is not asked for unbidden."""
        if not self.settings["learning.accounting"]:
            return None
        from ischeduler.estimators.queuewait.site import SiteWaits

        def kernel() -> Any:
            from ischeduler.simulator.kernel import rollouts

            return rollouts

        return SiteWaits(self.finished_jobs, self.owner, twin=kernel, keep=self.settings.state_dir)

    def _own_history(self, **wanted: Any) -> Sequence[Any]:
        return self.store.history(owner=self.owner, **wanted)

    def clusters(self) -> tuple[Cluster, ...]:
        """Every known cluster."""
        return tuple(self.cidb.clusters())

    def cluster(self, name: str, *, learn: bool = True) -> Cluster:
        """A known cluster, by its name or ``centre-name``. A live one that nobody has read yet is read now, unless ``learn`` is False.

        NotFound, with the names there are, otherwise.
        """
        try:
            return self.cidb.get(name)
        except NotFound:
            if learn and name in self.batches:
                return self.sync(name)
            for cluster in self.clusters():
                if f"{cluster.centre}-{cluster.name}".lower() == name.lower():
                    return cluster
            raise

    def stale_words(self, cluster: Cluster, now: float) -> list[str]:
        """A sentence for each source of facts that is too old to be trusted without a word."""
        from ischeduler.cidb.provenance import stale_warnings

        return [str(warning) for warning in stale_warnings(cluster, now)]

    def finished_jobs(self, name: str, *, age_s: float = FINISHED_AGE_S) -> tuple[FinishedJob, ...]:
        """What accounting tells of the last week's jobs of a live cluster, at most ``age_s`` old; none where it tells nothing."""
        from ischeduler.core.codec import from_plain, to_plain

        ask = getattr(self.batches.get(name), "finished", None)
        if ask is None:
            return ()
        path, now = self.settings.state_dir / f"finished-{name}.json", self.clock.now()
        kept = read_json(path)
        told = tuple(from_plain(FinishedJob, j) for j in kept["jobs"]) if kept else ()
        if kept and 0 <= now - kept["at"] < (age_s if len(told) >= FINISHED_FEW else min(age_s, FINISHED_FEW_AGE_S)):
            return told
        # Accounting that is silent for a while does not unsay what it has told.
        found = tuple(ask(now - FINISHED_SINCE_S)) or tuple(j for j in told if j.end_s >= now - FINISHED_SINCE_S)
        write_json(path, {"at": now, "jobs": [to_plain(j) for j in found]})
        return found

    def sync(self, name: str, *, like: str | None = None) -> Cluster:
        """Read a live cluster anew and keep it; ``like`` names a known one whose prices and rules hold there, too.

        NotFound when it is not live; BatchUnavailable when it does not answer.
        """
        batch = self.batches.get(name)
        if batch is None:
            raise NotFound(f"cluster '{name}' cannot be reached from here; live is {', '.join(self.batches) or 'none'}.")
        return self.cidb.sync(name, self.discover(name), like=like)

    def discover(self, name: str) -> Cluster:
        """A live cluster as it is now; nothing is kept. BatchUnavailable when it does not answer."""
        batch = self.batches[name]
        if self.batch_kind in ("local", "agent"):
            return batch.cluster(self.clock.now())  # pyright: ignore[reportAttributeAccessIssue]
        from ischeduler.cidb.discovery import discover

        if self.batch_kind == "slurmrest":
            from ischeduler.batch.slurm_rest_commands import RestCommands

            return discover(RestCommands(batch), self.owner, self.clock.now())  # pyright: ignore[reportArgumentType]
        return discover(self.ask, self.owner, self.clock.now())


def wire(settings: Settings, *, clock: Clock | None = None) -> Services:
    """The services of a configuration. Opens nothing yet."""
    return Services(settings, clock=clock)


__all__ = ["Finished", "LogNotifier", "Services", "Settings", "wire"]
