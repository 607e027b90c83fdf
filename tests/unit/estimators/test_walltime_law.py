"""How time grows with data: the law, odd sizes, and which runs examine which."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.walltime.law import Law, fit_law, fit_near_rate, fit_rate
from ischeduler.estimators.walltime.models import LAW, RATE
from ischeduler.estimators.walltime.odd_sizes import odd_sizes
from ischeduler.estimators.walltime.timed import TimedRun, scale_steps

SIZES = (100, 200, 400, 1000, 2000, 5000)


def run(
    samples: int, epochs: int = 1, *, batch: int = 32, hardware: str = "gpu", family: str = "m",
    start: float = 8.0, each: float = 1.5, rate: float = 0.01,
) -> TimedRun:  # fmt: skip
    """A run that follows start + epochs x (each + rate x samples)."""
    return TimedRun(family, hardware, batch, samples, epochs, start + epochs * (each + rate * samples))


def campaign(start: float = 8.0, each: float = 1.5, rate: float = 0.01) -> list[TimedRun]:
    return [run(s, e, start=start, each=each, rate=rate) for s in SIZES for e in (1, 2)]


@given(st.floats(0, 50), st.floats(0, 5), st.floats(1e-4, 1))
def test_an_exact_law_is_found_and_carried_on(start: float, each: float, rate: float) -> None:
    law = fit_law(campaign(start=start, each=each, rate=rate))
    for samples, epochs in ((10_000, 1), (50_000, 2), (10_000, 20)):
        expected = run(samples, epochs, start=start, each=each, rate=rate).seconds
        assert law.seconds(samples, epochs) == pytest.approx(expected, rel=1e-3)


def test_one_size_that_is_off_does_not_bend_the_law() -> None:
    runs = [replace(r, seconds=r.seconds * 0.8) if r.samples == 400 else r for r in campaign()]
    assert fit_law(runs).seconds(10_000, 2) == pytest.approx(run(10_000, 2).seconds, rel=0.01)


def test_the_fixed_part_is_never_less_than_nothing_and_grows_with_epochs() -> None:
    bent = [replace(r, seconds=r.seconds**1.1) for r in campaign(start=0, each=0)]
    law = fit_law(bent)
    assert all(fixed >= 0 for _, fixed in law.fixed)
    law = Law(((1, 10.0), (4, 16.0)), 0.01, 0.0, 9)
    assert [law.fixed_s(e) for e in (1, 2, 4, 14)] == [10.0, 12.0, 16.0, 36.0]
    assert Law(((3, 9.0),), 0.01, 0.0, 3).fixed_s(1) == 9.0
    assert Law(((3, 9.0),), 0.01, 0.0, 3).fixed_s(6) == 18.0


def test_a_single_size_gives_a_rate_only() -> None:
    law = fit_law([run(1000, e, start=0, each=0) for e in (1, 2, 3)])
    assert (law.fixed, law.rate_s) == ((), pytest.approx(0.01))


def test_the_near_rate_forgets_the_short_runs() -> None:
    runs = campaign()
    assert fit_near_rate(runs).rate_s < fit_rate(runs).rate_s
    assert fit_near_rate(runs).n == sum(r.samples >= 5000 / 8 for r in runs)


def several(shift: dict[int, float]) -> list[TimedRun]:
    """Six configurations; runs of the sizes named take that many times as long in all of them."""
    rng = random.Random(1)
    runs = [run(s, e, batch=b, hardware=h) for s in SIZES for e in (1, 2) for b in (16, 32, 64) for h in ("a", "b")]
    return [replace(r, seconds=r.seconds * shift.get(r.samples, 1.0) * rng.uniform(0.99, 1.01)) for r in runs]


def test_a_size_that_is_off_everywhere_is_set_aside() -> None:
    assert odd_sizes(several({})) == {}
    assert odd_sizes(several({5000: 0.8})) == {5000: pytest.approx(-0.223, abs=0.03)}
    assert odd_sizes(several({1000: 1.4})) == {1000: pytest.approx(0.336, abs=0.05)}


def test_a_slow_largest_size_is_believed_and_so_is_one_off_in_a_single_configuration() -> None:
    assert odd_sizes(several({5000: 1.3})) == {}
    lone = [replace(r, seconds=r.seconds * 0.6) if (r.samples, r.batch, r.hardware) == (2000, 32, "a") else r for r in several({})]
    assert odd_sizes(lone) == {}


def test_three_sizes_always_stay() -> None:
    few = [r for r in several({2000: 0.5}) if r.samples in (400, 1000, 2000)]
    assert odd_sizes(few) == {}


def test_steps_examine_each_larger_size_from_at_most_half_of_it() -> None:
    steps = scale_steps(campaign())
    assert [s.size for s in steps] == [2000, 5000]
    for step in steps:
        assert {r.samples for r in step.test} == {step.size}
        assert max(r.samples for r in step.train) * 2 <= step.size
    assert scale_steps([r for r in campaign() if r.samples in (400, 1000, 2000)]) == ()


def test_a_batch_never_seen_takes_the_nearest_and_a_family_is_carried_over() -> None:
    runs = [run(s, batch=b, rate=0.01 / b) for s in SIZES for b in (16, 64)]
    table = LAW.fit(runs)
    assert table.predict(TimedRun("m", "gpu", 48, 10_000, 1)).seconds == table.predict(TimedRun("m", "gpu", 64, 10_000, 1)).seconds
    everywhere = {("m", "a"): 0.01, ("n", "a"): 0.03, ("m", "b"): 0.02}
    runs = [run(s, family=f, hardware=h, start=0, each=0, rate=rate) for s in SIZES for (f, h), rate in everywhere.items()]
    told = RATE.fit(runs).predict(TimedRun("n", "b", 32, 1000, 1))
    assert told.seconds == pytest.approx(60)
    with pytest.raises(NoEvidence):
        RATE.fit(runs).predict(TimedRun("z", "b", 32, 1000, 1))
    with pytest.raises(NoEvidence):
        RATE.fit([])
