"""The same patience with a silent network as in production, on the fast clock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

_SESSION = "SET idle_in_transaction_session_timeout = '3s'; SET lock_timeout = '6s'; SET statement_timeout = '10s'"


def impatient(engine: Engine) -> Engine:
    """An engine whose sessions give up within seconds."""

    def prepare(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine
