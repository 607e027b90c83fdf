"""A short run of the fuzzers; ``scripts/fuzz`` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="atheris is not installed")

from fuzz_readers import READERS, SEEDS, allowed

ROOT = Path(__file__).resolve().parents[2]
RUNS, SECONDS = 2000, 20
AWKWARD = [
    b"", b"\x00", b"\xff\xfe\x00", b"[" * 3000, b'{"a":' * 900, b"9" * 400, b"-1", b"1e999", b"nan", b"\xed\xa0\x80", b"//[", b"http://[", b"a\r\nb: c",
    b"%00", b"../../etc/passwd", b"null", b"[]", b"{}", b'""', b"true", b"0", b'{"workload":null}', b"\xe2\x80\xae", b"'; DROP TABLE runs; --",
]  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_awkward_texts_are_answered_or_refused(name: str):
    read = READERS[name]()
    for data in (*AWKWARD, *SEEDS.get(name, ())):
        try:
            read(data)
        except Exception as error:
            if not allowed(error):
                raise AssertionError(f"{name} on {data!r}: {error!r}") from error


def test_the_fuzzers_find_nothing_in_a_short_run(tmp_path: Path):
    command = [sys.executable, str(ROOT / "scripts" / "fuzz"), "--runs", str(RUNS), "--seconds", str(SECONDS), "--corpus", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert f"{len(READERS)} of {len(READERS)} readers refuse cleanly" in done.stdout
