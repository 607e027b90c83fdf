"""The style sheet, the scripts and the icon. Nothing is fetched from elsewhere."""

from __future__ import annotations

import mimetypes

from fastapi import APIRouter, Request
from starlette.responses import Response

from ischeduler.core.errors import NotFound
from ischeduler.service.dashboard.access import PageRoute
from ischeduler.service.dashboard.rendering import static_file

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/static/{name:path}")
def static(request: Request, name: str) -> Response:
    """One shipped file. With its fingerprint in the address it may be kept for ever."""
    found = static_file(name)
    if found is None:
        raise NotFound("there is no such file.")
    content, mark = found
    kept = "public, max-age=31536000, immutable" if request.query_params.get("v") == mark else "no-cache"
    headers = {"Cache-Control": kept, "ETag": f'"{mark}"', "X-Content-Type-Options": "nosniff"}
    if request.headers.get("if-none-match") == f'"{mark}"':
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=mimetypes.guess_type(name)[0] or "text/plain", headers=headers)
