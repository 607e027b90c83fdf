"""What events from inside a job change. Late words of superseded incarnations change nothing, nor do duplicates.

Most facts only ever grow (the furthest step, the highest memory), so order does not matter to them. The few that do not
(resumed, checkpointing) count only when they are the newest of their spool, by ``seq``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from ischeduler.core.event import Event
from ischeduler.core.run import Attempt, Progress, Run
from ischeduler.plane.attempts import alive, by_number, change
from ischeduler.plane.services import is_service

EPOCH_TIMES_KEPT = 200
_FRESH: dict[str, Any] = {
    "spool_started": False, "seq": 0, "checkpointing": False, "signalled": "", "finished": False, "exit_code": None,
    "exit_reason": "", "oom_text": "", "oom_where": "", "spool_started_at": None, "heard_at": None, "progressed_at": None,
    "absent_since": None, "startup_s": None, "log_read": False, "signal": None, "started_at": None, "ended_at": None, "ready_at": None,
    "serving": False, "endpoint": "", "service_restarts": 0, "unready_since": None,
}


def parse_token(text: str) -> tuple[int, int] | None:
    """``3.1`` as (3, 1); None for anything else."""
    parts = text.split(".")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        return None
    return int(parts[0]), int(parts[1])


def newest_started(run: Run) -> tuple[int, int]:
    """The newest incarnation that has been heard of; (0, 0) before any."""
    return max(((a.number, a.restarts) for a in run.attempts if a.spool_started), default=(0, 0))


def absorb_event(run: Run, event: Event) -> Run:
    """The run after one event of its own jobs."""
    who = parse_token(event.token)
    if who is None or event.run_id != run.id or (who < newest_started(run) and not is_service(run)):
        return run  # a service's predecessor serves on until its successor is ready: its words still count
    attempt = by_number(run, who[0])
    if attempt is None:
        return run
    if who[1] > attempt.restarts:
        run = new_incarnation(run, attempt, who[1])
        attempt = by_number(run, who[0])
        assert attempt is not None
    handler = _HANDLERS.get(event.kind)
    old = who[1] < attempt.restarts
    if handler is None or (old and event.kind not in ("progress", "checkpoint")):
        return run
    run = handler(run, attempt, event)
    return run if old else _heard(run, who[0], event)


def new_incarnation(run: Run, attempt: Attempt, restarts: int) -> Run:
    """The batch system itself started the job again: same attempt, new token, and its time so far is paid for."""
    used_s = 0.0
    if attempt.spool_started_at is not None and attempt.heard_at is not None:
        used_s = max(0.0, attempt.heard_at - attempt.spool_started_at)
    run = replace(run, spent=run.spent + used_s * attempt.cost_rate)
    ending = "" if attempt.ending == "stalled" else attempt.ending
    start_step = run.progress.checkpoint_step
    return change(run, attempt.number, **{**_FRESH, "restarts": restarts, "start_step": start_step, "ending": ending})


def _heard(run: Run, number: int, event: Event) -> Run:
    attempt = by_number(run, number)
    assert attempt is not None
    at = event.at if attempt.heard_at is None else max(attempt.heard_at, event.at)
    started_at = attempt.spool_started_at
    return change(
        run, number, heard_at=at, seq=max(attempt.seq, event.seq), spool_started=True,
        spool_started_at=event.at if started_at is None else min(started_at, event.at),
    )


def _started(run: Run, attempt: Attempt, event: Event) -> Run:
    return change(run, attempt.number, spool_started=True, progressed_at=_later(attempt.progressed_at, event.at))


def _resumed(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq:
        return run
    step, epoch = _whole(event.data, "step"), _whole(event.data, "epoch")
    p = run.progress
    found = event.data.get("checkpoint")
    progress = replace(
        p, step=step, epochs_done=epoch, checkpoint=str(found) if found else None, checkpoint_step=step, checkpoint_epoch=epoch,
    )
    startup_s = None if attempt.spool_started_at is None else max(0.0, event.at - attempt.spool_started_at)
    run = replace(run, progress=progress)
    return change(
        run, attempt.number, start_step=step, step=step, checkpoint_step=step, startup_s=startup_s,
        progressed_at=_later(attempt.progressed_at, event.at),
    )


def _progress(run: Run, attempt: Attempt, event: Event) -> Run:
    data, p = event.data, run.progress
    epoch, step = _whole(data, "epoch"), _whole(data, "step")
    epoch_time_s, step_time_s = _number(data, "epoch_time_s"), _number(data, "step_time_s")
    times = p.epoch_times_s
    if epoch_time_s is not None and epoch > p.epochs_done:
        times = (*times, epoch_time_s)[-EPOCH_TIMES_KEPT:]
    newer = step >= p.step
    loss = _number(data, "loss")
    progress = replace(
        p, epochs_done=max(p.epochs_done, epoch), epochs=_whole(data, "epochs") or p.epochs, step=max(p.step, step),
        steps=_whole(data, "steps") or p.steps, at=_later(p.at, event.at), epoch_times_s=times,
        loss=loss if newer and loss is not None else p.loss,
        step_time_s=step_time_s if newer and step_time_s is not None else p.step_time_s,
    )
    run = replace(run, progress=progress)
    moved = step > attempt.step or attempt.progressed_at is None
    return change(
        run, attempt.number, step=max(attempt.step, step),
        progressed_at=_later(attempt.progressed_at, event.at) if moved else attempt.progressed_at,
        checkpointing=attempt.checkpointing and event.seq <= attempt.seq,
    )


def _checkpointing(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq or not alive(attempt):
        return run
    return change(run, attempt.number, checkpointing=True)


def _checkpoint(run: Run, attempt: Attempt, event: Event) -> Run:
    step, epoch, p = _whole(event.data, "step"), _whole(event.data, "epoch"), run.progress
    if (step, epoch) > (p.checkpoint_step, p.checkpoint_epoch) or p.checkpoint is None:
        progress = replace(
            p, checkpoint=str(event.data.get("name", "")) or None, checkpoint_step=step, checkpoint_epoch=epoch,
            checkpoint_at=event.at, checkpoint_save_s=_save_s(p, _number(event.data, "save_s")),
            step=max(p.step, step), epochs_done=max(p.epochs_done, epoch),
        )
        run = replace(run, progress=progress)
    return change(
        run, attempt.number, step=max(attempt.step, step), checkpoint_step=max(attempt.checkpoint_step, step),
        progressed_at=_later(attempt.progressed_at, event.at), checkpointing=attempt.checkpointing and event.seq < attempt.seq,
    )


def _save_s(progress: Progress, save_s: float | None) -> float | None:
    """The measured time of a save: a peak is held and fades, so that one fast save does not cut the next lead short."""
    old = progress.checkpoint_save_s
    if save_s is None or old is None:
        return save_s if old is None else old
    return save_s if save_s >= old else 0.8 * old + 0.2 * save_s


def _checkpoint_failed(run: Run, attempt: Attempt, event: Event) -> Run:
    return change(run, attempt.number, checkpointing=attempt.checkpointing and event.seq < attempt.seq)


def _heartbeat(run: Run, attempt: Attempt, event: Event) -> Run:
    found = event.data.get("gpu")
    gpus = cast(list[Any], found) if isinstance(found, list) else []
    gpu_bytes = [_whole(cast(Mapping[str, Any], g), "memory_bytes") for g in gpus if isinstance(g, Mapping)]
    p = run.progress
    progress = replace(
        p, peak_rss_bytes=max(p.peak_rss_bytes, _whole(event.data, "rss_bytes")),
        peak_gpu_bytes=max([p.peak_gpu_bytes, *gpu_bytes]),
    )
    return replace(run, progress=progress)


def _signal(run: Run, attempt: Attempt, event: Event) -> Run:
    name = str(event.data.get("name", "")).removeprefix("SIG")
    return change(run, attempt.number, signalled=name or attempt.signalled)


def _oom(run: Run, attempt: Attempt, event: Event) -> Run:
    return change(
        run, attempt.number, oom_where=str(event.data.get("where", "host")), oom_text=str(event.data.get("text", ""))[:500],
    )


def _finished(run: Run, attempt: Attempt, event: Event) -> Run:
    p = run.progress
    epochs, steps = _whole(event.data, "epochs"), _whole(event.data, "steps")
    progress = replace(p, epochs_done=max(p.epochs_done, epochs), step=max(p.step, steps))
    run = replace(run, progress=progress)
    return change(run, attempt.number, finished=True, progressed_at=_later(attempt.progressed_at, event.at))


def _exit(run: Run, attempt: Attempt, event: Event) -> Run:
    code = event.data.get("code")
    return change(
        run, attempt.number, exit_code=code if isinstance(code, int) else attempt.exit_code,
        exit_reason=str(event.data.get("reason", "")) or "unknown", checkpointing=False, serving=False,
    )


def _ready(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq:
        return run
    host, port = str(event.data.get("host", "")), _whole(event.data, "port")
    startup_s = attempt.startup_s
    if startup_s is None and attempt.spool_started_at is not None:
        startup_s = max(0.0, event.at - attempt.spool_started_at)
    return change(
        run, attempt.number, ready_at=event.at if attempt.ready_at is None else attempt.ready_at, serving=alive(attempt),
        endpoint=f"{host}:{port}" if port else host, startup_s=startup_s, unready_since=None,
    )


def _not_serving(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq:
        return run
    return change(run, attempt.number, serving=False, unready_since=None)


def _unready(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq:
        return run
    since = event.data.get("since")
    return change(run, attempt.number, serving=False, unready_since=float(since) if isinstance(since, (int, float)) else event.at)


def _restarting(run: Run, attempt: Attempt, event: Event) -> Run:
    if event.seq <= attempt.seq:
        return run
    code, failures, most = (_whole(event.data, name) for name in ("code", "failures", "of"))
    text = f"the service ended with exit code {code}; started again ({failures} of at most {most} failures in a row)"
    run = replace(run, message=text)
    return change(run, attempt.number, serving=False, unready_since=None, service_restarts=attempt.service_restarts + 1)


_HANDLERS: dict[str, Callable[[Run, Attempt, Event], Run]] = {
    "started": _started, "resumed": _resumed, "progress": _progress, "checkpointing": _checkpointing,
    "checkpoint": _checkpoint, "checkpoint_failed": _checkpoint_failed, "heartbeat": _heartbeat, "signal": _signal,
    "oom": _oom, "finished": _finished, "exit": _exit, "ready": _ready, "unready": _unready, "leaving": _not_serving,
    "restarting": _restarting,
}


def _later(old: float | None, new: float) -> float:
    return new if old is None else max(old, new)


def _whole(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return int(value) if isinstance(value, (int, float)) and value == value and 0 <= value < 2**62 else 0


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < float("inf") else None
