"""What several contract suites need: one private PostgreSQL for the session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ischeduler.testing.postgres import PostgresMissing, ThrowawayPostgres, throwaway_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[ThrowawayPostgres]:
    """A server; skips with the reason where PostgreSQL is not installed, which in CI (variable ``CI``) is a failure."""
    try:
        with throwaway_postgres() as server:
            yield server
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the PostgreSQL tests, but {missing}", pytrace=False)
        pytest.skip(str(missing))
