"""``python -m tests.chaos --episodes N --seed S``: hurt the centre N times and check after each that nothing was lost or doubled.

An episode delegates a few short trainings, hurts a part or two at a drawn moment for a drawn time, makes them well again, waits
until every run has ended, and checks the invariants. The last line is one JSON object; the exit code is 1 when one was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.centre import Centre
from tests.chaos.faults import Fault, draw
from tests.chaos.invariants import all_taken_in, broken
from tests.chaos.parts import eventually, remove

from ischeduler.core.errors import IschedError
from ischeduler.core.run import Run
from ischeduler.testing.broker import BrokerMissing
from ischeduler.testing.postgres import PostgresMissing

MUTATIONS = ("", "blind", "own-clock", "double-events", "hasty")
PATIENCE_S = 180.0


@dataclass
class Tally:
    """What all episodes came to."""

    episodes: int = 0
    runs: int = 0
    attempts: int = 0
    events: int = 0
    cancelled: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    longest_s: float = 0.0


def episode(centre: Centre, number: int, dice: random.Random, tally: Tally, runs: int, *, verbose: bool) -> list[str]:
    """One episode; the invariants that it broke."""
    begun = time.monotonic()
    ids = [f"e{number:05}-{n}" for n in range(runs)]
    centre.under_way = ids
    for n, run_id in enumerate(ids):
        centre.delegate(run_id, f"user{n % 3}", dice.randint(1, 3), dice.choice((30.0, 60.0)))
    doomed = {ids[dice.randrange(runs)]} if dice.random() < 0.5 else set[str]()
    faults = draw(centre, dice)
    shown = ", ".join(f"{f.name} {f.detail}".strip() for f in faults)
    if verbose:
        print(f"{number:5}: {shown}", flush=True)
    time.sleep(dice.uniform(0.0, 0.8))
    for fault in faults:
        fault.hurt()
    if doomed and dice.random() < 0.5:
        doomed_late = set[str]()
    else:
        doomed_late, doomed = doomed, set[str]()
    held_s = dice.uniform(0.1, 1.2) if not any(f.name == "freeze_worker" for f in faults) else dice.uniform(0.5, 3.0)
    for run_id in doomed:
        if not _database_is_hurt(faults):
            centre.cancel(run_id)
    time.sleep(held_s)
    for fault in reversed(faults):
        fault.heal()
    for run_id in doomed_late | doomed:
        centre.cancel(run_id)
    words = _settled(centre, ids)
    if not words:
        truth = centre.controller.strings.ask("truth", runs=ids)
        late, by_broker = any(f.late_words for f in faults), centre.broker is not None
        if by_broker:
            eventually(lambda: centre.surely(lambda: all_taken_in(centre.store, ids, truth)), PATIENCE_S)
        words = centre.surely(
            lambda: broken(centre.store, ids, truth, cancelled=doomed | doomed_late, late_words=late, by_broker=by_broker)
        )
        tally.events += sum(len(t["said"]) for t in truth.values())
        tally.attempts += sum(len(t["jobs"]) for t in truth.values())
    tally.episodes, tally.runs, tally.cancelled = tally.episodes + 1, tally.runs + runs, tally.cancelled + len(doomed | doomed_late)
    tally.faults.update(f.name for f in faults)
    spent_s = time.monotonic() - begun
    tally.longest_s = max(tally.longest_s, spent_s)
    if verbose or words:
        print(f"{number:5}: {spent_s:5.1f} s  {shown}", flush=True)
    if not words:
        centre.controller.strings.ask("forget", runs=ids)
        for run_id in ids:
            remove(centre.spools.folder / run_id)
    return words


def _database_is_hurt(faults: list[Fault]) -> bool:
    return any(f.name == "stop_postgres" or f.detail == "database" for f in faults)


def _settled(centre: Centre, ids: list[str]) -> list[str]:
    """Wait until all runs have ended; those that do not are lost."""
    left: list[Run] = []

    def all_ended() -> bool:
        nonlocal left
        try:
            left = [r for r in map(centre.store.get_run, ids) if not r.state.ended]
        except IschedError:
            return False
        return not left

    if eventually(all_ended, PATIENCE_S):
        return []
    return [f"{r.id}: lost: still {r.state} after {PATIENCE_S:.0f} s: {r.message or r.attempts[-1:]}" for r in left] or ["the database does not answer"]


def main(argv: list[str] | None = None) -> int:
    """Run the episodes; 0 when every invariant held, 1 when not, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slurm-episodes", type=int, default=0, help="episodes on a real Slurm before the others: slurmctld is restarted")
    parser.add_argument("--first", type=int, default=0, help="number of the first episode; with the seed it makes an episode again")
    parser.add_argument("--lanes", type=int, default=1, help="centres side by side, each with its share of the episodes")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5, help="trainings an episode")
    parser.add_argument("--speed", type=float, default=40.0, help="how much faster than real time all clocks are")
    parser.add_argument("--lease", type=float, default=60.0, help="a lease's time in fast seconds")
    parser.add_argument("--transport", choices=("spool", "kafka"), default="spool", help="how jobs' events come: by files, or through a broker")
    parser.add_argument("--mutation", choices=MUTATIONS, default="", help="a defect put in on purpose: the check must find it")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time, however many episodes are left")
    parser.add_argument("--keep-going", action="store_true", help="go on after a broken invariant")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(argv)
    if min(given.workers, given.runs, given.lanes) < 1 or given.episodes + given.slurm_episodes < 1:
        parser.error("--lanes, --workers, --runs and the number of episodes must be at least 1")
    if given.lanes > 1 and given.episodes >= given.lanes:
        return side_by_side(list(sys.argv[1:] if argv is None else argv), given.episodes, given.lanes, given.first)
    tally, begun = Tally(), time.monotonic()
    if given.slurm_episodes:
        on_slurm(given.slurm_episodes, given.seed, tally, verbose=given.verbose)
        if tally.broken or given.episodes == 0:
            return _report(tally, given, time.monotonic() - begun, [])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # after this episode: disks and networks are to be taken away again
    centre = Centre(
        workers=given.workers, speed=given.speed, lease_s=given.lease, seed=given.seed, mutation=given.mutation, transport=given.transport
    )
    notes = _notes(centre)
    try:
        for number in range(given.first, given.first + given.episodes):
            if stop.is_set() or (given.minutes is not None and time.monotonic() - begun > given.minutes * 60):
                break
            words = episode(centre, number, random.Random(f"{given.seed}:{number}"), tally, given.runs, verbose=given.verbose)
            tally.broken += [f"episode {number}: {w}" for w in words]
            for broken_words in words:
                print(f"episode {number}: {broken_words}", file=sys.stderr, flush=True)
            if words and not given.keep_going:
                _explain(centre)
                break
    finally:
        centre.close()
    return _report(tally, given, time.monotonic() - begun, notes)


def on_slurm(episodes: int, seed: int, tally: Tally, *, verbose: bool) -> None:
    """Episodes on a real Slurm, in real time."""
    from tests.chaos.slurm import SlurmCentre, episode

    centre = SlurmCentre()
    try:
        for number in range(episodes):
            begun = time.monotonic()
            faults, words = episode(centre, number, random.Random(f"slurm:{seed}:{number}"))
            tally.episodes, tally.runs = tally.episodes + 1, tally.runs + 2
            tally.faults.update(faults)
            tally.broken += [f"slurm episode {number}: {w}" for w in words]
            tally.longest_s = max(tally.longest_s, time.monotonic() - begun)
            if verbose or words:
                print(f"slurm {number}: {time.monotonic() - begun:5.1f} s  {', '.join(faults)}", flush=True)
    finally:
        centre.close()


def side_by_side(argv: list[str], episodes: int, lanes: int, first: int) -> int:
    """Several centres in processes of their own; their figures put together."""
    shares = [range(first, first + episodes)[n::lanes] for n in range(lanes)]
    starts = [first + sum(len(s) for s in shares[:n]) for n in range(lanes)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", *argv, "--lanes", "1", *(() if at == first else ("--slurm-episodes", "0")), "--first", str(at), "--episodes", str(len(share))], stdout=subprocess.PIPE, text=True
        )
        for at, share in zip(starts, shares, strict=True) if share
    ]  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in running])
    told = [process.communicate()[0].strip().splitlines() for process in running]
    documents = [json.loads(lines[-1]) for lines in told if lines and lines[-1].startswith("{")]
    if len(documents) < len(running):
        print("a lane ended without its report", file=sys.stderr)
        return 1
    for lines in told:
        print("\n".join(lines[:-1]))
    print(json.dumps(together(documents)))
    return max(process.returncode for process in running)


def together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One report of several lanes'."""
    metrics, faults = Counter[str](), Counter[str]()
    for document in documents:
        metrics.update(document["metrics"])
        faults.update(document["faults"])
    for name in ("longest_episode_s", "seconds"):
        metrics[name] = max(d["metrics"][name] for d in documents)
    return {
        **documents[0], "lanes": len(documents), "metrics": dict(metrics), "faults": dict(sorted(faults.items())),
        "broken": [words for d in documents for words in d["broken"]],
    }  # fmt: skip


def _notes(centre: Centre) -> list[str]:
    found = [] if centre.workers[0].network.real else ["no partitions: network namespaces need root"]
    return found if centre.spools.real else [*found, "no full disks: a tmpfs needs root"]


def _explain(centre: Centre) -> None:
    for name, text in centre.words().items():
        print(f"--- {name}\n{text}", file=sys.stderr)


def _report(tally: Tally, given: Any, spent_s: float, notes: list[str]) -> int:
    for words in notes:
        print(words, file=sys.stderr)
    metrics = {
        "episodes": tally.episodes, "runs": tally.runs, "cancelled": tally.cancelled, "jobs": tally.attempts, "events": tally.events,
        "invariants_broken": len(tally.broken), "longest_episode_s": round(tally.longest_s, 2), "seconds": round(spent_s, 1),
    }  # fmt: skip
    print(json.dumps({
        "chaos": "centre", "seed": given.seed, "mutation": given.mutation, "metrics": metrics, "faults": dict(sorted(tally.faults.items())),
        "notes": notes, "broken": tally.broken[:20],
    }))  # fmt: skip
    return 1 if tally.broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PostgresMissing, BrokerMissing) as missing:
        print(missing, file=sys.stderr)
        sys.exit(2)
