"""An elastic job in Sia's simulation: it trains, observes its step times, fits its model and chooses its batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ischeduler.simulator.pools.sia.applications import Application, Placement
from ischeduler.simulator.pools.sia.goodput import Model, best, fit

import numpy as np  # isort: skip

SLOWDOWN = {"cifar10": 1.8, "imagenet": 1.2, "yolov3": 1.2, "bert": 1.2, "deepspeech2": 1.2, "ncf": 1.5}
"""How much longer real runs took than the measured steps say; 1 for others."""
EXPECTED_RESTART_S = {"deepspeech2": 25.0, "imagenet": 250.0, "cifar10": 30.0, "bert": 120.0, "yolov3": 45.0}
"""What Sia's policy takes a restart to cost; 30 s for others."""
MOST_REPLICAS, GROWTH = 64, 2


@dataclass(eq=False)
class Seen:
    """What is known of an application: by type the ``times`` of (nodes, accelerators, local batch) and the ``models`` fitted to them; the
    ``noise`` of its gradient where the first run began. Each job's own, or one for all jobs of the application.
    """

    times: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict[str, Model])
    noise: tuple[float, float] | None = None
    revision: int = 0

    def add(self, kind: str, key: tuple[int, int, int], times: tuple[float, float]) -> None:
        """A step on a type; the model is fitted again where it is the first of that key."""
        seen = self.times.setdefault(kind, {})
        if key not in seen:
            seen[key] = times
            self.models[kind] = fit(seen)
            self.revision += 1


@dataclass(eq=False)
class ElasticJob:
    """``apps``: the application by type; ``target``: the largest batch its user allows; ``noise``: of its gradient, as last observed."""

    name: str
    apps: Mapping[str, Application]
    submitted_s: float
    target: int
    clock: float = 0.0
    epoch: int = 0
    progress: float = 0.0
    completed_s: float | None = None
    type: str | None = None
    placement: Placement = ()
    local: int = 0
    accumulations: int = 0
    noise: tuple[float, float] | None = None
    waiting_s: float = 0.0
    starts: int = 0
    seen: Seen = field(default_factory=Seen)
    changes: int = 0

    @property
    def application(self) -> str:
        """Its name."""
        return next(iter(self.apps.values())).name

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(0, self.starts - 1)

    @property
    def expected_restart_s(self) -> float:
        """Seconds that Sia's policy expects a restart to cost."""
        return EXPECTED_RESTART_S.get(self.application, 30.0)

    @property
    def measured_restart_s(self) -> float:
        """Seconds that a restart does cost."""
        return next(iter(self.apps.values())).restart_s

    @property
    def known_noise(self) -> tuple[float, float] | None:
        """Its own gradient's noise, before it has run that of the application's first run; None where nobody ran."""
        return self.noise if self.noise is not None else self.seen.noise

    @property
    def revision(self) -> int:
        """Another number whenever its goodputs may be others."""
        return self.changes + self.seen.revision

    def most_replicas(self) -> int:
        """Twice what it (or who shares with it) was seen on, on whichever type that allows most."""
        largest = {t: max((accelerators for _, accelerators, _ in self.seen.times.get(t, ())), default=0) for t in self.apps}
        return max(min(max(GROWTH * largest[t], 1), MOST_REPLICAS, app.largest // app.least_local) for t, app in self.apps.items())

    def goodputs(self, kind: str, nodes: np.ndarray, replicas: np.ndarray) -> np.ndarray | None:
        """Goodput on a type it has a model of, None where it has none."""
        app, model, noise = self.apps[kind], self.seen.models.get(kind), self.known_noise
        if model is None or noise is None:
            return None
        return best(model, *noise, app.base, self.target, (app.least_local, app.most_local), nodes, replicas).goodput

    def move(self, kind: str | None, placement: Placement) -> None:
        """Resources change: it restarts where it gets some, and where type or placement are others than before."""
        if not placement:
            self.type, self.placement, self.local = kind, (), 0
            return
        if kind == self.type and placement == self.placement:
            return
        self.type, self.placement = kind, placement
        self.choose_batch()
        self.waiting_s = self.apps[str(kind)].restart_s
        self.starts += 1

    def choose_batch(self) -> None:
        """The local batch and accumulations of the best goodput; before anything is known, the base batch."""
        app = self.apps[str(self.type)]
        nodes, replicas, most = len(self.placement), sum(self.placement), app.most_on(self.placement)
        model, noise = self.seen.models.get(str(self.type)), self.known_noise
        if noise is None or model is None:
            local = math.ceil(max(app.base, app.least_local * replicas) / replicas - 1e-8)
            self.accumulations = math.ceil(local / most - 1e-8) - 1
            if replicas == 1 and max(app.base, app.least_local * replicas) > app.base:
                self.accumulations = max(1, self.accumulations)
            self.local = math.ceil(local / (self.accumulations + 1) - 1e-8)
        else:
            found = best(model, *noise, app.base, app.largest, (app.least_local, most), np.array([nodes]), np.array([replicas]))
            self.local, self.accumulations = int(found.local[0]), int(found.accumulations[0])
        measured = app.most_with(replicas)
        if measured is not None:
            self.local = min(self.local, measured)
        self.local = min(self.local, int(app.largest / (replicas * (self.accumulations + 1))))

    def step(self, seconds: float) -> None:
        """Train for so long (whatever of it is not lost to a restart), epoch by epoch."""
        if self.completed_s is not None:
            return
        if not self.placement:
            self.clock += seconds
            return
        lost = min(self.waiting_s, seconds)
        self.clock += lost
        self.waiting_s -= lost
        seconds -= lost
        while seconds > 0 and self.completed_s is None:
            seconds = self._train(seconds)
            self.choose_batch()
        self.clock += seconds

    def _train(self, seconds: float) -> float:
        """To the end of the epoch or of the time; what time is left. Epochs end on whole seconds, as in Sia's simulation."""
        app = self.apps[str(self.type)]
        batch = sum(self.placement) * self.local * (self.accumulations + 1)
        sqr, var = app.noise(batch, self.epoch)
        gain = (var + sqr) / (var / (batch / app.base) + sqr)
        step_s, sync_s = app.seconds(self.placement, self.local) or (-1.0, -1.0)
        self._observe((len(self.placement), sum(self.placement), self.local), (step_s, sync_s), (sqr, var))
        goodput = gain / (step_s + (step_s - sync_s) * self.accumulations) / SLOWDOWN.get(app.name, 1.0)
        end = app.progress(self.epoch + 1)
        if self.progress + goodput * seconds < end:
            self.progress += goodput * seconds
            self.clock += seconds
            return 0.0
        took = round((end - self.progress) / goodput)
        self.epoch += 1
        self.progress = end
        if self.epoch >= app.epochs:
            self.completed_s = self.clock + took
        self.clock += took
        return seconds - took

    def _observe(self, key: tuple[int, int, int], times: tuple[float, float], noise: tuple[float, float]) -> None:
        if noise != self.noise:
            self.noise = noise
            self.changes += 1
        if self.seen.noise is None:
            self.seen.noise = noise
            self.seen.revision += 1
        self.seen.add(str(self.type), key, times)
