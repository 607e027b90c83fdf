"""The example's own tests; the project's integration tests run it in podman and charliecloud."""

from __future__ import annotations

import pytest
from walltime_image import WalltimeImage

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.conformance import broken, check, example


def test_it_conforms() -> None:
    assert broken(check(WalltimeImage())) == []


def test_it_goes_by_finished_runs() -> None:
    request = example("run_time")
    answer = WalltimeImage().estimate(request)
    longest = max(r.run_s or 0.0 for r in request.history)
    assert 0.5 * longest < answer.p50 < 2 * longest
    assert answer.source.startswith("walltime-image@1(")


def test_without_evidence_it_says_so() -> None:
    from dataclasses import replace

    with pytest.raises(EstimatorFailed, match="measured"):
        WalltimeImage().estimate(replace(example("run_time"), history=()))
