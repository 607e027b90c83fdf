"""Errors a person may meet. Each carries one sentence (what was wrong, what was expected, what to do) and an exit code.

Exit codes of the command line: 0 done, 1 the thing asked about is bad, 2 it could not be asked, 130 interrupted.
"""

from __future__ import annotations


class IschedError(Exception):
    """Base of every error that is shown to a person as one sentence, never as a traceback."""

    exit_code = 2


class BadInput(IschedError):
    """The request itself is wrong: an unknown option value, a malformed file, a model that cannot be read."""

    exit_code = 2


class NotFound(IschedError):
    """The named run, plan, cluster or estimator does not exist."""

    exit_code = 2


class NoFeasiblePlan(IschedError):
    """Every option was refused; the blockers say why."""

    exit_code = 1


class RunFailed(IschedError):
    """A run ended without finishing its training."""

    exit_code = 1


class BatchUnavailable(IschedError):
    """The batch system did not answer. This says nothing about any job: a failed query is not a failed job."""


class ServiceUnavailable(IschedError):
    """The service did not answer. This says nothing about any run: its plane goes on."""


class SubmitRefused(IschedError):
    """The batch system answered and refused the job. ``kind`` is 'site_limit' when waiting may help, else 'invalid'."""

    exit_code = 1

    def __init__(self, message: str, *, kind: str = "invalid") -> None:
        super().__init__(message)
        self.kind = kind


class AmendRefused(IschedError):
    """A waiting job was not changed: it runs or is gone, the change is not allowed, or the batch system knows no such thing."""

    exit_code = 1


class SubmitUncertain(BatchUnavailable):
    """The submission may or may not have been accepted; look the key up before trying again."""


class StoreConflict(IschedError):
    """Another writer changed the row first; read it again."""


class EstimatorFailed(IschedError):
    """An estimator could not answer; the next one in the order of trust is asked."""


class ConfigError(BadInput):
    """A configuration file or variable has a wrong key or value."""


class StoreUnavailable(IschedError):
    """The database did not answer: locked for too long, disk full, unreachable, damaged. Nothing was written."""
