"""Who may speak for a run on a channel that many may write to: whoever shows a token of that run's jobs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection

from ischeduler.service.auth.tokens import Tokens
from ischeduler.service.ingest.kafka_batches import Shown

SECRET_MAX = 200


class JobTokens:
    """Looks a token up once in ``trust_s`` seconds: a withdrawn or expired one may speak that much longer.

    Raises StoreUnavailable: a database that is away refuses nobody.
    """

    def __init__(
        self, tokens: Tokens, *, trust_s: float = 300.0, kept: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens, self._trust_s, self._kept, self._clock = tokens, trust_s, kept, clock
        self._known: OrderedDict[Shown, tuple[bool, float]] = OrderedDict()

    def __call__(self, shown: Collection[Shown]) -> Collection[Shown]:
        """Those that are tokens of their run's jobs."""
        now, known = self._clock(), self._known
        unknown = [one for one in shown if one not in known or known[one][1] <= now]
        answers = self._look_up(unknown) if unknown else {}
        for one, allowed in answers.items():
            known[one] = (allowed, now + self._trust_s)
            known.move_to_end(one)
        admitted = {one for one in shown if known[one][0]}
        while len(known) > self._kept:
            known.popitem(last=False)
        return admitted

    def _look_up(self, shown: Collection[Shown]) -> dict[Shown, bool]:
        texts = {one: one[1].decode("ascii", "replace") for one in shown if one[1] is not None and len(one[1]) <= SECRET_MAX}
        rows = self._tokens.recognise_all(set(texts.values()))
        found = dict.fromkeys(shown, False)
        for one, text in texts.items():
            row = rows.get(text)
            found[one] = row is not None and row.run_id == one[0] and "events" in row.scopes
        return found
