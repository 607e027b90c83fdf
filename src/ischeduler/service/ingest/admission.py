"""Who may speak for a run on a channel that many may write to: whoever shows a token of that run's jobs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ischeduler.service.auth.principal import NotSignedIn
from ischeduler.service.auth.tokens import Tokens


class JobTokens:
    """Looks a token up once in ``trust_s`` seconds: a withdrawn one may speak that much longer, an expired one no longer than that.

    Raises StoreUnavailable: a database that is away refuses nobody.
    """

    def __init__(
        self, tokens: Tokens, *, trust_s: float = 300.0, kept: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens, self._trust_s, self._kept, self._clock = tokens, trust_s, kept, clock
        self._known: OrderedDict[tuple[str, bytes], tuple[bool, float]] = OrderedDict()

    def __call__(self, run: str, secret: bytes | None) -> bool:
        """Whether the secret is a token of that run's jobs."""
        if secret is None or len(secret) > 200:
            return False
        key = (run, secret)
        known = self._known.get(key)
        if known is not None and known[1] > self._clock():
            return known[0]
        allowed = self._look_up(run, secret)
        self._known[key] = (allowed, self._clock() + self._trust_s)
        self._known.move_to_end(key)
        if len(self._known) > self._kept:
            self._known.popitem(last=False)
        return allowed

    def _look_up(self, run: str, secret: bytes) -> bool:
        try:
            row = self._tokens.recognise(secret.decode("ascii", "replace"))
        except NotSignedIn:
            return False
        return row.run_id == run and "events" in row.scopes
