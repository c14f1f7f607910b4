"""Client: a connection to a server, shared by agents.

It retries requests that may be repeated, and waits for a server that restarts. A request that must not run twice needs
a key from the caller. The token is never logged or shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from byleave.client import ServerApi, load_token
from byleave.protocol.chat import Project
from byleave.protocol.errors import ConfigurationError, NotFound, UnreachableError
from byleave.protocol.states import AgentMode
from byleave.protocol.wire import Id
from byleave.settings import ClientSettings

from .agent import Agent

PATIENCE_SECONDS = 60.0
"""Time to wait for a server that does not answer: longer than a restart."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

Answer = TypeVar("Answer")


class Client:
    """A server and a token; they default to BYLEAVE_SERVER_URL and BYLEAVE_TOKEN, as for `byleave`."""

    def __init__(
        self, server_url: str | None = None, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        settings = ClientSettings()
        if token is None:
            token = settings.token.get_secret_value() if settings.token is not None else load_token(settings.home)
        if not token:
            raise ConfigurationError(
                "There is no token.", hint="pass one, or set BYLEAVE_TOKEN; `byleave token --scope agent` makes one"
            )
        self.api = ServerApi(server_url or settings.server_url, token)
        self._patience = patience_seconds
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.api.close()

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something in the background until closing, even if its caller is gone. Its failure is ignored."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    async def projects(self) -> list[Project]:
        """Return the user's projects."""
        return (await self.persist(self.api.list_projects)).projects

    async def project(self, name: str) -> Project:
        """Return the project with this name or id."""
        projects = await self.projects()
        found = [one for one in projects if name in (one.project_id, one.name)]
        if len(found) != 1:
            known = ", ".join(repr(one.name) for one in projects[:20]) or "none"
            problem = f"No project {name!r}." if not found else f"More than one project is called {name!r}; use its id."
            raise NotFound(problem, hint=f"There are: {known}.")
        return found[0]

    def agent(
        self,
        project_id: Id,
        *,
        name: str | None = None,
        session_id: Id | None = None,
        mode: AgentMode | None = None,
    ) -> Agent:
        """Return an agent of a project."""
        return Agent(project_id=project_id, client=self, name=name, session_id=session_id, mode=mode)

    async def persist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Retry while the server is unreachable, until patience ends. Only for requests that may be repeated."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await ask()
            except UnreachableError:
                if loop.time() + pause > give_up:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
