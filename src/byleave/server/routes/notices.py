"""Notifications of what waits: a user's devices, and a test. When and how they are sent is in `server.notices`."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends
from starlette.requests import Request

from byleave.protocol.notices import NoticeTest, Notifications, PushDevice, PushDeviceBody
from byleave.protocol.states import Scope
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import Allow, Parts, Person, StrictRoute
from byleave.server.problems import problems
from byleave.store.notices import Device

router = APIRouter(route_class=StrictRoute, tags=["notices"])

MOST_DEVICES = 20
"""Most devices of one user; a further one removes the oldest."""
Decider = Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, every=True, people_only=True))]
# The first that fits: each of these names stands in the user agents of later ones too.
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser/": "Samsung Internet",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "CriOS/": "Chrome",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS = {
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Windows": "Windows",
    "CrOS": "ChromeOS",
    "Mac OS X": "Mac",
    "Linux": "Linux",
}


@router.get("/my/notices", summary="How you are notified")
async def list_notices(parts: Parts, principal: Person) -> Notifications:
    """The devices that get push messages, newest first, and whether the operator set a webhook."""
    return Notifications(
        after_seconds=parts.settings.notify_after_seconds,
        webhook=parts.notices.has_webhook,
        push_key=parts.notices.push.public_key,
        devices=[_shown(device) for device in await parts.store.notices.devices(principal.user_id)],
    )


@router.post("/my/notices/devices", summary="Notify a device", responses=problems(503))
async def add_device(parts: Parts, principal: Decider, request: Request, body: PushDeviceBody) -> PushDevice:
    """Takes a browser's push subscription. The device is removed when the sign-in that added it is signed out, and when
    its push service says that it is gone. Needs both scopes."""
    parts.notices.push.check(body)
    device = await parts.store.notices.add_device(
        principal.user_id,
        body.endpoint,
        p256dh=body.p256dh.rstrip("="),
        auth=body.auth.rstrip("="),
        name=_name(request.headers.get("user-agent", "")),
        sign_ins=principal.sign_ins,
        most=MOST_DEVICES,
    )
    return _shown(device)


@router.post("/my/notices/devices/{device_id}/remove", summary="Stop notifying a device", responses=problems(404, 503))
async def remove_device(parts: Parts, principal: Decider, device_id: str) -> PushDevice:
    """It gets no more push messages. Returns what was removed."""
    return _shown(await parts.store.notices.remove_device(device_id, principal.user_id))


@router.post("/my/notices/test", summary="Send a test", responses=problems(429, 503))
async def test_notices(parts: Parts, principal: Decider) -> NoticeTest:
    """To each of your devices and to the operator's webhook, once, and tells what became of it. Too many are a 429."""
    return NoticeTest(outcomes=await parts.notices.test(principal.user_id))


def _shown(device: Device) -> PushDevice:
    return PushDevice(
        id=device.id,
        name=device.name,
        service=urlsplit(device.endpoint).hostname or "",
        created_at=device.created_at,
        sent_at=device.sent_at,
    )


def _name(user_agent: str) -> str:
    """`Chrome on Android`, as far as a browser tells."""
    browser = next((name for sign, name in BROWSERS.items() if sign in user_agent), "Browser")
    system = next((name for sign, name in SYSTEMS.items() if sign in user_agent), None)
    return browser if system is None else f"{browser} on {system}"
