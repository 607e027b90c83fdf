"""When an emulated device is free."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.emulator.clock import LATEST_S, RUN_AHEAD_S, DeviceClock, HostTime, Own, Shared
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
    clock = DeviceClock(Own(), HostTime(world.now, world.work))
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
    clock = DeviceClock(Own(), HostTime(world.now, world.work))
    for _ in range(10):
        clock.run(0.1)
        world.work(0.08)
    clock.synchronize()
    assert world.time - 100.0 == pytest.approx(1.0)
    assert clock.busy_s == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0, 0.09), st.floats(0.1, 0.3)), min_size=1, max_size=30))
def test_what_emulating_costs_the_host_does_not_pass_for_the_device(steps: list[tuple[float, float]]) -> None:
    world = World()
    host = HostTime(world.now, world.work)
    clock = DeviceClock(Own(), host)
    for own_s, device_s in steps:
        with host:
            world.work(own_s)
            with host:  # inner entries add nothing
                world.work(0.001)
        clock.run(device_s)
        clock.synchronize()
    assert world.time - 100.0 == pytest.approx(sum(d for _, d in steps))


def test_the_script_s_own_work_passes_in_full() -> None:
    world = World()
    clock = DeviceClock(Own(), HostTime(world.now, world.work))
    for _ in range(10):
        world.work(0.02)
        clock.run(0.1)
        clock.synchronize()
    assert world.time - 100.0 == pytest.approx(1.2)


def test_what_emulating_costs_is_counted_without_waits() -> None:
    world = World()
    host = HostTime(world.now, world.work)
    clock = DeviceClock(Own(), host)
    for _ in range(3):
        world.work(0.5)
        with host:
            world.work(0.02)
            clock.run(0.2)
            clock.synchronize()
    clock.run(1.0)
    clock.synchronize()
    assert host.own_s == pytest.approx(0.06)
    assert host.waited_s == pytest.approx(3 * 0.18 + 1.0)


def test_a_late_waker_is_made_up_for_by_the_next_wait() -> None:
    world = World()
    clock = DeviceClock(Own(), HostTime(world.now, lambda seconds: world.work(seconds + 0.01)))
    for _ in range(50):
        clock.run(0.05)
        clock.synchronize()
    assert world.time - 100.0 == pytest.approx(2.5 + 0.01)


def test_a_host_that_is_too_slow_is_not_made_up_for_without_end() -> None:
    world = World()
    host = HostTime(world.now, world.work)
    clock = DeviceClock(Own(), host)
    with host:
        world.work(5.0)
    for _ in range(4):
        clock.run(1.0)
        clock.synchronize()
    assert world.time - 100.0 == pytest.approx(9.0 - LATEST_S)
    with host:
        world.work(5.0)
    host.forgive()
    clock.run(1.0)
    clock.synchronize()
    assert world.time - 100.0 == pytest.approx(15.0 - LATEST_S)


@given(st.lists(st.tuples(st.sampled_from(["own", "work", "run", "synchronize", "forgive"]), st.floats(0, 0.3)), max_size=40))
def test_the_host_s_time_never_goes_back_and_lags_by_a_bounded_span(steps: list[tuple[str, float]]) -> None:
    world = World()
    host = HostTime(world.now, world.work)
    clock = DeviceClock(Own(), host)
    before = host.now()
    for kind, seconds in steps:
        if kind == "own":
            with host:
                world.work(seconds)
        elif kind == "work":
            world.work(seconds)
        elif kind == "run":
            clock.run(seconds)
        elif kind == "synchronize":
            clock.synchronize()
        else:
            host.forgive()
        assert before - 1e-9 <= host.now() <= world.time
        assert world.time - host.now() <= LATEST_S + 1e-9
        before = host.now()


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
