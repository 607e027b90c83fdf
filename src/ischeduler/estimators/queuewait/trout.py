"""TROUT's hierarchical network as a peer: a classifier of quick starts, then a regression of the waits that are not. Needs PyTorch.

After TROUT (Purdue Anvil, SC24 workshops), whose code and trace are not public: two small perceptrons on the request and the states of
the jobs ahead, quick and slow jobs made equally many for the classifier, smooth L1 loss on the log wait. Grown again as often as our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.queuewait.features import names
from ischeduler.estimators.queuewait.learner import HORIZONS_S, labels_at
from ischeduler.estimators.queuewait.model import CALIBRATED
from ischeduler.estimators.queuewait.peers import Told
from ischeduler.estimators.queuewait.service import REFITS, blocks
from ischeduler.estimators.queuewait.sweep_parts import PENDING_NAMES, QUICK_S, REQUEST_NAMES, RUNNING_NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.queuewait.jobs import Jobs

NO_TORCH = "TROUT's network needs PyTorch; pip install 'ischeduler[torch]'."
_BATCH = 512
_FARTHEST = 5.0  # standard deviations; a feature that lies beyond says no more


@dataclass(frozen=True)
class Trout:
    """``epochs`` passes over the training jobs, Adam at ``rate``."""

    epochs: int = 12
    rate: float = 2e-3
    refits: int = REFITS
    seed: int = 7
    name: str = "TROUT's network"

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        """Medians and the chance of a quick start; bounds it has none. EstimatorFailed without PyTorch."""
        import numpy as np

        table = features[:, [names(twin=True).index(n) for n in (*REQUEST_NAMES, *PENDING_NAMES, *RUNNING_NAMES)]]
        first = int(np.searchsorted(jobs.submit_s, from_s))
        waits, chances = np.full((len(jobs), len(CALIBRATED)), np.nan), np.full((len(jobs), len(HORIZONS_S)), np.nan)
        for start, end in blocks(jobs, first, self.refits):
            labels = labels_at(jobs.take(slice(0, start)), float(jobs.submit_s[start]))
            quick, known = labels.soon(QUICK_S)
            late = labels.ended & ~quick
            chance = _trained(table[:start][known], quick[known].astype(float), table[start:end], self, classify=True)
            slow = _trained(table[:start][late], labels.log_wait[late], table[start:end], self, classify=False)
            usual = float(np.median(labels.log_wait[labels.ended & quick])) if (labels.ended & quick).any() else 0.0
            waits[start:end, CALIBRATED.index(0.5)] = np.where(chance > 0.5, usual, slow)
            chances[start:end, HORIZONS_S.index(QUICK_S)] = chance
        return Told(waits[first:], chances[first:])


def perceptron(
    known: NDArray[Any], answers: NDArray[Any], asked: NDArray[Any], *, seed: int = 7, epochs: int = 12, rate: float = 2e-3,
    classify: bool = False,
) -> NDArray[Any]:  # fmt: skip
    """A small network fitted to ``answers`` (jobs,) and its answers for the rows of ``asked``; chances when it is to ``classify``."""
    return _trained(known, answers, asked, Trout(epochs, rate, seed=seed), classify=classify)


def _trained(known: NDArray[Any], answers: NDArray[Any], asked: NDArray[Any], how: Trout, *, classify: bool) -> NDArray[Any]:
    import numpy as np

    torch = _torch()
    torch.manual_seed(how.seed)
    told = ~np.isnan(known).all(axis=0)
    known, asked = known[:, told], asked[:, told]
    with np.errstate(invalid="ignore"):  # a column that holds an infinity says nothing: its zeros do
        middle, spread = np.nanmean(known, axis=0), np.nanstd(known, axis=0) + 1e-6
        near = [np.nan_to_num(np.clip((t - middle) / spread, -_FARTHEST, _FARTHEST)) for t in (known, asked)]
    scaled = [torch.tensor(t, dtype=torch.float32) for t in near]
    centre, width = (0.0, 1.0) if classify else (float(answers.mean()), float(answers.std()) + 1e-6)
    goal = torch.tensor((answers - centre) / width, dtype=torch.float32)
    nn = torch.nn
    sizes = (known.shape[1], 96, 48)
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ELU(), nn.Dropout(0.1))]
    net = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
    share = float(goal.mean().clamp(0.01, 0.99)) if classify else 0.5
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor((1 - share) / share)) if classify else nn.SmoothL1Loss()
    _descend(torch, net, loss, scaled[0], goal, how)
    with torch.no_grad():
        said = net.eval()(scaled[1])[:, 0]
        return (torch.sigmoid(said) if classify else said * width + centre).numpy().astype(float)


def _descend(torch: Any, net: Any, loss: Any, rows: Any, goal: Any, how: Trout) -> None:
    steps = how.epochs * -(-len(rows) // _BATCH)
    optimizer = torch.optim.Adam(net.parameters(), lr=how.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.rate, total_steps=max(2, steps))
    for _ in range(how.epochs):
        for part in torch.randperm(len(rows)).split(_BATCH):
            optimizer.zero_grad()
            loss(net(rows[part])[:, 0], goal[part]).backward()
            optimizer.step()
            schedule.step()


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise EstimatorFailed(NO_TORCH) from error
    return torch
