"""The 'given' estimator: numbers the user declares, from a TOML or JSON file or a dict. Nothing is trusted more.

.. code-block:: toml

    [[given]]
    cluster = "pitzer"        # each of these narrows where the numbers hold; leave out what does not matter
    partition = "gpu"
    batch_size = 32
    run = "2h"                # a duration, or seconds
    run_p90 = "2h30m"
    wait = "26h"
    gpu_memory = "24G"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import parse_size
from ischeduler.estimators.contract import QUANTITIES
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.ports import EstimateRequest, EstimatorInfo

WHERE = ("cluster", "partition", "node_type", "model", "batch_size", "precision", "samples", "epochs", "nodes")
NAMES = {"run": "run_time", "wait": "queue_wait", **{name: name for name in QUANTITIES if name != "cost"}}
_SUFFIXES = ("_p10", "_p90")


@dataclass(frozen=True, slots=True)
class Entry:
    """Declared quantiles by quantity, and where they hold."""

    where: Mapping[str, Any]
    values: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    origin: str = "given"

    def holds(self, request: EstimateRequest) -> bool:
        """Whether every condition is met."""
        workload = request.workload
        actual: dict[str, Any] = {
            "cluster": request.cluster.name if request.cluster else None,
            "partition": request.partition.name if request.partition else None,
            "node_type": request.node_type.name if request.node_type else None,
            "model": workload.family, "batch_size": workload.batch, "precision": workload.precision,
            "samples": workload.samples, "epochs": workload.epochs, "nodes": workload.nodes,
        }
        return all(actual[key] == value for key, value in self.where.items())


class GivenEstimator:
    """Answers what was declared; of several entries that hold the narrowest, then the last."""

    info = EstimatorInfo("given", "1", tuple(n for n in QUANTITIES if n != "cost"), "given", "numbers declared by the user")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = tuple(entries)

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence where nothing was declared."""
        fitting = [e for e in self._entries if request.quantity in e.values and e.holds(request)]
        if not fitting:
            raise NoEvidence("nothing was declared for this place")
        best = max(reversed(fitting), key=lambda e: len(e.where))
        return Estimate(
            *best.values[request.quantity], QUANTITIES[request.quantity].unit, "given@1", basis="given",
            reason=f"declared in {best.origin}",
        )


def read_given(source: Path | str | Mapping[str, Any] | Iterable[Mapping[str, Any]] | None) -> GivenEstimator:
    """The estimator of a TOML or JSON file with a list ``given``, of such a mapping, or of the list itself.

    BadInput on an unreadable file, an unknown key or a value that is no duration or size.
    """
    if source is None:
        return GivenEstimator()
    origin = "the call"
    if isinstance(source, (str, Path)):
        origin, source = str(source), _file(Path(source))
    rows: Any = cast("Mapping[str, Any]", source).get("given", ()) if isinstance(source, Mapping) else source
    if isinstance(rows, Mapping):
        rows = [rows]
    return GivenEstimator(_entry(row, origin) for row in rows)


def _file(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"The file of given numbers {path} cannot be read: {error.strerror}; correct the path.") from None
    except ValueError as error:
        raise BadInput(f"The file of given numbers {path} is malformed: {error}.") from None
    return data if isinstance(data, Mapping) else {"given": data}


def _entry(row: Mapping[str, Any], origin: str) -> Entry:
    known = {*WHERE, *NAMES, *(name + suffix for name in NAMES for suffix in _SUFFIXES)}
    unknown = sorted(set(row) - known)
    if unknown:
        expected = f"{', '.join(WHERE)} or {', '.join(NAMES)} (_p10, _p90)"
        raise BadInput(f"Key '{unknown[0]}' in {origin} is unknown; expected {expected}.")
    values: dict[str, tuple[float, float, float]] = {}
    for name, quantity in NAMES.items():
        if name not in row:
            stray = next((name + s for s in _SUFFIXES if name + s in row), None)
            if stray:
                raise BadInput(f"'{stray}' in {origin} stands alone; give '{name}' (the usual value) too.")
            continue
        middle = _number(quantity, row[name], name, origin)
        low, high = (_number(quantity, row.get(name + s, row[name]), name + s, origin) for s in _SUFFIXES)
        if not low <= middle <= high:
            raise BadInput(f"'{name}' in {origin} is not between its p10 and p90; expected p10 <= {name} <= p90.")
        values[quantity] = (low, middle, high)
    return Entry({k: row[k] for k in WHERE if k in row}, values, origin)


def _number(quantity: str, value: Any, name: str, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadInput(f"'{name}' in {origin} is {value!r}; expected a number or text such as 2h30m or 24G.")
    if isinstance(value, str):
        return float(parse_size(value)) if QUANTITIES[quantity].unit == "bytes" else parse_human(value)
    if value < 0:
        raise BadInput(f"'{name}' in {origin} is negative ({value}); expected zero or more.")
    return float(value)
