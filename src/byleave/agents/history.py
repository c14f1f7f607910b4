"""A run's conversation: pydantic-ai's messages stored as JSON, and queries on them.

The history is data, never authority: a message that says "approved" means nothing to the executor. It only decides
where a run resumes, and the ids of its tool calls.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import structlog
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_core import PydanticSerializationError

from byleave.protocol.errors import ByleaveError
from byleave.protocol.tools import SCRIPT_NAMES

log = structlog.stdlib.get_logger(__name__)

MAX_CALL_ID_CHARACTERS = 128
REMEMBERED_CHARACTERS = 2_000_000
"""Most of a conversation that a run begins with: no model takes more, and it is read and written at each step."""


def dump(messages: Sequence[ModelMessage]) -> str:
    kept = list(messages)
    try:
        return ModelMessagesTypeAdapter.dump_json(kept).decode()
    except PydanticSerializationError:
        # It holds a lone surrogate somewhere. Store it all the same, or the run could not even fail.
        return json.dumps(_fixed(ModelMessagesTypeAdapter.dump_python(kept, mode="json")))


def whole_characters(text: str) -> str:
    """Return text that can be encoded: join surrogate pairs, replace lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def fix_surrogates(response: ModelResponse) -> None:
    """Remove lone surrogates from a response: no database or provider would accept them."""
    for part in response.parts:
        if isinstance(part, TextPart | ThinkingPart):
            part.content = whole_characters(part.content)
        elif isinstance(part, ToolCallPart):
            if type(part) is ToolCallPart:
                part.tool_name = whole_characters(part.tool_name)
            part.tool_call_id = whole_characters(part.tool_call_id)
            part.args = _fixed(part.args)


def _fixed(value: Any) -> Any:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {whole_characters(key): _fixed(member) for key, member in members.items()}
    if isinstance(value, list):
        return [_fixed(element) for element in cast("list[Any]", value)]
    return value


def load(text: str) -> list[ModelMessage]:
    """Parse the messages of a run, unchanged."""
    try:
        return ModelMessagesTypeAdapter.validate_json(text)
    except ValidationError as error:
        raise ByleaveError(
            "The saved state of this run cannot be read.", hint="Send the message again in a new session."
        ) from error


def remember(text: str | None) -> list[ModelMessage]:
    """Parse earlier messages for a new prompt, the newest if they are many; close calls that never ended."""
    if text is None:
        return []
    try:
        messages = load(text)
        return repair_messages(messages if len(text) <= REMEMBERED_CHARACTERS else _newest(messages))
    except ByleaveError:
        # A new message is worth more than an old memory.
        log.warning("earlier messages unreadable; continuing without them")
        return []


def _newest(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the newest messages that are not too long together, from a prompt on."""
    size, first = 0, len(messages)
    for number in range(len(messages) - 1, -1, -1):
        size += len(dump([messages[number]]))
        if size > REMEMBERED_CHARACTERS:
            break
        if any(isinstance(part, UserPromptPart) for part in messages[number].parts):
            first = number
    log.info("the beginning of a long conversation is left out", messages=first)
    return list(messages[first:])


def responses_since_prompt(messages: Sequence[ModelMessage]) -> list[ModelResponse]:
    """Return the model's responses since the user's last message."""
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
    """Return all text of the agent in this run, as it was streamed."""
    return "\n\n".join(text for response in responses_since_prompt(messages) if (text := text_of(response)))


def final_answer(messages: Sequence[ModelMessage]) -> str | None:
    """Return the answer if the last message is a response without tool calls."""
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and not last.tool_calls and text_of(last):
        return answer_of(messages)
    return None


def unanswered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation up to the last request, without a partial response."""
    kept = list(messages)
    while kept and isinstance(kept[-1], ModelResponse):
        kept.pop()
    return kept


@dataclass(frozen=True, slots=True)
class SameFailure:
    """The last failed call, and its number of failures in a row with the same arguments."""

    tool_name: str = ""
    arguments: str = ""
    times: int = 0


def same_failure(messages: Sequence[ModelMessage]) -> SameFailure:
    """Count how often the last call failed in a row, since the user's last message."""
    calls: dict[str, ToolCallPart] = {}
    last = SameFailure()
    for message in messages:
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts):
            last = SameFailure()
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                calls[part.tool_call_id] = part
            elif isinstance(part, ToolReturnPart) and part.tool_call_id in calls:
                last = _after(last, calls[part.tool_call_id], part)
    return last


def _after(last: SameFailure, call: ToolCallPart, result: ToolReturnPart) -> SameFailure:
    if result.outcome == "success":
        return SameFailure()
    arguments = _normalized(call.args_as_json_str())
    same = (call.tool_name, arguments) == (last.tool_name, last.arguments)
    return SameFailure(call.tool_name, arguments, last.times + 1 if same else 1)


def _normalized(arguments: str) -> str:
    """Normalize arguments, so that another order of keys is the same call."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def ends_in_silence(messages: Sequence[ModelMessage]) -> bool:
    """Return True if the model's last response has no text and no calls."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    return last is not None and not last.tool_calls and not text_of(last).strip()


def settle_calls(response: ModelResponse, messages: Sequence[ModelMessage]) -> None:
    """Normalize a response's calls: known tool names, and ids unique in the conversation.

    An execution's id is made from the call's id. A model that restarts its call numbers in every response would
    otherwise get the result of an older call.
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
