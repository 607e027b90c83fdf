"""``isched admin`` as an administrator types it, and the tokens that it makes at the service's door."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from fastapi.testclient import TestClient

from ischeduler.helper.config import load_config
from ischeduler.helper.serving import app_of


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {
        "ISCHED_PATHS_STATE": str(tmp_path / "state"), "ISCHED_PATHS_DATA": str(tmp_path / "data"), "ISCHED_BATCH_KIND": "local",
        "ISCHED_SYSTEM_CONFIG": "/dev/null", "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip
    return {k: v for k, v in os.environ.items() if not k.startswith("ISCHED_")} | own


def isched(environment: dict[str, str], *words: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "ischeduler.cli.main", "admin", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_people_roles_projects_and_tokens(environment: dict[str, str], tmp_path: Path):
    missing = isched(environment, "token", "create", "ada", code=2)
    assert "there is no user 'ada'" in missing["error"]["message"]
    isched(environment, "key")
    assert isched(environment, "user", "add", "ada")["user"]["roles"] == ["user"]
    assert isched(environment, "role", "set", "ada", "user", "centre_admin")["user"]["roles"] == ["user", "centre_admin"]
    assert "no role" in isched(environment, "role", "set", "ada", "god", code=2)["error"]["message"]
    isched(environment, "project", "add", "net")
    assert isched(environment, "project", "member", "net", "ada", "--admin")["projects"][0]["members"] == {"ada": True}
    file = tmp_path / "ada.token"
    made = isched(environment, "token", "create", "ada", "--scope", "read", "--scope", "admin", "--file", str(file))
    assert made["secret"] == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    headers = {"Authorization": f"Bearer {file.read_text().strip()}"}
    with TestClient(app_of(load_config(directory=tmp_path, environment=environment))) as client:
        assert client.get("/v1/me", headers=headers).json()["me"]["projects"] == {"net": True}
        assert client.get("/v1/admin/users", headers=headers).status_code == 200
        isched(environment, "token", "revoke", made["token"]["id"])
        assert client.get("/v1/me", headers=headers).status_code == 401
    deeds = [line["what"] for line in isched(environment, "audit")["lines"]]
    assert deeds[0] == "token.revoke"
    assert {"user.add", "user.roles", "project.add", "project.member", "token.create"} <= set(deeds)
