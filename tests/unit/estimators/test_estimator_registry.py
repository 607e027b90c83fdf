"""The order of trust, and what happens when somebody in it fails."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from estimator_worlds import Fixed, request

from ischeduler.core.errors import BadInput, EstimatorFailed, NotFound
from ischeduler.core.estimate import BASES, Estimate
from ischeduler.estimators import registry as module
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.registry import Registry, load, plug_ins

GOOD = Estimate(1, 2, 3, "s", "good@1", reason="measured")


def test_the_most_trusted_is_asked_first_whatever_the_order_of_registration() -> None:
    ranked = [Fixed(basis, GOOD, basis) for basis in reversed(BASES)]
    registry = Registry(ranked)
    assert [e.info.basis for e in registry] == list(BASES)
    registry.answer(request("startup"))
    assert [e.info.name for e in registry if e.asked] == ["given"]


def test_failures_degrade_with_notes_and_missing_evidence_silently() -> None:
    registry = Registry([
        Fixed("a", EstimatorFailed("the disk is full"), "given"), Fixed("b", NoEvidence("none"), "history"),
        Fixed("c", ZeroDivisionError("oops"), "profile"), Fixed("d", Estimate(1, 2, 3, "bytes", "d@1"), "trace"),
        Fixed("e", GOOD, "analytic"),
    ])
    answer, notes = registry.answer(request("startup"))
    assert answer == GOOD
    assert [n.split()[0] for n in notes] == ["a", "c", "d"]
    assert "the disk is full" in notes[0]
    assert "ZeroDivisionError" in notes[1]


def test_when_nobody_can_say_every_reason_is_told() -> None:
    registry = Registry([Fixed("a", EstimatorFailed("no torch"), "trace"), Fixed("b", NoEvidence("nothing ran"), "history")])
    with pytest.raises(EstimatorFailed, match="no torch"):
        registry.answer(request("startup"))
    with pytest.raises(EstimatorFailed, match="No estimator answers checkpoint"):
        registry.answer(request("checkpoint"))
    with pytest.raises(EstimatorFailed, match="nothing ran"):
        Registry([Fixed("b", NoEvidence("nothing ran"), "history")]).answer(request("startup"))


def test_names_are_unique_and_known() -> None:
    registry = Registry([Fixed("a", GOOD)])
    with pytest.raises(BadInput, match="already"):
        registry.add(Fixed("a", GOOD))
    with pytest.raises(BadInput, match="basis"):
        registry.add(Fixed("z", GOOD, "hunch"))
    with pytest.raises(NotFound, match="expected one of a"):
        registry.get("b")
    assert registry.get("a").info.name == "a"


def test_plug_ins_load_by_entry_point_and_a_broken_one_is_a_problem_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("startup-prior", "ischeduler.estimators.walltime.formula:StartupEstimator", module.GROUP),
        EntryPoint("broken", "no_such_package:Thing", module.GROUP),
    ]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == module.GROUP else [])
    loaded, problems = plug_ins()
    assert [e.info.name for e in loaded] == ["startup-prior"]
    assert len(problems) == 1
    assert "no_such_package" in problems[0]
    assert plug_ins(["startup-prior"])[0] == []
    assert load(points[0]).estimate(request("startup")).unit == "s"
