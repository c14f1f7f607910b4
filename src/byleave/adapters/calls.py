"""Steps common to all adapters: parse the arguments, make a key, and render the response.

Arguments are passed on as the model sent them: the gate judges them and the record keeps them, without a framework's
schema between. The key makes a repeated call (after a restart, a retry, a resumed state) the same call. The response
is JSON text, never an object, so that no client can inject something a framework would interpret. A shortened result
says which part it is and how to get the rest.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from byleave.protocol.errors import CallerError
from byleave.protocol.executions import BlockingCaller, ToolCaller, ToolResponse
from byleave.protocol.states import ErrorType, ResponseStatus
from byleave.protocol.tools import TOOLS, ToolResult, ToolSpec
from byleave.protocol.wire import JsonObject, canonical_json

MODEL_CHARACTERS = 100_000
"""Limit of one result shown to a model; the record has the whole."""
BIG = 256 * 1024
"""Larger results are shortened off the event loop."""
_LONGEST_LINE = 10_000
_SHORTER = ((60_000, 400), (20_000, 150), (6_000, 50), (1_000, 20), (100, 5))
"""Tried in order until a result fits: characters of a text, items of a list."""
_LEFT_OUT = "Parts were left out; ask for less at once."


def failure(response: ToolResponse) -> str:
    """Explain to the agent why a call did not complete: the reason, a hint, and any partial result."""
    lines = [response.error or f"The call ended as {response.status.value}."]
    advice = response.hint or ADVICE.get(response.error_type)
    if advice:
        lines.append(f"hint: {advice}")
    if response.edited:
        lines.append(response.edited)
    if response.result:
        lines.append(shown_to_model(response.result))
    return "\n".join(lines)


ADVICE: dict[ErrorType | None, str] = {
    ErrorType.REJECTED: "the user said no; do not ask for the same again, choose another way or ask what they prefer",
    ErrorType.APPROVAL_TIMEOUT: "nobody answered in time and nothing ran; say so and let the user decide",
    ErrorType.NO_CLIENT: "no machine of the user is connected; say so, nothing can run until it is",
    ErrorType.INTERRUPTED: "find out whether it had its effect before you try again",
    ErrorType.CANCELLED: "the user called it off",
}
"""Hints for errors without their own. Only for models: they mention the user in the third person."""


def shown_to_model(result: JsonObject) -> str:
    """Return a result as JSON text, shortened if it is long."""
    if bulk(result) <= MODEL_CHARACTERS and len(text := _dump(result)) <= MODEL_CHARACTERS:
        return text
    for characters, items in _SHORTER:
        shorter, how = _part_of(result, characters, items)
        if len(text := _dump({**shorter, "shortened": how})) <= MODEL_CHARACTERS:
            return text
    return "The result is too long to show; ask for less at once."


def bulk(result: JsonObject) -> int:
    """Estimate the size of a result without encoding it."""
    return sum(len(cast(str | list[Any], value)) for value in result.values() if isinstance(value, str | list))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _part_of(result: JsonObject, characters: int, items: int) -> tuple[JsonObject, str]:
    """Shorten a result and say how to get the rest. Its fields tell which tool it is from."""
    content = result.get("content")
    if isinstance(content, str) and result.get("encoding") == "base64":
        part = {**result, "content": ""}
        return part, f"{len(content):,} characters of base64 were left out: a picture or a PDF cannot be shown here."
    if isinstance(content, str):
        return _first_lines(result, content, characters)
    shorter = cast(JsonObject, _shorten(result, characters, items))
    for key, what, how in _LISTS:
        whole, part = result.get(key), shorter.get(key)
        if isinstance(whole, list) and isinstance(part, list):
            whole, part = cast(list[Any], whole), cast(list[Any], part)
            total = max(len(whole), _number(result.get("total_count")) or 0)
            return shorter, f"{what} 1-{len(part):,} of {total:,}; {how}."
    if "stdout" in result:
        return shorter, (
            "The middle of the output was left out; run it again so that it prints less, or have it write to a file "
            "and read that with start_line and end_line."
        )
    return shorter, _LEFT_OUT


_LISTS = (
    ("files", "entries", "list a subdirectory, or give a narrower pattern"),
    ("matches", "matches", "search narrower: a longer pattern, a subdirectory as path, or a glob"),
    ("results", "results", "ask for fewer with max_results"),
)


def _first_lines(result: JsonObject, content: str, characters: int) -> tuple[JsonObject, str]:
    """Return the first whole lines that fit, and where to read on."""
    first = _number(result.get("start_line")) or 1
    end = content.rfind("\n", 0, characters) + 1
    if end == 0:
        # One line exceeds the limit. Later lines can be read; the rest of this one cannot.
        whole = content.find("\n") + 1 or len(content)
        part = content[: min(characters, _LONGEST_LINE)]
        last = first
        part_text = f"line {first:,} alone has {whole:,} characters; its first {len(part):,} are here"
        more = whole < len(content)
    else:
        part = content[:end]
        last = first + part.count("\n") - 1
        total = _number(result.get("total_lines"))
        part_text = f"lines {first:,}-{last:,}" + (f" of {total:,}" if total else "")
        more = True
    how = f"read on with start_line={last + 1}" if more else "use search_files to find something in it"
    return {**result, "content": part, "start_line": first, "end_line": last}, f"{part_text}; {how}."


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


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


EDITED = "changed_by_user"
"""Name beside the fields of a result: what the user changed in the call."""
UNREADABLE = "unreadable_arguments"
"""Parameter name for input that is not a JSON object; no tool has it, so the gate refuses it."""


def read_arguments(arguments: str | bytes | bytearray | None) -> JsonObject:
    """Parse the arguments of a call; put anything but a JSON object under `UNREADABLE`."""
    try:
        value: Any = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return {UNREADABLE: str(arguments)[:MODEL_CHARACTERS]}
    return cast(JsonObject, value)


def call_key(scope: str, call_id: str | None, tool_name: str, params: Mapping[str, Any]) -> str | None:
    """Return the key of a call: the same for the same call of the same conversation.

    It includes the parameters, because models restart their call numbers: another call with an old number must never
    get the older result. They are canonical, because a database may reorder the keys of a stored conversation.
    """
    if not call_id:
        return None
    try:
        text = canonical_json([scope, call_id, tool_name, dict(params)])
    except (ValueError, TypeError, RecursionError):
        return None  # the gate refuses values that are not JSON
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def specs_of(tools: Iterable[str] | None) -> list[ToolSpec]:
    """Return the specs of the tools to offer; all six by default."""
    names = list(TOOLS) if tools is None else list(tools)
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise CallerError(f"There is no tool {unknown[0]!r}.", hint=f"The tools are {', '.join(TOOLS)}.")
    return [TOOLS[name] for name in names]


def text_of(response: ToolResponse, params: Mapping[str, Any]) -> str:
    """Return the text of an ended call for the model."""
    if response.status is ResponseStatus.COMPLETED:
        result = response.result or {}
        return shown_to_model({EDITED: response.edited, **result} if response.edited else result)
    if UNREADABLE in params:
        return (
            f"The arguments of {response.tool_name} are not a JSON object.\nhint: send one object with its parameters"
        )
    return failure(response)


async def response_text(response: ToolResponse, params: Mapping[str, Any]) -> str:
    """Return the text of an ended call for the model. A file of 100 MB is not encoded on the event loop."""
    big = bulk(response.result or {}) > BIG
    return await asyncio.to_thread(text_of, response, params) if big else text_of(response, params)


def typed_result(response: ToolResponse) -> ToolResult | None:
    """Return the result of a completed call as the model of its tool; None for any other."""
    if response.status is not ResponseStatus.COMPLETED or response.tool_name not in TOOLS:
        return None
    try:
        # A newer machine may send more than we know.
        return TOOLS[response.tool_name].result.model_validate(response.result, extra="ignore")
    except ValidationError:
        return None


def attached_result(response: ToolResponse) -> ToolResult | None:
    """Return the typed result to go beside its text; None if it is too big for a history that is saved."""
    return typed_result(response) if bulk(response.result or {}) <= BIG else None


class Shown(str):
    """The text of a call for the model, with its result as the model of its tool: None unless it completed."""

    __slots__ = ("result",)
    result: ToolResult | None

    def __new__(cls, text: str, result: ToolResult | None = None) -> "Shown":
        shown = super().__new__(cls, text)
        shown.result = result
        return shown


def question_of(response: ToolResponse, params: Mapping[str, Any]) -> JsonObject:
    """Return what a paused run says of a call that waits for a person."""
    return {
        "tool_name": response.tool_name,
        "tool_params": dict(params),
        "tool_id": response.tool_id,
        "approval_id": response.approval_id,
    }


def caller_of(caller: ToolCaller | BlockingCaller) -> ToolCaller:
    """Return the caller for an event loop."""
    return caller.caller if isinstance(caller, BlockingCaller) else caller
