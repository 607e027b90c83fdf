# isched: name = "digits-resnet"
# isched: model = "train.py:build_model"
# isched: input_shape = [1, 24, 24]
# isched: classes = 10
# isched: samples = 1797
# isched: epochs = 40
# isched: batch_size = 64
# isched: optimizer = "sgd"
# isched: command = ["python", "train.py", "--epochs", "{epochs}", "--batch-size", "{batch_size}"]
"""A small residual network on scikit-learn's handwritten digits (1,797 real 8 x 8 images, shipped with the package).

The only lines that know iScheduler are the two marked below; without a scheduler around it the script runs as it is.
One thread and fixed seeds make the final weights a function of the seed alone, however often the training was cut.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def build_model(width: int = 16, classes: int = 10) -> nn.Module:
    """The network; iScheduler calls this to size the training."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(4 * width, classes),
    )  # fmt: skip


def load_digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 24, 24) in [0, 1], three times their size, and labels (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    return nn.functional.interpolate(images, scale_factor=3), torch.tensor(digits.target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="weights.pt", help="where the final weights are written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)

    images, labels = load_digits()
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), args.batch_size, shuffle=True)

    from ischeduler.training import checkpointing  # iScheduler, line one

    with checkpointing(model=model, optimizer=optimizer, epochs=args.epochs) as run:  # line two
        for _ in run.epochs():
            for _, (x, y) in run.steps(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss=loss)
            run.epoch_end(metrics={"loss": loss})
    torch.save(model.state_dict(), args.weights)
    print(f"done: {args.epochs} epochs, weights in {args.weights}")


if __name__ == "__main__":
    main()
