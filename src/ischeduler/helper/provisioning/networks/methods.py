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


TRUNKS = (("transformer", 1), ("mixture", 10))
AGENTS = ("dqn", "ppo")


def networks(
    episodes: Sequence[Evidence], seed: int = 0, *, shape: Shape | None = None, steps: int = 40_000, only: str = ""
) -> Iterator[Method]:
    """One after the other, each fitted: Transformer and mixture of ten, with value head and policy gradient; DQN; PPO. ``only``: that one."""
    base = shape or Shape()
    for name, experts in TRUNKS:
        if only not in ("", f"{name}_value", f"{name}_policy"):
            continue
        value = ValueForecaster(replace(base, experts=experts), seed)
        value.fit(episodes)
        if only != f"{name}_policy":
            yield Method(f"{name}_value", value, Newsvendor(margin_s=EARLY_S))
        if only != f"{name}_value":
            policy = PolicyForecaster(value, seed=seed)
            policy.fit(episodes)
            yield Method(f"{name}_policy", policy, Newsvendor())
    for kind in AGENTS:
        if only in ("", kind):
            agent = AgentForecaster(kind, steps, seed)
            agent.fit(episodes)
            yield Method(kind, agent, Newsvendor())
