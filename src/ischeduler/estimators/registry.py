"""Which estimators there are, and who is asked first.

The order of trust: given by the user > this user's own similar finished runs > a short profile on the node type > a trace >
live data > an analytic formula. An estimator that fails is passed over with a note; one without evidence silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from ischeduler.core.errors import BadInput, EstimatorFailed, NotFound
from ischeduler.core.estimate import BASES, Estimate
from ischeduler.estimators.contract import check_answer, check_request
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.ports import EstimateRequest, Estimator

GROUP = "ischeduler.estimators"


class Registry:
    """Estimators in the order of trust. ``problems`` are plug-ins that could not be loaded, a sentence each."""

    def __init__(self, estimators: Iterable[Estimator] = (), problems: Sequence[str] = ()) -> None:
        self._all: list[Estimator] = []
        self.problems = tuple(problems)
        for estimator in estimators:
            self.add(estimator)

    def add(self, estimator: Estimator) -> None:
        """Put one more in its place; of equal trust the one added later is asked first. BadInput when its name is taken."""
        info = estimator.info
        if any(e.info.name == info.name for e in self._all):
            raise BadInput(f"There is an estimator '{info.name}' already; names must be unique.")
        if info.basis not in BASES:
            raise BadInput(f"Estimator '{info.name}' says its basis is '{info.basis}'; expected one of {', '.join(BASES)}.")
        rank = BASES.index(info.basis)
        place = next((i for i, e in enumerate(self._all) if BASES.index(e.info.basis) >= rank), len(self._all))
        self._all.insert(place, estimator)

    def add_problem(self, sentence: str) -> None:
        """Remember why something could not be used; it is said with every plan."""
        self.problems = (*self.problems, sentence)

    def __iter__(self) -> Any:
        return iter(tuple(self._all))

    def get(self, name: str) -> Estimator:
        """The estimator of that name; NotFound when there is none."""
        for estimator in self._all:
            if estimator.info.name == name:
                return estimator
        raise NotFound(f"There is no estimator '{name}'; expected one of {', '.join(e.info.name for e in self._all)}.")

    def for_quantity(self, quantity: str) -> list[Estimator]:
        """Who answers a quantity, most trusted first."""
        return [e for e in self._all if quantity in e.info.quantities]

    def answer(self, request: EstimateRequest) -> tuple[Estimate, tuple[str, ...]]:
        """The most trusted answer and notes on those passed over.

        BadInput when the request is wrong; EstimatorFailed, with every reason, when nobody can answer.
        """
        check_request(request)
        notes: list[str] = []
        silent: list[str] = []
        for estimator in self.for_quantity(request.quantity):
            name = estimator.info.name
            try:
                return check_answer(request.quantity, estimator.estimate(request)), tuple(notes)
            except NoEvidence as reason:
                silent.append(f"{name}: {reason}")
            except EstimatorFailed as reason:
                notes.append(f"{name} could not say {request.quantity}: {reason}")
            except Exception as error:  # a plug-in is other people's code: its crash is a note, not ours
                notes.append(f"{name} failed on {request.quantity}: {type(error).__name__}: {error}")
        raise EstimatorFailed("; ".join(notes or silent) or f"No estimator answers {request.quantity}.")


def plug_ins(taken: Iterable[str] = ()) -> tuple[list[Estimator], list[str]]:
    """Estimators from installed packages (entry points of group ``ischeduler.estimators``), and why some did not load."""
    loaded: list[Estimator] = []
    problems: list[str] = []
    names = set(taken)
    for point in entry_points(group=GROUP):
        try:
            estimator = load(point)
            name = estimator.info.name
        except Exception as error:  # whatever importing other people's code raises
            problems.append(f"Estimator plug-in '{point.name}' did not load: {type(error).__name__}: {error}")
            continue
        if name in names:
            problems.append(f"Estimator plug-in '{point.name}' is left out: there is a '{name}' already.")
            continue
        names.add(name)
        loaded.append(estimator)
    return loaded, problems


def load(point: EntryPoint) -> Estimator:
    """What an entry point names: an estimator, or a class or function without arguments that makes one."""
    thing = point.load()
    if isinstance(thing, type) or not hasattr(thing, "estimate"):
        thing = cast("Callable[[], Estimator]", thing)()
    return cast("Estimator", thing)


def default_registry(builtins: Iterable[Estimator]) -> Registry:
    """The built-in estimators and every installed plug-in."""
    ours = list(builtins)
    others, problems = plug_ins(e.info.name for e in ours)
    return Registry([*ours, *others], problems)
