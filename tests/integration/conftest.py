"""One real Slurm for all integration tests: the session-scoped fixture ``slurm``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.sandbox import (
    Sandbox,
    SandboxAccount,
    SandboxPartition,
    SandboxQos,
    SandboxSpec,
    demo_spec,
    list_sandboxes,
)
from ischeduler.sandbox.host import missing


def integration_spec() -> SandboxSpec:
    """The demo's cluster, with preemption by QOS (``high`` pushes out ``low``) and a partition that only carol may use."""
    base = demo_spec(cluster_name="testbed")
    closed = SandboxPartition("closed", ("c02",), max_time_min=5, allow_accounts=("restricted",))
    return replace(
        base,
        partitions=(*base.partitions, closed),
        accounts=(SandboxAccount("research"), SandboxAccount("restricted", ("carol",))),
        qos=(SandboxQos("low", priority=1), SandboxQos("high", priority=100, preempt=("low",), preempt_mode="REQUEUE")),
        preempt=True,
    )


@pytest.fixture(scope="session")
def slurm_host() -> None:
    """Skips where no sandbox can run, and says why; in CI (environment variable ``CI``) that is a failure."""
    reason = missing()
    if reason and os.environ.get("CI"):
        pytest.fail(f"CI must run the Slurm tests, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm(slurm_host: None) -> Iterator[Sandbox]:
    """A running sandbox, shared by the whole session: leave it as you found it (nodes up, partitions open, daemons on)."""
    remove_leftovers()
    sandbox = Sandbox(integration_spec(), sandbox_name())
    sandbox.up()
    try:
        yield sandbox
    finally:
        sandbox.down()


def sandbox_name(suffix: str = "") -> str:
    """A name that tells whose it is, so that the next session can clear up after one that was killed."""
    return f"t{os.getpid()}{suffix}"


def remove_leftovers() -> None:
    for name in list_sandboxes():
        owner = re.fullmatch(r"t(\d+)[a-z]?", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            Sandbox.open(name).down()
