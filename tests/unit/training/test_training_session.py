"""The API for loops, without any framework: what a step boundary does in each situation, and what resuming restores."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ischeduler.training import checkpointing
from ischeduler.training.context import Context, own_rank
from ischeduler.training.incarnation import Action
from ischeduler.training.rundir import RunDir
from ischeduler.training.session import TrainingSession
from ischeduler.training.spool import read_events
from ischeduler.training.token import Token, raise_fence


@dataclass
class Model:
    """A deterministic 'training': a running hash of data and of a random draw, so that any slip shows."""

    value: int = 1
    seen: list[int] = field(default_factory=list)

    def train(self, batch: int) -> float:
        self.value = hash((self.value, batch, random.getrandbits(60)))
        self.seen.append(batch)
        return float(batch)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "seen": list(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.seen = state["value"], list(state["seen"])


class Shuffled:
    """A loader that draws its order from the global generator, as torch's does."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        order = list(range(self.count))
        random.shuffle(order)
        return iter(order)


def inside(run: Path, attempt: int = 1, deadline_s: float | None = None) -> Context:
    run_dir = RunDir(run)
    token = Token(attempt)
    run_dir.prepare(token)
    return Context("r-1", run_dir, token, run_dir.spool(token), deadline_s, None, 0)


def session(model: Model, context: Context | None = None, **options: Any) -> TrainingSession:
    return TrainingSession({"model": model}, **{"epochs": 3, "context": context, **options})


def train(run: TrainingSession, model: Model, stop_at: int | None = None, do: Any = None) -> None:
    with run:
        for _ in run.epochs():
            for _, batch in run.steps(Shuffled()):
                loss = model.train(batch)
                if stop_at is not None and run.step_count + 1 == stop_at:
                    (do or (lambda: os.kill(os.getpid(), signal.SIGUSR2)))()
                run.step(loss=loss)
            run.epoch_end(metrics={"loss": loss})


def uninterrupted(tmp_path: Path) -> Model:
    random.seed(5)
    model = Model()
    train(session(model, directory=tmp_path / "straight"), model)
    return model


@pytest.mark.parametrize("stops", [(1,), (7, 13), (10, 20), (9, 11, 21, 29), (30,)])
def test_interrupted_equals_uninterrupted(tmp_path: Path, stops: tuple[int, ...]) -> None:
    want = uninterrupted(tmp_path)
    for attempt, stop in enumerate((*stops, None), start=1):
        random.seed(5 if attempt == 1 else 999 * attempt)
        model = Model()
        last = stop is None or stop == 30
        with contextlib.nullcontext() if last else pytest.raises(SystemExit, match="85"):
            train(session(model, inside(tmp_path / "run", attempt)), model, stop)
    assert (model.value, model.seen) == (want.value, want.seen)
    assert len(model.seen) == 30


def test_events_tell_the_story(tmp_path: Path) -> None:
    model = Model()
    with pytest.raises(SystemExit):
        train(session(model, inside(tmp_path, 1)), model, 13)
    model = Model()
    train(session(model, inside(tmp_path, 2)), model)
    events, _ = read_events(tmp_path, {})
    first = [e for e in events if e.token == Token(1)]
    second = [e for e in events if e.token == Token(2)]
    assert first[0].kind == "resumed"
    assert first[0].data == {"checkpoint": None, "epoch": 0, "step": 0, "skipped": []}
    assert [e.data["reason"] for e in first if e.kind == "checkpointing"] == ["periodic", "signal"]
    assert second[0].data["checkpoint"] == "e00001-s000000013-t1.0"
    assert [e.data["reason"] for e in second if e.kind == "checkpointing"] == ["periodic", "final"]
    ends = [e.data for e in second if e.kind == "progress" and "epoch_time_s" in e.data]
    assert [(d["epoch"], d["epochs"], d["step"], d["steps"]) for d in ends] == [(2, 3, 20, 30), (3, 3, 30, 30)]
    assert second[-1].kind == "finished"
    assert second[-1].data["steps"] == 30
    saved = [e.data for e in second if e.kind == "checkpoint"]
    assert all(d["bytes"] > 0 and d["save_s"] > 0 for d in saved)
    assert RunDir(tmp_path).read_stopped(Token(1)) == 85
    assert RunDir(tmp_path).read_stopped(Token(2)) is None


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    model = Model()
    train(session(model, inside(tmp_path, 1)), model)
    again = Model()
    train(session(again, inside(tmp_path, 2)), again)
    assert again.value == model.value
    assert read_events(tmp_path, {})[0][-1].kind == "finished"


def test_stops_before_a_step_that_would_not_fit(tmp_path: Path) -> None:
    model = Model()
    run = session(model, inside(tmp_path, 1, deadline_s=time.monotonic() + 1000))
    with pytest.raises(SystemExit) as left:
        train(run, model, 4, lambda: [run.job.pace.note_step(990.0) for _ in range(128)])
    assert left.value.code == 85
    assert run.position == (0, 4)
    assert [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"] == ["deadline"]


def warned(tmp_path: Path, left_s: float) -> tuple[TrainingSession, Model]:
    """A training in a job with `left_s` to go and a grace of 60 s that gets SIGUSR2 at its fourth step."""
    context = dataclasses.replace(inside(tmp_path, 1), deadline_s=time.monotonic() + left_s, grace_s=60.0)
    model = Model()
    run = session(model, context, every_epochs=0)
    run.job.pace.note_save(0.1)
    return run, model


def test_an_early_warning_is_answered_with_one_checkpoint(tmp_path: Path) -> None:
    run, model = warned(tmp_path, left_s=600.0)
    train(run, model, 4)
    assert [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"] == ["control", "final"]
    assert len(model.seen) == 30


def test_a_warning_in_time_stops(tmp_path: Path) -> None:
    run, model = warned(tmp_path, left_s=50.0)
    with pytest.raises(SystemExit) as left:
        train(run, model, 4)
    assert left.value.code == 85
    assert run.position == (0, 4)


def test_term_stops_however_early(tmp_path: Path) -> None:
    run, model = warned(tmp_path, left_s=600.0)
    with pytest.raises(SystemExit):
        train(run, model, 4, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run.position == (0, 4)


@pytest.mark.parametrize("word", ["stop", "move"])
def test_control_stops(tmp_path: Path, word: str) -> None:
    model = Model()
    run = session(model, inside(tmp_path, 1))

    def ask() -> None:
        RunDir(tmp_path).write_control(Token(1), word)
        run.job._next_control_s = 0.0

    with pytest.raises(SystemExit):
        train(run, model, 4, ask)
    assert [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"] == ["control"]


def test_control_checkpoint_saves_once_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ischeduler.training.incarnation._CONTROL_EVERY_S", 0.0)
    model = Model()
    run = session(model, inside(tmp_path, 1), every_epochs=0)
    train(run, model, 4, lambda: RunDir(tmp_path).write_control(Token(1), "checkpoint"))
    reasons = [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"]
    assert reasons == ["control", "final"]


def test_superseded_leaves_without_saving(tmp_path: Path) -> None:
    model = Model()
    run = session(model, inside(tmp_path, 1))

    def overtake() -> None:
        raise_fence(tmp_path, Token(2))
        run.job._next_fence_s = 0.0

    with pytest.raises(SystemExit) as left:
        train(run, model, 4, overtake)
    assert left.value.code == 86
    assert os.listdir(tmp_path / "checkpoints") == []


def test_superseded_is_also_noticed_when_saving(tmp_path: Path) -> None:
    model = Model()
    run = session(model, inside(tmp_path, 1))
    with pytest.raises(SystemExit) as left:
        train(run, model, 10, lambda: raise_fence(tmp_path, Token(2)))
    assert left.value.code == 86
    assert os.listdir(tmp_path / "checkpoints") == []


def test_a_full_disk_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def full(path: Path, state: object) -> None:
        path.write_text("half")
        raise RuntimeError("PytorchStreamWriter failed writing file") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ischeduler.training.state.write_state", full)
    model = Model()
    train(session(model, inside(tmp_path, 1)), model)
    failed = [e.data for e in read_events(tmp_path, {})[0] if e.kind == "checkpoint_failed"]
    assert len(failed) == 4  # three epochs, and one more try at the end
    assert {d["errno"] for d in failed} == {errno.ENOSPC}
    assert len(model.seen) == 30
    assert os.listdir(tmp_path / "checkpoints") == []
    assert "training goes on" in capsys.readouterr().err


def test_a_bug_in_the_state_is_not_hidden(tmp_path: Path) -> None:
    model = Model()
    run = TrainingSession({"model": model, "bad": (lambda: lambda: None, print)}, epochs=1, directory=tmp_path)
    with pytest.raises((AttributeError, TypeError), match=r"pickle|local object"):
        train(run, model)


def test_an_unwritable_run_directory_does_not_stop_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    run_dir = RunDir(tmp_path / "file" / "run")
    context = Context("r", run_dir, Token(1), run_dir.spool(Token(1)), None, None, 0)
    model = Model()
    train(session(model, context), model)
    assert len(model.seen) == 30


def test_a_corrupt_newest_falls_back_and_is_named(tmp_path: Path) -> None:
    want = uninterrupted(tmp_path)
    random.seed(5)
    model = Model()
    with pytest.raises(SystemExit):
        train(session(model, inside(tmp_path / "run", 1)), model, 17)
    newest = tmp_path / "run" / "checkpoints" / "e00001-s000000017-t1.0.pkl"
    if not newest.exists():
        newest = newest.with_suffix(".pt")
    os.truncate(newest, 10)
    model = Model()
    train(session(model, inside(tmp_path / "run", 2)), model)
    assert (model.value, model.seen) == (want.value, want.seen)
    resumed = next(e for e in read_events(tmp_path / "run", {})[0] if e.kind == "resumed" and e.token == Token(2))
    assert resumed.data["checkpoint"] == "e00001-s000000010-t1.0"
    assert [item["name"] for item in resumed.data["skipped"]] == ["e00001-s000000017-t1.0"]


def test_restarted_in_place_after_a_stop_leaves_at_once(tmp_path: Path) -> None:
    model = Model()
    with pytest.raises(SystemExit):
        train(session(model, inside(tmp_path, 1)), model, 4)
    with pytest.raises(SystemExit) as left:
        train(session(Model(), inside(tmp_path, 1)), Model())
    assert left.value.code == 85


def test_restarted_in_place_after_a_crash_goes_on(tmp_path: Path) -> None:
    want = uninterrupted(tmp_path)
    random.seed(5)
    model = Model()

    def crash() -> None:
        raise RuntimeError("node hiccup")

    with pytest.raises(RuntimeError, match="hiccup"):
        train(session(model, inside(tmp_path / "run", 1)), model, 15, crash)
    again = Model()
    train(session(again, inside(tmp_path / "run", 1)), again)
    assert (again.value, again.seen) == (want.value, want.seen)


def test_periodic_saves_inside_an_epoch(tmp_path: Path) -> None:
    model = Model()
    run = session(model, inside(tmp_path, 1), every_s=0.0, every_epochs=0, epochs=1)
    train(run, model)
    reasons = [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"]
    assert reasons.count("periodic") >= 9


def test_the_workloads_interval_goes_before_the_scripts(tmp_path: Path) -> None:
    model, context = Model(), dataclasses.replace(inside(tmp_path, 1), checkpoint_every_s=1e-6)
    train(session(model, context, every_s=None, every_epochs=0, epochs=1), model)
    reasons = [e.data["reason"] for e in read_events(tmp_path, {})[0] if e.kind == "checkpointing"]
    assert reasons.count("periodic") >= 9


def test_the_interval_comes_from_the_jobs_environment(tmp_path: Path) -> None:
    job = {"ISCHED_TOKEN": "1.0", "ISCHED_RUN_DIR": str(tmp_path), "ISCHED_CHECKPOINT_EVERY_S": "90"}
    assert Context.from_environ(job).checkpoint_every_s == 90
    assert Context.from_environ({**job, "ISCHED_CHECKPOINT_EVERY_S": "soon"}).checkpoint_every_s is None


def test_memory_error_is_reported(tmp_path: Path) -> None:
    def explode() -> None:
        raise MemoryError("cannot allocate 9 GB")

    model = Model()
    with pytest.raises(MemoryError):
        train(session(model, inside(tmp_path, 1)), model, 4, explode)
    (event,) = [e for e in read_events(tmp_path, {})[0] if e.kind == "oom"]
    assert event.data["where"] == "host"


def test_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
    model = Model()
    train(session(model, directory=tmp_path), model)
    assert (signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)) == before


def test_locally_it_just_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for key in [key for key in os.environ if key.startswith("ISCHED_")]:
        monkeypatch.delenv(key)
    model = Model()
    with checkpointing(model=model, epochs=1, scheduler=None) as run:
        for _ in run.epochs():
            for _, batch in run.steps([1, 2, 3]):
                model.train(batch)
                run.step()
    assert sorted(os.listdir(tmp_path)) == ["checkpoints"]
    again = Model()
    with checkpointing(model=again, epochs=1) as run:
        assert list(run.epochs()) == []
    assert again.seen == [1, 2, 3]


def test_a_loop_of_one_s_own(tmp_path: Path) -> None:
    """resume / should_stop / stop, with state as a pair of functions and no epochs."""
    total = {"n": 0}

    def once(limit: int) -> None:
        run = TrainingSession({"total": (lambda: dict(total), total.update)}, directory=tmp_path)
        with run:
            while run.step_count < 20:
                total["n"] += run.step_count
                run.step_count += 1
                if run.step_count == limit:
                    run.job.flag.set("SIGUSR2")
                if run.should_stop():
                    run.stop()

    with pytest.raises(SystemExit) as left:
        once(7)
    assert left.value.code == 85
    total["n"] = -1
    once(99)
    assert total["n"] == sum(range(20))


def test_gradient_accumulation_resumes_at_the_right_batch(tmp_path: Path) -> None:
    def once(stop: int | None) -> list[int]:
        model = Model()
        try:
            with session(model, directory=tmp_path, epochs=1, every_epochs=0) as run:
                for _ in run.epochs():
                    for number, batch in run.steps(range(12)):
                        model.train(batch)
                        if (number + 1) % 3 == 0:
                            if run.step_count + 1 == stop:
                                run.job.flag.set("SIGUSR2")
                            run.step()
        except SystemExit:
            pass
        return model.seen

    assert once(2) == list(range(6))
    assert once(None) == list(range(12))


def test_the_last_step_is_known_after_resuming_inside_an_epoch(tmp_path: Path) -> None:
    """Evaluation is counted only before the last step, not right after resuming."""
    model = Model()
    with pytest.raises(SystemExit):
        train(session(model, directory=tmp_path), model, 6)
    comes = []
    with contextlib.suppress(SystemExit), session(model, directory=tmp_path, epochs=1) as run:
        for _ in run.epochs():
            for _ in run.steps(Shuffled()):
                run.step()
                comes.append(run._last_step_comes())
    assert comes == [False, False, True, True]


def test_what_has_no_state_is_refused() -> None:
    with pytest.raises(TypeError, match="model= must have state_dict"):
        checkpointing(model=3)


def test_a_checkpoint_of_another_script_is_refused(tmp_path: Path) -> None:
    model = Model()
    train(session(model, directory=tmp_path, epochs=1), model)
    with (
        pytest.raises(ValueError, match="no state for optimizer"),
        TrainingSession({"model": Model(), "optimizer": Model()}, directory=tmp_path),
    ):
        pass


def test_actions_rank_by_urgency() -> None:
    assert max(Action.SAVE, Action.STOP_SIGNAL) is Action.STOP_SIGNAL
    assert not Action.SAVE_CONTROL.stops
    assert Action.SUPERSEDED.stops


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({}, 0),
        ({"RANK": "3", "SLURM_PROCID": "1"}, 3),
        ({"SLURM_PROCID": "2"}, 2),
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, 1),
        ({"RANK": "x"}, 0),
    ],
)
def test_rank(env: dict[str, str], rank: int) -> None:
    assert own_rank(env) == rank


def test_a_forked_worker_gets_its_signals_back(tmp_path: Path) -> None:
    with session(Model(), directory=tmp_path, epochs=0) as run:
        assert run.job.flag._previous
        pid = os.fork()
        if pid == 0:
            ignored = signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
            os._exit(0 if ignored and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert callable(signal.getsignal(signal.SIGTERM))


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import json, sys; import ischeduler.training, ischeduler.training.wrapper;"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)))"
    )
    out = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env={
        "PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}).stdout  # fmt: skip
    assert set(json.loads(out)) <= {"ischeduler", "__main__", "__mp_main__"}
