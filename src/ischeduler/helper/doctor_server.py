"""``isched doctor --server``: what the centre's service stands on, looked at one by one, each with its fix. Changes nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.durations import human
from ischeduler.core.errors import IschedError
from ischeduler.core.sizes import human_size
from ischeduler.helper.doctor import LEAST_DISK_BYTES, SKEW_S, Check, existing
from ischeduler.helper.notify import VARIABLE, apprise_sender, read_addresses

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

ANSWER_S, SLOW_S, SEEN_S, TOKEN_SPARE_S = 5.0, 0.05, 60.0, 6 * 3600.0
SECRET_FILES = (
    "serve.key_file", "serve.oidc_secret_file", "serve.metrics_token_file", "kafka.config_file", "notify.urls_file",
)  # fmt: skip


def examine_server(session: Session) -> list[Check]:
    """Every check, in order. A check that cannot be made is itself a finding, never an exception."""
    found: list[Check] = []
    steps: tuple[tuple[str, Callable[[Session], Iterator[Check]]], ...] = (
        ("database", _database),
        ("secrets", _secrets),
        ("addresses", _addresses),
        ("broker", _broker),
        ("batch system", _batch),
        ("plane workers", _workers),
        ("service", _service),
        ("disk", _disk),
    )
    for name, step in steps:
        try:
            found += step(session)
        except (IschedError, OSError) as error:
            found.append(Check(name, "bad", str(error)))
    return found


def _database(session: Session) -> Iterator[Check]:
    """Reachable, up to date, quick, with connections to spare, and with the same idea of the time."""
    from ischeduler.store.engine import open_engine
    from ischeduler.store.migrate import HEAD, revision

    engine = open_engine(session.config.database_url)
    try:
        started = time.perf_counter()
        version = revision(engine)
        took_s = time.perf_counter() - started
        shown = engine.url.render_as_string(hide_password=True)
        level = "ok" if version == HEAD else ("warn" if version and version > HEAD else "bad")
        fix = {"bad": "isched db upgrade", "warn": "a newer program has upgraded it; upgrade this one, too"}.get(level, "")
        yield Check("database", level, f"{shown} answers in {1000 * took_s:.0f} ms, version {version or 'none'} of {HEAD}", fix)
        if engine.dialect.name == "sqlite":
            yield Check("database: kind", "warn", "SQLite serves one machine and few users", "use PostgreSQL for a centre")
        else:
            yield from _postgresql(engine)
    finally:
        engine.dispose()


def _postgresql(engine: object) -> Iterator[Check]:
    from sqlalchemy import Engine, text

    assert isinstance(engine, Engine)
    with engine.connect() as connection:
        most = int(connection.execute(text("SELECT current_setting('max_connections')")).scalar_one())
        used = int(connection.execute(text("SELECT count(*) FROM pg_stat_activity")).scalar_one())
        before = time.time()
        theirs = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        after = time.time()
    scarce = used > 0.8 * most
    fix = "raise max_connections, or run fewer web processes" if scarce else ""
    yield Check("database: connections", "warn" if scarce else "ok", f"{used} of {most} in use", fix)
    skew_s = max(0.0, before - theirs, theirs - after)
    level = "warn" if skew_s > SKEW_S else "ok"
    yield Check("database: clock", level, f"{skew_s:.1f} s away from this host's", "set both by NTP (chrony)" if level == "warn" else "")


def _secrets(session: Session) -> Iterator[Check]:
    from ischeduler.helper.serving import key_path
    from ischeduler.service.auth.secrets import read_key

    path = key_path(session.config)
    try:
        read_key(path)
        yield Check("server's key", "ok", f"{path}, readable by its owner alone")
    except IschedError as error:
        yield Check("server's key", "bad", str(error), f"isched admin key, or chmod 600 {path}")
    for key in SECRET_FILES[1:]:
        if session.config[key]:
            yield _closed(key, Path(session.config[key]).expanduser())
    yield from _slurm_tokens(session)


def _closed(name: str, path: Path) -> Check:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        readable = os.access(path, os.R_OK)
    except OSError as error:
        return Check(name, "bad", f"{path}: {error.strerror}", f"make the file, or set {name} aright")
    if mode & 0o077:
        return Check(name, "bad", f"{path} has mode {mode:o}, others can read it", f"chmod 600 {path}")
    return Check(name, "ok" if readable else "bad", f"{path}, mode {mode:o}", "" if readable else "give it to the service's account")


def _slurm_tokens(session: Session) -> Iterator[Check]:
    """One file a user: there, closed to others, and not about to expire."""
    from ischeduler.batch.reached import account_of
    from ischeduler.batch.slurm_rest_tokens import FileTokens, expiry
    from ischeduler.store.identities import Identities

    template = str(session.config["slurmrest.token_file"])
    if session.config["batch.kind"] != "slurmrest" or not template:
        return
    users = [u.name for u in Identities(session.services.engine, clock=session.clock.now).users() if not u.disabled]
    tokens, missing, soon = FileTokens(str(Path(template).expanduser())), list[str](), list[str]()
    for user in users:
        try:
            expires_at = expiry(tokens.token(account_of(session.config, user)))
        except (IschedError, OSError):
            missing.append(user)
            continue
        if expires_at is not None and expires_at - session.clock.now() < TOKEN_SPARE_S:
            soon.append(user)
    for level, names, words in (("bad", missing, "cannot be read"), ("warn", soon, f"expire within {human(TOKEN_SPARE_S)}")):
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            yield Check("Slurm tokens", level, f"{words}: {shown}", "renew them: scontrol token username=... (docs/how-to/secure-the-centre.md)")
    if users and not missing and not soon:
        yield Check("Slurm tokens", "ok", f"{len(users)} user(s), all readable and fresh")


def _addresses(session: Session) -> Iterator[Check]:
    path = session.config["notify.urls_file"]
    if not path and not os.environ.get(VARIABLE):
        yield Check("messages", "ok", "none configured (notify.urls_file)")
        return
    addresses = read_addresses(Path(path).expanduser() if path else None, os.environ)
    apprise_sender(addresses)
    yield Check("messages", "ok", f"{sum(len(urls) for urls in addresses.values())} address(es) for {len(addresses)} owner(s)")


def _broker(session: Session) -> Iterator[Check]:
    if not session.config["kafka.servers"]:
        yield Check("broker", "ok", "none configured (kafka.servers); jobs send by HTTP")
        return
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from ischeduler.helper.ingest import kafka_settings

    settings = kafka_settings(session.config)
    admin = AdminClient({"bootstrap.servers": settings.servers, **settings.extra, "log_level": 0})
    try:
        there = set(admin.list_topics(timeout=ANSWER_S).topics)
    except KafkaException as error:
        yield Check("broker", "bad", f"{settings.servers} does not answer ({error.args[0].str()})", "start it, or set kafka.servers aright")
        return
    missing = sorted(set(settings.topics()) - there)
    fix = "isched ingest --make-topics 8" if missing else ""
    words = f"{settings.servers} answers" + (f"; it has no topic {', '.join(missing)}" if missing else f" with {len(settings.topics())} topics")
    yield Check("broker", "bad" if missing else "ok", words, fix)


def _batch(session: Session) -> Iterator[Check]:
    """One look at each cluster as the observer; what each user may do shows when they act."""
    from ischeduler.helper.centre_batches import directory_of

    kind, name = session.services.batch_kind, str(session.config["batch.cluster"])
    if kind == "agent":
        yield Check("batch system", "ok", "agents call from the clusters; isched admin shows who was heard of when")
        return
    directory = directory_of(session.services)
    for cluster in [name] if name else list(session.services.batches):
        observer = directory.observer(cluster)
        if observer is None:
            yield Check(f"cluster {cluster}", "bad", "nobody looks at it", "see batch.kind and batch.cluster in the configuration page")
            continue
        started = time.perf_counter()
        snapshot = observer.snapshot()
        took_s = time.perf_counter() - started
        yield Check(f"cluster {cluster}", "ok", f"{kind} answers in {1000 * took_s:.0f} ms: {len(snapshot.jobs)} job(s) in its queue")


def _workers(session: Session) -> Iterator[Check]:
    """Signs of life and leases, by the database's own clock."""
    from ischeduler.store.claims_census import late_claims

    store = session.services.store
    now = store.now()  # pyright: ignore[reportAttributeAccessIssue]
    signs = [s for s in store.signs() if now - s.seen_at < SEEN_S]  # pyright: ignore[reportAttributeAccessIssue]
    for sign in signs:
        said = f"carries {sign.carried} run(s), seen {human(max(0.0, now - sign.seen_at))} ago on {sign.host}"
        yield Check(f"worker {sign.name.rpartition(':')[0] or sign.name}", "ok", said)
    late, oldest_s = late_claims(session.services.engine, now)
    if not signs:
        level = "bad" if late else "warn"
        yield Check("plane workers", level, f"none was seen within {human(SEEN_S)}; runs are not carried", "isched plane worker (two are better)")
    elif len(signs) == 1:
        yield Check("plane workers", "warn", "only one: its death stops everything", "start a second, on another host where there is one")
    if late:
        fix = "look at the workers' logs; a worker that died leaves its runs to the others within workers.lease"
        yield Check("runs that wait", "warn", f"{late} run(s) are due since {human(oldest_s)} and nobody holds them", fix)


def _service(session: Session) -> Iterator[Check]:
    url = f"http://{session.config['serve.host']}:{session.config['serve.port']}/readyz"
    try:
        with contextlib.closing(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=ANSWER_S)) as answer:
            ready = answer.status == 200
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        yield Check("service", "warn", f"{url} does not answer here ({reason})", "isched serve, or systemctl status ischeduler")
        return
    yield Check("service", "ok" if ready else "bad", f"{url} is {'ready' if ready else 'not ready'}")
    public = str(session.config["serve.public_url"])
    if public.startswith("http://") and "127.0.0.1" not in public and "localhost" not in public:
        yield Check("service: TLS", "bad", f"{public} carries tokens in clear", "put a proxy with TLS before it: deploy/proxy")


def _disk(session: Session) -> Iterator[Check]:
    for name, folder in (("state folder", session.config.state_dir), ("data folder", session.config.data_dir)):
        free = shutil.disk_usage(existing(folder)).free
        low = free < LEAST_DISK_BYTES
        yield Check(name, "warn" if low else "ok", f"{human_size(free)} free at {folder}", "free some space" if low else "")
