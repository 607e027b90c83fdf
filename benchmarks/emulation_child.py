"""The training that ``benchmarks.emulation`` runs under ``isched emulate``: an ordinary script, without a word about emulation.

Arguments: model, batch, steps (0: look for the batch that no longer fits, from ``batch`` on in steps of 16). Prints one JSON line.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import torch
import torchvision


def main() -> None:
    name, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = getattr(torchvision.models, name)(**({"init_weights": False} if name == "googlenet" else {})).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if steps:
        epoch(model, optimizer, batch, 3)
        began = time.perf_counter()
        epoch(model, optimizer, batch, steps)
        print(json.dumps({"epoch_s": time.perf_counter() - began}))
        return
    while fits(model, optimizer, batch):
        batch += 16
    print(json.dumps({"oom_batch": batch}))


def fits(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> bool:
    try:
        epoch(model, optimizer, batch, 2)
    except torch.cuda.OutOfMemoryError:
        return False
    gc.collect()
    torch.cuda.empty_cache()
    return True


def epoch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: int, steps: int) -> None:
    images, labels = torch.zeros(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
    for _ in range(steps):
        out = model(images.cuda())
        out = out if isinstance(out, torch.Tensor) else out.logits
        loss = torch.nn.functional.cross_entropy(out, labels.cuda())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        del out, loss
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
