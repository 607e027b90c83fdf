"""A JobSpec as a Tapis job request. Pure.

The app is the same for every training: it runs the script that comes as the job's one input file. Tapis has no field for GPUs,
accounts or QOS; they are options for the scheduler, in each machine's own words. It can neither warn before the limit nor send a
signal: the script keeps the time, and looks once in two seconds whether a word was left for it beside its input.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ischeduler.batch.header import gres_request
from ischeduler.batch.names import job_comment, job_name
from ischeduler.batch.script import render_script, split_wrapper
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec
from ischeduler.core.sizes import MIB

SCRIPT, WORD = "isched_job.sh", "isched_signal"
_NO_GRES = frozenset({"vista", "stampede3"})
_TACC = frozenset({"vista", "stampede3", "frontera", "lonestar6", "ls6"})
_DEAF = 'trap "" USR2; exec "$@"'
_LISTEN = """\
word="${{_tapisExecSystemInputDir:-$PWD}}/{word}"
( {{ after={after_s}; while kill -0 $$; do
    sleep 1; after=$((after - 1)); name=
    if [ -s "$word" ]; then read -r name < "$word"; rm -f -- "$word"; fi
    if [ $after = 0 ]; then name=USR2; fi
    case $name in USR1|USR2|TERM|INT|CONT) kill -$name $$ ;; esac
  done; }} </dev/null >/dev/null 2>&1 & )"""


@dataclass(frozen=True, slots=True)
class Site:
    """How one machine wants to be asked: ``profile`` is a Tapis scheduler profile (TACC's hides --mem), ``gpus`` one of 'gres',
    'gpus-per-node', 'none' (the queue itself is the wish). ``options`` are added to every job."""

    system: str
    app: str = "isched-train"
    app_version: str = "1"
    profile: str = ""
    gpus: str = "gres"
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, system: str, cluster: str, **given: Any) -> Site:
        """What is known of a machine by its name: TACC's need their profile; Vista and Stampede3 reject --gres."""
        name = cluster.lower()
        known = {"profile": "tacc" if name in _TACC else "", "gpus": "none" if name in _NO_GRES else "gres"}
        return cls(system, **{**known, **{k: v for k, v in given.items() if v}})


def job_request(
    spec: JobSpec, site: Site, script_url: str, subscriptions: Sequence[Mapping[str, Any]] = (), *, follows: str = ""
) -> dict[str, Any]:
    """The body of ``POST /v3/jobs/submit``. ``follows`` is the scheduler's own id of a job that must have ended before.

    BadInput for what Tapis cannot carry.
    """
    resources = spec.resources
    if spec.array:
        raise BadInput("Tapis runs no job arrays; submit the jobs one by one.")
    name = job_name(spec.key)
    if len(name) > 64:
        raise BadInput(f"the job name '{name}' has {len(name)} characters, and Tapis takes 64; use a shorter run id.")
    request: dict[str, Any] = {
        "name": name, "appId": site.app, "appVersion": site.app_version, "description": job_comment(spec.key, spec.name)[:2048],
        "jobType": "BATCH", "execSystemId": site.system, "execSystemLogicalQueue": spec.partition, "nodeCount": resources.nodes,
        "coresPerNode": resources.cpus_per_node, "maxMinutes": max(1, round(resources.walltime_s / 60)),
        "fileInputs": [{"name": "script", "sourceUrl": script_url, "targetPath": SCRIPT}],
        "parameterSet": {"schedulerOptions": [{"name": f"option{i}", "arg": o} for i, o in enumerate(scheduler_options(spec, site, follows))]},
        "tags": ["ischeduler", job_comment(spec.key)[:126]], "notes": {"isched_key": spec.key},
    }  # fmt: skip
    if resources.memory_bytes is not None:
        request["memoryMB"] = max(1, -(-resources.memory_bytes // MIB))
    if subscriptions:
        request["subscriptions"] = [dict(s) for s in subscriptions]
    return request


def scheduler_options(spec: JobSpec, site: Site, follows: str = "") -> list[str]:
    """What Tapis has no field for, as the scheduler's own options; each value is one word."""
    resources = spec.resources
    options = [f"--tapis-profile {site.profile}"] if site.profile else []
    options += [f"-A {_word('account', spec.account)}"] if spec.account else []
    options += [f"--qos={_word('qos', spec.qos)}"] if spec.qos else []
    gres = gres_request(resources)
    if gres and site.gpus == "gres":
        options.append(f"--gres={_word('gres', gres)}")
    elif gres and site.gpus == "gpus-per-node":
        options.append(f"--gpus-per-node={_word('gres', gres.removeprefix('gpu:'))}")
    if resources.features:
        options.append(f"--constraint={_word('feature', '&'.join(resources.features))}")
    if spec.exclude_nodes:
        options.append(f"--exclude={_word('node', ','.join(spec.exclude_nodes))}")
    if resources.whole_node:
        options.append("--exclusive")
    if follows:
        options.append(f"--dependency=afterany:{_word('job', follows)}")
    return [*options, *site.options]


def job_script(spec: JobSpec, *, python: str = "python", push_base: str = "") -> str:
    """The script that the app runs. It makes the run's directory, sends its output there, warns itself and listens for words.

    With ``push_base`` the job tells its progress to Tapis (``sendEvent``) with the token of ``ISCHED_PUSH_TOKEN_FILE``.
    """
    wrapper, program = split_wrapper(spec.command)
    if wrapper and spec.launcher != "torchrun":
        spec = replace(spec, command=(*wrapper, "bash", "-c", _DEAF, "bash", *program))
    body = render_script(spec, python=python, header=()).removeprefix("#!/bin/bash\n")
    lead_s = spec.signal_lead_s
    after_s = -1 if lead_s is None else max(1, round(spec.resources.walltime_s) - lead_s)
    lines = ["#!/bin/bash -l", *_directory(spec), _LISTEN.format(word=WORD, after_s=after_s)]
    if push_base:
        lines.append(f'export ISCHED_PUSH_URL={shlex.quote(push_base.rstrip("/"))}"/v3/jobs/${{_tapisJobUUID}}/sendEvent"')
    return "\n".join(lines) + "\n" + body


def _directory(spec: JobSpec) -> list[str]:
    folder = spec.variables.get("ISCHED_RUN_DIR", "")
    lines = [f"output={shlex.quote(spec.output)}"]
    if folder:
        lines.append(f"mkdir -p -m 700 -- {shlex.quote(folder)}")
    return [
        *lines,
        'mkdir -p -- "$(dirname -- "$output")"',
        'if [ -w "$(dirname -- "$output")" ]; then exec >>"$output" 2>&1; fi',
    ]


def _word(name: str, value: str | None) -> str:
    """Scheduler options are put into a script by Tapis: nothing but plain words may go there. BadInput otherwise."""
    text = value or ""
    if not text or not all(c.isascii() and (c.isalnum() or c in "-_.,:/@+=&[]") for c in text):
        raise BadInput(f"the {name} '{text}' cannot be given to Tapis; expected letters, digits and -_.,:/@+=&[].")
    return text
