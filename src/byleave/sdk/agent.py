"""Agent: calls tools in one project, from wherever it runs, and waits for people and machines as long as it takes.

Every call has a key, its own or one made here, so that asking again after a broken connection finds the same
execution and never begins another. An agent that is cancelled while it waits calls its call off.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from byleave.adapters.calls import UNREADABLE
from byleave.protocol.errors import ByleaveError, CallerError, ConflictError, NotFound, UnreachableError
from byleave.protocol.events import FeedEvent, ToolFinished
from byleave.protocol.executions import ExecuteRequest, Execution, ToolResponse
from byleave.protocol.states import RESPONSE_STATUS, AgentMode
from byleave.protocol.tool_caller import has_ended, id_of_call, key_scope
from byleave.protocol.tools import ToolCatalogue
from byleave.protocol.wire import Id, id_text

if TYPE_CHECKING:
    from .client import Client

WAIT_SECONDS = 60.0
"""One request's wait; the next follows at once."""
SHORTEST_WAIT_SECONDS = 1.0
"""Every server allows so much."""
EARLY_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
CALL_OFF_SECONDS = 5.0
"""How long whoever is cancelled waits for the call to be called off; it goes on behind until the client is closed."""
SOON_SECONDS = 0.5
RECENT_CALLS = 200
LONGEST_NAME = 100


class Agent:
    """One agent of one project. A `ToolCaller`."""

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
        """`client`: a connection to share; else one is made from the URL and token, and closed with the agent.

        `mode`: how much its calls ask, never wider than the token allows. `name` is for your own use: what people see
        and the record keeps is the name in the token.
        """
        if project_id is None:
            raise CallerError("An agent needs a project.", hint="pass project_id; `Client.projects()` lists them")
        if client is None:
            from .client import Client

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
        request = self._request(tool_name, tool_params, key or uuid.uuid4().hex)
        try:
            return await self._client.persist(lambda: self._client.api.execute(request))
        except PydanticSerializationError:
            # Nothing was sent. What a model made up is refused by the gate and on the record, like any other call.
            unreadable = request.model_copy(update={"tool_params": {UNREADABLE: "what cannot be written as JSON"}})
            return await self._client.persist(lambda: self._client.api.execute(unreadable))

    def _request(self, tool_name: str, tool_params: Mapping[str, Any], key: str) -> ExecuteRequest:
        try:
            return ExecuteRequest(
                project_id=self.project_id,
                tool_name=tool_name[:LONGEST_NAME],  # no tool has a longer one: the gate says so
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
        """Wait for the end of a call; with `seconds`, come back after them with how it then stands."""
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
            # A server that is closing answers before the time is over: it is not asked again at once.
            await asyncio.sleep(max(min(asked + left - loop.time(), EARLY_SECONDS), 0.0))

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelled, it calls off the call."""
        key = key or uuid.uuid4().hex
        # Of its own task: cancelled while it begins, the call may be on the server already, and its id on the way.
        starting = asyncio.create_task(self.start(tool_name, tool_params, key=key))
        try:
            response = await asyncio.shield(starting)
            return response if has_ended(response) else await self.wait(response.tool_id)
        except asyncio.CancelledError:
            with suppress(ByleaveError, TimeoutError):
                async with asyncio.timeout(CALL_OFF_SECONDS):
                    await asyncio.shield(self._client.keep(self._call_off(starting, key)))
            raise

    async def _call_off(self, starting: "asyncio.Task[ToolResponse]", key: str) -> None:
        await asyncio.wait({starting}, timeout=SOON_SECONDS)
        if not starting.done():
            # It runs without having asked anybody, and the server answers only at its end: found by its key.
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
        """What happens to a call as it happens: asked, decided, output, finished. The last item is its response.

        Leaving early does not call it off.
        """
        response = await self.start(tool_name, tool_params, key=key)
        if has_ended(response):
            yield response
            return
        async with aclosing(self.follow(response.tool_id)) as happening:
            async for item in happening:
                yield item

    async def follow(self, tool_id: Id) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """What happens to a call that was begun, from its beginning. The last item is its response."""
        tool_id = id_text("exec", tool_id)
        seen: int | None = None
        response: ToolResponse | None = None
        pause = 0.0
        while response is None or not has_ended(response):
            before = seen
            try:
                async with self._client.api.tool_stream(tool_id, seen) as happening:
                    async for number, event in happening:
                        seen = number
                        yield event
                        if isinstance(event, ToolFinished):
                            break
            except UnreachableError:
                pass  # gone on with below, from where it broke off
            # A stream that was turned away, or closed without news, is asked for again less and less often.
            pause = 0.0 if seen != before else min(2 * pause or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            response = await self.wait(tool_id, pause)
        yield response

    async def cancel(self, tool_id: Id) -> bool:
        """Call off a call; False when it had ended already."""
        tool_id = id_text("exec", tool_id)
        try:
            await self._client.persist(lambda: self._client.api.cancel(self.project_id, tool_id))
        except ConflictError:
            return False
        return True


def _response(execution: Execution) -> ToolResponse:
    return ToolResponse(
        tool_id=execution.tool_id,
        tool_name=execution.tool_name,
        status=RESPONSE_STATUS[execution.status],
        result=execution.result,
        error=execution.error,
        approval_id=execution.approval_id,
        error_type=execution.error_type,
    )
