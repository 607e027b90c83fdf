"""A service in this process, for tests: the real application and backend over a database of its own and the local batch system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.helper.centre import Centre
from ischeduler.helper.config import load_config
from ischeduler.helper.serving import centre_of
from ischeduler.service.app import create_app
from ischeduler.service.auth.gate import Gate
from ischeduler.service.settings import ServiceSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

KEY = b"a key for tests only, of more than 32 bytes"
BASE_URL = "http://testserver"
FIGURES = '[[given]]\nrun = "10m"\nhost_memory = "1G"\nwait = "1m"\n'
WORKLOAD: Mapping[str, Any] = {"command": ["python", "train.py"], "directory": "/tmp", "samples": 1000, "epochs": 2}


@dataclass(frozen=True, slots=True)
class TestService:
    """An application and ways to act in it."""

    __test__ = False
    app: FastAPI
    centre: Centre
    gate: Gate

    def add_user(self, name: str, *, roles: Sequence[str] = ("user",), scopes: Sequence[str] = ("read", "write")) -> dict[str, str]:
        """A new user; the headers of a new token of theirs."""
        self.gate.identities.add_user(name, roles=roles)
        return self.headers(name, scopes)

    def headers(self, name: str, scopes: Sequence[str] = ("read", "write"), ttl_s: float = 3600.0) -> dict[str, str]:
        """The headers of a new token."""
        return {"Authorization": f"Bearer {self.gate.tokens.make(name, scopes=scopes, ttl_s=ttl_s)[0]}"}

    def run(self, user: str, project: str = "") -> str:
        """The id of a new run of a user: planned, not submitted."""
        plan_id, _ = self.centre.plan(user, WORKLOAD, assume=FIGURES)
        return self.centre.submit(user, plan_id, "goal", {}, project).id


def make_service(folder: Path, *, database: str = "", more: Mapping[str, str] | None = None, **settings: Any) -> TestService:
    """A service with its files in ``folder``. ``settings`` are :class:`ServiceSettings`' own; ``more`` are configuration."""
    environment = {
        "ISCHED_PATHS_STATE": str(folder / "state"), "ISCHED_PATHS_DATA": str(folder / "data"), "ISCHED_BATCH_KIND": "local",
        "ISCHED_LOCAL_GPUS": "none", "ISCHED_SYSTEM_CONFIG": "/dev/null", "XDG_CONFIG_HOME": str(folder / "config"),
        **({"ISCHED_DATABASE_URL": database} if database else {}), **(more or {}),
    }  # fmt: skip
    config = load_config(directory=folder, environment=environment)
    if database:
        from ischeduler.store.engine import open_engine
        from ischeduler.store.migrate import migrate

        migrate(open_engine(database))
    centre = centre_of(config)
    known = ServiceSettings(key=KEY, public_url=BASE_URL, rate=0.0, stranger_rate=0.0)
    app = create_app(centre, replace(known, **settings))
    return TestService(app, centre, app.state.gate)
