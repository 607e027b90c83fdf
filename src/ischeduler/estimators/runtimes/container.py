"""The ``container`` runtime: an image with no network, a read-only root, no host folders, limits on time and memory."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from dataclasses import dataclass

from ischeduler.core.errors import NotFound
from ischeduler.estimators.runtimes.bounded import ask_command
from ischeduler.estimators.runtimes.engines import Image, engine
from ischeduler.estimators.runtimes.limits import ISOLATED, Limits, RuntimeFailed

_STOP_TIMEOUT_S = 20.0
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DOCKER_HOST",
              "DOCKER_CONFIG", "DBUS_SESSION_BUS_ADDRESS", "CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF", "LANG", "APPTAINER_TMPDIR")
"""Variables an engine may need; the plug-in sees none of them."""


@dataclass(frozen=True)
class ContainerRuntime:
    """One image through one engine."""

    engine: str
    image: Image
    limits: Limits = Limits()
    trust: str = ISOLATED

    @property
    def place(self) -> str:
        """For sentences."""
        return self.engine

    def exchange(self, message: bytes) -> bytes:
        """Run it once. The container is removed even when it hangs."""
        try:
            chosen = engine(self.engine)
        except NotFound as error:
            raise RuntimeFailed(str(error), lasting=True) from None
        if not chosen.keeps_images and not os.path.isdir(self.image.reference):
            raise RuntimeFailed(f"its root file system {self.image.reference} is gone; add it again.", lasting=True)
        name = f"isched-estimator-{secrets.token_hex(6)}"
        user = chosen.user()
        environment = {k: os.environ[k] for k in _PASSED_ON if k in os.environ} if user is None else _bare()
        environment.setdefault("USER", "nobody")  # ch-run does not start without it
        stopping = chosen.stopping(name)
        return ask_command(
            self.place, chosen.argv(self.image, self.limits, name), message, self.limits, environment=environment,
            directory="/", user=user, limit_memory=not chosen.keeps_images, clean_up=(lambda: _stop(stopping, environment)) if stopping else None,
        )


def _bare() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin", "HOME": "/", "USER": "nobody"}


def _stop(commands: list[list[str]], environment: dict[str, str]) -> None:
    for argv in commands:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # its own --timeout ends it where this cannot
            subprocess.run(
                argv, capture_output=True, timeout=_STOP_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL, env=environment, cwd="/"
            )
