"""The entry point: quick, quiet, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ischeduler.cli.guard import guarded

HEAVY = {"torch", "sqlalchemy", "pydantic", "rich", "numpy", "typer", "yaml", "alembic"}


def isched(*arguments: str, cwd: Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM"))}
    env |= {
        "HOME": str(cwd),
        "XDG_STATE_HOME": str(cwd / "state"),
        "XDG_CONFIG_HOME": str(cwd / "config"),
        "ISCHED_BATCH_KIND": "local",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "ischeduler.cli.main", *arguments],
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded_by(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(' '.join(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_version_loads_nothing_heavy() -> None:
    assert not loaded_by("from ischeduler.cli.main import run; run(['--version'])") & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import ischeduler") & (HEAVY | {"ischeduler.helper"})


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["status", "--help"]])
def test_help_loads_no_model_or_database(arguments: list[str]) -> None:
    code = f"from ischeduler.cli.main import run\ntry:\n    run({arguments!r})\nexcept SystemExit:\n    pass"
    assert not loaded_by(code) & {"torch", "numpy", "sqlalchemy", "alembic", "timm", "transformers"}


def test_help_of_one_command_imports_no_other() -> None:
    code = (
        "from ischeduler.cli.main import run\ntry:\n    run(['config', '--help'])\nexcept SystemExit:\n    pass\n"
        "others = {'plan', 'sandbox', 'watch'}\nprint('OTHERS', [m for m in others if 'ischeduler.cli.' + m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", "import sys\n" + code], capture_output=True, text=True, check=True)
    assert "OTHERS []" in done.stdout


def test_every_command_has_a_module_and_help(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from ischeduler.cli.root import app
    from ischeduler.cli.table_of_commands import COMMANDS

    for name in COMMANDS:
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0, (name, shown.output)
        assert "Usage: isched" in shown.output


def test_no_arguments_shows_help(tmp_path: Path) -> None:
    done = isched(cwd=tmp_path)
    assert done.returncode == 0
    assert "Exit codes: 0 done" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plna"], "there is no command 'plna'; the nearest is 'plan'. Try 'isched --help'."),
        (["plan", "--epcohs", "3"], "No such option: --epcohs"),
        (["config", "show", "plan.gaol"], "'plan.gaol' is not a setting; the nearest is 'plan.goal'."),
        (["--set", "plan.goal", "config", "show"], "--set expects KEY=VALUE, not 'plan.goal'."),
        (["--set", "plan.gaol=x", "config", "show"], "'plan.gaol' in a flag is not a setting; the nearest is 'plan.goal'."),
        (["status", "r-nothing"], "you have no run 'r-nothing'"),
        (["plan", "no_such.py"], "there is no file"),
        (["submit", "1"], "no plan was made in"),
    ],
)
def test_one_sentence_and_code_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = isched(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("isched: ")
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_errors_are_json_too_where_json_was_asked_for(tmp_path: Path) -> None:
    done = isched("status", "r-nothing", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema"] == "isched.error/1"
    assert document["error"]["exit_code"] == done.returncode == 2


def test_a_surprise_leaves_a_sentence_and_a_crash_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert guarded(lambda: 1 // 0, []) == 2
    said = capsys.readouterr().err
    assert said.startswith("isched: something unexpected happened (ZeroDivisionError")
    assert "Traceback" not in said
    log = next((tmp_path / "ischeduler" / "crashes").glob("*.log"))
    assert str(log) in said
    assert "Traceback" in log.read_text()


def test_debug_shows_the_surprise() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0, ["--debug"])


def test_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert guarded(interrupted, []) == 130
    assert capsys.readouterr().err == "isched: interrupted\n"


def test_a_state_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")
    done = isched("plan", "x.py", cwd=tmp_path, ISCHED_PATHS_STATE=str(tmp_path / "blocked" / "state"))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m ischeduler.cli.main config show | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


def test_config_show_origin_is_plain_text_when_piped(tmp_path: Path) -> None:
    (tmp_path / "ischeduler.toml").write_text('[plan]\ngoal = "cheapest"\n')
    done = isched("config", "show", "--origin", cwd=tmp_path)
    row = next(line for line in done.stdout.splitlines() if line.startswith("plan.goal "))
    assert row.split() == ["plan.goal", "cheapest", str(tmp_path / "ischeduler.toml")]
    assert "\x1b" not in done.stdout
    assert not set(done.stdout) & set("│┃━┏┡╇")


def test_set_beats_everything(tmp_path: Path) -> None:
    done = isched(
        "--set", "plan.goal=cheapest", "config", "show", "plan.goal", "--json", cwd=tmp_path, ISCHED_PLAN_GOAL="soonest"
    )
    assert json.loads(done.stdout)["settings"]["plan.goal"]["value"] == "cheapest"


def test_completion_script_is_there(tmp_path: Path) -> None:
    # The variable lets the shell be named: it is otherwise read off the processes above, where there may be none.
    done = isched("--show-completion", "bash", cwd=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert "_ISCHED_COMPLETE" in done.stdout
