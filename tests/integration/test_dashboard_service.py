"""The dashboard over the real backend: its planner, its estimators, the local batch system; no stand-in answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are missing: pip install 'ischeduler[service]'")

from fastapi.testclient import TestClient

from ischeduler.testing.service import BASE_URL, make_service


def test_from_the_form_to_a_cancelled_run(tmp_path: Path) -> None:
    service = make_service(tmp_path / "centre")
    token = service.add_user("alice")["Authorization"].removeprefix("Bearer ")
    with TestClient(service.app, base_url=BASE_URL, follow_redirects=False) as client:
        signed = client.post("/login", data={"token": token})
        assert signed.status_code == 303, signed.text
        form = client.get("/plan").text
        words = re.search(r'name="csrf_token" value="([0-9a-f]+)"', form)
        assert words is not None
        csrf = {"csrf_token": words[1]}
        wrong = client.post("/plan", data=csrf | {"samples": "1000", "epochs": "2", "batch_size": "32", "command": "python train.py", "directory": "here"})
        assert wrong.status_code == 422
        assert "begins with /" in wrong.text
        sent = client.post("/plan", data=csrf | {"model": "resnet18", "samples": "1000", "epochs": "2", "batch_size": "32", "input_shape": "3,64,64", "command": "python train.py", "directory": "/tmp"})
        assert sent.status_code == 303, re.findall(r'class="notice[^>]*>([^<]+)', sent.text)
        options = client.get(sent.headers["location"])
        assert "local/main" in options.text
        choice = re.search(r'href="(/plan/p-[0-9a-f]+/\d+)"', options.text)
        assert choice is not None, options.text
        once = re.search(r'name="once" value="([^"]+)"', client.get(choice[1]).text)
        assert once is not None
        runs = {client.post(choice[1], data=csrf | {"once": once[1], "max_cost": "5"}).headers["location"] for _ in range(3)}
        assert len(runs) == 1
        (run,) = runs
        page = client.get(run).text
        assert "resnet18" in page
        assert "No job has been submitted yet" in page
        for path in ("/runs", "/clusters", "/estimators", f"{run}/move", "/runs/live", f"{run}/live", "/clusters/live"):
            assert client.get(path).status_code == 200, path
        assert "local" in client.get("/clusters").text
        assert client.post(f"{run}/cancel", data=csrf).headers["location"] == run
        assert "is being cancelled" in client.get(run).text
