"""What has to be at a tenant once before runs can go there: the system, and the app that runs trainings."""

from __future__ import annotations

import io
import zipfile
from urllib.parse import quote

from ischeduler.batch.tapis.client import Missing, TapisClient
from ischeduler.batch.tapis.resources import RUNNER, system_definition, training_app
from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import IschedError


def register(
    client: TapisClient, cluster: Cluster, system: str, *, host: str, work_dir: str, profile: str = "", app: str = "isched-train",
    app_version: str = "1", folder: str = "isched",
) -> list[str]:  # fmt: skip
    """Make system and app where they are missing; what was done, a line each. What is there is left as it is.

    The user's credential for the system's host has to be given to Tapis by that user (``systems.createUserCredential``).
    """
    said: list[str] = []
    if _there(client, system):
        said.append(f"system {system} kept as it is")
    else:
        client.call("systems.createSystem", **system_definition(cluster, system, host=host, work_dir=work_dir, profile=profile))
        said.append(f"system {system} made")
    place = f"{folder}/{app}-{app_version}.zip"
    client.call("files.insert", systemId=system, path=quote(place), file=archive())
    try:
        client.call("apps.createAppVersion", **training_app(app, app_version, f"tapis://{system}/{quote(place)}", system))
        said.append(f"app {app} {app_version} made")
    except IschedError as error:
        if "exist" not in str(error).lower():
            raise
        said.append(f"app {app} {app_version} kept as it is")
    return said


def archive() -> bytes:
    """The training app: a ZIP with its one script."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        entry = zipfile.ZipInfo("tapisjob_app.sh", date_time=(2026, 1, 1, 0, 0, 0))
        entry.external_attr = 0o755 << 16
        made.writestr(entry, RUNNER)
    return held.getvalue()


def _there(client: TapisClient, system: str) -> bool:
    try:
        client.call("systems.getSystem", systemId=system)
    except Missing:
        return False
    return True
