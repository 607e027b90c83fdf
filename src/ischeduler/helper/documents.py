"""Every JSON document the command line prints, as a schema made from the very types it is made of.

The files in ``schemas/`` are what other programs rely on; a test keeps them equal to what is derived here. Within a
version fields are only added. ``python -m ischeduler.helper.documents`` writes them anew.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

SCHEMAS = Path(__file__).parent / "schemas"
_BASIC: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}]},
    Any: {},
    object: {},
}


def bodies() -> dict[str, dict[str, Any]]:
    """Document name (``isched.NAME/1``) to its fields' types."""
    from ischeduler.core.cluster import Cluster
    from ischeduler.core.event import Event
    from ischeduler.core.history import HistoryRecord
    from ischeduler.core.plan import PlanSet
    from ischeduler.core.pool import Pool
    from ischeduler.core.run import Run
    from ischeduler.core.snapshot import QueueSnapshot
    from ischeduler.core.workload import Workload
    from ischeduler.estimators.conformance import Finding
    from ischeduler.estimators.plugins.build import Built
    from ischeduler.estimators.plugins.compare import Comparison
    from ischeduler.estimators.plugins.publish import Published
    from ischeduler.helper.backup import Copy
    from ischeduler.helper.calibrate import Calibration
    from ischeduler.helper.calibrate_models import ModelCalibration
    from ischeduler.helper.daemon import DaemonInfo
    from ischeduler.helper.doctor import Check
    from ischeduler.helper.estimator_report import EstimatorReport
    from ischeduler.helper.estimators import PluginRow, Recorded
    from ischeduler.helper.forecast import PartitionForecast
    from ischeduler.helper.ingest import Ingested, RefusedMessage
    from ischeduler.helper.memory_details import MemoryDetail
    from ischeduler.helper.options import EstimateRow
    from ischeduler.helper.pool_status import PoolStatus
    from ischeduler.helper.pools import PoolComparison
    from ischeduler.helper.report import Report
    from ischeduler.helper.scaled_profile import ScaledProfile
    from ischeduler.helper.simulation import Simulation, TraceFacts
    from ischeduler.helper.top import Glance
    from ischeduler.plane.loop import TickReport
    from ischeduler.plane.pools.steer import QueueChange
    from ischeduler.ports import EstimatorInfo
    from ischeduler.sandbox.sandbox import SandboxStatus
    from ischeduler.service.api.people import Me, Project, Token
    from ischeduler.simulator.catalogue import Fetched, PublicTrace
    from ischeduler.store.audit import AuditLine
    from ischeduler.store.identities import User
    from ischeduler.store.requests import SavedWorkload
    from ischeduler.store.webhooks import Webhook

    plan = {f.name: get_type_hints(PlanSet)[f.name] for f in dataclasses.fields(PlanSet)}
    return {
        "plan": plan,
        "estimate": {"workload": Workload, "estimates": list[EstimateRow], "memory": list[MemoryDetail]},
        "forecast": {"forecasts": list[PartitionForecast]},
        "script": {"where": str, "script": str},
        "run": {"run": Run},
        "runs": {"runs": list[Run]},
        "why": {"about": str, "state": str, "words": str},
        "events": {"run_id": str, "events": list[Event]},
        "logs": {"run_id": str, "path": str, "text": str},
        "report": {"report": Report},
        "estimator-report": {"report": EstimatorReport},
        "calibrate": {"calibrations": list[Calibration], "models": ModelCalibration | None},
        "profile-scaled": {"profile": ScaledProfile},
        "profile": {"profile": HistoryRecord, "epoch_time_s": float | None},
        "clusters": {"clusters": list[Cluster]},
        "init": {"kind": str, "cluster": str, "partitions": list[str], "path": str, "written": bool},
        "doctor": {"healthy": bool, "checks": list[Check]},
        "config": {"settings": dict[str, Any]},
        "estimators": {"estimators": list[EstimatorInfo], "problems": list[str], "plugins": list[PluginRow]},
        "estimator-check": {"name": str, "conforms": bool, "findings": list[Finding]},
        "estimator-new": {"folder": str, "files": list[str]},
        "estimator-build": {"built": Built},
        "estimator-plugin": {"plugin": PluginRow | None},
        "estimator-compare": {"comparison": Comparison, "recorded": Recorded},
        "estimator-publish": {"published": Published},
        "sandbox": {"name": str, "sandbox": SandboxStatus | None},
        "tick": {"tick": TickReport},
        "ingest": {"ingested": Ingested},
        "refused": {"refused": list[RefusedMessage]},
        "topics": {"made": list[str]},
        "plane": {"alive": bool, "daemon": DaemonInfo | None, "live_runs": int},
        "pool": {"pool": Pool},
        "pools": {"pools": list[Pool]},
        "pool-status": {"pool": PoolStatus},
        "pool-deleted": {"pool": str},
        "pool-simulation": {"simulation": PoolComparison},
        "pool-steer": {"pool": str, "dry_run": bool, "changes": list[QueueChange], "problems": list[str], "trouble": str},
        "simulate": {"simulation": Simulation},
        "traces": {"traces": list[PublicTrace]},
        "provisioners": {"folder": str, "models": dict[str, Any]},
        "provisioner": {"file": str, "about": dict[str, Any]},
        "trace": {"trace": TraceFacts},
        "trace-fetch": {"fetched": Fetched},
        "db": {"url": str, "version": str | None, "needed": str, "notes": list[str]},
        "db-copy": {"copy": Copy, "needed": str},
        "top": {"glance": Glance},
        "agent": {"agent": str, "done": int},
        "agent-install": {"kind": str, "text": str},
        "error": {"error": dict[str, Any]},
        "queue": {"queue": QueueSnapshot},
        "workload": {"workload": SavedWorkload},
        "workloads": {"workloads": list[SavedWorkload]},
        "job-token": {"run_id": str, "token": str, "expires_at": float},
        "control": {"run_id": str, "attempt": int, "word": str},
        "messages": {"run_id": str, "kind": str, "messages": list[dict[str, Any]]},
        "stress-test": {"id": str, "runs": list[str]},
        "me": {"me": Me},
        "webhook": {"webhook": Webhook, "secret": str},
        "webhooks": {"webhooks": list[Webhook]},
        "key": {"path": str},
        "token": {"token": Token, "secret": str},
        "tokens": {"tokens": list[Token]},
        "user": {"user": User},
        "users": {"users": list[User]},
        "projects": {"projects": list[Project]},
        "audit": {"lines": list[AuditLine], "next": int | None},
    }


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one document."""
    definitions: dict[str, Any] = {}
    body = bodies()[name]
    properties = {field: _type(kind, definitions) for field, kind in body.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"isched.{name}/1",
        "type": "object",
        "properties": {"schema": {"const": f"isched.{name}/1"}, **properties},
        "required": ["schema", *body],
        "$defs": dict(sorted(definitions.items())),
    }


def _type(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _BASIC:
        return _BASIC[kind]
    if kind is type(None):
        return {"type": "null"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(a, definitions) for a in arguments]}
    if origin is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis:
        return {"type": "array", "prefixItems": [_type(a, definitions) for a in arguments], "items": False}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": _type(arguments[0], definitions)}
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return _dataclass(kind, definitions)


def _dataclass(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """A definition by reference. Every field is always written, so every field is required."""
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}
        hints = get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        summary = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        definitions[name] = {
            "description": summary,
            "type": "object",
            "properties": {n: _type(hints[n], definitions) for n in names},
            "required": names,
        }
    return {"$ref": f"#/$defs/{name}"}


def write_all(folder: Path = SCHEMAS) -> None:
    """Write every schema file."""
    folder.mkdir(exist_ok=True)
    for name in bodies():
        text = json.dumps(schema_of(name), indent=1, ensure_ascii=False)
        (folder / f"{name}.1.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all()
