"""A Pydantic AI agent whose tools work on a user's machine."""

import asyncio
import os

from pydantic_ai import Agent

import assent
from assent.adapters.pydantic_ai import AssentToolset

TASK = "Read README.md and write a summary of it to summary.md."


async def main() -> None:
    async with assent.Agent(project_id=os.environ["ASSENT_PROJECT"], name="pydantic-ai") as hands:
        worker = Agent(f"openai-chat:{os.environ['MODEL']}", toolsets=[AssentToolset(hands)])
        result = await worker.run(TASK)
    print(result.output)


asyncio.run(main())
