"""``isched init``: read the cluster at hand and leave a small project file to edit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

FILE = "ischeduler.toml"


@dataclass(frozen=True, slots=True)
class Initialised:
    """What was found and where it was written; ``written`` is None when a file was there already."""

    kind: str
    cluster: Cluster
    written: Path | None
    path: Path


def initialise(session: Session, *, force: bool = False) -> Initialised:
    """Read the live cluster, keep it, write ``ischeduler.toml``. BatchUnavailable when it does not answer."""
    services = session.services
    names = list(services.batches)
    if not names:
        raise BadInput(f"no batch system answers here ({'; '.join(services.troubles)}); isched doctor says more.")
    cluster = services.sync(names[0])
    path = session.config.directory / FILE
    written = None
    if force or not path.exists():
        path.write_text(project_text(services.batch_kind, cluster), encoding="utf-8")
        written = path
    return Initialised(services.batch_kind, cluster, written, path)


def project_text(kind: str, cluster: Cluster) -> str:
    """The project file: what was found, and the settings people change first, as comments."""
    account = f'account = "{cluster.default_account}"' if cluster.default_account else '# account = "..."'
    return f"""# iScheduler for this project; every setting: isched config show --origin
[batch]
kind = "{kind}"

[plan]
goal = "soonest"            # cheapest, fewest-interruptions, deadline=12h, budget=2.50
{account}

# [environment]             # what every job loads first
# modules = ["cuda/12.4"]
# conda = "myenv"

# [workload]                # or '# isched: epochs = 50' lines in the script itself
# model = "timm:resnet50"
# samples = 20000
# epochs = 50
# batch_size = 32
"""
