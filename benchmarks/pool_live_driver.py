"""One user's live pool on a real Slurm: ``python pool_live_driver.py CONFIG.json``, settings from the environment.

It makes the pool, adds the trainings, keeps the pool and the plane, and prints one JSON line a look; the last one has what is judged.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ischeduler.core.codec import to_plain
from ischeduler.core.elastic import Elastic
from ischeduler.core.jobs import JobState
from ischeduler.core.pool import ANY, Pool, PoolState
from ischeduler.core.workload import Workload
from ischeduler.helper import live_pools
from ischeduler.helper.session import Session

LOOK_S = 0.2
NAME = "lab"


class Driver:
    """The pool's life from its making to its drain."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked, self.session = asked, Session()
        self.services = self.session.services
        self.problems: dict[str, None] = {}
        self.deadline = time.monotonic() + asked["most_s"]

    def pool(self) -> Pool:
        return self.services.pool_store.get(self.session.owner, NAME)

    def begin(self) -> dict[str, str]:
        """Make the pool and its members: run id -> the training's name."""
        asked = self.asked
        shape = live_pools.Shape("fifo", asked["pilots"], round_s=asked["round_s"], restart_s=asked["restart_s"], idle_s=asked["idle_s"])
        live_pools.create(self.session, NAME, shape)
        return {self.join(member): member["name"] for member in asked["members"]}

    def join(self, member: dict[str, Any]) -> str:
        """Add one training; its run. ``world_sizes`` make it elastic, with a batch of ``batch_size`` to share."""
        asked, python, batch = self.asked, self.asked["python"], member.get("batch_size", 1)
        options = {"python": python, "launcher": "direct"}
        workload = Workload(
            name=member["name"], epochs=1, samples=asked["steps"] * batch, batch_size=batch, directory=member["directory"], options=options,
            command=(python, asked["script"], str(asked["steps"]), json.dumps(member["step_s"])), memory_bytes=300 * 2**20, cpus=1, gpus=1,
            checkpoint_every_s=asked["checkpoint_every_s"], elastic=Elastic(tuple(member["world_sizes"])) if "world_sizes" in member else None,
        )  # fmt: skip
        rates = {t: 1 / s for t, s in member["step_s"].items()}
        joining = live_pools.Joining(member.get("weight", 1.0), member.get("preemptible", True), rates)
        plan = live_pools.member_plan(self.pool(), workload, member.get("type", ANY))
        return live_pools.join(self.session, NAME, plan, joining).id

    def look(self, phase: str) -> Pool:
        """One tick, and a line for whoever watches."""
        report = self.services.tick(keeper=True)
        self.problems |= dict.fromkeys(report.problems)
        pool = self.pool()
        floor = self.services.with_pools.floor(NAME)
        on = {j.run_id: [j.type, j.node] for j in floor.jobs(time.time()) if j.running}
        line = {"t": time.time(), "phase": phase, "round": pool.round, "on": on, "pilots": [s.node for s in floor.signs() if not s.leaving]}
        print(json.dumps(line), flush=True)
        time.sleep(LOOK_S)
        return pool

    def until(self, phase: str, wish: Any) -> Pool:
        while time.monotonic() < self.deadline:
            pool = self.look(phase)
            if wish(pool):
                return pool
        raise TimeoutError(f"{phase} was not over in time: {list(self.problems)[-3:]}")

    def run(self) -> dict[str, Any]:
        """Everything; what is judged."""
        names = self.begin()
        floor = self.services.with_pools.floor(NAME)
        self.until("filling", lambda p: len(floor.signs()) >= self.asked["accelerators"] and len(self.running()) >= self.asked["accelerators"])
        first = live_pools.set_policy(self.session, NAME, self.asked["policy"]).round
        before = self.until("settling", lambda p: p.round > first)
        after = self.until("rounds", lambda p: p.round >= before.round + self.asked["rounds"] and self.renewed(names))
        for member in self.asked.get("later", ()):
            self.until("before", lambda p: all(self.trained(r, after_s=0.0) for r in names))
            names[self.join(member)] = member["name"]
            since = time.time()
            self.until("joined", lambda p, since=since: all(self.trained(r, after_s=since) for r in names))
            after = self.pool()
        live_pools.drain(self.session, NAME)
        self.until("draining", lambda p: p.state is PoolState.DRAINED)
        return self.told(names, before, after)

    def running(self) -> list[str]:
        return [j.run_id for j in self.services.with_pools.floor(NAME).jobs(time.time()) if j.running]

    def trained(self, run_id: str, *, after_s: float) -> bool:
        """Whether a member runs where and as it is to, in a segment begun after then, and has trained in it."""
        member, run = self.pool().member(run_id), self.services.store.get_run(run_id)
        job = next((j for j in self.services.with_pools.floor(NAME).jobs(time.time()) if j.run_id == run_id and j.running), None)
        if member is None or member.seat is None or job is None or run.attempt is None or (job.started_at or 0.0) < after_s:
            return False
        return job.key == run.attempt.key and member.seat.gpus == job.gpus and run.attempt.step > run.attempt.start_step

    def renewed(self, names: dict[str, str]) -> bool:
        """Whether as many pilots as asked for (``renewals``, 0) have followed others, and every member has trained on in one of those."""
        least, jobs = self.asked.get("renewals", 0), self.services.with_pools.floor(NAME).jobs(0.0)
        if not least:
            return True
        for run_id in names:
            mine = [j for j in jobs if j.run_id == run_id and j.pilot]
            run = self.services.store.get_run(run_id)
            saved = run.attempt is not None and run.attempt.state is JobState.RUNNING and run.attempt.step > run.attempt.start_step
            if len({j.pilot for j in mine}) <= least or not saved:
                return False
        return True

    def told(self, names: dict[str, str], before: Pool, after: Pool) -> dict[str, Any]:
        members: dict[str, Any] = {}
        jobs = [to_plain(j) for j in self.services.with_pools.floor(NAME).jobs(0.0)]
        for run_id, name in names.items():
            old, new = before.member(run_id), after.member(run_id)
            run = self.services.store.get_run(run_id)
            promised = {
                t: (new.promised_s.get(t, 0.0) if new else 0.0) - (old.promised_s.get(t, 0.0) if old else 0.0) for t in after.types
            }  # fmt: skip
            members[name] = {
                "run": run_id, "state": run.state.value, "message": run.message, "promised_s": promised, "step": run.progress.checkpoint_step,
                "causes": [a.cause.value if a.cause else None for a in run.attempts], "nodes": [list(a.nodes) for a in run.attempts],
                "events": [to_plain(e) for _, e in self.services.store.events(run_id)],
                "jobs": [j for j in jobs if j["key"].rpartition("-")[0] == run_id],
            }  # fmt: skip
        held = [r for r in self.services.store.list_runs(owner=self.session.owner) if r.id.startswith("p-")]
        return {
            "done": True, "window": [before.accounted_to, after.accounted_to], "rounds": after.round - before.round, "members": members,
            "pilots": {r.id: [a.job_id for a in r.attempts] for r in held},
            "endings": {r.id: [[a.cause.value if a.cause else None, a.exit_code] for a in r.attempts] for r in held}, "problems": list(self.problems),
        }  # fmt: skip


def main() -> int:
    """Exit code 3 when it was not over in time."""
    driver = Driver(json.loads(Path(sys.argv[1]).read_text()))
    try:
        print(json.dumps(driver.run()), flush=True)
    except TimeoutError as error:
        print(json.dumps({"done": False, "why": str(error), "problems": list(driver.problems)}), flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
