"""Three servers on one record in PostgreSQL, behind the nginx of deploy/: set up as deploy/README.md says.

Servers, clients and nginx are processes of their own; `rolling` restarts the servers one after the other for as long as
its block lasts. Nothing here waits by the clock: a server that was restarted is ready before the next one goes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .forks import Forks
from .ports import free_port
from .processes import Process, Site, User, environment, open_site
from .proxies import Proxy, in_front_of

SECRET = "a secret of the fleet, long enough to be one"
NAME = "localhost"
SERVERS = 3
TURN_SECONDS = 60

End = Callable[[Process], Awaitable[object]]


@dataclass
class Fleet:
    """Servers and their proxy."""

    site: Site
    proxy: Proxy
    ports: list[int]
    servers: dict[int, Process] = field(default_factory=dict[int, Process])
    turns: int = 0
    """How often a server was restarted."""
    _turned: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return self.proxy.url

    @asynccontextmanager
    async def user(self, name: str, *scopes: str) -> AsyncGenerator[User]:
        user = User(self.url, self.site.token(name, *scopes), self.proxy.trust)
        try:
            yield user
        finally:
            await user.close()

    async def serve(self, port: int) -> None:
        self.servers[port] = await self.site.serve(port=port)

    async def connect(self, project_id: str, token: str, workspace: Path) -> Process:
        return await self.site.connect(project_id, token, workspace, server_url=self.url)

    async def restart(self, port: int, end: End) -> None:
        """End a server and start it again."""
        await end(self.servers[port])
        await self.serve(port)
        async with self._turned:
            self.turns += 1
            self._turned.notify_all()

    async def until_turned(self, times: int = SERVERS) -> None:
        """Wait until so many more servers were restarted; as many as there are: each of them."""
        wanted = self.turns + times
        async with asyncio.timeout(TURN_SECONDS), self._turned:
            await self._turned.wait_for(lambda: self.turns >= wanted)

    @asynccontextmanager
    async def rolling(self, *ends: End) -> AsyncGenerator[None]:
        """Restart the servers one after the other, all the time, in these ways in turn."""

        async def roll() -> None:
            number = 0
            while not leaving.is_set():
                await self.restart(self.ports[number % len(self.ports)], ends[number % len(ends)])
                number += 1

        leaving = asyncio.Event()
        task = asyncio.create_task(roll())
        try:
            yield
        finally:
            leaving.set()
            await task  # also what went wrong with a start


@asynccontextmanager
async def open_fleet(root: Path, database_url: str, **settings: str) -> AsyncGenerator[Fleet]:
    """Settings may be given by name, such as `lease_seconds="3"`."""
    ports = [free_port() for _ in range(SERVERS)]
    chosen = {
        "database_url": database_url,
        "secret": SECRET,
        "allowed_hosts": f"{NAME},127.0.0.1",  # this one is asked whether it is ready
        "trusted_proxies": "127.0.0.1",
        "drain_seconds": "1",
        "lease_seconds": "3",  # what a killed server worked on is taken up after these
        **settings,
    }
    root.mkdir(exist_ok=True)
    async with in_front_of("nginx", root / "nginx", ports, NAME) as proxy:
        # aiohttp decides whom it trusts when it is loaded.
        forks = Forks(environment(root, SSL_CERT_FILE=str(proxy.certificate)))
        try:
            async with open_site(root / "site", forks, **chosen) as site:
                fleet = Fleet(site, proxy, ports)
                await asyncio.gather(*(fleet.serve(port) for port in ports))
                yield fleet
        finally:
            forks.close()
