"""The shipped compose file in a folder of its own, as an administrator prepares it, started by podman-compose."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx

from ischeduler.testing.broker import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ACCOUNT = 10642
LIMITS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=1024:1024"]\nlog_driver = "k8s-file"\n'
"""What a container may have on a host that gives itself no more."""


class ComposeSite:
    """One centre: ``images`` by the compose file's variables. :meth:`up` and :meth:`down` as often as you like; :meth:`close` leaves nothing."""

    def __init__(self, folder: Path, images: Mapping[str, str]) -> None:
        self.name, self.port, self.folder = f"isched-{secrets.token_hex(4)}", free_port(), folder / "compose"
        self.subnet = f"10.86.{secrets.randbelow(256)}"
        shutil.copytree(DEPLOY / "compose", self.folder)
        shutil.copytree(DEPLOY / "proxy", folder / "proxy")
        (folder / "containers.conf").write_text(LIMITS)
        self._environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        self._prepare(images)

    def _prepare(self, images: Mapping[str, str]) -> None:
        """What docs/how-to/install-the-centre.md tells to do; the batch system is the service's own machine, for there is no Slurm."""
        kept = self.folder / "secrets"
        for made in (kept, kept / "tokens"):
            made.mkdir(mode=0o700)
            os.chown(made, ACCOUNT, ACCOUNT)
        password = secrets.token_hex(24)
        self._write(kept / "database-password", password + "\n")
        self.podman("run", "--rm", "--network", "none", "--volume", f"{kept}:/secrets", images["ISCHEDULER_IMAGE"], "admin", "key", "/secrets/server.key")
        lines = (self.folder / "ischeduler.env.example").read_text().splitlines()
        settings = [line for line in lines if not line.startswith(("#", "ISCHED_BATCH_", "ISCHED_SLURMREST_"))]
        text = "\n".join([*settings, "ISCHED_BATCH_KIND=local"]).replace("PASSWORD", password)
        self._write(self.folder / "ischeduler.env", text.replace("10.86.42", self.subnet).replace("ischeduler.example.edu", f"localhost:{self.port}") + "\n")
        variables = {
            **images, "HTTPS_PORT": str(self.port), "HTTP_PORT": str(free_port()), "ISCHEDULER_HOST": "localhost", "INSIDE_SUBNET": f"{self.subnet}.0/24",
        }  # fmt: skip
        self._write(self.folder / ".env", "".join(f"{name}={value}\n" for name, value in variables.items()))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.touch(mode=0o600)
        path.write_text(text)

    def _run(self, *argv: str) -> str:
        done = subprocess.run(argv, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout[-1500:]}{done.stderr[-3000:]}"
        return done.stdout

    def podman(self, *words: str) -> str:
        """Its output."""
        return self._run("podman", *words)

    def _compose(self, *words: str) -> str:
        return self._run(sys.executable, "-m", "podman_compose", "-p", self.name, *words)

    def up(self) -> None:
        """As an administrator starts it."""
        self._compose("up", "-d")

    def down(self) -> None:
        """As an administrator stops it: volumes stay."""
        self._compose("down")

    def isched(self, *words: str) -> Any:
        """A command in the service's container; its JSON."""
        return json.loads(self.podman("exec", f"{self.name}_service_1", "isched", *words, "--json"))

    def container(self, part: str) -> str:
        """A part's container (the first)."""
        return f"{self.name}_{part}_1"

    def client(self, token: str = "") -> httpx.Client:
        """Through the proxy, by https, trusting its authority alone."""
        context = ssl.create_default_context(cadata=self.podman("exec", self.container("proxy"), "cat", "/data/caddy/pki/authorities/local/root.crt"))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(verify=context, base_url=f"https://localhost:{self.port}", headers=headers, timeout=20, trust_env=False)

    def told(self) -> str:
        """The last words of every part."""
        names = self.podman("ps", "--all", "--filter", f"name={self.name}_", "--format", "{{.Names}}").split()
        said = (subprocess.run(["podman", "logs", "--tail", "5", n], capture_output=True, text=True, check=False) for n in names)
        return "\n".join(f"{name}: {s.stdout}{s.stderr}" for name, s in zip(names, said, strict=True))

    def close(self) -> None:
        """Remove containers, network and volumes."""
        self._compose("down", "--volumes", "--timeout", "2")
