"""Every setting there is: its key, kind, default and meaning. The reference page and ``isched config show`` are made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput, ConfigError
from ischeduler.core.sizes import parse_size

GOALS_HELP = "soonest, cheapest, fewest-interruptions, deadline=..., budget=..."


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. ``kind`` names how text and TOML values are read; ``secret`` values are never shown."""

    key: str
    kind: str
    default: Any
    help: str
    secret: bool = False

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "ISCHED_" + self.key.upper().replace(".", "_").replace("-", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "batch.kind",
        "choice:auto|slurm|local|slurmrest|tapis|agent",
        "auto",
        "batch system: auto takes Slurm where its commands are, else this machine alone; slurmrest and tapis are reached over HTTP; "
        "agent (a service's) waits for each user's isched agent",
    ),
    Setting("batch.cluster", "text", "", "name of the live cluster; empty asks the batch system itself"),
    Setting("slurmrest.url", "text", "", "address of slurmrestd, e.g. https://slurm.example.org:6820 (batch.kind slurmrest)"),
    Setting("slurmrest.token_file", "path", "", "file (mode 600) with the Slurm token, from scontrol token; {user} in it is the user's name"),
    Setting("slurmrest.token_command", "list", (), "command that makes a user's token: scontrol,token,username={user},lifespan={lifespan_s}"),
    Setting("slurmrest.token_lifespan", "duration", 3600.0, "how long a token of slurmrest.token_command lives"),
    Setting("slurmrest.user", "text", "", "whose token is used: the cluster's name of this user (default: the same as here)"),
    Setting("slurmrest.observer", "text", "", "account of the cluster that a service looks at everybody's jobs with (default: its own)"),
    Setting("slurmrest.shared_files", "flag", False, "run directories are on a file system that is mounted here, too, and may be written"),
    Setting("agent.observer", "text", "", "whose agent a service believes about the whole queue (default: its own, then anybody's)"),
    Setting("tapis.url", "text", "", "address of the Tapis tenant, e.g. https://tacc.tapis.io (batch.kind tapis)"),
    Setting("tapis.tenant", "text", "", "the tenant's id there"),
    Setting("tapis.user", "text", "", "the name to sign in with (default: the same as here)"),
    Setting("tapis.password_file", "path", "", "file (mode 600) with the password; {user} in it is the user's name"),
    Setting("tapis.token_file", "path", "", "file (mode 600) with an access token, where no password may be kept; {user} as above"),
    Setting("tapis.client_id", "text", "", "client of the tenant with which tokens are refreshed; empty: the password is used again"),
    Setting("tapis.client_key_file", "path", "", "file (mode 600) with that client's key"),
    Setting("tapis.system", "text", "", "id of the Tapis system that stands for the cluster"),
    Setting("tapis.app", "text", "isched-train", "id of the app that runs trainings"),
    Setting("tapis.app_version", "text", "1", "its version"),
    Setting("tapis.profile", "text", "", "scheduler profile of every job (default: tacc for TACC's clusters)"),
    Setting("tapis.gpus", "choice:auto|gres|gpus-per-node|none", "auto", "how GPUs are asked for (auto: none on Vista and Stampede3, else gres)"),
    Setting("tapis.options", "list", (), "more options for the scheduler, for every job"),
    Setting("tapis.scripts", "text", "", "folder of yours on the system, as a path from its root, where job scripts are put"),
    Setting("tapis.send_events", "flag", False, "jobs tell their progress to Tapis, with the token of push.token_file"),
    Setting("local.partitions", "tables", (), "partitions of the local batch system: [{ name = 'main', max_walltime = '1h' }]"),
    Setting("local.gpus", "text", "auto", "cards the local batch system hands out: auto asks nvidia-smi, none, 2, or v100-32g:2"),
    Setting("paths.state", "path", "", "this user's state: plans, locks, crash logs (default: the platform's state folder)"),
    Setting("paths.data", "path", "", "run directories, on a file system that the cluster's nodes share (default: ~/.isched)"),
    Setting("database.url", "text", "", "database file or URL (default: ischeduler.db in paths.state)", secret=True),
    Setting("plan.goal", "text", "soonest", f"what 'best' means: {GOALS_HELP}"),
    Setting("plan.clusters", "list", (), "clusters to plan for; empty means the live one, 'all' every known one"),
    Setting("plan.account", "text", "", "account to charge"),
    Setting("plan.qos", "text", "", "quality of service to ask for"),
    Setting("plan.max_age", "duration", 900.0, "a shown plan older than this is checked again before it is submitted"),
    Setting("caps.max_attempts", "integer", 50, "batch jobs the plane may submit for one run"),
    Setting("caps.max_failures", "integer", 5, "failures in a row after which a run is given up"),
    Setting("caps.max_cost", "number", None, "money (or the centre's units) one run may spend"),
    Setting(
        "caps.allow_smaller_batch", "flag", False, "may the plane halve the batch and accumulate after running out of GPU memory"
    ),
    Setting("caps.allow_move", "flag", True, "may the plane move a run to a clearly better place"),
    Setting("caps.stall_after", "duration", 1800.0, "no progress for this long means stalled"),
    Setting(
        "learning.accounting",
        "flag",
        False,
        "may finished jobs in Slurm's accounting (sacct) become evidence of queue waits: yours; and everybody's, where shown, teach a model",
    ),
    Setting("plane.autostart", "flag", True, "start the plane in the background when a run is delegated and none is alive"),
    Setting(
        "plane.from_jobs",
        "flag",
        False,
        "jobs call the plane themselves and queue their successors, for login nodes where no daemon may live (compute nodes need sbatch)",
    ),
    Setting(
        "plane.provisioner",
        "choice:reactive|average|quantile|twin|trained|hand-over",
        "reactive",
        "when a segment's successor is queued: after its end, or ahead by the average wait, predicted waits, roll-outs of the queue, or as a model says",
    ),
    Setting(
        "plane.provisioner_model",
        "path",
        "",
        "file of isched provisioner train, whose method trained, quantile, twin and hand-over follow; empty: no model",
    ),
    Setting("plane.interruption_price", "number", 1.0, "price of an hour without a job, against plane.overlap_price (quantile, twin)"),
    Setting("plane.overlap_price", "number", 1.0, "price of an hour that a successor starts too early (quantile, twin)"),
    Setting("plane.pending_successors", "integer", 1, "how many successors may wait at once, where waits are longer than segments (not reactive)"),
    Setting("plane.interval", "duration", 2.0, "shortest time between two looks at the batch system"),
    Setting("workers.look_interval", "duration", 5.0, "a controller is asked at most once in this time by all plane workers together"),
    Setting("workers.lease", "duration", 60.0, "after this long the runs of a worker that died go to the others; above twice the longest call"),
    Setting("workers.batch", "integer", 500, "runs that a plane worker takes at once"),
    Setting("plane.idle_exit", "duration", 120.0, "a plane started by itself ends after this long without runs"),
    Setting("environment.modules", "list", (), "modules that every job loads first"),
    Setting("environment.conda", "text", "", "conda environment of every job"),
    Setting("environment.venv", "text", "", "virtual environment of every job (default: the one that plans)"),
    Setting("environment.image", "text", "", "Apptainer image of every job"),
    Setting("environment.variables", "map", {}, "environment variables of every job", secret=True),
    Setting("service.url", "text", "", "the service that this command talks to, e.g. https://isched.example.org; empty: none"),
    Setting("service.token_file", "path", "", "file (mode 600) with your token for it"),
    Setting("serve.host", "text", "127.0.0.1", "isched serve: the address it listens at; behind a proxy leave it as it is"),
    Setting("serve.port", "integer", 8642, "isched serve: the port"),
    Setting("serve.workers", "integer", 1, "isched serve: web processes"),
    Setting("serve.public_url", "text", "", "how browsers and jobs reach the service, e.g. https://isched.example.org (default: host and port)"),
    Setting("serve.key_file", "path", "", "file (mode 600) with the server's key; made by isched admin key (default: server.key in paths.state)"),
    Setting("serve.data", "text", "", "each user's folder as the nodes see it, e.g. /home/{account}/.isched (default: users/{user} in paths.data)"),
    Setting("serve.accounts", "map", {}, "what the cluster calls a user, where it is not the same name: { alice = 'ab123' }"),
    Setting("serve.oidc_issuer", "text", "", "OpenID Connect provider that people sign in with; empty: none"),
    Setting("serve.oidc_client_id", "text", "", "the service's client id there"),
    Setting("serve.oidc_secret_file", "path", "", "file (mode 600) with the client's secret there"),
    Setting("serve.oidc_claim", "text", "preferred_username", "the claim that becomes the user's name"),
    Setting("serve.tapis_issuer", "text", "", "Tapis tenant whose access tokens are accepted: the issuer they name; empty: none"),
    Setting("serve.tapis_key_file", "path", "", "file with that tenant's public key (PEM)"),
    Setting("serve.open_registration", "flag", False, "the first sign-in makes a user; otherwise an administrator adds people"),
    Setting("serve.origins", "list", (), "web origins whose pages may call the API"),
    Setting("serve.rate", "number", 20.0, "requests a second and user that are answered in the long run; 0: no limit"),
    Setting("serve.burst", "number", 60.0, "requests that a user may send at once"),
    Setting("serve.webhook_hosts", "list", (), "hosts with private addresses that webhooks may call"),
    Setting("serve.trusted_proxies", "list", (), "addresses or networks (10.89.0.0/24) of proxies whose X-Forwarded-For is believed"),
    Setting("serve.metrics_port", "integer", 0, "port of this process's own for Prometheus' metrics (service and plane workers); 0: none"),
    Setting("serve.metrics_host", "text", "127.0.0.1", "the address of that port"),
    Setting("serve.metrics_token_file", "path", "", "file (mode 600) with the token that opens /metrics of the service; empty: no such page"),
    Setting("serve.trace_endpoint", "text", "", "OpenTelemetry collector (OTLP/HTTP) that traces go to, e.g. http://127.0.0.1:4318; empty: none"),
    Setting("serve.log_format", "choice:json|text", "json", "log lines of service and plane workers"),
    Setting("serve.log_level", "choice:debug|info|warning|error", "info", "what is worth a log line"),
    Setting("serve.guard_munge_socket", "path", "", "munged that opens the submit-time guard's credentials (default: munge's own)"),
    Setting("kafka.servers", "text", "", "Kafka brokers that isched ingest reads events from: host:port, several with commas; empty: none"),
    Setting("kafka.prefix", "text", "isched.", "what the topics' names begin with: PREFIXstate, PREFIXprogress, PREFIXperformance, PREFIXutilisation"),
    Setting("kafka.group", "text", "isched-ingest", "the readers' consumer group"),
    Setting("kafka.reference", "flag", False, "read the topics performance-messages, progress-messages and utilization-messages, too"),
    Setting("kafka.job_tokens", "flag", True, "every message must show a token of its run's jobs; false trusts all who may write to the topics"),
    Setting("kafka.config_file", "path", "", "file (mode 600) with librdkafka's own settings (TLS, SASL), name=value a line; empty: none"),
    Setting("push.url", "text", "", "service that jobs send their events to over HTTP, beside the run's directory; empty: none"),
    Setting("push.token_file", "path", "", "file (mode 600, readable on the nodes) with the token that jobs show the service"),
    Setting(
        "notify.urls_file",
        "path",
        "",
        "file (mode 600) with addresses for messages about runs, in apprise's spelling, one a line: URL, or alice,bob=URL; empty: none",
    ),
)
BY_KEY: Mapping[str, Setting] = {s.key: s for s in SETTINGS}


def read_value(setting: Setting, value: Any, origin: str) -> Any:
    """The setting's value from TOML or from text. ConfigError names the origin and what was expected."""
    kind, _, rest = setting.kind.partition(":")
    try:
        if kind == "choice":
            return _choice(value, tuple(rest.split("|")))
        return _READERS[kind](value)
    except (BadInput, ValueError, TypeError) as error:
        shown = "that value" if setting.secret else repr(value)
        raise ConfigError(f"{setting.key} in {origin} cannot be {shown}: {_reason(kind, error)}") from None


def write_value(setting: Setting, value: Any) -> str:
    """The text that :func:`read_value` reads back as this value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if setting.kind == "duration":
        return f"{value}s"
    if setting.kind == "tables":
        return json.dumps(list(value))
    if setting.kind == "map":
        return ",".join(f"{k}={v}" for k, v in value.items())
    return ",".join(value) if setting.kind == "list" else str(value)


def _reason(kind: str, error: Exception) -> str:
    if isinstance(error, BadInput) or kind == "choice":
        return str(error)
    return f"expected {_EXPECTED[kind]}."


def _choice(value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}.")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return words[value.strip().lower()] if isinstance(value, str) and value.strip().lower() in words else _fail()


def _integer(value: Any) -> int:
    return _fail() if isinstance(value, (bool, float)) else int(value)


def _number(value: Any) -> float | None:
    if value is None or value == "":
        return None
    return _fail() if isinstance(value, bool) else float(value)


def _duration(value: Any) -> float:
    """Seconds of a number (seconds) or of a text such as ``15m``."""
    if isinstance(value, bool):
        _fail()
    return float(value) if isinstance(value, (int, float)) else parse_human(_text(value))


def _list(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    return tuple(_text(item).strip() for item in items if _text(item).strip())


def _tables(value: Any) -> tuple[Mapping[str, Any], ...]:
    if isinstance(value, str):
        value = json.loads(value)
    return tuple(dict(item) for item in value)


def _map(value: Any) -> Mapping[str, str]:
    """A table, or ``A=1,B=2``."""
    if isinstance(value, str):
        value = dict(item.split("=", 1) for item in value.split(",") if item.strip())
    return {_text(k).strip(): str(v) for k, v in value.items()}


def _fail() -> Any:
    raise ValueError


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "path": _text,
    "flag": _flag,
    "integer": _integer,
    "number": _number,
    "duration": _duration,
    "size": lambda value: parse_size(str(value)),
    "list": _list,
    "tables": _tables,
    "map": _map,
}
_EXPECTED = {
    "text": "a text",
    "path": "a path",
    "flag": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "duration": "a duration such as 15m, or seconds",
    "size": "a size such as 16G",
    "list": "a list of texts",
    "tables": "a list of tables",
    "map": "a table of texts",
}
