"""What every adapter does with a call: read what the model sent, give it a key, and tell how it ended.

The arguments go on as the model sent them: the gate judges them and the record keeps them, no framework's schema in
between. The key makes a call that a framework repeats (after a restart, a retry, a resumed state) the same call.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from byleave.protocol.digests import canonical_json
from byleave.protocol.errors import CallerError
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import TOOLS, ToolSpec
from byleave.protocol.wire import JsonObject

from .model_text import BIG, MODEL_CHARACTERS, bulk, failure, shown_to_model

UNREADABLE = "unreadable_arguments"
"""Under this name goes what a model sent in place of a JSON object; no tool has such a parameter."""


def read_arguments(arguments: str | bytes | bytearray | None) -> JsonObject:
    """The arguments of a call; what is no JSON object is passed on under a name that every tool refuses."""
    try:
        value: Any = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return {UNREADABLE: str(arguments)[:MODEL_CHARACTERS]}
    return cast(JsonObject, value)


def call_key(scope: str, call_id: str | None, tool_name: str, params: Mapping[str, Any]) -> str | None:
    """The key of a call: the same for the same call of the same conversation, whoever repeats it.

    The parameters are part of it, because models number their calls anew: another call under an old number must never
    be handed the result of the older one. In one spelling: a database that keeps a conversation may order keys anew.
    """
    if not call_id:
        return None
    try:
        told = canonical_json([scope, call_id, tool_name, dict(params)])
    except (ValueError, TypeError, RecursionError):
        return None  # the gate refuses what is no JSON
    return hashlib.sha256(told.encode("ascii")).hexdigest()


def specs_of(tools: Iterable[str] | None) -> list[ToolSpec]:
    """The tools to offer; left out, all six."""
    names = list(TOOLS) if tools is None else list(tools)
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise CallerError(f"There is no tool {unknown[0]!r}.", hint=f"The tools are {', '.join(TOOLS)}.")
    return [TOOLS[name] for name in names]


async def told(response: ToolResponse, params: Mapping[str, Any]) -> str:
    """What the model is told of a call that has ended."""
    if response.status is not ResponseStatus.COMPLETED:
        if UNREADABLE in params:
            name = response.tool_name
            return f"The arguments of {name} are not a JSON object.\nhint: send one object with its parameters"
        return failure(response)
    result = response.result or {}
    # A file of 100 MB is not written out as JSON on the event loop.
    return await asyncio.to_thread(shown_to_model, result) if bulk(result) > BIG else shown_to_model(result)
