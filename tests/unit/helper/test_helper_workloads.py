"""Workloads from scripts, references, objects and fields, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.core.workload import Workload
from ischeduler.helper.config import load_config
from ischeduler.helper.workloads import read_workload


@pytest.fixture
def config(tmp_path: Path):  # type: ignore[no-untyped-def]
    def load():  # type: ignore[no-untyped-def]
        return load_config(
            directory=tmp_path,
            environment={"XDG_CONFIG_HOME": str(tmp_path / "none"), "ISCHED_PATHS_STATE": str(tmp_path / "state")},
        )

    return load


def script(folder: Path, head: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(head + "\nprint('training')\n")
    return path


def test_header_lines(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    script(
        tmp_path,
        '# isched: model = "train.py:net"\n# isched: epochs = 7\n# isched: batch_size = [16, 32]\n'
        '# isched: command = ["python", "train.py", "--bs", "{batch_size}"]\n# isched: memory = "2G"',
    )
    w = read_workload("train.py", {}, config())
    assert (w.model, w.epochs, w.batch_size, w.memory_bytes) == ("train.py:net", 7, (16, 32), 2 * 2**30)
    assert w.directory == str(tmp_path)
    assert w.name == "train"


def test_inline_metadata_block(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    script(
        tmp_path, '# /// script\n# dependencies = ["torch"]\n# [tool.ischeduler]\n# epochs = 9\n# model = "timm:resnet18"\n# ///'
    )
    w = read_workload("train.py", {}, config())
    assert (w.model, w.epochs) == ("timm:resnet18", 9)


def test_flags_beat_the_head_which_beats_the_project_file(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "ischeduler.toml").write_text('model = "timm:resnet18"\n[workload]\nepochs = 1\nsamples = 10\nbatch_size = 8\n')
    script(tmp_path, "# isched: epochs = 2\n# isched: samples = 20")
    w = read_workload("train.py", {"epochs": "3"}, config())
    assert (w.model, w.epochs, w.samples, w.batch_size) == ("timm:resnet18", 3, 20, 8)


def test_a_script_without_a_head_still_has_a_command(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    script(tmp_path, "")
    w = read_workload("train.py", {"epochs": "3"}, config())
    assert w.command[-1] == "train.py"
    assert "python" in w.command[0]


def test_a_model_reference_and_a_workload(config) -> None:  # type: ignore[no-untyped-def]
    w = read_workload(
        "timm:resnet50", {"samples": "20_000", "epochs": 50, "batch_size": "32,64", "input_shape": "3x224x224"}, config()
    )
    assert (w.model, w.samples, w.batch_size, w.input_shape, w.name) == (
        "timm:resnet50",
        20_000,
        (32, 64),
        (3, 224, 224),
        "resnet50",
    )
    assert read_workload(Workload(model="timm:resnet50"), {"epochs": 4}, config()).epochs == 4


def test_a_function_of_a_file_becomes_a_reference(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    import importlib.util

    path = tmp_path / "nets.py"
    path.write_text("def build():\n    return None\n")
    spec = importlib.util.spec_from_file_location("nets_for_test", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["nets_for_test"] = module
    spec.loader.exec_module(module)
    try:
        assert read_workload(module.build, {}, config()).model == f"{path}:build"
    finally:
        del sys.modules["nets_for_test"]


@pytest.mark.parametrize(
    ("source", "given", "sentence"),
    [
        (None, {}, "nothing says what to train"),
        ("trian.py", {}, "there is no file"),
        ("timm:resnet50", {"epocs": 3}, "'epocs' in the request is not a field of a workload; the nearest is 'epochs'."),
        ("timm:resnet50", {"epochs": "many"}, "epochs in the request cannot be 'many'; expected a whole number."),
        ("timm:resnet50", {"epochs": 0}, "epochs must be at least 1, not 0."),
        ("timm:resnet50", {"batch_size": ""}, "batch_size in the request cannot be ''"),
        ("timm:resnet50", {"precision": "fp12"}, "precision 'fp12' is unknown; expected one of fp32, tf32, fp16, bf16."),
        ("timm:resnet50", {"memory": "lots"}, "'lots' is not a memory size"),
        (
            "timm:resnet50",
            {"command": "python t.py --bs {batchsize}"},
            "'{batchsize}' in the command is not a placeholder; the nearest is 'batch_size'.",
        ),
        (
            "timm:resnet50",
            {"command": "python t.py", "batch_size": "32,64"},
            "several batch sizes are given but the command has no {batch_size}",
        ),
        ("timm:resnet50", {"options": ["drop"]}, "'drop' is not NAME=VALUE."),
        (
            "timm:resnet50",
            {"environment": {"moduels": []}},
            "'moduels' is not a part of the environment; the nearest is 'modules'.",
        ),
    ],
)
def test_one_clear_sentence(tmp_path: Path, config, source, given, sentence) -> None:  # type: ignore[no-untyped-def]
    script(tmp_path, "")
    with pytest.raises(BadInput) as error:
        read_workload(source, given, config())
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_suggests_the_nearest(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    script(tmp_path, "")
    with pytest.raises(BadInput, match=r"the nearest is 'train.py'"):
        read_workload("trian.py", {}, config())


def test_a_head_that_is_not_toml_says_where(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    script(tmp_path, "# isched: model = timm:resnet18")
    with pytest.raises(IschedError, match=r"'# isched:' lines of .*train.py are not valid TOML.*texts need quotes"):
        read_workload("train.py", {}, config())


def test_the_environment_is_filled_from_the_configuration(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "ischeduler.toml").write_text(
        '[environment]\nmodules = ["cuda/12"]\nconda = "base"\nvariables = { A = "1", B = "2" }\n'
    )
    script(tmp_path, '# isched: environment.conda = "mine"\n# isched: environment.variables = { B = "3" }')
    env = read_workload("train.py", {}, config()).environment
    assert (env.modules, env.conda, dict(env.variables)) == (("cuda/12",), "mine", {"A": "1", "B": "3"})


def test_braces_that_are_no_placeholder_are_left_alone(config) -> None:  # type: ignore[no-untyped-def]
    w = read_workload("timm:resnet50", {"command": ["python", "t.py", "--json", '{"a": 1}', "{{x}}"]}, config())
    assert w.command[-2:] == ('{"a": 1}', "{{x}}")


def test_jobs_are_told_where_to_push_their_events(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "ischeduler.toml").write_text('[push]\nurl = "https://centre.example/events"\ntoken_file = "/home/ada/token"\n')
    script(tmp_path, "")
    variables = read_workload("train.py", {}, config()).environment.variables
    assert variables == {"ISCHED_PUSH_URL": "https://centre.example/events", "ISCHED_PUSH_TOKEN_FILE": "/home/ada/token"}


def test_a_push_address_that_is_none_is_refused(tmp_path: Path, config) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "ischeduler.toml").write_text('[push]\nurl = "centre.example"\n')
    script(tmp_path, "")
    with pytest.raises(IschedError, match="must begin with https"):
        read_workload("train.py", {}, config())
