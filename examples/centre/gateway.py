"""A gateway beside the jobs: reads one user's run directories and sends their events to Kafka, as a site without HTTP from its nodes would.

Runs as that user. Job tokens come on stdin, one ``RUN TOKEN`` a line, so that none is on a command line. It sends everything again
whenever the broker was away: a broker may come back with an empty log, and the ingest drops what it has.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from pathlib import Path

from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.kafka import KafkaSettings
from ischeduler.service.ingest.sender import KafkaSender
from ischeduler.training.spool import SpoolReader

EVERY_S = 2.0


def reachable(servers: str) -> bool:
    host, _, port = servers.partition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--runs", type=Path, required=True, help="parent of the run directories")
    args = parser.parse_args()
    tokens = dict(line.split() for line in sys.stdin if line.strip())
    settings = KafkaSettings(args.servers)
    readers = {run: SpoolReader(args.runs / run) for run in tokens}
    senders = {run: KafkaSender(settings, secret=token) for run, token in tokens.items()}
    was_there, sent = True, 0
    while True:
        there = reachable(args.servers)
        if there and not was_there:
            readers = {run: SpoolReader(args.runs / run) for run in tokens}
        was_there = there
        for run, reader in readers.items() if there else ():
            events = reader.poll()
            senders[run].send(Incoming(run, "job", str(e.token), e.seq, e.kind, e.t, json.dumps(e.data)) for e in events)
            sent += len(events)
            senders[run].flush(5)
        print(f"sent {sent}, unsent {sum(s.unsent for s in senders.values())}", flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
