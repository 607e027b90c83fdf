"""The long measurement behind a shipped record: models x batches x precisions, cudnn.benchmark on and off, and single operations.

One configuration after the other in a process of its own, so that no allocator or cuDNN plan is inherited and a crash costs one row.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.estimators.calibration.microbench import Operations, long_list, measure
from ischeduler.estimators.calibration.quick import device_bytes, driver_version
from ischeduler.estimators.calibration.record import CalibrationRecord, OperationTime, StepTime

MODELS = (
    "timm:resnet18", "timm:resnet50", "timm:vgg16", "timm:densenet121", "timm:mobilenetv3_large_100", "timm:efficientnet_b0",
    "timm:convnext_tiny", "timm:vit_base_patch16_224", "timm:swin_tiny_patch4_window7_224", "transformers:bert-base-uncased",
    "transformers:gpt2", "transformers:t5-small",
)
BATCHES = (8, 32, 128)
PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One row to measure."""

    model: str
    batch: int
    precision: str
    benchmark: bool


@dataclass(frozen=True)
class Campaign:
    """What to measure; ``steps`` after three to warm up. ``histories`` is a folder for the allocator's event histories, ``command`` what to
    name in the record."""

    models: tuple[str, ...] = MODELS
    batches: tuple[int, ...] = BATCHES
    precisions: tuple[str, ...] = PRECISIONS
    benchmark: tuple[bool, ...] = (False, True)
    steps: int = 20
    operations: Operations | None = None
    histories: Path | None = None
    command: str = "scripts/measure-accelerator"

    def configurations(self) -> Iterator[Configuration]:
        """All rows, every model early, so that a deadline leaves few of all; on a CPU cudnn.benchmark means nothing, so leave one of both."""
        for batch in self.batches:
            for precision in self.precisions:
                for model in self.models:
                    for benchmark in self.benchmark:
                        yield Configuration(model, batch, precision, benchmark)


Runner = Callable[[Configuration, Campaign, str], StepTime]


def run(
    campaign: Campaign, *, device: str, accelerator: str, step: Runner, say: Callable[[str], None] = lambda words: None,
    deadline: float = float("inf"),
) -> CalibrationRecord:
    """Measure as much as fits before ``deadline`` (time.monotonic()); the record says when it is not all."""
    import torch

    steps: list[StepTime] = []
    left = 0
    for wanted in campaign.configurations():
        if time.monotonic() > deadline:
            left += 1
            continue
        steps.append(step(wanted, campaign, device))
        say(_words(steps[-1]))
    operations: list[OperationTime] = []
    for precision in campaign.precisions:
        with _tensor_float(torch, precision == "tf32"):
            operations += measure(campaign.operations or long_list(), precision, device, deadline=deadline)
        say(f"{len(operations)} operations so far")
    driver, cuda = (driver_version(), str(torch.version.cuda or "")) if device == "cuda" else ("", "")
    provenance = {"source": "measured on the device named", "command": campaign.command, "licence": "Apache-2.0"}
    if left:
        provenance["left_out"] = f"{left} configurations: no time"
    return CalibrationRecord(
        accelerator, torch.__version__, time.time(), driver, cuda, steps=tuple(steps), operations=tuple(operations),
        provenance=provenance,
    )


def _words(row: StepTime) -> str:
    took = f"{row.step_s * 1e3:.1f} ms" if row.step_s is not None else row.failed
    return f"{row.model} batch {row.batch} {row.precision} benchmark {'on' if row.benchmark else 'off'}: {took}"


def in_process(wanted: Configuration, campaign: Campaign, device: str) -> StepTime:
    """Measure here and now. What fails becomes a row with the reason."""
    row = StepTime(wanted.model, wanted.batch, wanted.precision, wanted.benchmark)
    import torch

    try:
        return _measured(torch, row, campaign, device)
    except torch.OutOfMemoryError:
        return replace(row, failed="out of memory")
    except (IschedError, RuntimeError, MemoryError) as error:
        return replace(row, failed=" ".join(str(error).split())[:200] or type(error).__name__)


def in_subprocess(wanted: Configuration, campaign: Campaign, device: str) -> StepTime:
    """Measure in a fresh process."""
    import subprocess

    request = json.dumps({"wanted": asdict(wanted), "steps": campaign.steps, "device": device,
                          "histories": str(campaign.histories or "")})
    row = StepTime(wanted.model, wanted.batch, wanted.precision, wanted.benchmark)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ischeduler.estimators.calibration.campaign"], input=request, capture_output=True, text=True,
            timeout=600, check=False,
        )
    except subprocess.TimeoutExpired:
        return replace(row, failed="took longer than 600 s")
    try:
        return StepTime(**json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with code {done.returncode}"]
        return replace(row, failed=last[0][:200])


def _measured(torch: Any, row: StepTime, campaign: Campaign, device: str) -> StepTime:
    from ischeduler.estimators.memory.spec import TraceSpec
    from ischeduler.estimators.memory.torch_private import mend_torchvision
    from ischeduler.estimators.models.batches import task_of
    from ischeduler.estimators.models.build import loader
    from ischeduler.estimators.models.optimizers import make_optimizer

    mend_torchvision()
    spec = TraceSpec(row.model, row.batch, precision=row.precision, optimizer="momentum")
    load, module = loader(spec)
    torch.backends.cudnn.benchmark = row.benchmark
    with _tensor_float(torch, row.precision == "tf32"), torch.device(device):
        model = load()
        model.train()
        work = task_of(spec, module)(model)
        optimizer = make_optimizer(spec.optimizer, model, {})
        batch = work.batch(row.batch)
        step = _Step(torch, model, work, optimizer, batch, row.precision, device)
        return _timed(torch, row, campaign, step, device)


@dataclass(frozen=True)
class _Step:
    """One training step with a mark after each phase."""

    torch: Any
    model: Any
    work: Any
    optimizer: Any
    batch: Any
    precision: str
    device: str

    def __call__(self) -> tuple[float, float, float]:
        """Seconds forward, backward, update."""
        torch = self.torch
        amp = torch.autocast(self.device, dtype=torch.bfloat16) if self.precision == "bf16" else contextlib.nullcontext()
        marks = [self._now()]
        with amp:
            loss = self.work.loss(self.model, self.batch)
        marks.append(self._now())
        loss.backward()
        marks.append(self._now())
        self.optimizer.step()
        self.optimizer.zero_grad()
        marks.append(self._now())
        return marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]

    def _now(self) -> float:
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter()


def _timed(torch: Any, row: StepTime, campaign: Campaign, step: _Step, device: str) -> StepTime:
    on_card = device == "cuda"
    record = bool(campaign.histories) and on_card
    if record:
        torch.cuda.memory._record_memory_history(max_entries=200_000)
    for _ in range(min(3, campaign.steps)):
        step()
    if record and campaign.histories is not None:
        name = f"{row.model}-{row.batch}-{row.precision}-{int(row.benchmark)}.pickle".replace(":", "-").replace("/", "-")
        torch.cuda.memory._dump_snapshot(str(campaign.histories / name))
        torch.cuda.memory._record_memory_history(enabled=None)
    times = [step() for _ in range(campaign.steps)]
    parts = [median(t[i] for t in times) for i in range(3)]
    whole = median(sum(t) for t in times)
    timed = replace(row, forward_s=parts[0], backward_s=parts[1], optimizer_s=parts[2], step_s=whole)
    if not on_card:
        return timed
    peak, held = int(torch.cuda.max_memory_reserved()), device_bytes(torch)
    at_peak = None if held is None else held - int(torch.cuda.memory_reserved()) + peak  # the search has come and gone
    return replace(timed, allocated_bytes=int(torch.cuda.max_memory_allocated()), reserved_bytes=peak, device_bytes=at_peak)


@contextlib.contextmanager
def _tensor_float(torch: Any, allowed: bool) -> Iterator[None]:
    """TF32 for products and convolutions, or for neither; as before afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def selected(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Words of a comma-separated list, all of them known."""
    words = tuple(w.strip() for w in text.split(",") if w.strip())
    wrong = [w for w in words if w not in known]
    if wrong or not words:
        raise BadInput(f"{what} cannot be '{text}'; choose from {', '.join(known)}.")
    return words


def _child() -> None:
    request = json.loads(sys.stdin.read())
    histories = Path(request["histories"]) if request["histories"] else None
    campaign = Campaign(steps=request["steps"], histories=histories)
    print(json.dumps(asdict(in_process(Configuration(**request["wanted"]), campaign, request["device"]))))


if __name__ == "__main__":
    _child()
