"""The page on the database names every table and column there is, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

from ischeduler.cidb.catalog import parse_cluster
from ischeduler.cidb.tables import METADATA as CIDB

DOCS = Path(__file__).parents[3] / "docs"


def test_tables_and_columns_are_those_of_the_database():
    page = (DOCS / "reference" / "cidb.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(CIDB.tables)
    for name, table in CIDB.tables.items():
        assert re.findall(r"^\| `(\w+)` \|", sections[name], re.MULTILINE) == [c.name for c in table.columns]


def test_the_example_cluster_of_the_how_to_is_valid():
    page = (DOCS / "how-to" / "clusters.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    cluster = parse_cluster(example[1], "the example")
    assert cluster.partition("debug").chaining_allowed is False
    assert cluster.node_type("box").accelerators_per_node == 4
