"""The Tapis runtime on a client that pretends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ischeduler.core.errors import BatchUnavailable, EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.conformance import example
from ischeduler.estimators.contract.serve import reply
from ischeduler.estimators.plugins.install import Installer, Source
from ischeduler.estimators.plugins.load import of_version
from ischeduler.estimators.runtimes.limits import Limits, RuntimeFailed
from ischeduler.estimators.runtimes.tapis import TapisRuntime
from ischeduler.ports import EstimateRequest, EstimatorInfo
from ischeduler.testing.sim_clock import SimClock


class App:
    """What runs as the app."""

    info = EstimatorInfo("far", "3", ("startup",), "analytic")

    def estimate(self, request: EstimateRequest) -> Estimate:
        return Estimate(1.0, 2.0, 4.0, "s", "far@3", reason="a table")


class FakeTapis:
    """Files, jobs and their states; runs the app when a job is submitted."""

    def __init__(self, states: tuple[str, ...] = ("PENDING", "STAGING_JOB", "RUNNING", "FINISHED"), output: bytes | None = None) -> None:
        self.states, self.files, self.jobs, self.cancelled = list(states), {}, [], []
        self._output = output

    def put(self, name: str, data: bytes) -> str:
        self.files[url := f"tapis://storage/{len(self.files)}/{name}"] = data
        return url

    def submit(self, job: Mapping[str, Any]) -> str:
        self.jobs.append(json.loads(json.dumps(job)))
        return f"uuid-{len(self.jobs)}"

    def status(self, job: str) -> str:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def output(self, job: str, path: str, limit_bytes: int) -> bytes:
        assert path == "answer.json"
        if self._output is not None:
            return self._output[: limit_bytes + 1]
        return json.dumps(reply(App(), self.files[self.jobs[-1]["fileInputs"][0]["sourceUrl"]])).encode()

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)


@pytest.fixture
def clock() -> SimClock:
    return SimClock(1_800_000_000.0)


def test_a_request_becomes_a_job_and_its_output_the_answer(tmp_path: Any, clock: SimClock) -> None:
    tapis = FakeTapis()
    version = Installer(tmp_path, tapis=lambda: tapis, clock=clock).version(Source("far-app@3", "tapis", time_limit_s=600.0))
    found = of_version(version, tapis=lambda: tapis, clock=clock).estimate(example("startup"))
    assert (found.p10, found.p50, found.p90) == (1.0, 2.0, 4.0)
    assert found.source == f"far@3+{version.digest[:19]}"
    job = tapis.jobs[-1]
    assert (job["appId"], job["appVersion"], job["maxMinutes"]) == ("far-app", "3", 10)
    assert [a["arg"] for a in job["parameterSet"]["appArgs"]] == ["/TapisInput/request.json", "/TapisOutput/answer.json"]
    sent = json.loads(tapis.files[job["fileInputs"][0]["sourceUrl"]])
    assert sent["quantity"] == "startup"
    assert {r["owner"] for r in sent["history"]} == {""}


def test_without_a_tenant_it_says_so() -> None:
    with pytest.raises(RuntimeFailed, match="no Tapis tenant is connected; connect one") as failure:
        TapisRuntime("far-app", "3").exchange(b"{}")
    assert failure.value.lasting


def test_adding_without_a_tenant_says_so(tmp_path: Any) -> None:
    with pytest.raises(EstimatorFailed, match="was not added: it runs as Tapis app far-app-3"):
        Installer(tmp_path).version(Source("far-app@3", "tapis"))


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "BLOCKED"])
def test_a_failed_job_is_said(state: str, clock: SimClock) -> None:
    with pytest.raises(RuntimeFailed, match=f"ended as {state} .job uuid-1"):
        TapisRuntime("far-app", "3", lambda: FakeTapis(("PENDING", state)), clock).exchange(b"{}")


def test_a_job_that_takes_too_long_is_cancelled(clock: SimClock) -> None:
    tapis = FakeTapis(("PENDING",))
    started = clock.now()
    with pytest.raises(RuntimeFailed, match="within 60 s; cancelled"):
        TapisRuntime("far-app", "3", lambda: tapis, clock, Limits(seconds=60.0)).exchange(b"{}")
    assert tapis.cancelled == ["uuid-1"]
    assert 60 <= clock.now() - started < 70


def test_too_much_output_and_a_lost_tenant_are_said(clock: SimClock) -> None:
    with pytest.raises(RuntimeFailed, match="more than 100 bytes"):
        TapisRuntime("far-app", "3", lambda: FakeTapis(output=b"x" * 1000), clock, Limits(output_bytes=100)).exchange(b"{}")

    def lost() -> FakeTapis:
        raise BatchUnavailable("the tenant does not answer; try later.")

    with pytest.raises(RuntimeFailed, match="could not be asked: the tenant does not answer"):
        TapisRuntime("far-app", "3", lost, clock).exchange(b"{}")


def test_a_lying_app_is_found(tmp_path: Any, clock: SimClock) -> None:
    tapis = FakeTapis()
    version = Installer(tmp_path, tapis=lambda: tapis, clock=clock).version(Source("far-app@3", "tapis"))
    liar = of_version(replace(version, info=replace(version.info, version="2")), tapis=lambda: tapis, clock=clock)
    with pytest.raises(EstimatorFailed, match="added as far@2"):
        liar.estimate(example("startup"))
