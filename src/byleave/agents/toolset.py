"""Tools for agents inside the server: the chat agent's toolset, and LocalCaller for every adapter.

Every call goes to this server's executor, and nowhere else. The toolset extends `adapters.pydantic_ai` with what our
runs have: a claim, a mode, a role's tools, and parking for long waits. LocalCaller has the interface of the SDK's
`Agent`, so that one adapter serves both. Nothing is validated or approved here.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart

from byleave.adapters.calls import read_arguments
from byleave.adapters.pydantic_ai import ForwardingToolset, Unchecked
from byleave.calls.executor import Caller, ToolExecutor
from byleave.calls.machines import Presence
from byleave.protocol.chat import CHAT_AGENT
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import ToolResponse, has_ended, id_of_call, key_scope
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import TOOLS
from byleave.protocol.wire import JsonObject
from byleave.store import SessionRow, Store


class LocalCaller:
    """Calls tools in one session through this server's executor."""

    def __init__(
        self, executor: ToolExecutor, store: Store, presence: Presence, session: SessionRow, caller: Caller
    ) -> None:
        self._executor = executor
        self._store = store
        self._presence = presence
        self._session = session
        self._caller = caller

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        row = await self._executor.call(
            tool_name, tool_params, self._session, caller=replace(self._caller, key=key), until_asked=True
        )
        return row.to_response()

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        row = await self._store.executions.get(tool_id, user_id=self._session.user_id)
        return (await self._executor.wait(row, seconds)).to_response()

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        key = key or uuid.uuid4().hex
        try:
            response = await self.start(tool_name, tool_params, key=key)
            return await self.wait(response.tool_id)
        except asyncio.CancelledError:
            # Cancel by key, not by response: if cancelled early, the call may already be recorded.
            session = self._session
            scope = self._caller.run_id or key_scope(
                session.user_id, session.project_id, session.id, self._caller.agent_id
            )
            with suppress(NotFound):
                await asyncio.shield(self.cancel(id_of_call(scope, key)))
            raise

    async def cancel(self, tool_id: str) -> bool:
        session = self._session
        try:
            await self._store.executions.cancel(
                tool_id,
                user_id=session.user_id,
                actor=f"agent:{self._caller.agent_id or 'elsewhere'}",
                connected=self._presence.connected(),
            )
        except ConflictError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Calling:
    """Run on whose behalf the agent calls tools."""

    run_id: str
    session_id: str
    mode: AgentMode
    fence: int
    """Claim of the worker."""
    asked: set[str] = field(default_factory=set[str], compare=False)
    """Approvals that calls had to wait for; the caller clears it."""


class Parked(Exception):
    """A call takes long: the run is released and resumes when the call has ended."""


class ByleaveToolset(ForwardingToolset[Calling]):
    """Forwards calls to the executor and waits for their end; raises `Parked` after `patience_seconds`."""

    def __init__(
        self,
        executor: ToolExecutor,
        *,
        agent_id: str = CHAT_AGENT,
        tools: Sequence[str] = tuple(TOOLS),
        patience_seconds: float | None = None,
    ) -> None:
        """`tools` are offered to the model; the executor refuses this agent any other."""
        super().__init__(tools)
        self._executor = executor
        self._patience = patience_seconds
        self._agent_id = agent_id
        self._allowed = frozenset(tools)

    async def forward(self, name: str, params: JsonObject, ctx: RunContext[Calling]) -> ToolResponse:
        calling = ctx.deps
        response = await self._executor.execute_tool(
            name, params, calling.session_id, caller=self._caller(calling, ctx.tool_call_id), seconds=self._patience
        )
        if response.approval_id is not None:
            calling.asked.add(response.approval_id)
        if not has_ended(response):
            raise Parked
        return response

    def _caller(self, calling: Calling, key: str | None) -> Caller:
        return Caller(
            run_id=calling.run_id,
            agent_id=self._agent_id,
            mode=calling.mode,
            fence=calling.fence,
            key=key,
            tools=self._allowed,
        )

    async def record_unknown(self, calls: Sequence[ToolCallPart], calling: Calling) -> None:
        """Record calls of tools that this agent does not have: the framework answers them without asking us."""
        for call in calls:
            if call.tool_name not in self._allowed:
                args = call.args
                params = read_arguments(args) if isinstance(args, str) else Unchecked().validate_python(args or {})
                caller = self._caller(calling, call.tool_call_id)
                await self._executor.execute_tool(call.tool_name, params, calling.session_id, caller=caller)
