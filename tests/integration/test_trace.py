"""Tracing for real: figures against figures the first sketch reached, not those of a card, bad models, limits, and the facade's speed once a model was traced."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Resources
from ischeduler.core.sizes import GIB, MIB
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.estimators.builtins import built_ins
from ischeduler.estimators.facade import Estimators
from ischeduler.estimators.memory.report import memory_report
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.models.references import of_object
from ischeduler.estimators.profile import Place, measure_step_time
from ischeduler.estimators.steptime.cpu import calibrate_cpu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NET = """
import torch
from torch import nn

def build_model(width=64):
    body = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(width, 10))
"""


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    return Tracer(tmp_path_factory.mktemp("traces"))


def spec(model: str, **changes: object) -> TraceSpec:
    return replace(TraceSpec(model, 8), **changes)  # type: ignore[arg-type]


def written(folder: Path, text: str, name: str = "net.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder)


def commands() -> Iterator[str]:
    """The command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield path.read_bytes().decode(errors="replace")


def refused(tracer: Tracer, asked: TraceSpec) -> str:
    with pytest.raises(EstimatorFailed) as caught:
        tracer.report(asked)
    text = str(caught.value)
    assert "\n" not in text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(("batch", "precision", "allocated", "reserved"), [
    (32, "fp32", 2765, 3252), (64, "fp32", 5425, 6230), (32, "bf16", 1534, 1786), (64, "bf16", 2901, 3350),
])
def test_resnet50_stays_at_the_sketch_figures(tracer: Tracer, batch: int, precision: str, allocated: int, reserved: int) -> None:
    report = tracer.report(TraceSpec("timm:resnet50", batch, precision=precision))
    assert report.backend == "fake-accelerator"
    assert report.allocated_bytes / MIB == pytest.approx(allocated, rel=0.01)
    assert report.reserved_bytes / MIB == pytest.approx(reserved, rel=0.01)
    assert report.parameters == 25_557_032
    assert report.fixed_bytes + report.activations_bytes == report.allocated_bytes
    flops = sum(r.flops * r.count for r in report.operations)
    assert flops / batch == pytest.approx(3 * 2 * 4.1e9, rel=0.03)  # 4.1 GMACs forward, twice that backward


def test_the_second_call_answers_from_disk_at_once(tracer: Tracer) -> None:
    asked = TraceSpec("timm:resnet50", 32)
    first = tracer.report(asked)
    again = Tracer(tracer.cache_dir)
    started = time.perf_counter()
    assert again.report(asked) == first
    assert time.perf_counter() - started < 0.05
    assert again.traced == 0


def test_optimizers_precision_and_accumulation_show(tracer: Tracer, tmp_path: Path) -> None:
    folder = written(tmp_path, NET)
    base = spec("net.py:build_model", directory=folder, input_shape=(3, 32, 32))
    plain = tracer.report(base)
    trainable = plain.parameters * 4
    assert plain.optimizer_bytes == 0
    assert tracer.report(replace(base, optimizer="momentum")).optimizer_bytes == pytest.approx(trainable, rel=0.02)
    assert tracer.report(replace(base, optimizer="AdamW")).optimizer_bytes == pytest.approx(2 * trainable, rel=0.02)
    assert tracer.report(replace(base, precision="bf16")).allocated_bytes < plain.allocated_bytes
    assert tracer.report(replace(base, accumulate=True)).allocated_bytes >= plain.allocated_bytes
    wider = tracer.report(replace(base, options={"model.width": "128"}))
    assert wider.parameters == 128 * 28 + 128 * 10 + 10
    assert "did you mean adamw?" in refused(tracer, replace(base, optimizer="adamww")).replace("'", "")


def test_memory_grows_with_the_batch_in_a_straight_line(tracer: Tracer, tmp_path: Path) -> None:
    folder = written(tmp_path, NET)
    sizes = [tracer.report(spec("net.py:build_model", directory=folder, input_shape=(3, 64, 64), batch=b)) for b in (16, 32, 64)]
    first, second = (b.allocated_bytes - a.allocated_bytes for a, b in itertools.pairwise(sizes))
    assert second == pytest.approx(2 * first, rel=0.02)


def test_a_changed_file_is_traced_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = written(tmp_path, NET)
    asked = spec("net:build_model", directory=folder, input_shape=(3, 32, 32))
    before = Tracer(cache).report(asked)
    written(tmp_path, NET.replace("width=64", "width=96"))
    assert Tracer(cache).report(asked).parameters > before.parameters


def test_a_saved_object_and_the_users_own_batches(tracer: Tracer, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 10))
    report = tracer.report(spec(of_object(model, tmp_path), input_shape=(3, 4, 4)))
    assert report.parameters == 490
    folder = written(tmp_path, """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.out = nn.Embedding(100, 16), nn.Linear(16, 3)
            def forward(self, words, lengths):
                return self.out(self.embed(words).sum(1) / lengths[:, None])
        def sample_batch(n):
            return torch.randint(0, 100, (n, 12)), torch.full((n,), 12.0), torch.randint(0, 3, (n,))
        def loss(model, batch):
            return nn.functional.cross_entropy(model(batch[0], batch[1]), batch[2])
    """)
    assert tracer.report(spec("net.py:Net", directory=folder)).backend == "fake-accelerator"


def test_transformers_need_no_download(tracer: Tracer) -> None:
    pytest.importorskip("transformers")
    report = tracer.report(spec("transformers:bert-base-uncased", batch=2, options={"sequence_length": "128"}, optimizer="adamw"))
    assert report.backend == "fake-accelerator"
    assert report.parameters == pytest.approx(109.5e6, rel=0.005)
    assert any(r.kind == "attention" for r in report.operations)
    assert "needs a download" in refused(tracer, spec("transformers:somebody/bert-base-uncasedd"))
    assert "bert-base-uncased" in refused(tracer, spec("transformers:bert-base-uncasedd"))


@pytest.mark.parametrize(("model", "words"), [
    ("timm:resnet51", "did you mean"), ("resnet5000x", "did you mean"), ("torchvision:resnet51", "did you mean"),
    ("no_such_module:build", "no module 'no_such_module'"), ("nowhere.py:build", "no file"),
])
def test_unknown_names_are_one_sentence_with_a_way_out(tracer: Tracer, tmp_path: Path, model: str, words: str) -> None:
    assert words in refused(tracer, spec(model, directory=str(tmp_path)))


@pytest.mark.parametrize(("text", "words"), [
    ("import no_such_package_xyz", "needs the package 'no_such_package_xyz'"),
    ("def build(): ...", "did you mean build?"),
    ("def build_model(): return 3", "must return a torch.nn.Module"),
    ("raise SystemExit(3)", "guard its main part"),
    ("def build_model(:", "SyntaxError"),
    ("from torch import nn\ndef build_model(): return nn.Linear(3, 3)", "set input_shape"),
])
def test_bad_files_are_one_sentence(tracer: Tracer, tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tracer, spec("net.py:build_model", directory=written(tmp_path, text)))


def test_data_dependent_control_flow_falls_back_and_says_so(tracer: Tracer, tmp_path: Path) -> None:
    folder = written(tmp_path, """
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3072, 10)
            def forward(self, x):
                x = self.layer(x.flatten(1))
                return x * 2 if x.sum().item() > 0 else x
    """)
    report = tracer.report(spec("net.py:Net", directory=folder, input_shape=(3, 32, 32)))
    assert report.backend == "parameters"
    assert report.weights_bytes == (3072 * 10 + 10) * 4
    assert "decides by its data" in report.notes[0]
    total = memory_report(report).total
    assert (total.basis, total.p90 > 1.2 * total.p10) == ("analytic", True)


def test_a_constructor_that_computes_is_built_on_the_cpu(tracer: Tracer, tmp_path: Path) -> None:
    folder = written(tmp_path, """
        import torch
        from torch import nn
        def build_model():
            rates = [x.item() for x in torch.linspace(0, 0.1, 3)]
            return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Dropout(rates[1]), nn.Linear(8, 4))
    """)
    assert tracer.report(spec("net.py:build_model", directory=folder, input_shape=(3, 4, 4))).backend == "fake-accelerator"


def test_a_model_whose_building_never_ends_is_stopped(tmp_path: Path) -> None:
    folder = written(tmp_path, "import subprocess, sys\ndef build_model():\n    subprocess.run([sys.executable, '-c', "
                               "'import time; time.sleep(987)'])\n")
    started = time.monotonic()
    text = refused(Tracer(tmp_path / "cache", time_limit_s=4), spec("net.py:build_model", directory=folder))
    assert "took longer than 4 s" in text
    assert time.monotonic() - started < 8
    assert not any("time.sleep(987)" in command for command in commands())


def test_a_forward_pass_that_never_ends_leaves_the_counted_weights(tmp_path: Path) -> None:
    folder = written(tmp_path, """
        from torch import nn
        class Net(nn.Linear):
            def forward(self, x):
                while True:
                    pass
        def build_model():
            return Net(48, 10)
    """)
    tracer = Tracer(tmp_path / "cache", time_limit_s=8)
    asked = spec("net.py:build_model", directory=folder, input_shape=(48,))
    report = tracer.report(asked)
    assert (report.backend, report.parameters) == ("parameters", 490)
    assert "took longer than 8 s" in report.notes[-1]
    assert tracer.report(asked) is report  # remembered here
    assert list((tmp_path / "cache").glob("*.json")) == []  # not for ever


def test_a_model_that_fills_the_memory_is_stopped(tmp_path: Path) -> None:
    folder = written(tmp_path, "def build_model():\n    kept = []\n    while True:\n        kept.append(bytearray(2**25))\n")
    tracer = Tracer(tmp_path / "cache", time_limit_s=60, memory_limit_bytes=GIB)
    assert "needed more than 1 GB" in refused(tracer, spec("net.py:build_model", directory=folder))


def test_a_crash_of_the_interpreter_is_a_sentence(tmp_path: Path, tracer: Tracer) -> None:
    folder = written(tmp_path, "import os\ndef build_model():\n    os.abort()\n")
    assert "ended with code -6" in refused(tracer, spec("net.py:build_model", directory=folder))


def test_a_python_without_torch_says_which_extra(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    tracer = Tracer(tmp_path / "cache")
    with pytest.raises(EstimatorFailed, match=r"ischeduler\[torch\]"):
        tracer.report(TraceSpec("timm:resnet50", 8), python)
    counted = tracer.report(TraceSpec("timm:resnet50", 8, options={"parameters": "25.6e6"}), python)
    assert (counted.backend, counted.weights_bytes) == ("parameters", 102_400_000)
    with pytest.raises(EstimatorFailed, match="does not run"):
        tracer.report(TraceSpec("timm:resnet50", 8), "/nonexistent/python")


def test_the_users_own_python_needs_nothing_of_ours(tmp_path: Path) -> None:
    """An interpreter that sees torch but not this package."""
    own = tmp_path / "own"
    own.write_text(f"#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S \"$@\"\n")
    site = os.path.dirname(os.path.dirname(torch.__file__))
    own.write_text(f"#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S \"$@\"\n")
    own.chmod(0o755)
    folder = written(tmp_path, NET)
    report = Tracer(tmp_path / "cache").report(spec("net.py:build_model", directory=folder, input_shape=(3, 8, 8)), str(own))
    assert report.backend == "fake-accelerator"


def test_the_largest_batch_fits_when_traced(tracer: Tracer) -> None:
    parts = built_ins(tracer=tracer, plug_ins=False)
    work = Workload(model="timm:resnet50", batch_size=64)
    largest = parts.trace.largest_batch_that_fits(work, 16 * GIB)
    total = memory_report(tracer.report(TraceSpec("timm:resnet50", largest))).total
    assert 0.9 * 16 * GIB < total.p90 <= 1.01 * 16 * GIB
    assert Estimators(parts).fitting_accumulation(replace(work, batch_size=64), 6 * GIB) == 2


def _centres() -> list[Cluster]:
    card = Accelerator("v100-32g", 32 * GIB, fp32_flops=15.7e12, bf16_flops=125e12, bandwidth_bytes_s=9e11)
    made: list[Cluster] = []
    for number in range(10):
        own = replace(card, fp32_flops=15.7e12 + number)
        nodes = (NodeType("gpu", 48, 384 * GIB, own, 2, 40), NodeType("cpu", 40, 192 * GIB, count=200))
        partitions = tuple(Partition(f"p{i}", (nodes[i % 2].name,)) for i in range(10))
        made.append(Cluster(f"c{number}", partitions=partitions, node_types=nodes))
    return made


def test_ten_clusters_all_partitions_two_batches_in_two_seconds(tracer: Tracer) -> None:
    now = 1_800_000_000.0
    work = Workload(model="timm:resnet50", samples=20_000, epochs=50, batch_size=(32, 64))
    for variant in work.variants():
        tracer.report(TraceSpec.of(variant))
    fresh = Tracer(tracer.cache_dir)
    records = [
        HistoryRecord(f"r{i}", "attempt", "me", "other", "c1", f"p{i % 10}", "gpu", now - i * 3600, wait_s=60.0 * i)
        for i in range(500)
    ]
    counts = tuple(
        NodeCounts(f"p{i}", ("gpu", "cpu")[i % 2], idle=i % 3, allocated=30, total_gpus=60 * (1 - i % 2)) for i in range(10)
    )
    jobs = tuple(
        QueuedJob(str(i), f"p{i % 10}", ("PENDING", "RUNNING")[i // 10 % 2], start_s=now - 600, limit_s=36000.0)
        for i in range(1000)
    )
    clusters = _centres()
    snapshots = {c.name: QueueSnapshot(c.name, now - 5, counts, jobs) for c in clusters}
    estimators = Estimators(built_ins(tracer=fresh, plug_ins=False), lambda **_: records)
    started, answered = time.perf_counter(), 0
    for cluster in clusters:
        for partition in cluster.partitions:
            node = cluster.node_type(partition.node_types[0])
            resources = Resources(cpus_per_node=8 if node.accelerator else 40, gpus_per_node=1 if node.accelerator else 0)
            for variant in work.variants():
                needs = estimators.needs(variant, cluster, partition, node, resources, snapshots[cluster.name], now)
                answered += needs.run is not None and needs.wait is not None and needs.host_memory is not None
    assert answered == 200
    assert fresh.traced == 0
    assert time.perf_counter() - started < 2.0


def test_a_profile_is_evidence_that_beats_the_roofline(tracer: Tracer, tmp_path: Path) -> None:
    folder = written(tmp_path, NET)
    work = Workload(model="net.py:build_model", directory=folder, samples=640, epochs=2, batch_size=16, input_shape=(3, 32, 32))
    record = measure_step_time(work, Place("here", "cpu", "cpu"), steps=5, time_limit_s=60)
    assert record.kind == "profile"
    assert record.step_time_s is not None
    assert 1e-4 < record.step_time_s < 5
    assert record.host_memory_bytes is not None
    assert record.host_memory_bytes > 100 * MIB
    assert record.checkpoint_s is not None
    assert record.startup_s is not None
    node = NodeType("cpu", len(os.sched_getaffinity(0)), 16 * GIB)
    cluster = Cluster("here", partitions=(Partition("cpu", ("cpu",)),), node_types=(node,))
    estimators = Estimators(built_ins(tracer=tracer, plug_ins=False), lambda **_: [record])
    resources = Resources(cpus_per_node=node.cores or 1)
    now = record.finished_at + 10
    needs = estimators.needs(work, cluster, cluster.partitions[0], node, resources, None, now)
    assert needs.step_time is not None
    assert (needs.step_time.basis, needs.step_time.p50) == ("profile", pytest.approx(record.step_time_s))
    assert needs.run is not None
    assert needs.run.basis == "profile"
    double = estimators.needs(replace(work, batch_size=32), cluster, cluster.partitions[0], node, resources, None, now)
    assert double.step_time is not None
    assert "corrected by 1 measured step" in double.step_time.reason


def test_profiling_a_command_reads_its_own_progress(tmp_path: Path) -> None:
    folder = written(tmp_path, """
        import json, os, sys, time
        assert sys.argv[1] == "16"
        with open(os.environ["ISCHED_SPOOL"], "a") as spool:
            for step in range(1, 10000):
                time.sleep(0.02)
                event = {"v": 1, "t": time.time(), "kind": "progress", "data": {"step": step}}
                spool.write(json.dumps(event) + "\\n")
                spool.flush()
    """, "train.py")
    work = Workload(command=("python", "train.py", "{batch_size}"), directory=folder, samples=100, batch_size=16)
    record = measure_step_time(work, Place("here", "cpu", "cpu"), steps=10, time_limit_s=30)
    assert record.step_time_s == pytest.approx(0.021, rel=0.3)
    written(tmp_path, "print('quick')", "train.py")
    with pytest.raises(EstimatorFailed, match="told of no steps"):
        measure_step_time(work, Place("here", "cpu", "cpu"), steps=10, time_limit_s=30)


def test_profiles_have_limits_too(tmp_path: Path) -> None:
    folder = written(tmp_path, "def build_model():\n    while True: pass\n")
    work = Workload(model="net.py:build_model", directory=folder, samples=10)
    with pytest.raises(EstimatorFailed, match="took longer than 4 s"):
        measure_step_time(work, Place("here", "cpu", "cpu"), time_limit_s=4)


def test_calibration_measures_this_node() -> None:
    found = calibrate_cpu(seconds=1.0)
    assert found.cores == len(os.sched_getaffinity(0))
    assert 1e9 < found.conv_flops < 1e14
    assert 1e9 < found.matmul_flops < 1e14
    assert 1e8 < found.bandwidth_bytes_s < 1e13
    assert found.measured_at is not None


def test_reports_survive_json(tracer: Tracer) -> None:
    report = tracer.report(TraceSpec("timm:resnet50", 32))
    assert TraceReport.from_json(report.to_json()) == report
