"""Servers behind the proxies of deploy/."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Unpack

import aiohttp
import pytest
from pydantic import SecretStr

from byleave.settings import ServerSettings
from harness.http_server import SECRET, Server, User, running_server
from harness.options import ServerOptions
from harness.proxies import NAME, Kind, Proxy, in_front_of, why_not


@dataclass(frozen=True)
class Deployed:
    """A server behind a proxy, and a session that comes through it."""

    server: Server
    proxy: Proxy
    session: aiohttp.ClientSession

    def user(self, name: str = "alice") -> User:
        return User(self.proxy.url, self.session, self.server.user(name).token)

    def visitor(self) -> User:
        return User(self.proxy.url, self.session, "")


class Behind(Protocol):
    def __call__(self, kind: Kind, **settings: Unpack[ServerOptions]) -> AbstractAsyncContextManager[Deployed]: ...


def behind_proxy(place: Path, **changes: Unpack[ServerOptions]) -> AbstractAsyncContextManager[Server]:
    """A server set up as deploy/README.md says."""
    values: ServerOptions = {
        "home": place,
        "secret": SecretStr(SECRET),
        "allowed_hosts": (NAME,),
        "trusted_proxies": ("127.0.0.1",),
        **changes,
    }
    return running_server(ServerSettings(**values))


def skip_without(kind: Kind) -> None:
    reason = why_not(kind)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def behind(tmp_path: Path) -> Behind:
    """Starts a server and a proxy before it."""

    @asynccontextmanager
    async def start(kind: Kind, **settings: Unpack[ServerOptions]) -> AsyncGenerator[Deployed]:
        skip_without(kind)
        # What is sent is seen at once or not in this test: no sign of life pushes it along.
        values: ServerOptions = {"heartbeat_seconds": 600, **settings}
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(behind_proxy(tmp_path / "home", **values))
            proxy = await stack.enter_async_context(in_front_of(kind, tmp_path / kind, [server.listening.port]))
            yield Deployed(server, proxy, await stack.enter_async_context(proxy.session()))

    return start
