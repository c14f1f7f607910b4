"""`byleave notify`: list where a person is notified of what waits, send a test, remove a device.

All of it asks the server. A device is added on the device itself, in the page's settings.
"""

import logging
from typing import Annotated

import typer

from byleave.protocol.errors import ByleaveError, NotFound
from byleave.protocol.notices import Notifications

from .options import AsJson, Server, called_alone, new_app
from .places import find_server
from .process import in_loop, run_short, set_up_logging
from .screen import put, put_json, say, shown, wall_time

app = new_app()

NOWHERE = "You are notified nowhere: turn it on in the page's settings on your phone, or set BYLEAVE_NOTIFY_URL."


async def _list(server: str | None, *, as_json: bool) -> None:
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        found = await api.notices()
    if as_json:
        put_json(found.model_dump(mode="json"))
        return
    for line in _lines(found):
        put(line)
    if not found.webhook and not found.devices:
        say(NOWHERE)
        return
    say(f"Told when something waits for {found.after_seconds:g} s. `byleave notify test` tries it.")


def _lines(found: Notifications) -> list[str]:
    lines = ["webhook  the address in the server's BYLEAVE_NOTIFY_URL"] if found.webhook else []
    for device in found.devices:
        last = "" if device.sent_at is None else f", last message {wall_time(device.sent_at)}"
        lines.append(f"device   {shown(device.name)} by {shown(device.service)}{last}")
        lines.append(f"         {shown(device.id)}")
    return lines


@app.callback(invoke_without_command=True)
def notify(context: typer.Context, server: Server = None, as_json: AsJson = False) -> None:
    """List where you are notified of what waits: your devices, and the server's webhook.

    \b
    Example:
      byleave notify
      byleave notify test
      byleave notify remove device_1
    """
    if called_alone(context, given=server is not None or as_json, names="--server / --json"):
        run_short(_list(server, as_json=as_json))


@in_loop(app)
async def test(server: Server = None, as_json: AsJson = False) -> None:  # noqa: PT028 - the name of the command
    """Send a test everywhere, and say what became of it.

    \b
    Example:
      byleave notify test
    """
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        tried = await api.test_notices()
    if as_json:
        put_json(tried.model_dump(mode="json"))
    for each in () if as_json else tried.outcomes:
        put(f"{shown(each.to)}: {'sent' if each.delivered else f'not sent. {shown(each.detail or str())}'}")
    if not tried.outcomes:
        raise ByleaveError("There is nowhere to send it.", hint=NOWHERE.partition(": ")[2].rstrip("."))
    failed = sum(not each.delivered for each in tried.outcomes)
    if failed:
        raise ByleaveError(
            f"{failed} of {len(tried.outcomes)} could not be sent.",
            hint="see whether the server reaches the internet, and whether BYLEAVE_NOTIFY_URL is right",
        )


@in_loop(app)
async def remove(
    device_id: Annotated[str, typer.Argument(metavar="ID", help="The device.")],
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Notify a device no more.

    \b
    Example:
      byleave notify remove device_1
    """
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        try:
            removed = await api.remove_device(device_id)
        except NotFound as error:
            raise NotFound(f"You have no device {device_id!r}.", hint="`byleave notify` lists yours") from error
    if as_json:
        put_json({"removed": removed.model_dump(mode="json")})
    else:
        put(f"Removed: {shown(removed.name)} ({shown(removed.id)})")
