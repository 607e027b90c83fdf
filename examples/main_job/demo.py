"""The main job from the first estimate to the last report, with the faults that happen: what ``./scripts/demo`` runs.

A user of a real Slurm (the sandbox) has a small residual network trained on real data over several walltime limits; the
plane is killed with -9, a node is taken down, and the training moves to another partition. At the end the weights are
compared with those of an uninterrupted run of the same seed. Every command shown is one a person could type.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from acts import Story
from stage import LocalStage, SlurmStage, Stage

TARGET_TRAINING_S = 160.0
"""Training time aimed at: enough for three limits of one minute and a failure, short enough for a demo."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["slurm", "local"], default="slurm")
    parser.add_argument("--training-s", type=float, default=TARGET_TRAINING_S, help="training time to aim at, seconds")
    parser.add_argument("--keep", action="store_true", help="leave the sandbox running afterwards")
    args = parser.parse_args()
    started = time.monotonic()
    stage: Stage = SlurmStage() if args.engine == "slurm" else LocalStage()
    try:
        stage.up()
        proven = Story(stage, args.training_s).tell()
    except KeyboardInterrupt:
        print("\ninterrupted; cleaning up")
        return 130
    finally:
        if not args.keep:
            stage.down()
    print(f"\nThe whole demo took {time.monotonic() - started:.0f} s.")
    stage.hints(kept=args.keep)
    return 0 if proven else 1


if __name__ == "__main__":
    sys.exit(main())
