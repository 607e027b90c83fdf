"""What /proc, nvidia-smi and cgroups say."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ischeduler.training.metrics import GpuMeter, UsageMeter, nvidia_smi, oom_kills, parse_gpus
from ischeduler.training.processes import family, handlers_of, handles, stat_of

MIB = 1 << 20


def test_gpu_lines() -> None:
    text = "0, 23014, 88\n1, [N/A], [N/A]\n2, 0, 0\n\nNo devices were found\n"
    assert parse_gpus(text) == [
        {"index": 0, "memory_bytes": 23014 * MIB, "utilisation": 0.88},
        {"index": 1, "memory_bytes": None, "utilisation": None},
        {"index": 2, "memory_bytes": 0, "utilisation": 0.0},
    ]


def fake_smi(tmp_path: Path, body: str) -> list[str]:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return [str(program)]


def test_nvidia_smi_is_asked_for_csv(tmp_path: Path) -> None:
    meter = GpuMeter(1.0, fake_smi(tmp_path, 'echo "$@" > ' + str(tmp_path / "args") + '; echo "0, 100, 50"'))
    meter.ask()
    assert meter.latest == [{"index": 0, "memory_bytes": 100 * MIB, "utilisation": 0.5}]
    args = (tmp_path / "args").read_text()
    assert "--query-gpu=index,memory.used,utilization.gpu --format=csv,noheader,nounits" in args


def test_a_failing_nvidia_smi_is_given_up(tmp_path: Path) -> None:
    meter = GpuMeter(0.001, fake_smi(tmp_path, "exit 9"))
    meter._loop()
    assert meter.failures == 3
    assert meter.latest == []


def test_only_this_job_s_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ischeduler.training.metrics.shutil.which", lambda name: f"/usr/bin/{name}")
    assert nvidia_smi({"CUDA_VISIBLE_DEVICES": "2,3"}) == ["/usr/bin/nvidia-smi", "-i", "2,3"]
    assert nvidia_smi({}) == ["/usr/bin/nvidia-smi"]
    assert nvidia_smi({"CUDA_VISIBLE_DEVICES": ""}) == []


@pytest.mark.parametrize(
    ("cgroup", "file", "content", "kills"),
    [
        ("0::/slurm/job_1\n", "slurm/job_1/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("5:memory:/job_1\n0::/x\n", "memory/job_1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("0::/slurm/job_1\n", "other", "", 0),
    ],
)
def test_kernel_kills(tmp_path: Path, cgroup: str, file: str, content: str, kills: int) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert oom_kills(cgroup, tmp_path) == kills


def run(code: str) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, process_group=0)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_usage_sums_the_family() -> None:
    code = (
        "import subprocess, sys, time\n"
        "kid = subprocess.Popen([sys.executable, '-c', 'b = bytearray(60 << 20); print(1, flush=True); import time; time.sleep(60)'],"
        " stdout=subprocess.PIPE)\n"
        "kid.stdout.readline(); a = bytearray(40 << 20)\n"
        "end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    child = run(code)
    try:
        meter = UsageMeter(child.pid)
        figures = meter.take()
        assert 100 * MIB < figures["rss_bytes"] < 250 * MIB
        assert figures["rss_peak_bytes"] == figures["rss_bytes"]
        assert figures["cpu_percent"] > 0
        assert len(family(child.pid)) == 2
    finally:
        for pid in family(child.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        child.wait()
        child.stdout.close()


def test_signal_goes_to_the_topmost_that_handles_it() -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGUSR2, lambda *a: None)\n"
        "if os.fork() == 0: time.sleep(60)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    shell = subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "$0"; true', code], stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    try:
        members = family(shell.pid)
        assert len(members) == 3
        (trainer,) = [pid for pid, stat in members.items() if stat.parent == shell.pid]
        assert handlers_of(shell.pid, signal.SIGUSR2) == [trainer]
        assert handlers_of(shell.pid, signal.SIGUSR1) == []
        assert not handles(shell.pid, signal.SIGUSR2)
    finally:
        for pid in family(shell.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        shell.wait()
        shell.stdout.close()


def test_blocked_in_all_threads_counts_as_handled() -> None:
    """srun takes its signals by sigwait."""
    child = run(
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); print('ready', flush=True); time.sleep(60)"
    )
    try:
        assert handles(child.pid, signal.SIGUSR2)
        assert not handles(child.pid, signal.SIGUSR1)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    time.sleep(0)
    assert stat_of(child.pid) is None or stat_of(child.pid).state == "Z"
    assert not handles(child.pid, signal.SIGUSR2)
