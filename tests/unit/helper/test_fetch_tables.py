"""GPEmu's tables fetched: only they are unpacked, and a folder appears whole or not at all."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ischeduler.cli.main import run
from ischeduler.core.errors import BadInput
from ischeduler.emulator.tables import read_table
from ischeduler.helper import emulation

CURVE = "Batch_Size,Time_In_SECONDS\n32,0.5\n64,0.9\n"
TABLES = {
    **{f"g-1/profiled_data/time/compute/{phase}/Tesla_K80/resnet50/time_by_batch_size.csv": CURVE for phase in ("forward", "backward")},
    "g-1/profiled_data/memory/Tesla_K80/resnet50/memory.csv": "batch_size,peak\n32,900\n",
    "g-1/profiled_data/time/compute/forward/Tesla_K80/resnet50/plot.png": "no table",
    "g-1/setup.py": "raise SystemExit",
    "g-1/profiled_data/time/../../../escaped.csv": CURVE,
    "/profiled_data/profiled_data/../escaped.csv": CURVE,
}


def archive(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("g-1/profiled_data/time/link.csv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return out.getvalue()


def code_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as left:
        run(list(arguments))
    return left.value.code or 0


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, bytes]]]:
    contents: dict[str, bytes] = {}

    class Gives(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(contents["archive"])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gives) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/g.tar.gz", contents
        server.shutdown()


def test_the_tables_alone_are_unpacked(
    served: tuple[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    url, contents = served
    contents["archive"] = archive(TABLES)
    monkeypatch.setattr(emulation, "TABLES_URL", url)
    folder = tmp_path / "new" / "gpemu"
    assert code_of("emulate", "--fetch-tables", str(folder)) == 0
    assert "3 tables of Tesla_K80" in capsys.readouterr().out
    assert dict(read_table(folder, "Tesla_K80", "resnet50").forward) == {32: 0.5, 64: 0.9}
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if not p.is_dir())
    assert [f.rsplit("/", 1)[-1] for f in files] == ["SOURCE.json", "memory.csv", "time_by_batch_size.csv", "time_by_batch_size.csv"]
    assert json.loads((folder / "SOURCE.json").read_text())["url"] == url


@pytest.mark.parametrize(
    ("content", "words"), [(b"<html>", "no archive"), (archive({"g-1/README": "x"}), "holds no profiled_data"), (archive(TABLES)[:150], "no archive")]
)
def test_anything_else_leaves_nothing(served: tuple[str, dict[str, bytes]], tmp_path: Path, content: bytes, words: str) -> None:
    url, contents = served
    contents["archive"] = content
    with pytest.raises(BadInput, match=words):
        emulation.fetch_tables(tmp_path / "gpemu", url=url)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert code_of("emulate", "--fetch-tables", str(tmp_path)) == 2
    assert "exists; remove it" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine"
