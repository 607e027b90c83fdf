"""Mirage's networks and the reinforcement learners in the provisioning table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.provisioning_report import figures_text
from ischeduler.helper.provisioning import methods
from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.judge import Record, record
from ischeduler.helper.provisioning.networks.methods import networks
from ischeduler.helper.provisioning.networks.transformer import Shape, torch_module
from ischeduler.helper.provisioning.setting import Setting


@dataclass(frozen=True)
class Effort(methods.Effort):
    """``seeds``: each method is trained so many times, and every one of them is a line of the table."""

    seeds: int = 1


def network_records(
    train: Sequence[Evidence], test: Sequence[Evidence], setting: Setting, seed: int, effort: Effort,
    told: Callable[[str], None] = lambda words: None,
) -> list[Record]:
    """Each fitted on the training episodes, judged on the others. ``told``: hears of each that is done."""
    torch_module().set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    shape = Shape(width=effort.width, epochs=effort.epochs)
    found = []
    for number in range(seed, seed + effort.seeds):
        for method in networks(train, number, shape=shape, steps=effort.decisions):
            name = method.name if number == seed else f"{method.name}_seed{number}"
            found.append(record(name, method.outcomes(test), setting.segment_s / 3600))
            told(f"{name}: {figures_text(found[-1])}")
    return found
