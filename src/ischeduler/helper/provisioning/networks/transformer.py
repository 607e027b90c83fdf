"""Mirage's Transformer and mixture of experts with a value head: the gap regressed, submit when it is at least half an hour short."""

from __future__ import annotations

import base64
import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput
from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forecasters import MEAN, PROBES
from ischeduler.helper.provisioning.networks.history import Scale, steps_of
from ischeduler.helper.provisioning.tuning import Quantiles

GAP_H = 24.0
"""Gaps are learned in days, and none beyond five."""


@dataclass(frozen=True)
class Shape:
    """Mirage: one layer, one head, embedding 512, feed-forward 128; ten experts for the mixture, one for the plain Transformer."""

    experts: int = 1
    width: int = 512
    feed: int = 128
    epochs: int = 40
    patience: int = 4
    batch: int = 128
    rate: float = 1e-3


@dataclass
class ValueForecaster:
    """A network that regresses the signed gap; as a forecast, the wait is the gap plus what remains."""

    shape: Shape = field(default_factory=Shape)
    seed: int = 0
    network: Any = None
    scale: Scale | None = None
    steps: int = 24
    losses: list[float] = field(default_factory=list)
    levels = MEAN

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Seven probes an episode; stops when the last fifth of the time is not predicted better for some epochs."""
        torch = torch_module()
        torch.manual_seed(self.seed)
        self.scale, self.steps = Scale.of(episodes), steps_of(episodes)
        self.network = _network(self.shape, len(self.scale.mean), self.steps)
        cut = max(1, int(0.8 * len(episodes)))
        self.losses = _train(
            self.network, self.samples(episodes[:cut]), self.samples(episodes[cut:]), self.shape, np.random.default_rng(self.seed)
        )

    def forecast(self, of: Evidence) -> Quantiles:
        """The wait in hours, shape (M, 1)."""
        gap = self.coded(of)[0].numpy().astype(float) * GAP_H
        return np.maximum(gap + of.remaining[of.asked], 0.0)[:, None]

    def as_data(self) -> dict[str, Any]:
        """Shape, scale and weights."""
        assert self.scale is not None, "fit first"
        return {
            "kind": "value", "shape": asdict(self.shape), "scale": self.scale.as_data(), "steps": self.steps, "weights": weights_text(self.network),
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ValueForecaster:
        """The forecaster of :meth:`as_data`."""
        shape, scale = Shape(**data["shape"]), Scale.from_data(data["scale"])
        network = _network(shape, len(scale.mean), data["steps"])
        load_weights(network, data["weights"])
        return cls(shape, network=network, scale=scale, steps=data["steps"])

    def coded(self, of: Evidence) -> tuple[Any, Any]:
        """The predicted gap (in units of :data:`GAP_H`) at each look, shape (M,), and what it is read from, shape (M, width)."""
        torch = torch_module()
        with torch.no_grad():
            return self.network(torch.from_numpy(self._past(of)))

    def samples(self, episodes: Sequence[Evidence]) -> tuple[Any, Any]:
        """Days of snapshots and gaps at the probes."""
        torch = torch_module()
        xs, ys = [], []
        for of in episodes:
            chosen = np.unique(np.linspace(0, len(of.asked) - 1, PROBES).round().astype(np.int64))
            xs.append(self._past(of)[chosen])
            ys.append(np.clip(of.gap[of.asked[chosen]] / GAP_H, -5, 5))
        return torch.from_numpy(np.concatenate(xs)), torch.from_numpy(np.concatenate(ys).astype(np.float32))

    def _past(self, of: Evidence) -> NDArray[np.float32]:
        assert self.scale is not None, "fit first"
        return self.scale.past(of, self.steps)


def torch_module() -> Any:
    """Torch, or one sentence."""
    try:
        import torch
    except ImportError:
        raise BadInput("the networks need PyTorch: pip install 'ischeduler[reinforcement]'") from None
    return torch


def weights_text(network: Any) -> str:
    """A module's weights as text."""
    packed = io.BytesIO()
    torch_module().save(network.state_dict(), packed)
    return base64.b64encode(packed.getvalue()).decode()


def load_weights(network: Any, text: str) -> None:
    """The weights of :func:`weights_text` into a module; only tensors are read."""
    network.load_state_dict(torch_module().load(io.BytesIO(base64.b64decode(text)), weights_only=True))


def _train(network: Any, train: tuple[Any, Any], held: tuple[Any, Any], shape: Shape, rng: np.random.Generator) -> list[float]:
    """Squared error with early stopping; the network keeps the weights that were best on what was held out. Its losses by epoch."""
    torch = torch_module()
    adam = torch.optim.AdamW(network.parameters(), lr=shape.rate, weight_decay=1e-3)
    best, kept, losses = float("inf"), copy.deepcopy(network.state_dict()), []
    x, y = train
    for _ in range(shape.epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for part in order.split(shape.batch):
            adam.zero_grad()
            loss = ((network(x[part])[0] - y[part]) ** 2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            adam.step()
        with torch.no_grad():
            losses.append(float(((network(held[0])[0] - held[1]) ** 2).mean()))
        if losses[-1] < best:
            best, kept = losses[-1], copy.deepcopy(network.state_dict())
        elif len(losses) - losses.index(min(losses)) > shape.patience:
            break
    network.load_state_dict(kept)
    return losses


def _network(shape: Shape, features: int, steps: int) -> Any:
    torch = torch_module()
    nn = torch.nn

    class Expert(nn.Module):
        """One encoder layer over the day; its last step speaks for it."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(features, shape.width)
            self.place = nn.Parameter(0.02 * torch.randn(steps, shape.width))
            self.layer = nn.TransformerEncoderLayer(shape.width, 1, shape.feed, dropout=0.1, batch_first=True)

        def forward(self, past: Any) -> Any:
            return self.layer(self.embed(past) + self.place)[:, -1]

    class Mixture(nn.Module):
        """Experts weighted by a gate that reads the present snapshot; (value, what the experts made of it)."""

        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(Expert() for _ in range(shape.experts))
            self.gate = nn.Linear(features, shape.experts)
            self.head = nn.Linear(shape.width, 1)

        def forward(self, past: Any) -> Any:
            weights = torch.softmax(self.gate(past[:, -1]), dim=-1)
            made = torch.stack([e(past) for e in self.experts], dim=1)
            mixed = (weights[:, :, None] * made).sum(dim=1)
            return self.head(mixed)[:, 0], mixed

    return _Switching(Mixture())


class _Switching:
    """Training mode while gradients are recorded, evaluation otherwise: nobody can forget to switch."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __call__(self, past: Any) -> Any:
        self._network.train(torch_module().is_grad_enabled())
        return self._network(past)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)
