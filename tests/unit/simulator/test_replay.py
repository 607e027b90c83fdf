"""``isched simulate`` and ``isched traces``, and the benchmark's arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import simulator as benchmark
from benchmarks.simulator_conformance import causes, conformance
from benchmarks.simulator_peers import _easy
from benchmarks.simulator_scale import growth

from ischeduler.cli.main import run
from ischeduler.core.errors import BadInput
from ischeduler.helper import simulation
from ischeduler.simulator.kernel import starts
from ischeduler.simulator.readers import read_trace
from ischeduler.simulator.results import write_results
from ischeduler.simulator.synthetic import synthetic_trace
from ischeduler.simulator.trace import make_trace


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A synthetic trace of 300 jobs, with starts by EASY on 16 units."""
    trace = synthetic_trace(300, 16, seed=4)
    path = tmp_path / "made.parquet"
    write_results(path, trace, starts(trace.submit_s, trace.units, trace.run_s, trace.limit_s, 16))
    return path


def isched(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as left:
        run(list(arguments))
    code = left.value.code
    said = capsys.readouterr()
    return (code if isinstance(code, int) else 0), said.out, said.err


def test_simulate_writes_what_it_says(capsys: pytest.CaptureFixture[str], trace_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.csv"
    code, said, _ = isched(capsys, "simulate", "--trace", str(trace_file), "--nodes", "16", "--out", str(out))
    assert code == 0
    assert "300 of 300 started" in said
    assert f"wrote {out}" in said
    assert (read_trace(out).start_s == read_trace(trace_file).start_s).all(), "the same rules give the same starts"


def test_simulate_as_json(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    code, said, _ = isched(capsys, "simulate", "--trace", str(trace_file), "--nodes", "16", "--scheduler", "fcfs", "--limit", "50", "--json")
    document: dict[str, Any] = json.loads(said)
    assert code == 0
    assert document["schema"] == "isched.simulate/1"
    assert document["simulation"]["summary"]["jobs"] == 50
    assert document["simulation"]["summary"]["scheduler"] == "fcfs"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scheduler", "eazy"], "there is no scheduler 'eazy'; the nearest is 'easy'"),
        (["--nodes", "0"], "--nodes 0 is no machine"),
        (["--out", "x.doc"], "the suffix says what is written"),
        (["--out", "/nowhere/x.csv"], "there is no folder"),
        (["--nodes", "16", "--out", "/proc/x.csv"], "--out /proc/x.csv cannot be written"),
        (["--limit", "0"], "leaves no job"),
        (["--slurm-conf", "x.conf"], "goes with --scheduler slurm"),
        (["--scheduler", "slurm", "--slurm-conf", "/nowhere/x.conf"], "--slurm-conf /nowhere/x.conf cannot be read (No such file or directory)"),
        (["--scheduler", "slurm", "--slurm-conf", "/dev/null"], "--slurm-conf /dev/null: it has no line ClusterName="),
        ([], "does not say how large its machine was; give --nodes"),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], trace_file: Path, arguments: list[str], words: str) -> None:
    code, _, said = isched(capsys, "simulate", "--trace", str(trace_file), *arguments)
    assert code == 2
    assert words in said
    assert said.count("\n") == 1


def test_the_trace_is_never_overwritten(trace_file: Path) -> None:
    with pytest.raises(BadInput, match="is the trace itself"):
        simulation.simulate(trace_file, 16, out=[trace_file.parent / "." / trace_file.name])


def test_slurms_own_rules_and_a_slurm_conf(trace_file: Path, tmp_path: Path) -> None:
    shares: list[float] = []
    plain = simulation.simulate(trace_file, 9, "slurm", progress=lambda what, share: shares.append(share)).summary
    assert plain.started == 300
    assert max(shares) <= 1.0
    easy = simulation.simulate(trace_file, 9, "easy").summary
    assert plain.wait_mean_s != easy.wait_mean_s, "backfill at its own pace is not EASY"
    assert 0.3 < plain.wait_mean_s / easy.wait_mean_s < 3
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nSchedulerType=sched/builtin\n")
    fcfs = simulation.simulate(trace_file, 9, "fcfs").summary
    assert simulation.simulate(trace_file, 9, "slurm", slurm_conf=conf).summary.wait_mean_s == fcfs.wait_mean_s, "without backfill it is FCFS"
    conf.write_text("ClusterName=c\nSchedulerParameters=bf_interval=soon\n")
    with pytest.raises(BadInput, match="not a number"):
        simulation.simulate(trace_file, 9, "slurm", slurm_conf=conf)


def test_jobs_wider_than_the_machine_are_a_note(trace_file: Path) -> None:
    done = simulation.simulate(trace_file, 2)
    wide = int((read_trace(trace_file).units > 2).sum())
    assert wide
    assert f"{wide:,} jobs are wider than 2 units and never start" in done.notes
    assert done.summary.never_started == wide


def test_traces_show_and_list(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    code, said, _ = isched(capsys, "traces", "show", str(trace_file))
    assert code == 0
    assert "300 jobs of" in said
    code, said, _ = isched(capsys, "traces", "list", "--json")
    names = [t["name"] for t in json.loads(said)["traces"]]
    assert code == 0
    assert {"kth-sp2", "sdsc-sp2", "philly"} <= set(names)


def test_fetch_refuses_to_overwrite(tmp_path: Path) -> None:
    (tmp_path / "KTH-SP2-1996-2.1-cln.swf.gz").write_text("mine")
    with pytest.raises(BadInput, match="exists; remove it"):
        simulation.fetch("kth-sp2", tmp_path)


def test_conformance_with_our_own_starts_is_exact(trace_file: Path) -> None:
    metrics, bars = conformance(read_trace(trace_file), 16, "made")
    assert (metrics["made_same_second_share"], metrics["made_mean_wait_error_percent"]) == (1.0, 0.0)
    assert all(b.met(metrics[b.metric]) for b in bars)
    other, bars = conformance(read_trace(trace_file), 20, "made")
    assert not all(b.met(other[b.metric]) for b in bars), "another machine gives other starts, and the bars say so"


def test_differences_are_given_causes() -> None:
    columns = {"job_id": np.arange(5), "submit_s": np.array([0, 0, 50, 65, 500]), "units": np.ones(5, int), "run_s": np.full(5, 10)}
    trace = make_trace("t", {**columns, "start_s": np.array([0, 10, 60, 93, 500])})
    start = np.array([10, 0, 50, 97, 501])
    off = start != trace.start_s
    assert causes(trace, start, off) == [2, 0, 1, 2]
    assert causes(trace, trace.start_s, trace.start_s != trace.start_s) == [0, 0, 0, 0]


def test_the_plain_peer_agrees_where_seconds_do_not_collide() -> None:
    rng = np.random.default_rng(1)
    submit = np.sort(rng.choice(200_000, 400, replace=False))
    units, run = rng.integers(1, 20, 400), rng.integers(1, 9000, 400)
    limit = run + rng.integers(0, 3000, 400)
    theirs = _easy(submit.tolist(), units.tolist(), run.tolist(), limit.tolist(), 32)
    assert (starts(submit, units, run, limit, 32) == np.array(theirs)).mean() > 0.95


def test_growth_is_the_exponent() -> None:
    assert growth([1, 2, 4], [3, 6, 12]) == pytest.approx(1.0)
    assert growth([1, 2, 4], [1, 4, 16]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--limit", "5"], "too few"), (["--units", "5"], "goes with --trace"), (["--trace", "/nowhere.swf"], "is not here")],
)
def test_the_benchmark_refuses_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert benchmark.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_conformance_with_pyss_job_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    path = benchmark.DATA / "kth_sp2_pyss_easy.parquet"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    assert benchmark.main(["--conformance", "--trace", str(path), "--units", "100", "--json"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["metrics"]["kth_sp2_pyss_easy_differing_jobs"] == 0
