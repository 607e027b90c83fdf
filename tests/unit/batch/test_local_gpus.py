"""Which cards this machine has, and who gets which."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.local import LocalBatch
from ischeduler.batch.local_gpus import Cards, find_cards, parse_cards
from ischeduler.cidb.accelerators import by_gres
from ischeduler.core.errors import BadInput, SubmitRefused
from ischeduler.core.jobs import JobRef, JobSpec, JobState, Resources
from ischeduler.core.sizes import MIB

TWO_KINDS = "0, Tesla V100-PCIE-32GB, 32510\n1, NVIDIA GeForce GT 710, 2000\n2, Tesla V100-PCIE-32GB, 32510\n"


def test_cards_of_the_first_kind_are_handed_out() -> None:
    assert parse_cards(TWO_KINDS) == Cards(("0", "2"), "Tesla V100-PCIE-32GB", 32510 * MIB)
    assert parse_cards("No devices were found\n") == parse_cards("") == Cards()


@pytest.mark.parametrize(
    ("setting", "count", "product"), [("none", 0, ""), ("0", 0, ""), ("2", 2, ""), ("v100-32g:3", 3, "v100-32g")]
)
def test_declared_cards(setting: str, count: int, product: str) -> None:
    cards = find_cards(setting)
    assert (len(cards.indices), cards.product) == (count, product)


@pytest.mark.parametrize("setting", ["many", "v100:", "v100:99999"])
def test_other_texts_are_refused(setting: str) -> None:
    with pytest.raises(BadInput, match=r"local\.gpus"):
        find_cards(setting)


def machine(folder: Path, gpus: str) -> LocalBatch:
    return LocalBatch(folder / "local", SystemClock(), cores=8, gpus=gpus, card_of=lambda product: by_gres(product)[0])


def job(folder: Path, key: str, gpus: int, seconds: float = 0) -> JobSpec:
    command = ("sh", "-c", f'echo "cards=[$CUDA_VISIBLE_DEVICES]"; sleep {seconds}')
    resources = Resources(gpus_per_node=gpus, walltime_s=60)
    return JobSpec(key, key, "main", resources, command, str(folder), str(folder / f"{key}.out"), signal_lead_s=None)


def until(batch: LocalBatch, key: str, state: JobState) -> None:
    for _ in range(600):
        if batch.observe([JobRef(key)]).jobs[key][0].state is state:
            return
        time.sleep(0.05)
    raise AssertionError(batch.observe([JobRef(key)]))


def test_every_job_has_its_own_cards_and_waits_for_them(tmp_path: Path) -> None:
    batch = machine(tmp_path, "v100-32g:3")
    batch.submit(job(tmp_path, "a", 2, 300))
    first = batch.submit(job(tmp_path, "b", 1, 300))
    for key in "ab":
        while not (tmp_path / f"{key}.out").exists() or not (tmp_path / f"{key}.out").read_text():
            time.sleep(0.05)
    batch.submit(job(tmp_path, "c", 1))
    batch.submit(job(tmp_path, "d", 0))
    assert batch.observe([JobRef("c")]).jobs["c"][0].state is JobState.PENDING
    batch.cancel(first)
    until(batch, "c", JobState.COMPLETED)
    until(batch, "d", JobState.COMPLETED)
    said = {k: (tmp_path / f"{k}.out").read_text().strip() for k in "abcd"}
    assert said == {"a": "cards=[0,1]", "b": "cards=[2]", "c": "cards=[2]", "d": "cards=[]"}
    for waiting in batch.snapshot().jobs:
        batch.cancel(waiting.job_id)
    until(batch, "a", JobState.CANCELLED)


def test_the_planner_sees_the_cards(tmp_path: Path) -> None:
    (node,) = machine(tmp_path, "v100-32g:2").cluster(0.0).node_types
    assert node.accelerator is not None
    assert (node.accelerator.name, node.accelerators_per_node) == ("v100-32g", 2)
    assert node.accelerator.fp16_flops == 112e12
    (plain,) = machine(tmp_path, "none").cluster(0.0).node_types
    assert plain.accelerator is None


def test_more_cards_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(SubmitRefused, match="asks for 2 GPUs and this machine has 1"):
        machine(tmp_path, "1").submit(job(tmp_path, "x", 2))
