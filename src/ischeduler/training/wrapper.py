"""`isched exec -- COMMAND...`: run a training under the in-job protocol (docs/in-job-protocol.md).

Also `python -m ischeduler.training.wrapper`. Whatever goes wrong with the run's directory, the training runs; only a
newer attempt (exit 86), a doubled submission (exit 87) or a start before its time (exit 88) keeps it from starting.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from ischeduler.training.deadline import job_deadline
from ischeduler.training.files import say
from ischeduler.training.handover import gives_back, relieve
from ischeduler.training.identity import Identity, child_environ, identify
from ischeduler.training.incarnation import EXIT_SUPERSEDED
from ischeduler.training.push import pusher_from_environ
from ischeduler.training.rundir import Claim, DoubledSubmission
from ischeduler.training.service import Settings, settings_from_environ
from ischeduler.training.service_supervisor import ServiceSupervisor
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.supervisor import FORWARDED, Supervisor
from ischeduler.training.ticker import Ticker, ticker_from_environ
from ischeduler.training.token import Token, raise_fence, read_fence

EXIT_DOUBLED = 87
EXIT_RETURNED = 88
_LAST_PUSH_S = 5.0


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run the command line after `--` and return the exit code; see the protocol for the codes' meaning."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until the supervisor has its handlers
    try:
        return _main(argv, environ)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _main(argv: Sequence[str] | None, environ: Mapping[str, str] | None) -> int:
    env = dict(os.environ if environ is None else environ)
    identity = identify(sys.argv[1:] if argv is None else argv, env)
    fence = _fence(identity)
    if fence is not None and fence > identity.token:
        say(f"attempt {identity.token} is superseded by {fence}: not started")
        return EXIT_SUPERSEDED
    service = settings_from_environ(env)
    if service is None and gives_back(identity.run_dir, identity.token, env, leads=identity.leads):
        return EXIT_RETURNED
    if not identity.leads:
        deadline = job_deadline(env, time.time())
        return _supervisor(identity, None, None, service, deadline).run(child_environ(identity, env, deadline))
    if service is None:
        relieve(identity.run_dir, identity.token, env)
    try:
        identity = _take(identity, fence=service is None)
    except DoubledSubmission as error:
        say(str(error))
        return EXIT_DOUBLED
    return _lead(identity, env, service)


def _supervisor(
    identity: Identity, spool: SpoolWriter | None, ticker: Ticker | None, service: Settings | None, deadline: float | None
) -> Supervisor:
    if service is None:
        return Supervisor(identity, spool, ticker)
    return ServiceSupervisor(identity, spool, service, deadline, ticker)


def _lead(identity: Identity, env: Mapping[str, str], service: Settings | None) -> int:
    deadline = job_deadline(env, time.time())
    spool = SpoolWriter(identity.run_dir.spool(identity.token), identity.run_id, identity.token)
    host, restart = os.uname().nodename, identity.token.restart
    spool.emit("started", job_id=identity.job_id, host=host, pid=os.getpid(), restart=restart, deadline=deadline)
    pusher = pusher_from_environ(env, identity.run_dir.path, identity.run_id, identity.token, identity.heartbeat_s)
    if pusher is not None:
        pusher.start()
    ticker = ticker_from_environ(env)
    try:
        ends = deadline if ticker is None else ticker.training_ends(deadline, time.time())
        code = _supervisor(identity, spool, ticker, service, ends).run(child_environ(identity, env, ends))
    finally:
        if pusher is not None:
            pusher.finish(_LAST_PUSH_S)
    if ticker is not None:
        ticker.last_look(deadline)
    return code


def _fence(identity: Identity) -> Token | None:
    try:
        return read_fence(identity.run_dir.path)
    except OSError:
        return None


def _take(identity: Identity, *, fence: bool) -> Identity:
    """Claim the incarnation and, with ``fence``, raise it. Raises DoubledSubmission; an unwritable directory is only said.

    A service raises the fence when it is ready: until then its predecessor serves.
    """
    run_dir = identity.run_dir
    try:
        run_dir.prepare(identity.token)
        while True:
            try:
                run_dir.claim(identity.token, Claim.mine(identity.job_id))
                break
            except DoubledSubmission:
                if not identity.free_attempt:
                    raise
                identity = replace(identity, token=Token(identity.token.attempt + 1, identity.token.restart))
        if fence:
            raise_fence(run_dir.path, identity.token)
        run_dir.clear_stopped(identity.token)
    except OSError as error:
        say(f"the run's directory cannot be written ({error.strerror}: {error.filename}); training goes on without its records")
    return identity


def leave(code: int) -> NoReturn:
    """End the process with that very code: on a full disk the interpreter's own last flush would turn it into 120."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
