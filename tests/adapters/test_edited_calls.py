"""A call that the user changed: every adapter tells the model, so that it does not believe in its own text."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from byleave.adapters.calls import EDITED, failure, response_text
from byleave.adapters.deepagents import ByleaveBackend
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ErrorType, ResponseStatus

pytestmark = pytest.mark.promise("A4", "I")

NOTE = "The user changed this call before deciding on it. Their content differs from yours."


def completed(tool_name: str, edited: str | None = NOTE, **result: object) -> ToolResponse:
    return ToolResponse(
        tool_id="exec_1",
        tool_name=tool_name,
        status=ResponseStatus.COMPLETED,
        result={"success": True, **result},
        edited=edited,
    )


class Caller:
    """Completes every call; those that change something were changed by the user."""

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        if tool_name == "read_file":
            return completed(tool_name, None, content="one\n", encoding="utf-8", size=4)
        if tool_name == "execute_command":
            return completed(tool_name, stdout="out", stderr="", exit_code=0, truncated=False)
        return completed(tool_name, path="a.py", size=4)

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        return await self.execute(tool_name, tool_params, key=key)

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        raise NotImplementedError

    async def cancel(self, tool_id: str) -> bool:
        return False


async def test_the_result_of_a_changed_call_says_so_before_anything_else() -> None:
    told = json.loads(await response_text(completed("write_file", path="a.py", size=4), {}))
    assert list(told) == [EDITED, "success", "path", "size"]
    assert told[EDITED] == NOTE
    assert EDITED not in json.loads(await response_text(completed("write_file", None, path="a.py", size=4), {}))


def test_a_changed_call_that_failed_says_so_too() -> None:
    failed = ToolResponse(
        tool_id="exec_1",
        tool_name="write_file",
        status=ResponseStatus.FAILED,
        error="The disk is full.",
        error_type=ErrorType.TOOL_ERROR,
        edited=NOTE,
    )
    assert failure(failed).split("\n") == ["The disk is full.", NOTE]


async def test_the_file_tools_of_deepagents_tell_of_a_change_where_their_model_reads_it() -> None:
    backend = ByleaveBackend(Caller())
    assert (await backend.awrite("/a.py", "x")).error == f"Written. {NOTE}"
    assert (await backend.aedit("/a.py", "one", "two")).error == f"Written. {NOTE}"
    ran = await backend.aexecute("git fetch")
    assert (ran.output, ran.exit_code) == (f"{NOTE}\nout", 0)
