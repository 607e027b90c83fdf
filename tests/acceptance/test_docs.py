"""The documentation holds together: generated pages equal the code, links lead somewhere, no page is lost."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATOR = ROOT / "scripts" / "generate-reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = ("store.md", "api.md", "cli.md", "exit-codes.md", "python.md", "configuration.md", "json.md")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(path: Path) -> list[str]:
    """Targets of a page's relative links; code is not prose."""
    prose = _CODE.sub("`code`", _FENCE.sub("", path.read_text(encoding="utf-8")))
    return [t for t in _LINK.findall(prose) if not re.match(r"[a-z]+:", t)]


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#{1,6} (.+)$", _FENCE.sub("", path.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = 0
        while (unique := slug + (f"-{count}" if count else "")) in found:
            count += 1
        found.add(unique)
    return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, str(GENERATOR), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_generator_writes_exactly_its_pages(fresh: Path) -> None:
    assert sorted(p.name for p in fresh.iterdir()) == sorted(GENERATED)


@pytest.mark.parametrize("page", GENERATED)
def test_a_generated_page_is_up_to_date(page: str, fresh: Path) -> None:
    kept = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert (fresh / page).read_text(encoding="utf-8") == kept, "run .venv/bin/python scripts/generate-reference"


def test_the_pages_name_every_command_setting_and_document() -> None:
    from ischeduler.cli.table_of_commands import COMMANDS
    from ischeduler.helper.documents import bodies
    from ischeduler.helper.settings import SETTINGS

    cli, configuration, json_page = (
        (DOCS / "reference" / p).read_text("utf-8") for p in ("cli.md", "configuration.md", "json.md")
    )
    assert [c for c in COMMANDS if f"## isched {c}\n" not in cli] == []
    assert [s.key for s in SETTINGS if f"`{s.key}`" not in configuration or s.variable not in configuration] == []
    assert [d for d in bodies() if f"## isched.{d}/1\n" not in json_page] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index_or_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md", DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.is_dir():
                todo += sorted(target.glob("*.md"))
            elif target.suffix == ".md" and target.exists():
                todo.append(target)
    assert [name(p) for p in PAGES if p not in seen] == []


def test_the_link_reader_sees_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: one/1\n[gone](gone.md#x) `[code](no.md)` [out](https://x.org)\n```\n[fenced](no.md)\n```\n# A title: one/1\n"
    )
    assert links(page) == ["gone.md#x"]
    assert anchors(page) == {"a-title-one1", "a-title-one1-1"}
