"""Webhooks of one's own."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Response

from ischeduler.service.api.bodies import WebhookBody
from ischeduler.service.api.desk import ADesk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import SECRET, HouseRoute
from ischeduler.service.auth.require import Reader, Writer
from ischeduler.service.webhooks import resolve, secret_of

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=HouseRoute)
HookId = Annotated[str, Path(pattern=r"^h-[0-9a-f]{16}$", examples=["h-0123456789abcdef"])]


@router.get("", responses=answers("webhooks"), name="webhook.list")
def list_webhooks(desk: ADesk, who: Reader) -> Response:
    """Your webhooks, newest first; never their secrets."""
    return document("webhooks", {"webhooks": desk.webhooks.all(who.user)})


@router.post("", status_code=201, responses=answers("webhook", 409, 413, status=201), name="webhook.add", openapi_extra={SECRET: True})
def add_webhook(desk: ADesk, who: Writer, body: WebhookBody) -> Response:
    """Send events of your runs there from now on, signed with the secret that is told this once. https is asked for outside tests."""
    resolve(body.url, desk.settings.webhook_hosts)
    hook = desk.webhooks.add(f"h-{secrets.token_hex(8)}", who.user, body.url, body.kinds)
    answer = {"webhook": hook, "secret": secret_of(desk.gate.derived, hook.id)}
    return document("webhook", answer, status=201, headers={"Location": f"/v1/webhooks/{hook.id}"})


@router.get("/{webhook_id}", responses=answers("webhook", 404), name="webhook.get")
def get_webhook(desk: ADesk, who: Reader, webhook_id: HookId) -> Response:
    """A webhook of yours: how far it was told, and what went wrong last."""
    return document("webhook", {"webhook": desk.webhooks.get(webhook_id, who.user), "secret": ""})


@router.post("/{webhook_id}/resume", responses=answers("webhook", 404, 413), name="webhook.resume")
def resume_webhook(desk: ADesk, who: Writer, webhook_id: HookId) -> Response:
    """Go on after a pause, from the event it was at."""
    return document("webhook", {"webhook": desk.webhooks.resume(webhook_id, who.user), "secret": ""})


@router.delete("/{webhook_id}", status_code=204, responses=answers(None, 404, status=204, words="Gone."), name="webhook.remove")
def remove_webhook(desk: ADesk, who: Writer, webhook_id: HookId) -> Response:
    """Send nothing more there."""
    desk.webhooks.remove(webhook_id, who.user)
    return Response(status_code=204)
