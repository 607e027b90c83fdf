"""Precedence, origins and helpful refusals of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ischeduler.core.errors import ConfigError
from ischeduler.helper.config import load_config
from ischeduler.helper.settings import SETTINGS, read_value, write_value

KEY = "plan.goal"


@pytest.fixture
def world(tmp_path: Path) -> dict[str, Path]:
    """Every file there may be; the environment names the system's and the user's."""
    project, user, system = tmp_path / "project", tmp_path / "xdg" / "ischeduler", tmp_path / "etc"
    for folder in (project, user, system):
        folder.mkdir(parents=True)
    return {"project": project, "user": user / "config.toml", "system": system / "config.toml", "xdg": tmp_path / "xdg"}


def load(world: dict[str, Path], flags: dict[str, object] | None = None, **variables: str):
    env = {"XDG_CONFIG_HOME": str(world["xdg"]), "ISCHED_SYSTEM_CONFIG": str(world["system"]), **variables}
    return load_config(flags, directory=world["project"], environment=env)


def write_goal(path: Path, goal: str) -> None:
    path.write_text(f'[plan]\ngoal = "{goal}"\n')


def test_each_source_beats_the_weaker_ones_and_is_named(world: dict[str, Path]) -> None:
    found = load(world)
    assert (found[KEY], found.values[KEY].origin) == ("soonest", "default")

    write_goal(world["system"], "system")
    found = load(world)
    assert (found[KEY], found.values[KEY].origin) == ("system", str(world["system"]))

    write_goal(world["user"], "user")
    found = load(world)
    assert (found[KEY], found.values[KEY].origin) == ("user", str(world["user"]))

    (world["project"] / "pyproject.toml").write_text('[tool.ischeduler.plan]\ngoal = "pyproject"\n')
    found = load(world)
    assert (found[KEY], found.values[KEY].origin) == ("pyproject", str(world["project"] / "pyproject.toml"))

    write_goal(world["project"] / "ischeduler.toml", "project")
    found = load(world)
    assert (found[KEY], found.values[KEY].origin) == ("project", str(world["project"] / "ischeduler.toml"))

    found = load(world, ISCHED_PLAN_GOAL="environment")
    assert (found[KEY], found.values[KEY].origin) == ("environment", "environment ISCHED_PLAN_GOAL")

    found = load(world, {KEY: "flag"}, ISCHED_PLAN_GOAL="environment")
    assert (found[KEY], found.values[KEY].origin) == ("flag", "flag")


def test_a_flag_that_was_not_given_changes_nothing(world: dict[str, Path]) -> None:
    assert load(world, {KEY: None}).values[KEY].origin == "default"


def test_sources_mix_key_by_key(world: dict[str, Path]) -> None:
    world["user"].write_text('[plan]\naccount = "abc123"\ngoal = "cheapest"\n')
    write_goal(world["project"] / "ischeduler.toml", "soonest")
    found = load(world)
    assert found["plan.account"] == "abc123"
    assert found["plan.goal"] == "soonest"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[plan]\ngaol = "x"\n', "'plan.gaol' in {path} is not a setting; the nearest is 'plan.goal'."),
        ("[plna]\ngoal = 1\n", "'plna' in {path} is not a setting; the nearest is 'plan'."),
        ("[plane]\nautostart = 3\n", "plane.autostart in {path} cannot be 3: expected true or false."),
        ("[caps]\nmax_attempts = 1.5\n", "caps.max_attempts in {path} cannot be 1.5: expected a whole number."),
        ('[plane]\ninterval = "soon"\n', "plane.interval in {path} cannot be 'soon': 'soon' is not a duration"),
        ('[batch]\nkind = "slrm"\n', "batch.kind in {path} cannot be 'slrm': expected one of auto, slurm, local, slurmrest, tapis, agent."),
        ("epcohs = 3\n", "'epcohs' in {path} is not a setting; the nearest is 'epochs'."),
        ("[plan\n", "{path} is not valid TOML"),
    ],
)
def test_one_clear_sentence_for_what_is_wrong_in_a_file(world: dict[str, Path], text: str, sentence: str) -> None:
    path = world["project"] / "ischeduler.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(world)
    assert sentence.format(path=path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_misspelt_variable_is_named_with_the_nearest(world: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="ISCHED_PLAN_GAOL is not a setting; the nearest is 'ISCHED_PLAN_GOAL'"):
        load(world, ISCHED_PLAN_GAOL="soonest")


def test_variables_of_the_in_job_protocol_are_left_alone(world: dict[str, Path]) -> None:
    load(world, ISCHED_RUN_ID="r-1", ISCHED_RUN_DIR="/x", ISCHED_ATTEMPT="1", ISCHED_GRACE_S="60", ISCHED_SPOOL="/x/y")


def test_values_are_typed_from_text_and_from_toml(world: dict[str, Path]) -> None:
    (world["project"] / "ischeduler.toml").write_text('[plane]\ninterval = 5\nidle_exit = "3m"\n[caps]\nallow_move = false\n')
    found = load(world, ISCHED_PLAN_CLUSTERS="pitzer, ascend", ISCHED_CAPS_MAX_COST="2.5", ISCHED_PLANE_AUTOSTART="no")
    assert found["plane.interval"] == 5.0
    assert found["plane.idle_exit"] == 180.0
    assert found["caps.allow_move"] is False
    assert found["plan.clusters"] == ("pitzer", "ascend")
    assert found["caps.max_cost"] == 2.5
    assert found["plane.autostart"] is False


def test_passwords_are_never_shown(world: dict[str, Path]) -> None:
    found = load(world, ISCHED_DATABASE_URL="postgresql://me:s3cret@db/runs")
    assert found.database_url == "postgresql://me:s3cret@db/runs"
    assert found.shown("database.url") == "postgresql://me:***@db/runs"
    with pytest.raises(ConfigError) as error:
        load_config({"database.url": 5}, directory=world["project"], environment={"XDG_CONFIG_HOME": str(world["xdg"])})
    assert "5" not in str(error.value)


def test_relative_paths_belong_to_the_project_wherever_the_plane_runs(world: dict[str, Path]) -> None:
    (world["project"] / "ischeduler.toml").write_text('[paths]\nstate = "state"\ndata = "data"\n')
    variables = load(world).as_environment()
    again = load_config(directory=Path("/"), environment={"XDG_CONFIG_HOME": str(world["xdg"]), **variables})
    assert again.state_dir == world["project"] / "state"
    assert again.data_dir == world["project"] / "data"
    assert again.database_url == str(world["project"] / "state" / "ischeduler.db")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.key)
def test_a_value_written_as_text_is_read_back(setting) -> None:  # type: ignore[no-untyped-def]
    samples = {
        "text": "x y",
        "path": "/a b",
        "flag": True,
        "integer": 7,
        "number": 1.5,
        "duration": 90.0,
        "list": ("a", "b"),
        "tables": ({"name": "main", "max_walltime": "1h"},),
        "map": {"A": "1", "B": "x"},
    }
    kind, _, choices = setting.kind.partition(":")
    for value in (setting.default, samples.get(kind, choices.split("|")[0])):
        assert read_value(setting, write_value(setting, value), "test") == value
