"""From measurements to samples: every measured step with the kernels of its model's traced step."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.steptime_cards import card
from benchmarks.steptime_data import Latency, PhaseTime, Truth
from benchmarks.steptime_logs import Logs, rescaled
from benchmarks.steptime_study import Sample
from ischeduler.estimators.steptime.devices import Device, of_accelerator
from ischeduler.estimators.steptime.oplog import OpRow
from ischeduler.estimators.steptime.work import Work, kernels

TRACED_BATCH = 32
_NO_DROPOUT = {
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"), "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "opt": ("dropout",), "switch_transformers": ("dropout_rate",), "t5": ("dropout_rate",),
}


class Unknown(Exception):
    """Cards without a datasheet."""


def device_of(name: str) -> Device | None:
    """The datasheet of a measured card, under its own name."""
    sheet = card(name)
    return of_accelerator(sheet) if sheet is not None else None


def vision_samples(phases: Sequence[PhaseTime], logs: Logs, say: Callable[[str], None]) -> list[Sample]:
    """Forward and backward passes; models that cannot be traced and cards nobody knows are left out (and said)."""
    traced: dict[str, tuple[OpRow, ...]] = {}
    for model in sorted({p.model for p in phases}):
        say(f"log of {model}")
        traced[model] = logs.rows(model if ":" in model else f"torchvision:{model}", TRACED_BATCH)
    devices = {name: device_of(name) for name in {p.card for p in phases}}
    made: dict[tuple[str, float], dict[str, tuple[Work, ...]]] = {}
    found: list[Sample] = []
    for one in phases:
        device = devices[one.card]
        if not traced[one.model] or device is None:
            continue
        key = (one.model, one.batch)
        if key not in made:
            made[key] = kernels(rescaled(traced[one.model], TRACED_BATCH, one.batch))
        found.append(Sample(one.card, one.model, one.phase, one.batch, one.seconds, made[key][one.phase], device))
    return found


def transformer_samples(truth: Truth, logs: Logs, say: Callable[[str], None]) -> list[Sample]:
    """A forward sample of every latency, and a backward one of those in training mode; ``group`` names the latency."""
    found: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="isched-configurations-") as folder:
        for one in truth.latencies:
            device = device_of(one.card)
            parts = _parts(one, truth, logs, Path(folder), say) if device is not None else None
            if parts is None or device is None:
                continue
            group = group_of(one)
            found.append(Sample(one.card, one.model, "forward", one.batch, one.forward_s, parts["forward"], device, group))
            if one.mode == "train":
                found.append(Sample(one.card, one.model, "backward", one.batch, one.backward_s, parts["backward"], device, group))
    return found


def group_of(one: Latency) -> str:
    """A latency's name."""
    return f"{one.card}/{one.model}-{one.mode}-{one.length}-{one.batch}"


def _parts(
    one: Latency, truth: Truth, logs: Logs, folder: Path, say: Callable[[str], None]
) -> dict[str, tuple[Work, ...]] | None:
    path = (truth.configurations or {}).get(one.model)
    if path is None:
        logs.missing[one.model] = "its configuration is not beside the measurements (DLmodel_configs/NAME.json)"
        return None
    text = path.read_bytes()
    home = folder / one.model
    home.mkdir(exist_ok=True)
    (home / "config.json").write_bytes(text)
    options = {"sequence_length": str(one.length), "model._attn_implementation": "eager"}  # as NeuSight measured
    if one.mode == "inf":
        options |= {f"model.{name}": "0" for name in _NO_DROPOUT.get(json.loads(text).get("model_type", ""), ())}
    say(f"log of {one.model}, {one.length} tokens, batch {one.batch}")
    content = hashlib.sha256(text).hexdigest()
    rows = logs.rows(f"transformers:{home}", one.batch, options=options, content=content)
    if not rows:
        logs.missing[one.model] = logs.missing.pop(f"transformers:{home}", logs.missing.get(one.model, "it cannot be traced"))
        return None
    return kernels(rows)
