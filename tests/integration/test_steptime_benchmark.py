"""The benchmark of step times on a small world it can fit exactly, on bad input, and the calibration of this computer for real."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import steptime
from benchmarks.steptime_data import BadTruth, PhaseTime, Truth, read, thinned
from benchmarks.steptime_logs import Logs, rescaled
from benchmarks.steptime_models import device_of

from ischeduler.estimators.calibration import record as kept
from ischeduler.estimators.steptime.oplog import DATA_GRADIENT, WEIGHT_GRADIENT, OpRow
from ischeduler.estimators.steptime.roofline import phase_seconds

ROOT = Path(__file__).resolve().parents[2]
CARDS = ("NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB")
MODELS = ("resnet18", "vgg11", "mnasnet0_5", "densenet121", "squeezenet1_0")


class Kept(Logs):
    """Logs of networks made up from their names."""

    def rows(self, model: str, batch: int, **given: Any) -> tuple[OpRow, ...]:
        chance, rows = random.Random(model), []
        for phase, flags in (("forward", 0), ("backward", DATA_GRADIENT | WEIGHT_GRADIENT)):
            for _ in range(8):
                channels, size = chance.choice((32, 128, 512)), chance.choice((7, 14, 56))
                shape = (batch, channels, size, size, channels, 3, 3, 1, 1, flags)
                rows.append(OpRow(phase, "conv3x3", "fp32", 0.0, 1e6, 2, shape))
                rows.append(OpRow(phase, "norm", "fp32", 0.0, 8.0 * batch * channels * size * size, 2))
        return tuple(rows)


def measured(factor: float) -> list[PhaseTime]:
    """What the shipped prior says of each network, times a factor: a card that another site measured."""
    found: list[PhaseTime] = []
    for card in CARDS:
        device = device_of(card)
        assert device is not None
        for model in MODELS:
            log = Kept().rows(f"torchvision:{model}", 32)
            for batch in (4, 8, 16, 32, 64, 128):
                seconds = phase_seconds(rescaled(log, 32, batch), device, "fp32")
                found += [PhaseTime(card, model, p, batch, factor * seconds[p]) for p in ("forward", "backward")]
    return found


@pytest.mark.torch
def test_a_world_of_its_own_making_is_predicted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    metrics, bars = steptime.study(Truth(tuple(measured(1.2))), None, True, Kept(tmp_path), True, lambda words: None)
    assert {"a100_forward_median", "v100_backward_median", "a100_backward_after_one_step_median"} <= {b.metric for b in bars}
    assert metrics["a100_forward_shipped_prior_median"] == pytest.approx(1 - 1 / 1.2, abs=1e-6)
    assert metrics["v100_forward_median"] < 0.12
    assert metrics["v100_forward_after_one_step_median"] < 0.05
    assert metrics["v100_forward_datasheet_median"] > 0.2


def test_batches_are_sampled_evenly_and_the_same_way_again() -> None:
    curve = [PhaseTime("c", "m", p, float(b), 1.0) for b in range(1, 257) for p in ("forward", "backward")]
    kept_batches = sorted({p.batch for p in thinned(curve, 8)})
    assert thinned(curve, 8) == thinned(curve, 8)
    assert 32.0 in kept_batches
    assert 8 <= len(kept_batches) <= 9
    assert sum(b > 128 for b in kept_batches) == 4


@pytest.mark.parametrize(("name", "text", "words"), [
    ("x.csv", "a,b\n1,2\n", "has no step times"), ("x.csv", "", "has no step times"), ("absent.csv", None, "is not there"),
    ("x.parquet", "no parquet", "cannot be read"),
])
def test_bad_truth_is_one_sentence_and_code_2(
    tmp_path: Path, name: str, text: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if text is not None:
        (tmp_path / name).write_text(text)
    assert steptime.main(["--truth", str(tmp_path / name), "--json"]) == 2
    assert words in capsys.readouterr().err


def test_formats_are_known_by_their_columns(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("phase,gpu,model,Batch_Size,seconds\nforward,Tesla_K80,vgg11,8,0.5\nforward,Tesla_K80,vgg11,9,0\n")
    assert read(table).phases == (PhaseTime("Tesla_K80", "vgg11", "forward", 8.0, 0.5),)
    label = tmp_path / "labels" / "Tesla_T4" / "bert_large-train-512-2.json"
    label.parent.mkdir(parents=True)
    label.write_text(json.dumps({"e2e_latency": 300.0, "fw_latency": 100.0, "bwall_latency": 200.0}))
    (label.parent / "bert_large-train-512-2-fusion.json").write_text(label.read_text())
    one = read(tmp_path / "labels").latencies[0]
    assert (one.card, one.model, one.mode, one.length, one.batch) == ("Tesla_T4", "bert_large", "train", 512, 2)
    assert (one.forward_s, one.backward_s) == (pytest.approx(0.1), pytest.approx(0.2))
    summary = tmp_path / "e2e.csv"
    summary.write_text("device,config,model,mode,seqlen,batch,bwall_latency,e2e_latency,fw_latency\n"
                       "Tesla_T4,c,bert_large,inf,512,8,0.0,50.0,50.0\nTesla_T4,c,gpt2_large,train,1024,4-dp4,0,1,1\n")
    assert [x.mode for x in read(summary).latencies] == ["inf"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadTruth, match="expected columns"):
        read(tmp_path / "nothing")


@pytest.mark.torch
def test_this_computer_is_calibrated_and_the_record_kept(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "ischeduler.cli.main", "calibrate", "--seconds", "1", "--node-type", "here", "--json"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    answer = json.loads(done.stdout)
    assert answer["schema"] == "isched.calibrate/1"
    one = answer["calibrations"][0]
    assert one["kind"] == "cpu"
    assert one["product_flops"] > 1e8
    record = kept.read(Path(one["path"]))
    assert record.cpu is not None
    assert (record.node_type, record.cpu.matmul_flops) == ("here", one["product_flops"])
    assert record.file_name == Path(one["path"]).name
    wrong = subprocess.run([*command[:4], "--seconds", "0"], capture_output=True, text=True, env=environment, check=False)
    assert (wrong.returncode, "between 1 and 600" in wrong.stderr) == (2, True)


@pytest.mark.torch
@pytest.mark.slow
def test_the_long_measurement_rehearsed_on_a_cpu(tmp_path: Path) -> None:
    if importlib.util.find_spec("timm") is None or importlib.util.find_spec("torch") is None:
        pytest.skip("timm or PyTorch is not installed")
    out = tmp_path / "record.json"
    command = [sys.executable, str(ROOT / "scripts" / "measure-accelerator"), "--small", "--fit", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    record = kept.read(out)
    assert [r.failed for r in record.steps] == [""] * 3
    assert all(r.step_s and r.step_s > 0 for r in record.steps)
    assert {o.kind for o in record.operations} >= {"conv3x3", "matmul", "norm", "pool", "elementwise"}
    fitted = record.fitted()
    assert fitted is not None
    assert fitted.origin == "3 models measured"
