"""The synthetic load of Gavel's evaluation: Poisson arrivals, measured job types, durations and sizes as in Microsoft's Philly traces.

Jobs are drawn from two streams of Python's generator seeded as Gavel seeds them, so the very jobs of its published runs come out.
Source: Narayanan et al., OSDI 2020, section 7.1; durations: 10^[1.5, 3] minutes for 80 % of the jobs, 10^[3, 4] for the others; sizes:
70 % one accelerator, 10 % two, 15 % four, 5 % eight.
"""

from __future__ import annotations

import math
import random

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Throughputs
from ischeduler.simulator.pools.workload import JobRow, Workload, class_name

FAMILIES: tuple[tuple[str, tuple[int, ...], bool], ...] = (
    ("ResNet-18 (batch size {})", (16, 32, 64, 128, 256), True),
    ("ResNet-50 (batch size {})", (16, 32, 64, 128), True),
    ("Transformer (batch size {})", (16, 32, 64, 128, 256), True),
    ("LM (batch size {})", (5, 10, 20, 40, 80), True),
    ("Recommendation (batch size {})", (512, 1024, 2048, 4096, 8192), False),
    ("A3C", (0,), False),
    ("CycleGAN", (0,), False),
)
"""Job types in the order in which lots are drawn over them, their batch sizes, and whether they run on several accelerators."""
TYPES = tuple((name.format(batch), several) for name, batches, several in FAMILIES for batch in batches)
REFERENCE_TYPE = "v100"


def generate(
    throughputs: Throughputs, count: int, mean_gap_s: float, *, seed: int = 0, several: bool = False, reference: str = REFERENCE_TYPE,
) -> Workload:
    """``count`` jobs, on average one every ``mean_gap_s`` seconds (0: all at once); ``several``: some on 2, 4 or 8 accelerators.

    A job's steps are those of its duration on the ``reference`` type. BadInput when the throughputs lack one of the types.
    """
    if reference not in throughputs.types:
        raise BadInput(f"Generated jobs are measured out on a {reference}, which the throughputs do not have; they have "
                       f"{', '.join(throughputs.types)}.")  # fmt: skip
    speed = {name: float(rate) for name, rate in zip(throughputs.classes, throughputs.rate[:, throughputs.types.index(reference)], strict=True)}
    lot, gaps = random.Random(seed + 2), random.Random(seed + 3)
    rows: list[JobRow] = []
    arrival_s = 0.0
    for number in range(count):
        size, run_s, job_type = _draw(lot, several)
        rate = speed.get(class_name(job_type, size), 0.0)
        if rate <= 0:
            raise BadInput(f"The throughputs lack '{job_type}' on {size} {reference}; generated jobs need all of Gavel's job types.")
        rows.append(JobRow(str(number), job_type, size, arrival_s, run_s * rate))
        if mean_gap_s > 0:
            arrival_s = -math.log(1.0 - gaps.random()) / (1.0 / mean_gap_s) + arrival_s
    return Workload.of(rows, throughputs)


def _draw(lot: random.Random, several: bool) -> tuple[int, float, str]:
    """Accelerators, seconds on the reference type, job type: the lots in Gavel's order, whether or not they are used."""
    mark = lot.uniform(0, 1)
    size = 1 if mark < 0.7 else 2 if mark <= 0.8 else 4 if mark <= 0.95 else 8
    long = lot.random() >= 0.8
    run_s = 60 * (10 ** (lot.uniform(3, 4) if long else lot.uniform(1.5, 3)))
    if not several:
        size = 1
    while True:
        job_type, spreads = lot.choice(TYPES)
        if size == 1 or spreads:
            return size, run_s, job_type
