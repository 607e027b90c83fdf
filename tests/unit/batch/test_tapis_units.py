"""Tapis without a tenant: states and causes, requests and the server's schema, news in any order, events in its texts."""

from __future__ import annotations

import json
import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tapipy", reason="tapipy is not installed")

from ischeduler.batch.tapis.events import (
    MINUTES_DEFAULT,
    MINUTES_MOST,
    Series,
    due_for_renewal,
    pack_events,
    read_notice,
    subscription,
    unpack_events,
)
from ischeduler.batch.tapis.job import WORD, Site, job_request, job_script, scheduler_options
from ischeduler.batch.tapis.schema import check_job
from ischeduler.batch.tapis.states import CONDITIONS, RUNNING, WAITING, state_of, status_of
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import Cause, JobSpec, JobState, Resources
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.plane.causes import classify

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "tapis"
SPEC = JobSpec(
    "r-1-1",
    "train",
    "gpu",
    Resources(1, 8, 3 * 2**30, 2, "a100", 5400.0),
    ("python", "train.py"),
    "/w",
    "/w/1.out",
    account="lab",
    qos="normal",
)
SITE = Site("sys", profile="tacc")
URL = "tapis://sys/isched/isched-r-1-1.sh"


PLAN = SimpleNamespace(workload=Workload(model="timm:resnet18", samples=1, epochs=1))
"""As much of a plan as judging an end looks at."""


def request(**changes: Any) -> dict[str, Any]:
    return {**job_request(SPEC, SITE, URL, [subscription("https://isched.example.org/hook")]), **changes}


def documented(name: str) -> list[str]:
    """The values of a field of Job in tapipy's own document."""
    from ischeduler.batch.tapis.schema import openapi

    return openapi("jobs")["components"]["schemas"]["Job"]["properties"][name]["enum"]


def test_every_documented_status_and_condition_has_a_state() -> None:
    for status in documented("status"):
        assert state_of(status) is not JobState.UNKNOWN
        assert state_of(status).ended == (status not in (*WAITING, *RUNNING))
    for condition in documented("condition"):
        assert state_of("FAILED", condition).ended
        assert state_of("FAILED", condition) is not JobState.COMPLETED
    assert set(CONDITIONS) <= set(documented("condition"))


@pytest.mark.parametrize("condition", [c for c in CONDITIONS if c != "NORMAL_COMPLETION"])
def test_the_plane_reads_the_cause_that_the_table_says(condition: str) -> None:
    expected = CONDITIONS[condition][1]
    row = {
        "uuid": "u",
        "name": "isched-r-1-1",
        "status": "FAILED",
        "condition": condition,
        "remoteResultInfo": "3" if expected is Cause.USER_ERROR else "",
    }
    assert cause_of(row) is expected


def cause_of(row: dict[str, Any]) -> Cause:
    status = status_of(row)
    assert status is not None
    attempt = Attempt(
        1, "r-1-1", "c", "p", Resources(), 1, state=status.state, raw_state=status.raw_state, exit_code=status.exit_code, signal=status.signal,
        reason=status.reason, ended_seen_at=1.0,
    )  # fmt: skip
    run = Run("r-1", "alice", PLAN, RunState.RUNNING, "/d", 0.0, attempts=(attempt,))  # type: ignore[arg-type]
    return classify(run, attempt).cause


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"status": "FINISHED", "condition": "NORMAL_COMPLETION"}, Cause.FINISHED),
        ({"status": "CANCELLED", "condition": "CANCELLED_BY_USER"}, Cause.CANCELLED),
        ({"condition": "SCHEDULER_TERMINATED", "lastMessage": "NODE_FAIL on c401"}, Cause.NODE_FAILURE),
        ({"condition": "SCHEDULER_TERMINATED", "lastMessage": "slurm state PREEMPTED"}, Cause.PREEMPTED),
        ({"condition": "SCHEDULER_TERMINATED"}, Cause.UNKNOWN),
        ({"condition": "JOB_REMOTE_OUTCOME_ERROR", "remoteResultInfo": "85"}, Cause.WALLTIME),
        ({"condition": "JOB_REMOTE_OUTCOME_ERROR", "remoteResultInfo": "86:0"}, Cause.SUPERSEDED),
        ({"condition": "JOB_ARCHIVING_FAILED"}, Cause.UNKNOWN),
        ({"condition": "A_NEW_ONE"}, Cause.UNKNOWN),
    ],
)
def test_causes_of_the_ambiguous_ones(changes: dict[str, Any], cause: Cause) -> None:
    assert cause_of({"uuid": "u", "name": "isched-r-1-1", "status": "FAILED", **changes}) is cause


def test_a_request_has_every_wish_in_its_place() -> None:
    made = request()
    check_job(made)
    assert (made["maxMinutes"], made["memoryMB"], made["coresPerNode"], made["nodeCount"]) == (90, 3072, 8, 1)
    options = [o["arg"] for o in made["parameterSet"]["schedulerOptions"]]
    assert options == ["--tapis-profile tacc", "-A lab", "--qos=normal", "--gres=gpu:a100:2"]
    assert not any("gpu" in k.lower() for k in made)


@pytest.mark.parametrize(
    ("cluster", "gpus"),
    [("vista", []), ("stampede3", []), ("lonestar6", ["--gres=gpu:a100:2"]), ("pitzer", ["--gres=gpu:a100:2"])],
)
def test_machines_are_asked_in_their_own_words(cluster: str, gpus: list[str]) -> None:
    site = Site.of("sys", cluster)
    options = scheduler_options(replace(SPEC, account=None, qos=None), site)
    assert [o for o in options if "gres" in o] == gpus
    assert ("--tapis-profile tacc" in options) == (cluster != "pitzer")
    per_node = Site.of("sys", cluster, gpus="gpus-per-node")
    assert "--gpus-per-node=a100:2" in scheduler_options(SPEC, per_node)


WRONG = [
    {"name": "x" * 65}, {"name": ""}, {"appId": "a" * 81}, {"maxMinutes": 0}, {"memoryMB": 0}, {"maxMinutes": 1.5}, {"gpus": 2}, {"tags": ["a", "a"]},
    {"tags": ["x" * 127]}, {"parameterSet": {"schedulerOptions": [{"name": "x"}]}}, {"parameterSet": {"envVariables": [{"key": "A"}]}},
    {"parameterSet": {"unknown": []}}, {"jobType": "GPU"}, {"fileInputs": [{"source": "x"}]}, {"nodeCount": "2"}, {"notes": "text"},
    {"subscriptions": [{"eventCategoryFilter": "ALL"}]}, {"subscriptions": [{**subscription("u"), "ttlminutes": 5}]}, {"execSystemId": 3},
    {"description": ""}, {"cmdPrefix": "x" * 1025},
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=lambda c: next(iter(c)))
def test_what_the_server_would_refuse_is_not_sent(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="Tapis would refuse this job"):
        check_job(request(**change))
    bad = request()
    del bad["appId"]
    with pytest.raises(BadInput, match="appId"):
        check_job(bad)


@pytest.fixture(scope="module")
def official() -> Any:
    """The service's own schema, with the documents it refers to."""
    if not SHARED.exists():
        pytest.skip("the shared folder with the Jobs service's schema is not here")
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    def find(uri: str) -> Any:
        return Resource.from_contents(_draft7(SHARED / uri.rpartition("/")[2]), DRAFT7)

    registry: Any = Registry(retrieve=find)  # type: ignore[call-arg]
    return Draft7Validator(_draft7(SHARED / "SubmitJobRequest.json"), registry=registry)


def _draft7(path: Path) -> Any:
    found = json.loads(path.read_text())
    found.pop("$id", None)
    return {**found, "$schema": "http://json-schema.org/draft-07/schema#"}


def test_the_service_s_own_schema_takes_what_we_send(official: Any) -> None:
    assert list(official.iter_errors(request())) == []


@pytest.mark.parametrize("change", WRONG, ids=lambda c: next(iter(c)))
def test_the_service_s_own_schema_refuses_the_same(official: Any, change: dict[str, Any]) -> None:
    assert list(official.iter_errors(request(**change)))


@pytest.mark.parametrize("field", ["account", "qos"])
@pytest.mark.parametrize("text", ["a b", "a;id", "$(id)", "a\nb", "`id`", "a'b", "é", "--x y"])
def test_nothing_but_plain_words_goes_into_scheduler_options(field: str, text: str) -> None:
    with pytest.raises(BadInput, match="cannot be given to Tapis"):
        job_request(replace(SPEC, **{field: text}), SITE, URL)


def test_what_tapis_cannot_do_is_said() -> None:
    with pytest.raises(BadInput, match="no job arrays"):
        job_request(replace(SPEC, array=3), SITE, URL)
    with pytest.raises(BadInput, match="takes 64"):
        job_request(replace(SPEC, key="r-" + "1" * 70), SITE, URL)


def test_the_script_warns_itself_obeys_words_and_ends_with_its_job(tmp_path: Path) -> None:
    """Run for real: a word left beside the input reaches the program as a signal; nothing stays behind."""
    run_dir = tmp_path / "it's a run"
    program = ("bash", "-c", 'trap "echo got; exit 85" USR2; echo READY; for i in $(seq 100); do sleep 0.1; done')
    spec = replace(
        SPEC,
        command=program,
        directory=str(tmp_path),
        output=f"{run_dir}/logs/1.out",
        variables={"ISCHED_RUN_DIR": str(run_dir)},
        signal_lead_s=60,
    )
    script = tmp_path / "job.sh"
    script.write_text(job_script(spec))
    inside = tmp_path / "input"
    inside.mkdir()
    with subprocess.Popen(
        ["bash", str(script)], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "_tapisExecSystemInputDir": str(inside)}
    ) as job:
        out = run_dir / "logs" / "1.out"
        _until(lambda: out.exists() and "READY" in out.read_text())
        (inside / WORD).write_text("NOISE; rm -rf /\n")
        _until(lambda: not (inside / WORD).exists())
        (inside / WORD).write_text("USR2\n")
        assert job.wait(20) == 85
    assert "got" in out.read_text()
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert f"after={5400 - 60};" in script.read_text()


def _until(condition: Any) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def notice(seq: int, status: str = "", **data: Any) -> dict[str, Any]:
    kind = f"JOB_NEW_STATUS.{status}" if status else "JOB_USER_EVENT.isched"
    body = {"newJobStatus": status, **data} if status else data
    return {"event": {"type": f"jobs.{kind}", "subject": "u-1", "seriesSeqCount": seq, "data": json.dumps(body)}}


def test_news_in_any_order_doubled_or_lost_ends_with_the_newest_status() -> None:
    statuses = ["PENDING", "QUEUED", "RUNNING", "ARCHIVING", "FINISHED"]
    news = [notice(i + 1, s) for i, s in enumerate(statuses)]
    for seed in range(50):
        rng, series = random.Random(seed), Series()
        sent = [n for n in news if rng.random() > 0.3] + [news[-1]] + rng.choices(news[:-1], k=3)
        rng.shuffle(sent)
        taken = [series.take(read_notice(n)) for n in sent]
        assert series.status == "FINISHED"
        assert sum(taken) == len({json.dumps(n) for n in sent})


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"type": "jobs"}, {"type": "x.JOB_NEW_STATUS.A", "subject": "u", "seriesSeqCount": 1}, {"type": "jobs.ALL.X", "subject": "", "seriesSeqCount": 1},
     {"type": "jobs.ALL.X", "subject": "u"}, {"type": "jobs.ALL.X", "subject": "u", "seriesSeqCount": True}, {"type": "jobs.ALL.X", "subject": "u", "seriesSeqCount": -1},
     {"event": 3}, {"type": "jobs.ALL.X", "subject": "u" * 300, "seriesSeqCount": 1}],
)  # fmt: skip
def test_what_is_no_news_is_refused_in_words(body: Any) -> None:
    with pytest.raises(BadInput):
        read_notice(body)


def test_data_that_is_no_json_is_no_data() -> None:
    event = notice(1, "RUNNING")["event"]
    assert read_notice({**event, "data": "{broken"}).status == "RUNNING"
    assert read_notice({**event, "data": 7}).status == "RUNNING"


def test_events_travel_in_texts_that_tapis_takes() -> None:
    events = [
        {"v": 1, "run": "r-1", "token": "1.0", "seq": i, "t": 1.0, "kind": "progress", "data": {"x": "y" * (i % 700)}}
        for i in range(200)
    ]
    bodies = pack_events([*events, {"data": "z" * 20000}])
    assert all(0 < len(b["eventData"]) <= 16384 and len(b["eventDetail"]) <= 64 for b in bodies)
    assert [e for b in bodies for e in unpack_events(b["eventData"])] == events
    assert unpack_events("not json") == unpack_events('{"a": 1}') == unpack_events("[1]") == []


def test_subscriptions_are_renewed_in_good_time() -> None:
    made_at = 1000.0
    week_s = MINUTES_DEFAULT * 60
    assert MINUTES_MOST == 4 * MINUTES_DEFAULT
    assert not due_for_renewal(made_at, made_at + week_s / 2 - 1)
    assert due_for_renewal(made_at, made_at + week_s / 2)
    assert set(subscription("u")) == {"eventCategoryFilter", "deliveryTargets"}, "no life is given: two spellings are in use"
