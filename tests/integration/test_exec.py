"""`isched exec` around real processes: signals, codes, fencing, output, and all that may go wrong around a training."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from exec_runs import WRAPPER, Exec, environ, python, until

from ischeduler.training.processes import stat_of
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token, raise_fence, read_fence

CATCHES = "import signal, sys, time\nsignal.signal(signal.SIGUSR2, lambda *a: sys.exit(85))\nprint('ready'); time.sleep(60)"
READY = "print('ready', flush=True); "


def exits(run: Exec) -> tuple[int, str]:
    (event,) = run.events("exit")
    return event.data["code"], event.data["reason"]


def test_an_unmodified_script_simply_runs(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "sh", "-c", "echo out; echo err >&2; pwd", ISCHED_RUN_ID="r-9") as run:
        code, out, err = run.finish()
    assert (code, out) == (0, f"out\n{os.getcwd()}\n".encode())
    assert err == "err\n"
    events = run.events()
    assert [e.kind for e in events if e.kind != "heartbeat"] == ["started", "exit"]
    assert {e.run for e in events} == {"r-9"}
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    started = events[0].data
    assert (started["job_id"], started["restart"], started["host"]) == (None, 0, os.uname().nodename)
    assert exits(run) == (0, "completed")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert read_fence(tmp_path / "run") == Token(1)
    claim = json.loads((tmp_path / "run" / "attempts" / "1.0" / "claim").read_text())
    assert set(claim) == {"job_id", "host", "pid", "started_at"}


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("sh", "-c", "exit 3"), 3, "error"),
        (("sh", "-c", "kill -9 $$"), 137, "signal"),
        (("sh", "-c", "kill -SEGV $$"), 139, "signal"),
        (("sh", "-c", "exit 85"), 85, "checkpointed"),
        (("no-such-command-here",), 127, "error"),
        (("/etc/passwd",), 126, "error"),
    ],
)
def test_codes(tmp_path: Path, command: tuple[str, ...], code: int, reason: str) -> None:
    with Exec(tmp_path / "run", *command) as run:
        assert run.finish()[0] == code
    assert exits(run) == (code, reason)


def test_isched_exec_is_the_same_and_loads_nothing_else(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "isched"
    if not program.exists():
        pytest.skip("the isched command is not installed beside this Python")
    done = subprocess.run(
        [program, "exec", "--", "sh", "-c", "echo $ISCHED_TOKEN; exit 7"], env=environ(tmp_path), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, b"1.0\n")


def test_the_training_s_environment(tmp_path: Path) -> None:
    before = time.time()
    with Exec(tmp_path / "run", "env", SLURM_RESTART_COUNT="2", SLURM_JOB_ID="77", ISCHED_WALLTIME_S="600") as run:
        _, out, _ = run.finish()
    env = dict(line.split("=", 1) for line in out.decode().splitlines() if "=" in line)
    assert env["ISCHED_TOKEN"] == "1.2"
    assert env["ISCHED_SPOOL"] == str(tmp_path / "run" / "events" / "1.2.jsonl")
    assert 599 <= float(env["ISCHED_DEADLINE"]) - before <= 630
    assert run.events("started")[0].data["job_id"] == "77"


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_a_controller_with_another_clock_does_not_move_the_deadline(tmp_path: Path, skew_s: int) -> None:
    end = str(int(time.time()) + 600 + skew_s)
    with Exec(tmp_path / "run", "true", SLURM_JOB_END_TIME=end, ISCHED_WALLTIME_S="600") as run:
        run.finish()
    assert abs(run.events("started")[0].data["deadline"] - time.time() - 600) < 30


def test_usr2_reaches_who_catches_it(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(CATCHES)) as run:
        assert run.process.stdout.readline() == b"ready\n"
        run.signal(signal.SIGUSR2)
        assert run.finish()[0] == 85
    assert exits(run) == (85, "checkpointed")
    assert [e.data for e in run.events("signal")] == [{"name": "SIGUSR2"}]


def test_usr2_reaches_a_training_below_a_shell(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "bash", "-c", '"$0" -u -c "$1"; echo after $?; exit 85', sys.executable, CATCHES) as run:
        assert run.process.stdout.readline() == b"ready\n"
        run.signal(signal.SIGUSR2)
        code, out, _ = run.finish()
    assert (code, out) == (85, b"after 85\n")


def test_usr2_does_not_kill_an_unmodified_script(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(READY + "import time; time.sleep(1); print('done')")) as run:
        run.process.stdout.readline()
        run.signal(signal.SIGUSR2)
        run.signal(signal.SIGUSR1)
        code, out, _ = run.finish()
    assert (code, out) == (0, b"done\n")


def test_usr2_is_kept_for_a_training_that_is_still_importing(tmp_path: Path) -> None:
    code = "import time; print('ready'); time.sleep(1)\n" + CATCHES
    with Exec(tmp_path / "run", *python(code)) as run:
        run.process.stdout.readline()
        run.signal(signal.SIGUSR2)
        assert run.finish()[0] == 85


def test_term_kills_an_unmodified_script(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(READY + "import time; time.sleep(60)")) as run:
        run.process.stdout.readline()
        run.signal(signal.SIGTERM)
        assert run.finish()[0] == 143
    assert exits(run) == (143, "signal")


def test_int_interrupts_the_training(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(READY + "import time; time.sleep(60)")) as run:
        run.process.stdout.readline()
        run.signal(signal.SIGINT)
        code, _, err = run.finish()
    assert code == 130
    assert "KeyboardInterrupt" in err


def test_a_training_that_ignores_term_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *a: None); " + READY + "\nwhile True: time.sleep(1)"
    with Exec(tmp_path / "run", *python(code), options=("--kill-after", "1")) as run:
        run.process.stdout.readline()
        start_s = time.monotonic()
        run.signal(signal.SIGTERM)
        assert run.finish()[0] == 137
    assert 0.9 < time.monotonic() - start_s < 10
    assert exits(run) == (137, "signal")


def test_stop_and_continue(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(READY + "import time; time.sleep(60)")) as run:
        run.process.stdout.readline()
        (child,) = list(_children(run.process.pid))
        os.kill(child, signal.SIGSTOP)
        until(lambda: stat_of(child).state == "T")
        run.signal(signal.SIGCONT)
        until(lambda: stat_of(child).state != "T")


def _children(pid: int) -> list[int]:
    from ischeduler.training.processes import family

    return [member.pid for member in family(pid).values() if member.parent == pid]


def test_a_second_submission_of_the_same_attempt_stops(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(READY + "import time; time.sleep(60)"), SLURM_JOB_ID="1") as run:
        run.process.stdout.readline()
        with Exec(tmp_path / "run", "touch", str(tmp_path / "ran"), SLURM_JOB_ID="2") as double:
            code, _, err = double.finish()
        assert code == 87
        assert "job 1" in err
    assert not (tmp_path / "ran").exists()
    assert len(run.events("started")) == 1


def test_an_older_attempt_does_not_start(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "true", attempt=2) as run:
        run.finish()
    with Exec(tmp_path / "run", "touch", str(tmp_path / "ran"), attempt=1, SLURM_RESTART_COUNT="9") as old:
        code, _, err = old.finish()
    assert code == 86
    assert "superseded by 2.0" in err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "run" / "events" / "1.9.jsonl").exists()


def test_a_requeued_job_is_a_newer_incarnation(tmp_path: Path) -> None:
    for restart in ("0", "1"):
        with Exec(tmp_path / "run", "true", SLURM_JOB_ID="5", SLURM_RESTART_COUNT=restart) as run:
            assert run.finish()[0] == 0
    assert [str(e.token) for e in run.events("started")] == ["1.0", "1.1"]
    assert read_fence(tmp_path / "run") == Token(1, 1)


def test_without_a_number_the_next_free_attempt_is_taken(tmp_path: Path) -> None:
    for expected in (b"1.0\n", b"2.0\n"):
        with Exec(tmp_path / "run", "sh", "-c", "echo $ISCHED_TOKEN", attempt=None) as run:
            assert run.finish()[1] == expected


def test_a_zombie_stops_itself(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", *python(CATCHES)) as zombie:
        zombie.process.stdout.readline()
        with Exec(tmp_path / "run", "true", attempt=2) as heir:
            assert heir.finish()[0] == 0
        code, _, err = zombie.finish()
    assert code == 86
    assert "superseded by 2.0" in err
    assert [e.data for e in zombie.events("exit") if e.token == Token(1)] == [{"code": 86, "reason": "superseded"}]


def test_a_zombie_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "time.sleep(120)"
    program = (
        "import sys; from ischeduler.training import supervisor; supervisor._FLAG_WAIT_S = 0.5;"
        "from ischeduler.training.wrapper import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "--heartbeat", "0.2", "--", *python(code)]
    with subprocess.Popen(command, env=environ(tmp_path), stdout=subprocess.PIPE, start_new_session=True) as wrapper:
        wrapper.stdout.readline()
        raise_fence(tmp_path, Token(2))
        assert wrapper.wait(30) == 86


def test_heartbeats_measure(tmp_path: Path) -> None:
    code = "b = bytearray(80 << 20)\nimport time; end = time.time() + 1.5\nwhile time.time() < end: pass"
    with Exec(tmp_path / "run", *python(code)) as run:
        run.finish()
    beats = [e.data for e in run.events("heartbeat")]
    assert len(beats) >= 4
    assert max(beat["rss_bytes"] for beat in beats) > 80 << 20
    assert max(beat["rss_peak_bytes"] for beat in beats) < 400 << 20
    assert 30 < max(beat["cpu_percent"] for beat in beats[1:]) < 130
    assert all(isinstance(beat["gpu"], list) for beat in beats)


@pytest.mark.parametrize(("code", "exit_code"), [(CATCHES, 85), (READY + "import time; time.sleep(60)", 143)])
def test_control_stop(tmp_path: Path, code: str, exit_code: int) -> None:
    """A training that catches SIGUSR2 gets it; an unmodified one gets SIGTERM."""
    with Exec(tmp_path / "run", *python(code)) as run:
        run.process.stdout.readline()
        RunDir(tmp_path / "run").write_control(Token(1), "stop")
        assert run.finish()[0] == exit_code


def test_out_of_memory_text_is_told(tmp_path: Path) -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"
    with Exec(tmp_path / "run", "sh", "-c", f"echo '{text}' >&2; exit 1") as run:
        code, _, err = run.finish()
    assert (code, err) == (1, text + "\n")
    assert [e.data for e in run.events("oom")] == [{"where": "cuda", "text": text}]
    assert exits(run) == (1, "oom")


def test_output_passes_unchanged_and_fast(tmp_path: Path) -> None:
    """300 MB of every byte value; the digest is the same, and the wrapper keeps up (30 MB/s is for a busy machine of two cores)."""
    code = (
        "import os\nblock = bytes(range(256)) * 4096\nfor _ in range(300):\n"
        "    view = memoryview(block)\n    while view: view = view[os.write(1, view):]"
    )
    start_s = time.monotonic()
    with Exec(tmp_path / "run", *python(code)) as run:
        digest, size = hashlib.sha256(), 0
        while chunk := run.process.stdout.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
        assert run.process.wait(60) == 0
    took_s = time.monotonic() - start_s
    assert size == 300 * (1 << 20)
    assert digest.hexdigest() == hashlib.sha256(bytes(range(256)) * 4096 * 300).hexdigest()
    assert size / took_s > 30e6, f"{size / took_s / 1e6:.0f} MB/s"


def test_output_passes_promptly(tmp_path: Path) -> None:
    with Exec(
        tmp_path / "run", *python("import sys; print('prompt> ', end=''); sys.stdout.flush(); import time; time.sleep(60)")
    ) as run:
        start_s = time.monotonic()
        assert os.read(run.process.stdout.fileno(), 100) == b"prompt> "
        assert time.monotonic() - start_s < 10


def test_a_full_log_disk_does_not_stop_training(tmp_path: Path) -> None:
    with (
        open("/dev/full", "wb") as full,
        Exec(tmp_path / "run", "sh", "-c", f"head -c 1000000 /dev/zero && touch {tmp_path}/done", stdout=full) as run,
    ):
        code, _, err = run.finish()
    assert code == 0
    assert (tmp_path / "done").exists()
    assert "1000000 bytes of output could not be written" in err


def test_an_unwritable_run_directory_does_not_stop_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Exec(tmp_path / "file" / "run", "sh", "-c", "echo trained") as run:
        code, out, err = run.finish()
    assert (code, out) == (0, b"trained\n")
    assert "training goes on" in err


def test_a_run_directory_that_vanishes_does_not_stop_training(tmp_path: Path) -> None:
    command = ("sh", "-c", f"rm -rf {tmp_path}/run; sleep 1; echo trained")
    with Exec(tmp_path / "run", *command) as run:
        code, out, _ = run.finish()
    assert (code, out) == (0, b"trained\n")


def test_what_the_training_leaves_behind_is_ended(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "sh", "-c", "sleep 300 & echo $!") as run:
        start_s = time.monotonic()
        code, out, _ = run.finish()
    assert code == 0
    assert time.monotonic() - start_s < 20
    left = int(out)
    until(lambda: stat_of(left) is None or stat_of(left).state == "Z")


def test_other_ranks_only_forward_and_watch(tmp_path: Path) -> None:
    with (
        Exec(tmp_path / "run", *python(CATCHES), SLURM_PROCID="1") as follower,
        Exec(tmp_path / "run", *python(CATCHES), SLURM_PROCID="2") as third,
    ):
        follower.process.stdout.readline()
        third.process.stdout.readline()
        follower.signal(signal.SIGUSR2)
        assert follower.finish()[0] == 85
        raise_fence(_made(tmp_path / "run"), Token(2))
        assert third.finish()[0] == 86
    assert follower.events() == []
    assert sorted(os.listdir(tmp_path / "run")) == ["fence"]


def _made(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def test_events_are_pushed_when_a_service_is_there(tmp_path: Path) -> None:
    got: list[dict] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["events"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with Exec(tmp_path / "run", "true", ISCHED_PUSH_URL=url) as run:
        assert run.finish()[0] == 0
    server.shutdown()
    assert [event["seq"] for event in got] == [event.seq for event in run.events()]
    assert got[-1]["kind"] == "exit"


def test_a_lost_service_does_not_stop_training(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "sh", "-c", "echo trained", ISCHED_PUSH_URL="http://127.0.0.1:9/") as run:
        code, out, err = run.finish()
    assert (code, out) == (0, b"trained\n")
    assert "training goes on" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["--attempt", "0", "--", "true"], "attempts count from 1"),
        (["--heartbeat", "0", "--", "true"], "more than 0"),
    ],
)
def test_wrong_command_lines(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = subprocess.run([*WRAPPER, *arguments], env=environ(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in done.stderr


def test_options_of_the_training_are_not_ours(tmp_path: Path) -> None:
    with Exec(tmp_path / "run", "echo", "--heartbeat", "--", "-x") as run:
        assert run.finish()[1] == b"--heartbeat -- -x\n"


@pytest.mark.parametrize("entry", [["-m", "ischeduler.training.wrapper"], ["-m", "ischeduler.cli.main", "exec"]])
def test_the_exit_code_survives_an_output_that_takes_nothing(tmp_path: Path, entry: list[str]) -> None:
    command = [sys.executable, *entry, "--run-dir", str(tmp_path / "run"), "--", "sh", "-c", "echo hello; exit 85"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == 85
