"""What is emulated, as it travels to the training process in one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import BadInput

VARIABLE = "ISCHED_EMULATE"


@dataclass(frozen=True, slots=True)
class EmulationSpec:
    """``card`` is the datasheet of the cards, of which this host has ``count``. Bytes and seconds.

    ``memory_bytes`` is what the driver shows, ``context_bytes`` what CUDA itself takes of it. ``table`` is a folder in GPEmu's layout and
    ``table_gpu``, ``table_model`` the names in it; without a table the estimator's times are taken. ``shared`` is a folder in which
    processes on one device meet. ``preprocess_s`` is slept for each sample that a data loader fetches.
    """

    card: Accelerator
    memory_bytes: int
    context_bytes: int = 0
    count: int = 1
    precision: str = "fp32"
    table: str = ""
    table_gpu: str = ""
    table_model: str = ""
    shared: str = ""
    preprocess_s: float = 0.0
    transfer_bytes_s: float = 12e9
    link_bytes_s: float = 10e9
    report: str = ""

    def environment(self) -> dict[str, str]:
        """The variable that the training process reads."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> EmulationSpec | None:
        """What is to be emulated here; None when nothing is. BadInput for a variable that says something else."""
        text = (os.environ if environ is None else environ).get(VARIABLE)
        if not text:
            return None
        try:
            fields = json.loads(text)
            return cls(**{**fields, "card": Accelerator(**fields["card"])})
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{VARIABLE} is not what isched emulate writes ({error}); start the training with isched emulate.") from None
