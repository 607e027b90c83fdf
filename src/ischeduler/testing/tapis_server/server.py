"""The tenant: tokens, systems, apps, files and jobs, one method an operation."""

from __future__ import annotations

import fnmatch
import json
import uuid as uuids
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ischeduler.core.errors import BatchUnavailable, SubmitRefused
from ischeduler.core.jobs import JobState
from ischeduler.ports import Clock
from ischeduler.testing.tapis_server.checks import Wrong, check, match
from ischeduler.testing.tapis_server.faults import Faults
from ischeduler.testing.tapis_server.runners import Runner

KEY = "the stand-in's own key, of more than 32 bytes"
ENDED = ("FINISHED", "CANCELLED", "FAILED")
_CONDITIONS = {JobState.TIMEOUT: "SCHEDULER_TIMEOUT", JobState.OUT_OF_MEMORY: "SCHEDULER_OUT_OF_MEMORY", JobState.PREEMPTED: "SCHEDULER_STOPPED",
               JobState.NODE_FAIL: "SCHEDULER_TERMINATED", JobState.FAILED: "JOB_REMOTE_OUTCOME_ERROR"}  # fmt: skip


@dataclass
class Job:
    """A job as the service keeps it."""

    request: dict[str, Any]
    fields: dict[str, Any]
    remote: str = ""
    seq: int = 0
    subscriptions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class TapisServer:
    """Answers requests (see :mod:`ischeduler.testing.tapis_server.transport` for how they come).

    ``users`` maps names to passwords. ``deliver`` posts news to a URL. ``token_s`` is how long a token lives. ``submit_schema`` is one
    more JSON schema for submissions. ``root`` is the system's file system.
    """

    def __init__(
        self, clock: Clock, runner: Runner, root: Path, *, users: Mapping[str, str], systems: Mapping[str, Mapping[str, Any]],
        token_s: float = 3600.0, deliver: Callable[[str, dict[str, Any]], None] | None = None, submit_schema: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.runner, self.root, self.users = clock, runner, root, dict(users)
        self.systems: dict[str, dict[str, Any]] = {k: dict(v) for k, v in systems.items()}
        self.apps: dict[tuple[str, str], dict[str, Any]] = {}
        self.jobs: dict[str, Job] = {}
        self.token_s, self.deliver, self.submit_schema = token_s, deliver, submit_schema
        self.faults = Faults()
        self.seen: Counter[str] = Counter()

    def handle(self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """(status, document or bytes) of a request. ``body`` is JSON's value, or bytes of an uploaded file."""
        try:
            if self.faults.use("fail"):
                raise Wrong(500, "something broke")
            operation, found = match(method, path)
            check(operation, query, body)
            self.seen[operation.name] += 1
            user = "" if operation.name.startswith("authenticator.") else self._user(headers)
            self.tick()
            result = getattr(self, operation.name.replace(".", "_"))(user, found, query, body)
            if self.faults.use("fail_after"):
                raise Wrong(500, "something broke")
        except AttributeError as missing:
            return self._answer(501, f"the stand-in has no {missing}", None)
        except Wrong as wrong:
            return self._answer(wrong.status, str(wrong), None)
        return (200, result) if isinstance(result, bytes) else self._answer(201 if method == "POST" else 200, "done", result)

    def tick(self) -> None:
        """Look how the jobs are, and tell what changed."""
        for job in list(self.jobs.values()):
            if job.fields["status"] not in ENDED and job.remote:
                self._refresh(job)

    def release(self) -> None:
        """Deliver what was held back."""
        held, self.faults.late = self.faults.late, []
        self.faults.hold = False
        for url, body in reversed(held) if self.faults.reverse else held:
            self._send(url, body)

    # Tokens

    def authenticator_create_token(self, user: str, path: Any, query: Any, body: Any) -> Any:
        import jwt

        if body.get("grant_type") == "password":
            if self.users.get(body.get("username")) != body.get("password"):
                raise Wrong(401, "invalid username/password combination")
            who = body["username"]
        else:
            who = str(body.get("refresh_token")).removeprefix("refresh-")
            if who not in self.users:
                raise Wrong(401, "invalid refresh token")
        claims = {
            "sub": f"{who}@dev",
            "tapis/tenant_id": "dev",
            "exp": self.clock.now() + self.token_s,
            "jti": str(uuids.uuid4()),
        }
        token = {"access_token": jwt.encode(claims, KEY, algorithm="HS256"), "expires_in": self.token_s}
        return {"access_token": token, "refresh_token": {"refresh_token": f"refresh-{who}"}}

    def _user(self, headers: Mapping[str, str]) -> str:
        import jwt

        if self.faults.use("refuse_tokens"):
            raise Wrong(401, "the token is not valid")
        try:
            claims = jwt.decode(headers.get("X-Tapis-Token", ""), KEY, algorithms=["HS256"], options={"verify_exp": False})
        except jwt.PyJWTError:
            raise Wrong(401, "the token is not valid") from None
        if claims["exp"] <= self.clock.now():
            raise Wrong(401, "the token has expired")
        return str(claims["sub"]).removesuffix("@dev")

    # Systems and apps

    def systems_createSystem(self, user: str, path: Any, query: Any, body: Any) -> Any:
        if body["id"] in self.systems:
            raise Wrong(409, "that system exists")
        self.systems[body["id"]] = {**body, "owner": user}
        return {"url": f"/v3/systems/{body['id']}"}

    def systems_getSystem(self, user: str, path: Any, query: Any, body: Any) -> Any:
        return self._system(path["systemId"])

    def apps_createAppVersion(self, user: str, path: Any, query: Any, body: Any) -> Any:
        self.apps[(body["id"], body["version"])] = dict(body)
        return {"url": f"/v3/apps/{body['id']}/{body['version']}"}

    def _system(self, name: str) -> dict[str, Any]:
        if name not in self.systems:
            raise Wrong(404, f"no system {name}")
        return self.systems[name]

    # Files

    def files_insert(self, user: str, path: Any, query: Any, body: Any) -> Any:
        place = self._place(path)
        if not isinstance(body, bytes):
            raise Wrong(400, "a file is uploaded as multipart/form-data")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
        for job in self.jobs.values():
            if str(place) == f"{self._inside(job.fields['execSystemInputDir'])}/isched_signal" and job.remote:
                self.runner.word(job.remote, body.decode().strip())
        return None

    def files_getContents(self, user: str, path: Any, query: Any, body: Any) -> Any:
        place = self._place(path)
        if not place.is_file():
            raise Wrong(404, "no such file")
        return place.read_bytes()

    def _place(self, path: Mapping[str, str]) -> Path:
        self._system(path["systemId"])
        return self._inside(unquote(path["path"]))

    def _inside(self, text: str) -> Path:
        """A path of the system's: absolute ones that lie below the root already are taken as they are."""
        absolute = Path("/" + text.strip("/"))
        found = (absolute if absolute.is_relative_to(self.root) else self.root / text.strip("/")).resolve()
        if not found.is_relative_to(self.root.resolve()):
            raise Wrong(400, "that path leads out of the system")
        return found

    # Jobs

    def jobs_submitJob(self, user: str, path: Any, query: Any, body: Any) -> Any:
        if self.submit_schema is not None:
            try:
                self.submit_schema(body)
            except Exception as error:
                raise Wrong(400, f"the request does not fit: {error}") from None
        self._within(body)
        number, now = str(uuids.uuid4()), self._now()
        folder = self.root / "work" / number
        folder.mkdir(parents=True)
        script = self._staged(body, folder)
        fields = {
            "uuid": number, "name": body["name"], "owner": user, "status": "PENDING", "condition": None, "created": now, "lastMessage": "created",
            "execSystemInputDir": str(folder), "execSystemId": body["execSystemId"], "execSystemLogicalQueue": body["execSystemLogicalQueue"],
            "maxMinutes": body.get("maxMinutes", 10), "nodeCount": body.get("nodeCount", 1), "appId": body["appId"], "remoteJobId": None,
            "remoteStarted": None, "remoteEnded": None, "ended": None, "remoteResultInfo": None,
        }  # fmt: skip
        job = self.jobs[number] = Job(dict(body), fields, subscriptions=list(body.get("subscriptions") or []))
        for status in ("PROCESSING_INPUTS", "STAGING_INPUTS", "STAGING_JOB", "SUBMITTING_JOB"):
            self._change(job, status)
        try:
            job.remote = self.runner.start(body, number, script, str(folder))
        except SubmitRefused as error:
            job.fields |= {"condition": "JOB_LAUNCH_FAILURE", "lastMessage": str(error), "ended": self._now()}
            self._change(job, "FAILED")
            return dict(fields)
        except BatchUnavailable as error:
            raise Wrong(500, str(error)) from None
        fields["remoteJobId"] = job.remote
        self._change(job, "QUEUED")
        self._refresh(job)
        return dict(job.fields)

    def jobs_getJob(self, user: str, path: Any, query: Any, body: Any) -> Any:
        return dict(self._job(user, path).fields)

    def jobs_getJobStatus(self, user: str, path: Any, query: Any, body: Any) -> Any:
        fields = self._job(user, path).fields
        return {"status": fields["status"], "condition": fields["condition"]}

    def jobs_getJobSearchList(self, user: str, path: Any, query: Any, body: Any) -> Any:
        rows = [j.fields for j in self.jobs.values() if j.fields["owner"] == user and _fits(j.fields, query)]
        first = int(query.get("skip", 0))
        return [dict(r) for r in rows[first : first + int(query.get("limit", 100))]]

    def jobs_cancelJob(self, user: str, path: Any, query: Any, body: Any) -> Any:
        job = self._job(user, path)
        if job.fields["status"] in ENDED:
            raise Wrong(400, "the job has ended")
        self.runner.end(job.remote)
        self._refresh(job)
        if job.fields["status"] not in ENDED:
            job.fields |= {"ended": self._now(), "condition": "CANCELLED_BY_USER"}
            self._change(job, "CANCELLED")
        return {"message": "cancelled"}

    def jobs_subscribe(self, user: str, path: Any, query: Any, body: Any) -> Any:
        self._job(user, path).subscriptions.append(dict(body))
        return {"url": "subscribed"}

    def jobs_sendEvent(self, user: str, path: Any, query: Any, body: Any) -> Any:
        if not 0 < len(body["eventData"]) <= 16384 or not 0 < len(body.get("eventDetail", "x")) <= 64:
            raise Wrong(400, "eventData has 1 to 16384 characters, eventDetail 1 to 64")
        job = self._job(user, path)
        self._tell(job, "JOB_USER_EVENT", body.get("eventDetail", "DEFAULT"), {"eventData": body["eventData"]})
        return {"message": "sent"}

    def jobs_getJobOutputList(self, user: str, path: Any, query: Any, body: Any) -> Any:
        folder = Path(self._job(user, path).fields["execSystemInputDir"]) / path["outputPath"].strip("/")
        return [
            {"name": f.name, "path": str(f), "type": "dir" if f.is_dir() else "file", "size": f.stat().st_size}
            for f in sorted(folder.iterdir())
        ]

    def jobs_getJobOutputDownload(self, user: str, path: Any, query: Any, body: Any) -> Any:
        place = Path(self._job(user, path).fields["execSystemInputDir"]) / unquote(path["outputPath"]).strip("/")
        if not place.is_file():
            raise Wrong(404, "no such file")
        return place.read_bytes()

    def _job(self, user: str, path: Mapping[str, str]) -> Job:
        job = self.jobs.get(path["jobUuid"])
        if job is None or job.fields["owner"] != user:
            raise Wrong(404, "no such job")
        return job

    def _within(self, body: Mapping[str, Any]) -> None:
        """The system's, the queue's and the app's own rules."""
        system = self._system(str(body.get("execSystemId")))
        queues = {q["name"]: q for q in system.get("batchLogicalQueues") or []}
        queue = queues.get(body.get("execSystemLogicalQueue"))
        if queue is None:
            raise Wrong(400, "no such logical queue")
        if (body["appId"], body["appVersion"]) not in self.apps:
            raise Wrong(404, "no such app")
        for name, limit in (
            ("nodeCount", "NodeCount"),
            ("coresPerNode", "CoresPerNode"),
            ("memoryMB", "MemoryMB"),
            ("maxMinutes", "Minutes"),
        ):
            if body.get(name, 1) > queue.get(f"max{limit}", 1 << 40):
                raise Wrong(400, f"{name} is beyond the queue's limit")

    def _staged(self, body: Mapping[str, Any], folder: Path) -> str:
        """The input files where the job finds them; the script's text."""
        script = ""
        for entry in body.get("fileInputs") or []:
            system, _, place = entry["sourceUrl"].removeprefix("tapis://").partition("/")
            self._system(system)
            source = self._inside(unquote(place))
            if not source.is_file():
                raise Wrong(400, f"the input {entry['sourceUrl']} is not there")
            (folder / entry["targetPath"]).write_bytes(source.read_bytes())
            script = source.read_text()
        return script

    def _refresh(self, job: Job) -> None:
        try:
            seen = self.runner.look(job.request, job.remote)
        except BatchUnavailable:
            return
        if seen is None or job.fields["status"] in ENDED:
            return
        fields = job.fields
        if seen.start_s is not None:
            fields["remoteStarted"] = _text(seen.start_s)
        if seen.state is JobState.RUNNING:
            self._change(job, "RUNNING")
        elif seen.state.ended:
            self._ended(job, seen)

    def _ended(self, job: Job, seen: Any) -> None:
        fields = job.fields
        if fields["status"] != "RUNNING" and seen.start_s is not None:
            self._change(job, "RUNNING")
        fields |= {"remoteEnded": _text(seen.end_s), "ended": _text(seen.end_s)}
        fields["remoteResultInfo"] = f"0:{seen.signal}" if seen.signal and seen.exit_code is None else str(seen.exit_code or 0)
        if seen.state is JobState.CANCELLED:
            fields["condition"] = "CANCELLED_BY_USER"
            self._change(job, "CANCELLED")
        elif seen.state is JobState.COMPLETED:
            fields["condition"] = "NORMAL_COMPLETION"
            self._change(job, "FINISHED")
        else:
            fields["condition"] = _CONDITIONS[seen.state]
            fields["lastMessage"] = f"the scheduler says {seen.state.upper()}"
            self._change(job, "FAILED")

    def _change(self, job: Job, status: str) -> None:
        old = job.fields["status"]
        if old == status:
            return
        job.fields |= {"status": status, "lastUpdated": self._now()}
        data = {"jobName": job.fields["name"], "jobOwner": job.fields["owner"], "jobUuid": job.fields["uuid"], "newJobStatus": status,
                "oldJobStatus": old, "message": job.fields["lastMessage"]}  # fmt: skip
        if status in ENDED:
            data |= {"condition": job.fields["condition"], "remoteJobId": job.remote}
        self._tell(job, "JOB_NEW_STATUS", status, data)

    def _tell(self, job: Job, category: str, detail: str, data: Mapping[str, Any]) -> None:
        job.seq += 1
        event = {"source": "urn:tapis:jobs", "type": f"jobs.{category}.{detail}", "subject": job.fields["uuid"], "seriesId": job.fields["uuid"],
                 "seriesSeqCount": job.seq, "time": self._now(), "data": json.dumps(data)}  # fmt: skip
        for subscription in job.subscriptions:
            if subscription["eventCategoryFilter"] in ("ALL", category):
                for target in subscription["deliveryTargets"]:
                    self._post(target["deliveryAddress"], {"event": event})

    def _post(self, url: str, body: dict[str, Any]) -> None:
        if self.faults.use("lose"):
            return
        if self.faults.hold:
            self.faults.late.append((url, body))
            return
        for _ in range(2 if self.faults.use("double") else 1):
            self._send(url, body)

    def _send(self, url: str, body: dict[str, Any]) -> None:
        if self.deliver is not None:
            self.deliver(url, body)

    def _now(self) -> str:
        return _text(self.clock.now())

    def _answer(self, status: int, message: str, result: Any) -> tuple[int, dict[str, Any]]:
        word = "success" if status < 300 else "error"
        return status, {"status": word, "message": message, "version": "stand-in", "metadata": {}, "result": result}


def _text(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).isoformat()


def _fits(fields: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """The search's conditions: ``FIELD.in``, ``.nin``, ``.like``, ``.eq``."""
    for name, value in query.items():
        field_name, _, operator = name.partition(".")
        if not operator:
            continue
        text = str(fields.get(field_name))
        fits = {
            "in": text in value.split(","), "nin": text not in value.split(","), "eq": text == value,
            "like": fnmatch.fnmatchcase(text, value),
        }.get(operator)  # fmt: skip
        if not fits:
            return False
    return True
