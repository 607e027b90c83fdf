"""Measured times in GPEmu's layout, and what travels to the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from ischeduler.core.errors import BadInput
from ischeduler.emulator.spec import EmulationSpec
from ischeduler.emulator.tables import at, read_table
from ischeduler.helper.emulation import Table, emulation_of, environment_of, find_accelerator


def folder(root: Path, text: str = "Batch_Size,Time_In_SECONDS\n1,0.01\n32,0.2\n64,0.4\n") -> Path:
    for phase in ("forward", "backward"):
        path = root / "time" / "compute" / phase / "Tesla_V100" / "resnet50" / "time_by_batch_size.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(("batch", "seconds"), [(1, 0.01), (32, 0.2), (48, 0.3), (128, 0.8), (0.5, 0.01)])
def test_times_between_and_beyond_what_was_measured(batch: float, seconds: float) -> None:
    assert at({1: 0.01, 32: 0.2, 64: 0.4}, batch) == pytest.approx(seconds)


def test_a_folder_in_gpemus_layout(tmp_path: Path) -> None:
    table = read_table(folder(tmp_path), "Tesla_V100", "resnet50")
    assert (table.seconds("forward", 32), table.seconds("backward", 64), table.transfer) == (0.2, 0.4, {})


@pytest.mark.parametrize(
    ("gpu", "model", "words"),
    [("Tesla_V100", "resnet51", r"no model 'resnet51'.*resnet50"), ("Tesla_K80", "resnet50", r"no GPU 'Tesla_K80'.*Tesla_V100")],
)
def test_what_is_missing_is_named(tmp_path: Path, gpu: str, model: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_table(folder(tmp_path), gpu, model)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "Batch_Size,Time_In_SECONDS\n", "Batch_Size,Time_In_SECONDS\n1,fast\n", "Batch_Size,Time_In_SECONDS\n0,1\n"])
def test_tables_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="time_by_batch_size"):
        read_table(folder(tmp_path, text), "Tesla_V100", "resnet50")


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="GPEmu's layout"):
        emulation_of("v100-32g", table=Table(str(tmp_path), "a", "b"))


def test_the_spec_survives_its_journey() -> None:
    spec = emulation_of("Tesla V100-PCIE-32GB", count=2, preprocess_s=0.002)
    environ = environment_of(spec, {"PYTHONPATH": "/mine", "HOME": "/home/ada"})
    assert EmulationSpec.from_environment(environ) == spec
    assert environ["PYTHONPATH"].endswith(":/mine")
    assert (spec.card.name, spec.count) == ("v100-32g", 2)
    assert EmulationSpec.from_environment({}) is None
    with pytest.raises(BadInput, match="isched emulate"):
        EmulationSpec.from_environment({"ISCHED_EMULATE": "v100"})


def test_unknown_cards_and_no_job() -> None:
    with pytest.raises(BadInput, match="no datasheet of 'x9000'"):
        find_accelerator("x9000")
    with pytest.raises(BadInput, match="this is none"):
        find_accelerator("auto", {})
