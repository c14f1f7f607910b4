"""LocalCaller: tools for an agent that runs inside the server, without HTTP.

It has the interface of the SDK's `Agent`, so that one adapter serves both. It adds nothing to the executor and holds
no approval.
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from byleave.bus import Presence
from byleave.calls.executor import Caller, ToolExecutor
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import ToolResponse
from byleave.protocol.tool_caller import id_of_call, key_scope
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
