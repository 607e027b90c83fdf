"""A JobSpec as slurmrestd's request body, in the words of the version spoken. Pure.

What differs from sbatch: a job gets no environment of its submitter's, so the script is a login shell; and the service that
submits may not write the user's directories, so the script makes its run's directory itself and sends its output there.
v0.0.38 can signal neither the batch shell alone nor before the limit (``B:`` is refused): the script keeps that time itself.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from ischeduler.batch.header import gres_request, literal_path
from ischeduler.batch.names import job_comment, job_name
from ischeduler.batch.script import render_script, split_wrapper
from ischeduler.batch.slurm_rest_dialect import Dialect
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec
from ischeduler.core.sizes import MIB

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}
"""All that a job is given; slurmrestd wants at least one variable."""
_IGNORE_USR2 = 'trap "" USR2; exec "$@"'
_LOGIN = 'export HOME=~ USER="$(id -un)"; export LOGNAME="$USER"'
_WARN = """\
# This version of slurmrestd cannot warn a batch shell before its limit: this keeps the time. It ends when the job does.
( {{ timeout {after_s} tail --pid=$$ -f /dev/null; [ $? = 124 ] && kill -USR2 $$; }} </dev/null >/dev/null 2>&1 & )"""


def submit_body(spec: JobSpec, dialect: Dialect, *, python: str = "python") -> dict[str, Any]:
    """The body of ``POST /job/submit``. BadInput for what no job can carry."""
    script, job = script_of(spec, dialect, python=python), _job(spec, dialect)
    if dialect.has("script"):
        return {"job": {**job, "script": script}}
    return {"script": script, "job": job}


def script_of(spec: JobSpec, dialect: Dialect, *, python: str = "python") -> str:
    """The batch script: a login shell, the run's directory, then what every adapter runs."""
    if not dialect.kill_flags:
        spec = replace(spec, command=_deaf(spec))
    body = render_script(spec, python=python, header=()).removeprefix("#!/bin/bash\n")
    lines = ["#!/bin/bash -l", _LOGIN, *_own_directory(spec)]
    if spec.signal_lead_s is not None and not dialect.has("kill_warning_signal"):
        lines.append(_WARN.format(after_s=max(1, round(spec.resources.walltime_s) - spec.signal_lead_s)))
    return "\n".join(lines) + "\n" + body


def makes_own_directory(spec: JobSpec) -> bool:
    """Whether the output belongs into the run's directory, which may not be there before the job's first line."""
    folder = spec.variables.get("ISCHED_RUN_DIR", "")
    return bool(folder) and not spec.array and spec.output.startswith(folder.rstrip("/") + "/")


def _own_directory(spec: JobSpec) -> list[str]:
    if not makes_own_directory(spec):
        return []
    about = {
        "v": 1,
        "run": spec.variables.get("ISCHED_RUN_ID", ""),
        "name": spec.name,
        "command": list(split_wrapper(spec.command)[1]),
    }
    folder = shlex.quote(spec.variables["ISCHED_RUN_DIR"])
    return [
        f"run_dir={folder}; output={shlex.quote(spec.output)}",
        'mkdir -p -m 700 -- "$run_dir" && mkdir -p -- "$run_dir/logs" "$run_dir/events" "$run_dir/checkpoints"',
        f'[ -e "$run_dir/run.json" ] || printf "%s\\n" {shlex.quote(json.dumps(about))} > "$run_dir/run.json"',
        'if [ -w "$run_dir/logs" ]; then exec >>"$output" 2>&1; fi',
    ]


def _deaf(spec: JobSpec) -> tuple[str, ...]:
    """The command with SIGUSR2 ignored by the training until it asks for it: here a signal reaches every process of the job, and
    one that does not know it would die. torchrun's own line does the same."""
    wrapper, program = split_wrapper(spec.command)
    if not wrapper or spec.launcher == "torchrun":
        return spec.command
    return (*wrapper, "bash", "-c", _IGNORE_USR2, "bash", *program)


def _job(spec: JobSpec, dialect: Dialect) -> dict[str, Any]:
    resources = spec.resources
    own = makes_own_directory(spec)
    job: dict[str, Any] = {
        "name": job_name(spec.key), "comment": _line("comment", job_comment(spec.key, " ".join(w for w in (spec.name, spec.comment) if w))),
        "partition": _line("partition", spec.partition), "tasks": resources.nodes, "tasks_per_node": 1,
        "cpus_per_task": resources.cpus_per_node, "time_limit": _number(dialect, "time_limit", max(1, round(resources.walltime_s / 60))),
        "current_working_directory": "/" if own else spec.directory,
        "standard_output": "/dev/null" if own else _line("output path", literal_path(spec.output)),
        "open_mode": ["APPEND"] if dialect.fields.get("open_mode") == "array" else "append",
        "requeue": False, "environment": _environment(dialect),
        "nodes": [resources.nodes, resources.nodes] if dialect.fields.get("nodes") == "array" else str(resources.nodes),
    }  # fmt: skip
    return {**job, **_asked(spec, dialect), **_shape(spec, dialect)}


def _asked(spec: JobSpec, dialect: Dialect) -> dict[str, Any]:
    job: dict[str, Any] = {k: _line(k, v) for k, v in (("account", spec.account), ("qos", spec.qos)) if v}
    if spec.after:
        job["dependency"] = f"afterany:{spec.after}"
    if spec.exclude_nodes and dialect.fields.get("excluded_nodes") == "array" and dialect.number > 38:
        job["excluded_nodes"] = list(spec.exclude_nodes)
    elif spec.exclude_nodes:
        job["exclude_nodes" if dialect.number == 38 else "excluded_nodes"] = ",".join(spec.exclude_nodes)
    if spec.array:
        job["array"] = f"0-{spec.array - 1}" + (f"%{spec.array_at_once}" if spec.array_at_once else "")
        job["standard_output"] = f"{literal_path(spec.output)}.%a"
    if spec.signal_lead_s is not None and dialect.has("kill_warning_signal"):
        job["kill_warning_signal"] = "USR2"
        job["kill_warning_delay"] = _number(dialect, "kill_warning_delay", spec.signal_lead_s)
        job["kill_warning_flags"] = ["BATCH_JOB"]
    return job


def _shape(spec: JobSpec, dialect: Dialect) -> dict[str, Any]:
    resources, job = spec.resources, dict[str, Any]()
    if resources.memory_bytes is not None:
        job["memory_per_node"] = _number(dialect, "memory_per_node", max(1, -(-resources.memory_bytes // MIB)))
    gres = gres_request(resources)
    if gres and dialect.has("tres_per_node"):
        job["tres_per_node"] = f"gres/{gres}" if dialect.number >= 40 else f"gres:{gres}"
    elif gres:
        job["gres"] = gres
    if resources.features:
        job["constraints"] = _line("feature", "&".join(resources.features))
    if resources.whole_node:
        job |= _whole_node(dialect)
    return job


def _whole_node(dialect: Dialect) -> dict[str, Any]:
    if dialect.fields.get("shared") == "array":
        return {"shared": ["none"]}
    return {"exclusive": ["true"] if dialect.fields.get("exclusive") == "array" else ""}


def _environment(dialect: Dialect) -> Any:
    if dialect.fields.get("environment") == "array":
        return [f"{k}={v}" for k, v in _ENVIRONMENT.items()]
    return dict(_ENVIRONMENT)


def _number(dialect: Dialect, name: str, value: int) -> Any:
    """Later versions write numbers as objects that can also say "not set" and "infinite"."""
    return {"set": True, "infinite": False, "number": value} if dialect.fields.get(name) == "object" else value


def _line(name: str, value: str) -> str:
    if any(ord(c) < 32 or c == "\x7f" for c in value):
        raise BadInput(
            f"the {name} of a job must be one line of plain text; remove the line break or control character from {value!r}."
        )
    return value
