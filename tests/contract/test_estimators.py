"""One conformance check for every estimator, and proof that it catches those that break the contract."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ischeduler.core.estimate import Estimate
from ischeduler.estimators.builtins import built_ins
from ischeduler.estimators.conformance import broken, check, example
from ischeduler.estimators.given import read_given
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.registry import Registry
from ischeduler.ports import EstimateRequest, EstimatorInfo

WITHOUT_TORCH = ("given", "history", "scaling", "profile", "queue", "startup-prior", "host-memory")
WITH_TORCH = ("trace", "roofline", "walltime", "charging")
GIVEN = [{"run": "2h", "wait": "1h", "gpu_memory": "24G", "host_memory": "20G", "step_time": 0.2, "startup": 30, "checkpoint": 2}]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    tracer = Tracer(tmp_path_factory.mktemp("traces"))
    return built_ins(given=read_given(GIVEN), tracer=tracer, plug_ins=False).registry


def test_every_built_in_is_checked(registry: Registry) -> None:
    assert sorted(e.info.name for e in registry) == sorted((*WITHOUT_TORCH, *WITH_TORCH))


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_built_ins_conform(registry: Registry, name: str) -> None:
    findings = check(registry.get(name))
    assert broken(findings) == []
    assert len(findings) > 1


@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_TORCH)
def test_tracing_built_ins_conform_and_answer(registry: Registry, name: str) -> None:
    pytest.importorskip("torch")
    findings = check(registry.get(name))
    assert broken(findings) == []
    assert not [f for f in findings if "no answer" in f.text]


class Base:
    """A conforming estimator of run time to break in single ways."""

    info = EstimatorInfo("odd", "1", ("run_time",), "analytic")

    def estimate(self, request: EstimateRequest) -> Estimate:
        seconds = 0.001 * request.workload.samples * request.workload.epochs
        return Estimate(seconds / 2, seconds, seconds * 2, "s", "odd@1", reason="a rule of thumb")


class WrongUnit(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return replace(super().estimate(request), unit="bytes")


class Moody(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return super().estimate(request).scaled(random.uniform(1, 2))


class Deaf(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return Estimate(1, 2, 3, "s", "odd@1", reason="always the same")


class Crashing(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        raise KeyError("x")


class Picky(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        if not request.history:
            raise IndexError("no history")
        return super().estimate(request)


class Silent(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return replace(super().estimate(request), reason="")


class Nameless(Base):
    info = EstimatorInfo("", "1", ("run_time",), "analytic")


class Endless(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return replace(super().estimate(request), p90=math.inf)


class Anonymous(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return replace(super().estimate(request), source="odd")


class Untyped(Base):
    def estimate(self, request: EstimateRequest) -> Estimate:
        return {"p50": 3}  # type: ignore[return-value]


def test_a_sound_one_passes() -> None:
    assert broken(check(Base())) == []


@pytest.mark.parametrize(("kind", "words"), [
    (WrongUnit, "expected 's'"), (Moody, "Asked twice"), (Deaf, "expected between"), (Crashing, "raised KeyError"),
    (Picky, "raised IndexError"), (Silent, "no reason"), (Nameless, "without spaces"), (Endless, "plausible"),
    (Anonymous, "NAME@VERSION"), (Untyped, "expected an Estimate"),
])
def test_each_way_of_breaking_the_contract_is_found(kind: type[Base], words: str) -> None:
    assert any(words in f.text for f in broken(check(kind()))), [f.text for f in check(kind())]


def test_slowness_is_found() -> None:
    assert any("time" in f.check for f in broken(check(Base(), time_limit_s=-1.0)))


@pytest.mark.parametrize("quantity", ["gpu_memory", "queue_wait", "cost"])
def test_the_example_names_everything_an_estimator_could_want(quantity: str) -> None:
    asked = example(quantity)
    assert asked.cluster is not None
    assert asked.snapshot is not None
    assert asked.node_type is not None
    assert len(asked.history) == 8
