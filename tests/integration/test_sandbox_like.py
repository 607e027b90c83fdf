"""A real Slurm shaped after each cluster of the shipped catalog: it comes up, has its partitions and GPUs, and runs a job."""

from __future__ import annotations

import pytest

from ischeduler.cidb.catalog import load_catalog
from ischeduler.core.cluster import Cluster
from ischeduler.sandbox import Sandbox
from ischeduler.sandbox import processes as proc
from ischeduler.sandbox.shape import spec_from_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
CATALOG = load_catalog()


@pytest.mark.parametrize("cluster", CATALOG, ids=[c.name for c in CATALOG])
def test_like(cluster: Cluster, slurm_host: None) -> None:
    spec = spec_from_cluster(cluster)
    sandbox = Sandbox(spec, f"like-{cluster.name}")
    sandbox.up()
    try:
        shown = dict(line.split("|", 1) for line in sandbox.run(["sinfo", "-h", "-o", "%R|%l"]).stdout.split())
        assert set(shown) == {p.name for p in spec.partitions}
        cards = sandbox.run(["sinfo", "-h", "-N", "-o", "%G"]).stdout
        assert all(node.gres in cards for node in spec.nodes if node.gres)
        first = spec.partitions[0]
        node = next(n for n in spec.nodes if n.name in first.nodes)
        wish = ["--gres=gpu:1"] if node.gres else []
        job = sandbox.run(["sbatch", "--parsable", "-p", first.name, *wish, "--wrap", "true", "-o", "/dev/null"], "alice").stdout.strip()
        assert proc.wait_until(
            lambda: sandbox.run(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"]).stdout.strip() == "COMPLETED", timeout_s=60, poll_s=0.5
        )
    finally:
        sandbox.down()
