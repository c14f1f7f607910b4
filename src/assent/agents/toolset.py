"""The six tools as a pydantic-ai toolset: every call goes to the executor, and nowhere else.

Nothing is validated or approved here. The framework's own argument check is switched off, because the gate must see
(and the record must hold) what the model really sent. A refusal, rejection or failure reaches the model as a failed
call with its reason, never as a result.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from assent.executor import Caller, ToolExecutor
from assent.protocol.states import AgentMode, ErrorType, ResponseStatus
from assent.protocol.telling import BIG, MODEL_CHARACTERS, bulk, failure, shown_to_model
from assent.protocol.tools import TOOLS
from assent.protocol.values import JsonObject

CHAT_AGENT_ID = "chat"
RETRIES = 1
"""How often a model may mend the parameters of a call before they count as a failure."""
_UNREADABLE = "unreadable_arguments"


@dataclass(frozen=True, slots=True)
class Calling:
    """On whose behalf the agent calls tools."""

    run_id: str
    session_id: str
    mode: AgentMode
    fence: int
    """The claim it works under."""


class _Unchecked:
    """Takes whatever a model sends as arguments and leaves the judgement to the gate."""

    def validate_json(
        self,
        input: str | bytes | bytearray,  # noqa: A002 - the framework's name
        *,
        allow_partial: bool | Literal["off", "on", "trailing-strings"] = False,
        **kwargs: Any,
    ) -> JsonObject:
        try:
            value: Any = json.loads(input)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return {_UNREADABLE: str(input)[:MODEL_CHARACTERS]}
        return cast(JsonObject, value)

    def validate_python(
        self,
        input: Any,  # noqa: A002 - the framework's name
        *,
        allow_partial: bool | Literal["off", "on", "trailing-strings"] = False,
        **kwargs: Any,
    ) -> JsonObject:
        return cast(JsonObject, input) if isinstance(input, dict) else {_UNREADABLE: str(input)[:MODEL_CHARACTERS]}


class AssentToolset(AbstractToolset[Calling]):
    """Forwards tool calls to the executor and waits for their end, however long a person takes."""

    def __init__(self, executor: ToolExecutor, *, agent_id: str = CHAT_AGENT_ID) -> None:
        self._executor = executor
        self._agent_id = agent_id
        self._tools = {
            spec.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=spec.name,
                    description=spec.description,
                    parameters_json_schema=spec.params.model_json_schema(),
                    # What changes things runs alone and in the model's order; reads run side by side.
                    sequential=spec.changes_things,
                    metadata={"risk_level": spec.risk_level.value, "requires_approval": spec.requires_approval},
                ),
                max_retries=RETRIES,
                args_validator=_Unchecked(),
            )
            for spec in TOOLS.values()
        }

    @property
    def id(self) -> str:
        return "assent"

    async def get_tools(self, ctx: RunContext[Calling]) -> dict[str, ToolsetTool[Calling]]:
        return self._tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Calling], tool: ToolsetTool[Calling]
    ) -> str:
        """The result as JSON text. Raises ToolFailed, or ModelRetry when the parameters can still be mended."""
        calling = ctx.deps
        caller = self._caller(calling, ctx.tool_call_id)
        response = await self._executor.execute_tool(name, tool_args, calling.session_id, caller=caller)
        if response.status is ResponseStatus.COMPLETED:
            result = response.result or {}
            # A file of 100 MB is not written out as JSON on the event loop.
            return await asyncio.to_thread(shown_to_model, result) if bulk(result) > BIG else shown_to_model(result)
        message = failure(response)
        if _UNREADABLE in tool_args:
            message = f"The arguments of {name} are not a JSON object.\nhint: send one object with its parameters"
        if response.error_type is ErrorType.INVALID and ctx.retry < RETRIES:
            raise ModelRetry(message)
        raise ToolFailed(message)

    def _caller(self, calling: Calling, key: str | None) -> Caller:
        return Caller(run_id=calling.run_id, agent_id=self._agent_id, mode=calling.mode, fence=calling.fence, key=key)

    async def record_unknown(self, calls: Sequence[ToolCallPart], calling: Calling) -> None:
        """Put calls of tools that do not exist on record. The framework answers them without asking us."""
        for call in calls:
            if call.tool_name not in TOOLS:
                unchecked = _Unchecked()
                args = call.args
                params = (
                    unchecked.validate_json(args) if isinstance(args, str) else unchecked.validate_python(args or {})
                )
                caller = self._caller(calling, call.tool_call_id)
                await self._executor.execute_tool(call.tool_name, params, calling.session_id, caller=caller)
