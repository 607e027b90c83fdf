"""``isched estimator``: who estimates, and the plug-ins: make, build, check, add, compare, publish, promote, roll back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput, ConfigError
from ischeduler.helper.session import Session

app = typer.Typer(rich_markup_mode=None, help="Estimators and their plug-ins: list, check, add, compare, promote.", no_args_is_help=True)

_RUNTIMES = "python, process, container, http or tapis; chosen by what is named."
_ENGINES = "podman, docker, apptainer or charliecloud; auto takes the first that works here."
Runtime = Annotated[str, typer.Option("--runtime", metavar="KIND", help=_RUNTIMES)]
Engine = Annotated[str, typer.Option("--engine", metavar="NAME", help=_ENGINES)]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="After --: the argument list that starts it.")
]
TokenFile = Annotated[str, typer.Option("--token-file", metavar="FILE", help="http: file of mode 600 that holds a bearer token.")]
Certificate = Annotated[str, typer.Option("--certificate", metavar="FILE", help="http: client certificate (PEM), for mutual TLS.")]
Key = Annotated[str, typer.Option("--key", metavar="FILE", help="http: the certificate's key (PEM), mode 600.")]
Authority = Annotated[str, typer.Option("--authority", metavar="FILE", help="http: who may have signed the server's certificate (PEM).")]
TimeLimit = Annotated[str, typer.Option("--time-limit", metavar="DURATION", help="Longest time for one answer.")]
MemoryLimit = Annotated[str, typer.Option("--memory-limit", metavar="SIZE", help="Memory it may use (python, http: no limit).")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A plug-in that was added.")]
Target = Annotated[str | None, typer.Argument(metavar="[TARGET]", help="Project folder, archive, image, URL or module:Object.")]
Subject = Annotated[str | None, typer.Argument(metavar="NAME", help="An estimator of isched estimator list, or what add takes.")]


@app.command("list")
def list_estimators(as_json: Json = False) -> None:
    """List estimators in the order of trust, and the versions of your plug-ins."""
    here = session()
    registry = here.services.estimators().registry
    infos = [e.info for e in registry]
    rows = _rows(here)
    if as_json:
        body = {"estimators": [to_plain(i) for i in infos], "problems": list(registry.problems), "plugins": [to_plain(r) for r in rows]}
        output.document("isched.estimators/1", body)
        return
    output.table(
        ("NAME", "VERSION", "BASIS", "ANSWERS", "HOW"),
        [(i.name, i.version, i.basis, ", ".join(i.quantities), i.description) for i in infos],
    )
    if rows:
        output.line()
        output.table(
            ("PLUG-IN", "VERSION", "DIGEST", "RUNS IN", "STATE", "TRUST"),
            [(r.name, r.version, r.digest[:19], r.engine or r.runtime, r.role, r.trust.partition(":")[0]) for r in rows],
        )
    for problem in registry.problems:
        output.note(problem)


@app.command()
def check(
    name: Subject = None, command: Command = None, runtime: Runtime = "", engine: Engine = "auto", token_file: TokenFile = "",
    certificate: Certificate = "", key: Key = "", authority: Authority = "", time_limit: TimeLimit = "30s",
    memory_limit: MemoryLimit = "1G", as_json: Json = False,
) -> int:
    """Check an estimator against the contract, in any runtime. Exit code 1 when it breaks it."""
    from ischeduler.estimators import conformance

    source = _source(name, command, runtime, engine, _files(token_file, certificate, key, authority), time_limit, memory_limit)
    with _desk().checked(source) as estimator:
        findings = conformance.check_plugin(estimator)
    broken = conformance.broken(findings)
    shown = estimator.info.name
    if as_json:
        output.document(
            "isched.estimator-check/1", {"name": shown, "conforms": not broken, "findings": [to_plain(f) for f in findings]}
        )
    else:
        marks = {"ok": output.style("✓", "green"), "note": "·", "broken": output.style("✗", "red")}
        for finding in findings:
            output.line(f"{marks[finding.level]} {finding.check}: {finding.text}")
        output.line(f"{shown} {'conforms' if not broken else f'breaks the contract in {len(broken)} point(s)'}.")
    return 1 if broken else 0


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits, dashes: per-image.")],
    folder: Annotated[Path | None, typer.Option("--folder", metavar="FOLDER", help="Where; default: a folder of that name.")] = None,
    quantity: Annotated[str, typer.Option("--quantity", metavar="NAME", help="What it estimates.")] = "step_time",
    as_json: Json = False,
) -> None:
    """Make a plug-in's project, with its tests."""
    files = _desk().new(name, folder, quantity)
    root = files[0].parent
    if as_json:
        output.document("isched.estimator-new/1", {"folder": str(root), "files": [str(f) for f in files]})
        return
    output.line(f"Made {root} ({len(files)} files); change src/{name.replace('-', '_')}/model.py.")
    output.hints([("check", f"isched estimator check {root} --runtime process"), ("build", f"isched estimator build {root}")])


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The project.")] = Path("."),
    way: Annotated[
        str, typer.Option("--from", metavar="WAY", help="containerfile, python (no base image needed), or auto: the first that works.")
    ] = "auto",
    engine: Annotated[str, typer.Option("--engine", metavar="NAME", help="podman, docker or auto.")] = "auto",
    as_json: Json = False,
) -> None:
    """Build an image of a project, and an archive of its root file system."""
    built = _desk().build(folder, way, engine)
    if as_json:
        output.document("isched.estimator-build/1", {"built": to_plain(built)})
        return
    for note in built.notes:
        output.note(note)
    output.line(f"{built.name} {built.version}  {built.digest}")
    output.line(f"archive  {built.archive}")
    if built.image:
        output.line(f"image    {built.tag}  {built.image} ({built.engine})")
    output.hints([("check", f"isched estimator check {folder} --runtime container"), ("add", f"isched estimator add {folder}")])


@app.command()
def add(
    target: Target = None, command: Command = None, runtime: Runtime = "", engine: Engine = "auto", token_file: TokenFile = "",
    certificate: Certificate = "", key: Key = "", authority: Authority = "", time_limit: TimeLimit = "30s",
    memory_limit: MemoryLimit = "1G", as_json: Json = False,
) -> None:
    """Add a plug-in by its digest. A new version of one that is there runs in shadow until it is promoted."""
    source = _source(target, command, runtime, engine, _files(token_file, certificate, key, authority), time_limit, memory_limit)
    row = _desk().add(source)
    if as_json:
        output.document("isched.estimator-plugin/1", {"plugin": to_plain(row)})
        return
    output.line(f"{row.name} {row.version}  {row.digest}")
    output.line(f"{row.engine or row.runtime}: {row.trust}.")
    if row.role == "shadow":
        output.line("It runs in shadow: the version in use goes on answering, both answers are recorded.")
        steps = [("compare", f"isched estimator compare {row.name}"), ("promote", f"isched estimator promote {row.name}")]
        output.hints(steps)
    else:
        output.line(f"It answers {', '.join(row.quantities)} from now on.")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="NAME", help="An estimator, or NAME@VERSION, NAME@shadow, NAME@sha256:...")],
    second: Annotated[str, typer.Argument(metavar="[OTHER]", help="Another; default: NAME's version in shadow.")] = "",
    quantity: Annotated[list[str] | None, typer.Option("--quantity", metavar="NAME", help="Only this one; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Newest finished runs to ask about.")] = 50,
    as_json: Json = False,
) -> None:
    """Two estimators side by side on your own finished runs: error, bias, coverage."""
    result, recorded = _desk().compare(first, second, quantity or (), limit)
    if as_json:
        output.document("isched.estimator-compare/1", {"comparison": to_plain(result), "recorded": to_plain(recorded)})
        return
    percent = lambda x: "-" if x is None else f"{x:.1%}"  # noqa: E731
    if result.scores:
        output.table(
            ("QUANTITY", "ESTIMATOR", "RUNS", "ANSWERED", "ERROR", "BIAS", "IN P10-P90", "UNDER P90"),
            [
                (s.quantity, s.source, str(s.runs), str(s.answered), percent(s.error), percent(s.bias), percent(s.coverage),
                 percent(s.under_p90))
                for s in result.scores
            ],
            right=(2, 3, 4, 5, 6, 7),
        )
    output.line(result.verdict)
    for score in result.scores:
        if score.example_refusal:
            output.note(f"{score.source} did not answer {score.quantity} of {score.runs - score.answered} run(s): {score.example_refusal}")
    if recorded.answers:
        ratio = "" if recorded.ratio is None else f", on the median {recorded.ratio:.3g} times the one in use"
        output.line(f"In shadow: {recorded.answers} answers recorded, {recorded.refused} refused{ratio}.")


@app.command()
def publish(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A plug-in, or NAME@VERSION.")],
    target: Annotated[str, typer.Argument(metavar="HOST/PATH[:TAG]", help="Where in a registry.")],
    as_json: Json = False,
) -> None:
    """Push a plug-in's image to a registry (log in first with podman or docker)."""
    done = _desk().publish(name, target)
    if as_json:
        output.document("isched.estimator-publish/1", {"published": to_plain(done)})
        return
    output.line(f"{done.name} {done.version} is at {done.reference} ({done.digest[:19]}).")


@app.command()
def promote(name: Name, as_json: Json = False) -> None:
    """Use the version in shadow from now on."""
    _say_changed(_desk().promote(name), as_json)


@app.command()
def rollback(name: Name, as_json: Json = False) -> None:
    """Drop the version in shadow; without one, go back to the version used before."""
    _say_changed(_desk().rollback(name), as_json)


@app.command()
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a plug-in and all its versions."""
    _desk().remove(name)
    if as_json:
        output.document("isched.estimator-plugin/1", {"plugin": None})
        return
    output.line(f"{name} is removed.")


def _say_changed(row: Any, as_json: bool) -> None:
    if as_json:
        output.document("isched.estimator-plugin/1", {"plugin": to_plain(row)})
        return
    output.line(f"{row.name} {row.version} answers from now on ({row.digest[:19]}).")


def _rows(here: Session) -> list[Any]:
    """Versions of plug-ins; a damaged register is one of the list's problems already."""
    from ischeduler.helper.estimators import EstimatorDesk

    try:
        return EstimatorDesk(here).rows()
    except ConfigError:
        return []


def _desk() -> Any:
    from ischeduler.helper.estimators import EstimatorDesk

    return EstimatorDesk(session())


def _files(token_file: str, certificate: str, key: str, authority: str) -> dict[str, str]:
    named = {"token_file": token_file, "certificate": certificate, "key": key, "authority": authority}
    return {option: path for option, path in named.items() if path}


def _source(
    target: str | None, command: list[str] | None, runtime: str, engine: str, files: dict[str, str], time_limit: str, memory_limit: str
) -> Any:
    from ischeduler.core.durations import parse_human
    from ischeduler.core.sizes import parse_size
    from ischeduler.estimators.plugins.install import Source

    seconds, size = parse_human(time_limit), parse_size(memory_limit)
    if not 0 < seconds <= 3600 or size < 2**24:
        raise BadInput(f"Limits of {time_limit} and {memory_limit} are no use; expected up to 1h, and at least 16M.")
    words = tuple(command or ())
    if runtime == "process" and target and not (Path(target) / "estimator.toml").is_file():
        target, words = "", (target, *words)  # after -- all words are the command's
    return Source(target or "", runtime, engine, words, files, seconds, size)
