"""A deep agent whose file tools and commands work on a user's machine, all of them through the gate."""

import asyncio
import os

from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI

import byleave
from byleave.adapters.deepagents import ByleaveBackend

TASK = "Read /README.md and write a summary of it to /summary.md."


async def main() -> None:
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        worker = create_deep_agent(model=ChatOpenAI(model=os.environ["MODEL"]), backend=ByleaveBackend(machine))
        result = await worker.ainvoke({"messages": [{"role": "user", "content": TASK}]})
    print(result["messages"][-1].text)


asyncio.run(main())
