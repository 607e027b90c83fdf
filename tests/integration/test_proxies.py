"""The shipped nginx and Caddy files, started as they are (ports, names and certificates apart) before a real service."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

import httpx2 as httpx
import uvicorn

from ischeduler.core.event import Event
from ischeduler.service.api.stream import _OPEN
from ischeduler.testing.broker import free_port
from ischeduler.testing.service import TestService, make_service

FILES = Path(__file__).resolve().parents[2] / "deploy" / "proxy"
MIB = 1 << 20


@dataclass(frozen=True)
class Front:
    """A proxy before a service: its https address, its http port, and clients who come from ``address``."""

    program: str
    service: TestService
    port: int
    plain_port: int
    authority: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.authority))
        return httpx.Client(transport=httpx.HTTPTransport(verify=context, local_address=address), base_url=self.url, timeout=10, trust_env=False)


@contextmanager
def upstream(service: TestService) -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service.app, log_level="warning", timeout_graceful_shutdown=1, proxy_headers=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield taken.getsockname()[1]
        server.should_exit = True
        thread.join(20)


def adapted(text: str, **changes: str) -> str:
    """The shipped text with a test's own places; each that is replaced must be there."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(folder: Path, service_port: int, port: int, plain_port: int) -> tuple[list[str], dict[str, str], Path]:
    """A certificate of its own, the shipped files, and what starts them after nginx's own check of them."""
    certificate, key, main = folder / "fullchain.pem", folder / "key.pem", folder / "main.conf"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", str(key),
         "-out", str(certificate), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        capture_output=True, check=True,
    )  # fmt: skip
    shutil.copy(FILES / "ischeduler-proxy.conf", folder)
    changes = {
        "listen 80;": f"listen 127.0.0.1:{plain_port};", "listen 443 ssl": f"listen 127.0.0.1:{port} ssl", "127.0.0.1:8642": f"127.0.0.1:{service_port}",
        "/etc/ssl/ischeduler/fullchain.pem": str(certificate), "/etc/ssl/ischeduler/key.pem": str(key),
        "/etc/nginx/ischeduler-proxy.conf": str(folder / "ischeduler-proxy.conf"), "ischeduler.example.edu": "localhost",
    }  # fmt: skip
    site = folder / "ischeduler.conf"
    site.write_text(adapted((FILES / "nginx.conf").read_text(), **changes))
    kept = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root; " if os.geteuid() == 0 else ""
    main.write_text(f"{user}daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off; {kept}include {site}; }}\n")
    argv = ["nginx", "-c", str(main), "-e", "stderr"]
    checked = subprocess.run([*argv, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr
    return argv, {}, certificate


def caddy(folder: Path, service_port: int, port: int, plain_port: int) -> tuple[list[str], dict[str, str], Path]:
    """The shipped file behind options for a machine that has no name of its own; the authority is Caddy's own."""
    own = f"{{\n\thttp_port {plain_port}\n\thttps_port {port}\n\tadmin off\n\tskip_install_trust\n}}\n"
    site = folder / "Caddyfile"
    site.write_text(own + (FILES / "Caddyfile").read_text())
    environment = {
        "ISCHEDULER_HOST": "localhost", "ISCHEDULER_UPSTREAM": f"127.0.0.1:{service_port}", "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder),
    }
    argv = ["caddy", "run", "--config", str(site), "--adapter", "caddyfile"]
    checked = subprocess.run(["caddy", "validate", *argv[2:]], capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert checked.returncode == 0, checked.stderr
    return argv, environment, folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"


@pytest.fixture(scope="module", params=[nginx, caddy], ids=["nginx", "caddy"])
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    prepare: Callable[[Path, int, int, int], tuple[list[str], dict[str, str], Path]] = request.param
    for program in (prepare.__name__, "openssl"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed: scripts/install-proxies")
    folder, port, plain_port = tmp_path_factory.mktemp(prepare.__name__), free_port(), free_port()
    service = make_service(folder, public_url=f"https://localhost:{port}", trusted_proxies=("127.0.0.0/30",))
    with upstream(service) as service_port, (folder / "proxy.log").open("wb") as log:
        argv, environment, authority = prepare(folder, service_port, port, plain_port)
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        try:
            yield until_up(Front(prepare.__name__, service, port, plain_port, authority), process, folder / "proxy.log")
        finally:
            process.terminate()
            process.wait(20)


def until_up(front: Front, process: subprocess.Popen[bytes], log: Path) -> Front:
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        try:
            with front.client() as client:
                if client.get("/readyz").status_code == 200:
                    return front
        except (httpx.HTTPError, OSError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"the proxy does not pass requests on: {log.read_text(errors='replace')[-2000:]}")


def test_plain_http_is_sent_to_https(front: Front):
    answer = httpx.get(f"http://127.0.0.1:{front.plain_port}/runs?a=1", headers={"Host": "localhost"}, trust_env=False)
    assert answer.status_code == 308
    assert answer.headers["location"].startswith("https://localhost")
    assert answer.headers["location"].endswith("/runs?a=1")


def test_the_services_headers_arrive_once(front: Front):
    with front.client() as client:
        answer = client.get("/v1/me", headers=front.service.add_user("header-reader"))
    assert answer.status_code == 200
    for name in ("strict-transport-security", "content-security-policy", "x-content-type-options", "x-request-id"):
        assert len(answer.headers.get_list(name)) == 1, name


def test_metrics_stay_inside(front: Front):
    with front.client() as client:
        answer = client.get("/metrics")
    assert answer.status_code == 404
    assert "x-request-id" not in answer.headers  # the service, which names every request, was not asked


def test_an_update_arrives_while_the_stream_is_open(front: Front):
    """A proxy that holds answers back would show nothing until the stream ends."""
    service, who = front.service, front.service.add_user("watcher")
    run_id = service.run("watcher")

    def say(kind: str) -> None:
        service.centre.store.save_run(service.centre.store.get_run(run_id), [Event(run_id, kind, time.time())])

    say("first")
    headers = {**who, "Accept-Encoding": "gzip"}
    with front.client() as client, client.stream("GET", f"/v1/runs/{run_id}/stream", headers=headers) as answer:
        lines = answer.iter_lines()
        assert any('"first"' in line for line in lines)
        say("second")
        assert any('"second"' in line for line in lines)
        assert _OPEN["watcher"] == 1
    end = time.monotonic() + 10
    while _OPEN["watcher"]:  # the proxy hangs up when its client does: a person may have 32 streams
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_may_send_more_than_others_and_nobody_without_end(front: Front):
    """What the service takes, the proxy lets through: a batch of events of up to 8 MiB, anything else up to 1 MiB."""
    who = front.service.add_user("sender")
    run_id = front.service.run("sender")
    with front.client() as client:
        events = client.post(f"/v1/runs/{run_id}/events", headers=who, content=b" " * (8 * MIB - 3) + b"{}")
        assert events.status_code not in (413, 502), events.text
        assert events.headers["x-request-id"]
        told = client.post("/v1/plans", headers=who, content=b" " * (2 * MIB))
        assert told.status_code == 413
        assert told.headers["content-type"] == "application/problem+json"
        try:
            beyond = client.post(f"/v1/runs/{run_id}/events", headers=who, content=b" " * (9 * MIB))
        except httpx.WriteError:
            return  # hung up on, while still sending
    assert beyond.status_code in (413, 502)  # 502: what Caddy 2.6 says at its own limit


def test_who_asks_is_the_caller_not_the_proxy_nor_who_the_caller_says(front: Front):
    """Audit log and limits by address see where a request came from, whatever it claims."""
    who = front.service.add_user("traveller")
    with front.client("127.0.0.9") as client:
        made = client.post("/v1/tokens", headers={**who, "X-Forwarded-For": "203.0.113.9"}, json={"label": "t", "scopes": ["read"]})
        assert made.status_code == 201, made.text
    admin = front.service.add_user("auditor", roles=("centre_admin",), scopes=("read", "admin"))
    with front.client() as client:
        found = client.get("/v1/admin/audit", headers=admin).json()
    assert [line["origin"] for line in found["lines"] if line["who"] == "traveller"] == ["127.0.0.9"]


def test_signing_in_is_slowed_down_by_nginx(front: Front):
    """Caddy has no such limit without a module of others; the service's own holds behind either."""
    with front.client() as client:
        statuses = [client.get("/login").status_code for _ in range(20)]
    assert statuses[0] == 200
    assert (429 in statuses) == (front.program == "nginx")
