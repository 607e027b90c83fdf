"""Claims on directories, ports, processes and users: what is not ours is left alone."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import NotFound
from ischeduler.sandbox import accounting, host, interpreter, processes, users
from ischeduler.sandbox.errors import SandboxError, SandboxUnavailable
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.marker import Marker, claim_refusal, read_marker, sandboxes_in, write_marker
from ischeduler.sandbox.sandbox import Sandbox
from ischeduler.sandbox.shape import demo_spec
from ischeduler.sandbox.spec import SandboxAccount, SandboxQos


def test_a_marker_survives_its_file(tmp_path: Path) -> None:
    marker = Marker("box", demo_spec(), Ports(1, 2, 3, {"d01": 4}), 5.5)
    write_marker(Layout(tmp_path / "box"), marker)
    assert read_marker(Layout(tmp_path / "box")) == marker
    (tmp_path / "empty").mkdir()
    assert sandboxes_in(tmp_path) == [marker]
    assert claim_refusal(Layout(tmp_path / "box")) == ""


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    assert claim_refusal(Layout(tmp_path / "none")) == ""
    (tmp_path / "empty").mkdir()
    assert claim_refusal(Layout(tmp_path / "empty")) == ""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "slurm.conf").touch()
    assert "was not made by a sandbox" in claim_refusal(Layout(tmp_path / "full"))
    with pytest.raises(SandboxError, match="was not made by a sandbox"):
        Sandbox(demo_spec(), "full", base=tmp_path).down()
    for broken in ("{", "[]", "{}", '{"kind": "other"}', '{"kind": "ischeduler-sandbox"}'):
        (tmp_path / "full" / "sandbox.json").write_text(broken)
        with pytest.raises(SandboxError, match="not a marker of ours"):
            read_marker(Layout(tmp_path / "full"))


def test_what_is_not_there_is_said_with_the_command_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="isched sandbox up"):
        Sandbox.open("box", base=tmp_path)
    with pytest.raises(NotFound, match="isched sandbox up"):
        Sandbox(demo_spec(), "box", base=tmp_path).status()
    Sandbox(demo_spec(), "box", base=tmp_path).down()
    assert list(tmp_path.iterdir()) == []


def test_without_root_or_programs_it_is_said_before_anything_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = Sandbox(demo_spec(), "box", base=tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxUnavailable, match="needs root"):
        sandbox.up()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host, "find_program", lambda name: None if name == "slurmrestd" else f"/bin/{name}")
    with pytest.raises(SandboxUnavailable, match="misses slurmrestd; install them with scripts/install-slurm"):
        sandbox.up()
    assert list(tmp_path.iterdir()) == []


def test_ports_are_free_distinct_and_not_a_neighbours() -> None:
    first = host.choose_ports(["a", "b"], taken=frozenset(), seed="/srv/one")
    second = host.choose_ports(["a", "b"], taken=frozenset(first.all()), seed="/srv/one")
    assert len({*first.all(), *second.all()}) == 10
    assert all(20000 <= p < 32000 for p in second.all())
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", second.slurmctld))
        busy.listen()
        assert host.listens(second.slurmctld)
        third = host.choose_ports(["a", "b"], taken=frozenset(first.all()), seed="/srv/one")
        assert second.slurmctld not in third.all()


def test_a_closed_directory_on_the_way_is_found(tmp_path: Path) -> None:
    base = Path("/var/tmp") / f"ischeduler-unit-{os.getpid()}"
    (base / "open" / "inner").mkdir(parents=True)
    try:
        assert host.closed_ancestor(base / "open" / "inner") is None
        (base / "open").chmod(0o700)
        assert host.closed_ancestor(base / "open" / "inner") == base / "open"
        assert host.closed_ancestor(base / "open" / "absent") == base / "open"
        with pytest.raises(SandboxError, match="ordinary users cannot enter"):
            host.require_reachable(base / "open" / "absent")
    finally:
        (base / "open" / "inner").rmdir()
        (base / "open").rmdir()
        base.rmdir()


def test_a_process_is_known_by_its_start_and_not_its_pid(tmp_path: Path) -> None:
    process = processes.launch(["sleep", "60"], log=tmp_path / "log", env={"PATH": "/usr/bin:/bin"})
    file = tmp_path / "one.json"
    processes.save(file, process)
    assert processes.load(file) == process
    assert processes.is_alive(process)
    assert os.getsid(process.pid) == process.pid, "in its own session"
    assert os.readlink(f"/proc/{process.pid}/fd/1") == str(tmp_path / "log")
    for impostor in (replace(process, start_ticks=process.start_ticks - 1), replace(process, boot_id="earlier")):
        assert not processes.is_alive(impostor)
        assert not processes.send_signal(impostor, signal.SIGKILL)
    assert processes.is_alive(process)
    processes.stop([process], grace_s=5)
    assert not processes.is_alive(process)
    assert not processes.send_signal(process, signal.SIGTERM)


def test_what_ignores_sigterm_is_killed_and_a_zombie_is_dead(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    process = processes.launch([sys.executable, "-c", code], log=tmp_path / "log", env={})
    assert processes.wait_until(lambda: (tmp_path / "log").read_text() == "deaf\n", timeout_s=10)
    started = time.monotonic()
    processes.stop([process], grace_s=0.3)
    assert time.monotonic() - started < 5
    assert not processes.is_alive(process)

    zombie = subprocess.Popen(["true"])
    assert processes.wait_until(
        lambda: zombie.pid not in {p.pid for p in processes.owned_by(frozenset({os.getuid()}))}, timeout_s=5
    )
    zombie.wait()


def test_a_torn_process_file_is_no_process(tmp_path: Path) -> None:
    for text in ("", "{", '{"pid": 1}'):
        (tmp_path / "p.json").write_text(text)
        assert processes.load(tmp_path / "p.json") is None
    assert processes.load(tmp_path / "absent.json") is None


def test_only_own_users_are_removed() -> None:
    root = pwd.getpwuid(0)
    with pytest.raises(SandboxError, match="root is not a sandbox user"):
        users.remove(root)
    assert users.belonging_to(Path("/home")) == []
    assert users.system_name("alice", "demo") == "isb-alice-demo"
    assert len(users.system_name("a" * 10, "b" * 16)) <= 32, "the longest name Linux takes"


def test_accounting_is_told_in_an_order_it_accepts() -> None:
    spec = replace(
        demo_spec(),
        users=("alice", "bob"),
        accounts=(SandboxAccount("a"), SandboxAccount("b", ("bob",))),
        qos=(SandboxQos("high", 9, ("low",), "REQUEUE"), SandboxQos("low", max_wall_min=5, max_jobs_per_user=1)),
    )
    told = [" ".join(c) for c in accounting.setup_commands(spec, "box")]
    assert told == [
        "add cluster demo",
        "add qos high Priority=9 PreemptMode=REQUEUE",
        "add qos low MaxWall=5 MaxJobsPerUser=1",
        "modify qos where name=high set Preempt=low",
        "add account a Description=sandbox Organization=sandbox",
        "add user isb-alice-box,isb-bob-box account=a",
        "add account b Description=sandbox Organization=sandbox",
        "add user isb-bob-box account=b",
        "add user root account=a",
        "modify account where name=a,b set qos=normal,high,low",
    ]


def test_an_interpreter_of_its_own_works_where_the_hosts_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path is taken for closed, so that standard library, packages and project are all rebuilt (as hard links)."""
    package = tmp_path / "packages"
    (package / "little").mkdir(parents=True)
    (package / "little" / "__init__.py").write_text("value = 42\n")
    (package / "little" / "__init__.py").chmod(stat.S_IRUSR)
    monkeypatch.setattr(interpreter, "_package_paths", lambda: [package])
    monkeypatch.setattr(interpreter, "_open_to_all", lambda paths: False)
    python = interpreter.ready(tmp_path / "python")
    code = "import sys, ssl, json, ctypes, little; print(sys.prefix, sys.executable, little.__file__, little.value)"
    child = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', sys.argv[1]], text=True))"
    done = subprocess.run([python, "-c", child, code], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=True)
    prefix, executable, file, value = done.stdout.split()
    assert prefix == str(tmp_path / "python")
    assert executable == str(python)
    assert file == str(tmp_path / "python" / "paths" / "0" / "little" / "__init__.py")
    assert value == "42"
    assert Path(file).stat().st_mode & stat.S_IROTH
    assert interpreter.ready(tmp_path / "python") == python
