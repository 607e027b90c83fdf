"""A small training without any framework, so that five of them fit on one machine: softmax regression on made-up digits.

The lines that know iScheduler are the two marked ones. The final weights depend on the seed alone, however often it was cut.
"""

from __future__ import annotations

import argparse
import json
import math
import random

PIXELS, CLASSES = 64, 10


class Model:
    """Weights of a softmax regression."""

    def __init__(self) -> None:
        self.weights = [[0.0] * PIXELS for _ in range(CLASSES)]

    def state_dict(self) -> dict[str, object]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, list[list[float]]]) -> None:
        self.weights = state["weights"]

    def step(self, image: list[float], label: int, rate: float = 0.1) -> float:
        """One step of gradient descent; the loss before it."""
        scores = [sum(w * x for w, x in zip(row, image, strict=True)) for row in self.weights]
        top = max(scores)
        shares = [math.exp(s - top) for s in scores]
        total = sum(shares)
        for number, row in enumerate(self.weights):
            error = shares[number] / total - (number == label)
            for pixel, x in enumerate(image):
                row[pixel] -= rate * error * x
        return -math.log(max(1e-12, shares[label] / total))


def digits(samples: int, seed: int) -> list[tuple[list[float], int]]:
    """Noisy copies of ten random pictures."""
    draw = random.Random(seed)
    pictures = [[draw.random() for _ in range(PIXELS)] for _ in range(CLASSES)]
    labels = [draw.randrange(CLASSES) for _ in range(samples)]
    return [([x + draw.gauss(0, 0.4) for x in pictures[label]], label) for label in labels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", default="result.json")
    args = parser.parse_args()
    data, model = digits(args.samples, args.seed), Model()

    from ischeduler.training import checkpointing  # iScheduler, line one

    with checkpointing(model=model, epochs=args.epochs) as run:  # line two
        for _ in run.epochs():
            loss = 0.0
            for _, (image, label) in run.steps(data):
                loss = 0.99 * loss + 0.01 * model.step(image, label)
                run.step(loss=loss)
            run.epoch_end(metrics={"loss": loss})
    with open(args.result, "w", encoding="utf-8") as file:
        json.dump({"epochs": args.epochs, "seed": args.seed, "loss": loss, "sum": sum(map(sum, model.weights))}, file)
    print(f"done: {args.epochs} epochs, loss {loss:.4f}")


if __name__ == "__main__":
    main()
