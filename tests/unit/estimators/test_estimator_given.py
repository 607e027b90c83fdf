"""Declared numbers: read from files and dicts, the narrowest entry wins, mistakes are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from estimator_worlds import WORK, request

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import GIB
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.given import read_given

TEXT = """
[[given]]
cluster = "pitzer"
partition = "gpu"
batch_size = 32
run = "2h"
run_p90 = "2h30m"
wait = "26h"
gpu_memory = "24G"

[[given]]
run = 32400
"""


def test_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    path.write_text(TEXT)
    given = read_given(path)
    run = given.estimate(request("run_time"))
    assert (run.p10, run.p50, run.p90, run.basis) == (7200, 7200, 9000, "given")
    assert str(path) in run.reason
    assert given.estimate(request("queue_wait")).p50 == 26 * 3600
    assert given.estimate(request("gpu_memory")).p50 == 24 * GIB
    assert given.estimate(request("run_time", workload=replace(WORK, batch_size=64))).p50 == 32400
    with pytest.raises(NoEvidence):
        given.estimate(request("startup"))


def test_json_dict_and_list_say_the_same(tmp_path: Path) -> None:
    rows = [{"partition": "gpu", "run": "1h"}, {"partition": "gpu", "run": "2h"}]
    path = tmp_path / "given.json"
    path.write_text(json.dumps({"given": rows}))
    for source in (path, str(path), {"given": rows}, rows):
        assert read_given(source).estimate(request()).p50 == 7200  # the last of equally narrow ones
    with pytest.raises(NoEvidence):
        read_given(None).estimate(request())


@pytest.mark.parametrize(("row", "words"), [
    ({"runtime": "2h"}, "'runtime' .* unknown"), ({"run": "soon"}, "not a duration"),
    ({"gpu_memory": "lots"}, "not a memory size"),
    ({"run": -1}, "negative"), ({"run": True}, "expected a number"), ({"run_p90": "2h"}, "stands alone"),
    ({"run": "2h", "run_p90": "1h"}, "between"),
])
def test_mistakes_are_told_in_a_sentence(row: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_given([row])


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_given(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[[given")
    with pytest.raises(BadInput, match="malformed"):
        read_given(bad)
