"""Container engines of a site: how each is asked to run an image that may read nothing, reach nothing and keep nothing.

podman and docker keep images by id; apptainer and charliecloud run an unpacked root file system. Flags: the manual pages
podman-run(1), docker-run(1), apptainer-exec(1), ch-run(1), unshare(1).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from ischeduler.core.errors import NotFound
from ischeduler.estimators.runtimes.limits import Limits
from ischeduler.estimators.runtimes.words import last_line

NOBODY = 65534
SCRATCH_BYTES = 16 * 2**20
"""Of ``/tmp`` inside, in memory, gone afterwards."""
PATH_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ASK_TIMEOUT_S = 20.0
_FILES = 256
_PROCESSES = 128


@dataclass(frozen=True, slots=True)
class Image:
    """What runs: an image id (podman, docker) or a root file system's folder (apptainer, charliecloud), and its command.

    An empty command means the image's own entry point, which a folder does not have.
    """

    reference: str
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


class Engine(Protocol):
    """One kind of container engine."""

    @property
    def name(self) -> str:
        """Its name in ``--engine``."""
        ...

    @property
    def keeps_images(self) -> bool:
        """Whether it has a store of images by id; else it runs folders."""
        ...

    def missing(self) -> str:
        """Why it cannot be used here, a sentence; '' when it can."""
        ...

    def argv(self, image: Image, limits: Limits, name: str) -> list[str]:
        """The command that runs the image once, JSON on stdin and stdout."""
        ...

    def stopping(self, name: str) -> list[list[str]]:
        """The commands that end it for good after a time-out; none where ending the process group does."""
        ...

    def user(self) -> int | None:
        """The user the command must be started as, None for the present one."""
        ...


@dataclass(frozen=True)
class Oci:
    """podman or docker."""

    name: str
    keeps_images: bool = True

    def missing(self) -> str:
        """podman needs no daemon; docker's must answer."""
        if shutil.which(self.name) is None:
            return f"{self.name} is not installed."
        facts = host_facts(self.name)
        return "" if facts else f"{self.name} is installed but does not work here: {why_not(self.name)}."

    def user(self) -> int | None:
        """The present one."""
        return None

    def stopping(self, name: str) -> list[list[str]]:
        """The container outlives its client. Killed first: podman's rm would grant it ten seconds."""
        return [[self.name, "kill", "--signal", "KILL", name], [self.name, "rm", "--force", name]]

    def argv(self, image: Image, limits: Limits, name: str) -> list[str]:
        """No network, read-only root, nobody inside, no capability, no new privilege, nothing of the host mounted."""
        data = limits.memory_bytes
        argv = [
            self.name, *(self._runtime() if self.name == "podman" else ()), "run", "--rm", "--interactive", "--name", name,
            "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--user", self._inside(), "--hostname", "plugin", "--workdir", "/", "--log-driver", "none",
            "--tmpfs", f"/tmp:rw,nosuid,nodev,noexec,size={SCRATCH_BYTES},mode=1777",
            "--ulimit", f"nofile={_FILES}:{_FILES}", "--ulimit", f"nproc={_PROCESSES}:{_PROCESSES}",
            "--ulimit", f"data={data}:{data}", "--ulimit", "core=0:0", *self._cgroup(limits), *self._own(limits),
        ]
        for key, value in image.environment:
            argv += ["--env", f"{key}={value}"]
        if image.command:
            return [*argv, "--entrypoint", image.command[0], image.reference, *image.command[1:]]
        return [*argv, image.reference]

    def _inside(self) -> str:
        """Nobody; where a user has no range of further ids (subuid(5)), root of a name space in which root is that user alone."""
        return f"{NOBODY}:{NOBODY}" if host_facts(self.name).get("ids", NOBODY + 1) > NOBODY else "0:0"

    def _own(self, limits: Limits) -> Sequence[str]:
        if self.name == "podman":  # ends by itself even when nobody is left to end it
            return ("--http-proxy=false", "--image-volume", "ignore", "--read-only-tmpfs=false", "--timeout", str(int(limits.seconds) + 5))
        return tuple(word for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY") for word in ("--env", f"{proxy}="))

    def _runtime(self) -> Sequence[str]:
        """crun does not start on the older control groups (v1, hybrid); runc does."""
        facts = host_facts("podman")
        if facts.get("runtime") == "crun" and facts.get("cgroups") == "v1" and shutil.which("runc"):
            return ("--runtime", "runc")
        return ()

    def _cgroup(self, limits: Limits) -> Sequence[str]:
        """Control groups v1 belong to root: without them the limit on each process's data must do."""
        facts = host_facts(self.name)
        if facts.get("rootless") and facts.get("cgroups") == "v1":
            return ()
        size = str(limits.memory_bytes)
        return ("--memory", size, "--memory-swap", size, "--pids-limit", str(_PROCESSES))


@dataclass(frozen=True)
class Apptainer:
    """apptainer (or singularity) on a folder."""

    name: str = "apptainer"
    keeps_images: bool = False

    def missing(self) -> str:
        """It must be installed."""
        return "" if shutil.which(self.name) else f"{self.name} is not installed."

    def user(self) -> int | None:
        """The present one: apptainer maps it to itself inside."""
        return None

    def stopping(self, name: str) -> list[list[str]]:
        """Ending its process group ends the container."""
        return []

    def argv(self, image: Image, limits: Limits, name: str) -> list[str]:
        """Everything contained: own PID, IPC and empty network namespaces, no home, no host folders, no variables."""
        argv = [
            *_ulimits(limits), self.name, "--quiet", "exec", "--containall", "--no-home", "--no-mount", "hostfs,bind-paths,cwd",
            "--cleanenv", "--net", "--network", "none", "--no-privs", "--pwd", "/",
        ]
        for key, value in image.environment:
            argv += ["--env", f"{key}={value}"]
        return [*argv, image.reference, *image.command]


_MASKS = """set -e
mount -t tmpfs -o size=16m,mode=755 none "$0"
mkdir -m 1777 "$0/tmp"
mkdir "$0/dev" "$0/sys"
for device in null zero full random urandom; do
    : > "$0/dev/$device"
    mount --bind "/dev/$device" "$0/dev/$device"
done
exec "$@"
"""
"""Run inside the new namespaces: an empty /tmp, five harmless devices, no /sys. ``$0`` is a folder that every system has."""
_MASK_FOLDER = "/mnt"


@dataclass(frozen=True)
class Charliecloud:
    """charliecloud on a folder, inside user, network, PID, IPC and mount namespaces of our own.

    ``ch-run`` by itself shares the host's network, processes, /dev, /sys and /tmp; ``unshare`` (util-linux) takes them away.
    """

    name: str = "charliecloud"
    keeps_images: bool = False

    def missing(self) -> str:
        """``ch-run``, ``unshare`` and user namespaces must be there."""
        for program in ("ch-run", "unshare", "prlimit", "mount"):
            if shutil.which(program) is None:
                return f"{self.name} is not usable here: {program} is not installed."
        return _namespaces(self.user())

    def user(self) -> int | None:
        """Never root: root in a user namespace still owns root's files. Its plug-ins run as nobody."""
        return NOBODY if os.geteuid() == 0 else None

    def stopping(self, name: str) -> list[list[str]]:
        """Ending ``unshare`` ends its PID namespace."""
        return []

    def argv(self, image: Image, limits: Limits, name: str) -> list[str]:
        """The chain: limits, namespaces, masks, ch-run."""
        argv = [
            *_ulimits(limits), *_UNSHARE, "sh", "-c", _MASKS, _MASK_FOLDER, "prlimit", f"--nproc={_process_limit()}", "--",
            "ch-run", "--no-passwd", "--unset-env=*", f"--set-env=PATH={PATH_INSIDE}", f"--uid={NOBODY}", f"--gid={NOBODY}", "--env-no-expand",
            f"--bind={_MASK_FOLDER}/tmp:/tmp", f"--bind={_MASK_FOLDER}/dev:/dev", f"--bind={_MASK_FOLDER}/sys:/sys", "--cd=/",
        ]
        argv += [f"--set-env={key}={value}" for key, value in image.environment]
        return [*argv, image.reference, "--", *image.command]


_UNSHARE = (
    "unshare", "--user", "--map-root-user", "--net", "--pid", "--ipc", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc",
)
ENGINES: Mapping[str, Engine] = {
    e.name: e for e in (Oci("podman"), Oci("docker"), Apptainer(), Charliecloud())
}
"""In the order in which a site's are tried."""


def engine(name: str = "auto") -> Engine:
    """The named engine, or the first that works here. NotFound, with every reason, when none does."""
    if name != "auto" and name not in ENGINES:
        raise NotFound(f"There is no container engine '{name}'; expected auto, {', '.join(ENGINES)}.")
    tried = [ENGINES[name]] if name != "auto" else list(ENGINES.values())
    reasons: list[str] = []
    for candidate in tried:
        reason = candidate.missing()
        if not reason:
            return candidate
        reasons.append(reason)
    raise NotFound(f"No container engine can be used: {' '.join(reasons)} Install podman or charliecloud, or add it as a process.")


@cache
def host_facts(program: str) -> Mapping[str, Any]:
    """podman's or docker's own facts about this host. Empty when it does not work.

    ``runtime``, ``cgroups`` ('v1' or 'v2'), ``rootless``, ``ids`` (how many user ids there are inside; absent means all).
    """
    try:
        done = _ask([program, "info", "--format", "{{json .}}"])
        data = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    if program == "podman":
        host = data.get("host", {})
        ranges = (host.get("idMappings") or {}).get("uidmap") or ()
        ids = {"ids": max(int(r["container_id"]) + int(r["size"]) for r in ranges)} if ranges else {}
        return {} if not host else {
            "runtime": host.get("ociRuntime", {}).get("name", ""), "cgroups": host.get("cgroupVersion", ""),
            "rootless": bool(host.get("security", {}).get("rootless")), **ids,
        }
    if not data.get("ServerVersion"):
        return {}
    rootless = any("rootless" in str(option) for option in data.get("SecurityOptions") or ())
    return {"runtime": data.get("DefaultRuntime", ""), "cgroups": f"v{data.get('CgroupVersion', '2')}", "rootless": rootless}


def why_not(program: str) -> str:
    """podman's or docker's own words why it does not work."""
    try:
        done = _ask([program, "info"])
    except (OSError, subprocess.SubprocessError) as error:
        return last_line(str(error))
    return last_line(done.stderr or done.stdout) or "it gave no reason"


def _ask(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL, errors="replace"
    )


@cache
def _namespaces(user: int | None) -> str:
    extra = None if user is None else ()
    try:
        done = subprocess.run(
            [*_UNSHARE, "true"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, user=user, group=user,
            extra_groups=extra, cwd="/", stdin=subprocess.DEVNULL, errors="replace",
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"charliecloud is not usable here: {last_line(str(error))}."
    if done.returncode == 0:
        return ""
    return f"charliecloud is not usable here: user and network namespaces are not allowed ({last_line(done.stderr)})."


def _process_limit() -> int:
    """RLIMIT_NPROC inside a new user namespace. Since Linux 5.14 only its own processes count, before that all of the user's."""
    release = tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2])
    return _PROCESSES if release >= (5, 14) else _PROCESSES + _threads_of(os.geteuid())


def _threads_of(user: int) -> int:
    count = 0
    for folder in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if folder.name.isdigit() and folder.stat().st_uid == user:
                count += len(os.listdir(f"{folder.path}/task"))
    return count


def _ulimits(limits: Limits) -> list[str]:
    return [
        "prlimit", f"--data={limits.memory_bytes}", f"--fsize={SCRATCH_BYTES}", f"--nofile={_FILES}", "--core=0", "--",
    ]
