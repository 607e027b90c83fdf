"""Mirage's four networks and the two standard reinforcement learners, fitted, as methods of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.methods import Method
from ischeduler.helper.provisioning.networks.environment import AgentForecaster
from ischeduler.helper.provisioning.networks.reinforce import PolicyForecaster
from ischeduler.helper.provisioning.networks.transformer import Shape, ValueForecaster
from ischeduler.plane.provisioners import Newsvendor

EARLY_S = 1800.0
"""Mirage submits when the predicted gap is at least minus half an hour."""


def networks(episodes: Sequence[Evidence], seed: int = 0, *, shape: Shape | None = None, steps: int = 40_000) -> Iterator[Method]:
    """One after the other, each fitted: Transformer and mixture of ten, with value head and policy gradient; DQN; PPO."""
    base = shape or Shape()
    for name, experts in (("transformer", 1), ("mixture", 10)):
        value = ValueForecaster(replace(base, experts=experts), seed)
        value.fit(episodes)
        yield Method(f"{name}_value", value, Newsvendor(margin_s=EARLY_S))
        policy = PolicyForecaster(value, seed=seed)
        policy.fit(episodes)
        yield Method(f"{name}_policy", policy, Newsvendor())
    for kind in ("dqn", "ppo"):
        agent = AgentForecaster(kind, steps, seed)
        agent.fit(episodes)
        yield Method(kind, agent, Newsvendor())
