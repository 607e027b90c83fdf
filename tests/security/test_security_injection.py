"""Nothing that a user writes becomes shell, an sbatch option, or a path outside: every text field of the API, found by its schema."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from security_scene import Scene

from ischeduler.helper.harmless import harmless, model_is_a_librarys
from ischeduler.service.api.bodies import AskBody, WorkloadBody
from ischeduler.testing.service import FIGURES, WORKLOAD

MARK = "PWNED-by-a-field"
EVIL = (
    "$(touch {mark})", "`touch {mark}`", "; touch {mark} ;", "' ; touch {mark} ; '", '" ; touch {mark} ; "', "| touch {mark}", "&& touch {mark}",
    "\n touch {mark}\n", "x\n#SBATCH --wrap='touch {mark}'", "x\r#SBATCH --uid=0", "${{IFS}}touch${{IFS}}{mark}", "\\$(touch {mark})",
    "--wrap=touch {mark}", "a\\\n touch {mark}", "x'$(touch {mark})'y", "{{batch_size}};touch {mark}",
)  # fmt: skip
STUBS = ("isched", "python", "sbatch", "srun", "module", "conda", "apptainer", "singularity", "scontrol", "getent", "sleep")


def text_fields(schema: dict[str, Any], root: dict[str, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a body may hold text: names of fields, 0 for an item, '*' for a mapping's key and '*=' for its value."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    for part in schema.get("anyOf", ()):
        yield from text_fields(part, root, path)
    if schema.get("type") == "string" and "pattern" not in schema:
        yield path
    if schema.get("type") == "array":
        yield from text_fields(schema.get("items", {}), root, (*path, 0))
    for name, inner in schema.get("properties", {}).items():
        yield from text_fields(inner, root, (*path, name))
    if isinstance(schema.get("additionalProperties"), dict):
        yield (*path, "*")
        yield (*path, "*=")


FIELDS = [("workload", *p) for p in text_fields(WorkloadBody.model_json_schema(), WorkloadBody.model_json_schema())] + [
    p for p in text_fields(AskBody.model_json_schema(), AskBody.model_json_schema()) if p[0] not in ("workload", "saved")
]


def with_text(path: tuple[Any, ...], text: str) -> dict[str, Any]:
    """A request that would be planned, with ``text`` in one field."""
    body: dict[str, Any] = {"workload": dict(WORKLOAD) | {"command": ["python", "train.py"]}, "assume": FIGURES}
    place: Any = body
    for name, following in zip(path, (*path[1:], None), strict=True):
        value: Any = text if following is None else {} if isinstance(following, str) else []
        if name == "*":
            place[text] = "1"
        elif name == "*=":
            place["NAME"] = text
        elif name == 0:
            place.append(text)
        else:
            held = place.get(name) if isinstance(place, dict) else None
            place[name] = held if isinstance(held, (dict, list)) and following is not None else value
            place = place[name]
    return body


def test_the_fields_are_found():
    assert {("workload", "command", 0), ("workload", "environment", "variables", "*="), ("account",), ("workload", "directory")} <= set(FIELDS)
    assert len(FIELDS) >= 20


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH on which every program a script may call does nothing; ``touch`` is the real one."""
    folder = tmp_path_factory.mktemp("stage")
    for name in STUBS:
        stub = folder / name
        stub.write_text("#!/bin/sh\nexit 0\n")
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    for real in ("touch", "bash", "sh"):
        found = shutil.which(real)
        assert found
        (folder / real).symlink_to(found)
    return folder


@pytest.mark.parametrize("path", FIELDS, ids=lambda p: ".".join(map(str, p)))
def test_no_field_becomes_shell_or_an_option(scene: Scene, stage: Path, tmp_path: Path, path: tuple[Any, ...]):
    headers = scene.people["another user"]
    for number, template in enumerate(EVIL):
        mark = tmp_path / f"{MARK}-{number}"
        text = template.format(mark=mark)
        made = scene.client.post("/v1/plans", json=with_text(path, text), headers=headers)
        assert made.status_code in (201, 404, 409, 422), made.text[:300]
        if made.status_code != 201:
            continue
        answer = scene.client.get(f"/v1/plans/{made.json()['id']}/script", headers=headers)
        assert answer.status_code in (200, 409, 422), answer.text[:300]
        if answer.status_code == 200:
            runs_harmlessly(answer.json()["script"], stage, tmp_path, mark)


def runs_harmlessly(script: str, stage: Path, folder: Path, mark: Path) -> None:
    """bash reads it, it runs no more than it should, and sbatch would read no option that is not ours."""
    file = folder / "job.sh"
    file.write_text(script)
    parsed = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    subprocess.run(["bash", file], env={"PATH": str(stage), "HOME": str(folder)}, cwd=folder, capture_output=True, timeout=20, check=False)
    assert not mark.exists(), script
    assert not list(folder.glob(f"**/{MARK}*")), script
    header = list(takewhile(lambda line: line.startswith("#"), script.splitlines()))  # sbatch(1): options end at the first command
    options = [m[1] for line in header if (m := re.match(r"#SBATCH\s+--([a-z-]+)", line))]
    assert len(options) == len(header) - 1 == len(set(options)), header
    assert not {"wrap", "uid", "gid", "get-user-env", "export"} & set(options), options


def test_the_stage_would_show_an_injection(stage: Path, tmp_path: Path):
    mark = tmp_path / MARK
    with pytest.raises(AssertionError):
        runs_harmlessly(f"#!/bin/bash\n#SBATCH --time=1\nset -euo pipefail\nexec -- python $(touch {mark})\n", stage, tmp_path, mark)
    assert mark.exists()


@pytest.mark.parametrize(
    "model",
    ["train.py:build", "my_module:build", "script:train.py", "object:/tmp/x.model", "/etc/passwd:x", "timm:../../x", "os:system", "timm:/etc/passwd"],
)  # fmt: skip
def test_no_code_of_a_users_runs_inside_the_service(scene: Scene, tmp_path: Path, model: str):
    assert not model_is_a_librarys(model)
    folder = tmp_path / "code"
    folder.mkdir()
    mark = folder / "ran"
    for name in ("train.py", "my_module.py"):
        (folder / name).write_text(f"open({str(mark)!r}, 'w').close()\ndef build():\n    pass\n")
    venv = folder / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text(f"#!/bin/sh\ntouch {mark}\n")
    os.chmod(venv / "python", 0o755)
    workload = {
        "model": model, "samples": 10, "directory": str(folder), "command": ["python", "train.py"],
        "environment": {"venv": str(folder / "venv")}, "options": {"trace_script": "true", "model.checkpoint_path": "x", "python": str(venv / "python")},
    }  # fmt: skip
    answer = scene.client.post("/v1/estimates", json={"workload": workload, "clusters": ["local"]}, headers=scene.people["another user"])
    assert answer.status_code in (200, 422), answer.text[:300]
    assert not mark.exists()


def test_what_estimators_are_shown():
    from ischeduler.core.workload import EnvironmentSpec, Workload

    options = {"model.num_classes": "10", "model.pretrained": "true", "model.checkpoint_path": "1", "optimizer.lr": "0.1", "model.x": "/etc/passwd"}
    shown = harmless(Workload(model="timm:resnet50", directory="/home/a", environment=EnvironmentSpec(venv="/home/a/v"), options=options))
    assert (shown.model, shown.directory, shown.environment) == ("timm:resnet50", "", EnvironmentSpec())
    assert dict(shown.options) == {"model.num_classes": "10", "optimizer.lr": "0.1"}
