"""The rendered script, run by a real bash: whatever the user's words are, the program gets exactly them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ischeduler.batch.commands import clean_environment
from ischeduler.batch.header import literal_path, sbatch_header
from ischeduler.batch.names import job_comment, job_name, key_of
from ischeduler.batch.script import render_script, split_wrapper
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec, Resources
from ischeduler.core.workload import EnvironmentSpec

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), {k: v for k, v in os.environ.items() if k.startswith('T_')}]))"
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
names = st.from_regex(r"T_[A-Za-z0-9_]{1,12}", fullmatch=True)
lines = st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs", "Cc"]), max_size=30)
once = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spec(*command: str, **changes: object) -> JobSpec:
    values = {"key": "r-1.1", "name": "n", "partition": "gpu", "resources": Resources(), "directory": "/tmp", "output": "/tmp/o"} | changes
    return JobSpec(command=command, **values)  # type: ignore[arg-type]


def run(script: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash"], input=script, capture_output=True, text=True, env=env, timeout=60, check=False)


@once
@given(st.lists(words, max_size=4), st.dictionaries(names, words, max_size=3), lines, lines)
def test_any_text_reaches_the_program_unharmed(arguments: list[str], variables: dict[str, str], name: str, comment: str) -> None:
    job = spec(sys.executable, "-c", SHOW, *arguments, variables=variables, name=name, comment=comment)
    done = run(render_script(job))
    assert done.stderr == ""
    assert json.loads(done.stdout) == [arguments, "/tmp", variables]


@once
@given(st.text(st.characters(exclude_characters="\0/\n", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(lambda t: t not in (".", "..")))
def test_any_directory_name_is_entered(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    done = run(render_script(spec(sys.executable, "-c", SHOW, directory=str(folder)), header=()))
    assert json.loads(done.stdout)[1] == str(folder), done.stderr


@pytest.mark.parametrize("program", ["-a", "a=b", "*", "~", "$(id)", "two words", "né"])
def test_any_program_name_is_found(tmp_path: Path, program: str) -> None:
    (tmp_path / program).write_text("#!/bin/sh\necho found\n")
    (tmp_path / program).chmod(0o755)
    done = run(render_script(spec(program), header=()), {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == "found\n", done.stderr


def test_the_shell_becomes_the_program_so_that_it_gets_the_signals() -> None:
    done = run("echo $$\n" + render_script(spec("bash", "-c", "echo $$"), header=()).removeprefix("#!/bin/bash\n"))
    first, second = done.stdout.split()
    assert first == second


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"name": "two\nlines"}, "line break"),
        ({"output": "/tmp/a\nb"}, "line break"),
        ({"variables": {"A-B": "1"}}, "A-B"),
        ({"variables": {"A": "x\0"}}, "NUL"),
        ({"directory": "relative"}, "not absolute"),
        ({"launcher": "mpirun"}, "mpirun"),
        ({"key": "a b"}, "not a job key"),
        ({"resources": Resources(nodes=2)}, "launcher"),
        ({"output": "/tmp/a\\b"}, "backslash"),
    ],
)  # fmt: skip
def test_what_no_script_can_carry_is_refused_in_one_sentence(changes: dict[str, object], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong) as refused:
        render_script(spec("python", "t.py", **changes))
    assert str(refused.value).count("\n") == 0


def test_no_command_is_refused() -> None:
    with pytest.raises(BadInput, match="no command"):
        render_script(spec())


def test_options_say_what_was_asked_for() -> None:
    resources = Resources(2, 8, 16 * 2**30, 2, "v100", 5400.0, ("ib", "avx"), whole_node=True)
    job = spec("python", "t.py", resources=resources, account="PAS1", qos="low", signal_lead_s=90, exclude_nodes=("p01", "p02"), launcher="srun")
    options = dict(sbatch_header(job))
    assert options["job-name"] == "isched-r-1.1"
    assert options["gres"] == "gpu:v100:2"
    assert options["mem"] == "16384M"
    assert options["time"] == "01:30:00"
    assert options["signal"] == "B:USR2@90"
    assert options["constraint"] == "ib&avx"
    assert options["exclude"] == "p01,p02"
    assert options["open-mode"] == "append"
    assert "no-requeue" in options
    assert "exclusive" in options
    assert (options["account"], options["qos"], options["nodes"], options["cpus-per-task"]) == ("PAS1", "low", "2", "8")
    assert "requeue" in dict(sbatch_header(job, requeue=True))


def test_a_percent_sign_in_the_output_is_no_pattern() -> None:
    assert literal_path("/o/%j 100%.txt") == "/o/%%j 100%%.txt"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True), lines)
def test_a_key_is_read_back_from_name_or_comment(key: str, text: str) -> None:
    assert key_of(job_name(key)) == key
    assert key_of("renamed", job_comment(key, text.strip())) == key
    assert key_of("train.sh", text) in (None, key)


def test_the_wrapper_stays_outside_the_launcher() -> None:
    command = ("isched", "exec", "--", "python", "t.py", "--", "x")
    assert split_wrapper(command) == (("isched", "exec", "--"), ("python", "t.py", "--", "x"))
    assert split_wrapper(("python", "t.py", "--", "x")) == ((), ("python", "t.py", "--", "x"))
    script = render_script(spec(*command, resources=Resources(nodes=2), launcher="torchrun", processes_per_node=4))
    last = script.splitlines()[-1]
    assert last.startswith("exec -- isched exec -- srun --nodes=2 --ntasks=2 --ntasks-per-node=1 ")
    assert last.endswith(" --no-python python t.py -- x")
    assert "--nnodes=2" in last
    assert "--nproc-per-node=4" in last
    assert '--rdzv-endpoint="$ISCHED_RDZV_ENDPOINT"' in last


def _rendezvous(tmp_path: Path, **env: str) -> str:
    job = spec("t.py", resources=Resources(nodes=2), launcher="torchrun")
    script = render_script(job, header=()).split("exec -- ")[0] + 'echo "$ISCHED_RDZV_ENDPOINT"\n'
    done = run(script, {"PATH": f"{tmp_path}:/usr/bin:/bin", **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_rendezvous_is_the_first_node_with_a_port_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'localhost\\nother\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    assert _rendezvous(tmp_path, SLURM_JOB_ID="40321", SLURM_JOB_NODELIST="x") == "localhost:10321"


def test_without_scontrol_the_rendezvous_is_this_host(tmp_path: Path) -> None:
    import socket

    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "scontrol").chmod(0o755)
    assert _rendezvous(tmp_path, SLURM_JOB_ID="7") == f"{socket.gethostname()}:10007"


def test_modules_conda_and_venv_come_in_order_and_survive_unset_variables(tmp_path: Path) -> None:
    (tmp_path / "conda").write_text("#!/bin/sh\necho 'conda() { echo \"conda $* $UNSET_BY_CONDA\"; }'\n")
    (tmp_path / "conda").chmod(0o755)
    venv = tmp_path / "my venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text('echo "venv $UNSET_BY_VENV"\n')
    environment = EnvironmentSpec(modules=("cuda/12 x",), conda="my env", venv=str(venv.parent))
    module = 'module() { echo "module $1 <$2> $UNSET_BY_MODULE"; }\n'
    done = run(module + render_script(spec("echo", "ran", environment=environment), header=()), {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout.splitlines() == ["module load <cuda/12 x> ", "conda activate my env ", "venv ", "ran"], done.stderr


def test_an_image_is_run_by_apptainer_with_its_folders(tmp_path: Path) -> None:
    (tmp_path / "apptainer").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    environment = EnvironmentSpec(image="my image.sif")
    job = spec("python", "a b", environment=environment, variables={"ISCHED_RUN_DIR": "/run dir"}, resources=Resources(gpus_per_node=1))
    done = run(render_script(job, header=()), {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == "<exec><--nv><--bind></tmp><--bind></run dir><--pwd></tmp><my image.sif><python><a b>"


def test_a_missing_apptainer_is_said() -> None:
    done = run(render_script(spec("x", environment=EnvironmentSpec(image="i.sif")), header=()), {"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (127, "apptainer is not on this node's PATH\n")


def test_a_job_inside_a_job_hands_nothing_of_its_own_on() -> None:
    dirty = {"SLURM_JOB_ID": "1", "SBATCH_PARTITION": "x", "ISCHED_TOKEN": "1.0", "SLURM_CONF": "/etc/s", "HOME": "/h"}
    assert clean_environment(dirty) == {"SLURM_CONF": "/etc/s", "HOME": "/h"}
