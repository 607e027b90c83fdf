"""A provisioner's model file: one JSON document with its forecaster, its rule, the law of others' run times, and where it came from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.estimators.jobruntime.model import RuntimeLaw
from ischeduler.helper.provisioning.forecasters import (
    BlendForecaster,
    BoostedForecaster,
    Forecaster,
    TreeForecaster,
    TwinForecaster,
)
from ischeduler.helper.provisioning.methods import NETWORKS, TREES
from ischeduler.helper.provisioning.tuning import Tuning
from ischeduler.plane.provisioners import HandOver, Newsvendor, Prices

FORMAT, BLENDS_ONLY = "ischeduler-provisioner/3", "ischeduler-provisioner/2"


@dataclass(frozen=True)
class TrainedProvisioner:
    """A model file's content: forecasts from ``forecaster``, rules from ``tuning`` (plain where nothing was tuned) with ``margin_s`` added to
    each lead, run times of others from ``law``."""

    forecaster: Forecaster
    tuning: Tuning
    law: RuntimeLaw
    about: Mapping[str, Any]
    margin_s: float = 0.0

    @property
    def method(self) -> str:
        """The provisioner's name, one of ``methods.NAMES``."""
        return str(self.about["method"])

    @property
    def segments_own(self) -> bool:
        """Whether a forecast is about one segment, by the time that remains to it, and says nothing of the wait beside it."""
        return self.method in (*TREES, *NETWORKS)

    def rule(self, prices: Prices | None = None) -> Newsvendor:
        """The rule of a user's prices."""
        return replace(self.tuning.rule(prices or Prices()), margin_s=self.margin_s)

    def handover(self) -> HandOver:
        """The rule for runs whose predecessor ends when the successor starts."""
        return self.tuning.handover() if self.tuning.tuned else HandOver(self.rule())


def write(model: TrainedProvisioner, out: Path) -> None:
    """One JSON file, atomically."""
    data = {
        "format": FORMAT, "about": dict(model.about), "tuning": asdict(model.tuning), "margin_s": model.margin_s, "law": model.law.as_data(),
        "forecaster": model.forecaster.as_data(),
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    half = out.with_name(f".{out.name}.{os.getpid()}")
    half.write_text(json.dumps(data))
    half.replace(out)


def read(path: Path) -> TrainedProvisioner:
    """The content of a model file. BadInput when it is none, or needs a library that is not installed."""
    try:
        data = json.loads(path.read_text())
        if data["format"] == BLENDS_ONLY:
            parts = [*({"kind": "boosted", **b} for b in data["boosted"]), {"kind": "twin"}]
            data |= {"forecaster": {"kind": "blend", "parts": parts}, "margin_s": 0.0, "about": {"method": "blend", **data["about"]}}
        elif data["format"] != FORMAT:
            raise KeyError(data["format"])
        pairs = {k: tuple((float(p), float(v)) for p, v in data["tuning"].get(k, ())) for k in ("tuned", "kept")}
        tuning = Tuning(**{**data["tuning"], **pairs})
        law = RuntimeLaw.from_data(data["law"])
        if missing := {"method", "data", "segment_units", "seed"} - set(data["about"]):
            raise KeyError(missing)
        return TrainedProvisioner(forecaster_of(data["forecaster"]), tuning, law, data["about"], float(data["margin_s"]))
    except FileNotFoundError:
        raise BadInput(f"{path} is not here: make one with isched provisioner train --trace FILE --out {path}") from None
    except IschedError:
        raise
    except Exception as error:  # each library has its own way of refusing a damaged model
        raise BadInput(f"{path} is no provisioner of this version ({FORMAT}): train it again with isched provisioner train") from error


def forecaster_of(data: Mapping[str, Any]) -> Forecaster:
    """The forecaster of an ``as_data``."""
    kind = data["kind"]
    if kind == "blend":
        return BlendForecaster(tuple(forecaster_of(part) for part in data["parts"]))
    plain: dict[str, Callable[[Mapping[str, Any]], Forecaster]] = {
        "twin": lambda data: TwinForecaster(), "boosted": BoostedForecaster.from_data, "random_forest": TreeForecaster.from_data,
        "xgboost": TreeForecaster.from_data,
    }  # fmt: skip
    if kind in plain:
        return plain[kind](data)
    from ischeduler.helper.provisioning.networks.environment import AgentForecaster
    from ischeduler.helper.provisioning.networks.reinforce import PolicyForecaster
    from ischeduler.helper.provisioning.networks.transformer import ValueForecaster

    learned: dict[str, Callable[[Mapping[str, Any]], Forecaster]] = {
        "value": ValueForecaster.from_data, "policy": PolicyForecaster.from_data, "dqn": AgentForecaster.from_data, "ppo": AgentForecaster.from_data,
    }  # fmt: skip
    return learned[kind](data)
