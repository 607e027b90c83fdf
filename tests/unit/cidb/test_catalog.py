"""The shipped catalog: complete, well formed, and each figure the one of the collected facts where those are at hand."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from ischeduler.cidb.accelerators import accelerators
from ischeduler.cidb.catalog import catalog_cluster, catalog_files, load_catalog
from ischeduler.cidb.provenance import origin
from ischeduler.cidb.yaml_text import read_yaml
from ischeduler.core.cluster import Cluster, Partition
from ischeduler.core.errors import NotFound
from ischeduler.core.sizes import GIB, MIB

NAMES = [
    "pitzer",
    "ascend",
    "cardinal",
    "owens",
    "frontera",
    "lonestar6",
    "vista",
    "stampede3",
    "delta",
    "anvil",
    "expanse",
    "bridges2",
]
FACTS = Path(__file__).parents[3].parent / "shared" / "facts"
LEFT_OUT = re.compile(r"condo-.*|systems")
OSC = {"pitzer", "ascend", "cardinal", "owens"}
# Partition names of the facts table that are kinds of node, and where their figures are in the catalog.
NODE_KINDS = {
    ("pitzer", "gpu (p18)"): ("gpu", "v100-16g-40c"),
    ("pitzer", "gpu-exp (p20)"): ("gpu-exp", "v100-32g-48c"),
    ("pitzer", "gpu-quad"): ("gpu-quad", "v100-quad-48c"),
    ("pitzer", "std 40-core"): (None, "cpu-40c"),
    ("pitzer", "std 48-core"): (None, "cpu-48c"),
    ("pitzer", "largemem"): (None, "largemem-48c"),
    ("pitzer", "hugemem"): (None, "hugemem-80c"),
    ("owens", "std"): (None, "cpu-28c"),
    ("owens", "gpu"): (None, "p100-28c"),
    ("owens", "hugemem"): (None, "hugemem-48c"),
}


@pytest.fixture(scope="module")
def catalog() -> dict[str, Cluster]:
    return {c.name: c for c in load_catalog()}


def test_the_catalog_has_the_promised_clusters(catalog: dict[str, Cluster]):
    assert set(NAMES) <= set(catalog)
    assert [f.name for f in catalog_files()] == sorted(catalog)
    assert catalog_cluster("vista") == catalog["vista"]
    with pytest.raises(NotFound, match="vista"):
        catalog_cluster("nowhere")


def test_every_fact_has_an_origin(catalog: dict[str, Cluster]):
    for cluster in catalog.values():
        for partition in cluster.partitions:
            assert origin(cluster, f"partitions.{partition.name}.max_walltime_s") is not None
        for node in cluster.node_types:
            assert origin(cluster, f"node_types.{node.name}.cores") is not None
        assert origin(cluster, "charge.usd_per_unit") is not None


def test_partitions_name_known_node_types_and_have_limits(catalog: dict[str, Cluster]):
    for cluster in catalog.values():
        for partition in cluster.partitions:
            assert partition.max_walltime_s
            for name in partition.node_types:
                cluster.node_type(name)
            if not partition.node_types:
                assert "not in the source" in partition.note or partition.state == "INACTIVE"


def test_a_decommissioned_cluster_takes_no_jobs(catalog: dict[str, Cluster]):
    assert {p.state for p in catalog["owens"].partitions} == {"INACTIVE"}


def facts(name: str) -> list[dict[str, str]]:
    path = FACTS / name
    if not path.exists():
        pytest.skip("the collected facts in shared/ are not beside this checkout")
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cluster_rows(catalog: dict[str, Cluster]) -> Iterator[tuple[Cluster, Partition | None, str, dict[str, str]]]:
    """Every row of the clusters table that the catalog claims: cluster, its partition where it is one, the node type, the row."""
    for row in facts("clusters.csv"):
        name = row["cluster"].split()[0]
        if name not in catalog:
            continue
        cluster = catalog[name]
        kind = NODE_KINDS.get((name, row["partition"]))
        if kind is not None:
            yield cluster, (cluster.partition(kind[0]) if kind[0] else None), kind[1], row
        else:
            partition = cluster.partition(row["partition"])
            yield cluster, partition, partition.node_types[0], row


def leading(text: str) -> float | None:
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else None


def test_every_partition_of_the_facts_has_its_figures(catalog: dict[str, Cluster]):
    seen: set[tuple[str, str]] = set()
    for cluster, partition, _, row in cluster_rows(catalog):
        if partition is None:
            continue
        seen.add((cluster.name, partition.name))
        where = f"{cluster.name}/{partition.name}"
        hours = leading(row["max_walltime_h"])
        assert hours is None or partition.max_walltime_s == hours * 3600, where
        assert partition.min_nodes == max(1, int(row["min_nodes"] or 1)), where
        if row["max_nodes"]:
            assert partition.max_nodes == int(row["max_nodes"]), where
        for key, value in (("max_jobs_user", partition.max_jobs_user), ("max_submit", partition.max_submit_user)):
            plain = re.fullmatch(r"(\d+)( \(\d+ GPUs\))?", row[key])
            assert value == (int(plain[1]) if plain else None), (where, key)
        if (factor := leading(row["charge"])) is not None and cluster.name not in OSC | {"bridges2"}:
            assert partition.charge_factor == factor, where
        assert partition.preemptible == ("preempt" in row["preempt_note"] or partition.name == "preemptible"), where
        assert partition.restricted == (row["preempt_note"] == "restricted"), where
    queued = {(r["cluster_name"], r["batchLogical Queue Name"]) for r in facts("ischeduler_reference_queues.csv")}
    for cluster in catalog.values():
        for partition in cluster.partitions:
            assert (cluster.name, partition.name) in seen | queued, f"{cluster.name}/{partition.name} is in no table"


def test_every_node_type_of_the_facts_has_its_figures(catalog: dict[str, Cluster]):
    table = read_yaml(resources.files("ischeduler.cidb").joinpath("accelerators.yaml").read_text(encoding="utf-8"))
    for cluster, _, name, row in cluster_rows(catalog):
        node = cluster.node_type(name)
        where = f"{cluster.name}/{name}"
        if row["cores_per_node"].isdigit():
            assert node.cores == int(row["cores_per_node"]), where
        if node.memory_bytes is not None and row["mem_gb_node"] and "/core" not in row["mem_gb_node"]:
            sizes = {float(n) for n in re.findall(r"\d+", row["mem_gb_node"])}
            exact = _queue_memory_gib(cluster.name)
            assert round(node.memory_bytes / GIB) in sizes or math.isclose(node.memory_bytes / GIB, exact.get(name, 0)), where
        if row["nodes_total"]:
            assert node.count == int(row["nodes_total"]), where
        if cluster.name == "bridges2":
            continue
        assert bool(node.accelerator) == bool(row["gpu"]) or row["partition"] == "cpu", where
        if row["gpu"] and node.accelerator is not None:
            assert node.accelerators_per_node == leading(row["gpus_per_node"]), where
            if row["gpu_mem_gb"]:
                listed = table[node.accelerator.name]
                assert float(row["gpu_mem_gb"]) in (listed["memory_gb"], listed.get("driver_mib", 0) / 1024), where


def _queue_memory_gib(name: str) -> dict[str, float]:
    """Memory of OSC's nodes is the queue table's to the megabyte; the facts table has it in GB, as sold."""
    rows = [r for r in facts("ischeduler_reference_queues.csv") if r["cluster_name"] == name]
    known = {r["batchLogical Queue Name"]: int(r["maxMemoryMB"]) / 1024 for r in rows}
    kinds = {
        "cpu-40c": "serial-40core",
        "cpu-48c": "serial-48core",
        "largemem-48c": "largemem",
        "hugemem-80c": "hugemem",
        "cpu-28c": "serial",
        "p100-28c": "gpuserial",
        "hugemem-48c": "hugemem",
        "a100-80gx4-88c": "gpu",
    }
    return {kind: known[queue] for kind, queue in kinds.items() if queue in known}


def test_every_queue_of_the_reference_is_here_or_left_out_by_rule(catalog: dict[str, Cluster]):
    checked = 0
    for row in facts("ischeduler_reference_queues.csv"):
        name, queue = row["cluster_name"], row["batchLogical Queue Name"]
        if name not in OSC:
            continue  # the official documents are newer than the reference's rows of the other centres
        if LEFT_OUT.fullmatch(queue):
            assert queue not in {p.name for p in catalog[name].partitions}
            continue
        partition = catalog[name].partition(queue)
        where = f"{name}/{queue}"
        assert partition.max_walltime_s == int(row["maxMinutes"]) * 60, where
        assert partition.min_nodes == max(1, int(row["minNodeCount"])), where
        assert partition.max_nodes == int(row["maxNodeCount"]), where
        assert partition.max_cores_per_node == int(row["maxCoresPerNode"]), where
        assert partition.max_memory_bytes == int(row["maxMemoryMB"]) * MIB, where
        assert partition.debug == ("debug" in queue), where
        checked += 1
    assert checked > 45


def test_prices_are_those_of_the_facts(catalog: dict[str, Cluster]):
    for row in facts("clusters.csv"):
        cluster = catalog.get(row["cluster"].split()[0])
        if cluster is None:
            continue
        found = re.search(r"1 RU = \$(\d+\.\d+)", row["unit"])
        assert cluster.charge.usd_per_unit == (float(found[1]) if found else None)
        if "min 0.25h" in row["unit"]:
            assert (cluster.charge.rule, cluster.charge.params["floor_h"]) == ("node-hours-used", 0.25)
        if "30*gpus" in row["charge"]:
            assert cluster.charge.params["gpu_weight"] == 30


def test_cards_of_the_catalog_are_in_the_table(catalog: dict[str, Cluster]):
    for cluster in catalog.values():
        for node in cluster.node_types:
            assert node.accelerator is None or node.accelerator.name in accelerators()
