"""The process that makes the calls from elsewhere. Its task is JSON in its one argument; its plans come on stdin.

{"target": "byleave" | "mcp", "url": …, "token": …, "project_id": …}
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import aiohttp
import mcp

from .measure import Caller, Plan, WrongAnswer, answer_plans, say


@contextlib.asynccontextmanager
async def byleave_caller(task: dict[str, Any]) -> AsyncGenerator[Callable[[Plan], Caller]]:
    """POST /my/tools/execute over kept-alive connections, as an agent that runs elsewhere does."""
    headers = {"Authorization": f"Bearer {task['token']}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        task["url"], headers=headers, connector=connector, timeout=aiohttp.ClientTimeout(total=60)
    ) as session:

        async def call(plan: Plan, number: int) -> None:
            body = {
                "project_id": task["project_id"],
                "tool_name": "read_file",
                "tool_params": {"path": plan.path(number)},
            }
            async with session.post("/my/tools/execute", json=body) as response:
                answer = await response.json(content_type=None)
                if response.status != 200 or answer.get("status") != "completed" or not answer["result"]["success"]:
                    raise WrongAnswer(f"{response.status}: {str(answer)[:500]}")

        yield lambda plan: partial(call, plan)


@contextlib.asynccontextmanager
async def mcp_caller(task: dict[str, Any]) -> AsyncGenerator[Callable[[Plan], Caller]]:
    """call_tool through one client of the MCP SDK, which keeps its connections too."""
    async with mcp.Client(task["url"], read_timeout_seconds=60) as client:

        async def call(plan: Plan, number: int) -> None:
            answer = await client.call_tool("read_file", {"path": plan.path(number)})
            if answer.is_error or not (answer.structured_content or {}).get("success"):
                raise WrongAnswer(str(answer)[:500])

        yield lambda plan: partial(call, plan)


async def main() -> None:
    task = json.loads(sys.argv[1])
    async with byleave_caller(task) if task["target"] == "byleave" else mcp_caller(task) as caller:
        say("ready")
        await answer_plans(caller)


if __name__ == "__main__":
    asyncio.run(main())
