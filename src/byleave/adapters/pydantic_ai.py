"""Byleave for Pydantic AI: its six tools as a toolset for any agent.

    agent = Agent("openai:gpt-5", toolsets=[ByleaveToolset(machine)])               # waits until a person has answered
    agent = Agent("openai:gpt-5", toolsets=[ByleaveToolset(machine, defer=True)],   # ends the run instead
                  output_type=[str, DeferredToolRequests])

With `defer`, the run of a call that needs a person ends with `DeferredToolRequests`. Save them and the messages; when
people have answered, run again, in any process, with `deferred_tool_results=await settle(requests, machine)`. What the
framework takes for approved decides nothing: the call then waits for the person.

Nothing is validated or approved here. The framework's own argument check is off, because the gate must see (and the
record must hold) what the model really sent. A refusal, rejection or failure reaches the model as a failed call with
its reason, never as a result. The typed result is the `metadata` of the part that returns it.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, cast

from .versions import warn_if_untested

warn_if_untested("pydantic-ai-slim")

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from byleave.protocol.executions import BlockingCaller, ToolCaller, ToolResponse, has_ended
from byleave.protocol.states import ErrorType, ResponseStatus
from byleave.protocol.wire import JsonObject

from .calls import (
    MODEL_CHARACTERS,
    UNREADABLE,
    attached_result,
    call_key,
    caller_of,
    question_of,
    read_arguments,
    response_text,
    specs_of,
)

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
    ) -> Any:
        """Return the result as JSON text. Raise ToolFailed, or ModelRetry if the parameters can be corrected."""
        response = await self.forward(name, tool_args, ctx)
        message = await response_text(response, tool_args)
        if response.status is ResponseStatus.COMPLETED:
            return self.returned(message, response)
        if response.error_type is ErrorType.INVALID and ctx.retry < RETRIES:
            raise ModelRetry(message)
        raise ToolFailed(message)

    def returned(self, message: str, response: ToolResponse) -> Any:
        """Return what the framework gets for a completed call."""
        return message


class ByleaveToolset(ForwardingToolset[Any]):
    """The tools for any agent, with any dependencies."""

    def __init__(
        self, caller: ToolCaller | BlockingCaller, *, tools: Iterable[str] | None = None, defer: bool = False
    ) -> None:
        """With `defer`, a call that needs a person ends the run with `DeferredToolRequests`."""
        super().__init__(tools)
        self._caller = caller_of(caller)
        self._defer = defer

    def returned(self, message: str, response: ToolResponse) -> ToolReturn[str]:
        return ToolReturn(message, metadata=attached_result(response))

    async def forward(self, name: str, params: JsonObject, ctx: RunContext[Any]) -> ToolResponse:
        # A saved conversation keeps its id, so a call repeated after resuming is the same call.
        place = ctx.conversation_id or ctx.run_id
        key = call_key(f"{place}{_reuse_suffix(ctx)}", ctx.tool_call_id, name, params) if place else None
        if self._defer and not ctx.tool_call_approved:
            begun = await self._caller.start(name, params, key=key)
            if not has_ended(begun):
                raise ApprovalRequired(question_of(begun, params))
            return begun
        return await self._caller.execute(name, params, key=key)


async def settle(
    requests: DeferredToolRequests, caller: ToolCaller | BlockingCaller, *, seconds: float | None = None
) -> DeferredToolResults | None:
    """Return people's decisions for the next run; None if one is missing after `seconds`.

    Requests of other tools are left out: add their results.
    """
    caller, results = caller_of(caller), DeferredToolResults()
    for call in requests.approvals:
        question = requests.metadata.get(call.tool_call_id, {})
        if question.get("tool_name") != call.tool_name or not isinstance(question.get("tool_id"), str):
            continue
        response = await caller.wait(question["tool_id"], seconds)
        if not has_ended(response):
            return None
        completed = response.status is ResponseStatus.COMPLETED
        results.approvals[call.tool_call_id] = (
            True if completed else ToolDenied(await response_text(response, question["tool_params"]))
        )
    return results


def _reuse_suffix(ctx: RunContext[Any]) -> str:
    """Count reuses of a call id: models restart their numbers, and the same id again is another call."""
    answers = sum(
        any(isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id for part in message.parts)
        for message in ctx.messages
        if isinstance(message, ModelResponse)
    )
    return f"/{answers}" if answers > 1 else ""
