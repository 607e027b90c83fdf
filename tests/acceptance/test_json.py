"""Every --json answer keeps its documented schema, and the schema files are the ones the types give."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helper_world import World
from typer.testing import Result

from ischeduler.helper import documents


def schema(name: str) -> dict[str, Any]:
    return json.loads((documents.SCHEMAS / f"{name}.1.json").read_text())


@pytest.mark.parametrize("name", sorted(documents.bodies()))
def test_the_shipped_schema_is_the_one_the_types_give(name: str) -> None:
    assert schema(name) == json.loads(json.dumps(documents.schema_of(name))), "run: python -m ischeduler.helper.documents"
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_no_schema_file_is_left_over() -> None:
    assert {p.name for p in documents.SCHEMAS.glob("*.json")} == {f"{n}.1.json" for n in documents.bodies()}


def test_every_document_a_command_prints_has_a_schema() -> None:
    """Read from the sources, so that a new document cannot be forgotten."""
    sources = (Path(documents.__file__).parents[1] / "cli").glob("*.py")
    printed = {name for path in sources for name in re.findall(r'document\(\s*"isched\.([\w-]+)/1"', path.read_text())}
    assert len(printed) > 30
    assert printed <= set(documents.bodies())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("plan train.py --samples 20000 --epochs 50 --batch-size 32,64 --command 'python train.py {batch_size}'", "plan"),
        ("estimate train.py --samples 20000 --epochs 50", "estimate"),
        ("script 1", "script"),
        ("submit 1 --dry-run", "script"),
        ("submit 1 --yes", "run"),
        ("status {run}", "run"),
        ("runs", "runs"),
        ("why {run}", "why"),
        ("why lab/shut", "why"),
        ("events {run}", "events"),
        ("logs {run}", "logs"),
        ("move {run} lab/gpudbg", "run"),
        ("report {run}", "report"),
        ("report --estimators", "estimator-report"),
        ("cancel {run}", "run"),
        ("clusters", "clusters"),
        ("clusters lab", "clusters"),
        ("config show", "config"),
        ("estimator list", "estimators"),
        ("plane tick", "tick"),
        ("plane status", "plane"),
        ("status r-none", "error"),
    ],
)
def test_answers_validate(isched: Callable[..., Result], world: World, line: str, name: str) -> None:
    run_id = world.plans()["lab/cpu"].submit().id if "{run}" in line else ""
    if name == "script" or "submit" in line:
        world.plans()
    if line.startswith("why lab"):
        world.plans()
    result = isched(line.replace("{run}", run_id) + " --json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema(name))
    assert document["schema"] == f"isched.{name}/1"
    assert len(result.stdout.splitlines()) == 1
