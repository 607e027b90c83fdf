"""Events by HTTP: the service as it is shipped (``isched serve`` under uvicorn), jobs with their own tokens, batches as their wrapper sends them."""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks.events_world import CENTRE_MIX, PLANE_MIX, Watched, World, kind_of, message, run_name
from benchmarks.report import AtLeast, Bar
from ischeduler.testing.broker import free_port

BAR, MEMORY_BAR_MB, LATENCY_BAR_S = 2_000.0, 400.0, 1.0
BATCH, TWICE_EVERY = 20, 20
THREADS = 16


def measure(here: World, asked: argparse.Namespace) -> tuple[dict[str, Any], list[Bar]]:
    """Metrics and bars. With an outage only what was lost or doubled is judged: nobody is served meanwhile."""
    from benchmarks.events import until

    port = free_port()
    environment = here.environment(ISCHED_SERVE_PORT=str(port), ISCHED_SERVE_RATE="0", ISCHED_SERVE_LOG_LEVEL="error")
    service = Watched(["ischeduler.cli.main", "serve"], environment, here.folder / "service.log")
    try:
        until(lambda: _ready(port, service), 90.0, "the service is ready")
        figures = _stream(here, asked, port, service)
    finally:
        if service.alive:
            service.kill()
    bars: list[Bar] = [Bar("missing_or_doubled", 0), Bar("service_peak_rss_mb", MEMORY_BAR_MB), Bar("refused", 0)]
    if asked.outage == 0:
        bars = [AtLeast("stored_per_s", BAR), Bar("answer_p99_s", LATENCY_BAR_S), *bars]
    return figures, bars


def _stream(here: World, asked: argparse.Namespace, port: int, service: Watched) -> dict[str, Any]:
    total = int(asked.seconds * asked.rate)
    argv = [
        sys.executable, "-m", "benchmarks.events_http", "--port", str(port), "--events", str(total), "--rate", str(asked.rate),
        "--runs", str(asked.runs), "--mix", asked.mix,
    ]  # fmt: skip
    before_s, began = here.cpu_s(), time.monotonic()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdin is not None
        sender.stdin.write("\n".join(here.tokens))
        sender.stdin.close()
        plan = [(asked.seconds / 3, here.postgres.stop), (asked.seconds / 3 + asked.outage, here.postgres.start)] if asked.outage else []
        while sender.poll() is None:
            service.look()
            if plan and time.monotonic() - began >= plan[0][0]:
                plan.pop(0)[1]()
            time.sleep(0.2)
        assert sender.stdout is not None
        sent = json.loads(sender.stdout.read())
    took_s = sent["took_s"]
    return {
        "stored_per_s": total / took_s, "answer_p50_s": sent["p50_s"], "answer_p99_s": sent["p99_s"], "events": total, "took_s": took_s,
        "events_a_request": BATCH, "requests": sent["requests"], "told_to_come_again": sent["again"],
        "missing_or_doubled": here.wrong(total, asked.runs) + abs(sum(here.count()) - total), "refused": sent["refused"],
        "outage_s": asked.outage, "service_peak_rss_mb": service.peak_mb, "service_cpu_us_per_event": service.cpu_s() / total * 1e6,
        "database_cpu_us_per_event": (here.cpu_s() - before_s) / total * 1e6, "sender_cpu_us_per_event": sent["cpu_s"] / total * 1e6,
        "load_of_the_machine": sent["load"], "runs": asked.runs,
    }  # fmt: skip


def _ready(port: int, service: Watched) -> bool:
    if not service.alive:
        service.end()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class _Jobs:
    """The jobs of a share of the runs, on one connection that stays open, each batch sent until it is taken."""

    def __init__(self, port: int, tokens: list[str], asked: argparse.Namespace, first: int) -> None:
        self._port, self._tokens, self._asked, self._first = port, tokens, asked, first
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.answers_s: list[float] = []
        self.requests = self.again = self.refused = 0

    def run(self) -> None:
        """Batch after batch of each run, at the pace."""
        asked, began = self._asked, time.monotonic()
        mine = range(self._first, asked.runs, THREADS)
        sent, share = 0, asked.rate / THREADS
        for start in range(0, -(-asked.events // asked.runs), BATCH):
            for run in mine:
                last = asked.events // asked.runs + (run < asked.events % asked.runs)
                seqs = range(start + 1, min(start + BATCH, last) + 1)
                if seqs:
                    self._send(run, seqs)
                    sent += len(seqs)
                    if self.requests % TWICE_EVERY == 0:
                        self._send(run, seqs)
                ahead_s = sent / share - (time.monotonic() - began)
                if ahead_s > 0:
                    time.sleep(ahead_s)

    def _send(self, run: int, seqs: range) -> None:
        mix = CENTRE_MIX if self._asked.mix == "centre" else PLANE_MIX
        runs, now = self._asked.runs, time.time()
        events = ",".join(message(run_name(run), seq, kind_of((seq - 1) * runs + run, runs, mix), now) for seq in seqs)
        body = f'{{"run":"{run_name(run)}","events":[{events}]}}'.encode()
        self.requests += 1
        while True:
            began = time.monotonic()
            status, answer, again_s = self._post(run, body)
            if status == 200:
                self.answers_s.append(time.monotonic() - began)
                self.refused += answer["refused_count"]
                return
            if status not in (0, 408, 429) and status < 500:
                raise RuntimeError(f"the service refused: {status} {answer}")
            self.again += 1
            time.sleep(again_s)

    def _post(self, run: int, body: bytes) -> tuple[int, Any, float]:
        headers = {"Authorization": f"Bearer {self._tokens[run]}", "Content-Type": "application/json"}
        try:
            self._connection.request("POST", f"/v1/runs/{run_name(run)}/events", body, headers)
            answer = self._connection.getresponse()
            text = answer.read()
            again_s = float(answer.headers.get("Retry-After", "1"))
            return answer.status, json.loads(text), min(5.0, again_s)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0, None, 1.0


def main() -> int:
    """The sender's own process: one JSON line about what it sent."""
    import os

    parser = argparse.ArgumentParser()
    for name, kind in (("port", int), ("events", int), ("rate", float), ("runs", int), ("mix", str)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    asked = parser.parse_args()
    tokens = sys.stdin.read().split()
    jobs = [_Jobs(asked.port, tokens, asked, first) for first in range(min(THREADS, asked.runs))]
    threads = [threading.Thread(target=j.run) for j in jobs]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = sorted(s for j in jobs for s in j.answers_s)
    done = {
        "took_s": time.monotonic() - began, "requests": sum(j.requests for j in jobs), "again": sum(j.again for j in jobs),
        "refused": sum(j.refused for j in jobs), "p50_s": answers[len(answers) // 2], "p99_s": answers[int(len(answers) * 0.99)],
        "cpu_s": time.process_time(), "load": os.getloadavg()[0],
    }  # fmt: skip
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
