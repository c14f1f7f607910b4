"""What a model is told of a call: the result as text, shortened where it is long, or why there is none.

The text is data for the model and nothing else. A result goes in as JSON text and not as an object, so that no client
can smuggle in what a framework would take for more.
"""

import json
from typing import Any, cast

from .executions import ToolResponse
from .states import ErrorType
from .values import JsonObject

MODEL_CHARACTERS = 100_000
"""The most of one result that a model is shown; the record has the whole."""
BIG = 256 * 1024
"""Results larger than this are shortened off the event loop."""
_SHORTER = ((60_000, 400), (20_000, 150), (6_000, 50), (1_000, 20), (100, 5))
"""Tried in order until a long result fits: characters of a text, items of a list."""


def failure(response: ToolResponse) -> str:
    """What an agent is told of a call that did not complete: the reason, what to do, and what there is all the same."""
    lines = [response.error or f"The call ended as {response.status.value}."]
    advice = response.hint or _ADVICE.get(response.error_type)
    if advice:
        lines.append(f"hint: {advice}")
    if response.result:
        lines.append(shown_to_model(response.result))
    return "\n".join(lines)


_ADVICE: dict[ErrorType | None, str] = {
    ErrorType.REJECTED: "the user said no; do not ask for the same again, choose another way or ask what they prefer",
    ErrorType.APPROVAL_TIMEOUT: "nobody answered in time and nothing ran; say so and let the user decide",
    ErrorType.NO_CLIENT: "no machine of the user is connected; say so, nothing can run until it is",
    ErrorType.INTERRUPTED: "find out whether it had its effect before you try again",
    ErrorType.CANCELLED: "the user called it off",
}


def shown_to_model(result: JsonObject) -> str:
    """A result as JSON text. Text, not an object: no client may smuggle in what a framework would take for more."""
    if bulk(result) <= MODEL_CHARACTERS and len(text := _dump(result)) <= MODEL_CHARACTERS:
        return text
    for characters, items in _SHORTER:
        shorter = _shorten(result, characters, items)
        if (
            len(text := _dump({**shorter, "shortened": "Parts were left out; ask for less at once."}))
            <= MODEL_CHARACTERS
        ):
            return text
    return "The result is too long to show; ask for less at once."


def bulk(result: JsonObject) -> int:
    """How large a result is at least, without writing it out."""
    return sum(len(cast(str | list[Any], value)) for value in result.values() if isinstance(value, str | list))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shorten(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, str) and len(value) > characters:
        half = characters // 2
        return f"{value[:half]}\n… {len(value) - 2 * half:,} characters left out …\n{value[-half:]}"
    if isinstance(value, dict):
        members = cast(JsonObject, value)
        return {key: _shorten(member, characters, items) for key, member in members.items()}
    if isinstance(value, list):
        elements = cast(list[Any], value)
        return [_shorten(element, characters, items) for element in elements[:items]]
    return value
