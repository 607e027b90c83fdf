"""One user's plane on a live Slurm with a run that was planned by hand: ``python chain_driver.py RUN.json``, settings from the environment.

It delegates the run, carries it to its end, and prints one JSON line: the run, what it looked at in vain, and its events.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.run import Run
from ischeduler.helper.foresight import prepare
from ischeduler.helper.session import Session

LONGEST_LOOK_S = 2.0


def main() -> int:
    """Exit code 3 when the run has not ended in time."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    session = Session()
    services = session.services
    prepare(str(session.config["plane.provisioner"]))
    run = services.plane.delegate(from_plain(Run, asked["run"]))
    deadline = time.monotonic() + asked["most_s"]
    troubles = dict[str, None]()
    while not run.state.ended and time.monotonic() < deadline:
        report = services.plane.tick()
        troubles |= dict.fromkeys(report.problems)
        time.sleep(min(LONGEST_LOOK_S, report.next_tick_s))
        run = services.store.get_run(run.id)
    events = [to_plain(event) for _, event in services.store.events(run.id)]
    print(json.dumps({"run": to_plain(run), "troubles": [*services.troubles, *troubles], "events": events}))
    return 0 if run.state.ended else 3


if __name__ == "__main__":
    sys.exit(main())
