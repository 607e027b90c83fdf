"""The centre's image, built for real from this checkout, and its parts run from it as the compose file and the manifests run them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from compose_parts import PartMissing, make_images
from compose_site import ComposeSite

from ischeduler.testing.broker import BrokerMissing, free_port
from ischeduler.testing.postgres import PostgresMissing, ThrowawayPostgres, throwaway_postgres

pytestmark = [pytest.mark.containers, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
TAG = f"localhost/ischeduler-test:{secrets.token_hex(4)}"
CONFINED = (
    "--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp",
    "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=512:512", "--log-driver", "k8s-file",
)  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    for program in ("podman", "debootstrap"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed: scripts/install-containers")
    if os.geteuid() != 0:
        pytest.skip("making a base image needs root")
    argv = [sys.executable, str(ROOT / "scripts" / "build-image"), "--bootstrap", "--extras", "service,tapis", "--tag", TAG]
    built = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    yield TAG
    subprocess.run(["podman", "rmi", "--force", TAG], capture_output=True, check=False)


@pytest.fixture(scope="module")
def postgres() -> Iterator[ThrowawayPostgres]:
    try:
        with throwaway_postgres() as server:
            server.folder.chmod(0o755)  # the image's own account comes in by the socket
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


class Site:
    """One state volume, one database; containers of the image over them."""

    def __init__(self, image: str, postgres: ThrowawayPostgres, folder: Path) -> None:
        self.image, self.port, self.volume = image, free_port(), f"isched-test-{secrets.token_hex(4)}"
        self.names: list[str] = []
        self._settings = {
            "ISCHED_DATABASE_URL": postgres.new_database(), "ISCHED_SERVE_PORT": str(self.port), "ISCHED_SERVE_KEY_FILE": "/state/server.key",
            "ISCHED_BATCH_KIND": "local",
        }  # fmt: skip
        self._mounts = ("--volume", f"{postgres.folder}:{postgres.folder}", "--volume", f"{self.volume}:/state")

    def _argv(self, *options: str) -> list[str]:
        environment = [word for name, value in self._settings.items() for word in ("--env", f"{name}={value}")]
        return ["podman", "run", *CONFINED, *self._mounts, *environment, *options, self.image]

    def run(self, *words: str) -> str:
        done = subprocess.run([*self._argv("--rm"), *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str) -> str:
        name = f"isched-test-{secrets.token_hex(4)}"
        self.names.append(name)
        subprocess.run([*self._argv("--detach", "--name", name), *words], capture_output=True, text=True, timeout=120, check=True)
        return name

    def logs(self, name: str) -> str:
        done = subprocess.run(["podman", "logs", name], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def stop(self, name: str) -> int:
        """SIGTERM with the grace that the compose file gives; the exit status."""
        subprocess.run(["podman", "stop", "--time", "30", name], capture_output=True, check=True)
        done = subprocess.run(["podman", "inspect", "--format", "{{.State.ExitCode}}", name], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["podman", "rm", "--force", "--time", "0", name], capture_output=True, check=False)
        subprocess.run(["podman", "volume", "rm", "--force", self.volume], capture_output=True, check=False)


@pytest.fixture
def site(image: str, postgres: ThrowawayPostgres, tmp_path: Path) -> Iterator[Site]:
    own = Site(image, postgres, tmp_path)
    yield own
    own.close()


def answer(site: Site, path: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{site.port}{path}", headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.status, response.read()


def until(holds: object, what: str, told: object, limit_s: float = 60.0) -> None:
    assert callable(holds)
    assert callable(told)
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"{what}: {told()}"
        time.sleep(0.5)


def ready(site: Site) -> bool:
    try:
        return answer(site, "/readyz")[0] == 200
    except OSError:
        return False


def test_a_centre_of_containers(site: Site):
    """Migrated, a key and an administrator made, the service ready, a worker seen, both ended in peace; nothing of the build's host inside."""
    assert site.run("--version").startswith("isched ")
    site.run("db", "upgrade")
    site.run("admin", "key", "/state/server.key")
    site.run("admin", "user", "add", "ada", "--role", "centre_admin")
    made = json.loads(site.run("admin", "token", "create", "ada", "--scope", "read", "--scope", "admin", "--json"))
    service, worker = site.start("serve"), site.start("plane", "worker")
    until(lambda: ready(site), "the service is not ready", lambda: site.logs(service))
    status, body = answer(site, "/v1/me", made["secret"])
    assert status == 200
    assert json.loads(body)["me"]["user"] == "ada"
    until(lambda: worker_seen(site), "no worker signs in", lambda: site.logs(worker))
    assert site.stop(worker) == 0, site.logs(worker)
    assert site.stop(service) == 0, site.logs(service)
    assert made["secret"] not in site.logs(service) + site.logs(worker)


def worker_seen(site: Site) -> bool:
    return any(c["name"].startswith("worker ") for c in json.loads(site.run("doctor", "--server", "--json"))["checks"])


def test_nothing_of_the_build_is_left_inside(image: str):
    """No sources, no pip settings of the host (an empty mount point at most), not root."""
    inspected = json.loads(subprocess.run(["podman", "image", "inspect", image], capture_output=True, text=True, check=True).stdout)[0]
    assert inspected["Config"]["User"] == "10642:10642"
    assert not [e for e in inspected["Config"]["Env"] if e.startswith("PIP_")]
    script = "test ! -e /src && test ! -s /etc/pip.conf && test ! -w /opt/ischeduler && test ! -w /etc"
    done = subprocess.run(["podman", "run", "--rm", *CONFINED, "--entrypoint", "/bin/sh", image, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SEND = """
import sys
from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.kafka import KafkaSettings
from ischeduler.service.ingest.sender import KafkaSender
with KafkaSender(KafkaSettings("broker:9092"), secret=sys.stdin.readline().strip()) as sender:
    sender.send(Incoming(sys.argv[1], "job", "1.0", n, "performance", 1000.0 + n, '{"accuracy": 0.%d}' % n) for n in range(1, 6))
    sys.exit(sender.flush(20))
"""


@pytest.fixture
def composed(image: str, tmp_path: Path) -> Iterator[ComposeSite]:
    stand_ins: dict[str, str] = {}
    try:
        pytest.importorskip("podman_compose", reason="podman-compose is not installed: pip install -e '.[dev]'")
        stand_ins = make_images(f"localhost/isched-test-{secrets.token_hex(4)}")
        site = ComposeSite(tmp_path, {**stand_ins, "ISCHEDULER_IMAGE": image})
        yield site
        site.close()
    except (PartMissing, PostgresMissing, BrokerMissing) as missing:
        pytest.skip(str(missing))
    finally:
        for name in stand_ins.values():
            subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=False)


def answers(site: ComposeSite) -> bool:
    try:
        with site.client() as client:
            return client.get("/readyz").status_code == 200
    except (OSError, AssertionError, httpx.HTTPError):
        return False


def good(site: ComposeSite, *wanted: str) -> bool:
    """Whether the doctor inside finds at least one good check for each beginning of a name, and two workers."""
    try:
        names = [c["name"] for c in site.isched("doctor", "--server")["checks"] if c["level"] == "ok"]
    except AssertionError:  # it ends with 1 while something is bad
        return False
    return all(any(n.startswith(w) for n in names) for w in wanted) and sum(n.startswith("worker ") for n in names) == 2


def test_the_compose_file_starts_a_centre(composed: ComposeSite):
    """Every part comes up in whatever order; a request through the proxy, an event through the broker; what was said stays over a restart."""
    composed.up()
    until(lambda: answers(composed), "nobody answers behind the proxy", composed.told, limit_s=180)
    for part in ("database", "service"):
        composed.podman("healthcheck", "run", composed.container(part))
    composed.isched("admin", "user", "add", "ada", "--role", "centre_admin")
    token = composed.isched("admin", "token", "create", "ada", "--scope", "read", "--scope", "write", "--scope", "admin")["secret"]
    until(lambda: good(composed, "database", "server's key", "broker"), "the doctor inside is not content", composed.told, limit_s=180)

    with composed.client(token) as client:
        workload = {"command": ["sleep", "1"], "directory": "/tmp", "samples": 1000, "epochs": 2}
        figures = '[[given]]\nrun = "10m"\nhost_memory = "1G"\nwait = "1m"\n'
        plan = client.post("/v1/plans", json={"workload": workload, "assume": figures}).json()
        run = client.post("/v1/runs", json={"plan": plan["id"]}).json()["run"]["id"]
        job = client.post(f"/v1/runs/{run}/token").json()["token"]
        sent = ["podman", "exec", "-i", composed.container("ingest"), "/opt/ischeduler/bin/python", "-c", SEND, run]
        subprocess.run(sent, input=job, text=True, capture_output=True, timeout=60, check=True)
        until(lambda: len(accuracies(client, run)) == 5, "the ingest stores no event", composed.told, limit_s=180)
        origins = {line["origin"] for line in client.get("/v1/admin/audit").json()["lines"] if line["what"].startswith("run.")}
        assert origins == {f"{composed.subnet}.1"}  # this host as the network sees it, not the proxy

    composed.down()
    composed.up()
    until(lambda: answers(composed), "nobody answers after a restart", composed.told, limit_s=180)
    with composed.client(token) as client:
        assert [m["accuracy"] for m in accuracies(client, run)] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert token not in composed.told()


def accuracies(client: httpx.Client, run: str) -> list[dict[str, float]]:
    return client.get(f"/v1/runs/{run}/messages/performance").json()["messages"]
