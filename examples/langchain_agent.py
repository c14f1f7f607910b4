"""A LangChain agent whose tools work on a user's machine."""

import asyncio
import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

import byleave
from byleave.adapters.langchain import byleave_tools

TASK = "Read README.md and write a summary of it to summary.md."


async def main() -> None:
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        worker = create_agent(ChatOpenAI(model=os.environ["MODEL"]), tools=byleave_tools(machine))
        result = await worker.ainvoke({"messages": [{"role": "user", "content": TASK}]})
    print(result["messages"][-1].text)


asyncio.run(main())
