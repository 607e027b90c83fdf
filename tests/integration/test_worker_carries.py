"""A centre's worker as the configuration makes it: runs of several users from the service's own backend to their end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ischeduler.core.run import RunState
from ischeduler.helper.centre_workers import make_worker, worker_name
from ischeduler.testing.service import FIGURES, WORKLOAD, TestService, make_service

LIMIT_S = 90.0


def submit(service: TestService, user: str, *command: str) -> str:
    fields = {**WORKLOAD, "command": list(command), "options": {"python": sys.executable}}
    plan_id, _ = service.centre.plan(user, fields, assume=FIGURES)
    return service.centre.submit(user, plan_id, "goal", {}).id


def test_two_workers_carry_the_runs_of_two_users(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    centre, store = service.centre, service.centre.services.store
    for user in ("alice", "bob"):
        service.add_user(user)
    wanted = {submit(service, "alice", "python3", "-c", "print(1)"): RunState.COMPLETED, submit(service, "bob", "sleep", "600"): RunState.CANCELLED}
    workers = [make_worker(centre.services, centre.directory, name=worker_name()) for _ in range(2)]
    until, cancelled = time.monotonic() + LIMIT_S, False
    while {r: store.get_run(r).state for r in wanted} != wanted and time.monotonic() < until:
        for worker in workers:
            worker.tick()
        bobs = next(r for r in wanted if store.get_run(r).owner == "bob")
        if not cancelled and store.get_run(bobs).state is RunState.RUNNING:
            centre.cancel("bob", bobs)
            cancelled = True
        time.sleep(0.2)
    assert {r: store.get_run(r).state for r in wanted} == wanted, [store.get_run(r).message for r in wanted]
    assert {s.name for s in store.signs()} == {w._name for w in workers}
    assert sum(looks for s in store.signs() for looks in s.looks.values()) >= 0
