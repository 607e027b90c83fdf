"""Unmodified scripts under ``isched emulate``: times, memory and errors of a card that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ischeduler.sandbox import Sandbox
from ischeduler.sandbox import processes as proc

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

NET = """
import json, sys, time, torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
def step(batch):
    x, y = torch.randn(batch, 3, 128, 128), torch.zeros(batch, dtype=torch.long)
    loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss
"""


def emulate(folder: Path, body: str, *options: str, command: list[str] | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(NET + body)
    argv = [sys.executable, "-m", "ischeduler.cli.main", "emulate", *options, "--", *(command or [sys.executable]), str(script)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED", "SLURM", "CUDA"))} | variables
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def last(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_script_sees_a_card(tmp_path: Path) -> None:
    body = """
loss = step(8)
print(json.dumps([str(device), str(loss.device), loss.is_cuda, torch.cuda.device_count(), torch.cuda.get_device_name(),
                  torch.cuda.get_device_properties(0).total_memory, loss.item(), str(loss.cpu().device), loss.tolist(),
                  torch.ones(2, device="cuda:1").get_device(), torch.zeros(3).cuda().to("cpu").tolist()]))
"""
    seen = last(emulate(tmp_path, body, "--accelerator", "v100-32g", "--count", "2"))
    assert seen == ["cuda", "cuda:0", True, 2, "v100-32g", 32510 * 2**20, 0.0, "cpu", 0.0, 1, [0.0, 0.0, 0.0]]


def test_memory_runs_out_where_the_card_is_full_and_the_script_may_go_on(tmp_path: Path) -> None:
    body = """
import gc
def fits(batch):
    try:
        step(batch)
    except torch.cuda.OutOfMemoryError as error:
        assert isinstance(error, torch.OutOfMemoryError) and "CUDA out of memory. Tried to allocate" in str(error)
        return False
    finally:
        gc.collect(); torch.cuda.empty_cache()
    return True
batch = 16
while fits(batch):
    batch += 16
small = fits(16)
print(json.dumps([batch, small, torch.cuda.max_memory_reserved()]))
"""
    batch, small, reserved = last(emulate(tmp_path, body, "--accelerator", "v100-32g", "--card-memory", "2G"))
    # 4 activations of 32 x 128 x 128 floats a sample are alive at once, at the least: 8 MiB
    assert 96 <= batch <= 256
    assert small
    assert reserved <= 2 * 2**30


def test_time_passes_as_the_table_says(tmp_path: Path) -> None:
    for phase, seconds in (("forward", 0.2), ("backward", 0.3)):
        path = tmp_path / "tables" / "time" / "compute" / phase / "CARD" / "toy" / "time_by_batch_size.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"Batch_Size,Time_In_SECONDS\n16,{seconds}\n")
    body = """
step(16); torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(6): step(16)
torch.cuda.synchronize()
print(json.dumps(time.perf_counter() - began))
"""
    table = ("--table", str(tmp_path / "tables"), "--table-gpu", "CARD", "--table-model", "toy")
    took = last(emulate(tmp_path, body, "--accelerator", "v100-32g", "--report", "report.json", *table))
    assert took >= 3.0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["busy_s"] == pytest.approx(7 * 0.5, rel=0.02)
    assert report["source"] == "table CARD/toy"
    assert report["computed_on_host"] == {}


def test_half_precision_scaler_events_and_a_checkpoint(tmp_path: Path) -> None:
    body = """
scaler = torch.amp.GradScaler("cuda")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(5):
    with torch.autocast("cuda"):
        out = net(torch.randn(32, 3, 128, 128).cuda(non_blocking=True))
        loss = out.float().sum()
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
end.record(); torch.cuda.synchronize()
before = {k: v.cpu().sum().item() for k, v in net.state_dict().items()}
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt", map_location="cuda"))
after = {k: v.cpu().sum().item() for k, v in net.state_dict().items()}
print(json.dumps([str(out.dtype), start.elapsed_time(end) > 0, before == after, next(net.parameters()).is_cuda]))
"""
    assert last(emulate(tmp_path, body, "--accelerator", "a100-40g")) == ["torch.float16", True, True, True]


def test_a_replayed_training_counts_its_steps_and_keeps_its_time(tmp_path: Path) -> None:
    """Many small layers: this host is slower than the card, so model and optimizer are replayed."""
    for phase, seconds in (("forward", 0.01), ("backward", 0.03)):
        path = tmp_path / "tables" / "time" / "compute" / phase / "CARD" / "toy" / "time_by_batch_size.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"Batch_Size,Time_In_SECONDS\n16,{seconds}\n")
    body = """
net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(200))).cuda()
optimizer = torch.optim.AdamW(net.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
def train(steps, to_none):
    for _ in range(steps):
        loss = net(torch.zeros(16, 8).cuda()).sum()
        optimizer.zero_grad(set_to_none=to_none); loss.backward(); optimizer.step(); schedule.step()
    torch.cuda.synchronize()
train(5, True); train(5, False)
held = torch.cuda.memory_allocated()
began = time.perf_counter(); train(50, False); took = time.perf_counter() - began
optimizer.zero_grad()
print(json.dumps([optimizer.state[net[7].weight]["step"].item(), schedule.last_epoch, net[7].weight.grad is None,
                  held == torch.cuda.memory_allocated() + 200 * 2 * 512, took]))
"""
    table = ("--table", str(tmp_path / "tables"), "--table-gpu", "CARD", "--table-model", "toy")
    done = emulate(tmp_path, body, "--accelerator", "v100-32g", "--report", "report.json", *table)
    steps, schedule, gone, freed, took = last(done)
    assert "replayed from now on" in done.stderr
    assert (steps, schedule, gone, freed) == (60.0, 60, True, True)
    assert took >= 50 * 0.04 - 0.11
    assert json.loads((tmp_path / "report.json").read_text())["busy_s"] == pytest.approx(60 * 0.04, rel=0.02)


def test_two_processes_share_a_card(tmp_path: Path) -> None:
    body = """
hold = torch.empty(1200 * 2**20 // 4, device="cuda")
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
free, total = torch.cuda.mem_get_info()
print(json.dumps(free))
open("ready", "w").close()
while len(sys.argv) > 2: time.sleep(0.1)
"""
    script = tmp_path / "train.py"
    script.write_text(NET + body)
    argv = [sys.executable, "-m", "ischeduler.cli.main", "emulate", "--accelerator", "v100-32g", "--card-memory", "3G", "--shared",
            str(tmp_path / "card"), "--", sys.executable, str(script)]  # fmt: skip
    first = subprocess.Popen([*argv, "0", "stay"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        alone = json.loads(first.stdout.readline())
        beside = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert beside.returncode == 1
        assert "CUDA out of memory" in beside.stderr
    finally:
        first.kill()
        first.wait()
    again = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(again.stdout) == alone


def test_two_ranks_with_ddp(tmp_path: Path) -> None:
    body = """
import os, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
net = nn.parallel.DistributedDataParallel(net.to(f"cuda:{rank}"), device_ids=[rank])
device = torch.device("cuda", rank)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(6): loss = step(16)
total = torch.ones(1, device=device); dist.all_reduce(total); 
if rank == 0: print(json.dumps([str(loss.device), dist.get_world_size(), total.shape[0]]))
dist.destroy_process_group()
"""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29631"]
    assert last(emulate(tmp_path, body, "--accelerator", "a100-40g", "--count", "2", command=torchrun)) == ["cuda:0", 2, 1]


def test_bad_arguments_get_a_sentence(tmp_path: Path) -> None:
    for options, words in (
        (["--accelerator", "x1"], "no datasheet of 'x1'"), (["--accelerator", "v100-32g", "--table", "/nowhere"], "belong together"),
        (["--accelerator", "v100-32g", "--precision", "fp8"], "--precision must be"), (["--accelerator", "v100-32g", "--preprocess", "soonms"], "2ms"),
    ):  # fmt: skip
        done = emulate(tmp_path, "", *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slurm
def test_a_slurm_job_gets_the_card_it_asked_for(slurm: Sandbox) -> None:
    """The sandbox's GPUs are files: with ``--accelerator auto`` its jobs have the cards that their GRES names."""
    folder = slurm.home("alice") / "emulated"
    slurm.run(["mkdir", "-p", str(folder)], user="alice")
    body = "step(8)\nprint(json.dumps([torch.cuda.get_device_name(), torch.cuda.device_count()]))\n"
    slurm.run(["tee", str(folder / "train.py")], user="alice", stdin=NET + body)
    wrap = f"{slurm.python} -m ischeduler.cli.main emulate --accelerator auto -- {slurm.python} train.py"
    out = str(folder / "out")
    job = slurm.run(["sbatch", "--parsable", "-p", "gpu", "--gres=gpu:v100:1", "-D", str(folder), "-o", out, "--wrap", wrap], user="alice")
    done = proc.wait_until(lambda: _state(slurm, job.stdout.strip()) in ("COMPLETED", "FAILED"), timeout_s=120, poll_s=0.5)
    text = slurm.run(["cat", out], user="alice").stdout
    assert done, text
    assert '["v100-16g", 1]' in text, text


@pytest.mark.slurm
def test_ranks_on_two_nodes_train_together(slurm: Sandbox) -> None:
    """DistributedDataParallel over two nodes, a card each: gloo carries what NCCL would, and every rank sees its own card."""
    folder = slurm.home("alice") / "two-nodes"
    slurm.run(["mkdir", "-p", str(folder)], user="alice")
    body = """
import os, torch.distributed as dist
dist.init_process_group("nccl")
net = nn.parallel.DistributedDataParallel(net, device_ids=[0])
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4): step(8)
nodes = [None, None]
dist.all_gather_object(nodes, [os.environ["SLURMD_NODENAME"], torch.cuda.get_device_name(), torch.cuda.device_count()])
if dist.get_rank() == 0: print(json.dumps(sorted(nodes)))
dist.destroy_process_group()
"""
    slurm.run(["tee", str(folder / "train.py")], user="alice", stdin=NET + body)
    meet = "--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29671 --rdzv-id two"
    wrap = f"srun {slurm.python} -m ischeduler.cli.main emulate --accelerator auto -- {slurm.python} -m torch.distributed.run {meet} train.py"
    out = str(folder / "out")
    asked = ["-N2", "--ntasks-per-node=1", "-p", "gpu", "--gres=gpu:v100:1"]
    job = slurm.run(["sbatch", "--parsable", *asked, "-D", str(folder), "-o", out, "--wrap", wrap], user="alice")
    done = proc.wait_until(lambda: _state(slurm, job.stdout.strip()) in ("COMPLETED", "FAILED"), timeout_s=180, poll_s=0.5)
    text = slurm.run(["cat", out], user="alice").stdout
    assert done, text
    found = json.loads(next(line for line in text.splitlines() if line.startswith("[[")))
    assert len({node for node, _, _ in found}) == 2
    assert [rest for _, *rest in found] == [["v100-16g", 1]] * 2


def _state(slurm: Sandbox, job: str) -> str:
    return slurm.run(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"]).stdout.strip()
