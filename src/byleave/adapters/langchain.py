"""Byleave for LangChain and LangGraph: its six tools as LangChain tools.

    agent = create_agent(model, tools=byleave_tools(byleave.Machine(url, token, project_id)))

The tools are asynchronous (`ainvoke`, `astream`): a person may take hours. Every call goes to the gate, whatever
LangChain's own middleware approved, edited or rejected before.
"""

from collections.abc import Iterable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException

from byleave.protocol.executions import ToolCaller
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import ToolSpec

from .calls import UNREADABLE, call_key, response_text, specs_of


def byleave_tools(caller: ToolCaller, *, tools: Iterable[str] | None = None) -> list[BaseTool]:
    """Return the tools for an agent; `tools` selects some of the six."""
    return [ByleaveTool.of(caller, spec) for spec in specs_of(tools)]


class ByleaveTool(BaseTool):
    """A tool. A refusal, rejection or failure becomes a tool message with status `error` and the reason."""

    caller: Any
    """The ToolCaller; typed Any because the framework copies its tools."""

    @classmethod
    def of(cls, caller: ToolCaller, spec: ToolSpec) -> "ByleaveTool":
        return cls(
            name=spec.name,
            description=spec.description,
            args_schema=spec.params.model_json_schema(),
            caller=caller,
            handle_tool_error=True,
            metadata={"risk_level": spec.risk_level.value, "requires_approval": spec.requires_approval},
        )

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass everything on as the model sent it: the gate must see it, and the record must hold it."""
        params = tool_input if isinstance(tool_input, dict) else {UNREADABLE: tool_input}
        return (), {"params": dict(params), "tool_call_id": tool_call_id}

    async def _arun(self, params: dict[str, Any], tool_call_id: str | None, config: RunnableConfig) -> str:
        caller: ToolCaller = self.caller
        thread = str(config.get("configurable", {}).get("thread_id", ""))
        # A resumed graph repeats its last step. The same call in a later step is another call, even with the same call
        # id.
        step = config.get("metadata", {}).get("langgraph_step", "")
        # Without a thread nothing outlives this run, so no repetition can occur.
        key = call_key(f"{thread}/{step}", tool_call_id, self.name, params) if thread else None
        response = await caller.execute(self.name, params, key=key)
        message = await response_text(response, params)
        if response.status is ResponseStatus.COMPLETED:
            return message
        raise ToolException(message)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{self.name} waits for people and machines, so it is asynchronous: use ainvoke() or astream()."
        )
