"""Mirage's networks and the reinforcement learners: they learn a plain rule, are seeded, and see true snapshots of the past."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

from ischeduler.helper.provisioning.evidence import LEVELS, Evidence
from ischeduler.helper.provisioning.methods import Method
from ischeduler.helper.provisioning.networks.environment import SUBMIT, WAIT, AgentForecaster, environment
from ischeduler.helper.provisioning.networks.history import Scale, steps_of
from ischeduler.helper.provisioning.networks.reinforce import AT_ONCE_H, PolicyForecaster
from ischeduler.helper.provisioning.networks.transformer import Shape, ValueForecaster
from ischeduler.helper.provisioning.state import FEATURES
from ischeduler.plane.provisioners import Newsvendor

SMALL = Shape(experts=2, width=8, feed=8, epochs=30, rate=5e-3)


def made(number: int) -> Evidence:
    """The wait is two hours for each of the jobs that wait (the first feature); 24 hours, a look an hour."""
    rng = np.random.default_rng(number)
    looks = number * 400_000 + np.arange(0, 86401, 3600)
    count = len(looks)
    remaining = (looks[-1] - looks) / 3600.0
    waiting = rng.integers(0, 8) * np.ones(count)
    state = rng.uniform(0, 1, (count, len(FEATURES))).astype(np.float32)
    state[:, 0] = waiting
    return Evidence(
        int(looks[0]), 1, looks, remaining, 2 * waiting - remaining, np.arange(count), state, np.zeros(count),
        np.zeros((count, len(LEVELS))), np.zeros(count),
    )  # fmt: skip


@pytest.fixture(scope="module")
def episodes() -> list[Evidence]:
    return [made(i) for i in range(80)]


@pytest.fixture(scope="module")
def value(episodes: list[Evidence]) -> ValueForecaster:
    found = ValueForecaster(SMALL, seed=1)
    found.fit(episodes)
    return found


def cost_h(forecaster: ValueForecaster | PolicyForecaster | AgentForecaster, margin_s: float = 0.0) -> float:
    after = [made(i) for i in range(200, 220)]
    return float(np.mean([abs(g) for g, _ in Method("one", forecaster, Newsvendor(margin_s=margin_s)).outcomes(after)]))


def reactive_h() -> float:
    return float(np.mean([abs(made(i).gap[-1]) for i in range(200, 220)]))


def test_value_network_learns_the_gap(value: ValueForecaster):
    assert value.losses[0] > 3 * min(value.losses)
    assert cost_h(value) < 0.5 * reactive_h()


def test_training_is_seeded(episodes: list[Evidence]):
    first, again, other = (ValueForecaster(replace(SMALL, epochs=2), seed=seed) for seed in (1, 1, 2))
    for network in (first, again, other):
        network.fit(episodes[:20])
    assert again.losses == first.losses
    assert other.losses != first.losses
    assert np.array_equal(again.forecast(made(300)), first.forecast(made(300)))


def test_policy_gradient_beats_reactive(episodes: list[Evidence], value: ValueForecaster):
    policy = PolicyForecaster(value, epochs=30, seed=2)
    policy.fit(episodes)
    assert set(np.unique(policy.forecast(made(300)))) <= {0.0, AT_ONCE_H}
    assert cost_h(policy) < 0.7 * reactive_h()


def test_past_is_the_true_past_and_never_later(episodes: list[Evidence]):
    scale, of = Scale.of(episodes), made(7)
    steps = steps_of(episodes)
    past = scale.past(of, steps)
    rows = scale.present(of)
    assert past.shape == (len(of.asked), steps, rows.shape[1])
    assert np.array_equal(past[:, -1], rows)
    assert np.array_equal(past[0], np.repeat(rows[:1], steps, axis=0))
    of.state[15:] += 3
    assert np.array_equal(scale.past(of, steps)[:15], past[:15])


def test_environment_follows_gymnasium_and_pays_the_gap(episodes: list[Evidence]):
    from gymnasium.utils.env_checker import check_env

    world = environment(episodes, Scale.of(episodes), price=0.8)
    check_env(world, skip_render_check=True)
    world.reset(options={"episode": 3})
    for _ in range(5):
        assert world.step(WAIT)[1:4] == (0.0, False, False)
    _, reward, done, _, info = world.step(SUBMIT)
    gap = episodes[3].gap[5]
    assert done
    assert info["gap_h"] == gap
    assert reward == pytest.approx(-min(2 * (0.8 * max(gap, 0) + 0.2 * max(-gap, 0)), 48) / 24)


@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_agents_act_at_every_look(kind: str, episodes: list[Evidence]):
    agent = AgentForecaster(kind, steps=1000, seed=3)
    agent.fit(episodes)
    of = made(300)
    assert agent.forecast(of).shape == (len(of.asked), 1)
    assert set(np.unique(agent.forecast(of))) <= {0.0, AT_ONCE_H}
