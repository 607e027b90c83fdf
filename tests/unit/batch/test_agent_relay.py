"""The agent forwards what jobs wrote: a refused run is passed over, anything that may pass is sent again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.agent_relay import Relay


class Service:
    def __init__(self) -> None:
        self.answer, self.got = 200, list[Any]()

    def __call__(self, run: str, body: Any) -> int:
        if self.answer < 300:
            self.got += body["events"]
        return self.answer


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "r-1" / "events"
    folder.mkdir(parents=True)
    event = {"v": 1, "run": "r-1", "token": "1.0", "seq": 1, "t": 1.0, "kind": "progress", "data": {"epoch": 1}}
    (folder / "1.0.jsonl").write_text(json.dumps(event) + "\n")
    return tmp_path / "runs"


@pytest.mark.parametrize(("first", "arrives"), [(401, 1), (403, 1), (408, 1), (429, 1), (503, 1), (404, 0), (422, 0)])
def test_what_was_not_about_the_run_is_sent_again(runs: Path, first: int, arrives: int) -> None:
    service, now = Service(), [0.0]
    relay = Relay(runs, runs.parent / "offsets.json", service, lambda: now[0])
    service.answer = first
    relay.look()
    assert service.got == []
    service.answer, now[0] = 200, 1e6
    relay.look()
    assert len(service.got) == arrives
