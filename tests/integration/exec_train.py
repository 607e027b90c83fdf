"""A real little training for the tests: dropout, momentum, a schedule, shuffling, evaluation.

Arguments: output file, epochs, [pause per step in s], [ddp]. The digest of the final weights goes to the output file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import torch
from torch import nn

from ischeduler.training import checkpointing

out, epochs = sys.argv[1], int(sys.argv[2])
pause_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
ddp = "ddp" in sys.argv
torch.set_num_threads(1)
sys.setswitchinterval(float(os.environ.get("TEST_SWITCH_S", "0.005")))
torch.manual_seed(7)
if ddp:
    torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank() if ddp else 0

x = torch.randn(96, 8)
y = (x[:, :1] * x[:, 1:2]).tanh()
data = torch.utils.data.TensorDataset(x, y)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
if ddp:
    model = nn.parallel.DistributedDataParallel(model)
    torch.manual_seed(100 + rank)
    sampler = torch.utils.data.distributed.DistributedSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
else:
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
every_s = float(os.environ.get("TEST_EVERY_S", "600"))

with checkpointing(model=model, optimizer=optimizer, scheduler=scheduler, epochs=epochs, every_s=every_s) as run:
    print(f"entered at {run.position}", flush=True)
    for epoch in run.epochs():
        model.train()
        for _, (a, b) in run.steps(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            time.sleep(pause_s)
            run.step(loss=loss)
        model.eval()
        with torch.no_grad():
            score = nn.functional.mse_loss(model(x), y)
        scheduler.step()
        run.epoch_end(metrics={"loss": loss, "score": score})
        print(f"epoch {epoch} rank {rank} done", flush=True)

plain = model.module if ddp else model
digest = hashlib.sha256()
for name, value in sorted(plain.state_dict().items()):
    digest.update(name.encode() + value.numpy().tobytes())
if rank == 0:
    with open(out, "w") as file:
        file.write(digest.hexdigest())
if ddp:
    torch.distributed.destroy_process_group()
