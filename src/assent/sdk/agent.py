"""Agent: calls tools in one project, from wherever it runs, and waits for people and machines as long as it takes.

Every call has a key, its own or one made here, so that asking again after a broken connection finds the same
execution and never begins another. An agent that is cancelled while it waits calls its call off.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from assent.protocol.calling import has_ended
from assent.protocol.errors import AssentError, CallerError, ConflictError, UnreachableError
from assent.protocol.events import FeedEvent, ToolFinished
from assent.protocol.executions import ExecuteRequest, Execution, ToolResponse
from assent.protocol.states import RESPONSE_STATUS
from assent.protocol.tools import ToolCatalogue

if TYPE_CHECKING:
    from .client import Client

WAIT_SECONDS = 60.0
"""One request's wait; the next follows at once."""


class Agent:
    """One agent of one project. A `ToolCaller`."""

    def __init__(
        self,
        server_url: str | None = None,
        token: str | None = None,
        project_id: str | None = None,
        *,
        name: str | None = None,
        session_id: str | None = None,
        client: "Client | None" = None,
    ) -> None:
        """`client`: a connection to share; else one is made from the URL and token, and closed with the agent."""
        if project_id is None:
            raise CallerError("An agent needs a project.", hint="pass project_id; `Client.projects()` lists them")
        if client is None:
            from .client import Client

            self._client, self._own = Client(server_url, token), True
        else:
            self._client, self._own = client, False
        self.project_id = project_id
        self.session_id = session_id
        self.name = name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._own:
            await self._client.close()

    async def tools(self) -> ToolCatalogue:
        """The tools there are, with JSON Schema of their parameters."""
        return await self._client.persist(lambda: self._client.api.available_tools(self.project_id))

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Comes back with its end, or as soon as a person has to be asked."""
        request = ExecuteRequest(
            project_id=self.project_id,
            tool_name=tool_name,
            tool_params=dict(tool_params),
            session_id=self.session_id,
            agent_id=self.name,
            idempotency_key=key or uuid.uuid4().hex,
        )
        return await self._client.persist(lambda: self._client.api.execute(request))

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call; with `seconds`, come back after them with how it then stands."""
        loop = asyncio.get_running_loop()
        give_up = None if seconds is None else loop.time() + seconds
        while True:
            left = WAIT_SECONDS if give_up is None else max(min(WAIT_SECONDS, give_up - loop.time()), 0.0)
            execution = await self._client.persist(lambda left=left: self._client.api.get_tool(tool_id, left))
            response = _response(execution)
            if has_ended(response) or (give_up is not None and loop.time() >= give_up):
                return response

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelled, it calls off the call."""
        key = key or uuid.uuid4().hex
        tool_id: str | None = None
        try:
            response = await self.start(tool_name, tool_params, key=key)
            tool_id = response.tool_id
            return response if has_ended(response) else await self.wait(tool_id)
        except asyncio.CancelledError:
            if tool_id is not None:
                with suppress(AssentError):
                    await asyncio.shield(self.cancel(tool_id))
            raise

    async def stream(
        self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None
    ) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """What happens to a call as it happens: asked, decided, output, finished. The last item is its response.

        Leaving early does not call it off.
        """
        response = await self.start(tool_name, tool_params, key=key)
        seen: int | None = None
        while not has_ended(response):
            try:
                async for number, event in self._client.api.tool_stream(response.tool_id, seen):
                    seen = number
                    yield event
                    if isinstance(event, ToolFinished):
                        break
            except UnreachableError:
                pass  # gone on with below, from where it broke off
            response = await self.wait(response.tool_id, 0.0)
        yield response

    async def cancel(self, tool_id: str) -> bool:
        """Call off a call; False when it had ended already."""
        try:
            await self._client.persist(lambda: self._client.api.cancel(self.project_id, tool_id))
        except ConflictError:
            return False
        return True


def _response(execution: Execution) -> ToolResponse:
    return ToolResponse(
        tool_id=execution.id,
        tool_name=execution.tool_name,
        status=RESPONSE_STATUS[execution.status],
        result=execution.result,
        error=execution.error,
        approval_id=execution.approval_id,
        error_type=execution.error_type,
    )
