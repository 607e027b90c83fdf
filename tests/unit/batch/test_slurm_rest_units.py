"""slurmrestd without one: versions chosen, requests worded for each, tokens kept, errors sorted, probes judged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ischeduler.batch.commands import Answer
from ischeduler.batch.slurm_rest import SlurmRest
from ischeduler.batch.slurm_rest_dialect import Dialect, choose
from ischeduler.batch.slurm_rest_http import complaints
from ischeduler.batch.slurm_rest_job import script_of, submit_body
from ischeduler.batch.slurm_rest_json import read_accounting, read_nodes
from ischeduler.batch.slurm_rest_probe import refusal_of
from ischeduler.batch.slurm_rest_tokens import CommandTokens, FileTokens, expiry
from ischeduler.core.errors import BadInput, BatchUnavailable, ConfigError, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, Resources
from ischeduler.testing.sim_clock import SimClock

OLD_FIELDS = {
    "name": "string", "comment": "string", "environment": "object", "nodes": "array", "time_limit": "integer", "gres": "string",
    "memory_per_node": "integer", "exclusive": "string", "open_mode": "string", "exclude_nodes": "string", "constraints": "string",
}  # fmt: skip
NEW_FIELDS = {
    "name": "string", "comment": "string", "environment": "array", "nodes": "string", "time_limit": "#number", "script": "string",
    "memory_per_node": "#number", "shared": "array", "open_mode": "array", "excluded_nodes": "array", "constraints": "string",
    "tres_per_node": "string", "kill_warning_signal": "string", "kill_warning_delay": "#number", "kill_warning_flags": "array",
}  # fmt: skip
SPEC = JobSpec(
    "r-1.1", "train", "gpu", Resources(2, 8, 3 * 2**30 + 1, 2, "a100", 5400.0, ("big",), True), ("python", "train.py"), "/home/a b",
    "/home/a b/100%.out", signal_lead_s=90, exclude_nodes=("n1", "n2"), launcher="srun", account="lab", after="77",
)  # fmt: skip


def document(versions: Mapping[int, Mapping[str, str]], *, flags: bool = False, inline: bool = False) -> dict[str, Any]:
    """An OpenAPI document with these versions of the submit path, by reference or (``inline``) as newer servers write it."""
    schemas: dict[str, Any] = {"number": {"type": "object", "properties": {"set": {}, "number": {}}}}
    paths: dict[str, Any] = {}
    for version, fields in versions.items():
        types = {n: {"$ref": "#/components/schemas/number"} if t == "#number" else {"type": t} for n, t in fields.items()}
        schemas[f"job{version}"] = {"type": "object", "properties": types}
        body = {"properties": {"job": schemas[f"job{version}"] if inline else {"$ref": f"#/components/schemas/job{version}"}}}
        paths[f"/slurm/v0.0.{version}/job/submit"] = {
            "post": {"requestBody": {"content": {"application/json": {"schema": body}}}}
        }
        parameters = [{"name": "job_id"}, {"name": "signal"}, *([{"name": "flags"}] if flags else [])]
        paths[f"/slurm/v0.0.{version}/job/{{job_id}}"] = {"delete": {"parameters": parameters}}
        paths[f"/slurmdb/v0.0.{version}/jobs/"] = {"get": {}}
    return {"paths": paths, "components": {"schemas": schemas}}


OLD = choose(document({37: OLD_FIELDS, 38: OLD_FIELDS}))
NEW = choose(document({40: NEW_FIELDS, 42: NEW_FIELDS, 99: NEW_FIELDS}, flags=True, inline=True))


@pytest.mark.parametrize(("offered", "chosen"), [((36, 38), 38), ((38, 39, 41), 41), ((41, 42, 47), 42), ((47, 48), 47)])
def test_the_newest_known_version_is_spoken(offered: Sequence[int], chosen: int) -> None:
    assert choose(document(dict.fromkeys(offered, NEW_FIELDS))).number == chosen


def test_a_server_with_old_versions_only_is_refused_in_words() -> None:
    with pytest.raises(BatchUnavailable, match=r"it has v0\.0\.36; expected v0\.0\.38"):
        choose(document({36: OLD_FIELDS}))
    with pytest.raises(BatchUnavailable, match="it has none"):
        choose({})


def test_v38_is_asked_only_for_what_it_knows() -> None:
    body = submit_body(SPEC, OLD)
    job = body["job"]
    assert body["script"].startswith("#!/bin/bash -l\n")
    assert not {"tres_per_node", "script", "kill_warning_signal", "signal", "shared", "excluded_nodes"} & set(job)
    assert (job["gres"], job["nodes"], job["time_limit"], job["memory_per_node"]) == ("gpu:a100:2", [2, 2], 90, 3073)
    assert (job["exclude_nodes"], job["exclusive"], job["dependency"]) == ("n1,n2", "", "afterany:77")
    assert job["standard_output"] == "/home/a b/100%%.out"
    assert "timeout 5310 tail --pid=$$" in body["script"], "the warning is kept by the script itself"


def test_later_versions_are_asked_in_their_own_shapes() -> None:
    body = submit_body(SPEC, NEW)
    job = body["job"]
    assert set(body) == {"job"}
    assert job["time_limit"] == {"set": True, "infinite": False, "number": 90}
    assert (job["tres_per_node"], job["shared"], job["excluded_nodes"]) == ("gres/gpu:a100:2", ["none"], ["n1", "n2"])
    assert (job["kill_warning_signal"], job["kill_warning_flags"], job["kill_warning_delay"]["number"]) == (
        "USR2",
        ["BATCH_JOB"],
        90,
    )
    assert job["environment"][0].startswith("PATH=")
    assert "tail --pid" not in job["script"]


def test_the_script_of_a_run_makes_its_directory_and_quotes_it() -> None:
    nasty = '/scratch/it\'s $(rm -rf ~) "x"'
    variables = {"ISCHED_RUN_DIR": nasty, "ISCHED_RUN_ID": "r-1"}
    command = ("python3", "-m", "ischeduler.training.wrapper", "--", "python", "it's; rm -rf /")
    spec = replace(
        SPEC,
        launcher="direct",
        resources=Resources(),
        variables=variables,
        command=command,
        output=f"{nasty}/logs/1.out",
        directory=nasty,
    )
    job = submit_body(spec, OLD)["job"]
    assert (job["standard_output"], job["current_working_directory"]) == ("/dev/null", "/")
    script = script_of(spec, OLD)
    assert "run_dir='/scratch/it'\"'\"'s $(rm -rf ~) \"x\"'" in script
    assert 'trap "" USR2' in script, "a signal that reaches every process must not end one that does not know it"
    assert 'trap "" USR2' not in script_of(spec, NEW)


@pytest.mark.parametrize("field", ["account", "qos", "partition", "comment"])
def test_a_line_break_is_refused(field: str) -> None:
    with pytest.raises(BadInput, match="one line of plain text"):
        submit_body(replace(SPEC, **{field: "a\nb"}), OLD)


def jwt(exp: float | None, name: str = "x") -> str:
    words = {"sun": name, **({} if exp is None else {"exp": exp})}
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(w).encode()).decode().rstrip("=") for w in ({"alg": "HS256"}, words))
        + ".c2ln"
    )


def test_a_command_s_token_is_kept_until_shortly_before_it_expires() -> None:
    clock, asked = SimClock(1000.0), list[Sequence[str]]()

    def run(argv: Sequence[str], *, stdin: str = "", timeout_s: float = 0.0) -> Answer:
        asked.append(argv)
        return Answer(0, f"SLURM_JWT={jwt(clock.now() + 600, str(len(asked)))}\n", "")

    source = CommandTokens(
        ("sudo", "scontrol", "token", "username={user}", "lifespan={lifespan_s}"), clock, lifespan_s=600, run_command=run
    )
    first = source.token("alice")
    assert asked == [["sudo", "scontrol", "token", "username=alice", "lifespan=600"]]
    clock.advance(500)
    assert source.token("alice") == first
    clock.advance(45)
    assert source.token("alice") != first
    assert source.token("bob") not in (first, source.token("alice"))
    source.forget("alice")
    source.token("alice")
    assert len(asked) == 4


def test_no_name_of_a_user_becomes_an_option_or_a_path() -> None:
    source = CommandTokens(
        ("scontrol", "token", "username={user}"), SimClock(), run_command=lambda *a, **k: Answer(0, jwt(None), "")
    )
    for name in ("", "-x", "a b", "../root", "a\nb", "a/b", "x" * 70):
        with pytest.raises(BadInput):
            source.token(name)
        with pytest.raises(BadInput):
            FileTokens("/tmp/{user}").token(name)
    with pytest.raises(ConfigError, match=r"must name \{user\}"):
        CommandTokens(("scontrol", "token"), SimClock())


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice.jwt"
    path.write_text(jwt(None))
    path.chmod(0o640)
    source = FileTokens(str(tmp_path / "{user}.jwt"))
    with pytest.raises(ConfigError, match="chmod 600"):
        source.token("alice")
    path.chmod(0o600)
    assert source.token("alice") == jwt(None)
    with pytest.raises(ConfigError, match="cannot be read"):
        source.token("bob")


def test_a_token_tells_its_end_or_nothing() -> None:
    assert expiry(jwt(1234.0)) == 1234.0
    assert [expiry(t) for t in (jwt(None), "", "a.b.c", "....")] == [None] * 4


class Server:
    """A slurmrestd that answers what the test wants."""

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response]) -> None:
        self.answer, self.requests = answer, list[httpx2.Request]()
        self.clock = SimClock()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.path.startswith("/openapi"):
            return httpx2.Response(200, json=document({38: OLD_FIELDS}))
        return self.answer(request)

    def batch(self) -> SlurmRest:
        source = CommandTokens(("t", "{user}"), self.clock, run_command=lambda *a, **k: Answer(0, jwt(None), ""))
        return SlurmRest("c", "http://slurm:6820", "alice", source, self.clock, transport=httpx2.MockTransport(self))


def error(text: str, number: int = 1, status: int = 500) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda request: httpx2.Response(status, json={"errors": [{"error": text, "error_number": number}]})


def broken(kind: type[Exception]) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise kind("gone")

    return answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error("Unable to contact slurm controller (connect failure)"), BatchUnavailable),
        (error("Zero Bytes were transmitted or received", 5005), SubmitUncertain),
        (error("Requested node configuration is not available", 2014), SubmitRefused),
        (error('Unknown key "tres_per_node"', 9001, 400), SubmitRefused),
        (error("Job violates accounting/QOS policy (MaxSubmitJobsPerUser)", 2050), SubmitRefused),
        (lambda r: httpx2.Response(401, text="Authentication failure"), BatchUnavailable),
        (lambda r: httpx2.Response(502, text="<html>bad gateway"), SubmitUncertain),
        (lambda r: httpx2.Response(200, json={"errors": []}), SubmitUncertain),
        (broken(httpx2.ConnectError), BatchUnavailable),
        (broken(httpx2.ReadTimeout), SubmitUncertain),
        (broken(httpx2.RemoteProtocolError), SubmitUncertain),
    ],
)
def test_a_submission_is_uncertain_only_where_it_may_have_arrived(answer: Any, expected: type[Exception]) -> None:
    with pytest.raises(Exception) as raised:
        Server(answer).batch().submit(SPEC)
    assert type(raised.value) in (expected, *([] if expected is not BatchUnavailable else expected.__subclasses__()))
    assert isinstance(raised.value, SubmitUncertain) == (expected is SubmitUncertain)


def test_the_token_is_in_a_header_alone_and_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = Server(lambda r: httpx2.Response(200, json={"errors": [], "jobs": []}))
    assert server.batch().observe([JobRef("r-1.1")]).complete
    for request in server.requests:
        assert request.headers["X-SLURM-USER-TOKEN"] == jwt(None)
        assert jwt(None) not in str(request.url)


def test_names_travel_escaped_a_hundred_at_a_time() -> None:
    server = Server(lambda r: httpx2.Response(200, json={"errors": [], "jobs": []}))
    server.batch().observe([JobRef(f"r-{n}.1") for n in range(250)])
    asked = [r for r in server.requests if r.url.path.startswith("/slurmdb/")]
    assert len(asked) == 3
    assert b"%2C" in asked[0].url.query
    assert b"," not in asked[0].url.query


def test_an_answer_that_is_no_json_or_is_huge_says_nothing_of_jobs() -> None:
    with pytest.raises(BatchUnavailable, match="no JSON"):
        Server(lambda r: httpx2.Response(200, text="[1")).batch().observe([JobRef("r-1.1")])


def test_complaints_are_put_into_words_without_the_empty_ones() -> None:
    rows = [
        {"error": "Unspecified error", "description": "Failed", "error_number": -1},
        {"error_code": 9001, "error": "Parsing"},
        "x",
    ]
    assert complaints(rows) == ("Failed\nParsing", frozenset({-1, 9001}))


def row(job_id: int, state: Any, **changes: Any) -> dict[str, Any]:
    times = {"submission": 10, "start": 20, "end": 30, "limit": {"set": True, "number": 2}}
    return {
        "job_id": job_id,
        "name": "isched-r-1.1",
        "user": "alice",
        "state": {"current": state},
        "time": times,
        "exit_code": 9,
        **changes,
    }


def test_accounting_of_both_shapes_is_read() -> None:
    steps = [{"tres": {"requested": {"max": [{"type": "mem", "count": 5}, {"type": "cpu", "count": 9}]}}}]
    exit_code = {"return_code": {"set": True, "number": 0}, "signal": {"id": {"set": True, "number": 9}}}
    old, new = row(1, "FAILED", steps=steps), row(2, ["NODE_FAIL"], exit_code=exit_code)
    again = row(2, ["RUNNING"])
    found = read_accounting([old, new, again, row(3, "COMPLETED", user="bob")], "alice")
    assert [(s.job_id, s.state, s.signal, s.restarts, s.max_rss_bytes, s.limit_s) for s in found] == [
        ("1", JobState.FAILED, 9, 0, 5, 120.0), ("2", JobState.RUNNING, None, 1, None, 120.0),
    ]  # fmt: skip


def test_a_probe_is_judged_from_partitions_and_nodes() -> None:
    partitions = [{"name": "gpu", "state": "UP", "max_time_limit": 120, "max_nodes_per_job": 2}]
    nodes = [
        {"name": f"n{i}", "partitions": ["gpu"], "cpus": 16, "real_memory": 64000, "gres": "gpu:a100:2", "active_features": "big"}
        for i in (3, 4)
    ]
    assert refusal_of(SPEC, partitions, nodes) == ""
    cases = {
        "partition": "nope", "walltime": replace(SPEC.resources, walltime_s=9000.0), "nodes": replace(SPEC.resources, nodes=3),
        "cores": replace(SPEC.resources, cpus_per_node=17), "a100": replace(SPEC.resources, gpus_per_node=3),
    }  # fmt: skip
    for word, change in cases.items():
        spec = replace(SPEC, partition=change) if isinstance(change, str) else replace(SPEC, resources=change)
        assert word in refusal_of(spec, partitions, nodes)
    assert "takes no jobs" in refusal_of(SPEC, [{**partitions[0], "state": ["DRAIN"]}], nodes)


def test_nodes_of_both_shapes_are_the_same() -> None:
    old = {"name": "n", "state": "mixed", "state_flags": ["DRAIN"], "partitions": ["a"], "cpus": 4, "real_memory": 2048, "gres": "gpu:2",
           "tres": "cpu=4,gres/gpu=2", "tres_used": "gres/gpu=1", "features": "x,y"}  # fmt: skip
    new = {**old, "state": ["MIXED", "DRAIN"], "state_flags": None, "features": ["x", "y"]}
    assert read_nodes([old]) == read_nodes([new])
    assert (read_nodes([old])[0].column, read_nodes([old])[0].gpus_used) == ("drained", 1)


def test_a_dialect_names_its_version() -> None:
    assert (OLD.version, NEW.version, OLD.kill_flags, NEW.kill_flags) == ("v0.0.38", "v0.0.42", False, True)
    assert isinstance(OLD, Dialect)
    assert OLD.accounting
