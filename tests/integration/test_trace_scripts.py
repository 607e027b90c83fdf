"""Unmodified training scripts on the fake accelerator: the same figures as the model alone, and a sentence for each that cannot."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.sizes import GIB, MIB
from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.memory.estimator import tracing
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))

    def forward(self, x):
        return self.body(x)
"""
TRAIN = NET + """
import argparse
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--half", action="store_true")
args = parser.parse_args()
assert torch.cuda.is_available()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.cuda.manual_seed_all(0)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss().cuda()
scaler = torch.cuda.amp.GradScaler(enabled=args.half)
data = TensorDataset(torch.randn(256, 3, 64, 64), torch.randint(0, 10, (256,)))
total = 0.0
for images, labels in DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=4, pin_memory=True):
    images, labels = images.to(device, non_blocking=True), labels.cuda(non_blocking=True)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.half):
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    total += loss.item()
    open("steps.txt", "a").write("x")
"""


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    return Tracer(tmp_path_factory.mktemp("traces"))


def traced(tracer: Tracer, folder: Path, text: str, arguments: str = "") -> TraceReport:
    (folder / "train.py").write_text(textwrap.dedent(text))
    return tracer.report(TraceSpec("script:train.py", 1, directory=str(folder), options={"arguments": arguments}))


def refused(tracer: Tracer, folder: Path, text: str) -> str:
    with pytest.raises(EstimatorFailed) as caught:
        traced(tracer, folder, text)
    words = str(caught.value)
    assert "\n" not in words
    assert "Traceback" not in words
    return words


def test_a_script_needs_what_its_model_needs(tracer: Tracer, tmp_path: Path) -> None:
    report = traced(tracer, tmp_path, TRAIN, "--batch 64")
    (tmp_path / "net.py").write_text(NET)
    alone = tracer.report(TraceSpec("net.py:Net", 64, directory=str(tmp_path), input_shape=(3, 64, 64), optimizer="adamw"))
    assert (report.batch, report.backend) == (64, "fake-accelerator")
    assert report.weights_bytes == alone.weights_bytes
    assert report.optimizer_bytes == pytest.approx(alone.optimizer_bytes, rel=0.01)
    assert report.allocated_bytes == pytest.approx(alone.allocated_bytes, abs=5 * MIB)
    assert any("second optimizer step" in note for note in report.notes)
    assert any("taken as 1" in note for note in report.notes)
    assert (tmp_path / "steps.txt").read_text() == "x"  # it was stopped within the second step


def test_a_scripts_arguments_and_half_precision_count(tracer: Tracer, tmp_path: Path) -> None:
    full, half = (traced(tracer, tmp_path, TRAIN, f"--batch 32{extra}") for extra in ("", " --half"))
    assert half.allocated_bytes < 0.65 * full.allocated_bytes
    assert traced(tracer, tmp_path, TRAIN, "--batch 128").allocated_bytes > 3.5 * full.allocated_bytes


@pytest.mark.parametrize(("text", "words"), [
    ("import no_such_package_xyz", "needs the package 'no_such_package_xyz'"),
    ("print('no training here')", "ended before its second optimizer step"),
    ("raise SystemExit(3)", "ended with code 3"),
    ("import urllib.request\nurllib.request.urlopen('http://192.0.2.1/weights.bin')", "needs a download"),
    ("import torch\nx = torch.randn(9, device='cuda')\nprint(x[x > 0].shape)", "decides by its data"),
    ("1 / 0", "ZeroDivisionError"),
])
def test_what_cannot_be_traced_is_one_sentence(tracer: Tracer, tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tracer, tmp_path, text)


def test_a_script_that_loops_for_ever_or_fills_the_memory_is_stopped(tmp_path: Path) -> None:
    started = time.monotonic()
    assert "took longer than 6 s" in refused(Tracer(tmp_path / "a", time_limit_s=6), tmp_path, "while True: pass")
    assert time.monotonic() - started < 15
    hungry = Tracer(tmp_path / "b", time_limit_s=60, memory_limit_bytes=GIB)
    assert "needed more than 1 GB" in refused(hungry, tmp_path, "kept = []\nwhile True: kept.append(bytearray(2**25))")


def test_a_workloads_script_runs_only_where_the_user_allows_it(tracer: Tracer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = ("python", "train.py", "--batch", "{batch_size}")
    ask = tracing(tracer)
    with pytest.raises(NoEvidence, match="trace_script"):
        ask(Workload(command=command, batch_size=64, directory=str(tmp_path)))
    allowed = Workload(command=command, batch_size=64, directory=str(tmp_path), options={"trace_script": "true"})
    assert ask(allowed).batch == 64
