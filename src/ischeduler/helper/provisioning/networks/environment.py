"""A gymnasium environment of chain episodes, and stable-baselines3's DQN and PPO on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput
from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forecasters import MEAN
from ischeduler.helper.provisioning.networks.history import Scale
from ischeduler.helper.provisioning.networks.reinforce import AT_ONCE_H
from ischeduler.helper.provisioning.networks.transformer import load_weights, weights_text
from ischeduler.helper.provisioning.tuning import Quantiles

WAIT, SUBMIT = 0, 1
WORST_H = 48.0
"""Rewards are in days and none is worse than two: a single endless queue must not drown the rest."""


def environment(episodes: Sequence[Evidence], scale: Scale, *, price: float = 0.5) -> Any:
    """A ``gymnasium.Env``: the snapshot at a look, wait or submit, the transition's cost (negative, days) at the end.

    ``price``: c_i / (c_i + c_o). ``reset(options={"episode": i})`` chooses an episode, else one is drawn.
    """
    try:
        import gymnasium
    except ImportError:
        raise BadInput("reinforcement learning needs gymnasium: pip install 'ischeduler[reinforcement]'") from None

    class ChainEnv(gymnasium.Env[NDArray[np.float32], int]):
        """One transition from a segment to its successor."""

        _of: Evidence
        _rows: NDArray[np.float32]
        _at: int

        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Box(-5.0, 5.0, (len(scale.mean),), np.float32)
            self.action_space: Any = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
            super().reset(seed=seed)
            number = (options or {}).get("episode")
            self._of = episodes[int(self.np_random.integers(len(episodes)) if number is None else number)]
            self._rows, self._at = scale.present(self._of), 0
            return self._rows[0].copy(), {}

        def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
            last = self._at == len(self._of.asked) - 1
            if int(action) == SUBMIT or last:
                gap = float(self._of.gap[self._of.asked[self._at]])
                cost = 2 * (price * max(gap, 0.0) + (1 - price) * max(-gap, 0.0))
                return self._rows[self._at].copy(), -min(cost, WORST_H) / 24, True, False, {"gap_h": gap}
            self._at += 1
            return self._rows[self._at].copy(), 0.0, False, False, {}

    return ChainEnv()


@dataclass
class AgentForecaster:
    """A stable-baselines3 agent as a provisioner; its decision is written as a forecast, as a policy's is."""

    kind: str = "ppo"
    steps: int = 40_000
    seed: int = 0
    agent: Any = None
    scale: Scale | None = None
    levels = MEAN

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """``steps`` decisions on random training episodes."""
        self.scale = Scale.of(episodes)
        self.agent = _agent(self.kind, environment(episodes, self.scale), self.steps, self.seed)
        self.agent.learn(self.steps)

    def as_data(self) -> dict[str, Any]:
        """Scale and the policy's weights."""
        assert self.scale is not None, "fit first"
        return {"kind": self.kind, "scale": self.scale.as_data(), "weights": weights_text(self.agent.policy)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> AgentForecaster:
        """The forecaster of :meth:`as_data`; it acts and learns no more."""
        scale = Scale.from_data(data["scale"])
        agent = _agent(data["kind"], environment((), scale), 1000, 0)
        load_weights(agent.policy, data["weights"])
        return cls(data["kind"], agent=agent, scale=scale)

    def forecast(self, of: Evidence) -> Quantiles:
        """Endless where the agent submits, 0 where it waits; shape (M, 1)."""
        assert self.scale is not None, "fit first"
        actions = self.agent.predict(self.scale.present(of), deterministic=True)[0]
        return np.where(np.asarray(actions) == SUBMIT, AT_ONCE_H, 0.0)[:, None]


def _agent(kind: str, world: Any, steps: int, seed: int) -> Any:
    try:
        import stable_baselines3 as sb3
    except ImportError:
        raise BadInput("DQN and PPO need stable-baselines3: pip install 'ischeduler[reinforcement]'") from None
    common: dict[str, Any] = {"seed": seed, "device": "cpu", "gamma": 0.999, "policy_kwargs": {"net_arch": [64, 64]}}
    if kind == "dqn":
        return sb3.DQN(
            "MlpPolicy", world, learning_starts=1000, buffer_size=steps, train_freq=4, exploration_fraction=0.4, exploration_final_eps=0.02,
            target_update_interval=1000, **common,
        )  # fmt: skip
    return sb3.PPO("MlpPolicy", world, n_steps=1024, ent_coef=0.005, **common)
