"""The shipped deployment files name settings, commands, extras, paths and one another rightly."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ischeduler.helper.notify import VARIABLE
from ischeduler.helper.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
KNOWN = {s.variable for s in SETTINGS} | {VARIABLE, "ISCHED_GUARD", "ISCHED_GUARD_INNER", "ISCHED_SERVICE_TOKEN_FILE"}
FILES = [p for p in DEPLOY.rglob("*") if p.is_file()]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
CLUSTER = [d for p in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for d in yaml.safe_load_all(p.read_text())]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(DEPLOY)))
def test_every_variable_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bISCHED_[A-Z0-9_]+\b", path.read_text()))
    assert named - KNOWN == set()


def commands() -> list[tuple[str, list[str]]]:
    """Every way in which the files start ``isched``."""
    found = [(p.name, re.search(r"bin/isched (.*)", p.read_text())[1].split()) for p in UNITS]  # type: ignore[index]
    found += [(f"compose {name}", part["command"]) for name, part in COMPOSE["services"].items() if "image" in part and "command" in part]
    found += [(f"kubernetes {c['name']}", c["args"]) for pod in pods().values() for c in pod["spec"]["containers"]]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Pod templates by the name of what makes them."""
    return {d["metadata"]["name"]: d["spec"]["template"] for d in CLUSTER if d["kind"] in ("Deployment", "Job")}


@pytest.mark.parametrize(("where", "words"), commands(), ids=[w for w, _ in commands()])
def test_every_command_exists_with_its_options(where: str, words: list[str]) -> None:
    from typer.main import get_command

    from ischeduler.cli.root import app

    command: Any = get_command(app)
    rest = list(words)
    while getattr(command, "commands", None) is not None or hasattr(command, "list_commands"):
        context = command.context_class(command)
        command = command.get_command(context, rest.pop(0))
        assert command is not None, words
    options = {o for p in command.params for o in p.opts}
    assert {w for w in rest if w.startswith("--")} <= options


def test_the_units_verify(tmp_path: Path) -> None:
    """systemd's own check, with programs and accounts that are there."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here")
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        text = unit.read_text().replace("/opt/ischeduler/bin/isched", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    for unit in sorted(tmp_path.iterdir()):
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
        said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit.stem.split("@")[0] in line]
        assert said == [], unit.name


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_a_unit_gives_away_what_it_does_not_need(unit: Path) -> None:
    text = unit.read_text()
    for line in ("NoNewPrivileges=yes", "CapabilityBoundingSet=\n", "ProtectSystem=strict", "ProtectHome=yes", "UMask=0077", "User=ischeduler"):
        assert line in text


def test_compose_refers_to_what_it_declares() -> None:
    for name, part in COMPOSE["services"].items():
        assert set(part.get("depends_on", ())) <= set(COMPOSE["services"]), name
        assert set(part.get("networks", ())) <= set(COMPOSE["networks"]), name
        sources = [v.split(":")[0] for v in part.get("volumes", ())]
        assert {s for s in sources if not s.startswith(".")} <= set(COMPOSE["volumes"]), name
    assert (DEPLOY / "compose" / COMPOSE["services"]["service"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / COMPOSE["services"]["service"]["build"]["dockerfile"]).is_file()


def test_kubernetes_refers_to_what_it_declares() -> None:
    kustomization = next(d for d in CLUSTER if d["kind"] == "Kustomization")
    assert {f"{p.name}" for p in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"} == set(kustomization["resources"])
    labels = [pod["metadata"]["labels"] for pod in pods().values()]
    for document in CLUSTER:
        spec = document.get("spec", {})
        selector = spec.get("selector", {})
        wanted = selector.get("matchLabels", selector if document["kind"] == "Service" else None)
        if wanted and document["kind"] in ("Deployment", "Service", "PodDisruptionBudget"):
            assert wanted in labels, document["metadata"]["name"]
    maps = {d["metadata"]["name"] for d in CLUSTER if d["kind"] == "ConfigMap"}
    for name, pod in pods().items():
        spec = pod["spec"]
        volumes = {v["name"] for v in spec["volumes"]}
        for container in (*spec["initContainers"], *spec["containers"]):
            assert {m["name"] for m in container["volumeMounts"]} <= volumes, name
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            assert {e["configMapRef"]["name"] for e in container.get("envFrom", ())} <= maps
            ports = {p["name"] for p in container.get("ports", ())}
            assert {container[k]["httpGet"]["port"] for k in ("readinessProbe", "livenessProbe") if k in container} <= ports


@pytest.mark.parametrize("document", [d for d in CLUSTER if d["kind"] != "Kustomization"], ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
@pytest.mark.parametrize("version", ["1.29", "1.33", "latest"])
def test_kubernetes_takes_them(document: dict[str, Any], version: str) -> None:
    """By the schemas of Kubernetes' own API, where an unknown field is an error, too."""
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: pip install -e '.[dev]'")
    validator.validate(document, validator.latest_version() if version == "latest" else version, strict=True)


def test_kubernetes_schemas_see_a_slip() -> None:
    """The check above can fail: a field that is misspelt, a number where a word belongs."""
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: pip install -e '.[dev]'")
    whole = next(d for d in CLUSTER if d["kind"] == "Deployment")
    for wrong in ({**whole["spec"], "replica": 2}, {**whole["spec"], "replicas": "two"}):
        with pytest.raises(validator.ValidationError):
            validator.validate({**whole, "spec": wrong}, validator.latest_version(), strict=True)


def test_health_paths_are_the_services_own() -> None:
    from ischeduler.service.api.health import router

    paths = {getattr(r, "path", "") for r in router.routes}
    named = {p for f in FILES for p in re.findall(r"(/(?:readyz|healthz))\b", f.read_text())}
    assert named
    assert named <= paths


def test_the_images_install_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in ("Containerfile", "ischeduler.def"):
        text = (DEPLOY / "image" / name).read_text()
        wanted = re.search(r'^ARG EXTRAS=([a-z,]+)$|"\.\[([a-z,]+)\]"', text, re.MULTILINE)
        assert wanted
        assert set((wanted[1] or wanted[2]).split(",")) <= set(extras), name
        for source in re.findall(r"^(?:COPY|   ) ?((?:pyproject|constraints|README|LICENSE|src)\S*)", text, re.MULTILINE):
            assert (ROOT / source).exists(), source


def definition() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The Apptainer definition's header and its sections' lines, by its grammar: ``Key: value`` lines, then ``%name`` sections."""
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    for line in (DEPLOY / "image" / "ischeduler.def").read_text().splitlines():
        text = line.strip()
        if text.startswith("%"):
            sections[text[1:]] = []
        elif text and not text.startswith("#") and sections:
            sections[list(sections)[-1]].append(text)
        elif text and not text.startswith("#"):
            key, value = text.split(":", 1)
            header[key.lower()] = value.strip()
    return header, sections


def containerfile() -> dict[str, list[str]]:
    """The arguments of the Containerfile's instructions, lines joined, its own ARGs put in."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (DEPLOY / "image" / "Containerfile").read_text(), flags=re.MULTILINE))
    for name, value in re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE):
        text = text.replace(f"${{{name}}}", value)
    found: dict[str, list[str]] = {}
    for line in filter(None, text.splitlines()):
        instruction, words = line.split(" ", 1)
        found.setdefault(instruction, []).append(words)
    return found


def test_the_apptainer_definition_makes_what_the_containerfile_makes() -> None:
    """No Apptainer is here to build it: the same base, files, steps, variables and entry as the image that is built in another test."""
    header, sections = definition()
    image = containerfile()
    assert set(sections) == {"files", "post", "environment", "runscript", "labels"}
    assert header == {"bootstrap": "docker", "from": image["FROM"][0].split()[0].removeprefix("docker.io/library/")}
    copied = {w for line in image["COPY"] if not line.startswith("--from") for w in line.split()[:-1]}
    assert {line.split()[0].removeprefix("./") for line in sections["files"]} == {c.removeprefix("./") for c in copied}
    assert {line.split()[1] for line in sections["files"]} == {f"/src/{c.removeprefix('./')}" for c in copied}
    steps = [s.strip() for s in image["RUN"][0].split("&&")]
    assert sections["post"] == ["set -e", steps[0], f"cd {image['WORKDIR'][0]}", steps[1], f"rm -rf {image['WORKDIR'][0]}"]
    variables = dict(w.split("=", 1) for line in image["ENV"] for w in line.split())
    exported = dict(line.removeprefix("export ").split("=", 1) for line in sections["environment"])
    assert exported == {name: variables[name] for name in ("PATH", "PYTHONUNBUFFERED")}
    assert sections["runscript"] == [f'exec {image["ENTRYPOINT"][0].strip("[]").strip(chr(34))} "$@"']
    assert all(f'{key}="{value}"' in image["LABEL"][0] for key, value in (line.split(" ", 1) for line in sections["labels"]))


def test_no_secret_and_no_real_host_is_shipped() -> None:
    for path in FILES:
        text = path.read_text()
        assert not re.search(r"is[cj]_[0-9a-f]{16}_", text), path
        for host in re.findall(r"https://([\w.-]+)", text):
            assert host.endswith(("example.edu", "example.org")) or host == "github.com", (path, host)
