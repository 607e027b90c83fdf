"""``isched provisioner train``: a model file with everything a deployed provisioner needs, and where it came from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler import __version__
from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime.model import RuntimeLaw
from ischeduler.helper.provisioning.collecting import Advance, collect, fit_laws, silent
from ischeduler.helper.provisioning.evidence import Evidence, Sight
from ischeduler.helper.provisioning.forecasters import BlendForecaster, BoostedForecaster, TwinForecaster
from ischeduler.helper.provisioning.judge import record, reduction
from ischeduler.helper.provisioning.methods import DEPLOYED, Method, baselines, newsvendors, oracle_outcomes
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.tuning import Tuning
from ischeduler.plane.provisioners import HandOver, Newsvendor, Prices

FORMAT = "ischeduler-provisioner/2"
CHECKPOINT_S = 180


@dataclass(frozen=True)
class Order:
    """What to train: the segment's ``units``, how many episodes, the seed; ``looks`` at running jobs the run-time
    law learns from. ``work`` keeps finished episodes."""

    units: int = 1
    training: int = 200
    validation: int = 60
    seed: int = 0
    rolls: int = 64
    stride: int = 6
    looks: int = 400
    work: Path | None = None


@dataclass(frozen=True)
class TrainedProvisioner:
    """A model file's content: forecasts from ``forecaster``, rules from ``tuning``, run times of others from ``law``."""

    forecaster: BlendForecaster
    tuning: Tuning
    law: RuntimeLaw
    about: Mapping[str, Any]

    def rule(self, prices: Prices | None = None) -> Newsvendor:
        """The rule of a user's prices."""
        return self.tuning.rule(prices or Prices())

    def handover(self) -> HandOver:
        """The rule for runs whose predecessor ends when the successor starts."""
        return self.tuning.handover()


def train(setting: Setting, order: Order, out: Path, *, advance: Advance = silent) -> dict[str, Any]:
    """Train, judge on what comes after, write ``out``; what was written about it. Run again after a stop, it goes on."""
    work = order.work or out.with_suffix(".work")
    sight = Sight(order.stride, order.rolls, seed=order.seed)
    laws = fit_laws(setting, seed=order.seed, looks=order.looks, advance=advance)

    def gathered(starts: Any, most: int, what: str) -> list[Evidence]:
        return collect(setting, laws, _spread(starts, most), order.units, sight, keep=work, advance=advance, what=what)

    training = gathered(setting.training_starts(), order.training, "training episodes")
    if len(training) < 20:
        raise BadInput(f"{len(training)} training episodes are too few: give a longer trace, or a later --train-until")
    after = gathered(setting.validation_starts(), order.validation, "validation episodes")
    method = next(m for m in newsvendors(training, order.seed) if m.name == DEPLOYED)
    about = _about(setting, order, training, after, method)
    assert isinstance(method.forecaster, BlendForecaster)
    assert method.tuning is not None
    write(TrainedProvisioner(method.forecaster, method.tuning, laws.full, about), out)
    return about


def write(model: TrainedProvisioner, out: Path) -> None:
    """One JSON file, atomically."""
    boosted = [p for p in model.forecaster.parts if isinstance(p, BoostedForecaster)]
    data = {
        "format": FORMAT, "about": dict(model.about), "tuning": asdict(model.tuning), "law": model.law.as_data(),
        "boosted": [{"with_twin": b.with_twin, "boosters": b.as_data()} for b in boosted],
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    half = out.with_name(f".{out.name}.{os.getpid()}")
    half.write_text(json.dumps(data))
    half.replace(out)


def read(path: Path) -> TrainedProvisioner:
    """The content of a model file. BadInput when it is none."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise KeyError(data["format"])
        import lightgbm

        parts = [
            BoostedForecaster(b["with_twin"], boosters=tuple(lightgbm.Booster(model_str=t) for t in b["boosters"]))
            for b in data["boosted"]
        ]
        pairs = {k: tuple((float(p), float(v)) for p, v in data["tuning"].get(k, ())) for k in ("tuned", "kept")}
        tuning = Tuning(**{**data["tuning"], **pairs})
        return TrainedProvisioner(BlendForecaster((*parts, TwinForecaster())), tuning, RuntimeLaw.from_data(data["law"]), data["about"])
    except FileNotFoundError:
        raise BadInput(f"{path} is not here: make one with isched provisioner train --trace FILE --out {path}") from None
    except (ValueError, KeyError, TypeError, OSError):
        raise BadInput(f"{path} is no provisioner of this version ({FORMAT}): train it again with isched provisioner train") from None


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
        "code": f"ischeduler {__version__}", "seed": order.seed, "segment_units": order.units, "segment_s": setting.segment_s,
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
