"""When an emulated device is free."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.emulator.clock import RUN_AHEAD_S, DeviceClock, Own, Shared
from ischeduler.emulator.shared_memory import SharedLedger


class World:
    """A host whose time passes only by waiting or by :meth:`work`."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def work(self, seconds: float) -> None:
        self.time += seconds


@given(st.lists(st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)), max_size=30))
def test_the_device_is_busy_for_all_its_work_and_the_host_never_far_ahead(steps: list[tuple[float, float]]) -> None:
    world = World()
    clock = DeviceClock(Own(), now=world.now, sleep=world.work)
    began = world.time
    for host_s, device_s in steps:
        world.work(host_s)
        clock.run(device_s)
        assert clock.done_at() - world.time <= RUN_AHEAD_S + 0.31
    clock.synchronize()
    host, device = sum(h for h, _ in steps), sum(d for _, d in steps)
    assert max(host, device) - 1e-6 <= world.time - began <= host + device + 1e-6


def test_host_and_device_overlap() -> None:
    world = World()
    clock = DeviceClock(Own(), now=world.now, sleep=world.work)
    for _ in range(10):
        clock.run(0.1)
        world.work(0.08)
    clock.synchronize()
    assert world.time - 100.0 == pytest.approx(1.0)
    assert clock.busy_s == pytest.approx(1.0)


def test_two_processes_take_turns(tmp_path: Path) -> None:
    one, two = Shared(tmp_path / "d.clock"), Shared(tmp_path / "d.clock")
    assert one.queue(1.0, 50.0) == 51.0
    assert two.queue(1.0, 50.0) == 52.0
    assert one.queue(1.0, 60.0) == 61.0


def test_memory_of_the_dead_is_free_again(tmp_path: Path) -> None:
    path = tmp_path / "d.memory"
    path.write_text('{"999999999": 100, "1": 7}')
    mine = SharedLedger(path)
    assert mine.others() == 7
    mine.claim(50)
    assert mine.others() == 7
    assert "999999999" not in path.read_text()
