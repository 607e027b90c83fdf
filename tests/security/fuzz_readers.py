"""Every reader of text that comes from outside, as a function of bytes; what each may answer with besides a value is an IschedError."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Reader = Callable[[bytes], Any]


def allowed(error: Exception) -> bool:
    """A sentence for people is an answer; anything else is a mistake of ours."""
    from ischeduler.core.errors import IschedError

    return isinstance(error, IschedError)


def _text(read: Callable[[str], Any]) -> Reader:
    return lambda data: read(data.decode("utf-8", "replace"))


def _value(read: Callable[[Any], Any]) -> Reader:
    """A reader of JSON values; what is no JSON is not its business."""

    def of(data: bytes) -> Any:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return read(value)

    return of


def _event() -> Reader:
    from ischeduler.service.ingest.messages import read_event

    return read_event


def _event_value() -> Reader:
    from ischeduler.service.ingest.messages import read_value

    return _value(read_value)


def _reference_message() -> Reader:
    from ischeduler.service.ingest.messages import read_reference

    topics = ("performance-messages", "progress-messages", "utilization-messages")
    return lambda data: [read_reference(t, data) for t in topics]


def _spool_line() -> Reader:
    from ischeduler.training.spool import parse_line
    from ischeduler.training.token import Token

    return lambda data: parse_line(data, Token.parse("1.0"))


def _cursor() -> Reader:
    from ischeduler.store.run_pages import read_cursor

    return _text(read_cursor)


def _next_path() -> Reader:
    from ischeduler.service.auth.oidc import safe_path

    def read(text: str) -> None:
        path = safe_path(text)
        assert path.startswith("/"), path
        assert not path.startswith(("//", "/\\")), path

    return _text(read)


def _names() -> Reader:
    from ischeduler.service.auth.principal import check_user_name

    def read(text: str) -> None:
        name = check_user_name(text)
        assert name.isascii(), name
        assert "/" not in name, name
        assert not name.startswith((".", "-")), name

    return _text(read)


def _plan_request() -> Reader:
    from pydantic import ValidationError

    from ischeduler.core.workload import Workload
    from ischeduler.helper.workload_fields import ARGUMENTS, read_fields
    from ischeduler.service.api.bodies import EstimateBody

    def read(data: bytes) -> None:
        try:
            body = EstimateBody.model_validate_json(data)
        except ValidationError:
            return
        if body.workload is not None:
            fields = read_fields(body.workload.fields(), "the request")
            Workload(**{ARGUMENTS.get(k, k): v for k, v in fields.items()})

    return read


def _workload_fields() -> Reader:
    from ischeduler.helper.workload_fields import read_fields

    return _value(lambda value: read_fields(value, "the request") if isinstance(value, dict) else None)


def _given_figures() -> Reader:
    import tempfile

    from ischeduler.estimators.given import read_given

    folder = Path(tempfile.mkdtemp(prefix="isched-given-"))

    def read(data: bytes) -> None:
        file = folder / ("given.json" if data[:1] == b"{" else "given.toml")
        file.write_bytes(data)
        read_given(file)

    return read


def _script_head() -> Reader:
    import tempfile

    from ischeduler.helper.workloads import script_head

    file = Path(tempfile.mkdtemp(prefix="isched-head-")) / "train.py"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        script_head(file)

    return read


def _cluster_document() -> Reader:
    from ischeduler.cidb.document import cluster_of
    from ischeduler.cidb.yaml_text import read_yaml

    return _text(lambda text: cluster_of(read_yaml(text)))


def _durations() -> Reader:
    from ischeduler.core.durations import parse_human, parse_slurm
    from ischeduler.core.sizes import parse_size

    return _text(lambda text: _each(text, parse_human, parse_slurm, parse_size))


def _goals() -> Reader:
    from ischeduler.helper.goals import parse_goal, parse_time

    return _text(lambda text: _each(text, lambda t: parse_goal(t, 0.0), lambda t: parse_time(t, 0.0)))


def _model_reference() -> Reader:
    from ischeduler.estimators.models.references import parse
    from ischeduler.helper.harmless import model_is_a_librarys

    def read(text: str) -> None:
        if model_is_a_librarys(text):
            assert parse(text).kind not in ("module", "file", "script", "object"), text

    return _text(read)


def _slurm_lists() -> Reader:
    from ischeduler.batch.hostlists import expand_hosts
    from ischeduler.batch.slurm_nodes import count_nodes, read_nodes
    from ischeduler.batch.slurm_text import read_finished, read_queue, read_sacct, read_squeue

    parts = (read_squeue, read_sacct, read_finished, lambda t: read_queue(t, "alice"), lambda t: count_nodes(read_nodes(t)), expand_hosts)
    return _text(lambda text: _each(text, *parts))


def _slurm_json() -> Reader:
    from ischeduler.batch.slurm_json import read_squeue_json

    return _text(read_squeue_json)


def _scontrol() -> Reader:
    from ischeduler.cidb.scontrol import config_values, names, number, one_line_records, tres, version_of

    parts = (one_line_records, lambda t: version_of(config_values(t)), names, tres, number)
    return _text(lambda text: _each(text, *parts))


def _guard() -> Reader:
    from ischeduler.service.guard.job import read_job

    return _value(
        lambda value: read_job(value) if isinstance(value, dict) and all(isinstance(v, str) for v in value.values()) else None
    )


def _webhook_url() -> Reader:
    from urllib.parse import urlsplit

    from ischeduler.service.webhooks import is_outside, resolve

    def read(text: str) -> None:
        try:
            host = urlsplit(text).hostname or ""
        except ValueError:
            host = ""
        if host.replace(".", "").replace(":", "").isalnum() and not host.replace(".", "").isdigit() and ":" not in host:
            return  # a name: no look-ups while fuzzing
        _, address, _ = resolve(text, ())
        assert is_outside(address), address

    return _text(read)


def _stored_run() -> Reader:
    from ischeduler.core.codec import from_plain
    from ischeduler.core.snapshot import QueueSnapshot

    def read(value: Any) -> None:
        try:
            from_plain(QueueSnapshot, value)
        except (TypeError, ValueError, AttributeError):
            return  # our own rows only are read so; a damaged one is an error of its reader

    return _value(read)


def _each(text: str, *readers: Callable[[str], Any]) -> None:
    """All of them; the first mistake counts."""
    for read in readers:
        try:
            read(text)
        except Exception as error:
            if not allowed(error):
                raise


READERS: dict[str, Callable[[], Reader]] = {
    "event": _event, "event-value": _event_value, "reference-message": _reference_message, "spool-line": _spool_line, "cursor": _cursor,
    "next-path": _next_path, "user-name": _names, "plan-request": _plan_request, "workload-fields": _workload_fields,
    "given-figures": _given_figures, "script-head": _script_head, "cluster-document": _cluster_document, "durations": _durations,
    "goals": _goals, "model-reference": _model_reference, "slurm-lists": _slurm_lists, "slurm-json": _slurm_json, "scontrol": _scontrol,
    "guard-job": _guard, "webhook-url": _webhook_url, "stored-row": _stored_run,
}  # fmt: skip
_EVENT = b'{"v":1,"run":"r-1","token":"1.0","seq":1,"t":1.5,"kind":"progress","data":{"epoch":1,"loss":0.5}}'
SEEDS: dict[str, Sequence[bytes]] = {
    "event": [_EVENT], "event-value": [_EVENT], "spool-line": [_EVENT],
    "reference-message": [b'{"jobId":"7","epochsCompleted":3,"totalEpochs":50,"days":0,"hours":1,"minutes":2}', b'{"jobId":1,"accuracy":0.9}'],
    "cursor": [b"WzEuMCwgInItMSJd"], "next-path": [b"/runs?x=1", b"//evil", b"/\\evil"],
    "plan-request": [b'{"workload":{"model":"timm:resnet50","epochs":3,"batch_size":[32,64],"environment":{"modules":["a"]}},"goal":"soonest"}'],
    "workload-fields": [b'{"model":"x","batch_size":"32,64","memory":"26G","checkpoint_every":"10m","command":"python a.py","options":["a=1"]}'],
    "given-figures": [b'[[given]]\nrun = "2h"\nrun_p90 = "3h"\nbatch_size = 32\n', b'{"given":[{"wait":5}]}'],
    "script-head": [b'# isched: model = "timm:resnet50"\n# /// script\n# [tool.ischeduler]\n# epochs = 3\n# ///\n'],
    "cluster-document": [b"name: pitzer\ncentre: OSC\nbatch: slurm\nnode_types: {}\npartitions: {}\n"],
    "durations": [b"1-02:03:04", b"2h30m", b"16G"], "goals": [b"deadline=12h", b"budget=2.5"], "model-reference": [b"timm:resnet50", b"a.py:f"],
    "slurm-lists": [b"isched-r-1-1|comment|PENDING|1\n", b"p[001-004,7]", b"NodeName=a State=IDLE+DRAIN CfgTRES=cpu=4,gres/gpu=2"],
    "slurm-json": [b'{"jobs":[{"name":"isched-r-1-1","job_id":7,"job_state":["RUNNING"],"start_time":{"set":true,"number":5}}]}'],
    "scontrol": [b"PartitionName=gpu MaxTime=1-00:00:00 Nodes=a[1-3] TRES=cpu=4,mem=8G\n", b"SLURM_VERSION = 23.11.4\n"],
    "guard-job": [b'{"time_limit":"60","gres":"gpu:2","nodes":"1-2","partition":"gpu"}'],
    "webhook-url": [b"http://127.0.0.1/", b"http://[::1]:80/", b"http://0x7f.1/", b"http://93.184.216.34/x"],
    "stored-row": [b'{"cluster":"a","taken_at":1.0,"nodes":[{"partition":"p","node_type":"n"}],"jobs":[]}'],
}  # fmt: skip
