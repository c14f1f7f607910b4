"""An agent of the OpenAI Agents SDK whose tools work on a user's machine."""

import asyncio
import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

import byleave
from byleave.adapters.openai_agents import byleave_tools

TASK = "Read README.md and write a summary of it to summary.md."


async def main() -> None:
    set_tracing_disabled(disabled=True)
    model = OpenAIChatCompletionsModel(os.environ["MODEL"], openai_client=AsyncOpenAI())
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        worker = Agent(name="worker", model=model, tools=byleave_tools(machine))
        result = await Runner.run(worker, TASK)
    print(result.final_output)


asyncio.run(main())
