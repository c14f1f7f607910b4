"""Byleave for Pydantic AI: its six tools as a toolset for any agent.

    agent = Agent("openai:gpt-5", toolsets=[ByleaveToolset(byleave.Agent(url, token, project_id))])

Nothing is validated or approved here. The framework's own argument check is switched off, because the gate must see
(and the record must hold) what the model really sent. A refusal, rejection or failure reaches the model as a failed
call with its reason, never as a result.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ErrorType, ResponseStatus
from byleave.protocol.tool_caller import ToolCaller
from byleave.protocol.wire import JsonObject

from .calls import MODEL_CHARACTERS, UNREADABLE, call_key, read_arguments, specs_of, told

RETRIES = 1
"""How often a model may mend the parameters of a call before they count as a failure."""

Deps = TypeVar("Deps")


class Unchecked:
    """Takes whatever a model sends as arguments and leaves the judgement to the gate."""

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
    """Offers the tools and forwards their calls; a subclass says where to."""

    def __init__(self, tools: Iterable[str] | None = None) -> None:
        """`tools`: which of the six; left out, all."""
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
        """Have a call executed, and wait for its end."""
        ...

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Deps], tool: ToolsetTool[Deps]
    ) -> str:
        """The result as JSON text. Raises ToolFailed, or ModelRetry when the parameters can still be mended."""
        response = await self.forward(name, tool_args, ctx)
        message = await told(response, tool_args)
        if response.status is ResponseStatus.COMPLETED:
            return message
        if response.error_type is ErrorType.INVALID and ctx.retry < RETRIES:
            raise ModelRetry(message)
        raise ToolFailed(message)


class ByleaveToolset(ForwardingToolset[Any]):
    """The tools for any agent, whatever its dependencies are."""

    def __init__(self, caller: ToolCaller, *, tools: Iterable[str] | None = None) -> None:
        super().__init__(tools)
        self._caller = caller

    async def forward(self, name: str, params: JsonObject, ctx: RunContext[Any]) -> ToolResponse:
        # A conversation keeps its id when it is saved and gone on with, so a call that is repeated then is the same.
        place = ctx.conversation_id or ctx.run_id
        key = call_key(f"{place}{_earlier(ctx)}", ctx.tool_call_id, name, params) if place else None
        return await self._caller.execute(name, params, key=key)


def _earlier(ctx: RunContext[Any]) -> str:
    """Which call of its number it is, where a model numbers its calls anew: the same call again is another call."""
    answers = sum(
        any(isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id for part in message.parts)
        for message in ctx.messages
        if isinstance(message, ModelResponse)
    )
    return f"/{answers}" if answers > 1 else ""
