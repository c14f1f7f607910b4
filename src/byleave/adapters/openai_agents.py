"""Byleave for the OpenAI Agents SDK: function tools, with approvals as interruptions.

    tools = byleave_tools(agent)                               # waits inside the tool until a person has answered
    tools = byleave_tools(agent, interrupt=True, scope="t1")   # ends the run with interruptions instead

With `interrupt`, a call that needs a person is requested at once, and the run returns with an interruption. Save
`result.to_state().to_json()`; when people have answered, call `await settle(state, agent, scope="t1")` and resume the
state. The SDK's approval decides nothing: a state approved by anybody else still waits for the person.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from agents import FunctionTool, RunContextWrapper, RunState
from agents.items import ToolApprovalItem
from agents.tool_context import ToolContext

from byleave.protocol.errors import CallerError
from byleave.protocol.executions import ToolCaller, has_ended
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import TOOLS, ToolSpec

from .calls import call_key, read_arguments, response_text, specs_of


def byleave_tools(
    caller: ToolCaller, *, tools: Iterable[str] | None = None, interrupt: bool = False, scope: str | None = None
) -> list[FunctionTool]:
    """Return the tools for an agent of the SDK; `tools` selects some of the six.

    `scope` names the conversation, so that a call repeated after a restart is the same call. `interrupt` needs one,
    because an interruption outlives the process.
    """
    if interrupt and scope is None:
        raise CallerError("Interruptions outlive this process, so they need a scope.", hint="pass scope=<thread id>")
    return [_tool(caller, spec, scope, interrupt=interrupt) for spec in specs_of(tools)]


def _tool(caller: ToolCaller, spec: ToolSpec, scope: str | None, *, interrupt: bool) -> FunctionTool:
    def key_of(call_id: str, params: Mapping[str, Any]) -> str | None:
        # Without a scope, the tools serve many conversations. Models restart their call numbers in each, and nothing
        # outlives the run: every call is a new one.
        return None if scope is None else call_key(scope, call_id, spec.name, params)

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        params = read_arguments(arguments)
        key = key_of(context.tool_call_id, params)
        return await response_text(await caller.execute(spec.name, params, key=key), params)

    async def asks(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        """Begin the call now: one that needs nobody has ended by the time the SDK runs it."""
        return not has_ended(await caller.start(spec.name, arguments, key=key_of(call_id, arguments)))

    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=spec.params.model_json_schema(),
        on_invoke_tool=invoke,
        # Strict mode requires every parameter; ours have defaults, and the gate is stricter than any schema.
        strict_json_schema=False,
        needs_approval=asks if interrupt else False,
    )


async def settle(state: "RunState[Any, Any]", caller: ToolCaller, *, scope: str, seconds: float | None = None) -> bool:
    """Apply people's decisions to a saved state; return True if it can be resumed.

    Waits for the answers, at most `seconds`. Interruptions of other tools are left alone.
    """
    settled = True
    for item in state.get_interruptions():
        call = _call_of(item)
        if call is None:
            settled = False
            continue
        name, params, call_id = call
        begun = await caller.start(name, params, key=call_key(scope, call_id, name, params))
        response = begun if has_ended(begun) else await caller.wait(begun.tool_id, seconds)
        if not has_ended(response):
            settled = False
        elif response.status is ResponseStatus.COMPLETED:
            state.approve(item)
        else:
            state.reject(item, rejection_message=await response_text(response, params))
    return settled


def _call_of(item: ToolApprovalItem) -> tuple[str, Mapping[str, Any], str] | None:
    """Return tool, parameters and id of one of our interruptions."""
    raw = item.raw_item
    fields: dict[str, Any] = raw if isinstance(raw, dict) else vars(raw)
    name, call_id, arguments = fields.get("name"), fields.get("call_id"), fields.get("arguments")
    if name not in TOOLS or not isinstance(call_id, str) or not isinstance(arguments, str):
        return None
    return name, read_arguments(arguments), call_id
