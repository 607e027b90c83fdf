"""The process and Python runtimes, and what is made of answers: true ones, lies, silence, noise."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.workload import EnvironmentSpec
from ischeduler.estimators.conformance import broken, check_plugin, example
from ischeduler.estimators.contract import schema
from ischeduler.estimators.contract.description import DESCRIBE, info_from_json, info_to_json
from ischeduler.estimators.contract.serve import main, reply
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.runtimes.bounded import run_bounded
from ischeduler.estimators.runtimes.limits import ISOLATED, TRUSTED, Limits, RuntimeFailed
from ischeduler.estimators.runtimes.messages import read_answer, request_message, shown
from ischeduler.estimators.runtimes.plugin import ASIDE_S, PluginEstimator, describe, stamped
from ischeduler.estimators.runtimes.process import ProcessRuntime
from ischeduler.estimators.runtimes.python import PythonRuntime, load_object
from ischeduler.estimators.runtimes.words import clean
from ischeduler.ports import EstimateRequest, EstimatorInfo

INFO = EstimatorInfo("mine", "1", ("startup",), "history", "a test's own")
DIGEST = "sha256:" + "ab" * 32
GOOD: dict[str, Any] = {"p10": 1.0, "p50": 2.0, "p90": 3.0, "unit": "s", "source": "mine@1", "basis": "history", "reason": "measured"}
REQUEST = example("startup")


class Mine:
    """An estimator for the Python runtime."""

    info = INFO

    def estimate(self, request: EstimateRequest) -> Estimate:
        if not request.history:
            raise NoEvidence("nothing like it was seen")
        return Estimate(1.0, 2.0, 3.0, "s", "mine@1", basis="history", reason="measured")


class Scripted:
    """A runtime that answers what it is told to."""

    trust = ISOLATED
    place = "a test"

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def exchange(self, message: bytes) -> bytes:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def program(code: str, *, seconds: float = 20.0, memory_mib: int = 512, output_bytes: int = 2**20) -> ProcessRuntime:
    limits = Limits(seconds, memory_mib * 2**20, output_bytes)
    return ProcessRuntime((sys.executable, "-c", textwrap.dedent(code)), limits=limits)


def answer(**changed: Any) -> bytes:
    return json.dumps({"contract": "1", "quantity": "startup", "estimate": {**GOOD, **changed}}).encode()


def asked(runtime: Any, **options: Any) -> PluginEstimator:
    return PluginEstimator(INFO, runtime, DIGEST, **options)


def test_a_process_gets_the_request_and_its_answer_is_stamped() -> None:
    runtime = program("""
        import json, sys
        request = json.load(sys.stdin)
        figures = {"p10": 1, "p50": len(request["history"]), "p90": 99, "unit": "s", "source": "mine@1"}
        print(json.dumps({"contract": "1", "quantity": request["quantity"], "estimate": figures}))
    """)
    found = asked(runtime).estimate(REQUEST)
    assert found.p50 == len(REQUEST.history)
    assert found.source == "mine@1+sha256:abababababab"
    assert found.basis == "history"


@pytest.mark.parametrize(("code", "words"), [
    ("import sys; print('no licence', file=sys.stderr); sys.exit(3)", "exit code 3 in a process: no licence"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11"),
    ("print('Hello')", "not JSON.*Hello"),
    ("", "not JSON"),
    ("print('[' * 100000)", "not JSON"),
    ("print('[]')", "list; expected an object"),
    ("print('{\"contract\": \"1\", \"quantity\": \"startup\", \"estimate\": {\"p10\": NaN}}')", "not JSON.*NaN"),
    ("while True: print('x' * 65536)", "more than 1048576 bytes"),
    ("x = [bytearray(2**24) for _ in range(10**6)]", "512 MiB|exit code 1.*MemoryError"),
])
def test_every_bad_end_is_one_sentence(code: str, words: str) -> None:
    with pytest.raises(EstimatorFailed, match=words) as failure:
        asked(program(code)).estimate(REQUEST)
    assert "\n" not in str(failure.value)


def test_one_that_hangs_is_stopped_with_all_it_has_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    runtime = program(f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(mark)!r}, "w").write(str(child.pid))
        time.sleep(600)
    """, seconds=1.5)
    started = time.monotonic()
    with pytest.raises(EstimatorFailed, match=r"within 1\.5 s"):
        asked(runtime).estimate(REQUEST)
    assert time.monotonic() - started < 10
    for _ in range(100):
        if not alive(int(mark.read_text())):
            return
        time.sleep(0.05)
    pytest.fail("a child outlived its plug-in")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_that_keeps_the_pipe_open_does_not_hold_us_up() -> None:
    runtime = program("""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("{}")
    """)
    started = time.monotonic()
    assert runtime.exchange(b"x" * 10**6) == b"{}\n"
    assert time.monotonic() - started < 10


def test_memory_of_children_counts() -> None:
    runtime = program("""
        import subprocess, sys, time
        hog = "x = bytearray(300 * 2**20); import time; time.sleep(60)"
        for _ in range(3):
            subprocess.Popen([sys.executable, "-c", hog], start_new_session=True)
        time.sleep(60)
    """, memory_mib=600)
    with pytest.raises(RuntimeFailed, match="more than 600 MiB"):
        runtime.exchange(b"")


def test_a_large_message_and_a_deaf_reader_do_not_deadlock() -> None:
    assert run_bounded([sys.executable, "-c", "print('ok')"], b"x" * 10**7, Limits()).output == b"ok\n"


def test_a_program_that_is_not_there_is_put_aside() -> None:
    with pytest.raises(RuntimeFailed, match="does not start in a process: No such file") as failure:
        ProcessRuntime(("/no/such/program",)).exchange(b"")
    assert failure.value.lasting


@pytest.mark.parametrize(("changed", "words"), [
    ({"unit": "bytes"}, "expected 's'"), ({"source": "mine@2"}, r"added as mine@1: add the new version"), ({"source": 7}, "its source is '7'"),
    ({"p10": 5.0}, "out of order"), ({"p50": "2"}, "expected a number"), ({"p50": True}, "expected a number"), ({"p10": -1.0}, "negative"),
    ({"p90": 1e9}, "plausible"), ({"basis": "magic"}, "basis is 'magic'"), ({"as_of": 4e9}, "in the future"), ({"p90": None}, "expected a number"),
    ({"source": "history@1"}, "its source"), ({"p90": 10**400}, "not finite"),
])
def test_lies_are_found(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(EstimatorFailed, match=words):
        read_answer(answer(**changed), REQUEST, INFO)


@pytest.mark.parametrize(("message", "words"), [
    ({"contract": "2"}, "contract version '2'"), ({"contract": "1"}, "'None' where startup"), ({"contract": "1", "quantity": "cost"}, "'cost'"),
    ({"contract": "1", "quantity": "startup"}, "neither"), ({"contract": "1", "error": "No \x1b[31mlicence\n here."}, r"^No \[31mlicence here\.$"),
])
def test_malformed_answers_are_said(message: dict[str, Any], words: str) -> None:
    with pytest.raises(EstimatorFailed, match=words):
        read_answer(json.dumps(message).encode(), REQUEST, INFO)


def test_a_quiet_refusal_stays_quiet() -> None:
    message = json.dumps({"contract": "1", "quantity": "startup", "error": "nothing like it", "quiet": True}).encode()
    jsonschema.validate(json.loads(message), schema())
    with pytest.raises(NoEvidence, match="nothing like it"):
        asked(Scripted(message)).estimate(REQUEST)


@given(st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["contract", "quantity", "estimate", "error", "p10", "p50", "p90", "unit", "source", "1", "startup"]), inner, max_size=6),
    max_leaves=12).map(lambda value: json.dumps(value).encode()))
def test_no_answer_crashes_the_reader(raw: bytes) -> None:
    with pytest.raises(EstimatorFailed):
        read_answer(raw, REQUEST, INFO)


@given(st.text())
def test_words_from_outside_are_one_printable_line(text: str) -> None:
    line = clean(text)
    assert line.isprintable()
    assert len(line) <= 300


def test_a_failing_plug_in_degrades_to_the_next_with_a_note() -> None:
    second = replace(INFO, name="second", basis="analytic")
    honest = PluginEstimator(second, Scripted(answer(source="second@1")))
    registry = Registry([honest, asked(Scripted(b"Segmentation fault"))])
    found, notes = registry.answer(REQUEST)
    assert found.source == "second@1"
    assert len(notes) == 1
    assert "mine could not say startup: its answer is not JSON" in notes[0]


def test_one_that_hung_is_not_asked_again_for_a_while() -> None:
    now = [0.0]
    runtime = Scripted(RuntimeFailed("it did not answer.", lasting=True), answer())
    estimator = asked(runtime, clock=lambda: now[0], memo=False)
    for _ in range(3):
        with pytest.raises(EstimatorFailed, match="did not answer"):
            estimator.estimate(REQUEST)
    assert runtime.asked == 1
    now[0] = ASIDE_S + 1
    assert estimator.estimate(REQUEST).p50 == 2.0


def test_the_same_question_is_asked_once_and_checks_ask_anew() -> None:
    runtime = Scripted(answer())
    estimator = asked(runtime)
    assert estimator.estimate(REQUEST) == estimator.estimate(REQUEST)
    assert runtime.asked == 1
    estimator.estimate(replace(REQUEST, now=REQUEST.now + 1))
    assert runtime.asked == 2
    fresh = Scripted(answer())
    careful = asked(fresh, memo=False)
    careful.estimate(REQUEST)
    careful.estimate(REQUEST)
    assert fresh.asked == 2


def test_changed_files_are_refused_before_the_first_question() -> None:
    def unchanged() -> None:
        raise EstimatorFailed("its files are not those that were added")

    runtime = Scripted(answer())
    with pytest.raises(EstimatorFailed, match="not those that were added"):
        asked(runtime, unchanged=unchanged).estimate(REQUEST)
    assert runtime.asked == 0


def private_request() -> EstimateRequest:
    work = replace(
        REQUEST.workload, command=("python", "/home/me/project/train.py", "--key=hush"), directory="/home/me/project",
        environment=EnvironmentSpec(variables={"TOKEN": "hush"}),
    )
    return replace(REQUEST, workload=work)


@pytest.mark.parametrize("trust", [TRUSTED, ISOLATED, "remote"])
def test_nobody_is_sent_the_jobs_environment_and_strangers_less(trust: str) -> None:
    text = request_message(private_request(), trust).decode()
    assert "TOKEN" not in text
    private = ("hush", "/home/me", "someone", "r-3")
    assert [p for p in private if p in text] == (list(private) if trust == TRUSTED else [])
    jsonschema.validate(json.loads(text), schema())


def test_what_is_hidden_leaves_the_family_as_it_is() -> None:
    request = private_request()
    nameless = replace(request, workload=replace(request.workload, model=""))
    assert shown(nameless, ISOLATED).workload.family == "train.py"
    assert shown(request, ISOLATED).workload.family == request.workload.family


def test_stamps_keep_what_stands_in_brackets() -> None:
    assert stamped("a@1(b@2)", DIGEST) == "a@1+sha256:abababababab(b@2)"
    assert stamped("a@1", "") == "a@1"


def test_descriptions_go_both_ways_and_fit_the_schema() -> None:
    plain = json.loads(json.dumps(info_to_json(INFO)))
    jsonschema.validate(plain, schema())
    jsonschema.validate(DESCRIBE, schema())
    assert info_from_json(plain) == INFO
    assert describe(PythonRuntime(f"{__name__}:Mine")) == INFO


@pytest.mark.parametrize(("changed", "words"), [
    ({"name": "a b"}, "name"), ({"name": "x" * 80}, "name"), ({"version": ""}, "version"), ({"quantities": []}, "nothing"),
    ({"quantities": ["colour"]}, "colour"), ({"basis": "magic"}, "magic"), ({"name": "a@1"}, "name"), ({"version": None}, "version"),
])
def test_a_bad_description_is_refused(changed: dict[str, Any], words: str) -> None:
    plain = info_to_json(INFO)
    with pytest.raises(EstimatorFailed, match=words):
        info_from_json({**plain, "info": {**plain["info"], **changed}})
    with pytest.raises(EstimatorFailed, match="version 1"):
        info_from_json({**plain, "contract": "2"})


def test_python_plug_ins_answer_through_json() -> None:
    estimator = asked(PythonRuntime(f"{__name__}:Mine"))
    assert estimator.estimate(REQUEST).source == "mine@1+sha256:abababababab"
    with pytest.raises(NoEvidence):
        estimator.estimate(replace(REQUEST, history=()))


@pytest.mark.parametrize("reference", ["nonsense", "no_such_module:X", f"{__name__}:NoSuch", f"{__name__}:DIGEST", "os:getcwd"])
def test_a_bad_reference_is_a_sentence(reference: str) -> None:
    with pytest.raises(RuntimeFailed, match=r"module:Object|did not load|no estimator"):
        load_object(reference)


@pytest.mark.parametrize("message", [b"{", b"[]", b"{}", b'{"contract": "2"}', b'{"contract": "1", "quantity": "startup"}', b"\xff"])
def test_the_serving_side_refuses_bad_messages_in_words(message: bytes) -> None:
    refused = reply(Mine(), message)
    jsonschema.validate(refused, schema())
    assert " " in refused["error"]


def test_serving_reads_and_writes_files(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_bytes(request_message(REQUEST, TRUSTED))
    assert main(Mine(), [str(tmp_path / "request.json"), str(tmp_path / "answer.json")]) == 0
    found = read_answer((tmp_path / "answer.json").read_bytes(), REQUEST, INFO)
    assert found == Mine().estimate(REQUEST)


def test_the_conformance_suite_asks_a_process_what_nobody_should() -> None:
    crashing = program("""
        import json, sys
        request = json.load(sys.stdin)
        figures = {"p10": 1, "p50": 2, "p90": 3, "unit": "s", "source": "mine@1", "reason": "a rule of thumb"}
        assert request["quantity"] == "startup"
        print(json.dumps({"contract": "1", "quantity": "startup", "estimate": figures}))
    """)
    checks = {f.check for f in broken(check_plugin(asked(crashing, memo=False)))}
    assert checks == {"message: no JSON", "message: no object", "message: another version", "message: an unknown quantity"}


def test_a_moody_process_is_found() -> None:
    moody = program("""
        import json, sys, time
        request = json.load(sys.stdin)
        figures = {"p10": 1, "p50": 2 + time.time_ns() % 80000, "p90": 86000, "unit": "s", "source": "mine@1", "reason": "a mood"}
        print(json.dumps({"contract": "1", "quantity": "startup", "estimate": figures}))
    """)
    assert any("Asked twice" in f.text for f in broken(check_plugin(asked(moody, memo=False))))


@pytest.mark.parametrize("code", [
    "print('Hello')", "import sys; sys.exit(1)", f"print({answer(unit='bytes').decode()!r})", f"print({answer(source='mine@7').decode()!r})",
])
def test_what_is_no_answer_and_no_refusal_does_not_conform(code: str) -> None:
    assert any(f.check == "startup: answers" for f in broken(check_plugin(asked(program(code), memo=False))))


def test_no_open_files_are_left() -> None:
    runtime = program("print('{}')")
    runtime.exchange(b"{}")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        runtime.exchange(b"{}")
    assert len(os.listdir("/proc/self/fd")) == before
