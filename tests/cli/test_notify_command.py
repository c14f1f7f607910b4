"""`byleave notify`: where a person is notified, a test of it, and a device that is not notified any more."""

import asyncio
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from byleave.client.api import ServerApi
from harness.push_service import PushService

from .conftest import FreePort, Program, Site

pytestmark = pytest.mark.promise("A-elsewhere")


class Hook(BaseHTTPRequestHandler):
    """Takes every post."""

    bodies: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Say nothing."""


@pytest.fixture
def hook() -> Generator[str]:
    Hook.bodies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        working = threading.Thread(target=server.serve_forever)
        working.start()
        yield f"http://127.0.0.1:{server.server_port}/ntfy/topic"
        server.shutdown()
        working.join()


async def _with_device(url: str, token: str) -> str:
    """A device by a push service that is not there."""
    async with ServerApi(url, token) as api:
        body = json.dumps(PushService("https://push.invalid").subscription()).encode()
        await api._send("POST", "/my/notices/devices", {}, body, 30)
        [device] = (await api.notices()).devices
        return device.id


def test_who_is_notified_nowhere_is_told_how_to_change_that(site: Site) -> None:
    listed = site.here("notify")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "settings on your phone" in listed.stderr
    tried = site.here("notify", "test")
    assert tried.returncode == 1
    assert "nowhere to send" in tried.stderr
    assert site.here("notify", "--json", "test").returncode == 2


def test_test_says_what_became_of_it(byleave: Program, free_port: FreePort, hook: str) -> None:
    port = free_port()
    serving = byleave.start("serve", "--port", str(port), BYLEAVE_NOTIFY_URL=hook, BYLEAVE_NOTIFY_FORMAT="ntfy")
    serving.line_with("ready")
    token = byleave.here("token", "--user", "alice").stdout.strip()
    asked = {"BYLEAVE_TOKEN": token, "BYLEAVE_SERVER_URL": f"http://127.0.0.1:{port}"}
    listed = byleave.here("notify", **asked)
    assert listed.stdout == "webhook  the address in the server's BYLEAVE_NOTIFY_URL\n"
    assert "waits for 20 s" in listed.stderr
    tried = byleave.here("notify", "test", **asked)
    assert (tried.returncode, tried.stdout) == (0, "webhook: sent\n"), tried.stderr
    assert Hook.bodies == ["For alice. Notifications work. Nothing waits for you."]


def test_device_is_listed_tried_and_removed(site: Site) -> None:
    device = asyncio.run(_with_device(site.url, site.token))
    listed = site.here("notify")
    assert "by push.invalid" in listed.stdout
    assert device in listed.stdout
    tried = site.here("notify", "test")
    assert tried.returncode == 1
    assert "not sent. It could not be reached" in tried.stdout
    assert "1 of 1 could not be sent" in tried.stderr
    assert json.loads(site.here("notify", "--json").stdout)["devices"][0]["id"] == device
    removed = site.here("notify", "remove", device)
    assert removed.stdout.startswith("Removed: ")
    gone = site.here("notify", "remove", device)
    assert (gone.returncode, "`byleave notify` lists yours" in gone.stderr) == (1, True)
