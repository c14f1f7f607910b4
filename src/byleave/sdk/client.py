"""Client, a connection to a server, and Agent, which calls tools in one project through it.

A client retries requests that may be repeated, and waits for a server that restarts. Every call of an agent has a key,
given or generated, so that a retry after a broken connection finds the same execution and never begins another.
Cancelling a waiting agent cancels its call. The token is never logged or shown.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Self, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from byleave.adapters.calls import UNREADABLE
from byleave.client.api import ServerApi
from byleave.client.identity import load_token
from byleave.client.tasks import Tasks
from byleave.gate.text.render import describe_edit
from byleave.protocol.chat import Project
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConfigurationError,
    ConflictError,
    NotFound,
    UnreachableError,
)
from byleave.protocol.events import FeedEvent, ToolFinished
from byleave.protocol.executions import ExecuteRequest, Execution, ToolResponse, has_ended, id_of_call, key_scope
from byleave.protocol.states import RESPONSE_STATUS, AgentMode
from byleave.protocol.tools import ToolCatalogue
from byleave.protocol.wire import Id, id_text
from byleave.settings import ClientSettings

WAIT_SECONDS = 60.0
"""Wait of one request; the next follows at once."""
SHORTEST_WAIT_SECONDS = 1.0
"""Every server allows this much."""
EARLY_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
CALL_OFF_SECONDS = 5.0
"""Time a cancelled caller waits for the cancellation to arrive; after that it continues in the background."""
SOON_SECONDS = 0.5
RECENT_CALLS = 200
LONGEST_NAME = 100


class Agent:
    """An agent of a project. A `ToolCaller`."""

    def __init__(
        self,
        server_url: str | None = None,
        token: str | None = None,
        project_id: Id | None = None,
        *,
        name: str | None = None,
        session_id: Id | None = None,
        mode: AgentMode | None = None,
        client: "Client | None" = None,
    ) -> None:
        """Share a `client`, or make one from the URL and token and close it with the agent.

        `mode` sets how much its calls ask, never wider than the token allows. `name` is for your own use: people and
        the record see the name in the token.
        """
        if project_id is None:
            raise CallerError("An agent needs a project.", hint="pass project_id; `Client.projects()` lists them")
        if client is None:
            self._client, self._own = Client(server_url, token), True
        else:
            self._client, self._own = client, False
        self.project_id = id_text("proj", project_id)
        self.session_id = None if session_id is None else id_text("sess", session_id)
        self.name = name
        self.mode = mode
        self._longest = WAIT_SECONDS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._own:
            await self._client.close()

    async def tools(self) -> ToolCatalogue:
        """Return the available tools, with JSON Schema of their parameters."""
        return await self._client.persist(lambda: self._client.api.available_tools(self.project_id))

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Return at its end, or as soon as a person has to be asked."""
        request = self._request(tool_name, tool_params, key or uuid.uuid4().hex)
        try:
            return await self._client.persist(lambda: self._client.api.execute(request))
        except PydanticSerializationError:
            # Nothing was sent. Send it in a form that the gate refuses, so that it is on the record like any other
            # call.
            unreadable = request.model_copy(update={"tool_params": {UNREADABLE: "what cannot be written as JSON"}})
            return await self._client.persist(lambda: self._client.api.execute(unreadable))

    def _request(self, tool_name: str, tool_params: Mapping[str, Any], key: str) -> ExecuteRequest:
        try:
            return ExecuteRequest(
                project_id=self.project_id,
                tool_name=tool_name[:LONGEST_NAME],  # no tool has a longer name: the gate refuses it
                tool_params=dict(tool_params),
                session_id=self.session_id,
                mode=self.mode,
                idempotency_key=key,
            )
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in wrong["loc"])
            raise CallerError(f"This call cannot be made: {place}: {wrong['msg']}.") from None

    async def wait(self, tool_id: Id, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call, or at most `seconds`; return its current state."""
        tool_id = id_text("exec", tool_id)
        loop = asyncio.get_running_loop()
        give_up = None if seconds is None else loop.time() + seconds
        while True:
            asked = loop.time()
            left = self._longest if give_up is None else max(min(self._longest, give_up - asked), 0.0)
            try:
                execution = await self._client.persist(lambda left=left: self._client.api.get_tool(tool_id, left))
            except NotFound:
                raise
            except CallerError:
                if left <= SHORTEST_WAIT_SECONDS:
                    raise
                self._longest = max(left / 2, SHORTEST_WAIT_SECONDS)  # this server allows less
                continue
            response = _response(execution)
            if has_ended(response) or (give_up is not None and loop.time() >= give_up):
                return response
            # A closing server answers early: do not ask again at once.
            await asyncio.sleep(max(min(asked + left - loop.time(), EARLY_SECONDS), 0.0))

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelling this cancels the call."""
        key = key or uuid.uuid4().hex
        # A separate task: if cancelled early, the call may already be on the server, with its id on the way.
        starting = asyncio.create_task(self.start(tool_name, tool_params, key=key))
        try:
            response = await asyncio.shield(starting)
            return response if has_ended(response) else await self.wait(response.tool_id)
        except asyncio.CancelledError:
            with suppress(ByleaveError, TimeoutError):
                async with asyncio.timeout(CALL_OFF_SECONDS):
                    await asyncio.shield(self._client.run_in_background(self._cancel_by_key(starting, key)))
            raise

    async def _cancel_by_key(self, starting: "asyncio.Task[ToolResponse]", key: str) -> None:
        await asyncio.wait({starting}, timeout=SOON_SECONDS)
        if not starting.done():
            # It runs without a question, so the server answers only at its end: find it by its key.
            recent = await self._client.api.history({"project_id": self.project_id, "limit": RECENT_CALLS})
            for one in recent.executions:
                scope = key_scope(one.user_id, one.project_id, one.session_id, one.agent_id)
                if one.tool_id == id_of_call(scope, key):
                    await self.cancel(one.tool_id)
        response = await starting
        if not has_ended(response):
            await self.cancel(response.tool_id)

    async def stream(
        self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None
    ) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """Yield the events of a call as they happen; the last item is its response.

        Leaving early does not cancel the call.
        """
        response = await self.start(tool_name, tool_params, key=key)
        if has_ended(response):
            yield response
            return
        async with aclosing(self.follow(response.tool_id)) as events:
            async for item in events:
                yield item

    async def follow(self, tool_id: Id) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """Yield the events of a begun call from its beginning; the last item is its response."""
        tool_id = id_text("exec", tool_id)
        seen: int | None = None
        response: ToolResponse | None = None
        pause = 0.0
        while response is None or not has_ended(response):
            before = seen
            try:
                async with self._client.api.tool_stream(tool_id, seen) as events:
                    async for number, event in events:
                        seen = number
                        yield event
                        if isinstance(event, ToolFinished):
                            break
            except UnreachableError:
                pass  # resumed below
            # Back off if a stream was refused or closed without an event.
            pause = 0.0 if seen != before else min(2 * pause or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            response = await self.wait(tool_id, pause)
        yield response

    async def cancel(self, tool_id: Id) -> bool:
        """Cancel a call; return False if it had ended already."""
        tool_id = id_text("exec", tool_id)
        try:
            await self._client.persist(lambda: self._client.api.cancel(self.project_id, tool_id))
        except ConflictError:
            return False
        return True


def _response(execution: Execution) -> ToolResponse:
    edit = execution.edit
    return ToolResponse(
        tool_id=execution.tool_id,
        tool_name=execution.tool_name,
        status=RESPONSE_STATUS[execution.status],
        result=execution.result,
        error=execution.error,
        approval_id=execution.approval_id,
        error_type=execution.error_type,
        edited=None if edit is None else describe_edit(execution.tool_name, edit.asked, execution.tool_params),
    )


PATIENCE_SECONDS = 60.0
"""Time to wait for a server that does not answer: longer than a restart."""

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
        self._background = Tasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._background.close()
        await self.api.close()

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something in the background until closing, even if its caller is gone. Its failure is ignored."""
        task = self._background.spawn(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

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
