"""Builds the core's Workload from what people have: flags, a model reference, a Python object, or a training script.

A script says what it is in its head, either as ``# isched: epochs = 50`` lines (TOML) or as an inline metadata block
(``# /// script`` with ``[tool.ischeduler]``), or in ``ischeduler.toml`` / ``pyproject.toml`` beside it. Stronger first: flags,
the script's head, the project file.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput, ConfigError
from ischeduler.core.workload import PLACEHOLDERS, EnvironmentSpec, Workload
from ischeduler.helper.config import Config, project_table, split_table
from ischeduler.helper.service_fields import with_service
from ischeduler.helper.suggest import did_you_mean
from ischeduler.helper.workload_fields import ARGUMENTS, read_fields

_HEAD_LINE = re.compile(r"#\s*isched:(.*)")
_BLOCK = re.compile(r"(?m)^# /// script\s*$\n(?P<body>(?:^#(?: .*)?$\n)+?)^# ///\s*$")
_HOLE = re.compile(r"(?<!\{)\{([A-Za-z_]*)\}(?!\})")
_HEAD_BYTES = 20_000


def read_workload(source: Any = None, given: Mapping[str, Any] | None = None, config: Config | None = None) -> Workload:
    """The workload of ``source`` and ``given`` fields.

    ``source`` is a script's path, a model reference, a Python object, a Workload, or nothing.

    ``given`` are flags or keyword arguments; None values count as not given. BadInput says in one sentence what is wrong.
    """
    flags = read_fields({k: v for k, v in (given or {}).items() if v is not None}, "the request")
    base = config.directory if config else Path.cwd()
    if isinstance(source, Workload):
        return _finish(_as_arguments(flags), base, config, start=source)
    found: dict[str, Any] = {}
    if config and config.workload:
        found = read_fields(config.workload, config.workload_origin)
    if isinstance(source, (str, Path)) and _is_script(str(source)):
        found |= _of_script(base / Path(source).expanduser())
    elif isinstance(source, str):
        found["model"] = source
    elif source is not None:
        found["model"] = _reference(source, config)
    return _finish(_as_arguments(found | flags), base, config)


def _is_script(source: str) -> bool:
    return source.endswith((".py", ".sh"))


def _reference(model: Any, config: Config | None) -> str:
    from ischeduler.estimators.models.references import of_object

    folder = (config.state_dir if config else Path.home() / ".isched") / "models"
    return of_object(model, folder)


def _of_script(path: Path) -> dict[str, Any]:
    """Fields of a script: its project file, then its head, then what its name says."""
    if not path.is_file():
        near = [str(p.name) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise BadInput(f"there is no file '{path}'{did_you_mean(path.name, near)}.")
    launcher = "python" if path.suffix == ".py" else "sh"
    found: dict[str, Any] = {"name": path.stem, "command": (launcher, path.name), "directory": str(path.parent)}
    project = project_table(path.parent)
    if project:
        _, table = split_table(project[1], str(project[0]))
        found |= read_fields(table, str(project[0]))
    return found | read_fields(script_head(path), str(path))


def script_head(path: Path) -> dict[str, Any]:
    """The workload table in a script's head; empty where it has none. BadInput when it is not TOML."""
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_HEAD_BYTES)
    lines = [m[1].strip() for line in text.splitlines() if (m := _HEAD_LINE.fullmatch(line.strip()))]
    block = _BLOCK.search(text)
    table: dict[str, Any] = {}
    if block:
        body = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in block["body"].splitlines())
        table = _toml(body, f"the script block of {path}").get("tool", {}).get("ischeduler", {})
        table = dict(table) | dict(table.pop("workload", {}))
    return table | _toml("\n".join(lines), f"the '# isched:' lines of {path}")


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f'{where} are not valid TOML: {error}; texts need quotes, e.g. model = "timm:resnet50".') from None


def _as_arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    return with_service({ARGUMENTS.get(name, name): value for name, value in fields.items()})


def _finish(arguments: dict[str, Any], base: Path, config: Config | None, start: Workload | None = None) -> Workload:
    workload = replace(start, **arguments) if start else Workload(**arguments)
    if workload.service is not None and workload.command and workload.checkpoints is False:
        workload = replace(workload, checkpoints=True)  # a service goes on in the next job, whatever it keeps
    if not workload.model and not workload.command:
        raise BadInput("nothing says what to train; give a script (isched plan train.py) or a model (--model timm:resnet50).")
    workload = replace(workload, directory=str((base / (workload.directory or ".")).resolve()))
    if not workload.name:
        workload = replace(workload, name=_name_of(workload))
    check_placeholders(workload)
    return _with_interpreter(replace(workload, environment=_environment(workload.environment, config)))


def _with_interpreter(workload: Workload) -> Workload:
    """Jobs run with the Python that planned them, unless the environment says otherwise.

    The wrapper needs ``ischeduler`` and the standard library alone, so it always takes this interpreter outside containers;
    the training takes it where no module, conda or virtual environment brings its own.
    """
    env = workload.environment
    if env.image:
        return workload
    options = {"python": sys.executable, **workload.options}
    command = workload.command
    if command and command[0] in ("python", "python3") and not (env.modules or env.conda or env.venv):
        if (Path(sys.prefix) / "bin" / "activate").is_file():
            env = replace(env, venv=sys.prefix)
        else:
            command = (sys.executable, *command[1:])
    return replace(workload, options=options, command=command, environment=env)


def _name_of(workload: Workload) -> str:
    tail = re.split(r"[:/]", workload.family)[-1].removesuffix(".py")
    return re.sub(r"[^\w.-]+", "-", tail) or "training"


def check_placeholders(workload: Workload) -> None:
    """BadInput when the command has an unknown placeholder, or several batch sizes and no place to put one."""
    used = {hole for word in workload.command for hole in _HOLE.findall(word)}
    known = (*PLACEHOLDERS, "port") if workload.service is not None else PLACEHOLDERS
    for hole in sorted(used - set(known)):
        raise BadInput(f"'{{{hole}}}' in the command is not a placeholder{did_you_mean(hole, known)}.")
    if "port" in used and workload.service is not None and workload.service.ready_port is None:
        raise BadInput("the command has {port} but the service has none; give ready_port (0: any free one).")
    if isinstance(workload.batch_size, tuple) and workload.command and "batch_size" not in used:
        raise BadInput(
            "several batch sizes are given but the command has no {batch_size}; "
            'say command = ["python", "train.py", "--batch-size", "{batch_size}"] in the script\'s head.'
        )


def _environment(own: EnvironmentSpec, config: Config | None) -> EnvironmentSpec:
    """The workload's own environment, filled from the configuration where it says nothing."""
    if config is None:
        return own
    filled = {
        f.name: getattr(own, f.name) or config[f"environment.{f.name}"] or getattr(EnvironmentSpec(), f.name)
        for f in dataclass_fields(EnvironmentSpec)
        if f.name != "variables"
    }
    return EnvironmentSpec(**filled, variables={**_push(config), **config["environment.variables"], **own.variables})


def _push(config: Config) -> dict[str, str]:
    """Where jobs send their events besides the run's directory; the token itself never leaves its file."""
    if not config["push.url"]:
        return {}
    if not config["push.url"].startswith(("https://", "http://")):
        raise ConfigError(f"push.url must begin with https:// (or http://), got '{config['push.url'][:60]}'.")
    file = config["push.token_file"]
    return {"ISCHED_PUSH_URL": config["push.url"]} | ({"ISCHED_PUSH_TOKEN_FILE": str(Path(file).expanduser())} if file else {})
