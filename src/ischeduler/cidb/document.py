"""The text form of a cluster: one YAML a cluster, checked field by field. The catalog, imports and exports all use it.

Durations are texts such as ``48h`` or ``30m`` (a bare number is seconds), memory is ``363G`` (GiB) or ``182240M`` (bare: bytes, and
less than a MiB is refused as a unit forgotten).
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from ischeduler.cidb.accelerators import accelerators
from ischeduler.cidb.provenance import WHOLE
from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition, Provenance
from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import GIB, KIB, MIB, TIB, parse_size


def _epoch(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return value


def _duration(value: Any) -> Any:
    try:
        return parse_human(value) if isinstance(value, str) else value
    except BadInput as error:
        raise ValueError(str(error)) from None


def _size(value: Any) -> Any:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except BadInput as error:
        raise ValueError(str(error)) from None


def _iso(value: float) -> Any:
    moment = datetime.fromtimestamp(value, tz=UTC)
    return moment.date() if value % 86400 == 0 else moment.isoformat(timespec="seconds")


def _spell_duration(value: float | None) -> str | None:
    if value is None or value == float("inf"):
        return None if value is None else "unlimited"
    for unit, seconds in (("h", 3600), ("m", 60), ("s", 1)):
        if value % seconds == 0:
            return f"{value / seconds:.0f}{unit}"
    return f"{value!r}s"


def _spell_size(value: int | None) -> str | int | None:
    for unit, size in (("T", TIB), ("G", GIB), ("M", MIB), ("K", KIB)):
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return value


Moment = Annotated[float, BeforeValidator(_epoch), PlainSerializer(_iso)]
Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0), PlainSerializer(_spell_duration)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=MIB), PlainSerializer(_spell_size)]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1, max_length=128)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceModel(_Strict):
    """A document or command that facts come from."""

    title: str
    as_of: Moment
    confidence: str = "official"


class CardModel(_Strict):
    """An accelerator that the shipped table does not know."""

    name: Name
    memory: Annotated[int, BeforeValidator(_size), Field(ge=0), PlainSerializer(lambda v: _spell_size(v) or 0)] = 0
    vendor: str = "unknown"
    fp32_flops: float | None = None
    tf32_flops: float | None = None
    fp16_flops: float | None = None
    bf16_flops: float | None = None
    bandwidth_bytes_s: float | None = None


class NodeModel(_Strict):
    """One hardware type."""

    name: Name
    cores: Count | None = None
    memory: Size | None = None
    accelerator: str | CardModel | None = None
    accelerators: Count = 0
    gres: str | None = None
    count: Count | None = None
    cpu: str | None = None
    features: list[str] = []
    source: str | None = None


class PartitionModel(_Strict):
    """A queue with its limits and site rules."""

    name: Name
    nodes: list[str]
    max_walltime: Duration | None = None
    default_walltime: Duration | None = None
    min_nodes: Count = 1
    max_nodes: Count | None = None
    max_cores_per_node: Count | None = None
    max_memory: Size | None = None
    max_jobs_user: Count | None = None
    max_submit_user: Count | None = None
    max_gpus_user: Count | None = None
    charge_factor: float = Field(default=1.0, ge=0)
    chaining_allowed: bool = True
    preemptible: bool = False
    debug: bool = False
    restricted: bool = False
    whole_node: bool = False
    state: str = "UP"
    allow_accounts: list[str] = []
    allow_qos: list[str] = []
    note: str = ""
    source: str | None = None


class ChargeModel(_Strict):
    """How the centre charges."""

    rule: str = "free"
    unit: str = "node-hour"
    usd_per_unit: float | None = Field(default=None, ge=0)
    params: dict[str, float] = {}
    source: str | None = None


class ClusterModel(_Strict):
    """The whole file. ``source`` is the default of everything below; ``facts`` names the source of single facts by path."""

    name: Name
    centre: str = ""
    batch: str = "slurm"
    version: str | None = None
    as_of: Moment | None = None
    source: str | None = None
    sources: dict[str, SourceModel] = {}
    charge: ChargeModel = ChargeModel()
    node_types: list[NodeModel] = []
    partitions: list[PartitionModel] = []
    facts: dict[str, str] = {}


def cluster_of(data: Any, name: str = "the text") -> Cluster:
    """A cluster from a document's plain values; BadInput with one sentence naming the first wrong field."""
    try:
        model = ClusterModel.model_validate(data)
    except ValidationError as error:
        raise BadInput(_sentence(error, name)) from None
    _check_names(model, name)
    return Cluster(
        name=model.name,
        centre=model.centre,
        batch=model.batch,
        version=model.version,
        partitions=tuple(_partition(p) for p in model.partitions),
        node_types=tuple(_node(n, name) for n in model.node_types),
        charge=ChargePolicy(model.charge.rule, model.charge.unit, model.charge.usd_per_unit, dict(model.charge.params)),
        provenance=_provenance(model),
        as_of=model.as_of,
    )


def document_of(cluster: Cluster) -> dict[str, Any]:
    """Plain values that :func:`cluster_of` turns back into the same cluster (without what belongs to one user)."""
    keys = {p: f"s{i}" for i, p in enumerate(dict.fromkeys(cluster.provenance.values()), start=1)}
    facts = {path: keys[p] for path, p in cluster.provenance.items()}
    charge = cluster.charge
    model = ClusterModel(
        name=cluster.name,
        centre=cluster.centre,
        batch=cluster.batch,
        version=cluster.version,
        as_of=cluster.as_of,
        source=facts.pop(WHOLE, None),
        sources={k: SourceModel(title=p.source, as_of=p.as_of, confidence=p.confidence) for p, k in keys.items()},
        charge=ChargeModel(
            rule=charge.rule,
            unit=charge.unit,
            usd_per_unit=charge.usd_per_unit,
            params=dict(charge.params),
            source=facts.pop("charge", None),
        ),
        node_types=[_node_model(n, facts.pop(f"node_types.{n.name}", None)) for n in cluster.node_types],
        partitions=[_partition_model(p, facts.pop(f"partitions.{p.name}", None)) for p in cluster.partitions],
        facts=facts,
    )
    return model.model_dump(exclude_defaults=True)


def _partition(p: PartitionModel) -> Partition:
    same = p.model_dump(
        exclude={"nodes", "max_walltime", "default_walltime", "max_memory", "allow_accounts", "allow_qos", "source"}
    )
    return Partition(
        node_types=tuple(p.nodes),
        max_walltime_s=p.max_walltime,
        default_walltime_s=p.default_walltime,
        max_memory_bytes=p.max_memory,
        allow_accounts=tuple(p.allow_accounts),
        allow_qos=tuple(p.allow_qos),
        **same,
    )


def _partition_model(p: Partition, source: str | None) -> PartitionModel:
    odd = {"node_types", "max_walltime_s", "default_walltime_s", "max_memory_bytes", "access", "allow_accounts", "allow_qos"}
    same = {f: getattr(p, f) for f in p.__dataclass_fields__ if f not in odd}
    return PartitionModel(
        nodes=list(p.node_types),
        max_walltime=p.max_walltime_s,
        default_walltime=p.default_walltime_s,
        max_memory=p.max_memory_bytes,
        allow_accounts=list(p.allow_accounts),
        allow_qos=list(p.allow_qos),
        source=source,
        **same,
    )


def _node(n: NodeModel, name: str) -> NodeType:
    return NodeType(
        n.name, n.cores, n.memory, _card(n, name), n.accelerators if n.accelerator else 0, n.count, n.cpu, tuple(n.features)
    )


def _card(n: NodeModel, name: str) -> Accelerator | None:
    if n.accelerator is None:
        return None
    if isinstance(n.accelerator, CardModel):
        return Accelerator(memory_bytes=n.accelerator.memory, gres=n.gres, **n.accelerator.model_dump(exclude={"memory"}))
    known = accelerators().get(n.accelerator)
    if known is None:
        raise BadInput(
            f"{name}: accelerator '{n.accelerator}' of node type '{n.name}' is unknown; expected one of {', '.join(accelerators())}."
        )
    return Accelerator(**{f: getattr(known, f) for f in known.__dataclass_fields__ if f != "gres"}, gres=n.gres)


def _node_model(n: NodeType, source: str | None) -> NodeModel:
    card = n.accelerator
    spelled: str | CardModel | None = None
    if card is not None:
        values = {f: getattr(card, f) for f in card.__dataclass_fields__ if f not in ("gres", "memory_bytes")}
        known = accelerators().get(card.name)
        same = (
            known is not None
            and all(getattr(known, f) == v for f, v in values.items())
            and known.memory_bytes == card.memory_bytes
        )
        spelled = card.name if same else CardModel(memory=card.memory_bytes, **values)
    return NodeModel(
        name=n.name,
        cores=n.cores,
        memory=n.memory_bytes,
        accelerator=spelled,
        accelerators=n.accelerators_per_node,
        gres=card.gres if card else None,
        count=n.count,
        cpu=n.cpu_model,
        features=list(n.features),
        source=source,
    )


def _provenance(model: ClusterModel) -> dict[str, Provenance]:
    found = {key: Provenance(s.title, s.as_of, s.confidence) for key, s in model.sources.items()}
    paths = {WHOLE: model.source, "charge": model.charge.source}
    paths |= {f"node_types.{n.name}": n.source for n in model.node_types}
    paths |= {f"partitions.{p.name}": p.source for p in model.partitions}
    return {path: found[key] for path, key in {**paths, **model.facts}.items() if key is not None}


def _check_names(model: ClusterModel, name: str) -> None:
    nodes = [n.name for n in model.node_types]
    for what, names in (("node type", nodes), ("partition", [p.name for p in model.partitions])):
        double = next((n for n in names if names.count(n) > 1), None)
        if double is not None:
            raise BadInput(f"{name}: {what} '{double}' is there twice; give each its own name.")
    for p in model.partitions:
        missing = next((n for n in p.nodes if n not in nodes), None)
        if missing is not None:
            raise BadInput(f"{name}: partition '{p.name}' uses node type '{missing}', which is not among node_types.")
    used = [model.source, model.charge.source, *(n.source for n in model.node_types), *(p.source for p in model.partitions)]
    unknown = next((s for s in [*used, *model.facts.values()] if s is not None and s not in model.sources), None)
    if unknown is not None:
        raise BadInput(
            f"{name}: source '{unknown}' is not among sources; expected one of {', '.join(model.sources) or '(none given)'}."
        )


def _sentence(error: ValidationError, name: str) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the document"
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{name}: {where} is wrong: {reason[0].lower()}{reason[1:]}; got {str(first['input'])[:80]!r}."
