"""A JobSpec as sbatch options. Pure. Option names: sbatch(1), Slurm 20.11 and later."""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.batch.names import job_comment, job_name
from ischeduler.core.durations import format_slurm
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec, Resources
from ischeduler.core.sizes import format_slurm_size

Header = tuple[tuple[str, str | None], ...]
"""Options in order, without dashes; None for a bare flag."""


def sbatch_header(spec: JobSpec, *, requeue: bool = False) -> Header:
    """All options of a job. ``requeue`` lets Slurm itself start the job again after a node failure or preemption."""
    resources = spec.resources
    options: list[tuple[str, str | None]] = [
        ("job-name", job_name(spec.key)),
        ("comment", job_comment(spec.key, " ".join(w for w in (spec.name, spec.comment) if w))),
        ("partition", spec.partition),
        *_given("account", spec.account),
        *_given("qos", spec.qos),
        ("nodes", str(resources.nodes)),
        ("ntasks-per-node", "1"),
        ("cpus-per-task", str(resources.cpus_per_node)),
        *_resources(resources),
        *_given("exclude", ",".join(spec.exclude_nodes)),
        *_given("dependency", f"afterany:{spec.after}" if spec.after else None),
        ("time", format_slurm(resources.walltime_s)),
        ("chdir", spec.directory),
        *_given("array", _array(spec)),
        ("output", literal_path(spec.output) + (".%a" if spec.array else "")),
        ("open-mode", "append"),
        ("requeue" if requeue else "no-requeue", None),
    ]
    if spec.signal_lead_s is not None:
        options.append(("signal", f"B:USR2@{spec.signal_lead_s}"))
    return tuple(options)


def header_lines(header: Header) -> list[str]:
    """``#SBATCH`` lines; BadInput where a value has a line break, which no such line can carry."""
    return [f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={_quoted(name, value)}" for name, value in header]


def gres_request(resources: Resources) -> str | None:
    """``gpu:v100:2``, ``gpu:2``, or None without GPUs. ``Resources.gres`` may be a type or a whole GRES name."""
    if not resources.gpus_per_node:
        return None
    kind = resources.gres or ""
    name = "gpu" if not kind else kind if kind == "gpu" or ":" in kind else f"gpu:{kind}"
    return f"{name}:{resources.gpus_per_node}"


def literal_path(path: str) -> str:
    """A file name in which Slurm replaces nothing: ``%`` doubled (sbatch(1), "filename pattern")."""
    if "\\" in path:
        raise BadInput(f"the output path '{path}' has a backslash, which Slurm drops; choose a path without one.")
    return path.replace("%", "%%")


def _resources(resources: Resources) -> Iterable[tuple[str, str | None]]:
    if resources.memory_bytes is not None:
        yield "mem", format_slurm_size(resources.memory_bytes)
    yield from _given("gres", gres_request(resources))
    yield from _given("constraint", "&".join(resources.features))
    if resources.whole_node:
        yield "exclusive", None


def _array(spec: JobSpec) -> str | None:
    if not spec.array:
        return None
    return f"0-{spec.array - 1}" + (f"%{spec.array_at_once}" if spec.array_at_once else "")


def _given(name: str, value: str | None) -> tuple[tuple[str, str | None], ...]:
    return ((name, value),) if value else ()


def _quoted(name: str, value: str) -> str:
    """sbatch takes double quotes with backslash escapes; anything but plain words is put into them."""
    if any(ord(c) < 32 or c == "\x7f" for c in value):
        raise BadInput(f"the {name} of a job must be one line of plain text; remove the line break or control character from {value!r}.")
    if value and all(c.isalnum() or c in "-_.,:/@%+=&" for c in value) and value.isascii():
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
