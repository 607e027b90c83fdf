"""The batch script of a job: plain bash that a person can read, edit and submit. Pure; user text is quoted word by word.

The last line is always ``exec``: with ``--signal=B:USR2@N`` Slurm signals the batch shell alone, and after ``exec`` that shell
*is* the training's wrapper. On several nodes the wrapper (the words before ``--``) stays in the batch shell, once a job, and
starts ``srun`` itself; srun passes signals on to every process of its step (srun(1), SIGNALS).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from ischeduler.batch.header import Header, header_lines, sbatch_header
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec
from ischeduler.core.workload import EnvironmentSpec

LAUNCHERS = ("direct", "srun", "torchrun")
WRAPPERS = frozenset({"exec", "ischeduler.training.wrapper"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MODULES = """\
if ! command -v module >/dev/null 2>&1; then
  for start in /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh; do
    if [ -r "$start" ]; then . "$start"; break; fi
  done
fi"""

_CONTAINER = """\
container=$(command -v apptainer || command -v singularity) || { echo "apptainer is not on this node's PATH" >&2; exit 127; }"""

_RENDEZVOUS = """\
# Where the processes of all nodes meet: the first node, which is the one this script runs on. A node name that the network does
# not know, or a missing scontrol, leaves this host's own name. The port is this job's own.
nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null) || nodes=$(hostname)
head_node=${nodes%%$'\\n'*}
getent hosts "$head_node" >/dev/null 2>&1 || head_node=$(hostname)
export ISCHED_RDZV_ENDPOINT="$head_node:$((10000 + ${SLURM_JOB_ID:-$$} % 20000))\""""

# One line a node: USR2 is ignored from here on, so that it cannot end torchrun, which knows no such signal; training processes
# that want it install a handler, which replaces the inherited "ignore".
_IGNORE_USR2 = 'trap "" USR2; exec "$@"'
# The first node holds the meeting point; torchrun reads the variable as its option --rdzv-conf.
_IGNORE_USR2_AND_MEET = (
    'trap "" USR2; [ "${SLURM_NODEID:-0}" = 0 ] && host=true || host=false; export PET_RDZV_CONF=is_host=$host; exec "$@"'
)


def render_script(spec: JobSpec, *, python: str = "python", header: Header | None = None) -> str:
    """The whole script. ``python`` starts torchrun; ``header`` defaults to the job's sbatch options, ``()`` writes none.

    BadInput for what no script can carry: an empty command, a NUL, a bad variable name, a line break in an option.
    """
    _check(spec)
    lines = ["#!/bin/bash", *header_lines(sbatch_header(spec) if header is None else header), "set -euo pipefail"]
    lines += [f"cd -- {shlex.quote(spec.directory)}", *_environment(spec.environment)]
    lines += _exports({**spec.environment.variables, **spec.variables})
    if spec.launcher == "torchrun" and spec.resources.nodes > 1:
        lines.append(_RENDEZVOUS)
    return "\n".join([*lines, _final(spec, python)]) + "\n"


def split_wrapper(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``(isched exec --, python train.py)`` of ``isched exec -- python train.py``, whichever way the wrapper is called."""
    words = tuple(command)
    if "--" in words:
        cut = words.index("--")
        if WRAPPERS & set(words[:cut]) and words[cut + 1 :]:
            return words[: cut + 1], words[cut + 1 :]
    return (), words


def _check(spec: JobSpec) -> None:
    if not spec.command:
        raise BadInput("the job has no command; give the program that trains, e.g. python train.py.")
    if spec.launcher not in LAUNCHERS:
        raise BadInput(f"launcher '{spec.launcher}' is unknown; expected one of {', '.join(LAUNCHERS)}.")
    if spec.launcher == "direct" and spec.resources.nodes > 1:
        raise BadInput(f"a job on {spec.resources.nodes} nodes needs launcher 'srun' or 'torchrun', not 'direct'.")
    if not spec.directory.startswith("/"):
        raise BadInput(f"the job's directory '{spec.directory}' is not absolute; give the whole path.")
    texts = [*spec.command, spec.directory, *spec.environment.variables.values(), *spec.variables.values()]
    if any("\0" in t for t in texts):
        raise BadInput("a word of the job's command, directory or variables has a NUL character, which no program can be given.")


def _environment(environment: EnvironmentSpec) -> list[str]:
    """Modules, then conda, then a virtual environment. Their scripts read unset variables, hence ``set +u`` around them."""
    steps: list[str] = []
    if environment.modules:
        steps += [_MODULES, *(f"module load {shlex.quote(m)}" for m in environment.modules)]
    if environment.conda:
        steps += ['eval "$(conda shell.bash hook)"', f"conda activate {shlex.quote(environment.conda)}"]
    if environment.venv:
        steps.append(f". {shlex.quote(environment.venv.rstrip('/') + '/bin/activate')}")
    lines = ["set +u", *steps, "set -u"] if steps else []
    return [*lines, _CONTAINER] if environment.image else lines


def _exports(variables: Mapping[str, str]) -> list[str]:
    bad = [n for n in variables if not _VARIABLE.fullmatch(n)]
    if bad:
        raise BadInput(f"'{bad[0]}' is not the name of an environment variable; expected letters, digits and '_'.")
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _final(spec: JobSpec, python: str) -> str:
    wrapper, program = split_wrapper(spec.command)
    words = [shlex.quote(w) for w in wrapper]
    if spec.resources.nodes > 1:
        words += _srun(spec)
    torch = spec.launcher == "torchrun"
    if torch:
        words += ["bash", "-c", shlex.quote(_IGNORE_USR2_AND_MEET if spec.resources.nodes > 1 else _IGNORE_USR2), "bash"]
    if spec.environment.image:
        words += _container(spec, spec.environment.image)
    if torch:
        words += _torchrun(spec, python)
    return "exec -- " + " ".join([*words, *(shlex.quote(w) for w in program)])


def _srun(spec: JobSpec) -> list[str]:
    """One task a node with all of its cores: since 22.05 srun no longer takes --cpus-per-task from the job."""
    nodes = spec.resources.nodes
    return [
        "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={spec.resources.cpus_per_node}", "--kill-on-bad-exit=1", "--export=ALL",
    ]  # fmt: skip


def _torchrun(spec: JobSpec, python: str) -> list[str]:
    """torchrun without restarts of its own: the plane decides what follows a failure."""
    words = [shlex.quote(python), "-m", "torch.distributed.run", f"--nproc-per-node={spec.processes_per_node}", "--max-restarts=0"]
    if spec.resources.nodes == 1:
        return [*words, "--standalone", "--no-python"]
    meeting = ["--rdzv-backend=c10d", '--rdzv-endpoint="$ISCHED_RDZV_ENDPOINT"', '--rdzv-id="${SLURM_JOB_ID:-0}"']
    return [*words, f"--nnodes={spec.resources.nodes}", *meeting, "--no-python"]


def _container(spec: JobSpec, image: str) -> list[str]:
    places = dict.fromkeys([spec.directory, *_given(spec.variables.get("ISCHED_RUN_DIR"))])
    for place in places:
        if any(c in place for c in ":,"):
            raise BadInput(f"the directory '{place}' has ':' or ',' and cannot be bound into a container; choose another.")
    binds = [word for place in places for word in ("--bind", shlex.quote(place))]
    devices = ["--nv"] if spec.resources.gpus_per_node else []
    return ['"$container"', "exec", *devices, *binds, "--pwd", shlex.quote(spec.directory), shlex.quote(image)]


def _given(value: str | None) -> list[str]:
    return [value] if value else []
