"""Byleave for the OpenAI Agents SDK: function tools, with approvals as interruptions.

    tools = byleave_tools(machine)                               # waits inside the tool until a person has answered
    tools = byleave_tools(machine, interrupt=True, scope="t1")   # ends the run with interruptions instead

With `interrupt`, a call that needs a person is requested at once, and the run returns with an interruption. Save
`result.to_state().to_json()`; when people have answered, call `await settle(state, machine, scope="t1")` and resume the
state, in any process. The SDK's approval decides nothing: a state approved by anybody else still waits for the person.
A state that is not resumed leaves its questions open: `await withdraw(state, machine, scope="t1")` takes them back.

A cancelled run takes its questions back. The output of a completed call is text with the typed result as `.result`.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from .versions import warn_if_untested

warn_if_untested("openai-agents")

from agents import FunctionTool, RunContextWrapper, RunState
from agents.items import ToolApprovalItem
from agents.tool_context import ToolContext

from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.executions import BlockingCaller, ToolCaller, has_ended
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import TOOLS, ToolSpec

from .calls import Shown, attached_result, call_key, caller_of, read_arguments, response_text, specs_of


def byleave_tools(
    caller: ToolCaller | BlockingCaller,
    *,
    tools: Iterable[str] | None = None,
    interrupt: bool = False,
    scope: str | None = None,
) -> list[FunctionTool]:
    """Return the tools for an agent of the SDK; `tools` selects some of the six.

    `scope` names the conversation, so that a call repeated after a restart is the same call. `interrupt` needs one,
    because an interruption outlives the process.
    """
    if interrupt and scope is None:
        raise CallerError("Interruptions outlive this process, so they need a scope.", hint="pass scope=<thread id>")
    asked = Asked(caller_of(caller)) if interrupt else None
    return [_tool(caller_of(caller), spec, scope, asked) for spec in specs_of(tools)]


class Asked:
    """Questions that runs have asked so far. A run that is cancelled before it can return them takes them back."""

    def __init__(self, caller: ToolCaller) -> None:
        self._caller = caller
        self._of_run: WeakKeyDictionary[RunContextWrapper[Any], list[str]] = WeakKeyDictionary()

    async def asks(self, run: RunContextWrapper[Any], name: str, params: Mapping[str, Any], key: str | None) -> bool:
        """Begin a call now: one that needs nobody has ended by the time the SDK runs it."""
        asked = self._of_run.setdefault(run, [])
        try:
            response = await self._caller.start(name, params, key=key)
        except asyncio.CancelledError:
            with suppress(ByleaveError):
                await asyncio.gather(*(self._caller.cancel(tool_id) for tool_id in asked))
            raise
        if has_ended(response):
            return False
        asked.append(response.tool_id)
        return True


def _tool(caller: ToolCaller, spec: ToolSpec, scope: str | None, asked: Asked | None) -> FunctionTool:
    def key_of(call_id: str, params: Mapping[str, Any]) -> str | None:
        # Without a scope, the tools serve many conversations. Models restart their call numbers in each, and nothing
        # outlives the run: every call is a new one.
        return None if scope is None else call_key(scope, call_id, spec.name, params)

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        params = read_arguments(arguments)
        response = await caller.execute(spec.name, params, key=key_of(context.tool_call_id, params))
        return Shown(await response_text(response, params), attached_result(response))

    async def asks(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return asked is not None and await asked.asks(context, spec.name, arguments, key_of(call_id, arguments))

    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=spec.params.model_json_schema(),
        on_invoke_tool=invoke,
        # Strict mode requires every parameter; ours have defaults, and the gate is stricter than any schema.
        strict_json_schema=False,
        needs_approval=False if asked is None else asks,
    )


async def settle(
    state: "RunState[Any, Any]", caller: ToolCaller | BlockingCaller, *, scope: str, seconds: float | None = None
) -> bool:
    """Apply people's decisions to a saved state; return True if it can be resumed.

    Waits for the answers, at most `seconds`. Interruptions of other tools are left alone.
    """
    caller = caller_of(caller)
    ours = list(_ours(state))
    settled = len(ours) == len(state.get_interruptions())
    for item, name, params, call_id in ours:
        begun = await caller.start(name, params, key=call_key(scope, call_id, name, params))
        response = begun if has_ended(begun) else await caller.wait(begun.tool_id, seconds)
        if not has_ended(response):
            settled = False
        elif response.status is ResponseStatus.COMPLETED:
            state.approve(item)
        else:
            state.reject(item, rejection_message=await response_text(response, params))
    return settled


async def withdraw(state: "RunState[Any, Any]", caller: ToolCaller | BlockingCaller, *, scope: str) -> None:
    """Take back the questions of a saved state that will not be resumed."""
    caller = caller_of(caller)
    for _, name, params, call_id in _ours(state):
        begun = await caller.start(name, params, key=call_key(scope, call_id, name, params))
        if not has_ended(begun):
            await caller.cancel(begun.tool_id)


def _ours(state: "RunState[Any, Any]") -> Iterator[tuple[ToolApprovalItem, str, Mapping[str, Any], str]]:
    """Yield our interruptions, each with tool, parameters and call id."""
    for item in state.get_interruptions():
        raw = item.raw_item
        fields: dict[str, Any] = raw if isinstance(raw, dict) else vars(raw)
        name, call_id, arguments = fields.get("name"), fields.get("call_id"), fields.get("arguments")
        if name in TOOLS and isinstance(call_id, str) and isinstance(arguments, str):
            yield item, name, read_arguments(arguments), call_id
