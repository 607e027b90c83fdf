"""``isched provisioner train``: a model file with everything a deployed provisioner needs, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler import __version__
from ischeduler.core.errors import BadInput
from ischeduler.helper.provisioning.collecting import Advance, collect, fit_laws, silent
from ischeduler.helper.provisioning.evidence import Evidence, Sight
from ischeduler.helper.provisioning.judge import record, reduction
from ischeduler.helper.provisioning.methods import DEPLOYED, Effort, Method, baselines, check, fitted, oracle_outcomes
from ischeduler.helper.provisioning.model_file import TrainedProvisioner, write
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.tuning import Tuning
from ischeduler.plane.provisioners import Newsvendor

CHECKPOINT_S = 180


@dataclass(frozen=True)
class Order:
    """What to train: the segment's ``units``, how many episodes, the seed; ``looks`` at running jobs the run-time
    law learns from. ``work`` keeps finished episodes. ``method``: one of ``methods.NAMES``; ``effort``: of a network's training."""

    units: int = 1
    training: int = 200
    validation: int = 60
    seed: int = 0
    rolls: int = 64
    stride: int = 6
    looks: int = 400
    work: Path | None = None
    method: str = DEPLOYED
    effort: Effort | None = None


def train(setting: Setting, order: Order, out: Path, *, advance: Advance = silent) -> dict[str, Any]:
    """Train, judge on what comes after, write ``out``; what was written about it. Run again after a stop, it goes on.

    BadInput for an unknown method, a missing library, a trace that is too short.
    """
    check(order.method)
    work = order.work or out.with_suffix(".work")
    sight = Sight(order.stride, order.rolls, seed=order.seed)
    laws = fit_laws(setting, seed=order.seed, looks=order.looks, advance=advance)

    def gathered(starts: Any, most: int, what: str) -> list[Evidence]:
        return collect(setting, laws, _spread(starts, most), order.units, sight, keep=work, advance=advance, what=what)

    training = gathered(setting.training_starts(), order.training, "training episodes")
    if len(training) < 20:
        raise BadInput(f"{len(training)} training episodes are too few: give a longer trace, or a later --train-until")
    after = gathered(setting.validation_starts(), order.validation, "validation episodes")
    advance(f"fitting {order.method}", 0, 1)
    method = fitted(order.method, training, order.seed, effort=order.effort)
    advance(f"fitting {order.method}", 1, 1)
    about = _about(setting, order, training, after, method)
    assert method.forecaster is not None
    margin_s = method.rule.margin_s if isinstance(method.rule, Newsvendor) else 0.0
    write(TrainedProvisioner(method.forecaster, method.tuning or Tuning(), laws.full, about, margin_s), out)
    return about


def _about(
    setting: Setting, order: Order, training: Sequence[Evidence], after: Sequence[Evidence], method: Method
) -> dict[str, Any]:
    table = setting.table
    columns = b"".join(np.ascontiguousarray(getattr(table, c)).tobytes() for c in ("submit_s", "start_s", "run_s", "limit_s", "units"))
    return {
        "data": {
            "trace": setting.source, "jobs": len(table), "first_s": int(table.submit_s[0]), "last_s": int(table.submit_s[-1]),
            "sha256": hashlib.sha256(columns).hexdigest(), "train_until_s": setting.train_until_s, "units": setting.capacity,
            "protocol": setting.protocol,
        },
        "method": method.name, "code": f"ischeduler {__version__}", "seed": order.seed, "segment_units": order.units, "segment_s": setting.segment_s,
        "training_episodes": len(training), "validation": _validation(setting, after, method) if len(after) >= 4 else {},
    }  # fmt: skip


def _validation(setting: Setting, after: Sequence[Evidence], method: Method) -> dict[str, Any]:
    """Hours on episodes after the training's end, beside reactive, average and the oracle."""
    hours = setting.segment_s / 3600
    plain = [record(m.name, m.outcomes(after), hours) for m in baselines()]
    ours = record(method.name, method.outcomes(after, setting=setting), hours)
    rows = [*plain, ours, record("oracle", oracle_outcomes(after), hours)]
    value, low, high = reduction(ours, plain)
    found: dict[str, Any] = {r.method: r.figures() for r in rows}
    found["hand_over"] = record("hand_over", method.outcomes(after, handover=True), hours, CHECKPOINT_S).figures()
    return found | {"reduction": {"value": value, "low": low, "high": high}}


def _spread(starts: Any, most: int) -> Any:
    return starts if most >= len(starts) else starts[np.linspace(0, len(starts) - 1, most).round().astype(int)]
