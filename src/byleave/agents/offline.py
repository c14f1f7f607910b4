"""The offline model: a scripted stand-in for a language model, so that everything works without a key.

It answers from the conversation alone: the last message of the user says what to do, the tool results after it say
how far it got. That makes it deterministic and resumable like any other model, and it takes the same way through
toolset, gate and approvals. It stops at the first step that is refused or fails.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from .answers import Outcome, answer, help_text
from .phrases import understand
from .roles import OFFLINE

_WORDS = re.compile(r"\S*\s*")


@dataclass
class _Conversation:
    """The part of a history that matters: the last request, what came of it, and how many calls there were."""

    prompt: str = ""
    returns: list[ToolReturnPart] = field(default_factory=list[ToolReturnPart])
    calls: int = 0


def offline_model() -> FunctionModel:
    """A model that needs no network."""
    return FunctionModel(respond, stream_function=stream_function, model_name=OFFLINE)


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next step, or the answer."""
    return ModelResponse(parts=[_next_part(messages)])


async def stream_function(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The same, piece by piece."""
    part = _next_part(messages)
    if isinstance(part, ToolCallPart):
        yield {0: DeltaToolCall(name=part.tool_name, json_args=part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        return
    for word in _WORDS.findall(part.content):
        if word:
            yield word


def _next_part(messages: list[ModelMessage]) -> TextPart | ToolCallPart:
    conversation = _read(messages)
    plan = understand(conversation.prompt)
    if not plan.steps:
        return TextPart(help_text(plan.unclear))
    # One call at a time, so the returns are those of the first steps, in order.
    outcomes = [
        Outcome(step, part.outcome != "success", part.content if isinstance(part.content, str) else "")
        for step, part in zip(plan.steps, conversation.returns, strict=False)
    ]
    remaining = plan.steps[len(outcomes) :]
    if remaining and not any(outcome.stops for outcome in outcomes):
        step = remaining[0]
        return ToolCallPart(step.tool_name, json.dumps(step.params), tool_call_id=f"offline_{conversation.calls + 1}")
    return TextPart(answer(outcomes, len(remaining)))


def _read(messages: list[ModelMessage]) -> _Conversation:
    conversation = _Conversation()
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                conversation.prompt = part.content if isinstance(part.content, str) else ""
                conversation.returns = []
            elif isinstance(part, ToolReturnPart):
                conversation.returns.append(part)
            elif isinstance(part, ToolCallPart):
                conversation.calls += 1
    return conversation
