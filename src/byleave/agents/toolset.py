"""The chat agent's tools: every call goes to this server's executor, and nowhere else.

Extends `adapters.pydantic_ai` with what our runs have: a claim, a mode, a role's tools, and parking for long waits.
Nothing is validated or approved here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart

from byleave.adapters.calls import read_arguments
from byleave.adapters.pydantic_ai import ForwardingToolset, Unchecked
from byleave.calls.executor import Caller, ToolExecutor
from byleave.protocol.chat import CHAT_AGENT
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import AgentMode
from byleave.protocol.tool_caller import has_ended
from byleave.protocol.tools import TOOLS
from byleave.protocol.wire import JsonObject


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
