"""A Pydantic AI agent whose tools work on a user's machine."""

import asyncio
import os

from pydantic_ai import Agent

import byleave
from byleave.adapters.pydantic_ai import ByleaveToolset

TASK = "Read README.md and write a summary of it to summary.md."


async def main() -> None:
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        worker = Agent(f"openai-chat:{os.environ['MODEL']}", toolsets=[ByleaveToolset(machine)])
        result = await worker.run(TASK)
    print(result.output)


asyncio.run(main())
