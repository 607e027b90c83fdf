"""The nearest thing a person may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word closest to ``word``, or None when nothing is near."""
    names = list(dict.fromkeys(known))
    hits = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    if hits:
        return hits[0]
    lowered = {n.lower().replace("-", "_"): n for n in names}
    return lowered.get(word.lower().replace("-", "_"))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'gpu'?``-like ending (without its full stop), or the list of choices when it is short."""
    names = list(dict.fromkeys(known))
    hit = nearest(word, names)
    if hit:
        return f"; the nearest is '{hit}'"
    return f"; expected one of {', '.join(sorted(names))}" if 0 < len(names) <= 12 else ""
