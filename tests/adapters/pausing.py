"""A program of each framework that writes a file: `python pausing.py FRAMEWORK STATE`.

Started without its state, it runs until a person has to be asked, saves the state and ends. Started again, it waits for
the answer, goes on from there and prints what the model said in the end. Run by `test_resumed_elsewhere`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import byleave

PROMPT = "Write a.txt."


async def openai_agents(machine: byleave.Machine, state: Path) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, RunState, set_tracing_disabled
    from openai import AsyncOpenAI

    from byleave.adapters.openai_agents import byleave_tools, settle

    set_tracing_disabled(disabled=True)
    tools = byleave_tools(machine, interrupt=True, scope="thread-1")
    model = OpenAIChatCompletionsModel("scripted", openai_client=AsyncOpenAI())
    agent = Agent(name="worker", model=model, tools=[*tools])
    if not state.exists():
        result = await Runner.run(agent, PROMPT)
        assert [item.tool_name for item in result.interruptions] == ["write_file"]
        state.write_text(json.dumps(result.to_state().to_json()))
        return "paused"
    saved = await RunState.from_json(agent, json.loads(state.read_text()))
    assert await settle(saved, machine, scope="thread-1")
    return (await Runner.run(agent, saved)).final_output


async def langgraph(machine: byleave.Machine, state: Path) -> str:
    from langchain.agents import create_agent
    from langchain_core.runnables import RunnableConfig
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from byleave.adapters.langchain import byleave_tools, settle

    paused, config = state.exists(), RunnableConfig(configurable={"thread_id": "thread-1"})
    async with AsyncSqliteSaver.from_conn_string(str(state)) as saver:
        tools = byleave_tools(machine, interrupt=True)
        agent = create_agent(ChatOpenAI(model="scripted"), tools=tools, checkpointer=saver)
        if not paused:
            result = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
            (question,) = result["__interrupt__"]
            assert question.value["tool_name"] == "write_file"
            return "paused"
        asked = (await agent.aget_state(config)).interrupts
        result = await agent.ainvoke(await settle(asked, machine), config)
        return result["messages"][-1].text


async def pydantic_ai(machine: byleave.Machine, state: Path) -> str:
    from pydantic import TypeAdapter
    from pydantic_ai import Agent, DeferredToolRequests, ModelMessagesTypeAdapter

    from byleave.adapters.pydantic_ai import ByleaveToolset, settle

    toolset = ByleaveToolset(machine, defer=True)
    agent = Agent("openai-chat:scripted", toolsets=[toolset], output_type=[str, DeferredToolRequests])
    requests = TypeAdapter(DeferredToolRequests)
    if not state.exists():
        first = await agent.run(PROMPT)
        assert isinstance(first.output, DeferredToolRequests)
        saved = {
            "messages": json.loads(first.all_messages_json()),
            "requests": requests.dump_python(first.output, mode="json"),
        }
        state.write_text(json.dumps(saved))
        return "paused"
    saved = json.loads(state.read_text())
    decided = await settle(requests.validate_python(saved["requests"]), machine)
    messages = ModelMessagesTypeAdapter.validate_python(saved["messages"])
    return str((await agent.run(message_history=messages, deferred_tool_results=decided)).output)


FRAMEWORKS = {one.__name__: one for one in (openai_agents, langgraph, pydantic_ai)}


async def main(framework: str, state: str) -> None:
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        print(await FRAMEWORKS[framework](machine, Path(state)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
