"""Runs one command with a message on its stdin, under limits on time, memory and output, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ischeduler.core.errors import BadInput
from ischeduler.estimators.runtimes.limits import Limits, RuntimeFailed
from ischeduler.estimators.runtimes.memory import used_bytes
from ischeduler.estimators.runtimes.words import last_line

_CHUNK = 65536
_ERRORS_KEPT = 16384
_GRACE_S = 0.5
"""How long after its end a command's pipes may stay open (a child of its own may hold them)."""
_POLL_S = 0.1
_LEAVE_S = 5.0
_LOOK_S = 0.25
"""Between two looks at its memory."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: ``stopped`` is 'time', 'memory', 'output' or ''; ``errors`` is the tail of its stderr."""

    code: int
    output: bytes
    errors: str
    stopped: str
    seconds: float


@dataclass(slots=True)
class _Pipes:
    """What has been read and what is still to be written."""

    message: memoryview
    limit: int
    memory: int | None = None
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    full: bool = False


def run_bounded(
    argv: Sequence[str], message: bytes, limits: Limits, *, environment: Mapping[str, str] | None = None,
    directory: str | None = None, user: int | None = None, limit_memory: bool = True, clean_up: Callable[[], object] | None = None,
) -> Ended:
    """Run to its end or to a limit; its whole process group is gone afterwards. OSError when it cannot be started.

    ``limit_memory`` watches it and what it starts, and limits each process's data. ``user`` (as root only) runs it as that user
    and group, without further groups. ``clean_up`` is called before it is ended by force: an engine's client may be in the middle
    of making a container, and must see it go.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory,
        env=None if environment is None else dict(environment), start_new_session=True, close_fds=True,
        user=user, group=user, extra_groups=None if user is None else (),
    )
    try:
        if limit_memory:
            _limit(process.pid, limits)
        pipes = _Pipes(memoryview(message), limits.output_bytes, limits.memory_bytes if limit_memory else None)
        stopped = _carry(process, pipes, started + limits.seconds)
    finally:
        _close(process)
        if clean_up is not None and process.poll() is None:
            _leave_in_order(process, clean_up)
        _end(process)
    text = bytes(pipes.errors[-_ERRORS_KEPT:]).decode(errors="replace")
    return Ended(process.returncode, bytes(pipes.output), text, stopped, time.monotonic() - started)


def ask_command(
    place: str, argv: Sequence[str], message: bytes, limits: Limits, *, clean_up: Callable[[], object] | None = None,
    environment: Mapping[str, str] | None = None, directory: str | None = None, user: int | None = None, limit_memory: bool = True,
) -> bytes:
    """The output of a command that ended well; RuntimeFailed with one sentence for every other end."""
    try:
        ended = run_bounded(
            argv, message, limits, environment=environment, directory=directory, user=user, limit_memory=limit_memory, clean_up=clean_up
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RuntimeFailed(f"it does not start in {place}: {reason} ({argv[0]}).", lasting=True) from None
    return judged(place, ended, limits)


def judged(place: str, ended: Ended, limits: Limits) -> bytes:
    """The output, or RuntimeFailed."""
    if ended.stopped == "time":
        raise RuntimeFailed(f"it did not answer within {limits.seconds:g} s in {place} and was stopped.", lasting=True)
    if ended.stopped == "memory":
        raise RuntimeFailed(f"it used more than {limits.memory_bytes // 2**20} MiB in {place} and was stopped.")
    if ended.stopped == "output":
        raise RuntimeFailed(f"it printed more than {limits.output_bytes} bytes in {place} and was stopped.")
    if ended.code != 0:
        how = _how(ended.code, limits)
        said = last_line(ended.errors)
        raise RuntimeFailed(f"it {how} in {place}{': ' + said if said else ''}.")
    return ended.output


def _how(code: int, limits: Limits) -> str:
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"was killed (it may use {limits.memory_bytes // 2**20} MiB)"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def check_arguments(command: Sequence[str]) -> tuple[str, ...]:
    """The argument list; BadInput when it is none."""
    if not command or any("\0" in a for a in command):
        raise BadInput("A plug-in's command must be an argument list, e.g. -- python3 -m our_estimator.")
    return tuple(command)


def _limit(pid: int, limits: Limits) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or has lower limits already
        resource.prlimit(pid, resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _carry(process: subprocess.Popen[bytes], pipes: _Pipes, deadline: float) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for pipe, events in ((process.stdin, selectors.EVENT_WRITE), (process.stdout, selectors.EVENT_READ),
                             (process.stderr, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, events)
        ended_at: float | None = None
        looked_at = time.monotonic()
        while selector.get_map():
            now = time.monotonic()
            if pipes.memory is not None and now > looked_at + _LOOK_S:
                looked_at = now
                if used_bytes(process.pid, pipes.memory) > pipes.memory:
                    return "memory"
            if process.poll() is not None:
                ended_at = ended_at or now
                if now > ended_at + _GRACE_S:
                    return ""
            if now >= deadline:
                return "time"
            for key, _ in selector.select(min(_POLL_S, deadline - now)):
                _move(key.fileobj, process, pipes, selector)
            if pipes.full:
                return "output"
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "time"
    return ""


def _move(pipe: object, process: subprocess.Popen[bytes], pipes: _Pipes, selector: selectors.BaseSelector) -> None:
    """Move what can be moved on one pipe; forget it when it is done."""
    sink = process.stdin
    if sink is not None and pipe is sink:
        if not _write(sink.fileno(), pipes):
            selector.unregister(sink)
            with contextlib.suppress(BrokenPipeError):
                sink.close()
        return
    source = process.stdout if pipe is process.stdout else process.stderr
    assert source is not None
    data = os.read(source.fileno(), _CHUNK)
    if not data:
        selector.unregister(source)
    elif source is process.stdout:
        pipes.output += data
        pipes.full = len(pipes.output) > pipes.limit
    else:
        pipes.errors += data
        del pipes.errors[: -2 * _ERRORS_KEPT]


def _write(sink: int, pipes: _Pipes) -> bool:
    """Whether there is more to write."""
    try:
        pipes.message = pipes.message[os.write(sink, pipes.message[:_CHUNK]) :]
    except BrokenPipeError:
        return False  # it does not want to read: its answer and exit code say the rest
    return len(pipes.message) > 0


def _leave_in_order(process: subprocess.Popen[bytes], clean_up: Callable[[], object]) -> None:
    clean_up()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
