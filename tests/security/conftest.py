"""One service for the security suites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from fastapi.testclient import TestClient
from security_scene import Scene, make_scene

from ischeduler.testing.service import make_service


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two users with a thing of every kind, and everybody who might try to get at them."""
    service = make_service(tmp_path_factory.mktemp("security"))
    with TestClient(service.app, raise_server_exceptions=False, follow_redirects=False) as client:
        yield make_scene(service, client)
