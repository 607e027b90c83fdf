"""What torch adds: loaders of all kinds resumed inside an epoch, generators, plain loading, and a full disk under torch.save."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ischeduler.training import checkpointing  # noqa: E402
from ischeduler.training.callbacks_torch import ResumableLoader  # noqa: E402
from ischeduler.training.files import errno_of  # noqa: E402
from ischeduler.training.loader import from_batch, order_state, set_epoch, set_order_state  # noqa: E402
from ischeduler.training.state import get_set, read_state, rng_state, set_rng_state, unwrapped, write_state  # noqa: E402

DATA = TensorDataset(torch.arange(40))


class Noisy(torch.utils.data.Dataset):
    """Random augmentation in the dataset, from the process's (or the worker's) own generator."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return index + torch.rand(())


def loaders() -> dict[str, Any]:
    return {
        "global": lambda: DataLoader(DATA, batch_size=4, shuffle=True),
        "generator": lambda: DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3)),
        "weighted": lambda: DataLoader(
            DATA, batch_size=4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 40, 40, generator=torch.Generator())
        ),
        "augmented": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
        "workers": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2),
    }


def flat(batch: Any) -> list[float]:
    return (batch[0] if isinstance(batch, list) else batch).tolist()


def epochs_of(make: Any, folder: Path, stop_at: int | None, fast_skip: bool = False) -> list[list[float]]:
    """All batches of two epochs, up to the step at which the process would be stopped."""
    seen: list[list[float]] = []
    loader = make()
    state = (lambda: list(seen), seen.extend)
    with (
        contextlib.suppress(SystemExit),
        checkpointing(epochs=2, every_epochs=0, directory=folder, fast_skip=fast_skip, seen=state) as run,
    ):
        for _ in run.epochs():
            for _, batch in run.steps(loader):
                seen.append(flat(batch))
                if run.step_count + 1 == stop_at:
                    run.job.flag.set("SIGUSR2")
                run.step(loss=torch.rand(()))
    return seen


@pytest.mark.parametrize("kind", list(loaders()))
@pytest.mark.parametrize("stop_at", [1, 4, 8])
def test_an_interrupted_epoch_goes_on_with_the_very_next_batch(tmp_path: Path, kind: str, stop_at: int) -> None:
    make = loaders()[kind]
    torch.manual_seed(11)
    want = epochs_of(make, tmp_path / "straight", None)
    torch.manual_seed(11)
    assert len(epochs_of(make, tmp_path / "cut", stop_at)) == stop_at
    torch.manual_seed(999)
    assert epochs_of(make, tmp_path / "cut", None) == want


def test_fast_skipping_gives_the_same_samples(tmp_path: Path) -> None:
    make = loaders()["generator"]
    want = epochs_of(make, tmp_path / "straight", None)
    epochs_of(make, tmp_path / "cut", 4)
    assert epochs_of(make, tmp_path / "cut", None, fast_skip=True) == want


def test_fast_skipping_loads_nothing() -> None:
    class Counting(torch.utils.data.Dataset):
        loaded = 0

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> int:
            Counting.loaded += 1
            return index

    loader = DataLoader(Counting(), batch_size=4)
    sampler = loader.batch_sampler
    rest = [batch.tolist() for batch in from_batch(loader, 7, fast=True)]
    assert rest == [[28, 29, 30, 31], [32, 33, 34, 35], [36, 37, 38, 39]]
    assert Counting.loaded == 12
    assert loader.batch_sampler is sampler
    assert len(list(loader)) == 10


def test_samplers_are_told_the_epoch() -> None:
    sampler = torch.utils.data.distributed.DistributedSampler(DATA, num_replicas=2, rank=0)
    set_epoch(DataLoader(DATA, batch_size=4, sampler=sampler), 5)
    assert sampler.epoch == 5


def test_order_state_covers_the_loader_s_own_generators() -> None:
    loader = loaders()["generator"]()
    state = order_state(loader)
    first = [flat(batch) for batch in loader]
    assert [flat(batch) for batch in loader] != first
    set_order_state(loader, state)
    assert [flat(batch) for batch in loader] == first


def test_resumable_loader_inside_and_between_epochs() -> None:
    def fresh() -> ResumableLoader:
        return ResumableLoader(loaders()["global"]())

    torch.manual_seed(4)
    loader = fresh()
    want = [[flat(batch) for batch in loader] for _ in range(2)]
    torch.manual_seed(4)
    loader, seen = fresh(), []
    for number, batch in enumerate(loader):
        seen.append(flat(batch))
        if number == 6:
            break
    state = loader.state_dict()
    assert state["batch"] == 7
    torch.manual_seed(99)
    heir = fresh()
    heir.load_state_dict(state)
    seen += [flat(batch) for batch in heir]
    between = heir.state_dict()
    assert between["batch"] == 0
    torch.manual_seed(98)
    last = fresh()
    last.load_state_dict(between)
    assert [seen, [flat(batch) for batch in last]] == want
    assert last.batch_size == 4
    assert len(last) == 10


def test_generators_read_back(tmp_path: Path) -> None:
    import random

    import numpy

    def draw() -> tuple[float, ...]:
        return random.random(), random.gauss(0, 1), float(numpy.random.rand()), float(torch.rand(()))

    random.gauss(0, 1)  # leaves a second value inside the generator
    write_state(tmp_path / "rng.pt", {"rng": rng_state()})
    want = draw(), draw()
    torch.load(tmp_path / "rng.pt", weights_only=True)  # plain data: no code is run to read it
    set_rng_state(read_state(tmp_path / "rng.pt")["rng"])
    assert (draw(), draw()) == want


def test_own_objects_in_the_state_read_back(tmp_path: Path) -> None:
    write_state(tmp_path / "x.pt", {"own": Path("/a/b"), "w": torch.ones(3)})
    state = read_state(tmp_path / "x.pt")
    assert state["own"] == Path("/a/b")
    assert torch.equal(state["w"], torch.ones(3))


def test_a_full_disk_under_torch_save_is_known_by_its_errno(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    (tmp_path / "full.pt").symlink_to("/dev/full")
    with pytest.raises((OSError, RuntimeError)) as caught:
        write_state(tmp_path / "full.pt", {"w": torch.ones(10_000)})
    assert errno_of(caught.value) == errno.ENOSPC


def test_a_parallel_model_is_saved_without_its_wrapper() -> None:
    inner = torch.nn.Linear(2, 2)
    assert unwrapped(torch.nn.DataParallel(inner)) is inner
    get, _ = get_set("model", torch.nn.DataParallel(inner))
    assert set(get()) == {"weight", "bias"}
    container = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert unwrapped(container) is container
