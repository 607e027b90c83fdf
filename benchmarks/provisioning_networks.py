"""Mirage's networks and the reinforcement learners in the provisioning table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.judge import Record, record
from ischeduler.helper.provisioning.networks.methods import networks
from ischeduler.helper.provisioning.networks.transformer import Shape, torch_module
from ischeduler.helper.provisioning.setting import Setting


def network_records(
    train: Sequence[Evidence], test: Sequence[Evidence], setting: Setting, seed: int, *, width: int = 64, epochs: int = 30,
    told: Callable[[str], None] = lambda words: None,
) -> list[Record]:
    """Each fitted on the training episodes, judged on the others. ``width``: of the embedding (Mirage's is 512)."""
    torch_module().set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found = []
    for method in networks(train, seed, shape=Shape(width=width, epochs=epochs)):
        found.append(record(method.name, method.gaps_h(test), setting.segment_s / 3600))
        told(method.name)
    return found
