"""Slurm's answers, recorded and in the shapes of newer versions, become the same records, node types and partitions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import slurm_json_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.cidb import scontrol, slurm_json
from ischeduler.cidb.hardware import node_types
from ischeduler.cidb.queues import duration, qos_limits, read_partition
from ischeduler.core.cluster import Partition
from ischeduler.core.sizes import MIB

RECORDED = Path(__file__).parent / "recorded"
CONFIG = scontrol.config_values((RECORDED / "config-22.05.txt").read_text())
PARTITIONS = scontrol.one_line_records((RECORDED / "partitions-22.05.txt").read_text())
NODES = scontrol.one_line_records((RECORDED / "nodes-22.05.txt").read_text())
QOS = {
    "part_limits": {"MaxWall": "1-00:00:00", "MaxTRESPU": "cpu=100,gres/gpu=8", "MaxJobsPU": "", "MaxSubmitPU": "20"},
    "normal": {"MaxWall": "", "MaxTRESPU": "gres/gpu:v100=2,gres/gpu:a100=1", "MaxJobsPU": "5", "MaxSubmitPU": "50"},
}


def partition(name: str, default_qos: str | None = None, config: dict[str, str] | None = None) -> Partition:
    row = next(r for r in PARTITIONS if r["PartitionName"] == name)
    return read_partition(row, PARTITIONS, ("x",), qos_limits(row, QOS, default_qos), config or CONFIG)


def test_config_is_read():
    assert scontrol.version_of(CONFIG) == (22, 5)
    assert CONFIG["ClusterName"] == "testbed"
    assert scontrol.version_of({}) == (0, 0)


def test_a_record_keeps_the_first_of_a_key_whatever_the_reason_says():
    node = next(n for n in NODES if n["NodeName"] == "g03")
    assert node["Gres"] == "gpu:4(S:0-1)"
    assert node["RealMemory"] == "515000"
    assert node["State"] == "DOWN*+DRAIN"


def test_nodes_are_grouped_by_hardware():
    types, of_partition, doubts = node_types(NODES)
    found = {t.name: t for t in types}
    assert set(found) == {"cpu-16c-31g", "v100x2-8c-16g", "gpux4-62c-503g"}
    assert found["v100x2-8c-16g"].count == 3
    assert found["cpu-16c-31g"].memory_bytes == 32000 * MIB
    assert of_partition["closed"] == ("cpu-16c-31g",)
    assert of_partition["gpu"] == ("v100x2-8c-16g", "gpux4-62c-503g")
    assert "smallest is assumed" in doubts["v100x2-8c-16g"]


def test_an_untyped_card_is_named_by_a_feature_and_reserved_memory_is_not_for_jobs():
    big = next(t for t in node_types(NODES)[0] if t.name.startswith("gpu"))
    assert big.accelerator is not None
    assert (big.accelerator.name, big.accelerator.gres) == ("a100-80g", None)
    assert big.accelerators_per_node == 4
    assert big.cores == 62
    assert big.memory_bytes == 512000 * MIB


def test_a_node_of_two_cards_is_doubtful():
    row = {"CPUTot": "8", "RealMemory": "1000", "Gres": "gpu:v100:2,gpu:t4:1", "Partitions": "a"}
    types, _, doubts = node_types([row])
    assert types[0].accelerators_per_node == 3
    assert "several kinds" in doubts[types[0].name]


def test_limits_of_a_partition():
    quiet = partition("quiet")
    assert (quiet.min_nodes, quiet.max_nodes, quiet.max_cores_per_node) == (2, 4, 24)
    assert quiet.max_memory_bytes == 16000 * MIB
    assert quiet.default_walltime_s == 1800.0
    assert (quiet.restricted, quiet.whole_node, quiet.state) == (True, True, "DRAIN")
    assert quiet.allow_qos == ("normal", "high")
    assert quiet.note == "hidden; denies accounts trial; groups physics only"
    empty = partition("empty")
    assert empty.max_walltime_s == math.inf
    assert empty.default_walltime_s is None
    assert (empty.max_nodes, empty.max_memory_bytes) == (None, None)


def test_the_partitions_qos_counts_before_the_users():
    quiet = partition("quiet", default_qos="normal")
    assert quiet.max_walltime_s == 86400.0
    assert (quiet.max_gpus_user, quiet.max_jobs_user, quiet.max_submit_user) == (8, 5, 20)
    assert partition("cpu", default_qos="normal").max_gpus_user == 3
    assert partition("cpu").max_gpus_user is None
    assert partition("quiet", default_qos="low").max_jobs_user is None


def test_preemption_by_tier_needs_a_higher_partition_on_the_same_nodes():
    by_tier = {**CONFIG, "PreemptType": "preempt/partition_prio"}
    assert partition("cpu", config=by_tier).preemptible
    assert not partition("gpu", config=by_tier).preemptible
    assert not partition("quiet", config=by_tier).preemptible
    assert not partition("cpu", config={**CONFIG, "PreemptType": "preempt/none"}).preemptible


@pytest.mark.parametrize(
    ("name", "debug"),
    [
        ("debug", True),
        ("gpu-debug", True),
        ("gpudebug-48core", True),
        ("rtx-dev", True),
        ("development", True),
        ("devices", False),
        ("gpu", False),
        ("shorthaul", False),
        ("endeavour", False),
    ],
)
def test_debug_queues_are_known_by_name(name: str, debug: bool):
    assert read_partition({"PartitionName": name}, [], (), [], {}).debug is debug


@pytest.mark.parametrize("parser", samples.PARSERS)
def test_json_nodes_of_every_data_parser(parser: str):
    text = samples.nodes(parser)
    rows = slurm_json.nodes(text)
    assert rows is not None
    types, of_partition, _ = node_types(rows)
    newer = parser in ("v0.0.40", "v0.0.41", "v0.0.42")
    assert len(types) == 1
    assert (types[0].count, types[0].accelerators_per_node) == (2, 2)
    assert types[0].cores == (46 if newer else 48)
    assert types[0].memory_bytes == (371000 if newer else 373000) * MIB
    assert types[0].features == ("v100", "ib")
    assert set(of_partition) == {"gpu", "debug"}


@pytest.mark.parametrize("parser", samples.PARSERS)
def test_json_partitions_of_every_data_parser(parser: str):
    rows = slurm_json.partitions(samples.partitions(parser))
    assert rows is not None
    found = read_partition(rows[0], rows, ("x",), [], {})
    assert found.max_walltime_s == 2880 * 60.0
    assert found.default_walltime_s == 1800.0
    assert (found.min_nodes, found.max_nodes) == (2, 4)
    assert found.max_cores_per_node is None
    assert found.max_memory_bytes is None
    assert found.allow_qos == ("normal", "high")
    assert found.allow_accounts == ()
    assert "denies accounts trial" in found.note
    assert found.state == "UP"


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"nodes": 3}', '{"nodes": [], "errors": ["unable to contact"]}'])
def test_what_is_no_answer_is_none(text: str):
    assert slurm_json.nodes(text) is None
    assert slurm_json.partitions(text) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
def test_no_shape_of_a_field_breaks_the_json_reader(value: object):
    import json

    keys = ("name", "cpus", "gres", "features", "partitions", "state", "maximums", "defaults", "qos", "priority", "accounts")
    text = json.dumps({"nodes": [dict.fromkeys(keys, value)], "partitions": [dict.fromkeys(keys, value)]})
    for rows in (slurm_json.nodes(text), slurm_json.partitions(text)):
        assert rows is not None
        assert all(isinstance(v, str) for v in rows[0].values())


@given(st.text())
def test_no_text_breaks_the_text_readers(text: str):
    for record in scontrol.one_line_records(text):
        assert all(isinstance(v, str) for v in record.values())
    scontrol.config_values(text)
    assert scontrol.parsable_rows(text, ("A", "B")) is not None


def test_durations_and_nothing():
    assert duration("(null)") is None
    assert duration(None) is None
    assert duration("UNLIMITED") == math.inf
    assert duration("2880") == 2880 * 60.0
    assert scontrol.names("(null)") == ()
    assert scontrol.names("a,b") == ("a", "b")
    assert scontrol.tres("cpu=4,gres/gpu:v100=2") == {"cpu": "4", "gres/gpu:v100": "2"}
    assert scontrol.tres("(null)") == {}
