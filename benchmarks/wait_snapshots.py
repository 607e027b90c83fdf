"""Snapshots of a queue (all jobs pending at one instant a day, with how long each went on waiting): columns, features, splits.

Columns as published with github.com/mila-iqia/slurm-queue-time-pred: ``poll_time``, ``submit_time``, ``poll_wait_sec`` (the answer), ``req_tres``,
``time_limit_sec``, ``account_id``, ``partition_id_x``, ``priority_y``, and sums over the queue (``q_*``, ``r_*``). What later facts went into is
never a feature: start, end, state, run time, the accounting's priority (``priority_x``, it holds the job's age when it started),
true run hours of the jobs ahead (``*_run_hours``), and an ``eligible_time`` that lies after the snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.wait_starts import drained, starts, used

NEEDED = ("poll_time", "submit_time", "poll_wait_sec", "req_tres", "time_limit_sec", "account_id", "partition_id_x", "priority_y")
SEED = 46
_TRES = {"cpu": r"(?:^|,)cpu=(\d+)", "gpu": r"gres/gpu=(\d+)", "node": r"(?:^|,)node=(\d+)", "mem": r"(?:^|,)mem=([\d.]+)M"}
_SHARE_COLUMNS = (
    "raw_share_poll", "norm_share_poll", "raw_use_poll", "effect_use_poll", "level_fs_poll", "norm_use_poll", "norm_use_log_poll",
)  # fmt: skip
_PAST_DAYS = (1, 3, 14)


@dataclass(frozen=True)
class Snapshots:
    """One row a pending job, in order of the snapshot it was seen in."""

    features: np.ndarray[Any, Any]
    names: tuple[str, ...]
    day: np.ndarray[Any, Any]
    """Number of the snapshot, 0 for the first."""
    poll_s: np.ndarray[Any, Any]
    wait_s: np.ndarray[Any, Any]

    @property
    def days(self) -> int:
        return int(self.day.max()) + 1


def is_snapshots(columns: list[str]) -> bool:
    """Whether a table is one of snapshots, by its columns."""
    return "poll_time" in columns and "poll_wait_sec" in columns


def read(table: Any) -> Snapshots:
    """Features of a pandas table with those columns; KeyError names a missing one."""
    for column in NEEDED:
        if column not in table.columns:
            raise KeyError(column)
    frame = table.reset_index(drop=True)
    poll = _seconds(frame["poll_time"])
    order = np.argsort(poll, kind="stable")
    frame, poll = frame.iloc[order].reset_index(drop=True), poll[order]
    day = np.unique(poll, return_inverse=True)[1]
    wait = frame["poll_wait_sec"].to_numpy(float)
    found = _requests(frame, poll)
    found.update(_queue_sums(frame))
    found.update(_ranks(frame, day, found))
    found.update(_past(frame, day, poll, wait, found))
    found.update(_flow(frame, day, poll, wait, found))
    names = tuple(found)
    return Snapshots(np.column_stack([found[n] for n in names]).astype(np.float32), names, day, poll, wait)


def by_seed(days: int, seed: int = SEED) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(validation, test) days as the publication draws them: a tenth each, rounded up, from the sorted days."""
    random = np.random.RandomState(seed)
    count = -(-days // 10)
    test = random.choice(days, size=count, replace=False)
    rest = np.array(sorted(set(range(days)) - set(test.tolist())))
    return random.choice(rest, size=count, replace=False), test


def chronological(days: int, share: float = 0.2) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(validation, test) days: the last fifth is the test, the fifth of what comes before it the validation."""
    first = days - max(1, round(days * share))
    return np.arange(first - max(1, round(first * share)), first), np.arange(first, days)


def _seconds(column: Any) -> np.ndarray[Any, Any]:
    import pandas as pd

    times = pd.to_datetime(column).to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(times), np.nan, times.astype(np.int64))


def _requests(frame: Any, poll: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    tres = frame["req_tres"].astype(str)
    words = {word: _numbers(word, pattern) for word, pattern in _TRES.items()}
    kinds = {text: [reader(text) for reader in words.values()] for text in tres.unique()}
    asked = np.array([kinds[text] for text in tres])
    limit = frame["time_limit_sec"].to_numpy(float)
    submit = _seconds(frame["submit_time"])
    out = {word: asked[:, i] for i, word in enumerate(words)}
    out.update(limit_s=limit, cpu_h=out["cpu"] * limit / 3600, gpu_h=out["gpu"] * limit / 3600, age_s=poll - submit)
    out["mem_per_cpu"] = out["mem"] / np.maximum(1, out["cpu"])
    out["cpu_per_node"] = out["cpu"] / np.maximum(1, out["node"])
    out["hour"], out["weekday"] = submit % 86400 / 3600, submit // 86400 % 7
    out["poll_weekday"] = poll // 86400 % 7
    if "eligible_time" in frame.columns:
        eligible = _seconds(frame["eligible_time"])
        out["eligible_for_s"] = np.where(eligible <= poll, poll - eligible, -1.0)
        out["held_for_s"] = np.where(eligible <= poll, eligible - submit, -1.0)
    for column in ("priority_y", "partition_id_x", "account_id"):
        out[column] = frame[column].to_numpy(float)
    return out


def _numbers(_: str, pattern: str) -> Callable[[str], float]:
    compiled = re.compile(pattern)

    def first(text: str) -> float:
        found = compiled.search(text)
        return float(found[1]) if found else 0.0

    return first


def _queue_sums(frame: Any) -> dict[str, np.ndarray[Any, Any]]:
    names = [c for c in frame.columns if re.match(r"(q|r)_", c) and not c.endswith(("_run_hours", "_id"))]
    out = {c: frame[c].to_numpy(float) for c in (*names, *(c for c in _SHARE_COLUMNS if c in frame.columns))}
    for kind in ("jobs", "cores", "core_hours", "gpus", "gpu_hours"):
        for scope in ("", "p_", "a_"):
            ahead, active = out.get(f"q_{scope}{kind}_above"), out.get(f"r_{scope}{kind}_above")
            if ahead is not None and active is not None:
                out[f"ahead_per_active_{scope}{kind}"] = ahead / (1 + active)
    return out


def _ranks(frame: Any, day: np.ndarray[Any, Any], known: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Where a job stands within the pending set of its snapshot: in its account, its partition, among its equals."""
    import pandas as pd

    table = pd.DataFrame({
        "day": day, "account": frame["account_id"], "partition": frame["partition_id_x"], "request": frame["req_tres"].astype(str),
        "limit": known["limit_s"], "submit": -known["age_s"], "first": -known["priority_y"], "cpu_h": known["cpu_h"],
        "gpu_h": known["gpu_h"], "cpu": known["cpu"], "age": known["age_s"],
    })  # fmt: skip
    ordered: Any = table.sort_values(["day", "first", "submit"], kind="stable")
    out: dict[str, Any] = {}
    groups = {
        "day": ["day"], "account": ["day", "account"], "partition": ["day", "partition"], "pair": ["day", "account", "partition"],
        "equal": ["day", "account", "request", "limit"], "array": ["day", "account", "submit"], "kind": ["day", "request", "limit"],
    }  # fmt: skip
    for name, keys in groups.items():
        grouped = ordered.groupby(keys, sort=False)
        out[f"{name}_rank"] = grouped.cumcount()
        out[f"{name}_jobs"] = grouped["cpu"].transform("size")
        out[f"{name}_cpu_h_ahead"] = grouped["cpu_h"].cumsum() - ordered["cpu_h"]
        if name in ("day", "account", "partition", "pair", "equal"):
            out[f"{name}_gpu_h_ahead"] = grouped["gpu_h"].cumsum() - ordered["gpu_h"]
            out[f"{name}_cpu_h"] = grouped["cpu_h"].transform("sum")
            out[f"{name}_mean_age"] = grouped["age"].transform("mean")
            out[f"{name}_oldest"] = grouped["age"].transform("max")
            out[f"{name}_youngest"] = grouped["age"].transform("min")
            out[f"{name}_place"] = out[f"{name}_rank"] / out[f"{name}_jobs"]
    for name in ("account", "partition", "day"):
        out[f"{name}_first_in"] = ordered["first"] - ordered.groupby(groups[name], sort=False)["first"].transform("min")
    return {n: pd.Series(v, index=ordered.index).sort_index().to_numpy(float) for n, v in out.items()}


def _past(
    frame: Any, day: np.ndarray[Any, Any], poll: np.ndarray[Any, Any], wait: np.ndarray[Any, Any], known: dict[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
    """What became of the jobs of earlier snapshots, as far as it was known at this one: of the account, the partition, of equals."""
    size = np.log2(1 + known["cpu"]).round() * 100 + known["gpu"]
    keys = {
        "all": np.zeros(len(day), np.int64), "account": _codes(frame["account_id"]), "partition": _codes(frame["partition_id_x"]),
        "pair": _codes(frame["account_id"].astype(str) + "/" + frame["partition_id_x"].astype(str)),
        "size": _codes(size.astype(str)),
    }  # fmt: skip
    out: dict[str, np.ndarray[Any, Any]] = {}
    for name, code in keys.items():
        for column, values in _fates(code, day, poll, wait):
            out[f"past_{name}_{column}"] = values
    return out


def _flow(
    frame: Any, day: np.ndarray[Any, Any], poll: np.ndarray[Any, Any], wait: np.ndarray[Any, Any], known: dict[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
    """How fast jobs of the account, the partition, the same kind have been starting, and what stands ahead at that pace."""
    account, partition = frame["account_id"].astype(str), frame["partition_id_x"].astype(str)
    request = frame["req_tres"].astype(str) + "/" + frame["time_limit_sec"].astype(str)
    codes = {
        "day": np.zeros(len(day), np.int64), "account": _codes(account), "partition": _codes(partition), "pair": _codes(account + "/" + partition),
        "equal": _codes(account + "/" + request), "array": _codes(account + "/" + frame["submit_time"].astype(str)), "kind": _codes(request),
    }  # fmt: skip
    out = dict(starts(codes, day, poll, wait, known["cpu_h"]))
    for name in codes:
        for hours in (6, 24):
            out[f"drained_{name}_{hours}h"] = drained(known[f"{name}_rank"], out[f"started_{name}_{hours}h"], hours * 3600.0)
        out[f"drained_{name}_cpu_24h"] = drained(known[f"{name}_cpu_h_ahead"], out[f"started_{name}_24h_size"], 86400.0)
    if "run_time_sec" in frame.columns and "end_time" in frame.columns:
        share = np.clip(frame["run_time_sec"].to_numpy(float) / np.maximum(1.0, known["limit_s"]), 0.0, 1.0)
        out.update(used({n: codes[n] for n in ("account", "pair", "equal")}, day, poll, _seconds(frame["end_time"]), share))
    return out


def _codes(column: Any) -> np.ndarray[Any, Any]:
    return np.unique(np.asarray(column).astype(str), return_inverse=True)[1]


def _fates(
    code: np.ndarray[Any, Any], day: np.ndarray[Any, Any], poll: np.ndarray[Any, Any], wait: np.ndarray[Any, Any],
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:  # fmt: skip
    """(name, values): mean log10 of the waits as far as known, share still pending, their number, over the last snapshots."""
    many = int(code.max()) + 1
    last_day = int(day.max())
    for span in _PAST_DAYS:
        mean, still, count = (np.full(len(day), np.nan) for _ in range(3))
        for today in range(1, last_day + 1):
            here = np.flatnonzero(day == today)
            now = poll[here[0]]
            before = np.flatnonzero((day < today) & (day >= today - span))
            so_far = now - poll[before]
            done = wait[before] < so_far
            bound = np.log10(np.maximum(1.0, np.where(done, wait[before], so_far)))
            seen = np.bincount(code[before], minlength=many)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean[here] = (np.bincount(code[before], bound, many) / seen)[code[here]]
                still[here] = (np.bincount(code[before], ~done, many) / seen)[code[here]]
            count[here] = seen[code[here]]
        yield f"wait_{span}", mean
        yield f"pending_{span}", still
        yield f"jobs_{span}", count
