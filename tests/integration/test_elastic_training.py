"""A real training that goes on with another number of processes: same global batch, no sample twice, same weights in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ischeduler.core.elastic import Elastic, share_of
from ischeduler.core.workload import Workload
from ischeduler.training.elastic import ElasticBatches, Figures

pytest.importorskip("torch", reason="torch is not here")

SAMPLES, EPOCHS, STOP_AT = 96, 3, 5
TRAIN = """\
import json, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from ischeduler.training import checkpointing
from ischeduler.training.elastic import ElasticBatches, elastic

stop_at, samples, epochs = map(int, sys.argv[1:])
figures = elastic()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
assert dist.get_world_size() == figures.world_size
torch.manual_seed(0)
numbers = torch.Generator().manual_seed(1)
x = torch.randn(samples, 6, generator=numbers, dtype=torch.float64)
y = (x @ torch.arange(6, dtype=torch.float64)).unsqueeze(1)
model = torch.nn.Linear(6, 1, dtype=torch.float64)
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * figures.lr_scale, momentum=0.9)
data = TensorDataset(torch.arange(samples), x, y)
loader = DataLoader(data, batch_sampler=ElasticBatches(samples, rank=rank, figures=figures, seed=7))
used = open(f"used-{figures.world_size}-{rank}.jsonl", "a")
with checkpointing(model=model, optimizer=optimizer, epochs=epochs) as run:
    for epoch in run.epochs():
        passes = 0
        for _, (which, inputs, wanted) in run.steps(loader):
            used.write(json.dumps([epoch, run.step_count, which.tolist()]) + "\\n")
            loss = torch.nn.functional.mse_loss(parallel(inputs), wanted)
            (loss / figures.grad_accum).backward()
            passes += 1
            if passes < figures.grad_accum:
                continue
            passes = 0
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss=loss.item())
            if run.step_count == stop_at:
                used.flush()
                run.stop()
used.close()
if rank == 0:
    json.dump({"weights": model.weight.detach().flatten().tolist(), "loss": loss.item(), "steps": run.step_count}, open("result.json", "w"))
"""


def train(folder: Path, attempt: int, world: int, stop_at: int = 0) -> int:
    """One job of the run under the wrapper, on that many processes; the figures are those the plane would tell."""
    base = Workload(model="m", samples=SAMPLES, batch_size=8, gpus=2, elastic=Elastic((1, 4)))
    share = share_of(base, world)
    told = {
        "ISCHED_WORLD_SIZE": share.world_size, "ISCHED_BATCH_SIZE": share.batch_size, "ISCHED_GRAD_ACCUM": share.grad_accum,
        "ISCHED_GLOBAL_BATCH": share.global_batch, "ISCHED_LR_SCALE": share.lr_scale, "ISCHED_ATTEMPT": attempt, "ISCHED_RUN_ID": "e",
        "ISCHED_RUN_DIR": folder / "run", "OMP_NUM_THREADS": 1,
    }  # fmt: skip
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM_"))} | {k: str(v) for k, v in told.items()}
    (folder / "train.py").write_text(TRAIN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", "train.py", str(stop_at), str(SAMPLES), str(EPOCHS)]
    wrapped = [sys.executable, "-m", "ischeduler.training.wrapper", "--", *launch]
    return subprocess.run(wrapped, cwd=folder, env=env, timeout=180, check=False).returncode


def used(folder: Path) -> dict[tuple[int, int], list[int]]:
    """Samples of each (epoch, step) over all processes."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for path in folder.glob("used-*.jsonl"):
        for line in path.read_text().splitlines():
            epoch, step, which = json.loads(line)
            found[epoch, step] += which
    return found


def uninterrupted() -> tuple[list[float], list[float]]:
    """The weights and the losses of the same training in one process, whole batches at once."""
    import torch

    torch.manual_seed(0)
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 6, generator=numbers, dtype=torch.float64)
    y = (x @ torch.arange(6, dtype=torch.float64)).unsqueeze(1)
    model = torch.nn.Linear(6, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches, losses = ElasticBatches(SAMPLES, rank=0, figures=Figures(1, 16, 1, 16), seed=7), list[float]()
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for which in batches:
            loss = torch.nn.functional.mse_loss(model(x[which]), y[which])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return model.weight.detach().flatten().tolist(), losses


def test_two_processes_then_one_are_as_one_uninterrupted_training(tmp_path: Path) -> None:
    assert train(tmp_path, 1, world=2, stop_at=STOP_AT) == 85
    assert train(tmp_path, 2, world=1) == 0
    moved = used(tmp_path)
    assert {len(which) for which in moved.values()} == {16}  # the global batch, exactly
    for epoch in range(EPOCHS):
        seen = [i for (e, _), which in moved.items() if e == epoch for i in which]
        assert sorted(seen) == list(range(SAMPLES))
    result = json.loads((tmp_path / "result.json").read_text())
    weights, losses = uninterrupted()
    assert result["steps"] == EPOCHS * SAMPLES // 16 == len(losses)
    assert result["weights"] == pytest.approx(weights, abs=1e-9)
    assert losses[-1] < losses[0] / 2
