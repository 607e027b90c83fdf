"""Where else it would go: the nearest place that satisfies what is missing, for the fix of a blocker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ischeduler.planning.candidates import Candidate, CandidateKey


class Offers:
    """Places that passed the checks made so far, asked for the nearest one that would do.

    Nearest means: the same cluster first, then the same kind of node (GPU or CPU), then the smallest sufficient ``size``.
    """

    def __init__(self, places: Iterable[Candidate] = ()) -> None:
        self._here: dict[tuple[int, str], list[Candidate]] = defaultdict(list)
        self._all: dict[int, list[Candidate]] = defaultdict(list)
        for place in places:
            self._here[place.workload.batch, place.cluster.name].append(place)
            self._all[place.workload.batch].append(place)

    def nearest(
        self, candidate: Candidate, would_do: Callable[[Candidate], bool], size: Callable[[Candidate], float] | None = None,
    ) -> Candidate | None:
        """The nearest other place for which ``would_do`` holds, or None."""

        def rank(place: Candidate) -> tuple[bool, float, CandidateKey]:
            return bool(place.gpus) != bool(candidate.gpus), size(place) if size else 0.0, place.key

        batch = candidate.workload.batch
        for places in (self._here.get((batch, candidate.cluster.name), ()), self._all.get(batch, ())):
            fitting = [p for p in places if p.key != candidate.key and would_do(p)]
            if fitting:
                return min(fitting, key=rank)
        return None

    def name(
        self, candidate: Candidate, would_do: Callable[[Candidate], bool], size: Callable[[Candidate], float] | None = None,
    ) -> str:
        """``pitzer/gpu`` of the nearest place, or '' where there is none."""
        found = self.nearest(candidate, would_do, size)
        return found.where if found else ""
