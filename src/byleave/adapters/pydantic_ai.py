"""Byleave for Pydantic AI: its six tools as a toolset for any agent.

    agent = Agent("openai:gpt-5", toolsets=[ByleaveToolset(byleave.Machine(url, token, project_id))])

Nothing is validated or approved here. The framework's own argument check is off, because the gate must see (and the
record must hold) what the model really sent. A refusal, rejection or failure reaches the model as a failed call with
its reason, never as a result.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from byleave.protocol.executions import ToolCaller, ToolResponse
from byleave.protocol.states import ErrorType, ResponseStatus
from byleave.protocol.wire import JsonObject

from .calls import MODEL_CHARACTERS, UNREADABLE, call_key, read_arguments, response_text, specs_of

RETRIES = 1
"""Times a model may correct the parameters of a call before it fails."""

Deps = TypeVar("Deps")


class Unchecked:
    """Accepts any arguments and leaves the judgement to the gate."""

    def validate_json(
        self,
        input: str | bytes | bytearray,  # noqa: A002 - the framework's name
        *,
        allow_partial: bool | Literal["off", "on", "trailing-strings"] = False,
        **kwargs: Any,
    ) -> JsonObject:
        return read_arguments(input)

    def validate_python(
        self,
        input: Any,  # noqa: A002 - the framework's name
        *,
        allow_partial: bool | Literal["off", "on", "trailing-strings"] = False,
        **kwargs: Any,
    ) -> JsonObject:
        return cast(JsonObject, input) if isinstance(input, dict) else {UNREADABLE: str(input)[:MODEL_CHARACTERS]}


class ForwardingToolset(AbstractToolset[Deps]):
    """Offers the tools and forwards their calls; a subclass implements `forward`."""

    def __init__(self, tools: Iterable[str] | None = None) -> None:
        """`tools` selects some of the six."""
        self._tools = {
            spec.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=spec.name,
                    description=spec.description,
                    parameters_json_schema=spec.params.model_json_schema(),
                    # Calls that change something run alone, in the model's order; reads run concurrently.
                    sequential=spec.changes_things,
                    metadata={"risk_level": spec.risk_level.value, "requires_approval": spec.requires_approval},
                ),
                max_retries=RETRIES,
                args_validator=Unchecked(),
            )
            for spec in specs_of(tools)
        }

    @property
    def id(self) -> str:
        return "byleave"

    async def get_tools(self, ctx: RunContext[Deps]) -> dict[str, ToolsetTool[Deps]]:
        return self._tools

    @abstractmethod
    async def forward(self, name: str, params: JsonObject, ctx: RunContext[Deps]) -> ToolResponse:
        """Execute a call and wait for its end."""
        ...

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Deps], tool: ToolsetTool[Deps]
    ) -> str:
        """Return the result as JSON text. Raise ToolFailed, or ModelRetry if the parameters can be corrected."""
        response = await self.forward(name, tool_args, ctx)
        message = await response_text(response, tool_args)
        if response.status is ResponseStatus.COMPLETED:
            return message
        if response.error_type is ErrorType.INVALID and ctx.retry < RETRIES:
            raise ModelRetry(message)
        raise ToolFailed(message)


class ByleaveToolset(ForwardingToolset[Any]):
    """The tools for any agent, with any dependencies."""

    def __init__(self, caller: ToolCaller, *, tools: Iterable[str] | None = None) -> None:
        super().__init__(tools)
        self._caller = caller

    async def forward(self, name: str, params: JsonObject, ctx: RunContext[Any]) -> ToolResponse:
        # A saved conversation keeps its id, so a call repeated after resuming is the same call.
        place = ctx.conversation_id or ctx.run_id
        key = call_key(f"{place}{_reuse_suffix(ctx)}", ctx.tool_call_id, name, params) if place else None
        return await self._caller.execute(name, params, key=key)


def _reuse_suffix(ctx: RunContext[Any]) -> str:
    """Count reuses of a call id: models restart their numbers, and the same id again is another call."""
    answers = sum(
        any(isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id for part in message.parts)
        for message in ctx.messages
        if isinstance(message, ModelResponse)
    )
    return f"/{answers}" if answers > 1 else ""
