"""Estimators in real containers: the worked example, what an untrusted plug-in can get at, and how one that misbehaves ends."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from oci_registry import oci_registry

from ischeduler.core.errors import EstimatorFailed, IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.conformance import broken, check_plugin, example
from ischeduler.estimators.plugins.build import build
from ischeduler.estimators.plugins.install import Installer, Source
from ischeduler.estimators.plugins.load import add_plugins, estimator_of, of_version, runtime_of
from ischeduler.estimators.plugins.project import read_project
from ischeduler.estimators.plugins.publish import publish
from ischeduler.estimators.plugins.register import Register
from ischeduler.estimators.plugins.versions import PluginVersion
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.runtimes.engines import ENGINES
from ischeduler.estimators.runtimes.plugin import PluginEstimator
from ischeduler.estimators.scaffold import make
from ischeduler.estimators.walltime.formula import StartupEstimator
from ischeduler.ports import EstimateRequest

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]
NEEDED = ("podman", "charliecloud")
FURTHER = tuple(name for name in ("docker", "apptainer") if shutil.which(name) and not ENGINES[name].missing())
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "estimators" / "walltime"
SECRET = "the user's own secret"
LIMIT_S = 3.0


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Root's unpacked images go to a folder of the test's own, and images made here go away."""
    before = kept_images()
    folder = Path(f"/var/tmp/isched-test-rootfs-{secrets.token_hex(6)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ischeduler.estimators.plugins.images.SYSTEM_ROOTFS", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
    if made := kept_images() - before:
        subprocess.run(["podman", "rmi", "--force", *made], capture_output=True, check=True)


def kept_images() -> set[str]:
    """Names of podman's images of estimators, where there is a podman."""
    if not shutil.which("podman"):
        return set()
    done = subprocess.run(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True, check=False)
    return {name for name in done.stdout.split() if "/isched-estimator/" in name}


@pytest.fixture(scope="module", params=[*NEEDED, *FURTHER])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that must be here, and the others where they are; skips with the reason (in CI a skip is a failure)."""
    reason = ENGINES[request.param].missing()
    if reason:
        pytest.skip(f"{reason} scripts/install-containers installs podman and charliecloud.")
    return request.param


@pytest.fixture(scope="module")
def rogue_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rogue")
    (folder / "src").mkdir()
    shutil.copy(Path(__file__).with_name("rogue_plugin.py"), folder / "src" / "rogue_plugin.py")
    (folder / "estimator.toml").write_text('name = "rogue"\nversion = "1"\ncommand = ["python3", "-m", "rogue_plugin"]\n')
    build(read_project(folder), way="python")
    return folder


@pytest.fixture(scope="module")
def rogue(rogue_folder: Path, engine: str, tmp_path_factory: pytest.TempPathFactory) -> PluginVersion:
    installer = Installer(tmp_path_factory.mktemp("plugins"))
    return installer.version(Source(str(rogue_folder), "container", engine, time_limit_s=60.0, memory_limit_bytes=2**28))


@pytest.fixture(scope="module")
def outside(rogue_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> PluginVersion:
    """The same code as a process, where nothing stops it."""
    return Installer(tmp_path_factory.mktemp("plugins")).version(Source(str(rogue_folder), "process"))


@dataclass
class Prey:
    """What an attacker is after, and the orders to get it."""

    orders: dict[str, Any]
    secret: Path


@pytest.fixture
def prey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prey]:
    """A secret file, a readable file of the system, a secret variable, a TCP and a Unix listener, a process with a telling name."""
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    shared = Path(f"/var/tmp/isched-test-{secrets.token_hex(6)}")  # readable by everyone: only the container can hide it
    shared.write_text(SECRET)
    monkeypatch.setenv("SECRET_VARIABLE", SECRET)
    name = f"isched-test-{secrets.token_hex(6)}"
    marked = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", name])
    with socket.create_server(("0.0.0.0", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0" + name)
        unix.listen()
        for server in (tcp, unix):
            threading.Thread(target=_greet, args=(server,), daemon=True).start()
        port = tcp.getsockname()[1]
        hosts = ["127.0.0.1", *_own_addresses()]
        yield Prey({
            "files": [str(secret), str(shared), str(Path(__file__)), str(Path.home() / ".profile"), "/dev/mem", "/dev/vda", "/dev/sda"],
            "tcp": [[host, port] for host in hosts], "abstract": name, "marker": name, "become_root": True,
            "write": [str(tmp_path / "written"), f"{shared}.new", "/plugin/rogue_plugin.py", "/usr/local/bin/x", "/etc/passwd", "/x"],
        }, secret)
    marked.kill()
    marked.wait()
    shared.unlink()
    Path(f"{shared}.new").unlink(missing_ok=True)


def _own_addresses() -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"})
    except OSError:
        return []


def _greet(server: socket.socket) -> None:
    while True:
        try:
            link, _ = server.accept()
        except OSError:
            return  # the test is over
        with link:
            link.sendall(b"hello from the host")


def carried_out(version: PluginVersion, orders: dict[str, Any]) -> dict[str, Any]:
    return json.loads(runtime_of(version).exchange(json.dumps({"attack": orders}).encode()))


def test_outside_a_container_the_attacks_succeed(outside: PluginVersion, prey: Prey) -> None:
    found = carried_out(outside, {**prey.orders, "become_root": False, "write": [str(prey.secret.parent / "written")]})
    assert found["read"][str(prey.secret)] == SECRET
    assert [t[2] for t in found["tcp"]] == ["hello from the host"] * len(prey.orders["tcp"])
    assert found["abstract"] == "hello from the host"
    assert len(found["processes"]) == 1
    assert found["environment"]["SECRET_VARIABLE"] == SECRET
    assert found["written"]
    assert set(found["interfaces"]) >= {"lo"}


def test_an_untrusted_plug_in_gets_at_nothing(rogue: PluginVersion, prey: Prey) -> None:
    found = carried_out(rogue, prey.orders)
    assert found["read"] == {}
    assert found["tcp"] == []
    assert found["abstract"] == ""
    assert found["processes"] == []
    assert SECRET not in json.dumps(found)
    assert found["written"] == []
    assert found["interfaces"] in (["lo"], [])
    if os.geteuid() == 0:  # an ordinary user without further ids is root of a name space that holds that user alone
        assert found["root"] is False
        assert found["uid"] != 0
    assert not {d for d in found["devices"] if d.startswith(("vd", "sd", "nvme", "nvidia", "kmsg", "mem", "fuse", "loop"))}


def test_nothing_lies_beneath_the_masks(rogue: PluginVersion, prey: Prey) -> None:
    found = carried_out(rogue, {"files": prey.orders["files"], "beneath": True, "abstract": prey.orders["abstract"]})
    assert found["beneath"]["removed"] == []
    assert found["beneath"]["read"] == {}
    assert SECRET not in json.dumps(found)


def asked(name: str, quantity: str = "startup") -> EstimateRequest:
    request = example(quantity)
    return replace(request, workload=replace(request.workload, name=name))


def with_limit(version: PluginVersion, seconds: float = LIMIT_S) -> PluginEstimator:
    return of_version(replace(version, time_limit_s=seconds))


def test_an_honest_answer_names_version_and_digest(rogue: PluginVersion) -> None:
    answer = of_version(rogue).estimate(asked("honest"))
    assert answer.source == f"rogue@1+{rogue.digest[:19]}"
    assert (answer.p10, answer.p50, answer.p90) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(("how", "words"), [
    ("wrong unit", "expected 's'"), ("wrong version", "added as rogue@1"), ("wrong contract", "contract version '2'"),
    ("wrong quantity", "'checkpoint' where startup"), ("disorder", "out of order"), ("not a number", "expected a number"),
    ("infinite", "JSON|finite"), ("flood", "more than 1048576 bytes"), ("exit", r"exit code 3.*no licence"),
    ("text", "not JSON.*Segmentation"), ("deep", "not JSON"), ("empty", "not JSON"),
])
def test_a_lie_is_found_and_said(rogue: PluginVersion, how: str, words: str) -> None:
    with pytest.raises(EstimatorFailed, match=words) as failure:
        with_limit(rogue, 30.0).estimate(asked(how))
    assert "\x1b" not in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("how", ["hang", "hang deaf"])
def test_one_that_hangs_is_stopped_and_put_aside(rogue: PluginVersion, how: str) -> None:
    estimator = with_limit(rogue)
    started = time.monotonic()
    with pytest.raises(EstimatorFailed, match="within 3 s"):
        estimator.estimate(asked(how))
    assert time.monotonic() - started < LIMIT_S + 15
    started = time.monotonic()
    with pytest.raises(EstimatorFailed, match="within 3 s"):
        estimator.estimate(asked("honest"))
    assert time.monotonic() - started < 1
    assert left_over() == []


@pytest.mark.parametrize("how", ["memory", "fork"])
def test_one_that_takes_too_much_is_stopped(rogue: PluginVersion, how: str) -> None:
    started = time.monotonic()
    with pytest.raises(EstimatorFailed):
        with_limit(rogue, 20.0).estimate(asked(how))
    assert time.monotonic() - started < 40
    assert left_over() == []


def left_over() -> list[str]:
    """Processes of a plug-in that are still there (they may take a moment to go), and containers."""
    for _ in range(50):
        found = [line for line in _command_lines() if "rogue_plugin" in line and "pytest" not in line]
        if shutil.which("podman"):
            done = subprocess.run(["podman", "ps", "-aq", "--filter", "name=isched-estimator-"], capture_output=True, text=True, check=True)
            found += done.stdout.split()
        if not found:
            break
        time.sleep(0.2)
    return found


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since the folder was read
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def test_the_next_estimator_answers_with_a_visible_note(rogue: PluginVersion, tmp_path: Path) -> None:
    register = Register(tmp_path)
    register.change("rogue", lambda p: p.with_version(rogue))
    registry = Registry([StartupEstimator()])
    add_plugins(registry, tmp_path)
    answer, notes = registry.answer(asked("honest"))
    assert answer.source.startswith("rogue@1+sha256:")
    answer, notes = registry.answer(asked("wrong unit"))
    assert answer.source == "startup-prior@1"
    assert any("rogue" in note and "expected 's'" in note for note in notes)


@pytest.fixture(scope="module")
def walltime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "walltime"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    build(read_project(folder), way="python")
    return folder


def test_the_walltime_image_conforms_and_agrees_with_the_process(walltime_folder: Path, engine: str, tmp_path: Path) -> None:
    installer = Installer(tmp_path)
    inside = installer.version(Source(str(walltime_folder), "container", engine))
    assert broken(check_plugin(of_version(inside, memo=False))) == []
    request = example("run_time")
    as_process = of_version(installer.version(Source(str(walltime_folder), "process"))).estimate(request)
    as_image = of_version(inside).estimate(request)
    assert figures(as_image) == figures(as_process)
    assert as_image.source.startswith(f"walltime-image@1+{inside.digest[:19]}(")
    assert as_image.source != as_process.source


def figures(answer: Estimate) -> tuple[float, float, float, str]:
    return answer.p10, answer.p50, answer.p90, answer.unit


@pytest.fixture(scope="module")
def two_builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A new project, and the same with another figure, both built."""
    folders = tmp_path_factory.mktemp("first") / "per-batch", tmp_path_factory.mktemp("second") / "per-batch"
    for folder in folders:
        make("per-batch", folder)
    model = folders[1] / "src" / "per_batch" / "model.py"
    model.write_text(model.read_text().replace('{"step_time": 0.01}', '{"step_time": 0.02}'))
    for folder in folders:
        build(read_project(folder), way="python")
    return folders


def test_a_new_project_conforms_and_is_upgraded_in_shadow(two_builds: tuple[Path, Path], engine: str, tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    first = added(register, two_builds[0], engine)
    assert broken(check_plugin(of_version(first, memo=False))) == []
    second = added(register, two_builds[1], engine)
    assert second.digest != first.digest
    request = example("step_time")
    shadowed = estimator_of(register.get("per-batch"), register).estimate(request)
    assert shadowed.source == f"per-batch@1+{first.digest[:19]}"
    entry = json.loads((register.answers / "per-batch.jsonl").read_text())
    assert entry["shadow"]["p50"] == pytest.approx(2 * entry["active"]["p50"])
    promoted = register.change("per-batch", lambda p: p.promoted())
    assert estimator_of(promoted, register).estimate(request).p50 == pytest.approx(2 * shadowed.p50)
    back = register.change("per-batch", lambda p: p.rolled_back())
    assert estimator_of(back, register).estimate(request) == shadowed


def added(register: Register, folder: Path, engine: str) -> PluginVersion:
    version = Installer(register.folder).version(Source(str(folder), "container", engine))
    register.change(version.info.name, lambda p: p.with_version(version))
    return version


def test_an_image_that_is_gone_is_said_in_a_sentence(rogue: PluginVersion) -> None:
    spec = {**rogue.spec, "image": "sha256:" + "0" * 64 if ENGINES[str(rogue.spec["engine"])].keeps_images else "/nowhere"}
    with pytest.raises(EstimatorFailed) as failure:
        of_version(replace(rogue, spec=spec)).estimate(asked("honest"))
    assert "\n" not in str(failure.value)
    assert "Traceback" not in str(failure.value)


@pytest.fixture
def in_podman(rogue_folder: Path, tmp_path: Path) -> PluginVersion:
    if reason := ENGINES["podman"].missing():
        pytest.skip(reason)
    return Installer(tmp_path).version(Source(str(rogue_folder), "container", "podman"))


def test_an_image_is_published_and_added_from_its_reference(in_podman: PluginVersion, tmp_path: Path) -> None:
    with oci_registry() as registry:
        done = publish(in_podman, f"127.0.0.1:{registry.port}/lab/rogue")
        assert done.reference == f"127.0.0.1:{registry.port}/lab/rogue:1"
        manifest = json.loads(registry.manifests["/v2/lab/rogue/manifests/1"])
        assert manifest["config"]["digest"] == in_podman.spec["image"]
        assert {layer["digest"] for layer in manifest["layers"]} <= set(registry.blobs)
    again = Installer(tmp_path).version(Source(done.reference, "container", "podman"))
    assert again.digest == in_podman.spec["image"]
    assert again.info == in_podman.info


def test_who_is_not_logged_in_is_told_to(in_podman: PluginVersion) -> None:
    with oci_registry(closed=True) as registry, pytest.raises(IschedError, match=r"log in first: podman login 127\.0\.0\.1") as failure:
        publish(in_podman, f"127.0.0.1:{registry.port}/lab/rogue:2")
    assert "\n" not in str(failure.value)


def test_an_image_of_podman_also_runs_in_charliecloud(in_podman: PluginVersion, tmp_path: Path) -> None:
    """Exported by its id, unpacked, and started by the image's own entry point."""
    if reason := ENGINES["charliecloud"].missing():
        pytest.skip(reason)
    version = Installer(tmp_path).version(Source(str(in_podman.spec["image"]), "container", "charliecloud"))
    assert version.digest == in_podman.spec["image"]
    assert of_version(version).estimate(asked("honest")).p50 == 2.0


def test_what_was_added_is_discarded_with_its_copies(rogue_folder: Path, engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "rogue"
    shutil.copytree(rogue_folder, folder)
    (folder / "src" / "new.py").write_text("# another digest\n")
    build(read_project(folder), way="python")
    installer = Installer(tmp_path / "data")
    version = installer.version(Source(str(folder), "container", engine))
    assert of_version(version).estimate(asked("honest")).p50 == 2.0
    installer.discard(version)
    if ENGINES[engine].keeps_images:
        subprocess.run([engine, "rmi", f"localhost/isched-estimator/rogue:{version.info.version}"], capture_output=True, check=True)
    with pytest.raises(EstimatorFailed):
        of_version(version).estimate(asked("honest"))
