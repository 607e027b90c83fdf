"""What each runtime keeps a plug-in from, in the words a person is told when one is added."""

from __future__ import annotations

from collections.abc import Mapping

TRUST: Mapping[str, str] = {
    "python": "trusted code: it runs inside iScheduler with all your rights",
    "process": "trusted code: it runs with all your rights",
    "http": "remote: it sees the figures of your requests and history, without names, folders and commands",
    "tapis": "remote: it sees the figures of your requests and history, without names, folders and commands",
    "podman": "isolated: no network, none of your files, nobody's rights, limits on time, memory and processes",
    "docker": "isolated: no network, none of your files, nobody's rights, limits on time, memory and processes",
    "apptainer": "isolated: no network, none of your files; it keeps your user id",
    "charliecloud": "isolated: no network, none of your files; by namespaces alone, without a filter of system calls",
}


def trust_words(runtime: str, engine: str = "") -> str:
    """For a runtime, or a container engine."""
    return TRUST.get(engine or runtime, "unknown")
