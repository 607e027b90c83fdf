"""Whether the memory suffices, and if not, by how much and what would: a smaller batch, accumulation, a bigger card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ischeduler.core.blocker import Blocker
from ischeduler.core.memory_model import MemoryModel
from ischeduler.core.plan import Needs
from ischeduler.core.sizes import human_size
from ischeduler.planning.candidates import Candidate, CandidateKey
from ischeduler.planning.offers import Offers

HANDY = 8
"""Advised batch sizes are multiples of this where they can be (tensor cores like it; people remember it)."""

AllNeeds = Mapping[CandidateKey, Needs]


def gpu_memory_blockers(c: Candidate, needs: AllNeeds, offers: Offers) -> Iterator[Blocker]:
    """One blocker when the p90 of GPU memory does not fit the card. Unknown memory does not block."""
    need, have = needs[c.key].gpu_memory, c.card_memory_bytes
    if not c.resources.gpus_per_node or need is None or have is None or need.p90 <= have:
        return
    words = f"card has {human_size(have)}, {human_size(need.p90 - have)} more needed"
    advice = [*_smaller(c, needs, float(have)), *_bigger_card(c, needs, offers)]
    yield Blocker("gpu_memory", words, human_size(need.p90), ", or ".join(advice))


def host_memory_blockers(c: Candidate, needs: AllNeeds, offers: Offers) -> Iterator[Blocker]:
    """One blocker when the p90 of host memory does not fit what a job may have of a node."""
    need, have = needs[c.key].host_memory, c.node_memory_bytes
    if need is None or have is None or need.p90 <= have:
        return
    where = offers.name(
        c, lambda o: (o.node_memory_bytes or 0) >= _host_p90(o, needs, need.p90), lambda o: float(o.node_memory_bytes or 0),
    )
    fewer = "fewer data workers or a smaller batch"
    words = f"a job may have {human_size(have)} of a node, {human_size(need.p90 - have)} more needed"
    yield Blocker("host_memory", words, human_size(need.p90), f"{where}, or {fewer}" if where else fewer)


def memory_model(c: Candidate, needs: AllNeeds) -> MemoryModel | None:
    """How GPU memory grows with the batch at this place, raised to the estimate's p90; None where nothing tells.

    The estimator's own line where it gave one, else the line through the batch sizes that were estimated at this place.
    """
    own = needs[c.key]
    if own.gpu_memory is None:
        return None
    line = own.memory_model
    if line is None:
        there = {size: needs.get(c.key._replace(batch_size=size), Needs()).gpu_memory for size in c.swept}
        line = MemoryModel.through({size: memory.p90 for size, memory in there.items() if memory is not None})
    if line is None or line.per_sample_bytes <= 0:
        return None
    return line.passing(c.workload.batch, own.gpu_memory.p90)


def handy_batch(largest: int) -> int:
    """The largest batch size a person would choose below a bound: a multiple of 8 where there is one."""
    return largest - largest % HANDY if largest >= HANDY else largest


def _smaller(c: Candidate, needs: AllNeeds, have_bytes: float) -> Iterator[str]:
    line = memory_model(c, needs)
    if line is None:
        yield "a smaller batch (--batch-size)"
        yield "gradient accumulation (--grad-accum)"
        return
    largest = handy_batch(min(line.largest_batch(have_bytes), c.workload.batch))
    parts = line.accumulation_that_fits(c.workload.batch, have_bytes)
    if largest < 1 or parts is None:
        yield "split the model (FSDP) or use a lower precision: not even batch 1 fits"
        return
    yield f"batch {largest} fits"
    if parts > 1:
        yield f"gradient accumulation {parts * c.workload.grad_accum}"


def _bigger_card(c: Candidate, needs: AllNeeds, offers: Offers) -> Iterator[str]:
    def fits(other: Candidate) -> bool:
        have, need = other.card_memory_bytes, needs.get(other.key, Needs()).gpu_memory
        return bool(other.gpus and have and have > (c.card_memory_bytes or 0) and need and need.p90 <= have)

    found = offers.nearest(c, fits, lambda o: float(o.card_memory_bytes or 0))
    if found is not None and found.card_memory_bytes:
        yield f"{found.where} ({human_size(found.card_memory_bytes)} cards)"


def _host_p90(c: Candidate, needs: AllNeeds, fallback: float) -> float:
    estimate = needs.get(c.key, Needs()).host_memory
    return estimate.p90 if estimate else fallback
