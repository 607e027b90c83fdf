"""What README.md shows is what the commands print: every console block after ``<!-- run -->`` is typed again and compared.

Each block's ``$ isched ...`` lines (a backslash continues one) run in order, in one home without a cluster, with stdout and stderr
as a reader would see them. Compared word for word after these replacements, on both sides, of what no two days have in common:

- ages: ``1102 days old``, ``3 min old``, ``12s ago`` become ``AGE old`` and ``AGE ago``;
- run ids: ``r-7f3a1c`` becomes ``r-ID``; times of day: ``14:20`` becomes ``HH:MM``.

ISCHED_UPDATE_GOLDEN=1 writes the blocks anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"(?P<head><!-- run -->\n+```console\n)(?P<body>.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
VARIABLE = (
    (re.compile(r"\b\d+(\.\d+)?( ?(s|m|h|d|min|days?|hours?))(\d+)?(?= (old|ago)\b)"), "AGE"),
    (re.compile(r"\br-[0-9a-f]{6}\b"), "r-ID"),
    (re.compile(r"\b[0-2]\d:[0-5]\d\b"), "HH:MM"),
)


@dataclass(frozen=True)
class Typed:
    """A command line as it stands in the block, and what the block says it prints."""

    line: str
    output: str

    @property
    def arguments(self) -> list[str]:
        words = shlex.split(self.line.replace("\\\n", " "))
        assert words[0] == "isched", f"README blocks run isched alone, not '{words[0]}'"
        return words[1:]


def typed(body: str) -> list[Typed]:
    """The commands of one block."""
    found = re.split(r"(?m)^\$ ((?:.*\\\n)*.*)\n", body)
    assert not found[0].strip(), f"text before the first command: {found[0]}"
    return [Typed(line, output) for line, output in zip(found[1::2], found[2::2], strict=True)]


def normal(text: str) -> str:
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return text.rstrip("\n")


def run(arguments: list[str], home: Path) -> str:
    """What it prints, in a clean environment: no cluster, no configuration, nothing remembered."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "ISCHED_BATCH_KIND": "local", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "ischeduler.cli.main", *arguments],
        cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stdout
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def blocks() -> list[str]:
    return [m["body"] for m in BLOCK.finditer(README.read_text(encoding="utf-8"))]


def test_the_readme_has_transcripts_and_the_paper_comes_first() -> None:
    first = typed(blocks()[0])[0]
    assert "examples/paper/times.toml" in first.arguments
    rows = first.output.splitlines()
    best = next(r for r in rows if "✔" in r)
    assert "serial-40core" in best
    assert " 9h00 " in best
    assert "$0.756" in best
    assert best.endswith("soonest")
    ideal = next(r for r in rows if "ideal" in r)
    assert "gpu-exp" in ideal
    assert " 28h00 " in ideal
    assert "$0.348" in ideal
    assert "cheapest" in ideal


def test_every_transcript_is_what_the_commands_print(home: Path) -> None:
    fresh = [[(t, run(t.arguments, home)) for t in typed(body)] for body in blocks()]
    if os.environ.get("ISCHED_UPDATE_GOLDEN"):
        bodies = iter("\n".join(f"$ {t.line}\n{said}" for t, said in block) for block in fresh)
        README.write_text(BLOCK.sub(lambda m: m["head"] + next(bodies), README.read_text("utf-8")), encoding="utf-8")
        return
    for block in fresh:
        for command, said in block:
            assert normal(said) == normal(command.output), f"$ {command.line}"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("facts: 1102 days old (limit 180 days)", "facts: 7 days old (limit 180 days)", True),
        ("facts: 1102 days old (limit 180 days)", "facts: 1102 days old (limit 90 days)", False),
        ("made 3m ago", "made 2h10 ago", True),
        ("wait 26h00–31h00", "wait 26h00–30h00", False),
        ("run r-7f3a1c", "run r-000000", True),
        ("$0.756", "$0.757", False),
    ],
)
def test_only_ages_ids_and_times_of_day_may_vary(one: str, other: str, alike: bool) -> None:
    assert (normal(one) == normal(other)) is alike
