"""Where else it would go: the nearest place that satisfies what is missing, for the fix of a blocker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ischeduler.planning.candidates import Candidate


class Offers:
    """Places that passed the checks made so far, asked for the nearest one that would do.

    Nearest means: the same cluster first, then the same kind of node (GPU or CPU), then the smallest sufficient ``size``.
    """

    def __init__(self, places: Iterable[Candidate] = ()) -> None:
        self._by_batch: dict[int, list[Candidate]] = defaultdict(list)
        for place in places:
            self._by_batch[place.workload.batch].append(place)

    def nearest(
        self, candidate: Candidate, would_do: Callable[[Candidate], bool], size: Callable[[Candidate], float] | None = None,
    ) -> Candidate | None:
        """The nearest other place for which ``would_do`` holds, or None."""
        best: tuple[tuple[bool, bool, float, tuple[str, str, str, int]], Candidate] | None = None
        for place in self._by_batch[candidate.workload.batch]:
            if place.key == candidate.key or not would_do(place):
                continue
            rank = (
                place.cluster.name != candidate.cluster.name,
                bool(place.gpus) != bool(candidate.gpus),
                size(place) if size else 0.0,
                place.key,
            )
            if best is None or rank < best[0]:
                best = rank, place
        return best[1] if best else None

    def name(
        self, candidate: Candidate, would_do: Callable[[Candidate], bool], size: Callable[[Candidate], float] | None = None,
    ) -> str:
        """``pitzer/gpu`` of the nearest place, or '' where there is none."""
        found = self.nearest(candidate, would_do, size)
        return found.where if found else ""
