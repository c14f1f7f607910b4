"""Client: a connection to a server with a token, which many machines may share.

Requests that may be repeated are retried while the server is away, so that they outlast its restart. But not before
anything has answered at its address: then the address is more likely wrong, and the caller is told at once. The token
is never logged or shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self, TypeVar

from byleave.client.api import ServerApi
from byleave.client.identity import load_token
from byleave.client.tasks import Tasks
from byleave.protocol.chat import Project
from byleave.protocol.errors import ConfigurationError, NotFound, UnreachableError
from byleave.settings import ClientSettings

PATIENCE_SECONDS = 60.0
"""Time to wait for a server that does not answer any more: longer than a restart."""
CALL_OFF_SECONDS = 5.0
"""Time a cancelled caller waits for the cancellation to arrive; after that it continues in the background."""
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
        self._place = (server_url or settings.server_url, token, patience_seconds)
        self.api = ServerApi(server_url or settings.server_url, token)
        self._patience = patience_seconds
        self._calls = Tasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Call off what is still waited for, and close the connection."""
        for call in self._calls:
            if not call.cancelling():
                call.cancel()
        await self._calls.close(CALL_OFF_SECONDS)
        await self.api.close()

    def another(self) -> "Client":
        """Return a client of the same server and token, for another event loop."""
        server_url, token, patience = self._place
        return Client(server_url, token, patience_seconds=patience)

    async def own(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do work that must see its own cancellation through, even if its caller does not wait for that.

        It is cancelled with its caller, and when the client closes.
        """
        call = self._calls.spawn(work)
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if not call.cancelling():
                call.cancel()
            await asyncio.wait({call}, timeout=CALL_OFF_SECONDS)
            raise

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

    async def persist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Retry while the server is away, until patience ends. Only for requests that may be repeated."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await ask()
            except UnreachableError as error:
                if not (error.passing and self.api.reached) or loop.time() + pause > give_up:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
