"""The ingest as a process of its own: from the broker into the database, until killed."""

from __future__ import annotations

import json
import sys
import time

from tests.chaos.engine import impatient

from ischeduler.core.errors import IschedError
from ischeduler.service.ingest.kafka import KafkaIngest, KafkaSettings
from ischeduler.store.engine import open_engine
from ischeduler.store.ingest import EventInbox
from ischeduler.store.sql_store import SqlStore


def main() -> None:
    """Read until killed."""
    given = json.loads(sys.argv[1])
    settings = KafkaSettings(given["kafka"], session_s=3.0, verify_s=0.5, linger_s=0.02, extra={"log_level": 0, "reconnect.backoff.max.ms": 200})
    while True:
        try:
            store = SqlStore(impatient(open_engine(given["url"])))
            break
        except IschedError:
            time.sleep(0.2)
    ingest = KafkaIngest(EventInbox(store.engine), settings, holder=given["name"], wake=store.wake)
    ingest.run(lambda: False)


if __name__ == "__main__":
    main()
