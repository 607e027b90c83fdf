"""What each container engine is asked to keep a plug-in from, and which one a site's is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ischeduler.core.errors import NotFound
from ischeduler.estimators.runtimes import container, engines
from ischeduler.estimators.runtimes.container import ContainerRuntime
from ischeduler.estimators.runtimes.engines import ENGINES, Image, engine, host_facts
from ischeduler.estimators.runtimes.limits import Limits, RuntimeFailed

IMAGE = Image("sha256:" + "a" * 64, ("python3", "-m", "mine"), (("PYTHONPATH", "/plugin"),))
FOLDER = Image("/data/rootfs", ("python3", "-m", "mine"), (("PYTHONPATH", "/plugin"),))
LIMITS = Limits(seconds=7, memory_bytes=2**29)
MODERN = {"runtime": "crun", "cgroups": "v2", "rootless": True}


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What podman and docker would say of this host; to be changed by the test."""
    found: dict[str, object] = dict(MODERN)
    monkeypatch.setattr(engines, "host_facts", lambda program: found)
    return found


def argv(name: str, image: Image = IMAGE) -> list[str]:
    return ENGINES[name].argv(image, LIMITS, "isched-estimator-1")


def has(words: list[str], *wanted: str) -> bool:
    return any(tuple(words[i : i + len(wanted)]) == wanted for i in range(len(words)))


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_podman_and_docker_close_every_door(name: str, facts: dict[str, object]) -> None:
    words = argv(name)
    for wanted in (
        ("--network", "none"), ("--read-only",), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--user", "65534:65534"),
        ("--pull", "never"), ("--memory", str(2**29)), ("--memory-swap", str(2**29)), ("--pids-limit", "128"),
        ("--ulimit", "nofile=256:256"), ("--ulimit", f"data={2**29}:{2**29}"), ("--env", "PYTHONPATH=/plugin"),
        ("--entrypoint", "python3", IMAGE.reference, "-m", "mine"),
    ):
        assert has(words, *wanted), wanted
    assert not any(w.startswith(("--volume", "--mount", "--privileged", "--device")) or w == "-v" for w in words)
    assert has(words, "--http-proxy=false") or has(words, "--env", "https_proxy=")


def test_podman_ends_by_itself_even_when_nobody_ends_it(facts: dict[str, object]) -> None:
    assert has(argv("podman"), "--timeout", "12")
    assert ENGINES["podman"].stopping("x")[0] == ["podman", "kill", "--signal", "KILL", "x"]


def test_old_control_groups_get_runc_and_no_limits_that_need_root(facts: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, **_: f"/usr/bin/{program}")
    assert "--runtime" not in argv("podman")
    facts["cgroups"] = "v1"
    assert argv("podman")[:4] == ["podman", "--runtime", "runc", "run"]
    assert "--memory" not in argv("podman")
    facts["rootless"] = False
    assert "--memory" in argv("podman")


def test_a_user_without_further_ids_is_root_of_a_name_space_of_one(facts: dict[str, object]) -> None:
    facts["ids"] = 1
    assert has(argv("podman"), "--user", "0:0")
    facts["ids"] = 65537
    assert has(argv("podman"), "--user", "65534:65534")


def test_an_image_without_a_command_uses_its_own(facts: dict[str, object]) -> None:
    words = argv("podman", Image(IMAGE.reference))
    assert words[-1] == IMAGE.reference
    assert "--entrypoint" not in words


def test_charliecloud_runs_inside_namespaces_of_our_own() -> None:
    words = argv("charliecloud", FOLDER)
    for flag in ("--user", "--net", "--pid", "--ipc", "--uts", "--mount", "--mount-proc", "--kill-child"):
        assert flag in words[words.index("unshare") : words.index("sh")]
    inside = words[words.index("ch-run") :]
    assert {"--unset-env=*", "--uid=65534", "--bind=/mnt/tmp:/tmp", "--bind=/mnt/dev:/dev", "--bind=/mnt/sys:/sys"} <= set(inside)
    assert inside[-5:] == ["/data/rootfs", "--", "python3", "-m", "mine"]
    assert not {"-w", "--write", "--home"} & set(inside)
    assert words[0] == "prlimit"
    assert f"--data={2**29}" in words


def test_user_text_never_reaches_the_shell() -> None:
    evil = Image("/data/$(touch x)", ("python3", "-c", "`touch y`; $(touch z)"))
    words = argv("charliecloud", evil)
    script = words[words.index("-c") + 1]
    assert script == engines._MASKS
    assert words[-1] == "`touch y`; $(touch z)"


def test_root_never_runs_charliecloud_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ENGINES["charliecloud"].user() == 65534
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ENGINES["charliecloud"].user() is None


def test_apptainer_is_contained() -> None:
    words = argv("apptainer", FOLDER)
    for wanted in (("--containall",), ("--no-home",), ("--cleanenv",), ("--net", "--network", "none"), ("--no-privs",),
                   ("--env", "PYTHONPATH=/plugin"), ("/data/rootfs", "python3", "-m", "mine")):
        assert has(words, *wanted), wanted
    assert "--bind" not in words
    assert "--writable" not in words


def test_the_first_engine_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"podman": "podman is not installed.", "docker": "docker does not answer.", "apptainer": "", "charliecloud": ""}
    for name, reason in missing.items():
        monkeypatch.setattr(type(ENGINES[name]), "missing", lambda self: missing[self.name])
        assert ENGINES[name].missing() == reason
    assert engine().name == "apptainer"
    assert engine("charliecloud").name == "charliecloud"
    with pytest.raises(NotFound, match="docker does not answer"):
        engine("docker")
    missing["apptainer"] = missing["charliecloud"] = "it is not installed."
    with pytest.raises(NotFound, match=r"podman is not installed\. docker.*Install podman or charliecloud"):
        engine()
    with pytest.raises(NotFound, match="no container engine 'lxc'"):
        engine("lxc")


def test_an_engine_that_is_gone_puts_the_plug_in_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> engines.Engine:
        raise NotFound("No container engine can be used.")

    monkeypatch.setattr(container, "engine", gone)
    with pytest.raises(RuntimeFailed, match="No container engine") as failure:
        ContainerRuntime("podman", IMAGE).exchange(b"{}")
    assert failure.value.lasting


def test_a_program_that_does_not_work_has_no_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "podman"
    broken.write_text("#!/bin/sh\necho cannot connect >&2\nexit 125\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host_facts.cache_clear()
    try:
        assert host_facts("podman") == {}
        assert ENGINES["podman"].missing() == "podman is installed but does not work here: cannot connect."
    finally:
        host_facts.cache_clear()


def test_before_linux_5_14_all_of_the_users_threads_count(monkeypatch: pytest.MonkeyPatch) -> None:
    release = os.uname()
    assert engines._process_limit() >= 128
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((release.sysname, release.nodename, "4.18.0-1", release.version, release.machine)))
    assert engines._process_limit() > 128
