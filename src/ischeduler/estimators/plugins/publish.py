"""``isched estimator publish``: push a plug-in's image to a registry, so that others can add it by digest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.estimators.plugins import images
from ischeduler.estimators.plugins.versions import PluginVersion

_REFERENCE = re.compile(r"(?P<host>[a-z0-9.-]+(?::\d+)?)/(?P<path>[a-z0-9._/-]+)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?")
_NOT_ALLOWED = ("unauthorized", "denied", "authentication required", "401", "403", "no basic auth", "login")
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?")
_PUSH_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Published:
    """Where an image is now, and the id it was added by."""

    name: str
    version: str
    reference: str
    digest: str


def publish(version: PluginVersion, target: str) -> Published:
    """Push to ``HOST/PATH[:TAG]`` (the version where no tag is given). BadInput, or IschedError with what to do."""
    host, reference = _target(version, target)
    if version.runtime != "container" or version.spec["engine"] not in ("podman", "docker"):
        raise BadInput(f"{version.label} is no image of podman or docker; add it with --engine podman, then publish it.")
    program, image = str(version.spec["engine"]), str(version.spec["image"])
    images.run_engine([program, "tag", image, reference], seconds=60)
    # a registry on the loopback speaks plain HTTP; docker knows that by itself
    plain = ("--tls-verify=false",) if program == "podman" and _LOOPBACK.fullmatch(host) else ()
    try:
        images.run_engine([program, "push", *plain, reference], seconds=_PUSH_TIMEOUT_S)
    except IschedError as error:
        if any(word in str(error).lower() for word in _NOT_ALLOWED):
            raise IschedError(f"{host} did not let you push {reference}; log in first: {program} login {host}") from None
        raise
    return Published(version.info.name, version.info.version, reference, version.digest)


def _target(version: PluginVersion, target: str) -> tuple[str, str]:
    found = _REFERENCE.fullmatch(target)
    if found is None or not ("." in found["host"] or ":" in found["host"] or found["host"] == "localhost"):
        raise BadInput(f"'{target}' is no place in a registry; expected HOST/PATH[:TAG], e.g. registry.example.org/lab/per-image:1.")
    return found["host"], target if found["tag"] else f"{target}:{version.info.version}"
