"""The text form of a cluster: back and forth without loss, and one sentence for each thing that is wrong."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.cidb.catalog import load_catalog, parse_cluster
from ischeduler.cidb.document import cluster_of, document_of
from ischeduler.cidb.yaml_text import read_yaml, write_yaml
from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition, Provenance
from ischeduler.core.errors import BadInput

GOOD: dict[str, Any] = {
    "name": "lab",
    "source": "guide",
    "sources": {"guide": {"title": "our wiki", "as_of": "2026-01-02"}},
    "charge": {"rule": "core-gpu-hours", "unit": "RU", "usd_per_unit": 0.01},
    "node_types": [{"name": "box", "cores": 8, "memory": "64G", "accelerator": "v100-32g", "accelerators": 2, "gres": "v100"}],
    "partitions": [{"name": "gpu", "nodes": ["box"], "max_walltime": "2h"}],
}


@pytest.mark.parametrize("cluster", load_catalog(), ids=lambda c: c.name)
def test_catalog_clusters_survive_the_way_to_text_and_back(cluster: Cluster):
    assert parse_cluster(write_yaml(document_of(cluster))) == cluster


counts = st.none() | st.integers(0, 10**6)
names = st.text("abcxyz019-_", min_size=1, max_size=8)
seconds = st.none() | st.just(math.inf) | st.floats(0.5, 1e7)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    cards = st.none() | st.builds(Accelerator, name=names, memory_bytes=st.integers(0, 2**40), gres=st.none() | names)
    kinds = draw(st.lists(names, unique=True, max_size=3))
    nodes = []
    for kind in kinds:
        card = draw(cards)
        memory = draw(st.none() | st.integers(2**20, 2**42))
        nodes.append(NodeType(kind, draw(counts), memory, card, draw(st.integers(0, 8)) if card else 0, draw(counts)))
    queues = []
    for name in draw(st.lists(names, unique=True, max_size=3)):
        used = tuple(draw(st.lists(st.sampled_from(kinds), unique=True))) if kinds else ()
        queue = Partition(name, used, draw(seconds), draw(seconds), max_memory_bytes=draw(st.none() | st.integers(2**20, 2**42)))
        queues.append(replace(queue, debug=draw(st.booleans()), note=draw(st.text("ab :#'\"\n", max_size=8))))
    origins = st.builds(Provenance, source=names, as_of=st.integers(0, 2 * 10**9).map(float), confidence=names)
    facts = draw(st.dictionaries(st.sampled_from(["cluster", "charge", "charge.unit", "partitions.a.debug"]), origins))
    charge = ChargePolicy(usd_per_unit=draw(st.none() | st.floats(0, 10)), params=draw(st.dictionaries(names, st.floats(0, 9))))
    return Cluster("lab", partitions=tuple(queues), node_types=tuple(nodes), charge=charge, provenance=facts)


@given(clusters())
def test_any_cluster_survives_the_way_to_text_and_back(cluster: Cluster):
    assert parse_cluster(write_yaml(document_of(cluster))) == cluster


def test_a_date_counts_from_midnight_utc():
    assert cluster_of(GOOD).provenance["cluster"].as_of == 1767312000.0


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("partitions.0.max_walltime", "soon", "partitions.0.max_walltime is wrong.*not a duration.*got 'soon'"),
        ("partitions.0.nodes", ["crate"], "partition 'gpu' uses node type 'crate'"),
        ("partitions.0.colour", "red", "partitions.0.colour is wrong: extra inputs"),
        ("node_types.0.memory", "lots", "not a memory size"),
        ("node_types.0.memory", 64, "greater than or equal to 1048576"),
        ("node_types.0.cores", -1, "node_types.0.cores"),
        ("node_types.0.accelerator", "v9000", "accelerator 'v9000' of node type 'box' is unknown; expected one of k80"),
        ("charge.usd_per_unit", -1, "charge.usd_per_unit"),
        ("source", "hearsay", "source 'hearsay' is not among sources; expected one of guide"),
        ("facts", {"charge.unit": "dream"}, "source 'dream'"),
        ("name", "", "name is wrong"),
        ("sources.guide.as_of", "long ago", "as_of"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(path: str, value: Any, words: str):
    document = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    place: Any = document
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    with pytest.raises(BadInput, match=words) as caught:
        cluster_of(document, "lab.yaml")
    assert str(caught.value).startswith("lab.yaml: ")
    assert "\n" not in str(caught.value)


def test_two_of_one_name_are_refused():
    document = copy.deepcopy(GOOD)
    document["partitions"] *= 2
    with pytest.raises(BadInput, match="partition 'gpu' is there twice"):
        cluster_of(document)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", "\x00"])
def test_malformed_yaml_names_the_place(text: str):
    with pytest.raises(BadInput, match=r"lab\.yaml"):
        read_yaml(text, "lab.yaml")


@pytest.mark.parametrize("text", ["", "3", "- a", "just text"])
def test_yaml_that_is_no_cluster_is_refused(text: str):
    with pytest.raises(BadInput):
        parse_cluster(text, "lab.yaml")
