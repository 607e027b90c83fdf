"""What an hour without any allocation costs the user, against an hour with two."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ischeduler.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an hour; only their ratio decides when to submit."""

    interruption: float = 1.0
    overlap: float = 1.0

    def __post_init__(self) -> None:
        good = all(math.isfinite(p) and p >= 0 for p in (self.interruption, self.overlap))
        if not good or self.interruption + self.overlap <= 0:
            raise BadInput(
                f"the prices of an hour of interruption and of overlap are {self.interruption} and {self.overlap}: "
                "give two numbers of at least 0, not both 0"
            )

    @property
    def level(self) -> float:
        """The critical level c_i / (c_i + c_o) of the newsvendor problem: the quantile of the wait to be ready for."""
        return self.interruption / (self.interruption + self.overlap)

    def cost_h(self, interruption_s: float, overlap_s: float) -> float:
        """Hours, with both prices scaled to a sum of 2, so that equal prices give interruption plus overlap."""
        scale = 2.0 / (self.interruption + self.overlap)
        return scale * (self.interruption * interruption_s + self.overlap * overlap_s) / 3600.0
