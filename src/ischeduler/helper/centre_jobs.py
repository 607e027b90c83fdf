"""What a centre gives each of its jobs beside the job's own variables: where to send events, and a token for that run alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ischeduler.core.run import Run

if TYPE_CHECKING:
    from ischeduler.helper.config import Config
    from ischeduler.service.auth.tokens import Tokens
    from ischeduler.wiring import Services

SPARE_S, LEAST_S, MOST_S = 3600.0, 2 * 86400.0, 30 * 86400.0
"""A job's token outlives the job's limit, after a wait four times the longest thought likely, by an hour; two days at least."""


class JobVariables:
    """Called for every job that is submitted; each attempt has a token of its own, which lives a little longer than the job may."""

    def __init__(self, tokens: Tokens, url: str) -> None:
        self._tokens, self._url = tokens, url

    def __call__(self, run: Run) -> Mapping[str, str]:
        """The variables of the run's next job."""
        longest_s = max((s.walltime_s + 4 * s.wait.p90 for s in run.plan.segments), default=0.0)
        lives_s = min(MOST_S, max(LEAST_S, longest_s + SPARE_S))
        token, _ = self._tokens.make_for_job(run.owner, run.id, lives_s)
        return {"ISCHED_PUSH_URL": f"{self._url}/v1/runs/{run.id}/events", "ISCHED_PUSH_TOKEN": token}


def job_variables(services: Services, config: Config) -> JobVariables | None:
    """None where the service has no key yet: then there is no service that jobs could send to."""
    from ischeduler.helper.serving import key_path, public_url
    from ischeduler.service.auth.secrets import Derived, read_key
    from ischeduler.service.auth.tokens import Tokens
    from ischeduler.store.credentials import Credentials

    path = key_path(config)
    if not path.exists():
        return None
    credentials = Credentials(services.engine, clock=services.clock.now)
    return JobVariables(Tokens(credentials, Derived(read_key(path)), services.clock), public_url(config))
