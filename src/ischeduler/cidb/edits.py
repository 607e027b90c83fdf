"""A user's corrections, kept by the path of the fact they correct (``charge.usd_per_unit``, ``partitions.gpu.max_walltime_s``)."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Union, get_args, get_origin, get_type_hints

from ischeduler.cidb.accelerators import accelerators
from ischeduler.cidb.provenance import EDITED
from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition, Provenance
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.sizes import parse_size

_LISTS = {"partitions": Partition, "node_types": NodeType}
_FIXED: Mapping[type, frozenset[str]] = {
    Cluster: frozenset(f.name for f in fields(Cluster)) - {"centre"},
    Partition: frozenset({"name", "access"}),
    NodeType: frozenset({"name"}),
    Accelerator: frozenset({"name"}),
    ChargePolicy: frozenset({"params"}),
}
"""What an edit cannot name: keys, what belongs to one user, and what is made of other facts."""
_EMPTY = frozenset({"", "unknown", "none", "null"})


@dataclass(frozen=True, slots=True)
class Override:
    """One correction: the plain value for a fact, who made it and when (epoch seconds)."""

    path: str
    value: Any
    author: str
    edited_at: float


@dataclass(frozen=True, slots=True)
class _Place:
    """A fact's path taken apart: which item of which list, and the field within (``params`` with its key)."""

    group: str
    item: str
    kind: type
    field: str
    key: str = ""


def check_override(cluster: Cluster, path: str, value: Any) -> Any:
    """The plain value to store for a path. ``value`` may be text as people write it: ``2h``, ``16G``, ``no``, ``unknown``.

    Raises NotFound when the cluster has no such fact and BadInput when the value is not of the fact's kind.
    """
    place = _locate(cluster, path)
    if place.field == "accelerator":
        return _card(path, value)
    hint = float if place.key else get_type_hints(place.kind)[place.field]
    try:
        plain = _coerce(hint, place.key or place.field, value)
    except (ValueError, TypeError):
        raise BadInput(f"{path} cannot be {value!r}; expected {_expected(hint, place.field)}.") from None
    missing = (
        next((n for n in plain if n not in [t.name for t in cluster.node_types]), None) if place.field == "node_types" else None
    )
    if missing is not None:
        raise BadInput(
            f"{path}: {cluster.name} has no node type '{missing}'; it has {', '.join(t.name for t in cluster.node_types)}."
        )
    return to_plain(plain)


def _card(path: str, value: Any) -> Any:
    if isinstance(value, dict):
        return to_plain(from_plain(Accelerator, value))
    card = accelerators().get(str(value))
    if card is None:
        raise BadInput(f"{path} cannot be {value!r}; expected one of {', '.join(sorted(accelerators()))}.")
    return to_plain(card)


def apply_overrides(cluster: Cluster, overrides: Sequence[Override]) -> Cluster:
    """The cluster with all corrections that still fit it, each with its own provenance."""
    facts = dict(cluster.provenance)
    for item in overrides:
        try:
            place = _locate(cluster, item.path)
        except NotFound:
            continue
        cluster = _set(cluster, place, item.value)
        facts[item.path] = Provenance(f"{EDITED} {item.author}".strip(), item.edited_at, EDITED)
    return replace(cluster, provenance=facts)


def changed_paths(old: Cluster, new: Cluster) -> dict[str, Any]:
    """What a person changed in an exported text: plain values by path. BadInput when something was added, renamed or removed."""
    changes: dict[str, Any] = {}
    for group in _LISTS:
        before, after = _by_name(getattr(old, group)), _by_name(getattr(new, group))
        if before.keys() != after.keys():
            odd = ", ".join(sorted(before.keys() ^ after.keys()))
            raise BadInput(
                f"edits change values only, but {group} were added, renamed or removed ({odd}); use: isched clusters import FILE"
            )
        for name, item in after.items():
            changes |= _differences(f"{group}.{name}.", before[name], item)
    changes |= _differences("charge.", old.charge, new.charge)
    return changes | _differences("", old, new)


def _locate(cluster: Cluster, path: str) -> _Place:
    group, _, rest = path.partition(".")
    if group == "charge" and rest.startswith("params."):
        return _Place("charge", "", ChargePolicy, "params", rest[len("params.") :])
    if group == "charge":
        return _field("charge", "", ChargePolicy, rest, path)
    if group in _LISTS:
        item, _, name = rest.rpartition(".")
        names = [i.name for i in getattr(cluster, group)]
        if item.endswith(".accelerator") and item[: -len(".accelerator")] in names:
            return _accelerator(cluster, item[: -len(".accelerator")], name, path)
        if item not in names:
            raise NotFound(
                f"{cluster.name} has no {group[:-1].replace('_', ' ')} '{item or rest}'; it has {', '.join(names) or 'none'}."
            )
        return _field(group, item, _LISTS[group], name, path)
    return _field("", "", Cluster, path, path)


def _accelerator(cluster: Cluster, node: str, name: str, path: str) -> _Place:
    if cluster.node_type(node).accelerator is None:
        raise NotFound(f"node type '{node}' of {cluster.name} has no accelerator, so '{path}' cannot be set.")
    return _field("accelerators", node, Accelerator, name, path)


def _field(group: str, item: str, kind: type, name: str, path: str) -> _Place:
    known = [f.name for f in fields(kind) if f.name not in _FIXED[kind]]
    if name not in known:
        raise NotFound(f"'{path}' is no fact that can be edited; expected one of {', '.join(known)} at its end.")
    return _Place(group, item, kind, name)


def _set(cluster: Cluster, place: _Place, value: Any) -> Cluster:
    if place.group == "charge":
        if place.key:
            params = {**cluster.charge.params, place.key: value}
            return replace(cluster, charge=replace(cluster.charge, params=params))
        return replace(cluster, charge=_with(cluster.charge, place.field, value))
    if place.group == "accelerators":
        node = cluster.node_type(place.item)
        return _put(cluster, "node_types", replace(node, accelerator=_with(node.accelerator, place.field, value)))
    if place.group:
        item = next(i for i in getattr(cluster, place.group) if i.name == place.item)
        return _put(cluster, place.group, _with(item, place.field, value))
    return _with(cluster, place.field, value)


def _put(cluster: Cluster, group: str, item: Any) -> Cluster:
    items = tuple(item if i.name == item.name else i for i in getattr(cluster, group))
    return replace(cluster, **{group: items})


def _with(item: Any, name: str, value: Any) -> Any:
    typed = from_plain(type(item), {**to_plain(item), name: value})
    new = getattr(typed, name)
    old = getattr(item, name)
    if isinstance(new, Accelerator) and isinstance(old, Accelerator) and new.gres is None:
        new = replace(new, gres=old.gres)  # the card is another; how Slurm calls it is not
    return replace(item, **{name: new})


def _by_name(items: Sequence[Any]) -> Mapping[str, Any]:
    return {i.name: i for i in items}


def _differences(prefix: str, old: Any, new: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for f in fields(old):
        before, after = to_plain(getattr(old, f.name)), to_plain(getattr(new, f.name))
        if f.name == "params":
            found |= {f"{prefix}params.{k}": v for k, v in after.items() if before.get(k) != v}
        elif before == after or f.name in _FIXED[type(old)]:
            continue
        elif f.name == "accelerator" and after is None:
            raise BadInput(f"edits cannot remove an accelerator ({prefix}accelerator); use: isched clusters import FILE")
        else:
            found[prefix + f.name] = after
    return found


def _coerce(hint: Any, name: str, value: Any) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None or (isinstance(value, str) and value.strip().lower() in _EMPTY and type(None) in kinds):
        if type(None) in kinds:
            return None
        raise ValueError
    kind = next(k for k in kinds if k is not type(None))
    if get_origin(kind) is tuple:
        words = value.split(",") if isinstance(value, str) else list(value)
        return [str(w).strip() for w in words if str(w).strip()]
    if isinstance(value, str) and kind in (float, int):
        return _number(kind, name, value)
    return _typed(kind, value)


def _number(kind: type, name: str, text: str) -> float | int:
    if name.endswith("_bytes"):
        return parse_size(text)
    if name.endswith("_s") and not name.endswith("bytes_s"):
        return parse_human(text)
    return kind(text)


def _typed(kind: Any, value: Any) -> Any:
    if kind is bool:
        words = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
        if isinstance(value, bool):
            return value
        return words[value.strip().lower()] if isinstance(value, str) and value.strip().lower() in words else _refuse()
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        _refuse()
    return kind(value)


def _refuse() -> Any:
    raise ValueError


def _expected(hint: Any, name: str) -> str:
    if name.endswith("_bytes"):
        return "a size such as 16G, or 'unknown'"
    if name.endswith("_s") and not name.endswith("bytes_s"):
        return "a duration such as 30m, 2h or 7d, or 'unknown'"
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = {int: "a whole number", float: "a number", bool: "yes or no", str: "text", type(None): "'unknown'"}
    return " or ".join(words.get(k, "a list of names with commas") for k in kinds)
