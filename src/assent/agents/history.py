"""A run's conversation as it is kept: pydantic-ai's messages as JSON, and what can be read from them.

The history is data, never authority: that a message says "approved" means nothing to the executor. It decides only
where a run goes on, and which ids its tool calls have.
"""

import hashlib
from collections.abc import Sequence

import structlog
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
    repair_messages,
)

from assent.protocol.errors import AssentError
from assent.protocol.tools import SCRIPT_NAMES

log = structlog.stdlib.get_logger(__name__)

MAX_CALL_ID_CHARACTERS = 128


def dump(messages: Sequence[ModelMessage]) -> str:
    return ModelMessagesTypeAdapter.dump_json(list(messages)).decode()


def load(text: str) -> list[ModelMessage]:
    """The messages a run left behind, exactly as they were."""
    try:
        return ModelMessagesTypeAdapter.validate_json(text)
    except ValidationError as error:
        raise AssentError(
            "The saved state of this run cannot be read.", hint="Send the message again in a new session."
        ) from error


def remember(text: str | None) -> list[ModelMessage]:
    """What earlier runs of a session left behind, made fit for another message: calls that never ended are closed."""
    if text is None:
        return []
    try:
        return repair_messages(load(text))
    except AssentError:
        # A new message is worth more than an old memory.
        log.warning("earlier messages cannot be read; going on without them")
        return []


def responses_since_prompt(messages: Sequence[ModelMessage]) -> list[ModelResponse]:
    """What the model said since the user's last message."""
    found: list[ModelResponse] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append(message)
        elif any(isinstance(part, UserPromptPart) for part in message.parts):
            found.clear()
    return found


def text_of(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def answer_of(messages: Sequence[ModelMessage]) -> str:
    """Everything the agent said in this run, as it was streamed."""
    return "\n\n".join(text for response in responses_since_prompt(messages) if (text := text_of(response)))


def final_answer(messages: Sequence[ModelMessage]) -> str | None:
    """The answer, when the last message is one: a response that calls no tool."""
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and not last.tool_calls and text_of(last):
        return answer_of(messages)
    return None


def ends_with_calls(messages: Sequence[ModelMessage]) -> bool:
    last = messages[-1] if messages else None
    return isinstance(last, ModelResponse) and bool(last.tool_calls)


def settle_calls(response: ModelResponse, messages: Sequence[ModelMessage]) -> None:
    """Make a response's calls fit to be kept: known names, and ids that no other call of the conversation has.

    An execution's id is made from the call's id. A model that numbers its calls anew in every response would otherwise
    be handed the result of an older call.
    """
    taken = {
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse) and message is not response
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            if type(part) is ToolCallPart:
                part.tool_name = SCRIPT_NAMES.get(part.tool_name, part.tool_name)
            part.tool_call_id = _free_id(part.tool_call_id, taken)
            taken.add(part.tool_call_id)


def _free_id(wanted: str, taken: set[str]) -> str:
    if wanted and wanted not in taken and len(wanted) <= MAX_CALL_ID_CHARACTERS:
        return wanted
    stem = hashlib.sha256(wanted.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    number = len(taken)
    while (free := f"call_{stem}_{number}") in taken:
        number += 1
    return free
