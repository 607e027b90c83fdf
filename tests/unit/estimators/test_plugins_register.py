"""The register: versions by digest, shadow, promote, roll back; damage; two writers; and what becomes of it in the registry."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput, ConfigError, EstimatorFailed, IschedError, NotFound
from ischeduler.estimators.conformance import example
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.plugins.install import Installer, Source
from ischeduler.estimators.plugins.load import InstalledEstimator, add_plugins, estimator_of
from ischeduler.estimators.plugins.publish import publish
from ischeduler.estimators.plugins.register import Register
from ischeduler.estimators.plugins.shadow import AnswerLog
from ischeduler.estimators.plugins.versions import Plugin, PluginVersion
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.walltime.formula import StartupEstimator
from ischeduler.ports import EstimatorInfo

REQUEST = example("startup")
CHANGES = {"promote": Plugin.promoted, "roll back": Plugin.rolled_back}


def version(number: int, name: str = "mine", **changed: object) -> PluginVersion:
    info = EstimatorInfo(name, str(number), ("startup",), "analytic")
    made = PluginVersion(f"sha256:{number:064x}", "process", info, {"command": ["true"]}, float(number))
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


def project(folder: Path, seconds: float, number: str = "1", extra: str = "") -> Path:
    """A plug-in whose start-up is always so long."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "estimator.toml").write_text(f'name = "mine"\nversion = "{number}"\ncommand = ["python3", "-m", "mine"]\n')
    (folder / "src" / "mine.py").write_text(f"""
import json, sys
message = json.load(sys.stdin)
info = {{"name": "mine", "version": "{number}", "quantities": ["startup"], "basis": "history"}}
figures = {{"p10": 1, "p50": {seconds}, "p90": 99, "unit": "s", "source": "mine@{number}", "reason": "a constant"}}
{extra}
if message.get("describe"):
    print(json.dumps({{"contract": "1", "info": info}}))
else:
    print(json.dumps({{"contract": "1", "quantity": message["quantity"], "estimate": figures}}))
""")
    return folder


def add(register: Register, folder: Path) -> PluginVersion:
    made = Installer(register.folder).version(Source(str(folder), "process"))
    register.change(made.info.name, lambda p: p.with_version(made))
    return made


def test_versions_go_through_shadow_promotion_and_back() -> None:
    one, two = version(1), version(2)
    plugin = Plugin("mine").with_version(one)
    assert plugin.version("active") == one
    plugin = plugin.with_version(two)
    assert (plugin.role(one.digest), plugin.role(two.digest)) == ("active", "shadow")
    promoted = plugin.promoted()
    assert (promoted.role(one.digest), promoted.role(two.digest)) == ("previous", "active")
    assert promoted.rolled_back().version("active") == one
    assert plugin.rolled_back().shadow == ""
    with pytest.raises(BadInput, match="in use already"):
        plugin.with_version(one)
    with pytest.raises(BadInput, match="Nothing of 'mine' is in shadow"):
        promoted.promoted()
    with pytest.raises(BadInput, match="no earlier version"):
        Plugin("mine").with_version(one).rolled_back()


@given(st.lists(st.one_of(st.integers(1, 5), st.sampled_from(["promote", "roll back"])), max_size=30))
def test_whatever_is_done_there_is_always_one_that_answers(steps: list[int | str]) -> None:
    plugin = Plugin("mine").with_version(version(9))
    for step in steps:
        try:
            plugin = plugin.with_version(version(step)) if isinstance(step, int) else CHANGES[step](plugin)
        except BadInput:
            continue
        assert plugin.active in plugin.versions
        assert plugin.shadow != plugin.active
        assert not plugin.shadow or plugin.shadow in plugin.versions
        assert set(plugin.previous) <= set(plugin.versions)


def test_a_version_is_found_by_role_version_and_digest() -> None:
    plugin = Plugin("mine").with_version(version(1)).with_version(version(2))
    assert plugin.version("").info.version == "1"
    assert plugin.version("shadow").info.version == "2"
    assert plugin.version("2").info.version == "2"
    assert plugin.version("sha256:" + "0" * 63 + "2").info.version == "2"
    with pytest.raises(NotFound, match=r"no version '7'; it has mine@1\+sha256"):
        plugin.version("7")


def test_a_python_module_is_replaced_and_not_shadowed() -> None:
    spec = {"object": "mine:Mine"}
    plugin = Plugin("mine").with_version(version(1, runtime="python", spec=spec)).with_version(version(2, runtime="python", spec=spec))
    assert plugin.shadow == ""
    assert list(plugin.versions) == [plugin.active] == [version(2).digest]


def test_the_register_survives_and_is_private(tmp_path: Path) -> None:
    register = Register(tmp_path / "estimators")
    assert register.read() == {}
    register.change("mine", lambda p: p.with_version(version(1)))
    assert Register(tmp_path / "estimators").get("mine").version("active") == version(1)
    assert (tmp_path / "estimators").stat().st_mode & 0o077 == 0
    with pytest.raises(NotFound, match="No plug-in 'other' was added; there is mine"):
        register.get("other")
    register.remove("mine")
    assert register.read() == {}


def test_a_refused_change_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    register = Register(tmp_path)
    register.change("mine", lambda p: p.with_version(version(1)))
    before = register.path.read_bytes()
    with pytest.raises(BadInput):
        register.change("mine", Plugin.promoted)
    assert register.path.read_bytes() == before


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Register(tmp_path).change(f"p{n}", lambda p: p.with_version(version(n, f"p{n}"))), range(24)))
    assert len(Register(tmp_path).read()) == 24


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "isched.plugins/9"}', '{"schema": "isched.plugins/1", "plugins": {"x": 3}}'])
def test_a_damaged_register_is_a_sentence_and_the_others_still_answer(tmp_path: Path, text: str) -> None:
    (tmp_path / "register.json").write_text(text)
    with pytest.raises(ConfigError, match=r"register\.json"):
        Register(tmp_path).read()
    registry = Registry([StartupEstimator()])
    add_plugins(registry, tmp_path)
    assert len(registry.problems) == 1
    assert registry.answer(REQUEST)[0].source == "startup-prior@1"


def test_a_name_that_is_taken_and_a_runtime_of_tomorrow_are_problems(tmp_path: Path) -> None:
    register = Register(tmp_path)
    register.change("startup-prior", lambda p: p.with_version(version(1, "startup-prior")))
    register.change("new", lambda p: p.with_version(version(1, "new", runtime="quantum")))
    registry = Registry([StartupEstimator()])
    add_plugins(registry, tmp_path)
    assert ["already" in p or "quantum" in p for p in registry.problems] == [True, True]


def test_a_plug_in_is_asked_before_the_less_trusted_and_shadow_is_only_recorded(tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    first = add(register, project(tmp_path / "one", 5))
    registry = Registry([StartupEstimator()])
    add_plugins(registry, register.folder)
    assert registry.answer(REQUEST)[0].p50 == 5
    second = add(register, project(tmp_path / "two", 7, "2"))
    answer, notes = registry.answer(REQUEST)
    assert (answer.p50, answer.source, notes) == (5, f"mine@1+{first.digest[:19]}", ())
    entry = AnswerLog(register.answers / "mine.jsonl").read()[-1]
    assert (entry["active"]["p50"], entry["shadow"]["p50"]) == (5, 7)
    assert entry["shadow"]["source"] == f"mine@2+{second.digest[:19]}"
    register.change("mine", Plugin.promoted)
    assert registry.answer(REQUEST)[0].p50 == 7
    register.change("mine", Plugin.rolled_back)
    assert registry.answer(REQUEST)[0].p50 == 5
    register.remove("mine")
    fallen_back, notes = registry.answer(REQUEST)
    assert fallen_back.source == "startup-prior@1"
    assert "No plug-in 'mine'" in notes[0]


@pytest.mark.parametrize("trouble", ["print('nonsense'); sys.exit()", "sys.exit(4)", "figures['unit'] = 'bytes'", "figures['source'] = 'x@1'"])
def test_a_shadow_that_fails_harms_nobody(tmp_path: Path, trouble: str) -> None:
    register = Register(tmp_path / "data")
    add(register, project(tmp_path / "one", 5))
    add(register, project(tmp_path / "two", 7, "2", extra=f"if not message.get('describe'):\n    {trouble}"))
    estimator = estimator_of(register.get("mine"), register)
    assert estimator.estimate(REQUEST).p50 == 5
    assert "error" in AnswerLog(register.answers / "mine.jsonl").read()[-1]["shadow"]


def test_a_shadow_is_recorded_beside_an_active_one_that_fails(tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    add(register, project(tmp_path / "one", 5, extra="if not message.get('describe'):\n    sys.exit(4)"))
    add(register, project(tmp_path / "two", 7, "2"))
    with pytest.raises(EstimatorFailed, match="exit code 4"):
        estimator_of(register.get("mine"), register).estimate(REQUEST)
    entry = AnswerLog(register.answers / "mine.jsonl").read()[-1]
    assert "exit code 4" in entry["active"]["error"]
    assert entry["shadow"]["p50"] == 7


def test_a_record_does_not_grow_for_ever_and_torn_lines_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ischeduler.estimators.plugins.shadow.LARGEST_BYTES", 1000)
    log = AnswerLog(tmp_path / "answers" / "x.jsonl")
    for number in range(200):
        log.write({"n": number})
    assert log.path.stat().st_size < 1100
    assert log.read()[-1] == {"n": 199}
    with log.path.open("a") as file:
        file.write('{"torn": ')
    assert log.read()[-1] == {"n": 199}


def test_files_changed_after_adding_are_noticed(tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    made = add(register, project(tmp_path / "one", 5))
    Path(made.spec["tree"], "mine.py").write_text("print('something else')")
    with pytest.raises(EstimatorFailed, match="not those that were added"):
        estimator_of(register.get("mine"), register).estimate(REQUEST)


def test_the_folder_it_came_from_may_change_and_go(tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    folder = project(tmp_path / "one", 5)
    add(register, folder)
    project(tmp_path / "one", 1000)
    assert estimator_of(register.get("mine"), register).estimate(REQUEST).p50 == 5


def test_a_command_is_pinned_by_its_files(tmp_path: Path) -> None:
    script = project(tmp_path / "one", 5) / "src" / "mine.py"
    register = Register(tmp_path / "data")
    made = Installer(register.folder).version(Source(command=("python3", str(script)), runtime="process"))
    register.change("mine", lambda p: p.with_version(made))
    assert made.spec["command"] == [sys.executable, str(script)]
    assert estimator_of(register.get("mine"), register).estimate(REQUEST).p50 == 5
    script.write_text(script.read_text().replace('"p50": 5', '"p50": 6'))
    with pytest.raises(EstimatorFailed, match="not those that were added"):
        estimator_of(register.get("mine"), register).estimate(REQUEST)


def test_another_quantity_after_a_promotion_is_passed_on(tmp_path: Path) -> None:
    register = Register(tmp_path / "data")
    add(register, project(tmp_path / "one", 5))
    installed = InstalledEstimator("mine", register)
    with pytest.raises(NoEvidence, match="does not answer"):
        installed.estimate(replace(REQUEST, quantity="checkpoint"))


@pytest.mark.parametrize(("source", "words"), [
    (Source("x", "magic"), "no runtime 'magic'"), (Source(), "Name what to add"), (Source("no-version", "tapis"), r"expected APP@VERSION"),
    (Source(command=("no-such-program-here",), runtime="process"), "no program 'no-such-program-here'"),
    (Source("/nowhere", "process"), "no estimator.toml"), (Source("no_such_module_x:Y", "python"), "not installed"),
    (Source(command=("true",), runtime="process"), r"true was not added: its answer is not JSON"),
    (Source("http://example.org/x"), "without encryption"),
])
def test_what_cannot_be_added_is_a_sentence(tmp_path: Path, source: Source, words: str) -> None:
    with pytest.raises(IschedError, match=words) as failure:
        Installer(tmp_path).version(source)
    assert "\n" not in str(failure.value)


def test_a_plug_in_may_not_claim_to_be_the_users_own_word(tmp_path: Path) -> None:
    folder = project(tmp_path / "one", 5, extra="info['basis'] = 'given'")
    with pytest.raises(BadInput, match="figures that you declare yourself"):
        Installer(tmp_path / "data").version(Source(str(folder), "process"))


@pytest.mark.parametrize("target", ["nonsense", "UPPER/x", "host/path", "x.org/", "x.org/a b", "x.org/a:b:c"])
def test_a_bad_place_to_publish_is_refused(target: str) -> None:
    with pytest.raises(BadInput, match="no place in a registry"):
        publish(version(1, runtime="container", spec={"engine": "podman", "image": "x"}), target)


def test_only_images_are_published() -> None:
    with pytest.raises(BadInput, match="no image of podman or docker"):
        publish(version(1), "registry.example.org/lab/x:1")


def test_the_file_is_readable_json(tmp_path: Path) -> None:
    register = Register(tmp_path)
    register.change("mine", lambda p: p.with_version(version(1)))
    assert json.loads(register.path.read_text())["schema"] == "isched.plugins/1"
