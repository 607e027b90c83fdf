"""Hypothesis: the same examples in every CI run, new ones on every other. In CI a part that is missing is a failure."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
IN_CI = bool(os.environ.get("CI"))
settings.register_profile("own", deadline=None)
settings.load_profile("ci" if IN_CI else "own")

_DATA_SET = re.compile(r"not shipped|not here|\bshared\b")
"""Reasons of tests that need data sets which the project may not ship: the only ones that may skip in CI."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """CI installs every part, so a skip says that one is missing."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not _DATA_SET.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} skips, which CI does not allow: {reason}"
    return report
