"""What goes wrong: each fault hurts one part and makes it well again. Which, when, and for how long is drawn by the seed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.centre import Centre


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it was drawn. ``late_words``: what jobs say may come too late to be heard, or not at all."""

    name: str
    detail: str
    hurt: Callable[[], object]
    heal: Callable[[], object]
    late_words: bool = False


def _kill_worker(centre: Centre, dice: random.Random) -> Fault:
    worker = dice.choice(centre.workers)
    return Fault("kill_worker", worker.name, worker.kill, worker.start)


def _kill_all_workers(centre: Centre, dice: random.Random) -> Fault:
    def kill() -> None:
        for worker in centre.workers:
            worker.kill()

    def start() -> None:
        for worker in centre.workers:
            worker.start()

    return Fault("kill_all_workers", "", kill, start)


def _freeze_worker(centre: Centre, dice: random.Random) -> Fault:
    """Stopped for longer than its leases last, then it goes on where it was, in the middle of whatever it did."""
    worker = dice.choice(centre.workers)
    return Fault("freeze_worker", worker.name, lambda: worker.send(signal.SIGSTOP), lambda: worker.send(signal.SIGCONT))


def _stop_postgres(centre: Centre, dice: random.Random) -> Fault:
    mode = dice.choice(("fast", "immediate", "kill"))
    return Fault("stop_postgres", mode, lambda: centre.postgres.stop(mode), centre.postgres.start)


def _partition(centre: Centre, dice: random.Random) -> Fault:
    """A worker that sees nobody; one that sees the controller and not the database; and the other way round."""
    worker = dice.choice(centre.workers)
    what = dice.choice(("all", "database", "controller"))
    ports = {"all": (), "database": (centre.postgres.port,), "controller": (centre.controller.port,)}[what]
    return Fault("partition", f"{worker.name} from {what}", lambda: worker.network.cut(ports), worker.network.mend)


def _fill_disk(centre: Centre, dice: random.Random) -> Fault:
    """The database's disk, or the one with the run directories. A server that gave up is started again once there is room."""
    if dice.random() < 0.5:
        return Fault("fill_disk", "run directories", centre.spools.fill, centre.spools.free, late_words=True)

    def heal() -> None:
        centre.postgres.disk.free()
        centre.postgres.start()

    return Fault("fill_disk", "database", centre.postgres.disk.fill, heal)


def _skew_clock(centre: Centre, dice: random.Random) -> Fault:
    """A worker's wall clock jumps by up to ten minutes (of the fast time an hour and more), and later back."""
    worker = dice.choice(centre.workers)
    skew_s = dice.choice((-1, 1)) * dice.uniform(5.0, 600.0)
    return Fault(
        "skew_clock", f"{worker.name} by {skew_s:.0f} s", lambda: _note(worker.skew, f"{skew_s}"), lambda: _note(worker.skew, "0")
    )


def _note(path: os.PathLike[str], text: str) -> None:
    scratch = f"{os.fspath(path)}.new"
    with open(scratch, "w") as file:
        file.write(text)
    os.replace(scratch, path)


def _restart_controller(centre: Centre, dice: random.Random) -> Fault:
    """slurmctld is away; jobs go on."""
    strings = centre.controller.strings
    return Fault("restart_controller", "", lambda: strings.ask("set", mode="down"), lambda: strings.ask("set", mode=""))


def _lose_answers(centre: Centre, dice: random.Random) -> Fault:
    """Jobs are accepted, and the answers never arrive."""
    count, strings = dice.randint(1, 4), centre.controller.strings
    return Fault("lose_answers", str(count), lambda: strings.ask("set", lose_answers=count), lambda: strings.ask("set", lose_answers=0))


def _fail_node(centre: Centre, dice: random.Random) -> Fault:
    name, strings = f"g{dice.randrange(centre.nodes):03}", centre.controller.strings
    return Fault("fail_node", name, lambda: strings.ask("fail_node", name=name, up=False), lambda: strings.ask("fail_node", name=name, up=True))


def _stop_broker(centre: Centre, dice: random.Random) -> Fault:
    """It answers nobody for a while; or it is killed and comes back without its log, and the gateway sends everything again."""
    broker = centre.broker
    assert broker is not None
    if dice.random() < 0.5:
        return Fault("stop_broker", "frozen", broker.freeze, broker.thaw, late_words=True)
    return Fault("stop_broker", "killed", broker.kill, centre.restart_broker, late_words=True)


def _kill_ingest(centre: Centre, dice: random.Random) -> Fault:
    ingest = centre.ingest
    assert ingest is not None
    return Fault("kill_ingest", "", ingest.kill, ingest.start, late_words=True)


def draw(centre: Centre, dice: random.Random) -> list[Fault]:
    """One fault, sometimes two at once, of those that can be done here."""
    kinds = [_kill_worker, _kill_worker, _stop_postgres, _stop_postgres, _skew_clock, _restart_controller, _freeze_worker]
    kinds += [_lose_answers, _fail_node, _kill_all_workers]
    kinds += [_partition] * 2 if centre.workers[0].network.real else []
    kinds += [_fill_disk] * 2 if centre.spools.real and centre.postgres.disk.real else []
    kinds += [_stop_broker, _stop_broker, _kill_ingest] if centre.broker is not None else []
    chosen = dice.sample(kinds, 1 if dice.random() < 0.7 else 2)
    return [kind(centre, dice) for kind in dict.fromkeys(chosen)]
