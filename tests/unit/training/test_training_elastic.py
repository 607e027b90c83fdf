"""Batches that are shared out among any number of processes: every sample once, each step the same set."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.training.elastic import ElasticBatches, Figures, elastic

WHOLE = 24
SHAPES = [(w, WHOLE // (w * a), a) for w in (1, 2, 3, 4, 6) for a in (1, 2, 4) if WHOLE % (w * a) == 0]


def steps(samples: int, shape: tuple[int, int, int], epoch: int = 0, done: int = 0) -> list[list[int]]:
    """The samples of each step over all processes, in no order."""
    world, batch, passes = shape
    figures = Figures(world, batch, passes, WHOLE)
    samplers = [ElasticBatches(samples, rank=r, figures=figures, seed=3) for r in range(world)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
        sampler.resume_at(done)
    each = [list(s) for s in samplers]
    assert all(len(s) == len(b) for s, b in zip(samplers, each, strict=True))
    return [
        sorted(i for rank in each for one in rank[at : at + passes] for i in one) for at in range(0, len(each[0]), passes)
    ]  # fmt: skip


@given(st.integers(0, 400), st.sampled_from(SHAPES), st.sampled_from(SHAPES), st.integers(0, 3))
def test_each_step_s_samples_are_the_same_on_any_number_of_processes(samples: int, one: tuple[int, int, int], other: tuple[int, int, int], epoch: int):
    assert steps(samples, one, epoch) == steps(samples, other, epoch)


@settings(max_examples=60)
@given(st.integers(WHOLE, 400), st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 5)), min_size=1, max_size=5))
def test_an_epoch_over_changing_world_sizes_meets_no_sample_twice_and_misses_only_the_incomplete_last(
    samples: int, segments: list[tuple[tuple[int, int, int], int]]
):
    seen: list[int] = []
    for shape, count in segments:
        for step in steps(samples, shape, done=len(seen))[:count]:
            assert len(step) == WHOLE
            seen += step
    for step in steps(samples, SHAPES[0], done=len(seen)):
        seen += step
    assert len(set(seen)) == len(seen) == samples // WHOLE * WHOLE


def test_epochs_differ_and_processes_agree():
    assert steps(240, (2, 12, 1), 0) != steps(240, (2, 12, 1), 1)
    assert sorted(i for step in steps(240, (2, 12, 1), 1) for i in step) == list(range(240))


def test_figures_come_from_the_job_or_from_the_script():
    env = {"ISCHED_WORLD_SIZE": "2", "ISCHED_BATCH_SIZE": "16", "ISCHED_GRAD_ACCUM": "3", "ISCHED_LR_SCALE": "0.5"}
    assert elastic(env) == Figures(2, 16, 3, 96, 0.5)
    assert elastic({}, batch_size=8) == Figures(1, 8, 1, 8, 1.0)
