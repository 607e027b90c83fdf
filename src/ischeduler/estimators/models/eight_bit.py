"""What bitsandbytes' 8-bit optimizers keep, without bitsandbytes: one byte a state and parameter, and a scale a block.

Tensors under 4,096 elements keep 32-bit states; larger ones uint8 states with one fp32 scale for each 256 elements, and the
update is one kernel without temporaries. Source: bitsandbytes, ``optim/optimizer.py`` (``min_8bit_size``, block-wise states).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

SMALLEST = 4096
BLOCK = 256


class EightBit(torch.optim.Optimizer):
    """Holds the states; its step changes nothing but the parameters' memory of having been stepped."""

    def __init__(self, parameters: Iterable[Any], states: int, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})
        self._states = states

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Make the states at the first call."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self._make(parameter)

    def _make(self, parameter: Any) -> None:
        state = self.state[parameter]
        for number in range(self._states):
            if parameter.numel() < SMALLEST:
                state[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.float32)
            else:
                state[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.uint8)
                blocks = -(-parameter.numel() // BLOCK)
                state[f"absmax{number}"] = torch.zeros(blocks, dtype=torch.float32, device=parameter.device)
