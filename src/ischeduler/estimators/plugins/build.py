"""``isched estimator build``: a project folder becomes an OCI image and a root file system archive, both named by digest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.estimators.plugins import digests, images
from ischeduler.estimators.plugins.project import INSIDE, Project
from ischeduler.estimators.plugins.python_rootfs import write_rootfs
from ischeduler.estimators.runtimes.engines import ENGINES

CONTAINERFILE = "Containerfile"
WAYS = ("auto", "containerfile", "python")
PULL_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Built:
    """What a build left: ``digest`` is the archive's, ``image`` the image's id where podman or docker made one."""

    name: str
    version: str
    digest: str
    archive: str
    image: str
    engine: str
    tag: str
    way: str
    notes: tuple[str, ...] = ()


def image_maker(name: str = "auto") -> str:
    """podman or docker, the first that works; '' when neither does. NotFound when the named one does not."""
    if name not in ("auto", "podman", "docker"):
        raise NotFound(f"'{name}' builds no images; expected auto, podman or docker.")
    reasons: list[str] = []
    for program in ("podman", "docker") if name == "auto" else (name,):
        reason = ENGINES[program].missing()
        if not reason:
            return program
        reasons.append(reason)
    if name != "auto":
        raise NotFound(reasons[0])
    return ""


def build(project: Project, *, way: str = "auto", maker: str = "auto") -> Built:
    """Build from the Containerfile where its base image can be had, else from this Python.

    BadInput for a project that cannot be built, IschedError when a tool fails.
    """
    if way not in WAYS:
        raise BadInput(f"'{way}' is no way to build; expected one of {', '.join(WAYS)}.")
    program = image_maker(maker)
    notes: list[str] = []
    image = _from_containerfile(project, program, way, notes) if way != "python" else ""
    used = "containerfile" if image else "python"
    if image:
        images.export_image(program, image, project.archive)
    else:
        write_rootfs(project, project.archive)
    digest = digests.of_file(project.archive)
    if program and not image:
        image = images.import_archive(program, project.archive, digest, project.command, environment(project))
        images.run_engine([program, "tag", image, project.tag], seconds=60)
    if not program:
        notes.append("neither podman nor docker works here: the archive is for charliecloud and apptainer")
    built = Built(
        project.name, project.version, digest, str(project.archive), image, program, project.tag if image else "",
        used, tuple(notes),
    )
    _leave_note(project, built)
    return built


def environment(project: Project) -> dict[str, str]:
    """Variables inside the image."""
    return {"PYTHONPATH": INSIDE, "PYTHONDONTWRITEBYTECODE": "1", **project.environment}


def build_note(archive: Path) -> Path:
    """The file beside an archive that says how its image is started."""
    return archive.with_suffix(".json")


def _from_containerfile(project: Project, program: str, way: str, notes: list[str]) -> str:
    """The image's id; '' (with a note) when another way must do."""
    try:
        if not (project.folder / CONTAINERFILE).is_file():
            raise BadInput(f"{project.folder} has no {CONTAINERFILE}.")
        if not program:
            raise IschedError("neither podman nor docker works here.")
        argv = [program, "build", "--tag", project.tag, "--file", str(project.folder / CONTAINERFILE), str(project.folder)]
        images.run_engine(argv, seconds=PULL_TIMEOUT_S)
        return images.image_id(program, project.tag)
    except IschedError as error:
        if way == "containerfile":
            raise
        notes.append(f"not from the {CONTAINERFILE}, but from this Python: {error}")
        return ""


def _leave_note(project: Project, built: Built) -> None:
    note = {
        "name": project.name, "version": project.version, "command": list(project.command), "environment": environment(project),
        "digest": built.digest,
    }
    path = build_note(project.archive)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)
