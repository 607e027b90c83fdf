"""A catalog's and a live system's view of one cluster, for the tests of how they go together."""

from __future__ import annotations

from ischeduler.cidb.accelerators import accelerators
from ischeduler.cidb.provenance import LIVE, WHOLE
from ischeduler.core.cluster import Accelerator, Access, ChargePolicy, Cluster, NodeType, Partition, Provenance
from ischeduler.core.sizes import GIB

OLD, NEW = 1_700_000_000.0, 1_790_000_000.0
GUIDE, SEEN = Provenance("the guide", OLD), Provenance("scontrol", NEW, LIVE)
DOUBT = Provenance("GRES", NEW, "v100 is sold as v100-16g, v100-32g; the smallest is assumed")


def card(name: str, gres: str | None) -> Accelerator:
    known = accelerators()[name]
    return Accelerator(
        name, known.memory_bytes, known.vendor, gres, known.fp32_flops, None, known.bandwidth_bytes_s, known.fp16_flops
    )


def catalog() -> Cluster:
    """What the centre documents: prices, site rules, which V100 is where."""
    return Cluster(
        "lab",
        "Centre",
        partitions=(
            Partition("gpu", ("old",), 7200.0, max_gpus_user=4, charge_factor=2.0, note="ask first"),
            Partition("debug", ("old",), 600.0, chaining_allowed=False, debug=True),
            Partition("gone", ("old",), 600.0),
        ),
        node_types=(
            NodeType("old", 40, 64 * GIB, card("v100-16g", "v100"), 2),
            NodeType("newer", 48, 64 * GIB, card("v100-32g", "v100"), 2),
        ),
        charge=ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0}),
        provenance={WHOLE: GUIDE, "charge": GUIDE},
    )


def live(*, wall_s: float = 3600.0, seen: Provenance = SEEN) -> Cluster:
    """What Slurm says: limits, hardware, accounts, access."""
    node = NodeType("v100x2-48c-60g", 48, 60 * GIB, card("v100-16g", "v100"), 2, count=3)
    return Cluster(
        "lab",
        version="22.05.8",
        partitions=(
            Partition("gpu", (node.name,), wall_s, max_nodes=3, access=Access(True, "accepted", seen.as_of)),
            Partition("debug", (node.name,), 300.0, debug=True, access=Access(False, "Invalid account", seen.as_of)),
            Partition("fresh", (node.name,), None),
        ),
        node_types=(node,),
        accounts=("research", "other"),
        default_account="research",
        user_max_submit=9,
        provenance={WHOLE: seen, f"node_types.{node.name}.accelerator": DOUBT},
        as_of=seen.as_of,
    )
