"""Models that do exactly what a test says, through the same door as a real one."""

import json
from collections.abc import AsyncIterator, Callable, Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from harness.json_values import JsonObject

Piece = str | DeltaToolCalls
Turn = str | Sequence[tuple[str, JsonObject | str, str]]
"""What to say, or which tools to call: name, arguments (an object, or text as it is), id."""


def scripted(turn: Callable[[int, list[ModelMessage]], Turn]) -> FunctionModel:
    """A model whose n-th response of the run (from 0) is `turn(n, messages)`."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        said = turn(sum(isinstance(message, ModelResponse) for message in messages), messages)
        if isinstance(said, str):
            yield said
            return
        for index, (name, arguments, call_id) in enumerate(said):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            yield {index: DeltaToolCall(name=name, json_args=text, tool_call_id=call_id)}

    return FunctionModel(stream_function=stream, model_name="scripted")


def turns(*said: Turn) -> FunctionModel:
    """A model that goes through these turns and stays at the last."""
    return scripted(lambda number, messages: said[min(number, len(said) - 1)])


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
