"""Mirage's policy gradient: REINFORCE on what the pretrained network makes of each look (gamma .99, entropy .1, reward -60 |gap h|)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forecasters import MEAN
from ischeduler.helper.provisioning.networks.transformer import ValueForecaster, load_weights, torch_module, weights_text
from ischeduler.helper.provisioning.tuning import Quantiles

GAMMA, ENTROPY, REWARD = 0.99, 0.1, 60.0
AT_ONCE_H = 1e4
"""A policy's "submit now" as a forecast: a wait longer than any remaining time."""


@dataclass
class PolicyForecaster:
    """A policy head on a fitted value network. Its decision is written as a forecast: an endless wait says submit, none says wait."""

    trunk: ValueForecaster
    epochs: int = 60
    patience: int = 8
    batch: int = 32
    seed: int = 0
    head: Any = None
    levels = MEAN

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Whole episodes are sampled; the greedy policy's cost on the last fifth of the time says when to stop."""
        torch = torch_module()
        torch.manual_seed(self.seed)
        if self.trunk.network is None:
            self.trunk.fit(episodes)
        coded = [self._inputs(e) for e in episodes]
        self.head = _head(coded[0].shape[1])
        adam = torch.optim.Adam(self.head.parameters(), lr=1e-3)
        rng = np.random.default_rng(self.seed)
        cut = max(1, int(0.8 * len(episodes)))
        best, kept, since = float("inf"), copy.deepcopy(self.head.state_dict()), 0
        for _ in range(self.epochs):
            for part in np.array_split(rng.permutation(cut), max(1, cut // self.batch)):
                self._step(adam, [coded[i] for i in part], [episodes[i] for i in part])
            cost = float(np.mean([abs(e.gap[e.asked[self._greedy(c)]]) for e, c in zip(episodes[cut:], coded[cut:], strict=True)]))
            best, kept, since = (cost, copy.deepcopy(self.head.state_dict()), 0) if cost < best else (best, kept, since + 1)
            if since > self.patience:
                break
        self.head.load_state_dict(kept)

    def forecast(self, of: Evidence) -> Quantiles:
        """:data:`AT_ONCE_H` where the policy submits, 0 where it waits; shape (M, 1)."""
        torch = torch_module()
        with torch.no_grad():
            submits = (self.head(self._inputs(of))[:, 0] > 0).numpy()
        return np.where(submits, AT_ONCE_H, 0.0)[:, None]

    def as_data(self) -> dict[str, Any]:
        """The value network and the head on it."""
        return {"kind": "policy", "trunk": self.trunk.as_data(), "head": weights_text(self.head)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> PolicyForecaster:
        """The forecaster of :meth:`as_data`."""
        trunk = ValueForecaster.from_data(data["trunk"])
        head = _head(trunk.shape.width + 1)
        load_weights(head, data["head"])
        return cls(trunk, head=head)

    def _inputs(self, of: Evidence) -> Any:
        torch = torch_module()
        gap, coded = self.trunk.coded(of)
        return torch.cat([coded, gap[:, None]], dim=1)

    def _greedy(self, coded: Any) -> int:
        torch = torch_module()
        with torch.no_grad():
            submits = (self.head(coded)[:, 0] > 0).numpy()
        return int(np.argmax(submits)) if submits.any() else len(submits) - 1

    def _step(self, adam: Any, coded: list[Any], episodes: list[Evidence]) -> None:
        torch = torch_module()
        rewards, terms = [], []
        for x, of in zip(coded, episodes, strict=True):
            logit = self.head(x)[:, 0]
            drawn = torch.bernoulli(torch.sigmoid(logit.detach()))
            drawn[-1] = 1.0
            at = int(drawn.argmax())
            chosen = torch.nn.functional.logsigmoid(torch.where(drawn > 0, logit, -logit))[: at + 1]
            later = torch.from_numpy(GAMMA ** np.arange(at, -1, -1, dtype=np.float32))
            rewards.append(-REWARD * min(abs(float(of.gap[of.asked[at]])), 100.0))
            p = torch.sigmoid(logit[: at + 1])
            entropy = -(p * torch.log(p + 1e-6) + (1 - p) * torch.log(1 - p + 1e-6)).mean()
            terms.append((chosen * later, entropy))
        gain = np.array(rewards, np.float32)
        gain = (gain - gain.mean()) / (gain.std() + 1e-3)
        loss = torch.stack([-(float(g) * c.mean()) - ENTROPY * h for g, (c, h) in zip(gain, terms, strict=True)]).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        adam.step()


def _head(inputs: int) -> Any:
    nn = torch_module().nn
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 1))
