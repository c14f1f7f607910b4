"""Notifications of what waits: the devices that get them, and a test of the ways they go."""

from typing import Annotated

from pydantic import Field, StringConstraints

from .wire import Timestamp, WireModel


class PushDevice(WireModel):
    """A browser that is notified. Its address at the push service is told to nobody."""

    id: str
    name: str
    """Browser and system, such as `Chrome on Android`."""
    service: str
    """Host of its push service."""
    created_at: Timestamp
    sent_at: Timestamp | None
    """Last message that the push service took."""


class Notifications(WireModel):
    """How a user is notified of questions that wait."""

    after_seconds: float
    """A question waits so long for an answer first."""
    webhook: bool
    """True if the operator set BYLEAVE_NOTIFY_URL."""
    push_key: str
    """The key that a browser subscribes with (`applicationServerKey`)."""
    devices: list[PushDevice]


class PushDeviceBody(WireModel):
    """A browser's push subscription, as the browser gave it."""

    endpoint: str = Field(min_length=1, max_length=2000)
    p256dh: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{87}=?$")]
    auth: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}(==)?$")]


class NoticeOutcome(WireModel):
    """Whether one way took a notice."""

    to: str
    """The device's name, or `webhook`."""
    delivered: bool
    detail: str | None
    """Why it did not; null if it did."""


class NoticeTest(WireModel):
    """What became of a test."""

    outcomes: list[NoticeOutcome]
