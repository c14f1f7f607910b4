"""Byleave for LangChain and LangGraph: its six tools as LangChain tools.

    agent = create_agent(model, tools=byleave_tools(machine))                    # waits until a person has answered
    agent = create_agent(model, tools=byleave_tools(machine, interrupt=True),    # pauses the graph instead
                         checkpointer=saver)

`invoke` and `ainvoke` both work, with a `byleave.Machine` or a `byleave.SyncMachine`. With `interrupt`, a call that
needs a person is requested at once, and the graph pauses with LangGraph's `interrupt()`. When people have answered, go
on in any process with `await agent.ainvoke(await settle(result["__interrupt__"], machine), config)`. The value it is
resumed with decides nothing: until a person has answered, the graph pauses again.

Every call goes to the gate, whatever LangChain's own middleware approved, edited or rejected before. The typed result
is the `artifact` of the tool message.
"""

from collections.abc import Iterable
from typing import Any, cast

from .versions import warn_if_untested

warn_if_untested("langchain-core")
warn_if_untested("langgraph")

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.types import Command, Interrupt, interrupt

from byleave.protocol.executions import BlockingCaller, ToolCaller, ToolResponse, has_ended
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import ToolResult, ToolSpec
from byleave.protocol.wire import JsonObject

from .calls import UNREADABLE, attached_result, call_key, caller_of, question_of, response_text, specs_of, text_of

Answer = tuple[str, ToolResult | None]


def byleave_tools(
    caller: ToolCaller | BlockingCaller, *, tools: Iterable[str] | None = None, interrupt: bool = False
) -> list[BaseTool]:
    """Return the tools for an agent; `tools` selects some of the six."""
    return [ByleaveTool.of(caller, spec, interrupt=interrupt) for spec in specs_of(tools)]


class ByleaveTool(BaseTool):
    """A tool. A refusal, rejection or failure becomes a tool message with status `error` and the reason."""

    caller: Any
    """The ToolCaller or BlockingCaller; typed Any because the framework copies its tools."""
    interrupt: bool = False

    @classmethod
    def of(cls, caller: ToolCaller | BlockingCaller, spec: ToolSpec, *, interrupt: bool = False) -> "ByleaveTool":
        return cls(
            name=spec.name,
            description=spec.description,
            args_schema=spec.params.model_json_schema(),
            caller=caller,
            interrupt=interrupt,
            handle_tool_error=True,
            response_format="content_and_artifact",
            metadata={"risk_level": spec.risk_level.value, "requires_approval": spec.requires_approval},
        )

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass everything on as the model sent it: the gate must see it, and the record must hold it."""
        params = tool_input if isinstance(tool_input, dict) else {UNREADABLE: tool_input}
        return (), {"params": dict(params), "tool_call_id": tool_call_id}

    async def _arun(self, params: JsonObject, tool_call_id: str | None, config: RunnableConfig) -> Answer:
        caller, key = caller_of(self.caller), self._key(params, tool_call_id, config)
        begin = caller.start if self.interrupt else caller.execute
        response = await begin(self.name, params, key=key)
        while not has_ended(response):
            interrupt(question_of(response, params))  # returns in a resumed graph, once for each time
            response = await caller.wait(response.tool_id, 0)
        return _returned(response, await response_text(response, params))

    def _run(self, params: JsonObject, tool_call_id: str | None, config: RunnableConfig) -> Answer:
        caller, key = self._blocking(), self._key(params, tool_call_id, config)
        begin = caller.start if self.interrupt else caller.execute
        response = begin(self.name, params, key=key)
        while not has_ended(response):
            interrupt(question_of(response, params))
            response = caller.wait(response.tool_id, 0)
        return _returned(response, text_of(response, params))

    def _blocking(self) -> BlockingCaller:
        if isinstance(self.caller, BlockingCaller):
            return self.caller
        blocking = getattr(self.caller, "blocking", None)
        if blocking is None:
            raise NotImplementedError(f"{self.name} works on a server's own loop here: use ainvoke() or astream().")
        return blocking()

    def _key(self, params: JsonObject, tool_call_id: str | None, config: RunnableConfig) -> str | None:
        thread = str(config.get("configurable", {}).get("thread_id", ""))
        # A resumed graph repeats its last step. The same call in a later step is another call, even with the same call
        # id.
        step = config.get("metadata", {}).get("langgraph_step", "")
        # Without a thread nothing outlives this run, so no repetition can occur.
        return call_key(f"{thread}/{step}", tool_call_id, self.name, params) if thread else None


def _returned(response: ToolResponse, message: str) -> Answer:
    if response.status is not ResponseStatus.COMPLETED:
        raise ToolException(message)
    return message, attached_result(response)


async def settle(
    interrupts: Iterable[Interrupt[Any]], caller: ToolCaller | BlockingCaller, *, seconds: float | None = None
) -> Command[Any] | None:
    """Wait for people's answers, at most `seconds`; return what resumes the graph, or None if one is missing.

    Interrupts of other nodes are left out: add their values.
    """
    answered: dict[str, bool] = {}
    for one in interrupts:
        value: object = one.value
        question = cast(JsonObject, value) if isinstance(value, dict) else {}
        if not isinstance(tool_id := question.get("tool_id"), str):
            continue
        if not has_ended(await caller_of(caller).wait(tool_id, seconds)):
            return None
        answered[one.id] = True
    return Command(resume=answered)
