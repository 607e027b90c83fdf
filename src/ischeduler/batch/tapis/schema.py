"""The server's rules for a job request, checked before anything is sent: a refusal by the server says little, and tapipy silently
drops what it does not know.

The shape is tapipy's own OpenAPI; the Jobs service checks more strictly: no unknown field in any object, and limits on lengths and
values, which are the figures below (Tapis Jobs service, SubmitJobRequest schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput

_LENGTHS: Mapping[str, tuple[int, int]] = {
    "name": (1, 64), "owner": (0, 64), "tenant": (0, 24), "description": (1, 2048), "appId": (1, 80), "appVersion": (1, 64),
    "execSystemId": (0, 80), "execSystemExecDir": (0, 4096), "execSystemInputDir": (0, 4096), "execSystemOutputDir": (0, 4096),
    "execSystemLogicalQueue": (0, 80), "archiveSystemId": (0, 80), "archiveSystemDir": (0, 4096), "mpiCmd": (1, 126), "cmdPrefix": (1, 1024),
}  # fmt: skip
_LEAST = {"memoryMB": 1, "maxMinutes": 1}
_ARGUMENTS = ("appArgs", "containerArgs", "schedulerOptions")
TAG_LENGTH, EVENT_DATA, EVENT_DETAIL = 126, 16384, 64
_UNIQUE = ("fileInputs", "fileInputArrays", "subscriptions", "tags")


def check_job(request: Mapping[str, Any]) -> None:
    """BadInput names the first field that the Jobs service would refuse, and why."""
    from jsonschema import Draft7Validator

    errors = sorted(Draft7Validator(job_schema()).iter_errors(request), key=lambda e: list(map(str, e.path)))
    if errors:
        where = ".".join(str(p) for p in errors[0].path) or "the request"
        raise BadInput(f"Tapis would refuse this job: {where}: {errors[0].message[:300]}")


@cache
def job_schema() -> dict[str, Any]:
    """The request of ``POST /v3/jobs/submit`` as a JSON schema."""
    schema = strict(openapi("jobs"), "ReqSubmitJob")
    fields = schema["properties"]
    for name, (least, most) in _LENGTHS.items():
        fields[name] = {**fields[name], "minLength": least, "maxLength": most}
    for name, least in _LEAST.items():
        fields[name] = {**fields[name], "minimum": least}
    fields["jobType"] = {"type": "string", "enum": ["FORK", "BATCH"]}
    fields["tags"] = {"type": "array", "uniqueItems": True, "items": {"type": "string", "minLength": 1, "maxLength": TAG_LENGTH}}
    for name in _UNIQUE:
        fields[name]["uniqueItems"] = True
    parameters = fields["parameterSet"]["properties"]
    for name in _ARGUMENTS:
        parameters[name]["items"] |= {"required": ["arg"]}
        parameters[name]["items"]["properties"]["arg"] = {"type": "string", "minLength": 1}
    parameters["envVariables"]["items"] |= {"required": ["key", "value"]}
    parameters["envVariables"]["items"]["properties"]["key"] = {"type": "string", "minLength": 1}
    subscription = fields["subscriptions"]["items"]
    subscription["properties"]["ttlMinutes"] = {"type": "integer", "minimum": 0}
    subscription["properties"].pop("ttlminutes", None)
    subscription["required"] = ["eventCategoryFilter", "deliveryTargets"]
    return schema


@cache
def openapi(resource: str) -> dict[str, Any]:
    """The OpenAPI document of a service that tapipy ships (parsed once a process)."""
    import tapipy
    import yaml

    path = Path(next(iter(tapipy.__path__))) / "resources" / f"openapi_v3-{resource}.yml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def strict(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A component's schema with every reference in place and no unknown field in any object."""
    return _resolve(document, document["components"]["schemas"][name])


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: Any = document
        for word in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found[word]
        return _resolve(document, found)
    made: dict[str, Any] = {
        k: v for k, v in schema.items() if k in ("type", "enum", "required", "minLength", "maxLength", "minimum", "pattern")
    }
    if "items" in schema:
        made["items"] = _resolve(document, schema["items"])
    if "properties" in schema:
        made["properties"] = {n: _resolve(document, s) for n, s in schema["properties"].items()}
        made["additionalProperties"] = False
    return made
